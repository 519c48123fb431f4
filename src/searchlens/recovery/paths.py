"""Base operating points near the RL curve, and paths through them (paper, section "Recovery paths").

All readouts here are ``prefix``. A *candidate* is any Base operating point; its budget may exceed the target's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from searchlens.config.recovery import DEFAULTS, RecoveryOptions
from searchlens.errors import InputError
from searchlens.landscape.points import Landscape
from searchlens.recovery._pair import ROUNDING, Curves, compared_prefixes, read, target
from searchlens.schemas.columns import COORDINATES, GEOMETRY, NEAR_MATCH, PATH
from searchlens.uncertainty import Floats

Components = Mapping[str, Sequence[Hashable]]
"""Policy name to its local policy, controller, evaluator, transition and scheduler."""


def near_match(base: Landscape, rl: Landscape, options: RecoveryOptions = DEFAULTS) -> pl.DataFrame:
    """Every Base operating point within ``epsilon`` of the RL target, at each target budget.

    ``schemas.columns.NEAR_MATCH``: nearest first, then smaller budget, then policy name. A point at distance
    ``epsilon`` belongs to the set.
    """
    rows = []
    for metric in compared_prefixes(base, rl, options.default_policy):
        for budget, goal, curves, error in _targets(base, rl, metric, options):
            near = [i for i in _by_error(curves, error) if abs(error[i]) <= options.epsilon + ROUNDING]
            rows += [{"metric": metric, **_match(budget, goal, curves, i, error)} for i in near]
    return pl.DataFrame(rows, NEAR_MATCH)


def path(base: Landscape, rl: Landscape, components: Components, options: RecoveryOptions = DEFAULTS) -> pl.DataFrame:
    """Two paths of Base operating points that follow the RL target curve: ``schemas.columns.PATH``.

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
    """z(u) = [P, Q, T, D, C] of every operating point of both models: ``schemas.columns.GEOMETRY``, prefix readouts.

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
