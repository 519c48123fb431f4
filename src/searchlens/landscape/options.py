"""Options of the landscape stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Ties = Literal["first", "fractional"]
FirstFinish = Literal["shortest", "first_index"]


@dataclass(frozen=True)
class LandscapeOptions:
    """Choices that the paper leaves open.

    Attributes
    ----------
    ties : {"first", "fractional"}
        Prefix vote on a tie: the answer seen earliest wins, or every tied answer gets an equal share. Expectations
        always share.
    first_finish : {"shortest", "first_index"}
        First to finish: the stopped, valid sample with the fewest tokens, or the first one in the stream.
    draws : int
        Bootstrap draws.
    seed : int
        Of the bootstrap draws; non-negative.
    confidence : float
        Nominal coverage of all intervals, in (0, 1).
    """

    ties: Ties = "first"
    first_finish: FirstFinish = "shortest"
    draws: int = 2000
    seed: int = 0
    confidence: float = 0.95


DEFAULTS = LandscapeOptions()
