"""Jobs with needs, spread over devices as processes: longest remaining chain first, nothing done twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One process.

    Attributes
    ----------
    name : str
        Unique.
    needs : tuple of str
        Jobs that have to be done before.
    gpu : bool
        Whether it takes a place on a device; the others run one at a time, because each uses all cores.
    seconds : float
        Expected duration; decides the order only.
    """

    name: str
    needs: tuple[str, ...]
    gpu: bool
    seconds: float


class Process(Protocol):
    """What is asked of a started job; ``subprocess.Popen`` is one."""

    def poll(self) -> int | None:
        """Exit status, None while it runs."""

    def terminate(self) -> None:
        """Ask it to end."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended."""


def urgency(jobs: Sequence[TrainingJob]) -> dict[str, float]:
    """Seconds from the start of each job to the end of the longest chain of jobs that wait for it."""
    longest: dict[str, float] = {}
    for job in reversed(ordered(jobs)):
        after = [longest[other.name] for other in jobs if job.name in other.needs]
        longest[job.name] = job.seconds + max(after, default=0.0)
    return longest


def ordered(jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
    """The jobs, each behind those that it needs; needs outside ``jobs`` count as done.

    Raises
    ------
    ValueError
        If jobs wait for each other in a circle.
    """
    names = {job.name for job in jobs}
    placed: list[TrainingJob] = []
    while len(placed) < len(jobs):
        have = {job.name for job in placed}
        ready = [job for job in jobs if job.name not in have and set(job.needs) & names <= have]
        if not ready:
            raise ValueError(f"jobs wait for each other: {sorted(names - have)}")
        placed += ready
    return placed


def run(
    jobs: Sequence[TrainingJob],
    done: Callable[[TrainingJob], bool],
    launch: Callable[[TrainingJob, str], Process],
    devices: Sequence[str],
    slots: int = 1,
    seconds: float = float("inf"),
    pause: float = 0.2,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Run what is not done; returns the names of the jobs that are not done at the end.

    A job that fails takes only those with it that need it. When ``seconds`` are over, running jobs are told to end;
    another call goes on from there.

    Parameters
    ----------
    launch : callable
        Starts a job on a device (empty for a job without one).
    devices : sequence of str
        Where jobs of ``gpu`` run, ``slots`` side by side on each.
    """
    rank = urgency(jobs)
    queue = sorted((job for job in jobs if not done(job)), key=lambda job: -rank[job.name])
    finished = {job.name for job in jobs} - {job.name for job in queue}
    running: dict[TrainingJob, tuple[str, Process, float]] = {}
    failed: list[str] = []
    started = time.monotonic()
    while queue or running:
        for job, (_, process, since) in list(running.items()):
            status = process.poll()
            if status is None:
                continue
            del running[job]
            good = status == 0 and done(job)
            (finished.add if good else failed.append)(job.name)
            took = time.monotonic() - since
            say(f"{time.monotonic() - started:6.0f} s  {job.name}: {'done' if good else 'FAILED'} in {took:.0f} s")
        if time.monotonic() - started > seconds:
            for _, process, _ in running.values():
                process.terminate()
            for _, process, _ in running.values():
                process.wait(30)
            break
        for job in list(queue):
            place = _place(job, running, devices, slots)
            if place is None or not set(job.needs) <= finished:
                continue
            queue.remove(job)
            running[job] = (place, launch(job, place), time.monotonic())
            say(f"{time.monotonic() - started:6.0f} s  {job.name}: started{f' on {place}' if place else ''}")
        if queue and not running:
            break
        time.sleep(pause)
    return [job.name for job in jobs if not done(job)]


def _place(
    job: TrainingJob, running: dict[TrainingJob, tuple[str, Process, float]], devices: Sequence[str], slots: int
) -> str | None:
    """The emptiest device with room for the job, the empty string for a job without one; None if there is no room."""
    if not job.gpu:
        return None if any(not other.gpu for other in running) else ""
    load = {device: sum(device == at for at, _, _ in running.values()) for device in devices}
    best = min(devices, key=lambda device: load[device])
    return best if load[best] < slots else None
