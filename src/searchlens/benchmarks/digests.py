"""Known golds as digests, so that a file with another gold is noticed without any row of it being kept here.

``golds/<family>.txt`` has one line per known wording of a question: 12 hexadecimal digits for the question, 8 for the
question with its gold. Several wordings of a question circulate; one that is in none of the files is not checked.
Written by ``python -m searchlens.benchmarks.digests FAMILY FILE...`` (docs/add-a-benchmark.md).
"""

from __future__ import annotations

import hashlib
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from searchlens.benchmarks.families import FAMILIES
from searchlens.benchmarks.rows import Row
from searchlens.errors import InputError

FOLDER = Path(__file__).parent / "golds"

SAME = 0.35
"""Least overlap of words (Jaccard) of two wordings of one question."""


class Checked(NamedTuple):
    """What the known golds say about some rows.

    Attributes
    ----------
    known : int
        Rows whose wording is known.
    wrong : list of int
        Positions of those with another gold, from 0.
    """

    known: int
    wrong: list[int]


def _plain(wording: str) -> str:
    """Letters and digits alone: spacing, punctuation and signs differ between files of the same wording."""
    return "".join(letter for letter in unicodedata.normalize("NFKC", wording).lower() if letter.isalnum())


def _hex(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def line_of(wording: str, answer: str) -> tuple[str, str]:
    """The two digests of a question and its gold."""
    plain = _plain(wording)
    return _hex(plain, 12), _hex(plain + "\0" + "".join(answer.split()), 8)


def known_golds(family: str) -> dict[str, set[str]]:
    """Digest of a question to those of it with a right gold; empty for a family whose golds are not known here."""
    found: dict[str, set[str]] = {}
    for part in FAMILIES[family].parts or (family,):
        path = FOLDER / f"{part}.txt"
        for line in path.read_text().split("\n") if path.exists() else ():
            if line:
                question, gold = line.split()
                found.setdefault(question, set()).add(gold)
    return found


def check(family: str, rows: Sequence[Row]) -> Checked:
    """Compare the golds of rows with the known ones."""
    golds = known_golds(family)
    lines = [line_of(row.wording, row.answer) for row in rows]
    known = [(position, line) for position, line in enumerate(lines) if line[0] in golds]
    return Checked(len(known), [position for position, (question, gold) in known if gold not in golds[question]])


def _words(wording: str) -> frozenset[str]:
    return frozenset("".join(c if c.isalnum() else " " for c in wording.lower()).split())


def aligned(trusted: Sequence[Row], other: Sequence[Row]) -> list[tuple[int, Row]]:
    """Rows of another file with the trusted row of the same question, by its wording or else by its words.

    Returns
    -------
    list of (position in the other file from 0, trusted row)
    """
    words = [(_words(row.wording), row) for row in trusted]
    same = {line_of(row.wording, row.answer): row for row in trusted}
    found = []
    for position, row in enumerate(other):
        if exact := same.get(line_of(row.wording, row.answer)):
            found.append((position, exact))
            continue
        mine = _words(row.wording)
        overlap, best = max(((len(mine & its) / len(mine | its), row) for its, row in words), key=lambda pair: pair[0])
        if overlap >= SAME:
            found.append((position, best))
    return found


def main(argv: Sequence[str]) -> None:
    """Write the digests of a family: golds of the first file, wordings of all of them."""
    from searchlens.benchmarks import read_rows

    family, *names = argv
    trusted = read_rows([Path(names[0])], family)
    lines = {line_of(row.wording, row.answer) for row in trusted}
    for name in names[1:]:
        rows = read_rows([Path(name)], family)
        same = aligned(trusted, rows)
        lines |= {line_of(rows[position].wording, row.answer) for position, row in same}
        differ = [position + 1 for position, row in same if _differ(rows[position], row)]
        print(f"{name}: {len(same)} of {len(rows)} rows are questions of {names[0]}; other golds in rows {differ}")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{family}.txt").write_text("".join(f"{question} {gold}\n" for question, gold in sorted(lines)))
    print(f"{len(lines)} wordings of {len(trusted)} questions")


def _differ(row: Row, trusted: Row) -> bool:
    return "".join(row.answer.split()) != "".join(trusted.answer.split())


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except InputError as error:
        sys.exit(str(error))
