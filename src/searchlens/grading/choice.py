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
from searchlens.benchmarks.boxed import last_boxed
from searchlens.benchmarks.letters import letter_of
from searchlens.catalogue import grader
from searchlens.grading.base import NO_ANSWER, Extraction, GradedPair, Grader, Verdict
from searchlens.grading.finding import (
    FILLER,
    FOREIGN,
    IT_IS,
    LOOSE,
    corrected,
    foreign_keywords,
    found,
    in_closed_box,
    in_words,
    is_hedged,
    statement,
)


@grader("choice")
class Choice(Grader):
    """Compares letters."""

    version = "choice-4"

    def reference(self, question: Question) -> str:
        """The letter of the right choice, in upper case, whatever stands around it in the gold."""
        return letter_of(question.gold) or question.gold.strip().upper()

    def extract(self, text: str, stopped: bool) -> Extraction:
        """The chosen letter, in upper case."""
        extraction = found(text, stopped, _statement, _is_letterless)
        return extraction if extraction.how == "fallback" else _lettered(extraction)

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
_LETTER = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)[ :]\s*)?[(\[<'\"“]?\s*([A-Ja-j])\s*(?:$|[)\]>'\"”.:]|\s*,)")
_SEVERAL = re.compile(r"\(?[A-Ja-j]\)?\s*(?:,|&|and\b|or\b)[\s,]*(?:and\s|or\s)?\s*\(?[A-Ja-j]\)?(?![A-Za-z0-9])")


def _lettered(box: Extraction) -> Extraction:
    """The box with its letter as the answer."""
    if not box.answer:
        return box
    letter = _letter(box.answer)
    return box if letter == box.answer else Extraction(letter, box.how) if letter else NO_ANSWER


@lru_cache(4096)
def _letter(content: str) -> str | None:
    """The letter in a box; empty if there are several, None if there is none."""
    plain = _WRAPPER.sub(lambda m: m[1] or "", content).strip()
    if _SEVERAL.match(plain):
        return ""
    match = _LETTER.match(plain)
    return match[1].upper() if match else None


@lru_cache(4096)
def _is_letterless(content: str) -> bool:
    return _letter(content) is None


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

_MARKUP = r"(?:[\s$*_`\"“:：,]|\\[(\[]|\\(?:text|textbf|mathrm|mathbf)\{){0,12}"
_REASON = r"\s+(?:because|since|as|due|not|rather|which)\b"
_LETTER_ALONE = (  # "A" and "I" are words, too, and two letters are no choice
    rf"(?:[(\[{{<'‘（【「«„]\s?([A-Ja-j])\s?[)\]}}>'’）】」»“]|([B-HJ]|[AI](?!\s+[a-z]|')|[AI](?={_REASON}))(?![A-Za-z'’]))"
    r"(?![)*$]{0,4}\s?(?:,|&|(?:and|or)\b)[\s,*$]{0,4}\(?[A-J](?![A-Za-z'’]))"
)
_NOUN = (
    r"(?i:(?:the\s|la\s|die\s|der\s|a\s|l['’])?(?:option|choice|letter|answer|antwort|opci[oó]n|letra|alternativa|lettre"
    r"|r[ée]ponse|op[cç][aã]o|вариант|选项|選項|選択肢)(?!\w))?"
)
_STATED = rf"{_MARKUP}(?:(?:{FILLER}){_MARKUP})?{_NOUN}{_MARKUP}"
_STATED += rf"(?:not\s\(?[A-J]\)?,?\sbut\s(?:rather\s)?{_NOUN}\s?)?{_LETTER_ALONE}"
_COPULA = rf"(?:[*_`]{{0,3}}(?:\s+is\b|\s?[:：=]|[ \t*_`#]{{0,4}}\n)|{LOOSE})"
_PRAISED = "|".join(rf"(?<=(?i:{word})\s)" for word in ("correct", "right", "best", "final"))
_SPEAKER = "|".join(rf"(?<=I{words}\s)" for words in ("", r"\swould", r"\swill", "'d", "'ll", "’d", "’ll"))
_WE = r"(?<=(?i:we)\s)"
_PLACES = {
    "answer": rf"(?<!\w)(?i:answer)(?:{_COPULA}|>){_STATED}",
    **{
        word: rf"(?:{_PRAISED})(?i:{word}){_COPULA}{_STATED}"
        rf"|(?i:{word})\s\(?([A-J])\)?(?i:\sis\s(?:the\s)?(?:correct|right|best)\b)"
        for word in ("choice", "option", "letter")
    },
    "####": rf"####[ \t]?{_LETTER_ALONE}[ \t]*(?=\n|\Z)",
    **{
        word: rf"(?:(?:{_SPEAKER})(?i:{word})\b{_STATED}"
        rf"|{_WE}(?i:{word})\s{_NOUN}\s?{_LETTER_ALONE}(?=[.\s]*(?:\n|\Z)))"
        for word in ("choose", "pick", "select", "go with")
    },
    "is the": r"(?i:is\sthe\s(?:(?:correct|right|best|true)\s)?(?:answer|choice|option)\b"
    r"|is\sthe\s(?:correct|right|best|true)\sone\b)",
    "is correct": r"(?i:is\scorrect)\b(?!\s?\?)",
    "is right": r"(?i:is\sright)(?=\s?(?:[.,;!*\n]|\Z))",
    "must be": r"(?i:must\sbe\s(?:the\s)?(?:correct|right|best)\b)",
}
"""Words in lower case to the pattern of a statement around them."""
_STATEMENTS = [(word, re.compile(pattern)) for word, pattern in _PLACES.items()]
_EXPLICIT = _STATEMENTS[:5]
_BEFORE = re.compile(
    r"(?P<other>\b(?i:if|whether|unless|why|statement|step|part|equation|claim|point|group|set|figure)\s"
    r"|\b[A-J]\)?\s(?:and|or|nor)\s)?"
    r"(?<![\w'])[*_$(\[{'\"]{0,4}(?P<letter>[A-J])[)\]}*_$'\"]{0,4}\s\Z"
)
"""The letter that something is said of; only the letter, if it is chosen."""
_ABROAD = re.compile(rf"(?:{FOREIGN}|[故应選选](?:选|択|擇|择)?(?:[:：]|\s|(?=[A-J(（]))){_STATED}")
_IT_IS = re.compile(rf"{IT_IS}{_STATED}(?=[*_!)\s]*[.\n]|[*_\s]*\Z)")
_ALONE = re.compile(r"[\s$*_`]*+(?:[(\[]([A-Ja-j])[)\]]|([A-J]))[.:)]?[\s$*_`]*+")
_FIRST = re.compile(r"[\s*_]*+(?:\(([A-J])\)|([A-HJ])[.:)])[*_]*\s+[^\n]+")
_LISTED = re.compile(r"\n[ \t*]*+\(?([A-J])[.:)][ \t*]+([^\n]{1,200})(?=\n|\Z)")


def _statement(text: str, *, beats_box: bool = False) -> str:
    """The letter that a finished text states last, empty if none; a last line with nothing but a letter states it.

    Without any, the first line states it, or the answer in words that is the text of one of the listed choices.
    """
    if not beats_box and (alone := _ALONE.fullmatch(text.rstrip().rpartition("\n")[2])):
        return _first_group(alone)
    start, letter = _last_letter(text, _EXPLICIT if beats_box else _STATEMENTS)
    if later := corrected(text, max(start, 0), _IT_IS, is_stated=bool(letter) or beats_box):
        return _first_group(later)
    if letter:
        return "" if is_hedged(text, start) else letter
    if "选" in text or "選" in text or foreign_keywords(text):
        places = list(_ABROAD.finditer(text))
        return _first_group(places[-1]) if places else ""
    return "" if beats_box else _of_lines(text)


def _last_letter(text: str, statements: list[tuple[str, re.Pattern[str]]]) -> tuple[int, str]:
    """Place and letter of the last of some statements."""
    lowered = text.lower()
    if len(lowered) != len(text):  # of a few letters the small one is longer
        lowered = text
    last, letter = -1, ""
    for word, pattern in statements:
        start = lowered.rfind(word)
        while start > last:
            if (match := pattern.match(text, start)) and (chosen := _chosen(text, match)):
                last, letter = start, chosen
            start = lowered.rfind(word, 0, start)
    return last, letter


def _chosen(text: str, match: re.Match[str]) -> str:
    if match.lastindex:
        return _first_group(match)
    before = _BEFORE.search(text, max(0, match.start() - 24), match.start())
    return before["letter"] if before and not before["other"] else ""


def _of_lines(text: str) -> str:
    """The letter alone on the first line or before its text, or that of the listed choice which is stated in words."""
    listed = _LISTED.findall(f"\n{text}")
    first = text.strip().partition("\n")[0]
    if len(listed) < 2 and (match := _ALONE.fullmatch(first) or _FIRST.fullmatch(first)):
        return _first_group(match)
    stated = (statement(text) or last_boxed(text) or "").casefold() if len(listed) > 1 else ""
    letters = [letter for letter, choice in listed if stated and choice.strip(" .*").casefold() == stated]
    return letters[0] if len(letters) == 1 else ""


def _first_group(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group).upper()
