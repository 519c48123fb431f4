"""What a training leaves behind: its state, from which an interrupted one resumes, and its numbers, as packed JSON."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from searchlens.store import files
from searchlens.store.files import replace
from searchlens.zoo import record_file


class StateFile:
    """The last saved state of one training; the file is replaced whole or not at all.

    ``path``: the file. ``every``: least number of seconds between two saves.
    """

    def __init__(self, path: Path, every: float = 20.0) -> None:
        self.path, self.every = path, every
        self.last = time.monotonic()

    def load(self, device: str) -> dict[str, Any] | None:
        """The saved state with tensors on ``device``; None if there is no file."""
        if not self.path.exists():
            return None
        state: dict[str, Any] = torch.load(self.path, map_location=device, weights_only=True)
        return state

    def due(self) -> bool:
        """Whether the last save was at least ``every`` seconds ago."""
        return time.monotonic() - self.last >= self.every

    def save(self, state: dict[str, Any]) -> None:
        """Replace the saved state."""
        replace(self.path, partial(torch.save, state))
        self.last = time.monotonic()

    def clear(self) -> None:
        """Delete the file, once the training's result is written."""
        self.path.unlink(missing_ok=True)


def write_record(folder: Path, job: str, record: Mapping[str, Any]) -> None:
    """Write the record of a job; the file is replaced whole or not at all."""
    content = gzip.compress((json.dumps(record) + "\n").encode(), mtime=0)
    files.replace(record_file(folder, job), lambda path: path.write_bytes(content))
