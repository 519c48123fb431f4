"""Every table of the recovery stage."""

from __future__ import annotations

import polars as pl

from searchlens.config.recovery import DEFAULTS, RecoveryOptions
from searchlens.landscape.points import Landscape
from searchlens.recovery.gaps import counts, same_policy, support
from searchlens.recovery.paths import Components, geometry, near_match, path


def recover(
    base: Landscape, rl: Landscape, components: Components, options: RecoveryOptions = DEFAULTS
) -> dict[str, pl.DataFrame]:
    """Every table of the recovery stage: ``catalogue.RECOVERY_FRAMES``, of the metrics that are ``compared``.

    An InputError: the two landscapes have different questions, RL has no samples of the default policy, or a policy of
    Base has no components.
    """
    same = same_policy(base, rl, options)
    return {
        "same_policy": same,
        "counts": counts(same, options),
        "support": support(base, rl, options),
        "near_match": near_match(base, rl, options),
        "path": path(base, rl, components, options),
        "geometry": geometry(base, rl),
    }
