"""Choices that the paper leaves open, each with the default that its printed numbers support best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from searchlens.boptr.cohort import Regime

Ties = Literal["interpolated", "first", "last", "median"]


@dataclass(frozen=True)
class BoptrOptions:
    """Options of section ``boptr`` (docs/reading-the-paper.md gives the evidence for each default).

    Attributes
    ----------
    beta : mapping
        Frozen exponent of each regime.
    alpha_low, alpha_high : int
        alpha runs over 2^(k/5), k from low to high.
    beta_top : float
        beta runs over 0, 0.1, ..., top.
    rounding : {"log2", "linear"}
        In which space the nearest allowed budget is nearest.
    ties : {"interpolated", "first", "last", "median"}
        Among fits of equal error: the smallest error with P interpolated at the unrounded budget, or by grid order.
    mu_without : tuple of str
        Models that the variant ``without`` leaves out of the cohort mean mu.
    mu_floor : {"ln2", "cohort_mean"}
        mu of the floor regime: the paper's constant, or the mean of the cell fits.
    h1 : {"low_temp_nb", "literal_greedy", "argmax_same_b"}
        Row H1: the lowest pure temperature at N = b; greedy, constant over b; or the most accurate AR policy at each b.
    selector_norm : {"l2", "l1"}
        Norm of the selector's loss.
    selector_proto : {"mean_over_b", "per_b"}
        Prototype of the anchor: one vector, or one per budget.
    selector_rank : {"percentile", "integer", "zscore"}
        Scale of the selector's rank features.
    selector_rank_pool : {"ar", "all"}
        Which policies are ranked; candidates are autoregressive always.
    selector_weights : tuple of float
        W: rank of P, of P - Q, of Q, controller, log cost.
    cost_weight : float
        lambda_cost.
    exclude_default_on_anchor : bool
        Leave the RL default policy out of the candidates on the anchor benchmark.
    b0 : {"anchor_alpha", "cohort_mu"}
        Scale of row B0.
    gate_z, ridge : float
        V5b: a model is typical when every |z| <= gate_z; ridge penalty on standardised features.
    headroom : {"pmax_minus_p0", "one_minus_p0"}
        Headroom inside u.
    tau : float
        Saturation tolerance of N* in the main rows.
    taus, lambdas : tuple of float
        Sweeps of the frontier.
    q_beta : mapping
        Benchmark to beta^Q; 0 on benchmarks that are not named (the paper: 0.6 on GPQA).
    q_penalty, q_tolerance : float
        Selector and recoverability of the Q channel.
    q_sides : {"one", "two"}
        Recoverable when Base reaches RL's best within the tolerance from below, or is within it on either side.
    criterion : float
        Pre-registered limit of a held-out benchmark's mean error, percentage points.
    protocol_margin : float
        Base and RL protocols differ when the interval of the difference of a stop or extraction rate lies outside
        [-margin, margin].
    length_ratio : float
        Generation lengths differ when the longer mean is at least so many times the shorter one.
    consistency_criterion : float
        Pre-set limit of the mean absolute difference of two sampling batches, percentage points.
    v4_shuffles : int
        y-shuffles of the V4 null.
    permutations : int
        Re-pairings of Base and RL in the mismatched null, the true one included.
    draws, seed, confidence
        Bootstrap over questions.
    reselect : int
        In how many of the draws every path is also chosen again, for intervals of its own and for the correction of
        errors; 0: in none.
    """

    beta: Mapping[Regime, float] = field(
        default_factory=lambda: MappingProxyType({"math": 0.6, "nonmath": 1.0, "floor": 0.0})
    )
    alpha_low: int = -10
    alpha_high: int = 20
    beta_top: float = 1.2
    rounding: Literal["log2", "linear"] = "log2"
    ties: Ties = "interpolated"
    mu_without: tuple[str, ...] = ()
    mu_floor: Literal["ln2", "cohort_mean"] = "ln2"
    h1: Literal["low_temp_nb", "literal_greedy", "argmax_same_b"] = "low_temp_nb"
    selector_norm: Literal["l2", "l1"] = "l2"
    selector_proto: Literal["mean_over_b", "per_b"] = "mean_over_b"
    selector_rank: Literal["percentile", "integer", "zscore"] = "percentile"
    selector_rank_pool: Literal["ar", "all"] = "ar"
    selector_weights: tuple[float, float, float, float, float] = (1.0, 1.0, 1.0, 0.5, 0.2)
    cost_weight: float = 0.01
    exclude_default_on_anchor: bool = False
    b0: Literal["anchor_alpha", "cohort_mu"] = "anchor_alpha"
    gate_z: float = 2.0
    ridge: float = 1.0
    headroom: Literal["pmax_minus_p0", "one_minus_p0"] = "pmax_minus_p0"
    tau: float = 0.02
    taus: tuple[float, ...] = (0.01, 0.02, 0.05)
    lambdas: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    q_beta: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    q_penalty: float = 0.5
    q_tolerance: float = 0.05
    q_sides: Literal["one", "two"] = "one"
    criterion: float = 8.0
    protocol_margin: float = 0.05
    length_ratio: float = 1.5
    consistency_criterion: float = 2.0
    v4_shuffles: int = 100
    permutations: int = 1000
    draws: int = 10_000
    seed: int = 42
    confidence: float = 0.95
    reselect: int = 10_000


LN2 = math.log(2)
DEFAULTS = BoptrOptions()
