"""Can a model's offset be predicted from Base alone? Row V5b, and the linear probe V4.

``V5B_ROWS`` holds the row, ``offsets`` reports each delta-hat and its parts, ``v4`` is the leave-one-model-out ridge of
ln alpha_math with its null. Features are proportions; logarithms are natural unless a name says log2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.uncertainty import Floats
from searchlens.boptr.fit import Ints
from searchlens.boptr.frontier import FEATURES, fingerprint
from searchlens.boptr.rows import At, Prediction, Row
from searchlens.boptr.rule import Reason, Rule, defined, kept, records, schema
from searchlens.catalogue import frame
from searchlens.config.boptr import LN2
from searchlens.seeds import resampler

MIN_MODELS = 4
"""Fewest models for a regression: with three, a slope and an intercept leave one degree of freedom."""
FLAT = 1e-9
"""A feature with a smaller standard deviation counts as constant; features are proportions and logarithms."""
GATE_Z = 2.0
"""Row V5b: a model is typical if every standardised feature is at most this far from 0."""
RIDGE = 1.0
"""Penalty on standardised features, in row V5b and in V4."""
SHUFFLES = 100
"""Shuffles of y in the null distribution of V4."""

# ---- standardised ridge, on an axis of draws


def standardise(train: Floats, target: Floats) -> tuple[Floats, Floats]:
    """z-scores (ddof 0) among the training models, shape (features, models, draws), and of a target, (features, draws).

    A feature that is constant over the training models is 0 in both.
    """
    mean, sd = train.mean(axis=1), train.std(axis=1)
    flat = sd <= FLAT
    scale = np.where(flat, np.inf, sd)
    return (train - mean[:, None]) / scale[:, None], (target - mean) / scale


def ridge(z: Floats, y: Floats, target: Floats, penalty: float) -> Floats:
    """Ridge prediction for a target, with an unpenalised intercept, shape (draws,); shapes as in ``standardise``.

    ``penalty`` is added to the sums of squares over models. With 0, the least-squares solution of smallest norm.
    """
    mean = y.mean(axis=0)
    gram = np.einsum("fmd,gmd->dfg", z, z) + penalty * np.eye(len(z))
    weight = np.linalg.pinv(gram, rcond=1e-10, hermitian=True) @ np.einsum("fmd,md->df", z, y - mean)[..., None]
    predicted: Floats = mean + np.einsum("df,fd->d", weight[..., 0], target)
    return predicted


# ---- V5b


@dataclass(frozen=True, eq=False)
class Offset:
    """delta-hat of one model by both branches, each of shape (draws,)."""

    ridge: Floats
    """Ridge of delta on the fingerprint."""
    tail: Floats
    """Tail consistency: the mean offset plus the difference of ln N* from its mean."""
    z: Floats
    """z-scores of the model's fingerprint among the training models. Shape (features, draws)."""
    typical: npt.NDArray[np.bool_]
    """Whether every abs(z) is within option ``gate_z``, which selects the ridge. Otherwise, also if a z is undefined,
    the tail is used."""

    @property
    def value(self) -> Floats:
        """delta-hat: the ridge for a typical model, otherwise the tail."""
        return np.where(self.typical, self.ridge, self.tail)


@kept()
def offset(rule: Rule, model: str) -> Offset:
    """Predict a model's offset from the other models' offsets and Base alone.

    The training models are those of the cohort with another Base checkpoint. A new model has the fingerprint of the
    fitted model with the same Base, so both RL recipes get the same prediction.

    mu stays frozen, as in the paper, and contains the target's own ln alpha with a weight of 1/n. In math this cancels,
    because training offsets and prediction use the same mu; in other regimes -delta_m / (n - 1) of it remains in
    delta-hat. A rule fitted ``without`` the model contains nothing of it.
    """
    source = _same_base(rule, model)
    if source is None:
        raise Reason("outside_cohort")
    features = fingerprint(rule, source)
    others = [m for m in rule.cohort_models if rule.plan.models[m].base != rule.plan.models[model].base]
    offsets = defined((name, partial(rule.delta, name)) for name in others)
    training = defined((name, partial(fingerprint, rule, name)) for name in offsets)
    if len(training) < MIN_MODELS:
        raise Reason("too_few_models")
    x = np.stack(list(training.values()), axis=1)
    delta = np.stack([offsets[name] for name in training])
    z, target = standardise(x, np.stack(features))
    tail = delta.mean(axis=0) + LN2 * (features.log2_n_star - x[FEATURES.index("log2_n_star")].mean(axis=0))
    typical = np.abs(target).max(axis=0) <= GATE_Z
    return Offset(ridge(z, delta, target, RIDGE), tail, target, typical)


def _same_base(rule: Rule, model: str) -> str | None:
    """The fitted model with the same Base: the model itself, for a new model the first such one, or None."""
    fitted, models = rule.plan.fitted_models, rule.plan.models
    if model in fitted:
        return model
    return next((name for name in fitted if models[name].base == models[model].base), None)


def base_only(rule: Rule, at: At) -> Prediction:
    """V5b: V3 with the predicted offset instead of the calibrated one."""
    return rule.path(*at.cell, rule.mu(at.benchmark) + offset(rule, at.model).value)


V5B_ROWS = (
    Row(
        "V5b",
        "paper's rule, δ from Base (V5b)",
        "rule",
        "other models' offsets; none of the target's",
        base_only,
    ),
)


@frame("offsets", of=("rule",))
def offsets(rule: Rule) -> pl.DataFrame:
    """delta-hat of every model on the sample, with its parts.

    ``delta``: the calibrated offset, null without an own pair; ``branch``: ``ridge`` or ``tail``, whose predictions
    follow; then the largest z and the fingerprint.
    """
    known: dict[str, dict[str, object]] = {model: {"model": model} for model in rule.plan.models}
    for model, delta in defined((m, partial(rule.delta, m)) for m in known).items():
        known[model]["delta"] = delta[0]
    for model, features in defined((m, partial(fingerprint, rule, _same_base(rule, m) or m)) for m in known).items():
        known[model] |= {name: values[0] for name, values in features._asdict().items()}
    return records(_OFFSETS, ((record, partial(_predicted, rule, model)) for model, record in known.items()))


_OFFSETS = schema(f"model delta delta_hat branch ridge tail largest_z {' '.join(FEATURES)} reason")


def _predicted(rule: Rule, model: str) -> dict[str, object]:
    predicted = offset(rule, model)
    return {
        "delta_hat": predicted.value[0],
        "branch": "ridge" if predicted.typical[0] else "tail",
        "ridge": predicted.ridge[0],
        "tail": predicted.tail[0],
        "largest_z": np.abs(predicted.z[:, 0]).max(),
    }


# ---- V4


@dataclass(frozen=True, eq=False)
class V4:
    """The linear probe (paper, appendix "V4")."""

    features: pl.DataFrame
    """feature; pearson_r with ln alpha_math over all models; loo_pseudo_r2 and loo_pseudo_r2_raw, scores of the ridge
    on this feature alone, standardised and raw; reason. Most correlated first."""
    null: pl.DataFrame
    """shuffle (from 1); score and score_raw, the paper's statistic on shuffled y."""
    summary: pl.DataFrame
    """scale, ``standardised`` or ``raw``; selection; k; models; loo_pseudo_r2; p; q05, q50, q95 of the scores on the
    shuffles of y; reason. Selection ``all_models`` is the paper's statistic: the feature with the largest abs(r) over
    all models, so the held-out model takes part in the choice. ``in_fold`` takes the k features with the largest abs(r)
    among the training models."""


Scale = Literal["standardised", "raw"]
SCALES: tuple[Scale, ...] = ("standardised", "raw")
_FEATURES = schema("feature pearson_r loo_pseudo_r2 loo_pseudo_r2_raw reason")
_NULL = schema("shuffle score score_raw")
_SUMMARY = schema("scale selection k models loo_pseudo_r2 p q05 q50 q95 reason", models=pl.Int64)


class _Probe(NamedTuple):
    """One record of the summary."""

    scale: Scale
    selection: str
    k: int


_PROBES = [
    _Probe(scale, *selection)
    for scale in SCALES
    for selection in (("all_models", 1), ("in_fold", 1), ("in_fold", 2), ("in_fold", 3))
]


def v4(rule: Rule) -> V4:
    """Leave-one-model-out ridge of ln alpha_math on Base features of the fitted benchmarks, with its null.

    Undefined with fewer than ``MIN_MODELS`` calibrated models (``too_few_models``), or if all have the same alpha
    (``constant``). A feature that is missing for some model is left out (``no_base``), as is the size if it is unknown
    for some. A constant feature has no correlation (``constant``) and is chosen last.

    Scaling and ridge are fitted inside each fold. pseudo-R2 = 1 - SSE_loo / SST, with SST about the mean of all models,
    so a prediction by the training mean scores 1 - (n/(n-1))^2. The null shuffles y and chooses the feature again on
    each shuffle, so the choice is part of the null; p = (1 + #{null >= observed}) / (1 + shuffles).

    Both scales are reported. Features are proportions, so on the raw scale a penalty of 1 outweighs them: the ridge can
    hardly move, and every score is near that of the training mean, as the paper's printed scores are. Standardised
    features spread the scores and the null far more.
    """
    calibrated = {name: value[0] for name, value in rule.log_alphas(rule.plan.anchor_benchmark).items()}
    y, table = np.array(list(calibrated.values())), _v4_features(rule, list(calibrated))
    complete = {name: value for name, value in table.items() if value is not None}
    missing = [{"feature": name, "reason": "no_base"} for name, value in table.items() if value is None]
    if len(y) < MIN_MODELS or not complete or np.ptp(y) <= FLAT:
        problem = "too_few_models" if len(y) < MIN_MODELS else "constant" if complete else "no_base"
        features = pl.DataFrame([{"feature": name, "reason": problem} for name in complete] + missing, _FEATURES)
        summary = [{**probe._asdict(), "models": len(y), "reason": problem} for probe in _PROBES]
        return V4(features, pl.DataFrame([], _NULL), pl.DataFrame(summary, _SUMMARY))
    x = np.stack(list(complete.values()))
    rng = resampler(rule.options.seed, len(y), SHUFFLES)
    # y itself, then its shuffles.
    shuffled = np.concatenate([y[:, None], rng.permuted(np.repeat(y[:, None], SHUFFLES, axis=1), axis=0)], axis=1)
    scores = {probe: _score(probe, x, shuffled) for probe in _PROBES}
    paper, raw = (scores[_Probe(scale, "all_models", 1)][1:] for scale in SCALES)
    null = {"shuffle": np.arange(1, shuffled.shape[1]), "score": paper, "score_raw": raw}
    summary = [{**probe._asdict(), "models": len(y), **_against_null(score)} for probe, score in scores.items()]
    features = pl.concat([_single(list(complete), x, y), pl.DataFrame(missing, _FEATURES)])
    return V4(features, pl.DataFrame(null, _NULL), pl.DataFrame(summary, _SUMMARY))


def _v4_features(rule: Rule, models: list[str]) -> dict[str, Floats | None]:
    """Features by name, shape (models,); None if a feature is missing for some model."""
    features: dict[str, Floats | None] = {}
    first, last = rule.plan.budgets[0], rule.plan.budgets[-1]
    names = (f"P0_b{first}", f"P0_b{last}", f"Pmax_b{first}", f"Pmax_b{last}", "Dp", "Hp")
    for benchmark in rule.plan.with_role("fitted"):
        cells = [cell for model in models if (cell := _cell_features(rule, model, benchmark))]
        for i, name in enumerate(names):
            complete = len(cells) == len(models)
            features[f"{benchmark}__{name}"] = np.array([cell[i] for cell in cells]) if complete else None
    sizes = [size for model in models if (size := rule.plan.models[model].parameters)]
    if len(sizes) == len(models):
        features["log_size"] = np.log(sizes)
    return features


def _cell_features(rule: Rule, model: str, benchmark: str) -> tuple[float, ...] | None:
    base = rule.view.base(model, benchmark)
    if base is None or rule.plan.default_policy not in base.index:
        return None
    P = base.P[:, :, 0].astype(float) / rule.view.total(benchmark)
    p0_first, p0_last = P[base.index[rule.plan.default_policy], [0, -1]]
    top_first, top_last = P[base.autoregressive][:, [0, -1]].max(axis=0)
    return p0_first, p0_last, top_first, top_last, p0_last - p0_first, top_last - p0_last


def _correlation(x: Floats, y: Floats) -> Floats:
    """Pearson r of features (features, models) with columns of y (models, draws); 0 for a constant feature."""
    z = standardise(x[:, :, None], x[:, 0, None])[0][:, :, 0]
    r: Floats = z @ (y - y.mean(axis=0)) / (len(y) * y.std(axis=0))
    return r


def _leading(r: Floats, k: int) -> Ints:
    """The k features with the largest abs(r) in each draw, ties in the order of features; shape (k, draws)."""
    order: Ints = np.argsort(-np.abs(np.round(r, 9)), axis=0, kind="stable")
    return order[:k]


def loo_score(x: Floats, y: Floats, penalty: float, k: int | None = None, scale: Scale = "standardised") -> Floats:
    """pseudo-R2 of leave-one-model-out ridge, with features scaled and chosen inside each fold; shape (draws,).

    At most 1; negative if the mean of all models predicts better. ``x`` has the shape (features, models), ``y``
    (models, draws) without a constant column. Used are the ``k`` features with the largest abs(r) with y over the
    training models, by default all. Raw features are only centred.
    """
    squared = np.zeros(y.shape[1])
    for i, actual in enumerate(y):
        rest, target = np.delete(y, i, axis=0), np.broadcast_to(x[:, i, None], (len(x), y.shape[1]))
        train = np.broadcast_to(np.delete(x, i, axis=1)[:, :, None], (len(x), *rest.shape))
        z, z_target = standardise(train, target)
        # This orders features as abs(r) does: z has unit variance, and y is the same for all features.
        chosen = _leading(np.einsum("fmd,md->fd", z, rest - rest.mean(axis=0)), len(x) if k is None else k)
        if scale == "raw":
            z, z_target = train - train.mean(axis=1, keepdims=True), target - train.mean(axis=1)
        z, z_target = np.take_along_axis(z, chosen[:, None], 0), np.take_along_axis(z_target, chosen, 0)
        squared += (actual - ridge(z, rest, z_target, penalty)) ** 2
    score: Floats = 1 - squared / ((y - y.mean(axis=0)) ** 2).sum(axis=0)
    return score


def _score(probe: _Probe, x: Floats, y: Floats) -> Floats:
    """The score of a probe in each draw."""
    scale, selection, k = probe
    if selection == "in_fold":
        return loo_score(x, y, RIDGE, k, scale)
    each = np.stack([loo_score(feature[None], y, RIDGE, scale=scale) for feature in x])
    leader: Floats = np.take_along_axis(each, _leading(_correlation(x, y), 1), axis=0)[0]
    return leader


def _single(names: list[str], x: Floats, y: Floats) -> pl.DataFrame:
    """Correlation and scores of every feature alone, the most correlated first."""
    flat = x.std(axis=1) <= FLAT
    alone = [[loo_score(feature[None], y[:, None], RIDGE, scale=scale)[0] for feature in x] for scale in SCALES]
    columns = {
        "feature": names,
        "pearson_r": np.where(flat, np.nan, _correlation(x, y[:, None])[:, 0]),
        "loo_pseudo_r2": alone[0],
        "loo_pseudo_r2_raw": alone[1],
        "reason": ["constant" if is_flat else None for is_flat in flat],
    }
    table = pl.DataFrame(columns, _FEATURES).with_columns(pl.col("pearson_r").fill_nan(None))
    return table.sort(pl.col("pearson_r").abs(), descending=True, nulls_last=True, maintain_order=True)


def _against_null(score: Floats) -> dict[str, float]:
    """The observed score, its p-value and the quantiles of the scores of the shuffles."""
    observed, null = score[0], score[1:]
    # A shuffle that changes no pair gives the observed score up to rounding, and counts as reaching it.
    p = (1 + (null >= observed - FLAT).sum()) / (1 + len(null))
    low, middle, high = np.quantile(null, [0.05, 0.5, 0.95])
    return {"loo_pseudo_r2": observed, "p": p, "q05": low, "q50": middle, "q95": high}
