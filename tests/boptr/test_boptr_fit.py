"""Fits of the law, against an enumeration in whole numbers.

On the grids log2 of the unrounded budget is a multiple of a tenth, (2k + t i) / 10 for alpha = 2^(k/5), beta = t/10 and
b = 2^i, so rounding, errors and ties are decided here without any floating point.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import product

import numpy as np
import pytest

from planted_landscapes import budget_path, round_budget
from searchlens.boptr.fit import (
    ALPHAS,
    BETAS,
    Fit,
    boundary_distance,
    fit_free,
    fit_locked,
    identified_alpha,
    lattice,
    round_position,
)

BUDGETS = (1, 2, 4, 8, 16)
LARGER = (1, 2, 4, 8, 16, 32, 64, 128, 256)
KS, TENTHS = range(-10, 21), range(13)


def alphas(ks: Iterable[int] = KS) -> tuple[float, ...]:
    return tuple(2 ** (k / 5) for k in ks)


def betas(tenths: Iterable[int] = TENTHS) -> tuple[float, ...]:
    return tuple(t / 10 for t in tenths)


def law(k: int, t: int, levels: int) -> list[int]:
    """Positions of the nearest allowed budgets, halves up; 2 k + t i is ten times log2 of the unrounded one."""
    return [min(max((2 * k + t * i + 5) // 10, 0), levels - 1) for i in range(levels)]


def test_grids() -> None:
    assert pytest.approx([2 ** (k / 5) for k in range(-10, 21)]) == ALPHAS
    assert BETAS == (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)
    printed = [2.64, 3.48, 6.96, 3.03, 2.30]
    assert np.abs(np.subtract.outer(printed, ALPHAS)).min(axis=1).max() < 0.005


@pytest.mark.parametrize(
    ("x", "nearest"),
    [
        (1e-12, 1),
        (1.0, 1),
        (1.414213, 1),  # just below sqrt 2
        (2**0.5, 2),
        (2.828427, 2),
        (2**1.5, 4),
        (5.656854, 4),
        (2**2.5, 8),
        (11.313708, 8),
        (2**3.5, 16),
        (1e12, 16),
    ],
)
def test_nearest_budget(x: float, nearest: int) -> None:
    """Halves lie at sqrt 2 of a budget, and go up; beyond the ends there is nothing to round to."""
    assert round_budget(x, BUDGETS) == nearest


def test_a_larger_grid_moves_the_upper_clip_only() -> None:
    values = [0.3, 3.0, 15.0, 22.7, 180.0, 182.0, 1000.0]
    assert round_budget(values, BUDGETS).tolist() == [1, 4, 16, 16, 16, 16, 16]
    assert round_budget(values, LARGER).tolist() == [1, 4, 16, 32, 128, 256, 256]
    assert round_budget(values, (1, 2)).tolist() == [1, 2, 2, 2, 2, 2, 2]


def test_positions_keep_their_shape() -> None:
    assert round_position(np.array([[-3, 0.4, 0.5], [1.49, 1.5, 9]]), 3).tolist() == [[0, 0, 1], [1, 2, 2]]
    assert round_position(2.5, 5).shape == ()


@pytest.mark.parametrize("budgets", [BUDGETS, LARGER])
def test_every_path_of_the_grids(budgets: tuple[int, ...]) -> None:
    levels = len(budgets)
    grid = lattice(alphas(), betas(), levels)
    halves = 0
    for pair, (k, t) in enumerate(product(KS, TENTHS)):
        expected = law(k, t, levels)
        halves += sum((2 * k + t * i) % 10 == 5 for i in range(levels))
        assert (grid.alpha[pair], grid.beta[pair]) == pytest.approx((2 ** (k / 5), t / 10))
        assert grid.paths[grid.path[pair]].tolist() == expected
        assert budget_path(2 ** (k / 5), t / 10, budgets) == tuple(budgets[n] for n in expected)
    assert halves > 50


def test_lattice_lists_each_path_once_with_its_pairs() -> None:
    """Of 403 pairs 54 paths differ; weights say where between two budgets they lie."""
    grid = lattice(alphas(), betas(), 5)
    assert len({tuple(path) for path in grid.paths.tolist()}) == len(grid.paths) == 54
    assert (len(grid.path), set(grid.path.tolist())) == (403, set(range(54)))
    unrounded = np.array([[min(max(2 * k + t * i, 0), 40) / 10 for i in range(5)] for k, t in product(KS, TENTHS)])
    np.testing.assert_allclose(grid.weights @ np.arange(5), unrounded, atol=1e-12)
    assert np.allclose(grid.weights.sum(axis=2), 1) and (np.count_nonzero(grid.weights, axis=2) <= 2).all()


@pytest.mark.parametrize("levels", [5, 7])
def test_identified_interval_is_the_run_of_equal_paths(levels: int) -> None:
    """log2 alpha in steps of 1/20: borders lie at tenths, so the run's first step is the closed end and the step after
    its last one the open end.
    """
    steps = range(-400, 401)
    for t in TENTHS:
        paths = [[min(max((s + 2 * t * i + 10) // 20, 0), levels - 1) for i in range(levels)] for s in steps]
        runs = {}
        for step, path in zip(steps, paths, strict=True):
            first, _ = runs.get(tuple(path), (step, step))
            runs[tuple(path)] = first, step
        for k in KS:
            first, last = runs[tuple(law(k, t, levels))]
            low = 0.0 if first == steps[0] else 2 ** (first / 20)
            high = np.inf if last == steps[-1] else 2 ** ((last + 1) / 20)
            assert identified_alpha(2 ** (k / 5), t / 10, levels) == pytest.approx((low, high))
            gaps = [4 * k - first if low else np.inf, last + 1 - 4 * k if np.isfinite(high) else np.inf]
            assert boundary_distance(2 ** (k / 5), t / 10, levels) == pytest.approx(min(gaps) / 20, abs=1e-12)


def test_a_path_at_one_end_is_bounded_on_one_side() -> None:
    """16 everywhere: alpha may grow for ever; 1 everywhere: it may vanish; one allowed budget: nothing can change."""
    assert identified_alpha(100.0, 0.0, 5) == pytest.approx((2**3.5, np.inf))
    assert identified_alpha(0.01, 0.5, 5) == pytest.approx((0, 2**-1.5))
    assert boundary_distance(2.0**5, 0.0, 5) == pytest.approx(1.5)
    assert identified_alpha(3.0, 0.5, 1) == (0, np.inf)
    assert boundary_distance(3.0, 0.5, 1) == np.inf


Candidate = tuple[int, int, int]
"""k, ten times beta, policy."""


def between(curve: np.ndarray, tenth: int) -> int:
    """Ten times the curve at a tenth of the budget axis, interpolated and clipped."""
    tenth = min(max(tenth, 0), 10 * (len(curve) - 1))
    below, share = divmod(tenth, 10)
    return 10 * curve[below] + share * (curve[min(below + 1, len(curve) - 1)] - curve[below])


def free_error(P: np.ndarray, R: np.ndarray, candidate: Candidate) -> int:
    k, t, _ = candidate
    return sum(min(abs(curve[n] - R[b]) for curve in P) for b, n in enumerate(law(k, t, len(R))))


def free_second(P: np.ndarray, R: np.ndarray, candidate: Candidate) -> int:
    k, t, _ = candidate
    return sum(min(abs(between(curve, 2 * k + t * b) - 10 * r) for curve in P) for b, r in enumerate(R))


Measure = Callable[[np.ndarray, np.ndarray, Candidate], int]


def tied(
    P: np.ndarray, R: np.ndarray, policies: int, error: Measure, tenths: Iterable[int] = TENTHS
) -> tuple[int, list[Candidate]]:
    """The smallest sum of errors and all that reach it, alpha slowest, then beta, then policy."""
    measured = {candidate: error(P, R, candidate) for candidate in product(KS, tenths, range(policies))}
    least = min(measured.values())
    return least, [candidate for candidate, value in measured.items() if value == least]


def choose(found: list[Candidate], second: Callable[[Candidate], int], tenth: int) -> Candidate:
    return min(found, key=lambda c: (second(c), abs(c[1] - tenth), -c[0], c[2], c[1]))


def landscapes(
    seed: int, levels: int = 5, policies: int = 3, draws: int = 12, top: int = 5
) -> tuple[np.ndarray, np.ndarray]:
    """A few possible counts only, so that exact ties are everywhere; half of the draws rise with the budget."""
    rng = np.random.default_rng(seed)
    P, R = rng.integers(0, top, (policies, levels, draws)), rng.integers(0, top, (levels, draws))
    half = draws // 2
    P[:, :, :half].sort(axis=1)
    R[:, :half].sort(axis=0)
    P[-1, :, ::3] = P[0, :, ::3]
    return P, R


def as_float(*counts: np.ndarray) -> list[np.ndarray]:
    return [part.astype(np.float32) for part in counts]


def triple(found: Fit, draw: int) -> tuple[int, int]:
    return round(5 * np.log2(found.alpha[draw])), round(10 * found.beta[draw])


@pytest.mark.parametrize(
    ("tenth", "levels", "tenths"),
    [
        (0, 5, TENTHS),
        (6, 5, TENTHS),
        (10, 5, TENTHS),
        (6, 7, TENTHS),  # as in the extended pools
        (6, 5, [6]),  # a cell's alpha at the exponent of its regime
    ],
)
def test_locked_fit_is_the_best_triple(tenth: int, levels: int, tenths: Sequence[int]) -> None:
    """R1, ties settled. All draws are fitted at once, and each as if it were alone."""
    P, R = landscapes(tenth, levels)
    found = fit_locked(*as_float(P, R), lattice(alphas(), betas(tenths), levels), tenth / 10)
    many = 0
    for draw in range(P.shape[2]):
        p, r = P[:, :, draw], R[:, draw]
        least, candidates = tied(p, r, len(p), lambda p, r, c: free_error(p[[c[2]]], r, c), tenths)
        many += len(candidates) > 1
        k, t, policy = choose(candidates, lambda c, p=p, r=r: free_second(p[[c[2]]], r, c), tenth)
        assert (*triple(found, draw), found.policy[draw]) == (k, t, policy)
        assert found.path[:, draw].tolist() == law(k, t, levels)
        assert found.error[draw] == pytest.approx(least / levels)
    assert many > P.shape[2] // 4


def test_free_fit_is_the_best_pair_with_the_nearest_policies() -> None:
    P, R = landscapes(3)
    found = fit_free(*as_float(P, R), lattice(alphas(), betas(), 5), 0.6)
    for draw in range(P.shape[2]):
        p, r = P[:, :, draw], R[:, draw]
        least, candidates = tied(p, r, 1, free_error)
        k, t, _ = choose(candidates, lambda c, p=p, r=r: free_second(p, r, c), 6)
        path = law(k, t, 5)
        gaps = [[abs(curve[n] - r[b]) for curve in p] for b, n in enumerate(path)]
        assert triple(found, draw) == (k, t)
        assert found.path[:, draw].tolist() == path
        assert found.policy[:, draw].tolist() == [gap.index(min(gap)) for gap in gaps]
        assert found.error[draw] == pytest.approx(least / 5)


@pytest.mark.parametrize(
    ("path", "tenths", "printed"),
    [
        # Between budgets (2^1, .8), (2^1.2, .7), (2^1.4, .6) miss by 10, 10 and 12; .7 is nearer to the regime's .6.
        ([1, 2, 3, 3, 4], TENTHS, (6, 7)),
        # 2^2.6 misses by 8, 2^2.8 by 6: the printed 6.96.
        ([3, 3, 4, 4, 4], [6], (14, 6)),
        # 2^-1.2 misses by 6, 2^-1 by 8: the printed .44.
        ([0, 0, 0, 1, 1], [6], (-6, 6)),
        # Only 2^4 misses by nothing: the printed 16.
        ([4, 4, 4, 4, 4], [0], (20, 0)),
    ],
)
def test_printed_ties(path: list[int], tenths: Iterable[int], printed: tuple[int, int]) -> None:
    """Paths that several pairs of the grid give, on a landscape that gains ten questions with each doubling: they are
    settled as the paper prints them, neither by the first nor by the last of the grid.
    """
    P = np.arange(0, 50, 10)[None, :, None]
    R = 10 * np.array(path)[:, None]
    assert triple(fit_locked(*as_float(P, R), lattice(alphas(), betas(tenths), 5), 0.6), 0) == printed


def test_where_nothing_matters_the_regime_decides() -> None:
    """A flat landscape: beta nearest to the regime's, the largest alpha, the first policy."""
    P, R = np.full((3, 5, 1), 7.0), np.full((5, 1), 7.0)
    grid = lattice(alphas(), betas(), 5)
    for tenth in (0, 6, 10):
        found = fit_locked(P, R, grid, tenth / 10)
        assert (*triple(found, 0), found.policy[0], found.error[0]) == (20, tenth, 0, 0)
    between_two = fit_locked(P, R, grid, 0.65)
    assert between_two.alpha.shape == (1,) and triple(between_two, 0) == (20, 6)


def test_pool_order_comes_before_the_smaller_exponent() -> None:
    """At alpha 1 both exponents give 1/2/2 and both policies miss by 40. Between budgets the first misses by 36 and 30
    at .5 and .7, the second by 30 and 42.8: two equals, as far from .6, and the first policy's is the larger exponent.
    """
    P, R = np.array([[48, 56, 37], [56, 28, 0]])[:, :, None], np.full((3, 1), 40)
    found = fit_locked(*as_float(P, R), lattice((1.0,), (0.5, 0.7), 3), 0.6)
    assert (*triple(found, 0), found.policy[0], found.error[0]) == (0, 7, 0, pytest.approx(40 / 3))
