"""Figures of the transfer analysis: drawn is what the frames say, what is missing is said, and print stays legible."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

import small_cohort
from drawn import VISION, check_layout, has_marks, lines, marks, seen, texts, words
from figure_data import draw, write
from planted_landscapes import budget_path
from searchlens import catalogue
from searchlens.analysis.claims import number
from searchlens.boptr.cohort import Benchmark, Cohort, CohortPlan, DenseLandscape, Model
from searchlens.boptr.frontier import LAMBDAS, TAUS
from searchlens.boptr.offsets import SHUFFLES
from searchlens.boptr.rule import REASONS
from searchlens.boptr.study import study as analysis
from searchlens.config.boptr import BoptrOptions
from searchlens.reporting.boptr import context as shared
from searchlens.reporting.boptr import frontier, identification, vertical
from searchlens.reporting.boptr.context import BoptrContext
from searchlens.reporting.figures import style

DEFAULT, SEARCH = "topp0.95_t1.0", "mcmc_b4"
POLICIES = ("temp_0.3", "temp_1.0", "topk20_t0.9", "minp0.05_t0.7", DEFAULT)
BUDGETS = (1, 2, 4, 8, 16)
QUESTIONS = 40
OPTIONS = BoptrOptions(draws=100, permutations=4, reselect=False)
BENCHMARKS = {
    "math": Benchmark(regime="math", title="Micro math"),
    "aime": Benchmark(regime="floor", title="Micro AIME"),
    "gpqa": Benchmark(regime="nonmath", title="Micro GPQA"),
}
TRAIN = Benchmark(regime="math", role="rltrain")
NAMES = tuple(catalogue.declared("figure", stage="boptr"))
OPTIONAL = ("crossing", "parameters", "v4_null")
pytestmark = pytest.mark.filterwarnings("error")


def dense_landscape(names: tuple[str, ...], ability: float, seed: int) -> DenseLandscape:
    """Samples of every policy on questions of all difficulties; hotter policies, later in the list, vary more."""
    rng = np.random.default_rng(seed)
    difficulty = np.linspace(-2.5, 2.5, QUESTIONS)
    P = {}
    for i, name in enumerate(names):
        chance = 1 / (1 + np.exp(-(ability - difficulty) * (3 - 0.4 * i)))
        solved = rng.random((BUDGETS[-1], QUESTIONS)) < chance
        P[name] = [solved[:n].any(axis=0) for n in BUDGETS]
    return small_cohort.dense_landscape(P, budgets=BUDGETS)


def study(models: dict[str, Model], benchmarks: dict[str, Benchmark], missing: tuple[str, str] | None = None) -> Cohort:
    plan = CohortPlan("one", "math", models, benchmarks, DEFAULT, BUDGETS)
    landscapes = {}
    for i, (model, benchmark) in enumerate(itertools.product(models, benchmarks)):
        names = (*POLICIES, SEARCH) if model == "one" else POLICIES
        ability = {"math": 0.3, "aime": -2.6, "gpqa": -0.5, "train": 0.5}[benchmark] + 0.2 * (i % 3)
        if (model, benchmark) != missing:
            landscapes[models[model].base, benchmark] = dense_landscape(names, ability, 2 * i)
            if benchmarks[benchmark].role == "fitted":
                landscapes[str(models[model].rl), benchmark] = dense_landscape((DEFAULT,), ability + 0.4, 2 * i + 1)
    return Cohort(plan, landscapes)


def pair(name: str, group: str = "upper") -> Model:
    return Model(base=f"{name}-base", rl=f"{name}-rl", group=group, parameters=float(len(name)))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def several() -> BoptrContext:
    """Four fitted models, the last without GPQA, and a new one."""
    models = {
        "one": pair("one"),
        "three": pair("three"),
        "four": pair("four"),
        "seven": pair("seven", "lower"),
        "nw": pair("nw", "new"),
    }
    cohort = study(models, {**BENCHMARKS, "train": TRAIN}, missing=("seven", "gpqa"))
    return BoptrContext(analysis(cohort, OPTIONS), cohort.plan, OPTIONS)


@pytest.fixture(scope="module")
def single() -> BoptrContext:
    """One pair, sampled on its benchmarks only."""
    cohort = study({"one": pair("one")}, BENCHMARKS)
    return BoptrContext(analysis(cohort, OPTIONS), cohort.plan, OPTIONS)


@pytest.fixture(scope="module")
def gaps() -> BoptrContext:
    """An anchor without RL on GPQA, and a model of which only Base is known."""
    cohort = study({"one": pair("one"), "bare": Model(base="bare-base")}, BENCHMARKS)
    landscapes = {key: value for key, value in cohort.landscapes.items() if key != ("one-rl", "gpqa")}
    return BoptrContext(analysis(Cohort(cohort.plan, landscapes), OPTIONS), cohort.plan, OPTIONS)


@pytest.fixture(params=["several", "single"])
def case(request: pytest.FixtureRequest) -> BoptrContext:
    context: BoptrContext = request.getfixturevalue(request.param)
    return context


def out_of_view(figure: Figure) -> list[Text]:
    """Labels of ticks beyond the ends of their axis, which exist but are not drawn."""
    labels = []
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        labels += [tick.label1 for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]
    return labels


def means(frames: Mapping[str, pl.DataFrame], scope: str, column: str, pool: str) -> pl.DataFrame:
    chosen = {"scope": scope, "column": column, "pool": pool, "exponents": "paper", "mu": "cohort"}
    return frames["means"].filter(**chosen)


# ---- every figure


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.long
def test_files_are_reproducible_and_csv_reads_back(name: str, several: BoptrContext, tmp_path: Path) -> None:
    """A rerun gives the same bytes in all four formats, so nothing downstream changes; the CSV loses no digit."""
    figure, table = draw(name, several)
    first = style.save(figure, tmp_path / "a" / name, table)
    again = style.save(draw(name, several)[0], tmp_path / "b" / name, table)
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.suffix
    assert pl.read_csv(first[3], schema=table.schema).equals(table, null_equal=True)


def test_every_declared_figure_is_written(several: BoptrContext, single: BoptrContext, tmp_path: Path) -> None:
    """One that no driver draws would be in the report alone; one that shows nothing is not written."""
    for name, context in (("several", several), ("single", single)):
        paths = write("boptr", context, tmp_path / name)
        wanted = {f"{figure}.{suffix}" for figure in {*NAMES} - {*OPTIONAL} for suffix in catalogue.FIGURE_FORMATS}
        folders = {path for path in (tmp_path / name).iterdir() if path.is_dir()}
        assert {path.name for path in folders} == {*OPTIONAL}
        assert {path.name for path in paths if path.parent not in folders} == wanted
        for folder in folders:
            kept = {f"{folder.name}.{suffix}" for suffix in catalogue.FIGURE_FORMATS}
            drawn = {path.name for path in folder.iterdir()}
            assert drawn in (kept, set())
            assert drawn or name == "single" or folder.name == "crossing"
    assert not any((tmp_path / "single/parameters").iterdir()) and not any((tmp_path / "single/v4_null").iterdir())


@pytest.mark.long
def test_a_figure_that_has_nothing_to_draw_takes_its_files_of_another_run_away(
    several: BoptrContext, single: BoptrContext, tmp_path: Path
) -> None:
    """An old picture beside new tables would be taken for theirs."""
    write("boptr", several, tmp_path)
    assert (tmp_path / "v4_null/v4_null.svg").exists()
    write("boptr", single, tmp_path)
    assert not (tmp_path / "v4_null/v4_null.svg").exists()


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_has_marks(name: str, several: BoptrContext) -> None:
    """Given a frame that it does not know, a plotting library may draw nothing and raise nothing."""
    figure, _ = draw(name, wide(several))
    assert all(has_marks(axes) for axes in figure.axes if axes.axison)


def wide(context: BoptrContext) -> BoptrContext:
    """The same with an interval of k* that has a width, so that there is something to draw."""
    crossing = context.frames["crossing"].with_columns(
        crossing=pl.lit(2, pl.UInt32), lo=pl.lit(1, pl.UInt32), hi=pl.lit(4, pl.UInt32)
    )
    return replace(context, frames={**context.frames, "crossing": crossing})


@pytest.mark.parametrize("cohort", ["several", "single", "gaps"])
@pytest.mark.parametrize("name", NAMES)
def test_print_is_legible(name: str, cohort: str, request: pytest.FixtureRequest) -> None:
    """No text below 7 pt, none cut off at the edge, no legend over a panel, and no text over another."""
    figure, _ = draw(name, wide(request.getfixturevalue(cohort)))
    if figure is None:
        assert name in OPTIONAL
        return
    check_layout(figure)
    upright = [
        text for text in texts(figure) if text.get_rotation() != 45 and text not in out_of_view(figure)
    ]  # boxes around slanted ones overlap anyway
    placed = [(text.get_text(), text.get_window_extent().padded(-1)) for text in upright]
    assert not [(a, b) for (a, one), (b, other) in itertools.combinations(placed, 2) if one.overlaps(other)]


@pytest.mark.parametrize("name", NAMES)
def test_samples_from_elsewhere_are_said(name: str, several: BoptrContext) -> None:
    context = wide(several)
    figure, _ = draw(name, replace(context, plan=replace(context.plan, source="recorded")))
    check_layout(figure)
    assert "from recorded samples" in words(figure)
    assert "recorded" not in words(draw(name, context)[0])


def test_only_benchmarks_that_were_recorded_are_said_to_be(several: BoptrContext) -> None:
    """With two of four benchmarks sampled here, "from recorded samples" over all of them would be wrong."""
    plan = replace(several.plan, sources={"gpqa": "recorded"})
    assert "Micro GPQA from recorded samples" in words(draw("vertical", replace(several, plan=plan))[0])
    assert "recorded" not in words(draw("parameters", replace(several, plan=plan))[0])
    assert plan.said_source(["math", "aime"]) == ""
    assert plan.said_source(["gpqa"]) == "from recorded samples"


def broken(context: BoptrContext, *cells: tuple[str, str]) -> BoptrContext:
    """The same analysis, in which some cells are not interpretable."""
    flags = context.frames["protocol_flags"]
    rows = [{"model": m, "benchmark": b, "flag": "health", "severity": "attention", "detail": "?"} for m, b in cells]
    kept = flags.filter(pl.col("flag") != "health")
    named = pl.concat([kept, pl.DataFrame(rows, flags.schema)])
    return replace(context, frames={**context.frames, "protocol_flags": named})


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("horizontal", "one/Micro math, one/Micro AIME"),
        ("vertical", "one/Micro math, one/Micro AIME, three/Micro GPQA"),
        ("frontier", "one/Micro math, one/Micro AIME, three/Micro GPQA"),
        ("crossing", "one/Micro AIME"),
        ("beta_robustness", "one/Micro math, one/Micro AIME"),
        ("parameters", "one/Micro math"),
        ("v4_null", "one/Micro math"),
    ],
)
def test_cells_that_are_not_interpretable_are_named_in_the_figures_that_show_them(
    name: str, named: str, several: BoptrContext
) -> None:
    """Nobody reads errors of a model that gave no answers without being told; a new model is in few figures."""
    context = wide(several)
    figure, _ = draw(name, broken(context, ("one", "math"), ("one", "aime"), ("three", "gpqa"), ("nw", "gpqa")))
    check_layout(figure)
    assert f"Not interpretable, but in these numbers: {named} (table health)" in words(figure)
    assert "interpretable" not in words(draw(name, context)[0])


def test_no_mark_of_an_exponent_lies_on_the_name_of_a_benchmark(several: BoptrContext) -> None:
    """Those of an exponent of 0 are where the names begin."""
    beta = {"regime_betas": several.frames["regime_betas"].with_columns(assigned=pl.lit(0.0), own=pl.lit(0.0))}
    figure, _ = draw("beta_robustness", replace(several, frames={**several.frames, **beta}))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    names = [text.get_window_extent() for text in axes.texts if text.get_weight() == "bold"]
    half = 0.5 * 5 * figure.dpi / 72
    ends = [line for line in axes.lines if line.get_gid() in ("assigned", "own")]
    assert len(ends) == 2 * len(names)
    for line in ends:
        x, y = axes.transData.transform(np.asarray(line.get_xydata())[line.get_markevery()[0]])
        assert not any(name.overlaps(Bbox([[x - half, y - half], [x + half, y + half]])) for name in names)


def test_many_cells_that_are_not_interpretable_are_counted(several: BoptrContext) -> None:
    cells = [(model, benchmark) for model in ("one", "three", "four") for benchmark in BENCHMARKS]
    figure, _ = draw("vertical", broken(several, *cells))
    check_layout(figure)
    assert "three/Micro GPQA, 3 more (table health)" in words(figure)


MISSING = {
    "horizontal": ("no_rltrain", "no_other_models"),
    "vertical": ("no_rltrain",),
    "frontier": ("no_rltrain",),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_a_single_pair_does_not_have_is_named(name: str, single: BoptrContext) -> None:
    """What needs other models or more samples is named once, with its reason, below what is drawn."""
    said = words(draw(name, single)[0])
    assert all(REASONS[code] in said for code in MISSING[name])


def test_gaps_are_named(gaps: BoptrContext) -> None:
    """No fit on a benchmark without RL, no scale for a model without a pair."""
    frames = gaps.frames
    beta = words(draw("beta_robustness", gaps)[0])
    assert beta.count(f"{shared.DASH} {REASONS['no_rl'][:20]}") == 3
    assert draw("parameters", gaps)[0] is None, "one scale is compared with nothing"
    assert frames["identified_scale"].filter(model="bare")["reason"].item() in REASONS
    assert words(draw("vertical", gaps)[0]).count(shared.DASH) >= 1


def test_a_scale_that_is_not_defined_is_named(several: BoptrContext) -> None:
    undefined = pl.col("model") == "seven"
    columns = [pl.when(~undefined).then(pl.col(name)).alias(name) for name in ("alpha", "alpha_lo", "alpha_hi", "path")]
    reason = pl.when(undefined).then(pl.lit("no_rl")).otherwise(pl.col("reason")).alias("reason")
    frame = several.frames["identified_scale"].with_columns(*columns, reason)
    figure, _ = draw("parameters", replace(several, frames={**several.frames, "identified_scale": frame}))
    check_layout(figure)
    assert f"seven: {REASONS['no_rl']}" in words(figure)
    assert len(marks(figure.axes[0])) == 4


def test_a_cohort_without_a_floor_benchmark_has_no_crossing(single: BoptrContext) -> None:
    empty = {name: single.frames[name].clear() for name in ("aime_large_budget", "crossing")}
    assert draw("crossing", replace(single, frames={**single.frames, **empty}))[0] is None


def test_a_crossing_without_width_is_not_drawn(single: BoptrContext) -> None:
    """One bar of all draws says less than the number in the table."""
    context = wide(single)
    sure = context.frames["crossing"].with_columns(lo=pl.col("crossing"), hi=pl.col("crossing"))
    assert draw("crossing", context)[0] is not None
    assert draw("crossing", replace(context, frames={**context.frames, "crossing": sure}))[0] is None


# ---- what is drawn is what the frames say


def test_beta_fits_ties_and_lines(case: BoptrContext) -> None:
    frames = case.frames
    rows = frames["regime_betas"].filter(pl.col("model") == "one", ~pl.col("a_priori"))
    assert rows.height == 9
    figure, _ = draw("beta_robustness", case)
    axes = figure.axes[0]
    assert [x for (x,), _ in lines(axes, "fit")] == rows["beta"].to_list()
    assert [x for x, _ in lines(axes, "interval")] == [list(ends) for ends in rows.select("lo", "hi").iter_rows()]
    for constraint, some in rows.group_by("constraint"):
        for kind in ("exact", "tied"):
            bars = [bar for bar in axes.patches if bar.get_gid() == f"{kind}-{constraint[0]}"]
            centres = [bar.get_x() + bar.get_width() / 2 for bar in bars]  # type: ignore[attr-defined]
            assert centres == pytest.approx([beta for betas in some[kind] for beta in betas])
    single_rows = rows.unique("benchmark", maintain_order=True)
    for name in ("assigned", "own"):
        assert [x[0] for x, _ in lines(axes, name)] == single_rows[name].to_list()


def test_horizontal_rows(case: BoptrContext) -> None:
    """Corrected error with the interval that belongs to it, of every defined row, in the panel of its pool."""
    frames = case.frames
    figure, _ = draw("horizontal", case)
    for axes, pool in zip(figure.axes, ("ar", "full"), strict=True):
        every = means(frames, "horizontal/one", "mean", pool)
        rows = every.drop_nulls("error")
        assert [label.get_text() for label in axes.get_yticklabels()] == rows["label"].to_list()
        heights = dict(zip(rows["rule"], axes.get_yticks(), strict=True))
        at = marks(axes)
        for row in rows.iter_rows(named=True):
            assert any(np.isclose(x, row["corrected"]) and y == heights[row["rule"]] for x, y in at)
            ends = [row["lo_corrected"], row["hi_corrected"]]
            assert [x for x, _ in lines(axes, f"{row['rule']}-interval")] == [ends]
            assert ends[0] <= row["corrected"] <= ends[1]
        assert len(at) == rows.height


def test_rows_of_fewer_cells_say_so(several: BoptrContext) -> None:
    cells = pl.when(pl.col("rule") == "H2").then(pl.lit(2, pl.UInt32)).otherwise(pl.col("cells")).alias("cells")
    means_of_fewer = several.frames["means"].with_columns(cells)
    figure, _ = draw("horizontal", replace(several, frames={**several.frames, "means": means_of_fewer}))
    assert words(figure).count("2 of 3 cells") == 1


def test_vertical_cells(several: BoptrContext) -> None:
    """The printed errors are the corrected ones of the frame, each over its interval; what is missing is hatched."""
    frames = several.frames
    figure, table = draw("vertical", several)
    models = ["one", "three", "four", "seven"]
    assert table["model"].unique(maintain_order=True).to_list() == models
    panels = [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]
    for axes, rule in zip(panels, vertical.RULES, strict=False):
        errors = frames["errors"].filter(rule=rule, pool="ar", exponents="paper", mu="cohort")
        row_of = {(row["model"], row["benchmark"]): row for row in errors.iter_rows(named=True)}
        shown = {text.get_position(): text.get_text() for text in axes.texts if text.get_gid() != "interval"}
        below = [text.get_text() for text in axes.texts if text.get_gid() == "interval"]
        for (x, benchmark), (y, model) in itertools.product(enumerate(BENCHMARKS), enumerate(models)):
            row = row_of[model, benchmark]
            if row["corrected"] is None:
                assert shown[x + 0.5, y + 0.5] == shared.DASH
                continue
            assert shown[x + 0.5, y + 0.5] == number(row["corrected"], 1)
            assert f"{row['lo_corrected']:.1f} to {row['hi_corrected']:.1f}" in below
        hatched = [patch for patch in axes.patches if patch.get_hatch()]
        of_models = errors.filter(pl.col("model").is_in(models), role="fitted")
        assert len(hatched) == of_models["error"].null_count()
        (mesh,) = [item for item in axes.collections if isinstance(item, QuadMesh)]
        values = np.ma.masked_invalid(np.asarray(mesh.get_array(), float)).compressed()
        assert np.allclose(sorted(values), sorted(of_models["corrected"].drop_nulls()))
    assert REASONS["no_base"] in words(figure)


def test_a_rule_that_is_another_one_is_not_drawn_again(single: BoptrContext) -> None:
    """With one model the path copied from the anchor is that of the cell itself."""
    figure, _ = draw("vertical", single)
    assert "V2 is V1 here, since there is one model." in words(figure)
    assert not any("V2" in axes.get_title(loc="center") for axes in figure.axes)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.6, 1.0])
def test_boundaries_are_where_a_path_changes(beta: float) -> None:
    """Against a scan of alpha: between neighbouring boundaries one path, across each another one."""
    edges = identification.boundaries(beta, 5)
    grid = 2 ** np.linspace(-4.999, 4.999, 4001)
    paths = [budget_path(alpha, beta, BUDGETS) for alpha in grid]
    changes = [(a, b) for a, b, one, other in zip(grid, grid[1:], paths, paths[1:], strict=False) if one != other]
    assert len(edges) == len(changes)
    assert all(low < edge <= high for edge, (low, high) in zip(edges, changes, strict=True))


def test_parameters_intervals(several: BoptrContext) -> None:
    """Scale and identified interval of every model, which end where some budget changes; path, policy and offset."""
    frames, plan = several.frames, several.plan
    rows = frames["identified_scale"]
    figure, _ = draw("parameters", several)
    axes = figure.axes[0]
    assert rows["model"].to_list() == list(plan.models)
    low, high = axes.get_xlim()
    drawn_ends = [x for x, _ in lines(axes, "identified")]
    assert drawn_ends == [[max(a, low), min(b, high)] for a, b in rows.select("alpha_lo", "alpha_hi").iter_rows()]
    for alpha, path, policy in rows.select("alpha", "path", "policy").iter_rows():
        assert any(np.isclose(x, alpha) for x, _ in marks(axes))
        assert path in words(figure) and policy in words(figure)
    edges = np.array([x[0] for x, _ in lines(axes, "boundary")])
    inside = [end for ends in drawn_ends for end in ends if low < end < high]
    assert all(np.isclose(edges, end).any() for end in inside)


def test_v4_null(several: BoptrContext) -> None:
    """On both scales: every shuffle is in the histogram, the line is the observed score, p is that of the frame."""
    frames = several.frames
    figure, _ = draw("v4_null", several)
    for axes, (scale, suffix) in zip(figure.axes, (("standardised", ""), ("raw", "_raw")), strict=True):
        best = frames["v4_summary"].filter(selection="all_models", scale=scale).row(0, named=True)
        scores = frames["v4_null"][f"score{suffix}"].to_numpy()
        bars = [bar for bar in axes.patches if bar.get_height()]  # type: ignore[attr-defined]
        assert sum(bar.get_height() for bar in bars) == len(scores) == SHUFFLES  # type: ignore[attr-defined]
        for bar in bars:
            inside = (scores > bar.get_x() - 1e-9) & (scores < bar.get_x() + bar.get_width() + 1e-9)  # type: ignore[attr-defined]
            assert bar.get_height() <= inside.sum()  # type: ignore[attr-defined]
        assert [x[0] for x, _ in lines(axes, "observed")] == [best["loo_pseudo_r2"]]
        assert f"p = {best['p']:.3f}" in axes.get_title(loc="left")
        (rug,) = [item for item in axes.collections if isinstance(item, LineCollection)]
        at = [float(segment[0][0]) for segment in rug.get_segments()]
        assert at == pytest.approx(frames["v4"][f"loo_pseudo_r2{suffix}"].drop_nulls().to_list())


def test_v4_null_is_not_drawn_where_no_feature_varies(several: BoptrContext) -> None:
    """Steps of one training share their Base: all scores are equal, and a histogram of them has no width."""
    alike = {"pearson_r": pl.lit(None, pl.Float64), "reason": pl.lit("constant")}
    same = [pl.lit(-0.5625).alias(f"score{suffix}") for suffix in ("", "_raw")]
    v4, null = several.frames["v4"].with_columns(**alike), several.frames["v4_null"].with_columns(same)
    context = replace(several, frames={**several.frames, "v4": v4, "v4_null": null})
    assert draw("v4_null", context)[0] is None


def test_frontier_rows_and_sweeps(several: BoptrContext) -> None:
    frames = several.frames
    rows = means(frames, "frontier", "matched macro", "ar")
    error = dict(rows.select("rule", "corrected").iter_rows())
    figure, table = draw("frontier", several)
    main, by_lambda, by_tau = figure.axes
    assert table.filter(layer="rule")["rule"].to_list() == list(frontier.RULES)
    assert list(frontier.RULES[:2]) == ["Z0-u", "Z0-N*"] and list(frontier.RULES[-2:]) == ["V3", "V1"]
    assert sorted(x for x, _ in marks(main)) == pytest.approx(sorted(error[rule] for rule in frontier.RULES))
    for name in ("Z1-u", "Z1-N*"):
        assert lines(by_lambda, f"lambda-{name}") == [
            (list(LAMBDAS), [error[f"{name} λ={value:g}"] for value in LAMBDAS])
        ]
    for name in ("Z0-N*", "Z1-N*"):
        assert lines(by_tau, f"tau-{name}") == [(list(TAUS), [error[f"{name} τ={value:g}"] for value in TAUS])]


def test_crossing_curves_and_shares(case: BoptrContext) -> None:
    context = wide(case)
    frames = context.frames
    figure, _ = draw("crossing", context)
    panels = zip(figure.axes[::2], figure.axes[1::2], ("ar", "full"), strict=True)
    for above, below, pool in panels:
        rows = frames["aime_large_budget"].filter(model="one", pool=pool)
        found = frames["crossing"].row(by_predicate=(pl.col("model") == "one") & (pl.col("pool") == pool), named=True)
        for name in ("envelope", "rl"):
            assert lines(above, name) == [(rows["b"].to_list(), (rows[name] * 100).to_list())]
        shares = [(x[0], y[1]) for x, y in lines(below, "share")]
        assert shares == list(rows.select("b", pl.col("crossing_share") * 100).iter_rows())
        assert [x[0] for x, _ in lines(above, "crossing")] == [k for k in [found["crossing"]] if k]


@pytest.mark.parametrize(("crossing", "tie", "says"), [(128, 64, "from k* = 128"), (None, 64, "behind at b = 256")])
def test_title_of_a_crossing_names_the_tie(single: BoptrContext, crossing: int | None, tie: int, says: str) -> None:
    """Headline and first tie stand in the title and fit the panel, with the widest numbers."""
    k, first = pl.lit(crossing, pl.UInt32), pl.lit(tie, pl.UInt32)
    frame = single.frames["crossing"].with_columns(crossing=k, tie=first, share=1.0, never=1.0)
    ends = {"lo": pl.lit(64, pl.UInt32), "hi": pl.lit(256, pl.UInt32)}
    doctored = frame.with_columns(largest=pl.lit(256, pl.UInt32), **ends)
    figure, _ = draw("crossing", replace(single, frames={**single.frames, "crossing": doctored}))
    check_layout(figure)
    assert says in words(figure) and f"tie at {tie}" in words(figure)


@pytest.mark.parametrize("vision", VISION)
def test_kinds_of_rows_stay_apart(vision: str) -> None:
    colours = [colour for colour, _, _ in shared.KINDS.values()]
    distances = [np.linalg.norm(seen(a, vision) - seen(b, vision)) for a, b in itertools.combinations(colours, 2)]
    assert min(distances) > 10
    assert len({marker for _, marker, _ in shared.KINDS.values()}) == len(shared.KINDS)
