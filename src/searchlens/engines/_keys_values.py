"""Keys and values of prompts, stored as attention reads them fastest.

A decode step multiplies the queries of a prompt's rows with its keys. On a CPU that takes half as long if keys are
stored by dimension, each with the numbers of all columns in a row. They are, where the products have the same bits.
Keys of drawn tokens are not: there a step writes a column, of which every number would lie somewhere else.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from searchlens.engines._weights import Shape

_FEWEST = 8  # columns: with two or three, some products have other bits
# Rows of a prompt, and columns, for which bits are compared.
_COMPARED_ROWS = (*range(1, 9), 16, 33, 64)
_COMPARED_COLUMNS = (_FEWEST, 17, 36, 64, 129)


class KeysValues(NamedTuple):
    """Keys and values, each of shape (layers, sequences, kv_heads, columns, head_dim)."""

    keys: Tensor
    values: Tensor

    @classmethod
    def empty(cls, shape: Shape, sequences: int, columns: int, device: torch.device, dtype: torch.dtype) -> KeysValues:
        """Return room for sequences of a model; what it holds is undefined."""
        size = shape.layers, sequences, shape.kv_heads, columns, shape.head_dim
        values = torch.empty(size, device=device, dtype=dtype)
        may_differ = device.type != "cpu" or dtype != torch.float32 or columns < _FEWEST
        if not may_differ and _same_bits(shape.head_dim, shape.repeat):
            return cls(torch.empty(*size[:3], shape.head_dim, columns, device=device, dtype=dtype).mT, values)
        return cls(torch.empty_like(values), values)

    def part(self, sequences: slice, columns: slice) -> KeysValues:
        """Return a view of some columns of some sequences."""
        return KeysValues(*(tensor[:, sequences, :, columns] for tensor in self))

    def layer(self, number: int) -> KeysValues:
        """Return a view of one layer."""
        return KeysValues(*(tensor[number : number + 1] for tensor in self))

    def copy_(self, other: KeysValues) -> None:
        """Take over keys and values of the same shape."""
        for target, source in zip(self, other, strict=True):
            target.copy_(source)

    def zero_(self) -> None:
        """Set everything to zero."""
        for tensor in self:
            tensor.zero_()

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


def _same_bits(head_dim: int, repeat: int) -> bool:
    return _is_same(head_dim, repeat, torch.get_num_threads())


@cache
def _is_same(head_dim: int, repeat: int, threads: int) -> bool:
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
