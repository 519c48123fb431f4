"""`searchlens benchmarks`: what is known of each benchmark, and what of it lies here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from searchlens.benchmarks import OWN, Benchmark, content_hash, files_at, read, splits
from searchlens.benchmarks.families import FAMILIES, Family
from searchlens.errors import InputError

HEAD = ("family", "title", "questions", "regime", "grader", "licence")


def listing(configured: Mapping[str, Mapping[str, Any]], paths_of: Callable[[str], Sequence[Path]]) -> str:
    """The known benchmarks as a table, each with where its questions lie, or would be fetched from.

    Parameters
    ----------
    configured : mapping
        ``benchmarks`` of a configuration.
    paths_of : callable
        Name of a configured benchmark to its files and folders; raises InputError where they are not to be had.
    """
    lines = [HEAD, *(_line(family) for family in FAMILIES.values())]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    table = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    told = [table[0]]
    for family, row in zip(FAMILIES.values(), table[1:], strict=True):
        names = [name for name, spec in configured.items() if spec["family"] == family.name]
        told += [row, *(f"    {name}: {_state(name, configured[name], paths_of)}" for name in names), _on_hub(family)]
    own = [name for name, spec in configured.items() if spec["family"] == OWN]
    told += [f"{OWN} (the project's own format)"] * bool(own)
    return "\n".join([*told, *(f"    {name}: {_state(name, configured[name], paths_of)}" for name in own)])


def _line(family: Family) -> tuple[str, ...]:
    sizes = " or ".join(str(size) for size in family.sizes) or "not known"
    return family.name, family.title, sizes, family.regime, family.grader, family.licence


def _on_hub(family: Family) -> str:
    hubs = splits(family.name)
    shown = ", ".join(f"{hub.id}{f' {hub.config}' if hub.config else ''} ({hub.split})" for hub in hubs)
    return f"    on the hub: {shown}{'; gated, give your own file' if any(hub.gated for hub in hubs) else ''}"


def _state(name: str, spec: Mapping[str, Any], paths_of: Callable[[str], Sequence[Path]]) -> str:
    try:
        paths = paths_of(name)
    except InputError as error:
        return f"not here: {error.message}"
    where = " + ".join(str(path) for path in paths)
    if not all(path.exists() for path in paths):
        return f"not here: {where}"
    try:
        found = read(paths, spec["family"], expected_sha256=spec["sha256"], check=spec["check"])
        count = sum(len(files_at(path, spec["family"])) for path in paths)
    except InputError as error:
        return f"REFUSED: {' '.join(error.message.split())}"
    return f"{where}, {count} file{'s' * (count > 1)}: {_told(found)}"


def _told(found: Benchmark) -> str:
    source = f" ({found.source})" if found.source else ""
    left = found.rows - len(found.questions)
    without = f", {left} rows without a gold left out" if left else ""
    return (
        f"{len(found.questions)} questions{source}{without}, {found.checked} golds checked,"
        f" content {content_hash(found.questions)[:12]}"
    )
