"""Options of the measures."""

from __future__ import annotations

from dataclasses import dataclass

from searchlens.config.limits import Draws, Positive, Strict

BEST, ANY = "best", "any"
"""In place of a policy in frames: the one of Base that solves most at each number of samples; whichever fits."""


@dataclass(frozen=True, kw_only=True)
class MeasuresOptions(Strict):
    """Choices about the measures of all samples."""

    draws: Draws = 2000
    """Bootstrap draws over questions."""
    joint_pairs: tuple[str, ...] = ()
    """Pairs of which table `joint_exponents` asks for one exponent, if they are studied; empty: those of groups upper
    and lower, to which BOPTR is fitted, or every pair if there is none."""
    null_k: tuple[Positive, ...] = (1, 4, 16)
    """Numbers of samples k at which pass@k of guessing alone is read, and on open answers that of wrong keys."""
