r"""Graders ``choice`` and ``choice-narrow``: multiple choice, the answer is a letter.

The last ``\boxed{...}`` decides: ``C``, ``(C)``, ``\text{C}``, ``Option C``, ``C. 45`` and ``(C) 45`` choose C. A box
without a letter is passed over; one with several states none. Without a box, the words of a finished text may say "The
answer is C", "ANSWER: (C)", "the correct choice is C", "I choose C", or nothing but the letter; docs/grading.md lists
them. The last such place counts. A letter anywhere else does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from searchlens.benchmarks import Question
from searchlens.benchmarks.choices import letter_of
from searchlens.catalogue import grader
from searchlens.grading import NO_ANSWER, Extraction, GradedPair, Grader, Verdict, finding
from searchlens.grading.finding import IS, Place


@grader("choice")
class Choice(Grader):
    """Compares letters."""

    version = "choice-4"

    def reference(self, question: Question) -> str:
        """The letter of the right choice, in upper case, whatever stands around it in the gold."""
        return letter_of(question.gold) or question.gold.strip().upper()

    def extract(self, text: str, stopped: bool) -> Extraction:
        """The chosen letter, in upper case."""
        extraction = finding.found(text, stopped, _statement, lambda content: _letter(content) is None)
        return extraction if extraction.how == "fallback" else _lettered(extraction)

    def guide(self, text: str, stopped: bool) -> Extraction:
        """By the narrow rule."""
        if box := finding.in_closed_box(text):
            return _lettered(box)
        sentences = _SENTENCE.findall(text) if stopped else ()
        return finding.stated("".join(sentences[-1])) if sentences else NO_ANSWER

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
_LETTER = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)[ :]\s*)?[(\[<'\"“]?\s*([A-Ja-j])\s*(?:$|[)\]>'\"”.:]|\s*,)")
_SEVERAL = re.compile(r"\(?[A-Ja-j]\)?\s*(?:,|&|and\b|or\b)[\s,]*(?:and\s|or\s)?\s*\(?[A-Ja-j]\)?(?![A-Za-z0-9])")


def _lettered(box: Extraction) -> Extraction:
    """The box with its letter as the answer."""
    if not box.answer:
        return box
    letter = _letter(box.answer)
    return box if letter == box.answer else Extraction(letter, box.how) if letter else NO_ANSWER


def _plain(content: str) -> str:
    return _WRAPPER.sub(lambda m: m[1] or "", content).strip()


@lru_cache(4096)
def _letter(content: str) -> str | None:
    """The letter in a box; empty if there are several, None if there is none."""
    plain = _plain(content)
    if _SEVERAL.match(plain):
        return ""
    match = _LETTER.match(plain)
    return match[1].upper() if match else None


# ---- words, narrow

_SENTENCE = re.compile(
    r"\b(?:[Aa]nswer|(?:[Cc]orrect|[Rr]ight|[Bb]est)\s(?:choice|option))(?:\s+is\b|\s*:)\s*+:?\s*+"
    r"(?:(?:[Oo]ption|[Cc]hoice)\s)?[$*]*+(?:\\(?:text|textbf|mathrm|mathbf)\{)?\s*+\(?([A-J])(?![A-Za-z'])(?!\s+[a-z])"
    r"|\b(?:[Oo]ption|[Cc]hoice)\s+\(?([A-J])\)?\s+is\s+(?:the\s+)?(?:correct|right|best)\b"
)


# ---- words, wide

_PRAISED = "|".join(rf"(?<={word}\s)" for word in ("correct", "right", "best", "final", "my"))
_SPEAKER = "|".join(
    rf"(?<={words}\s)" for words in (r"\bI", "I'll", "I’ll", "I'd", "I’d", "I will", "I would", r"\bwe")
)
_PICKED = re.compile(rf"(?:{_PRAISED})(?:choice|option){IS}", re.IGNORECASE)
_SPOKEN = re.compile(rf"(?:{_SPEAKER})(?P<spoken>choose|pick|select|go\swith)\b", re.IGNORECASE)
_SAID = re.compile(
    r"(?P<said>is\s(?:correct\b|right(?=\s?(?:[.,;!*\n]|\Z))|the\s(?:(?:correct|right|best)\s)?(?:answer|choice|option)\b"
    r"|the\s(?:correct|right)\sone\b))(?!\s?\?)",
    re.IGNORECASE,
)
_EXPLICIT: list[Place] = [*finding.PLACES, *((word, _PICKED) for word in ("choice", "option"))]
_PLACES: list[Place] = [
    *_EXPLICIT,
    *((word, _SPOKEN) for word in ("choose", "pick", "select", "go with")),
    *((word, _SAID) for word in ("is the", "is correct", "is right")),
]
_ABROAD: list[Place] = [*finding.FOREIGN, *((word, re.compile(rf"{word}(?=[\s:：(（A-J])")) for word in ("选", "選"))]
_BEFORE = re.compile(
    r"(?P<other>\b(?i:if|whether|unless|why|statement|step|part|equation|claim)\s|\b[A-J]\)?\s(?:and|or|nor)\s)?"
    r"(?<![\w'])[*_$(\[{'\"]{0,4}(?P<letter>[A-J])[)\]}*_$'\"]{0,4}\s\Z"
)
"""The letter that something is said of; only the letter, if it is chosen."""
_NOUN = re.compile(r"(?:the\s)?(?:option|choice|letter|answer)\s", re.IGNORECASE)
_TWO = re.compile(_SEVERAL.pattern.replace("A-Ja-j", "A-J"))  # "C, a buffer" is one letter
_BARE = re.compile(r"(?:[B-HJ]|[AI](?!\s+[a-z]))(?![\w'’])")  # "A" and "I" are words, too
_ALONE = re.compile(r"[\s$*_`]*+(?:[(\[]([A-Ja-j])[)\]]|([A-J]))[.:)]?[\s$*_`]*+")
_FIRST = re.compile(r"[\s*_]*+(?:\(([A-J])\)|([A-HJ])[.:)])[*_]*\s+[^\n]+")
_LISTED = re.compile(r"\n[ \t*]*+\(?([A-J])[.:)][ \t*]+([^\n]{1,200})(?=\n|\Z)")


def _statement(text: str, beats_box: bool) -> str:
    """The letter that a finished text states last, empty if none; a last line with nothing but a letter states it."""
    if not beats_box and (alone := _ALONE.fullmatch(text.rstrip().rpartition("\n")[2])):
        return alone.expand(r"\1\2").upper()
    end, letter = finding.last_stated(text, _EXPLICIT if beats_box else _PLACES, _chosen)
    if not letter:
        end, letter = finding.last_stated(text, _ABROAD, _chosen)
    if letter:
        return "" if finding.is_hedged(text, end) else letter
    return "" if beats_box else _of_lines(text)


def _of_lines(text: str) -> str:
    """The letter alone on the first line or before its text, or that of the listed choice which is stated in words."""
    listed = _LISTED.findall(f"\n{text}")
    first = text.strip().partition("\n")[0]
    if len(listed) < 2 and (match := _ALONE.fullmatch(first) or _FIRST.fullmatch(first)):
        return match.expand(r"\1\2").upper()
    words = finding.statement(text, False).casefold() if len(listed) > 1 else ""
    letters = [letter for letter, choice in listed if words and choice.strip(" .*").casefold() == words]
    return letters[0] if len(letters) == 1 else ""


def _chosen(announced: re.Match[str]) -> str:
    """The letter behind an announcement, or before "is correct"; empty if there is none, or if there are several."""
    text, start = announced.string, announced.start()
    if announced.lastgroup == "said":
        before = _BEFORE.search(text, max(0, start - 24), start)
        return before["letter"] if before and not before["other"] else ""
    return _letter_in(finding.answer_behind(announced), is_bare=announced.lastgroup != "spoken")


@lru_cache(4096)
def _letter_in(answer: str, *, is_bare: bool) -> str:
    """The letter that an answer begins with, also one before more words."""
    plain = _NOUN.sub("", _plain(answer)).strip("{}（）【】「」")
    if _TWO.match(plain):
        return ""
    if (match := _LETTER.match(plain)) and (match[1].isupper() or match[0].endswith((")", "]"))):
        return match[1].upper()
    return plain[0] if is_bare and _BARE.match(plain) else ""
