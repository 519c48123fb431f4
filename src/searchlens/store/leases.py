"""Leases on chunks: of all processes that share a folder, one alone samples a chunk.

A lease is a file beside the chunk, and one process alone can create it. It ends when that process gives it back, dies
on this machine, which frees its lock, or is silent for five minutes; then the lease of the next number can be taken.
None is removed before the chunk is there, so no number is taken twice.

This assumes that the clocks of the machines agree within some minutes. If they do not, or a process hangs for so long
and comes back, a chunk is drawn twice, and the one that is saved first stays.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from itertools import count, takewhile
from pathlib import Path

from searchlens.store import files
from searchlens.store.layout import lease

SILENT_SECONDS = 300.0
"""A process whose last news is older counts as dead: ten intervals between two reports of a job."""

_TAKING_SECONDS = 10.0
"""The same of one that has not written yet which machine it is on."""

_KERNEL = Path("/proc/sys/kernel/random/boot_id")


class Leases:
    """The leases of this process."""

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}
        """A lease to the open file that has its lock."""
        try:
            self._machine = _KERNEL.read_bytes()
        except OSError:
            self._machine = b""

    def take(self, chunk: Path) -> bool:
        """Take a chunk, by the path of its file; False if another process has it. It may be finished already.

        Raises InputError as ``files.publish``.
        """
        taken = _taken(chunk)
        path = lease(chunk, len(taken))
        if taken and taken[-1] in self._held:
            return True
        if (taken and not self._has_ended(taken[-1])) or not files.publish(path, lambda _: None):
            return False
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # a shard was published, and everything removed of it
            return False
        self._held[path] = handle
        machine = b"?"  # without locks, silence alone ends a lease
        with suppress(OSError):
            flock(handle, LOCK_EX | LOCK_NB)
            machine = self._machine or machine
        with suppress(OSError):  # of a full disk
            os.write(handle, machine)
            os.fsync(handle)  # otherwise NFS shows others an empty file until the first beat
        return True

    def is_free(self, chunk: Path) -> bool:
        """Whether no process samples a chunk now; nothing is written."""
        taken = _taken(chunk)
        return not taken or self._has_ended(taken[-1])

    def _has_ended(self, path: Path) -> bool:
        try:
            silent = abs(time.time() - path.stat().st_mtime)
            if silent > SILENT_SECONDS:
                return True
            with path.open("rb") as stream:
                holder = stream.read()
                if holder == self._machine != b"":
                    flock(stream, LOCK_SH | LOCK_NB)
                    return True
                return not holder and silent > _TAKING_SECONDS
        except OSError:  # a process has its lock, or has just removed it
            return False

    def give_back(self, chunk: Path, *, remove: bool = False) -> None:
        """End the lease on a chunk, if this process has it; ``remove`` it if the chunk is there."""
        for path in [path for path in self._held if path.stem == chunk.stem and path.parent == chunk.parent]:
            handle = self._held.pop(path)
            with suppress(OSError):  # it was removed with everything of its shard
                os.utime(path, (0, 0))  # other machines may not see its lock
            os.close(handle)
            if remove:
                files.remove([path])
                with suppress(OSError):  # not empty, or removed
                    path.parent.rmdir()

    def close(self) -> None:
        """End all leases."""
        for path in list(self._held):
            self.give_back(path)

    def beat(self) -> None:
        """Tell other machines that this process lives."""
        for path in list(self._held):
            with suppress(OSError):
                os.utime(path)


def _taken(chunk: Path) -> list[Path]:
    """Every lease on a chunk that was taken, the last one last."""
    return list(takewhile(Path.exists, (lease(chunk, number) for number in count())))
