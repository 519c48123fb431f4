"""From logits to tokens: the filter chain of :mod:`searchlens.engines.base`, for all rows of a batch at once.

Filters work on *weights*, ``exp((logit - max) / temperature)``: a filter sets weights to zero, and nothing has to be
renormalised between filters. Every filter that sorts keeps what ties with the last kept token, so that its result does
not depend on the order a sort gives to equal values.

A :class:`Plan` holds what depends on the rows of the batch and not on the step. Rows that do not use a filter never pay
for it; on a CPU, neither do rows whose most likely token decides the filter alone: most rows of a trained model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from searchlens.engines.base import Sampling

_BLOCK = 64  # tokens summed together in the first level of the inverse CDF
_CUDA_PREFIX = 1024  # most likely tokens tried before a full sort
_VALUES = attrgetter(*(one.name for one in fields(Sampling)))
_LOG2_E = 1.4426950408889634


def padded_vocab(vocab_size: int) -> int:
    """Return the width of the logits that :func:`draw` wants: a whole number of blocks."""
    return -(-vocab_size // _BLOCK) * _BLOCK


@dataclass(frozen=True, slots=True)
class Draw:
    """One token per row.

    Attributes
    ----------
    tokens : int64 tensor, shape (rows,)
    logprobs, sampling_logprobs : float32 tensors, shape (rows,)
        Natural logs, under the raw and under the sampling distribution.
    measures : float32 tensor, shape (2, rows that want them), or None
        Entropy and self-certainty of the raw distribution, in nats.
    top_tokens : int64 tensor, shape (most wanted, rows that want any), or None
    top_logprobs : float32 tensor of the same shape, or None
        The most likely tokens of the raw distribution, the most likely first, ties by token id.
    """

    tokens: Tensor
    logprobs: Tensor
    sampling_logprobs: Tensor
    measures: Tensor | None = None
    top_tokens: Tensor | None = None
    top_logprobs: Tensor | None = None


@dataclass(frozen=True, slots=True)
class _Filter:
    """A filter, the rows that use it (None is all of them) and its parameter, shape (rows used, 1)."""

    apply: Callable[[Tensor, Tensor], None]
    rows: Tensor | None
    value: Tensor

    def __call__(self, weights: Tensor) -> None:
        if self.rows is None:
            self.apply(weights, self.value)
            return
        part = weights.index_select(0, self.rows)
        self.apply(part, self.value)
        weights.index_copy_(0, self.rows, part)


@dataclass(frozen=True, slots=True)
class Penalties:
    """Token counts of the rows that use a penalty.

    Attributes
    ----------
    rows : int64 tensor, shape (n,)
    repetition, frequency, presence : float32 tensors, shape (n, 1)
    prompt : bool tensor, shape (n, vocab)
        Whether the prompt holds the token.
    counts : float32 tensor, shape (n, vocab)
        How often it was generated.
    """

    rows: Tensor
    repetition: Tensor
    frequency: Tensor
    presence: Tensor
    prompt: Tensor
    counts: Tensor

    def apply(self, logits: Tensor) -> Tensor:
        """Return a penalised copy."""
        part = logits.index_select(0, self.rows)
        generated = self.counts > 0
        scaled = torch.where(part > 0, part / self.repetition, part * self.repetition)
        part = torch.where(generated | self.prompt, scaled, part)
        part -= self.frequency * self.counts + self.presence * generated
        return logits.index_copy(0, self.rows, part)

    def count(self, tokens: Tensor) -> None:
        """Add one generated token per row of the batch."""
        new = tokens.index_select(0, self.rows)[:, None]
        self.counts.scatter_add_(1, new, torch.ones_like(new, dtype=torch.float32))


@dataclass(frozen=True, slots=True)
class Plan:
    """What the rows of a batch want; rebuilt only when the rows change.

    Attributes
    ----------
    measured, topped : int64 tensor or None
        Rows that want measures, and rows that want the most likely tokens, ``most`` at most.
    """

    inverse_temperature: Tensor | None
    greedy: Tensor | None
    all_greedy: bool
    filters: tuple[_Filter, ...]
    penalties: Penalties | None
    measured: Tensor | None
    topped: Tensor | None
    most: int


def parameters(sampling: Sequence[Sampling]) -> npt.NDArray[np.float64]:
    """Return the fields of each `Sampling` as one row, in the order of the class."""
    return np.array([_VALUES(one) for one in sampling], np.float64).reshape(-1, 8)


def plan(
    table: npt.NDArray[np.float64],
    prompts: Sequence[tuple[int, ...]] | npt.NDArray[np.object_],
    generated: npt.NDArray[np.int32],
    counts: npt.NDArray[np.int64],
    width: int,
    device: torch.device,
    measures: npt.NDArray[np.bool_] | None = None,
    top: npt.NDArray[np.int64] | None = None,
) -> Plan:
    """Prepare the parameters of a batch.

    Parameters
    ----------
    table : float64 array, shape (rows, 8)
        From :func:`parameters`.
    prompts : sequence of token ids, one per row
    generated : int32 array, shape (rows, longest)
    counts : int64 array, shape (rows,)
        How many of the generated ones there are.
    width : int
        Of the logits.
    device : torch.device
    measures : bool array, shape (rows,), optional
        Which rows want entropy and self-certainty; none when not given.
    top : int64 array, shape (rows,), optional
        How many of the most likely tokens each row wants; none when not given.
    """
    temperature, top_p, top_k, min_p, typical_p = table[:, :5].T
    greedy = temperature == 0
    used_k = (top_k > 0) & (top_k < width)
    filters = (
        _filter(_min_p, min_p > 0, greedy, min_p, device),
        _filter(_typical_p, typical_p < 1, greedy, typical_p, device),
        _filter(partial(_top_k, largest=int(top_k.max(initial=0))), used_k, greedy, top_k, device),
        _filter(_top_p, top_p < 1, greedy, top_p, device),
    )
    inverse = 1 / np.where(greedy, 1.0, temperature)
    return Plan(
        inverse_temperature=None if (inverse == 1).all() else _column(inverse, device),
        greedy=torch.from_numpy(greedy).to(device) if greedy.any() else None,
        all_greedy=bool(greedy.all()),
        filters=tuple(one for one in filters if one is not None),
        penalties=_penalties(table[:, 5:], prompts, generated, counts, width, device),
        measured=_rows(measures, device),
        topped=_rows(top, device),
        most=0 if top is None else int(top.max(initial=0)),
    )


def _rows(wanted: npt.NDArray[Any] | None, device: torch.device) -> Tensor | None:
    """Return the rows that want something; None when there are none."""
    rows = np.zeros(0, np.int64) if wanted is None else np.flatnonzero(wanted)
    return torch.from_numpy(rows).to(device) if rows.size else None


def draw(logits: Tensor, plan: Plan, uniforms: Tensor) -> Draw:
    """Draw one token per row.

    Parameters
    ----------
    logits : float32 tensor, shape (rows, width)
        ``width`` from :func:`padded_vocab`; minus infinity for what must never be drawn.
    plan : Plan
        Of these rows.
    uniforms : float64 tensor, shape (rows,)
        In [0, 1).
    """
    highest = logits.amax(-1, keepdim=True)
    weights = _exp(logits - highest)
    normaliser = highest + weights.sum(-1, keepdim=True).log_()
    measures = None if plan.measured is None else _measures(logits.index_select(0, plan.measured))
    top_tokens, top_logprobs = (None, None) if plan.topped is None else _top(logits, normaliser, plan.topped, plan.most)
    penalised = logits if plan.penalties is None else plan.penalties.apply(logits)
    if plan.all_greedy:
        tokens = penalised.argmax(-1)
        log_q = torch.zeros_like(uniforms)
    else:
        if plan.penalties is not None or plan.inverse_temperature is not None:
            weights = _weights(penalised, plan.inverse_temperature)
        for one in plan.filters:
            one(weights)
        tokens, log_q = _inverse_cdf(weights, uniforms)
        if plan.greedy is not None:
            tokens = torch.where(plan.greedy, penalised.argmax(-1), tokens)
            log_q = log_q.masked_fill(plan.greedy, 0.0)
    if plan.penalties is not None:
        plan.penalties.count(tokens)
    logprobs = (logits.gather(1, tokens[:, None]) - normaliser).squeeze(1)
    return Draw(tokens, logprobs, log_q.float(), measures, top_tokens, top_logprobs)


def _measures(logits: Tensor) -> Tensor:
    """Return entropy and self-certainty, shape (2, rows), of what has a finite logit.

    With s the distance of a logit from the highest and Z the sum of exp(-s): H = log Z + mean of s under p, and
    -mean(log(V p)) = log Z + mean of s over the V tokens - log V. No term is negative, so nothing cancels in H.
    """
    masked = logits == -torch.inf
    distance = (logits.amax(-1, keepdim=True) - logits).masked_fill_(masked, 0.0)
    weights = _exp(distance.neg()).masked_fill_(masked, 0.0)
    total = weights.sum(-1)
    count = logits.shape[1] - masked.sum(-1)
    entropy = total.log() + (weights * distance).sum(-1) / total
    certainty = total.log() + distance.sum(-1) / count - count.log()
    return torch.stack((entropy, certainty))


def _top(logits: Tensor, normaliser: Tensor, rows: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return the most likely tokens and their natural log-probabilities, each of shape (most, rows).

    A float's bits, read as an integer, order as the float does once negative ones are turned round. With the token id
    behind them all keys differ, so that the order of ties is no business of the sort.
    """
    logits = logits.index_select(0, rows) + 0.0  # no negative zero, which would order below zero
    bits = logits.view(torch.int32)
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    width = logits.shape[1]
    keys = ordered * width + torch.arange(width - 1, -1, -1, device=logits.device)
    tokens = width - 1 - keys.topk(most, -1).values % width
    return tokens.t(), (logits.gather(1, tokens) - normaliser.index_select(0, rows)).t()


def _weights(logits: Tensor, inverse_temperature: Tensor | None) -> Tensor:
    """Return unnormalised probabilities, 1 for the most likely token."""
    shifted = logits - logits.amax(-1, keepdim=True)
    if inverse_temperature is not None:
        shifted *= inverse_temperature
    return _exp(shifted)


def _exp(values: Tensor) -> Tensor:
    """Return exponentials, in place; on a CPU `exp` takes ten times as long where its value underflows."""
    return values.mul_(_LOG2_E).exp2_()


def _inverse_cdf(weights: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first token whose cumulative weight exceeds ``uniform * total``, and its log-probability.

    In two levels, blocks and then tokens, so that the float64 sums of a large vocabulary need no float64 copy of it. A
    token of weight zero adds nothing to a cumulative sum and so cannot be the first to exceed anything.
    """
    rows = weights.shape[0]
    blocks = weights.view(rows, -1, _BLOCK)
    edges = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    total = edges[:, -1]
    target = _below(uniforms * total, total)
    block = (edges <= target[:, None]).sum(-1, keepdim=True)
    start = edges.gather(1, (block - 1).clamp_(min=0)).masked_fill_(block == 0, 0.0)
    inner = blocks.gather(1, block[:, :, None].expand(-1, 1, _BLOCK)).squeeze(1).double().cumsum(-1)
    rest = _below(target - start.squeeze(1), inner[:, -1])
    tokens = block.squeeze(1) * _BLOCK + (inner <= rest[:, None]).sum(-1)
    chosen = weights.gather(1, tokens[:, None]).squeeze(1)
    return tokens, (chosen.double() / total).log_()


def _below(target: Tensor, total: Tensor) -> Tensor:
    """Keep a target under the total in spite of rounding."""
    return torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))


def _column(values: npt.NDArray[np.float64], device: torch.device) -> Tensor:
    return torch.from_numpy(values.astype(np.float32)[:, None]).to(device)


def _filter(
    apply: Callable[[Tensor, Tensor], None],
    used: npt.NDArray[np.bool_],
    greedy: npt.NDArray[np.bool_],
    values: npt.NDArray[np.float64],
    device: torch.device,
) -> _Filter | None:
    """Bind a filter to its rows; None when no row uses it."""
    rows = np.flatnonzero(used & ~greedy)
    if not rows.size:
        return None
    value = torch.from_numpy(values[rows, None]).to(device)
    return _Filter(apply, None if rows.size == used.size else torch.from_numpy(rows).to(device), value)


def _penalties(
    table: npt.NDArray[np.float64],
    prompts: Sequence[tuple[int, ...]] | npt.NDArray[np.object_],
    generated: npt.NDArray[np.int32],
    counts: npt.NDArray[np.int64],
    width: int,
    device: torch.device,
) -> Penalties | None:
    """Count tokens on the device from their positions alone: a dense table would be slow to move."""
    rows = np.flatnonzero((table != (1.0, 0.0, 0.0)).any(1))
    if not rows.size:
        return None
    repetition, frequency, presence = (_column(column, device) for column in table[rows].T)
    return Penalties(
        torch.from_numpy(rows).to(device),
        repetition,
        frequency,
        presence,
        prompt=_count([np.asarray(prompts[int(row)]) for row in rows], width, device) > 0,
        counts=_count([generated[row, : counts[row]] for row in rows], width, device),
    )


def _count(tokens: Sequence[npt.NDArray[np.integer]], width: int, device: torch.device) -> Tensor:
    """Return how often each token occurs in each list, float32 of shape (lists, width)."""
    row = np.repeat(np.arange(len(tokens)), [len(one) for one in tokens])
    flat = torch.from_numpy(row * width + np.concatenate(tokens).astype(np.int64)).to(device)
    counts = torch.zeros(len(tokens) * width, device=device)
    return counts.index_add_(0, flat, torch.ones_like(flat, dtype=torch.float32)).view(len(tokens), width)


def _min_p(weights: Tensor, min_p: Tensor) -> None:
    """Drop what is less likely than ``min_p`` times the most likely token, whose weight is 1."""
    weights.masked_fill_(weights < min_p.float(), 0.0)


def _typical_p(weights: Tensor, typical_p: Tensor) -> None:
    """Keep the tokens whose surprise is closest to the entropy, until their mass reaches ``typical_p``."""
    total = weights.sum(-1, keepdim=True, dtype=torch.float64)
    surprise = (total.float() / weights).log_()
    entropy = (weights * surprise.masked_fill(weights == 0, 0.0)).sum(-1, keepdim=True) / total.float()
    distance = surprise.sub_(entropy).abs_()
    nearest, first = distance.min(-1, keepdim=True)
    _select(
        weights,
        done=weights.gather(1, first) >= typical_p * total,
        limit=nearest,
        slow=lambda rows: _typical_limit(weights[rows], distance[rows], (typical_p * total)[rows]),
        drop=lambda limit: distance > limit,
    )


def _typical_limit(weights: Tensor, distance: Tensor, need: Tensor) -> Tensor:
    """Return the largest distance kept, shape (rows, 1)."""
    order = _argsort(distance)
    mass = weights.gather(1, order).cumsum(-1, dtype=torch.float64)
    last = (mass < need).sum(-1, keepdim=True).clamp_(max=weights.shape[1] - 1)
    return distance.gather(1, order.gather(1, last))


def _top_k(weights: Tensor, top_k: Tensor, largest: int) -> None:
    """Keep the ``top_k`` most likely tokens, `largest` at most."""
    k = top_k.long()
    if weights.device.type == "cpu":
        limit = _sort(weights).gather(1, weights.shape[1] - k)
    else:
        limit = weights.topk(min(largest, weights.shape[1]), -1).values.gather(1, k - 1)
    weights.masked_fill_(weights < limit, 0.0)


def _top_p(weights: Tensor, top_p: Tensor) -> None:
    """Keep the most likely tokens up to the one with which their mass reaches ``top_p``."""
    need = top_p * weights.sum(-1, keepdim=True, dtype=torch.float64)
    highest = weights.amax(-1, keepdim=True)
    _select(
        weights,
        done=highest >= need,
        limit=highest,
        slow=lambda rows: _top_p_limit(weights[rows], need[rows]),
        drop=lambda limit: weights < limit,
    )


def _top_p_limit(weights: Tensor, need: Tensor) -> Tensor:
    """Return the smallest weight kept, shape (rows, 1)."""
    if weights.device.type == "cpu":
        descending = _sort(weights).flip(-1)
    else:
        descending = weights.topk(min(_CUDA_PREFIX, weights.shape[1]), -1).values
    mass = descending.cumsum(-1, dtype=torch.float64)
    if mass.shape[1] < weights.shape[1] and bool((mass[:, -1:] < need).any()):
        descending = weights.sort(-1, descending=True).values
        mass = descending.cumsum(-1, dtype=torch.float64)
    return descending.gather(1, (mass < need).sum(-1, keepdim=True).clamp_(max=mass.shape[1] - 1))


def _select(
    weights: Tensor,
    done: Tensor,
    limit: Tensor,
    slow: Callable[[Tensor | slice], Tensor],
    drop: Callable[[Tensor], Tensor],
) -> None:
    """Drop what lies beyond a limit, computing it by sorting only for rows where the first token does not decide it.

    Finding those rows is free on a CPU; elsewhere it would wait for the device, so all rows are sorted.
    """
    if weights.device.type == "cpu":
        rows = torch.nonzero(~done.squeeze(1)).squeeze(1)
        if rows.numel():
            limit = limit.index_copy(0, rows, slow(rows))
    else:
        limit = slow(slice(None))
    weights.masked_fill_(drop(limit), 0.0)


def _sort(values: Tensor) -> Tensor:
    """Sort each row, ascending. On a CPU NumPy's vectorised sort is some 30 times as fast as torch's stable one."""
    return torch.from_numpy(np.sort(values.numpy(), -1))


def _argsort(values: Tensor) -> Tensor:
    if values.device.type == "cpu":
        return torch.from_numpy(np.argsort(values.numpy(), -1))
    return values.argsort(-1)
