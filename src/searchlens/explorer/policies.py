"""Names, parameters, colours and markers of policies, as figures show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from searchlens.engines.base import Sampling
from searchlens.figures import palette
from searchlens.policies import kinds
from searchlens.policies.kinds import PolicyByName
from searchlens.policies.policy import FILTERS, PENALTIES, ROLES, Stated

_WORDS = {
    "min_p": "min-p",
    "typical_p": "typical",
    "top_k": "top-k",
    "top_p": "top-p",
    "temperature": "temperature",
    "repetition_penalty": "repetition penalty",
    "frequency_penalty": "frequency penalty",
    "presence_penalty": "presence penalty",
}
_NEUTRAL = asdict(Sampling())


def described(names: Iterable[str], configured: PolicyByName) -> list[dict[str, Any]]:
    """One entry for each policy, in the order of display (explorer/index.py)."""
    ordered = kinds.ordered(names, configured)
    searches = [name for name in ordered if kinds.is_search(name, configured)]
    looks = palette.search_looks(searches, configured)
    shades = palette.shades([name for name in ordered if name not in looks], configured)
    return [_entry(name, configured, looks, shades) for name in ordered]


def _entry(
    name: str, configured: PolicyByName, looks: Mapping[str, Mapping[str, Any]], shades: Mapping[str, str]
) -> dict[str, Any]:
    policy, family = kinds.policy_of(name, configured), kinds.family(name, configured)
    controller = kinds.controller(name, configured)
    look = looks.get(name) or {"color": shades[name], "marker": palette.FAMILY_MARKERS[family]}
    return {
        "name": name,
        "title": _title(name, policy),
        "family": family,
        "family_title": family,
        "controller": None if controller == "autoregressive" else controller,
        "parameters": _parameters(policy) if policy else {},
        "colour": look["color"],
        "marker": look["marker"],
        "search": name in looks,
    }


def families(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The families of some policies with their colours and markers, in the order of display."""
    titles = {entry["family"]: entry["family_title"] for entry in entries}
    return [
        {"name": name, "title": titles[name], "colour": colour, "marker": palette.FAMILY_MARKERS[name]}
        for name, colour in palette.FAMILY_COLOURS.items()
        if name in titles
    ]


def _title(name: str, policy: Stated | None) -> str:
    """What an autoregressive policy does, in words; of any other policy its name."""
    if policy is None or policy.controller.name != "autoregressive":
        return name
    local = asdict(policy.local)
    used = [key for key in (*FILTERS.values(), *PENALTIES.values()) if local[key] != _NEUTRAL[key]]
    words = [f"{_WORDS[key]} {local[key]:g}" for key in used]
    return ", ".join([*words, f"temperature {local['temperature']:g}" if local["temperature"] else "greedy"])


def _parameters(policy: Stated) -> dict[str, Any]:
    """What differs from a plain draw from the model: of how a token is drawn, and of each component."""
    resolved = policy.resolved()
    local = {key: value for key, value in resolved["local"].items() if value != _NEUTRAL[key]}
    if policy.controller.name == "autoregressive":
        return local
    parts = [(role, key, value) for role in ROLES for key, value in resolved[role].items()]
    return local | {role if key == "name" else f"{role} {key}": value for role, key, value in parts}
