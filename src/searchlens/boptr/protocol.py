"""What is compared, protocol flags, and the paper's robustness checklist, each item a check.

``protocol_flags`` has one record per cell and flag, whatever the outcome: a flagged cell is reported, never dropped.
Under the RL default policy: ``truncation`` (share of samples that hit the token limit), ``extraction`` (share with an
answer that can be read), ``length`` (mean generated tokens per sample). Of all samples: ``health`` (share with an
answer, and whether the cell is interpretable, ``analysis.health``). Of the estimates: ``all_or_nothing`` (mean P over
all points of a side is 0 or 1), ``constant_rl_curve`` (the RL curve is the same at all budgets), ``constant_base_pool``
(all policies of Base are equal at every budget), ``few_questions``. ``base`` and ``rl`` are what was compared: rates,
tokens, means or ranges of P as proportions, numbers of questions; ``difference`` is RL minus Base with its interval,
null for flags without one. ``severity``: ``ok``, ``undecided`` or ``attention``, null if undefined. ``detail``: of flag
``health``, what is wrong.

``checklist`` has one record per item: ``item`` (a to f, in the order of the paper), ``claim`` (what is guarded),
``check``, ``status`` (``ok``, ``attention`` or ``not applicable``), ``detail``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from searchlens.analysis.health import TRUNCATED, judge, of_pair
from searchlens.analysis.uncertainty import Interval, with_width
from searchlens.boptr.cohort import CohortPlan, DenseLandscape
from searchlens.boptr.evaluate import has_expanded_pool
from searchlens.boptr.rule import Reason, Rule, attempt, by_cell, schema
from searchlens.config.health import DEFAULTS, HealthOptions

FEW_QUESTIONS = 30
"""Fewest questions on which anything is decided; at 30 a proportion of one half is known to 17 points either way."""
HELD_OUT_LIMIT = 8.0
"""Limit on the mean error of a held-out benchmark, percentage points, set before any was evaluated (printed)."""
MARGIN = 0.05
"""A cell is flagged if the interval of RL minus Base lies wholly outside ± this margin, for the share of samples cut at
the length limit or for the share with a readable answer."""
LENGTH_RATIO = 1.5
"""A cell is flagged if the longer mean length of Base and RL is at least this multiple of the shorter one."""
MAIN = "V3"
"""The row of the rule when it is compared with baselines and rivals; on the anchor model it equals H5."""
BASELINES = ("H1", "H2", "mean RL", "Base+gain", "low temp")
TRANSFER_KINDS = ("rule", "copy", "frontier")
FLAGS = schema("model benchmark flag base rl difference lo hi severity reason detail")
CHECKLIST = schema("item claim check status detail")


def study_cells(plan: CohortPlan) -> list[tuple[str, str]]:
    """Every cell that has a Base and an RL side by design, whether it was sampled or not."""
    return [(model, benchmark) for model in plan.models for benchmark in plan.with_role("fitted", "held_out")]


def rate_difference(
    first: tuple[float, float, float], second: tuple[float, float, float]
) -> tuple[float, float, float]:
    """First rate minus second, each as (value, lo, hi), with a square-and-add interval from the intervals of the two
    rates.

    It is wider than needed if the two rates are positively correlated, as rates on the same questions are.

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
    """``valid`` or ``stopped`` rate of a policy as (value, lo, hi); None if it was not recorded.

    The interval contains the rate and has a width, as it must if all samples of all questions agree
    (``uncertainty.with_width``).
    """
    rows: list[Any] = (
        landscape.rates.filter(policy=policy, metric=metric).select("value", "lo", "hi").drop_nulls().rows()
    )
    if not rows:
        return None
    value, *ends = rows[0]
    drawn = Interval(*(np.asarray(end, float) for end in ends))
    lo, hi = with_width(value, drawn, len(landscape.questions), limits=(0.0, 1.0))
    return float(value), float(lo), float(hi)


def protocol_flags(rule: Rule, limits: HealthOptions = DEFAULTS) -> pl.DataFrame:
    """Cells in which Base and RL did not answer under the same conditions, or in which nothing can be decided.

    A rate gets ``attention`` if the interval of its difference lies wholly outside [-margin, margin], or if either side
    is beyond its limit, however little the two differ; ``ok`` if the interval lies inside, otherwise ``undecided``. The
    rates of the two sides are treated as independent. ``rule`` is that of the sample.
    """
    return by_cell(FLAGS, study_cells(rule.plan), partial(_cell_flags, rule, limits))


def _cell_flags(rule: Rule, limits: HealthOptions, model: str, benchmark: str) -> Iterator[dict[str, Any]]:
    base, rl = rule.view.cohort.base(model, benchmark), rule.view.cohort.rl(model, benchmark)
    cell = attempt(rule.cell, model, benchmark)
    if isinstance(cell, Reason):
        yield from ({"flag": flag, "reason": cell.code} for flag in FLAG_NAMES)
        return
    assert base is not None and rl is not None
    yield _rate_flag(rule, limits, "truncation", "stopped", base, rl)
    yield _rate_flag(rule, limits, "extraction", "valid", base, rl)
    yield _length_flag(rule, base, rl)
    yield _health_flag(rule, limits, base, rl, is_floor=rule.regime(benchmark) == "floor")
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
    "health",
    "all_or_nothing",
    "constant_rl_curve",
    "constant_base_pool",
    "few_questions",
)


def _flag(flag: str, base: float | None, rl: float | None, *, attention: bool) -> dict[str, Any]:
    return {"flag": flag, "base": base, "rl": rl, "severity": "attention" if attention else "ok"}


def _rate_flag(
    rule: Rule, limits: HealthOptions, flag: str, metric: str, base: DenseLandscape, rl: DenseLandscape
) -> dict[str, Any]:
    default, margin = rule.plan.default_policy, MARGIN
    if default not in base.policies:
        return {"flag": flag, "reason": "policy_missing"}
    of_base, of_rl = (rate(side, default, metric) for side in (base, rl))
    if of_base is None or of_rl is None:
        return {"flag": flag, "reason": "no_rates"}
    if flag == "truncation":
        of_base, of_rl = ((1 - value, 1 - hi, 1 - lo) for value, lo, hi in (of_base, of_rl))
    difference, lo, hi = rate_difference(of_rl, of_base)
    sides = (of_base[0], of_rl[0])
    beyond = max(sides) > TRUNCATED if flag == "truncation" else min(sides) < limits.answered
    apart = lo > margin or hi < -margin
    severity = "attention" if apart or beyond else "ok" if -margin <= lo and hi <= margin else "undecided"
    values = {"base": of_base[0], "rl": of_rl[0], "difference": difference, "lo": lo, "hi": hi}
    return {"flag": flag, **values, "severity": severity}


def _length_flag(rule: Rule, base: DenseLandscape, rl: DenseLandscape) -> dict[str, Any]:
    default = rule.plan.default_policy
    if default not in base.policies:
        return {"flag": "length", "reason": "policy_missing"}
    of_base, of_rl = (side.tokens.get(default, np.nan) for side in (base, rl))
    if not (of_base > 0 and of_rl > 0):
        return {"flag": "length", "reason": "unknown_tokens"}
    ratio = max(of_base, of_rl) / min(of_base, of_rl)
    return {**_flag("length", of_base, of_rl, attention=ratio >= LENGTH_RATIO), "difference": of_rl - of_base}


def _health_flag(
    rule: Rule, limits: HealthOptions, base: DenseLandscape, rl: DenseLandscape, *, is_floor: bool
) -> dict[str, Any]:
    if base.health is None or rl.health is None:
        return {"flag": "health", "reason": "no_rates"}
    sides = {"Base": base.health, "RL": rl.health}
    judged = {name: judge(counts, rule.plan.default_policy, limits) for name, counts in sides.items()}
    of_base, of_rl = (side.counts["answered"] / side.counts["samples"] for side in judged.values())
    warning = of_pair(judged, is_floor=is_floor)
    return {**_flag("health", of_base, of_rl, attention=bool(warning)), "detail": warning or None}


def broken_cells(flags: pl.DataFrame) -> pl.DataFrame:
    """The cells of ``protocol_flags`` that are not interpretable: ``model``, ``benchmark``, and why (``detail``)."""
    return flags.filter(flag="health", severity="attention").select("model", "benchmark", "detail")


def checklist(
    rule: Rule,
    errors: pl.DataFrame,
    flags: pl.DataFrame,
    contrasts: pl.DataFrame,
    unvoted: Collection[str] = (),
) -> pl.DataFrame:
    """The six items of the paper's robustness checklist, each decided on this study.

    ``attention``: the claim must not be made for this study, or only with the caveat in ``detail``. Of ``errors`` the
    AR pool under the paper's exponents is used. ``unvoted``: benchmarks without a vote, such as those of instruction
    following (``metrics.voteless``).
    """
    scored = errors.filter(pool="ar", exponents="paper").filter(pl.col("error").is_not_null())
    # On the anchor model V2 is V1, its own fitted path.
    scored = scored.filter((pl.col("rule") != "V2") | (pl.col("model") != rule.plan.anchor_model))
    items = (
        (
            "RL is not equivalent, in its parameters, to an external decoding policy",
            "every number is computed from estimates of sampled answers; no weight is read",
            "ok",
            "say: the rule selects operating points that behave alike",
        ),
        _no_prediction(contrasts),
        _directions(rule, scored),
        _pools(rule),
        _instruction(rule, unvoted),
        _stress(flags),
    )
    rows = [(letter, *item) for letter, item in zip("abcdef", items, strict=True)]
    return pl.DataFrame(rows, CHECKLIST, orient="row")


_Item = tuple[str, str, str, str]


def _no_prediction(contrasts: pl.DataFrame) -> _Item:
    claim = "no exact prediction of performance after RL without a strong baseline"
    check = (
        f"{MAIN} has a lower corrected error than every baseline and rival, on common cells: over questions beyond the"
        " interval, and over models and questions together"
    )
    rows = contrasts.filter(
        pl.col("first").is_in(BASELINES), scope="cohort", exponents="paper", second=MAIN
    ).drop_nulls("corrected")
    if rows.is_empty():
        detail = f"{MAIN} shares no cell with any baseline: nothing may be said about prediction"
        return claim, check, "attention", detail
    parts: list[str] = []
    by_verdict: dict[str, list[str]] = {"first lower": [], "not distinguishable": [], "second lower": []}
    for row in rows.iter_rows(named=True):
        known = row["lo_corrected"] is not None
        ends = f" [{row['lo_corrected']:+.2f}, {row['hi_corrected']:+.2f}]" if known else ""
        parts.append(f"{row['first']} − {MAIN} = {row['corrected']:+.2f}{ends} pp (cells: {row['cells']})")
        by_verdict[row["verdict"]].append(row["first"])
    better, level = by_verdict["first lower"], by_verdict["not distinguishable"]
    open_ = rows.filter(~pl.col("verdict_models").eq_missing(pl.lit("second lower")))["first"].to_list()
    parts += [f"over questions better than {MAIN}: {', '.join(better)}"] if better else []
    parts += [f"over questions not distinguishable from {MAIN}: {', '.join(level)}"] if level else []
    parts += [f"over models not shown to be worse than {MAIN}: {', '.join(open_)}"] if open_ else []
    return claim, check, "attention" if better or level or open_ else "ok", "; ".join(parts)


def _best(scored: pl.DataFrame) -> str:
    """The row with the smallest mean among those defined in the most cells; ties by name."""
    means = scored.group_by("rule").agg(cells=pl.len(), error=pl.col("error").mean())
    return str(means.filter(pl.col("cells") == pl.col("cells").max()).sort("error", "rule")["rule"][0])


def _directions(rule: Rule, scored: pl.DataFrame) -> _Item:
    claim = "horizontal transfer (one model) and vertical transfer (across models) are different results"
    check = "best transferred rule of the anchor model's cells and of the other models' cells, each apart"
    transferred = scored.filter(pl.col("kind").is_in(TRANSFER_KINDS))
    on_anchor = pl.col("model") == rule.plan.anchor_model
    sides = {"horizontal": transferred.filter(on_anchor), "vertical": transferred.filter(~on_anchor)}
    parts = []
    for name, side in sides.items():
        if side.is_empty():
            return claim, check, "not applicable", f"no {name} cell was scored"
        best = _best(side)
        errors = side.filter(rule=best)["error"].to_numpy()
        parts.append(f"{name}: {best} {errors.mean():.2f} pp (cells: {len(errors)})")
    return claim, check, "ok", "; ".join(parts)


def _pools(rule: Rule) -> _Item:
    claim = "AR-only and expanded pools are not compared with each other"
    check = "cells whose Base pool holds controllers; their rows carry pool = full beside pool = ar"
    cells = study_cells(rule.plan)
    expanded = [f"{m}/{d}" for m, d in cells if has_expanded_pool(rule.view.cohort, m, d)]
    if not expanded:
        return claim, check, "not applicable", "every pool is AR-only"
    detail = f"expanded: {', '.join(expanded)}; AR-only: the other {len(cells) - len(expanded)} cells"
    return claim, check, "ok" if len(expanded) == len(cells) else "attention", detail


def _instruction(rule: Rule, unvoted: Collection[str]) -> _Item:
    claim = "an instruction benchmark is a metric mismatch: P, first finish and validity count, SC is a diagnostic"
    check = "its regime is nonmath"
    regimes = {name: rule.regime(name) for name in rule.plan.benchmarks if name in unvoted}
    if not regimes:
        return claim, check, "not applicable", "no instruction benchmark in the cohort"
    wrong = [f"{name} is {regime}" for name, regime in regimes.items() if regime != "nonmath"]
    return claim, check, "attention" if wrong else "ok", "; ".join(wrong) or f"nonmath: {', '.join(regimes)}"


def _stress(flags: pl.DataFrame) -> _Item:
    claim = "models whose generation length or protocol differs between Base and RL are stress tests"
    check = "cells flagged for truncation, extraction or length"
    protocol = flags.filter(pl.col("flag").is_in(["truncation", "extraction", "length"]))
    if protocol["severity"].is_null().all():
        return claim, check, "not applicable", "no rate or length is known on both sides"
    flagged = protocol.filter(severity="attention")
    parts = []
    for model in flagged["model"].unique(maintain_order=True).to_list():
        cells = [
            f"{row['benchmark']} length x {row['rl'] / row['base']:.2f}"
            if row["flag"] == "length"
            else f"{row['benchmark']} {row['flag']} {100 * row['difference']:+.1f} pp"
            for row in flagged.filter(model=model).iter_rows(named=True)
        ]
        parts.append(f"{model}: {', '.join(cells)}")
    return claim, check, "attention" if parts else "ok", "; ".join(parts) or "none differs"


# ---- what is compared


def blocks(plan: CohortPlan) -> pl.DataFrame:
    """What is compared with what, and why."""
    anchor, fitted = plan.anchor_model, plan.with_role("fitted")

    def names(models: Iterable[str]) -> str:
        return ", ".join(models) or "—"

    others = [plan.title(d) for d in fitted if d != plan.anchor_benchmark]
    rows = [
        (
            "Anchor",
            f"{anchor} / {plan.title(plan.anchor_benchmark)}",
            "Full landscape construction and rule discovery.",
        ),
        ("Horizontal", f"{anchor} / {names(others)}", "Same model, new benchmarks."),
        ("Vertical", names(m for m in plan.in_group("upper") if m != anchor), "Same RL-training split, other models."),
        ("Stress", names(plan.in_group("lower")), "Cross-family and weak-capacity models."),
        ("New models", names(plan.in_group("new")), "Predicted with everything frozen."),
        ("Held out", names(map(plan.title, plan.with_role("held_out"))), "Benchmarks the rule was never fitted on."),
        ("Descriptive", names(map(plan.title, plan.with_role("descriptive"))), "Base alone."),
    ]
    return pl.DataFrame(rows, ["block", "settings", "role"], orient="row")
