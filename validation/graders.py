r"""How often do grader ``math`` and math-verify by itself judge an answer wrongly?

    python validation/graders.py --benchmarks FOLDER --output docs/graders.csv

Two sets of answers with known truth:

* ``table``: ``tests/data/answers.jsonl``, answers of all kinds that we wrote.
* ``mutated``: the golds of the benchmark files in a folder, each in other spellings, which are right, and with a digit
  changed, the sign changed, two entries swapped or a row dropped, which is wrong.

math-verify gets each answer as ``$...$``, as its documentation shows. Both get the gold first.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from searchlens import benchmarks
from searchlens.grading import GradedPair
from searchlens.grading.math import Math
from searchlens.grading.processes import Limits

TABLE = Path(__file__).parents[1] / "tests" / "data" / "answers.jsonl"
FILES = {
    "math500": "math500.jsonl",
    "aime24": "aime24.jsonl",
    "amc23": "amc23.jsonl",
    "minerva": "minerva_math.jsonl",
    "olympiadbench": "olympiadbench.jsonl",
}
"""Families and files of golds that are formulas, numbers or words."""
SEED = 1
BREAK = r" \\ "


class Case(NamedTuple):
    """An answer to a question, and whether it is right."""

    group: str
    pair: GradedPair
    right: bool


# ---- cases


def table_cases() -> Iterator[Case]:
    """The answers of the table."""
    for line in TABLE.read_text().splitlines():
        group = json.loads(line)
        for side in ("right", "wrong"):
            for answer in group[side]:
                yield Case("table", GradedPair(group["gold"], answer), side == "right")


_INTEGER = re.compile(r"-?\d{1,15}")
_FRACTION = re.compile(r"(-?)\\d?frac\{(\d+)\}\{(\d+)\}")
_BRACKETS = re.compile(r"\\left|\\right")
_MATRIX = re.compile(r"(\\begin\{[pb]matrix\})(.*)(\\end\{[pb]matrix\})", re.DOTALL)
_TUPLE = re.compile(r"(\(|\\left\()\s*([^()\[\]]*,[^()\[\]]*?)\s*(\\right\)|\))", re.DOTALL)


def spellings(gold: str) -> set[str]:
    """The gold in other words: what a model may write for it."""
    found = {f" {gold} ", f"${gold}$", f"{gold}.", gold.replace(r"\frac", r"\dfrac")}
    found |= {_BRACKETS.sub("", gold), re.sub(r"\s*(,(?!\s*\d{3})|\\\\|&|=|\+)\s*", r"\1", gold)}
    found |= {re.sub(r"\s*(\\\\|&|=|\+)\s*", r" \1 ", gold)}
    if _INTEGER.fullmatch(gold):
        number = int(gold)
        found |= {f"{number}.0", f"x={number}", f"{number:,}", f"{number:,}".replace(",", "{,}"), rf"\text{{{number}}}"}
    if fraction := _FRACTION.fullmatch(gold):
        sign, above, below = fraction.groups()
        found |= {f"{sign}{above}/{below}", rf"{sign}\frac{{{2 * int(above)}}}{{{2 * int(below)}}}"}
    if matrix := _MATRIX.fullmatch(gold):
        found |= {rf"\begin{{bmatrix}}{matrix[2]}\end{{bmatrix}}", rf"\begin{{pmatrix}}{matrix[2]}\\\end{{pmatrix}}"}
    return found


def mutations(gold: str, rng: random.Random) -> set[str]:
    """Wrong answers that differ from the gold in one place."""
    found: set[str] = set()
    digits = [match.start() for match in re.finditer(r"\d", gold)]
    for place in rng.sample(digits, min(2, len(digits))):
        found.add(f"{gold[:place]}{(int(gold[place]) + rng.randint(1, 8)) % 10}{gold[place + 1 :]}")
    if (_INTEGER.fullmatch(gold) and int(gold)) or _FRACTION.fullmatch(gold):
        found.add(gold[1:] if gold.startswith("-") else f"-{gold}")
    if matrix := _MATRIX.fullmatch(gold):
        rows = [row.strip() for row in matrix[2].split(r"\\") if row.strip()]
        if len(set(rows)) > 1:
            changed = [[rows[-1], *rows[1:-1], rows[0]], rows[:-1]]
            found |= {f"{matrix[1]} {BREAK.join(some)} {matrix[3]}" for some in changed}
    if point := _TUPLE.fullmatch(gold):
        entries = [entry.strip() for entry in point[2].split(",")]
        if entries[0] != entries[-1]:
            found.add(f"({', '.join([entries[-1], *entries[1:-1], entries[0]])})")
    return found - {gold}


def mutated_cases(family: str, golds: Iterable[str]) -> Iterator[Case]:
    """Spellings and mutations of golds, each distinct gold once."""
    for gold in sorted(set(golds)):
        rng = random.Random(f"{SEED}/{gold}")
        for right, answers in ((True, spellings(gold)), (False, mutations(gold, rng))):
            yield from (Case(family, GradedPair(gold, answer), right) for answer in sorted(answers))


def golds_of(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Golds of the files that the folder has, by family."""
    for family, name in FILES.items():
        if (folder / name).exists():
            yield family, [question.gold for question in benchmarks.load(folder / name, family=family)]


# ---- verdicts


def ours(cases: list[Case]) -> list[bool]:
    """Verdicts of grader ``math``; unknown ones count as wrong."""
    return [bool(verdict.correct) for verdict in Math(Limits(5.0)).grade([case.pair for case in cases])]


def by_itself(cases: list[Case]) -> list[bool]:
    """Verdicts of math-verify."""
    from math_verify import parse, verify  # noqa: PLC0415 - takes seconds

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    return [verify(*(parse(f"${text}$") for text in case.pair)) for case in cases]


def main() -> None:
    """Judge all answers by both and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--benchmarks", type=Path, help="folder of benchmark files; without it, the table alone")
    parser.add_argument("--output", type=Path, help="CSV file")
    parser.add_argument("--wrong", action="store_true", help="print the answers that grader math judges wrongly")
    options = parser.parse_args()
    cases = list(table_cases())
    for family, golds in golds_of(options.benchmarks) if options.benchmarks else ():
        cases += mutated_cases(family, golds)
    verdicts = {"math": ours(cases), "math-verify": by_itself(cases)}
    sizes = Counter((case.group, case.right) for case in cases)
    rows = []
    for group in dict.fromkeys(case.group for case in cases):
        row = {"answers": group, "right": sizes[group, True], "wrong": sizes[group, False]}
        for name, given in verdicts.items():
            errors = Counter(
                c.right for c, verdict in zip(cases, given, strict=True) if c.group == group and verdict != c.right
            )
            row |= {f"{name} rejects right": errors[True], f"{name} accepts wrong": errors[False]}
        rows.append(row)
        print(row, flush=True)
    if options.wrong:
        for case, verdict in zip(cases, verdicts["math"], strict=True):
            if verdict != case.right:
                print("rejected" if case.right else "ACCEPTED", case.group, *case.pair, sep=" | ")
    if options.output:
        with options.output.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
