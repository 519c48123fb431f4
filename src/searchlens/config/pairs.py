"""Section ``pairs``: which checkpoints are Base and RL of one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from searchlens.config.boptr import Group
from searchlens.config.limits import (
    STRICT,
    Name,
    Quantity,
)

ROLES: tuple[Literal["base", "rl"], ...] = ("base", "rl")


@dataclass(frozen=True, kw_only=True)
class BatchSpec:
    """The weights of a pair sampled again: checkpoints with the same ``path`` or ``hub`` and another ``seed``."""

    __pydantic_config__ = STRICT

    base: Name | None = None
    """Checkpoint that repeats Base; null: Base is not repeated."""
    rl: Name | None = None
    """Checkpoint that repeats RL; null: RL is not repeated."""

    @property
    def sides(self) -> dict[str, str]:
        """Checkpoint by role, of the sides that are repeated."""
        return {role: name for role in ROLES if (name := getattr(self, role))}


@dataclass(frozen=True, kw_only=True)
class PairSpec:
    """A Base checkpoint and the checkpoint that RL made from it."""

    __pydantic_config__ = STRICT

    base: Name
    """Key of ``checkpoints``."""
    rl: Name
    """Key of ``checkpoints``."""
    group: Group = "upper"
    """Cohort of BOPTR. Parameters are fitted to upper and lower pairs; a new pair is only predicted."""
    parameters: Quantity | None = None
    """Number of parameters: the size feature of V4, and the size by which ``cost`` estimates speed where the shape of
    the network does not."""
    rltrain: Name | None = None
    """Benchmark of role ``rltrain`` with questions of this pair's own RL-training split; null: the only one there
    is."""
    templates: Literal["shared", "own"] = "shared"
    """shared: Base and RL have the same prompt template, both with or both without worked examples. own: each has its
    own, so that the difference between them includes that of the prompts."""
    searches: bool = True
    """Whether this pair's Base is also sampled under the searches of a benchmark."""
    batches: Mapping[Name, BatchSpec] = field(default_factory=dict)
    """Repeated samples of the same weights on the fitted benchmarks, by a name such as their seed."""
