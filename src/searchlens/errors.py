"""Exceptions that are shown to users without a traceback: wrong input, and jobs that could not finish.

They quote what others wrote, so this module also says how that is shown.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
"""Pattern of a name that can be a folder, a part of a file's name, a wildcard and a word in every markup."""
NAMES = "at most 100 letters, digits, '.', '_' and '-', first a letter or digit"

_HIDDEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
"""Unicode categories of what is not to be seen: controls such as ESC, format characters such as bidirectional marks,
private use, single surrogates, separators of lines and paragraphs."""


class InputError(Exception):
    """Input of the user is wrong or missing.

    The command line prints it without a traceback and exits with status 2. Every message names the file or key, the
    value that is wrong, and the allowed ones.

    Parameters
    ----------
    message : str
        The wrong value, its place, and what is allowed.
    hint : str, optional
        What to do about it, as one sentence.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message}\nHint: {hint}" if hint else message)


class JobError(RuntimeError):
    """A job had to stop although its input may be right: an engine died, or too many searches failed.

    Its finished chunks stay. The command line prints the message without a traceback and exits with status 1. The hint
    says what to do about it, as one sentence.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\nHint: {hint}" if hint else message)


class JobStoppedError(RuntimeError):
    """A job was stopped on request before it was done; the same command resumes it.

    The command line prints the message, one line, and exits with status 75 (``EX_TEMPFAIL``: try again).
    """


@contextmanager
def within(place: str) -> Iterator[None]:
    """Say in an InputError that is raised in a ``with`` block what it is about, such as a key."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{place}: {error.message}", error.hint) from None


def unknown(name: str, known: Iterable[str]) -> str:
    """What is said of a name that is not among the known ones: the nearest of them, and all, or of many some."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    shown = names if len(names) <= 24 else sorted(difflib.get_close_matches(str(name), names, n=8, cutoff=0))
    more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    return f"{name!r} is unknown{hint} Known: {', '.join(shown) or '(none)'}{more}"


def counted(count: int, what: str) -> str:
    """How many there are of a thing, as in ``1 policy`` and ``2,000 policies``."""
    return f"{count:,} {what if count == 1 else what[:-1] + 'ies' if what.endswith('y') else what + 's'}"


def require_known(name: str, known: Iterable[str], what: str) -> str:
    """The name, if it is known; otherwise InputError, which begins with ``what``, such as ``benchmark``."""
    names = list(known)
    if not isinstance(name, str) or name not in names:
        raise InputError(f"{what} {unknown(name, names)}")
    return name


def printable(text: str) -> str:
    r"""Text in which every character that is not to be seen is an escape; line breaks stay, a tab is four blanks.

    >>> print(printable("\x1b[31mred \u202eevil\ttab"))
    \x1b[31mred \u202eevil    tab
    """
    return re.sub(r"[^\n -~]", lambda found: _shown(found[0]), text.replace("\r\n", "\n"))


def one_line(text: str, most: int = 200) -> str:
    """Text of others as a part of a message: printable, in one line, and of a long one its begin and its end."""
    shown = printable(text).replace("\n", "\\n")
    return shown if len(shown) <= most else f"{shown[: most // 2]}…{shown[-most // 2 :]}"


def _shown(char: str) -> str:
    if char == "\t":
        return "    "
    return char if unicodedata.category(char) not in _HIDDEN else ascii(char)[1:-1]
