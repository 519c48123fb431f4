"""Names and notes that several tables of the analysis share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import polars as pl

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.rule import REASONS
from searchlens.claims import DASH, Row, interval, number
from searchlens.config.boptr import BoptrOptions
from searchlens.tables import format as fmt

POOLS = {"ar": "AR pool", "full": "full pool"}
READINGS = {"fixed_pi": "fixed π̂", "full_rule": "full rule"}

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
VERDICTS = (
    "Over questions: by the corrected interval, these models taken as given. Over models: if models"
    " and questions could both have been others (crossed effects), p after Holm's correction over all comparisons of"
    " the scope; not shown is no sign that the rows are alike. One model says nothing of others."
)
PATHS_OF_ALPHA = "Brackets after α: the interval of α that gives the same path N̂(b)."

RIVALS = ("mean RL", "Base+gain", "low temp")
_BASELINES = ("H1", "H2", *RIVALS)
_ORACLES = ("H6", "H7", "V1")


# ---- names


def model_name(plan: CohortPlan, model: str) -> str:
    """Name of a model; the anchor is marked."""
    return f"{model} (anchor)" if model == plan.anchor_model else model


def heading(plan: CohortPlan) -> Callable[[str], str]:
    """Function that prints the name of a column, which is a benchmark, a model or a mean."""

    def name(column: str) -> str:
        if column in plan.benchmarks:
            return plan.title(column)
        return model_name(plan, column) if column in plan.models else column

    return name


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


# ---- contrasts


def verdict_text(contrast: Row) -> str:
    """Both verdicts of a paired difference, over questions and over models, by the names of its rows."""
    if contrast["cells"] and not contrast["differing"]:
        return "identical predictions"
    if contrast["verdict"] is None:
        return fmt.word(None)
    return f"over questions: {_lower(contrast, 'verdict')}; {over_models(contrast)}"


def over_models(contrast: Row) -> str:
    """The verdict over models, such as ``over models: not shown (p = 0.31, models: 7)``."""
    if contrast["verdict_models"] is None:
        return "one model"
    p = "p unknown" if contrast["p_both_holm"] is None else f"p = {number(contrast['p_both_holm'], 3)}"
    return f"over models: {_lower(contrast, 'verdict_models')} ({p}, models: {contrast['models']})"


def _lower(contrast: Row, verdict: str) -> str:
    row = {"first lower": contrast["first"], "second lower": contrast["second"]}.get(contrast[verdict])
    return f"{row} lower" if row else fmt.word(contrast[verdict])


def contrast_notes(contrasts: pl.DataFrame, scope: str, rule: str, rows: Iterable[str]) -> list[str]:
    """The paired differences between the rows of a table and its rule, and which rows have a lower error than the rule.

    Parameters
    ----------
    contrasts : DataFrame
        The frame of that name.
    rule : str
        Key of the row that is one side of each contrast.
    rows : iterable of str
        Keys of the rows of the table.
    """
    shown = pl.col("first").is_in([rule, *rows]) & pl.col("second").is_in([rule, *rows])
    defined = contrasts.filter(pl.col("scope") == scope, shown, pl.col("difference").is_not_null())
    paper, own = (list(defined.filter(exponents=which).iter_rows(named=True)) for which in ("paper", "own"))
    if not paper:
        return []
    differences = f"Paired differences on common cells: {'; '.join(map(_contrast_text, paper))}. {VERDICTS}"
    with_own = [f"With the cohort's own exponents: {note}" for note in _lower_than(rule, own)]
    return [differences, *_lower_than(rule, paper), *with_own]


def _contrast_text(contrast: Row) -> str:
    """Such as ``H5 − H1 = −0.04, corrected −0.02 [−2.69, +2.50] (cells: 4, questions: 958; over questions: ...)``."""
    plain = number(contrast["difference"], sign="+")
    names = f"{contrast['first']} − {contrast['second']}"
    rests_on = f"cells: {contrast['cells']}, questions: {contrast['questions']}"
    return f"{names} = {plain}, corrected {corrected(contrast, '+')} ({rests_on}; {verdict_text(contrast)})"


def _lower_than(rule: str, contrasts: Iterable[Row]) -> list[str]:
    """A sentence for each row, oracles excepted, whose error is lower than the rule's."""
    notes = []
    for contrast in contrasts:
        rule_first = contrast["first"] == rule
        other = contrast["second"] if rule_first else contrast["first"]
        lower = contrast["corrected"] > 0 if rule_first else contrast["corrected"] < 0
        if lower and other not in _ORACLES:
            clear = contrast["verdict"] != "not distinguishable"
            finding = "has a lower error than" if clear else "has the lower point estimate, not distinguishable from"
            what = ", which does without the law," if other in _BASELINES else ""
            notes.append(f"{other}{what} {finding} {rule} over questions; {over_models(contrast)}.")
    return notes
