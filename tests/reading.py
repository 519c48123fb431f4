"""Helpers of the tests of readers: files as tools write them, and what a reader makes of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from searchlens import catalogue
from searchlens.formats.readers.logged import LoggedSample, Notes

LOGS = Path(os.environ.get("SEARCHLENS_LOGS") or Path(__file__).parent / "data/logs")
"""Logs that the harnesses wrote: those that are kept, or those of ``make test-harnesses``."""


def written(path: Path, rows: Iterable[Any]) -> Path:
    """JSON lines; texts are written as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def read(name: str, *paths: Path, **wishes: str) -> tuple[list[LoggedSample], list[str]]:
    """Samples and notes of the files that a reader finds in these paths."""
    reader = catalogue.find("reader", name)()
    files = [file for path in paths for file in reader.files(path)]
    assert files, f"{name} knows none of {paths}"
    notes = Notes()
    return list(reader.read(files, wishes, notes)), notes.lines


def samples(name: str, *paths: Path, **wishes: str) -> list[LoggedSample]:
    return read(name, *paths, **wishes)[0]


def numbered(drawn: Iterable[LoggedSample]) -> list[tuple[Any, int, str | None]]:
    """Id, number and text of each sample, in order of id and number."""
    return sorted(((s.document.id, s.sample, s.text) for s in drawn), key=lambda row: (str(row[0]), row[1]))
