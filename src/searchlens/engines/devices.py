"""Choice of the GPU that a job runs on, if it sees several.

A scheduler shows each job its own GPU. Without a scheduler every job sees all GPUs and would take the first one, so a
job takes the GPU that the fewest other jobs have taken. Jobs know of each other by lock files in the system's temporary
folder. A lock ends with its process, even if the process is killed.
"""

from __future__ import annotations

import os
import tempfile
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
    folder = Path(tempfile.gettempdir()) / f"searchlens-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "choosing.lock").open("w") as choosing:
        flock(choosing, LOCK_EX)  # one process at a time, because testing a lock takes it for a moment
        taken: dict[str, list[Path]] = {gpu: [] for gpu in gpus}
        for name in gpus:
            for path in folder.glob(f"{name}-*.lock"):
                with files.alone(path) as alone:
                    if not alone:
                        taken[name].append(path)
        gpu = min(gpus, key=lambda name: len(taken[name]))
        path = next(path for k in count() if (path := folder / f"{gpu}-{k}.lock") not in taken[gpu])
        _locks.append(path.open("w"))
        flock(_locks[-1], LOCK_EX)
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    return gpu
