"""Who judged a cell: recorded with it, named in tables, and never mixed in silence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from run_stages import analyse, landscape_cell, recovery_cell
from searchlens.boptr.cohort import CohortPlan
from searchlens.cli.stages.agreement import agreement
from searchlens.cli.stages.readings import readings
from searchlens.cli.stages.record import record
from searchlens.cli.stages.tables import tables
from searchlens.config.boptr import BoptrOptions
from searchlens.errors import InputError
from searchlens.grading import GradedPair, grader, processes
from searchlens.plan import Grid, needs
from searchlens.reporting.boptr.context import BoptrContext
from searchlens.reporting.tables.graders import of_judges
from searchlens.store import layout
from searchlens.store.columns import AGREEMENT
from searchlens.store.provenance import Judge

CELLS = (("toy-base", "sums"), ("toy-rl", "sums"))
MATH = Judge("math", grader("math").version)


def landscapes(grid: Grid) -> list[Path]:
    folders = [grid.layout.landscape(*cell) for cell in CELLS]
    for cell, folder in zip(CELLS, folders, strict=True):
        landscape_cell(grid, "sums", grid.scores(*cell), folder)
    return folders


def write_tables(grid: Grid) -> None:
    readings(needs.readings(grid), grid.layout, fingerprint="0" * 12)
    tables(needs.tables(grid), grid.layout, grid.layout, fingerprint="0" * 12)


@pytest.fixture
def kept(raw: dict[str, Any], make_grid: Callable[[Mapping[str, Any]], Grid], sampled: Grid, tmp_path: Path) -> Grid:
    """A study that reads the compact readouts of the toy study."""
    record(sampled, tmp_path / "kept")
    study = {**raw["study"], "readouts": "kept", "sample": []}
    return make_grid({**raw, "results": "elsewhere", "study": study})


def state(grid: Grid, cell: tuple[str, str], judge: dict[str, str] | None) -> None:
    """Let recorded readouts say who judged them."""
    path = layout.readouts_sidecar(grid.scores(*cell))
    entries = {key: value for key, value in json.loads(path.read_text()).items() if key != "grader"}
    path.write_text(json.dumps(entries | ({"grader": judge} if judge else {})))


def test_the_grader_of_samples_reaches_landscapes_and_readouts(sampled: Grid, kept: Grid) -> None:
    assert [Judge.read(folder) for folder in landscapes(sampled)] == [MATH, MATH]
    analyse(kept)
    assert [Judge.read(kept.layout.landscape(*cell)) for cell in CELLS] == [MATH, MATH]


def test_readouts_that_do_not_state_their_grader_are_read_and_tables_say_so(kept: Grid) -> None:
    for cell in CELLS:
        state(kept, cell, None)
    kept.check()
    analyse(kept)
    write_tables(kept)
    text = kept.layout.table("graders", "md").read_text()
    assert text.count("recorded") == 2
    assert text.count("not stated") == 2
    assert "2 of 2 cells do not state the version of their grader" in text
    assert "Not to be compared" not in kept.layout.table("recovery_summary", "md").read_text()


def test_every_table_says_that_versions_are_mixed(kept: Grid) -> None:
    state(kept, CELLS[0], None)
    analyse(kept)
    write_tables(kept)
    for name in ("graders", "recovery_summary", "operating_points"):
        text = kept.layout.table(name, "md").read_text()
        assert "judged by different versions of the grader math: not stated in toy-base/sums; math-" in text, name


def test_readouts_of_another_grader_are_refused(kept: Grid) -> None:
    state(kept, CELLS[0], {"name": "choice", "version": "choice-2"})
    with pytest.raises(InputError, match="were judged by the grader choice, not by math"):
        kept.check()


def test_every_table_says_which_golds_were_not_checked(kept: Grid) -> None:
    analyse(kept)
    readings(needs.readings(kept), kept.layout, fingerprint="0" * 12)
    study = replace(needs.tables(kept), unknown_wordings=("benchmarks.sums: 1 of 6 questions has a wording",))
    tables(study, kept.layout, kept.layout, fingerprint="0" * 12)
    for name in ("health", "provenance", "recovery_summary", "operating_points"):
        text = kept.layout.table(name, "md").read_text()
        assert "benchmarks.sums: 1 of 6 questions has a wording." in text, name


def test_a_pair_that_was_judged_by_two_versions_is_refused(sampled: Grid, tmp_path: Path) -> None:
    base, rl = landscapes(sampled)
    Judge("math", "math-0").write(rl)
    with pytest.raises(InputError, match=r"Base .* in version math-\d.*, RL .* in version math-0"):
        recovery_cell(sampled, base, rl, tmp_path / "recovery")
    assert not (tmp_path / "recovery").exists()
    Judge("math").write(rl)
    recovery_cell(sampled, base, rl, tmp_path / "recovery")


def test_versions_of_different_graders_are_no_mixture() -> None:
    cells = {(name, "b"): Judge("math", "math-4") for name in "abcde"}
    assert of_judges({**cells, ("a", "c"): Judge("choice", "choice-2")}) == []
    (note,) = of_judges({**cells, ("a", "c"): Judge("math", "math-3")})
    assert "math-4 in a/b, b/b, c/b and 2 more; math-3 in a/c" in note


def test_boptr_repeats_the_warning_under_its_tables() -> None:
    plan = SimpleNamespace(benchmarks=["b"], said_source=lambda benchmarks: "from recorded samples")
    flags = pl.DataFrame(schema=dict.fromkeys(("flag", "severity", "model", "benchmark", "detail"), pl.String))
    context = BoptrContext({"protocol_flags": flags}, cast(CohortPlan, plan), BoptrOptions(), ["Not to be compared."])
    assert context.notes[1:] == ("Not to be compared.", "From recorded samples.")


# ---- Two graders on the same samples: what is drawn, what both say, and which cells have none


CELL = ("toy-base", "sums")
Make = Callable[[Mapping[str, Any]], Grid]


def drawn(grid: Grid, output: Path) -> pl.DataFrame:
    agreement(needs.agreement(grid, *CELL), grid.inputs.questions("sums"), grid.layout, grid.manifests(*CELL), output)
    return pl.read_parquet(output)


def of_size(raw: dict[str, Any], make_grid: Make, size: int, **changes: Any) -> Grid:
    return make_grid({**raw, **changes, "study": {**raw["study"], "agreement": size}})


def test_a_sample_is_judged_by_both_and_drawn_by_the_seed(
    raw: dict[str, Any], make_grid: Make, sampled: Grid, tmp_path: Path
) -> None:
    """Odd samples are right, all others hold another answer."""
    grid = of_size(raw, make_grid, 6)
    found = drawn(grid, tmp_path / "a.parquet")
    assert (found.schema, found.height) == (AGREEMENT, 6)
    for judge in ("ours", "math_verify"):
        assert found[judge].to_list() == ["right" if sample % 2 else "wrong" for sample in found["sample"]]
    answers = [gold if sample % 2 else "x" for gold, sample in found.select("gold", "sample").iter_rows()]
    assert found["answer"].to_list() == answers
    assert drawn(grid, tmp_path / "b.parquet").equals(found)
    everything = drawn(of_size(raw, make_grid, 10_000), tmp_path / "c.parquet")
    assert everything.select("policy", "question", "sample").is_unique().all()
    assert everything.height == pl.read_parquet(sampled.scores(*CELL)).height > 6
    other = needs.agreement(grid, *CELL)
    assert needs.hash_of(other) != needs.hash_of(needs.agreement(of_size(raw, make_grid, 7), *CELL))


def test_math_verify_alone_finds_answers_by_its_own_rules() -> None:
    texts = {r"so \boxed{\frac{1}{2}}": "right", "so $x = 0.5$": "right", "answer is 3": "wrong", "no idea": "none"}
    pairs = [GradedPair(r"\frac{1}{2}", text) for text in texts]
    found = processes.judge("searchlens.grading.math_verify_alone", pairs, processes.DEFAULT, 1)
    assert found == list(texts.values())


def test_cells_that_math_verify_cannot_judge_say_why(
    raw: dict[str, Any], make_grid: Make, sampled: Grid, tmp_path: Path
) -> None:
    assert sampled.study.agreement_cells == sampled.study.cells
    assert of_size(raw, make_grid, 0).study.without_agreement(*CELL) == "study.agreement is 0"
    raw["benchmarks"]["sums"]["grader"] = "choice"
    assert make_grid(raw).study.without_agreement(*CELL) == "math-verify does not apply to the grader choice"
    raw["benchmarks"]["sums"]["grader"] = "math"
    record(sampled, tmp_path / "kept")
    kept = make_grid({**raw, "study": {**raw["study"], "readouts": "kept", "sample": []}})
    assert kept.study.without_agreement(*CELL) == "no texts: read from recorded readouts"
    assert kept.study.agreement_cells == ()
