"""The attention kernel for GPUs, run by Triton's interpreter on a CPU, against the same attention by torch."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

torch = pytest.importorskip("torch")

HEADS = ((2, 4, 32), (1, 3, 16), (1, 1, 8))
"""Of keys and values, of queries, and their width."""
ERRORS = {"float32": 1e-5, "bfloat16": 2e-2}


@pytest.mark.skipif(not find_spec("triton"), reason="Triton is not installed (make test-vllm has it)")
def test_the_kernel() -> None:
    """In a process of its own: Triton must know that it interprets before anything imports it."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["equal"] * len(HEADS) * len(ERRORS)


def compare(kv_heads: int, heads: int, head_dim: int, dtype: str) -> None:
    """Rows that end at a block's first and last column, with one token and with all; some in use, one finished."""
    from searchlens_lab.resident._attention import attend
    from searchlens_lab.resident._device_rows import _attend

    torch.manual_seed(0)
    columns, number = 130, getattr(torch, dtype)
    position = torch.tensor([0, 1, 30, 31, 32, 95, 96, 129, 40])
    rows, finish = len(position), torch.zeros_like(position)
    finish[8] = 1
    cache = torch.randn(2, rows + 3, kv_heads, columns, head_dim, dtype=number)
    queries = torch.randn(rows, heads + 2, head_dim, dtype=number)[:, :heads]
    masked = torch.arange(columns) > position[:, None]
    expected = _attend(queries.float(), cache[:, :rows].float(), masked)
    expected[8] = 0
    result = attend(queries, cache, position, finish)
    assert result.dtype == number
    torch.testing.assert_close(result.float(), expected, rtol=ERRORS[dtype], atol=ERRORS[dtype])


if __name__ == "__main__":
    for shape in HEADS:
        for dtype in ERRORS:
            compare(*shape, dtype)
            print("equal")
