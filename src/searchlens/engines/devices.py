"""Which GPU a job runs on where several are visible.

A scheduler shows a job its own. Without one every job sees them all and would take the first, so a job takes the one
that fewest others hold. What is held is a lock on a file: it ends with the process, however that ends.
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

_held: list[IO[str]] = []  # closed by the end of the process


def visible() -> list[str]:
    """GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; CUDA is not started."""
    import torch

    number, named = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    names = map(str, range(number)) if named is None else map(str.strip, named.split(","))
    return list(names)[:number]


def take() -> str | None:
    """Narrow this process to one of several visible GPUs.

    It is the one that fewest processes of this user have taken, the first among equals; several share a GPU where
    there are more of them than GPUs. Has to be called before CUDA starts, which reads the variable once.

    Returns
    -------
    str or None
        What CUDA_VISIBLE_DEVICES was set to; None where one GPU or none is visible, and nothing is to be chosen.
    """
    gpus = visible()
    if len(gpus) < 2:
        return None
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu = _least_taken(gpus)
    return gpu


def _least_taken(gpus: Sequence[str]) -> str:
    folder = Path(tempfile.gettempdir()) / f"searchlens-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "choosing.lock").open("w") as choosing:
        flock(choosing, LOCK_EX)  # one after the other: looking holds locks, too
        taken = {gpu: [path for path in folder.glob(f"{gpu}-*.lock") if _is_held(path)] for gpu in gpus}
        gpu = min(gpus, key=lambda each: len(taken[each]))
        path = next(path for k in count() if (path := folder / f"{gpu}-{k}.lock") not in taken[gpu])
        _held.append(path.open("w"))
        flock(_held[-1], LOCK_EX)
    return gpu


def _is_held(path: Path) -> bool:
    with files.alone(path) as alone:
        return not alone
