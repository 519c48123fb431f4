"""Reads that fail: every open, read, stat and close below the results, with four errnos, once or lastingly.

A library that is loaded before all others (``reads.c``) fails the calls of polars and pyarrow as well as Python's. Each
point is a process of its own. Afterwards nothing that was finished may be gone or set aside, and the same commands give
the files of an undisturbed run.
"""

import argparse
import ctypes
import errno
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter as Tally
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import points
import study
from injected import DIED, Injected
from parts import in_processes
from searchlens.store import files

ERRNOS = (errno.EACCES, errno.EIO, errno.ESTALE, errno.EMFILE)
SOURCE = Path(__file__).with_suffix(".c")
_PRELOADED = "SEARCHLENS_FAILING_READS"


def preloaded() -> ctypes.CDLL | None:
    """The library, if this process was started with it."""
    path = os.environ.get(_PRELOADED)
    if path is None:
        return None
    library = ctypes.CDLL(path)
    library.failed.restype = library.failed_kind.restype = ctypes.c_char_p
    library.calls.restype = ctypes.c_long
    library.arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    return library


def again_preloaded(*arguments: str) -> int:
    """Exit status of this program, started again with the library."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "reads.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl"], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), _PRELOADED: str(library)}
        return subprocess.run([sys.executable, *arguments], env=environment, check=False).returncode


# ---- what is disturbed


def _half_sampled() -> None:
    """A job that died when the chunks of a shard were finished."""

    def work() -> None:
        calls = Injected(Path.cwd() / "results")

        def die() -> None:
            if len(list(Path("results").rglob("*.chunk"))) == 2:
                os._exit(DIED)

        calls.each = die
        for arguments in study.generate():
            study.run(*arguments)

    assert points.in_fork(work, may_fail=True) == DIED


WORKLOADS = (
    points.Workload("resume", study.generate, [_half_sampled]),
    points.Workload("verify", lambda: [["verify", "--repair", "results"], *study.generate()], [points.SAMPLED]),
    *(each for each in points.WORKLOADS if each.name in ("extend", "score", "analyse", "import", "remove", "prune")),
)


class Point(NamedTuple):
    """One fault: in which workload, at which call, with which errno, and whether it lasts."""

    workload: str
    at: int
    number: int
    lasts: bool


@dataclass
class Report:
    """What came of all points."""

    reads: int = 0
    ended: int = 0
    lost: int = 0
    aside: int = 0
    tracebacks: int = 0
    violations: list[str] = field(default_factory=list)

    def counted(self) -> str:
        """As JSON."""
        names = ("reads", "ended", "lost", "aside", "tracebacks")
        return json.dumps({name: getattr(self, name) for name in names} | {"violations": len(self.violations)})


class Harness(points.Harness):
    """As of the faults of calls that write; the calls of every workload that read are counted."""

    def __init__(self, root: Path, library: ctypes.CDLL) -> None:
        self.preload = library
        files.WAITS = (0.0, 0.001)
        super().__init__(root, WORKLOADS)
        self.reads = {name: self._count(name) for name in self.workloads}

    def _count(self, name: str) -> int:
        report = self.root / "reads.json"

        def work() -> None:
            folder = self._copy(name, "counted")
            study.script(study.Counter())
            with chdir(folder):
                commands = list(self.workloads[name].commands())
                self.preload.arm(os.fsencode(folder / "results"), 0, 0, 0)
                for arguments in commands:
                    study.run(*arguments)
                report.write_text(str(self.preload.calls()))

        points.in_fork(work)
        shutil.rmtree(self.root / "counted")
        return int(report.read_text())

    def _copy(self, name: str, to: str) -> Path:
        return Path(shutil.copytree(self.root / name, self.root / to, symlinks=True))

    def failing(self, seed: int, count: int | None) -> list[Point]:
        """Points of every workload in proportion; all of them without a count."""
        every = [
            Point(name, at, number, lasts)
            for name, calls in self.reads.items()
            for at in range(1, calls + 1)
            for number in ERRNOS
            for lasts in (False, True)
        ]
        if count is None:
            return every
        draw = random.Random(seed)
        share = max(1, count // len(self.reads))
        parts = ([point for point in every if point.workload == name] for name in self.reads)
        return [point for part in parts for point in draw.sample(part, min(share, len(part)))]

    def attempt_read(self, number: int, point: Point) -> dict[str, Any]:
        """Try one point."""
        folder, report = self.root / f"read{number}", self.root / f"read{number}.json"
        drawn, workload = study.Counter(), self.workloads[point.workload]
        try:
            self._copy(point.workload, folder.name)
            before = finished(folder)
            status, said = self._disturbed(folder, workload, point, drawn)
            met = (folder / "met").read_text()
            found = {"status": status, "lost": lost(folder, before), "aside": 0, "wrong": list[str]()}
            known = self.root / f"{point.workload}.undisturbed"
            found["lost"] = [each for each in found["lost"] if (known / each).exists() or _is_early(folder, each)]
            found["aside"] = max(0, set_aside(folder) - set_aside(known))
            found["traceback"] = any("Traceback" in line for line in said)
            found["wrong"] += [f"status {status}"] if status not in (0, 1, 2, 75) else []
            found["wrong"] += (
                [f"said {said[-2:]}"] if len(said) > 2 or (status and "results" not in "".join(said)) else []
            )

            def again() -> None:
                study.script(drawn)
                report.write_text(json.dumps(self.again(folder, workload, drawn)))

            points.in_fork(again)
            found["wrong"] += json.loads(report.read_text())
            return found | {"point": f"{point.workload} {errno.errorcode[point.number]} at {met}, lasts {point.lasts}"}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            report.unlink(missing_ok=True)

    def _disturbed(
        self, folder: Path, workload: points.Workload, point: Point, drawn: study.Counter
    ) -> tuple[int, list[str]]:
        def work() -> int:
            study.script(drawn)
            commands = list(workload.commands())
            self.preload.arm(os.fsencode(folder / "results"), point.at, point.number, point.lasts)
            try:
                return next(filter(None, (study.run(*arguments) for arguments in commands)), 0)
            finally:
                self.preload.disarm()
                where = os.fsdecode(self.preload.failed()).removeprefix(str(folder))
                (folder / "met").write_text(f"{os.fsdecode(self.preload.failed_kind())} of {where}")

        return points.told(folder, work)


def finished(folder: Path) -> set[str]:
    """Files of the results that are not temporary, below the folder."""
    paths = (path for path in (folder / "results").rglob("*") if path.is_file() and not path.name.endswith(".tmp"))
    return {str(path.relative_to(folder)) for path in paths}


def lost(folder: Path, before: set[str]) -> list[str]:
    """What was there and is not."""
    return [path for path in sorted(before) if not (folder / path).exists()]


def _is_early(folder: Path, gone: str) -> bool:
    """Whether a chunk is gone before its shard is there with its sidecar."""
    path = folder / gone
    if path.parent.name != "chunks":
        return False
    shard = path.name.partition(".")[0].partition("-q")[0]
    return not any(other.with_suffix(".parquet").exists() for other in path.parent.parent.glob(f"{shard}*.json"))


def set_aside(folder: Path) -> int:
    """Files in ``aside``, and shards that were renamed because they could not be used."""
    results = folder / "results"
    renamed = sum(path.name.endswith(".unreadable") for path in results.rglob("*"))
    return renamed + sum(path.is_file() for path in (results / "aside").rglob("*"))


def attempt_all(harness: Harness, chosen: Sequence[Point], processes: int) -> Report:
    """Try points, some at a time."""
    report = Report()
    for found in in_processes(harness.root, chosen, processes, harness.attempt_read):
        report.reads += 1
        report.ended += found["status"] != 0
        report.lost += len(found["lost"])
        report.aside += found["aside"]
        report.tracebacks += found["traceback"]
        wrong = [*found["wrong"], *(f"lost {path}" for path in found["lost"])]
        wrong += [f"{found['aside']} set aside"] if found["aside"] else []
        report.violations += [f"{found['point']}: {one}" for one in wrong]
    return report


def summary(report: Report) -> str:
    """The figures, in words; JSON on the last line."""
    kinds = Tally(line.rpartition(": ")[2][:70] for line in report.violations)
    shown = [f"  {count} x {kind}" for kind, count in kinds.most_common(20)]
    return "\n".join([*shown, *report.violations[:40], report.counted()])


def main() -> int:
    """Try points; the number of violations decides the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, help="points (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args()
    library = preloaded()
    if library is None:
        return again_preloaded(*sys.argv)
    with points.new_root() as root:
        harness = Harness(root, library)
        report = attempt_all(harness, harness.failing(asked.seed, asked.count), asked.processes)
    print(
        f"{report.reads} failing reads among {harness.reads} calls, each with {len(ERRNOS)} errnos, once or lastingly"
    )
    print(summary(report))
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
