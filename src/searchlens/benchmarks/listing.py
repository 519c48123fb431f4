"""`searchlens benchmarks`: the known benchmarks, and which of their questions are on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from searchlens.benchmarks.known import OWN, KnownBenchmark, known_benchmarks
from searchlens.benchmarks.loading import LoadedBenchmark, files_at, read
from searchlens.benchmarks.questions import content_hash
from searchlens.errors import InputError

HEAD = ("family", "title", "questions", "regime", "grader", "licence")

Configured = Mapping[str, Mapping[str, Any]]
PathsOf = Callable[[str], Sequence[Path]]


def listing(configured: Configured, paths_of: PathsOf) -> str:
    """The known benchmarks as a table; under each one its configured files and its dataset on the hub.

    Parameters
    ----------
    configured : mapping
        ``benchmarks`` of a configuration.
    paths_of : callable
        Name of a configured benchmark to its files and folders; raises InputError if they are not available.
    """
    known = list(known_benchmarks().values())
    head, *table = _aligned([HEAD, *(_cells(benchmark) for benchmark in known)])
    lines = [head]
    for benchmark, row in zip(known, table, strict=True):
        lines += [row, *_files(benchmark.name, configured, paths_of), _on_hub(benchmark)]
    if own := _files(OWN, configured, paths_of):
        lines += [f"{OWN} (the project's own format)", *own]
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cells(benchmark: KnownBenchmark) -> tuple[str, ...]:
    sizes = " or ".join(str(size) for size in benchmark.sizes) or "not known"
    return benchmark.name, benchmark.title, sizes, benchmark.regime, benchmark.grader, benchmark.licence


def _on_hub(benchmark: KnownBenchmark) -> str:
    splits = benchmark.splits
    shown = ", ".join(f"{split.id}{f' {split.config}' if split.config else ''} ({split.split})" for split in splits)
    gated = "; gated, give your own file" if any(split.gated for split in splits) else ""
    return f"    on the hub: {shown or 'no'}{gated}"


def _files(family: str, configured: Configured, paths_of: PathsOf) -> list[str]:
    """A line for each configured benchmark of a family."""
    return [
        f"    {name}: {_state(name, spec, paths_of)}" for name, spec in configured.items() if spec["family"] == family
    ]


def _state(name: str, spec: Mapping[str, Any], paths_of: PathsOf) -> str:
    try:
        paths = paths_of(name)
    except InputError as error:
        return f"not here: {error.message}"
    where = " + ".join(str(path) for path in paths)
    if not all(path.exists() for path in paths):
        return f"not here: {where}"
    try:
        benchmark = read(paths, spec["family"], expected_sha256=spec["sha256"], check=spec["check"])
        count = sum(len(files_at(path, spec["family"])) for path in paths)
    except InputError as error:
        return f"REFUSED: {' '.join(error.message.split())}"
    return f"{where}, {count} file{'s' * (count > 1)}: {_description(benchmark)}"


def _description(benchmark: LoadedBenchmark) -> str:
    source = f" ({benchmark.source})" if benchmark.source else ""
    without_gold = benchmark.rows - len(benchmark.questions)
    left_out = f", {without_gold} rows without a gold left out" if without_gold else ""
    notice = f"; {benchmark.notice}" if benchmark.notice else ""
    return (
        f"{len(benchmark.questions)} questions{source}{left_out}, {benchmark.checked} golds checked,"
        f" content {content_hash(benchmark.questions)[:12]}{notice}"
    )
