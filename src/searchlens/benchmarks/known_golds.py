"""Digests of known golds: a file with another gold is noticed, although no row of a benchmark is kept here.

``golds/<family>.txt``, next to the file that declares the family, has one line per known wording of a question: 12
hexadecimal digits for the question, 8 for the question with its gold. Several wordings of a question circulate; an
unknown wording is not checked. ``searchlens.benchmarks.digests`` writes these files.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from searchlens.benchmarks.known import KnownBenchmark, known_benchmark
from searchlens.benchmarks.rows import Row


class GoldCheck(NamedTuple):
    """Result of comparing questions and golds with the known ones.

    Attributes
    ----------
    known : int
        Number of rows whose wording is known.
    wrong : list of int
        Positions, from 0, of the rows among these that have another gold.
    repeated : list of (int, int)
        Positions of the rows with the wording of an earlier row, each with the position of the earlier one.
    absent : int
        Number of known wordings that no row has.
    """

    known: int
    wrong: list[int]
    repeated: list[tuple[int, int]]
    absent: int


def _plain(wording: str) -> str:
    """Letters and digits only, because spacing, punctuation and signs differ between files of the same wording."""
    return "".join(letter for letter in unicodedata.normalize("NFKC", wording).lower() if letter.isalnum())


def _hex(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def line_of(wording: str, answer: str) -> tuple[str, str]:
    """The two digests of a question and its gold."""
    plain = _plain(wording)
    return _hex(plain, 12), _hex(plain + "\0" + "".join(answer.split()), 8)


def golds_file(benchmark: KnownBenchmark) -> Path:
    """File of the digests of a benchmark; it need not exist."""
    return benchmark.file.parent / "golds" / f"{benchmark.name}.txt"


def known_golds(family: str) -> dict[str, set[str]]:
    """Digest of each known question to the digests of it with a right gold; empty if no golds are known."""
    golds: dict[str, set[str]] = {}
    for part in known_benchmark(family).parts or (family,):
        path = golds_file(known_benchmark(part))
        for line in path.read_text().splitlines() if path.exists() else ():
            question, gold = line.split()
            golds.setdefault(question, set()).add(gold)
    return golds


def check(family: str, rows: Sequence[Row]) -> GoldCheck:
    """Compare rows with the known questions and golds."""
    golds = known_golds(family)
    digests = [line_of(row.wording, row.answer) for row in rows]
    known = [(position, digest) for position, digest in enumerate(digests) if digest[0] in golds]
    wrong = [position for position, (question, gold) in known if gold not in golds[question]]
    first: dict[str, int] = {}
    earlier = [first.setdefault(question, position) for position, (question, _) in enumerate(digests)]
    repeated = [(position, place) for position, place in enumerate(earlier) if place != position]
    return GoldCheck(len(known), wrong, repeated, len(golds.keys() - {question for question, _ in digests}))
