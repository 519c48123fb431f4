"""Recorded counts: the same landscape without the samples, and studies that read recorded cells."""

import json
import re
import shutil
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import landscape_oracle as oracle
from conftest import Make, Raw
from run_stages import analyse, costs, landscape_cell, prefill, recovery_cell
from searchlens.analysis.compact import compact, expand
from searchlens.analysis.points import operating_points
from searchlens.analysis.pool import in_parts, plain_votes
from searchlens.cli.stages import record as record_module
from searchlens.cli.stages.record import record
from searchlens.cli.verify import unused
from searchlens.config import check
from searchlens.config.landscape import LandscapeOptions
from searchlens.config.recovery import RecoveryOptions
from searchlens.errors import InputError
from searchlens.plan import Grid, needs
from searchlens.store import layout, recorded_counts
from searchlens.store import recorded_counts as metric_schemas
from test_workflow import ROOT, Folder

FEW = LandscapeOptions(draws=60)
BUDGETS = [1, 2, 4, 8]
CELLS = (("toy-base", "sums"), ("toy-rl", "sums"))
_SOLVED = re.compile(r"\| (?:Base|RL) " + 10 * r"\| *(\d*) *" + r"\|")


def scores(questions: int = 30) -> pl.DataFrame:
    """Pools of every kind: two alike, a deeper one, a single sample, unknown tokens, and four candidates in a run."""
    rng = np.random.default_rng(5)
    sizes = {"a": 8, "b": 8, "deep": 11, "greedy": 1, "mute": 8, "tree": 8}
    pools = {name: [oracle.random_pool(rng, size) for _ in range(questions)] for name, size in sizes.items()}
    known = pl.col("policy") != "mute"
    return oracle.frame(pools).with_columns(
        run=pl.when(policy="tree").then(pl.col("sample") // 4).otherwise("sample"),
        tokens=pl.when(known).then("tokens"),
        generated=pl.when(known).then("tokens"),
        score=pl.when(known).then("score"),
        plain=pl.when(pl.col("answer") >= 0).then(pl.col("answer") * 2 + pl.col("sample") % 2).otherwise(-1),
    )


def through_a_file(kept: pl.DataFrame, tmp_path: Path) -> pl.DataFrame:
    path = layout.recorded_counts(tmp_path, "toy-base", "sums")
    recorded_counts.write(kept, {}, path, {"weights": "w"})
    return recorded_counts.read(path)


HELD = pl.col("metric").is_in(metric_schemas.recorded())
"""Points that recorded counts hold: those of metrics declared with ``recorded``."""
BY_QUESTION = pl.col(
    *("policy", "question", "budget", *metric_schemas.recorded(hits=True)),
    *(f"{name}_unbiased" for name in metric_schemas.recorded(compared=True)),
)
"""What they hold of ``hits``."""


def assert_same_landscape(found: Any, wanted: Any) -> None:
    """Counts and first-k estimates to the bit, means of counts to double precision, all else to single."""
    points = wanted.points.filter(HELD)
    assert_frame_equal(found.points, points, check_exact=False, abs_tol=1e-6, rel_tol=1e-6)
    assert found.points.select("hits").equals(points.select("hits"))
    counted = pl.col("metric").is_in(["P", "Q", "B", "T", "D", "distinct"]) & (pl.col("estimator") == "first_k")
    counted |= pl.col("metric").is_in(["C", "valid", "stopped", "truncated"])
    ours, theirs = (frame.filter(counted).select("value") for frame in (found.points, points))
    assert_frame_equal(ours, theirs, abs_tol=0, rel_tol=1e-14)
    assert found.hits.select(BY_QUESTION).equals(wanted.hits.select(BY_QUESTION))
    assert found.hits["B_unbiased"].null_count() == found.hits["T_unbiased"].null_count() == found.hits.height


@pytest.mark.parametrize("first_finish", ["shortest", "first_index"])
def test_a_landscape_is_the_same_without_its_samples(tmp_path: Path, first_finish: Any) -> None:
    """Independent samples, candidates of searches, deeper pools, greedy, and policies of unknown length and score."""
    options = LandscapeOptions(draws=60, first_finish=first_finish)
    graded, smallest = scores(), {"tree": 2}
    votes = plain_votes(graded, budgets=BUDGETS, ties="first")
    kept = through_a_file(compact(graded, votes, budgets=BUDGETS, options=options), tmp_path)
    found, found_votes = expand(kept, options=options, smallest=smallest)
    assert_same_landscape(found, operating_points(graded, budgets=BUDGETS, options=options, smallest=smallest))
    assert_frame_equal(found_votes, votes, abs_tol=1e-6, rel_tol=1e-6)


def test_what_is_kept_is_what_the_samples_were(tmp_path: Path) -> None:
    answers = [(0, True), (1, False), (0, True), (1, False), (2, False), (-1, False)]
    samples = [oracle.Sample(answer, right, 3, True, -1.0) for answer, right in answers]
    graded = oracle.frame({"a": [samples, samples[::-1]]})
    kept = through_a_file(compact(graded, None, budgets=[1, 2, 4], options=FEW), tmp_path)
    assert kept["classes"].to_list() == [["2+ 2 1", "2+ 2 1"]]
    assert kept["P"].to_list() == [[0b111, 0b100]]
    assert kept["Q"].to_list() == [[0b111, 0b000]], "backwards the votes are none, one for 2, and a tie of 1, 2 and 0"
    assert expand(kept, options=FEW)[1].is_empty()


def test_searches_of_two_candidates_are_rebuilt_as_they_were(tmp_path: Path) -> None:
    """Candidates of one search depend on each other, also where it has the fewest: no closed form gives their mean."""
    pairs = scores().filter(policy="tree").with_columns(run=(pl.col("sample") // 2).cast(pl.UInt32))
    kept = through_a_file(compact(pairs, None, budgets=BUDGETS, options=FEW), tmp_path)
    assert_same_landscape(expand(kept, options=FEW)[0], operating_points(pairs, budgets=BUDGETS, options=FEW))


def test_the_largest_pool_with_an_expected_vote_is_rebuilt_with_it() -> None:
    """512 samples that are all right win every subset; with one more the vote is unknown."""
    sure = oracle.Sample(0, True, 1, True, -1.0)
    for samples, value in ((512, 1.0), (513, None)):
        graded = oracle.frame({"a": [[sure] * samples]})
        points = expand(compact(graded, None, budgets=[3], options=FEW), options=FEW)[0].points
        assert points.filter(metric="Q", estimator="unbiased")["value"].to_list() == [value]


def test_as_many_budgets_as_there_are_bits_are_kept_and_no_more(tmp_path: Path) -> None:
    """The seventeenth would be lost without a word."""
    graded = oracle.frame({"a": [oracle.random_pool(np.random.default_rng(2), 17) for _ in range(6)]})
    some = list(range(1, 17))
    kept = through_a_file(compact(graded, None, budgets=some, options=FEW), tmp_path)
    assert_same_landscape(expand(kept, options=FEW)[0], operating_points(graded, budgets=some, options=FEW))
    with pytest.raises(InputError, match="there are 17; recorded counts hold at most 16"):
        compact(graded, None, budgets=[*some, 17], options=FEW)


def test_shared_ties_are_refused_because_a_vote_would_be_no_bit() -> None:
    with pytest.raises(InputError, match="ties: fractional"):
        compact(scores(4), None, budgets=BUDGETS, options=LandscapeOptions(ties="fractional"))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = layout.recorded_counts(tmp_path, "toy-base", "sums")
    recorded_counts.write(compact(scores(4), None, budgets=BUDGETS, options=FEW), {}, path, {})
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"sums\.arrow\.xz"):
        recorded_counts.read(path)


# ---- a study


def elsewhere(raw: Raw, make_grid: Make) -> Grid:
    """The study on another machine, which has its recorded counts but not its samples."""
    study = {**raw["study"], "recorded_counts": "kept"}
    return make_grid({**raw, "results": "elsewhere", "study": study})


def test_a_study_goes_on_from_its_counts(raw: Raw, make_grid: Make, sampled: Grid, tmp_path: Path) -> None:
    written, unfinished = record(sampled, tmp_path / "kept")
    assert (len(written), unfinished) == (2, [])
    grid = elsewhere(raw, make_grid)
    grid.check()
    assert [grid.study.source(*cell) for cell in CELLS] == ["recorded", "recorded"]
    assert not any(grid.jobs.pools(*cell) for cell in CELLS)
    analyse(grid)
    for checkpoint, benchmark in CELLS:
        folder = sampled.layout.results / "landscape" / checkpoint / benchmark
        landscape_cell(sampled, benchmark, sampled.scores(checkpoint, benchmark), folder)
        for name in ("points", "hits", "classes", "votes"):
            ours, theirs = (
                pl.read_parquet(g.layout.results / "landscape" / checkpoint / benchmark / f"{name}.parquet")
                for g in (sampled, grid)
            )
            if name == "points":
                ours = ours.filter(HELD)
            elif name == "hits":
                theirs, ours = theirs.select(BY_QUESTION), ours.select(BY_QUESTION)
            assert_frame_equal(theirs, ours, abs_tol=1e-6, rel_tol=1e-6)
    folders = (sampled.layout.results / "landscape" / checkpoint / "sums" for checkpoint in ("toy-base", "toy-rl"))
    recovery_cell(sampled, *folders, sampled.layout.results / "recovery/toy/sums")
    ours, theirs = (pl.read_parquet(g.layout.results / "recovery/toy/sums/support.parquet") for g in (sampled, grid))
    assert_frame_equal(theirs, ours, abs_tol=1e-6, rel_tol=1e-6)
    assert_frame_equal(costs(grid), costs(sampled))
    assert_frame_equal(prefill(grid, "toy", "sums"), prefill(sampled, "toy", "sums"))
    made = json.loads((grid.layout.results / "landscape/toy-base/sums/provenance.json").read_text())
    assert made["samples"]["samples"] == costs(sampled).filter(checkpoint="toy-base")["rows"].sum()


def test_cells_without_counts_are_sampled_still(raw: Raw, make_grid: Make, sampled: Grid, tmp_path: Path) -> None:
    """A run that was interrupted: a cell that is not scored, or sampled since, is left out and sampled elsewhere."""
    sampled.scores(*CELLS[1]).unlink()
    written, unfinished = record(sampled, tmp_path / "kept")
    assert ([path.parent.name for path in written], unfinished) == (["toy-base"], ["toy-rl/sums"])
    grid = elsewhere(raw, make_grid)
    grid.check()
    assert [len(grid.jobs.generations(*cell)) for cell in CELLS] == [0, 4]
    (manifest,) = sampled.manifests(*CELLS[0])
    manifest.touch()
    assert record(sampled, tmp_path / "again")[1] == ["toy-base/sums", "toy-rl/sums"]


def test_a_cell_is_recorded_part_by_part(sampled: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell of ten million samples must not be read at once; greedy, whose pool is the smallest, is a part, too."""
    whole, _ = record(sampled, tmp_path / "whole")
    monkeypatch.setattr(record_module, "in_parts", partial(in_parts, most=1))
    parts, _ = record(sampled, tmp_path / "parts")
    assert len(list(in_parts(pl.scan_parquet(sampled.scores(*CELLS[0])), 1))) == 4
    for one, other in zip(whole, parts, strict=True):
        assert_frame_equal(recorded_counts.read(one), recorded_counts.read(other), rel_tol=1e-6)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"pools": {"three": ["temp_0.5", "topp0.95_t1.0"]}}, "policies, samples or seeds"),
        ({"seed": 7}, "policies, samples or seeds"),
        ({"samples": 8}, "policies, samples or seeds"),
        ({"landscape": {"draws": 200}}, "budgets or landscape options"),
        ({"budgets": [1, 2]}, "budgets or landscape options"),
    ],
)
def test_counts_of_another_study_are_refused(
    raw: Raw, make_grid: Make, sampled: Grid, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    record(sampled, tmp_path / "kept")
    with pytest.raises(InputError, match=f"with other {says} than"):
        elsewhere({**raw, **change}, make_grid).check()


def test_a_corrected_gold_is_refused(raw: Raw, make_grid: Make, sampled: Grid, tmp_path: Path) -> None:
    record(sampled, tmp_path / "kept")
    questions = tmp_path / "sums.jsonl"
    questions.write_text(questions.read_text().replace('"gold": "1"', '"gold": "2"'))
    with pytest.raises(InputError, match="with other golds than"):
        elsewhere(raw, make_grid).check()


def test_counts_are_read_where_neither_weights_nor_questions_are(
    raw: Raw, make_grid: Make, sampled: Grid, tmp_path: Path
) -> None:
    """What is not here cannot be compared with; everything else still is, and a cell that is sampled needs both."""
    record(sampled, tmp_path / "kept")
    count = sampled.inputs.count("sums")
    (tmp_path / "sums.jsonl").unlink()
    shutil.rmtree(tmp_path / "rl")
    with pytest.raises(InputError, match=r"sums\.jsonl does not exist, and benchmarks\.sums\.questions does not"):
        elsewhere(raw, make_grid).inputs.count("sums")
    raw["benchmarks"]["sums"]["questions"] = count
    grid = elsewhere(raw, make_grid)
    grid.check()
    analyse(grid)
    points = pl.read_parquet(grid.layout.results / "landscape/toy-rl/sums/points.parquet")
    assert points.height
    with pytest.raises(InputError, match="with other budgets or landscape options than"):
        elsewhere({**raw, "budgets": [1, 2]}, make_grid).check()
    (tmp_path / "base/model.safetensors").write_text("retrained")
    with pytest.raises(InputError, match=r"toy-base/sums\.arrow\.xz were made with other weights than"):
        elsewhere(raw, make_grid).check()
    raw["study"]["sample"] = ["sums"]
    with pytest.raises(InputError, match=r"cannot read benchmark file .*sums\.jsonl"):
        elsewhere(raw, make_grid).check()


def test_counts_that_a_study_rests_on_must_be_there(raw: Raw, make_grid: Make) -> None:
    raw["study"]["sample"] = []
    with pytest.raises(InputError, match=r"kept/toy-base/sums\.arrow\.xz .* missing"):
        elsewhere(raw, make_grid).check()


def test_a_benchmark_that_is_named_is_sampled(raw: Raw, make_grid: Make, sampled: Grid, tmp_path: Path) -> None:
    """Even if it is recorded, with or without the right hashes; its samples keep their ids. Other cells are read."""
    record(sampled, tmp_path / "kept")
    raw["benchmarks"]["more"] = {**raw["benchmarks"]["sums"], "max_tokens": 9}
    study = {**raw["study"], "benchmarks": ["more", "sums"], "sample": ["more"]}
    grid = elsewhere({**raw, "study": study}, make_grid)
    grid.check()
    assert {cell: grid.study.source(*cell) for cell in grid.study.cells if cell in CELLS} == dict.fromkeys(
        CELLS, "recorded"
    )
    assert {grid.study.source(*cell) for cell in grid.study.cells if cell not in CELLS} == {"sampled"}
    named = elsewhere({**raw, "study": {**study, "sample": ["more", "sums"]}, "samples": 8}, make_grid)
    named.check()
    assert not named.study.recorded_counts
    assert [g.id for g in named.jobs.generations(*CELLS[0])] == [g.id for g in sampled.jobs.generations(*CELLS[0])]


def test_samples_of_counts_are_not_pruned(raw: Raw, make_grid: Make, sampled: Grid, tmp_path: Path) -> None:
    record(sampled, tmp_path / "kept")
    grid = make_grid({**raw, "study": {**raw["study"], "recorded_counts": "kept"}})
    assert grid.study.recorded_counts
    assert unused(grid)["generation folder"] == []


def test_figures_are_asked_for_by_cells_that_there_are(raw: Raw) -> None:
    raw["study"]["figures"] = ["toy/sums", "toy/sum"]
    with pytest.raises(InputError, match=r"study\.figures: 'toy/sum' is unknown; did you mean 'toy/sums'"):
        check.validate(raw)


# ---- the workflow


LOST = "results/landscape/micro-1m-rl/gpqa/hits.parquet"
MADE = ("results/recovery/micro-1m/gpqa/support.parquet", "results/boptr/errors.parquet", LOST)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A study of the committed pair, up to recovery and BOPTR, nothing sampled."""
    path = tmp_path_factory.mktemp("recorded")
    for name in ("config", "resources"):
        (path / name).symlink_to(ROOT / name)
    study = {"benchmarks": ["gpqa"], "sample": [], "recorded_counts": "resources/zoo/recorded"}
    boptr = {"anchor": {"benchmark": "gpqa"}, "draws": 100, "reselect": 0}
    folder = Folder(path, {"results": "results", "study": study, "boptr": boptr})
    run(folder, {})
    return folder


def run(folder: Folder, changed: dict[str, Any], *arguments: str, made: tuple[str, ...] = MADE) -> set[str]:
    """The jobs that run, or with ``-n`` would run, after a change of the configuration."""
    (folder.path / "overlay.yaml").write_text(json.dumps({**folder.config, **changed}))
    done = folder.snakemake(*arguments, *made, "--configfile", "overlay.yaml")
    return set(_STARTED.findall(done.stdout + done.stderr))


_STARTED = re.compile(r"^(?:local)?rule ([\w-]+):", re.MULTILINE)


@pytest.mark.long
def test_the_workflow_reads_the_counts_of_a_checkpoint_in_one_job(recorded: Folder) -> None:
    """Without a job for each landscape and recovery, and a second run does nothing."""
    assert all((recorded.path / path).exists() for path in MADE)
    logs = {str(path.relative_to(recorded.path / "logs")) for path in recorded.path.glob("logs/[lr]*/**/*.log")}
    assert logs == {"landscape/micro-1m-base.log", "landscape/micro-1m-rl.log", "recovery/micro-1m.log"}
    assert run(recorded, {}, "-n") == set()


@pytest.mark.long
def test_a_change_of_how_pairs_are_compared_fits_no_law(recorded: Folder) -> None:
    assert run(recorded, {"recovery": {"epsilon": 0.05}}, "-n") == {"recovery_micro-1m"}


@pytest.mark.parametrize("key", [field.name for field in fields(RecoveryOptions)])
def test_boptr_and_landscapes_take_nothing_from_the_section_recovery(raw: Raw, make_grid: Make, key: str) -> None:
    before = make_grid(raw)
    changed: Any = {key: [getattr(before.config.recovery, key)]}
    after = Grid(replace(before.config, recovery=replace(before.config.recovery, **changed)), before.root)
    assert needs.hash_of(needs.recovery(after, "sums")) != needs.hash_of(needs.recovery(before, "sums"))
    for stage in (needs.boptr, lambda grid: needs.landscape(grid, "sums")):
        assert needs.hash_of(stage(after)) == needs.hash_of(stage(before))


@pytest.mark.long
def test_a_lost_landscape_is_made_again_with_those_of_its_checkpoint_alone(recorded: Folder) -> None:
    """Its bytes come out the same, so in the next run neither the comparison of the pair nor BOPTR is made again."""
    before = {path: path.read_bytes() for path in recorded.path.glob("results/landscape/*/*/*")}
    (recorded.path / LOST).unlink()
    assert run(recorded, {}, made=(LOST,)) == {"landscape_micro-1m-rl"}
    changed = {path for path, content in before.items() if path.read_bytes() != content}
    assert changed == {(recorded.path / LOST).with_name("provenance.json")}
    assert run(recorded, {}, "-n") == set()


# ---- the committed pair


def overlaid(name: str) -> Grid:
    files = [ROOT / path for path in (*check.DEFAULT_FILES, f"config/{name}.yaml")]
    return Grid(check.load(files), root=ROOT)


@pytest.mark.parametrize(
    ("overlay", "sampled"),
    [("recorded", []), ("ci", ["math"]), ("demo", ["aime"]), ("demo-full", ["math", "aime"])],
)
def test_the_demo_samples_the_benchmarks_it_lists_and_reads_the_others(overlay: str, sampled: list[str]) -> None:
    grid = overlaid(overlay)
    grid.check()
    assert {b for c, b in grid.study.cells if grid.study.source(c, b) == "sampled"} == set(sampled)
    assert {b for c, b in grid.study.cells if grid.jobs.generations(c, b)} == set(sampled)


@pytest.mark.parametrize(
    ("names", "pairs", "benchmarks"),
    [
        ("pair pair-recorded", "gemma-40", ["mawps", "svamp"]),
        ("pair-lora pair-pool pair-lora-recorded", "gemma-60", ["mawps", "svamp", "gsm8k"]),
        ("pair-lora pair-searches pair-searches-recorded", "gemma-60", ["mawps", "svamp", "gsm8k"]),
        ("pair-lora pair-lora-recorded pair-steps-recorded", "gemma-60 gemma-40 gemma-20 gemma-10 gemma-5", ["mawps"]),
    ],
)
def test_the_pretrained_pairs_are_read_without_weights_and_benchmarks(
    names: str, pairs: str, benchmarks: list[str]
) -> None:
    """The committed counts have the budgets and options of the shipped configurations."""
    files = [*check.DEFAULT_FILES, *(f"examples/pretrained/{name}.yaml" for name in names.split())]
    grid = Grid(check.load([ROOT / path for path in files]), root=ROOT)
    grid.check()
    assert grid.study.recorded_pairs == [(pair, benchmark) for pair in pairs.split() for benchmark in benchmarks]


def test_recorded_counts_are_those_of_their_readme() -> None:
    """Questions solved by the first n samples, as counted in the samples."""
    grid, solved = overlaid("recorded"), []
    for path in grid.study.recorded_counts.values():
        kept = recorded_counts.read(path)
        prefix = expand(kept)[0].points.filter(metric="P", estimator="first_k")
        hits = prefix.filter(policy="topp0.95_t1.0")["hits"].to_list()
        solved.append([*hits, *[None] * (9 - len(hits)), prefix.filter(policy="greedy")["hits"].item()])
    page = (ROOT / "resources/zoo/recorded/README.md").read_text()
    printed = [[int(cell) if cell.strip() else None for cell in row] for row in _SOLVED.findall(page)]
    assert sorted(solved, key=str) == sorted(printed, key=str)
