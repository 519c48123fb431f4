"""Sequences of different lengths, and the KV cache of a batch's prompts, however many rows share one.

Sequences are one flat list of tokens, or padded to the longest. Each prompt is computed and stored once.

A decode step multiplies all queries of a prompt's rows with its keys in one matrix product, so the keys are read once.
For that, queries are gathered by prompt, and results are brought back into the order of the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from searchlens.engines._llama import Llama, Shape

Tokens = tuple[int, ...]
Ints = npt.NDArray[np.int64]
Item = TypeVar("Item")

_FEWEST = 8  # columns: with two or three, some products have other bits
# Rows of a prompt, and columns, for which bits are compared.
_COMPARED_ROWS = (*range(1, 9), 16, 33, 64)
_COMPARED_COLUMNS = (_FEWEST, 17, 36, 64, 129)
_UNUSED = 4  # drop prompts without rows once they are 1/4 of all: dropping copies the others, waiting wastes memory
# All prompts of a batch are padded to the same number of rows: at most this multiple of the mean. A prompt with more
# rows is copied, which takes memory and saves padding of all others.
_UNEVEN = 3


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


def flatten(sequences: Sequence[Tokens]) -> Ints:
    """Return the token ids of all sequences, one sequence after the other."""
    return np.fromiter(chain.from_iterable(sequences), np.int64, sum(map(len, sequences)))


def token_index(lengths: Ints) -> tuple[Ints, Ints]:
    """Return, for each token of a flat list of sequences, the number of its sequence and its position in there."""
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    return sequence, np.arange(len(sequence)) - (lengths.cumsum() - lengths)[sequence]


def mask_bias(masked: Tensor, kv_heads: int, dtype: torch.dtype) -> Tensor:
    """Return what masks attention scores, -inf or 0: (sequences, n) becomes (sequences * kv_heads, 1, n)."""
    bias = torch.zeros(masked.shape, dtype=dtype, device=masked.device).masked_fill_(masked, -torch.inf)
    return bias.repeat_interleave(kv_heads, 0)[:, None]


class PaddedBatch:
    """Sequences of a flat list of tokens as one batch, padded on the right; their lengths have shape (sequences,)."""

    def __init__(self, lengths: Ints, device: torch.device) -> None:
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


class KeysValues(NamedTuple):
    """Keys and values, each of shape (layers, sequences, kv_heads, columns, head_dim), as attention reads them fastest.

    A decode step multiplies the queries of a prompt's rows with its keys. On a CPU that takes half as long if keys are
    stored by dimension, each with the numbers of all columns in a row. They are, where the products have the same bits.
    Keys of drawn tokens are not: there a step writes a column, of which every number would lie somewhere else.
    """

    keys: Tensor
    values: Tensor

    @classmethod
    def empty(cls, shape: Shape, sequences: int, columns: int, device: torch.device, dtype: torch.dtype) -> KeysValues:
        """Return room for sequences of a model; what it holds is undefined."""
        size = shape.layers, sequences, shape.kv_heads, columns, shape.head_dim
        values = torch.empty(size, device=device, dtype=dtype)
        may_differ = device.type != "cpu" or dtype != torch.float32 or columns < _FEWEST
        if not may_differ and _same_bits(shape.head_dim, shape.repeat, torch.get_num_threads()):
            return cls(torch.empty(*size[:3], shape.head_dim, columns, device=device, dtype=dtype).mT, values)
        return cls(torch.empty_like(values), values)

    def part(self, sequences: slice, columns: slice) -> KeysValues:
        """Return a view of some columns of some sequences."""
        return KeysValues(*(tensor[:, sequences, :, columns] for tensor in self))

    def copy_(self, other: KeysValues) -> None:
        """Take over keys and values of the same shape."""
        for target, source in zip(self, other, strict=True):
            target.copy_(source)

    def select(self, sequences: Tensor) -> KeysValues:
        """Return a copy of some sequences, given by their numbers."""
        keys, values = self
        if keys.stride(-1) == 1:
            return KeysValues(keys.index_select(1, sequences), values.index_select(1, sequences))
        return KeysValues(keys.mT.index_select(1, sequences).mT, values.index_select(1, sequences))

    def write(self, sequences: Tensor, columns: Tensor, keys_values: Tensor) -> None:
        """Store keys and values of single tokens, shape (tokens, layers, 2, kv_heads, head_dim)."""
        for tensor, numbers in zip(self, keys_values.unbind(2), strict=True):
            tensor.permute(1, 3, 0, 2, 4)[sequences, columns] = numbers


@cache
def _same_bits(head_dim: int, repeat: int, threads: int) -> bool:
    """Whether products with keys have the same bits in both layouts, by trial on random numbers."""
    del threads  # but a product may be shared out among them
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(64, _COMPARED_COLUMNS[-1], head_dim, generator=generator)
    queries = torch.randn(64, _COMPARED_ROWS[-1] * repeat, head_dim, generator=generator)
    by_dimension = keys.mT.contiguous()
    return all(
        torch.equal(
            torch.bmm(queries[:, : count * repeat], keys[:, :columns].mT),
            torch.bmm(queries[:, : count * repeat], by_dimension[..., :columns]),
        )
        for count in _COMPARED_ROWS
        for columns in _COMPARED_COLUMNS
    )


class Prompts:
    """The prompts of a batch, and the prompt of each row."""

    def __init__(self, shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
        self._shape = shape
        self._cache = KeysValues.empty(shape, 0, 0, device, dtype)  # zero after the end of a prompt
        self._hidden = torch.zeros(0, shape.hidden, device=device, dtype=dtype)
        self._lengths = np.zeros(0, np.int64)
        self._number: dict[Tokens, int] = {}
        self._prompt_of_row = np.zeros(0, np.int64)

    def __contains__(self, prompt: Tokens) -> bool:
        return prompt in self._number

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return self._cache.values.shape[3]

    def add(self, prompts: Sequence[Tokens], keys_values: Tensor, hidden: Tensor) -> None:
        """Add prompts that the batch does not have yet.

        Keys and values are those of all tokens, one prompt after the other, shape (tokens, layers, 2, kv_heads,
        head_dim); the hidden states are the final ones of each prompt's last token, shape (prompts, hidden).
        """
        lengths, before = np.array([len(prompt) for prompt in prompts]), len(self._lengths)
        longest = max(int(lengths.max()), self.longest)
        values = self._cache.values
        cache = KeysValues.empty(self._shape, before + len(prompts), longest, values.device, values.dtype)
        for tensor in cache:
            tensor.zero_()
        cache.part(slice(before), slice(self.longest)).copy_(self._cache)
        prompt, position = token_index(lengths)
        cache.write(self._tensor(before + prompt), self._tensor(position), keys_values)
        self._cache = cache
        self._hidden = torch.cat((self._hidden, hidden))
        self._number.update({tokens: len(self._lengths) + i for i, tokens in enumerate(prompts)})
        self._lengths = np.concatenate((self._lengths, lengths))

    def numbers(self, prompts: Sequence[Tokens]) -> Ints:
        """Return the number of each prompt, by which the other methods know it until prompts are dropped."""
        return np.array([self._number[prompt] for prompt in prompts], np.int64)

    def hidden(self, numbers: Ints) -> Tensor:
        """Return the final hidden states of the last tokens of prompts, shape (prompts, hidden)."""
        return self._hidden.index_select(0, self._tensor(numbers))

    def keys_values(self, layer: int, numbers: Ints) -> KeysValues:
        """Return keys and values of prompts in one layer."""
        return KeysValues(*(tensor[layer : layer + 1] for tensor in self._cache)).select(self._tensor(numbers))

    def lengths(self, numbers: Ints) -> Ints:
        """Return how many tokens prompts have."""
        return self._lengths[numbers]

    def append_rows(self, numbers: Ints) -> None:
        """Add rows after the present ones, each given by the number of its prompt."""
        self._prompt_of_row = np.concatenate((self._prompt_of_row, numbers))
        self._arrange()

    def keep_rows(self, order: Ints, wanted: Collection[Tokens] = ()) -> None:
        """Keep rows by their numbers, in this order; drop prompts without rows, but ``wanted``, once there are many."""
        self._prompt_of_row = self._prompt_of_row[order]
        used = np.unique(self._prompt_of_row)
        unused = len(self._lengths) - len(used)
        if unused and unused * _UNUSED >= len(self._lengths):
            kept = np.union1d(used, self.numbers([prompt for prompt in wanted if prompt in self]))
            longest, index, values = int(self._lengths[kept].max(initial=0)), self._tensor(kept), self._cache.values
            cache = KeysValues.empty(self._shape, len(kept), longest, values.device, values.dtype)
            cache.copy_(self._cache.part(slice(None), slice(longest)).select(index))
            self._cache, self._hidden = cache, self._hidden.index_select(0, index)
            self._lengths = self._lengths[kept]
            new = dict(zip(kept.tolist(), range(len(kept)), strict=True))
            self._number = {prompt: new[old] for prompt, old in self._number.items() if old in new}
            self._prompt_of_row = np.searchsorted(kept, self._prompt_of_row)
        self._arrange()

    def scores(self, layer: int, queries: Tensor) -> Tensor:
        """Return the attention scores of each row with its prompt, before the softmax.

        From scaled queries of shape (rows * kv_heads, repeat, head_dim) to (rows * kv_heads, repeat, longest prompt).
        """
        scores = torch.bmm(self._by_prompt(queries), self._keys[layer])
        if self._bias is not None:
            scores += self._bias
        return self._by_row(scores)

    def weighted_values(self, layer: int, weights: Tensor) -> Tensor:
        """Return each row's values of its prompt, summed by attention weights.

        From weights of shape (rows * kv_heads, repeat, longest prompt) to (rows * kv_heads, repeat, head_dim).
        """
        return self._by_row(torch.bmm(self._by_prompt(weights), self._values[layer]))

    def _arrange(self) -> None:
        """Give each row a place at its prompt, or at a copy of a prompt with far more rows than the mean."""
        if not self._prompt_of_row.size:
            return
        rows, prompts, kv_heads = len(self._prompt_of_row), len(self._lengths), self._shape.kv_heads
        limit = -(-_UNEVEN * rows // prompts)
        by_prompt, nth = np.argsort(self._prompt_of_row, kind="stable"), np.empty(rows, np.int64)
        nth[by_prompt] = token_index(np.bincount(self._prompt_of_row))[1]  # rows of its prompt before each row
        copy, place = np.divmod(nth, limit)
        numbers, copy_of_row = np.unique(copy * prompts + self._prompt_of_row, return_inverse=True)
        if copy.any():
            prompt_of_copy = numbers % prompts
            copies = self._cache.select(self._tensor(prompt_of_copy))
        else:
            prompt_of_copy, copy_of_row, copies = np.arange(prompts), self._prompt_of_row, self._cache
        keys, values = (tensor.flatten(1, 2) for tensor in copies)  # (layers, prompts * kv_heads, longest, head_dim)
        self._keys, self._values = keys.mT.unbind(), values.unbind()
        self._places = int(place.max()) + 1
        row_of_place = np.zeros((len(prompt_of_copy), self._places), np.int64)
        row_of_place[copy_of_row, place] = np.arange(rows)
        head = np.arange(kv_heads)
        row_index = row_of_place[:, None, :] * kv_heads + head[:, None]
        place_index = (copy_of_row[:, None] * kv_heads + head) * self._places + place[:, None]
        self._one_to_one = self._places == 1 and np.array_equal(copy_of_row, np.arange(len(prompt_of_copy)))
        self._row_index = self._tensor(row_index.ravel())
        self._place_index = self._tensor(place_index.ravel())
        self._bias = None
        if (self._lengths[prompt_of_copy] < self.longest).any():
            lengths = self._tensor(self._lengths[prompt_of_copy])
            masked = torch.arange(self.longest, device=lengths.device) >= lengths[:, None]
            self._bias = mask_bias(masked, kv_heads, self._cache.values.dtype)

    def _by_prompt(self, rows: Tensor) -> Tensor:
        """Gather rows by prompt: (rows * kv_heads, repeat, n) becomes (prompts * kv_heads, places * repeat, n)."""
        if self._one_to_one:
            return rows
        flat = rows.flatten(1).index_select(0, self._row_index)
        return flat.view(-1, self._places * rows.shape[1], rows.shape[2])

    def _by_row(self, prompts: Tensor) -> Tensor:
        """Reverse `_by_prompt`."""
        if self._one_to_one:
            return prompts
        flat = prompts.view(-1, self._shape.repeat * prompts.shape[2])
        return flat.index_select(0, self._place_index).view(-1, self._shape.repeat, prompts.shape[2])

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self._cache.values.device)


class Prefills:
    """Results of :func:`prefill` on a CPU, kept for the next time that the same prompts are run together.

    A job samples the same questions under many policies, one after the other. The same prompts in the same order give
    the same bits, so no result depends on what is kept here, and it may outlive the prefix cache, in which the bits of
    a prompt depend on which other prompts were computed with it. Once that is more than the given number of tokens,
    everything is forgotten.
    """

    def __init__(self, model: Llama, tokens: int) -> None:
        self._model, self._most = model, tokens
        self._kept: dict[tuple[Tokens, ...], tuple[Tensor, Tensor]] = {}
        self._tokens = 0

    def __call__(self, prompts: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        """Return what :func:`prefill` returns; not to be written to."""
        key = tuple(prompts)
        if key not in self._kept:
            result, count = prefill(self._model, prompts), sum(map(len, prompts))
            if count > self._most:
                return result
            if self._tokens + count > self._most:
                self._kept.clear()
                self._tokens = 0
            self._kept[key] = result
            self._tokens += count
        return self._kept[key]


def prefill(model: Llama, prompts: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
    """Return keys and values of all tokens of prompts, and the final hidden state of each prompt's last token.

    Shapes are (tokens, layers, 2, kv_heads, head_dim), one prompt after the other, and (prompts, hidden).
    """
    shape, device = model.shape, model.device
    lengths = np.array([len(prompt) for prompt in prompts])
    batch = PaddedBatch(lengths, device)
    size = (batch.count, shape.layers, 2, shape.kv_heads, shape.head_dim)
    cache = torch.empty(size, dtype=model.dtype, device=device)

    def attend(layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        cache[:, layer] = keys_values[: batch.count]
        keys, values = batch.pad(keys_values).permute(2, 0, 3, 1, 4).contiguous()
        return batch.attend(queries, keys, values, None)

    tokens, positions = (torch.from_numpy(array).to(device) for array in (flatten(prompts), batch.position))
    hidden = model.forward(tokens, positions, attend)
    return cache, hidden.index_select(0, torch.from_numpy(lengths.cumsum() - 1).to(device))
