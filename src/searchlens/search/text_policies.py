"""What a plan knows of the texts of a cell: how long they are, and how they divide into thoughts.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

QUANTILES = 64
"""Equally likely lengths that stand for a law of lengths."""


@dataclass(frozen=True)
class Texts:
    """The texts of a cell, as far as the cost of a policy depends on them."""

    lengths: tuple[float, ...]
    """Equally likely lengths in tokens, ascending, each in (0, limit]."""
    limit: int
    """Most tokens of a text."""
    thought: float | None = None
    """Mean tokens of a thought; None: half of the limit that a policy sets for one."""
    distinct: float = 1.0
    """Probability that a further thought after the same path is a new one, in [0, 1]. It is near 1 for paragraphs, and
    small for short lines of which there are few."""

    @classmethod
    def of(cls, lengths: Iterable[float], limit: int, thought: float | None = None, distinct: float = 1.0) -> Texts:
        """Texts whose lengths are known."""
        return cls(tuple(sorted(lengths)), limit, thought, distinct)

    @classmethod
    def of_mean(
        cls, mean: float, limit: int, spread: float, thought: float | None = None, distinct: float = 1.0
    ) -> Texts:
        """Texts of the mean length T: lengths have a lognormal law, cut at the limit and scaled so that the mean is T.

        ``spread``: standard deviation of the logarithm of the lengths.
        """
        return cls(_lognormal(float(mean), limit, float(spread)), limit, thought, distinct)

    @property
    def mean(self) -> float:
        """T, the mean length."""
        return sum(self.lengths) / len(self.lengths)

    @property
    def running(self) -> float:
        """Mean number of tokens that a text has while it is drawn, ``E[T^2] / (2 E[T])``: long texts run longer."""
        return sum(length * length for length in self.lengths) / (2 * sum(self.lengths))

    def longest(self, of: int) -> float:
        """Mean length of the longest of ``of`` texts."""
        n = len(self.lengths)
        return sum(length * (((i + 1) / n) ** of - (i / n) ** of) for i, length in enumerate(self.lengths))

    def thoughts(self, limit: int) -> tuple[float, float]:
        """Mean tokens m of a thought of at most ``limit`` tokens, and the share ``1 - m / T`` that ends no text.

        A thought ends its text with the same probability wherever it stands, so a text has T / m thoughts on average,
        and a text that has not ended has T tokens to come.
        """
        tokens = min(limit / 2 if self.thought is None else self.thought, float(limit), self.mean)
        return tokens, 1 - tokens / self.mean


@cache
def _lognormal(mean: float, limit: int, spread: float) -> tuple[float, ...]:
    """Quantiles of a lognormal law, cut at ``limit``, with a given mean; found by bisection for its scale."""
    if not 0 < mean <= limit:
        raise ValueError(f"a mean of {mean} tokens with a limit of {limit}")
    law = NormalDist(0, 1)
    shape = [math.exp(spread * law.inv_cdf((i + 0.5) / QUANTILES)) for i in range(QUANTILES)]
    low, high = 0.0, limit / shape[0]
    for _ in range(60):
        middle = (low + high) / 2
        cut = sum(min(middle * each, limit) for each in shape) / QUANTILES
        low, high = (middle, high) if cut < mean else (low, middle)
    return tuple(min(high * each, float(limit)) for each in shape)
