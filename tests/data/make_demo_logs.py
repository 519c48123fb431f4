"""The logs of ``searchlens compare --demo``: a toy pair on toy questions, drawn and written by the real harnesses.

    make .venv-harnesses/.installed
    .venv-harnesses/bin/pip install 'lm-eval[hf]'
    .venv-harnesses/bin/python tests/data/make_demo_logs.py lm_eval
    .venv-harnesses/bin/python tests/data/make_demo_logs.py inspect

Each side answers the first questions of the toy benchmark ``math`` (docs/zoo.md). The harness loads the weights, draws
and judges; only what tells of the machine, and what no reader needs, is left out of its files. Another version of torch
may draw other samples.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ZOO = ROOT / "resources/zoo"
LOGS = ROOT / "src/searchlens/comparison/demo_logs"
SIDES = {"base": "micro-1m-base", "rl": "micro-1m-rl"}
QUESTIONS, SAMPLES, SEED = 60, 16, 1
TEMPERATURE, TOP_P, MOST_TOKENS = 1.0, 0.95, 128
ABOUT = (
    "Toy questions of searchlens's own (resources/zoo), answered by a model of a million parameters that was trained"
    " for them. No evidence about any other model."
)
TASK = f"""
task: toy_math
dataset_path: json
dataset_kwargs: {{data_files: {{test: questions.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "Problem: {{{{question}}}}\\nSolution:\\n"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
repeats: {SAMPLES}
generation_kwargs:
  until: ["<|endoftext|>"]
  do_sample: true
  temperature: {TEMPERATURE}
  top_p: {TOP_P}
  max_gen_toks: {MOST_TOKENS}
filter_list:
  - name: boxed
    filter: [{{function: regex, regex_pattern: 'boxed.(-?\\d+)', group_select: -1}}, {{function: take_first}}]
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
metadata: {{version: 1.0, about: "{ABOUT}"}}
"""
KEPT = ("results", "configs", "versions", "n-shot", "n-samples", "model_name", "model_source", "lm_eval_version")


def questions() -> list[dict[str, str]]:
    """The first questions of the toy benchmark, in its order."""
    rows = map(json.loads, (ZOO / "benchmarks/math.jsonl").read_text().splitlines()[:QUESTIONS])
    return [{"id": row["id"], "question": row["question"], "answer": row["gold"]} for row in rows]


def pack(path: Path, text: str) -> None:
    """Write a compressed file whose bytes depend on the text alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def lm_eval_logs(side: str, model: str) -> None:
    """Run the command of lm-evaluation-harness, and keep its two files."""
    Path("questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions()))
    Path("toy_math.yaml").write_text(TASK)
    subprocess.run(
        [
            *(sys.executable, "-m", "lm_eval", "--model", "hf", "--tasks", "toy_math", "--include_path", "."),
            *("--model_args", f"pretrained={model},dtype=float32", "--device", "cpu", "--batch_size", "240"),
            *("--seed", str(SEED), "--log_samples", "--output_path", "out"),
        ],
        check=True,
    )
    (samples,) = Path("out").rglob("samples_*.jsonl")
    (results,) = Path("out").rglob("results_*.json")
    found = json.loads(results.read_text())
    kept = {name: found[name] for name in KEPT if name in found}
    pack(LOGS / "lm_eval" / side / f"{results.name}.gz", json.dumps(kept, indent=1))
    pack(LOGS / "lm_eval" / side / f"{samples.name}.gz", samples.read_text())


def inspect_logs(side: str, model: str) -> None:
    """Run Inspect, and write its log without what repeats the texts."""
    from inspect_ai import Epochs, Task
    from inspect_ai import eval as run
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.scorer import Score, accuracy, scorer
    from inspect_ai.solver import generate

    @scorer(metrics=[accuracy()])
    def boxed() -> Any:
        async def score(state: Any, target: Any) -> Score:
            answer = state.output.completion.split("boxed{")[-1].split("}")[0]
            return Score(value="C" if answer == target.text else "I", answer=answer)

        return score

    dataset = [Sample(id=row["id"], input=row["question"], target=row["answer"]) for row in questions()]
    task = Task(
        dataset=MemoryDataset(dataset, name="toy_math"),
        name="toy_math",
        epochs=Epochs(SAMPLES),
        solver=generate(),
        scorer=boxed(),
        metadata={"about": ABOUT},
    )
    template = "{% for message in messages %}Problem: {{ message.content }}\nSolution:\n{% endfor %}"
    drawn = {"temperature": TEMPERATURE, "top_p": TOP_P, "max_tokens": MOST_TOKENS, "seed": SEED}
    (log,) = run(
        task,
        model=f"hf/{model}",
        model_args={"model_path": model, "chat_template": template, "device": "cpu", "dtype": "float32"},
        log_dir="logs",
        log_format="json",
        display="none",
        max_connections=1,  # its provider counts the padding of a batch as tokens
        **drawn,
    )
    written = read_eval_log(log.location.removeprefix("file://"))
    for sample in written.samples or []:
        sample.events, sample.attachments = [], {}
    write_eval_log(written, "short.json")
    content = json.loads(Path("short.json").read_text())
    for sample in content["samples"]:
        for name in ("uuid", "events", "attachments", "started_at", "completed_at", "total_time", "working_time"):
            sample.pop(name, None)
        for message in (*sample["messages"], *(choice["message"] for choice in sample["output"]["choices"])):
            message.pop("id", None)
        sample["output"].pop("time", None)
    pack(LOGS / "inspect" / side / "toy_math.json.gz", json.dumps(content, indent=1))


def main() -> None:
    """Write the logs of both sides, in a folder that has the models under their plain names."""
    write = {"lm_eval": lm_eval_logs, "inspect": inspect_logs}[sys.argv[1]]
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    for side, model in SIDES.items():
        shutil.rmtree(LOGS / sys.argv[1] / side, ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            Path(model).symlink_to(ZOO / model)
            write(side, model)
            os.chdir(ROOT)


if __name__ == "__main__":
    main()
