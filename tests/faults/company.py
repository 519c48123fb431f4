"""Jobs that sample one pool at once, each slowed down at random places; some die there, or the disk fails them.

The order in which calls of several processes meet is what ``points`` cannot choose: here every call on the disk, and
every look at it, may wait for up to a few milliseconds, by seed. Whatever the order, a job that meets no fault ends
well, and what all leave behind becomes, by the same command, what one job alone makes.
"""

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import points
import study
from injected import DIED, FAULTS, Fault, Injected
from parts import in_processes
from points import WORKLOADS, Harness, Workload, in_fork

JOBS = 3
CALLS = ("open", "stat", "scandir", "fsync", "link", "replace", "unlink", "mkdir", "rmdir")
RARE = ("fsync", "link", "replace", "unlink", "mkdir", "rmdir")
"""A job waits at all calls for a moment, or before and after those of one kind for so long that others finish."""

Met = tuple[int, Fault]
"""Number of the call that fails, 0 for none, and how."""

WORK = tuple(each for each in WORKLOADS if each.name in ("sample", "extend", "heal"))


@dataclass
class Report:
    """What came of all meetings."""

    meetings: int = 0
    faults: int = 0
    violations: list[str] = field(default_factory=list)


def slow_down(seed: int, longest: float = 0.2) -> None:
    """Have calls of this process that change or read the store wait now and then, for up to ``longest`` seconds."""
    chance = random.Random(seed)
    names = chance.choice([CALLS, *((name,) for name in RARE)])
    share, longest = (0.1, longest / 50) if names == CALLS else (0.3, longest)

    def wait() -> None:
        if chance.random() < share:
            time.sleep(chance.random() * longest)

    def slowed(call: Callable[..., Any]) -> Callable[..., Any]:
        def in_a_while(*arguments: Any, **options: Any) -> Any:
            wait()
            result = call(*arguments, **options)
            wait()
            return result

        return in_a_while

    for name in names:
        setattr(os, name, slowed(getattr(os, name)))


def _job(folder: Path, workload: Workload, seed: int, fault: Met) -> int:
    """One job; its exit status, and what it said in a file."""
    study.script(study.Counter(), repeatable=random.Random(seed // JOBS).random() < 0.5)
    os.chdir(folder)
    os.dup2(os.open(folder / f"said{seed % JOBS}", os.O_CREAT | os.O_WRONLY), 2)
    commands = list(workload.commands())
    Injected(folder / "results", *fault)
    slow_down(seed)
    return max(study.run(*arguments) for arguments in commands)


def meet(harness: Harness, seed: int) -> dict[str, Any]:
    """Let jobs meet; the seed decides commands, engine, delays and faults. ``violations`` is empty if all is well."""
    chance, workload = random.Random(seed), WORK[seed % len(WORK)]
    folder, report = harness.root / f"meeting{seed}", harness.root / f"meeting{seed}.json"
    calls = len(harness.undisturbed[workload.name]["calls"])
    faults: list[Met] = [
        (chance.randint(1, calls), chance.choice(FAULTS)) if chance.random() < 0.4 else (0, FAULTS[0])
        for _ in range(JOBS)
    ]
    try:
        shutil.copytree(harness.root / workload.name, folder, symlinks=True)
        pids = []
        for place, fault in enumerate(faults):
            if (pid := os.fork()) == 0:
                os._exit(in_fork(partial(_job, folder, workload, seed * JOBS + place, fault), may_fail=True))
            pids.append(pid)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        in_fork(lambda: report.write_text(json.dumps(_check(harness, folder, workload, faults, statuses))) and None)
        wrong = json.loads(report.read_text())
    except Exception as error:
        wrong = [repr(error)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        report.unlink(missing_ok=True)
    met = sum(at > 0 for at, _ in faults)
    return {"violations": [f"seed {seed}, {workload.name}: {one}" for one in wrong], "faults": met}


def _check(
    harness: Harness, folder: Path, workload: Workload, faults: Sequence[Met], statuses: Sequence[int]
) -> list[str]:
    """What is wrong with how the jobs ended, with what they left, and with what the same command makes of that."""
    wrong = list[str]()
    for place, ((at, fault), status) in enumerate(zip(faults, statuses, strict=True)):
        path = folder / f"said{place}"
        said = [line for line in path.read_text().splitlines() if line[2:3] != ":"]
        path.unlink()
        name = f"job {place} with {fault if at else 'no fault'}"
        if status == 0 or (status == DIED and fault.startswith("die") and at):
            continue
        if not at or status not in (1, 2, 75):
            wrong.append(f"{name} ended with {status}: {said[-12:]}")
        elif len(said) > 2 or any("Traceback" in line for line in said):
            wrong.append(f"{name} said {said[-12:]}")
    if (folder / "results").exists():
        wrong += points.damages(folder, workload.damages)
    study.script(study.Counter())
    with chdir(folder):
        wrong += [f"again: {command[0]} failed" for command in workload.commands() if study.run(*command)]
    if study.content(folder) != harness.undisturbed[workload.name]["content"]:
        wrong.append("other files than an undisturbed run")
    wrong += points.damages(folder, 0)
    wrong += ["something is still to make"] if study.missing(folder) else []
    return wrong + [f"a chunk is left: {path}" for path in (folder / "results").rglob("*.chunk")]


def attempt_all(harness: Harness, seeds: Sequence[int], processes: int) -> Report:
    """Let jobs meet, in some meetings at a time."""
    report = Report()
    for found in in_processes(harness.root, seeds, processes, lambda _, seed: meet(harness, seed)):
        report.meetings += 1
        report.faults += found["faults"]
        report.violations += found["violations"]
    return report
