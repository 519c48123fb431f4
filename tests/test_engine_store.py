"""The pool of keys and values that later requests find again, against plain search through all that was put in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch")

from searchlens.engines._llama import Shape  # noqa: E402
from searchlens.engines._store import Beginning, Store  # noqa: E402

SHAPE = Shape(layers=1, hidden=2, heads=1, kv_heads=1, head_dim=1, vocab=10, max_len=100)


def store(capacity: int) -> Store:
    return Store(SHAPE, capacity, torch.device("cpu"), torch.float32)


def values(tokens: tuple[int, ...]) -> torch.Tensor:
    """Keys and values from which the tokens before each place can be told."""
    sums = np.cumsum(np.array(tokens) * 10.0 ** np.arange(len(tokens)))
    return torch.from_numpy(sums.astype(np.float32))[:, None, None, None, None].expand(-1, 1, 2, 1, 1)


def put(
    pool: Store, prompt: tuple[int, ...], generated: tuple[int, ...], begun: Beginning | None = None
) -> npt.NDArray[np.int64]:
    """Keep what was generated; return where that was written."""
    (known,), places = pool.add([(prompt, generated)], [begun or Beginning()])
    if places.size:
        pool.write(places, values(generated[:-1])[known:])
    return places


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
        found = pool.prefix(prompt, prefix)
        assert found.count == len(found.places) == wanted
        assert torch.equal(pool.read(found.places), values(prefix[:wanted]))
        assert len(put(pool, prompt, prefix, found)) in (len(prefix) - 1 - wanted, 0)
        known.append((prompt, prefix))


def test_least_recently_used_leave_first() -> None:
    """Prompts and what was generated share the room; finding something is using it."""
    pool = store(9)
    pool.add_prompts([(1, 2, 3)], values((1, 2, 3)), torch.ones(1, 2))
    put(pool, (1, 2, 3), (4, 5, 6, 7))
    put(pool, (1, 2, 3), (8, 5, 6, 7))
    assert pool.prompt((1, 2, 3)) is not None
    put(pool, (9,), (4, 5, 6))
    assert not pool.prefix((1, 2, 3), (4, 5, 6)).count
    assert torch.equal(pool.read(pool.prefix((1, 2, 3), (8, 5, 6)).places), values((8, 5)))
    assert torch.equal(pool.read(pool.prompt((1, 2, 3))), values((1, 2, 3)))
    assert pool.hidden([(1, 2, 3)]).tolist() == [[1, 1]]
    put(pool, (9,), tuple(range(10)))
    assert pool.prompt((1, 2, 3)) is None
    assert pool.prefix((9,), tuple(range(10))).count == 9


def test_what_is_shared_outlives_what_it_was_shared_with() -> None:
    """A dropped path gives back the places that are its own, and none that another goes on from."""
    pool = store(9)
    first = put(pool, (1,), (4, 5, 6, 7))
    begun = pool.prefix((1,), (4, 5, 6, 8))
    second = put(pool, (1,), (4, 5, 6, 8, 9), begun)
    assert (len(first), len(second)) == (3, 1)
    put(pool, (2,), (1, 2, 3, 4, 5, 6))
    assert not begun.places.size
    assert torch.equal(pool.read(pool.prefix((1,), (4, 5, 6, 8, 9)).places), values((4, 5, 6, 8)))
    assert len(put(pool, (1,), (4, 5, 6, 9, 9), begun)) == 4


def test_places_are_never_shared_by_strangers() -> None:
    """Not even when much is added at once, or what is added pushes itself out; and none are lost."""
    pool = store(20)
    rng = np.random.default_rng(0)
    paths = [((0,), tuple(rng.integers(0, 3, rng.integers(2, 9)).tolist())) for _ in range(400)]
    for begin in range(0, 400, 10):
        part = paths[begin : begin + 10]
        begun = [pool.prefix(*path) for path in part]
        known, places = pool.add(part, begun)
        assert len(set(places.tolist())) == len(places) <= 20
        assert len(places) == sum(len(path[1]) - 1 - count for path, count in zip(part, known, strict=True))
        new = [values(path[1][:-1])[count:] for path, count in zip(part, known, strict=True)]
        pool.write(places, torch.cat(new))
        for (_, generated), kept in pool._paths.items():
            assert torch.equal(pool.read(kept.places), values(generated[:-1]))
    held = {place for kept in pool._paths.values() for place in kept.places.tolist()}
    assert sorted([*held, *pool._free[: pool._height].tolist()]) == list(range(20))


def test_what_is_too_long_or_nothing_is_not_kept() -> None:
    pool = store(3)
    put(pool, (1,), (1, 2, 3))
    _, places = pool.add([((1,), (5, 6, 7, 8, 9)), ((1,), (5,)), ((1,), (1, 2, 3))], [Beginning()] * 3)
    assert not places.size
    assert pool.prefix((1,), (1, 2, 3)).count == 2
    pool.clear()
    assert not pool.prefix((1,), (1, 2, 3)).count
