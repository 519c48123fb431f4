"""The policy that a log says it sampled: its sampling parameters, made neutral, and spelled as a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from searchlens.engines.base import Sampling
from searchlens.errors import InputError
from searchlens.policies import Policy, parse

_DECIDING = ("top_p", "top_k", "min_p", "repetition_penalty")
"""Parameters that a server fills from the model's ``generation_config.json`` where a request does not give them."""

_FLOATS = ("temperature", "top_p", "min_p", "typical_p", "repetition_penalty", "frequency_penalty", "presence_penalty")


@dataclass(frozen=True)
class Proposal:
    """What the parameters of a log say of its policy."""

    name: str
    """Canonical name, ``Policy.name``; empty if the log does not say enough."""
    unstated: tuple[str, ...] = ()
    """Parameters that the log does not give, although they decide what is drawn."""
    why: str = ""
    """Why there is no name; empty if there is one."""

    def __str__(self) -> str:
        if not self.name:
            return self.why
        return f"{self.name} (not stated: {', '.join(self.unstated)})" if self.unstated else self.name


def proposed(asked: Mapping[str, Any], name: str = "") -> Proposal:
    """The policy of sampling parameters as the log has them, or the one that the log names.

    >>> print(proposed({"temperature": 0.6, "top_p": 0.95, "top_k": -1}))
    topp0.95_t0.6 (not stated: min_p, repetition_penalty)
    >>> print(proposed({"do_sample": False, "temperature": 1}))
    greedy
    """
    if name:
        return Proposal(name)
    given = {key: value for key, value in asked.items() if value is not None}
    if given.get("do_sample") is False or given.get("temperature") == 0:
        return Proposal("greedy")
    if "temperature" not in given:
        return Proposal("", why="the log does not say the temperature")
    try:
        local = Sampling(**_numbers(given))
        policy = parse(Policy(local).name)  # checks every limit
    except (TypeError, ValueError, OverflowError) as error:
        return Proposal("", why=f"a sampling parameter of the log is no number: {error}")
    except InputError as error:
        return Proposal("", why=error.message)
    return Proposal(policy.name, tuple(key for key in _DECIDING if key not in given))


def _numbers(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of ``Sampling``; a top_k of -1 and a min_p of 0 keep everything."""
    numbers: dict[str, Any] = {key: float(given[key]) for key in _FLOATS if key in given}
    if "top_k" in given:
        numbers["top_k"] = max(0, int(given["top_k"]))
    return numbers
