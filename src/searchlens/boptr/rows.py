"""The rows of the paper's tables: each predicts the RL curve of a cell, from a stated amount of RL information.

A row is a function of a fitted ``Rule`` and a cell. It returns a ``Path`` through the cell's own Base landscape, or a
``Curve`` if it predicts without a path, or raises the ``Reason`` why it is undefined in the cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from searchlens.analysis.uncertainty import Floats, Interval, quantiles, wilson, with_width
from searchlens.boptr import fit, inference
from searchlens.boptr.cohort import DenseLandscape
from searchlens.boptr.fit import Array, Ints
from searchlens.boptr.inference import ErrorDraws
from searchlens.boptr.rule import Path, PoolName, Reason, Rule, attempt, kept
from searchlens.boptr.view import CellCounts, Counts, View
from searchlens.search.kinds import NO_POLICIES, PolicyByName, policy_of

Kind = Literal["baseline", "rule", "copy", "oracle", "ablation", "frontier", "rival"]


@dataclass(frozen=True, eq=False)
class Curve:
    """A predicted RL curve that is no path through the cell's Base landscape."""

    counts: Counts
    """Predicted number of solved questions. Shape (budgets, draws)."""
    terms: tuple[tuple[float, str], ...] = ()
    """Shares and checkpoints: the prediction is the weighted sum of the checkpoints' curves under the default policy at
    N = b, clipped to the possible range. Empty if it is no such sum."""


@dataclass(frozen=True, eq=False)
class Blend(Curve):
    """The mean of the curves along several paths."""

    paths: tuple[Path, ...] = ()
    """None of them may skip a budget."""


Prediction = Path | Curve


@dataclass(frozen=True)
class At:
    """Where a row predicts: a cell and a pool."""

    model: str
    benchmark: str
    pool: PoolName = "ar"

    @property
    def cell(self) -> tuple[str, str]:
        """Model and benchmark."""
        return self.model, self.benchmark


Predict = Callable[[Rule, At], Prediction]


@dataclass(frozen=True)
class Row:
    """One row of the tables."""

    key: str
    """Short name, such as ``H5``, ``V3`` or ``A1``; column ``rule`` of the frames."""
    label: str
    """Name that tables print, with the key in brackets."""
    kind: Kind
    """Purpose of the row. An ``oracle`` is fitted to the very RL curve that it is scored on."""
    rl: str
    """The RL information that it uses."""
    predict: Predict
    """From a rule and a place to a prediction."""
    pools: tuple[PoolName, ...] = ("ar",)
    """``ar`` and ``full`` if the row takes its policies from a pool directly, otherwise ``ar`` only."""
    copies: Literal["", "anchor cell", "same benchmark"] = ""
    """For a copied path, its source: the anchor model on the anchor benchmark, or on the benchmark of the cell."""


def _same_budgets(rule: Rule) -> Ints:
    return np.repeat(np.arange(rule.view.levels)[:, None], rule.view.draws, axis=1)


def _constant(rule: Rule, base: CellCounts, name: str, budget: Ints | None = None) -> Path:
    if name not in base.index:
        raise Reason("policy_missing")
    budget = _same_budgets(rule) if budget is None else budget
    return Path(np.full(budget.shape, base.index[name]), budget)


def temperatures(names: Sequence[str], configured: PolicyByName = NO_POLICIES) -> dict[str, float]:
    """Those of these policies that only set a temperature, with their temperatures; or ``policy_missing``."""
    parsed = {name: policy_of(name, configured) for name in names}
    pure = {
        name: policy.local.temperature for name, policy in parsed.items() if policy and policy.family == "temperature"
    }
    if not pure:
        raise Reason("policy_missing")
    return pure


def base_greedy(rule: Rule, at: At) -> Prediction:
    """H1: N = b at the lowest pure temperature of the pool."""
    base = rule.base(*at.cell)
    temperature = temperatures(base.policies, rule.plan.configured)
    return _constant(rule, base, min(temperature, key=lambda name: temperature[name]))


def _best_policies(rule: Rule, members: Ints, distance: Array) -> Path:
    """N = b with the first policy of the least distance, at each budget or at all."""
    budget = _same_budgets(rule)
    return Path(np.broadcast_to(members[fit.first_least(distance)], budget.shape), budget)


def same_policy(rule: Rule, at: At) -> Prediction:
    """H2: the RL default policy on Base, N = b."""
    return _constant(rule, rule.base(*at.cell), rule.plan.default_policy)


def anchor_copy(rule: Rule, at: At) -> Prediction:
    """H3: the points of the anchor cell's H6; a budget is left out if the cell has no such policy."""
    return _transplant(rule, two_d_oracle(rule, At(*rule.anchor, at.pool)), rule.anchor, at, skip=True)


def strict(rule: Rule, at: At) -> Prediction:
    """H4: the anchor cell's alpha and exponent on every benchmark, with the selector."""
    return rule.path(*at.cell, rule.log_alpha(*rule.anchor), rule.beta(rule.plan.anchor_benchmark))


def boptr(rule: Rule, at: At) -> Path:
    """H5: BOPTR-P1 with the anchor's offset."""
    return rule.path(*at.cell, rule.mu(at.benchmark) + rule.delta(rule.plan.anchor_model))


@kept(shared=True)
def two_d_oracle(rule: Rule, at: At) -> Path:
    """H6 and ORACLE-2D: at each b the point (pi, n) nearest to RL; ties to the smaller n, then the earlier policy."""
    base, target = rule.cell(*at.cell)
    members = base.pool(at.pool)
    nearest = fit.first_least(np.abs(base.P[members].transpose(1, 0, 2).reshape(-1, 1, base.P.shape[2]) - target))
    budget, policy = np.divmod(nearest, len(members))
    return Path(*np.broadcast_arrays(members[policy], budget))


@kept(shared=True)
def one_d_oracle(rule: Rule, at: At) -> Prediction:
    """ORACLE-1D: at each b the policy that is nearest to RL at N = b."""
    base, target = rule.cell(*at.cell)
    members = base.pool(at.pool)
    return _best_policies(rule, members, np.abs(base.P[members] - target))


def smooth(rule: Rule, at: At) -> Path:
    """H7 and V1: the cell's own R1 fit."""
    best = rule.smooth(*at.cell, at.pool)
    return Path(np.broadcast_to(best.policy, best.path.shape), best.path, best.alpha, best.beta)


def anchor_path(rule: Rule, at: At) -> Prediction:
    """V2-path: the anchor model's R1 path on the same benchmark; undefined if the cell has no such policy."""
    anchor = rule.plan.anchor_model, at.benchmark
    source = attempt(smooth, rule, At(*anchor, at.pool))
    if isinstance(source, Reason):
        raise Reason("no_anchor_cell")
    return _transplant(rule, source, anchor, at, skip=False)


def calibrated(rule: Rule, at: At) -> Path:
    """V3 and MAIN: BOPTR-P1 with delta_m from the model's own pair on the anchor benchmark."""
    return rule.path(*at.cell, rule.mu(at.benchmark) + rule.delta(at.model))


def no_offset(rule: Rule, at: At) -> Prediction:
    """V2-delta0, A2 and the zero-calibration reference: BOPTR-P1 with delta_m = 0."""
    return rule.path(*at.cell, rule.mu(at.benchmark))


def anchor_log_alpha(rule: Rule, benchmark: str) -> Floats:
    """Ln alpha of B0, shape (draws,): the anchor cell's in its regime, mu_g in the others."""
    in_regime = rule.regime(benchmark) == rule.regime(rule.plan.anchor_benchmark)
    return rule.log_alpha(*rule.anchor) if in_regime else rule.mu(benchmark)


def anchor_scale(rule: Rule, at: At) -> Path:
    """B0: one scale for every model, delta = 0."""
    return rule.path(*at.cell, anchor_log_alpha(rule, at.benchmark))


def no_selector(rule: Rule, at: At) -> Prediction:
    """A1: N-hat of MAIN under the RL default policy, without the selector."""
    budget = rule.n_hat(rule.mu(at.benchmark) + rule.delta(at.model), rule.beta(at.benchmark))
    return _constant(rule, rule.base(*at.cell), rule.plan.default_policy, budget)


def same_budget(rule: Rule, at: At) -> Prediction:
    """A3: N = b, with the selector."""
    return rule.path(*at.cell, np.zeros(rule.view.draws), np.ones(rule.view.draws))


def cell_fit(rule: Rule, at: At) -> Prediction:
    """mech_cell: the cell's own alpha at beta_g, with the selector; nonmath cells have alpha = 1 by construction."""
    nonmath = rule.regime(at.benchmark) == "nonmath"
    return rule.path(*at.cell, np.zeros(rule.view.draws) if nonmath else rule.log_alpha(*at.cell))


def cohort_curve(rule: Rule, at: At) -> Prediction:
    """The mean RL curve of the other fitted models on the benchmark."""
    others = _others(rule, at)
    if not others:
        raise Reason("no_other_models")
    return Curve(np.mean(list(others.values()), axis=0), tuple((1 / len(others), _rl(rule, m)) for m in others))


def base_plus_gain(rule: Rule, at: At) -> Prediction:
    """Base under the default policy at N = b, plus the mean gain of the other fitted models at that budget."""
    default = rule.view.default(*at.cell)
    if default is None:
        raise Reason("policy_missing")
    others = [(m, target, rule.view.default(m, at.benchmark)) for m, target in _others(rule, at).items()]
    gains = {m: target - base for m, target, base in others if base is not None}
    if not gains:
        raise Reason("no_other_models")
    predicted = np.clip(default + np.mean(list(gains.values()), axis=0), 0, rule.view.total(at.benchmark))
    terms = [(1.0, rule.plan.models[at.model].base)]
    for m in gains:
        terms += [(1 / len(gains), _rl(rule, m)), (-1 / len(gains), rule.plan.models[m].base)]
    return Curve(predicted, tuple(terms))


def low_temperature(rule: Rule, at: At) -> Prediction:
    """N = b at the pure temperature with the best Base pass@1."""
    base = rule.base(*at.cell)
    candidates = np.array([base.index[name] for name in temperatures(base.policies, rule.plan.configured)])
    return _best_policies(rule, candidates, -base.P[candidates, 0])


def _rl(rule: Rule, model: str) -> str:
    """The RL checkpoint of a model that has one."""
    rl = rule.plan.models[model].rl
    assert rl is not None
    return rl


def _others(rule: Rule, at: At) -> dict[str, Counts]:
    """RL curves of the other fitted models on the benchmark."""
    curves = {m: rule.view.target(m, at.benchmark) for m in rule.plan.fitted_models if m != at.model}
    return {m: curve for m, curve in curves.items() if curve is not None}


def _transplant(rule: Rule, path: Path, source: tuple[str, str], at: At, *, skip: bool) -> Path:
    """The same policies, by name, and the same budgets in another cell."""
    there, here = rule.base(*source), rule.base(*at.cell)
    position = np.array([here.index.get(name, -1) for name in there.policies])
    policy = position[path.policy]
    missing = policy < 0
    if not missing.any():
        return Path(policy, path.budget, path.alpha, path.beta, path.skip)
    if not skip or missing.all(axis=0).any():
        raise Reason("policy_missing")
    return Path(np.where(missing, 0, policy), path.budget, path.alpha, path.beta, missing)


def path_text(path: Path, budgets: tuple[int, ...], draw: int = 0) -> str:
    """N(b) of a path, such as ``2/4/8/8/16``; ``-`` at a budget that is left out."""
    skip = path.skip[:, draw] if path.skip is not None else np.zeros(len(path.budget), bool)
    return "/".join("-" if skipped else str(budgets[n]) for n, skipped in zip(path.budget[:, draw], skip, strict=True))


_ANCHOR = "anchor, anchor benchmark"
ROWS = (
    Row("H1", "Base, greedy (H1)", "baseline", "none", base_greedy),
    Row("H2", "Base, same policy (H2)", "baseline", "none", same_policy),
    Row("H3", "anchor's best points, copied (H3)", "copy", _ANCHOR, anchor_copy, ("ar", "full"), copies="anchor cell"),
    Row("H4", "paper's rule, one β (H4)", "rule", _ANCHOR, strict),
    Row("H5", "paper's rule, β by regime (H5)", "rule", "anchor; cohort through μ", boptr),
    Row("H6", "best point at each b, oracle (H6)", "oracle", "own cell", two_d_oracle, ("ar", "full")),
    Row("H7", "best law path, oracle (H7)", "oracle", "own cell", smooth, ("ar", "full")),
    Row("V1", "best law path, oracle (V1)", "oracle", "own cell", smooth, ("ar", "full")),
    Row(
        "V2",
        "anchor's path, copied (V2)",
        "copy",
        "anchor, every benchmark",
        anchor_path,
        ("ar", "full"),
        copies="same benchmark",
    ),
    Row("V2-δ0", "paper's rule without δ (V2-δ0)", "rule", "cohort through μ", no_offset),
    Row("V3", "paper's rule, own δ (V3)", "rule", "own pair on the anchor benchmark; cohort through μ", calibrated),
    Row("A1", "V3 without the policy selector (A1)", "ablation", "as V3", no_selector),
    Row("A2", "V3 without the offset δ (A2)", "ablation", "cohort through μ", no_offset),
    Row("A3", "V3 without the budget rule (A3)", "ablation", "none for α", same_budget),
    Row("ORACLE-1D", "best policy at N = b, oracle (ORACLE-1D)", "oracle", "own cell", one_d_oracle, ("ar", "full")),
    Row("cell-fit", "α of each cell, β by regime (cell-fit)", "oracle", "own cell", cell_fit),
    Row("B0", "anchor's α, no δ (B0)", "frontier", _ANCHOR, anchor_scale),
    Row("mean RL", "cohort-mean RL curve", "rival", "other models, same benchmark", cohort_curve),
    Row("Base+gain", "Base plus mean gain", "rival", "other models, same benchmark", base_plus_gain),
    Row("low temp", "N=b at the best low temperature", "rival", "none", low_temperature),
)


def curve(prediction: Path | Curve, base: CellCounts | None, draws: int) -> Counts:
    """Predicted counts of the RL curve, shape (budgets, draws)."""
    if isinstance(prediction, Curve):
        return np.broadcast_to(prediction.counts, (prediction.counts.shape[0], draws))
    assert base is not None
    counts: Counts = base.P[prediction.policy, prediction.budget, np.minimum(np.arange(draws), base.P.shape[2] - 1)]
    return counts


def mech(prediction: Path | Curve, base: CellCounts | None, target: Counts, total: float, draws: int) -> Floats:
    """mech_P = 100 mean_b |P_hat(b) - P_RL(b)| in every draw, percentage points, shape (draws,).

    ``base`` is not needed for a ``Curve``. The mean leaves out the budgets that the path skips; NaN in a draw that
    skips all.
    """
    gap = np.abs(curve(prediction, base, draws) - target)
    skip = prediction.skip if isinstance(prediction, Path) else None
    if skip is None:
        mean = gap.mean(axis=0)
    else:
        counted = ~np.broadcast_to(skip, gap.shape)
        mean = (gap * counted).sum(axis=0) / counted.sum(axis=0)
    error: Floats = 100 * mean.astype(float) / total
    return error


# ---- single points

Point = tuple[str, int]
"""Policy and budget."""


def operating_points(rule: Rule, base: CellCounts, path: Path) -> list[Point]:
    """The points of a path in draw 0, one for each budget of B."""
    policy = np.broadcast_to(path.policy, path.budget.shape)
    return [(base.policies[i], rule.plan.budgets[n]) for i, n in zip(policy[:, 0], path.budget[:, 0], strict=True)]


def point_counts(view: View, landscape: DenseLandscape, benchmark: str, points: Sequence[Point]) -> Counts:
    """Solved questions at each point, shape (points, draws)."""
    return np.concatenate([view.count(landscape, benchmark, "P", policy, [n]) for policy, n in points])


def point_errors(view: View, model: str, benchmark: str, points: Sequence[Point], budgets: Sequence[int]) -> ErrorDraws:
    """mech_P of points of Base, one for each of some budgets of the RL default curve, in a cell that has both sides.

    Corrected for the bias of absolute values, not for any choice of the points. A KeyError if one was not sampled.
    """
    base, rl = both_sides(view, model, benchmark)
    target = view.count(rl, benchmark, "P", view.plan.default_policy, budgets)
    total = view.total(benchmark)
    return ErrorDraws.of(100 / total * (point_counts(view, base, benchmark, points) - target), total)


def both_sides(view: View, model: str, benchmark: str) -> tuple[DenseLandscape, DenseLandscape]:
    """The Base and the RL landscape of a cell that has both (``Rule.cell``)."""
    base, rl = view.cohort.base(model, benchmark), view.cohort.rl(model, benchmark)
    assert base is not None and rl is not None
    return base, rl


def difference_interval(
    draws: Floats, questions: float, confidence: float, limits: tuple[float, float] = (-100.0, 100.0)
) -> tuple[float | None, float | None]:
    """Percentile interval of a difference of estimates over the draws of a view, whose entry 0 is the sample.

    It contains the difference and has a width (``uncertainty.with_width``, also for ``limits``). None, as frames hold
    it, if undefined.
    """
    ends = with_width(draws[0], inference.interval(draws, confidence), questions, confidence, limits)
    return inference.defined(ends.lo), inference.defined(ends.hi)


def estimate_interval(boot: View, counts: Counts, benchmark: str, confidence: float) -> Interval:
    """Intervals of single estimates (``point_counts`` of bootstrap draws), as proportions.

    First-k estimates are counts and have Wilson intervals. Unbiased ones are means of shares, with percentiles of the
    bootstrap over questions, with a width where no draw differs (``uncertainty.with_width``).
    """
    total = boot.total(benchmark)
    if boot.cohort.estimator == "first_k":
        return wilson(counts[:, 0], total, confidence)
    shares = counts.astype(float) / total
    return with_width(shares[:, 0], quantiles(shares[:, 1:], confidence), total, confidence, (0.0, 1.0))


def budgets_text(points: Sequence[Point]) -> str:
    """Budgets of points, such as ``2/4/8/8/16``."""
    return "/".join(str(n) for _, n in points)
