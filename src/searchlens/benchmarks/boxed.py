r"""Finds the last ``\boxed{...}`` of a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Literal, NamedTuple

_BOX = re.compile(r"\\boxed(?![A-Za-z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace belongs to the answer
_LONGEST = 4096
"""Characters searched for the closing brace, so that a text of many open boxes is searched in linear time."""
_MOST = 64
"""Boxes looked at before an open one, for the same reason."""


class Box(NamedTuple):
    """A box in a text; a box that is not closed holds the rest of the text, and ends where the text ends."""

    start: int
    end: int
    content: str
    closed: bool


class FinalBox(NamedTuple):
    """What the boxes of a text state.

    Attributes
    ----------
    content : str or None
        The answer, stripped; None if no box states one.
    state : {"closed", "kept", "withdrawn", "none"}
        ``closed``: the last box is closed and counts. ``kept``: the last box is open, and its content is a beginning of
        the last closed box's, which counts. ``withdrawn``: the last box is open and holds something else, so that the
        closed box before it does not count. ``none``: there is no closed box.
    """

    content: str | None
    state: Literal["closed", "kept", "withdrawn", "none"]


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}``, stripped.

    None if there is no box, or if the last one is not closed. Of nested boxes the innermost of the last ones counts. An
    empty box gives an empty string. A box of more than ``_LONGEST`` characters counts as not closed.
    """
    box = _last_before(text, len(text))
    return box.content if box and box.closed else None


def final_box(text: str) -> FinalBox:
    """The last closed box, and whether an open one stands behind it.

    A text that is cut while it repeats its answer ends in an open box whose content begins like that of the box before:
    the answer stands. Any other content of an open box replaces the answer, and is not known.
    """
    last = _last_before(text, len(text))
    if last is None or last.closed:
        return FinalBox(last.content, "closed") if last else FinalBox(None, "none")
    closed = next((box for box in islice(_before(text, last.start), _MOST) if box.closed), None)
    if closed is None:
        return FinalBox(None, "none")
    return FinalBox(closed.content, "kept") if closed.content.startswith(last.content) else FinalBox(None, "withdrawn")


def _before(text: str, end: int) -> Iterator[Box]:
    """The boxes that begin before a position, last first."""
    while box := _last_before(text, end):
        yield box
        end = box.start


def _last_before(text: str, end: int) -> Box | None:
    """The last box that begins before a position."""
    start = text.rfind("\\boxed", 0, end)
    while start >= 0:
        if match := _BOX.match(text, start):
            return _box(text, start, match.end())
        start = text.rfind("\\boxed", 0, start)
    return None


def _box(text: str, start: int, brace: int) -> Box:
    """The box that begins at ``start``, with its brace, if it has one, at ``brace``."""
    opened = text.startswith("{", brace)
    close = _closing(text, brace) if opened else None
    if close is None:
        return Box(start, len(text), text[brace + opened :].strip(), closed=False)
    return Box(start, close + 1, text[brace + 1 : close].strip(), closed=True)


def _closing(text: str, start: int) -> int | None:
    """Position of the brace that closes the one at ``start``."""
    end = text.find("}", start, start + _LONGEST)
    if end >= 0 and not any(special in text[start + 1 : end] for special in "{\\"):  # a third of the time, for most
        return end
    depth = 0
    for brace in _BRACE.finditer(text, start, start + _LONGEST):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                return brace.start()
    return None
