"""Sections ``policies``, ``pools`` and ``references``: decoding and search policies, and which are sampled."""

from __future__ import annotations

from collections.abc import Iterator

from searchlens.config.check.schema import unknown
from searchlens.config.model import Config
from searchlens.errors import InputError
from searchlens.search.policy import from_spec


def errors(config: Config) -> Iterator[str]:
    """Mistakes in these sections."""
    for name, spec in config.policies.items():
        try:
            from_spec(name, spec)
        except InputError as error:
            yield f"policies.{name}: {error.message}"
    used = {config.benchmarks[name].pool for name in config.study.benchmarks if name in config.benchmarks}
    for pool in sorted(used & config.pools.keys()):
        if not config.pools[pool]:
            yield f"pools.{pool}: must have at least one policy, since study.benchmarks uses it"
    lists = {f"pools.{pool}": names for pool, names in config.pools.items()}
    lists |= {
        "references": config.references,
        "default_policy": () if config.default_policy is None else (config.default_policy,),
    }
    for where, names in lists.items():
        for name in names:
            if name not in config.policies:
                yield unknown(where, name, config.policies)
