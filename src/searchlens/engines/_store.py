"""Keys and values of token sequences that were computed before; the least recently used ones are dropped.

A search asks again and again for continuations of one prompt and of what it generated itself. Prompts and finished rows
therefore leave their keys and values here, token by token in one pool of a fixed size.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from searchlens.engines._llama import Shape

Tokens = tuple[int, ...]
Path = tuple[Tokens, Tokens]
"""A prompt and what was generated after it; nothing after it where the prompt itself is meant."""
_NOWHERE = np.zeros(0, np.int64)


@dataclass(slots=True, eq=False)
class _Kept:
    """Where the tokens of a path lie: nowhere, once it is dropped."""

    places: npt.NDArray[np.int64] = field(default_factory=lambda: _NOWHERE)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first tokens of a kept path, as many as some other text has in common with it."""

    kept: _Kept = field(default_factory=_Kept)
    count: int = 0

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """Where they lie: nowhere, once the path is dropped."""
        return self.kept.places[: self.count]


class Store:
    """A pool of keys and values.

    The last token of what was generated is not in it: nobody fed it to the model. A path that began with the keys and
    values of another shares its places.

    Parameters
    ----------
    shape : Shape
    capacity : int
        Most tokens, each counted for every path that it is of.
    device : torch.device
    dtype : torch.dtype
    """

    def __init__(self, shape: Shape, capacity: int, device: torch.device, dtype: torch.dtype) -> None:
        self._size = (capacity, shape.layers, 2, shape.kv_heads, shape.head_dim)
        self._device, self._dtype = device, dtype
        self._pool: Tensor | None = None  # until there is something to keep
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._room = self._size[0]
        self._free = np.arange(self._room)  # a stack
        self._height = self._room
        self._sharers = np.zeros(self._room, np.int64)  # how many paths each place is of
        self._paths: OrderedDict[Path, _Kept] = OrderedDict()  # least recently used first
        self._generated: dict[Tokens, list[Tokens]] = {}  # after each prompt, sorted
        self._hidden: dict[Tokens, Tensor] = {}

    def prompt(self, prompt: Tokens) -> npt.NDArray[np.int64] | None:
        """Return where the tokens of a prompt lie, None if they do not."""
        found = self._use((prompt, ()))
        return None if found is None else found.places

    def prefix(self, prompt: Tokens, prefix: Tokens) -> Beginning:
        """Return as many as possible of the first tokens of `prefix`.

        Of all that was generated after the prompt, in sorted order, a neighbour of `prefix` has most in common with it.
        """
        known = self._generated.get(prompt, []) if prefix else []
        place = bisect_left(known, prefix)
        shared, near = max(
            ((_common(one, prefix), one) for one in known[max(place - 1, 0) : place + 1]), default=(0, ())
        )
        found = self._use((prompt, near)) if shared else None
        return Beginning() if found is None else Beginning(found, shared)

    def hidden(self, prompts: Sequence[Tokens]) -> Tensor:
        """Return the final hidden state of the last token of prompts that are here, shape (prompts, hidden)."""
        return torch.stack([self._hidden[prompt] for prompt in prompts])

    def read(self, places: npt.NDArray[np.int64]) -> Tensor:
        """Return keys and values, shape (tokens, layers, 2, kv_heads, head_dim)."""
        return self._tokens().index_select(0, torch.from_numpy(places).to(self._device))

    def add(
        self, paths: Sequence[Path], begun: Sequence[Beginning]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Make room for paths.

        Parameters
        ----------
        paths : sequence of (prompt, generated)
        begun : sequence of Beginning
            What the first keys and values of each path are copies of.

        Returns
        -------
        tuple of array
            How many tokens of each path are not to be written: its beginning where that is still here, and all of a
            path that is here already or does not fit. And where to write the others, one path after the other.
        """
        known = np.array([len(generated) - 1 if generated else len(prompt) for prompt, generated in paths], np.int64)
        granted = []
        for number, (path, length) in enumerate(zip(paths, known.tolist(), strict=True)):
            if self._use(path) is None and 0 < length <= self._size[0]:
                shared = begun[number].places
                granted.append((number, len(shared), self._grant(path, length, shared)))
        new = [_NOWHERE]
        for number, count, kept in granted:
            if kept.places.size:  # not pushed out by those after it
                known[number] = count
                new.append(kept.places[count:])
        return known, np.concatenate(new)

    def write(self, places: npt.NDArray[np.int64], keys_values: Tensor) -> None:
        """Put keys and values where :meth:`read` finds them."""
        self._tokens().index_copy_(0, torch.from_numpy(places).to(self._device), keys_values)

    def add_prompts(self, prompts: Sequence[Tokens], keys_values: Tensor, hidden: Tensor) -> None:
        """Keep what :func:`searchlens.engines._cohort.prefill` gives, where it fits."""
        known, places = self.add([(prompt, ()) for prompt in prompts], [Beginning()] * len(prompts))
        lengths = np.array([len(prompt) for prompt in prompts])
        chosen = known < lengths
        if chosen.any():
            self.write(places, keys_values[torch.from_numpy(np.repeat(chosen, lengths)).to(self._device)])
        for number in np.flatnonzero(chosen).tolist():
            self._hidden[prompts[number]] = hidden[number].clone()

    def _tokens(self) -> Tensor:
        if self._pool is None:
            self._pool = torch.empty(self._size, dtype=self._dtype, device=self._device)
        return self._pool

    def _use(self, path: Path) -> _Kept | None:
        if path in self._paths:
            self._paths.move_to_end(path)
        return self._paths.get(path)

    def _grant(self, path: Path, length: int, shared: npt.NDArray[np.int64]) -> _Kept:
        """Set places aside behind shared ones, at the expense of the least recently used."""
        self._sharers[shared] += 1
        while self._room < length:
            self._drop()
        self._room -= length
        end = self._height
        self._height -= length - len(shared)
        new = self._free[self._height : end]
        self._sharers[new] = 1
        kept = self._paths[path] = _Kept(np.concatenate((shared, new)))
        prompt, generated = path
        if generated:
            insort(self._generated.setdefault(prompt, []), generated)
        return kept

    def _drop(self) -> None:
        (prompt, generated), kept = self._paths.popitem(last=False)
        self._room += len(kept.places)
        self._sharers[kept.places] -= 1
        free = kept.places[self._sharers[kept.places] == 0]
        self._free[self._height : self._height + len(free)] = free
        self._height += len(free)
        kept.places = _NOWHERE
        if not generated:
            self._hidden.pop(prompt, None)
            return
        known = self._generated[prompt]
        del known[bisect_left(known, generated)]
        if not known:
            del self._generated[prompt]


def _common(generated: Tokens, prefix: Tokens) -> int:
    """Count the first tokens that both share, the last of each aside: of one nothing is kept, the other is fed anew."""
    most = min(len(generated), len(prefix)) - 1
    if generated[:most] == prefix[:most]:
        return most
    return next(i for i, (one, other) in enumerate(zip(generated, prefix, strict=False)) if one != other)
