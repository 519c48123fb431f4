"""Keys and values of rows that decode together.

Those of prompts are stored once per prompt of the batch. Those of a row's own tokens lie in time slots: a *cohort* is a
set of rows of similar length, aligned at the present, so that a decode step attends to a plain slice; slots before a
row began are masked. Outside of both, keys and values travel as a flat list of tokens, of shape (tokens, layers, 2,
kv_heads, head_dim).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from searchlens.engines._llama import Llama, Shape

_GROWTH = 16  # slots added at a time: few enough that a step reads memory with hardly any gaps
_UNEVEN = 3  # each prompt has places for as many rows as the fullest, but for no more than so many times the mean
_LEAST_DEAD_PROMPTS = 4  # of these many, a quarter: then prompts without rows are dropped

Tokens = tuple[int, ...]


class Prompts:
    """The prompts of a batch, each once, and which row has which.

    Parameters
    ----------
    shape : Shape
    device : torch.device
    dtype : torch.dtype
    """

    def __init__(self, shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
        self._shape = shape
        # Keys and values, (layers, prompts, kv_heads, 2, longest prompt, head_dim), zero behind the end of a prompt.
        self._stored = torch.zeros(shape.layers, 0, shape.kv_heads, 2, 0, shape.head_dim, device=device, dtype=dtype)
        self._hidden = torch.zeros(0, shape.hidden, device=device, dtype=dtype)
        self._lengths = np.zeros(0, np.int64)
        self._place: dict[Tokens, int] = {}
        self._of_row = np.zeros(0, np.int64)

    def __contains__(self, prompt: Tokens) -> bool:
        return prompt in self._place

    def add(self, prompts: Sequence[Tokens], keys_values: Tensor, hidden: Tensor) -> None:
        """Take in prompts that are not here yet.

        Parameters
        ----------
        prompts : sequence of token ids
        keys_values : tensor, shape (tokens, layers, 2, kv_heads, head_dim)
            Of all tokens, one prompt after the other.
        hidden : tensor, shape (prompts, hidden)
            Final hidden state of each last token.
        """
        lengths = np.array([len(prompt) for prompt in prompts])
        longest = max(int(lengths.max()), self.longest)
        size = (self._shape.layers, len(prompts), self._shape.kv_heads, 2, longest, self._shape.head_dim)
        new = self._stored.new_zeros(size)
        prompt, place = ragged(lengths)
        new.permute(1, 4, 0, 3, 2, 5)[self._tensor(prompt), self._tensor(place)] = keys_values
        self._stored = torch.cat((functional.pad(self._stored, (0, 0, 0, longest - self.longest)), new), 1)
        self._hidden = torch.cat((self._hidden, hidden))
        self._place.update({one: len(self._lengths) + i for i, one in enumerate(prompts)})
        self._lengths = np.concatenate((self._lengths, lengths))

    def places(self, prompts: Sequence[Tokens]) -> npt.NDArray[np.int64]:
        """Return where prompts stand."""
        return np.array([self._place[prompt] for prompt in prompts], np.int64)

    def hidden(self, places: npt.NDArray[np.int64]) -> Tensor:
        """Return the hidden states of prompts, shape (prompts, hidden)."""
        return self._hidden.index_select(0, self._tensor(places))

    def before(self, layer: int, places: npt.NDArray[np.int64]) -> Tensor:
        """Return keys and values of prompts, shape (prompts, kv_heads, 2, longest prompt, head_dim)."""
        return self._stored[layer].index_select(0, self._tensor(places))

    def lengths(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many tokens prompts have."""
        return self._lengths[places]

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return self._stored.shape[4]

    def append(self, places: npt.NDArray[np.int64]) -> None:
        """Add rows behind the present ones, each by the place of its prompt."""
        self._of_row = np.concatenate((self._of_row, places))
        self._index()

    def keep(self, order: npt.NDArray[np.int64], wanted: Collection[Tokens] = ()) -> None:
        """Keep some rows, in a new order, and forget prompts without rows once they are many, but no wanted ones."""
        self._of_row = self._of_row[order]
        used = np.unique(self._of_row)
        if (len(self._lengths) - len(used)) * 4 >= max(len(self._lengths), _LEAST_DEAD_PROMPTS):
            self._forget(np.union1d(used, self.places([prompt for prompt in wanted if prompt in self])))
        self._index()

    def _forget(self, kept: npt.NDArray[np.int64]) -> None:
        """Drop all prompts but those at some places, which rise."""
        longest = int(self._lengths[kept].max(initial=0))
        index = self._tensor(kept)
        self._stored = self._stored.index_select(1, index)[:, :, :, :, :longest].contiguous()
        self._hidden = self._hidden.index_select(0, index)
        self._lengths = self._lengths[kept]
        new = dict(zip(kept.tolist(), range(len(kept)), strict=True))
        self._place = {prompt: new[old] for prompt, old in self._place.items() if old in new}
        self._of_row = np.searchsorted(kept, self._of_row)

    def scores(self, layer: int, queries: Tensor) -> Tensor:
        """Return what each row's queries say to its prompt.

        Parameters
        ----------
        layer : int
        queries : tensor, shape (rows * kv_heads, repeat, head_dim), scaled

        Returns
        -------
        tensor, shape (rows * kv_heads, repeat, longest prompt)
        """
        keys = self._shown[layer].flatten(0, 1)[:, 0]
        scores = torch.bmm(self._to_prompts(queries), keys.transpose(1, 2))
        if self._bias is not None:
            scores += self._bias
        return self._to_rows(scores)

    def mix(self, layer: int, weights: Tensor) -> Tensor:
        """Return the weighted values, shape (rows * kv_heads, repeat, head_dim)."""
        return self._to_rows(torch.bmm(self._to_prompts(weights), self._shown[layer].flatten(0, 1)[:, 1]))

    def _index(self) -> None:
        """Work out where rows and prompts find each other; a prompt with far more rows than others is shown twice."""
        if not self._of_row.size:
            return
        rows, kv_heads = len(self._of_row), self._shape.kv_heads
        most = -(-_UNEVEN * rows // len(self._lengths))
        copy, place = np.divmod(_occurrence(self._of_row), most)
        copies, of_row = np.unique(copy * len(self._lengths) + self._of_row, return_inverse=True)
        if copy.any():
            shown = copies % len(self._lengths)
            self._shown = self._stored.index_select(1, self._tensor(shown))
        else:
            shown, of_row, self._shown = np.arange(len(self._lengths)), self._of_row, self._stored
        self._places = int(place.max()) + 1
        row_of_place = np.zeros((len(shown), self._places), np.int64)
        row_of_place[of_row, place] = np.arange(rows)
        head = np.arange(kv_heads)
        to_prompts = row_of_place[:, None, :] * kv_heads + head[:, None]
        to_rows = (of_row[:, None] * kv_heads + head) * self._places + place[:, None]
        self._aligned = self._places == 1 and np.array_equal(of_row, np.arange(len(shown)))
        self._row_index = self._tensor(to_prompts.ravel())
        self._place_index = self._tensor(to_rows.ravel())
        self._bias = None
        if (self._lengths[shown] < self.longest).any():
            lengths = self._tensor(self._lengths[shown])
            self._bias = _bias(lengths, self.longest, kv_heads, self._stored.dtype, before=False)

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

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self._stored.device)


class Cohort:
    """Rows of similar length.

    Parameters
    ----------
    shape : Shape
    own : tensor, shape (layers, 2, rows, kv_heads, at least ``slots``, head_dim)
        Keys and values of own tokens, zero before a row's first.
    start : int64 array, shape (rows,)
        Slot of each row's first own token.
    slots : int
        Slots until the present.
    """

    def __init__(self, shape: Shape, own: Tensor, start: npt.NDArray[np.int64], slots: int) -> None:
        self._shape, self._own, self._start, self.slots = shape, own, start, slots
        self._index()

    @classmethod
    def begun(cls, shape: Shape, lengths: npt.NDArray[np.int64], device: torch.device, dtype: torch.dtype) -> Cohort:
        """Return rows that begin with ``lengths`` own tokens, whose keys and values are to be written."""
        slots = int(lengths.max())
        size = _size(shape, len(lengths), slots + _GROWTH)
        own = torch.empty(size, device=device, dtype=dtype)
        own[:, :, :, :, : slots - int(lengths.min())] = 0
        return cls(shape, own, slots - lengths, slots)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self._start)

    @property
    def window(self) -> int:
        """Slots since the first row began."""
        return self.slots - int(self._start.min())

    def begin_step(self) -> None:
        """Make room for one more time slot; call once before the layers of a step."""
        if self.slots < self._own.shape[4]:
            return
        self._move(self.rows, self.window)
        self._index()

    def end_step(self) -> None:
        """Advance time; call once after the layers of a step."""
        self.slots += 1

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Store a slot and attend to prompt and own slots with one softmax.

        Parameters
        ----------
        layer : int
        queries : tensor, shape (rows * kv_heads, repeat, head_dim), scaled
        keys_values : tensor, shape (rows, 2, kv_heads, head_dim)
        scores : tensor, shape (rows * kv_heads, repeat, n)
            From :meth:`Prompts.scores`.

        Returns
        -------
        tuple of tensor
            The weights of the prompts, shape (rows * kv_heads, repeat, n), and the weighted own values, shape
            (rows * kv_heads, repeat, head_dim).
        """
        now = self.slots
        own = self._own[layer, :, : self.rows]
        own[:, :, :, now] = keys_values.transpose(0, 1)
        own = own.flatten(1, 2)[:, :, : now + 1]
        scores_own = torch.bmm(queries, own[0].transpose(1, 2))
        if self._bias is not None:
            scores_own += self._bias[:, :, : now + 1]
        length = scores.shape[2]
        scores = torch.cat((scores, scores_own), -1)
        weights = functional.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
        return weights[:, :, :length], torch.bmm(weights[:, :, length:], own[1])

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
        self._start = self._start[order]
        if count:
            self._index()
        return order

    def absorb(self, others: Sequence[Cohort]) -> None:
        """Take over the rows of others, one cohort after the other, behind the present ones; aligned at the present.

        Rows that left have made room, so that what is here seldom has to move.
        """
        rows, longest = sum(one.rows for one in others), max(one.window for one in others)
        if self.rows + rows > self._own.shape[2] or longest > self.slots:
            self._move(self.rows + rows, max(self.window, longest))
        begin = self.rows
        for one in others:
            part = self._own[:, :, begin : begin + one.rows, :, : self.slots]
            begin += one.rows
            part[:, :, :, :, : self.slots - one.window] = 0  # masked, but zero times garbage could be not a number
            filled = slice(one.slots - one.window, one.slots)
            part[:, :, :, :, self.slots - one.window :] = one._own[:, :, : one.rows, :, filled]
        self._start = np.concatenate([self._start, *(one._start + self.slots - one.slots for one in others)])
        self._index()

    def _move(self, rows: int, window: int) -> None:
        """Move to where there is room for so many rows, and for so many slots until the present."""
        own = self._own.new_empty(_size(self._shape, rows, window + _GROWTH))
        part, empty = own[:, :, : self.rows], window - self.window
        part[:, :, :, :, :empty] = 0
        part[:, :, :, :, empty:window] = self._own[:, :, : self.rows, :, self.slots - self.window : self.slots]
        self._start = self._start + window - self.slots
        self._own, self.slots = own, window

    def read(self, rows: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]) -> Tensor:
        """Return keys and values of own tokens, each by its row and its place in the row."""
        return self._by_token()[self._tensor(rows), self._tensor(self._start[rows] + tokens)]

    def write(self, rows: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64], keys_values: Tensor) -> None:
        """Put keys and values where :meth:`read` would find them."""
        self._by_token()[self._tensor(rows), self._tensor(self._start[rows] + tokens)] = keys_values

    def compute(
        self,
        model: Llama,
        prompts: Prompts,
        places: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        begins: npt.NDArray[np.int64],
        tokens: Sequence[Tokens],
    ) -> None:
        """Run own tokens of some rows through the model, and keep their keys and values.

        Parameters
        ----------
        model : Llama
        prompts : Prompts
        places, rows, begins : int64 arrays, shape (n,)
            Where the prompt stands, which row it is, and how many own tokens it has already.
        tokens : sequence of token ids
            What follows them, at least one for each.
        """
        spans = _Spans(np.array([len(one) for one in tokens]), self._own.device)
        own_place = begins[spans.span] + spans.place
        row, slot = self._tensor(rows[spans.span]), self._tensor(self._start[rows[spans.span]] + own_place)
        selected = self._tensor(rows)
        mask = self._tensor(self._seen(prompts, places, rows, begins, spans.longest))[:, None]

        def attend(layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
            own = self._own[layer]
            own.permute(1, 3, 0, 2, 4)[row, slot] = keys_values[: spans.count]
            own = own.index_select(1, selected)[..., : self.slots, :]
            before = prompts.before(layer, places)
            keys, values = (torch.cat((before[:, :, i], own[i]), 2) for i in range(2))
            return spans.attend(queries, keys, values, mask)

        positions = prompts.lengths(places)[spans.span] + own_place
        model.forward(self._tensor(_flat(tokens)), self._tensor(positions), attend)

    def _seen(
        self,
        prompts: Prompts,
        places: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        begins: npt.NDArray[np.int64],
        longest: int,
    ) -> npt.NDArray[np.bool_]:
        """Return what each of `longest` tokens of a row may see: prompt, then slots from the row's first to its own."""
        start = self._start[rows, None]
        present = start + begins[:, None] + np.arange(longest)
        slot = np.arange(self.slots)
        own = (slot >= start[:, :, None]) & (slot <= present[:, :, None])
        prompt = np.arange(prompts.longest) < prompts.lengths(places)[:, None, None]
        return np.concatenate((np.broadcast_to(prompt, (*present.shape, prompts.longest)), own), 2)

    def _by_token(self) -> Tensor:
        """View own keys and values as (rows, slots, layers, 2, kv_heads, head_dim)."""
        return self._own.permute(2, 4, 0, 1, 3, 5)

    def _index(self) -> None:
        self._bias = None
        if self._start.any():
            start = self._tensor(self._start)
            self._bias = _bias(start, self._own.shape[4], self._shape.kv_heads, self._own.dtype, before=True)

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self._own.device)


def _size(shape: Shape, rows: int, slots: int) -> tuple[int, ...]:
    """Size of own keys and values."""
    return shape.layers, 2, rows, shape.kv_heads, slots, shape.head_dim


def neighbours(sizes: Sequence[tuple[int, int]], most: int) -> list[slice]:
    """Say which neighbouring cohorts to join, such that joining any two masks at most so many slots.

    Parameters
    ----------
    sizes : sequence of (rows, window)
        Of each cohort.
    most : int
        Slots that the shorter one of two gets masked.

    Returns
    -------
    list of slice
        One for each cohort that there will be, in order.
    """
    begins, rows, windows = list(range(len(sizes))), [one for one, _ in sizes], [window for _, window in sizes]
    while len(begins) > 1:
        masked = [
            (rows[i] if windows[i] < windows[i + 1] else rows[i + 1]) * abs(windows[i] - windows[i + 1])
            for i in range(len(begins) - 1)
        ]
        best = int(np.argmin(masked))
        if masked[best] > most:
            break
        del begins[best + 1]
        rows[best] += rows.pop(best + 1)
        windows[best] = max(windows[best], windows.pop(best + 1))
    return [slice(begin, end) for begin, end in pairwise([*begins, len(sizes)])]


class _Spans:
    """Tokens of several sequences as one flat list and as padded sequences.

    Parameters
    ----------
    lengths : int64 array, shape (spans,)
    device : torch.device
    """

    def __init__(self, lengths: npt.NDArray[np.int64], device: torch.device) -> None:
        self.span, self.place = ragged(lengths)
        self.count, self.longest = len(self.span), int(lengths.max())
        self._spans = len(lengths)
        self._padded = torch.from_numpy(self.span * self.longest + self.place).to(device)

    def spread(self, flat: Tensor) -> Tensor:
        """Pad: (at least count, ...) to (spans, longest, ...)."""
        wide = flat.new_zeros(self._spans * self.longest, *flat.shape[1:])
        return wide.index_copy_(0, self._padded, flat[: self.count]).view(self._spans, self.longest, *flat.shape[1:])

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attend within each span, causally where there is no mask.

        Parameters
        ----------
        queries : tensor, shape (rows, heads, head_dim)
            `count` of them, then padding.
        keys, values : tensor, shape (spans, kv_heads, n, head_dim)
        mask : bool tensor, shape (spans, 1, longest, n), or None

        Returns
        -------
        tensor, shape (rows, heads * head_dim)
        """
        out = functional.scaled_dot_product_attention(
            self.spread(queries).transpose(1, 2),
            keys,
            values,
            attn_mask=mask,
            is_causal=mask is None,
            scale=1.0,
            enable_gqa=queries.shape[1] > keys.shape[1],
        )
        flat = out.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, self._padded)
        return functional.pad(flat, (0, 0, 0, queries.shape[0] - self.count))


def attend(prompts: Prompts, cohorts: Sequence[Cohort], layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
    """One decode step's attention of a batch: its rows are those of the cohorts, one cohort after the other.

    Parameters and result are those of :class:`searchlens.engines._llama.Attend`.
    """
    begins = np.cumsum([0, *(cohort.rows for cohort in cohorts)]).tolist()
    rows, (kv_heads, head_dim) = begins[-1], keys_values.shape[2:]
    queries = queries[:rows].reshape(rows * kv_heads, -1, head_dim)
    scores = prompts.scores(layer, queries)
    parts = []
    for cohort, begin, end in zip(cohorts, begins, begins[1:], strict=False):
        part = slice(begin * kv_heads, end * kv_heads)
        parts.append(cohort.attend(layer, queries[part], keys_values[begin:end], scores[part]))
    weights, own = (one[0] if len(parts) == 1 else torch.cat(one) for one in zip(*parts, strict=True))
    out = own.add_(prompts.mix(layer, weights)).view(rows, -1)
    padding = keys_values.shape[0] - rows
    return functional.pad(out, (0, 0, 0, padding)) if padding else out


def prefill(model: Llama, prompts: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
    """Run prompts through the model.

    Parameters
    ----------
    model : Llama
    prompts : sequence of token ids

    Returns
    -------
    tuple of tensor
        Keys and values of all tokens, one prompt after the other, shape (tokens, layers, 2, kv_heads, head_dim), and
        the hidden state of each prompt's last token, shape (prompts, hidden).
    """
    shape, device = model.shape, model.device
    lengths = np.array([len(prompt) for prompt in prompts])
    spans = _Spans(lengths, device)
    size = (spans.count, shape.layers, 2, shape.kv_heads, shape.head_dim)
    stored = torch.empty(size, dtype=model.dtype, device=device)

    def attend_within(layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        stored[:, layer] = keys_values[: spans.count]
        keys, values = spans.spread(keys_values).permute(2, 0, 3, 1, 4).contiguous()
        return spans.attend(queries, keys, values, None)

    tokens, positions = (torch.from_numpy(one).to(device) for one in (_flat(prompts), spans.place))
    hidden = model.forward(tokens, positions, attend_within)
    return stored, hidden.index_select(0, torch.from_numpy(lengths.cumsum() - 1).to(device))


def _flat(sequences: Sequence[Tokens]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.asarray(one, np.int64) for one in sequences])


def ragged(lengths: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return, for each token of sequences one after the other, which sequence it is of and its place there."""
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    return sequence, np.arange(len(sequence)) - (lengths.cumsum() - lengths)[sequence]


def _bias(first: Tensor, width: int, kv_heads: int, dtype: torch.dtype, *, before: bool) -> Tensor:
    """Return minus infinity before, or from, the first place on, shape (rows * kv_heads, 1, width)."""
    place = torch.arange(width, device=first.device)
    hidden = (place < first[:, None]) if before else (place >= first[:, None])
    bias = torch.zeros(hidden.shape, dtype=dtype, device=first.device).masked_fill_(hidden, -torch.inf)
    return bias.repeat_interleave(kv_heads, 0)[:, None]


def _occurrence(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return, for each entry, how many equal ones come before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    start = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ranks = np.arange(len(values)) - np.repeat(start, np.diff(np.r_[start, len(values)]))
    result = np.empty_like(ranks)
    result[order] = ranks
    return result
