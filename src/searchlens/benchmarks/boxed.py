r"""Finds the last ``\boxed{...}`` of a text."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\boxed(?![A-Za-z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace belongs to the answer
_LONGEST = 4096
"""Characters searched for the closing brace, so that a text of many open boxes is searched in linear time."""


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}``, stripped.

    None if there is no box, or if the last one is not closed: a text that ends inside a box was about to replace its
    earlier ones. Of nested boxes the innermost of the last ones counts. An empty box gives an empty string. A box of
    more than ``_LONGEST`` characters counts as not closed.
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
    if end >= 0 and "{" not in content and "\\" not in content:  # a third of the time, for most answers
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
