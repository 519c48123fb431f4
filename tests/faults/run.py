"""All faults that can be injected into the store: at every call, in every state of the disk, in any order of commands.

python tests/faults/run.py [--points N] [--states N] [--meetings N] [--workers N] [--steps N] [--reads N]
                           [--seed S] [--part I/N] [--processes P]

docs/testing.md has the figures.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # each of thousands of processes would start one for each core
sys.path.insert(0, str(Path(__file__).parent))

import company
import points
import reads
import states
import workers
from parts import Part, part_of, processor_time, slice_of


def faults(count: int | None, seed: int, part: Part, processes: int) -> tuple[str, int]:
    """Faults at calls; the figures in words, and the number of violations."""
    with points.new_root() as root:
        harness = points.Harness(root)
        every = harness.points()
        chosen = slice_of(every if count is None else points.sampled(every, count, seed), part)
        report = points.attempt_all(harness, chosen, processes)
        return f"{points.summary(report)}\nof {len(every)} points in all", len(report.violations)


def failures(count: int | None, seed: int, part: Part, processes: int) -> tuple[str, int]:
    """States after a power failure; the figures in words, and the number of violations."""
    with points.new_root() as root:
        survey = states.Survey(root)
        every = survey.states()
        places = range(len(every)) if count is None else random.Random(seed).sample(range(len(every)), count)
        chosen = slice_of([every[place] for place in sorted(places)], part)
        wrong = states.attempt_all(survey, chosen, processes)
        said = f"{len(chosen)} of {len(every)} states after {len(survey.calls)} calls, {len(wrong)} violations"
        return "\n".join([said, *wrong[:20]]), len(wrong)


def meetings(count: int, seed: int, part: Part, processes: int) -> tuple[str, int]:
    """Jobs of one pool at once; the figures in words, and the number of violations."""
    with points.new_root() as root:
        harness = points.Harness(root, company.WORK)
        seeds = slice_of([seed * 1_000_000 + i for i in range(count)], part)
        report = company.attempt_all(harness, seeds, 2 * processes)  # they wait most of the time
        said = f"{report.meetings} times {company.JOBS} jobs at once, {report.faults} faults among them"
        wrong = len(report.violations)
        return "\n".join([f"{said}, {wrong} violations", *report.violations[:20]]), wrong


def rounds(count: int, seed: int, part: Part, processes: int) -> tuple[str, int]:
    """Workers of which some are killed; the figures in words, and the number of violations."""
    with points.new_root() as root:
        seeds = slice_of([seed * 1_000_000 + i for i in range(count)], part)
        report = workers.attempt_all(workers.Rounds(root), seeds, processes)
        said = f"{report.rounds} rounds of {workers.WORKERS} workers, {workers.KILLED} of them killed"
        said += f", {report.begun_again} of these in a chunk: {report.lost} chunks lost, {report.doubled} doubled"
        wrong = len(report.violations)
        return "\n".join([f"{said}, {wrong} violations", *report.violations[:20]]), wrong


def orders(steps: int, seed: int, part: Part) -> tuple[str, int]:
    """Sequences of commands and damage; the figures in words. A violation is raised with the shortest sequence.

    Each part has a seed of its own.
    """
    import machine

    number, parts = part
    found = machine.explore(max(1, steps // parts // 20), 20, seed + number - 1)
    return f"{found['rules']} steps, {found['runs']} runs and {found['faults']} faults among them, 0 violations", 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, help="faults at calls (default: all)")
    parser.add_argument("--states", type=int, help="states of the disk (default: all)")
    parser.add_argument("--meetings", type=int, default=500, help="meetings of three jobs (default: 500)")
    parser.add_argument("--workers", type=int, default=100, help="rounds of four workers (default: 100)")
    parser.add_argument("--steps", type=int, default=10_000, help="steps of the state machine (default: 10,000)")
    parser.add_argument("--reads", type=int, default=800, help="failing reads (default: 800)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", type=part_of, default=(1, 1), metavar="I/N", help="only this part of it, such as 1/4")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def main() -> int:
    """Run all of them; the number of violations decides the exit status."""
    asked, violations = _arguments(), 0
    parts: list[tuple[int | None, Callable[[], tuple[str, int]]]] = [
        (asked.points, lambda: faults(asked.points, asked.seed, asked.part, asked.processes)),
        (asked.states, lambda: failures(asked.states, asked.seed, asked.part, asked.processes)),
        (asked.meetings, lambda: meetings(asked.meetings, asked.seed, asked.part, asked.processes)),
        (asked.workers, lambda: rounds(asked.workers, asked.seed, asked.part, asked.processes)),
        (asked.steps, lambda: orders(asked.steps, asked.seed, asked.part)),
    ]
    for count, part in parts:
        if count == 0:
            continue
        started, spent = time.monotonic(), processor_time()
        said, wrong = part()
        cpu = processor_time() - spent
        print(f"{said}\n{time.monotonic() - started:.0f} s, {cpu:.0f} of processor time", flush=True)
        violations += wrong
    if asked.reads:  # in a process of its own, and last: its last line is JSON
        program = [str(Path(reads.__file__)), "--count", str(asked.reads), "--seed", str(asked.seed)]
        violations += reads.again_preloaded(*program, "--processes", str(asked.processes))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
