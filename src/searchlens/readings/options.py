"""Options of the readings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le

from searchlens.schemas.options import STRICT, Draws, Positive, Small

BEST, ANY = "best", "any"
"""In place of a policy in frames: the one of Base that solves most at each number of samples; whichever fits."""

Threshold = Annotated[float, Gt(0), Le(1)]
Several = Annotated[int, Ge(2), Le(10_000_000)]


@dataclass(frozen=True, kw_only=True)
class ReadingsSection:
    """Choices about the readings of all samples."""

    __pydantic_config__ = STRICT

    draws: Draws = 2000
    """Bootstrap draws over questions."""
    exponent_draws: Draws = 200
    """Draws of the least-error fit of alpha and beta, each of which searches all policies again."""
    joint_pairs: tuple[str, ...] = ()
    """Pairs of which table `joint_exponents` asks for one exponent, if they are studied; empty: those of groups upper
    and lower, to which BOPTR is fitted, or every pair if there is none."""
    support_right: Positive = 1
    """A question is in the support of a side if at least so many of its samples are right."""
    cover_tau: tuple[Threshold, ...] = (0.05, 0.25, 0.5, 0.75, 0.9)
    """Thresholds of Cover@tau: the share of samples that must be right."""
    g_pass_k: tuple[Several, ...] = (16,)
    """Numbers of samples k of G-Pass@k, mG-Pass@k and pass^k; those above a pool are left out."""
    g_pass_tau: tuple[Threshold, ...] = (0.25, 0.5, 0.75)
    """Thresholds of G-Pass@k; that of pass^k, 1, is always read."""
    null_k: tuple[Positive, ...] = (1, 4, 16)
    """Numbers of samples k at which pass@k of guessing alone is read, and on open answers luck."""
    corrected_k: tuple[Positive, ...] = (1, 4)
    """Numbers of samples k of pass@k corrected for guessing; its noise grows like 1 / (1 - g)^k."""
    extrapolation_trials: Small = 20
    """Trials, of each side of a pair on a benchmark, in which a quarter of the samples predicts pass@k of them all."""


@dataclass(frozen=True, kw_only=True)
class ReadingsOptions(ReadingsSection):
    """Section ``readings``, and what the stage takes from the rest of the configuration."""

    default_policy: str = "topp0.95_t1.0"
    """pi_0, whose RL curve is the target."""
    seed: int = 0
    """The same seed as the landscape's gives the same draws."""
    confidence: float = 0.95
    """Nominal coverage of all intervals, in (0, 1)."""


DEFAULTS = ReadingsOptions()
