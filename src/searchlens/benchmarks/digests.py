"""Write the digests of the golds of a known benchmark (docs/add-a-benchmark.md).

    python -m searchlens.benchmarks.digests [--extension FILE.py] FAMILY FILE...

The golds are those of the first file. Further files add their wordings of the same questions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from searchlens import catalogue
from searchlens.benchmarks.known import golds_file, known_benchmark, line_of, read_rows
from searchlens.benchmarks.questions import Row, plain
from searchlens.errors import InputError

SAME = 0.35
"""Smallest overlap of words (Jaccard) of two wordings of one question."""


def _words(wording: str) -> frozenset[str]:
    return frozenset("".join(c if c.isalnum() else " " for c in wording.lower()).split())


def align(trusted: Sequence[Row], other: Sequence[Row]) -> list[tuple[int, Row]]:
    """Pair rows of another file, by position from 0, with the trusted row of the same or the most similar wording."""
    words = [(_words(row.wording), row) for row in trusted]
    by_digest = {line_of(row.wording, row.answer): row for row in trusted}
    pairs = []
    for position, row in enumerate(other):
        if same := by_digest.get(line_of(row.wording, row.answer)):
            pairs.append((position, same))
            continue
        mine = _words(row.wording)
        overlap, best = max(((len(mine & its) / len(mine | its), row) for its, row in words), key=lambda pair: pair[0])
        if overlap >= SAME:
            pairs.append((position, best))
    return pairs


def write(family: str, names: Sequence[str]) -> None:
    """Write the digests of a family: the golds of the first file, the wordings of all files."""
    trusted = read_rows([Path(names[0])], family)
    lines: set[str] = set()
    wordings: dict[str, str] = {}
    for row in trusted:
        digest, gold = line_of(row.wording, row.answer)
        lines.add(f"{digest} {gold}")
        if wordings.setdefault(digest, plain(row.wording)) != plain(row.wording):  # one would be taken for the other
            raise InputError(
                f"two wordings have the digest {digest}", "make digests longer (WORDING in benchmarks/known.py)"
            )
    for name in names[1:]:
        rows = read_rows([Path(name)], family)
        pairs = align(trusted, rows)
        lines |= {_line(rows[position].wording, row) for position, row in pairs}
        differing = [position + 1 for position, row in pairs if rows[position].answer.split() != row.answer.split()]
        print(f"{name}: {len(pairs)} of {len(rows)} rows are questions of {names[0]}; other golds in rows {differing}")
    path = golds_file(known_benchmark(family))
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in sorted(lines)))
    print(f"{len(lines)} wordings of {len(trusted)} questions")


def _line(wording: str, trusted: Row) -> str:
    """The line of a wording of a trusted row's question; another wording names the digest of the trusted one."""
    first, _ = line_of(trusted.wording, trusted.answer)
    digest, gold = line_of(wording, trusted.answer)
    return f"{digest} {gold}" if digest == first else f"{digest} {gold} {first}"


def main(argv: Sequence[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m searchlens.benchmarks.digests", description=__doc__.split("\n")[0])
    parser.add_argument("--extension", metavar="FILE.py", help="file outside of the package that declares the family")
    parser.add_argument("family")
    parser.add_argument("files", metavar="FILE", nargs="+", help="the first one has the golds that are right")
    args = parser.parse_args(argv)
    if args.extension:
        catalogue.use([args.extension])
    write(args.family, args.files)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except InputError as error:
        sys.exit(str(error))
