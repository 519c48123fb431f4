"""Faults of clusters, one after another, through Slurms that this script starts: what is lost, when all is well.

python tests/slurm/faults.py [--count N] [--kinds NAME ...] [--seed S] [--clusters C] [--minutes M] [--output FILE]

As root. Fault number n of a seed is always the same kind at the same moment of the job. Each adds a line to the output;
faults that have a line there are not tried again. A job is submitted with the command of the rule `generate`; after a
fault that ends it for good it is submitted once more, as by retries of Snakemake. The last kinds have a Snakemake each.
Most of a fault's time is waiting, for Slurm's timers and for Snakemake's next question, so several clusters, which know
nothing of each other, are harmed side by side.
"""

import argparse
import csv
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cluster import Cluster, until, why_not
from study import Run, Study, micro_study

BASE = "micro-1m-base"
COLUMNS = ("seed", "number", "kind", "finished", "lost", "double", "recovery_seconds", "seconds", "error")
FOR_GOOD = ("FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
LOG = "job.log"
OUTPUT = Path(__file__).parents[2] / "lab" / "slurm_faults.csv"

SCRIPT = """#!/bin/bash
trap '' TERM USR1 HUP
(
    trap - HUP
    exec searchlens generate --checkpoint {checkpoint} --benchmark math --manifest {manifest}
) 2>&1 | tee -a {log}
exit ${{PIPESTATUS[0]}}
"""


@dataclass
class Sampling:
    """A job in the middle of its sampling."""

    slurm: Cluster
    study: Study
    chance: random.Random
    job: str = ""
    head: Run | None = None

    def submit(self, partition: str = "gpu") -> None:
        manifest = shlex.quote(self.study.manifest(BASE))
        script = self.study.path / "job.sh"
        script.write_text(SCRIPT.format(checkpoint=BASE, manifest=manifest, log=LOG))
        options = ["--parsable", "--requeue", "--gpus=1", "--output=/dev/null", f"--partition={partition}"]
        words = ["sbatch", *options, f"--chdir={self.study.path}", str(script)]
        done = subprocess.run(words, env=self.study.environment, capture_output=True, text=True, check=True)
        self.job = done.stdout.strip().split(";")[0]

    def start_head(self) -> None:
        before = set(self.slurm.jobs())
        self.head = self.study.slurm(self.study.manifest(BASE))
        until(lambda: set(self.slurm.jobs()) - before, "a job was submitted")
        (self.job,) = set(self.slurm.jobs()) - before

    def state(self) -> str:
        return self.slurm.jobs().get(self.job, "")

    def node(self) -> str:
        return self.slurm.show(self.job)["NodeList"]

    def processes(self) -> list[int]:
        """Of the job that sample."""
        found = self.slurm.processes(f"SLURM_JOB_ID={self.job}")
        return [pid for pid in found if "bin/searchlens generate" in _command(pid)]

    def hold(self) -> None:
        """Stop it, so that it is not done before Slurm comes to the harm; what Slurm tells it continues it."""
        for pid in self.processes():
            os.kill(pid, signal.SIGSTOP)

    def let_go(self) -> None:
        for pid in self.processes():
            os.kill(pid, signal.SIGCONT)

    def command(self, *words: str) -> None:
        self.slurm.command(*words)

    def hurry(self) -> str:
        """The state of the job: a requeued one starts at once, one that ended for good is submitted again."""
        state = self.state()
        if state == "PENDING":
            self.slurm.command("scontrol", "update", f"JobId={self.job}", "StartTime=now", check=False)
        elif state in FOR_GOOD:
            self.submit()
        return state

    def recover(self) -> None:
        """Until the job has completed."""
        until(lambda: self.hurry() == "COMPLETED", f"the job has completed, {self.state()}")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


# ---- harm to a job


def killed(one: Sampling) -> None:
    """As by the kernel when memory runs out."""
    for pid in one.processes():
        os.kill(pid, signal.SIGKILL)


def cancelled(one: Sampling) -> None:
    """By hand."""
    one.command("scancel", one.job)


def time_limit(one: Sampling) -> None:
    """Slurm warns, and ends what is left after KillWait."""
    one.hold()
    one.command("scontrol", "update", f"JobId={one.job}", "EndTime=now+2")
    until(lambda: one.state() != "RUNNING", "the limit is noticed")


def requeued(one: Sampling) -> None:
    """By an administrator."""
    one.command("scontrol", "requeue", one.job)
    until(lambda: one.state() == "PENDING", "the job is back in the queue")


def preempted(one: Sampling) -> None:
    """By a job of higher priority that takes both nodes whole."""
    one.hold()
    one.command("sbatch", "--partition=gpu", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    until(lambda: one.state() == "PENDING", "the job is back in the queue")


def node_failed(one: Sampling) -> None:
    """Without a word: Slurm finds the node silent, and starts the job on the other one."""
    node = one.node()
    one.slurm.fail_node(node)
    try:
        until(lambda: one.state() == "PENDING", "the node is found silent")
        one.recover()
    finally:
        one.slurm.start_node(node)


def node_drained(one: Sampling) -> None:
    """An administrator wants the node empty: the job goes on elsewhere."""
    node = one.node()
    one.command("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    try:
        requeued(one)
        one.recover()
        assert one.node() != node
    finally:
        one.command("scontrol", "update", f"NodeName={node}", "State=RESUME")


def failed(one: Sampling) -> None:
    """The store may not be written to for a while; the record of the job says so, and so does `status`."""
    store, folders = one.study.path / "results/generations", list[Path]()
    try:
        for pattern in ("*/*", "*/*/*", "*/*/*/chunks"):  # from above: below what is done no folder comes or goes
            found = list(store.glob(pattern))
            folders += found
            if found:  # no chunks between two shards
                subprocess.run(["chattr", "+i", *found], check=True)
        until(lambda: one.state() in FOR_GOOD, "the job has failed")
        (record,) = one.study.path.glob("results/jobs/*/*/*.json")
        assert json.loads(record.read_text())["state"] == "failed"
        assert "failed" in one.study.call("searchlens", "status")
    finally:
        subprocess.run(["chattr", "-i", *folders], check=True)


def disk_full(one: Sampling) -> None:
    """The job may not make any file longer: to it the disk is full."""
    for pid in one.processes():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))
    until(lambda: one.state() in FOR_GOOD, "the job has failed")


def controller_restarted(one: Sampling) -> None:
    """It is away for some seconds; the job goes on."""
    one.slurm.kill("slurmctld")
    time.sleep(one.chance.uniform(0.5, 3))
    one.slurm.start_controller()
    until(one.slurm.jobs, "the controller answers")


# ---- harm to Snakemake


def head_killed(one: Sampling) -> None:
    """Its job goes on to the end; the next run finds everything."""
    assert one.head
    one.head.kill()
    until(lambda: one.state() == "COMPLETED", "the orphan has ended")
    one.study.call("snakemake", "--unlock")
    one.head = one.study.slurm(one.study.manifest(BASE))


def two_heads(one: Sampling) -> None:
    """A second one is started while the job of the first, which was killed, goes on."""
    assert one.head
    one.head.kill()
    one.study.call("snakemake", "--unlock")
    one.head = one.study.slurm(one.study.manifest(BASE))


def locked(one: Sampling) -> None:
    """Head and job are killed: the next run refuses, and gives the command that helps."""
    assert one.head
    one.head.kill()
    one.command("scancel", one.job)
    refused = one.study.slurm(one.study.manifest(BASE))
    assert refused.wait() == 1 and "--unlock" in one.study.log()
    one.study.call("snakemake", "--unlock")
    one.head = one.study.slurm(one.study.manifest(BASE))


OF_JOBS = (
    *(killed, cancelled, time_limit, requeued, preempted, node_failed, node_drained, failed, disk_full),
    controller_restarted,
)
OF_HEADS = (head_killed, two_heads, locked)
KINDS = {kind.__name__: kind for kind in (*OF_JOBS, *OF_HEADS)}


# ---- one fault


def attempt(slurm: Cluster, base: Study, folder: Path, kind: str, chance: random.Random) -> dict[str, object]:
    """Try one fault; the columns of its line."""
    one = Sampling(slurm, Study(folder, base.config, slurm.environment), chance)
    whole, at = _rows(base), chance.uniform(0.05, 0.6)
    started, kept, harmed, first, error = time.monotonic(), 0, time.monotonic(), "", ""
    try:
        if KINDS[kind] in OF_HEADS:
            one.start_head()
        else:
            one.submit("spare" if kind == "preempted" else "gpu")
        until(lambda: one.study.kept() > at * whole, "some samples are finished")
        kept, harmed, first = one.study.kept(), time.monotonic(), _first_line(one.study)
        KINDS[kind](one)
        if one.head:
            assert one.head.wait() == 0, "Snakemake failed"
            until(lambda: not slurm.jobs("RUNNING", "PENDING", "COMPLETING"), "the orphan has ended")
        else:
            one.recover()
    except (AssertionError, subprocess.SubprocessError) as wrong:
        error = str(wrong) or "an assertion"
    ended = time.monotonic()
    frames, theirs = one.study.shards(), base.shards()
    if not error and not (frames.keys() == theirs.keys() and all(frames[k].equals(theirs[k]) for k in theirs)):
        error = "other samples than those of a local run"
    double = sum(frame.height - frame.select("question", "sample").n_unique() for frame in frames.values())
    return {
        "kind": kind,
        "finished": kept,
        "lost": max(0, kept + _drawn_after(one, first) - whole),
        "double": double,
        "recovery_seconds": f"{ended - harmed:.1f}",
        "seconds": f"{ended - started:.1f}",
        "error": error,
    }


def _rows(study: Study) -> int:
    return sum(frame.height for frame in study.shards().values())


def _drawn_after(one: Sampling, first: str) -> int:
    """Samples that the job which began last after the harm had to draw, 0 without one.

    What was finished before, and is drawn again, was lost. ``first`` is the first line of the log at the harm: a job of
    Snakemake begins its log anew, others go on with it.
    """
    log = one.study.path / LOG
    if not one.head:
        said = re.findall(r"([\d,]+) samples to draw", log.read_text())
        return int(said[-1].replace(",", "")) if len(said) > 1 else 0
    return one.study.drawn()[0] if _first_line(one.study) != first else 0


def _first_line(study: Study) -> str:
    logs = study.path.glob("logs/generate/*/*/*.log")
    return next((log.read_text(errors="replace").split("\n")[0] for log in logs), "")


def main() -> int:
    """Try what the output has not; the exit status says whether anything was lost or wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clusters", type=int, default=3, help="that are harmed side by side (default: 3)")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no fault after so many")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    asked = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    done = _done(asked.output)
    numbers = [n for n in range(asked.count) if (str(asked.seed), str(n)) not in done]
    waiting = deque(n for n in numbers if list(KINDS)[n % len(KINDS)] in asked.kinds)
    with _scratch() as folder:
        base = Study(folder / "base", micro_study(questions=16, samples=10))
        assert base.start("--cores", "1", base.manifest(BASE)).wait() == 0, base.log()
        faults = Faults(base, waiting, asked.seed, asked.output, time.monotonic() + 60 * asked.minutes)
        with ThreadPoolExecutor(asked.clusters) as pool:
            try:
                list(pool.map(lambda _: faults.attempt_all(), range(min(asked.clusters, len(waiting)))))
            finally:
                waiting.clear()  # of Ctrl-C: the others end after the faults that they are at
    print(table(asked.output))
    return 1 if faults.wrong else 0


def table(output: Path) -> str:
    """What the output says of each kind, in Markdown; seconds of recovery are the median and the largest."""
    with output.open() as stream:
        lines = list(csv.DictReader(stream))
    rows = ["| kind | tried | finished | lost | double | other | recovery, s |", "|---|---|---|---|---|---|---|"]
    for kind in KINDS:
        of_kind = [line for line in lines if line["kind"] == kind]
        finished, lost, double = (sum(int(line[name]) for line in of_kind) for name in ("finished", "lost", "double"))
        other, waits = (
            sum(bool(line["error"]) for line in of_kind),
            [float(line["recovery_seconds"]) for line in of_kind],
        )
        seconds = f"{statistics.median(waits):.0f}, {max(waits):.0f}" if waits else ""
        rows.append(f"| `{kind}` | {len(of_kind)} | {finished:,} | {lost} | {double} | {other} | {seconds} |")
    return "\n".join(rows)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder in which studies of faults that ended badly are left."""
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder / "base", ignore_errors=True)
        if not any(folder.iterdir()):
            folder.rmdir()


@dataclass
class Faults:
    """Those that wait, tried by any number of threads at once, each with a Slurm of its own."""

    base: Study
    waiting: deque[int]
    seed: int
    output: Path
    end: float
    wrong: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def attempt_all(self) -> None:
        slurm = Cluster(nodes=2, cpus=4, gpus=1)
        try:
            slurm.start()
            while (number := self._next()) is not None:
                self._attempt(slurm, number)
                slurm.command("scancel", "--user=root")
                until(lambda: slurm.idle_nodes() == set(slurm.nodes), "all nodes are idle")
        finally:
            slurm.stop()

    def _next(self) -> int | None:
        with self.lock:
            return self.waiting.popleft() if self.waiting and time.monotonic() < self.end else None

    def _attempt(self, slurm: Cluster, number: int) -> None:
        kind, chance = list(KINDS)[number % len(KINDS)], random.Random(f"{self.seed}:{number}")
        folder = self.base.path.parent / f"{self.seed}-{number}"
        line = attempt(slurm, self.base, folder, kind, chance)
        wrong = bool(line["error"] or line["lost"] or line["double"])
        with self.lock:
            _add(self.output, {"seed": self.seed, "number": number, **line})
            self.wrong += wrong
        print(number, *line.values(), f"see {folder}" if wrong else "", flush=True)
        if not wrong:
            shutil.rmtree(folder, ignore_errors=True)  # what Slurm writes late is left


def _done(output: Path) -> set[tuple[str, str]]:
    if not output.exists():
        return set()
    with output.open() as lines:
        return {(line["seed"], line["number"]) for line in csv.DictReader(lines)}


def _add(output: Path, line: dict[str, object]) -> None:
    is_new = not output.exists()
    with output.open("a") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(line)


if __name__ == "__main__":
    sys.exit(main())
