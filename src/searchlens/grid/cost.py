"""What sampling is expected to cost where nothing has been sampled yet: tokens by policy, speed by size of model.

By the configuration alone, so that every job of a run comes to the same figures and cuts cells into the same pools.
Standard library only, because the planner imports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from searchlens import policies
from searchlens.policies.components import Value


def tokens_per_run(policy: policies.Policy, length: float, limit: int) -> float:
    """Tokens that one run of a policy draws on average, if its texts have a mean length.

    Parameters
    ----------
    policy : Policy
    length : float
        T, mean tokens of a text, > 0.
    limit : int
        Most tokens of a text, which sets the blocks of power sampling.

    Returns
    -------
    float
        Of a whole run, which returns ``policy.width`` candidates. Rollouts of evaluators are not counted.

    Notes
    -----
    power
        ``T + N (B n (n + 1) / 4 + T / 2)``: N steps in each of the n = floor(T / B) blocks of B tokens that a text
        fills, and in the last one, each redrawing half of what is there; the paper's ``N T^2 / (4 B)`` where blocks are
        many.
    entropy_tree
        Every branch redraws half a text.
    thought_tree, step_beam
        Thoughts of half their limit m, so T / m levels; a level draws ``children`` behind each of at most ``width``
        paths.
    mcts
        An iteration expands a node by ``children`` thoughts and draws half a text, until the tree of T / m levels has
        no node left to expand.
    """
    name = policy.controller.name
    return _PER_RUN[name](policy.parameters, length, limit) if name in _PER_RUN else length * policy.width


def _power(p: Mapping[str, Value], length: float, limit: int) -> float:
    block = math.ceil(limit / int(p["blocks"]))
    filled = int(length // block)
    return length + int(p["steps"]) * (block * filled * (filled + 1) / 4 + length / 2)


def _entropy_tree(p: Mapping[str, Value], length: float, _: int) -> float:
    branches = int(p["positions"]) * int(p["rounds"]) * int(p["children_per_position"])
    return int(p["roots"]) * length * (1 + branches / 2)


def _thoughts(p: Mapping[str, Value], length: float) -> tuple[float, int]:
    """Mean tokens of a thought, and thoughts of a text."""
    thought = min(int(p["max_tokens"]), length) / 2
    return thought, math.ceil(length / thought)


def _thought_tree(p: Mapping[str, Value], length: float, _: int) -> float:
    thought, levels = _thoughts(p, length)
    width, children, depth = int(p["width"]), int(p["children"]), min(int(p["depth"]), levels)
    drawn = sum(children * min(float(width), float(children) ** level) for level in range(depth))
    return drawn * thought + width * (levels - depth) * thought


def _mcts(p: Mapping[str, Value], length: float, _: int) -> float:
    thought, levels = _thoughts(p, length)
    children = int(p["children"])
    nodes = sum(float(children) ** level for level in range(levels))
    return min(float(p["iterations"]), nodes) * (children * thought + length / 2)


_PER_RUN: Mapping[str, Callable[[Mapping[str, Value], float, int], float]] = {
    "power": _power,
    "entropy_tree": _entropy_tree,
    "thought_tree": _thought_tree,
    "mcts": _mcts,
}


@dataclass(frozen=True)
class Length:
    """T of a cell.

    Attributes
    ----------
    tokens : float
    source : str
        Where it comes from.
    """

    tokens: float
    source: str


def assumed_length(config: Mapping[str, Any], benchmark: str) -> Length:
    """What ``cost`` says of a benchmark's regime, or else half of its limit."""
    spec, assumed = config["benchmarks"][benchmark], config["cost"]["tokens_per_sample"]
    if spec["regime"] in assumed:
        tokens = min(float(assumed[spec["regime"]]), spec["max_tokens"])
        return Length(tokens, f"{spec['regime']} benchmarks: {tokens:g} tokens a sample")
    return Length(spec["max_tokens"] / 2, "half of max_tokens a sample")


@dataclass(frozen=True)
class Speed:
    """Throughput of a checkpoint.

    Attributes
    ----------
    tokens_per_second : float
        On one GPU.
    source : str
        The measurement it is scaled from.
    """

    tokens_per_second: float
    source: str


def assumed_speed(config: Mapping[str, Any], checkpoint: str) -> Speed | None:
    """Estimated from the measured model that is nearest in size; None where size or measurements are missing."""
    measured, size = config["cost"]["throughput"], _parameters(config, checkpoint)
    if not measured or size is None:
        return None
    nearest = min(measured, key=lambda one: abs(math.log(one["parameters"] / size)))
    scaled = nearest["tokens_per_second"] * nearest["parameters"] / size
    return Speed(scaled, f"{nearest['tokens_per_second']:,.0f} tokens/s: {nearest['source']}")


def _parameters(config: Mapping[str, Any], checkpoint: str) -> float | None:
    for name in config["study"]["pairs"]:
        pair = config["pairs"][name]
        again = [side for batch in pair["batches"].values() for side in batch.values()]
        if checkpoint in (pair["base"], pair["rl"], *again):
            return float(pair["parameters"]) if pair["parameters"] else None
    return None
