"""What a job says of itself while it runs: read by ``searchlens status``, and by no job."""

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
"""How often a job says that it runs."""


class Record:
    """A small file, replaced now and then; of jobs that make the same pool at once, the one that wrote last.

    Parameters
    ----------
    path : Path
        ``Layout.job_record`` of the pool.
    manifest : str
        Name of the manifest that the job makes; the log has the same one.
    """

    def __init__(self, path: Path, manifest: str) -> None:
        self.path = path
        self.total = self.drawn = 0
        self._told = {
            "manifest": manifest,
            "host": provenance.host(),
            "pid": os.getpid(),
            "slurm_job": provenance.slurm_job(),
            "started": provenance.now(),
        }
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def begin(self, total: int) -> None:
        """Say how many samples there are to draw; ``drawn`` counts from here."""
        self.total, self.drawn = total, 0
        self._write("running")

    def __enter__(self) -> Record:
        self._write("running")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        if error is None:
            self._write("done")
        elif isinstance(error, (JobStoppedError, KeyboardInterrupt)):
            self._write("stopped", str(error) or "interrupted")
        else:
            self._write("failed", f"{type(error).__name__}: {error}")

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            self._write("running")

    def _write(self, state: str, message: str = "") -> None:
        now: dict[str, Any] = {"state": state, "message": message, "updated": time.time()}
        text = json.dumps({**self._told, **now, "drawn": self.drawn, "total": self.total}, indent=1)
        with suppress(OSError, InputError):  # a job does not end because nobody can read how it does
            files.replace_text(self.path, text)
