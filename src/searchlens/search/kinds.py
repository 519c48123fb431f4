"""What kind of policy a name stands for: its family, its controller, whether it searches, and the order of display.

Every function takes the name of a policy and the configured policies by name. A name that is not configured is read as
the spelling of an autoregressive policy. A name that is neither, such as that of an imported policy, counts as a search
of an unknown controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from searchlens import catalogue
from searchlens.config.policies import PolicySpec, Sampling
from searchlens.errors import InputError
from searchlens.search.components import given
from searchlens.search.policy import FAMILIES, ROLES, Stated, spelled

PolicyByName = Mapping[str, Stated]
"""Policies by their names in the configuration."""
NO_POLICIES: PolicyByName = MappingProxyType({})


def from_specs(specs: Mapping[str, PolicySpec | Mapping[str, Any] | None]) -> dict[str, Stated]:
    """The policies of some entries of the section ``policies`` that were checked before, without their code."""
    stated = {}
    for name, spec in specs.items():
        parts: Mapping[str, Any] = asdict(spec) if isinstance(spec, PolicySpec) else spec or {}
        local = spelled(name) if spec is None else Sampling(**parts.get("local", {}))
        stated[name] = Stated(local, **{role: given(parts[role]) for role in ROLES if parts.get(role)})
    return stated


def policy_of(name: str, configured: PolicyByName = NO_POLICIES) -> Stated | None:
    """The policy of a name; None if the name is not configured and spells no policy."""
    try:
        return configured[name] if name in configured else Stated(spelled(name))
    except InputError:
        return None


def family(name: str, configured: PolicyByName = NO_POLICIES) -> str:
    """One of ``FAMILIES``; ``search`` for an unknown policy."""
    policy = policy_of(name, configured)
    return policy.family if policy else "search"


def controller(name: str, configured: PolicyByName = NO_POLICIES) -> str:
    """Name of the controller.

    For an unknown policy, the longest controller that its name begins with, as ``mcts`` of ``mcts_16``, or ``search``.
    """
    policy = policy_of(name, configured)
    if policy:
        return policy.controller.name
    known = (each for each in catalogue.declared("controller") if name.startswith(each) and each != "autoregressive")
    return max(known, key=len, default="search")


def is_search(name: str, configured: PolicyByName = NO_POLICIES) -> bool:
    """Whether a policy searches, rather than draws independent samples token by token."""
    return family(name, configured) == "search"


def channel(name: str, configured: PolicyByName = NO_POLICIES) -> str:
    """``search`` or ``AR``."""
    return "search" if is_search(name, configured) else "AR"


def ordered(names: Iterable[str], configured: PolicyByName = NO_POLICIES) -> list[str]:
    """Distinct names by family, then from the most open filter to the narrowest, then by temperature."""

    def place(name: str) -> tuple[float | int | str, ...]:
        policy, rank = policy_of(name, configured), FAMILIES.index(family(name, configured))
        if policy is None or policy.family == "search":
            return (rank, name)
        local = policy.local
        filters = (-local.top_p, -local.top_k, local.min_p, -local.typical_p)  # from open to narrow
        return (rank, *filters, local.temperature, name)

    return sorted(set(names), key=place)
