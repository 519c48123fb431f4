"""Figures: what is drawn is what stands in the CSV, the files are reproducible, and print stays legible."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest
from matplotlib.collections import PolyCollection, QuadMesh
from matplotlib.figure import Figure

import figure_data
from drawn import LABELS, check_layout, has_marks, legend_texts, lines, marks, prefill_of, texts, words
from figure_data import draw, write
from scripts import printed
from searchlens import catalogue
from searchlens.analysis.claims import percent
from searchlens.reporting.figures import style
from searchlens.reporting.figures.context import Labels, PairContext
from searchlens.search import kinds
from searchlens.search.policy import from_spec

AIME6 = ("minp0.1_t0.9", "topp0.9_t0.7", "topp0.9_t0.9", "topk20_t0.7", "topk20_t0.9", figure_data.DEFAULT)
NAMES = tuple(catalogue.declared("figure", stage="pair"))
ALL = list(catalogue.figure_files(catalogue.declared("figure", stage="pair")).values())
pytestmark = pytest.mark.filterwarnings("error")


SEARCHED = replace(LABELS, policies=figure_data.SEARCHES, parameters=1e6)


def inputs_of(cell: figure_data.Cell) -> PairContext:
    return PairContext(labels=LABELS, prefill=prefill_of(cell), **vars(cell))


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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.long
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
    figures = {declaration.module for declaration in catalogue.declared("figure").values()}
    assert not figures & set(printed(code.format("style")).split())
    assert "matplotlib" not in printed(code.format("context")).split()


def test_every_declared_figure_is_written(inputs: PairContext, tmp_path: Path) -> None:
    """A declared figure that no driver draws would be in the report's list, and nowhere else."""
    paths = write("pair", inputs, tmp_path)
    stems = [f"{name}_{metric}" for name in NAMES for metric in "PQ"]
    wanted = {f"{stem}.{suffix}" for stem in stems for suffix in catalogue.FIGURE_FORMATS}
    assert {path.name for path in paths} == {path.name for path in tmp_path.iterdir()} == wanted


@pytest.mark.parametrize("pool", ["inputs", "aime", "searched"])
@pytest.mark.parametrize(("name", "metric"), ALL)
def test_print_is_legible(name: str, metric: str, pool: str, request: pytest.FixtureRequest) -> None:
    """No text below 7 pt, none cut off at the edge of the page, no legend over a panel, the note clear of the title.

    Nor with six policies, some of them alone in their families, or with searches by name in longer legends. And every
    panel has marks: given a frame that it does not know, a plotting library may draw nothing and raise nothing.
    """
    labels = {"inputs": LABELS, "aime": replace(LABELS, questions=60), "searched": SEARCHED}[pool]
    shown = replace(labels, metric=metric, source="sampled" if pool == "searched" else "recorded")
    figure, _ = drawn(name, request.getfixturevalue(pool), shown)
    check_layout(figure)
    assert figure.axes
    assert pool == "aime" or all(has_marks(axes) for axes in figure.axes)


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
    figure, table = drawn("same_policy_lines", inputs)
    (axes,) = figure.axes
    for (_,), rows in table.group_by("policy"):
        assert (rows["budget"].to_list(), (rows["rl_minus_base"] * 100).to_list()) in lines(axes)
    assert table["policy"].n_unique() == 24
    others = table.filter(pl.col("budget") == 16, pl.col("policy") != figure_data.DEFAULT).sort("rl_minus_base")
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
    figure, table = drawn("gap_map", inputs)
    axes = figure.axes[0]
    (mesh,) = [item for item in axes.collections if isinstance(item, QuadMesh)]
    values = np.ma.masked_invalid(np.asarray(mesh.get_array(), dtype=float)).compressed()
    assert np.allclose(sorted(values), sorted(table["rl_minus_base"] * 100))
    assert (mesh.norm.vmin, mesh.norm.vmax) == (
        -100 * table["rl_minus_base"].abs().max(),
        100 * table["rl_minus_base"].abs().max(),
    )  # type: ignore[operator]
    budgets = sorted(set(table["budget"]))
    shown = {text.get_position(): text for text in axes.texts}
    for row, budget, gap, marked in table.select("row", "budget", "rl_minus_base", "marked").iter_rows():
        text = shown[budgets.index(budget) + 0.5, row + 0.5]
        assert text.get_text() == percent(gap, sign="+")
        assert (text.get_fontweight() == "bold") == marked
    rl, base = (table.filter("marked", pl.col("rl_minus_base") * side > 0).height for side in (1, -1))
    said = f"RL leads at {rl} of {table.height} points, Base at {base}; {table.height - rl - base} are open"
    assert figure.get_suptitle().replace("\n", " ").startswith(said)
    red, _, _, _ = mesh.cmap(1.0)
    assert red > mesh.cmap(0.0)[0], "red where RL leads"
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


@pytest.mark.parametrize("gap", [-0.4, -0.05, 0.0, 0.03, 0.38])
def test_numbers_of_the_support_region_cross_nothing(gap: float, inputs: PairContext) -> None:
    """A gap's number crossed by an interval or another number cannot be read; it covers the zero line."""
    gaps = zip(GAP, (gap, gap - 0.05, gap + 0.05), strict=True)
    moved = inputs.support.with_columns(**{name: pl.lit(value) for name, value in gaps})
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
    assert f"stays within {100 * worst:.1f} pp of RL at all 5 budgets" in figure.get_suptitle().replace("\n", " ")  # type: ignore[operator]


@pytest.mark.parametrize("name", ["recovery", "matching_set"])
def test_no_near_match(name: str, inputs: PairContext) -> None:
    """Where no Base point is close to RL the figure says so instead of failing: it is a result."""
    empty = replace(inputs, near_match=inputs.near_match.clear(), path=inputs.path.clear())
    figure, _ = drawn(name, empty)
    check_layout(figure)
    said = words(figure)
    assert "no Base point is this close" in said or len(re.findall(r"RL at \d+: 0\b", said)) == 5
    title = figure.get_suptitle().replace("\n", " ")
    assert re.search("no(ne of 120)? Base points? (matches|is within 3 pp of) RL at 1, 2, 4, 8, 16", title)


@pytest.mark.parametrize("name", NAMES)
def test_models_that_share_nothing(name: str, inputs: PairContext) -> None:
    """Imported samples may leave no shared policy, and budgets that Base does not have: the figure says so."""
    gone = pl.lit(None, dtype=pl.Float64)
    support = inputs.support.with_columns(envelope=gone, low=gone, **dict.fromkeys(GAP, gone), inside=None)
    support = support.with_columns(pl.col("inside").cast(pl.Boolean))
    bare = replace(inputs, support=support, same_policy=inputs.same_policy.clear(), counts=inputs.counts.clear())
    check_layout(drawn(name, bare)[0])


def test_matching_set_counts_its_points(inputs: PairContext) -> None:
    figure, table = drawn("matching_set", inputs)
    (axes,) = figure.axes
    points, targets = table.filter(layer="point"), table.filter(layer="target")
    assert sorted(round(y, 6) for _, y in marks(axes)) == sorted((points["value"] * 100).round(6))
    matched = [len(text.split()) if text else 0 for text in points["targets"]]
    assert matched == points["matches"].to_list()
    said = [text.get_text() for text in axes.texts]
    for budget, matches in targets.select("budget", "matches").iter_rows():
        assert matches == inputs.near_match.filter(metric="P", target_budget=budget).height
        assert f"RL at {budget}: {matches} match" in said
    assert axes.get_ylim()[1] <= 105


def test_legends_mark_ar_and_search(searched: PairContext, inputs: PairContext) -> None:
    """Where both appear a reader must see which is which; where only AR does, nothing is said."""
    said = legend_texts(drawn("matching_set", searched, SEARCHED)[0])
    assert "search" in said and "AR top-p" in said
    plain = legend_texts(drawn("matching_set", inputs)[0])
    assert not any(text.startswith("AR") or text == "search" for text in plain)


def test_a_configured_name_is_not_taken_for_a_search(inputs: PairContext) -> None:
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
        estimator = "unbiased" if name == "support_region" else "first_k"
        points = searched.base.filter(policy=sampler, metric="P", estimator=estimator).sort("budget")
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
            assert (points["x"].to_list(), (points["value"] * 100).to_list()) in lines(axes)
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


def test_frontier_of_rl_is_its_default_and_its_edge(searched: PairContext) -> None:
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


def test_settings_of_the_machine_do_not_matter(inputs: PairContext, tmp_path: Path) -> None:
    """A user's own matplotlib settings must not leak into the figures."""

    def written(stem: str) -> bytes:
        figure, table = drawn("matching_set", inputs)
        return style.save(figure, tmp_path / stem, table)[0].read_bytes()

    plain = written("plain")
    with mpl.rc_context({"lines.linewidth": 9, "axes.grid": True, "font.size": 20}):
        assert written("other") == plain
        assert mpl.rcParams["lines.linewidth"] == 9
