"""The state of a training that may be interrupted: saved now and then, whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


class Saved:
    """A file that holds the last saved state of one training.

    Parameters
    ----------
    path : Path
        The file; removed by :meth:`clear` once the training's result is written.
    every : float
        Seconds between two saves.
    """

    def __init__(self, path: Path, every: float = 20.0) -> None:
        self.path, self.every = path, every
        self.last = time.monotonic()

    def load(self, device: str) -> dict[str, Any] | None:
        """The saved state with tensors on ``device``; None at the start."""
        if not self.path.exists():
            return None
        state: dict[str, Any] = torch.load(self.path, map_location=device, weights_only=False)
        return state

    def offer(self, state: Callable[[], dict[str, Any]]) -> None:
        """Save what ``state`` returns if the last save is long enough ago."""
        if time.monotonic() - self.last < self.every:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        torch.save(state(), part)
        part.replace(self.path)
        self.last = time.monotonic()

    def clear(self) -> None:
        """Forget the state."""
        self.path.unlink(missing_ok=True)
