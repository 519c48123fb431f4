"""Prefix cache: keys and values of earlier sequences, so that a later request need not compute them again.

A search asks again and again for continuations of one prompt, and of texts that it generated itself. So the engine
stores the keys and values of prompts and of finished rows here, in a pool of a fixed number of slots, one token per
slot. If the pool is full, the least recently used sequence is evicted. Sequences that begin with the same tokens can
share slots: keeping a text that continues a cached one needs slots for the new tokens only.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from searchlens.engines._prompts import Ints, Tokens
from searchlens.engines._weights import Shape

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
