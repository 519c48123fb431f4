"""`searchlens diff`: what changed between two results folders, with intervals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import searchlens
from searchlens.analysis.uncertainty import Interval, wilson
from searchlens.api.differences import apart, differences
from searchlens.cli.main import main
from searchlens.plan import Grid
from small_results import RIGHT, analyse, finish

Again = Callable[..., Path]
CHANGED = {**RIGHT, "toy-rl": {**RIGHT["toy-rl"], "q4": 3, "q2": 1}}
"""RL solves a question more; of another it has fewer right samples."""


@pytest.fixture
def results(raw: dict[str, Any], tmp_path: Path) -> Path:
    return finish(raw, tmp_path)


@pytest.fixture
def again(raw: dict[str, Any], tmp_path: Path) -> Again:
    """The study once more, with other settings and other samples."""

    def run(changes: Mapping[str, Any], right: Mapping[str, Mapping[str, int]] = RIGHT, questions: str = "") -> Path:
        folder = tmp_path / "again"
        folder.mkdir()
        for name in ("base", "rl", "sums.jsonl"):
            (folder / name).symlink_to(tmp_path / name)
        if questions:
            (folder / "sums.jsonl").unlink()
            (folder / "sums.jsonl").write_text(questions)
        return finish({**raw, **changes}, folder, right)

    return run


def test_a_copy_has_no_differences(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copied")
    found = differences(searchlens.open(results), searchlens.open(tmp_path / "copied"))
    changed = {name: frame.height for name, frame in found.frames.items() if name != "samples"}
    assert not any(changed.values()), changed
    assert set(found.samples["samples"]) == {"same"}
    assert (found.configuration, found.notes) == ([], [])
    study = searchlens.open(results)
    measures = sum(study.measures(name).height for name in ("measures", "equivalents")) + 4
    heights = {"points": study.points().height, "recoveries": study.recovery().height, "measures": measures, "sets": 2}
    assert found.compared == heights, "nothing is left out"


def test_other_samples_of_the_same_questions_have_paired_intervals(results: Path, again: Again) -> None:
    other = again({"seed": 7}, CHANGED)
    found = differences(searchlens.open(results), searchlens.open(other))
    assert found.configuration == ["seed"]
    assert set(found.samples["samples"]) == {"other"}
    point = {"checkpoint": "toy-rl", "policy": "temp_0.5", "budget": 1, "metric": "P", "estimator": "unbiased"}
    (row,) = found.points.filter(**point).to_dicts()
    assert (row["a"], row["b"]) == (pytest.approx(13 / 24), pytest.approx(14 / 24))
    assert row["interval"] == "paired"
    assert row["difference"] == pytest.approx(1 / 24)
    assert row["lo"] < row["difference"] < row["hi"]
    assert set(found.points["checkpoint"]) == {"toy-rl"}, "Base is as before"
    narrow = row["hi"] - row["lo"]
    ends = [searchlens.open(folder).points("toy-rl").filter(**point).row(0, named=True) for folder in (results, other)]
    assert narrow < np.hypot(*(end["hi"] - end["lo"] for end in ends)), "questions that did not change say nothing"
    assert set(found.points.filter(metric="distinct")["interval"]) <= {"independent"}, "has no values by question"
    verdicts = found.recoveries.filter(metric="P", estimator="unbiased").to_dicts()
    assert [(row["budget"], row["inside_a"], row["inside_b"]) for row in verdicts] == [(4, True, False)]
    kept = found.measures.filter(frame="support", what="expanded").to_dicts()
    changed = found.measures.filter(what="kept").to_dicts()[0]
    assert (changed["a"], changed["b"], changed["interval"]) == (3, 4, "independent")
    assert changed["lo"] <= changed["difference"] <= changed["hi"]
    assert kept == [], "one question is expanded in both"


def test_the_same_samples_graded_otherwise_differ_exactly(results: Path, tmp_path: Path) -> None:
    """Equal ids: what changed is the verdicts, and no interval is needed."""
    before = tmp_path / "before"
    shutil.copytree(results, before)
    path = results / "scores/toy-rl/sums.parquet"
    scores = pl.read_parquet(path)
    scores.with_columns(pl.col("correct") & (pl.col("question") != 1)).write_parquet(path)
    with chdir(tmp_path):
        analyse(Grid(searchlens.open(results).config))
    found = differences(searchlens.open(before), searchlens.open(results))
    assert set(found.samples["samples"]) == {"same"}
    assert found.points.height
    assert set(found.points["interval"]) == {"exact"}
    assert found.points["lo"].equals(found.points["difference"])
    assert set(found.measures["interval"]) == {"exact"}


def test_other_questions_are_not_paired(results: Path, again: Again) -> None:
    rows = [{"id": f"q{i}", "question": f"What is {i}+{i + 1}?", "gold": str(2 * i + 1)} for i in range(6)]
    other = again({}, CHANGED, "".join(json.dumps(row) + "\n" for row in rows))
    found = differences(searchlens.open(results), searchlens.open(other))
    assert set(found.points["interval"]) == {"independent"}


def test_cells_and_policies_that_only_one_has_are_named(
    results: Path, again: Again, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = {"toy": {"base": "toy-base", "rl": "toy-rl"}}
    changes = {"pools": {"three": ["temp_0.5", "topp0.95_t1.0", "temp_0.8"]}, "pairs": pairs}
    changes |= {"policies": dict.fromkeys(["temp_0.5", "topp0.95_t1.0", "temp_0.8", "greedy"])}
    other = again(changes)
    found = differences(searchlens.open(results), searchlens.open(other))
    changed = set(found.policies.select("policy", "change").iter_rows())
    assert changed == {("temp_0.8", "added"), ("topp0.9_t0.7", "removed")}
    assert main(["diff", str(results), str(other)]) == 0
    assert "policies of toy-rl/sums only in A: topp0.9_t0.7\n" in capsys.readouterr().out
    for path in results.glob("config/*.json"):
        content = json.loads(path.read_text())
        content["study"]["benchmarks"] = []
        path.write_text(json.dumps(content))
    found = differences(searchlens.open(results), searchlens.open(other))
    assert set(found.cells["change"]) == {"added"}
    assert main(["diff", str(results), str(other)]) == 0
    assert "cell toy-base/sums only in B" in capsys.readouterr().out


def test_what_one_side_lacks_is_noted(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copied")
    for name in ("measures", "recovery"):
        shutil.rmtree(tmp_path / "copied" / name)
    found = differences(searchlens.open(results), searchlens.open(tmp_path / "copied"))
    assert found.compared == {"points": 400, "recoveries": 0, "measures": 0, "sets": 0}
    measures = [f"measures ({name})" for name in ("measures", "equivalents", "support")]
    missing = [note.split(" were not compared: B: ")[0] for note in found.notes]
    assert missing == ["recovery analyses", *measures, "sets of exponents"]


def test_the_command_writes_text_and_json(results: Path, again: Again, capsys: pytest.CaptureFixture[str]) -> None:
    other = again({"seed": 7}, CHANGED)
    assert main(["diff", str(results), str(other)]) == 0
    printed = capsys.readouterr().out
    assert "configuration: other seed" in printed
    assert "samples, by cell and policy: 8 others" in printed
    assert "toy-rl/sums temp_0.5 n=4 P expected: 66.7 -> 83.3, +16.7 [" in printed
    assert "toy/sums P expected N=4: RL inside -> outside" in printed
    assert "more (--all)" in printed
    assert main(["diff", str(results), str(other), "--all"]) == 0
    whole = capsys.readouterr().out
    assert "--all" not in whole
    assert len(whole.splitlines()) > len(printed.splitlines())
    assert main(["diff", str(results), str(other), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["points"][0]["checkpoint"] == "toy-rl"
    assert content["compared"]["points"] == 400


def test_intervals_of_two_proportions_are_newcombes() -> None:
    """56 of 70 against 48 of 80: 0.0524 to 0.3339 (Newcombe 1998, Stat. Med. 17, 873-890, table II, method 10)."""
    first, second = np.array([48 / 80]), np.array([56 / 70])
    found = apart(first, wilson([48], [80]), second, wilson([56], [70]))
    assert (round(found.lo.item(), 4), round(found.hi.item(), 4)) == (0.0524, 0.3339)


def test_an_unknown_end_leaves_the_difference_without_an_interval() -> None:
    one, ends = np.array([0.5]), Interval(np.array([np.nan]), np.array([0.6]))
    found = apart(one, ends, one, Interval(np.array([0.4]), np.array([0.6])))
    assert np.isnan(found.hi).all()
    assert np.isfinite(found.lo).all()
