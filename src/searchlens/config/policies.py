"""Sections ``policies``, ``pools`` and ``references``: decoding and search policies, and which are sampled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from searchlens import policies
from searchlens.config.base import Section, unknown
from searchlens.engines.base import Sampling
from searchlens.errors import InputError

if TYPE_CHECKING:
    from searchlens.config.model import Config


class PolicySpec(Section):
    """A policy by its five components. A component is the name of its kind, or a mapping with ``name`` and parameters;
    docs/search.md describes them.
    """

    local: Sampling = Sampling()
    """Local policy: how one token is drawn."""
    controller: str | dict[str, Any] = "autoregressive"
    """How a search spends its requests."""
    evaluator: str | dict[str, Any] | None = None
    """How candidates are scored; null: the controller's default."""
    transition: str | dict[str, Any] | None = None
    """What one step of a search is; null: the controller's default."""
    scheduler: str | dict[str, Any] | None = None
    """How many steps, levels or iterations a search makes; null: the controller's default."""


def policy(config: Config, name: str) -> policies.Policy:
    """The policy of a name: as the configuration defines it, or else as the name says.

    Raises
    ------
    InputError
        The definition or the name is malformed.
    """
    spec = config.policies.get(name)
    return policies.from_spec(name, spec.model_dump() if spec else None)


def errors(config: Config) -> Iterator[str]:
    """Mistakes in these sections."""
    for name in config.policies:
        try:
            policy(config, name)
        except InputError as error:
            yield f"policies.{name}: {error.message}"
    used = {config.benchmarks[name].pool for name in config.study.benchmarks if name in config.benchmarks}
    for pool in sorted(used & config.pools.keys()):
        if not config.pools[pool]:
            yield f"pools.{pool}: must have at least one policy, since study.benchmarks uses it"
    lists = {f"pools.{pool}": names for pool, names in config.pools.items()}
    lists |= {
        "references": config.references,
        "default_policy": [] if config.default_policy is None else [config.default_policy],
    }
    for where, names in lists.items():
        for name in names:
            if name not in config.policies:
                yield unknown(where, name, config.policies)
