"""Exceptions that are shown to users without a traceback: wrong input, and jobs that could not finish."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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

    Its finished chunks stay. The command line prints the message without a traceback and exits with status 1.

    Parameters
    ----------
    message : str
        What happened.
    hint : str, optional
        What to do about it, as one sentence.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\nHint: {hint}" if hint else message)


class JobStoppedError(RuntimeError):
    """A job was stopped on request before it was done; the same command resumes it.

    The command line prints the message, one line, and exits with status 75 (``EX_TEMPFAIL``: try again).
    """


def unknown(name: str, known: Iterable[str]) -> str:
    """What is said of a name that is not among the known ones: the nearest of them, and all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"{name!r} is unknown{hint} Known: {', '.join(names) or '(none)'}"


def require_known(name: str, known: Iterable[str], what: str) -> str:
    """``name``, if it is one of the known names.

    Raises
    ------
    InputError
        It is not; the message begins with ``what``, such as ``benchmark``.
    """
    names = list(known)
    if not isinstance(name, str) or name not in names:
        raise InputError(f"{what} {unknown(name, names)}")
    return name
