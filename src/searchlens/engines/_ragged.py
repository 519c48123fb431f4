"""Sequences of different lengths: as one flat list of tokens, and padded to the longest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

Tokens = tuple[int, ...]
Item = TypeVar("Item")


def parts(items: Sequence[Item], sizes: Sequence[int], limit: int) -> Iterator[list[Item]]:
    """Cut a list into parts whose sizes add up to at most `limit`, with at least one item each."""
    part: list[Item] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        if part and total + size > limit:
            yield part
            part, total = [], 0
        part.append(item)
        total += size
    if part:
        yield part


def flatten(sequences: Sequence[Tokens]) -> npt.NDArray[np.int64]:
    """Return the token ids of all sequences, one sequence after the other."""
    return np.fromiter(chain.from_iterable(sequences), np.int64, sum(map(len, sequences)))


def token_index(lengths: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return, for each token of a flat list of sequences, the number of its sequence and its position in there."""
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    return sequence, np.arange(len(sequence)) - (lengths.cumsum() - lengths)[sequence]


def occurrence(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return, for each entry, how many equal entries come before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    start = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ranks = np.arange(len(values)) - np.repeat(start, np.diff(np.r_[start, len(values)]))
    result = np.empty_like(ranks)
    result[order] = ranks
    return result


def mask_bias(masked: Tensor, kv_heads: int, dtype: torch.dtype) -> Tensor:
    """Return what masks attention scores, -inf or 0: (sequences, n) becomes (sequences * kv_heads, 1, n)."""
    bias = torch.zeros(masked.shape, dtype=dtype, device=masked.device).masked_fill_(masked, -torch.inf)
    return bias.repeat_interleave(kv_heads, 0)[:, None]


class PaddedBatch:
    """Sequences of a flat list of tokens as one batch, padded on the right; their lengths have shape (sequences,)."""

    def __init__(self, lengths: npt.NDArray[np.int64], device: torch.device) -> None:
        self.sequence, self.position = token_index(lengths)
        self.count, self.longest = len(self.sequence), int(lengths.max())
        self._sequences = len(lengths)
        self._padded_index = torch.from_numpy(self.sequence * self.longest + self.position).to(device)

    def pad(self, flat: Tensor) -> Tensor:
        """Return the first `count` entries as a batch: (at least count, ...) becomes (sequences, longest, ...)."""
        batch = flat.new_zeros(self._sequences * self.longest, *flat.shape[1:])
        batch.index_copy_(0, self._padded_index, flat[: self.count])
        return batch.view(self._sequences, self.longest, *flat.shape[1:])

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attend within each sequence; causally if there is no mask. Returns shape (rows, heads * head_dim).

        Queries have shape (rows, heads, head_dim), one for each of the ``count`` tokens, then padding; keys and values
        (sequences, kv_heads, n, head_dim); the mask (sequences, 1, longest, n), true where a token may look.
        """
        out = functional.scaled_dot_product_attention(
            self.pad(queries).transpose(1, 2),
            keys,
            values,
            attn_mask=mask,
            is_causal=mask is None,
            scale=1.0,
            enable_gqa=queries.shape[1] > keys.shape[1],
        )
        flat = out.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, self._padded_index)
        return functional.pad(flat, (0, 0, 0, queries.shape[0] - self.count))
