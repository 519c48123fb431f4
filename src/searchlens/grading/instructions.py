"""Exact checks for the instruction-following role: is this list written as the instruction asked?

A response is one line of items, optionally followed by one closing line. Every check is a plain function of the
stripped response and of the parameters that the benchmark's row carries, so a verdict needs nothing but the row and
the text. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from searchlens.errors import InputError

CASES: dict[str, Callable[[str], str]] = {"upper": str.upper, "lower": str.lower, "title": str.title}


def items(text: str, separator: str) -> list[str]:
    """Split the first line of ``text`` into the items between ``separator``; nothing is trimmed."""
    return text.split("\n", 1)[0].split(separator)


def count(text: str, *, n: int, separator: str) -> bool:
    """Exactly ``n`` items."""
    return len(items(text, separator)) == n


def members(text: str, *, words: Sequence[str], separator: str) -> bool:
    """Every item is one of ``words`` (in any case) and none occurs twice."""
    found = [item.lower() for item in items(text, separator)]
    return len(set(found)) == len(found) and set(found) <= {word.lower() for word in words}


def case(text: str, *, style: str) -> bool:
    """The first line is written in ``style``: ``upper``, ``lower`` or ``title``."""
    line = text.split("\n", 1)[0]
    return line == CASES[style](line)


def forbid(text: str, *, word: str) -> bool:
    """``word`` occurs nowhere as a word, in any case."""
    letters = "".join(c if c.isalnum() else " " for c in text.lower())
    return word.lower() not in letters.split()


def first(text: str, *, word: str, separator: str) -> bool:
    """The first item is ``word`` (in any case)."""
    return items(text, separator)[0].lower() == word.lower()


def closing(text: str, *, line: str) -> bool:
    """The response has two lines and the second is exactly ``line``; with an empty ``line``, it has one line."""
    rest = text.split("\n")[1:]
    return rest == ([line] if line else [])


CHECKS: dict[str, Callable[..., bool]] = {
    "count": count,
    "members": members,
    "case": case,
    "forbid": forbid,
    "first": first,
    "closing": closing,
}
"""The checks that a row may name, each a function of the stripped response and the row's parameters."""


def passes(checks: Mapping[str, Mapping[str, Any]], text: str) -> bool:
    """Whether a finished response satisfies every check of its row.

    Whether the response is finished is the caller's knowledge: one that ran into its token limit fails, whatever its
    text says.

    Parameters
    ----------
    checks : mapping
        Name of the check to its keyword parameters, as in the benchmark's row. Must not be empty.
    text : str
        The response; white space at its two ends is ignored.
    """
    if not checks:
        raise InputError("an instruction row has no checks", f"allowed checks: {', '.join(CHECKS)}")
    for name in checks:
        if name not in CHECKS:
            raise InputError(f"unknown instruction check {name!r}", f"allowed checks: {', '.join(CHECKS)}")
    stripped = text.strip()
    return all(CHECKS[name](stripped, **parameters) for name, parameters in checks.items())
