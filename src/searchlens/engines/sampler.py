"""From logits to tokens: the filter chain of :mod:`searchlens.engines.base`, for all rows of a batch at once.

Filters work on *weights*, ``exp((logit - max) / temperature)``. A filter sets weights to zero, so nothing has to be
renormalised between filters. Every filter that sorts keeps all tokens that tie with the last kept one, so the result
does not depend on how a sort orders equal values.

A :class:`SamplingBatch` holds the parameters of the rows of a batch. It is built once and used for every step until the
rows change. A filter is computed only for the rows that use it. On a CPU, top-p and typical-p also skip the sort for
rows where the first token alone decides the filter; these are most rows of a trained model.
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

from searchlens.engines.base import PLAIN, Sampling

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_BLOCK = 64  # tokens per block of the inverse CDF; another size rounds other sums, which changes a token now and then
CUDA_PREFIX = 1024  # most likely tokens that top-p sorts on CUDA; if they are too few, it sorts the whole vocabulary
_LOG2_E = 1.4426950408889634
_VALUES = attrgetter(*(parameter.name for parameter in fields(Sampling)))


def padded_vocab(vocab_size: int) -> int:
    """Return the width of the logits that :func:`draw` expects: the vocabulary, rounded up to whole blocks of 64."""
    return -(-vocab_size // _BLOCK) * _BLOCK


@dataclass(frozen=True, slots=True)
class Draw:
    """One token per row."""

    tokens: Tensor
    """Int64, shape (rows,)."""
    logprobs: Tensor
    sampling_logprobs: Tensor
    """``logprobs``, ``sampling_logprobs``: natural logs, under the raw and under the sampling distribution. Shape
    (rows,), of float32."""
    measures: Tensor | None = None
    """Entropy and self-certainty of the raw distribution, in nats. Shape (2, rows with measures), of float32."""
    top_tokens: Tensor | None = None
    top_logprobs: Tensor | None = None
    """``top_tokens``, ``top_logprobs``: the most likely tokens of the raw distribution, most likely first, ties by
    token id, and their natural logs. Shape (largest top, rows with a top), of int64 and float32."""


@dataclass(frozen=True, slots=True)
class Penalties:
    """Penalties and token counts of the n rows that use a penalty."""

    rows: Tensor
    """Int64, shape (n,)."""
    repetition: Tensor
    frequency: Tensor
    presence: Tensor
    """``repetition``, ``frequency``, ``presence``: shape (n, 1), of float32."""
    prompt: Tensor
    """Whether the prompt contains the token. Shape (n, vocab)."""
    counts: Tensor
    """How often the token was generated. Shape (n, vocab), of float32."""

    def apply(self, logits: Tensor) -> Tensor:
        """Return a copy of the logits with penalties applied to the rows that use them."""
        selection = logits.index_select(0, self.rows)
        generated = self.counts > 0
        scaled = torch.where(selection > 0, selection / self.repetition, selection * self.repetition)
        penalised = torch.where(generated | self.prompt, scaled, selection)
        penalised -= self.frequency * self.counts + self.presence * generated
        return logits.index_copy(0, self.rows, penalised)

    def count(self, tokens: Tensor) -> None:
        """Count one more generated token per row; `tokens` has one for every row of the batch."""
        column = tokens.index_select(0, self.rows)[:, None]
        self.counts.scatter_add_(1, column, torch.ones_like(column, dtype=torch.float32))


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """Sampling parameters of the rows of a batch, on the device. None marks a step that no row needs."""

    inverse_temperature: Tensor | None
    """None if every temperature is 1. Shape (rows, 1), of float32."""
    greedy: Tensor | None
    """Shape (rows,)."""
    all_greedy: bool
    filters: tuple[Callable[[Tensor], None], ...]
    """In the order of the contract."""
    penalties: Penalties | None
    """Its counts grow with every drawn token; everything else is constant."""
    measure_rows: Tensor | None
    """Rows with entropy and self-certainty, int64."""
    top_rows: Tensor | None
    """Rows with a list of the most likely tokens, int64."""
    largest_top: int
    """Length of the longest of these lists."""


def parameters(sampling: Sequence[Sampling]) -> Floats:
    """Return a table of parameters, shape (rows, 8): one `Sampling` per row, its fields in the order of the class."""
    return np.array([_VALUES(policy) for policy in sampling], np.float64).reshape(-1, len(fields(Sampling)))


def prepare(
    table: Floats,
    prompts: Sequence[tuple[int, ...]] | npt.NDArray[np.object_],
    generated: npt.NDArray[np.int32],
    counts: Ints,
    width: int,
    device: torch.device,
    measures: npt.NDArray[np.bool_] | None = None,
    top: Ints | None = None,
) -> SamplingBatch:
    """Prepare the sampling parameters of a batch.

    The table is that of :func:`parameters`, shape (rows, 8). Of each row there are its prompt, the tokens that it has
    generated, padded on the right, and their count. ``width`` is that of the logits. ``measures`` are the rows that
    need entropy and self-certainty, and ``top`` is how many of the most likely tokens each row needs; by default none.
    """
    temperature, top_p, top_k, min_p, typical_p = table[:, :5].T
    greedy = temperature == 0
    largest = partial(filter_top_k, largest=int(top_k.max(initial=0)))
    filters = (
        _bind(filter_min_p, (min_p > 0) & ~greedy, min_p, device),
        _bind(filter_typical_p, (typical_p < 1) & ~greedy, typical_p, device),
        _bind(largest, (top_k > 0) & (top_k < width) & ~greedy, top_k, device),
        _bind(filter_top_p, (top_p < 1) & ~greedy, top_p, device),
    )
    inverse = 1 / np.where(greedy, 1.0, temperature)
    rows, penalties = np.flatnonzero((table[:, 5:] != (1.0, 0.0, 0.0)).any(1)), None
    if rows.size:  # tokens are counted on the device: a dense table of counts would be slow to transfer
        repetition, frequency, presence = (_column(column, device) for column in table[rows, 5:].T)
        penalties = Penalties(
            torch.from_numpy(rows).to(device),
            repetition,
            frequency,
            presence,
            prompt=count([np.asarray(prompts[int(row)]) for row in rows], width, device) > 0,
            counts=count([generated[row, : counts[row]] for row in rows], width, device),
        )
    return SamplingBatch(
        inverse_temperature=None if (inverse == 1).all() else _column(inverse, device),
        greedy=torch.from_numpy(greedy).to(device) if greedy.any() else None,
        all_greedy=bool(greedy.all()),
        filters=tuple(bound for bound in filters if bound is not None),
        penalties=penalties,
        measure_rows=_nonzero(measures, device),
        top_rows=_nonzero(top, device),
        largest_top=0 if top is None else int(top.max(initial=0)),
    )


def _nonzero(values: npt.NDArray[Any] | None, device: torch.device) -> Tensor | None:
    """Return the rows whose value is not zero, None if there is no such row."""
    rows = np.zeros(0, np.int64) if values is None else np.flatnonzero(values)
    return torch.from_numpy(rows).to(device) if rows.size else None


def draw(logits: Tensor, batch: SamplingBatch, uniforms: Tensor) -> Draw:
    """Draw one token per row, by its random number in [0, 1), float64; the token counts of the batch are updated.

    Logits are float32, ``padded_vocab`` wide, minus infinity for every token that must not be drawn.
    """
    highest = logits.amax(-1, keepdim=True)
    weights = _exp(logits - highest)
    normaliser = highest + weights.sum(-1, keepdim=True).log_()
    measures = None if batch.measure_rows is None else _measures(logits.index_select(0, batch.measure_rows))
    top_tokens, top_logprobs = (
        (None, None) if batch.top_rows is None else _top(logits, normaliser, batch.top_rows, batch.largest_top)
    )
    penalised = logits if batch.penalties is None else batch.penalties.apply(logits)
    if batch.all_greedy:
        tokens = penalised.argmax(-1)
        log_q = torch.zeros_like(uniforms)
    else:
        if batch.penalties is not None or batch.inverse_temperature is not None:
            weights = weights_of(penalised, batch.inverse_temperature)
        for apply_filter in batch.filters:
            apply_filter(weights)
        tokens, log_q = inverse_cdf(weights, uniforms)
        if batch.greedy is not None:
            tokens = torch.where(batch.greedy, penalised.argmax(-1), tokens)
            log_q = log_q.masked_fill(batch.greedy, 0.0)
    if batch.penalties is not None:
        batch.penalties.count(tokens)
    logprobs = (logits.gather(1, tokens[:, None]) - normaliser).squeeze(1)
    return Draw(tokens, logprobs, log_q.float(), measures, top_tokens, top_logprobs)


def given(logits: Tensor, tokens: Tensor, sampling: Sampling) -> Tensor:
    """Return log p, log q and rank of one given token per row, float64 of shape (3, rows); logits as for ``draw``.

    The temperature is above 0, and there are no penalties, which would depend on the tokens before.
    """
    rows, chosen = len(tokens), tokens[:, None]
    logit = logits.gather(1, chosen)
    log_p = (logit - logits.logsumexp(1, keepdim=True)).squeeze(1).double()
    rank = (logits > logit).sum(1) + 1
    if sampling == PLAIN:
        return torch.stack((log_p, log_p, rank.double()))
    none: Any = ((),) * rows
    table, nothing = parameters([sampling] * rows), np.zeros((rows, 0), np.int32)
    batch = prepare(table, none, nothing, np.zeros(rows, np.int64), logits.shape[1], logits.device)
    weights = weights_of(logits, batch.inverse_temperature)
    for apply_filter in batch.filters:
        apply_filter(weights)
    log_q = (weights.gather(1, chosen).squeeze(1).double() / weights.sum(-1, dtype=torch.float64)).log()
    return torch.stack((log_p, log_q, rank.double()))


def _measures(logits: Tensor) -> Tensor:
    """Return entropy and self-certainty over the tokens with a finite logit, shape (2, rows).

    Let s be the distance of a logit from the highest and Z the sum of exp(-s). Then H = log Z + mean of s under p, and
    -mean(log(V p)) = log Z + mean of s over the V tokens - log V. No term of H is negative, so nothing cancels.
    """
    masked = logits == -torch.inf
    distance = (logits.amax(-1, keepdim=True) - logits).masked_fill_(masked, 0.0)
    weights = _exp(distance.neg()).masked_fill_(masked, 0.0)
    total = weights.sum(-1)
    count = logits.shape[1] - masked.sum(-1)
    entropy = total.log() + (weights * distance).sum(-1) / total
    certainty = total.log() + distance.sum(-1) / count - count.log()
    return torch.stack((entropy, certainty))


def _top(logits: Tensor, normaliser: Tensor, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the most likely tokens and their natural log-probabilities, each of shape (count, rows).

    The bits of a float, read as an integer, sort like the float once those of negative numbers are inverted. Appending
    the token id makes every sort key unique, so ties are broken by token id.
    """
    logits = logits.index_select(0, rows) + 0.0  # turns -0.0 into 0.0; the two would get different keys
    bits = logits.view(torch.int32)
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    width = logits.shape[1]
    keys = ordered * width + torch.arange(width - 1, -1, -1, device=logits.device)
    tokens = width - 1 - keys.topk(count, -1).values % width
    return tokens.t(), (logits.gather(1, tokens) - normaliser.index_select(0, rows)).t()


def weights_of(logits: Tensor, inverse_temperature: Tensor | None = None) -> Tensor:
    """Return weights, float32 as the logits: unnormalised probabilities, 1 for the most likely token of each row."""
    shifted = logits - logits.amax(-1, keepdim=True)
    if inverse_temperature is not None:
        shifted *= inverse_temperature
    return _exp(shifted)


def _exp(values: Tensor) -> Tensor:
    """Return exponentials, computed in place.

    On a CPU, `exp` takes ten times as long as `exp2` where the result underflows. At low temperature most weights
    underflow: power sampling was a fifth faster with `exp2`.
    """
    return values.mul_(_LOG2_E).exp2_()


def inverse_cdf(weights: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first token whose cumulative weight exceeds ``uniform * total``, and the natural log of its share.

    Weights are float32, ``padded_vocab`` wide; in each row one at least is above 0. Tokens are int64, shares and
    uniforms, in [0, 1), float64. The search has two levels, first blocks and then the tokens of one block, because
    float64 sums over the whole vocabulary would need a float64 copy of the weights. A token of weight zero adds nothing
    to a cumulative sum, so it is never the first to exceed the target.
    """
    rows = weights.shape[0]
    blocks = weights.view(rows, -1, _BLOCK)
    edges = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    total = edges[:, -1]
    target = _clamp_below(uniforms * total, total)
    block = (edges <= target[:, None]).sum(-1, keepdim=True)
    start = edges.gather(1, (block - 1).clamp_(min=0)).masked_fill_(block == 0, 0.0)
    cumulative = blocks.gather(1, block[:, :, None].expand(-1, 1, _BLOCK)).squeeze(1).double().cumsum(-1)
    remainder = _clamp_below(target - start.squeeze(1), cumulative[:, -1])
    tokens = block.squeeze(1) * _BLOCK + (cumulative <= remainder[:, None]).sum(-1)
    weight = weights.gather(1, tokens[:, None]).squeeze(1)
    return tokens, (weight.double() / total).log_()


def _clamp_below(target: Tensor, total: Tensor) -> Tensor:
    """Return the target, at most the largest number below the total: rounding could make the two equal."""
    return torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))


def _column(values: Floats, device: torch.device) -> Tensor:
    return torch.from_numpy(values.astype(np.float32)[:, None]).to(device)


def _bind(
    apply: Callable[[Tensor, Tensor], None], used: npt.NDArray[np.bool_], values: Floats, device: torch.device
) -> Callable[[Tensor], None] | None:
    """Bind a filter to the rows that use it, and to its parameter; None if there is no such row."""
    rows = np.flatnonzero(used)
    if not rows.size:
        return None
    value = torch.from_numpy(values[rows, None]).to(device)
    if rows.size == used.size:
        return lambda weights: apply(weights, value)
    index = torch.from_numpy(rows).to(device)

    def apply_to_some(weights: Tensor) -> None:
        selection = weights.index_select(0, index)
        apply(selection, value)
        weights.index_copy_(0, index, selection)

    return apply_to_some


def count(tokens: Sequence[npt.NDArray[np.integer]], width: int, device: torch.device) -> Tensor:
    """Return how often each token occurs in each list, float32 of shape (lists, width)."""
    row = np.repeat(np.arange(len(tokens)), [len(ids) for ids in tokens])
    flat = torch.from_numpy(row * width + np.concatenate(tokens).astype(np.int64)).to(device)
    counts = torch.zeros(len(tokens) * width, device=device)
    return counts.index_add_(0, flat, torch.ones_like(flat, dtype=torch.float32)).view(len(tokens), width)


def filter_min_p(weights: Tensor, min_p: Tensor) -> None:
    """Drop tokens less likely than ``min_p`` times the most likely one, whose weight is 1."""
    weights.masked_fill_(weights < min_p.float(), 0.0)


def filter_typical_p(weights: Tensor, typical_p: Tensor) -> None:
    """Keep the tokens whose surprise is closest to the entropy, until their mass reaches ``typical_p``."""
    total = weights.sum(-1, keepdim=True, dtype=torch.float64)
    surprise = (total.float() / weights).log_()
    entropy = (weights * surprise.masked_fill(weights == 0, 0.0)).sum(-1, keepdim=True) / total.float()
    distance = surprise.sub_(entropy).abs_()
    nearest, first = distance.min(-1, keepdim=True)
    target = typical_p * total
    decided = weights.gather(1, first) >= target
    limit = _limit(decided, nearest, lambda rows: _typical_limit(weights[rows], distance[rows], target[rows]))
    weights.masked_fill_(distance > limit, 0.0)


def _typical_limit(weights: Tensor, distance: Tensor, target: Tensor) -> Tensor:
    """Return the largest distance kept, shape (rows, 1)."""
    on_cpu = weights.device.type == "cpu"
    order = torch.from_numpy(np.argsort(distance.numpy(), -1)) if on_cpu else distance.argsort(-1)
    mass = weights.gather(1, order).cumsum(-1, dtype=torch.float64)
    last = (mass < target).sum(-1, keepdim=True).clamp_(max=weights.shape[1] - 1)
    return distance.gather(1, order.gather(1, last))


def filter_top_k(weights: Tensor, top_k: Tensor, largest: int) -> None:
    """Keep the ``top_k`` most likely tokens; `largest` is the largest ``top_k`` of any row."""
    k = top_k.long()
    if weights.device.type == "cpu":
        limit = _sort(weights).gather(1, weights.shape[1] - k)
    else:
        limit = weights.topk(min(largest, weights.shape[1]), -1).values.gather(1, k - 1)
    weights.masked_fill_(weights < limit, 0.0)


def filter_top_p(weights: Tensor, top_p: Tensor) -> None:
    """Keep the most likely tokens, up to and including the one whose mass makes the sum reach ``top_p``."""
    target = top_p * weights.sum(-1, keepdim=True, dtype=torch.float64)
    highest = weights.amax(-1, keepdim=True)
    limit = _limit(highest >= target, highest, lambda rows: _top_p_limit(weights[rows], target[rows]))
    weights.masked_fill_(weights < limit, 0.0)


def _top_p_limit(weights: Tensor, target: Tensor) -> Tensor:
    """Return the smallest weight kept, shape (rows, 1)."""
    if weights.device.type == "cpu":
        descending = _sort(weights).flip(-1)
    else:
        descending = weights.topk(min(CUDA_PREFIX, weights.shape[1]), -1).values
    mass = descending.cumsum(-1, dtype=torch.float64)
    if mass.shape[1] < weights.shape[1] and bool((mass[:, -1:] < target).any()):
        descending = weights.sort(-1, descending=True).values
        mass = descending.cumsum(-1, dtype=torch.float64)
    return descending.gather(1, (mass < target).sum(-1, keepdim=True).clamp_(max=mass.shape[1] - 1))


def _limit(decided: Tensor, limit: Tensor, sorted_limit: Callable[[Tensor | slice], Tensor]) -> Tensor:
    """Return the limit of each row, beyond which its tokens are dropped, shape (rows, 1), as what is given.

    A row is decided if its first token alone has enough mass; its limit is known. The limit of other rows takes a sort.
    A CPU finds the undecided rows at no cost and sorts only these. CUDA would have to wait for the answer, so it sorts
    all rows.
    """
    if limit.device.type != "cpu":
        return sorted_limit(slice(None))
    rows = torch.nonzero(~decided.squeeze(1)).squeeze(1)
    return limit.index_copy(0, rows, sorted_limit(rows)) if rows.numel() else limit


def _sort(values: Tensor) -> Tensor:
    """Sort each row, ascending. On a CPU, NumPy's vectorised sort is some 30 times as fast as torch's stable one."""
    return torch.from_numpy(np.sort(values.numpy(), -1))
