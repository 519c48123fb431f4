"""Text for terminals: without characters that control them, in columns of a given width, and through a pager.

Nothing else writes to the terminal: ``say`` prints, ``Formatter`` makes what is logged.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
import traceback
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import accumulate, zip_longest
from types import TracebackType
from typing import TextIO

from searchlens.errors import printable

BAR = " | "


def say(text: object, file: TextIO | None = None) -> None:
    """Print what may have words of others; what the encoding of the file (standard output) lacks is escaped, too."""
    file = file or sys.stdout
    print(_encoded(printable(str(text)), file), file=file, flush=True)


def _encoded(text: str, file: TextIO) -> str:
    encoding = file.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def say_what_was_raised(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What the interpreter calls before it ends with an error that nobody expected (``sys.excepthook``)."""
    say("".join(traceback.format_exception(kind, error, trace)).rstrip(), sys.stderr)


class Formatter(logging.Formatter):
    """Lines of the log, in which nothing controls the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and what was raised below it."""
        return printable(super().format(record))


def cells(text: str) -> int:
    """Cells of a terminal that a line takes: two for wide characters, none for combining marks."""
    return sum(_cells(char) for char in text)


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` cells, printable, broken at blanks where there are any.

    >>> wrapped("one two three", 7)
    ['one two', 'three']
    """
    return [line for part in printable(text).split("\n") for line in _wrapped(part.rstrip(), width)]


def _wrapped(line: str, width: int) -> Iterator[str]:
    while cells(line) > width:
        # Characters that fit, at least one.
        fits = max(1, next(i for i, used in enumerate(accumulate(map(_cells, line))) if used > width))
        blank = line.rfind(" ", 1, fits + 1)
        cut = blank if blank > 0 and line[:blank].strip() else fits
        yield line[:cut].rstrip()
        line = line[cut:].lstrip(" ")
    yield line


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
    """Show text: through the program that PAGER names if it goes to a terminal, or else plain."""
    command = shlex.split(os.environ.get("PAGER", ""))
    if command and sys.stdout.isatty():
        try:
            safe = _encoded(printable(text), sys.stdout)
            subprocess.run(command, input=f"{safe}\n", check=False, encoding=sys.stdout.encoding)
            return
        except OSError:  # there is no such program
            pass
    say(text)
