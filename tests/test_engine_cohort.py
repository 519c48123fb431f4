"""Keys and values through any sequence of steps, departures and merges, against attention written plainly."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from searchlens.engines._cohort import Cohort, Prompts, attend, ragged  # noqa: E402
from searchlens.engines._llama import Shape  # noqa: E402

CPU, FLOAT = torch.device("cpu"), torch.float32
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


def tokens(count: int) -> torch.Tensor:
    """Random keys and values, (tokens, layers, 2, kv_heads, head_dim)."""
    return torch.randn(count, SHAPE.layers, 2, SHAPE.kv_heads, SHAPE.head_dim)


class Bench:
    """A batch of cohorts, and beside each the rows it should hold."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.prompts = Prompts(SHAPE, CPU, FLOAT)
        self.known: dict[tuple[int, ...], torch.Tensor] = {}  # keys and values of prompts, by their tokens
        self.cohorts: list[tuple[Cohort, list[Row]]] = []

    def admit(self) -> None:
        """New rows of new prompts and of such as may be there already, some with own tokens, some of many rows."""
        names = {(i, *range(int(self.rng.integers(0, 5)))) for i in self.rng.integers(0, 6, 3).tolist()}
        for name in names:
            self.known.setdefault(name, tokens(len(name)))
        missing = [name for name in names if name not in self.prompts]
        if missing:
            hidden = torch.zeros(len(missing), SHAPE.hidden)
            self.prompts.add(missing, torch.cat([self.known[name] for name in missing]), hidden)
        asked = [name for name in names for _ in range(self.rng.choice([1, 2, 3, 4, 30]))]
        lengths = self.rng.integers(0, 7, len(asked))
        own = [tokens(length) for length in lengths]
        cohort = Cohort.begun(SHAPE, lengths, CPU, FLOAT)
        cohort.write(*ragged(lengths), torch.cat(own))
        self.prompts.append(self.prompts.places(asked))
        rows = [Row([*self.known[name], *begun]) for name, begun in zip(asked, own, strict=True)]
        self.cohorts.append((cohort, rows))

    def step(self) -> None:
        cohorts = [cohort for cohort, _ in self.cohorts]
        rows = [row for _, part in self.cohorts for row in part]
        padding = int(self.rng.integers(0, 3))
        new, queries = tokens(len(rows) + padding), torch.randn(len(rows) + padding, SHAPE.heads, SHAPE.head_dim)
        for cohort in cohorts:
            cohort.begin_step()
        got = [attend(self.prompts, cohorts, layer, queries, new[:, layer]) for layer in range(SHAPE.layers)]
        for cohort in cohorts:
            cohort.end_step()
        for i, row in enumerate(rows):
            row.seen.append(new[i])
            for layer in range(SHAPE.layers):
                wanted = plain(queries[i], torch.stack(row.seen)[:, layer])
                torch.testing.assert_close(got[layer][i], wanted, rtol=1e-4, atol=1e-5)

    def leave(self, fraction: float) -> None:
        kept, begin = [], 0
        for place, (cohort, rows) in enumerate(self.cohorts):
            order = cohort.keep(self.rng.random(len(rows)) > fraction)
            kept.append(begin + order)
            begin += len(rows)
            self.cohorts[place] = (cohort, [rows[i] for i in order])
        self.cohorts = [one for one in self.cohorts if one[1]]
        self.prompts.keep(np.concatenate(kept))

    def merge(self) -> None:
        """Any neighbours, two or more, the longer or the shorter first."""
        if len(self.cohorts) > 1:
            place = int(self.rng.integers(len(self.cohorts) - 1))
            (cohort, rows), *others = self.cohorts[place : place + int(self.rng.integers(2, 4))]
            cohort.absorb([one for one, _ in others])
            self.cohorts[place : place + 1 + len(others)] = [
                (cohort, [*rows, *(row for _, part in others for row in part)])
            ]

    def read(self) -> None:
        """What rows hold can be taken out again, from any token on."""
        for cohort, rows in self.cohorts:
            picked = self.rng.permutation(len(rows))[:3]
            own = [int(cohort.slots - cohort._start[row]) for row in picked]
            row, token = ragged(np.array(own))
            wanted = [torch.stack(rows[i].seen)[len(rows[i].seen) - n :] for i, n in zip(picked, own, strict=True) if n]
            if wanted:
                assert torch.equal(cohort.read(picked[row], token), torch.cat(wanted))


@pytest.mark.parametrize("seed", range(6))
def test_attention_survives_everything(seed: int) -> None:
    """Rows with and without own tokens come, rows leave and cohorts merge at random."""
    bench = Bench(seed)
    for turn in range(60):
        if turn % 6 == 0 or not bench.cohorts:
            bench.admit()
        bench.step()
        bench.read()
        if bench.rng.random() < 0.2:
            bench.leave(0.4)
        if bench.rng.random() < 0.15:
            bench.merge()


def test_prompts_without_rows_are_forgotten() -> None:
    """But only once they are many, none that are wanted, and those that stay keep their place in every row."""
    prompts = Prompts(SHAPE, CPU, FLOAT)
    names = [(i,) * (8 - i) for i in range(8)]
    prompts.add(names, tokens(36), torch.arange(8.0)[:, None].expand(8, SHAPE.hidden))
    prompts.append(np.arange(8))
    prompts.keep(np.arange(7))
    assert names[7] in prompts
    prompts.keep(np.array([6, 2, 4]), {names[3], (9,)})
    assert [name in prompts for name in names] == [i in (2, 3, 4, 6) for i in range(8)]
    assert prompts.longest == 6
    assert prompts.hidden(prompts.places([names[4], names[2]]))[:, 0].tolist() == [4, 2]
