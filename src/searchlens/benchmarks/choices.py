"""Rows of multiple-choice benchmarks: the choices follow the question as ``A) ...``, and the gold is a letter.

Published orders are kept, because choices such as "both A and B" refer to them. GPQA has no published order, because
its file gives the right choice first. Its choices are ordered by their hashes with the question, so that neither the
position of a row nor the number of questions in use changes the order.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from math import isnan

from searchlens.benchmarks.questions import BenchmarkFile, Layout, Question, RawRow, Row, RowError, tags_of

LETTERS = "ABCDEFGHIJ"
_MARKS = tuple(re.compile(rf"{before}\(?([A-J])[).:](?=\s)", re.MULTILINE) for before in (r"^", r"(?<!\w)"))
"""A letter before a choice, such as ``A) ``, ``(A) `` or ``A. ``: at the beginning of a line, or anywhere."""

_SEPARATE = ("right", "wrong_1", "wrong_2", "wrong_3")
LAYOUTS = (
    Layout(
        "GPQA on the hub",
        {
            "question": "Question",
            "right": "Correct Answer",
            **{f"wrong_{i}": f"Incorrect Answer {i}" for i in (1, 2, 3)},
        },
    ),
    Layout("MMLU on the hub; Qwen2.5-Math harness", {"question": "question", "choices": "choices", "gold": "answer"}),
    Layout("DeepSeek-Math harness", {"question": "question", "choices": "options", "gold": "answer"}),
)


def read(file: BenchmarkFile, *, permuted: bool = False) -> list[Row]:
    """Questions with lettered choices; put in the order of ``permutation`` if the file gives the right one first."""
    layout = file.layout(LAYOUTS)

    def convert(name: str, row: RawRow) -> Row:
        question = layout.text(row, "question")
        choices, right = _choices(row, layout)
        if question is None:
            raise RowError(f"no question in {layout.fields['question']!r}")
        if not 2 <= len(choices) <= len(LETTERS) or not all(choices):
            raise RowError(f"needs 2 to {len(LETTERS)} choices, none of them empty; found {len(choices)}")
        if not 0 <= right < len(choices):
            raise RowError(f"no choice in {layout.fields.get('gold')!r}: a letter, or a position from 0")
        order = permutation(question, choices) if permuted else list(range(len(choices)))
        lines = [f"{letter}) {choices[position]}" for letter, position in zip(LETTERS, order, strict=False)]
        # The tag is the order in which the choices of the file are shown.
        tags = tags_of(row) | ({"order": "".join(map(str, order))} if permuted else {})
        shown = Question(name, "\n".join([f"{question}\n", *lines]), LETTERS[order.index(right)], tags=tags)
        return Row(shown, "\n".join([question, *sorted(choices)]), choices[right])

    return file.read(convert)


def _choices(row: RawRow, layout: Layout) -> tuple[list[str], int]:
    """The choices in the order of the file, and the position of the right one, -1 if it is not known."""
    if "right" in layout.fields:
        return [layout.text(row, part) or "" for part in _SEPARATE], 0
    content, gold = (layout.value(row, part) for part in ("choices", "gold"))
    choices = [  # NaN stands for "None", because pandas reads and writes it so
        "None" if choice is None or (isinstance(choice, float) and isnan(choice)) else str(choice).strip()
        for choice in (content if isinstance(content, list) else ())
    ]
    letter = str(gold).strip().upper()
    if len(letter) != 1:
        return choices, -1
    return choices, int(letter) if letter.isdecimal() else LETTERS.find(letter)


def options(question: Question) -> int:
    """Number of lettered choices that a question lists; 0 if it lists none, or its gold is none of them.

    Choices that begin a line count alone, if there are any: their texts may hold letters, too, such as E. coli.

    >>> options(Question("1", "Which is even? (A) 3 (B) 4 (C) 5", "B"))
    3
    >>> options(Question("2", "Points A: and B: are 3 apart. How far is C?", "7"))
    0
    """
    for mark in _MARKS:
        count = 0
        for letter in mark.findall(question.text):  # how far they run A, B, C, whatever stands in between
            count += letter == LETTERS[count : count + 1]
        if count > 1:
            return count if question.gold and question.gold in LETTERS[:count] else 0
    return 0


def permutation(question: str, choices: Sequence[str]) -> list[int]:
    """Positions of the choices, ordered by the hash of question and choice; all orders are equally likely."""
    keys = [hashlib.sha256(f"{question}\0{choice}".encode()).digest() for choice in choices]
    return sorted(range(len(choices)), key=keys.__getitem__)


_MARKUP = re.compile(r"\\(?:boxed|fbox|text(?:bf|rm)?|math(?:rm|bf|sf|it)) ?(?=\{)|[\\$*_`\"]")
_ROUND = str.maketrans("[{<]}>", "((()))")
_ANOTHER = r"(?:and|or|&|,|(?=\()) ?\(?[A-J]\b"
_FORM = re.compile(
    r"(?i:(?:the )?(?:correct )?(?:option|choice|answer)\b(?: is\b)?:? ?)?"
    r"(?:[( ]*([A-Ja-j])[). :,]*|(?:\(+([A-Ja-j])\)+[.:]?|([A-J])[).:]) (?!" + _ANOTHER + r").+)"
)


def letter_of(text: str, choices: Sequence[str] = ()) -> str | None:
    r"""The letter of the choice that a text names, in upper case; with choices also by their texts or positions from 0.

    >>> [letter_of(text) for text in ("c", "C.", r"\boxed{\text{(C)}}", "**Option C**", "(C) 45", "2", "(C) and (D)")]
    ['C', 'C', 'C', 'C', 'C', None, None]
    >>> [letter_of(text, ("yes", "no")) for text in ("no", "1", "(B)", "(C)")]
    ['B', 'B', 'B', None]
    """
    allowed = LETTERS[: len(choices) or None]
    plain, *texts = (" ".join(unicodedata.normalize("NFC", each).split()) for each in (text, *choices))
    if len(plain) == 1 and plain.upper() in allowed:
        return plain.upper()
    same = [letter for letter, choice in zip(allowed, texts, strict=False) if choice == plain]
    if same:
        return same[0] if len(same) == 1 else None
    bare = _MARKUP.sub("", plain).translate(_ROUND).strip()
    if choices and bare.isdecimal() and not any(map(str.isdecimal, "".join(choices))):
        return allowed[int(bare) :][:1] or None
    match = _FORM.fullmatch(bare)
    letter = (match[1] or match[2] or match[3]).upper() if match else None
    return letter if letter and letter in allowed else None
