"""Where a text states its answer: in a box, or in the words of a finished text."""

from __future__ import annotations

from searchlens.benchmarks.boxed import final_box
from searchlens.grading.base import MAX_ANSWER, NO_ANSWER, WITHDRAWN, Extraction


def in_box(text: str) -> Extraction | None:
    """The answer that the boxes of a text state (``benchmarks.boxed.final_box``), or that they state none; None if the
    text has no box. An empty or overlong box states no answer.
    """
    if "\\boxed" not in text:
        return None
    content, state = final_box(text)
    if state == "withdrawn":
        return WITHDRAWN
    if not content or len(content) > MAX_ANSWER:
        return NO_ANSWER
    return Extraction(content, "kept" if state == "kept" else "boxed")
