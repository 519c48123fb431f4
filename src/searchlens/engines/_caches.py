"""Keys and values of running rows, the attention of a decode step, and keys and values of earlier sequences.

A row's sequence has two parts: its prompt, which :class:`~searchlens.engines._prompts.Prompts` stores once for all rows
that share it, and its private tokens, all that come after the prompt: first the prefix of a request, then the generated
tokens. A row group stores the private tokens of rows of similar length, padded on the left so that all rows end in the
same column. A decode step then adds one column and reads one plain slice; the padding is masked.

A search asks again and again for continuations of one prompt, and of texts that it generated itself. So the engine
stores the keys and values of prompts and of finished rows in the prefix cache, a pool of a fixed number of slots, one
token per slot. If the pool is full, the least recently used sequence is evicted. Sequences that begin with the same
tokens can share slots: keeping a text that continues a cached one needs slots for the new tokens only.

Between caches, keys and values travel as a flat list of tokens, shape (tokens, layers, 2, kv_heads, head_dim).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from searchlens.engines._llama import Llama, Shape
from searchlens.engines._prompts import Ints, PaddedBatch, Prompts, Tokens, flatten, mask_bias

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


# ---- earlier sequences

Key = tuple[Tokens, Tokens]
"""A prompt and the tokens generated after it, () for the prompt itself."""
_NO_SLOTS = np.zeros(0, np.int64)


@dataclass(slots=True, eq=False)
class _Entry:
    """The slots of a cached sequence, one per token; none after it was evicted."""

    slots: Ints = field(default_factory=lambda: _NO_SLOTS)


@dataclass(frozen=True, slots=True)
class CachedPrefix:
    """The first tokens of a cached sequence that another sequence begins with, too."""

    _entry: _Entry = field(default_factory=_Entry)
    length: int = 0
    """How many tokens they have in common."""

    @property
    def slots(self) -> Ints:
        """Their slots; none if the cached sequence was evicted meanwhile."""
        return self._entry.slots[: self.length]


class PrefixCache:
    """A pool of keys and values, and the sequences in it.

    The last token of a generated text is not cached: it was drawn, but never fed to the model. The capacity is the most
    tokens of all sequences together; a slot that several sequences share is counted for each of them.
    """

    def __init__(self, shape: Shape, capacity: int, device: torch.device, dtype: torch.dtype) -> None:
        self._size = (capacity, shape.layers, 2, shape.kv_heads, shape.head_dim)
        self._device, self._dtype = device, dtype
        self._pool: Tensor | None = None  # allocated with the first sequence
        self.clear()

    def clear(self) -> None:
        """Evict everything."""
        self._room = self._size[0]  # tokens that can still be added
        self._free = np.arange(self._room)  # a stack: the first `_free_count` entries are free slots
        self._free_count = self._room
        self._references = np.zeros(self._room, np.int64)  # how many sequences use each slot
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()  # least recently used first
        self._generated: dict[Tokens, list[Tokens]] = {}  # the texts cached after each prompt, sorted
        self._hidden: dict[Tokens, Tensor] = {}

    def find_prompt(self, prompt: Tokens) -> Ints | None:
        """Return the slots of a prompt, None if it is not cached."""
        entry = self._use((prompt, ()))
        return None if entry is None else entry.slots

    def find_prefix(self, prompt: Tokens, prefix: Tokens) -> CachedPrefix:
        """Return the longest cached beginning of what follows a prompt, all but the last token of `prefix` at most.

        In sorted order, one of the two neighbours of `prefix` has the most first tokens in common with it.
        """
        texts = self._generated.get(prompt, []) if prefix else []
        place = bisect_left(texts, prefix)
        neighbours = texts[max(place - 1, 0) : place + 1]
        found: tuple[int, Tokens] = (0, ())
        for text in neighbours:
            # Without the last token of each: that of the text has no keys and values, and that of the prefix is fed
            # to the model to draw the next one.
            limit = min(len(text), len(prefix)) - 1
            if text[:limit] != prefix[:limit]:
                limit = next(i for i, (cached, token) in enumerate(zip(text, prefix, strict=False)) if cached != token)
            found = max(found, (limit, text))
        entry = self._use((prompt, found[1])) if found[0] else None
        return CachedPrefix() if entry is None else CachedPrefix(entry, found[0])

    def hidden(self, prompts: Sequence[Tokens]) -> Tensor:
        """Return the final hidden state of the last token of cached prompts, shape (prompts, hidden)."""
        return torch.stack([self._hidden[prompt] for prompt in prompts])

    def read(self, slots: Ints) -> Tensor:
        """Return keys and values, shape (tokens, layers, 2, kv_heads, head_dim)."""
        return self._tokens().index_select(0, torch.from_numpy(slots).to(self._device))

    def allocate(self, keys: Sequence[Key], prefixes: Sequence[CachedPrefix]) -> tuple[Ints, Ints]:
        """Make room for sequences, each a (prompt, generated), and say what is to be written.

        Given are the cached tokens that the first keys and values of each sequence were copied from. Returns, both
        int64, how many first tokens of each sequence need not be written, and the slots of the other tokens, one
        sequence after the other. Not written are tokens that are still cached, and all of a sequence that is cached
        already or does not fit.
        """
        skipped = np.array([len(generated) - 1 if generated else len(prompt) for prompt, generated in keys], np.int64)
        insertions = []
        for number, (key, length) in enumerate(zip(keys, skipped.tolist(), strict=True)):
            if self._use(key) is None and 0 < length <= self._size[0]:
                shared = prefixes[number].slots
                self._references[shared] += 1
                while self._room < length:
                    self._evict()
                self._room -= length
                end = self._free_count
                self._free_count -= length - len(shared)
                own = self._free[self._free_count : end]
                self._references[own] = 1
                entry = self._entries[key] = _Entry(np.concatenate((shared, own)))
                prompt, generated = key
                if generated:
                    insort(self._generated.setdefault(prompt, []), generated)
                insertions.append((number, len(shared), entry))
        slots = [_NO_SLOTS]
        for number, shared_length, entry in insertions:
            if entry.slots.size:  # not evicted by a later one of these sequences
                skipped[number] = shared_length
                slots.append(entry.slots[shared_length:])
        return skipped, np.concatenate(slots)

    def write(self, slots: Ints, keys_values: Tensor) -> None:
        """Store keys and values of tokens in slots of :meth:`allocate`."""
        self._tokens().index_copy_(0, torch.from_numpy(slots).to(self._device), keys_values)

    def add_prompts(self, prompts: Sequence[Tokens], keys_values: Tensor, hidden: Tensor) -> None:
        """Cache the results of :func:`searchlens.engines._prompts.prefill`, as far as they fit."""
        skipped, slots = self.allocate([(prompt, ()) for prompt in prompts], [CachedPrefix()] * len(prompts))
        lengths = np.array([len(prompt) for prompt in prompts])
        fits = skipped < lengths
        if fits.any():
            self.write(slots, keys_values[torch.from_numpy(np.repeat(fits, lengths)).to(self._device)])
        for number in np.flatnonzero(fits).tolist():
            self._hidden[prompts[number]] = hidden[number].clone()

    def _tokens(self) -> Tensor:
        if self._pool is None:
            self._pool = torch.empty(self._size, dtype=self._dtype, device=self._device)
        return self._pool

    def _use(self, key: Key) -> _Entry | None:
        """Return the entry of a sequence and mark it as just used; None if it is not cached."""
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def _evict(self) -> None:
        """Remove the least recently used sequence and free the slots that no other sequence uses."""
        (prompt, generated), entry = self._entries.popitem(last=False)
        self._room += len(entry.slots)
        self._references[entry.slots] -= 1
        free = entry.slots[self._references[entry.slots] == 0]
        self._free[self._free_count : self._free_count + len(free)] = free
        self._free_count += len(free)
        entry.slots = _NO_SLOTS
        if not generated:
            self._hidden.pop(prompt, None)
            return
        texts = self._generated[prompt]
        del texts[bisect_left(texts, generated)]
        if not texts:
            del self._generated[prompt]
