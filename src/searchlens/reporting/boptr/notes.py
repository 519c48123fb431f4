"""Names and notes that several tables of BOPTR share."""

from __future__ import annotations

import polars as pl

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.rule import REASONS
from searchlens.claims import DASH, Row, interval
from searchlens.config.boptr import BoptrOptions
from searchlens.tables.format import Line, changes

POOLS = {"ar": "AR pool", "full": "full pool"}
READINGS = {"fixed_pi": "fixed π̂", "full_rule": "full rule"}
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


def cell_line(plan: CohortPlan, model: str, benchmark: str) -> Line:
    """The first columns of a line about a cell."""
    return {"model": model_name(plan, model), "benchmark": plan.title(benchmark)}


def model_changes(rows: pl.DataFrame) -> list[int]:
    """Among the cells of these rows, those that start a new model."""
    return changes(rows.unique(["model", "benchmark"], maintain_order=True)["model"].to_list())


def corrected(row: Row, sign: str = "") -> str:
    """A corrected error with its interval, such as ``0.90 [0.41, 1.40]``."""
    return interval(row["corrected"], row["lo_corrected"], row["hi_corrected"], sign=sign)


# ---- notes


def single_readouts(options: BoptrOptions) -> str:
    """What the intervals of single readouts are."""
    kind = "Wilson" if options.readout == "prefix" else "bootstrap over questions"
    return f"Brackets of a single readout: {kind}."


def brackets(options: BoptrOptions) -> str:
    """What the intervals are."""
    return (
        f"Brackets: {options.confidence:.0%} bootstrap over questions ({options.draws} draws shared by all rows, both"
        " sides of a question together), the path of the row held fixed; where no question differs, what 0 differences"
        " in so many questions leave open. The models are given; another set of models is another study."
    )


def reasons(*frames: pl.DataFrame) -> list[str]:
    """One note that explains every code in the columns ``reason``; none without a code."""
    codes = dict.fromkeys(
        code for frame in frames if "reason" in frame.columns for code in frame["reason"].drop_nulls().to_list()
    )
    if not codes:
        return []
    return [f"{DASH} not defined: " + "; ".join(f"{REASONS[code]} ({code})" for code in codes) + "."]


def single_pair(plan: CohortPlan) -> list[str]:
    """A note for a cohort of one pair, in which the offset means nothing."""
    pairs = [name for name in plan.fitted_models if plan.models[name].rl]
    return ["With a single pair δ = 0 by definition and H5 = B0."] if len(pairs) == 1 else []
