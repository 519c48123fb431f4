"""KV cache of running rows, and the attention of a decode step.

A row's sequence has two parts: its prompt, which :class:`~searchlens.engines._prompts.Prompts` stores once for all rows
that share it, and its private tokens, all that come after the prompt: first the prefix of a request, then the generated
tokens. A row group stores the private tokens of rows of similar length, padded on the left so that all rows end in the
same column. A decode step then adds one column and reads one plain slice; the padding is masked.

Between caches, keys and values travel as a flat list of tokens, shape (tokens, layers, 2, kv_heads, head_dim).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from searchlens.engines._llama import Llama
from searchlens.engines._prompts import Ints, PaddedBatch, Prompts, Tokens, flatten, mask_bias
from searchlens.engines._weights import Shape

_GROWTH = 16  # columns added at a time: more would spread the reads of a step over unused memory, fewer copy more often


class RowGroup:
    """Rows of similar length in one KV cache.

    The cache has keys and values of private tokens, shape (layers, 2, rows, kv_heads, at least ``columns``, head_dim),
    zero in the padding before the column ``start`` of a row's first one. The last of the columns in use has the newest
    token of every row.
    """

    def __init__(self, shape: Shape, cache: Tensor, start: Ints, columns: int) -> None:
        self._shape, self._cache, self._start, self.columns = shape, cache, start, columns
        self._mask()

    @classmethod
    def allocate(cls, shape: Shape, lengths: Ints, device: torch.device, dtype: torch.dtype) -> RowGroup:
        """Return rows with ``lengths`` private tokens each, whose keys and values are still to be written."""
        columns = int(lengths.max())
        cache = torch.empty(_size(shape, len(lengths), columns + _GROWTH), device=device, dtype=dtype)
        cache[:, :, :, :, : columns - int(lengths.min())] = 0
        return cls(shape, cache, columns - lengths, columns)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._start)

    @property
    def longest(self) -> int:
        """Private tokens of the longest row."""
        return self.columns - int(self._start.min())

    def begin_step(self) -> None:
        """Make room for one more column; call once before the layers of a decode step.

        What the layers write and read is cut out of the cache for all of them together, because that takes a while.
        """
        if self.columns == self._cache.shape[4]:
            self._reallocate(self.rows, self.longest)
            self._mask()
        used = self._cache[:, :, : self.rows, :, : self.columns + 1]
        keys, values = used.flatten(2, 3).unbind(1)
        self._layers = list(zip(used[..., -1, :].transpose(1, 2), keys.transpose(2, 3), values, strict=True))
        self._column_bias = None if self._bias is None else self._bias[:, :, : self.columns + 1]

    def end_step(self) -> None:
        """Count the new column; call once after the layers of a decode step."""
        self._layers.clear()
        self.columns += 1

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor, prompt_scores: Tensor) -> tuple[Tensor, Tensor]:
        """Store the new column of a layer, and attend to prompt and private tokens with one softmax.

        Queries are scaled, shape (rows * kv_heads, repeat, head_dim); keys and values of the new column have shape
        (rows, 2, kv_heads, head_dim); the scores are those of :meth:`Prompts.scores`. Returns the attention weights of
        the prompts, and the weighted values of the private tokens, in the shapes of scores and queries.
        """
        new_column, keys, values = self._layers[layer]
        new_column.copy_(keys_values)
        private_scores = torch.bmm(queries, keys)
        if self._column_bias is not None:
            private_scores += self._column_bias
        prompt_length = prompt_scores.shape[2]
        scores = torch.cat((prompt_scores, private_scores), -1)
        weights = functional.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
        return weights[:, :, :prompt_length], torch.bmm(weights[:, :, prompt_length:], values)

    def keep_rows(self, alive: npt.NDArray[np.bool_]) -> Ints:
        """Drop the rows that are not alive, and return the numbers of the others; the last of them fill the gaps."""
        count = int(alive.sum())
        order = np.arange(count)
        gaps = np.flatnonzero(~alive[:count])
        movers = count + np.flatnonzero(alive[count:])
        order[gaps] = movers
        if gaps.size:
            cache = self._cache[..., : self.columns, :]
            cache[:, :, self._tensor(gaps)] = cache[:, :, self._tensor(movers)]
        self._start = self._start[order]
        if count:
            self._mask()
        return order

    def merge(self, others: Sequence[RowGroup]) -> None:
        """Take over the rows of other groups, one group after the other, after the present rows.

        Dropped rows have left room in this group's cache, so it seldom has to be reallocated.
        """
        rows, longest = sum(group.rows for group in others), max(group.longest for group in others)
        if self.rows + rows > self._cache.shape[2] or longest > self.columns:
            self._reallocate(self.rows + rows, max(self.longest, longest))
        begin = self.rows
        for group in others:
            target = self._cache[:, :, begin : begin + group.rows, :, : self.columns]
            begin += group.rows
            padding = self.columns - group.longest
            target[:, :, :, :, :padding] = 0  # masked, but zero times garbage could be not a number
            source = slice(group.columns - group.longest, group.columns)
            target[:, :, :, :, padding:] = group._cache[:, :, : group.rows, :, source]
        self._start = np.concatenate([self._start, *(group._start + self.columns - group.columns for group in others)])
        self._mask()

    def _reallocate(self, rows: int, columns: int) -> None:
        """Move to a new cache for this many rows, in which the last token stands in this column."""
        cache, padding = self._cache.new_empty(_size(self._shape, rows, columns + _GROWTH)), columns - self.longest
        target, source = cache[:, :, : self.rows], slice(self.columns - self.longest, self.columns)
        target[:, :, :, :, :padding] = 0
        target[:, :, :, :, padding:columns] = self._cache[:, :, : self.rows, :, source]
        self._start = self._start + columns - self.columns
        self._cache, self.columns = cache, columns

    def read(self, rows: Ints, positions: Ints) -> Tensor:
        """Return keys and values of private tokens, each given by its row and its position among the row's tokens."""
        return self._by_token()[self._tensor(rows), self._tensor(self._start[rows] + positions)]

    def write(self, rows: Ints, positions: Ints, keys_values: Tensor) -> None:
        """Store keys and values of private tokens, in the order of :meth:`read`."""
        self._by_token()[self._tensor(rows), self._tensor(self._start[rows] + positions)] = keys_values

    def prefill(
        self, model: Llama, prompts: Prompts, prompt_numbers: Ints, rows: Ints, lengths: Ints, tokens: Sequence[Tokens]
    ) -> Tensor:
        """Run private tokens of some rows through the model and store their keys and values.

        Given are for each of these rows the number of its prompt, its own number, how many of its private tokens are
        stored, and the tokens that follow, at least one. Returns their final hidden states, shape (tokens, hidden), one
        row after the other.
        """
        batch = PaddedBatch(np.array([len(sequence) for sequence in tokens]), self._cache.device)
        position = lengths[batch.sequence] + batch.position
        row = self._tensor(rows[batch.sequence])
        column = self._tensor(self._start[rows[batch.sequence]] + position)
        selection = self._tensor(rows)
        # What each new token may look at: the prompt, and columns from its row's first private token to itself.
        start, columns = self._start[rows, None], np.arange(self.columns)
        new = start + lengths[:, None] + np.arange(batch.longest)
        own = (columns >= start[:, :, None]) & (columns <= new[:, :, None])
        shared = np.arange(prompts.longest) < prompts.lengths(prompt_numbers)[:, None, None]
        visible = np.concatenate((np.broadcast_to(shared, (*new.shape, prompts.longest)), own), 2)
        mask = self._tensor(visible)[:, None]

        def attend(layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
            cache = self._cache[layer]
            cache.permute(1, 3, 0, 2, 4)[row, column] = keys_values[: batch.count]
            private = cache.index_select(1, selection)[..., : self.columns, :]
            both = zip(prompts.keys_values(layer, prompt_numbers), private, strict=True)
            keys, values = (torch.cat((prompt[0], after), 2) for prompt, after in both)
            return batch.attend(queries, keys, values, mask)

        positions = prompts.lengths(prompt_numbers)[batch.sequence] + position
        return model.forward(self._tensor(flatten(tokens)), self._tensor(positions), attend)

    def _by_token(self) -> Tensor:
        """Return a view of the cache, shape (rows, columns, layers, 2, kv_heads, head_dim)."""
        return self._cache.permute(2, 4, 0, 1, 3, 5)

    def _mask(self) -> None:
        self._bias = None
        if self._start.any():
            start = self._tensor(self._start)
            masked = torch.arange(self._cache.shape[4], device=start.device) < start[:, None]
            self._bias = mask_bias(masked, self._shape.kv_heads, self._cache.dtype)

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self._cache.device)


def _size(shape: Shape, rows: int, columns: int) -> tuple[int, ...]:
    return shape.layers, 2, rows, shape.kv_heads, columns, shape.head_dim


def plan_merges(sizes: Sequence[tuple[int, int]], max_masked: int) -> list[slice]:
    """Choose which neighbouring row groups to merge; returns the groups that each merged group is made of.

    Merging two groups pads the rows of the shorter one. The pair with the least padding is merged first, as long as
    this adds at most ``max_masked`` cells (row times column). Sizes are (rows, longest), sorted by ``longest``.
    """
    begins, rows, lengths = list(range(len(sizes))), [count for count, _ in sizes], [longest for _, longest in sizes]
    while len(begins) > 1:
        masked = [
            (rows[i] if lengths[i] < lengths[i + 1] else rows[i + 1]) * abs(lengths[i] - lengths[i + 1])
            for i in range(len(begins) - 1)
        ]
        best = int(np.argmin(masked))
        if masked[best] > max_masked:
            break
        del begins[best + 1]
        rows[best] += rows.pop(best + 1)
        lengths[best] = max(lengths[best], lengths.pop(best + 1))
    return [slice(begin, end) for begin, end in pairwise([*begins, len(sizes)])]


def attend(prompts: Prompts, groups: Sequence[RowGroup], layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
    """Attention of one layer in a decode step, for the rows of all groups in turn; the last arguments as ``Attend``."""
    edges = list(accumulate((group.rows for group in groups), initial=0))
    rows, (kv_heads, head_dim) = edges[-1], keys_values.shape[2:]
    queries = queries[:rows].reshape(rows * kv_heads, -1, head_dim)
    scores = prompts.scores(layer, queries)
    results = []
    for group, (begin, end) in zip(groups, pairwise(edges), strict=True):
        part = slice(begin * kv_heads, end * kv_heads)
        results.append(group.attend(layer, queries[part], keys_values[begin:end], scores[part]))
    weights, private = (
        tensors[0] if len(results) == 1 else torch.cat(tensors) for tensors in zip(*results, strict=True)
    )
    out = private.add_(prompts.weighted_values(layer, weights)).view(rows, -1)
    padding = keys_values.shape[0] - rows
    return functional.pad(out, (0, 0, 0, padding)) if padding else out
