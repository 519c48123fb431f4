"""Known benchmarks: those that circulate, with their source, licence, size, and place on the Hugging Face hub.

Digests of their golds notice a file with another gold, although no row of a benchmark is kept here.
``golds/<family>.txt``, next to the file that declares the family, has one line per known wording of a question: 8
hexadecimal digits for the wording, 4 for the wording with its gold, and for a further wording of a question the 8 of
its first one. Of a million unknown texts one is taken for one of 3,000 wordings, and of 65,536 wrong golds one for the
right one. Several wordings of a question circulate; the gold of an unknown wording is not checked, and it is named.
``searchlens.benchmarks.digests`` writes these files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from searchlens import catalogue
from searchlens.benchmarks.questions import Row, plain
from searchlens.errors import InputError, unknown

if TYPE_CHECKING:
    from searchlens.config.boptr import Regime

OWN = "jsonl"
"""The family of the project's own format, which is not a known benchmark."""


@dataclass(frozen=True, slots=True)
class HubSplit:
    """One split of a dataset on the Hugging Face hub."""

    id: str
    """``owner/name``."""
    split: str = "test"
    config: str = ""
    """Empty for a dataset that has one configuration only."""
    gated: bool = False
    """Its terms have to be accepted on the hub. Such a dataset is not downloaded, it is read from the user's file."""


@dataclass(frozen=True, slots=True)
class KnownBenchmark:
    """A known benchmark: the options of ``catalogue.family``, which decorates the function that reads its rows."""

    name: str
    """Also starts the ids of its questions."""
    file: Path
    """The source file that declares it."""
    title: str
    grader: str
    """Name of the grader that is meant for it."""
    licence: str
    """As the source states it; it does not settle the rights in contest problems."""
    regime: Regime | Literal[""] = ""
    """g(d) of BOPTR, as the paper assigns it; empty if it has none."""
    hub: str = ""
    split: str = "test"
    config: str = ""
    gated: bool = False
    """``hub``, ``split``, ``config``, ``gated``: as in ``HubSplit``; an empty ``hub`` means that the hub does not have
    it."""
    sizes: Mapping[int, str] = field(default_factory=dict)
    """Number of rows to the source that has as many; empty if no size is known."""
    parts: tuple[str, ...] = ()
    """Benchmarks that make up this one, one file each, in this order."""
    shuffled: bool = False
    """Questions are ordered by their hashes, so that the first N of a large set are a fair sample whatever the order of
    its file. Ids still count the rows of the file."""
    repeats: bool = False
    """Published files hold some questions more than once. Of other benchmarks a file with a repeated question is
    refused."""

    @property
    def splits(self) -> list[HubSplit]:
        """Its place on the hub: one split for each of its parts, or one; none if the hub does not have it."""
        if self.parts:
            return [split for part in self.parts for split in known_benchmark(part).splits]
        return [HubSplit(self.hub, self.split, self.config, self.gated)] if self.hub else []

    @property
    def terms(self) -> str:
        """Why its rows are not to be shown in plain text; empty if they may be."""
        is_gated = self.gated or any(split.gated for split in self.splits)
        return f"{self.title} is gated ({self.licence})" if is_gated else ""


def family_names() -> tuple[str, ...]:
    """Names of all families: the project's own format, then the known benchmarks."""
    return OWN, *catalogue.declared("family")


def known_benchmarks() -> dict[str, KnownBenchmark]:
    """All known benchmarks by name, in the order in which they are listed."""
    return {name: _known(declaration) for name, declaration in catalogue.declared("family").items()}


def known_benchmark(family: str) -> KnownBenchmark:
    """The known benchmark of a name. Raises InputError if it is unknown; the message lists all families."""
    declarations = catalogue.declared("family")
    if family not in declarations:
        raise InputError(f"benchmark family {unknown(family, family_names())}")
    return _known(declarations[family])


def _known(declaration: catalogue.Declaration) -> KnownBenchmark:
    try:
        return KnownBenchmark(declaration.name, declaration.path, **declaration.options)
    except TypeError as error:
        what = str(error).replace("KnownBenchmark.__init__()", "its decorator")
        raise InputError(f"benchmark family {declaration.name!r} of {declaration.path}: {what}") from None


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


WORDING, GOLD = 8, 4
"""Hexadecimal digits of a wording, and of a wording with its gold."""
_SIZES = (WORDING, GOLD, WORDING)


def line_of(wording: str, answer: str) -> tuple[str, str]:
    """The two digests of a question and its gold."""
    letters = plain(wording)
    both = letters + "\0" + "".join(answer.split())
    first, second = (hashlib.sha256(text.encode()).hexdigest() for text in (letters, both))
    return first[:WORDING], second[:GOLD]


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
