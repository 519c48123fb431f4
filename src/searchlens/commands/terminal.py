"""Text for terminals: without characters that control them, in columns of a given width, and through a pager."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import zip_longest

_HIDDEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
"""Unicode categories of what is not to be seen: controls such as ESC, format characters such as bidirectional marks,
private use, single surrogates, separators of lines and paragraphs."""
BAR = " | "


def printable(text: str) -> str:
    r"""Text in which every character that is not to be seen is an escape; line breaks stay, a tab is four blanks.

    >>> print(printable("\x1b[31mred \u202eevil\ttab"))
    \x1b[31mred \u202eevil    tab
    """
    return "".join(map(_shown, text.replace("\r\n", "\n")))


def _shown(char: str) -> str:
    if char == "\t":
        return "    "
    hidden = char != "\n" and unicodedata.category(char) in _HIDDEN
    return char.encode("unicode_escape", "surrogatepass").decode("ascii") if hidden else char


def cells(text: str) -> int:
    """Cells of a terminal that a line takes: two for wide characters, none for combining marks."""
    return sum(_cells(char) for char in text)


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` cells, broken at blanks where there are any.

    >>> wrapped("one two three", 7)
    ['one two', 'three']
    """
    return [line for part in text.split("\n") for line in _wrapped(part.rstrip(), width)]


def _wrapped(line: str, width: int) -> Iterator[str]:
    while cells(line) > width:
        fits = _fitting(line, width)
        blank = line.rfind(" ", 1, fits + 1)
        cut = blank if blank > 0 and line[:blank].strip() else fits
        yield line[:cut].rstrip()
        line = line[cut:].lstrip(" ")
    yield line


def _fitting(line: str, width: int) -> int:
    """Number of characters that fit, at least one."""
    used = 0
    for i, char in enumerate(line):
        used += _cells(char)
        if used > width:
            return max(i, 1)
    return len(line)


def side_by_side(left: Sequence[str], right: Sequence[str], width: int) -> list[str]:
    """Two columns of lines, each at most ``width`` cells wide, with a bar between them."""
    return [
        (one + " " * (width - cells(one)) + BAR + other).rstrip()
        for one, other in zip_longest(left, right, fillvalue="")
    ]


def shortened(lines: Sequence[str], most: int) -> list[str]:
    """At most ``most`` lines: the first ones and the last ones, which have the answer, and how many were left out."""
    if len(lines) <= most:
        return list(lines)
    head = (most - 1) // 2
    left_out = len(lines) - most + 1
    return [*lines[:head], f"[... {left_out} lines]", *lines[len(lines) - (most - 1 - head) :]]


def page(text: str) -> None:
    """Show text: through the program that the environment variable PAGER names if it goes to a terminal, or else plain.

    What the terminal's encoding does not have is escaped.
    """
    encoding = sys.stdout.encoding or "utf-8"
    safe = text.encode(encoding, "backslashreplace")
    command = shlex.split(os.environ.get("PAGER", ""))
    if command and sys.stdout.isatty():
        try:
            subprocess.run(command, input=safe + b"\n", check=False)
            return
        except OSError:  # there is no such program
            pass
    print(safe.decode(encoding))
