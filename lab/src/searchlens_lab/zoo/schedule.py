"""A scheduler for jobs that need each other's results: processes spread over devices, longest remaining chain first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One process."""

    name: str
    """Unique."""
    needs: tuple[str, ...]
    """Names of jobs that have to be done before this one."""
    gpu: bool
    """Whether it takes a place on a device. The other jobs use all cores, so they run one at a time."""
    seconds: float
    """Expected duration; it only decides the order."""


class Process(Protocol):
    """The part of ``subprocess.Popen`` that the scheduler uses."""

    def poll(self) -> int | None:
        """Exit status; None while the process runs."""

    def terminate(self) -> None:
        """Ask the process to end."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended."""


@dataclass(frozen=True, slots=True)
class _RunningJob:
    job: TrainingJob
    device: str
    process: Process
    started: float


def urgency(jobs: Sequence[TrainingJob]) -> dict[str, float]:
    """Seconds from the start of each job to the end of the longest chain of jobs that wait for it."""
    longest: dict[str, float] = {}
    for job in reversed(ordered(jobs)):
        after = [longest[other.name] for other in jobs if job.name in other.needs]
        longest[job.name] = job.seconds + max(after, default=0.0)
    return longest


def ordered(jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
    """The jobs, each after those that it needs; needs that are not among ``jobs`` count as done.

    Raises ValueError if jobs wait for each other in a circle.
    """
    names = {job.name for job in jobs}
    order: list[TrainingJob] = []
    while len(order) < len(jobs):
        before = {job.name for job in order}
        ready = [job for job in jobs if job.name not in before and set(job.needs) & names <= before]
        if not ready:
            raise ValueError(f"jobs wait for each other: {sorted(names - before)}")
        order += ready
    return order


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
    """Run the jobs that are not done; returns the names of those that are still not done at the end.

    A failed job stops only the jobs that need it. After ``seconds``, running jobs are asked to end; call again to
    resume.

    ``done``: whether a job is done. ``launch``: starts a job on a device (the empty string for a job that needs none).
    ``devices``: devices for jobs with ``gpu``, at most ``slots`` at a time on each. ``pause``: seconds between two
    looks at the processes. ``say``: prints a line of progress.
    """
    rank = urgency(jobs)
    queue = sorted((job for job in jobs if not done(job)), key=lambda job: -rank[job.name])
    finished = {job.name for job in jobs} - {job.name for job in queue}
    running: list[_RunningJob] = []
    start = time.monotonic()

    def report(text: str) -> None:
        say(f"{time.monotonic() - start:6.0f} s  {text}")

    while queue or running:
        for entry in list(running):
            status = entry.process.poll()
            if status is None:
                continue
            running.remove(entry)
            success = status == 0 and done(entry.job)
            if success:
                finished.add(entry.job.name)
            report(f"{entry.job.name}: {'done' if success else 'FAILED'} in {time.monotonic() - entry.started:.0f} s")
        if time.monotonic() - start > seconds:
            _end(running)
            break
        for job in [job for job in queue if set(job.needs) <= finished]:
            device = _place(job, running, devices, slots)
            if device is None:
                continue
            queue.remove(job)
            running.append(_RunningJob(job, device, launch(job, device), time.monotonic()))
            report(f"{job.name}: started{f' on {device}' if device else ''}")
        if queue and not running:
            break
        time.sleep(pause)
    return [job.name for job in jobs if not done(job)]


def _end(running: Sequence[_RunningJob]) -> None:
    for entry in running:
        entry.process.terminate()
    for entry in running:
        entry.process.wait(30)


def _place(job: TrainingJob, running: Sequence[_RunningJob], devices: Sequence[str], slots: int) -> str | None:
    """The device with the fewest jobs, the empty string for a job that needs none, or None if there is no room."""
    if not job.gpu:
        return None if any(not entry.job.gpu for entry in running) else ""
    load = {device: sum(device == entry.device for entry in running) for device in devices}
    device = min(devices, key=lambda name: load[name])
    return device if load[device] < slots else None
