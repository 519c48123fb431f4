"""`searchlens import` and `imports` as a user meets them: the documented page, refusals, and taking an import back."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from run_stages import score_cell
from searchlens.cli import verify as prune
from searchlens.cli.main import main
from searchlens.cli.stages import importing
from searchlens.cli.stages.importing import Request, import_samples
from searchlens.cli.study import init
from searchlens.cli.verify import remove
from searchlens.errors import InputError
from searchlens.formats.reading import Choices
from searchlens.plan import Grid, StudyCells
from searchlens.reporting.tables.graders import recorded_agreement, recorded_disagreements

PAGE = Path(__file__).parents[2] / "docs" / "import.md"


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.long
def test_the_page_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    blocks = [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    ")]
    study = tmp_path / "study"
    init(study, demo=True)
    monkeypatch.chdir(study)
    (study / "capitals.jsonl").write_text("\n".join(line for line in blocks if line.startswith("{")))
    before = everything(study)
    commands = [shlex.split(line)[1:] for line in blocks if line.startswith("searchlens ") and "FILE" not in line]
    printed = {}
    for arguments in commands:
        if arguments[0] == "run":
            dry = ["searchlens", *arguments, "-n"]
            plan = subprocess.run(
                dry, check=False, capture_output=True, text=True, cwd=shutil.copytree(study, tmp_path / "dry")
            )
            assert plan.returncode == 0, f"every stage of an imported study can be planned: {plan.stderr}"
        else:
            assert main(arguments) == 0, capsys.readouterr().err
            printed[" ".join(arguments)] = capsys.readouterr().out
        if "--dry-run" in arguments:
            assert everything(study) == before
    dry, stored, listed, plan, _ = printed.values()
    assert "questions: 2 (2 new)" in dry and "nothing was written" in dry
    assert "imported 4 samples as mine/capitals/rl/temp_1.0" in stored
    assert stored.splitlines()[-1] == "next: searchlens run --config config/imports.yaml"
    assert len(listed.splitlines()) == 2
    assert "0 generations, 0 to make" in plan, "a study of imports samples nothing"
    assert everything(study) == before, "taken back, nothing is left"


def test_the_default_policy_of_an_imported_study_is_one_that_rl_has(grid: Grid, tmp_path: Path) -> None:
    """A study of imports reads its RL curve under a policy that was imported, or says so before anything runs."""
    for role in ("base", "rl"):
        import_samples(grid, [write(tmp_path, rows(), f"{role}.jsonl")], request(choices={"role": role}))
    study = replace(grid.config.study, pairs=(), benchmarks=(), imports="all")
    config = replace(grid.config, study=study, default_policy=None)
    assert Grid(config, grid.root).study.default_policy == "mine"
    with pytest.raises(InputError, match="the RL side of theirs/own has samples of mine"):
        Grid(replace(config, default_policy="temp_1.0"), grid.root).check()


def rows(**more: Any) -> list[dict[str, Any]]:
    return [
        {"question": f"q{q}", "sample": s, "text": f"\\boxed{{{q}}} {s}", "gold": "0", **more}
        for q in range(25)
        for s in range(2)
    ]


def write(folder: Path, lines: list[dict[str, Any]], name: str = "samples.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def request(**changes: Any) -> Request:
    choices = Choices(**{"role": "base", "policy": "mine", **changes.pop("choices", {})})
    return Request(**{"pair": "theirs", "benchmark": "own", "choices": choices, **changes})


def test_a_pool_without_answers_is_stored_only_if_one_says_so(grid: Grid, tmp_path: Path) -> None:
    path = write(tmp_path, rows(text="no answer"))
    with pytest.raises(InputError) as error:
        import_samples(grid, [path], request())
    lines = error.value.message.splitlines()
    assert lines[0] == "mine: only 0% of 50 finished texts have an answer that math finds"
    assert len(lines) == 4, "three texts are shown"
    assert not grid.layout.results.exists()
    assert import_samples(grid, [path], request(is_confirmed=True)).shards


def test_verdicts_that_ours_do_not_agree_with_are_shown_first(grid: Grid, tmp_path: Path) -> None:
    path = write(tmp_path, rows(correct=True))
    with pytest.raises(InputError, match="our verdicts agree with 4% of 50 recorded by correct"):
        import_samples(grid, [path], request())


def test_recorded_verdicts_are_kept_beside_ours(grid: Grid, tmp_path: Path) -> None:
    lines = [{**line, "correct": line["question"] == "q0", "answer": line["question"]} for line in rows()]
    (record,) = import_samples(grid, [write(tmp_path, lines)], request()).records
    found = pl.read_parquet(grid.layout.recorded("theirs-base", "own", record.id))
    assert found.height == 50
    assert found.filter(value=1.0).select("question", "sample", "scorer", "answer").rows() == [
        ("q0", 0, "correct", "q0"),
        ("q0", 1, "correct", "q0"),
    ]


@pytest.mark.parametrize("gated", [False, True])
def test_every_recorded_verdict_is_counted_and_every_disagreement_listed(
    raw: dict[str, Any], make_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gated: bool
) -> None:
    """25 questions of two samples, of which question 0 alone is right; three planted disagreements, one unscored."""
    raw["study"]["imports"] = "all"
    monkeypatch.setattr(StudyCells, "is_gated", lambda *_: gated)
    lines = [{**line, "correct": line["question"] == "q0", "answer": "theirs"} for line in rows()]
    for place, value in ((0, False), (5, True), (7, True)):
        lines[place]["correct"] = value
    del lines[9]["correct"], lines[9]["answer"]
    import_samples(make_grid(raw), [write(tmp_path, lines)], request())
    grid, cell = make_grid(raw), ("theirs-base", "own")
    score_cell(grid, *cell, [], grid.scores(*cell))
    context: Any = SimpleNamespace(recorded={cell: pl.read_parquet(grid.layout.compared(*cell))})
    (counts,) = recorded_agreement(context).data.rows(named=True)
    names = {"checkpoint": "theirs-base", "benchmark": "own", "policy": "mine", "scorer": "correct"}
    assert counts == {
        **names, "samples": 49, "both_right": 1, "ours_alone": 1, "theirs_alone": 2, "both_wrong": 45, "unscored": 0
    }  # fmt: skip
    apart = recorded_disagreements(context).data.select("question", "sample", "gold", "ours", "theirs", "end").rows()
    expected = [("q0", 0, "0", "0", "theirs", "\\boxed{0} 0"), ("q2", 1, "0", "2", "theirs", "\\boxed{2} 1")]
    expected.append(("q3", 1, "0", "3", "theirs", "\\boxed{3} 1"))
    assert apart == [(*each[:2], *((None,) * 4 if gated else each[2:])) for each in expected]


def test_two_models_in_one_import_need_their_sides(grid: Grid, tmp_path: Path) -> None:
    lines = [{**line, "model": model} for model in ("small", "large") for line in rows()]
    path = write(tmp_path, lines)
    with pytest.raises(InputError, match="no side of the pair is known for small, large") as error:
        import_samples(grid, [path], request(choices={"role": "", "policy": "mine"}))
    assert "--base MODEL --rl MODEL" in error.value.hint
    sides = {"role": "", "base": "small", "rl": "large"}
    records = import_samples(grid, [path], request(choices=sides)).records
    assert [(record.role, record.log["model"]) for record in records] == [("base", "small"), ("rl", "large")]


def test_some_questions_become_a_benchmark_of_their_own(grid: Grid, tmp_path: Path) -> None:
    lines = [{"question": f"q{q}", "sample": 0, "text": "\\boxed{1}"} for q in (3, 1)] + [
        {"question": "elsewhere", "sample": 0, "text": "\\boxed{1}"}
    ]
    path = write(tmp_path, lines)
    imported = import_samples(grid, [path], request(benchmark="sums", subset="some"))
    assert any("left out: " in line and "elsewhere" in line for line in imported.report)
    (record,) = imported.records
    again = Grid(grid.config, grid.root)
    assert [question.id for question in again.inputs.questions("some")] == ["q1", "q3"]
    assert record.benchmark == "some"


def test_an_import_that_breaks_off_leaves_nothing(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, [{**line, "role": role} for role in ("base", "rl") for line in rows()])
    before = everything(tmp_path)
    publish, calls = importing._publish, []

    def breaks(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return publish(*arguments, **options)

    monkeypatch.setattr(importing, "_publish", breaks)
    with pytest.raises(KeyboardInterrupt):
        import_samples(grid, [path], request(choices={"role": ""}))
    left = {each for each in everything(tmp_path) - before if each.is_file()}
    assert not left


def test_prune_finds_what_a_killed_import_left(grid: Grid, tmp_path: Path) -> None:
    (record,) = import_samples(grid, [write(tmp_path, rows())], request()).records
    assert not prune.unused(Grid(grid.config, grid.root)).generations, "an import of another study is not unused"
    grid.layout.import_record("own", "theirs", "base", "mine").unlink()
    orphan = grid.layout.generation("theirs-base", "own", record.id)
    assert prune.unused(Grid(grid.config, grid.root)).generations == [orphan]


def test_removing_an_import_leaves_the_others(grid: Grid, tmp_path: Path) -> None:
    path = write(tmp_path, rows())
    import_samples(grid, [path], request())
    before = everything(tmp_path)
    import_samples(Grid(grid.config, grid.root), [path], request(choices={"policy": "other"}))
    again = Grid(grid.config, grid.root)
    with pytest.raises(InputError, match=r"import 'theirs' is unknown\. Known: theirs/own/base/mine, theirs/own"):
        remove(again, "theirs")
    remove(again, "theirs/own/base/other")
    assert everything(tmp_path) == before, "both have the same samples, which stay as long as one needs them"
    remove(Grid(grid.config, grid.root), "theirs/own")
    assert not grid.layout.results.exists()
