"""Keys and values through any sequence of steps, departures and merges, against attention written plainly."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from searchlens.engines._cohort import Cohort  # noqa: E402
from searchlens.engines._llama import Shape  # noqa: E402

SHAPE = Shape(layers=2, hidden=8, heads=4, kv_heads=2, head_dim=4, vocab=10, max_len=100)


@dataclass
class Row:
    """All keys and values that a row may see: one (layers, 2, kv_heads, head_dim) per token."""

    seen: list[torch.Tensor] = field(default_factory=list)


def plain(queries: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Attention of one row, head by head: queries (heads, head_dim), seen (tokens, 2, kv_heads, head_dim)."""
    out = []
    for head, query in enumerate(queries):
        keys, values = seen[:, :, head // SHAPE.repeat].unbind(1)
        out.append(torch.softmax(keys @ query, 0) @ values)
    return torch.cat(out)


class Bench:
    """Cohorts, oldest first, and beside each the rows it should hold."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.cohorts: list[tuple[Cohort, list[Row]]] = []

    def admit(self) -> None:
        lengths = self.rng.integers(1, 6, self.rng.integers(1, 4))
        prompts = torch.zeros(SHAPE.layers, len(lengths), SHAPE.kv_heads, 2, int(lengths.max()), SHAPE.head_dim)
        rows, owner = [], []
        for prompt, length in enumerate(lengths):
            tokens = [torch.randn(SHAPE.layers, 2, SHAPE.kv_heads, SHAPE.head_dim) for _ in range(length)]
            prompts[:, prompt, :, :, :length] = torch.stack(tokens, 3).transpose(1, 2)
            for _ in range(self.rng.integers(1, 5)):
                rows.append(Row(list(tokens)))
                owner.append(prompt)
        self.cohorts.append((Cohort(SHAPE, prompts, lengths, np.array(owner)), rows))

    def step(self) -> None:
        for cohort, rows in self.cohorts:
            new = torch.randn(len(rows), SHAPE.layers, 2, SHAPE.kv_heads, SHAPE.head_dim)
            queries = torch.randn(len(rows), SHAPE.heads, SHAPE.head_dim)
            cohort.begin_step()
            got = torch.stack([cohort.attend(layer, queries, new[:, layer]) for layer in range(SHAPE.layers)])
            cohort.end_step()
            for i, row in enumerate(rows):
                row.seen.append(new[i])
                for layer in range(SHAPE.layers):
                    wanted = plain(queries[i], torch.stack(row.seen)[:, layer])
                    torch.testing.assert_close(got[layer, i], wanted, rtol=1e-4, atol=1e-5)

    def leave(self, fraction: float) -> None:
        for place, (cohort, rows) in enumerate(self.cohorts):
            order = cohort.keep(self.rng.random(len(rows)) > fraction)
            self.cohorts[place] = (cohort, [rows[i] for i in order])
        self.cohorts = [one for one in self.cohorts if one[1]]

    def merge(self) -> None:
        if len(self.cohorts) > 1:
            place = int(self.rng.integers(len(self.cohorts) - 1))
            (old, rows), (young, more) = self.cohorts[place], self.cohorts.pop(place + 1)
            old.absorb(young)
            self.cohorts[place] = (old, rows + more)


@pytest.mark.parametrize("seed", range(6))
def test_attention_survives_everything(seed: int) -> None:
    """Rows leave and cohorts merge at random."""
    bench = Bench(seed)
    for turn in range(60):
        if turn % 6 == 0 or not bench.cohorts:
            bench.admit()
        bench.step()
        if bench.rng.random() < 0.2:
            bench.leave(0.4)
        if bench.rng.random() < 0.15:
            bench.merge()
