"""Keys and values of token sequences that were computed before; the least recently used ones are dropped.

A search asks again and again for continuations of one prompt and of what it generated itself. Prompts and finished rows
therefore leave their keys and values here, token by token in one pool of a fixed size.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from searchlens.engines._llama import Shape

Tokens = tuple[int, ...]
Path = tuple[Tokens, Tokens]
"""A prompt and what was generated after it; nothing after it where the prompt itself is meant."""


class Store:
    """A pool of keys and values.

    The last token of what was generated is not in it: nobody fed it to the model.

    Parameters
    ----------
    shape : Shape
    capacity : int
        Most tokens.
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
        self._free = np.arange(self._size[0])  # a stack
        self._room = self._size[0]  # its height
        self._paths: OrderedDict[Path, npt.NDArray[np.int64]] = OrderedDict()  # least recently used first
        self._generated: dict[Tokens, list[Tokens]] = {}  # after each prompt, sorted
        self._hidden: dict[Tokens, Tensor] = {}

    def prompt(self, prompt: Tokens) -> npt.NDArray[np.int64] | None:
        """Return where the tokens of a prompt lie, None if they do not."""
        return self._use((prompt, ()))

    def prefix(self, prompt: Tokens, prefix: Tokens) -> npt.NDArray[np.int64]:
        """Return where as many as possible of the first tokens of `prefix` lie.

        Of all that was generated after the prompt, in sorted order, a neighbour of `prefix` has most in common with it.
        """
        known = self._generated.get(prompt, []) if prefix else []
        place = bisect_left(known, prefix)
        shared, near = max(
            ((_common(one, prefix), one) for one in known[max(place - 1, 0) : place + 1]), default=(0, ())
        )
        found = self._use((prompt, near)) if shared else None
        return np.zeros(0, np.int64) if found is None else found[:shared]

    def hidden(self, prompts: Sequence[Tokens]) -> Tensor:
        """Return the final hidden state of the last token of prompts that are here, shape (prompts, hidden)."""
        return torch.stack([self._hidden[prompt] for prompt in prompts])

    def read(self, places: npt.NDArray[np.int64]) -> Tensor:
        """Return keys and values, shape (tokens, layers, 2, kv_heads, head_dim)."""
        return self._tokens().index_select(0, torch.from_numpy(places).to(self._device))

    def add(self, paths: Sequence[Path]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Make room for paths.

        Parameters
        ----------
        paths : sequence of (prompt, generated)

        Returns
        -------
        tuple of array
            Which of them are to be written: not those here already, nor those that do not fit. And where, the tokens of
            one path after the other.
        """
        granted = {number: path for number, path in enumerate(paths) if self._grant(path)}
        chosen = np.zeros(len(paths), np.bool_)
        chosen[[number for number, path in granted.items() if path in self._paths]] = True
        places = [self._paths[path] for number, path in enumerate(paths) if chosen[number]]
        return chosen, np.concatenate([np.zeros(0, np.int64), *places])

    def write(self, places: npt.NDArray[np.int64], keys_values: Tensor) -> None:
        """Put keys and values where :meth:`read` finds them."""
        self._tokens().index_copy_(0, torch.from_numpy(places).to(self._device), keys_values)

    def add_prompts(self, prompts: Sequence[Tokens], keys_values: Tensor, hidden: Tensor) -> None:
        """Keep what :func:`searchlens.engines._cohort.prefill` gives, where it fits."""
        chosen, places = self.add([(prompt, ()) for prompt in prompts])
        lengths = np.array([len(prompt) for prompt in prompts])
        if chosen.any():
            self.write(places, keys_values[torch.from_numpy(np.repeat(chosen, lengths)).to(self._device)])
        for number in np.flatnonzero(chosen).tolist():
            self._hidden[prompts[number]] = hidden[number].clone()

    def _tokens(self) -> Tensor:
        if self._pool is None:
            self._pool = torch.empty(self._size, dtype=self._dtype, device=self._device)
        return self._pool

    def _use(self, path: Path) -> npt.NDArray[np.int64] | None:
        if path in self._paths:
            self._paths.move_to_end(path)
        return self._paths.get(path)

    def _grant(self, path: Path) -> bool:
        """Set places aside, at the expense of the least recently used."""
        prompt, generated = path
        length = len(generated) - 1 if generated else len(prompt)
        if self._use(path) is not None or not 0 < length <= self._size[0]:
            return False
        while self._room < length:
            self._drop()
        self._room -= length
        self._paths[path] = self._free[self._room : self._room + length].copy()
        if generated:
            insort(self._generated.setdefault(prompt, []), generated)
        return True

    def _drop(self) -> None:
        (prompt, generated), places = self._paths.popitem(last=False)
        self._free[self._room : self._room + len(places)] = places
        self._room += len(places)
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
