"""The state of a training, saved from time to time so that an interrupted training can resume."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from searchlens.store.files import replace


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
