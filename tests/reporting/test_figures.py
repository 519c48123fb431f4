"""Figures: what is drawn is what stands in the CSV, the files are reproducible, and print stays legible."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection, QuadMesh
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

import figure_data
import readings_data
from figure_data import draw, write
from searchlens import catalogue
from searchlens.analysis.claims import percent
from searchlens.reporting.figures import palette, style
from searchlens.reporting.figures.context import Curves, Labels, PairContext, Source, StudyContext
from searchlens.reporting.figures.palette import controller_colours
from searchlens.search import kinds
from searchlens.search.policy import FAMILIES, from_spec

AIME6 = ("minp0.1_t0.9", "topp0.9_t0.7", "topp0.9_t0.9", "topk20_t0.7", "topk20_t0.9", figure_data.DEFAULT)
LABELS = Labels(pair="micro-1m", benchmark="Micro math", questions=200, metric="P")
NAMES = tuple(catalogue.declared("figure", stage="pair"))
ALL = list(catalogue.figure_files(catalogue.declared("figure", stage="pair")).values())
pytestmark = pytest.mark.filterwarnings("error")


SEARCHED = replace(LABELS, policies=figure_data.SEARCHES, parameters=1e6)


def inputs_of(cell: figure_data.Cell) -> PairContext:
    return PairContext(labels=LABELS, prefill=prefill_of(cell), **vars(cell))


def prefill_of(cell: figure_data.Cell) -> pl.DataFrame:
    """Prompts of 50 tokens; searches compute a tenth of a token again for each that they generate."""
    rows = [
        (model, name, 50.0, 0.1 if name in figure_data.SEARCHES else 0.0)
        for model, frame in (("Base", cell.base), ("RL", cell.rl))
        for name in frame["policy"].unique(maintain_order=True)
    ]
    return pl.DataFrame(rows, ["model", "policy", "prompt", "again"], orient="row")


@pytest.fixture(scope="module")
def cell() -> figure_data.Cell:
    return figure_data.cell()


@pytest.fixture(scope="module")
def aime() -> PairContext:
    return inputs_of(figure_data.cell(60, AIME6, ability=-2.0))


@pytest.fixture(scope="module")
def searched() -> PairContext:
    return inputs_of(figure_data.cell(60, (*AIME6, "temp_0.5"), searches=figure_data.SEARCHES))


@pytest.fixture(scope="module")
def inputs(cell: figure_data.Cell) -> PairContext:
    return inputs_of(cell)


def drawn(name: str, inputs: PairContext, labels: Labels = LABELS) -> tuple[Figure, pl.DataFrame]:
    return draw(name, replace(inputs, labels=labels))


def numbers(name: str, inputs: PairContext, labels: Labels) -> pl.DataFrame:
    return drawn(name, inputs, labels)[1]


def artists(figure: Figure, kind: type[Artist]) -> Iterable[Artist]:
    return figure.findobj(kind, include_self=False)


def lines(axes: Axes, name: str) -> list[tuple[list[float], list[float]]]:
    """Data of the lines that carry this name."""
    named = [line for line in axes.get_lines() if line.get_gid() == name]
    return [(np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()) for line in named]


def drawn_lines(axes: Axes) -> list[tuple[list[float], list[float]]]:
    """Data of every line, named or not."""
    return [(np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()) for line in axes.get_lines()]


def marks(axes: Axes) -> list[tuple[float, float]]:
    """Where seaborn's marks are."""
    found = [item for item in axes.collections if isinstance(item, PathCollection)]
    return [(float(x), float(y)) for item in found for x, y in np.asarray(item.get_offsets()).tolist()]


def words(figure: Figure) -> str:
    """All texts of a figure, wherever their lines break."""
    return " ".join(" ".join(text.get_text() for text in texts(figure)).split())


def texts(figure: Figure) -> list[Text]:
    return [
        text
        for text in artists(figure, Text)
        if isinstance(text, Text) and text.get_visible() and text.get_text().strip()
    ]


@pytest.mark.parametrize("name", NAMES)
def test_files_are_reproducible_and_csv_reads_back(name: str, inputs: PairContext, tmp_path: Path) -> None:
    """A rerun gives the same bytes in all four formats, so nothing downstream changes; the CSV loses no digit."""
    figure, table = drawn(name, inputs)
    first = style.save(figure, tmp_path / "a" / name, table)
    again = style.save(drawn(name, inputs)[0], tmp_path / "b" / name, table)
    assert [path.suffix for path in first] == [".svg", ".pdf", ".png", ".csv"]
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.suffix
    assert pl.read_csv(first[3], schema=table.schema).equals(table, null_equal=True)


def test_the_style_loads_no_figure() -> None:
    """What all figures share must not depend on any of them; contexts do not load matplotlib."""
    code = "import sys, searchlens.reporting.figures.{}; print(*sys.modules)"
    loaded = {
        name: subprocess.run(
            [sys.executable, "-c", code.format(name)], check=True, capture_output=True, text=True
        ).stdout
        for name in ("style", "context")
    }
    figures = {declaration.module for declaration in catalogue.declared("figure").values()}
    assert not figures & set(loaded["style"].split())
    assert "matplotlib" not in loaded["context"].split()


def test_every_declared_figure_is_written(inputs: PairContext, tmp_path: Path) -> None:
    """A declared figure that no driver draws would be in the report's list, and nowhere else."""
    paths = write("pair", inputs, tmp_path)
    stems = [f"{name}_{metric}" for name in NAMES for metric in "PQ"]
    wanted = {f"{stem}.{suffix}" for stem in stems for suffix in catalogue.FIGURE_FORMATS}
    assert {path.name for path in paths} == {path.name for path in tmp_path.iterdir()} == wanted


@pytest.mark.parametrize(("name", "metric"), ALL)
def test_print_is_legible(name: str, metric: str, inputs: PairContext) -> None:
    """No text below 7 pt, none cut off at the edge of the page, no legend over a panel, the note clear of the title."""
    figure, _ = drawn(name, inputs, replace(LABELS, metric=metric, source="recorded"))
    check_layout(figure)


@pytest.mark.parametrize("name", NAMES)
def test_small_pool_is_legible(name: str, aime: PairContext) -> None:
    """Six policies in three families, two of them short: names of families must not run into each other."""
    labels = Labels(pair="micro-1m", benchmark="Micro AIME", questions=60, source="recorded")
    figure, _ = drawn(name, aime, labels)
    check_layout(figure)


@pytest.mark.parametrize(("name", "metric"), ALL)
def test_searches_are_legible(name: str, metric: str, searched: PairContext) -> None:
    """Longer legends, with searches by name, still fit."""
    check_layout(drawn(name, searched, replace(SEARCHED, metric=metric))[0])


def check_layout(figure: Figure) -> None:
    with style.styled():
        figure.draw_without_rendering()
    assert not [text.get_text() for text in texts(figure) if text.get_fontsize() < 7]
    extent = figure.get_tightbbox()  # in inches, of what is visible
    width, height = figure.get_size_inches()
    assert extent.x0 > -0.01 and extent.y0 > -0.01 and extent.x1 < width + 0.01 and extent.y1 < height + 0.01
    panels = [axes.get_tightbbox() for axes in figure.axes]
    for legend in figure.legends:
        assert not any(legend.get_window_extent().overlaps(panel) for panel in panels if panel is not None)


@pytest.mark.parametrize("name", NAMES)
def test_recorded_samples_are_said(name: str, inputs: PairContext) -> None:
    """A reader must see which figures do not come from samples drawn in this run."""
    assert words(drawn(name, inputs, replace(LABELS, source="recorded"))[0]).count("from recorded samples") == 1
    assert "recorded" not in words(drawn(name, inputs)[0])


NUMBER = re.compile(r"\d")


@pytest.mark.parametrize("name", NAMES)
def test_a_title_says_what_is_found_before_what_is_shown(name: str, inputs: PairContext) -> None:
    """The first line has a number, of its own: the pair and the benchmark stand in the next."""
    first, *rest = drawn(name, inputs)[0].get_suptitle().splitlines()
    assert NUMBER.search(first) and "micro-1m" not in first
    said = " ".join(rest)
    assert said.removesuffix(" of the first k samples").endswith("micro-1m, Micro math (200 questions), pass@k")
    assert said.endswith("first k samples") == (name in ("recovery", "matching_set")), "what is read is said"


@pytest.mark.parametrize(("name", "metric"), ALL)
def test_every_panel_has_marks(name: str, metric: str, searched: PairContext) -> None:
    """Given a frame that it does not know, a plotting library may draw nothing and raise nothing."""
    figure, _ = drawn(name, searched, replace(SEARCHED, metric=metric))
    assert figure.axes
    for axes in figure.axes:
        assert has_marks(axes)


def has_marks(axes: Axes) -> bool:
    """Whether a panel shows any data: a line, a mark, a bar or a map, not only text."""
    lengths = [len(np.asarray(line.get_xdata())) for line in axes.get_lines()]
    lengths += [len(np.asarray(item.get_offsets())) for item in axes.collections if isinstance(item, PathCollection)]
    maps = [item for item in axes.collections if isinstance(item, QuadMesh)]
    return any(lengths) or bool(maps or axes.patches or axes.images) or axes.get_label() == "<colorbar>"


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_interpreted_is_not_drawn(name: str, inputs: PairContext) -> None:
    """No curve, count or "inside" of samples without answers; the numbers stay in the CSV."""
    warning = "RL: 0% of 7,700 samples have an answer (template? token limit? grader?)"
    figure, table = drawn(name, inputs, replace(LABELS, warning=warning))
    check_layout(figure)
    said = [text.get_text().replace("\n", " ") for text in texts(figure)]
    assert f"not interpretable. {warning}" in said
    assert not any("inside" in text for text in said)
    assert not any(axes.lines or axes.collections for axes in figure.axes)
    assert table.equals(drawn(name, inputs)[1])


def test_same_policy_lines_draw_the_gaps(inputs: PairContext) -> None:
    """Each of the 24 lines, the band of the default, the extremes and the counts show the table's numbers."""
    figure, table = drawn("same_policy_lines", inputs)
    (axes,) = figure.axes
    for (_,), rows in table.group_by("policy"):
        assert (rows["budget"].to_list(), (rows["base_minus_rl"] * 100).to_list()) in drawn_lines(axes)
    assert table["policy"].n_unique() == 24
    others = table.filter(pl.col("budget") == 16, pl.col("policy") != figure_data.DEFAULT).sort("base_minus_rl")
    assert {others["policy"][0], others["policy"][-1], figure_data.DEFAULT} <= {text.get_text() for text in axes.texts}
    (band,) = [item for item in axes.collections if isinstance(item, PolyCollection)]
    default = table.filter(policy=figure_data.DEFAULT)
    corners = {tuple(corner) for corner in np.asarray(band.get_paths()[0].vertices).round(9).tolist()}
    for budget, low, high in default.select("budget", "lo", "hi").iter_rows():
        assert {(budget, round(100 * low, 9)), (budget, round(100 * high, 9))} <= corners
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    counts = default.select("budget", "ahead_or_level").rows()
    assert ticks == [f"{budget}\n{ahead}/24" for budget, ahead in counts]
    said = f"RL under {counts[0][1]}/24 policies at 1, {counts[-1][1]}/24 at 16"
    assert f"By the estimates Base \N{GREATER-THAN OR EQUAL TO} {said}" in figure.get_suptitle().replace("\n", " ")


def test_gap_map_cells(inputs: PairContext) -> None:
    """Every cell has its colour value and its printed number, bold where the interval excludes zero."""
    figure, table = drawn("gap_map", inputs)
    axes = figure.axes[0]
    (mesh,) = [item for item in axes.collections if isinstance(item, QuadMesh)]
    values = np.ma.masked_invalid(np.asarray(mesh.get_array(), dtype=float)).compressed()
    assert np.allclose(sorted(values), sorted(table["base_minus_rl"] * 100))
    assert (mesh.norm.vmin, mesh.norm.vmax) == (
        -100 * table["base_minus_rl"].abs().max(),
        100 * table["base_minus_rl"].abs().max(),
    )  # type: ignore[operator]
    budgets = sorted(set(table["budget"]))
    shown = {text.get_position(): text for text in axes.texts}
    for row, budget, gap, marked in table.select("row", "budget", "base_minus_rl", "marked").iter_rows():
        text = shown[budgets.index(budget) + 0.5, row + 0.5]
        assert text.get_text() == percent(gap, sign="+")
        assert (text.get_fontweight() == "bold") == marked
    rl, base = (table.filter("marked", pl.col("base_minus_rl") * side > 0).height for side in (-1, 1))
    assert figure.get_suptitle().startswith(f"RL leads in {rl} of {table.height} cells, Base in {base}\n")
    default = next(label for label in axes.get_yticklabels() if label.get_text() == figure_data.DEFAULT)
    row = table.filter(policy=figure_data.DEFAULT)["row"][0]
    assert default.get_position()[1] == row + 0.5


def test_gap_map_keeps_families_together(inputs: PairContext) -> None:
    """Rows come in families, and within one from the open filter to the narrow one, so that trends can be seen."""
    _, table = drawn("gap_map", inputs)
    order = table["policy"].unique(maintain_order=True).to_list()
    assert order[:5] == ["temp_0.3", "temp_0.5", "temp_0.7", "temp_0.9", "temp_1.0"]
    assert order[5:8] == ["topp0.95_t0.7", "topp0.95_t0.9", "topp0.95_t1.0"]
    assert order[-1] == "minp0.2_t0.9"
    assert table["family"].rle().len() == 4


def test_support_region_layers(inputs: PairContext) -> None:
    """RL, envelope and the greedy line are drawn from their rows; the filled marks are counted in the title."""
    figure, table = drawn("support_region", inputs)
    axes, below = figure.axes
    region = table.filter(layer="support")
    budgets = region["budget"].to_list()
    (rl,), (edge,) = ([line for line in axes.get_lines() if line.get_gid() == name] for name in ("rl", "envelope"))
    assert lines(axes, "rl") == [(budgets, (region["rl"] * 100).to_list())]
    assert lines(axes, "envelope") == [(budgets, (region["envelope"] * 100).to_list())]
    assert edge.get_zorder() > rl.get_zorder() and edge.get_linewidth() < rl.get_linewidth(), "or one hides the other"
    assert region["policies"].to_list() == [24] * len(budgets)
    (greedy,) = lines(axes, "greedy")
    assert greedy[1] == [100 * table.filter(layer="greedy")["value"].item()] * 2
    points = [line for line in below.get_lines() if line.get_marker() == "o"]
    filled = [line for line in points if line.get_markerfacecolor() != "white"]
    assert f"at {len(filled)} of {len(points)} budgets" in figure.get_suptitle()
    assert len(filled) == region["inside"].sum()


GAP = ("rl_minus_best", "rl_minus_best_lo", "rl_minus_best_hi")


def moved_by(gap: float) -> dict[str, pl.Expr]:
    return {name: pl.lit(value) for name, value in zip(GAP, (gap, gap - 0.05, gap + 0.05), strict=True)}


@pytest.mark.parametrize("gap", [-0.4, -0.05, 0.0, 0.03, 0.38])
def test_numbers_of_the_support_region_cross_nothing(gap: float, inputs: PairContext) -> None:
    """A gap's number crossed by an interval or another number cannot be read; it covers the zero line."""
    moved = inputs.support.with_columns(**moved_by(gap))
    figure, table = drawn("support_region", replace(inputs, support=moved))
    with style.styled():
        figure.draw_without_rendering()
    below = figure.axes[1]
    numbers = [text for text in below.texts if text.get_gid() == "gap"]
    region = table.filter(layer="support")
    assert [text.get_text() for text in numbers] == [percent(gap, sign="+")] * region.height
    assert all(text.get_bbox_patch() is not None for text in numbers)
    places = [text.get_window_extent() for text in numbers]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(places, 2))
    intervals = [below.transData.transform((budget, 100 * gap))[0] for budget in region["budget"]]
    assert not any(place.x0 - 1 < x < place.x1 + 1 for place in places for x in intervals)
    assert places[-1].x1 < figure.bbox.x1


@pytest.mark.parametrize("gap", [-0.4, 0.0, 0.38])
def test_numbers_of_many_budgets_stand_above_their_intervals(gap: float, inputs: PairContext) -> None:
    """Beside them they would cross the next interval."""
    last = inputs.support.filter(pl.col("budget") == pl.col("budget").max())
    more = [last.with_columns(budget=(pl.col("budget") * factor).cast(last.schema["budget"])) for factor in (2, 4)]
    moved = pl.concat([inputs.support, *more]).with_columns(**moved_by(gap))
    figure, _ = drawn("support_region", replace(inputs, support=moved))
    with style.styled():
        figure.draw_without_rendering()
    below = figure.axes[1]
    places = [text.get_window_extent() for text in below.texts if text.get_gid() == "gap"]
    assert len(places) == 7
    assert not any(one.overlaps(other) for one, other in itertools.combinations(places, 2))
    assert all(place.y0 > below.transData.transform((1, 100 * (gap + 0.05)))[1] for place in places)
    assert all(below.bbox.y0 < place.y0 and place.y1 < below.bbox.y1 for place in places)


def test_support_region_without_greedy(inputs: PairContext) -> None:
    """A study that did not draw greedy still gets its figure, without a line or a legend entry for it."""
    base = inputs.base.filter(pl.col("policy") != "greedy")
    figure, table = drawn("support_region", replace(inputs, base=base))
    assert "greedy" not in table["layer"]
    assert not lines(figure.axes[0], "greedy")
    assert not any("greedy" in text.get_text() for text in texts(figure))


def test_recovery_maps_the_matches_and_draws_both_paths(inputs: PairContext) -> None:
    """Panel A has the least error and the number of matches of each pair of budgets; B the paths and RL - Base."""
    figure, table = drawn("recovery", inputs)
    left, _, right, below = figure.axes
    near = table.filter(layer="near_match")
    cells = near.group_by("target_budget", "budget").agg(pl.col("rl_minus_base").abs().min(), pl.len())
    (mesh,) = [item for item in left.collections if isinstance(item, QuadMesh)]
    values = np.ma.masked_invalid(np.asarray(mesh.get_array(), dtype=float)).compressed()
    assert np.allclose(sorted(values), sorted(cells["rl_minus_base"] * 100))
    shown = sorted(int(text.get_text()) for text in left.texts if text.get_text())
    assert shown == sorted(cells["len"])
    for kind in ("closest", "monotone"):
        rows = table.filter(layer=kind)
        ((x, _),) = lines(left, f"A-{kind}")
        assert len(x) == rows.height
        assert lines(right, kind) == [(rows["target_budget"].to_list(), (rows["value"] * 100).to_list())]
    bars = sorted(float(y[1]) for _, y in (line.get_data() for line in below.get_lines()[1:]) if len(y) == 2)
    paths = table.filter(pl.col("layer").is_in(["closest", "monotone"]))
    assert np.allclose(bars, sorted(paths["rl_minus_base"] * 100))
    assert paths["rl_minus_base"].to_list() == pytest.approx((paths["target"] - paths["value"]).to_list())
    assert below.get_ylabel() == "RL \N{MINUS SIGN} Base (pp)"
    worst = table.filter(layer="monotone")["rl_minus_base"].abs().max()
    assert f"stays within {100 * worst:.1f} pp of RL at all 5 budgets" in figure.get_suptitle()  # type: ignore[operator]


@pytest.mark.parametrize("name", ["recovery", "matching_set"])
def test_no_near_match(name: str, inputs: PairContext) -> None:
    """Where no Base point is close to RL the figure says so instead of failing: it is a result."""
    empty = replace(inputs, near_match=inputs.near_match.clear(), path=inputs.path.clear())
    figure, _ = drawn(name, empty)
    check_layout(figure)
    said = words(figure)
    assert "no Base point is this close" in said or len(re.findall(r"RL at \d+: 0\b", said)) == 5
    assert re.match("No Base point (matches|is within 3 pp of) RL at 1, 2, 4, 8, 16", figure.get_suptitle())


@pytest.mark.parametrize("name", NAMES)
def test_models_that_share_nothing(name: str, inputs: PairContext) -> None:
    """Imported samples may leave no shared policy, and budgets that Base does not have: the figure says so."""
    gone = pl.lit(None, dtype=pl.Float64)
    support = inputs.support.with_columns(envelope=gone, low=gone, **dict.fromkeys(GAP, gone), inside=None)
    support = support.with_columns(pl.col("inside").cast(pl.Boolean))
    bare = replace(inputs, support=support, same_policy=inputs.same_policy.clear(), counts=inputs.counts.clear())
    check_layout(drawn(name, bare)[0])


def test_matching_set_counts_its_points(inputs: PairContext) -> None:
    """Each point is drawn once, coloured if it matches any budget of RL; the count beside a line is of its matches."""
    figure, table = drawn("matching_set", inputs)
    (axes,) = figure.axes
    points, targets = table.filter(layer="point"), table.filter(layer="target")
    assert sorted(round(y, 6) for _, y in marks(axes)) == sorted((points["value"] * 100).round(6))
    matched = [len(text.split()) if text else 0 for text in points["targets"]]
    assert matched == points["matches"].to_list()
    said = [text.get_text() for text in axes.texts]
    for budget, matches in targets.select("budget", "matches").iter_rows():
        assert matches == inputs.near_match.filter(metric="P", target_budget=budget).height
        assert f"RL at {budget}: {matches}" in said
    assert axes.get_ylim()[1] <= 105


def legend_texts(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


@pytest.mark.parametrize("name", ["matching_set"])
def test_legends_mark_ar_and_search(name: str, searched: PairContext, inputs: PairContext) -> None:
    """Where both appear a reader must see which is which; where only AR does, nothing is said."""
    said = legend_texts(drawn(name, searched, SEARCHED)[0])
    assert "search" in said and "AR top-p" in said
    assert not any(text.startswith("AR") or text == "search" for text in legend_texts(drawn(name, inputs)[0]))


def test_a_configured_name_is_not_taken_for_a_search(inputs: PairContext) -> None:
    """An autoregressive policy under a name of one's own belongs to its family, and to no search."""
    warm = from_spec("warm", {"local": {"temperature": 0.8, "top_k": 50}})
    assert kinds.family("warm", {"warm": warm}) == "top-k"
    assert kinds.channel("warm", {"warm": warm}) == "AR"
    assert kinds.ordered(["warm", "topk20_t0.9", "temp_1.0"], {"warm": warm}) == ["temp_1.0", "warm", "topk20_t0.9"]
    assert kinds.channel("power_t0.25", figure_data.SEARCHES) == "search"


@pytest.mark.parametrize("name", ["support_region", "recovery"])
def test_power_sampling_has_lines_of_its_own(name: str, searched: PairContext) -> None:
    """The paper's power-sampling line: one for each sampler, through its points at the same budgets as RL."""
    figure, table = drawn(name, searched, SEARCHED)
    axes = figure.axes[0] if name == "support_region" else figure.axes[2]
    for sampler in ("power_t0.25", "power_topp0.9_t0.7"):
        readout = "expected" if name == "support_region" else "prefix"
        points = searched.base.filter(policy=sampler, metric="P", readout=readout).sort("budget")
        assert lines(axes, sampler) == [(points["budget"].to_list(), (points["value"] * 100).to_list())]
    assert set(table.filter(layer="power")["policy"]) == {"power_t0.25", "power_topp0.9_t0.7"}
    assert "power (exact)" in legend_texts(figure)


def test_support_region_marks_where_a_search_holds_the_edge(searched: PairContext) -> None:
    """An envelope over searches differs from one of AR policies; a mark shows where a search makes the edge."""
    figure, table = drawn("support_region", searched, SEARCHED)
    region = table.filter(layer="support")
    theirs = region.filter(pl.col("envelope_policy").is_in(list(figure_data.SEARCHES)))
    assert theirs.height > 0
    assert lines(figure.axes[0], "best-search") == [(theirs["budget"].to_list(), (theirs["envelope"] * 100).to_list())]


def computing_again(context: PairContext, share: float) -> PairContext:
    """Searches that compute a share of a token again for each that they generate."""
    again = pl.when(pl.col("again") > 0).then(share).otherwise(0.0)
    return replace(context, prefill=context.prefill.with_columns(again=again))


def test_frontier_draws_every_point_at_what_it_took(searched: PairContext) -> None:
    """AR: n times the mean tokens; searches: whole runs; FLOPs: 2 per parameter, prompt and prefixes included."""
    figure, table = drawn("compute_frontier", computing_again(searched, 0.6), SEARCHED)
    for axes, axis in zip(figure.axes, ("samples", "tokens", "flops"), strict=True):
        rows = table.filter(pl.col("axis") == axis, pl.col("layer") != "AR edge", model="Base")
        for _, points in rows.group_by("policy", maintain_order=True):
            assert (points["x"].to_list(), (points["value"] * 100).to_list()) in drawn_lines(axes)
    figure, table = drawn("compute_frontier", searched, SEARCHED)
    assert len(figure.axes) == 2, "FLOPs are tokens in another unit where little is computed again"
    tokens = dict(table.filter(axis="tokens", model="Base", policy="mcts16_t1.0").select("budget", "x").iter_rows())
    assert tokens == dict.fromkeys(figure_data.BUDGETS, 300.0), "one run gives all sixteen"
    tokens = dict(table.filter(axis="tokens", policy="power_t0.25").select("budget", "x").iter_rows())
    assert tokens == {n: 800.0 * n for n in figure_data.BUDGETS}
    work = table.filter(axis="flops", policy="power_t0.25", budget=4)["x"].item()
    assert work == pytest.approx(2 * 1e6 * (50 + 4 * 800 * 1.1))
    work = table.filter(axis="flops", policy="topk20_t0.9", layer="AR", budget=4)["x"].item()
    assert work == pytest.approx(2 * 1e6 * (50 + 4 * 40))


def test_frontier_edges_are_the_best_so_far(searched: PairContext) -> None:
    """What lies on the edge is a point of the policy it names, or lies between two of them; greedy plays no part."""
    table = numbers("compute_frontier", searched, SEARCHED)
    for axis in ("samples", "tokens", "flops"):
        rows = table.filter(pl.col("axis") == axis, model="Base")
        pool = rows.filter(pl.col("layer") == "AR", pl.col("policy") != "greedy")
        edge = rows.filter(layer="AR edge")
        assert edge["x"].is_sorted() and edge["value"].is_sorted() and edge["x"][-1] == pool["x"].max()
        for x, value, name in edge.select("x", "value", "policy").iter_rows():
            points = pool.filter(policy=name).sort("x")
            before, after = points.filter(pl.col("x") <= x), points.filter(pl.col("x") > x)
            reached = before["value"][-1]
            if after.height:
                share = np.log(x / before["x"][-1]) / np.log(after["x"][0] / before["x"][-1])
                reached += share * (after["value"][0] - reached)
            assert value == pytest.approx(reached)
    best = pool.group_by("budget").agg(pl.col("value").max()).sort("budget")["value"]
    assert table.filter(axis="samples", model="Base", layer="AR edge")["value"].to_list() == best.to_list()


@pytest.mark.parametrize("metric", ["P", "Q"])
def test_no_point_lies_above_a_frontier_edge(metric: str, searched: PairContext) -> None:
    """Votes can get worse with more samples; the edge cannot, since one may take fewer."""
    table = numbers("compute_frontier", searched, replace(SEARCHED, metric=metric))
    for axis in ("samples", "tokens", "flops"):
        rows = table.filter(pl.col("axis") == axis, model="Base")
        edge = rows.filter(layer="AR edge")
        assert edge["value"].is_sorted()
        pool = rows.filter(pl.col("layer") == "AR", pl.col("policy") != "greedy")
        for x, value in pool.select("x", "value").iter_rows():
            assert edge.filter(pl.col("x") <= x)["value"][-1] >= value


def test_frontier_of_rl_is_its_default_and_its_edge(searched: PairContext) -> None:
    """RL's default curve with its band, and what the best of RL's policies reach, are drawn from their rows."""
    figure, table = drawn("compute_frontier", searched, SEARCHED)
    points = table.filter(axis="tokens", model="RL", layer="AR")
    assert points["policy"].unique().to_list() == [figure_data.DEFAULT]
    axes = figure.axes[1]
    assert lines(axes, "RL default") == [(points["x"].to_list(), (points["value"] * 100).to_list())]
    edge = table.filter(axis="tokens", model="RL", layer="AR edge")
    assert lines(axes, "RL edge") == [(edge["x"].to_list(), (edge["value"] * 100).to_list())]
    corners = [
        {tuple(corner) for corner in np.asarray(band.get_paths()[0].vertices).round(6).tolist()}
        for band in axes.collections
        if isinstance(band, PolyCollection)
    ]
    wanted = {(x, round(100 * end, 6)) for x, *ends in points.select("x", "lo", "hi").iter_rows() for end in ends}
    assert any(wanted <= {(x, y) for x, y in band} for band in corners)


def test_frontier_says_what_is_unknown(searched: PairContext) -> None:
    """No parameters: no FLOPs; no record of prefill for some policy: none is counted for any; no tokens: no panels."""
    figure, table = drawn("compute_frontier", searched, replace(SEARCHED, parameters=None))
    assert table.filter(axis="flops").is_empty()
    assert len(figure.axes) == 2
    check_layout(figure)
    costly = computing_again(searched, 0.6)
    partly = replace(costly, prefill=costly.prefill.filter(pl.col("policy") != "topk20_t0.9"))
    figure, table = drawn("compute_frontier", partly, SEARCHED)
    assert table.filter(axis="flops", policy="power_t0.25", budget=4)["x"].item() == pytest.approx(2 * 1e6 * 4 * 800)
    assert any("of generation alone" in text.get_text() for text in texts(figure))
    unknown = pl.when(pl.col("metric") != "C").then(pl.col("value"))
    bare = replace(searched, base=searched.base.with_columns(value=unknown), rl=searched.rl.with_columns(value=unknown))
    figure, table = drawn("compute_frontier", bare, SEARCHED)
    assert table["axis"].unique().to_list() == ["samples"]
    check_layout(figure)


def test_frontier_without_searches(inputs: PairContext) -> None:
    """AR and RL alone still make the figure; each line is named where it ends."""
    figure, table = drawn("compute_frontier", inputs, replace(LABELS, parameters=1e6))
    assert set(table["layer"]) == {"AR", "AR edge"}
    assert {"Base, best AR policy", "RL, best AR policy", "RL default"} <= {text.get_text() for text in texts(figure)}
    check_layout(figure)


def test_pass_curves_panels(cell: figure_data.Cell, tmp_path: Path) -> None:
    """Each panel shows its own curves and says whether its samples were drawn here; a missing cell leaves a gap."""
    here, there = LABELS, replace(LABELS, benchmark="Micro AIME", source="recorded")
    other = replace(there, pair="micro-4m")
    figure, _ = draw("pass_curves", StudyContext([Curves(each, cell.base, cell.rl) for each in (here, there, other)]))
    check_layout(figure)
    first, second, missing, last = figure.axes
    for points in (cell.base, cell.rl):
        rows = points.filter(policy=figure_data.DEFAULT, metric="P", readout="expected").sort("budget")
        assert (rows["budget"].to_list(), (rows["value"] * 100).to_list()) in drawn_lines(first)
    assert len({axes.get_ylim() for axes in figure.axes}) == 1, "one scale"
    assert "sampled here" in first.get_title(loc="left")
    assert "recorded" in second.get_title(loc="left") and "recorded" in last.get_title(loc="left")
    assert not missing.axison
    written = write("study", StudyContext([Curves(here, cell.base, cell.rl)], readings_data.frames()), tmp_path)
    drawn = itertools.product(catalogue.declared("figure", stage="study"), catalogue.FIGURE_FORMATS)
    assert {path.name for path in written} == {f"{name}.{suffix}" for name, suffix in drawn}
    assert all(path.stat().st_size for path in written)


def test_pass_curves_go_as_far_as_there_are_samples(cell: figure_data.Cell) -> None:
    """Where Base passes RL may lie beyond the budgets at which policies are compared, which are not drawn twice."""
    where = {"pair": LABELS.pair, "benchmark": LABELS.benchmark, "measure": "pass@k", "tau": None, "lo": 0.0, "hi": 1.0}
    ends = {"Base": 0.9, "RL": 0.8}
    rows = [{**where, "side": side, "k": k, "value": value} for side, value in ends.items() for k in (4, 64)]
    measures = pl.DataFrame(rows, schema_overrides={"k": pl.UInt32})
    labels = (LABELS, replace(LABELS, benchmark="Micro AIME"))
    context = StudyContext([Curves(each, cell.base, cell.rl) for each in labels], {"measures": measures})
    figure, numbers = draw("pass_curves", context)
    check_layout(figure)
    long, short = (axes.get_xlim()[1] for axes in figure.axes)
    assert 16 < short < 64 < long, "each benchmark to its own end"
    numbers = numbers.filter(benchmark=LABELS.benchmark)
    for (side, value), points in zip(ends.items(), (cell.base, cell.rl), strict=True):
        rows_of = points.filter(policy=figure_data.DEFAULT, metric="P", readout="expected").sort("budget")
        curve = ([*rows_of["budget"], 64], pytest.approx([*(100 * rows_of["value"]), 100 * value]))
        assert curve in drawn_lines(figure.axes[0])
        assert numbers.filter(model=side)["budget"].to_list() == curve[0]


def test_pass_curves_stand_beside_luck_where_it_solves_much(cell: figure_data.Cell) -> None:
    """Of Base it does, of RL it does not."""
    where = {"pair": LABELS.pair, "benchmark": LABELS.benchmark, "measure": "luck", "tau": None, "lo": 0.0, "hi": 1.0}
    lucky = [{**where, "side": "Base", "k": k, "value": 0.03 * k} for k in (1, 2, 4)]
    rows = [*lucky, *({**row, "side": "RL", "value": 0.01} for row in lucky)]
    measures = pl.DataFrame(rows, schema_overrides={"k": pl.UInt32})
    figure, numbers = draw("pass_curves", StudyContext([Curves(LABELS, cell.base, cell.rl)], {"measures": measures}))
    check_layout(figure)
    assert set(numbers["model"]) == {"Base", "RL", "Base greedy", "Base luck"}
    assert lines(figure.axes[0], "Base luck") == [([1, 2, 4], pytest.approx([3, 6, 12]))]
    assert "gold of another question" in words(figure)


@pytest.mark.parametrize("known", [(1, 2, 4, 8, 16), (1, 16)])
def test_names_of_curves_do_not_lie_on_luck(known: tuple[int, ...], cell: figure_data.Cell) -> None:
    """Base and RL are furthest apart at 4 samples, where the name of Base would lie on its luck."""
    curves = {"Base": (0.05, 0.095, 0.17, 0.27, 0.39), "RL": (0.21, 0.27, 0.34, 0.41, 0.48)}
    luck = dict(zip(figure_data.BUDGETS, (0.01, 0.02, 0.04, 0.06, 0.08), strict=True))
    where = {"pair": LABELS.pair, "benchmark": LABELS.benchmark, "measure": "luck", "tau": None, "lo": 0.0, "hi": 1.0}
    rows = [{**where, "side": side, "k": k, "value": luck[k]} for side in curves for k in known]
    measures = pl.DataFrame(rows, schema_overrides={"k": pl.UInt32})
    sides = [
        points.with_columns(value=pl.col("budget").replace_strict(figure_data.BUDGETS, values))
        for points, values in zip((cell.base, cell.rl), curves.values(), strict=True)
    ]

    def named_at(*frames: pl.DataFrame) -> tuple[float, float]:
        readings = {"measures": frames[0]} if frames else {}
        figure, _ = draw("pass_curves", StudyContext([Curves(LABELS, *sides)], readings))
        check_layout(figure)
        axes, names = figure.axes[0], [text for text in texts(figure) if text.get_text() in curves]
        drawn = [line for line in axes.get_lines() if str(line.get_gid()).endswith("luck") and len(line.get_xdata())]
        assert len(names) == 2 and len(drawn) == 2 * len(frames)
        for line, name in itertools.product(drawn, names):
            path = line.get_transform().transform_path(line.get_path())
            assert not path.intersects_bbox(name.get_window_extent(), filled=False)
        return names[0].xy[0], names[1].xy[0]

    assert named_at() == (4, 4)
    assert named_at(measures) == (8, 8)


@pytest.mark.parametrize("warning", ["", "RL: 0% of 8 samples have an answer"])
def test_readings_of_a_study(warning: str, cell: figure_data.Cell) -> None:
    """Lines are the numbers of the CSV; a pair that is not interpretable has words in their place."""
    frames = readings_data.frames()
    labels = [replace(LABELS, benchmark=name, warning=warning) for name in ("Micro math", "Micro_AIME & more")]
    context = StudyContext([Curves(each, cell.base, cell.rl) for each in labels], frames)
    for name, gid in (("budget_equivalents", "N*"), ("exponent_sets", "p")):
        figure, numbers = draw(name, context)
        check_layout(figure)
        said = [text.get_text() for text in texts(figure)]
        if warning:
            assert not lines(figure.axes[0], gid)
            assert sum("interpretable" in text for text in said) >= 2
            continue
        (drawn,) = lines(figure.axes[0], gid)
        rows = numbers.filter(pl.col("benchmark") == "Micro math")
        if name == "budget_equivalents":
            known = rows.filter(state="within")
            assert drawn == (known["budget"].to_list(), known["n"].to_list())
            assert rows["law"].drop_nulls().is_between(1, 16).all()
        else:
            assert drawn[0] == rows["beta"].to_list()
            assert drawn[1] == pytest.approx((0.75 * rows["p"]).to_list())
            (inside,) = lines(figure.axes[0], "set")
            assert inside[0] == rows.filter(pl.col("p") >= 0.05)["beta"].to_list()


@pytest.mark.parametrize("others", ["recorded", "sampled"])
def test_pass_curves_of_a_large_cohort(others: Source, cell: figure_data.Cell) -> None:
    """Twelve pairs on eight benchmarks: no title runs into its neighbour, and each benchmark is named once."""
    places = itertools.product(range(12), range(8))
    cells = [
        replace(LABELS, pair=f"pair {i}", benchmark=f"Benchmark {j}", source="recorded" if i + j else others)
        for i, j in places
        if (i, j) != (0, 3)
    ]
    figure, _ = draw("pass_curves", StudyContext([Curves(each, cell.base, cell.rl) for each in cells]))
    check_layout(figure)
    said = [text.get_text() for text in texts(figure)]
    assert sum(text.startswith("Benchmark 3\n") for text in said) == 1
    assert ("from recorded samples" in words(figure)) == (others == "recorded")
    assert any(text.endswith("sampled here") for text in said) == (others == "sampled")
    boxes = [axes.get_tightbbox() for axes in figure.axes if axes.axison]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2) if one and other)


def test_settings_of_the_machine_do_not_matter(inputs: PairContext, tmp_path: Path) -> None:
    """A user's own matplotlib settings must not leak into the figures."""

    def written(stem: str) -> bytes:
        figure, table = drawn("matching_set", inputs)
        return style.save(figure, tmp_path / stem, table)[0].read_bytes()

    plain = written("plain")
    with mpl.rc_context({"lines.linewidth": 9, "axes.grid": True, "font.size": 20}):
        assert written("other") == plain
        assert mpl.rcParams["lines.linewidth"] == 9


VISION = {
    "usual": np.eye(3),
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}  # Machado, Oliveira and Fernandes (2009), on linear RGB
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def seen(colour: str, vision: str) -> npt.NDArray[np.float64]:
    """CIELAB coordinates of a colour as it is seen."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ (np.array(VISION[vision]) @ linear).clip(0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_families_stay_apart(vision: str) -> None:
    """Any shade of one family differs from any of another, and from RL's red, well beyond the just noticeable (2)."""
    assert tuple(palette.FAMILY_COLOURS) == FAMILIES
    colours = palette.shades(figure_data.PAPER24)
    groups: dict[str, set[str]] = {"RL": {palette.RL_COLOUR}}
    for name, colour in colours.items():
        groups.setdefault(kinds.family(name), set()).add(colour)
    for (_, ours), (_, theirs) in itertools.combinations(groups.items(), 2):
        distances = [np.linalg.norm(seen(a, vision) - seen(b, vision)) for a in ours for b in theirs]
        assert min(distances) > 15


@pytest.mark.parametrize("vision", VISION)
def test_controllers_stay_apart(vision: str) -> None:
    """The colours of controllers differ from one another, from RL's red and from the envelope; new ones are grey."""
    colours = [*controller_colours().values(), palette.RL_COLOUR, palette.ENVELOPE_COLOUR]
    for ours, theirs in itertools.combinations(colours, 2):
        assert np.linalg.norm(seen(ours, vision) - seen(theirs, vision)) > 15


@pytest.mark.parametrize("vision", VISION)
def test_colours_of_the_explorer_stay_apart(vision: str) -> None:
    """In its light and its dark form: the two models; and what is good, doubtful and bad, which words say, too."""
    style_sheet = (Path(__file__).parents[2] / "web/src/style.css").read_text()
    schemes = [dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in style_sheet.split("prefers-color-scheme: dark")]
    assert len(schemes) == 2
    for colours in schemes:
        for group in (("base", "rl"), ("good", "warn", "bad")):
            for ours, theirs in itertools.combinations(group, 2):
                assert np.linalg.norm(seen(colours[ours], vision) - seen(colours[theirs], vision)) > 15, (ours, theirs)


def test_unknown_policies_have_a_place() -> None:
    """A name that spells no policy, such as that of a search, is in a family of its own."""
    assert kinds.family("mcmc_b4") == "search"
    assert kinds.ordered(["mcmc_b4", "temp_1.0", "greedy"]) == ["temp_1.0", "mcmc_b4", "greedy"]
    assert set(palette.shades(["mcmc_b4", "temp_0.3", "temp_1.0"])) == {"mcmc_b4", "temp_0.3", "temp_1.0"}
