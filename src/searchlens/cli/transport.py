"""`searchlens push` and `pull`: samples of a study to and from its folder on another machine, or in another place.

rsync carries them. The name of a file holds the digest of what decided its samples, so one that is there is neither
sent nor replaced: the first one stays, as among jobs of one folder. Shards come before the sidecars that describe them,
as a job publishes them, so wherever it breaks off each folder is sound, and the same command goes on.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from searchlens.errors import InputError, JobError, counted
from searchlens.plan import Grid
from searchlens.store.files import make_folder

SENT = ("generations", "traces", "recorded", "imports", "manifests", "config")
"""Folders that are carried; all else is made of them."""

_RULES = ["--exclude=.*", "--exclude=chunks/", *(f"--include=/{name}/" for name in SENT), "--exclude=/*"]
_SHARDS = [*_RULES, "--include=*/", "--include=*.parquet", "--exclude=*"]
# While a worker runs, shards may be published after the first pass. Their sidecars come in the second.
_PASSES = (_SHARDS, _RULES, _SHARDS)
_COPY = ("rsync", "-rtLKms", "--ignore-existing", "--partial-dir=.arriving.tmp", "--out-format=%n")
_VANISHED = 24
_NO_STUDY, _NO_RSYNC, _NO_RESULTS = 91, 92, 93
_PROBE = f"""cd -- {{folder}} 2>/dev/null && ls config/*.yaml >/dev/null 2>&1 || exit {_NO_STUDY}
command -v rsync >/dev/null || exit {_NO_RSYNC}
{{ready}} -- {{results}} || exit {_NO_RESULTS}"""


@dataclass(frozen=True)
class Place:
    """The folder of a study, on another machine if there is a host."""

    host: str
    folder: str
    results: Path
    """Of the study here; one that is relative has its namesake there."""

    @classmethod
    def of(cls, text: str, results: Path) -> Place:
        """A place as ``HOST:DIR`` or ``DIR``; InputError if no folder can have that name."""
        if "\0" in text:
            raise InputError(f"{text!r} names no folder")
        match = re.fullmatch(r"(\[[^\]]+\]|[^/:]+):(.*)", text)
        host, folder = match.groups() if match else ("", text)
        return cls(host, (folder.removeprefix("~/") or ".") if host else str(Path(folder).absolute()), results)

    def __str__(self) -> str:
        return f"{self.host}:{self.folder}" if self.host else self.folder

    @property
    def path(self) -> str:
        """The results there, as rsync takes them."""
        folder = str(Path(self.folder) / self.results)
        return f"{self.host}:{folder}/" if self.host else f"{folder}/"

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the shell there."""
        shell = ["ssh", "--", self.host.strip("[]")] if self.host else ["sh", "-c"]
        return _run([*shell, script])

    def check(self, ready: str = "true") -> None:
        """InputError unless a study is there, and ``ready``, a command, succeeds with its results folder."""
        told = {"folder": shlex.quote(self.folder), "results": shlex.quote(str(self.results)), "ready": ready}
        done = self.run(_PROBE.format(**told))
        if done.returncode == _NO_STUDY:
            raise InputError(f"{self} is not the folder of a study: no config/*.yaml is there", "copy the study there")
        if done.returncode == _NO_RSYNC:
            raise _missing("rsync", self.host)
        if done.returncode == _NO_RESULTS:
            raise InputError(f"{self}: cannot use its results folder {self.results}: {_last(done.stderr)}")
        if done.returncode:
            raise InputError(f"cannot reach {self.host}: {_last(done.stderr)}", f"`ssh {self.host}` must work")

    def verify(self, program: str) -> str:
        """Check every file there by searchlens there; the counts, in words. Raises InputError if one is damaged."""
        program = program if self.host else f"{shlex.quote(sys.executable)} -m searchlens"
        done = self.run(f"cd -- {shlex.quote(self.folder)} && {program} -C . verify {shlex.quote(str(self.results))}")
        if done.returncode in (126, 127):
            more = f"name it by --there, or run `searchlens verify {self.results}` there"
            raise InputError(f"everything arrived, but {self.host} has no {program} to verify it", more)
        if done.returncode:
            more = "`searchlens verify --repair` in both folders, a run of what both lack, then this command again"
            raise InputError(f"{self}: {(done.stdout or done.stderr).strip()}", more)
        return _last(done.stdout)


def push(grid: Grid, to: str, program: str) -> str:
    """Send what the folder of a study elsewhere lacks, and verify all of it there; what was done, in words.

    ``program``: searchlens on the other machine. Raises InputError if that cannot be reached, has no study there or no
    rsync, or a file is damaged, and JobError if rsync fails.
    """
    place = _elsewhere(grid, to)
    grid.layout.require_results()
    place.check("mkdir -p")
    return f"{_carried(f'{grid.layout.results}/', place.path)} sent to {place}; there: {place.verify(program)}"


def pull(grid: Grid, source: str) -> str:
    """Fetch what this study lacks from its folder elsewhere, and verify all of it here; as ``push``."""
    place = _elsewhere(grid, source)
    place.check("cd")
    make_folder(grid.layout.results)
    fetched = _carried(place.path, f"{grid.layout.results}/")
    return f"{fetched} fetched from {place}; here: {Place.of('.', grid.layout.results).verify('')}"


def _elsewhere(grid: Grid, text: str) -> Place:
    """The folder of the same study that a text names."""
    place = Place.of(text, grid.layout.results)
    if not shutil.which("rsync"):
        raise _missing("rsync", "")
    if not place.host and Path(place.path).resolve() == grid.layout.results.resolve():
        raise InputError(f"{place} is this study itself", "name its folder on another machine: HOST:DIR")
    place.check()
    return place


def _missing(program: str, host: str) -> InputError:
    return InputError(f"{program} is not installed {f'on {host}' if host else 'here'}", f"install {program} there")


def _carried(source: str, target: str) -> str:
    """Carry files from one results folder to another, and count them."""
    names = set[str]()
    for rules in _PASSES:
        done = _run([*_COPY, *rules, "--", source, target])
        names |= {name for name in done.stdout.splitlines() if name[-1:] not in ("/", "")}
        if done.returncode not in (0, _VANISHED):
            # Its last line says neither which file nor why.
            told = (line for line in done.stderr.splitlines() if re.search(r' "|^(protocol|ssh)\b', line))
            message = f"rsync ended with status {done.returncode}: {next(told, _last(done.stderr))}"
            raise JobError(message, "run the same command again: whole files that arrived are kept")
    return counted(len(names), "file")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except FileNotFoundError:
        raise _missing(command[0], "") from None


def _last(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")
