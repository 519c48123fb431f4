r"""Graders ``choice`` and ``choice-narrow``: multiple choice, the answer is a letter.

The last ``\boxed{...}`` decides: ``C``, ``(C)``, ``\text{C}``, ``Option C``, ``C. 45`` and ``(C) 45`` choose C. A box
without a letter, or with several, is not a valid answer. Without a box, the words of a finished text may say "The
answer is C", "ANSWER: (C)", "the correct choice is C", "I choose C", or nothing but the letter; docs/grading.md lists
them. The last such place counts. A letter anywhere else does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from searchlens.benchmarks import Question
from searchlens.benchmarks.letters import letter_of
from searchlens.catalogue import grader
from searchlens.grading.base import NO_ANSWER, Extraction, GradedPair, Grader, Verdict
from searchlens.grading.finding import in_box, in_closed_box, in_words


@grader("choice")
class Choice(Grader):
    """Compares letters."""

    version = "choice-4"

    def reference(self, question: Question) -> str:
        """The letter of the right choice, in upper case, whatever stands around it in the gold."""
        return letter_of(question.gold) or question.gold.strip().upper()

    def extract(self, text: str, stopped: bool) -> Extraction:
        """The chosen letter, in upper case."""
        if box := in_box(text, stopped=stopped):
            return _lettered(box)
        return in_words(_statement(text)) if stopped else NO_ANSWER

    def guide(self, text: str, stopped: bool) -> Extraction:
        """By the narrow rule."""
        if box := in_closed_box(text):
            return _lettered(box)
        return in_words(_sentence(text)) if stopped else NO_ANSWER

    def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:  # noqa: ARG002
        """Equality of letters, in this process."""
        return [Verdict(pair.answer == pair.gold, pair.answer) for pair in pairs]


@grader("choice-narrow")
class ChoiceNarrow(Choice):
    """Finds letters by the narrow rule."""

    version = "choice-4-narrow"
    extract = Choice.guide


# ---- boxes

_WRAPPER = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mathsf|mathit)\s*\{([^{}]*)\}|[$*]|\\[,;:! ]")
_LETTER = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)[ :]\s*)?\(?\s*([A-Ja-j])\s*(?:$|[).:]|\s*,)")
_SEVERAL = re.compile(r"\(?[A-Ja-j]\)?\s*(?:,|&|and\b|or\b)[\s,]*(?:and\s|or\s)?\s*\(?[A-Ja-j]\)?(?![A-Za-z0-9])")


def _lettered(box: Extraction) -> Extraction:
    """The box with its letter as the answer."""
    if not box.answer:
        return box
    plain = _WRAPPER.sub(lambda m: m[1] or "", box.answer).strip()
    match = None if _SEVERAL.match(plain) else _LETTER.match(plain)
    return Extraction(match[1].upper(), box.how) if match else NO_ANSWER


# ---- words, narrow

_SENTENCE = re.compile(
    r"\b(?:[Aa]nswer|(?:[Cc]orrect|[Rr]ight|[Bb]est)\s(?:choice|option))(?:\s+is\b|\s*:)\s*+:?\s*+"
    r"(?:(?:[Oo]ption|[Cc]hoice)\s)?[$*]*+(?:\\(?:text|textbf|mathrm|mathbf)\{)?\s*+\(?([A-J])(?![A-Za-z'])(?!\s+[a-z])"
    r"|\b(?:[Oo]ption|[Cc]hoice)\s+\(?([A-J])\)?\s+is\s+(?:the\s+)?(?:correct|right|best)\b"
)


def _sentence(text: str) -> str:
    sentences = _SENTENCE.findall(text)
    return "".join(sentences[-1]) if sentences else ""


# ---- words, wide

_MARKUP = r"(?:[\s$*_`\"“:：]|\\[(\[]|\\(?:text|textbf|mathrm|mathbf)\{){0,12}"
_LETTER_ALONE = (  # "A" and "I" are words, too, and two letters are no choice
    r"(?:\(([A-Ja-j])\)|([B-HJ]|[AI](?!\s+[a-z]))(?![A-Za-z'’]))"
    r"(?![)*$]{0,4}\s?(?:,|&|(?:and|or)\b)[\s,*$]{0,4}\(?[A-J](?![A-Za-z'’]))"
)
_STATED = rf"{_MARKUP}(?i:(?:the\s)?(?:option|choice|letter|answer)\b)?{_MARKUP}{_LETTER_ALONE}"
_COPULA = r"[*_`]{0,3}(?:\s+is\b|\s?[:：=]|[ \t*_`#]{0,4}\n)"
_PRAISED = "|".join(rf"(?<=(?i:{word})\s)" for word in ("correct", "right", "best", "final"))
_SPEAKER = "|".join(rf"(?<=I{words}\s)" for words in ("", r"\swould", r"\swill", "'d", "'ll", "’d", "’ll"))
_PLACES = {
    "answer": rf"(?<!\w)(?i:answer)(?:{_COPULA}|>){_STATED}",
    **{
        word: rf"(?:{_PRAISED})(?i:{word}){_COPULA}{_STATED}"
        rf"|(?i:{word})\s\(?([A-J])\)?(?i:\sis\s(?:the\s)?(?:correct|right|best)\b)"
        for word in ("choice", "option", "letter")
    },
    **{word: rf"(?:{_SPEAKER})(?i:{word})\b{_STATED}" for word in ("choose", "pick", "select", "go with")},
    "is the": r"(?<!\w[A-J]\s)(?:(?<=([A-J])\s)|(?<=([A-J])\)\s))"
    r"(?i:is\sthe\s(?:correct|right|best)\s(?:answer|choice|option)\b)",
    "####": rf"####[ \t]?{_LETTER_ALONE}[ \t]*(?=\n|\Z)",
}
"""Words in lower case to the pattern of a statement around them."""
_STATEMENTS = [(word, re.compile(pattern)) for word, pattern in _PLACES.items()]
_ALONE = re.compile(r"[\s$*_`]*+(?:\(([A-Ja-j])\)|([A-J]))[.:)]?[\s$*_`]*+")


def _statement(text: str) -> str:
    """The letter that a finished text states last, empty if none; a last line with nothing but a letter states it."""
    if alone := _ALONE.fullmatch(text.rstrip().rpartition("\n")[2]):
        return _first_group(alone)
    lowered = text.lower()
    if len(lowered) != len(text):  # of a few letters the small one is longer
        lowered = text
    last, letter = -1, ""
    for word, pattern in _STATEMENTS:
        start = lowered.rfind(word)
        while start > last:
            if statement := pattern.match(text, start):
                last, letter = start, _first_group(statement)
            start = lowered.rfind(word, 0, start)
    return letter


def _first_group(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group).upper()
