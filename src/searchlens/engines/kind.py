"""What configuration and planning know of an engine: its declaration, and the checkpoint's options for it.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from searchlens import catalogue
from searchlens.config.sampled import CheckpointSpec
from searchlens.errors import require_known


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
