"""Graders ``true-equations`` and ``no-equation``: right answers by what the text calculates before it states them.

A model that cannot calculate is right by chance now and then (docs/pretrained.md). Right answers fall into three kinds:
with true equations alone, without any equation, and with a false one. The last are those that neither grader finds. An
extension, named by examples/pretrained/true-equations.yaml; its verdicts are stored apart from those of ``math``.
"""

from __future__ import annotations

from searchlens.catalogue import grader
from searchlens.grading import NO_ANSWER, Extraction
from searchlens.grading.math import Math
from searchlens_lab.pretrained.equations import equations


@grader("true-equations")
class TrueEquations(Math):
    """Finds an answer only in a text that has an equation, and no false one."""

    version = f"{Math.version}-true-equations-2"

    def extract(self, text: str, stopped: bool) -> Extraction:
        """As ``math`` does, if there are equations and all are true."""
        found = list(equations(text))
        return super().extract(text, stopped) if found and all(found) else NO_ANSWER

    guide = extract


@grader("no-equation")
class NoEquation(Math):
    """Finds an answer only in a text without any equation."""

    version = f"{Math.version}-no-equation-1"

    def extract(self, text: str, stopped: bool) -> Extraction:
        """As ``math`` does, if there is no equation."""
        return NO_ANSWER if list(equations(text)) else super().extract(text, stopped)

    guide = extract
