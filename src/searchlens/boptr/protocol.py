"""Protocol flags, the guard against comparing pools, and the paper's robustness checklist as checks.

``protocol_flags``: one row per cell and flag, whatever it finds: a flagged cell is reported, never dropped.

model, benchmark
    The cell.
flag
    ``truncation`` (share of samples that hit the length limit; the finish rate is its complement), ``extraction``
    (share with an answer that can be read), ``length`` (mean generated tokens per sample), all under the RL default
    policy; ``all_or_nothing`` (mean P over every point of a side is 0 or 1), ``constant_rl_curve`` (range of the RL
    curve over budgets is 0), ``constant_base_pool`` (no budget separates two policies of Base), ``few_questions``.
base, rl
    What was compared: rates, tokens, means and ranges of P as proportions, numbers of questions.
difference, lo, hi
    RL minus Base with its interval; null where the flag has none.
severity
    ``ok``, ``undecided`` or ``attention``; null where undefined.
reason
    Why it is undefined (a code of ``rule.REASONS``), else null.

``checklist``: one row per item: ``item`` (a to f, the order of the paper), ``claim`` (what is guarded), ``check``,
``status`` (``ok``, ``attention``, ``not applicable``), ``detail``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from searchlens.boptr.cohort import CohortPlan, DenseLandscape
from searchlens.boptr.evaluate import has_expanded_pool
from searchlens.boptr.rule import Reason, Rule
from searchlens.errors import InputError

FEW_QUESTIONS = 30
"""Below this a benchmark is too small for any of the decisions made on it."""
MAIN = "V3"
"""The row that stands for the rule where it is held against others; on the anchor it is H5."""
BASELINES = ("H1", "H2", "mean RL", "Base+gain", "low temp")
TRANSFER_KINDS = ("rule", "copy", "frontier")

FLAGS = {
    "model": pl.String(),
    "benchmark": pl.String(),
    "flag": pl.String(),
    "base": pl.Float64(),
    "rl": pl.Float64(),
    "difference": pl.Float64(),
    "lo": pl.Float64(),
    "hi": pl.Float64(),
    "severity": pl.String(),
    "reason": pl.String(),
}
CHECKLIST = {name: pl.String() for name in ("item", "claim", "check", "status", "detail")}


def study_cells(plan: CohortPlan) -> list[tuple[str, str]]:
    """Every cell that has a Base and an RL side by design, sampled or not."""
    return [(model, benchmark) for model in plan.models for benchmark in plan.with_role("fitted", "held_out")]


def rate_difference(
    first: tuple[float, float, float], second: tuple[float, float, float]
) -> tuple[float, float, float]:
    """First rate minus second with an interval from the two rates' own: square-and-add.

    Parameters
    ----------
    first, second : (value, lo, hi)
        Independent estimates; lo <= value <= hi.

    Returns
    -------
    (difference, lo, hi)
        With rates of no width, of no width. Wider than needed where the two rise and fall with the same questions.

    References
    ----------
    Newcombe (1998), Statistics in Medicine 17, 873-890, method 10; Zou and Donner (2008), Statistics in Medicine 27,
    1693-1702, for intervals of any kind.
    """
    (a, a_lo, a_hi), (b, b_lo, b_hi) = first, second
    difference = a - b
    return (
        difference,
        float(difference - np.hypot(a - a_lo, b_hi - b)),
        float(difference + np.hypot(a_hi - a, b - b_lo)),
    )


def rate(landscape: DenseLandscape, policy: str, metric: str) -> tuple[float, float, float] | None:
    """``valid`` or ``stopped`` rate of a policy as (value, lo, hi); None where it was not recorded."""
    rows: list[Any] = (
        landscape.rates.filter(policy=policy, metric=metric).select("value", "lo", "hi").drop_nulls().rows()
    )
    return rows[0] if rows else None


def require_same_pool(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """Refuse to compare two rows whose numbers come from different pools.

    Parameters
    ----------
    a, b : mapping
        Rows of a table of errors: ``tier``, ``model``, ``benchmark``, ``pool``.

    Raises
    ------
    InputError
        The pools differ (paper, section "Limitations", "Policy-pool comparability").
    """
    if a["pool"] != b["pool"]:
        sides = [f"{row['tier']} in {row['model']}/{row['benchmark']} (pool {row['pool']})" for row in (a, b)]
        raise InputError(
            f"{sides[0]} cannot be compared with {sides[1]}: a larger pool is nearer to any curve by chance alone",
            "compare rows of one pool; every row that searches the pool is there for each",
        )


# ---- flags


def protocol_flags(rule: Rule) -> pl.DataFrame:
    """Where Base and RL were not answering under the same conditions, and cells that decide nothing.

    Parameters
    ----------
    rule : Rule
        On the sample view. Options ``protocol_margin`` and ``length_ratio``.

    Returns
    -------
    polars.DataFrame
        See the module. A rate differs (``attention``) when the interval of its difference lies outside [-margin,
        margin], is ``ok`` when the interval lies inside, ``undecided`` otherwise. The two sides' rates are treated as
        independent.
    """
    rows = [
        {"model": model, "benchmark": benchmark, **row}
        for model, benchmark in study_cells(rule.plan)
        for row in _cell_flags(rule, model, benchmark)
    ]
    return pl.DataFrame(rows, FLAGS)


def _cell_flags(rule: Rule, model: str, benchmark: str) -> Iterator[dict[str, Any]]:
    base, rl = rule.view.cohort.base(model, benchmark), rule.view.cohort.rl(model, benchmark)
    cell = rule.cell(model, benchmark)
    if isinstance(cell, Reason) or base is None or rl is None:
        reason = cell.code if isinstance(cell, Reason) else None
        for flag in FLAG_NAMES:
            yield {"flag": flag, "reason": reason}
        return
    yield _rate_flag(rule, "truncation", "stopped", base, rl)
    yield _rate_flag(rule, "extraction", "valid", base, rl)
    yield _length_flag(rule, base, rl)
    total = rule.view.total(benchmark)
    P, R = cell[0].P[..., 0] / total, cell[1][:, 0] / total
    sides = (float(P.mean()), float(R.mean()))
    yield _flag("all_or_nothing", *sides, attention=any(side in (0.0, 1.0) for side in sides))
    yield _flag("constant_rl_curve", None, float(np.ptp(R)), attention=np.ptp(R) == 0)
    spread = float(np.ptp(P, axis=0).max())
    yield _flag("constant_base_pool", spread, None, attention=spread == 0)
    yield _flag("few_questions", total, total, attention=total < FEW_QUESTIONS)


FLAG_NAMES = (
    "truncation",
    "extraction",
    "length",
    "all_or_nothing",
    "constant_rl_curve",
    "constant_base_pool",
    "few_questions",
)


def _flag(flag: str, base: float | None, rl: float | None, *, attention: bool) -> dict[str, Any]:
    return {"flag": flag, "base": base, "rl": rl, "severity": "attention" if attention else "ok"}


def _rate_flag(rule: Rule, flag: str, metric: str, base: DenseLandscape, rl: DenseLandscape) -> dict[str, Any]:
    default, margin = rule.plan.default_policy, rule.options.protocol_margin
    if default not in base.policies:
        return {"flag": flag, "reason": "policy_missing"}
    sides = [rate(side, default, metric) for side in (rl, base)]
    if sides[0] is None or sides[1] is None:
        return {"flag": flag, "reason": "no_rates"}
    theirs, ours = (_complement(side) if flag == "truncation" else side for side in sides if side)
    difference, lo, hi = rate_difference(theirs, ours)
    severity = "attention" if lo > margin or hi < -margin else "ok" if -margin <= lo and hi <= margin else "undecided"
    values = {"base": ours[0], "rl": theirs[0], "difference": difference, "lo": lo, "hi": hi}
    return {"flag": flag, **values, "severity": severity}


def _complement(side: tuple[float, float, float]) -> tuple[float, float, float]:
    value, lo, hi = side
    return 1 - value, 1 - hi, 1 - lo


def _length_flag(rule: Rule, base: DenseLandscape, rl: DenseLandscape) -> dict[str, Any]:
    default = rule.plan.default_policy
    if default not in base.policies:
        return {"flag": "length", "reason": "policy_missing"}
    ours, theirs = (side.tokens.get(default, np.nan) for side in (base, rl))
    if not (ours > 0 and theirs > 0):
        return {"flag": "length", "reason": "unknown_tokens"}
    ratio = max(ours, theirs) / min(ours, theirs)
    found = _flag("length", ours, theirs, attention=ratio >= rule.options.length_ratio)
    return {**found, "difference": theirs - ours}


# ---- the checklist


def checklist(
    rule: Rule,
    errors: pl.DataFrame,
    flags: pl.DataFrame,
    contrasts: pl.DataFrame,
    unvoted: Collection[str] = (),
) -> pl.DataFrame:
    """The six items of the paper's robustness checklist, each decided on this study.

    Parameters
    ----------
    rule : Rule
        On the sample view.
    errors : polars.DataFrame
        tier, kind (of ``tiers.Tier``), model, benchmark, pool, exponents, error (percentage points, null where
        undefined). Rows of the AR pool under the paper's exponents are used.
    flags : polars.DataFrame
        What ``protocol_flags`` returned.
    contrasts : polars.DataFrame
        ``study.CONTRASTS``.
    unvoted : collection of str
        Benchmarks on which no answer is voted on, as those of instruction following (``q_channel.voteless``).

    Returns
    -------
    polars.DataFrame
        See the module. ``attention``: the claim must not be made here, or only with what ``detail`` says.
    """
    scored = errors.filter(pool="ar", exponents="paper").filter(pl.col("error").is_not_null())
    scored = scored.filter((pl.col("tier") != "V2") | (pl.col("model") != rule.plan.anchor_model))  # there it is V1
    items = (
        _no_parameters(),
        _no_prediction(contrasts),
        _directions(rule, scored),
        _pools(rule),
        _instruction(rule, unvoted),
        _stress(flags),
    )
    rows = [(letter, *item) for letter, item in zip("abcdef", items, strict=True)]
    return pl.DataFrame(rows, CHECKLIST, orient="row")


_Item = tuple[str, str, str, str]


def _no_parameters() -> _Item:
    return (
        "RL is not equivalent, in its parameters, to an external decoding policy",
        "every number is computed from readouts of sampled answers; no weight is read",
        "ok",
        "say: the rule selects operating points that behave alike",
    )


def _no_prediction(contrasts: pl.DataFrame) -> _Item:
    claim = "no exact prediction of performance after RL without a strong baseline"
    check = f"{MAIN} has a lower corrected error than every baseline and rival, on common cells, beyond the interval"
    rows = contrasts.filter(
        pl.col("first").is_in(BASELINES), scope="cohort", exponents="paper", second=MAIN
    ).drop_nulls("corrected")
    if rows.is_empty():
        return (
            claim,
            check,
            "attention",
            f"{MAIN} shares no cell with any baseline: nothing may be said about prediction",
        )
    told: list[str] = []
    others: dict[str, list[str]] = {"first lower": [], "not distinguishable": []}
    for row in rows.iter_rows(named=True):
        ends = f"[{row['lo_corrected']:+.2f}, {row['hi_corrected']:+.2f}]"
        told.append(f"{row['first']} − {MAIN} = {row['corrected']:+.2f} {ends} pp (cells: {row['cells']})")
        others.get(row["verdict"], []).append(row["first"])
    better, level = others.values()
    told += [f"better than {MAIN}: {', '.join(better)}"] if better else []
    told += [f"not distinguishable from {MAIN}: {', '.join(level)}"] if level else []
    return claim, check, "attention" if better or level else "ok", "; ".join(told)


def _best(scored: pl.DataFrame) -> str | None:
    """The tier with the smallest mean among those defined in the most cells; ties by name."""
    if scored.is_empty():
        return None
    means = scored.group_by("tier").agg(cells=pl.len(), error=pl.col("error").mean())
    whole = means.filter(pl.col("cells") == pl.col("cells").max()).sort("error", "tier")
    return str(whole["tier"][0])


def _directions(rule: Rule, scored: pl.DataFrame) -> _Item:
    claim = "horizontal transfer (one model) and vertical transfer (across models) are different results"
    check = "best transferred tier of the anchor model's cells and of the other models' cells, each apart"
    tiers = scored.filter(pl.col("kind").is_in(TRANSFER_KINDS))
    own = pl.col("model") == rule.plan.anchor_model
    sides = {"horizontal": tiers.filter(own), "vertical": tiers.filter(~own)}
    if any(side.is_empty() for side in sides.values()):
        missing = next(name for name, side in sides.items() if side.is_empty())
        return claim, check, "not applicable", f"no {missing} cell was scored"
    told = []
    for name, side in sides.items():
        best = str(_best(side))
        chosen = side.filter(tier=best)["error"].to_numpy()
        told.append(f"{name}: {best} {chosen.mean():.2f} pp (cells: {len(chosen)})")
    return claim, check, "ok", "; ".join(told)


def _pools(rule: Rule) -> _Item:
    claim = "AR-only and expanded pools are not compared with each other"
    check = "cells whose Base pool holds controllers; their rows carry pool = full beside pool = ar"
    cohort = rule.view.cohort
    found = [f"{m}/{d}" for m, d in study_cells(rule.plan) if has_expanded_pool(cohort, m, d)]
    if not found:
        return claim, check, "not applicable", "every pool is AR-only"
    whole = len(study_cells(rule.plan))
    partly = f"expanded: {', '.join(found)}; AR-only: the other {whole - len(found)} cells"
    return claim, check, "ok" if len(found) == whole else "attention", partly


def _instruction(rule: Rule, unvoted: Collection[str]) -> _Item:
    claim = "an instruction benchmark is a metric mismatch: P, first finish and validity count, SC is a diagnostic"
    check = "its regime is nonmath"
    known = {name: rule.regime(name) for name in rule.plan.benchmarks if name in unvoted}
    if not known:
        return claim, check, "not applicable", "no instruction benchmark in the cohort"
    wrong = [f"{name} is {regime}" for name, regime in known.items() if regime != "nonmath"]
    return claim, check, "attention" if wrong else "ok", "; ".join(wrong) or f"nonmath: {', '.join(known)}"


def _stress(flags: pl.DataFrame) -> _Item:
    claim = "models whose generation length or protocol differs between Base and RL are stress tests"
    check = "cells flagged for truncation, extraction or length"
    about = flags.filter(pl.col("flag").is_in(["truncation", "extraction", "length"]))
    if about["severity"].is_null().all():
        return claim, check, "not applicable", "no rate or length is known on both sides"
    found = about.filter(severity="attention")
    told = []
    for model in found["model"].unique(maintain_order=True).to_list():
        cells = ", ".join(_told(row) for row in found.filter(model=model).iter_rows(named=True))
        told.append(f"{model}: {cells}")
    return claim, check, "attention" if told else "ok", "; ".join(told) or "none differs"


def _told(row: Mapping[str, Any]) -> str:
    if row["flag"] == "length":
        return f"{row['benchmark']} length x {row['rl'] / row['base']:.2f}"
    return f"{row['benchmark']} {row['flag']} {100 * row['difference']:+.1f} pp"
