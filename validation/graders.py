r"""How often do grader ``math`` and math-verify by itself judge an answer wrongly?

    python validation/graders.py --benchmarks FOLDER --output docs/graders.csv
    python validation/graders.py --exam --output docs/exam.csv

``--exam`` judges the pairs of ``validation/exam``, by an author who had not seen the graders, by ``math``, ``simplerl``
and math-verify, and its texts by three rules that find answers. The other sets of answers with known truth are three:

* ``table``: ``tests/data/answers.jsonl``, answers of all kinds that we wrote.
* The golds of each benchmark file in a folder, each in other spellings, which are right, and with a digit changed, the
  sign changed, two entries swapped or a row dropped, which is wrong.
* ``texts``: the same golds at the end of texts, as prompts ask for them; so both also have to find the answer.

math-verify gets each answer as ``$...$``, as its documentation shows, and each text as it is. Both get the gold first.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from searchlens import benchmarks, grading
from searchlens.grading import Extraction, GradedPair, Grader
from searchlens.grading.math import Math
from searchlens.grading.processes import Limits

TABLE = Path(__file__).parents[1] / "tests" / "data" / "answers.jsonl"
EXAM = Path(__file__).parent / "exam"
FILES = {
    "math500": "math500.jsonl",
    "aime24": "aime24.jsonl",
    "aime25": "aime25.jsonl",
    "amc23": "amc23.jsonl",
    "minerva": "minerva_math.jsonl",
    "olympiadbench": "olympiadbench.jsonl",
    "rltrain_hard": "rltrain_simplerl_hard_sample.jsonl",
}
"""Families and files of golds that are formulas, numbers or words."""
SEED = 1
BREAK = r" \\ "
PATIENCE = 30
"""Seconds that math-verify may take to read or compare an answer; its default is 5."""
TEXTS = (
    r"So the result is $\boxed{%s}$.",
    r"So we get \fbox{%s}.",
    "So we are done.\nANSWER: $%s$",
    "**Final Answer**: $%s$",
    "Final Answer: The final answer is $%s$. I hope it is correct.",
    "Therefore the answer is\n\\[ %s \\]",
    "<think>We try it.</think> <answer>$%s$</answer>",
)
"""Ends of finished texts, as prompts ask for them."""


class Case(NamedTuple):
    """An answer to a question, or a text that ends in one, and whether it is right."""

    group: str
    pair: GradedPair
    right: bool
    text: bool = False


# ---- the exam


def exam_pairs(name: str) -> list[Case]:
    """Pairs of a file by kind; right is what the benchmarks' convention says where that differs from mathematics."""
    with (EXAM / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Case(
            f"{name}: {row['kind']}",
            GradedPair(row["gold"], row["answer"]),
            (row["convention"] or row["right"]) == "yes",
        )
        for row in rows
    ]


def by_boxes(grader: Grader, text: str) -> Extraction:
    """As the grader finds an answer, but a box beats all words."""
    boxed = grader.extract(text, False)  # of a text that was cut, boxes alone count
    return boxed if boxed.answer is not None else grader.extract(text, True)


RULES: dict[str, Callable[[Grader, str], Extraction]] = {
    "wide": lambda grader, text: grader.extract(text, True),
    "narrow": lambda grader, text: grader.guide(text, True),
    "boxes first": by_boxes,
}
"""How ``math`` and ``choice``, ``math-narrow`` and ``choice-narrow``, and a rule between both find answers in texts."""


def found(rows: list[dict[str, Any]], rule: str) -> list[bool]:
    """Whether the answer that a rule finds in a text is the stated one."""
    graders = {name: grading.grader(name) for name in ("math", "choice")}
    answers = [RULES[rule](graders[row["grader"]], row["text"]).answer for row in rows]
    judged = [place for place, row in enumerate(rows) if row["answer"] is not None and answers[place] is not None]
    right = {place for place, row in enumerate(rows) if row["answer"] is None and answers[place] is None}
    for name, grader in graders.items():
        places = [place for place in judged if rows[place]["grader"] == name]
        verdicts = grader.grade([GradedPair(rows[place]["answer"], str(answers[place])) for place in places])
        right |= {place for place, verdict in zip(places, verdicts, strict=True) if verdict.correct}
    return [place in right for place in range(len(rows))]


def graded(name: str, cases: list[Case]) -> list[bool]:
    """Verdicts of a grader on pairs, with golds as it reads them."""
    grader = grading.grader(name)
    references = [grader.reference(benchmarks.Question("", "", case.pair.gold)) for case in cases]
    pairs = [GradedPair(gold, case.pair.answer) for gold, case in zip(references, cases, strict=True)]
    return [bool(verdict.correct) for verdict in grader.grade(pairs)]


def exam() -> list[dict[str, Any]]:
    """Errors by kind and grader, and by rule texts whose answer is not found, or that state none."""
    rows: list[dict[str, Any]] = []
    for name in ("pairs", "noted"):
        cases = exam_pairs(name)
        verdicts = {grader: graded(grader, cases) for grader in ("math", "simplerl")}
        verdicts["math-verify"] = by_itself(cases)
        for group in dict.fromkeys([f"{name}: all", *(case.group for case in cases)]):
            inside = [place for place, case in enumerate(cases) if group in (case.group, f"{name}: all")]
            rows.append({"kind": group, "pairs": len(inside), **errors_in(cases, verdicts, inside)})
    # Each text with what it states: ``answer``, null for nothing.
    with gzip.open(EXAM / "texts.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line) for line in lines]
    right = {rule: found(texts, rule) for rule in RULES}
    for kind in dict.fromkeys(["all", *(text["kind"] for text in texts)]):
        inside = [place for place, text in enumerate(texts) if kind in ("all", text["kind"])]
        row = {"kind": f"texts: {kind}", "pairs": len(inside)}
        for rule, good in right.items():
            errors = Counter(texts[place]["answer"] is None for place in inside if not good[place])
            row |= {f"{rule} misses stated": errors[False], f"{rule} takes unstated": errors[True]}
        rows.append(row)
    return rows


# ---- golds


def golds_of(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Golds of the files that the folder has, by family or, of word problems, by file."""
    for family, name in FILES.items():
        if (folder / name).exists():
            yield family, loaded(folder / name, family)
    for group, (name, golds) in WORD_PROBLEMS.items():
        if (folder / name).exists():
            distinct = sorted(set(golds(folder / name)))
            yield group, random.Random(SEED).sample(distinct, min(MOST, len(distinct)))


def loaded(path: Path, family: str) -> list[str]:
    """Golds as a study reads them."""
    return [question.gold for question in benchmarks.read([path], family=family, check=False).questions]


def gsm8k(path: Path) -> list[str]:
    """Golds of GSM8K: what stands behind ``####``, such as ``1,080``."""
    return [json.loads(line)["answer"].rpartition("####")[2].strip() for line in path.read_text().splitlines()]


WORD_PROBLEMS = {
    "gsm8k_test": ("gsm8k_test.jsonl", gsm8k),
    "gsm8k_train": ("gsm8k_train.jsonl", gsm8k),
    "svamp": ("svamp.json", partial(loaded, family="svamp")),
    "mawps_dev": ("mawps_fold0_dev.csv", partial(loaded, family="mawps")),
    "mawps_train": ("mawps_fold0_train.csv", partial(loaded, family="mawps")),
}
"""Files of word problems, with the functions that read their golds."""
MOST = 200
"""Most golds of a file of word problems, drawn at random: they are numbers, nearly all integers."""


# ---- cases


def table_cases() -> Iterator[Case]:
    """The answers of the table."""
    for line in TABLE.read_text().splitlines():
        group = json.loads(line)
        for side in ("right", "wrong"):
            for answer in group[side]:
                yield Case("table", GradedPair(group["gold"], answer), side == "right")


_INTEGER = re.compile(r"-?\d{1,15}")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+")
_FRACTION = re.compile(r"(-?)\\d?frac\{(\d+)\}\{(\d+)\}")
_TOO_SMALL = re.compile(r"\.\d{5,}\Z")  # decimals are compared to six places
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
    if _THOUSANDS.fullmatch(gold):
        found |= {gold.replace(",", ""), gold.replace(",", "{,}"), rf"\${gold}"}
    if fraction := _FRACTION.fullmatch(gold):
        sign, above, below = fraction.groups()
        found |= {f"{sign}{above}/{below}", rf"{sign}\frac{{{2 * int(above)}}}{{{2 * int(below)}}}"}
    if matrix := _MATRIX.fullmatch(gold):
        found |= {rf"\begin{{bmatrix}}{matrix[2]}\end{{bmatrix}}", rf"\begin{{pmatrix}}{matrix[2]}\\\end{{pmatrix}}"}
    return found


def mutations(gold: str, rng: random.Random) -> set[str]:
    """Wrong answers that differ from the gold in one place."""
    found: set[str] = set()
    digits = [match.start() for match in re.finditer(r"\d", gold) if not _TOO_SMALL.search(gold[: match.start()])]
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


def text_cases(family: str, golds: Iterable[str]) -> Iterator[Case]:
    """Texts that end in each distinct gold, and in one of its mutations."""
    for gold in sorted(set(golds)):
        wrong = sorted(mutations(gold, random.Random(f"{SEED}/{gold}")))[:1]
        for answer in (gold, *wrong):
            pairs = (GradedPair(gold, text % answer) for text in TEXTS)
            yield from (Case(f"{family}, texts", pair, answer == gold, True) for pair in pairs)


# ---- verdicts


def ours(cases: list[Case]) -> list[bool]:
    """Verdicts of grader ``math``; unknown ones and texts without an answer count as wrong."""
    math = Math(Limits(5.0))
    answers = [math.extract(case.pair.answer, True).answer if case.text else case.pair.answer for case in cases]
    stated = [(place, answer) for place, answer in enumerate(answers) if answer is not None]
    verdicts = math.grade([GradedPair(cases[place].pair.gold, answer) for place, answer in stated])
    correct = {place for (place, _), verdict in zip(stated, verdicts, strict=True) if verdict.correct}
    return [place in correct for place in range(len(cases))]


def by_itself(cases: list[Case]) -> list[bool]:
    """Verdicts of math-verify."""
    from math_verify import parse, verify  # noqa: PLC0415 - takes seconds

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    read = partial(parse, parsing_timeout=PATIENCE)  # a busy machine must not decide
    golds = {gold: read(f"${gold}$") for gold in {case.pair.gold for case in cases}}
    answers = (read(case.pair.answer if case.text else f"${case.pair.answer}$") for case in cases)
    return [
        verify(golds[case.pair.gold], answer, timeout_seconds=PATIENCE)
        for case, answer in zip(cases, answers, strict=True)
    ]


def main() -> None:
    """Judge all answers by both and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--benchmarks", type=Path, help="folder of benchmark files; without it, the table alone")
    parser.add_argument("--output", type=Path, help="CSV file")
    parser.add_argument("--exam", action="store_true", help="the pairs and texts of validation/exam instead")
    options = parser.parse_args()
    rows = exam() if options.exam else compared(options)
    if options.output:
        with options.output.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def errors_in(cases: list[Case], verdicts: dict[str, list[bool]], places: list[int]) -> dict[str, int]:
    """How often each grader errs at some places."""
    found: dict[str, int] = {}
    for name, given in verdicts.items():
        errors = Counter(cases[place].right for place in places if given[place] != cases[place].right)
        found |= {f"{name} rejects right": errors[True], f"{name} accepts wrong": errors[False]}
    return found


def compared(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Errors of ``math`` and math-verify on the table, and on golds and texts of benchmark files."""
    cases = list(table_cases())
    for family, golds in golds_of(options.benchmarks) if options.benchmarks else ():
        cases += [*mutated_cases(family, golds), *text_cases(family, golds)]
    verdicts = {"math": ours(cases), "math-verify": by_itself(cases)}
    sizes = Counter((case.group, case.right) for case in cases)
    rows = []
    for group in dict.fromkeys(case.group for case in cases):
        inside = [place for place, case in enumerate(cases) if case.group == group]
        row = {"answers": group, "right": sizes[group, True], "wrong": sizes[group, False]}
        rows.append(row | errors_in(cases, verdicts, inside))
        print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    main()
