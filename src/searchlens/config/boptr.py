"""Options of the BOPTR stage: choices that the paper leaves open. Its printed numbers support each default best."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from searchlens.config.limits import Confidence, Draws, Exponent, Limit, Seed, Small, Strict

Regime = Literal["math", "nonmath", "floor"]
REGIMES: tuple[Regime, ...] = ("math", "nonmath", "floor")
Role = Literal["fitted", "held_out", "descriptive", "rltrain"]
Group = Literal["upper", "lower", "new"]
Estimator = Literal["unbiased", "first_k"]

LN2 = math.log(2)


@dataclass(frozen=True, kw_only=True)
class Anchor(Strict):
    """The cell on which the rule is found and from which every transfer starts."""

    pair: str | None = None
    """Key of ``pairs``, of group upper or lower; null: the first such pair of the study."""
    benchmark: str | None = None
    """Key of ``benchmarks``, of role fitted and not of regime none; null: the first such benchmark of the study."""


@dataclass(frozen=True, kw_only=True)
class Beta(Strict):
    """Frozen exponent beta_g of each regime (paper, section "BOPTR-P1")."""

    math: Exponent = 0.6
    """On mathematical benchmarks."""
    nonmath: Exponent = 1.0
    """On others, such as multiple choice and instruction following."""
    floor: Exponent = 0.0
    """On benchmarks where RL gains little from more samples, such as AIME."""

    def __getitem__(self, regime: Regime) -> float:
        exponent: float = getattr(self, regime)
        return exponent


@dataclass(frozen=True, kw_only=True)
class BoptrOptions(Strict):
    """Choices about BOPTR that the paper leaves open (docs/reading-the-paper.md: the evidence for each default)."""

    anchor: Anchor = Anchor()
    """The anchor of the study; a ``cohort.yaml`` names its own."""
    estimator: Estimator = "unbiased"
    """How P and Q are read at n samples a question. expected: the exact mean over all subsets of n samples of the pool,
    whatever their order; prefix: the first n samples, as in the paper. A path is chosen and its error measured by the
    same one. First finish (T) always is first_k: recorded counts have no other."""
    beta: Beta = Beta()
    """Frozen exponents; the exponents fitted to the cohort are reported next to them."""
    mu_without: tuple[str, ...] = ()
    """Pairs to leave out of the cohort mean mu, in additional rows of the tables percell, ablation and v4, which leave
    out the cells of these pairs, too; empty: no such rows."""
    q_beta: Mapping[str, Exponent] = field(default_factory=dict)
    """Benchmark to beta^Q, the exponent of the Q channel; 0 for benchmarks that are not listed. The paper has 0.6 on
    GPQA."""
    permutations: Small = 1000
    """Number of Base/RL pairings in the null of mismatched pairs, the true one included."""
    draws: Draws = 10_000
    """Bootstrap draws over questions."""
    seed: Seed = 42
    """Seed of everything random in BOPTR."""
    confidence: Confidence = 0.95
    """Nominal coverage of all intervals. A difference is shown over models if p is at most 1 minus this."""
    reselect: Annotated[int, Limit(ge=0, le=100_000)] = 10_000
    """Number of the draws in which every path is also chosen again, for intervals that include this choice and for
    errors corrected for it; 0: none."""

    def on(self, benchmarks: Collection[str]) -> BoptrOptions:
        """These options for a cohort of some benchmarks: ``q_beta`` names no others."""
        return replace(self, q_beta={name: beta for name, beta in self.q_beta.items() if name in benchmarks})


DEFAULTS = BoptrOptions()
