r"""Grader ``choice``: multiple choice, the answer is a letter.

The last ``\boxed{...}`` decides: ``C``, ``(C)``, ``\text{C}``, ``Option C``, ``C. 45`` and ``(C) 45`` choose C. A box
without a letter, or with several, is not a valid answer. Without a box, a finished text may say "The answer is C",
"Answer: (C)", "the correct choice is C" or "option C is correct", with a capital letter; the last such sentence counts.
A letter anywhere else does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from searchlens.benchmarks import Question
from searchlens.catalogue import grader
from searchlens.grading.base import NO_ANSWER, Extraction, GradedPair, Grader, Verdict
from searchlens.grading.finding import in_box

_WRAPPER = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mathsf|mathit)\s*\{([^{}]*)\}|[$*]|\\[,;:! ]")
_LETTER = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)[ :]\s*)?\(?\s*([A-Ja-j])\s*(?:$|[).:]|\s*,)")
_SEVERAL = re.compile(r"\(?[A-Ja-j]\)?\s*(?:,|&|and\b|or\b)[\s,]*(?:and\s|or\s)?\s*\(?[A-Ja-j]\)?(?![A-Za-z0-9])")
_SENTENCE = re.compile(
    r"\b(?:[Aa]nswer|(?:[Cc]orrect|[Rr]ight|[Bb]est)\s(?:choice|option))(?:\s+is\b|\s*:)\s*:?\s*"
    r"(?:(?:[Oo]ption|[Cc]hoice)\s)?[$*]*(?:\\(?:text|textbf|mathrm|mathbf)\{)?\s*\(?([A-J])(?![A-Za-z'])(?!\s+[a-z])"
    r"|\b(?:[Oo]ption|[Cc]hoice)\s+\(?([A-J])\)?\s+is\s+(?:the\s+)?(?:correct|right|best)\b"
)


@grader("choice")
class Choice(Grader):
    """Compares letters."""

    version = "choice-2"

    def reference(self, question: Question) -> str:
        """The letter of the right choice, in upper case."""
        return question.gold.strip().upper()

    def extract(self, text: str, stopped: bool) -> Extraction:
        """The chosen letter, in upper case."""
        if box := in_box(text):
            letter = _boxed_letter(box.answer) if box.answer else None
            return Extraction(letter, box.how) if letter or not box.answer else NO_ANSWER
        sentences = _SENTENCE.findall(text) if stopped else []
        return Extraction("".join(sentences[-1]), "fallback") if sentences else NO_ANSWER

    def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:  # noqa: ARG002
        """Equality of letters, in this process."""
        return [Verdict(pair.answer == pair.gold, pair.answer) for pair in pairs]


def _boxed_letter(box: str) -> str | None:
    plain = _WRAPPER.sub(lambda m: m[1] or "", box).strip()
    match = None if _SEVERAL.match(plain) else _LETTER.match(plain)
    return match[1].upper() if match else None
