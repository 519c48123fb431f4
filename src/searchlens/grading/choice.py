r"""Multiple choice: the answer is a letter.

The last ``\boxed{...}`` decides: ``C``, ``(C)``, ``\text{C}``, ``Option C``, ``C. 45`` and ``(C) 45`` choose C; a box
without a letter, or with several, is no valid answer. Without a box, a finished text may say "The answer is C",
"Answer: (C)", "the correct choice is C" or "option C is correct", capital letters only, and the last such sentence
counts. Letters elsewhere in a text never do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from searchlens.benchmarks import Question
from searchlens.benchmarks.boxed import last_boxed
from searchlens.grading import MAX_ANSWER, NO_ANSWER, Extraction, Pair, Verdict

GRADER_VERSION = "choice-2"
VOTES = True

_WRAPPER = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mathsf|mathit)\s*\{([^{}]*)\}|[$*]|\\[,;:! ]")
_LETTER = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)[ :]\s*)?\(?\s*([A-Ja-j])\s*(?:$|[).:]|\s*,)")
_SEVERAL = re.compile(r"\(?[A-Ja-j]\)?\s*(?:,|&|and\b|or\b)[\s,]*(?:and\s|or\s)?\s*\(?[A-Ja-j]\)?(?![A-Za-z0-9])")
_SENTENCE = re.compile(
    r"\b(?:[Aa]nswer|(?:[Cc]orrect|[Rr]ight|[Bb]est)\s(?:choice|option))(?:\s+is\b|\s*:)\s*:?\s*"
    r"(?:(?:[Oo]ption|[Cc]hoice)\s)?[$*]*(?:\\(?:text|textbf|mathrm|mathbf)\{)?\s*\(?([A-J])(?![A-Za-z'])(?!\s+[a-z])"
    r"|\b(?:[Oo]ption|[Cc]hoice)\s+\(?([A-J])\)?\s+is\s+(?:the\s+)?(?:correct|right|best)\b"
)


def reference(question: Question) -> str:
    """The letter of the right choice."""
    return question.gold.strip().upper()


def extract(text: str, stopped: bool) -> Extraction:
    """The chosen letter, in upper case."""
    box = last_boxed(text)
    if box is not None:
        letter = _boxed_letter(box)
        return Extraction(letter, "boxed") if letter else NO_ANSWER
    found = _SENTENCE.findall(text) if stopped else []
    return Extraction("".join(found[-1]), "fallback") if found else NO_ANSWER


def _boxed_letter(box: str) -> str | None:
    if len(box) > MAX_ANSWER:
        return None
    plain = _WRAPPER.sub(lambda m: m[1] or "", box).strip()
    match = None if _SEVERAL.match(plain) else _LETTER.match(plain)
    return match[1].upper() if match else None


def grade(pairs: Sequence[Pair], *, workers: int | None = None) -> list[Verdict]:  # noqa: ARG001 - needs none
    """Equality of letters."""
    return [Verdict(pair.answer == pair.gold, pair.answer) for pair in pairs]
