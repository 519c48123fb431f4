"""Where the RL model's default curve lies inside the Base landscape (paper, sections "Same-policy gaps" to "Geometry").

``recover`` computes every table of the stage for one pair on one benchmark; each of the other functions computes one
table. All of it is arithmetic on the hits and points of two landscapes.
"""

from searchlens.recovery._gaps import counts, same_policy, support
from searchlens.recovery._paths import Components, distance, geometry, near_match, path
from searchlens.recovery._tables import recover
from searchlens.recovery.options import EnvelopeInterval, RecoveryOptions

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
