"""Tables: the CSV holds every number in full precision, and every LaTeX row has as many cells as the heading."""

import base64
import doctest
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
from polars import selectors

import figure_data
from conftest import Make, Raw, write_checkpoint
from run_stages import built, prefill
from run_stages import costs as costs_of
from scripts import printed
from searchlens import catalogue
from searchlens.analysis.health import CHAINS
from searchlens.plan import Grid, needs
from searchlens.reporting.boptr import identification, regimes
from searchlens.reporting.tables import table as fmt
from searchlens.reporting.tables.graders import grader_agreement
from searchlens.reporting.tables.recovery import recovery_objects, recovery_summary, same_policy_counts
from searchlens.reporting.tables.samples import udf_cost
from searchlens.reporting.tables.study import Cell, StudyContext
from searchlens.reporting.tables.table import DASH, LINKED, Part, Table, escape, latex, minus, write
from searchlens.store.columns import AGREEMENT
from searchlens.store.provenance import Judge

AR = "autoregressive"
SPENT = {
    "shards": 2,
    "samples": 10,
    "generated": 1_000,
    "wall_seconds": 36.0,
    "gpu_seconds": 0.0,
    "devices": ["cpu"],
    "engines": ["e 1"],
    "hosts": ["n1"],
    "versions": ["1"],
    "commits": [],
    "configs": ["abc"],
}


@pytest.fixture(scope="module")
def frames() -> figure_data.Cell:
    return figure_data.cell()


@pytest.fixture(scope="module")
def cells(frames: figure_data.Cell) -> list[Cell]:
    recovery = (frames.same_policy, frames.counts, frames.support, frames.path, frames.near_match)
    return [Cell("micro-1m", benchmark, *recovery) for benchmark in ("Micro math", "Micro_AIME & more")]


@pytest.fixture(scope="module")
def context(frames: figure_data.Cell, cells: list[Cell]) -> StudyContext:
    return study_context(frames, cells)


def study_context(frames: figure_data.Cell, cells: list[Cell]) -> StudyContext:
    """A study of one pair, sampled on one benchmark."""
    widths = pl.DataFrame(
        {
            "checkpoint": ["base"] * 4,
            "benchmark": ["math"] * 4,
            "metric": ["P", "P", "Q", "Q"],
            "estimator": ["first_k"] * 4,
            "questions": [200] * 4,
            "budget": [1, 16] * 2,
            "half_width": [0.069, 0.041, 0.069, 0.066],
        }
    )
    return StudyContext(
        default_policy=figure_data.DEFAULT,
        cells=cells,
        points={("base_1m", "math"): frames.base, ("rl_1m", "math"): frames.rl},
        widths=widths,
        costs=costs(),
        models={"base": "Base", "rl": "RL"},
        spent={"base": SPENT},
        sources={("base", "math"): "sampled", ("rl", "math"): "recorded"},
        agreement={("base", "math"): judged_twice(), ("rl", "math"): "no texts: read from recorded counts"},
        judges={("base", "math"): Judge("math", "math-9"), ("rl", "math"): Judge("math")},
        made={"versions": {"polars": "2.0"}, "commit": "", "config": "abc", "host": "n1", "finished": "today"},
        measures=figure_data.measures(),
    )


@pytest.fixture(scope="module")
def every(context: StudyContext) -> dict[str, Table]:
    return built(catalogue.declared("table", stage="study"), context)


def judged_twice() -> pl.DataFrame:
    """Every class once, but two that both graders accept; two samples without an answer."""
    verdicts = ["right right", "right right", "wrong none", "right wrong", "none right", "unknown wrong"]
    names = ("ours", "math_verify")
    rows = [dict(zip(names, pair.split(), strict=True)) | {"sample": i} for i, pair in enumerate(verdicts)]
    given = {"policy": "temp_0.3", "question": "q1", "gold": "1", "answer": "one|1", "text": "so 1"}
    return pl.DataFrame([given | row for row in rows]).select(AGREEMENT.names()).cast(AGREEMENT)


def costs() -> pl.DataFrame:
    """Two shards of one Base run, another Base run, an RL run on two GPUs, one on a CPU, and two searches on Base."""
    columns = "checkpoint benchmark policy controller rows tokens generated requests prefilled reused mean_running"
    rows = [
        ("base", "math", "temp_0.3", AR, 100, 60_000, 60_000, 100, 1_000, 9_000, 50.0, 1800.0, "cuda", 1),
        ("base", "math", "temp_0.3", AR, 300, 180_000, 180_000, 300, 1_000, 29_000, 150.0, 1800.0, "cuda", 1),
        ("base", "math", "temp_0.5", AR, 100, 60_000, 60_000, 100, 1_000, 9_000, 60.0, 1800.0, "cuda", 1),
        ("base", "math", "power_t0.5", "power", 100, 50_000, 900_000, 6400, 40_000, 960_000, 90.0, 3600.0, "cuda", 1),
        ("base", "math", "mcts16", "mcts", 160, 90_000, 30_000, 80, 10_000, 30_000, 20.0, 3600.0, "cpu", 1),
        ("rl", "math", "temp_0.3", AR, 100, 50_000, 50_000, 100, 1_000, 9_000, 50.0, 3600.0, "cuda", 2),
        ("rl", "aime", "temp_0.3", AR, 100, 50_000, 50_000, 100, 1_000, 9_000, 50.0, 7200.0, "cpu", 4),
        ("other", "math", "temp_0.3", AR, 100, 50_000, 50_000, 100, 1_000, 9_000, 50.0, 7200.0, "cuda", 4),
    ]
    return pl.DataFrame(rows, [*columns.split(), "wall_seconds", "device", "device_count"], orient="row")


def test_tables_load_neither_figures_nor_boptr() -> None:
    """Otherwise every edit of a legend or of a fit would make the tables of the study anew."""
    modules = ("recovery", "samples")
    code = f"import sys, {', '.join(f'searchlens.reporting.tables.{name}' for name in modules)}; print(*sys.modules)"
    packages = ("matplotlib", "searchlens.boptr", "searchlens.reporting.figures", "searchlens.reporting.boptr")
    assert not [name for name in printed(code).split() if name.startswith(packages)]


@pytest.mark.parametrize("module", [fmt, regimes, identification])
def test_examples_of_docstrings(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted and not results.failed


def test_files_read_back(every: dict[str, Table], tmp_path: Path) -> None:
    """The CSV loses nothing, and every LaTeX row has as many cells as the heading."""
    blocks = [
        (name, replace(table, parts=[replace(part, title="")])) for name, table in every.items() for part in table.parts
    ]
    for name, table in blocks:
        csv, tex, md, page = write(table, tmp_path / name)
        flat = table.data.with_columns(selectors.list().list.join(" "))  # names, which have no spaces
        assert pl.read_csv(csv, schema=flat.schema).equals(flat, null_equal=True), name
        lines = [line for line in tex.read_text().splitlines() if line.endswith(r"\\")]
        assert len(lines) == 1 + table.text.height
        cells = [line.replace(r"\&", "").count("&") for line in lines]
        assert set(cells) == {table.text.width - 1}, name
        spec = tex.read_text().splitlines()[0].removeprefix(r"\begin{tabular}{").removesuffix("}")
        assert len(spec) == table.text.width
        rows = [line for line in md.read_text().splitlines() if line.startswith("|")]
        assert len(rows) == 2 + table.text.height
        assert {row.replace(r"\|", "").count("|") for row in rows} == {table.text.width + 1}, name
        cells = Cells.of(page)
        assert cells == [*table.text.columns, *(cell for row in table.text.rows() for cell in row)], name


class Cells(HTMLParser):
    """The text of every cell of a page."""

    @classmethod
    def of(cls, page: Path) -> list[str]:
        reader = cls()
        reader.cells: list[str] = []  # type: ignore[misc]
        reader.inside = False
        reader.feed(page.read_text(encoding="utf-8"))
        return reader.cells

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag not in ("script", "img", "link", "iframe")
        if tag in ("td", "th"):
            self.inside = True
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.cells[-1] += data


def test_a_page_runs_nothing_and_has_its_csv(tmp_path: Path) -> None:
    """Names come from files of others; a report is opened without the files beside it."""
    hostile = "<script>alert(1)</script>"
    text = pl.DataFrame({"name": [hostile], "value": ["1.0"]})
    table = Table(text, [Part(text, title=hostile)], [hostile])
    csv, *_, page = write(table, tmp_path / "names")
    said = page.read_text()
    assert "<script" not in said and said.count("&lt;script&gt;") == 4
    (content,) = re.findall(r'href="data:text/csv;base64,([^"]*)"', said)
    assert base64.b64decode(content) == csv.read_bytes()
    large = pl.DataFrame({"name": ["x" * LINKED]})
    _, *_, page = write(Table(large, [Part(text)]), tmp_path / "large")
    assert "base64" not in page.read_text() and "large.csv" in page.read_text()


def test_latex_escapes_names(every: dict[str, Table]) -> None:
    """An underscore or ampersand in a name of policy or benchmark would stop LaTeX."""
    text = latex(every["recovery_summary"])
    assert r"Micro\_AIME \& more" in text
    assert escape("a_b%~^\\{}#$") == r"a\_b\%\textasciitilde{}\textasciicircum{}\textbackslash{}\{\}\#\$"
    assert "$-$" in text and "\N{MINUS SIGN}" not in text


def test_operating_points_hold_every_point(every: dict[str, Table], frames: figure_data.Cell) -> None:
    table = every["operating_points"]
    drawn = pl.col("metric").is_in(["P", "Q"]) & (pl.col("estimator") == "first_k")
    assert table.data.height == frames.base.filter(drawn).height + frames.rl.filter(drawn).height
    row = table.text.row(
        by_predicate=(pl.col("checkpoint") == "rl_1m") & (pl.col("metric") == "Q") & (pl.col("policy") == "temp_0.7"),
        named=True,
    )
    point = frames.rl.filter(estimator="first_k").row(
        by_predicate=(pl.col("metric") == "Q") & (pl.col("policy") == "temp_0.7") & (pl.col("budget") == 8), named=True
    )
    assert row["8"] == f"{100 * point['value']:.1f} [{100 * point['lo']:.1f}, {100 * point['hi']:.1f}]"
    assert table.text.filter(policy="greedy")["16"].to_list() == ["", ""]  # one sample: no larger budget


def test_counts_show_both_denominators(every: dict[str, Table], frames: figure_data.Cell) -> None:
    """k of 24, and k of 23 without the RL default: the two are not to be confused."""
    row = every["same_policy_counts"].text.row(0, named=True)
    count = frames.counts.filter(estimator="first_k").row(
        by_predicate=(pl.col("metric") == "P") & (pl.col("budget") == 16), named=True
    )
    assert row["16"] == f"{count['ahead_or_level']}/24 ({count['ahead_or_level_without_default']}/23)"


def test_summary_takes_the_widest_gap(every: dict[str, Table], frames: figure_data.Cell) -> None:
    row = every["recovery_summary"].data.row(0, named=True)
    support = frames.support.filter(metric="P", estimator="unbiased")
    worst = support.filter(pl.col("rl_minus_best") == pl.col("rl_minus_best").max()).row(0, named=True)
    assert (row["rl_minus_best"], row["rl_minus_best_lo"], row["best_budget"]) == (
        worst["rl_minus_best"],
        worst["rl_minus_best_lo"],
        worst["budget"],
    )
    assert row["inside"] == support["inside"].sum() and row["budgets"] == 5
    default = frames.same_policy.filter(metric="P", estimator="unbiased", policy=figure_data.DEFAULT, budget=16)
    assert (row["rl_minus_base_last"], row["rl_minus_base_last_hi"]) == (
        default["rl_minus_base"].item(),
        default["hi"].item(),
    )
    steps = frames.path.filter(metric="P", kind="closest").sort("target_budget")
    assert every["recovery_summary"].text["closest N"][0] == " ".join(map(str, steps["budget"]))


def test_summary_says_which_metrics_are_of_the_first_samples(context: StudyContext, cells: list[Cell]) -> None:
    """Votes of pools of more than 512 samples have no mean over every choice."""
    first = pl.col("metric").eq("P") | pl.col("estimator").eq("first_k")
    frames = {name: getattr(cells[0], name).filter(first) for name in ("same_policy", "counts", "support")}
    table = recovery_summary(replace(context, cells=[replace(cells[0], **frames)]))
    assert table.data.select("metric", "estimator").rows() == [("P", "unbiased"), ("Q", "first_k")]
    assert table.text["metric"].to_list() == ["pass@k", "self-consistency of the first N"]


def test_summary_says_what_one_greedy_answer_solves(context: StudyContext, cells: list[Cell]) -> None:
    """Beside the region, of which it is no part; empty where it was not drawn."""
    points = {"metric": "P", "estimator": "unbiased", "value": 0.5, "lo": 0.25, "hi": 0.75}
    table = recovery_summary(replace(context, cells=[replace(cells[0], greedy={"Base": pl.DataFrame([points])})]))
    row, line = table.data.row(0, named=True), table.text.row(0, named=True)
    assert (row["greedy_base"], row["greedy_base_lo"], row["greedy_base_hi"]) == (0.5, 0.25, 0.75)
    assert (line["greedy: Base"], line["greedy: RL"], row["greedy_rl"]) == ("50.0 [25.0, 75.0]", "", None)


def test_summary_tells_pools_apart(every: dict[str, Table], context: StudyContext, cells: list[Cell]) -> None:
    """What searches on Base reach is not comparable with what sampling reaches: the row says which it is."""
    plain = every["recovery_summary"]
    assert set(plain.text["pool"]) == {"AR"}
    mixed = recovery_summary(replace(context, cells=[cells[0], replace(cells[1], searched=True)]))
    assert mixed.data["pool"].to_list() == ["ar", "ar", "full", "full"]
    assert mixed.text["pool"].to_list() == ["AR", "AR", "full", "full"]
    sized = recovery_summary(replace(context, cells=[replace(cells[0], policies=24)]))
    assert sized.text["pool"].to_list() == ["AR, 24"] * 2
    assert any(note.startswith("Pool: ") for note in sized.notes)


def test_no_verdict_is_printed_where_nothing_can_be_interpreted(context: StudyContext, cells: list[Cell]) -> None:
    """The numbers stay in the CSV; the printed line has neither counts nor gaps."""
    broken = replace(context, cells=[replace(cells[0], warning="RL: 0% of 8 samples have an answer"), cells[1]])
    table, fine = recovery_summary(broken), recovery_summary(context)
    assert table.data.drop("warning").equals(fine.data.drop("warning"))
    assert table.text["inside"].to_list()[:2] == ["not interpretable"] * 2
    assert set(table.text.select(pl.exclude("pair", "benchmark", "pool", "metric", "inside")).row(0)) == {DASH}
    assert table.text[2:].equals(fine.text[2:])
    counts = same_policy_counts(broken).text
    assert set(counts.filter(benchmark=cells[0].benchmark)["16"]) == {DASH}
    assert DASH not in counts.filter(benchmark=cells[1].benchmark)["16"].to_list()


def test_ties_at_nothing_are_no_verdict(frames: figure_data.Cell, context: StudyContext) -> None:
    """Budgets at which neither model solves any question are neither inside nor ahead."""
    first = pl.col("budget") == 1
    nothing = pl.when(first).then(0.0).otherwise
    support = frames.support.with_columns(
        rl=nothing(pl.col("rl")), envelope=nothing(pl.col("envelope")), inside=first | pl.col("inside")
    )
    counts = frames.counts.with_columns(
        both_zero=pl.when(first).then(pl.col("policies")).otherwise("both_zero"),
        ahead=pl.when(first).then(0).otherwise("ahead"),
    )
    cell = Cell("a", "b", frames.same_policy, counts, support, frames.path, frames.near_match)
    table = recovery_summary(replace(context, cells=[cell]))
    row, line = table.data.row(0, named=True), table.text.row(0, named=True)
    assert row["both_zero"] == 1
    assert line["inside"] == f"{row['inside'] - 1}/{row['budgets'] - 1}"
    assert line["ahead at 1"] == "0/0"


def test_hyphens_of_names_are_no_minus_signs() -> None:
    """Details of the checklist hold both; a column of true minus signs must not turn names of models."""
    text = "qwen25-7b/zoo-math -8.1 pp [-9.0, -1.2], gpt-2 +3"
    assert minus(text) == "qwen25-7b/zoo-math \N{MINUS SIGN}8.1 pp [\N{MINUS SIGN}9.0, \N{MINUS SIGN}1.2], gpt-2 +3"


def test_every_table_explains_itself(every: dict[str, Table]) -> None:
    for name, table in every.items():
        assert table.notes, name
        assert f"\n{latex(table)}".count("\n% ") == len(table.notes), name


def test_cost_counts_runs_once(every: dict[str, Table]) -> None:
    data = every["udf_cost"].data
    assert data["channel"].to_list() == ["AR-Base", "AR-RL", "Search-Base (power)", "Search-Base (mcts)", "total"]
    assert data["runs"].to_list() == [2, 2, 1, 1, 6]
    assert data["samples"].to_list() == [500, 200, 100, 160, 960]
    assert data["wall_h"].to_list() == pytest.approx([1.5, 3.0, 1.0, 1.0, 6.5])
    assert data["gpu_h"].to_list() == pytest.approx([1.5, 2.0, 1.0, 0.0, 4.5])
    assert data["returned_M"].to_list() == pytest.approx([0.3, 0.1, 0.05, 0.09, 0.54])
    assert latex(every["udf_cost"]).splitlines()[-5] == r"\midrule"


def test_cost_of_searches_is_what_they_drew(every: dict[str, Table]) -> None:
    """Generated is not returned; shares and means are over tokens, requests and steps, not over shards."""
    data = every["udf_cost"].data
    assert data["generated_M"].to_list() == pytest.approx([0.3, 0.1, 0.9, 0.03, 1.33])
    assert data["requests_per_sample"].to_list() == pytest.approx([1, 1, 64, 0.5, 7180 / 960])
    assert data["reused"].to_list() == pytest.approx([47 / 50, 0.9, 0.96, 0.75, 1055 / 1110])
    steps = 60_000 / 50 + 180_000 / 150 + 60_000 / 60
    assert data["mean_running"].to_list()[:4] == pytest.approx([300_000 / steps, 50, 90, 20])
    assert data["tokens_per_second"].to_list()[:4] == pytest.approx(
        [300_000 / 5400, 100_000 / 10800, 250, 30_000 / 3600]
    )


def test_cost_of_shards_without_a_record(every: dict[str, Table], context: StudyContext) -> None:
    """A shard without a record leaves its channel and the total empty there, and nothing else; a note counts it."""
    older = pl.col("checkpoint") == "rl"
    unknown = {name: pl.when(~older).then(pl.col(name)) for name in ("prefilled", "reused", "mean_running")}
    table = udf_cost(replace(context, costs=costs().with_columns(**unknown)))
    whole = every["udf_cost"].data
    for name in ("reused", "mean_running"):
        assert table.data[name].to_list() == [whole[name][0], None, whole[name][2], whole[name][3], None]
    assert table.data.drop("reused", "mean_running").equals(whole.drop("reused", "mean_running"))
    assert table.text["running"][1] == ""
    note = "2 of 7 shards have no record of prefixes or running batches."
    assert [*table.notes] == [*every["udf_cost"].notes, note]


def test_cost_says_what_was_not_drawn_to_its_end(every: dict[str, Table], context: StudyContext) -> None:
    """Rejected proposals of power sampling, and how many of them ended early; nothing where no chain rejected one."""
    counts = {"proposed": [900.0, 200.0], "accepted": [880.0, 190.0], "rejected_early": [19.0, 9.0]}
    rest = [pl.lit(None, kind).alias(name) for name, kind in CHAINS.items() if name not in counts]
    chains = pl.DataFrame(counts).with_columns(rest)
    note = (
        "Power sampling rejected 30 of 1,100 proposals, 28 of them before their end; of these, only what was"
        " drawn is counted."
    )
    assert [*udf_cost(replace(context, chains=chains)).notes] == [*every["udf_cost"].notes, note]
    still = chains.with_columns(accepted="proposed")
    assert [*udf_cost(replace(context, chains=still)).notes] == [*every["udf_cost"].notes]


def test_cost_of_nothing(context: StudyContext) -> None:
    """A study that only reads recorded samples has sampled nothing: a total of zero."""
    table = udf_cost(replace(context, costs=costs().clear()))
    assert table.data["channel"].to_list() == ["total"]
    assert table.data["generated_M"].to_list() == [0.0]
    assert table.text["reused"].to_list() == table.text["tokens/s"].to_list() == [""]


def test_several_checkpoints_share_a_channel(context: StudyContext) -> None:
    """With several pairs, all Base checkpoints make one row."""
    table = udf_cost(replace(context, models={"base": "Base", "other": "Base", "rl": "RL"}))
    assert table.data["runs"].to_list() == [3, 2, 1, 1, 7]


def test_shared_and_repeated_checkpoints_have_names_of_their_own(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    """A Base of two pairs carries the first one's name, not the last one's; a repeat is not dropped from the costs."""
    write_checkpoint(tmp_path / "other", "other")
    raw["checkpoints"] |= {"other": {"path": "other"}, "again": {"path": "base", "seed": 7}}
    raw["pairs"]["toy"]["batches"] = {"7": {"base": "again"}}
    raw["pairs"]["late"] = {"base": "toy-base", "rl": "other"}
    raw["study"]["pairs"] = ["toy", "late"]
    names = {"toy-base": "Base toy", "again": "Base toy, batch 7", "toy-rl": "RL toy", "other": "RL late"}
    assert needs.tables(make_grid(raw)).models == names


TREE = {"controller": "entropy_tree", "transition": {"name": "branch", "gap": 2}}
"""Four candidates in a run."""


@pytest.fixture
def searching(raw: Raw, make_grid: Make, publish: Callable[..., Any]) -> Grid:
    """A study whose Base was also searched; every question has a prompt of 10 tokens, and the tree computes more."""
    raw["policies"]["tree"] = TREE
    raw["pools"]["searches"] = ["tree"]
    raw["benchmarks"]["sums"]["searches"] = "searches"
    grid = make_grid(raw)
    for checkpoint, benchmark in grid.study.cells:
        for generation in grid.jobs.generations(checkpoint, benchmark):
            shard = publish(grid, checkpoint, benchmark, generation)
            given = 10 * shard.sidecar["rows"]
            record = {"prefilled": 60, "reused": given - 60}
            if generation.policies == ("tree",):
                record = {"prefilled": 60 + 36, "reused": 500, "generated": 24, "requests": 12, "mean_running": 3.0}
            change(shard.path, record)
    return grid


def change(path: Path, record: dict[str, Any]) -> None:
    """Change the sidecar of a shard."""
    sidecar = {**json.loads(path.with_suffix(".json").read_text()), **record}
    path.with_suffix(".json").write_text(json.dumps(sidecar))


def test_costs_come_from_the_sidecars_of_shards(searching: Grid) -> None:
    """A search costs what it generated; AR samples return what they generate; references cost too."""
    rows = costs_of(searching)
    assert rows.height == 4 + 4 + 1
    tree = rows.filter(controller="entropy_tree")
    assert tree.select("checkpoint", "policy", "rows", "tokens", "generated", "requests").rows() == [
        ("toy-base", "tree", 24, 72, 24, 12)
    ]
    assert set(rows["mean_running"]) == {None, 3.0}, "without a record it is unknown, not zero"


def test_prefill_is_the_prompt_once_and_what_searches_compute_again(searching: Grid) -> None:
    """FLOPs count every prompt once, however it was cached, and the prefixes that a search had to compute again."""
    tokens = prefill(searching, "toy", "sums")
    assert set(tokens["prompt"]) == {10.0}
    again = dict(tokens.filter(model="Base").select("policy", "again").iter_rows())
    assert again == {"temp_0.5": 0, "topp0.9_t0.7": 0, "topp0.95_t1.0": 0, "greedy": 0, "tree": 36 / 24}


def test_costs_that_were_not_recorded_are_empty_and_not_zero(context: StudyContext) -> None:
    """All cells are read from recorded counts without sidecars of shards."""
    unknown = udf_cost(replace(context, costs=costs().clear(), without_costs=8))
    assert unknown.data["channel"].to_list() == ["total"]
    assert set(unknown.data.drop("channel").row(0)) == {None}
    assert "8 cells were recorded without their costs, which are not in this table." in unknown.notes
    some = udf_cost(replace(context, without_costs=1))
    assert some.data.equals(udf_cost(context).data)
    assert "1 cell was recorded without its costs, which are not in this table." in some.notes
    assert not any("without their costs" in note for note in udf_cost(context).notes)


def test_recovery_objects_count_what_the_frames_say(frames: figure_data.Cell, context: StudyContext) -> None:
    table = recovery_objects(context)
    rows = {row["object"]: row for row in table.data.rows(named=True)}
    assert list(rows) == ["envelope", "near-match set", "smooth path", "frozen rule"]
    chosen = {"metric": "P", "estimator": "first_k"}
    gaps = frames.support.filter(**chosen)["rl_minus_best"]
    assert (rows["envelope"]["budgets"], rows["envelope"]["reached"]) == (2 * len(gaps), 2 * (gaps <= 0).sum())
    assert rows["envelope"]["value"] == gaps.max()
    matches = [frames.near_match.filter(metric="P", target_budget=b).height for b in figure_data.BUDGETS]
    assert rows["near-match set"]["reached"] == 2 * sum(count > 0 for count in matches)
    assert rows["near-match set"]["value"] == sorted(matches)[2]
    residuals = frames.path.filter(metric="P", kind="monotone")["rl_minus_base"].abs()
    assert rows["smooth path"]["value"] == pytest.approx(residuals.mean())
    assert rows["frozen rule"]["value"] is None and table.text["in this study"][3] == DASH
    assert f"{100 * rows['smooth path']['value']:.1f} pp" in table.text["in this study"][2]


def test_disagreements_of_two_graders_are_counted_by_class(every: dict[str, Table]) -> None:
    made = every["grader_agreement"]
    counted, none = made.data.rows(named=True)
    classes = ("both_right", "both_wrong", "only_ours", "only_math_verify")
    assert [counted[name] for name in ("samples", *classes)] == [6, 2, 2, 1, 1]
    assert [counted[name] for name in ("no_answer_ours", "no_answer_math_verify", "unknown")] == [1, 1, 1]
    assert (counted["disagree"], counted["reason"]) == (pytest.approx(1 / 3), None)
    assert (counted["lo"], counted["hi"]) == (pytest.approx(0.0968, abs=1e-4), pytest.approx(0.7000, abs=1e-4))
    assert (none["samples"], none["disagree"]) == (None, None)
    assert made.parts[0].text["samples"].to_list() == ["6", "no texts: read from recorded counts"]
    assert made.parts[1].text.select("question", "sample").rows() == [("q1", "3"), ("q1", "4")]


def test_no_samples_disagree_by_no_share(context: StudyContext) -> None:
    made = grader_agreement(replace(context, agreement={("base", "math"): judged_twice().clear()}))
    assert made.data.select("samples", "disagree", "lo", "hi").row(0) == (0, None, None, None)
