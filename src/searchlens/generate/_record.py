"""The job record: a small file in which a running job reports its state. Read by ``searchlens status``, not by jobs."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from searchlens.errors import InputError, JobStoppedError
from searchlens.store import files, provenance

BEAT_SECONDS = 30.0
"""Seconds between two reports of a running job."""


class Record:
    """Writes the job record regularly. If several jobs sample the same pool, the file is that of the last writer."""

    def __init__(self, path: Path, manifest: str) -> None:
        self.path = path
        self.total = self.drawn = 0
        self._identity = {
            "manifest": manifest,
            "host": provenance.host(),
            "pid": os.getpid(),
            "slurm_job": provenance.slurm_job(),
            "started": provenance.now(),
        }
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def begin(self, total: int) -> None:
        """Set how many samples are to be drawn, and count ``drawn`` from 0."""
        self.total, self.drawn = total, 0
        self._write("running")

    def __enter__(self) -> Record:
        self._write("running")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._has_ended.set()
        self._thread.join()
        if error is None:
            self._write("done")
        elif isinstance(error, (JobStoppedError, KeyboardInterrupt)):
            self._write("stopped", str(error) or "interrupted")
        else:
            self._write("failed", f"{type(error).__name__}: {error}")

    def _beat(self) -> None:
        while not self._has_ended.wait(BEAT_SECONDS):
            self._write("running")

    def _write(self, state: str, message: str = "") -> None:
        report: dict[str, Any] = {"state": state, "message": message, "updated": time.time()}
        text = json.dumps({**self._identity, **report, "drawn": self.drawn, "total": self.total}, indent=1)
        with suppress(OSError, InputError):  # a job does not fail because its record cannot be written
            files.replace_text(self.path, text)
