"""Choice of the GPU that a job runs on, if it sees several.

A scheduler shows each job its own GPU. Without a scheduler every job sees all GPUs and would take the first one, so a
job takes the GPU that the fewest other jobs have taken. Jobs know of each other by lock files in the system's temporary
folder. A lock ends with its process, even if the process is killed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from fcntl import LOCK_EX, flock
from itertools import count
from pathlib import Path
from typing import IO

from searchlens.store import files

_locks: list[IO[str]] = []  # open until the process ends


def visible() -> list[str]:
    """Return the GPUs that this process may use, by their names in CUDA_VISIBLE_DEVICES. Does not start CUDA."""
    import torch

    number, variable = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    names = map(str, range(number)) if variable is None else map(str.strip, variable.split(","))
    return list(names)[:number]


def take() -> str | None:
    """Restrict this process to one of several visible GPUs; returns the new value of CUDA_VISIBLE_DEVICES.

    It takes the GPU that the fewest processes of this user have taken, the first one among equals. If there are more
    processes than GPUs, they share. If at most one GPU is visible, the variable is left alone. Must be called before
    CUDA starts, which reads CUDA_VISIBLE_DEVICES once.
    """
    gpus = visible()
    if len(gpus) < 2:
        return None
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu = _least_taken(gpus)
    return gpu


def _least_taken(gpus: Sequence[str]) -> str:
    """Lock a file for the GPU with the fewest locks, and return the GPU."""
    folder = Path(tempfile.gettempdir()) / f"searchlens-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "choosing.lock").open("w") as choosing:
        flock(choosing, LOCK_EX)  # one process at a time, because testing a lock takes it for a moment
        taken = {gpu: [path for path in folder.glob(f"{gpu}-*.lock") if _is_locked(path)] for gpu in gpus}
        gpu = min(gpus, key=lambda name: len(taken[name]))
        path = next(path for k in count() if (path := folder / f"{gpu}-{k}.lock") not in taken[gpu])
        _locks.append(path.open("w"))
        flock(_locks[-1], LOCK_EX)
    return gpu


def _is_locked(path: Path) -> bool:
    with files.alone(path) as alone:
        return not alone
