"""What the tables and figures of BOPTR are made from, and what they share: notes, means, rows of errors."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from searchlens.analysis.claims import DASH, ERRS_LEAST, Row, interval, say
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.protocol import broken_cells
from searchlens.boptr.rule import REASONS
from searchlens.config.boptr import REGIMES, BoptrOptions, Estimator
from searchlens.reporting.figures import palette, style
from searchlens.reporting.tables import table as fmt

ESTIMATORS: dict[Estimator, str] = {
    "unbiased": "Estimator unbiased: pass@n (P) and self-consistency (Q) are exact means over all subsets of n of a"
    " question's samples, whatever their order. A search without such a mean at some budget is left out.",
    "first_k": "Estimator first_k: pass@n (P) and self-consistency (Q) of the first n samples, as in the paper.",
}
MOST = 6
"""Cells that a title names."""


@dataclass(frozen=True)
class BoptrContext:
    """The frames of one analysis, with its plan and options.

    A number that is not defined is a dash in print and null in the CSV, whose column ``reason`` has a code for it; the
    notes explain every code that occurs.
    """

    frames: Mapping[str, pl.DataFrame]
    """The frames of ``searchlens.boptr.study.study`` by name (``searchlens.catalogue.boptr_frames``)."""
    plan: CohortPlan
    """Gives names, titles and their order, and says where samples come from."""
    options: BoptrOptions
    """Tables and figures name the estimator and the confidence level, notes the tolerances, too."""
    warnings: Sequence[str] = ()
    """What readers of every table must know, such as versions of a grader that are mixed."""

    @property
    def notes(self) -> Sequence[str]:
        """The estimator, the warnings, cells that are not interpretable, and where samples come from that this study
        did not draw.
        """
        rows = broken_cells(self.frames["protocol_flags"]).iter_rows()
        cells = [f"{model}/{benchmark} ({detail})" for model, benchmark, detail in rows]
        broken = (f"Not interpretable, but part of every mean here: {', '.join(cells)}.",) if cells else ()
        said = self.plan.said_source(self.plan.benchmarks)
        source = (f"{said[0].upper()}{said[1:]}.",) if said else ()
        return (ESTIMATORS[self.options.estimator], *self.warnings, *broken, *source)

    def new_figure(
        self, width: float, height: float, first: str, second: str, models: Sequence[str], benchmarks: Sequence[str]
    ) -> Figure:
        """An empty figure that says what it finds, then what it shows, with the estimator; sizes in inches.

        Cells of these models on these benchmarks that are not interpretable are named in further lines, for which the
        figure is higher. It also says where their samples come from, unless they were drawn in this study.
        """
        said = f", {self.plan.said_source(benchmarks)}".rstrip(", ")
        lines = [first, f"{second} ({self.options.estimator} estimates){said}", *self._broken(models, benchmarks)]
        return style.new_figure(width, height, "\n".join(lines), "sampled")

    def _broken(self, models: Sequence[str], benchmarks: Sequence[str]) -> list[str]:
        rows = broken_cells(self.frames["protocol_flags"]).filter(
            pl.col("model").is_in(models), pl.col("benchmark").is_in(benchmarks)
        )
        if rows.is_empty():
            return []
        named = [f"{model}/{self.plan.title(benchmark)}" for model, benchmark, _ in rows.head(MOST).iter_rows()]
        more = [f"{rows.height - MOST} more"] if rows.height > MOST else []
        return [f"Not interpretable, but in these numbers: {', '.join([*named, *more])} (table health)"]

    @property
    def cohort(self) -> str:
        """Number of the models that fit and the anchor's name, or the name of the only one."""
        models = self.plan.fitted_models
        return f"{len(models)} models, anchor: {self.plan.anchor_model}" if len(models) > 1 else f"{models[0]} alone"

    @property
    def interval(self) -> str:
        """For example ``95% interval``."""
        return f"{self.options.confidence:.0%} interval"

    @property
    def single_estimates(self) -> str:
        """A note: what the intervals of single estimates are."""
        kind = "Wilson" if self.options.estimator == "first_k" else "bootstrap over questions"
        return f"Brackets of a single estimate: {kind}."

    @property
    def brackets(self) -> str:
        """A note: what the intervals are."""
        return (
            f"Brackets: {self.options.confidence:.0%} bootstrap over questions ({self.options.draws} draws shared by"
            " all rows, both sides of a question together), the path of the row held fixed; where no question differs,"
            " what 0 differences in so many questions leave open. The models are given; another set of models is"
            " another study."
        )

    @property
    def single_pair(self) -> list[str]:
        """A note for a cohort of one pair, in which the offset means nothing."""
        pairs = [name for name in self.plan.fitted_models if self.plan.models[name].rl]
        return ["With a single pair δ = 0 by definition and H5 = B0."] if len(pairs) == 1 else []

    def table(
        self, data: pl.DataFrame, parts: Sequence[fmt.Part], notes: Sequence[str], *frames: pl.DataFrame
    ) -> fmt.Table:
        """A table whose last note explains every code in the columns ``reason`` of the frames."""
        return fmt.Table(data, parts or [fmt.part([])], [*notes, *reasons(*frames)])


POOLS = {"ar": "AR pool", "full": "full pool"}
VARIANTS = {"fixed_pi": "fixed π̂", "full_rule": "full rule"}
EXPONENTS = {"paper": "the paper's exponents", "own": "the cohort's own exponents"}
ERROR = (
    "Errors: mean over budgets b of |predicted − RL pass@b|, RL under its default policy, in percentage points (pp)."
)
_RAW = "The CSV has the raw one, too, with the paper's percentile interval (lo, hi), which may exclude it."
CORRECTED = (
    "Errors are corrected for two biases: an absolute value is too large near zero, and a path chosen on the questions"
    " that it is scored on seems too good. So an error may be below the raw one, above it, or slightly negative."
    f" {_RAW}"
)
CORRECTED_SIZE = (
    "Errors are corrected for the bias of absolute values, which are too large near zero, and may be slightly negative."
    f" {_RAW}"
)
PATHS_OF_ALPHA = "Brackets after α: the interval of α that gives the same path N̂(b)."


# ---- cells


def model_name(plan: CohortPlan, model: str) -> str:
    """Name of a model; the anchor is marked."""
    return f"{model} (anchor)" if model == plan.anchor_model else model


def heading(plan: CohortPlan, column: str) -> str:
    """Name of a column, which is a benchmark, a model or a mean."""
    if column in plan.benchmarks:
        return plan.title(column)
    return model_name(plan, column) if column in plan.models else column


def cell_line(plan: CohortPlan, model: str, benchmark: str) -> fmt.Line:
    """The first columns of a line about a cell."""
    return {"model": model_name(plan, model), "benchmark": plan.title(benchmark)}


def model_changes(rows: pl.DataFrame) -> list[int]:
    """Among the cells of these rows, those that start a new model."""
    return fmt.changes(rows.unique(["model", "benchmark"], maintain_order=True)["model"].to_list())


def corrected(row: Row, sign: str = "", digits: int = 2) -> str:
    """A corrected error with its interval, such as ``0.90 [0.41, 1.40]``."""
    return interval(row["corrected"], row["lo_corrected"], row["hi_corrected"], digits, sign)


# ---- notes


def reasons(*frames: pl.DataFrame) -> list[str]:
    """One note that explains every code in the columns ``reason``; none without a code."""
    codes = dict.fromkeys(
        code for frame in frames if "reason" in frame.columns for code in frame["reason"].drop_nulls().to_list()
    )
    if not codes:
        return []
    return [f"{DASH} not defined: " + "; ".join(f"{REASONS[code]} ({code})" for code in codes) + "."]


FULL_POOL = "full pool (expanded policies included); not comparable with the rows of the AR pool"
OVERALL = {name: name for name in ("macro", "micro", "matched macro", "matched micro")}
"""Columns over all fitted cells."""
OVERALL_NOTE = (
    "macro: mean of the models' means; micro: mean over cells; matched: over the cells that every row shares, rivals"
    " and base-only rows left out of that condition, and only these compare rows."
)
UNCHANGED = "With the cohort's own exponents every row is the same."
BY_REGIME = {name: name for name in (*REGIMES, "all cells")}
"""Columns over the fitted cells of each regime."""


@dataclass(frozen=True)
class Means:
    """Means of one scope. Rows of the full pool have a block of their own and are never mixed with others."""

    context: BoptrContext
    rows: pl.DataFrame
    """Rows of the frame ``means``."""
    columns: Mapping[str, str]
    """Value of the column ``column`` to its printed heading."""
    count: str = ""
    """The column whose number of cells is printed; a column that is not there prints none."""
    labels: Mapping[str, str] | None = None
    """Key of a row to its printed name, in place of the frame's column ``label``."""

    @property
    def paper(self) -> pl.DataFrame:
        """The AR pool under the paper's exponents: the first blocks."""
        return self.rows.filter(pool="ar", exponents="paper")

    def lines(self, rows: pl.DataFrame | None = None, columns: Mapping[str, str] | None = None) -> dict[str, fmt.Line]:
        """A line for each row by its key; of one pool and one choice of exponents, ``paper`` by default."""
        printed = {}
        rows, columns = self.paper if rows is None else rows, columns or self.columns
        for (key,), group in rows.group_by("rule", maintain_order=True):
            cells = {row["column"]: row for row in group.iter_rows(named=True)}
            first = next(iter(cells.values()))
            line = {"row": (self.labels or {}).get(str(key), first["label"])}
            line |= {title: corrected(cells[column]) if column in cells else DASH for column, title in columns.items()}
            if self.count in cells:
                line["cells"] = fmt.fraction(cells[self.count]["cells"], cells[self.count]["of"])
            printed[str(key)] = line | {"RL used": first["rl"]}
        return printed

    def table(
        self,
        data: pl.DataFrame,
        blocks: Sequence[fmt.Part],
        notes: Sequence[str],
        *more: pl.DataFrame,
        nulls: Sequence[fmt.Part] = (),
    ) -> fmt.Table:
        """A table of these means; ``more``: frames with further reasons, ``nulls``: blocks before the own exponents."""
        first = [f"{notes[0]} {ERROR}", self.context.brackets, CORRECTED]
        parts = [*blocks, *self.full_pool(), *nulls, *self.own_exponents()]
        return fmt.Table(data, parts, [*first, *notes[1:], *self.closing(*more)])

    def full_pool(self) -> list[fmt.Part]:
        """The block of the full pool, or nothing if no cell has one."""
        full = self.rows.filter(pool="full", exponents="paper")
        defined = full.filter(pl.col("error").is_not_null())["column"].to_list()
        shown = {column: title for column, title in self.columns.items() if column in defined}
        return [block(self.lines(full, shown), FULL_POOL)] if defined else []

    def own_exponents(self) -> list[fmt.Part]:
        """The rows of the AR pool that change under the cohort's own exponents, as a block; nothing if none does."""
        keys, own = ["rule", "column"], self.rows.filter(pool="ar", exponents="own")
        both = own.join(self.paper.select(*keys, paper="error"), on=keys, how="left")
        changed = both.filter(pl.col("column").is_in(list(self.columns)), pl.col("error") != pl.col("paper"))
        rows = own.filter(pl.col("rule").is_in(changed["rule"].unique().to_list()))
        return [block(self.lines(rows), "the cohort's own exponents: rows that differ")] if rows.height else []

    def fewer_cells(self) -> list[str]:
        """A note that lists the rows with fewer cells than the others in the column of the count."""
        defined = self.paper.filter(pl.col("column") == self.count, pl.col("cells") > 0)
        short = defined.filter(pl.col("cells") < pl.col("cells").max())
        counts = "; ".join(f"{row['label']} {row['cells']} of {row['of']}" for row in short.iter_rows(named=True))
        return [f"Rows with fewer cells: {counts}. They compare with others in the matched columns only."] * bool(
            counts
        )

    def closing(self, *more: pl.DataFrame) -> list[str]:
        """The last notes: what exponents and pools change, and why numbers are missing, those of ``more``, too."""
        unchanged = [] if self.own_exponents() else [UNCHANGED]
        return [*unchanged, *self.pool_note(), *self.context.single_pair, *reasons(self.rows, *more)]

    def pool_note(self) -> list[str]:
        """A note for a study without expanded pools."""
        expanded = self.rows.filter(pl.col("error").is_not_null(), pool="full").height
        return [] if expanded else ["No cell has an expanded pool: every row is of the AR pool."]


def block(line_by_key: Mapping[str, fmt.Line], title: str, rule_before: Collection[str] = ()) -> fmt.Part:
    """Lines as a block, with a horizontal rule above the lines of these keys."""
    places = [i for i, key in enumerate(line_by_key) if i and key in rule_before]
    return fmt.part(list(line_by_key.values()), title, places)


# ---- figures

POOL_TITLES = {"ar": "sampling policies only", "full": "with search policies"}
KINDS = {  # colour, marker, name: kinds of rows, in the order of legends
    "baseline": (palette.MUTED, "s", "baseline"),
    "copy": ("#E69F00", "^", "copy of the anchor's points"),
    "rule": (palette.BASE_COLOUR, "o", "rule"),
    "frontier": ("#332288", "D", "rule from a prior or one anchor"),
    "oracle": ("#228B5B", "P", "oracle: has seen the curve"),
    "rival": ("#C785C4", "X", "rival without a path"),
}
ERROR_VALUES = ("error", "corrected", "lo_corrected", "hi_corrected")
"""Columns of an error: raw, then without its two biases (``boptr.evaluate.Score``) with the interval of that."""
BESIDE: dict[str, Any] = {"textcoords": "offset points", "va": "center_baseline", "fontsize": 7}


def missing(codes: Iterable[str | None]) -> str:
    """One sentence per distinct reason; empty without one."""
    return "; ".join(REASONS[code] for code in dict.fromkeys(codes) if code)


def places(groups: Sequence[object], gap: float = 0.6) -> list[float]:
    """Heights of rows from the top, 0, 1, 2, ..., with a gap wherever the group changes."""
    heights: list[float] = []
    for i, group in enumerate(groups):
        step = 0.0 if i == 0 else 1.0 + (gap if group != groups[i - 1] else 0.0)
        heights.append((heights[-1] if heights else 0.0) + step)
    return heights


def defined(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that have an error."""
    return rows.drop_nulls("corrected")


def absent(rows: pl.DataFrame, letters: int) -> str:
    """A note on the rows without an error, by reason, in lines of that many letters; empty without one."""
    reasons = [
        f"{', '.join(some['rule'].unique(maintain_order=True))}: {REASONS[str(code)]}"
        for (code,), some in rows.filter(pl.col("corrected").is_null()).group_by("reason", maintain_order=True)
    ]
    return textwrap.fill(f"Not defined: {'; '.join(reasons)}.", letters) if reasons else ""


def legend(figure: Figure, handles: Sequence[Artist], note: str, columns: int) -> None:
    """The legend at the foot of a figure, below a note."""
    titled: dict[str, Any] = {"title": note, "title_fontsize": 7, "alignment": "left"} if note else {}
    made = figure.legend(handles=handles, loc="outside lower left", ncols=columns, **titled)
    made.get_title().set_color(palette.MUTED)


def least(rows: pl.DataFrame) -> str:
    """The row of the smallest corrected error, if intervals say so, as a finding; oracles have seen the answer.

    Only rows of the most cells are compared: others may err less because they are undefined where it is hard.
    """
    oracle = pl.col("kind") == "oracle"
    seen = rows.filter(oracle)["corrected"].to_list()  # with one model, copies are oracles by definition
    honest = defined(rows).filter(~oracle, ~pl.col("corrected").is_in(seen))
    found = honest.filter(pl.col("cells") == pl.col("cells").max()).sort("corrected").to_dicts()
    if not found:
        return say(ERRS_LEAST, {"rows": 0})
    ends = ("corrected", "lo_corrected", "hi_corrected")
    same = [row for row in found if all(row[end] == found[0][end] for end in ends)]  # with one model some rules are one
    found = [found[0], *(row for row in found if row not in same)]
    overlapping = [row for row in found[1:] if row["lo_corrected"] <= found[0]["hi_corrected"]]
    near = ", ".join(f"{row['label']} {corrected(row, digits=1)}" for row in overlapping[:1])
    others = f", here the same as {', '.join(row['rule'] for row in same[1:])}," if same[1:] else ""
    found[0] = {**found[0], "label": f"{found[0]['label']}{others}"}
    return say(ERRS_LEAST, {**found[0], "rows": len(found), "error": corrected(found[0], digits=1), "near": near})


def error_rows(axes: Axes, rows: pl.DataFrame, heights: Sequence[float]) -> None:
    """Corrected errors of ``defined`` rows as marks with their intervals, at these heights."""
    if rows.is_empty():
        style.say(axes, "no error is defined")
        return
    placed = rows.with_columns(y=pl.Series(heights, dtype=pl.Float64))
    colours = {kind: colour for kind, (colour, _, _) in KINDS.items()}
    for row in placed.iter_rows(named=True):
        ends, colour = [row["lo_corrected"], row["hi_corrected"]], colours[row["kind"]]
        axes.plot(ends, [row["y"]] * 2, color=colour, linewidth=1.2, zorder=2, gid=f"{row['rule']}-interval")
        if row["cells"] < rows["cells"].max():
            axes.annotate(
                f"{row['cells']} of {row['of']} cells", (ends[1], row["y"]), (6, 0), **BESIDE, color=palette.MUTED
            )
    markers = {kind: marker for kind, (_, marker, _) in KINDS.items()}
    scatter(axes, placed, "corrected", "kind", palette=colours, markers=markers, s=28, zorder=4)
    axes.set(xlabel="", ylabel="")
    axes.set_ylim(heights[-1] + 0.7, heights[0] - 0.7)
    axes.set_yticks(list(heights), rows["label"].to_list())
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=palette.REGION_COLOUR, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.axvline(0, color=palette.MUTED, linewidth=0.6, zorder=1)


def scatter(axes: Axes, rows: pl.DataFrame, x: str, kind: str, **look: Any) -> None:
    """Marks without edges at the columns ``x`` and ``y``, by kind."""
    frame = style.to_pandas(rows)
    sns.scatterplot(frame, x=x, y="y", hue=kind, style=kind, ax=axes, linewidth=0, legend=False, **look)


def error_axis(axes: Axes, rows: pl.DataFrame) -> None:
    """The axis of errors, long enough for every mark of these rows."""
    values = [value for name in ERROR_VALUES[1:] for value in rows[name].drop_nulls()]
    low, top = min([0.0, *values]), max([1.0, *values])
    axes.set_xlim(low - 0.04 * (top - low), top + 0.05 * (top - low))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("mean absolute error (percentage points)")


def undefined(code: str, letters: int) -> str:
    """A dash and the sentence of a reason's code, shortened to at most ``letters`` letters."""
    return textwrap.shorten(f"{DASH} {REASONS[code]}", letters, placeholder=" ...")


def kind_handles(kinds: Iterable[str], context: BoptrContext) -> list[Line2D]:
    """Legend entries of the kinds that occur, and of what is drawn of each."""
    present = set(kinds)
    handles = [
        style.key(name, color=colour, marker=marker, markersize=4.5, linewidth=1.2)
        for kind, (colour, marker, name) in KINDS.items()
        if kind in present
    ]
    label = f"error corrected for both biases, {context.interval}"
    return [*handles, style.key(label, color=palette.MUTED, marker="o", markersize=4, linewidth=1.2)]
