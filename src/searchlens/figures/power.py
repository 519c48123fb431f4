"""The paper's line of power sampling, which several figures show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from searchlens.figures import style
from searchlens.figures.context import Labels
from searchlens.frames import by_policy, pick
from searchlens.policies import kinds
from searchlens.policies.kinds import PolicyByName

LINE: dict[str, Any] = {"color": style.FAMILY_COLOURS["search"], "linewidth": 1.2, "linestyle": (0, (3, 1))}


def policies(names: Iterable[str], configured: PolicyByName) -> list[str]:
    """Those policies that sample from a power of the model's distribution."""
    return [name for name in kinds.ordered(names, configured) if kinds.controller(name, configured) == "power"]


def label(names: Iterable[str], configured: PolicyByName) -> str:
    """Words of the legend, with the modes of the policies; only the mode ``reference`` is the published procedure."""
    controllers = [policy.controller for name in names if (policy := kinds.policy_of(name, configured))]
    modes = sorted({str(controller.parameters["mode"]) for controller in controllers})
    return f"power ({', '.join(modes)})"


def curves(points: pl.DataFrame, budgets: pl.Series, labels: Labels) -> pl.DataFrame:
    """Policy, budget and value of every policy that samples from a power, at some budgets."""
    rows = pick(points, **labels.curve)
    chosen = rows.filter(
        pl.col("policy").is_in(policies(rows["policy"], labels.policies)), pl.col("budget").is_in(budgets.to_list())
    )
    return by_policy(chosen.select("policy", "budget", "value"), labels.policies)
