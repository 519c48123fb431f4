"""What is known of an engine before it starts: its declaration, the checkpoint's options for it, and its GPU.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from fcntl import LOCK_EX, flock
from itertools import count
from pathlib import Path
from typing import IO, Any

from searchlens import catalogue
from searchlens.config.sampled import CheckpointSpec
from searchlens.errors import require_known
from searchlens.store import files


@dataclass(frozen=True)
class EngineKind:
    """An engine as one checkpoint runs on it. What has a default is an option of ``searchlens.catalogue.engine``."""

    name: str
    options: Mapping[str, Any]
    """Section of the checkpoint that has the engine's name, with which it is started; empty if there is none."""
    gpus: int
    """GPUs that share the weights: option ``tensor_parallel``, or 1."""
    processes: int
    """Engines of a job, which share its GPU: option ``processes``, or 1."""
    max_model_len: int | None
    """Most tokens of prompt and completion together: option ``max_model_len``, or None, the model's own limit."""
    library: str = "torch"
    """Module without which the engine does not start."""
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    """Types of weights that it can run."""
    reads: tuple[str, ...] = ()
    """Which of ``quantization`` and ``kv_cache_dtype`` it has; it is started with them."""
    family: str = ""
    """Engine whose samples count as its own, as generation ids name it; empty: no other."""
    worker_mb: float = 4000
    """Main memory of each of its workers, without weights."""
    weights: float = 3.0
    """Main memory for the weights, as a multiple of their files."""
    rows: int | None = None
    """Rows that a process decodes together on a GPU without ``max_rows``. Its speed is then a share of the limit of
    ``cost.gpu``; None: it is that of ``cost.throughput``."""
    embedded: bool = False
    """Whether this package reads the weights, and so refuses what it cannot read."""

    def keys(self, *names: str) -> list[str]:
        """Those of these options that it has, as they are written below a checkpoint."""
        return [f"{self.name}.{name}" for name in names if name in self.options]


def engine_kind(spec: CheckpointSpec) -> EngineKind:
    """The engine of a checkpoint; InputError if none is declared, or its declaration has an unknown option."""
    name = spec.engine
    declaration = catalogue.declaration("engine", name)
    known = [field.name for field in fields(EngineKind) if field.default is not MISSING]
    for option in declaration.options:
        require_known(option, known, f"engine {name!r} in {declaration.path}: option")
    section = getattr(spec, name, None)
    own = {} if section is None else asdict(section)
    planned = own.get("tensor_parallel", 1), own.get("processes", 1), own.get("max_model_len")
    return EngineKind(name, own, *planned, **declaration.options)


# ---- its GPU

_locks: list[IO[str]] = []  # open until the process ends


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, by their names in CUDA_VISIBLE_DEVICES. Does not start CUDA."""
    import torch

    number, variable = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    names = map(str, range(number)) if variable is None else map(str.strip, variable.split(","))
    return list(names)[:number]


def take_gpu() -> str | None:
    """Restrict this process to one of several visible GPUs; returns the new value of CUDA_VISIBLE_DEVICES.

    A scheduler shows each job its own GPU; without one every job sees all, and would take the first one. Jobs know of
    each other by lock files in the system's temporary folder. A lock ends with its process, even if that is killed.

    It takes the GPU that the fewest processes of this user have taken, the first one among equals. If there are more
    processes than GPUs, they share. If at most one GPU is visible, the variable is left alone. Must be called before
    CUDA starts, which reads CUDA_VISIBLE_DEVICES once.
    """
    gpus = visible_gpus()
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
