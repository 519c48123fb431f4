"""Time and memory of grading ten million answers.

    python perf/grading.py [--scale 1]

The answers of four benchmarks of 500 questions, with 14 checkpoints, 24 policies and 16 samples: 10.75 million rows in
56 cells, scored as a study scores them, two cells at a time with one worker each. Right answers, wrong answers and
spellings are drawn by rank from the possible answers to each question, so that at least 4% of the rows are distinct.
Half of the golds are integers, the others fractions, roots, tuples, intervals, polynomials and words. Of the rows, 2%
are hostile.

Cold: the table of verdicts is empty. Known: every verdict is in the table. The baseline is the simplest program:
math-verify on every row, in the same processes with the same limits. It runs on a sample of rows and is extrapolated
linearly. Goals at full scale: cold at most 25 minutes, known at most 1 minute, memory that does not grow with the
number of cells. ``--scale`` is the share of the questions. Wall seconds depend on the load of the machine, processor
seconds less so.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import polars as pl
import psutil

from searchlens.benchmarks import Question
from searchlens.grading import GradedPair, grader, processes
from searchlens.grading.score import SAMPLES, Rules, Summary, found_answers

BENCHMARKS, CHECKPOINTS, QUESTIONS, POLICIES, DRAWS = 4, 14, 500, 24, 16
JOBS = 2
SPELLINGS = 240
"""Possible answers to one question."""
HOSTILE_SHARE = 0.02
COLD, KNOWN = ("cold", 25 * 60), ("known", 60)
"""Goals in seconds at full scale."""
SAMPLE = 2_000
"""Rows of the baseline."""
SEED = 1

# ---- answers

Rng = random.Random
WORDS = ("red", "blue", "Evelyn", "none", "east", "north", "odd", "even")


def fraction(rng: Rng) -> str:
    return rf"\frac{{{rng.randint(1, 99)}}}{{{rng.randint(2, 99)}}}"


def interval(rng: Rng) -> str:
    low = rng.randint(-99, 99)
    return rng.choice([rf"[{low}, {low + rng.randint(1, 99)})", rf"({low}, \infty)"])


KINDS: tuple[tuple[int, Callable[[Rng], str]], ...] = (
    (50, lambda rng: str(rng.randint(-99, 9999))),
    (18, fraction),
    (10, lambda rng: rf"{rng.randint(2, 30)}\sqrt{{{rng.randint(2, 99)}}}"),
    (8, lambda rng: rf"\left({rng.randint(-99, 99)}, {fraction(rng)}\right)"),
    (6, interval),
    (4, lambda rng: rf"{rng.randint(2, 99)}x^2{rng.randint(1, 99):+d}x{rng.randint(-99, 99):+d}"),
    (4, lambda rng: rf"\text{{{rng.choice(WORDS)} {rng.randint(1, 99)}}}"),
)
"""Percentage of gold answers, and how one of the kind is made."""


def respelled(answer: str, rng: Rng) -> str:
    """The same answer as another sample may write it."""
    spellings = [answer, f" {answer} ", f"{answer}.", rf"\left. {answer} \right.", f"${answer}$", f"x={answer}"]
    spellings += [rf"{answer}\text{{ cm}}", answer.replace(r"\frac", r"\dfrac"), f"{{{answer}}}", f"+{answer}"]
    return rng.choice(spellings)


def hostile(rng: Rng) -> str:
    """An answer that is hard to parse or to compare."""
    n = rng.randint(3, 99)
    towers = [rf"10^{{10^{{{n}}}}}", rf"9^{{9^{{9^{{{n}}}}}}}", rf"2^{{{n}^{{10}}}}", f"x^{n}" * 40]
    factorials = [rf"({n}^9)!", f"({n * 10**6})!", f"((1{n}!)!)!", rf"\binom{{{n}^9}}{{{n}00000}}"]
    nested = [
        "(" * (n + 30) + "1" + ")" * (n + 30),
        r"\frac{1}{1+" * n + "x" + "}" * n,
        r"\sqrt{1+" * n + "x" + "}" * n,
    ]
    long = ["{" * 10_000 + f"{n}" + "}" * 10_000, ", ".join(map(str, range(n, 10_000))), "7" * (5_000 + n)]
    looping = [", ".join(map(str, range(n, n + 100))), "1" + "+1" * n, "0." + "3" * (400 + n), " ".join(["wait"] * n)]
    slow = [rf"\sum_{{k=1}}^{{{n}0000000}} \sin k", rf"(x+y+z+w+1)^{{{n + 100}}}"]
    characters = [f"{n}\x00", f"\u202e{n}\u202c", "\U0001f600" * n, "|" * n, r"\pm " * n, "-", r"\ "]
    markers = [f"sha256:{n:064}", "gold", "~gold", "null", "NaN", rf"\text{{final answer is ${n}$. I hope}}", "exit(1)"]
    broken = [r"\left(\frac{\right)\sqrt[{}" * (n // 6), rf"\begin{{pmatrix}}1&2\\{n}\end{{pmatrix}}"]
    return rng.choice(rng.choice([towers, factorials, nested, long, looping, slow, characters, markers, broken]))


def possible_answers(count: int, benchmark: int) -> tuple[list[str], np.ndarray[tuple[int, int], np.dtype[np.object_]]]:
    """Golds, and the possible answers to each question, the likeliest first."""
    golds, table = [], np.empty((count, SPELLINGS), dtype=object)
    for q in range(count):
        rng = Rng(f"{SEED}/{benchmark}/{q}")
        kind = rng.choices([make for _, make in KINDS], [percent for percent, _ in KINDS])[0]
        golds.append(kind(rng))
        for s in range(SPELLINGS):
            if rng.random() < HOSTILE_SHARE:
                table[q, s] = hostile(rng)
            else:
                table[q, s] = respelled(golds[q] if rng.random() < 0.15 or s == 0 else kind(rng), rng)
    return golds, table


@dataclass(frozen=True)
class Cell:
    """One checkpoint on one benchmark, with a number of questions."""

    benchmark: int
    checkpoint: int
    questions: int


def samples_of(cell: Cell) -> tuple[tuple[Question, ...], pl.DataFrame]:
    """One cell: a better checkpoint gives the likelier answers more often. A tenth of the texts have no box."""
    golds, table = possible_answers(cell.questions, cell.benchmark)
    rng = np.random.default_rng([SEED, cell.benchmark, cell.checkpoint])
    rows = POLICIES * cell.questions * DRAWS
    question = np.tile(np.repeat(np.arange(cell.questions), DRAWS), POLICIES)
    rank = np.minimum(SPELLINGS * rng.random(rows) ** (1.5 + cell.checkpoint / 10), SPELLINGS - 1).astype(int)
    answer = pl.Series("answer", table[question, rank].tolist(), pl.String)
    unboxed = rng.random(rows) < 0.1
    frame = pl.DataFrame({"answer": answer, "unboxed": unboxed, "number": np.arange(rows)}).select(
        pl.lit("p").add((pl.col("number") // (cell.questions * DRAWS)).cast(pl.String)).alias("policy"),
        pl.lit("q").add(pl.Series(question).cast(pl.String)).alias("question"),
        sample=pl.col("number") % DRAWS,
        run=pl.col("number") % DRAWS,
        text=pl.concat_str(
            pl.lit("Let us think step by step. "),
            pl.lit("So we get an expression and simplify it. " * 20),
            pl.col("number").cast(pl.String),
            pl.when("unboxed").then(pl.lit(" The answer is ")).otherwise(pl.lit(r" The answer is $\boxed{")),
            pl.col("answer"),
            pl.when("unboxed").then(pl.lit("")).otherwise(pl.lit("}$.")),
        ),
        tokens=pl.lit(200),
        generated=pl.lit(200),
        stopped=pl.lit(value=True),
        finish=pl.lit("stop"),
        score=pl.lit(-0.5),
    )
    questions = tuple(Question(f"q{i}", "?", gold) for i, gold in enumerate(golds))
    return questions, frame.cast(dict(SAMPLES))


# ---- measurements


@dataclass(frozen=True)
class Scored:
    """One cell: seconds without drawing the samples, its summary, and the peak memory of its process so far, in GiB."""

    wall: float
    cpu: float
    summary: Summary
    peak: float


def score_cell(folder: Path, cell: Cell) -> Scored:
    questions, samples = samples_of(cell)
    wall, cpu = time.perf_counter(), processor_seconds()
    rules = Rules(questions, "math", folder / f"benchmark{cell.benchmark}", workers=1)
    scored = rules.scored(found_answers(samples, "math"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return Scored(time.perf_counter() - wall, processor_seconds() - cpu, scored.summary, peak)


def processor_seconds() -> float:
    """Of this process and all processes that it started, including ended ones."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:4]) for process in family)


def run(folder: Path, cells: list[Cell]) -> list[Scored]:
    """All cells, two jobs at a time."""
    with ProcessPoolExecutor(JOBS, mp_context=get_context("spawn")) as jobs:
        return list(jobs.map(partial(score_cell, folder), cells))


def rowwise(cells: list[Cell]) -> float:
    """Seconds per row of math-verify on every row, with two workers and without a table of verdicts."""
    rng, extract = Rng(SEED), grader("math").extract
    pairs: list[GradedPair] = []
    for cell in cells:
        questions, samples = samples_of(cell)
        golds = {question.id: question.gold for question in questions}
        for _ in range(SAMPLE // len(cells)):
            row = samples.row(rng.randrange(samples.height), named=True)
            answer = extract(row["text"], True).answer
            if answer is not None:
                pairs.append(GradedPair(golds[row["question"]], answer))
    started = time.perf_counter()
    processes.judge("searchlens.grading.equality", pairs, processes.DEFAULT, JOBS)
    return (time.perf_counter() - started) / len(pairs)


def report(cells: list[Scored], scale: float, name: str, goal: float) -> float:
    """Print and return the seconds that two jobs took for all cells, without drawing the samples."""
    wall, cpu = (sum(getattr(cell, which) for cell in cells) for which in ("wall", "cpu"))
    print(f"{name}: {wall / JOBS:.1f} s of {JOBS} jobs, goal {goal * scale:.1f} s ({cpu:.1f} s of processor time)")
    return wall / JOBS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the questions")
    options = parser.parse_args()
    questions = max(1, round(QUESTIONS * options.scale))
    cells = [Cell(b, c, questions) for c in range(CHECKPOINTS) for b in range(BENCHMARKS)]
    rows = len(cells) * questions * POLICIES * DRAWS
    with tempfile.TemporaryDirectory() as folder:
        first, again = run(Path(folder), cells), run(Path(folder), cells)
    graded = sum(cell.summary.pairs_graded for cell in first)
    unknown = sum(cell.summary.unknown for cell in first)
    print(f"{rows:,} rows, {graded:,} pairs judged ({graded / rows:.1%}), {unknown:,} rows unknown, {JOBS} jobs")
    if any(cell.summary.pairs_graded for cell in again):
        raise SystemExit("pairs with a verdict in the table were judged again")
    cold, known = (report(part, options.scale, *goal) for part, goal in ((first, COLD), (again, KNOWN)))
    per_row = rowwise(cells[:: max(1, len(cells) // 8)])
    print(f"row by row: {per_row * 1e3:.1f} ms per row on {SAMPLE:,} rows, extrapolated {per_row * rows:,.0f} s:")
    print(f"  cold is {per_row * rows / cold:.0f} times as fast, known {per_row * rows / known:,.0f} times")
    peaks = [max(cell.peak for cell in part) for part in (first[: len(first) // 4], first)]
    print(f"peak memory of a job: {peaks[0]:.2f} GiB after a quarter of the cells, {peaks[1]:.2f} GiB after all")


if __name__ == "__main__":
    main()
