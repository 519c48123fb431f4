"""Figures of a whole study: curves beside wrong_key, measures, and colours that stay apart for everybody."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import figure_data
from drawn import LABELS, VISION, check_layout, lines, seen, texts, words
from figure_data import draw, write
from searchlens import catalogue
from searchlens.reporting.figures import palette
from searchlens.reporting.figures.context import Curves, Source, StudyContext
from searchlens.reporting.figures.palette import controller_colours
from searchlens.search import kinds
from searchlens.search.policy import FAMILIES

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def cell() -> figure_data.Cell:
    return figure_data.cell()


@pytest.mark.long
def test_pass_curves_panels(cell: figure_data.Cell, tmp_path: Path) -> None:
    """Each panel shows its own curves and says whether its samples were drawn here; a missing cell leaves a gap."""
    here, there = LABELS, replace(LABELS, benchmark="Micro AIME", source="recorded")
    other = replace(there, pair="micro-4m")
    figure, _ = draw("pass_curves", StudyContext([Curves(each, cell.base, cell.rl) for each in (here, there, other)]))
    check_layout(figure)
    first, second, missing, last = figure.axes
    for points in (cell.base, cell.rl):
        rows = points.filter(policy=figure_data.DEFAULT, metric="P", estimator="unbiased").sort("budget")
        assert (rows["budget"].to_list(), (rows["value"] * 100).to_list()) in lines(first)
    assert len({axes.get_ylim() for axes in figure.axes}) == 1, "one scale"
    assert "sampled here" in first.get_title(loc="left")
    assert "recorded" in second.get_title(loc="left") and "recorded" in last.get_title(loc="left")
    assert not missing.axison
    written = write("study", StudyContext([Curves(here, cell.base, cell.rl)], figure_data.measures()), tmp_path)
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
        rows_of = points.filter(policy=figure_data.DEFAULT, metric="P", estimator="unbiased").sort("budget")
        curve = ([*rows_of["budget"], 64], pytest.approx([*(100 * rows_of["value"]), 100 * value]))
        assert curve in lines(figure.axes[0])
        assert numbers.filter(model=side)["budget"].to_list() == curve[0]


def test_pass_curves_stand_beside_wrong_key_where_it_solves_much(cell: figure_data.Cell) -> None:
    """Of Base it does, of RL it does not."""
    where = {
        "pair": LABELS.pair,
        "benchmark": LABELS.benchmark,
        "measure": "wrong_key",
        "tau": None,
        "lo": 0.0,
        "hi": 1.0,
    }
    wrong_key = [{**where, "side": "Base", "k": k, "value": 0.03 * k} for k in (1, 2, 4)]
    rows = [*wrong_key, *({**row, "side": "RL", "value": 0.01} for row in wrong_key)]
    measures = pl.DataFrame(rows, schema_overrides={"k": pl.UInt32})
    figure, numbers = draw("pass_curves", StudyContext([Curves(LABELS, cell.base, cell.rl)], {"measures": measures}))
    check_layout(figure)
    assert set(numbers["model"]) == {"Base", "RL", "Base greedy", "Base wrong key"}
    assert lines(figure.axes[0], "Base wrong key") == [([1, 2, 4], pytest.approx([3, 6, 12]))]
    assert "gold of another question" in words(figure)


@pytest.mark.parametrize("warning", ["", "RL: 0% of 8 samples have an answer"])
@pytest.mark.long
def test_measures_of_a_study(warning: str, cell: figure_data.Cell) -> None:
    """Lines are the numbers of the CSV; a pair that is not interpretable has words in their place."""
    frames = figure_data.measures()
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
@pytest.mark.long
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


HANDED = {"rl_right": (0.5, 0.7), "base_right": (0.4, 0.7), "rl_wrong": (0.1, 0.05)}


def test_handover(cell: figure_data.Cell) -> None:
    """A line per kind of beginning, of questions with every kind, and a level for Base alone."""
    place = {"pair": LABELS.pair, "benchmark": LABELS.benchmark, "lo": 0.0, "hi": 1.0, "questions": 13, "texts": 20}
    alone = {**place, "among": "common", "kind": "alone", "unit": None, "at": None, "value": 0.125}
    cuts = [("fraction", 0.125), ("fraction", 0.5), ("tokens", 8.0)]
    rows = [
        {
            **place,
            "among": among,
            "kind": kind,
            "unit": unit,
            "at": at,
            "value": values[unit == "fraction" and at > 0.2],
        }
        for among in ("common", "all")
        for kind, values in HANDED.items()
        for unit, at in cuts
        if among == "common" or unit == "tokens"
    ]
    frames = {"handover": pl.DataFrame([alone, *rows])}
    figure, numbers = draw("handover", StudyContext([Curves(LABELS, cell.base, cell.rl)], frames))
    check_layout(figure)
    assert numbers["at"].drop_nulls().unique().sort().to_list() == [0.125, 0.5]
    shown = {line.get_gid(): list(line.get_ydata()) for line in figure.axes[0].lines}
    assert shown == {
        **{kind: [100 * value for value in values] for kind, values in HANDED.items()},
        "alone": [12.5] * 2,
    }
    said = "With the first 12.5% of a text, Base ends right in 50% after RL's right texts, 40% after its own, 12% alone"
    assert said in " ".join(figure.get_suptitle().split())
    curves = [Curves(LABELS, cell.base, cell.rl)]
    without_own = pl.DataFrame([alone, *(row for row in rows if row["kind"] != "base_right")])
    figure, _ = draw("handover", StudyContext(curves, {"handover": without_own}))
    assert "50% after RL's right texts, 12% alone" in " ".join(figure.get_suptitle().split())
    broken = [Curves(replace(LABELS, warning="no answers"), cell.base, cell.rl)]
    figure, _ = draw("handover", StudyContext(broken, {"handover": without_own}))
    assert "%" not in figure.get_suptitle().split("\n")[0], "no number of a cell that is not interpretable"
    by_tokens = pl.DataFrame([alone], schema_overrides={"at": pl.Float64, "unit": pl.String})
    select = catalogue.definition(catalogue.declared("figure")["handover"])
    assert select(StudyContext(curves, {"handover": by_tokens})).is_empty()
