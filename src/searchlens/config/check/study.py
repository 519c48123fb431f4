"""Section ``study``: what a run does."""

from __future__ import annotations

from collections.abc import Iterator

from searchlens.config.check.schema import unknown
from searchlens.config.model import Config


def errors(config: Config) -> Iterator[str]:
    """Mistakes in this section."""
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
