"""Grading: whether an answer to a question is right, and which answers count as the same.

One file per kind of question declares a ``Grader``, which finds the answer in the text of a sample and judges distinct
(gold, answer) pairs. ``grading/verdicts.py`` stores the verdicts, so that no pair is judged twice. Importing this
package is cheap: math-verify is imported in worker processes only, and only if an answer needs it.
"""

from searchlens.grading.base import (
    MAX_ANSWER,
    NO_ANSWER,
    RIGHT,
    STATED,
    WITHDRAWN,
    Extraction,
    GradedPair,
    Grader,
    Verdict,
    grader,
    votes,
)

__all__ = [
    "MAX_ANSWER",
    "NO_ANSWER",
    "RIGHT",
    "STATED",
    "WITHDRAWN",
    "Extraction",
    "GradedPair",
    "Grader",
    "Verdict",
    "grader",
    "votes",
]
