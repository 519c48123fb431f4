"""Everything that can be tried, in parts that are tried one after another, and what they take."""

from __future__ import annotations

import argparse
import resource
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
Part = tuple[int, int]
"""Which part of how many, counted from 1."""


def part_of(text: str) -> Part:
    """What ``--part`` says."""
    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 1/4")
    return int(number), int(parts)


def slice_of(everything: Sequence[T], part: Part) -> list[T]:
    """A part of something that is tried in parts."""
    number, parts = part
    return list(everything[number - 1 :: parts])


def processor_time() -> float:
    """Seconds, of this process and of those that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
