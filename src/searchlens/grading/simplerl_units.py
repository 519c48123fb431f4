"""The grader ``simplerl`` for benchmarks whose units matter: nothing is dropped at the end of an answer (Minerva)."""

from collections.abc import Sequence

from searchlens.grading import Pair, Verdict, _workers, simplerl
from searchlens.grading._workers import Limits
from searchlens.grading.simplerl import extract, reference

__all__ = ["GRADER_VERSION", "VOTES", "extract", "grade", "reference"]

GRADER_VERSION = f"{simplerl.GRADER_VERSION}-units"
VOTES = True


def grade(pairs: Sequence[Pair], limits: Limits = _workers.DEFAULT, workers: int | None = None) -> list[Verdict]:
    """As ``simplerl.grade``, units kept."""
    return simplerl.grade(pairs, limits, workers, units=False)
