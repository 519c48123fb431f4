"""Tables of the readings that use every sample."""

from __future__ import annotations

import polars as pl

from searchlens.catalogue import table
from searchlens.tables import format as fmt
from searchlens.tables.format import Row
from searchlens.tables.study import StudyContext
from searchlens.tables.table import Part, Table

BEST = "best"
READOUT_NOTE = "Order-free: every curve is the exact mean over all choices of k samples of the pool."


@table("budget_equivalents", stage="study")
def budget_equivalents(context: StudyContext) -> Table:
    """How many samples of Base equal b samples of RL, under RL's default policy and under the best of Base."""
    data = context.readings["equivalents"]
    shown = data.filter(pl.col("policy").is_in([context.default_policy, BEST]))
    lines = []
    for names, rows in shown.group_by("pair", "benchmark", "policy", maintain_order=True):
        line = dict(zip(["pair", "benchmark", "policy"], map(str, names), strict=True))
        ordered = rows.sort("budget").rows(named=True)
        lines.append(line | {str(row["budget"]): _equivalent(row) for row in ordered})
    keys = [(line["pair"], line["benchmark"]) for line in lines]
    notes = [
        "N*: samples of Base that solve as many questions as b samples of RL; a column per b. Below 1: one sample of"
        " Base solves more; above n: RL solves at least as much as Base with its whole pool of n.",
        "Best: at each N the policy of Base that solves most, chosen on the same questions, which makes its N* too"
        f" small. {READOUT_NOTE}",
        "Brackets: percentile bootstrap over questions at the configured level, pointwise; ≤ or ≥ where an end lies"
        " outside of what the pool can show. The CSV also has simultaneous bands, local exponents, ratios of tokens.",
    ]
    return Table(data, [Part(fmt.text_frame(lines, missing=""), rule_before=fmt.changes(keys))], notes)


def _equivalent(row: Row) -> str:
    """N* with its interval, such as ``3.5 [2.9, 4.2]``."""
    if row["state"] == "below":
        return "below 1"
    low = ("≤" if row["lo_open"] else "") + f"{row['lo']:.1f}"
    if row["state"] == "above":
        return f"above {row['pool']} [{low}, ...]"
    high = ("≥" if row["hi_open"] else "") + f"{row['hi']:.1f}"
    return f"{row['n']:.1f} [{low}, {high}]"


@table("exponents", stage="study")
def exponents(context: StudyContext) -> Table:
    """Which exponents of N = alpha b^beta the samples allow, of each pair and of all pairs together."""
    data = context.readings["exponents"]
    pairs = [
        {
            "benchmark": row["benchmark"],
            "pair": row["pair"],
            "policy": row["policy"],
            "set of β": _set(row),
            "p": f"{row['p']:.3f}",
            "misfit": f"{100 * row['misfit']:.2f}",
            "at": f"{row['best_policy']}, α = {2 ** row['log2_alpha']:.2f}, β = {row['beta']:.2f}",
            "β, least error": f"{row['beta_l1']:.2f} [{row['beta_l1_lo']:.2f}, {row['beta_l1_hi']:.2f}]",
        }
        for row in data.sort("benchmark", "policy", maintain_order=True).rows(named=True)
    ]
    notes = [
        "Set: every β for which some α, and under `any` some policy of Base, is not rejected by the Anderson-Rubin test"
        f" at the configured level; N is continuous, without rounding. {READOUT_NOTE}",
        "Empty: no power law fits at this level, whatever β. Misfit: how far the best law is off, mean over b in"
        " percentage points. A set as wide as the grid, 0 to 1.6, says that β is not identified.",
        "p: largest p-value of any law, found at the policy, α and β beside it. Least error: of the mean over b, with"
        " percentiles over draws of questions that choose policy, α and β again.",
    ]
    rules = fmt.changes([line["benchmark"] for line in pairs])
    return Table(data, [Part(fmt.text_frame(pairs, missing=""), rule_before=rules)], notes)


@table("joint_exponents", stage="study")
def joint_exponents(context: StudyContext) -> Table:
    """Which exponents all pairs of a benchmark may have in common, and all but one."""
    data = context.readings["joint_exponents"]
    lines = [
        {
            "benchmark": row["benchmark"],
            "policy": row["policy"],
            "pairs": str(row["pairs"]),
            "left out": row["left_out"] or "",
            "common β": "empty" if row["empty"] else f"{row['beta_lo']:.2f} to {row['beta_hi']:.2f}",
        }
        for row in data.rows(named=True)
    ]
    notes = [
        "Common β: rejected by no pair at its share of the level (Bonferroni), which holds although pairs share"
        " questions and some share a Base. Empty: there is no such exponent. Single pairs: table `exponents`.",
    ]
    keys = [(line["benchmark"], line["policy"]) for line in lines]
    return Table(data, [Part(fmt.text_frame(lines, missing=""), rule_before=fmt.changes(keys))], notes)


def _set(row: Row) -> str:
    if not row["testable"]:
        return "not testable"
    return "empty" if row["empty"] else f"{row['beta_lo']:.2f} to {row['beta_hi']:.2f}"
