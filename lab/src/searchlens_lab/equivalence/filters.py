"""A second implementation of the local policies: one distribution at a time, as plain as the engine's contract."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from searchlens.engines.base import Sampling

Vector = npt.NDArray[np.float64]


def penalised(logits: Vector, sampling: Sampling, prompt: Sequence[int], generated: Sequence[int]) -> Vector:
    """Logits after the penalties, shape (vocab,); ``prompt`` and ``generated`` are token ids."""
    result = logits.copy()
    for token in {*prompt, *generated}:
        factor = sampling.repetition_penalty
        result[token] = result[token] / factor if result[token] > 0 else result[token] * factor
    for token in set(generated):
        result[token] -= sampling.frequency_penalty * list(generated).count(token) + sampling.presence_penalty
    return result


def distribution(
    logits: Vector, sampling: Sampling, prompt: Sequence[int] = (), generated: Sequence[int] = ()
) -> Vector:
    """The distribution q from which a token is drawn, with the filters in the order of ``searchlens.engines.base``.

    ``prompt``, ``generated``: token ids that count for penalties. The result sums to 1. Equal logits at the edge of a
    filter are kept or dropped as NumPy sorts them.
    """
    logits = penalised(logits, sampling, prompt, generated)
    if sampling.temperature == 0:
        return np.asarray(np.eye(len(logits))[np.argmax(logits)])
    q = _normalised(np.exp((logits - logits.max()) / sampling.temperature))
    q = _normalised(np.where(q >= sampling.min_p * q.max(), q, 0))
    if sampling.typical_p < 1:
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.nansum(q * np.log(q))
            distance = np.abs(-np.log(q) - entropy)
        q = _normalised(np.where(_until(q, np.argsort(distance), sampling.typical_p), q, 0))
    if sampling.top_k:
        q = _normalised(np.where(np.argsort(np.argsort(-q)) < sampling.top_k, q, 0))
    if sampling.top_p < 1:
        q = _normalised(np.where(_until(q, np.argsort(-q), sampling.top_p), q, 0))
    return q


def inverse_cdf(q: Vector, uniform: float) -> int:
    """The first token, in the order of ids, at which the cumulative probability exceeds ``uniform``, in [0, 1)."""
    return int(np.flatnonzero(np.cumsum(q) > uniform)[0])


def _until(q: Vector, order: npt.NDArray[np.intp], mass: float) -> npt.NDArray[np.bool_]:
    """Whether each token is among the first ones in ``order`` whose sum reaches ``mass``."""
    inside = np.zeros(len(q), bool)
    total = 0.0
    for token in order:
        inside[token] = True
        total += q[token]
        if total >= mass:
            break
    return inside


def _normalised(q: Vector) -> Vector:
    return np.asarray(q / q.sum())
