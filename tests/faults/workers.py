"""Workers on one study, of which some are killed at random moments: no chunk is lost, and none is drawn twice.

Every request that an engine answers is noted with the process. A request that two processes answered is a doubled one,
unless all but one of them were killed before they saved its chunk.
"""

import json
import math
import os
import random
import shutil
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import points
import study
from parts import in_processes
from points import in_fork
from searchlens.cli import run as cli_run

WORKERS, KILLED = 4, 2
SAMPLES = 8
"""Of each question, so every chunk is one question of a policy."""
STEP = 0.002
"""Seconds of a request."""


@dataclass
class Report:
    """What came of all rounds: chunks that were not there in the end, requests answered twice, and chunks cut short."""

    rounds: int = 0
    lost: int = 0
    doubled: int = 0
    begun_again: int = 0
    violations: list[str] = field(default_factory=list)


class Noted(study.Scripted):
    """The scripted engine, slower; it notes each request that it answers."""

    def __init__(self, notes: Path, checkpoint: str, *, repeatable: bool) -> None:
        super().__init__(study.Counter(), repeatable=repeatable)
        self._checkpoint = checkpoint
        self._notes = os.open(notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def step(self) -> Any:
        time.sleep(STEP)
        request = f"{self._checkpoint}/{self._waiting[0][1].seed}"
        os.write(self._notes, f"{time.monotonic()} {os.getpid()} {request}\n".encode())
        return super().step()


def _work(folder: Path, *, repeatable: bool) -> int:
    study.script(study.Counter())
    cli_run.require_engines = lambda _: None  # the engine of the study is not installed
    study.stage._job.start_engine = lambda path, *_, **__: Noted(folder / "notes", path.name, repeatable=repeatable)
    os.dup2(os.open(folder / f"said{os.getpid()}", os.O_CREAT | os.O_WRONLY), 2)
    os.chdir(folder)
    return study.run("work")


class Rounds:
    """A study that was sampled by one worker, and rounds of several on copies of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("new", "undisturbed"):
            study.found(root / name)
            policies = ["temp_0.5", "topp0.95_t1.0", "topp0.9_t0.7"]
            changes = {"pool_size": 4, "pools": {"some": policies}}  # one pool for each cell, so that workers meet
            raw = study.raw(samples=SAMPLES, chunk_samples=SAMPLES, **changes)
            raw["checkpoints"]["toy-rl"]["seed"] = (
                1  # it has the weights of the other, whose samples it would take over
            )
            study.configure(root / name, raw)
        started = time.monotonic()
        points.in_fork(lambda: _work(root / "undisturbed", repeatable=True))
        self.seconds = time.monotonic() - started
        self.content = study.content(root / "undisturbed")

    def play(self, number: int, seed: int) -> dict[str, Any]:
        """One round: workers start at once, some are killed by seed; then what is wrong."""
        folder, chance = self.root / f"round{number}", random.Random(seed)
        shutil.copytree(self.root / "new", folder, symlinks=True)
        repeatable = chance.random() < 0.7
        moments = sorted(chance.uniform(0, 0.6 * self.seconds) for _ in range(KILLED))
        pids = []
        for _ in range(WORKERS):
            if (pid := os.fork()) == 0:
                os._exit(points.guarded(lambda: _work(folder, repeatable=repeatable)))
            pids.append(pid)
        gone, started = dict[int, float](), time.monotonic()
        for pid, moment in zip(pids, moments, strict=False):
            time.sleep(max(0.0, started + moment - time.monotonic()))
            gone[pid] = time.monotonic()
            os.kill(pid, signal.SIGKILL)
        statuses = dict(zip(pids, (os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids), strict=True))
        report = self.root / f"round{number}.json"
        gone = {pid: moment for pid, moment in gone.items() if statuses[pid] == -signal.SIGKILL}
        wrong = [f"ended with {each}: {_said(folder, pid)}" for pid, each in statuses.items() if each not in (0, -9)]
        in_fork(lambda: report.write_text(json.dumps(self._found(folder, gone, wrong, repeatable=repeatable))) and None)
        shutil.rmtree(folder)
        return dict(json.loads(report.read_text()))

    def _found(self, folder: Path, gone: dict[int, float], wrong: list[str], *, repeatable: bool) -> dict[str, Any]:
        by_request = defaultdict[str, list[tuple[float, int]]](list)
        for line in (folder / "notes").read_text().splitlines():
            moment, pid, request = line.split()
            by_request[request].append((float(moment), int(pid)))
        pairs = [pair for by in by_request.values() for pair in pairwise(sorted(by))]
        doubled = sum(later < gone.get(pid, math.inf) for (_, pid), (later, _) in pairs)
        again = Counter(pid for (_, pid), _ in pairs)
        found = study.content(folder)
        lost = len(self.content.keys() - found.keys())
        wrong += [f"{lost} lost, {doubled} doubled"] if lost or doubled else []
        wrong += [f"{more} requests of a worker again" for more in again.values() if repeatable and more > SAMPLES]
        with chdir(folder):
            wrong += ["other files than one worker makes"] if found != self.content else []
            wrong += [f"a chunk is left: {path}" for path in Path("results").rglob("*.chunk")]
            wrong += points.damages(folder, 0)
            wrong += ["something is still to make"] if study.missing(folder) else []
        return {"lost": lost, "doubled": doubled, "begun_again": len(again), "violations": wrong}


def _said(folder: Path, pid: int) -> str:
    return (folder / f"said{pid}").read_text()[-2_000:]


def attempt_all(rounds: Rounds, seeds: Sequence[int], processes: int) -> Report:
    """Play rounds, some at a time."""
    report = Report()
    for found in in_processes(rounds.root, seeds, processes, rounds.play):
        report.rounds += 1
        report.lost += found["lost"]
        report.doubled += found["doubled"]
        report.begun_again += found["begun_again"]
        report.violations += found["violations"]
    return report
