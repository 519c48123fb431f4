"""Base operating points near the RL curve, and paths through them (paper, section "Recovery paths").

All readouts here are ``prefix``. A *candidate* is any Base operating point; its budget may exceed the target's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.points import Landscape
from searchlens.analysis.uncertainty import Floats
from searchlens.catalogue import declared
from searchlens.config.recovery import DEFAULTS, RecoveryOptions
from searchlens.errors import InputError
from searchlens.store.columns import COORDINATES, GEOMETRY, NEAR_MATCH, PATH, READOUTS

ROUNDING = 1e-7
"""Proportions that differ by less are equal: expectations have single precision, and one question weighs far more."""

Point = tuple[str, int]
"""Policy and budget."""


@dataclass(frozen=True, eq=False)
class Curves:
    """One metric and readout of one checkpoint, at the points that have one."""

    points: list[Point]
    """List of (policy, budget). Operating points in the order of the landscape."""
    credit: Floats
    """Readout of each question, in [0, 1]. Shape (points, questions)."""

    @property
    def values(self) -> Floats:
        """Mean over questions of each point; sums of 0/1 are exact, so equal counts give equal values."""
        mean: Floats = self.credit.sum(axis=1) / self.credit.shape[1]
        return mean

    def index(self) -> dict[Point, int]:
        """Position of each point."""
        return {point: i for i, point in enumerate(self.points)}


def compared(base: Landscape, rl: Landscape, default_policy: str) -> list[tuple[str, str]]:
    """Metric and readout of every comparison: metrics declared as ``compared``, as far as both landscapes know them.

    Of the default policy, if a side has it: the expected vote of a pool of more than 512 samples is null.
    """
    of_default = pl.col("policy") == default_policy
    counted = of_default | ~of_default.any()  # ``target`` says where it is missing
    keys = [
        set(side.points.filter(counted).drop_nulls("value").select("metric", "readout").iter_rows())
        for side in (base, rl)
    ]
    return [key for key in product(declared("metric", compared=True), READOUTS) if key in keys[0] & keys[1]]


def compared_prefixes(base: Landscape, rl: Landscape, default_policy: str) -> list[str]:
    """Metrics of every comparison of prefix readouts."""
    return [metric for metric, readout in compared(base, rl, default_policy) if readout == "prefix"]


def read(base: Landscape, rl: Landscape, metric: str, readout: str) -> tuple[Curves, Curves]:
    """Curves of both checkpoints, questions in the same order; an InputError if these differ."""
    of_base, of_rl = (np.unique(landscape.hits["question"].to_numpy()) for landscape in (base, rl))
    if not np.array_equal(of_base, of_rl):
        odd = np.setxor1d(of_base, of_rl)[0]
        raise InputError(
            f"recovery: Base has {len(of_base)} questions and RL {len(of_rl)}; question {odd} is in only one of them",
            "score both checkpoints on the same benchmark",
        )
    column = metric if readout == "prefix" else f"{metric}_expected"
    return _curves(base.hits, column, of_base), _curves(rl.hits, column, of_base)


def _curves(hits: pl.DataFrame, column: str, questions: npt.NDArray[np.uint32]) -> Curves:
    names = hits["policy"].unique(maintain_order=True).to_list()
    policy = hits["policy"].cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
    budgets, budget = np.unique(hits["budget"].to_numpy(), return_inverse=True)
    codes, point = np.unique(policy * len(budgets) + budget, return_inverse=True)
    credit = np.full((len(codes), len(questions)), np.nan)
    credit[point, np.searchsorted(questions, hits["question"].to_numpy())] = hits[column].cast(pl.Float64).to_numpy()
    known = ~np.isnan(credit).any(axis=1)  # a search whose width does not divide a budget has no expectation there
    points = [(names[code // len(budgets)], int(budgets[code % len(budgets)])) for code in codes[known].tolist()]
    return Curves(points, credit[known])


def target(rl: Curves, default_policy: str) -> tuple[list[int], Floats]:
    """Budgets of the RL target curve, increasing, and its credit, shape (budgets, questions)."""
    at = sorted((budget, i) for i, (policy, budget) in enumerate(rl.points) if policy == default_policy)
    if not at:
        names = ", ".join(dict.fromkeys(policy for policy, _ in rl.points))
        raise InputError(f"recovery: RL has no samples of the default policy {default_policy!r}; it has {names}")
    return [budget for budget, _ in at], rl.credit[[i for _, i in at]]


Components = Mapping[str, Sequence[Hashable]]
"""Policy name to its local policy, controller, evaluator, transition and scheduler."""


def near_match(base: Landscape, rl: Landscape, options: RecoveryOptions = DEFAULTS) -> pl.DataFrame:
    """Every Base operating point within ``epsilon`` of the RL target, at each target budget.

    ``store.columns.NEAR_MATCH``: nearest first, then smaller budget, then policy name. A point at distance
    ``epsilon`` belongs to the set.
    """
    rows = []
    for metric in compared_prefixes(base, rl, options.default_policy):
        for budget, goal, curves, error in _targets(base, rl, metric, options):
            near = [i for i in _by_error(curves, error) if abs(error[i]) <= options.epsilon + ROUNDING]
            rows += [{"metric": metric, **_match(budget, goal, curves, i, error)} for i in near]
    return pl.DataFrame(rows, NEAR_MATCH)


def path(base: Landscape, rl: Landscape, components: Components, options: RecoveryOptions = DEFAULTS) -> pl.DataFrame:
    """Two paths of Base operating points that follow the RL target curve: ``store.columns.PATH``.

    ``closest``: at each budget the candidate with the smallest absolute error, whether or not within ``epsilon``; ties
    to the smaller budget, then to the candidate nearest to the previous choice in d, then by name.

    ``monotone``: the path with non-decreasing budgets that minimises the sum of absolute errors (proportions) plus
    ``path_lambda`` times the distances d between neighbours, found exactly by dynamic programming; ties to smaller
    budgets, then names, earliest target first.
    """
    base_points = geometry(base, rl).filter(model="base")
    distances = distance(base_points, components, options)
    order = {point: i for i, point in enumerate(base_points.select("policy", "budget").iter_rows())}
    rows = []
    for metric in compared_prefixes(base, rl, options.default_policy):
        targets = list(_targets(base, rl, metric, options))
        curves = targets[0][2]
        at = [order[point] for point in curves.points]
        between = distances[np.ix_(at, at)]
        errors = np.stack([error for _, _, _, error in targets])
        chosen = {"closest": _closest(curves, errors, between), "monotone": _monotone(curves, errors, between, options)}
        for kind, steps in chosen.items():
            for (budget, goal, _, error), i in zip(targets, steps, strict=True):
                rows.append({"metric": metric, "kind": kind, **_match(budget, goal, curves, i, error)})
    return pl.DataFrame(rows, PATH)


def geometry(base: Landscape, rl: Landscape) -> pl.DataFrame:
    """z(u) = [P, Q, T, D, C] of every operating point of both models: ``store.columns.GEOMETRY``, prefix readouts.

    C is the natural logarithm of the generated tokens per question, scaled so that the Base landscape spans [0, 1]; RL
    points share the scale and may lie outside. C is 0 if all Base points cost the same. C and T are null where token
    counts are unknown.
    """
    wide = [_wide(landscape).with_columns(model=pl.lit(model)) for model, landscape in (("base", base), ("rl", rl))]
    cost = wide[0]["C"].drop_nulls().to_numpy()
    span = float(np.ptp(cost)) if len(cost) else 0.0
    scaled = (pl.col("C") - float(cost.min())) / span if span > 0 else pl.lit(0.0)
    return pl.concat(wide).with_columns(C=scaled).select(GEOMETRY.names()).cast(GEOMETRY)


def distance(points: pl.DataFrame, components: Components, options: RecoveryOptions = DEFAULTS) -> Floats:
    """d(u, u') = l_comp d_comp + l_z |z - z'|_1 + l_b |ln n - ln n'| between all rows of ``geometry``.

    d_comp is the fraction of the five components of the policies that differ. Coordinates unknown on either side count
    as equal.
    """
    unknown = sorted(set(points["policy"]) - set(components))
    if unknown:
        raise InputError(
            f"recovery: policy {unknown[0]!r} has no components; components are given for {sorted(components)}"
        )
    parts = [components[policy] for policy in points["policy"]]
    codes = np.array([_codes(column) for column in zip(*parts, strict=True)])
    z = points.select(COORDINATES).to_numpy()
    log_budget = np.log(points["budget"].to_numpy().astype(float))
    differ = (codes[:, :, None] != codes[:, None, :]).mean(axis=0)
    behaviour = np.nansum(np.abs(z[:, None, :] - z[None, :, :]), axis=2)
    budget = np.abs(log_budget[:, None] - log_budget[None, :])
    total: Floats = options.l_comp * differ + options.l_z * behaviour + options.l_b * budget
    return total


def _codes(column: Sequence[Hashable]) -> list[int]:
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(value, len(seen)) for value in column]


def _wide(landscape: Landscape) -> pl.DataFrame:
    rows = landscape.points.filter(pl.col("readout") == "prefix", pl.col("metric").is_in(COORDINATES))
    wide = rows.pivot("metric", index=["policy", "budget"], values="value", maintain_order=True)
    return wide.with_columns(C=pl.col("C").clip(1).log())


def _targets(
    base: Landscape, rl: Landscape, metric: str, options: RecoveryOptions
) -> Iterator[tuple[int, float, Curves, Floats]]:
    """For each target budget: the budget, its RL value, the candidates, and RL - Base at each of them."""
    curves, rl_curves = read(base, rl, metric, "prefix")
    questions = curves.credit.shape[1]
    solved = curves.credit.sum(axis=1)
    for budget, credit in zip(*target(rl_curves, options.default_policy), strict=True):
        yield budget, float(credit.sum() / questions), curves, (credit.sum() - solved) / questions


def _by_error(curves: Curves, error: Floats) -> list[int]:
    """Candidates, nearest first, then smaller budget, then name."""
    size = np.round(np.abs(error), 9)
    return sorted(range(len(error)), key=lambda i: (size[i], curves.points[i][1], curves.points[i][0]))


def _match(budget: int, goal: float, curves: Curves, i: int, error: Floats) -> dict[str, Any]:
    policy, n = curves.points[i]
    keys = {"target_budget": budget, "target": goal, "policy": policy, "budget": n}
    return {**keys, "value": curves.values[i], "rl_minus_base": error[i]}


def _closest(curves: Curves, errors: Floats, between: Floats) -> list[int]:
    steps: list[int] = []
    for error in errors:
        size = np.round(np.abs(error), 9)
        near = np.round(between[steps[-1]], 9) if steps else np.zeros(len(error))
        steps.append(min(range(len(error)), key=lambda i: (size[i], curves.points[i][1], near[i], curves.points[i][0])))
    return steps


def _monotone(curves: Curves, errors: Floats, between: Floats, options: RecoveryOptions) -> list[int]:
    """Shortest path: costs from the last target backwards, then the first of the best choices forwards."""
    order = sorted(range(len(curves.points)), key=lambda i: (curves.points[i][1], curves.points[i][0]))
    budget = np.array([curves.points[i][1] for i in order])
    move = options.path_lambda * between[np.ix_(order, order)]
    move[budget[:, None] > budget[None, :]] = np.inf
    local = np.abs(errors)[:, order]
    cost_to_end = [local[-1]]
    for cost in local[-2::-1]:
        cost_to_end.insert(0, cost + (move + cost_to_end[0]).min(axis=1))
    steps = [int(np.round(cost_to_end[0], 12).argmin())]
    for rest in cost_to_end[1:]:
        steps.append(int(np.round(move[steps[-1]] + rest, 12).argmin()))
    return [order[i] for i in steps]
