"""Keys and values of rows that decode together.

A *cohort* is a set of rows that were admitted at about the same time. Prompt keys and values are stored once per
prompt; each row's own ones lie in time slots, one per step of the cohort, so a decode step attends to a plain slice,
without a mask, as long as all rows began at the same slot. Merging two cohorts aligns them at the present and masks the
slots before a row began.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from searchlens.engines._llama import Llama, Shape

_GROWTH = 16  # slots added at a time: few enough that a step reads memory with hardly any gaps
_LEAST_DEAD_PROMPTS = 4  # of these many, a quarter: then prompts without rows are dropped


class Cohort:
    """Rows of one age.

    Parameters
    ----------
    shape : Shape
    prompts : tensor, shape (layers, prompts, kv_heads, 2, longest prompt, head_dim)
        Keys and values of the prompts, zero behind the end of a shorter one.
    lengths : int64 array, shape (prompts,)
    prompt_of_row : int64 array, shape (rows,)
    """

    def __init__(
        self,
        shape: Shape,
        prompts: Tensor,
        lengths: npt.NDArray[np.int64],
        prompt_of_row: npt.NDArray[np.int64],
    ) -> None:
        self._shape = shape
        self._prompts = prompts
        self._lengths = lengths
        self._prompt_of_row = prompt_of_row
        self._own = self._room(len(prompt_of_row), _GROWTH)
        self._start = np.zeros(len(prompt_of_row), np.int64)
        self.slots = 0
        self._index()

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self._prompt_of_row)

    def begin_step(self) -> None:
        """Make room for one more time slot; call once before the layers of a step."""
        if self.slots < self._own.shape[4]:
            return
        first = int(self._start.min())
        wider = self._room(self.rows, self.slots - first + _GROWTH)
        wider[..., : self.slots - first, :] = self._own[:, :, : self.rows, :, first:]
        self._own = wider
        self.slots -= first
        self._start -= first
        self._index_own()

    def end_step(self) -> None:
        """Advance time; call once after the layers of a step."""
        self.slots += 1

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """Store a slot and attend to prompt and own slots with one softmax.

        Parameters
        ----------
        layer : int
        queries : tensor, shape (rows, heads, head_dim), scaled
        keys_values : tensor, shape (rows, 2, kv_heads, head_dim)

        Returns
        -------
        tensor, shape (rows, heads * head_dim)
        """
        shape, now = self._shape, self.slots
        own = self._own[layer, :, : self.rows]
        own[:, :, :, now] = keys_values.transpose(0, 1)
        own = own.flatten(1, 2)[:, :, : now + 1]
        queries = queries.reshape(-1, shape.repeat, shape.head_dim)
        scores_own = torch.bmm(queries, own[0].transpose(1, 2))
        if self._own_bias is not None:
            scores_own += self._own_bias[:, :, : now + 1]

        prompts = self._prompts[layer].flatten(0, 1)
        scores = torch.bmm(self._to_prompts(queries), prompts[:, 0].transpose(1, 2))
        if self._prompt_bias is not None:
            scores += self._prompt_bias
        scores = torch.cat((self._to_rows(scores), scores_own), -1)
        weights = functional.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
        length = prompts.shape[2]
        out = torch.bmm(weights[:, :, length:], own[1])
        out += self._to_rows(torch.bmm(self._to_prompts(weights[:, :, :length]), prompts[:, 1]))
        return out.view(self.rows, -1)

    def keep(self, alive: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Drop rows; the last ones that stay move into the gaps.

        Parameters
        ----------
        alive : bool array, shape (rows,)

        Returns
        -------
        int64 array, shape (rows that stay,)
            For each row, where it was before.
        """
        count = int(alive.sum())
        order = np.arange(count)
        gaps = np.flatnonzero(~alive[:count])
        movers = count + np.flatnonzero(alive[count:])
        order[gaps] = movers
        if gaps.size:
            slots = self._own[..., : self.slots, :]
            slots[:, :, self._tensor(gaps)] = slots[:, :, self._tensor(movers)]
        self._prompt_of_row = self._prompt_of_row[order]
        self._start = self._start[order]
        if count:
            self._drop_prompts()
            self._index()
        return order

    def absorb(self, younger: Cohort) -> None:
        """Take over the rows of a younger cohort, behind the present ones.

        All of its rows began after all of these, so its window, even one that still holds slots of rows that left, is
        never the longer one.
        """
        rows, shift = self.rows, self.slots - younger.slots
        merged = self._room(rows + younger.rows, self.slots + _GROWTH)
        merged[:, :, :rows, :, : self.slots] = self._own[:, :, :rows, :, : self.slots]
        merged[:, :, rows:, :, :shift] = 0  # masked, but zero times garbage could be not a number
        merged[:, :, rows:, :, shift : self.slots] = younger._own[:, :, : younger.rows, :, : younger.slots]
        self._own = merged
        self._start = np.concatenate((self._start, younger._start + shift))
        self._prompt_of_row = np.concatenate((self._prompt_of_row, younger._prompt_of_row + len(self._lengths)))
        self._lengths = np.concatenate((self._lengths, younger._lengths))
        longest = int(self._lengths.max())
        self._prompts = torch.cat([_lengthen(one._prompts, longest) for one in (self, younger)], 1)
        self._index()

    def _room(self, rows: int, slots: int) -> Tensor:
        """Allocate own keys and values: (layers, 2, rows, kv_heads, slots, head_dim)."""
        shape = self._shape
        return self._prompts.new_empty(shape.layers, 2, rows, shape.kv_heads, slots, shape.head_dim)

    def _drop_prompts(self) -> None:
        """Forget prompts without rows, once they are many."""
        used = np.unique(self._prompt_of_row)
        if (len(self._lengths) - len(used)) * 4 < max(len(self._lengths), _LEAST_DEAD_PROMPTS):
            return
        longest = int(self._lengths[used].max())
        self._prompts = self._prompts.index_select(1, self._tensor(used))[:, :, :, :, :longest].contiguous()
        self._lengths = self._lengths[used]
        self._prompt_of_row = np.searchsorted(used, self._prompt_of_row)

    def _index(self) -> None:
        """Work out where rows and prompts find each other."""
        prompts, kv_heads = len(self._lengths), self._shape.kv_heads
        place = _occurrence(self._prompt_of_row)
        self._places = int(place.max()) + 1
        row_of_place = np.zeros((prompts, self._places), np.int64)
        row_of_place[self._prompt_of_row, place] = np.arange(self.rows)
        head = np.arange(kv_heads)
        to_prompts = row_of_place[:, None, :] * kv_heads + head[:, None]
        to_rows = (self._prompt_of_row[:, None] * kv_heads + head) * self._places + place[:, None]
        self._aligned = self._places == 1 and np.array_equal(self._prompt_of_row, np.arange(prompts))
        self._row_index = self._tensor(to_prompts.ravel())
        self._place_index = self._tensor(to_rows.ravel())
        longest = self._prompts.shape[4]
        self._prompt_bias = self._bias(np.arange(longest) >= self._lengths[:, None])
        self._index_own()

    def _index_own(self) -> None:
        self._own_bias = self._bias(np.arange(self._own.shape[4]) < self._start[:, None])

    def _bias(self, hidden: npt.NDArray[np.bool_]) -> Tensor | None:
        """Return minus infinity where a score must not count, one batch entry per key-value head; None if nowhere."""
        if not hidden.any():
            return None
        bias = torch.zeros(hidden.shape, dtype=self._own.dtype).masked_fill_(torch.from_numpy(hidden), -torch.inf)
        return bias.repeat_interleave(self._shape.kv_heads, 0)[:, None].to(self._own.device)

    def _to_prompts(self, rows: Tensor) -> Tensor:
        """Bring (rows * kv_heads, repeat, n) together by prompt: (prompts * kv_heads, places * repeat, n)."""
        if self._aligned:
            return rows
        flat = rows.flatten(1).index_select(0, self._row_index)
        return flat.view(-1, self._places * rows.shape[1], rows.shape[2])

    def _to_rows(self, places: Tensor) -> Tensor:
        """Undo `_to_prompts`."""
        if self._aligned:
            return places
        flat = places.view(-1, self._shape.repeat * places.shape[2])
        return flat.index_select(0, self._place_index).view(-1, self._shape.repeat, places.shape[2])

    def _tensor(self, values: npt.NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(values).to(self._prompts.device)


def prefill(model: Llama, prompts: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
    """Run prompts through the model.

    Parameters
    ----------
    model : Llama
    prompts : sequence of token ids

    Returns
    -------
    tuple of tensor
        Keys and values, shape (layers, prompts, kv_heads, 2, longest prompt, head_dim), and the hidden state of each
        prompt's last token, shape (prompts, hidden).
    """
    shape, device = model.shape, model.device
    lengths = np.array([len(prompt) for prompt in prompts])
    count, longest = len(prompts), int(lengths.max())
    positions = np.concatenate([np.arange(length) for length in lengths])
    place = torch.from_numpy(np.repeat(np.arange(count) * longest, lengths) + positions).to(device)
    rows = len(positions)
    stored = torch.zeros(
        shape.layers, count, shape.kv_heads, 2, longest, shape.head_dim, dtype=model.dtype, device=device
    )

    def spread(values: Tensor) -> Tensor:
        wide = values.new_zeros(count * longest, *values.shape[1:]).index_copy_(0, place, values[:rows])
        return wide.view(count, longest, *values.shape[1:])

    def attend(layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        stored[layer] = spread(keys_values).permute(0, 3, 2, 1, 4)
        out = functional.scaled_dot_product_attention(
            spread(queries).transpose(1, 2),
            stored[layer, :, :, 0],
            stored[layer, :, :, 1],
            is_causal=True,
            scale=1.0,
            enable_gqa=shape.repeat > 1,
        )
        flat = out.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, place)
        return functional.pad(flat, (0, 0, 0, queries.shape[0] - rows))

    tokens = torch.from_numpy(np.concatenate([np.asarray(prompt, np.int64) for prompt in prompts])).to(device)
    hidden = model.forward(tokens, torch.from_numpy(positions).to(device), attend)
    return stored, hidden.index_select(0, torch.from_numpy(lengths.cumsum() - 1).to(device))


def _occurrence(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return, for each entry, how many equal ones come before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    start = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ranks = np.arange(len(values)) - np.repeat(start, np.diff(np.r_[start, len(values)]))
    result = np.empty_like(ranks)
    result[order] = ranks
    return result


def _lengthen(prompts: Tensor, longest: int) -> Tensor:
    return functional.pad(prompts, (0, 0, 0, longest - prompts.shape[4]))
