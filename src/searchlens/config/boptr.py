"""Cross checks of section ``boptr``, which is ``boptr.options.BoptrOptions``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from searchlens.config.base import unknown

if TYPE_CHECKING:
    from searchlens.config.model import Config


def errors(config: Config) -> Iterator[str]:
    """Names in this section that are not in the configuration, and an anchor that cannot be used."""
    section = config.boptr
    if section.anchor.pair is not None and section.anchor.pair not in config.pairs:
        yield unknown("boptr.anchor.pair", section.anchor.pair, config.pairs)
    if section.anchor.pair in config.pairs and config.pairs[section.anchor.pair].group == "new":
        yield f"boptr.anchor.pair: {section.anchor.pair!r} has group new; the anchor needs group upper or lower"
    yield from _anchor_errors(config)
    for name in section.q_beta:
        if name not in config.benchmarks:
            yield unknown("boptr.q_beta", name, config.benchmarks)


def _anchor_errors(config: Config) -> Iterator[str]:
    name = config.boptr.anchor.benchmark
    if name is None:
        return
    if name not in config.benchmarks:
        yield unknown("boptr.anchor.benchmark", name, config.benchmarks)
    elif name not in config.study.benchmarks:
        return
    elif (benchmark := config.benchmarks[name]).regime == "none" or benchmark.role != "fitted":
        part = f"regime {benchmark.regime or 'null'} and role {benchmark.role}"
        yield f"boptr.anchor.benchmark: {name!r} has {part}; the anchor needs a regime and role fitted"
