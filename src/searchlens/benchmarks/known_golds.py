"""Digests of known golds: a file with another gold is noticed, although no row of a benchmark is kept here.

``golds/<family>.txt``, next to the file that declares the family, has one line per known wording of a question: 8
hexadecimal digits for the wording, 4 for the wording with its gold, and for a further wording of a question the 8 of
its first one. Of a million unknown texts one is taken for one of 3,000 wordings, and of 65,536 wrong golds one for the
right one. Several wordings of a question circulate; the gold of an unknown wording is not checked, and it is named.
``searchlens.benchmarks.digests`` writes these files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from searchlens.benchmarks.examples import plain
from searchlens.benchmarks.known import KnownBenchmark, known_benchmark
from searchlens.benchmarks.rows import Row


class GoldCheck(NamedTuple):
    """Result of comparing questions and golds with the known ones."""

    known: int
    """Number of rows whose wording is known."""
    unknown: list[int]
    """Positions, from 0, of the other rows; empty if no wording of the family is known."""
    wrong: list[int]
    """Positions of the rows with a known wording and another gold."""
    repeated: list[tuple[int, int]]
    """Positions of the rows with the question of an earlier row, in the same or another known wording, each with the
    position of the earlier one."""
    absent: int
    """Number of known questions that no row asks."""
    asked: int
    """Number of different questions of the rows."""


def _hex(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


WORDING, GOLD = 8, 4
"""Hexadecimal digits of a wording, and of a wording with its gold."""
_SIZES = (WORDING, GOLD, WORDING)


def line_of(wording: str, answer: str) -> tuple[str, str]:
    """The two digests of a question and its gold."""
    letters = plain(wording)
    return _hex(letters, WORDING), _hex(letters + "\0" + "".join(answer.split()), GOLD)


def golds_file(benchmark: KnownBenchmark) -> Path:
    """File of the digests of a benchmark; it need not exist."""
    return benchmark.file.parent / "golds" / f"{benchmark.name}.txt"


@dataclass
class Known:
    """What is known of one wording: digests of it with a right gold, and the digest of its question's first wording."""

    question: str
    golds: set[str] = field(default_factory=set)


def known_golds(family: str) -> dict[str, Known]:
    """Digest of each known wording to what is known of it; empty if no golds are known."""
    golds: dict[str, Known] = {}
    for part in known_benchmark(family).parts or (family,):
        path = golds_file(known_benchmark(part))
        for line in path.read_text().splitlines() if path.exists() else ():
            wording, gold, *first = (digits[:size] for digits, size in zip(line.split(), _SIZES, strict=False))
            golds.setdefault(wording, Known(first[0] if first else wording)).golds.add(gold)
    return golds


def check(family: str, rows: Sequence[Row]) -> GoldCheck:
    """Compare rows with the known questions and golds."""
    golds = known_golds(family)
    digests = [line_of(row.wording, row.answer) for row in rows]
    known = [(position, digest) for position, digest in enumerate(digests) if digest[0] in golds]
    unknown = [position for position, (wording, _) in enumerate(digests) if golds and wording not in golds]
    wrong = [position for position, (wording, gold) in known if gold not in golds[wording].golds]
    asked = [golds[wording].question if wording in golds else wording for wording, _ in digests]
    first: dict[str, int] = {}
    earlier = [first.setdefault(question, position) for position, question in enumerate(asked)]
    repeated = [(position, place) for position, place in enumerate(earlier) if place != position]
    absent = {each.question for each in golds.values()} - set(asked)
    return GoldCheck(len(known), unknown, wrong, repeated, len(absent), len(set(asked)))
