"""Everything that can be tried, in parts that are tried one after another, and what they take."""

import argparse
import json
import os
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

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


def in_processes(folder: Path, chosen: Sequence[T], processes: int, attempt: Callable[[int, T], Any]) -> list[Any]:
    """What becomes of each of some things, in several processes at once; ``attempt`` gets a number of its own, too."""
    parts = [folder / f"part{i}.json" for i in range(processes)]
    children = []
    for number, part in enumerate(parts):
        if (pid := os.fork()) == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            mine = enumerate(chosen[number::processes])
            part.write_text(json.dumps([attempt(number * 10**6 + i, one) for i, one in mine]))
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return [one for part in parts for one in json.loads(part.read_text())]
