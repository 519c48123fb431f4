"""Time of two commands: `searchlens compare` of two folders of logs, and `snakemake -n` of a large study.

    python perf/commands.py

**Compare.** Two models with texts of 1.5 kB, as lm-evaluation-harness writes them; a third of the golds are integers, a
third fractions and a third roots. The baseline in the same run is the least that any program must do: parse the JSON,
find the answers, and judge each distinct pair of gold and answer once, in the same processes. Goal: at most 60 s on 2
cores. Processor seconds are those of all processes; wall seconds depend on the load of the machine.

**Plan.** Studies of 20 checkpoints x 10 benchmarks x 32 policies, of which nothing is sampled yet. The baseline in the
same run is the layout that most workflows have, one job per policy (``pool_size: 1``), on the same grid. Goal: at most
8 s on 2 cores. Memory is that of a study of 6,080 jobs (40 checkpoints, 38 benchmarks); goal: at most 500 MB. The
process that then starts the jobs needs no more: it has made the same plan. Ratio and goal are in CPU seconds, since a
dry run uses one core.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import OURS, Spent, command, save, spent, study

from searchlens.grading import GradedPair, grader

ROOT = Path(__file__).parents[1]
WORDS = ("consider", "the", "equation", "then", "we", "simplify", "both", "sides", "and", "obtain", "that")
QUESTIONS, SAMPLES = 500, 64
GOAL = 60
_SUBREAPER = 36
"""``PR_SET_CHILD_SUBREAPER``: processes whose parent ended become ours, so that their time is counted."""


def answer_of(kind: int, number: int) -> str:
    """An integer, a fraction or a root."""
    return [str(number), rf"\frac{{{number + 1}}}{{{number + 2}}}", rf"{number + 1}\sqrt{{{number + 2}}}"][kind % 3]


def write(folder: Path, lift: int) -> Path:
    """Logs of one model; ``lift`` times the chances of a right answer of one sample."""
    folder.mkdir()
    chances, rng = random.Random(0), random.Random(lift)
    with (folder / "samples_sums_2026-01-01T00-00-00.000000.jsonl").open("w") as file:
        for i in range(QUESTIONS):
            chance = 1 - (1 - chances.betavariate(0.4, 1.0)) ** lift
            gold = answer_of(i, i)
            texts = []
            for _ in range(SAMPLES):
                is_right = rng.random() < chance
                answer = gold if is_right else answer_of(i, i + 1 + min(int(rng.expovariate(0.3)), 40))
                end = rf" so the answer is \boxed{{{answer}}}." if rng.random() < 0.95 else ""
                texts.append(" ".join(rng.choices(WORDS, k=270)) + end)
            doc = {"question": f"What is the value of number {i}?", "answer": gold}
            request = {"arg_0": doc["question"], "arg_1": {"do_sample": True, "temperature": 1.0, "top_p": 1.0}}
            row = {"doc_id": i, "doc": doc, "target": gold, "arguments": {"gen_args_0": request}, "resps": [texts]}
            file.write(json.dumps({**row, "filtered_resps": texts[:1], "filter": "none", "metrics": []}) + "\n")
    return folder


def run(words: list[str]) -> None:
    """Run a command, and wait for all processes that it started."""
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:  # what the command left behind: the server of its worker processes
        try:
            os.wait()
        except ChildProcessError:
            break


def baseline(folders: list[Path]) -> None:
    """Parse, find answers, and judge each distinct pair once."""
    judge, pairs = grader("math"), set()
    for folder in folders:
        for path in folder.iterdir():
            for line in path.read_text().splitlines():
                row = json.loads(line)
                answers = {judge.extract(text, True).answer for text in row["resps"][0]}
                pairs |= {GradedPair(row["target"], answer) for answer in answers if answer is not None}
    judge.grade(sorted(pairs), workers=len(os.sched_getaffinity(0)))


def _dry_run(folder: Path) -> tuple[Spent, int]:
    """What planning the study of a folder takes, and its number of generation jobs."""
    where = ("--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder))
    text, took = command(["snakemake", "-n", "--quiet", "rules", "--cores", "2", *where], folder)
    jobs = [line.split()[1] for line in text.splitlines() if line.startswith("generate ")]
    return took, int(jobs[0])


def plan() -> None:
    """Measure our layout three times, and the baseline, which takes four times as long, once."""
    sizes = {"policies": 32, "questions": 500}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = study(folder, pairs=10, benchmarks=10, **sizes)
        save(folder, settings)
        ours, jobs = sorted(_dry_run(folder) for _ in range(3))[1]
        save(folder, {**settings, "pool_size": 1})
        naive, of_one = _dry_run(folder)
    with tempfile.TemporaryDirectory() as name:
        save(Path(name), study(Path(name), pairs=20, benchmarks=38, **sizes))
        large, of_all = _dry_run(Path(name))
    print(f"pools of 32 policies: {ours} for {jobs} generation jobs")
    print(f"one job per policy (baseline): {naive} for {of_one} generation jobs")
    megabytes = large.peak / 1e3
    verdict = "met" if megabytes <= 500 else "missed"
    print(f"memory at {of_all:,} generation jobs, 6,080 in all: {megabytes:.0f} MB; goal <= 500 MB: {verdict}")
    print(f"ratio: {naive.cpu / ours.cpu:.1f}x; goal <= 8 s: {'met' if ours.cpu <= 8 else 'missed'}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--baseline", nargs=2, type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.baseline:
        baseline(args.baseline)
        return
    plan()
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as place:
        folders = [write(Path(place, name), lift) for name, lift in (("a", 1), ("b", 2))]
        names = [str(folder) for folder in folders]
        least = spent(lambda: run([sys.executable, __file__, "--baseline", *names]))[1]
        ours = spent(lambda: run([*OURS, "compare", names[0], "--against", names[1], "--json"]))[1]
    print(f"{QUESTIONS} questions x {SAMPLES} samples x 2 models, {len(os.sched_getaffinity(0))} cores")
    for title, took in (("reading and grading alone", least), ("searchlens compare", ours)):
        print(f"{title:<26} {took.wall:6.1f} s wall, {took.cpu:6.1f} s of processors")
    print(f"{'ratio':<26} {ours.wall / least.wall:6.1f}        {ours.cpu / least.cpu:6.1f}")
    print(f"goal: at most {GOAL} s on idle cores, which is {GOAL * len(os.sched_getaffinity(0))} s of processors")


if __name__ == "__main__":
    main()
