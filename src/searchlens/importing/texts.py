"""Normal forms of a question's text, by which two copies of it are known to be the same."""

from __future__ import annotations

import re
import unicodedata

from searchlens.benchmarks import Question, options
from searchlens.benchmarks.choices import LETTERS


def plain(text: str) -> str:
    r"""Unicode NFC, white space collapsed, both ends stripped.

    >>> plain(" 1 +\n 1? ")
    '1 + 1?'
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def letters(text: str) -> str:
    """Letters and digits alone, letters small.

    >>> letters("What is $1 + 1$?")
    'whatis11'
    """
    return "".join(filter(str.isalnum, unicodedata.normalize("NFC", text))).lower()


def stem(question: Question) -> str:
    """The text of a question without its lettered choices; the whole text if it has none."""
    marks = _marks(question)
    return question.text[: marks[0].start()].strip() if marks else question.text


def choices(question: Question) -> tuple[str, ...]:
    r"""The texts of the lettered choices of a question, in its order; empty if it has none.

    >>> choices(Question("1", "Even?\n\nA) 3\nB) 4", "B"))
    ('3', '4')
    """
    marks = _marks(question)
    ends = [*(mark.start() for mark in marks[1:]), len(question.text)]
    return tuple(question.text[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=bool(marks)))


def _marks(question: Question) -> list[re.Match[str]]:
    """The letters before the choices, as ``benchmarks.options`` counts them; empty if there are none."""
    count = options(question)
    for before in (r"^", r"(?<!\w)"):
        marks: list[re.Match[str]] = []
        for letter in LETTERS[:count]:
            start = marks[-1].end() if marks else 0
            mark = re.compile(rf"{before}\(?{letter}[).:]\s+", re.MULTILINE).search(question.text, start)
            if not mark:
                break
            marks.append(mark)
        if count and len(marks) == count:
            return marks
    return []
