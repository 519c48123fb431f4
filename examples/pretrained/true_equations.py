"""Grader ``true-equations``: a right answer counts only if every equation of its text is true.

A model that cannot calculate is right by luck now and then (docs/pretrained.md). An extension, named by
examples/pretrained/true-equations.yaml; its verdicts are stored apart from those of ``math``.
"""

from __future__ import annotations

from searchlens.catalogue import grader
from searchlens.grading.base import NO_ANSWER, Extraction
from searchlens.grading.math import Math
from searchlens.pretrained.equations import equations


@grader("true-equations")
class TrueEquations(Math):
    """Finds no answer in a text with a false equation."""

    version = f"{Math.version}-true-equations-1"

    def extract(self, text: str, stopped: bool) -> Extraction:
        """As ``math`` does, if all equations are true."""
        return super().extract(text, stopped) if all(equations(text)) else NO_ANSWER

    guide = extract
