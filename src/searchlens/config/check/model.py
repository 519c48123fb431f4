"""Checks at the top level of the configuration, and of sections ``readings``, ``boptr`` and ``cost``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from searchlens.config.check.checkpoints import is_studied
from searchlens.config.check.schema import unknown
from searchlens.config.model import Config
from searchlens.config.project import ZOO_PREFIX


def errors(config: Config) -> Iterator[str]:
    """Mistakes at the top level."""
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


def _boptr_errors(config: Config) -> Iterator[str]:
    """Names in section ``boptr`` that are not in the configuration, and an anchor that cannot be used."""
    pair = config.boptr.anchor.pair
    if pair is not None and pair not in config.pairs:
        yield unknown("boptr.anchor.pair", pair, config.pairs)
    elif pair is not None and config.pairs[pair].group == "new":
        yield f"boptr.anchor.pair: {pair!r} has group new; the anchor needs group upper or lower"
    yield from _anchor_errors(config)
    for name in config.boptr.q_beta:
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
