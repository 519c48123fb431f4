"""The top level, and sections ``study``, ``pairs``, ``readings``, ``boptr`` and ``cost``: what a run does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from searchlens.config.check.sampled import is_studied
from searchlens.config.check.schema import unknown
from searchlens.config.model import ROLES, Config, PairSpec
from searchlens.config.project import ZOO_PREFIX


def errors(config: Config) -> Iterator[str]:
    """Mistakes at the top level, and in these sections."""
    if tuple(sorted(set(config.budgets))) != config.budgets or not config.budgets:
        yield f"budgets: {list(config.budgets)} must increase"
    elif config.budgets[-1] > config.samples:
        yield f"budgets: the largest, {config.budgets[-1]}, exceeds samples ({config.samples})"
    for where, path in _paths(config):
        if why := _no_path(path):
            yield f"{where}: {why}, found {path[:40]!r}"
        elif where in ("results", "study.readouts") and (path[0] == "-" or {"{", "}"} & set(path)):
            rule = "must not have { or }, which Snakemake reads as a place to fill in, nor begin with - as an option"
            yield f"{where}: {rule}, found {path[:40]!r}"
    for name in config.readings.joint_pairs:
        if name not in config.pairs:
            yield unknown("readings.joint_pairs", name, config.pairs)
    if config.cost.gpu and not config.cost.efficiency:
        yield f"cost.gpu: {config.cost.gpu} needs a measured share of its limit under cost.efficiency (found none)"
    yield from _boptr_errors(config)
    yield from _study_errors(config)
    yield from _pair_errors(config)


def _boptr_errors(config: Config) -> Iterator[str]:
    """Names in section ``boptr`` that are not in the configuration, and an anchor that cannot be used."""
    pair = config.boptr.anchor.pair
    if pair is not None and pair not in config.pairs:
        yield unknown("boptr.anchor.pair", pair, config.pairs)
    elif pair is not None and config.pairs[pair].group == "new":
        yield f"boptr.anchor.pair: {pair!r} has group new; the anchor needs group upper or lower"
    name = config.boptr.anchor.benchmark
    if name is not None and name not in config.benchmarks:
        yield unknown("boptr.anchor.benchmark", name, config.benchmarks)
    elif name is not None and name in config.study.benchmarks:
        benchmark = config.benchmarks[name]
        if benchmark.regime == "none" or benchmark.role != "fitted":
            part = f"regime {benchmark.regime or 'null'} and role {benchmark.role}"
            yield f"boptr.anchor.benchmark: {name!r} has {part}; the anchor needs a regime and role fitted"
    for name in config.boptr.q_beta:
        if name not in config.benchmarks:
            yield unknown("boptr.q_beta", name, config.benchmarks)


def absent(config: Config) -> Iterator[str]:
    """Files and folders that the study needs for its samples and that are not there."""
    names = {f"benchmarks.{name}" for name in config.study.benchmarks}
    names |= {f"checkpoints.{name}" for name in config.checkpoints if is_studied(config, name)}
    for where, path in _paths(config) if config.study.readouts is None else ():
        is_needed = where.removesuffix(".path").removesuffix(".examples") in names and not path.startswith(ZOO_PREFIX)
        if is_needed and not _no_path(path) and not Path(path).exists():
            yield f"{where}: {path} does not exist"


def _paths(config: Config) -> Iterator[tuple[str, str]]:
    """Every key that names a file or folder, with its value."""
    yield "results", config.results
    yield "lock", config.lock
    yield from (("extensions", name) for name in config.extensions)
    if config.study.readouts is not None:
        yield "study.readouts", config.study.readouts
    for name, checkpoint in config.checkpoints.items():
        if checkpoint.path is not None:
            yield f"checkpoints.{name}.path", checkpoint.path
    for name, benchmark in config.benchmarks.items():
        paths = [benchmark.path] if isinstance(benchmark.path, str) else benchmark.path or ()
        yield from ((f"benchmarks.{name}.path", path) for path in paths)
        if benchmark.examples:
            yield f"benchmarks.{name}.examples.path", benchmark.examples.path


def _no_path(path: str) -> str:
    """Why a text cannot be the name of a file; empty if it can."""
    if not path.strip():
        return "needs a name"
    if not path.isprintable():
        return "must not have line breaks or other characters that cannot be printed"
    if any(len(part.encode()) > _LONGEST_NAME for part in path.split("/")) or len(path.encode()) > _LONGEST_PATH:
        return f"has a name of more than {_LONGEST_NAME} bytes, or more than {_LONGEST_PATH} in all"
    return ""


_LONGEST_NAME, _LONGEST_PATH = 255, 4000
"""Bytes; what file systems of Linux allow, less what is added to a path."""


def _study_errors(config: Config) -> Iterator[str]:
    study = config.study
    sampled = [] if study.sample == "all" else study.sample
    drawn = [] if study.figures == "all" else study.figures
    cells = [f"{pair}/{benchmark}" for pair in study.pairs for benchmark in study.benchmarks]
    lists = {f"study.{key}": getattr(study, key) for key in ("pairs", "benchmarks", "sample", "figures")}
    lists |= {f"pools.{pool}": names for pool, names in config.pools.items()} | {"references": config.references}
    for where, names in lists.items():
        repeated = [] if names == "all" else [name for name in names if names.count(name) > 1]
        for name in dict.fromkeys(repeated):
            yield f"{where}: {name!r} is there more than once"
    traced = [] if study.trace is None or isinstance(study.trace.policies, str) else study.trace.policies
    for key, names, known in (
        ("pairs", study.pairs, list(config.pairs)),
        ("benchmarks", study.benchmarks, list(config.benchmarks)),
        ("sample", sampled, list(config.benchmarks)),
        ("figures", drawn, cells),
        ("trace.policies", traced, list(config.policies)),
    ):
        for name in names:
            if name not in known:
                yield unknown(f"study.{key}", name, known)
    if study.sample != "all" and study.readouts is None:
        for name in study.benchmarks:
            if name not in sampled:
                yield f"study.sample: does not list {name!r}, and there is no study.readouts to read it from"


def _pair_errors(config: Config) -> Iterator[str]:
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
