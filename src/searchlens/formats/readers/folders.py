"""Files of one format among those that somebody names: a file, or what lies in a folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from searchlens.errors import InputError
from searchlens.formats.readers.lines import first_object
from searchlens.formats.readers.logged import LoggedSample, Notes

_COMPRESSED = r"(\.gz|\.gzip|\.zst|\.zstd)?"


class InFolders:
    """The part of a reader that finds files by their content, whatever the name of a file that is given itself."""

    name: ClassVar[str]
    """Regular expression of the names in a folder, without the suffix of a compression."""
    keys: ClassVar[tuple[str, ...]] = ()
    """Keys of the first object of a file of lines, if they tell the format."""

    def files(self, path: Path) -> list[Path]:
        """Files of the format: the path itself, or those in a folder and below it, by name; hidden ones left out."""
        if path.is_file():
            return [path] if self.fits(path) else []
        below = (file for file in sorted(path.rglob("*")) if re.fullmatch(self.name + _COMPRESSED, file.name))
        shown = (file for file in below if not any(part.startswith(".") for part in file.relative_to(path).parts))
        return [file for file in shown if file.is_file() and self.fits(file)]

    def fits(self, path: Path) -> bool:
        """Whether a file is of the format."""
        row = first_object(path)
        return row is not None and all(key in row for key in self.keys)


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
    series: str
    """What runs of one task share: their folder, or their model."""
    task: str
    date: str


def of_dates(
    files: Sequence[Dated], date: str | None, notes: Notes, read: Callable[[Dated, int], Iterator[LoggedSample]]
) -> Iterator[LoggedSample]:
    """For each series and task the samples of the newest file, or of those of a date, of which the beginning is enough;
    ``all`` takes every file, in the order of their dates, and ``read`` gets the number of its first sample. An
    ``InputError`` lists the dates of a task that has none of this one.
    """
    by_task: dict[tuple[str, str], list[Dated]] = {}
    for file in sorted(files, key=lambda file: (file.series, file.task, file.date)):
        by_task.setdefault((file.series, file.task), []).append(file)
    wanted = {}
    for (series, task), same in by_task.items():
        dated = [file for file in same if date in (None, "all") or file.date.startswith(str(date))]
        if not dated:
            dates = ", ".join(file.date for file in same)
            raise InputError(f"{same[0].path.parent}: task {task!r} has no file of date {date!r}; found: {dates}")
        if len(dated) > 1 and date != "all":
            others = ", ".join(file.date for file in dated[:-1])
            notes.add(f"task {task!r} has several dates; {dated[-1].date} was read, not {others}")
            dated = dated[-1:]
        wanted[series, task] = dated
    for dated in wanted.values():
        start = 0
        for file in dated:
            most = start
            for sample in read(file, start):
                most = max(most, sample.sample + 1)
                yield sample
            start = most
