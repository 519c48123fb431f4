"""Base and RL side by side, apart from pass@n: the Q channel, and the paper's four same-policy signatures.

The Q channel says whether Base reaches RL's self-consistency, and along which budgets (paper, table "Q-channel rule").

    pi_Q = argmax over the AR pool of Q_B(pi, 16) - 0.5 (P_B(pi, 16) - Q_B(pi, 16)) - 0.01 C(pi),  16 the largest budget
    N^Q(b) = round_B(alpha^Q b^beta^Q),  mech_Q = 100 mean_b |Q_B(pi_Q, N^Q(b)) - Q_RL(b)|

alpha^Q is fitted to the very RL curve that mech_Q is measured on, so it describes a cell and transfers nothing. One
record per model, benchmark and ``pool``, in which the largest Q_B is taken; pi_Q (``policy``) is autoregressive in
both.

``beta_q``, ``alpha_q``, ``path``: the exponent of the benchmark (option ``q_beta``), the fitted scale and N^Q(b).
``alpha_lo`` to ``alpha_hi``: the interval of alpha with the same path. ``mech_q`` to ``hi_corrected``: as ``error``
and what follows it in ``transfer.ERRORS``, with pi_Q and N^Q fixed; ``corrected`` also for the optimism of alpha^Q,
which is fitted again in up to ``REFITS`` draws.

``recoverable``: whether the largest Q_B of the pool is at least the largest Q_RL minus ``TOLERANCE``. That rests on
``policies``, the size of the pool, and on ``questions``: the largest of more policies is larger by chance, too, and
fewer questions leave more to chance. ``gap``: largest Q_RL
minus largest Q_B, percentage points; paired bootstrap with both points fixed. Both maxima are optimistic, because they
are chosen on the questions they are measured on; that over the many points of Base more than that over the few of RL.
So the true gap tends to be larger, which the interval does not take into account. ``diagnostic``: whether the benchmark
has no vote: then Q is the correctness of the first valid sample. ``rl``: the RL information that is used.

Signatures are decided from numbers (paper, appendix "Qualitative same-policy signatures").
Base and RL are compared under the RL default policy, cell by cell, with a record per signature and metric: P, Q, Q/P or
T at a budget, or ``stopped`` and ``valid``, rates per sample without a budget. ``decides``: whether the record decides
its signature; the others only inform. The vote of one sample is that sample, so P decides the low-budget gain. A
termination gain needs a better first finish (T) and a higher rate of valid answers. T of one sample is P of that
sample, since a text that does not finish is not right, so T is read at the largest budget from 2 to ``LOW``: the paper
names none, and at larger ones some sample nearly always finishes. If one sample is all there is, there is no record for
T, and the rate alone decides.

``base``, ``rl``, ``rl_minus_base``, ``lo``, ``hi`` are proportions. The interval of an estimate is a paired bootstrap
over questions; that of a rate is square-and-add of the two rates' intervals. Both contain the difference and have a
width (``uncertainty.with_width``). ``decision``: ``yes``, the interval lies above 0, for ``base_recovery`` below 0;
``no``, on the other side; ``undecided``, it contains 0. ``detail`` of ``base_recovery``: ``ahead``, ``reached`` (the
interval contains 0, and RL led at b = 1), ``level`` (it contains 0, and RL did not lead) or ``behind``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from searchlens.analysis.uncertainty import Interval, Resamples, quantiles, with_width
from searchlens.boptr import fit, inference
from searchlens.boptr.cohort import Cohort, DenseLandscape
from searchlens.boptr.evaluate import has_expanded_pool
from searchlens.boptr.fit import COST_WEIGHT, Ints, relative_cost
from searchlens.boptr.inference import ErrorDraws
from searchlens.boptr.protocol import rate, rate_difference, study_cells
from searchlens.boptr.rows import difference_interval
from searchlens.boptr.rule import Columns, Find, PoolName, Reason, Rule, attempt, by_cell, records, schema
from searchlens.boptr.view import CellCounts, Counts, View
from searchlens.catalogue import frame
from searchlens.config.boptr import REGIMES
from searchlens.errors import InputError

# ---- the Q channel

POOLS: tuple[PoolName, ...] = ("ar", "full")
RL_USED = "own cell's Q (description, not transfer)"
Q_CHANNEL = schema(
    "model group benchmark role regime pool policy beta_q alpha_q alpha_lo alpha_hi path mech_q lo hi corrected "
    "lo_corrected hi_corrected recoverable policies questions gap gap_lo gap_hi diagnostic rl reason",
    rl=pl.String,
)
PENALTY = 0.5
"""Weight of P - Q in the choice of pi_Q (printed)."""
TOLERANCE = 0.05
"""A cell is recoverable if Base's best Q reaches RL's best Q up to this difference."""
REFITS = 1000
"""Most bootstrap draws in which alpha^Q is fitted again."""
Q_SUMMARY = schema("pool role scope regime recoverable cells mech_q", recoverable=pl.UInt32)


def q_policy(base: CellCounts, total: float) -> Ints:
    """pi_Q in every draw, ties by name; C(pi) is that of the selector."""
    order = np.array(sorted(base.autoregressive.tolist(), key=lambda i: base.policies[i]))
    P, Q = (counts[order, -1].astype(float) / total for counts in (base.P, base.Q))
    cost = COST_WEIGHT * relative_cost(base)[order, None]
    chosen: Ints = order[np.round(Q - PENALTY * (P - Q) - cost, 9).argmax(axis=0)]
    return chosen


def voteless(cohort: Cohort, benchmark: str) -> bool:
    """Whether a benchmark has no vote, so that Q is the correctness of the first valid sample.

    This is inferred from the first k samples of all checkpoints, whatever the estimator is. Without a vote Q never
    falls: with more samples a first valid one may appear, but not change. A vote overrules some correct first
    samples. False if no question is solved at all.
    """
    landscapes = [landscape for (_, name), landscape in cohort.landscapes.items() if name == benchmark]
    solved = any(landscape.credit["Q"].any() for landscape in landscapes)
    return solved and not any(landscape.votes_fall for landscape in landscapes)


@frame("qchannel")
def q_channel(rule: Rule, boot: View) -> pl.DataFrame:
    """The Q channel of every cell; an InputError if option ``q_beta`` names a benchmark that is not in the cohort."""
    if unknown := set(rule.options.q_beta) - set(rule.plan.benchmarks):
        raise InputError(f"q_beta names {', '.join(sorted(unknown))}, which is not in the cohort")
    unvoted = {name: voteless(rule.view.cohort, name) for name in rule.plan.benchmarks}
    rows: list[tuple[Columns, Find]] = []
    for (model, benchmark), pool in product(study_cells(rule.plan), POOLS):
        of_cell, group = rule.plan.benchmarks[benchmark], rule.plan.models[model].group
        cell = {"model": model, "group": group, "benchmark": benchmark, "role": of_cell.role, "regime": of_cell.regime}
        find = partial(_in_pool, rule, boot, model, benchmark, pool, diagnostic=unvoted[benchmark])
        rows.append(({**cell, "pool": pool}, find))
    return records(Q_CHANNEL, rows)


@frame("q_summary", of=("qchannel",))
def q_summary(frame: pl.DataFrame) -> pl.DataFrame:
    """Number of recoverable cells, and the mean mech_Q of these.

    One record per pool, role of the benchmarks, scope and regime (``all`` and each regime): ``recoverable`` of
    ``cells``, and ``mech_q``, the mean over the recoverable cells in percentage points, null if there is none. Scope
    ``all`` counts every defined cell, ``voted`` only those of benchmarks with a vote.
    """
    defined = frame.filter(pl.col("reason").is_null())
    parts = []
    for scope, cells in {"all": defined, "voted": defined.filter(~pl.col("diagnostic"))}.items():
        parts.append(pl.concat([cells.with_columns(regime=pl.lit("all")), cells]).with_columns(scope=pl.lit(scope)))
    return (
        pl.concat(parts)
        .group_by("pool", "role", "scope", pl.col("regime").cast(pl.Enum(["all", *REGIMES])))
        .agg(
            pl.col("recoverable").sum(),
            pl.len().alias("cells"),
            pl.col("mech_q").filter("recoverable").mean(),
        )
        .sort("pool", "role", "scope", "regime")
        .cast(Q_SUMMARY)
    )


def _in_pool(rule: Rule, boot: View, model: str, benchmark: str, pool: PoolName, *, diagnostic: bool) -> dict[str, Any]:
    fitted = rule.keep(("Q channel", model, benchmark), lambda: _fitted(rule, boot, model, benchmark))
    if pool == "full" and not has_expanded_pool(rule.view.cohort, model, benchmark):
        raise Reason("no_expanded_pool")
    return {**fitted, "diagnostic": diagnostic, **_recovered(rule, boot, model, benchmark, pool)}


def _fitted(rule: Rule, boot: View, model: str, benchmark: str) -> dict[str, Any]:
    """Columns of pi_Q, N^Q and mech_Q."""
    base, target = rule.cell(model, benchmark, "Q")
    options, budgets, total = rule.options, tuple(rule.plan.budgets), rule.view.total(benchmark)
    chosen, beta = int(q_policy(base, total)[0]), options.q_beta.get(benchmark, 0.0)
    best = fit.fit_locked(base.Q[[chosen]], target, rule.lattice(beta), beta)
    alpha, path = float(best.alpha[0]), [budgets[n] for n in best.path[:, 0]]
    low, high = fit.identified_alpha(alpha, beta, len(budgets))
    # mech_Q of the sample's path in every draw, corrected for the optimism of its scale as well.
    curve, drawn = _on_draws(boot, model, benchmark, base.policies[chosen], budgets)
    fixed, scale = ErrorDraws.of(100 / total * (curve[best.path[:, 0]] - drawn), total), 100 / total
    some = slice(min(REFITS, options.draws) + 1)
    again = fit.fit_locked(curve[None, :, some], drawn[:, some], rule.lattice(beta), beta)
    in_draw = again.error.astype(float)
    in_sample = np.abs(curve[again.path, 0] - drawn[:, :1]).mean(axis=0, dtype=float)
    refitted = inference.refitted(fixed.corrected, fixed.plain, scale * in_draw, scale * in_sample)
    error = ErrorDraws(fixed.plain, refitted, total).columns(options.confidence)
    return {
        "policy": base.policies[chosen],
        "beta_q": beta,
        "alpha_q": alpha,
        "alpha_lo": low,
        "alpha_hi": high,
        "path": "/".join(map(str, path)),
        "mech_q": error.pop("error"),
        **error,
        "rl": RL_USED,
    }


def _recovered(rule: Rule, boot: View, model: str, benchmark: str, pool: PoolName) -> dict[str, Any]:
    """Columns of whether Base reaches RL's best Q, and of the gap."""
    base, target = rule.cell(model, benchmark, "Q")
    budgets, members = rule.plan.budgets, base.pool(pool)
    at, n = divmod(int(fit.first_least(-base.Q[members, :, 0].ravel())), len(budgets))
    policy, best = members[at], int(fit.first_least(-target[:, 0]))
    gap = float(target[best, 0] - base.Q[policy, n, 0])
    total = rule.view.total(benchmark)
    allowed, scale = TOLERANCE * total + fit.SAME, 100 / total
    reached, on_draws = _on_draws(boot, model, benchmark, base.policies[policy], [budgets[n]])
    lo, hi = difference_interval(scale * (on_draws[best] - reached[0]).astype(float), total, rule.options.confidence)
    return {
        "recoverable": gap <= allowed,
        "policies": len(members),
        "questions": round(total),
        "gap": scale * gap,
        "gap_lo": lo,
        "gap_hi": hi,
    }


def _on_draws(boot: View, model: str, benchmark: str, policy: str, budgets: Sequence[int]) -> tuple[Counts, Counts]:
    """Q counts of a policy of Base at budgets, and of the RL target at those of B, in every draw."""
    landscape, target = boot.cohort.base(model, benchmark), boot.target(model, benchmark, "Q")
    assert landscape is not None and target is not None
    return boot.count(landscape, benchmark, "Q", policy, budgets), target


# ---- signatures

SIGNATURES = schema(
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
    """What is compared: a metric at a budget, for a signature; the fields are columns of ``SIGNATURES``."""

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
    cells = by_cell(SIGNATURES, study_cells(rule.plan), partial(_decided, rule, boot))
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


def _decided(rule: Rule, boot: View, model: str, benchmark: str) -> Iterator[dict[str, Any]]:
    led = False
    questions = int(rule.view.total(benchmark)) if benchmark in rule.view.weights else None
    for quantity in _quantities(rule.plan.budgets):
        values = attempt(_compared, rule, boot, model, benchmark, quantity)
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


def _decision(lo: float, hi: float) -> str:
    return "yes" if lo > 0 else "no" if hi < 0 else "undecided"


def _compared(rule: Rule, boot: View, model: str, benchmark: str, quantity: _Quantity) -> dict[str, float]:
    """Columns base, rl, rl_minus_base, lo and hi; both sides must have the default policy at every budget."""
    base, rl = rule.view.cohort.base(model, benchmark), rule.view.cohort.rl(model, benchmark)
    default, metric, budget = rule.plan.default_policy, quantity.metric, quantity.budget
    if base is None:
        raise Reason("no_base")
    if rl is None or default not in rl.complete(rule.plan.budgets):
        raise Reason("no_rl")
    if default not in base.complete(rule.plan.budgets):
        raise Reason("policy_missing")
    if budget is None:
        of_base, of_rl = (rate(side, default, metric) for side in (base, rl))
        if of_base is None or of_rl is None:
            raise Reason("no_rates")
        values: tuple[float, ...] = (of_base[0], of_rl[0], *rate_difference(of_rl, of_base))
    elif rule.view.total(benchmark) == 1:
        raise Reason("one_question")
    elif metric == "Q/P":
        values = _ratio(rule, boot, benchmark, (base, rl), budget)
    else:
        values = _estimate(rule, boot, benchmark, (base, rl), metric, budget)
    return dict(zip(("base", "rl", "rl_minus_base", "lo", "hi"), map(float, values), strict=True))


def _estimate(rule: Rule, boot: View, benchmark: str, pair: _Pair, metric: str, budget: int) -> tuple[float, ...]:
    """The paired difference of one estimate; only T can be unknown."""
    default = rule.plan.default_policy
    base, rl = (side.block(metric, [default], [budget])[0, 0].astype(float) for side in pair)
    if np.isnan(base + rl).any():
        raise Reason("unknown_tokens")
    resamples = Resamples(boot.weights[benchmark][:, 1:])
    difference, confidence = (rl - base).mean(), rule.options.confidence
    lo, hi = with_width(difference, resamples.interval((rl - base)[:, None], confidence), len(base), confidence)
    return base.mean(), rl.mean(), difference, lo[0], hi[0]


def _ratio(rule: Rule, boot: View, benchmark: str, pair: _Pair, budget: int) -> tuple[float, ...]:
    ratios, solved, confidence = [], [], rule.options.confidence
    for side in pair:
        Q, P = (boot.count(side, benchmark, metric, rule.plan.default_policy, [budget])[0] for metric in "QP")
        ratios.append(np.divide(Q, P, out=np.full(len(P), np.nan), where=P > 0))
        solved.append(P[0])
    base, rl = ratios
    difference = rl - base
    if np.isnan(difference[0]):
        raise Reason("no_support")
    lowest, highest = (np.where(np.isnan(difference), end, difference)[None, 1:] for end in (-1.0, 1.0))
    drawn = Interval(quantiles(lowest, confidence).lo, quantiles(highest, confidence).hi)
    lo, hi = with_width(difference[0], drawn, min(solved), confidence)
    return base[0], rl[0], difference[0], lo[0], hi[0]


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
