"""Faults at every call of every command that writes: die before, die after, no space, an error of the disk.

Each point is a process of its own, forked from one that has everything imported. Afterwards a second process verifies
the store, gives the same commands again, and compares every Parquet file with that of an undisturbed run.
"""

import importlib
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import study
from injected import DIED, FAULTS, Fault, Injected
from parts import in_processes
from searchlens.cli.verify import verify

Commands = Callable[[], Iterable[list[str]]]
SLOW = ("pandas.", "scipy.", "searchlens.", "statsmodels.")
"""Modules whose import, in each of thousands of processes, would take longer than what is tried."""


@dataclass(frozen=True)
class Workload:
    """Commands that are disturbed, in the folder of the study, and what is done there first, undisturbed."""

    name: str
    commands: Commands
    before: Sequence[Callable[[], object]] = ()
    may_refuse: bool = False
    """Whether a second time may be refused, because the first has done all or is still to be followed by a run."""
    damages: int = 0
    """Most messages of ``verify`` before the second time: what was harmed or taken out beforehand."""
    redraws: int = 0
    """Samples that the second time draws again because it is asked to."""


def _run(commands: Commands) -> Callable[[], object]:
    def give() -> None:
        for arguments in commands():
            assert study.run(*arguments) == 0, arguments

    return give


def _configured(**changes: Any) -> Callable[[], object]:
    return lambda: study.configure(Path(), study.raw(**changes))


def _harm() -> None:
    """A flipped bit with a new time, a torn sidecar, a torn manifest."""
    first, second, *_ = sorted(Path("results/generations").glob("*/*/*/*.parquet"))
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 4
    first.write_bytes(content)
    second.with_suffix(".json").write_text("{")
    sorted(Path("results/manifests").glob("*/*/*.json"))[0].write_text("[]")


def _both() -> Iterable[list[str]]:
    return (["generate", "--checkpoint", cell[0], "--benchmark", cell[1]] for cell in study.CELLS)


def _landscapes() -> Iterator[list[str]]:
    grid = study.grid_at(Path())
    folders = [str(grid.layout.landscape(*cell)) for cell in study.CELLS]
    for cell, folder in zip(study.CELLS, folders, strict=True):
        yield ["landscape", "--benchmark", "sums", "--scores", str(grid.scores(*cell)), "--output", folder]
    where = str(grid.layout.recovery("toy", "sums"))
    yield ["recovery", "--benchmark", "sums", "--base", folders[0], "--rl", folders[1], "--output", where]


def _imported() -> Iterator[list[str]]:
    options = ["--pair", "other", "--benchmark", "sums", "--role", "base", "--policy", "theirs", "--yes"]
    yield ["import", "log.jsonl", *options]


def _rerun() -> Iterator[list[str]]:
    yield ["rerun", "--checkpoint", "toy-base", "--benchmark", "sums", "--policy", "temp_0.5"]
    yield from study.generate()


def _repair() -> Iterator[list[str]]:
    yield ["verify", "--repair", "results"]
    yield from study.generate()


SAMPLED = _run(study.generate)
WORKLOADS = (
    Workload("sample", study.generate),
    Workload("extend", study.generate, [SAMPLED, _configured(samples=2 * study.SAMPLES)]),
    Workload("heal", study.generate, [SAMPLED, _harm], damages=4),
    Workload("repair", _repair, [SAMPLED, _harm], may_refuse=True, damages=4),
    Workload("rerun", _rerun, [SAMPLED], damages=1, redraws=16),
    Workload("score", study.graded, [SAMPLED]),
    Workload("analyse", _landscapes, [_run(_both), _run(lambda: study.graded(study.CELLS))]),
    Workload("import", _imported),
    # Records go last, so the same command goes on after an interrupted removal.
    Workload("remove", lambda: [["imports", "--remove", "other/sums"]], [_run(_imported)], may_refuse=True, damages=1),
    Workload("prune", lambda: [["prune", "--delete"]], [SAMPLED, _configured(pools={"some": ["temp_0.5"]})], damages=1),
)


class Point(NamedTuple):
    """One fault: in which workload, at which call."""

    workload: str
    at: int
    fault: Fault


@dataclass
class Report:
    """What came of all points."""

    points: int = 0
    raised: int = 0
    died: int = 0
    absorbed: int = 0
    violations: list[str] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    redrawn: int = 0


class Harness:
    """Lays out the studies in a new folder, best in memory, counts the calls of every workload, and tries points."""

    def __init__(self, root: Path, workloads: Sequence[Workload] = WORKLOADS) -> None:
        self.root, self.workloads = root, {each.name: each for each in workloads}
        self.undisturbed: dict[str, dict[str, Any]] = {}
        for each in workloads:
            study.found(root / each.name)
            self.undisturbed[each.name] = self._undisturbed(each)
            _warm(self.undisturbed[each.name].pop("modules"))

    def _undisturbed(self, workload: Workload) -> dict[str, Any]:
        folder, copy = self.root / workload.name, self.root / f"{workload.name}.undisturbed"

        def prepare() -> None:
            study.script(study.Counter())
            with chdir(folder):
                for step in workload.before:
                    step()

        in_fork(prepare)
        report = self.root / "report.json"

        def work() -> None:
            drawn = study.Counter()
            study.script(drawn)
            shutil.copytree(folder, copy, symlinks=True)
            with chdir(copy):
                commands = list(workload.commands())
                calls = Injected(copy / "results")
                for arguments in commands:
                    assert study.run(*arguments) == 0, arguments
                log = [call.name for call in calls.log]
            modules = [name for name in sys.modules if name.startswith(SLOW)]
            found = {"content": study.content(copy), "calls": log, "drawn": drawn.value, "modules": modules}
            report.write_text(json.dumps(found))

        in_fork(work)
        return dict(json.loads(report.read_text()))

    def points(self) -> list[Point]:
        """Every point of every workload."""
        counts = {name: len(found["calls"]) for name, found in self.undisturbed.items()}
        return [Point(name, at, fault) for name in counts for at in range(1, counts[name] + 1) for fault in FAULTS]

    def attempt(self, number: int, point: Point) -> dict[str, Any]:
        """Try one point; ``violations`` is empty if all is well."""
        folder, report = self.root / f"point{number}", self.root / f"point{number}.json"
        drawn, workload = study.Counter(), self.workloads[point.workload]
        try:
            shutil.copytree(self.root / workload.name, folder, symlinks=True)
            status, said = _disturbed(folder, workload, point, drawn)
            in_fork(lambda: self._check(folder, workload, point, status, said, drawn, report))
            return dict(json.loads(report.read_text()))
        except Exception as error:
            return {"violations": [f"{point}: {error!r}"], "status": -1, "redrawn": 0}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            report.unlink(missing_ok=True)

    def _check(
        self,
        folder: Path,
        workload: Workload,
        point: Point,
        status: int,
        said: list[str],
        drawn: study.Counter,
        report: Path,
    ) -> None:
        wrong = list[str]()
        study.script(drawn)
        left = study.temporary(folder)
        met = folder / "met"
        on_temporary = met.exists() and met.read_text() in ("unlink", "rmdir")
        if status == DIED:
            wrong += [f"{len(left)} temporary files"] if len(left) > 1 + (workload.name in ("import", "score")) else []
        else:
            wrong += [f"status {status}"] if status not in (0, 1, 2, 75) else []
            wrong += [f"temporary file {left}"] if left and not on_temporary else []
            wrong += [f"said {said}"] if len(said) > 2 or any("Traceback" in line for line in said) else []
        if (folder / "results").exists() and any((folder / "results").iterdir()):
            wrong += damages(folder, workload.damages)
        wrong += self.again(folder, workload, drawn)
        wrong += damages(folder, 0) if (folder / "results" / "generations").exists() else []
        redrawn = drawn.value - self.undisturbed[workload.name]["drawn"]
        if workload.name in ("sample", "extend", "heal", "repair", "rerun") and study.missing(folder):
            wrong.append("something is still to make")
        report.write_text(
            json.dumps({"violations": [f"{point}: {one}" for one in wrong], "status": status, "redrawn": redrawn})
        )

    def again(self, folder: Path, workload: Workload, drawn: study.Counter) -> list[str]:
        """What is wrong after the same commands were given once more."""
        known, wrong = self.undisturbed[workload.name], list[str]()
        with chdir(folder):
            for arguments in workload.commands():
                status = study.run(*arguments)
                if status and not (workload.may_refuse and status == 2):
                    wrong.append(f"again: {arguments[0]} ended with {status}")
        if study.content(folder) != known["content"]:
            wrong.append("other files than an undisturbed run")
        redrawn = drawn.value - known["drawn"]
        return wrong + ([f"{redrawn} samples were drawn twice"] if redrawn > study.CHUNK + workload.redraws else [])


def _warm(modules: Iterable[str]) -> None:
    """Import what a command imported when it ran: no fork has to do it again."""
    for name in modules:
        with suppress(ImportError):
            importlib.import_module(name)


def _disturbed(folder: Path, workload: Workload, point: Point, drawn: study.Counter) -> tuple[int, list[str]]:
    """Exit status of a process that meets the fault, and what it said on stderr besides its log."""

    def work() -> int:
        study.script(drawn)
        commands = list(workload.commands())
        calls = Injected(folder / "results", point.at, point.fault)
        try:
            return next(filter(None, (study.run(*arguments) for arguments in commands)), 0)
        finally:
            (folder / "met").write_text("".join(call.name for call in calls.log[point.at - 1 : point.at]))

    return told(folder, work)


def told(folder: Path, work: Callable[[], int]) -> tuple[int, list[str]]:
    """Exit status of a forked process in a folder, and what it said on stderr besides its log."""
    said = folder / "stderr"

    def there() -> int:
        os.chdir(folder)
        os.dup2(os.open(said, os.O_CREAT | os.O_WRONLY), 2)
        return work()

    status = in_fork(there, may_fail=True)
    lines = said.read_text().splitlines()
    said.unlink()
    return status, [line for line in lines if line[2:3] != ":"]


def damages(folder: Path, most: int) -> list[str]:
    """What ``verify`` says of a store, if it says more than this many things."""
    try:
        found = verify(folder / "results").damaged
    except Exception as error:
        return [] if "is not a results folder" in str(error) else [f"verify: {error!r}"]
    return [] if len(found) <= most else [f"verify: {line}" for line in found]


def in_fork(work: Callable[[], Any], *, may_fail: bool = False) -> int:
    """Run a function in a forked process; its exit status."""
    pid = os.fork()
    if pid == 0:
        os._exit(guarded(work))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status and not may_fail:
        raise RuntimeError(f"a process ended with {status}")
    return status


def guarded(work: Callable[[], Any]) -> int:
    """The exit status of a function in a process that was just forked; whatever it raises is printed."""
    try:
        return int(work() or 0)
    except BaseException:
        traceback.print_exc()
        return 99
    finally:
        sys.stderr.flush()


def attempt_all(harness: Harness, points: Sequence[Point], processes: int) -> Report:
    """Try points, some at a time."""
    report = Report(calls={name: len(found["calls"]) for name, found in harness.undisturbed.items()})
    for found in in_processes(harness.root, points, processes, harness.attempt):
        report.points += 1
        report.died += found["status"] == DIED
        report.absorbed += found["status"] == 0
        report.raised += found["status"] not in (0, DIED)
        report.redrawn += max(0, found["redrawn"])
        report.violations += found["violations"]
    return report


def sampled(points: Sequence[Point], count: int, seed: int) -> list[Point]:
    """Some of the points, of every workload in proportion."""
    return sorted(random.Random(seed).sample(list(points), min(count, len(points))))


def summary(report: Report) -> str:
    """The figures, in words."""
    calls = ", ".join(f"{name} {count}" for name, count in report.calls.items())
    kinds = Tally(line.split(": ", 1)[1][:60] for line in report.violations)
    return "\n".join(
        [
            f"{report.points} faults at the calls of {len(report.calls)} commands ({calls})",
            f"{report.died} died, {report.raised} ended with an error, {report.absorbed} went on;"
            f" {report.redrawn} samples were drawn twice",
            f"{len(report.violations)} violations",
            *(f"  {count} x {kind}" for kind, count in kinds.most_common(20)),
            *report.violations[:20],
        ]
    )


@contextmanager
def new_root() -> Iterator[Path]:
    """A new folder, which is gone at the end."""
    with tempfile.TemporaryDirectory(
        prefix="searchlens-faults-", dir=study.scratch(), ignore_cleanup_errors=True
    ) as root:
        yield Path(root)
