"""Files of one format among those that somebody names: a file, or what lies in a folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from searchlens.errors import InputError
from searchlens.formats.readers.logged import Notes

_COMPRESSED = r"(\.gz|\.gzip|\.zst|\.zstd)?"


def candidates(path: Path, name: str, fits: Callable[[Path], bool]) -> list[Path]:
    """Files of a format by their content: a file whatever its name is, or those in a folder whose names match ``name``.

    It is a regular expression, without the suffix of a compression.
    """
    if path.is_file():
        return [path] if fits(path) else []
    return [file for file in _below(path) if re.fullmatch(name + _COMPRESSED, file.name) and fits(file)]


def _below(folder: Path) -> Iterator[Path]:
    """Files in a folder and the folders in it, in the order of their names; hidden ones left out."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts):
            yield file


def plain_name(path: Path) -> str:
    """Name of a file without the suffix of a compression."""
    return re.sub(_COMPRESSED[:-1] + "$", "", path.name)


def beside(path: Path) -> Path | None:
    """A file, or the compressed form of it that lies in its place; None if there is neither."""
    options = (path, *(path.with_name(path.name + suffix) for suffix in (".gz", ".zst")))
    return next((option for option in options if option.is_file()), None)


def split_at(path: Path, name: str) -> tuple[Path, Path] | None:
    """A path before and behind the last folder of a name; None if it is in no such folder."""
    parts = path.parts
    where = next((i for i in range(len(parts) - 1, -1, -1) if parts[i] == name), None)
    return None if where is None else (Path(*parts[:where]), Path(*parts[where + 1 :]))


@dataclass(frozen=True)
class Dated:
    """A file of a task that may have been run several times."""

    path: Path
    task: str
    date: str


def chosen(files: Sequence[Dated], date: str | None, notes: Notes) -> list[Dated]:
    """For each folder and task the newest file, or those of a date, of which the beginning is enough; ``all`` takes
    every file, in the order of their dates. An ``InputError`` lists the dates of a task that has none of this one.
    """
    by_task: dict[tuple[Path, str], list[Dated]] = {}
    for file in sorted(files, key=lambda file: (str(file.path.parent), file.task, file.date)):
        by_task.setdefault((file.path.parent, file.task), []).append(file)
    taken = []
    for (_, task), same in by_task.items():
        wanted = [file for file in same if date in (None, "all") or file.date.startswith(str(date))]
        if not wanted:
            dates = ", ".join(file.date for file in same)
            raise InputError(f"{same[0].path.parent}: task {task!r} has no file of date {date!r}; found: {dates}")
        if len(wanted) > 1 and date != "all":
            others = ", ".join(file.date for file in wanted[:-1])
            notes.add(f"task {task!r} has several dates; {wanted[-1].date} was read, not {others}")
            wanted = wanted[-1:]
        taken += wanted
    return taken
