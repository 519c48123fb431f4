"""The pool of keys and values that later requests find again, against plain search through all that was put in."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from searchlens.engines._llama import Shape  # noqa: E402
from searchlens.engines._store import Store  # noqa: E402

SHAPE = Shape(layers=1, hidden=2, heads=1, kv_heads=1, head_dim=1, vocab=10, max_len=100)


def store(capacity: int) -> Store:
    return Store(SHAPE, capacity, torch.device("cpu"), torch.float32)


def values(tokens: tuple[int, ...]) -> torch.Tensor:
    """Keys and values from which the tokens before each place can be told."""
    sums = np.cumsum(np.array(tokens) * 10.0 ** np.arange(len(tokens)))
    return torch.from_numpy(sums.astype(np.float32))[:, None, None, None, None].expand(-1, 1, 2, 1, 1)


def put(pool: Store, prompt: tuple[int, ...], generated: tuple[int, ...]) -> None:
    chosen, places = pool.add([(prompt, generated)])
    if chosen.any():
        pool.write(places, values(generated[:-1]))


@pytest.mark.parametrize("seed", range(4))
def test_longest_known_beginning_is_found(seed: int) -> None:
    """All but the last token of a prefix can come from any sequence of the same prompt, but for that one's last."""
    rng = np.random.default_rng(seed)
    pool, known = store(10_000), []
    for _ in range(60):
        prompt = (int(rng.integers(3)),)
        prefix = tuple(rng.integers(0, 3, rng.integers(1, 6)).tolist())
        wanted = 0
        for other_prompt, generated in known:
            same = [a == b for a, b in zip(generated[:-1], prefix[:-1], strict=False)]
            wanted = max(wanted, (*same, False).index(False) if other_prompt == prompt else 0)
        places = pool.prefix(prompt, prefix)
        assert len(places) == wanted
        assert torch.equal(pool.read(places), values(prefix[:wanted]))
        put(pool, prompt, prefix)
        known.append((prompt, prefix))


def test_least_recently_used_leave_first() -> None:
    """Prompts and what was generated share the room; finding something is using it."""
    pool = store(9)
    pool.add_prompts([(1, 2, 3)], values((1, 2, 3)), torch.ones(1, 2))
    put(pool, (1, 2, 3), (4, 5, 6, 7))
    put(pool, (1, 2, 3), (8, 5, 6, 7))
    assert pool.prompt((1, 2, 3)) is not None
    put(pool, (9,), (4, 5, 6))
    assert not len(pool.prefix((1, 2, 3), (4, 5, 6)))
    assert torch.equal(pool.read(pool.prefix((1, 2, 3), (8, 5, 6))), values((8, 5)))
    assert torch.equal(pool.read(pool.prompt((1, 2, 3))), values((1, 2, 3)))
    assert pool.hidden([(1, 2, 3)]).tolist() == [[1, 1]]
    put(pool, (9,), tuple(range(10)))
    assert pool.prompt((1, 2, 3)) is None
    assert len(pool.prefix((9,), tuple(range(10)))) == 9


def test_places_are_never_shared() -> None:
    """Not even when much is added at once, or what is added pushes itself out."""
    pool = store(20)
    rng = np.random.default_rng(0)
    paths = [((0,), tuple(rng.integers(0, 9, rng.integers(2, 9)).tolist())) for _ in range(200)]
    for begin in range(0, 200, 10):
        chosen, places = pool.add(paths[begin : begin + 10])
        assert len(set(places.tolist())) == len(places) <= 20
        assert len(places) == sum(len(path[1]) - 1 for path, taken in zip(paths[begin:], chosen, strict=False) if taken)
    held = [place for places in pool._paths.values() for place in places.tolist()]
    assert sorted(held + pool._free[: pool._room].tolist()) == list(range(20))


def test_what_is_too_long_or_nothing_is_not_kept() -> None:
    pool = store(3)
    put(pool, (1,), (1, 2, 3))
    chosen, _ = pool.add([((1,), (5, 6, 7, 8, 9)), ((1,), (5,)), ((1,), (1, 2, 3))])
    assert not chosen.any()
    assert len(pool.prefix((1,), (1, 2, 3))) == 2
    pool.clear()
    assert not len(pool.prefix((1,), (1, 2, 3)))
