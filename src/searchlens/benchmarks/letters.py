"""The letter of a choice that a gold or an answer names, whatever stands around it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from searchlens.benchmarks.choices import LETTERS

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
