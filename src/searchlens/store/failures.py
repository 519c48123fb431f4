"""Tables and figures that a stage could not make: it makes the others, and leaves a record and empty files of these."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from searchlens.store import files


class Failures(dict[str, str]):
    """What a stage could not make, with the errors."""

    @contextmanager
    def caught(self, what: str, outputs: Iterable[Path]) -> Iterator[None]:
        """Go on after an error, with empty outputs; where these cannot be written either, the stage ends."""
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:
            logging.getLogger(__name__).exception("%s could not be made", what)
            for path in outputs:
                files.replace_text(path, "")
            self[what] = " ".join(f"{type(error).__name__}: {error}".split())

    def save(self, record: Path) -> None:
        """Replace the record of the run before, which counts the tries that failed."""
        if tries := (files.read_json(record)["tries"] if record.exists() else 0) + bool(self):
            files.replace_text(record, json.dumps({"tries": tries, "failed": self}))


def tried(records: Path) -> int:
    """How often a stage failed. Its rule tracks it, so it runs again after a failure, and not after a success."""
    return sum(record["tries"] for record in _records(records))


def failed(records: Path) -> dict[str, str]:
    """What the last run of a stage could not make, with the errors."""
    return {what: why for record in _records(records) for what, why in record["failed"].items()}


def _records(folder: Path) -> list[dict[str, Any]]:
    return [files.read_json(path) for path in files.entries(folder) if path.suffix == ".json"]
