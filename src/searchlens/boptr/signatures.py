"""The paper's four same-policy signatures, decided from numbers (paper, appendix "Qualitative same-policy signatures").

Base and RL are compared under the RL default policy, cell by cell. ``signatures`` has one row per cell, signature and
metric:

model, benchmark, signature
    The cell; ``low_budget_gain``, ``base_recovery``, ``concentration_gain`` or ``termination_gain``.
metric, budget
    P, Q, Q/P or T at a budget; ``stopped`` and ``valid`` are rates per sample and have no budget.
decides
    Whether the row decides its signature. The others are shown beside it. The vote of one sample is that sample, so P
    decides the low-budget gain; first finish at b = 1 is the accuracy of finished samples, so a termination gain needs
    the rate of valid answers as well.
base, rl, estimate, lo, hi
    Proportions. ``estimate`` is RL minus Base, and Base minus RL for ``base_recovery``. Readouts have a paired
    bootstrap over questions; rates, which come with an interval each, square-and-add.
decision
    ``yes``: the interval lies above 0. ``no``: below 0. ``undecided``: it contains 0. Null where undefined.
detail
    For ``base_recovery``: ``ahead``, ``reached`` (the interval contains 0 after RL led at b = 1), ``level`` (it
    contains 0 and RL did not lead) or ``behind``. Else null.
reason
    Why it is undefined (a code of ``rule.REASONS``), else null.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from searchlens.boptr.cohort import DenseLandscape
from searchlens.boptr.protocol import rate, rate_difference, study_cells
from searchlens.boptr.rule import Reason, Rule
from searchlens.boptr.view import View
from searchlens.uncertainty import Resamples, quantiles

SCHEMA = {
    "model": pl.String(),
    "benchmark": pl.String(),
    "signature": pl.String(),
    "metric": pl.String(),
    "budget": pl.Int64(),
    "decides": pl.Boolean(),
    "base": pl.Float64(),
    "rl": pl.Float64(),
    "estimate": pl.Float64(),
    "lo": pl.Float64(),
    "hi": pl.Float64(),
    "decision": pl.String(),
    "detail": pl.String(),
    "reason": pl.String(),
}
PATTERNS = {
    "low_budget_gain": ("Low-budget RL gain", "pass@k, SC", "Sampling efficiency improves."),
    "base_recovery": ("Base high-budget recovery", "pass@k", "Diversity/support remains in base."),
    "concentration_gain": ("Concentration gain", "SC or SC / pass@k", "RL sharpens answer distribution."),
    "termination_gain": ("Termination gain", "FFS / validity", "RL improves completion reliability."),
}
"""Name, typical metric and interpretation of each signature, as the paper prints them."""
LOW = 4
"""Largest budget that is shown for the low-budget gain."""


@dataclass(frozen=True)
class _Question:
    """One row to be computed: a metric at a budget, for a signature."""

    signature: str
    metric: str
    budget: int | None
    decides: bool


def signatures(rule: Rule, boot: View) -> pl.DataFrame:
    """Which of the four signatures each cell shows.

    Parameters
    ----------
    rule : Rule
        On the sample view.
    boot : View
        Bootstrap draws of the same cohort.

    Returns
    -------
    polars.DataFrame
        See the module.

    Notes
    -----
    Q/P is undefined where no question is solved. A bootstrap draw without a solved question could have any ratio, so it
    counts as the worst for the lower end and as the best for the upper one: with few solved questions the signature is
    undecided.
    """
    rows = [
        {"model": model, "benchmark": benchmark, **row}
        for model, benchmark in study_cells(rule.plan)
        for row in _cell(rule, boot, model, benchmark)
    ]
    return pl.DataFrame(rows, SCHEMA).with_columns(pl.col("lo", "hi").fill_nan(None))


def _questions(budgets: tuple[int, ...]) -> list[_Question]:
    top = budgets[-1]
    return [
        _Question("low_budget_gain", "P", 1, True),
        *(_Question("low_budget_gain", "Q", n, False) for n in budgets if n <= LOW),
        _Question("base_recovery", "P", top, True),
        _Question("concentration_gain", "Q/P", top, True),
        _Question("concentration_gain", "Q", top, False),
        _Question("termination_gain", "T", 1, True),
        _Question("termination_gain", "valid", None, True),
        _Question("termination_gain", "stopped", None, False),
    ]


def _cell(rule: Rule, boot: View, model: str, benchmark: str) -> Iterator[dict[str, Any]]:
    pair = _pair(rule, model, benchmark)
    led = False
    for asked in _questions(tuple(rule.plan.budgets)):
        row = {key: getattr(asked, key) for key in ("signature", "metric", "budget", "decides")}
        found = pair if isinstance(pair, Reason) else _compared(rule, boot, benchmark, pair, asked)
        if isinstance(found, Reason):
            yield {**row, "reason": found.code}
            continue
        if asked.signature == "base_recovery":
            found = {**found, "estimate": 0.0 - found["estimate"], "lo": 0.0 - found["hi"], "hi": 0.0 - found["lo"]}
        decision = _decision(found["lo"], found["hi"])
        if asked == _Question("low_budget_gain", "P", 1, True):
            led = decision == "yes"
        detail = _recovery(decision, led=led) if asked.signature == "base_recovery" else None
        yield {**row, **found, "decision": decision, "detail": detail}


def _pair(rule: Rule, model: str, benchmark: str) -> tuple[DenseLandscape, DenseLandscape] | Reason:
    """Base and RL, both sampled under the default policy at every budget."""
    base, rl = rule.view.cohort.base(model, benchmark), rule.view.cohort.rl(model, benchmark)
    budgets, default = rule.plan.budgets, rule.plan.default_policy
    if base is None:
        return Reason("no_base")
    if rl is None or default not in rl.complete(budgets):
        return Reason("no_rl")
    return (base, rl) if default in base.complete(budgets) else Reason("policy_missing")


def _decision(lo: float, hi: float) -> str:
    return "yes" if lo > 0 else "no" if hi < 0 else "undecided"


def _recovery(decision: str, *, led: bool) -> str:
    return {"yes": "ahead", "no": "behind"}.get(decision, "reached" if led else "level")


def _compared(
    rule: Rule, boot: View, benchmark: str, pair: tuple[DenseLandscape, DenseLandscape], asked: _Question
) -> dict[str, float] | Reason:
    if asked.budget is None:
        return _rates(rule.plan.default_policy, pair, asked.metric)
    if rule.view.total(benchmark) == 1:
        return Reason("one_question")
    if asked.metric == "Q/P":
        return _ratio(rule, boot, benchmark, pair, asked.budget)
    return _readout(rule, boot, benchmark, pair, asked)


def _readout(
    rule: Rule, boot: View, benchmark: str, pair: tuple[DenseLandscape, DenseLandscape], asked: _Question
) -> dict[str, float] | Reason:
    """A paired difference of one readout; only T can be unknown."""
    default = rule.plan.default_policy
    base, rl = (side.block(asked.metric, [default], [asked.budget or 1])[0, 0].astype(float) for side in pair)
    if np.isnan(base + rl).any():
        return Reason("unknown_tokens")
    resamples = Resamples(boot.weights[benchmark][:, 1:])
    lo, hi = resamples.interval((rl - base)[:, None], rule.options.confidence)
    values = {"base": base.mean(), "rl": rl.mean(), "estimate": (rl - base).mean()}
    return {**{key: float(value) for key, value in values.items()}, "lo": float(lo[0]), "hi": float(hi[0])}


def _ratio(
    rule: Rule, boot: View, benchmark: str, pair: tuple[DenseLandscape, DenseLandscape], budget: int
) -> dict[str, float] | Reason:
    ratios = []
    for side in pair:
        Q, P = (boot.count(side, benchmark, metric, rule.plan.default_policy, [budget])[0] for metric in "QP")
        ratios.append(np.divide(Q, P, out=np.full(len(P), np.nan), where=P > 0))
    base, rl = ratios
    difference = rl - base
    if np.isnan(difference[0]):
        return Reason("no_support")
    worst, best = (np.where(np.isnan(difference), end, difference)[None, 1:] for end in (-1.0, 1.0))
    lo = quantiles(worst, rule.options.confidence).lo[0]
    hi = quantiles(best, rule.options.confidence).hi[0]
    values = (base[0], rl[0], difference[0], lo, hi)
    return dict(zip(("base", "rl", "estimate", "lo", "hi"), map(float, values), strict=True))


def _rates(policy: str, pair: tuple[DenseLandscape, DenseLandscape], metric: str) -> dict[str, float] | Reason:
    base, rl = (rate(side, policy, metric) for side in pair)
    if base is None or rl is None:
        return Reason("no_rates")
    difference, lo, hi = rate_difference(rl, base)
    return {"base": base[0], "rl": rl[0], "estimate": difference, "lo": lo, "hi": hi}


def signature_table(found: pl.DataFrame) -> pl.DataFrame:
    """The paper's table of signatures, with the cells that show them in the place of its example blocks.

    Parameters
    ----------
    found : polars.DataFrame
        What ``signatures`` returned.

    Returns
    -------
    polars.DataFrame
        pattern, metric, holds (number of cells), defined (cells in which every deciding row is defined), cells (their
        names, ``model/benchmark``), interpretation. A signature holds in a cell where all its deciding rows say yes.
    """
    deciding = found.filter("decides").with_columns(cell=pl.concat_str("model", "benchmark", separator="/"))
    cells = deciding.group_by("signature", "cell", maintain_order=True).agg(
        defined=pl.col("decision").is_not_null().all(),
        holds=(pl.col("decision") == "yes").fill_null(value=False).all(),
    )
    rows = []
    for signature, (pattern, metric, interpretation) in PATTERNS.items():
        of = cells.filter(signature=signature)
        names = of.filter("holds")["cell"].to_list()
        rows.append(
            {
                "pattern": pattern,
                "metric": metric,
                "holds": len(names),
                "defined": int(of["defined"].sum()),
                "cells": ", ".join(names),
                "interpretation": interpretation,
            }
        )
    return pl.DataFrame(rows)
