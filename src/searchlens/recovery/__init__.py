"""Where the RL model's default curve lies inside the Base landscape (paper, sections "Same-policy gaps" to "Geometry").

``recover`` gives every table of the stage for one pair on one benchmark; the functions beside it give one table each.
Everything is arithmetic on the landscape's hits.
"""

from __future__ import annotations

import polars as pl

from searchlens.landscape import Landscape
from searchlens.recovery._gaps import counts, same_policy, support
from searchlens.recovery._options import DEFAULTS, EnvelopeInterval, RecoveryOptions
from searchlens.recovery._paths import Components, distance, geometry, near_match, path

__all__ = [
    "Components",
    "EnvelopeInterval",
    "RecoveryOptions",
    "counts",
    "distance",
    "geometry",
    "near_match",
    "path",
    "recover",
    "same_policy",
    "support",
]


def recover(
    base: Landscape, rl: Landscape, components: Components, options: RecoveryOptions = DEFAULTS
) -> dict[str, pl.DataFrame]:
    """Every table of the recovery stage.

    Parameters
    ----------
    base, rl : Landscape
        The two checkpoints of a pair on one benchmark.
    components : mapping
        Policy name: its five components, any hashable values (``Policy.components``). Needed for Base policies.
    options : RecoveryOptions

    Returns
    -------
    dict of str to polars.DataFrame
        ``same_policy``, ``counts``, ``support``, ``near_match``, ``path``, ``geometry``: the stems of the files in
        docs/data.md.

    Raises
    ------
    InputError
        Different questions, no RL samples of the default policy, or a policy without components.
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
