"""KV cache of rows and prompts, through random steps, dropped rows and merges, against attention written plainly."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from searchlens.engines import _prompts  # noqa: E402
from searchlens.engines._caches import RowGroup, attend  # noqa: E402
from searchlens.engines._llama import Shape  # noqa: E402
from searchlens.engines._prompts import Prompts, token_index  # noqa: E402

CPU, FLOAT = torch.device("cpu"), torch.float32
SHAPE = Shape(layers=2, hidden=8, heads=4, kv_heads=2, head_dim=4, vocab=10, max_len=100)


@dataclass
class Row:
    """Keys and values of all tokens of a row: one (layers, 2, kv_heads, head_dim) per token."""

    tokens: list[torch.Tensor] = field(default_factory=list)


def plain(queries: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    """Attention of one row, head by head: queries (heads, head_dim), cache (tokens, 2, kv_heads, head_dim)."""
    out = []
    for head, query in enumerate(queries):
        keys, values = cache[:, :, head // SHAPE.repeat].unbind(1)
        out.append(torch.softmax(keys @ query, 0) @ values)
    return torch.cat(out)


def tokens(count: int) -> torch.Tensor:
    """Random keys and values, (tokens, layers, 2, kv_heads, head_dim)."""
    return torch.randn(count, SHAPE.layers, 2, SHAPE.kv_heads, SHAPE.head_dim)


class Bench:
    """Row groups, each with the rows that it should have."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.prompts = Prompts(SHAPE, CPU, FLOAT)
        self.prompt_cache: dict[tuple[int, ...], torch.Tensor] = {}  # keys and values by prompt
        self.groups: list[tuple[RowGroup, list[Row]]] = []

    def admit(self) -> None:
        """Add rows of new and of present prompts, some with private tokens, some prompts with many rows."""
        names = {(i, *range(int(self.rng.integers(0, 5)))) for i in self.rng.integers(0, 6, 3).tolist()}
        for name in names:
            self.prompt_cache.setdefault(name, tokens(len(name)))
        missing = [name for name in names if name not in self.prompts]
        if missing:
            hidden = torch.zeros(len(missing), SHAPE.hidden)
            self.prompts.add(missing, torch.cat([self.prompt_cache[name] for name in missing]), hidden)
        prompts = [name for name in names for _ in range(self.rng.choice([1, 2, 3, 4, 30]))]
        lengths = self.rng.integers(0, 7, len(prompts))
        private = [tokens(length) for length in lengths]
        group = RowGroup.allocate(SHAPE, lengths, CPU, FLOAT)
        group.write(*token_index(lengths), torch.cat(private))
        self.prompts.append_rows(self.prompts.numbers(prompts))
        rows = [Row([*self.prompt_cache[name], *more]) for name, more in zip(prompts, private, strict=True)]
        self.groups.append((group, rows))

    def step(self) -> None:
        groups = [group for group, _ in self.groups]
        rows = [row for _, part in self.groups for row in part]
        padding = int(self.rng.integers(0, 3))
        new, queries = tokens(len(rows) + padding), torch.randn(len(rows) + padding, SHAPE.heads, SHAPE.head_dim)
        for group in groups:
            group.begin_step()
        outputs = [attend(self.prompts, groups, layer, queries, new[:, layer]) for layer in range(SHAPE.layers)]
        for group in groups:
            group.end_step()
        for i, row in enumerate(rows):
            row.tokens.append(new[i])
            for layer in range(SHAPE.layers):
                wanted = plain(queries[i], torch.stack(row.tokens)[:, layer])
                torch.testing.assert_close(outputs[layer][i], wanted, rtol=1e-4, atol=1e-5)

    def leave(self, fraction: float) -> None:
        orders, begin = [], 0
        for place, (group, rows) in enumerate(self.groups):
            order = group.keep_rows(self.rng.random(len(rows)) > fraction)
            orders.append(begin + order)
            begin += len(rows)
            self.groups[place] = (group, [rows[i] for i in order])
        self.groups = [(group, rows) for group, rows in self.groups if rows]
        self.prompts.keep_rows(np.concatenate(orders))

    def merge(self) -> None:
        """Any neighbours, two or more, the longer or the shorter first."""
        if len(self.groups) > 1:
            place = int(self.rng.integers(len(self.groups) - 1))
            (group, rows), *others = self.groups[place : place + int(self.rng.integers(2, 4))]
            group.merge([other for other, _ in others])
            self.groups[place : place + 1 + len(others)] = [
                (group, [*rows, *(row for _, part in others for row in part)])
            ]

    def read(self) -> None:
        """Private tokens can be read back."""
        for group, rows in self.groups:
            sample = self.rng.permutation(len(rows))[:3]
            lengths = np.array([int(group.columns - group._start[row]) for row in sample])
            expected = [rows[i].tokens[len(rows[i].tokens) - n :] for i, n in zip(sample, lengths, strict=True)]
            if lengths.any():
                number, position = token_index(lengths)
                flat = torch.stack([token for row in expected for token in row])
                assert torch.equal(group.read(sample[number], position), flat)


@pytest.mark.parametrize("seed", range(6))
def test_attention_survives_everything(seed: int) -> None:
    """Rows with and without private tokens are added, rows are dropped and groups merge at random."""
    bench = Bench(seed)
    for turn in range(60):
        if turn % 6 == 0 or not bench.groups:
            bench.admit()
        bench.step()
        bench.read()
        if bench.rng.random() < 0.2:
            bench.leave(0.4)
        if bench.rng.random() < 0.15:
            bench.merge()


def test_prompts_without_rows_are_dropped() -> None:
    """But only once there are many, never wanted ones, and the others stay with their rows."""
    prompts = Prompts(SHAPE, CPU, FLOAT)
    names = [(i,) * (8 - i) for i in range(8)]
    prompts.add(names, tokens(36), torch.arange(8.0)[:, None].expand(8, SHAPE.hidden))
    prompts.append_rows(np.arange(8))
    prompts.keep_rows(np.arange(7))
    assert names[7] in prompts
    prompts.keep_rows(np.array([6, 2, 4]), {names[3], (9,)})
    assert [name in prompts for name in names] == [i in (2, 3, 4, 6) for i in range(8)]
    assert prompts.longest == 6
    assert prompts.hidden(prompts.numbers([names[4], names[2]]))[:, 0].tolist() == [4, 2]


def test_the_layout_of_keys_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are added, their rows leave, and what stays is shorter than any layout but the plain one may be."""
    shape = Shape(layers=2, hidden=8, heads=4, kv_heads=2, head_dim=32, vocab=10, max_len=100)
    if not _prompts._same_bits(shape.head_dim, shape.repeat, torch.get_num_threads()):
        pytest.skip("this CPU multiplies otherwise")
    products: list[list[torch.Tensor]] = []
    for is_same in (False, True):
        monkeypatch.setattr(_prompts, "_same_bits", lambda *_, same=is_same: same)
        torch.manual_seed(0)
        prompts, own = Prompts(shape, CPU, FLOAT), list[torch.Tensor]()
        for lengths in ([3], [20, 11], [37, 2]):
            names = [(i, *range(length - 1)) for i, length in enumerate(lengths)]
            names = [name for name in names if name not in prompts]
            new = torch.randn(sum(map(len, names)), shape.layers, 2, shape.kv_heads, shape.head_dim)
            prompts.add(names, new, torch.zeros(len(names), shape.hidden))
            prompts.append_rows(np.repeat(prompts.numbers(names), 3))
            own += _products(prompts, shape)
            assert (prompts._cache.keys.stride(-1) > 1) == (is_same and prompts.longest >= _prompts._FEWEST)
        prompts.keep_rows(np.arange(3))
        assert prompts.longest == 3 and prompts._cache.keys.stride(-1) == 1
        products.append([*own, *_products(prompts, shape)])
    assert all(torch.equal(one, other) for one, other in zip(*products, strict=True))


def _products(prompts: Prompts, shape: Shape) -> list[torch.Tensor]:
    """Scores and weighted values of all rows, by the same random queries each time."""
    rows = len(prompts._prompt_of_row) * shape.kv_heads
    queries = torch.randn(rows, shape.repeat, shape.head_dim, generator=torch.Generator().manual_seed(rows))
    scores = prompts.scores(1, queries)
    return [scores, prompts.weighted_values(1, scores.softmax(-1))]
