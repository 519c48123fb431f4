"""Random numbers depend on their key alone, and never repeat by accident."""

import re
from pathlib import Path

import numpy as np
import pytest

import searchlens
from searchlens.seeds import child, generator, resampler, sample_seed, uniform


def test_seeds_are_stable() -> None:
    """A change here would silently change every sample ever drawn."""
    assert sample_seed("abc", "q1", 0) == 6154129228016345738
    assert sample_seed("abc", "Frage é", 0) == 628850039789502840
    assert child(7, "block", 3) == 1679083232793123834
    assert generator("abc", 1).integers(1000, size=3).tolist() == [178, 644, 355]
    assert uniform(np.array([7], np.uint64), np.array([0])).tolist() == [0.5243459416779314]
    assert resampler(42, 5, 3).integers(1000, size=3).tolist() == [761, 111, 811]
    assert resampler(42, 53).integers(1000, size=3).tolist() == [766, 660, 243]


def test_seeds_of_a_grid_are_distinct() -> None:
    seeds = {sample_seed(g, q, s) for g in ("a", "ab", "b") for q in ("1", "11", "b1") for s in range(200)}
    assert len(seeds) == 3 * 3 * 200
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize(("one", "other"), [(("a", "bc"), ("ab", "c")), ((1,), ("1",)), (("a,b",), ("a", "b"))])
def test_keys_are_unambiguous(one: tuple[str | int, ...], other: tuple[str | int, ...]) -> None:
    assert generator(*one).random() != generator(*other).random()


def test_uniform_depends_on_seed_and_position_alone() -> None:
    seeds = np.array([5, 2**63 - 1, 0, 5], np.uint64)
    positions = np.array([3, 0, 9, 4])
    together = uniform(seeds, positions)
    alone = [uniform(seeds[[i]], positions[[i]])[0] for i in range(4)]
    assert together.tolist() == alone
    assert len(set(alone)) == 4


def test_uniform_is_uniform_across_positions_and_adjacent_seeds() -> None:
    """Adjacent seeds must not share a stream; 256 bins, both directions, at the 99.9 % quantile of chi-square."""
    for seeds, positions in (
        (np.zeros(100_000, np.uint64), np.arange(100_000)),
        (np.arange(100_000, dtype=np.uint64), np.zeros(100_000, np.int64)),
    ):
        values = uniform(seeds, positions)
        assert values.min() >= 0
        assert values.max() < 1
        counts = np.bincount((values * 256).astype(int), minlength=256)
        assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 330.5
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.01


def test_generators_are_made_in_one_place() -> None:
    """``seeds`` describes all of them."""
    package = Path(searchlens.__file__).parent
    seeding = re.compile(r"\b(Philox|SeedSequence|PCG64|RandomState|default_rng)\(")
    files = sorted(path.relative_to(package) for path in package.rglob("*.py") if seeding.search(path.read_text()))
    assert [str(path) for path in files] == ["seeds.py"]
