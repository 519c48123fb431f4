"""The paper's four same-policy signatures, decided from numbers (paper, appendix "Qualitative same-policy signatures").

Base and RL are compared under the RL default policy, cell by cell, with a record per signature and metric: P, Q, Q/P or
T at a budget, or ``stopped`` and ``valid``, rates per sample without a budget. ``decides``: whether the record decides
its signature; the others only inform. The vote of one sample is that sample, so P decides the low-budget gain. A
termination gain needs a better first finish (T) and a higher rate of valid answers. T of one sample is P of that
sample, since a text that does not finish is not right, so T is read at the largest budget from 2 to ``LOW``: the paper
names none, and at larger ones some sample nearly always finishes. If one sample is all there is, there is no record for
T, and the rate alone decides.

``base``, ``rl``, ``rl_minus_base``, ``lo``, ``hi`` are proportions. The interval of a readout is a paired bootstrap
over questions; that of a rate is square-and-add of the two rates' intervals. Both contain the difference and have a
width (``uncertainty.with_width``). ``decision``: ``yes``, the interval lies above 0, for ``base_recovery`` below 0;
``no``, on the other side; ``undecided``, it contains 0. ``detail`` of ``base_recovery``: ``ahead``, ``reached`` (the
interval contains 0, and RL led at b = 1), ``level`` (it contains 0, and RL did not lead) or ``behind``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from searchlens.analysis.uncertainty import Interval, Resamples, quantiles, with_width
from searchlens.boptr.cohort import DenseLandscape
from searchlens.boptr.protocol import rate, rate_difference, study_cells
from searchlens.boptr.rule import Reason, Rule, by_cell, schema
from searchlens.boptr.view import View
from searchlens.catalogue import frame

SCHEMA = schema(
    "model benchmark questions signature metric budget decides base rl rl_minus_base lo hi decision detail reason"
)
PATTERNS = {
    "low_budget_gain": ("Low-budget RL gain", "pass@k, SC", "Sampling efficiency improves."),
    "base_recovery": ("Base high-budget recovery", "pass@k", "Diversity/support remains in base."),
    "concentration_gain": ("Concentration gain", "SC or SC / pass@k", "RL sharpens answer distribution."),
    "termination_gain": ("Termination gain", "FFS / validity", "RL improves completion reliability."),
}
"""Name, typical metric and interpretation of each signature, as the paper prints them."""
_Pair = tuple[DenseLandscape, DenseLandscape]
"""Base and RL."""
LOW = 4
"""Largest budget that is reported for the low-budget gain, and at which first finish is read."""


@dataclass(frozen=True)
class _Quantity:
    """What is compared: a metric at a budget, for a signature; the fields are columns of ``SCHEMA``."""

    signature: str
    metric: str
    budget: int | None
    decides: bool


@frame("signatures")
def signatures(rule: Rule, boot: View) -> pl.DataFrame:
    """Which of the four signatures each cell shows.

    Q/P is undefined if no question is solved. A bootstrap draw without a solved question could have any ratio, so it
    counts as the lowest for the lower end and as the highest for the upper end: with few solved questions the signature
    is undecided.
    """
    cells = by_cell(SCHEMA, study_cells(rule.plan), partial(_cell, rule, boot))
    return cells.with_columns(pl.col("lo", "hi").fill_nan(None))


_FIRST = _Quantity("low_budget_gain", "P", 1, decides=True)
"""Says whether RL leads at one sample, which ``detail`` of ``base_recovery`` needs."""


def _quantities(budgets: Sequence[int]) -> list[_Quantity]:
    top, several = budgets[-1], [n for n in budgets if n > 1]
    early = [max((n for n in several if n <= LOW), default=several[0])] if several else []
    return [
        _FIRST,
        *(_Quantity("low_budget_gain", "Q", n, decides=False) for n in budgets if n <= LOW),
        _Quantity("base_recovery", "P", top, decides=True),
        _Quantity("concentration_gain", "Q/P", top, decides=True),
        _Quantity("concentration_gain", "Q", top, decides=False),
        *(_Quantity("termination_gain", "T", n, decides=True) for n in early),
        _Quantity("termination_gain", "valid", None, decides=True),
        _Quantity("termination_gain", "stopped", None, decides=False),
    ]


def _cell(rule: Rule, boot: View, model: str, benchmark: str) -> Iterator[dict[str, Any]]:
    pair, led = _pair(rule, model, benchmark), False
    questions = int(rule.view.total(benchmark)) if benchmark in rule.view.weights else None
    for quantity in _quantities(rule.plan.budgets):
        values = pair if isinstance(pair, Reason) else _compared(rule, boot, benchmark, pair, quantity)
        record = {"questions": questions, **asdict(quantity)}
        if isinstance(values, Reason):
            yield {**record, "reason": values.code}
            continue
        recovery = quantity.signature == "base_recovery"
        decision = _decision(-values["hi"], -values["lo"]) if recovery else _decision(values["lo"], values["hi"])
        if quantity == _FIRST:
            led = decision == "yes"
        detail = None
        if recovery:
            detail = {"yes": "ahead", "no": "behind"}.get(decision, "reached" if led else "level")
        yield {**record, **values, "decision": decision, "detail": detail}


def _pair(rule: Rule, model: str, benchmark: str) -> _Pair | Reason:
    """Base and RL of a cell, if both were sampled under the default policy at every budget."""
    base, rl = rule.view.cohort.base(model, benchmark), rule.view.cohort.rl(model, benchmark)
    budgets, default = rule.plan.budgets, rule.plan.default_policy
    if base is None:
        return Reason("no_base")
    if rl is None or default not in rl.complete(budgets):
        return Reason("no_rl")
    return (base, rl) if default in base.complete(budgets) else Reason("policy_missing")


def _decision(lo: float, hi: float) -> str:
    return "yes" if lo > 0 else "no" if hi < 0 else "undecided"


def _compared(rule: Rule, boot: View, benchmark: str, pair: _Pair, quantity: _Quantity) -> dict[str, float] | Reason:
    """Columns base, rl, rl_minus_base, lo and hi."""
    if quantity.budget is None:
        return _rates(rule.plan.default_policy, pair, quantity.metric)
    if rule.view.total(benchmark) == 1:
        return Reason("one_question")
    if quantity.metric == "Q/P":
        return _ratio(rule, boot, benchmark, pair, quantity.budget)
    return _readout(rule, boot, benchmark, pair, quantity.metric, quantity.budget)


def _readout(
    rule: Rule, boot: View, benchmark: str, pair: _Pair, metric: str, budget: int
) -> dict[str, float] | Reason:
    """The paired difference of one readout; only T can be unknown."""
    default = rule.plan.default_policy
    base, rl = (side.block(metric, [default], [budget])[0, 0].astype(float) for side in pair)
    if np.isnan(base + rl).any():
        return Reason("unknown_tokens")
    resamples = Resamples(boot.weights[benchmark][:, 1:])
    difference, confidence = (rl - base).mean(), rule.options.confidence
    lo, hi = with_width(difference, resamples.interval((rl - base)[:, None], confidence), len(base), confidence)
    values = {"base": base.mean(), "rl": rl.mean(), "rl_minus_base": difference, "lo": lo[0], "hi": hi[0]}
    return {key: float(value) for key, value in values.items()}


def _ratio(rule: Rule, boot: View, benchmark: str, pair: _Pair, budget: int) -> dict[str, float] | Reason:
    ratios, solved, confidence = [], [], rule.options.confidence
    for side in pair:
        Q, P = (boot.count(side, benchmark, metric, rule.plan.default_policy, [budget])[0] for metric in "QP")
        ratios.append(np.divide(Q, P, out=np.full(len(P), np.nan), where=P > 0))
        solved.append(P[0])
    base, rl = ratios
    difference = rl - base
    if np.isnan(difference[0]):
        return Reason("no_support")
    lowest, highest = (np.where(np.isnan(difference), end, difference)[None, 1:] for end in (-1.0, 1.0))
    drawn = Interval(quantiles(lowest, confidence).lo, quantiles(highest, confidence).hi)
    lo, hi = with_width(difference[0], drawn, min(solved), confidence)
    values = (base[0], rl[0], difference[0], lo[0], hi[0])
    return dict(zip(("base", "rl", "rl_minus_base", "lo", "hi"), map(float, values), strict=True))


def _rates(policy: str, pair: _Pair, metric: str) -> dict[str, float] | Reason:
    base, rl = (rate(side, policy, metric) for side in pair)
    if base is None or rl is None:
        return Reason("no_rates")
    difference, lo, hi = rate_difference(rl, base)
    return {"base": base[0], "rl": rl[0], "rl_minus_base": difference, "lo": lo, "hi": hi}


@frame("signature_table", of=("signatures",), in_words=True)
def signature_table(frame: pl.DataFrame) -> pl.DataFrame:
    """The paper's table of signatures, with the cells that show each one instead of example blocks.

    ``holds`` is the number of cells in which all deciding records say yes, ``defined`` that in which all of them are
    defined; ``cells`` names the first, ``model/benchmark``.
    """
    deciding = frame.filter("decides").with_columns(cell=pl.concat_str("model", "benchmark", separator="/"))
    cells = deciding.group_by("signature", "cell", maintain_order=True).agg(
        defined=pl.col("decision").is_not_null().all(),
        holds=(pl.col("decision") == "yes").fill_null(value=False).all(),
    )
    records = []
    for signature, (pattern, metric, interpretation) in PATTERNS.items():
        of_signature = cells.filter(signature=signature)
        names = of_signature.filter("holds")["cell"].to_list()
        counts = {"holds": len(names), "defined": int(of_signature["defined"].sum())}
        record = {"pattern": pattern, "metric": metric, **counts, "cells": ", ".join(names)}
        records.append(record | {"interpretation": interpretation})
    return pl.DataFrame(records)
