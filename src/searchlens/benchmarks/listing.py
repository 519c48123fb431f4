"""`searchlens benchmarks`: the known benchmarks, and which of their questions are on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from searchlens.benchmarks.known import OWN, files_at, known_benchmarks, read
from searchlens.benchmarks.questions import content_hash
from searchlens.config.sampled import BenchmarkSpec
from searchlens.errors import InputError, counted

HEAD = ("family", "title", "questions", "regime", "grader", "licence")

Configured = Mapping[str, BenchmarkSpec]
PathsOf = Callable[[str], Sequence[Path]]


def answer(configured: Configured, paths_of: PathsOf) -> dict[str, Any]:
    """The ``known`` benchmarks and the ``own`` ones, with configured files and datasets on the hub.

    ``paths_of`` gives the files and folders of a configured benchmark by its name, or raises InputError. ``configured``
    of a benchmark maps the names in the configuration to what is there, in words.
    """
    return {
        "known": [
            {
                "family": benchmark.name,
                "title": benchmark.title,
                "questions": list(benchmark.sizes),
                **{key: getattr(benchmark, key) for key in HEAD[3:]},
                "hub": [
                    {key: getattr(split, key) for key in ("id", "config", "split", "gated")}
                    for split in benchmark.splits
                ],
                "configured": _files(benchmark.name, configured, paths_of),
            }
            for benchmark in known_benchmarks().values()
        ],
        "own": _files(OWN, configured, paths_of),
    }


def rendered(found: Mapping[str, Any]) -> str:
    """The known benchmarks as a table; under each one its configured files and its datasets on the hub."""
    sizes = [" or ".join(map(str, benchmark["questions"])) or "not known" for benchmark in found["known"]]
    shown = [{**benchmark, "questions": size} for benchmark, size in zip(found["known"], sizes, strict=True)]
    cells = [HEAD, *([each[key] for key in HEAD] for each in shown)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    head, *table = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
    lines = [head]
    for benchmark, row in zip(found["known"], table, strict=True):
        splits = benchmark["hub"]
        places = ", ".join(" ".join(filter(None, (one["id"], one["config"], f"({one['split']})"))) for one in splits)
        gated = "; gated, give your own file" if any(one["gated"] for one in splits) else ""
        lines += [row, *_file_lines(benchmark["configured"]), f"    on the hub: {places or 'no'}{gated}"]
    if own := _file_lines(found["own"]):
        lines += [f"{OWN} (the project's own format)", *own]
    return "\n".join(lines)


def _files(family: str, configured: Configured, paths_of: PathsOf) -> dict[str, str]:
    """What is there of each configured benchmark of a family."""
    return {name: _state(name, spec, paths_of) for name, spec in configured.items() if spec.family == family}


def _file_lines(states: Mapping[str, str]) -> list[str]:
    return [f"    {name}: {state}" for name, state in states.items()]


def _state(name: str, spec: BenchmarkSpec, paths_of: PathsOf) -> str:
    try:
        paths = paths_of(name)
    except InputError as error:
        return f"not here: {error.message}"
    where = " + ".join(str(path) for path in paths)
    if not all(path.exists() for path in paths):
        return f"not here: {where}"
    try:
        benchmark = read(paths, spec.family, expected_sha256=spec.sha256, check=spec.check)
        count = sum(len(files_at(path, spec.family)) for path in paths)
    except InputError as error:
        return f"REFUSED: {' '.join(error.message.split())}"
    source = f" ({benchmark.source})" if benchmark.source else ""
    without_gold = benchmark.rows - len(benchmark.questions)
    left_out = f", {counted(without_gold, 'row')} without a gold left out" if without_gold else ""
    notice = f"; {benchmark.notice}" if benchmark.notice else ""
    return (
        f"{where}, {counted(count, 'file')}: {counted(len(benchmark.questions), 'question')}{source}"
        f"{left_out}, {benchmark.checked} golds checked, content {content_hash(benchmark.questions)[:12]}{notice}"
    )
