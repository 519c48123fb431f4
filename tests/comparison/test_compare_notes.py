"""Notes of `searchlens compare` on what a mistake in drawing or naming the samples looks like, each at its edge."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from searchlens.comparison import Wishes, compare_logs
from test_compare import own, read_rows, write_rows

Row = dict[str, Any]
SWAPPED = "Base leads at every budget: are the two sides swapped?"
LONG = "We add both numbers, carry nothing, and write the sum down."


@pytest.fixture(autouse=True)
def no_second_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """math-verify takes seconds to start."""
    monkeypatch.setattr("searchlens.comparison.judging.TEXTS", 0)


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
