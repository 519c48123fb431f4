"""Known golds: a wrong one is named by its question, and what is not known is said. All rows are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from searchlens import benchmarks, catalogue
from searchlens.benchmarks import digests
from searchlens.cli.study import listed, listing
from searchlens.errors import InputError
from test_benchmarks_known import CHOICE_LAYOUTS, configured, gpqa, read, written


def test_another_count_names_the_known_ones_and_their_sources(tmp_path: Path) -> None:
    path = written(tmp_path, [CHOICE_LAYOUTS["letter"]])
    with pytest.raises(InputError) as error:
        benchmarks.load(path, family="mmlu_stem")
    assert f"{path} has 1 question; MMLU-STEM has 3153 (the hub" in error.value.message
    assert "; 3018 (Qwen2.5-Math and DeepSeek-Math" in error.value.message
    assert "check: false" in error.value.hint
    assert len(read(path, "mmlu_stem")) == 1


def amc(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {"question": f"What is {i} and twice {i + 3} and one more, taken together?", "answer": float(3 * i + 7)}
        for i in range(start, start + count)
    ]


OWN = """
from searchlens.benchmarks import mathematics
from searchlens.catalogue import family

@family("own", title="OWN", grader="math", licence="CC0-1.0", sizes={40: "forty"})
def own(file):
    return mathematics.read(file, integer=True)

@family("repeating", title="OWN", grader="math", licence="CC0-1.0", sizes={40: "forty"}, repeats=True)
def repeating(file):
    return mathematics.read(file, integer=True)
"""
"""Families whose golds are known by files of ours."""


@pytest.fixture
def known_own(tmp_path: Path) -> Path:
    """A folder of digests of forty made-up questions."""
    (tmp_path / "own.py").write_text(OWN)
    catalogue.use(["own.py"], tmp_path)
    digests.main(["own", str(written(tmp_path, amc(40), "trusted.jsonl"))])
    return tmp_path / "golds"


def test_digests_of_the_longer_form_still_serve(tmp_path: Path, known_own: Path) -> None:
    """Twelve and eight digits, as files of extensions may have them."""
    (file,) = known_own.iterdir()
    file.write_text("".join(f"{line[:8]}0000 {line[9:13]}0000\n" for line in file.read_text().splitlines()))
    assert benchmarks.read([written(tmp_path, amc(40))], "own").checked == 40


def test_a_wrong_gold_is_named_by_its_question(tmp_path: Path, known_own: Path) -> None:
    assert benchmarks.read([written(tmp_path, amc(40))], "own").checked == 40
    rows = amc(40)
    rows[22]["answer"] = 480
    path = written(tmp_path, rows)
    with pytest.raises(InputError) as error:
        benchmarks.load(path, family="own")
    assert error.value.message == (f"{path}: 1 of 40 golds is not the known one:\n  question 23 (own-0023): gold '480'")
    assert read(path, "own")[22].gold == "480"


def test_a_question_that_is_there_twice_is_refused(tmp_path: Path, known_own: Path) -> None:
    """The number of rows is right and every gold is known, but a question is missing."""
    rows = amc(40)
    rows[39] = {**rows[0], "question": rows[0]["question"].replace(" ", "  ")}
    path = written(tmp_path, rows)
    with pytest.raises(InputError) as error:
        benchmarks.load(path, family="own")
    assert error.value.message == (
        f"{path}: question 40 repeats question 1 (own-0001); every question of OWN is there once"
    )
    assert "check: false" in error.value.hint
    assert len(read(path, "own")) == 40


def test_published_files_that_repeat_questions_must_have_them_all(tmp_path: Path, known_own: Path) -> None:
    rows = [*amc(39), amc(1)[0]]
    trusted = written(tmp_path, rows, "trusted.jsonl")
    digests.main(["repeating", str(trusted)])
    assert benchmarks.read([trusted], "repeating").checked == 40
    assert benchmarks.read([written(tmp_path, rows)], "repeating").checked == 40
    rows[5] = rows[6]
    with pytest.raises(InputError, match="1 questions of OWN are missing, and others repeat"):
        benchmarks.load(written(tmp_path, rows), family="repeating")


def test_golds_are_known_whatever_the_order_spacing_and_layout(tmp_path: Path, known_own: Path) -> None:
    rows = [{"prompt": row["question"].replace(" ", " \n"), "answer": f"0{row['answer']:.0f}"} for row in amc(40)]
    assert benchmarks.read([written(tmp_path, rows[::-1])], "own").checked == 40


def test_an_unknown_wording_is_not_checked_until_it_is_learnt(tmp_path: Path, known_own: Path) -> None:
    """Another wording is matched by its words, and gets the trusted gold, not that of its own file."""
    rows = amc(40)
    rows[3] = {"question": "Say what 3 and twice 6 and one more make, taken together!", "answer": 480}
    path = written(tmp_path, rows)
    loaded = benchmarks.read([path], "own")
    assert (loaded.checked, loaded.unknown) == (39, (3,))
    digests.main(["own", str(tmp_path / "trusted.jsonl"), str(path)])
    with pytest.raises(InputError, match="question 4 "):
        benchmarks.load(path, family="own")


def test_questions_in_an_unknown_wording_are_named(tmp_path: Path, known_own: Path) -> None:
    """A corrected file loads, but nobody takes its golds for checked ones."""
    rows = amc(40)
    for place in (3, 7, 20, 30):
        rows[place] = {"question": f"Another wording of question {place}?", "answer": 480}
    path = written(tmp_path, rows)
    assert benchmarks.read([path], "own").notice == (
        "4 of 40 questions have wordings that are not known, so that their golds are not checked:"
        " question 4 (own-0004), question 8 (own-0008), question 21 (own-0021) and 1 more"
    )
    assert benchmarks.read([path], "own", limit=4).notice == (
        "1 of 4 questions has a wording that is not known, so that its gold is not checked: question 4 (own-0004)"
    )
    assert benchmarks.read([path], "own", limit=3).notice == ""
    assert benchmarks.read([path], "own", check=False).notice == ""
    spec = {"amc": configured("own")}
    assert "36 golds checked, content " in (text := listed(listing(spec, lambda _: [path])))
    assert "; 4 of 40 questions have wordings that are not known" in text


def test_a_family_of_which_nothing_is_known_has_no_notice(tmp_path: Path) -> None:
    rows = [{**gpqa(1)[0], "Question": f"{i}?"} for i in range(198)]
    assert benchmarks.read([written(tmp_path, rows)], "gpqa").notice == ""


def test_two_wordings_of_one_question_in_one_file_are_refused(tmp_path: Path, known_own: Path) -> None:
    """The number of rows is right, every wording and gold is known, but a question is missing."""
    other = {"question": "Say what 3 and twice 6 and one more make, taken together!", "answer": 16}
    wordings = written(tmp_path, [other], "other.jsonl")
    digests.main(["own", str(tmp_path / "trusted.jsonl"), str(wordings)])
    rows = amc(40)
    rows[39] = other
    with pytest.raises(InputError, match=r"question 40 repeats question 4 \(own-0004\); every question of OWN"):
        benchmarks.load(written(tmp_path, rows), family="own")
    rows[39], rows[3] = amc(40)[39], other
    assert benchmarks.read([written(tmp_path, rows)], "own").checked == 40


def test_digests_keep_no_plain_row(known_own: Path) -> None:
    lines = (known_own / "own.txt").read_text().split("\n")
    assert len(lines) == 41
    assert all(len(line) == 13 and set(line) <= set("0123456789abcdef ") for line in lines[:-1])


def test_aime_is_two_years_of_thirty(tmp_path: Path) -> None:
    """Also as one file of sixty; one year alone is none of the paper's sixty."""
    years = [[{"problem": f"{year} {i}?", "answer": f"{i:03d}"} for i in range(30)] for year in (2024, 2025)]
    paths = [written(tmp_path, rows, f"{i}.jsonl") for i, rows in enumerate(years)]
    loaded = benchmarks.read(paths, "aime")
    ids = [loaded.questions[i].id for i in (0, 29, 30, 59)]
    assert ids == ["aime24-0001", "aime24-0030", "aime25-0001", "aime25-0030"]
    assert loaded.questions[5].gold == "5"
    assert len(benchmarks.load(written(tmp_path, years[0] + years[1], "both.json"), family="aime")) == 60
    with pytest.raises(InputError, match=r"has 30 questions; AIME has 60"):
        benchmarks.load(paths[:1], family="aime")


def test_the_listing_says_what_lies_where(tmp_path: Path, known_own: Path) -> None:
    def paths_of(name: str) -> list[Path]:
        if name == "math":
            raise InputError("dataset HuggingFaceH4/MATH-500@main is not pinned")
        if name == "few":
            return [written(tmp_path, amc(3), "few.jsonl")]
        return [tmp_path / f"{name}.jsonl"]

    written(tmp_path, amc(40), "amc.jsonl")
    written(tmp_path, [{"id": "a", "question": "?", "gold": "1"}], "mine.jsonl")
    families = {"amc": "own", "few": "own", "gone": "own", "mine": "jsonl", "math": "math500"}
    specs = {name: configured(family) for name, family in families.items()}
    lines = listed(listing(specs, paths_of)).split("\n")
    assert "amc.jsonl, 1 file: 40 questions (forty" in next(line for line in lines if "amc: " in line)
    assert any("amc: " in line and "40 golds checked, content " in line for line in lines)
    assert any("few: REFUSED: " in line and "OWN has 40" in line for line in lines)
    assert f"    gone: not here: {tmp_path}/gone.jsonl" in lines
    assert "    math: not here: dataset HuggingFaceH4/MATH-500@main is not pinned" in lines
    assert "    on the hub: Idavidrein/gpqa gpqa_diamond (train); gated, give your own file" in lines
    assert "mine.jsonl, 1 file: 1 question" in lines[-1]
