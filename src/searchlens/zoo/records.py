"""What a training job of a cohort leaves behind: its numbers, as JSON that is compressed by gzip."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchlens.store import files


def record_file(folder: Path, job: str) -> Path:
    """The record of a job in a cohort's folder; it exists once the job is done."""
    return folder / "records" / f"{job}.json.gz"


def read_record(folder: Path, job: str) -> dict[str, Any]:
    """The record of a job; empty if there is none."""
    file = record_file(folder, job)
    record: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes())) if file.exists() else {}
    return record


def write_record(folder: Path, job: str, record: Mapping[str, Any]) -> None:
    """Write the record of a job; the file is replaced whole or not at all."""
    content = gzip.compress((json.dumps(record) + "\n").encode(), mtime=0)
    files.replace(record_file(folder, job), lambda path: path.write_bytes(content))
