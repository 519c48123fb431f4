"""Attention of one new token of every row to the tokens before it, as a Triton kernel.

torch would do this by products of batches of small matrices, over the window of the longest row and for finished rows,
too: half of a step's time. The kernel reads what a row has, once, and nothing of a finished row.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_COLUMNS = 32  # that a program reads at a time


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    queries,
    cache,
    position,
    finish,
    out,
    row_stride,
    value_stride,
    columns,
    group: tl.constexpr,
    dim: tl.constexpr,
    block: tl.constexpr,
):
    """One program for each row and query head: softmax as it reads, with the highest score so far taken out."""
    row, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    length = tl.where(tl.load(finish + row) == 0, tl.load(position + row) + 1, 0).to(tl.int32)
    dims, ahead = tl.arange(0, dim), tl.arange(0, block)
    query = tl.load(queries + (row * heads + head) * dim + dims).to(tl.float32)
    keys = cache + row.to(tl.int64) * row_stride + (head // group) * columns * dim
    values = keys + value_stride
    highest = tl.max(tl.full([block], float("-inf"), tl.float32), 0)
    total = tl.sum(tl.zeros([block], tl.float32), 0)
    result = tl.zeros([dim], tl.float32)
    start = 0
    while start < length:
        column = start + ahead
        places = column[:, None] * dim + dims[None, :]
        inside = column < length
        key = tl.load(keys + places, mask=inside[:, None], other=0.0).to(tl.float32)
        score = tl.where(inside, tl.sum(key * query[None, :], 1), float("-inf"))
        new = tl.maximum(highest, tl.max(score, 0))
        weight = tl.exp(score - new)
        shrink = tl.exp(highest - new)
        value = tl.load(values + places, mask=inside[:, None], other=0.0).to(tl.float32)
        result = result * shrink + tl.sum(weight[:, None] * value, 0)
        total = total * shrink + tl.sum(weight, 0)
        highest = new
        start += block
    result = result / tl.where(length > 0, total, 1.0)
    tl.store(out + (row * heads + head) * dim + dims, result.to(out.dtype.element_ty))


def attend(queries: Tensor, cache: Tensor, position: Tensor, finish: Tensor) -> Tensor:
    """Attend to the columns of each row up to its newest token.

    ``queries``: scaled; ``head_dim`` is a power of two. ``cache``: keys and values of at least these rows; contiguous.
    ``position``, ``finish``: of ``NUMBERS``. Returns 0 in rows that have finished.
    """
    rows, heads, head_dim = queries.shape
    kv_heads, columns = cache.shape[2:4]
    out = queries.new_empty(rows, heads * head_dim)
    sizes = cache.stride(1), cache.stride(0), columns, heads // kv_heads, head_dim, _COLUMNS
    _kernel[rows, heads](queries.contiguous(), cache, position, finish, out, *sizes, num_warps=1)
    return out
