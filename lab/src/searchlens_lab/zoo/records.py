"""What a training job of a cohort leaves behind: its numbers, as JSON that is compressed by gzip."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchlens.store import files
from searchlens.zoo import record_file


def write_record(folder: Path, job: str, record: Mapping[str, Any]) -> None:
    """Write the record of a job; the file is replaced whole or not at all."""
    content = gzip.compress((json.dumps(record) + "\n").encode(), mtime=0)
    files.replace(record_file(folder, job), lambda path: path.write_bytes(content))
