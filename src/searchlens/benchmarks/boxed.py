r"""Finding the last ``\boxed{...}`` of a text."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\boxed(?![A-Za-z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace is a character of the answer, not a delimiter
_LONGEST = 4096


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}``, stripped.

    None without a box, or when the last one is not closed: a box that was being rewritten when the text ended takes
    back the earlier ones. Of nested boxes the innermost last one counts. An empty box gives an empty string. A box of
    thousands of characters is taken for one that is not closed.
    """
    start = text.rfind("\\boxed")
    while start >= 0:
        if match := _BOX.match(text, start):
            return _braced(text, match.end())
        start = text.rfind("\\boxed", 0, start)
    return None


def _braced(text: str, start: int) -> str | None:
    if text[start : start + 1] != "{":
        return None
    end = text.find("}", start)
    content = text[start + 1 : end]
    if end >= 0 and "{" not in content and "\\" not in content:  # most answers, in a third of the time
        return content.strip() if len(content) <= _LONGEST else None
    depth = 0
    for brace in _BRACE.finditer(text, start, start + _LONGEST):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : brace.start()].strip()
    return None
