r"""Finds the last ``\boxed{...}`` of a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

_BOX = re.compile(r"\\boxed(?![A-Za-z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace belongs to the answer
_UNBRACED = re.compile(r"\\boxed(?![A-Za-z])\s*([^\s${}][^\s$]*?)(?=[.,;:]*(?:[\s$]|\\[)\]]|$))")
_SPACE = r"(?:\s|\$|\\[,;:()\[\] ]|\\q?quad(?![A-Za-z])|~)*"
_JOINT = re.compile(
    rf"\}}{_SPACE}(?:[,;]{_SPACE}(?:and\b)?|\\q?quad(?![A-Za-z])|and\b|or\b(?={_SPACE}[A-Za-z](?:_\{{?\w+\}}?)?\s*=)|,?\s*\\text\s*\{{\s*,?\s*and\s*\}}){_SPACE}"
    rf"(?:[A-Za-z](?:_\{{?\w+\}}?)?\s*=\s*)?\Z"
)
"""What joins two boxes: the brace that closes the first one, a comma or "and", and perhaps ``x =``."""
_ALTERNATIVE = re.compile(
    rf"\}}{_SPACE}[,(]?{_SPACE}(?:or|\\text\s*\{{\s*or\s*\}})\b{_SPACE}"
    rf"(?:(?:maybe|perhaps|possibly|else|even|rather|it\s+is)\b{_SPACE})?\Z"
)
"""What stands between two boxes of which one is right."""
_NAMED = re.compile(r"[A-Za-z](?:_\{?\w+\}?)?\s*=")
_WIDEST = 40
"""Most characters between two joined boxes."""
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
    state : {"closed", "kept", "withdrawn", "hedged", "none", "absent"}
        ``closed``: the last box is closed and counts. ``kept``: the last box is open, and its content is a beginning of
        the last closed box's, which counts. ``withdrawn``: the last box is open and holds something else, so that the
        closed box before it does not count. ``hedged``: two different boxes are joined by "or". ``none``: there is no
        closed box. ``absent``: there is no box.
    end : int
        Where the last box ends.
    """

    content: str | None
    state: Literal["closed", "kept", "withdrawn", "hedged", "none", "absent"]
    end: int = 0


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}``, stripped.

    None if there is no box, or if the last one is not closed. Of nested boxes the innermost of the last ones counts. An
    empty box gives an empty string. A box of more than ``_LONGEST`` characters counts as not closed.
    """
    box = _last_before(text, len(text))
    return box.content if box and box.closed else None


def final_box(text: str, *, stopped: bool, is_blank: Callable[[str], bool] = lambda _: False) -> FinalBox:
    r"""The answer in the last boxes of a text.

    Boxes joined by a comma or "and" are one answer, in the order of the text; equal ones count once.

    A text that is cut while it repeats its answer ends in an open box whose content begins like that of the box before:
    the answer stands. Any other content of an open box replaces the answer, and is not known. ``\boxed 42`` is a box
    whose content ends at white space or a dollar sign; at the end of a text that was cut, it is open.

    Closed boxes whose content is blank are passed over, ``_MOST`` of them.
    """
    last = _last_before(text, len(text))
    if last and last.closed and is_blank(last.content):
        last = _last_filled(text, last, is_blank)
    if last is None:
        return FinalBox(None, "absent")
    if not last.closed:
        last = _unbraced(text, last, stopped=stopped)
        if last.closed and is_blank(last.content):
            return FinalBox(None, "absent")
    if last.closed and not _may_be_joined(text, last):
        return FinalBox(last.content, "closed", last.end)
    group = _joined_to(text, last)
    if last.closed:
        return _alternative(text, group[0]) or FinalBox(_answer(group), "closed", last.end)
    before = islice(_before(text, group[0].start), _MOST)
    closed = next((box for box in before if box.closed and not is_blank(box.content)), None)
    if closed is None:
        return FinalBox(None, "withdrawn" if len(group) > 1 else "none")
    answer = _answer(_joined_to(text, closed))
    return FinalBox(answer, "kept") if answer.startswith(_answer(group)) else FinalBox(None, "withdrawn")


def _last_filled(text: str, last: Box, is_blank: Callable[[str], bool]) -> Box | None:
    """The last box before another that is open, or not blank."""
    before = islice(_before(text, last.start), _MOST)
    return next((box for box in before if not box.closed or not is_blank(box.content)), None)


def _joined_to(text: str, last: Box) -> list[Box]:
    """A box, behind the closed ones that are joined to it; at most ``_MOST``."""
    group = [last]
    while len(group) < _MOST and _may_be_joined(text, group[0]):
        joint = _JOINT.search(text, max(0, group[0].start - _WIDEST), group[0].start)
        box = _last_before(text, joint.start()) if joint else None
        if joint is None or box is None or not box.closed or box.end != joint.start() + 1:
            break
        group.insert(0, box)
    return group


def _alternative(text: str, box: Box) -> FinalBox | None:
    """What a box and one with other content state that "or" joins: nothing, but both of ``x=1`` or ``x=4``."""
    joint = _ALTERNATIVE.search(text, max(0, box.start - _WIDEST), box.start)
    other = _last_before(text, joint.start()) if joint else None
    if joint is None or other is None or other.end != joint.start() + 1 or other.content == box.content:
        return None
    if _NAMED.match(box.content) and _NAMED.match(other.content):
        return FinalBox(f"{other.content}, {box.content}", "closed", box.end)
    return FinalBox(None, "hedged", box.end)


def _may_be_joined(text: str, box: Box) -> bool:
    """Whether a brace closes shortly before a box."""
    return text.rfind("}", max(0, box.start - _WIDEST), box.start) >= 0


def _answer(group: list[Box]) -> str:
    *closed, last = (box.content for box in group)
    return ", ".join(dict.fromkeys([*closed, last]) if group[-1].closed else [*closed, last])


def _unbraced(text: str, box: Box, *, stopped: bool) -> Box:
    """The box as closed if it has no brace, and its content ends."""
    match = _UNBRACED.match(text, box.start)
    if match is None or (match.end() == len(text) and not stopped):
        return box
    return Box(box.start, match.end(), match[1], closed=True)


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
    if end >= 0 and text.find("{", start + 1, end) < 0 and text.find("\\", start, end) < 0:  # most answers
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
