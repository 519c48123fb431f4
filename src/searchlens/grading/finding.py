r"""Where a text states its answer: in a box, or in the words of a finished text (docs/grading.md lists them).

Two rules differ in the words. The wide one finds answers where models and evaluation harnesses write them. The narrow
one takes "answer is" and "Answer:" on one line alone, and lets an open box take back every closed one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from searchlens.benchmarks.boxed import final_box, last_boxed
from searchlens.grading.base import MAX_ANSWER, NO_ANSWER, WITHDRAWN, Extraction, How

# ---- boxes


def in_box(text: str, *, stopped: bool) -> Extraction | None:
    r"""The answer that the boxes of a text state (``benchmarks.boxed.final_box``), or that they state none; None if the
    text has no box. Without a ``\boxed``, an ``\fbox`` is one. An empty or overlong box states no answer.
    """
    if "\\boxed" not in text:
        if "\\fbox" not in text:
            return None
        text = text.replace("\\fbox", "\\boxed")
    content, state = final_box(text, stopped=stopped)
    if state == "withdrawn":
        return WITHDRAWN
    return _checked(content, "kept" if state == "kept" else "boxed")


def in_closed_box(text: str) -> Extraction | None:
    r"""As ``in_box``, by the narrow rule: the last ``\boxed{...}`` alone, which states no answer if it is open."""
    if "\\boxed" not in text:
        return None
    content = last_boxed(text)
    if content is None and final_box(text, stopped=False).state != "none":
        return WITHDRAWN
    return _checked(content, "boxed")


def in_words(answer: str) -> Extraction:
    """An answer that the words of a text state; none if it is empty or overlong."""
    return _checked(answer, "fallback")


def _checked(answer: str | None, how: How) -> Extraction:
    return Extraction(answer, how) if answer and len(answer) <= MAX_ANSWER else NO_ANSWER


# ---- formulas, narrow

_LAST_SENTENCE = re.compile(r".*\b[Aa]nswer(?: is\b|:)[ :*]*", re.DOTALL)
_DOLLARS = re.compile(r"\$+([^$]+)\$+|\\[(\[](.+?)\\[)\]]")
_END = re.compile(r"\.(?=\s|$)|\*\*")


def closing_sentence(text: str) -> str:
    """The text after the last "answer is" on its line: the formula that it begins with, or all up to a full stop."""
    opening = _LAST_SENTENCE.match(text)
    rest = text[opening.end() :].split("\n", maxsplit=1)[0].strip() if opening else ""
    if formula := _DOLLARS.match(rest):
        return (formula[1] or formula[2]).strip()
    return _END.split(rest, maxsplit=1)[0].strip()


# ---- formulas, wide

_EMPHASIS = r"[*_`]*"
_KEYWORD = re.compile(rf"answer{_EMPHASIS}(?:\s+(?:is|=)(?!\w)|[ \t]*[:：=]|(?=[ \t*_`#]*\n))", re.IGNORECASE)
_HEADING = re.compile(r"[ \t#>*_`]*(?:(?:the|my)[ \t]+)?(?:(?:final|correct)[ \t]+)?\Z", re.IGNORECASE)
_LEAD = re.compile(r"[\s:：*_`#]*")
_INSIDE = r"(?:[^$\\]|\\.)+"
r"""What stands between dollar signs; in ``$\$18$`` the second one is part of the formula."""
_HASHES = re.compile(
    r"####[ \t]*(?=(?:\\?\$)?[-+]?\.?\d[\d.,/]*%?[ \t]*(?:\n|\Z)|\$(?:[^$\\\n]|\\.)+\$[ \t]*(?:\n|\Z))"
)
_FORMULA = re.compile(rf"\$+(?![\d.,]+\s+[A-Za-z]{{2}})({_INSIDE})\$+|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NEXT_FORMULA = re.compile(r"\s*(?:,\s*(?:and\s+)?|and\s+)(?=\$|\\[(\[])")
_END_OF_ANSWER = re.compile(r"\.(?=\s|$)|\*\*|</|\n")
_NUMBER = r"[-+]?(?:\d[\d.,/]*\d|\d)%?"
_ONE_FORMULA = rf"\$+{_INSIDE}\$+|\\\((?:(?!\\\)).)+\\\)|\\\[(?:(?!\\\]).)+\\\]"
_ALONE = re.compile(rf"[*\s]*+(?:({_NUMBER})|({_ONE_FORMULA}))\.?[*\s]*+", re.DOTALL)
_SHORT = 80
"""Longest line without a formula that is an answer behind a keyword on the line before."""


def statement(text: str) -> str:
    """What a finished text calls its answer last, empty if nothing: behind a keyword or ``####``, in ``<answer>`` tags,
    or as the whole text.
    """
    hashes = next((m for m in _places(text, "####", _HASHES) if _starts_line(text, m.start())), None)
    for keyword in _keywords(text):
        if hashes and hashes.start() > keyword.start():
            break
        if answer := _answer_at(text, keyword.end()):
            return answer
    if hashes:
        return _answer_at(text, hashes.end())
    alone = _ALONE.fullmatch(text)
    return (alone[1] or _answer_at(alone[2], 0)) if alone else ""


def _keywords(text: str) -> Iterator[re.Match[str]]:
    """Where the word "answer" announces an answer, last first."""
    lowered = text.lower()
    if len(lowered) != len(text):  # of a few letters the small one is longer
        lowered = text
    start = lowered.rfind("answer")
    while start >= 0:
        if text[start - 1 : start] == "<" and text.startswith(">", start + 6):
            yield _TAG.match(text, start)  # type: ignore[misc]
        elif (match := _KEYWORD.match(text, start)) and _announces(text, match):
            yield match
        start = lowered.rfind("answer", 0, start)


_TAG = re.compile("answer>", re.IGNORECASE)


def _announces(text: str, keyword: re.Match[str]) -> bool:
    """Whether a keyword is a word of its own, and a heading unless a verb or colon follows it."""
    start = keyword.start()
    if text[start - 1 : start].isalnum():
        return False
    return keyword[0].rstrip("*_`").lower() != "answer" or bool(
        _HEADING.match(text, text.rfind("\n", 0, start) + 1, start)
    )


def _places(text: str, word: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    start = text.rfind(word)
    while start >= 0:
        if match := pattern.match(text, start):
            yield match
        start = text.rfind(word, 0, start)


def _starts_line(text: str, start: int) -> bool:
    return not text[text.rfind("\n", 0, start) + 1 : start].strip()


def _answer_at(text: str, start: int) -> str:
    """The formulas that begin here or on the next line with text, or else the words up to the end of the sentence."""
    begin = _LEAD.match(text, start).end()  # type: ignore[union-attr]
    formulas = list(_formulas(text, begin))
    if formulas:
        return ", ".join(formulas)
    end = _END_OF_ANSWER.search(text, begin)
    answer = text[begin : end.start() if end else len(text)].strip(" \t`_*")
    return answer if len(answer) <= _SHORT or "\n" not in text[start:begin] else ""


def _formulas(text: str, start: int) -> Iterator[str]:
    """Formulas joined by commas or "and"."""
    while formula := _FORMULA.match(text, start):
        yield (formula[1] or formula[2] or formula[3]).strip()
        joint = _NEXT_FORMULA.match(text, formula.end())
        if joint is None:
            return
        start = joint.end()
