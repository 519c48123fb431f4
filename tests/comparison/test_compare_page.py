"""The page of `searchlens compare`: samples for people to read, side by side, within a bound on its size."""

import base64
import hashlib
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from searchlens.cli.main import main
from searchlens.comparison import LogComparison, Wishes, compare_logs, page
from searchlens.comparison.samples import SIZE
from test_compare import BASE, HOSTILE, RL, Seen, own, read_rows, write_rows


@pytest.fixture(autouse=True)
def no_second_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """math-verify takes seconds to start."""
    monkeypatch.setattr("searchlens.comparison.judging.TEXTS", 0)


def found(tmp_path: Path, base: tuple[int, ...] = BASE, rl: tuple[int, ...] = RL, **more: Any) -> LogComparison:
    sides = {name: own(tmp_path / name, right, **more) for name, right in (("base", base), ("rl", rl))}
    return compared(sides["base"], sides["rl"])


def compared(base: Path, rl: Path, **wishes: Any) -> LogComparison:
    return compare_logs([base], [rl], Wishes(draws=200, samples=True, **wishes))


def blocks(made: str) -> dict[str, str]:
    """The part of the page on each question, by its id, in its order."""
    parts = re.findall(r'<details class="question".*?</details>', made, re.DOTALL)
    return {re.findall(r"<b>(.*?)</b>", part)[0]: part for part in parts}


def sides(block: str) -> list[str]:
    """What stands in the columns of Base and RL."""
    return [unescape(part) for part in re.findall(r'<section class="(?:base|rl)">.*?</section>', block, re.DOTALL)]


def test_questions_that_one_side_alone_solves_come_first_then_those_that_differ_most(tmp_path: Path) -> None:
    read = blocks(page(found(tmp_path)))
    assert list(read) == ["q2", "q1", "q0", "q3", "q4"]
    assert "RL alone solves it: 0 of 4 right under Base, 2 of 4 under RL" in read["q2"]
    assert "Compute 2 + 5." in read["q2"]
    assert "Gold: 7" in read["q2"]
    base, rl = sides(read["q2"])
    assert (base.count(": not right"), base.count(": right")) == (4, 0)
    assert (rl.count(": not right"), rl.count(": right")) == (2, 2)
    assert "answer 7, read from its last box (math)" in rl
    assert "The answer is \\boxed{7}." in rl
    assert "neither side solves it" in read["q4"]


def test_a_right_and_a_wrong_sample_are_shown_where_both_exist(tmp_path: Path) -> None:
    read = blocks(page(found(tmp_path, (1, 7), (7, 8), size=8)))
    numbers = {name: [re.findall(r"Sample (\d)", side) for side in sides(read[name])] for name in ("q0", "q1")}
    assert numbers["q0"] == [["0", "1", "2", "3"], ["0", "1", "2", "7"]]
    assert numbers["q1"] == [["0", "1", "2", "7"], ["0", "1", "2", "3"]]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    made = page(found(tmp_path, (2,) * 24 + (0,) * 3, (3,) * 24 + (0,) * 2 + (1,)))
    assert len(blocks(made)) == 21
    assert "texts of 4 of 24 questions that both sides solve" in made
    assert "of 2 of 2 questions that neither side solves" in made
    assert "left out" not in page(found(tmp_path / "few", BASE, RL))


def test_a_page_is_bounded_whatever_the_texts_are(tmp_path: Path) -> None:
    """The longest texts lose their middle, and the last questions their place."""
    folders = own(tmp_path / "base", (0,) * 24), own(tmp_path / "rl", (1,) * 24)
    for folder in folders:
        rows = [{**row, "text": '"' * 25_000 + row["text"]} for row in read_rows(folder)]
        write_rows(folder / "rows.jsonl", rows)
    made = page(compared(*folders))
    read = blocks(made)
    assert SIZE * 0.9 < len(made.encode()) <= SIZE
    assert 10 < len(read) < 24
    assert list(read)[:2] == ["q0", "q1"]
    assert f"texts of {24 - len(read)} of 24 questions that RL alone solves" in made
    assert "the page has at most 15 MB" in made
    assert re.search(r"… \d,\d{3} characters are left out …", read["q0"])
    assert "\\boxed{3}" in read["q0"]


def test_texts_are_shown_as_text_and_the_one_script_is_ours(tmp_path: Path) -> None:
    folders = own(tmp_path / "base", BASE), own(tmp_path / "rl", RL)
    for folder in folders:
        write_rows(folder / "rows.jsonl", [{**row, "prompt": HOSTILE + row["prompt"]} for row in read_rows(folder)])
    made = page(compared(*folders))
    seen = Seen()
    seen.feed(made)
    assert seen.tags.count("script") == 1
    assert not [name for name, _ in seen.attributes if name.startswith("on") or name in ("href", "action")]
    assert [value[:19] for name, value in seen.attributes if name == "src" and value] == ["data:image/svg+xml,"]
    (script,) = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in made
    assert "\x1b" not in made and "\u202e" not in made


def test_answers_of_recorded_verdicts_are_those_of_the_log(tmp_path: Path) -> None:
    made = page(
        compared(own(tmp_path / "base", BASE, correct=False), own(tmp_path / "rl", RL, correct=True), grader="recorded")
    )
    base, rl = sides(blocks(made)["q0"])
    assert "Sample 0: not right" in base and "as the log recorded it (recorded)" in base
    assert "Sample 0: right" in rl


@pytest.mark.parametrize("more", [["--no-texts"], []])
def test_a_page_without_texts_has_no_samples(tmp_path: Path, more: list[str]) -> None:
    """Those that may not be quoted; or a log has verdicts alone."""
    folders = own(tmp_path / "base", BASE, correct=True), own(tmp_path / "rl", RL, correct=True)
    if not more:
        for folder in folders:
            rows = [{key: row[key] for key in ("question", "sample", "correct")} for row in read_rows(folder)]
            write_rows(folder / "rows.jsonl", rows)
    html = tmp_path / "page.html"
    main(["compare", str(folders[0]), "--against", str(folders[1]), "--html", str(html), *more])
    assert not blocks(html.read_text())
    assert "<script" not in html.read_text()
    assert "Thinking" not in html.read_text()


def test_the_command_puts_samples_on_its_page(tmp_path: Path) -> None:
    base, rl = own(tmp_path / "base", BASE), own(tmp_path / "rl", RL)
    main(["compare", str(base), "--against", str(rl), "--html", str(tmp_path / "page.html")])
    assert list(blocks((tmp_path / "page.html").read_text())) == ["q2", "q1", "q0", "q3", "q4"]
