"""Samples that somebody brings, one file for each format, and the reader that fits some files.

A reader is declared with ``catalogue.reader`` where it is written, and found by what it says of a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from searchlens import catalogue
from searchlens.errors import InputError
from searchlens.formats.readers.guarded import MISTAKES
from searchlens.formats.readers.lines import kind
from searchlens.formats.readers.logged import Problems, Reader
from searchlens.formats.readers.rows import rows

_KEYS = 8
"""Names of keys that a message shows."""


class Recognised(NamedTuple):
    """The reader that fits some paths, the files that it reads, and its name."""

    reader: Reader
    files: list[Path]
    name: str

    @property
    def takes_newest(self) -> bool:
        """Whether the reader takes the newest of several runs of a task, unless the wish ``date`` says otherwise."""
        return "date" in catalogue.declared("reader")[self.name].options.get("wishes", ())


def recognised(paths: Sequence[Path]) -> Recognised:
    """The one reader whose format the files, or those in folders, have; an ``InputError`` says what they are if none or
    several fit.
    """
    readers: dict[str, Reader] = {name: catalogue.find("reader", name)() for name in catalogue.declared("reader")}
    found: dict[str, list[Path]] = {}
    for path in dict.fromkeys(paths):
        if not path.exists():
            raise InputError(f"cannot read {path}: No such file or directory", "nothing was imported")
        fits = {name: files for name, reader in readers.items() if (files := _files(reader, path))}
        if not fits:
            raise InputError(f"{path} has no format that is known: {_description(path)}", _known())
        for name, files in fits.items():
            found[name] = list(dict.fromkeys([*found.get(name, []), *files]))
    if len(found) > 1:
        which = "; ".join(f"{_title(name)}: {_some(files)}" for name, files in found.items())
        raise InputError(f"files of several formats: {which}", "import the files of one format at a time")
    ((name, files),) = found.items()
    return Recognised(readers[name], files, name)


def _files(reader: Reader, path: Path) -> list[Path]:
    """Files of one format; none where a file that is looked at has fields of other types."""
    try:
        return reader.files(path)
    except MISTAKES:
        return []


def _title(name: str) -> str:
    return str(catalogue.declared("reader")[name].options.get("title", name))


def _known() -> str:
    titles = ", ".join(catalogue.titles("reader").values())
    return f"known formats: {titles} (docs/import.md); nothing was imported"


def _some(files: Sequence[Path]) -> str:
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"{files[0]}{more}"


def _description(path: Path) -> str:
    """What a path is, as far as its first bytes and rows tell."""
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir())
        inside = f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}" if names else "nothing"
        return f"a folder with {inside}"
    if path.stat().st_size == 0:
        return "it is empty"
    what = kind(path)
    if what == "zip":
        return "a zip archive that is no log of a known harness"
    problems = Problems()
    try:
        row = next((row for _, row in rows(path, problems)), None)
    except InputError as error:
        return error.message
    if row is None:
        why = next(iter(problems.lines), "all are blank")
        return "Parquet without rows" if what == "parquet" else f"no row of it can be read: {why}"
    keys = list(row)
    shown = ", ".join(keys[:_KEYS]) + (" …" if len(keys) > _KEYS else "")
    return f"its first row has the keys {shown or '(none)'}"
