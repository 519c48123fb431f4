"""Options of the landscape stage: choices that the paper leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from searchlens.config.limits import Confidence, Draws, QInstructions, Strict

Ties = Literal["first", "fractional"]
FirstFinish = Literal["shortest", "first_index"]


@dataclass(frozen=True, kw_only=True)
class LandscapeOptions(Strict):
    """Choices about the landscape that the paper leaves open (docs/reading-the-paper.md)."""

    ties: Ties = "first"
    """Tied majority vote among the first n samples. first: the answer seen earliest wins; fractional: every tied answer
    gets an equal share. The expected vote always shares."""
    first_finish: FirstFinish = "shortest"
    """Which sample finishes first, of those that stopped with a valid answer. shortest: the one with the fewest tokens;
    first_index: the first in the stream."""
    q_instructions: QInstructions = "first_sample"
    """Self-consistency where no answer can be extracted; applied when samples are graded. first_sample: every answer is
    a class of its own; verdict_majority: the vote is over pass and fail."""
    draws: Draws = 2000
    """Bootstrap draws of every interval that is not a Wilson interval."""
    confidence: Confidence = 0.95
    """Nominal coverage of all intervals."""


DEFAULTS = LandscapeOptions()
