"""Logs of lm-evaluation-harness and of Inspect, written by the packages themselves with scripted models.

    python tests/data/make_logs.py inspect OUT
    python tests/data/make_logs.py lm_eval OUT

The results are kept under tests/data/logs, so that the tests need neither package; ``make test-harnesses`` runs this
script again and reads what it writes. Questions and texts are our own. What tells of the machine is left out.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

QUESTIONS = [
    {"id": "sum-a", "question": "Compute 1+1.", "answer": "2"},
    {"id": "sum-b", "question": "Compute 2+2.", "answer": "4"},
]
TEXTS = {
    "Compute 1+1.": ("It is \\boxed{2}", "I say \\boxed{3}", "Surely \\boxed{2}", "It is \\boxed{5}"),
    "Compute 2+2.": ("It is \\boxed{4}", "Two and two: \\boxed{4}", "I say \\boxed{5}", "It is \\boxed{4}"),
}


# ---- lm-evaluation-harness

TASK = """
task: {task}
dataset_path: json
dataset_kwargs: {{data_files: {{test: questions.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer}}}}"
repeats: {repeats}
generation_kwargs: {generation}
filter_list:
  - name: boxed
    filter: [{{function: regex, regex_pattern: 'boxed.(\\d+)'}}, {{function: take_first}}]
  - name: {second}
    filter: [{{function: regex, regex_pattern: '(\\d+)'}}, {second_filter}{{function: take_first}}]
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
metadata: {{version: 1.0}}
"""
LETTERS = """
task: letters
dataset_path: json
dataset_kwargs: {data_files: {test: letters.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
metadata: {version: 1.0}
"""
TASKS = {
    "sums": {
        "repeats": 1,
        "second": "flexible",
        "second_filter": "",
        "generation": "{until: ['Question:'], do_sample: true, temperature: 0.7, top_p: 0.95, max_gen_toks: 64}",
    },
    "draws": {
        "repeats": 4,
        "second": "vote",
        "second_filter": "{function: majority_vote}, ",
        "generation": "{until: ['Question:'], do_sample: true, temperature: 1.0, max_gen_toks: 64}",
    },
    "greedy": {
        "repeats": 1,
        "second": "flexible",
        "second_filter": "",
        "generation": "{until: ['Question:'], do_sample: false, temperature: 0.7}",
    },
}


def lm_eval_logs(out: Path) -> None:
    """Folder lm_eval/scripted with three tasks, the first of them twice, and one without generated texts."""
    import lm_eval
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    class Scripted(LM):
        def __init__(self) -> None:
            super().__init__()
            self.given: dict[str, int] = {}

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            return [self._text(request.args[0]) for request in requests]

        def _text(self, prompt: str) -> str:
            question = prompt.split("Question: ")[1].split("\n", maxsplit=1)[0]
            number = self.given[question] = self.given.get(question, -1) + 1
            return TEXTS[question][number % 4]

        def loglikelihood(self, requests: Any) -> list[tuple[float, bool]]:
            return [(-float(len(request.args[1])), False) for request in requests]

        def loglikelihood_rolling(self, requests: Any) -> list[float]:
            raise NotImplementedError

    out = out.absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_lines("questions.jsonl", QUESTIONS)
        write_lines("letters.jsonl", [{"question": "The first letter?", "choices": ["a", "bb"], "answer": 0}])
        for task, options in TASKS.items():
            Path(f"{task}.yaml").write_text(TASK.format(task=task, **options))
        Path("letters.yaml").write_text(LETTERS)
        manager = TaskManager(include_path=".", include_defaults=False)
        for tasks in (["sums", "draws", "greedy"], ["sums"], ["letters"]):
            tracker = EvaluationTracker(output_path=str(out / "lm_eval"))
            tracker.general_config_tracker.log_experiment_args(
                model_source="scripted",
                model_args="pretrained=ours/scripted",
                system_instruction="",
                chat_template="",
                fewshot_as_multiturn=False,
            )
            results = lm_eval.simple_evaluate(
                model=Scripted(), tasks=tasks, task_manager=manager, log_samples=True, bootstrap_iters=0
            )
            samples = results.pop("samples")
            kept = {
                key: results[key]
                for key in ("results", "configs", "versions", "n-shot", "config", "lm_eval_version")
                if key in results
            }
            kept["lm_eval_version"] = lm_eval.__version__
            tracker.save_results_aggregated(results=kept, samples=samples)
            for task in tasks:
                tracker.save_results_samples(task_name=task, samples=samples[task])


# ---- Inspect


def inspect_logs(out: Path) -> None:  # noqa: PLR0915
    """Folder inspect: logs in both formats, several choices, a failed sample, letters, and samples in parts."""
    from inspect_ai import Epochs, Task
    from inspect_ai import eval as run
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.log._recorders.chunked import convert_eval_logs_to_chunked
    from inspect_ai.model import (
        ChatCompletionChoice,
        ChatMessageAssistant,
        ContentReasoning,
        ContentText,
        Logprob,
        Logprobs,
        ModelOutput,
        ModelUsage,
        get_model,
    )
    from inspect_ai.scorer import Score, accuracy, choice, scorer
    from inspect_ai.solver import generate, multiple_choice

    given: dict[str, int] = {}

    def reply(texts: list[str], stop_reason: Any = "stop", reasoning: str = "") -> ModelOutput:
        """Without a usage the package would count tokens, and load a tokenizer for it."""
        tokens = Logprobs(content=[Logprob(token="It", logprob=-0.5), Logprob(token=" is", logprob=-0.25)])
        first = [ContentReasoning(reasoning=reasoning)] if reasoning else []
        choices = [
            ChatCompletionChoice(
                message=ChatMessageAssistant(content=[*first, ContentText(text=text)] if first else text),
                stop_reason=stop_reason,
                logprobs=tokens,
            )
            for text in texts
        ]
        usage = ModelUsage(input_tokens=9, output_tokens=2 * len(texts), total_tokens=9 + 2 * len(texts))
        return ModelOutput(model="scripted", choices=choices, usage=usage)

    def spoken(messages: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        question = next(q for q in TEXTS if q in messages[-1].text)
        number = given[question] = given.get(question, -1) + 1
        texts = [TEXTS[question][(number + i) % 4] for i in range(config.num_choices or 1)]
        return reply(texts, "max_tokens" if number == 1 else "stop", "Let me add." if number == 0 else "")

    def failing(messages: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        if "2+2" in messages[-1].text:
            raise RuntimeError("the server is gone")
        return reply(["It is \\boxed{2}"])

    def lettered(messages: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        return reply(["ANSWER: B"])

    @scorer(metrics=[accuracy()])
    def boxed() -> Any:
        async def score(state: Any, target: Any) -> Score:
            answer = state.output.completion.split("boxed{")[-1].split("}")[0]
            if answer == "5":
                return Score(value=float("nan"))
            return Score(value="C" if answer == target.text else "I", answer=answer)

        return score

    def logged(name: str, spoken: Any, log_format: str, **more: Any) -> Path:
        given.clear()
        dataset = more.pop("dataset", None) or MemoryDataset(
            [Sample(id=f"sums/{q['id']}.json", input=q["question"], target=q["answer"]) for q in QUESTIONS], name="sums"
        )
        options = {"epochs": Epochs(3), "scorer": boxed(), "solver": generate()} | more.pop("task", {})
        task = Task(dataset=dataset, name=name, **options)
        model = get_model("mockllm/model", custom_outputs=spoken, memoize=False)
        target = out / "inspect" / f"{name}.{log_format}"
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            (log,) = run(
                task,
                model=model,
                log_dir=folder,
                log_format=log_format,
                display="none",
                max_connections=1,
                max_samples=1,
                **more,
            )
            shorten(log.location.removeprefix("file://"), target)
        return target

    def shorten(path: str, target: Path) -> None:
        """Events repeat every text, and tracebacks name folders of this machine."""
        log = read_eval_log(path)
        for sample in log.samples or []:
            sample.events, sample.attachments = [], {}
            if sample.error:
                sample.error.traceback = sample.error.traceback_ansi = ""
        write_eval_log(log, str(target.absolute()))

    drawn = {"temperature": 0.8, "top_p": 0.9, "max_tokens": 32, "seed": 3}
    whole = logged("draws", spoken, "eval", **drawn)
    logged("draws", spoken, "json", **drawn)
    logged("several", spoken, "eval", num_choices=2, task={"epochs": Epochs(2)})
    numbered = MemoryDataset([Sample(input=q["question"], target=q["answer"]) for q in QUESTIONS])
    logged("failed", failing, "eval", dataset=numbered, fail_on_error=False, task={"epochs": Epochs(1)})
    letters = MemoryDataset([Sample(id="letter", input="Compute 1+1. Which is it?", choices=["3", "2"], target="B")])
    options = {"epochs": Epochs(1), "solver": multiple_choice(), "scorer": choice()}
    logged("letters", lettered, "eval", dataset=letters, task=options)
    convert_eval_logs_to_chunked(str(whole.absolute()), str(out.absolute() / "inspect" / "parts"), overwrite=True)


def write_lines(path: str, rows: list[dict[str, Any]]) -> None:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    {"lm_eval": lm_eval_logs, "inspect": inspect_logs}[sys.argv[1]](Path(sys.argv[2]))
