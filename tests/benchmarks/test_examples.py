"""Worked examples in a prompt: which ones, in what text, for whom; and that ``<bos>`` stands before it once."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing

from conftest import Patch, Raw, write_checkpoint
from searchlens.benchmarks import Question, dumps, prompts
from searchlens.benchmarks.prompter import Prompter
from searchlens.benchmarks.prompts import Example, WorkedExamples
from searchlens.config import check
from searchlens.errors import InputError
from searchlens.plan import Grid
from searchlens.sampling import generate
from test_generate import Make, Scripted, Start, start

__all__ = ["start"]  # a fixture

BOS = 2
SUMS = tuple(Example(f"What is {i}+1?", f"One more than {i}. The answer is {i + 1}.") for i in range(8))
CHATML = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"


def write(path: Path, rows: Sequence[Example]) -> Path:
    path.write_text("".join(json.dumps({"question": each.question, "answer": each.answer}) + "\n" for each in rows))
    return path


def letters(folder: Path, begin: bool = True) -> Path:
    """A checkpoint folder whose tokenizer has a token for each letter, and puts ``<bos>`` before every text."""
    shutil.rmtree(folder, ignore_errors=True)
    signs = ["<pad>", "<eos>", "<bos>", *map(chr, range(32, 127)), "\n"]
    tokenizer = Tokenizer(WordLevel({sign: place for place, sign in enumerate(signs)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = Split("", "isolated")
    tokenizer.add_special_tokens(["<eos>", "<bos>"])
    if begin:
        tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", BOS)])
    write_checkpoint(folder, "letters", vocab_size=len(signs), eos_token_id=1, bos_token_id=BOS)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("question-answer", "Question: a\nAnswer: b\n\nQuestion: c\nAnswer:"),
        ("zoo", "Problem: a\nSolution:\nb\n\nProblem: c\nSolution:\n"),
        ("plain", "a\nb\n\nc\n"),
        ("deepseek-math", "User: a\n\nAssistant: b\n\nUser: c\n\nAssistant:"),
        (
            "qwen-boxed",
            CHATML + "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n",
        ),
    ],
)
def test_an_example_is_a_turn_with_its_answer_and_a_system_turn_is_there_once(family: str, expected: str) -> None:
    template = prompts.template(family, "as-is")
    assert template.render("c", [Example("a", "b")]) == expected
    assert template.render("c") == template.opening + prompts.families()[family].text.replace("{question}", "c")


def test_the_conversation_of_r1_is_introduced_once() -> None:
    text = prompts.template("r1").render("c", [Example("a", "b </think> <answer> 1 ")])
    assert text.count("A conversation between User and Assistant.") == 1
    assert text.count("\nAssistant: <think>") == 2 and "<answer> 1 </answer>\nUser: You must" in text


@pytest.mark.parametrize("family", [name for name in prompts.families() if name != "chat"])
def test_an_answer_ends_where_another_example_would_begin(family: str) -> None:
    """A model that goes on after its answer writes what it was shown: the turn that follows an answer."""
    template = prompts.template(family).with_examples(WorkedExamples((Example("a", "b"),), 1))
    again = template.render("c", [Example("a", "b")]).removeprefix(template.opening)
    answer = again[again.index("b") :] if family != "r1" else again[again.index("b</answer>") :]
    assert any(stop in answer for stop in template.stop_texts) and template.check_every > 0
    assert not any(stop in "It is 2, and 3.\nSo the answer is 5." for stop in template.stop_texts)


def test_an_example_that_would_stop_its_own_answer_is_refused() -> None:
    worked = WorkedExamples((Example("a", "b"), Example("c", "d\nQuestion: e")), 1)
    with pytest.raises(InputError, match=r"worked example 2: its answer contains '\\nQuestion:'"):
        prompts.template("question-answer").with_examples(worked)


def prompter(folder: Path, worked: WorkedExamples) -> Prompter:
    return Prompter(letters(folder), prompts.template("question-answer").with_examples(worked))


def test_fixed_examples_are_the_first_and_drawn_ones_belong_to_the_question(tmp_path: Path) -> None:
    fixed = prompter(tmp_path / "model", WorkedExamples(SUMS, 3))
    assert fixed.examples(Question("q1", "?", "")) == fixed.examples(Question("q2", "!", "")) == SUMS[:3]
    drawn = prompter(tmp_path / "model", WorkedExamples(SUMS, 3, seed=5))
    other = prompter(tmp_path / "model", WorkedExamples(SUMS, 3, seed=6))
    ids = [f"q{i}" for i in range(40)]
    chosen = [drawn.examples(Question(each, "?", "")) for each in ids]
    assert chosen == [drawn.examples(Question(each, "?", "")) for each in ids]  # whatever was asked before
    assert chosen != [other.examples(Question(each, "?", "")) for each in ids]
    assert all(len(set(each)) == 3 for each in chosen) and len(set(chosen)) > 30
    assert {each for shown in chosen for each in shown} == set(SUMS)


def test_no_question_is_shown_its_own_answer(tmp_path: Path) -> None:
    """Drawn examples may be questions of the benchmark, in other spacing too; fixed ones would give answers away."""
    drawn = prompter(tmp_path / "model", WorkedExamples(SUMS, 7, seed=0))
    for place, each in enumerate(SUMS):
        shown = drawn.examples(Question(f"q{place}", f" {each.question.upper()}", ""))
        assert set(shown) == set(SUMS) - {each}
    path = write(tmp_path / "worked.jsonl", SUMS)
    with pytest.raises(InputError, match=r"worked example 2 is a question of the benchmark") as error:
        prompts.require_others(path, prompts.read_examples(path, 3), ["what is 1 + 1"])
    assert "What is" not in str(error.value)  # a benchmark's texts may be secret
    prompts.require_others(path, prompts.read_examples(path, 3), ["what is 3 + 1"])


@pytest.mark.parametrize(
    ("content", "count", "seed", "message"),
    [
        ('{"question": "a"}\n', 1, None, ":1: 'answer' must be a text that is not empty"),
        ('{"question": "a", "answer": 2}\n', 1, None, ":1: 'answer' must be a text"),
        ('{"question": "a", "answer": "b", "id": "c"}\n', 1, None, ":1: key 'id' is unknown"),
        ('{"question": "a.", "answer": "b"}\n{"question": "A", "answer": "c"}\n', 1, None, ":2: the question occurs"),
        ('{"question": "a", "answer": "b"}\n', 2, None, "has 1 worked examples, 2 are needed for count 2"),
        ('{"question": "a", "answer": "b"}\n', 1, 0, "2 are needed for count 1, because a question is never shown"),
    ],
)
def test_a_file_that_cannot_serve_is_refused(
    tmp_path: Path, content: str, count: int, seed: int | None, message: str
) -> None:
    (tmp_path / "worked.jsonl").write_text(content)
    with pytest.raises(InputError) as error:
        prompts.read_examples(tmp_path / "worked.jsonl", count, seed)
    assert message in error.value.message


def test_a_file_that_is_not_there_is_named_with_its_key(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    raw["benchmarks"]["sums"]["examples"] = {"path": "worked.jsonl"}
    with pytest.raises(InputError, match=r"benchmarks\.sums\.examples: cannot read .*worked\.jsonl: No such file"):
        make_grid(raw).inputs.template("toy-base", "sums")


def test_ids_know_what_is_shown_and_nothing_else(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    def ids(rows: Sequence[Example] = SUMS, checkpoint: str = "toy-base", **spec: Any) -> list[str]:
        write(tmp_path / "worked.jsonl", rows)
        given = {"path": "worked.jsonl", "count": 2} | spec if spec.get("count", 2) else None
        raw["benchmarks"]["sums"]["examples"] = given
        return [generation.id for generation in make_grid(raw).jobs.streams(checkpoint, "sums")]

    without, fixed, drawn = ids(count=0), ids(), ids(drawn=True)
    assert not set(without) & set(fixed) and not set(fixed) & set(drawn)
    assert fixed == ids(SUMS[:5])  # rows that no prompt shows
    assert fixed != ids(SUMS[1:]) and fixed != ids(count=3)
    assert drawn != ids(SUMS[:5], drawn=True) and drawn != ids(drawn=True, seed=1)
    raw["checkpoints"]["toy-base"]["examples"] = False
    raw["pairs"]["toy"]["templates"] = "own"
    assert ids() == without


def test_both_sides_of_a_pair_are_shown_the_same_unless_they_may_differ(
    raw: Raw, make_grid: Make, tmp_path: Path
) -> None:
    write(tmp_path / "worked.jsonl", SUMS)
    raw["benchmarks"]["sums"]["examples"] = {"path": "worked.jsonl", "count": 2, "drawn": True, "seed": 3}
    grid = make_grid(raw)
    assert grid.inputs.template("toy-base", "sums") == grid.inputs.template("toy-rl", "sums")
    raw["checkpoints"]["toy-rl"]["examples"] = False
    with pytest.raises(InputError, match=r"pairs\.toy: Base has examples true, RL false; .* templates: own"):
        make_grid(raw)
    raw["pairs"]["toy"]["templates"] = "own"
    assert make_grid(raw).inputs.template("toy-rl", "sums").examples is None


def test_a_seed_without_a_draw_is_a_mistake(raw: Raw, make_grid: Make) -> None:
    raw["benchmarks"]["sums"]["examples"] = {"path": "worked.jsonl", "seed": 1}
    with pytest.raises(InputError, match=r"benchmarks\.sums\.examples\.seed: goes with drawn: true only"):
        make_grid(raw)


@pytest.mark.parametrize("family", ["transformers", "vllm"])
def test_the_engine_gets_bos_once(raw: Raw, make_grid: Make, tmp_path: Path, start: Start, family: str) -> None:
    """Both engines take token ids and add none; without ``<bos>``, or with two, a model writes nonsense."""
    shutil.rmtree(tmp_path / "base")
    letters(tmp_path / "base")
    write(tmp_path / "worked.jsonl", SUMS)
    raw["benchmarks"]["sums"]["examples"] = {"path": "worked.jsonl", "count": 2}
    raw["checkpoints"]["toy-base"] |= {"engine": family}
    engine = Scripted(max_model_len=4000)
    start(engine)
    grid = make_grid(raw)
    (pool,) = grid.jobs.pools("toy-base", "sums")
    generate(grid, "toy-base", "sums", grid.current_manifest(pool))
    tokenizer = Tokenizer.from_file(str(tmp_path / "base/tokenizer.json"))
    assert len({request.prompt for request in engine.asked}) == 6
    for request in engine.asked:
        assert request.prompt[0] == BOS and (*request.prompt, *request.prefix).count(BOS) == 1
        assert tokenizer.decode(list(request.prompt)).replace(" ", "").count("Problem:") == 3


@pytest.mark.parametrize("begin", [True, False])
@pytest.mark.parametrize("text", ["{question}", "<bos>{question}"])
def test_bos_of_the_tokenizer_and_of_a_template_are_one(tmp_path: Path, begin: bool, text: str) -> None:
    asking = Prompter(letters(tmp_path / "model", begin), prompts.Template(text))
    tokens = asking.prompts([Question("q", "1+1", "")])[0]
    assert tokens.count(BOS) == (begin or "<bos>" in text)
    assert tokens[-3:] == asking.spell("1+1")


# ---- the study of a pretrained model (docs/pretrained.md)

EXAMPLE = Path(__file__).parents[2] / "examples/pretrained"


def test_the_example_study_is_valid_and_shows_four_examples(tmp_path: Path, monkeypatch: Patch) -> None:
    """With questions of our own in place of the benchmarks', which are not here."""
    monkeypatch.chdir(EXAMPLE.parents[1])
    overlay = {"benchmarks": {}, "checkpoints": {"gemma-3-270m": {"path": str(letters(tmp_path / "model"))}}}
    for family in ("gsm8k", "svamp", "mawps"):
        rows = [Question(f"{family}-{i}", f"What is {i}+{i}?", str(2 * i)) for i in range(60)]
        (tmp_path / f"{family}.jsonl").write_text(dumps(rows))
        overlay["benchmarks"][family] = {"path": str(tmp_path / f"{family}.jsonl")}
    (tmp_path / "overlay.yaml").write_text(json.dumps(overlay))
    names = [str(EXAMPLE / "gemma.yaml"), str(tmp_path / "overlay.yaml")]
    for more, policies in (([], 25), ([str(EXAMPLE / "searches.yaml")], 10)):
        grid = Grid(check.load([*check.DEFAULT_FILES, *names, *more]))
        assert [len(grid.jobs.streams("gemma-3-270m", each)) for each in ("gsm8k", "svamp", "mawps")] == [policies] * 3
        asking = Prompter(tmp_path / "model", grid.inputs.template("gemma-3-270m", "svamp"))
        text = asking.template.render("?", asking.examples(Question("q", "?", "")))
        assert text.count("Question: ") == 5 and text.count("The answer is ") == 4 and text.endswith("\nAnswer:")
    check.load([*check.DEFAULT_FILES, str(EXAMPLE / "pair.yaml")])
