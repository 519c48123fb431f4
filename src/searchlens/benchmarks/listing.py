"""`searchlens benchmarks`: what is known of each benchmark, and what of it lies here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchlens.benchmarks import OWN, content_hash, files_at, locations, read
from searchlens.benchmarks.families import FAMILIES, Family
from searchlens.errors import InputError

HEAD = ("family", "title", "questions", "regime", "grader", "licence")


def listing(root: Path, configured: Mapping[str, Mapping[str, Any]]) -> str:
    """The known benchmarks as a table, each with where its data lies.

    Parameters
    ----------
    root : Path
        What relative paths are relative to.
    configured : mapping
        ``benchmarks`` of a configuration; those of a known family say where their data is.
    """
    lines = [HEAD, *(_line(family) for family in FAMILIES.values())]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    table = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    told = [table[0]]
    for family, row in zip(FAMILIES.values(), table[1:], strict=True):
        told += [row, *(f"    {line}" for line in _places(root, family, configured))]
    own = [f"    {name}: {spec['path']}" for name, spec in configured.items() if spec["family"] == OWN]
    return "\n".join([*told, *([f"{OWN} (the project's own format)", *own] if own else [])])


def _line(family: Family) -> tuple[str, ...]:
    sizes = " or ".join(str(size) for size in family.sizes) or "not known"
    return family.name, family.title, sizes, family.regime, family.grader, family.licence


def _places(root: Path, family: Family, configured: Mapping[str, Mapping[str, Any]]) -> list[str]:
    specs = {name: spec for name, spec in configured.items() if spec["family"] == family.name}
    places = {name: locations(family.name, spec["path"]) for name, spec in specs.items()}
    places = places or {family.name: locations(family.name, None)}
    found = [f"{name}: {_state([root / path for path in paths], paths, family)}" for name, paths in places.items()]
    hubs = [hub for part in family.parts or (family.name,) if (hub := FAMILIES[part].hub)]
    shown = ", ".join(f"{hub.id}{f' {hub.config}' if hub.config else ''} ({hub.split})" for hub in hubs)
    return [*found, f"on the hub: {shown}{'; gated' if any(hub.gated for hub in hubs) else ''}"]


def _state(paths: list[Path], named: list[Path], family: Family) -> str:
    where = " + ".join(str(path) for path in named)
    if not all(path.exists() for path in paths):
        return f"{where}, not there"
    try:
        found = read(paths, family.name)
    except InputError as error:
        return f"{where}, REFUSED: {' '.join(error.message.split())}"
    source = f" ({found.source})" if found.source else ""
    left = found.rows - len(found.questions)
    without = f", {left} rows without a gold left out" if left else ""
    count = sum(len(files_at(path, family.name)) for path in paths)
    return (
        f"{where}, {count} file{'s' * (count > 1)}: {len(found.questions)} questions{source}{without},"
        f" {found.checked} golds checked, content {content_hash(found.questions)[:12]}"
    )
