"""Section ``pairs``: which checkpoints are Base and RL of one another."""

from __future__ import annotations

from collections.abc import Iterator

from searchlens.config.check.schema import unknown
from searchlens.config.model import Config
from searchlens.config.study import ROLES, PairSpec


def errors(config: Config) -> Iterator[str]:
    """Mistakes in this section."""
    for name, pair in config.pairs.items():
        where = f"pairs.{name}"
        for role in ROLES:
            if getattr(pair, role) not in config.checkpoints:
                yield unknown(f"{where}.{role}", getattr(pair, role), config.checkpoints)
        studied = name in config.study.pairs  # the others need not fit the checkpoints as this study changes them
        if studied and pair.base == pair.rl:
            yield (
                f"{where}: base and rl are both {pair.base!r}, whose samples would be compared with themselves; name"
                " the checkpoint that RL made, or a second entry of the same weights with a seed of its own"
            )
        yield from _rltrain_errors(config, where, pair)
        if studied:
            yield from _template_errors(config, where, pair)
        for key, batch in pair.batches.items():
            for role in ROLES:
                if (repeat := getattr(batch, role)) is None:
                    continue
                place = f"{where}.batches.{key}.{role}"
                if repeat not in config.checkpoints:
                    yield unknown(place, repeat, config.checkpoints)
                elif studied:
                    yield from _batch_errors(config, place, repeat, getattr(pair, role))


def _rltrain_errors(config: Config, where: str, pair: PairSpec) -> Iterator[str]:
    if pair.rltrain is None:
        return
    if pair.rltrain not in config.benchmarks:
        yield unknown(f"{where}.rltrain", pair.rltrain, config.benchmarks)
    elif (role := config.benchmarks[pair.rltrain].role) != "rltrain":
        yield f"{where}.rltrain: {pair.rltrain!r} has role {role}; a benchmark with role rltrain is needed"


def _template_errors(config: Config, where: str, pair: PairSpec) -> Iterator[str]:
    sides = [config.checkpoints[side] for side in (pair.base, pair.rl) if side in config.checkpoints]
    for key in ("template", "examples") if pair.templates == "shared" else ():
        values = [str(getattr(side, key)).lower() for side in sides]
        if len(set(values)) > 1:
            base, rl = values
            yield f"{where}: Base has {key} {base}, RL {rl}; give both the same, or set templates: own"


def _batch_errors(config: Config, where: str, name: str, original: str) -> Iterator[str]:
    repeat, repeated = config.checkpoints[name], config.checkpoints.get(original)
    if repeat.seed is None:
        yield f"{where}: {name!r} has no seed of its own; set checkpoints.{name}.seed"
    if repeated is None:
        return
    for key in ("path", "hub", "revision", "template", "examples"):
        if (ours := getattr(repeat, key)) != (theirs := getattr(repeated, key)):
            yield f"{where}: {name!r} has {key} {ours}, {original!r} {theirs}; a batch repeats the same weights"
