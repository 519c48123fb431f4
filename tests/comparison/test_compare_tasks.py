"""`searchlens compare`: one comparison for each task that both sides have, and its notes on mistakes."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from searchlens.cli.main import main
from searchlens.comparison import Wishes, compare_logs, compare_tasks
from searchlens.errors import InputError
from test_compare import BASE, RL, lm_eval, own, questions, read_rows, write_rows

COUNTS = {"sums": 5, "adds": 4, "mine": 3, "other": 3, "more": 2}
"""Questions of each task: files of one folder must not be equal."""


@pytest.fixture(autouse=True)
def no_second_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """math-verify takes seconds to start."""
    monkeypatch.setattr("searchlens.comparison.judging.TEXTS", 0)


def logs(tmp_path: Path, base: tuple[str, ...], rl: tuple[str, ...]) -> tuple[Path, Path]:
    """Folders of two sides with these tasks."""
    for side, right, tasks in (("base", BASE, base), ("rl", RL, rl)):
        for task in tasks:
            lm_eval(tmp_path / side, right[: COUNTS[task]], task=task)
    return tmp_path / "base", tmp_path / "rl"


def compared(base: Path, rl: Path, **wishes: Any) -> dict[str, Any]:
    return {each.task: each for each in compare_tasks([base], [rl], Wishes(draws=200, **wishes))}


def test_each_task_of_both_sides_is_compared_as_if_it_were_alone(tmp_path: Path) -> None:
    base, rl = logs(tmp_path, ("sums", "adds", "mine"), ("sums", "adds", "other"))
    (base / "samples_empty.jsonl").touch()
    (base / "events.jsonl").write_bytes(b"\xff is no name of the format")
    found = compared(base, rl)
    assert list(found) == ["adds", "sums"]
    for task, each in found.items():
        alone = compare_logs([base], [rl], Wishes(draws=200, tasks=(task,)))
        assert each.comparison.to_dict() == alone.comparison.to_dict()
        empty = f"a file has no samples of this format: it is empty ({base / 'samples_empty.jsonl'})"
        assert each.notes == (*alone.notes, empty, "only Base has the task mine", "only RL has the task other")


def test_one_side_may_have_a_single_task(tmp_path: Path) -> None:
    assert list(compared(*logs(tmp_path, ("sums",), ("sums", "other")))) == ["sums"]


def test_logs_of_one_task_and_chosen_tasks_are_one_comparison(tmp_path: Path) -> None:
    """Several chosen tasks are read as one benchmark."""
    base, rl = logs(tmp_path, ("sums", "adds"), ("sums", "adds"))
    assert list(compared(base, rl, tasks=("sums",))) == [""]
    assert list(compared(own(tmp_path / "a", BASE), own(tmp_path / "b", RL))) == [""]


def test_a_task_that_cannot_be_compared_is_named_with_the_reason(tmp_path: Path) -> None:
    base, rl = logs(tmp_path, ("sums", "adds"), ("sums", "adds"))
    (file,) = rl.glob("samples_adds*")
    file.write_text(file.read_text().replace('"target": "', '"target": "9').replace('"answer": "', '"answer": "9'))
    found = compared(base, rl)
    assert list(found) == ["sums"]
    assert "the task adds is left out: Base and RL have other golds of all 4 common questions" in found["sums"].notes
    (rl / next(rl.glob("samples_sums*")).name).unlink()
    with pytest.raises(InputError, match="can be compared: the task adds is left out: Base and RL have other golds"):
        compared(base, rl)


def test_sides_with_other_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only Base has the task adds; only RL has the task more; only RL has"):
        compared(*logs(tmp_path, ("sums", "adds"), ("more", "other")))


def test_the_newest_run_of_each_task_is_read(tmp_path: Path) -> None:
    """As without several tasks, or that of the date which is asked for."""
    base, rl = logs(tmp_path, ("sums", "adds"), ("sums", "adds"))
    for file in list(base.iterdir()):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        newer = [{**line, "resps": [["\\boxed{0}", *line["resps"][0][1:]]]} for line in lines]
        name = file.name.replace("2026-01-01", "2026-01-02")
        (base / name).write_text("".join(json.dumps(line) + "\n" for line in newer))
    newest, oldest = compared(base, rl), compared(base, rl, log={"date": "2026-01-01T00-00-00.000000"})
    right = [each["sums"].comparison.pass_at_k.filter(k=1, side="Base")["value"].item() for each in (newest, oldest)]
    assert right == pytest.approx([(sum(BASE) - 3) / 20, sum(BASE) / 20])


def test_a_file_may_have_several_tasks(tmp_path: Path) -> None:
    """As verl's generated answers, which name their data source."""
    for side, right in (("base", BASE), ("rl", RL)):
        rows = [
            {
                "prompt": [{"role": "user", "content": f"{q['text']} {task}"}],
                "responses": [f"\\boxed{{{q['gold'] if s < n else 90 + s}}}" for s in range(4)],
                "data_source": task,
                "reward_model": {"ground_truth": q["gold"]},
                "extra_info": {"index": i},
            }
            for task in ("sums", "adds")
            for i, (q, n) in enumerate(zip(questions(5), right, strict=True))
        ]
        (tmp_path / side).mkdir()
        pl.DataFrame(rows).write_parquet(tmp_path / side / "generated.parquet")
    found = compared(tmp_path / "base", tmp_path / "rl")
    assert list(found) == ["adds", "sums"]
    assert [len(each.common) for each in found.values()] == [5, 5]


def test_the_command_shows_every_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, rl = logs(tmp_path, ("sums", "adds"), ("sums", "adds", "other"))
    command = ["compare", str(base), "--against", str(rl), "--html", str(tmp_path / "page.html")]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith("Task ")] == ["Task adds", "Task sums"]
    assert re.match(r"adds: .*?\nsums: ", shown, re.DOTALL)
    assert "note: only RL has the task other" in shown
    assert main([*command, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["tasks"]) == ["adds", "sums"]
    made = (tmp_path / "page.html").read_text()
    assert re.findall(r"<h1 id=\"(.*?)\">(.*?): ", made) == [("task-1", "adds"), ("task-2", "sums")]
    assert made.count('<details class="question">') == 4 + 5
    assert made.count("<script>") == 1


# ---- notes on what a mistake in drawing or naming the samples looks like, each at its edge


Row = dict[str, Any]
SWAPPED = "Base leads at every budget: are the two sides swapped?"
LONG = "We add both numbers, carry nothing, and write the sum down."


def changed(folder: Path, change: Callable[[int, Row], Row]) -> Path:
    """The rows of a folder, each changed by its number."""
    return write_rows(folder / "rows.jsonl", [row | change(i, row) for i, row in enumerate(read_rows(folder))])


def notes(base: Path, rl: Path) -> tuple[str, ...]:
    return compare_logs([base], [rl], Wishes(draws=200)).notes


@pytest.mark.parametrize(
    ("base", "rl", "said"),
    [
        ((3,) * 12, (0,) * 12, True),
        ((3,) * 12, (1,) * 12, False),  # with 4 samples both solve all
        ((0,) * 12, (3,) * 12, False),
        ((3,), (0,), False),  # one question has no interval
    ],
)
def test_base_that_leads_everywhere_may_be_rl(tmp_path: Path, base: Any, rl: Any, said: bool) -> None:
    assert (SWAPPED in notes(own(tmp_path / "base", base), own(tmp_path / "rl", rl))) == said


def test_a_side_without_answers_is_not_said_to_be_swapped(tmp_path: Path) -> None:
    rl = changed(own(tmp_path / "rl", (3,) * 12), lambda _, row: {"text": "I do not know."})
    assert SWAPPED not in notes(own(tmp_path / "base", (3,) * 12), rl)


@pytest.mark.parametrize(("equal", "said"), [(6, False), (7, True)])
def test_samples_of_most_questions_that_are_one_text_may_be_greedy(tmp_path: Path, equal: int, said: bool) -> None:
    """Of 12 questions with 4 samples each."""
    rl = changed(own(tmp_path / "rl", (3,) * 12), lambda i, row: {"text": LONG} if i < 4 * equal else {})
    note = f"RL: all samples of {equal} of 12 questions are one text: was the temperature 0?"
    assert (note in notes(own(tmp_path / "base", (3,) * 12), rl)) == said


@pytest.mark.parametrize(("size", "text"), [(4, "\\boxed{3}"), (1, LONG)])
def test_short_texts_and_single_samples_may_be_equal(tmp_path: Path, size: int, text: str) -> None:
    rl = changed(own(tmp_path / "rl", (1,) * 6, size), lambda _, row: {"text": text})
    assert not [note for note in notes(own(tmp_path / "base", (1,) * 6, size), rl) if "temperature" in note]


@pytest.mark.parametrize(("silent", "share", "said"), [(8, "80%", False), (9, "78%", True)])
def test_one_side_with_far_fewer_answers_is_noted(tmp_path: Path, silent: int, share: str, said: bool) -> None:
    """Of 40 samples: more than a fifth."""
    base = own(tmp_path / "base", (3,) * 10)
    changed(base, lambda i, _: {"text": f"I do not know, try {i}."} if i < silent else {})
    note = f"{share} of Base's samples and 100% of RL's state an answer: part of the difference may be format"
    assert (note in notes(base, own(tmp_path / "rl", (3,) * 10))) == said


@pytest.mark.parametrize(("base", "rl", "said"), [("m", "m", True), ("m", "n", False), (None, None, False)])
def test_two_sides_with_one_name_are_noted(tmp_path: Path, base: str | None, rl: str | None, said: bool) -> None:
    more = [{"model": name} if name else {} for name in (base, rl)]
    folders = own(tmp_path / "base", (1, 2), **more[0]), own(tmp_path / "rl", (2, 3), **more[1])
    assert ("both sides are samples of a model that is called m: are they two models?" in notes(*folders)) == said


def given_texts(folder: Path, task: str) -> None:
    """A log of a task that compares likelihoods of given texts, as most of the harness's tasks do."""
    row = {"doc_id": 0, "doc": {"query": "2 + 2 ="}, "target": 1, "filter": "none", "resps": [[[-1.5, "False"]]]}
    row["arguments"] = {"gen_args_0": {"arg_0": "2 + 2 =", "arg_1": " 4"}}
    (folder / f"samples_{task}_2026-01-01T00-00-00.000000.jsonl").write_text(json.dumps(row) + "\n")


@pytest.mark.parametrize("tasks", [("sums",), ("sums", "adds")])
def test_tasks_without_generated_texts_are_left_out_and_named(tmp_path: Path, tasks: tuple[str, ...]) -> None:
    base, rl = logs(tmp_path, tasks, tasks)
    given_texts(base, "choices")
    given_texts(rl, "choices")
    found = compared(base, rl)
    assert sorted(found) == (sorted(tasks) if len(tasks) > 1 else [""])
    for each in found.values():
        notes = [note for side in each.sides for note in side.notes] + list(each.notes)
        assert any("choices" in note and "compares log-likelihoods of given texts" in note for note in notes)
    assert list(compared(base, rl, tasks=("sums",))) == [""]
    with pytest.raises(InputError, match="compares log-likelihoods of given texts"):
        compared(*(next(side.glob("samples_choices*")) for side in (base, rl)))
