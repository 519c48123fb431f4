"""Faults at calls on the disk with the real engine and Snakemake: a job of a run meets one, and the run is repeated.

python tests/faults/real.py [--points N] [--seed S] [--part I/N] [--processes P]

A point is one call of the sampling or the grading job of Base of the micro pair, and one of four faults: the process
dies before or after the call, the disk is full, the disk fails. `snakemake` is given twice: in the first run one job
meets the fault, the second must end well, draw nothing again that was in a finished chunk, and leave the bytes of an
undisturbed run. A point takes some ten seconds of processor time, most of them for starts of processes.
"""

import argparse
import copy
import hashlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "slurm"))  # whose `study` has real checkpoints and runs of Snakemake

from injected import FAULTS, Fault
from parts import part_of, processor_time, slice_of
from searchlens.cli.verify import verify
from study import Study, micro_study

BASE = "micro-1m-base"
SCORES = f"results/scores/{BASE}/math.parquet"


class Point(NamedTuple):
    """One fault: at which call of which command."""

    command: str
    at: int
    fault: Fault


@dataclass
class Outcome:
    """What came of a point: the first exit status, whether the call was reached, and what is wrong."""

    point: Point
    status: int
    reached: bool
    wrong: list[str]


class Harness:
    """An undisturbed run, its calls, and points, each tried from where its job begins.

    Parameters
    ----------
    root : Path
        A new folder.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.calls, self.content = root, dict[str, int](), dict[str, dict[str, str]]()
        self.study = Study(root / "undisturbed", micro_study(questions=4, samples=4, chunk_samples=8))
        (root / "bin").mkdir()
        (root / "bin" / "searchlens").symlink_to(HERE / "disturbed.py")
        self.study.environment["PATH"] = f"{root / 'bin'}:{self.study.environment['PATH']}"
        self.targets = {"generate": self.study.manifest(BASE), "score": SCORES}
        for command in self.targets:
            shutil.copytree(self.study.path, root / command, symlinks=True)
            assert self._run(self.study, Point(command, 0, "EIO")) == 0, self.study.log()
            self.calls[command] = len(_calls(self.study))
            (self.study.path / "calls.txt").unlink()
            self.content[command] = _content(self.study)
        self.rows = self.study.kept()

    def _run(self, study: Study, point: Point, *, disturbed: bool = True) -> int:
        """Exit status of Snakemake."""
        study.environment["DISTURBED"] = ":".join(map(str, point)) if disturbed else "none:0:"
        return study.start("--cores", "1", self.targets[point.command]).wait(900)

    def point(self, seed: int, number: int) -> Point:
        """A call by its share of the calls, whose number differs from run to run: a job records its state by time."""
        chance = random.Random(f"{seed}:{number}")
        command = chance.choices(list(self.calls), weights=list(self.calls.values()))[0]
        return Point(command, 1 + int(chance.random() * self.calls[command]), chance.choice(FAULTS))

    def attempt(self, point: Point) -> Outcome:
        """Try one point; its folder stays if something is wrong."""
        study = copy.copy(self.study)
        study.path = self.root / "-".join(map(str, point)).replace(" ", "-")
        study.environment = dict(study.environment)
        shutil.copytree(self.root / point.command, study.path, symlinks=True)
        status = self._run(study, point)
        calls = _calls(study)
        wrong = _left(study, point, calls) + _damage(study)
        wrong += ["a traceback"] if "Traceback" in study.log() else []
        kept = study.kept()
        for log in study.path.glob("logs/**/*.log"):
            log.unlink()  # those of the second run say what it drew
        again = self._run(study, point, disturbed=False)
        wrong += [f"the second run ended with {again}"] if again else []
        drawn = sum(study.drawn())
        wrong += [f"{drawn} samples drawn, {kept} of {self.rows} were kept"] if drawn > self.rows - kept else []
        wrong += [] if _content(study) == self.content[point.command] else ["other files than an undisturbed run"]
        wrong += _damage(study)
        if not wrong:
            shutil.rmtree(study.path)
        return Outcome(point, status, len(calls) >= point.at, wrong)


def _calls(study: Study) -> list[str]:
    return (study.path / "calls.txt").read_text().split()


def _left(study: Study, point: Point, calls: list[str]) -> list[str]:
    """Temporary files: a process that dies may leave one, another none but the one that it could not remove."""
    left = [path.name for path in (study.path / "results").rglob("*.tmp")]
    may_leave = point.fault.startswith("die") or calls[point.at - 1 : point.at] == ["unlink"]
    return [f"temporary files {left}"] if len(left) > may_leave else []


def _damage(study: Study) -> list[str]:
    if not (study.path / "results" / "generations").exists():
        return []
    return [f"verify: {line}" for line in verify(study.path / "results").damaged]


def _content(study: Study) -> dict[str, str]:
    """sha256 of every Parquet file."""
    results = study.path / "results"
    paths = sorted(results.rglob("*.parquet"))
    return {str(path.relative_to(results)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def main() -> int:
    """Try points by seed; the number of violations decides the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--part", type=part_of, default=(1, 1), metavar="I/N", help="only this part of them, such as 1/4"
    )
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args()
    root, started = Path(tempfile.mkdtemp(prefix="searchlens-real-")), time.monotonic()
    harness = Harness(root)
    chosen = [harness.point(asked.seed, number) for number in slice_of(range(asked.points), asked.part)]
    with ThreadPoolExecutor(asked.processes) as pool:
        outcomes = list(pool.map(harness.attempt, chosen))
    tally = Counter((one.point.command, one.point.fault, "failed" if one.status else "went on") for one in outcomes)
    for key, count in sorted(tally.items()):
        print(count, *key)
    wrong = [f"{one.point}: {line}" for one in outcomes for line in one.wrong]
    missed = sum(not one.reached for one in outcomes)
    print(f"{len(outcomes)} points, {len(set(chosen))} different ones, of {harness.calls} calls and four faults")
    print(f"{missed} not reached, {len(wrong)} violations")
    print(f"{time.monotonic() - started:.0f} s, {processor_time():.0f} of processor time")
    print(*wrong, sep="\n")
    if wrong:
        print(f"see {root}")
    else:
        shutil.rmtree(root)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
