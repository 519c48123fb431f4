"""The prefix cache, compared with a plain search through everything that was put in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch")

from searchlens.engines._caches import CachedPrefix, PrefixCache  # noqa: E402
from searchlens.engines._llama import Shape  # noqa: E402

SHAPE = Shape(layers=1, hidden=2, heads=1, kv_heads=1, head_dim=1, vocab=10, max_len=100)


def make_cache(capacity: int) -> PrefixCache:
    return PrefixCache(SHAPE, capacity, torch.device("cpu"), torch.float32)


def values(tokens: tuple[int, ...]) -> torch.Tensor:
    """Keys and values that depend on all tokens up to each position."""
    sums = np.cumsum(np.array(tokens) * 10.0 ** np.arange(len(tokens)))
    return torch.from_numpy(sums.astype(np.float32))[:, None, None, None, None].expand(-1, 1, 2, 1, 1)


def put(
    cache: PrefixCache, prompt: tuple[int, ...], generated: tuple[int, ...], prefix: CachedPrefix | None = None
) -> npt.NDArray[np.int64]:
    """Cache a generated text; return the slots that were written."""
    (skipped,), slots = cache.allocate([(prompt, generated)], [prefix or CachedPrefix()])
    if slots.size:
        cache.write(slots, values(generated[:-1])[skipped:])
    return slots


@pytest.mark.parametrize("seed", range(4))
def test_longest_cached_prefix_is_found(seed: int) -> None:
    """A prefix, but for its last token, can come from any text after the same prompt, but for the last of that text."""
    rng = np.random.default_rng(seed)
    cache, texts = make_cache(10_000), []
    for _ in range(60):
        prompt = (int(rng.integers(3)),)
        prefix = tuple(rng.integers(0, 3, rng.integers(1, 6)).tolist())
        wanted = 0
        for other_prompt, generated in texts:
            same = [a == b for a, b in zip(generated[:-1], prefix[:-1], strict=False)]
            wanted = max(wanted, (*same, False).index(False) if other_prompt == prompt else 0)
        cached = cache.find_prefix(prompt, prefix)
        assert cached.length == len(cached.slots) == wanted
        assert torch.equal(cache.read(cached.slots), values(prefix[:wanted]))
        assert len(put(cache, prompt, prefix, cached)) in (len(prefix) - 1 - wanted, 0)
        texts.append((prompt, prefix))


def test_least_recently_used_are_evicted_first() -> None:
    """Prompts and generated texts share the room; looking a sequence up counts as using it."""
    cache = make_cache(9)
    cache.add_prompts([(1, 2, 3)], values((1, 2, 3)), torch.ones(1, 2))
    put(cache, (1, 2, 3), (4, 5, 6, 7))
    put(cache, (1, 2, 3), (8, 5, 6, 7))
    assert cache.find_prompt((1, 2, 3)) is not None
    put(cache, (9,), (4, 5, 6))
    assert not cache.find_prefix((1, 2, 3), (4, 5, 6)).length
    assert torch.equal(cache.read(cache.find_prefix((1, 2, 3), (8, 5, 6)).slots), values((8, 5)))
    assert torch.equal(cache.read(cache.find_prompt((1, 2, 3))), values((1, 2, 3)))
    assert cache.hidden([(1, 2, 3)]).tolist() == [[1, 1]]
    put(cache, (9,), tuple(range(10)))
    assert cache.find_prompt((1, 2, 3)) is None
    assert cache.find_prefix((9,), tuple(range(10))).length == 9


def test_shared_slots_outlive_the_sequence_that_came_first() -> None:
    """An evicted sequence frees the slots that only it uses."""
    cache = make_cache(9)
    first = put(cache, (1,), (4, 5, 6, 7))
    prefix = cache.find_prefix((1,), (4, 5, 6, 8))
    second = put(cache, (1,), (4, 5, 6, 8, 9), prefix)
    assert (len(first), len(second)) == (3, 1)
    put(cache, (2,), (1, 2, 3, 4, 5, 6))
    assert not prefix.slots.size
    assert torch.equal(cache.read(cache.find_prefix((1,), (4, 5, 6, 8, 9)).slots), values((4, 5, 6, 8)))
    assert len(put(cache, (1,), (4, 5, 6, 9, 9), prefix)) == 4


def test_slots_are_never_shared_by_different_tokens() -> None:
    """Not even if many sequences are added at once and evict each other; and no slot is lost."""
    cache = make_cache(20)
    rng = np.random.default_rng(0)
    keys = [((0,), tuple(rng.integers(0, 3, rng.integers(2, 9)).tolist())) for _ in range(400)]
    for begin in range(0, 400, 10):
        part = keys[begin : begin + 10]
        skipped, slots = cache.allocate(part, [cache.find_prefix(*key) for key in part])
        assert len(set(slots.tolist())) == len(slots) <= 20
        assert len(slots) == sum(len(key[1]) - 1 - count for key, count in zip(part, skipped, strict=True))
        new = [values(key[1][:-1])[count:] for key, count in zip(part, skipped, strict=True)]
        cache.write(slots, torch.cat(new))
        for (_, generated), entry in cache._entries.items():
            assert torch.equal(cache.read(entry.slots), values(generated[:-1]))
    used = {slot for entry in cache._entries.values() for slot in entry.slots.tolist()}
    assert sorted([*used, *cache._free[: cache._free_count].tolist()]) == list(range(20))


def test_sequences_that_are_too_long_or_empty_are_not_cached() -> None:
    cache = make_cache(3)
    put(cache, (1,), (1, 2, 3))
    _, slots = cache.allocate([((1,), (5, 6, 7, 8, 9)), ((1,), (5,)), ((1,), (1, 2, 3))], [CachedPrefix()] * 3)
    assert not slots.size
    assert cache.find_prefix((1,), (1, 2, 3)).length == 2
    cache.clear()
    assert not cache.find_prefix((1,), (1, 2, 3)).length
