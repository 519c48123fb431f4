"""Where results come from: versions, commit, machine and configuration, recorded next to the results.

Also which grader judged the samples of a cell, and what a stage could not make.

Standard library only at import, because every command starts with it.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchlens import __version__
from searchlens.store import files
from searchlens.store.files import digest
from searchlens.store.layout import GRADER

if TYPE_CHECKING:  # no stage depends on all sections because of it
    from searchlens.config.model import Config

_STARTED = time.monotonic()

_ANALYSIS = ("polars", "numpy", "scipy", "pyarrow", "matplotlib", "math-verify")
"""Packages whose versions can change the numbers of a table."""


def config_fingerprint(config: Config) -> str:
    """12 hexadecimal digits of a configuration; ``<results>/config/<fingerprint>.json`` holds it."""
    return digest(asdict(config), 12)


@cache
def commit() -> str:
    """The commit of the checkout that runs, with ``-dirty`` if tracked files were edited; empty if there is none."""
    folder = Path(__file__).parent
    tracked = _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
    return _git(folder, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40") if tracked else ""


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]  # hundreds of jobs may run at once
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def host() -> str:
    """Name of the node: Slurm's if there is one, or else the host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def slurm_job() -> str:
    """Number of the Slurm job; empty outside of Slurm."""
    return os.environ.get("SLURM_JOB_ID", "")


def now() -> str:
    """The time in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def made(fingerprint: str) -> dict[str, Any]:
    """Versions, commit and machine that make a table; the fingerprint is empty if there is no configuration."""
    versions = {"searchlens": __version__, "python": platform.python_version()}
    for name in _ANALYSIS:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        "versions": versions,
        "commit": commit(),
        "host": host(),
        "slurm_job": slurm_job(),
        "config": fingerprint,
        "finished": now(),
        "wall_seconds": round(time.monotonic() - _STARTED, 3),
    }


def sign(signature: Path, fingerprint: str, samples: Mapping[str, Any] | None, **more: Any) -> None:
    """Write a derived file's provenance beside it, without empty entries, so that equal content has equal bytes."""
    entries = {**made(fingerprint), "samples": samples, **{key: value for key, value in more.items() if value}}
    files.replace_text(signature, json.dumps(entries, indent=1))


_WHERE = {f"{key}s": key for key in ("device", "engine", "host", "version", "commit", "config")}
_SPENT = ("generated", "wall_seconds", "gpu_seconds")


def spent(sidecars: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sampling cost and origin of shards, from their sidecars, each name once; recorded ones say less."""
    entries = list(sidecars)
    where = {
        plural: sorted({name for entry in entries for name in str(entry.get(key, "")).split(JOINED) if name})
        for plural, key in _WHERE.items()
    }
    return {
        "shards": len(entries),
        "samples": sum(entry["rows"] for entry in entries),
        **{key: sum(entry[key] for entry in entries) for key in _SPENT},
        **where,
    }


def together(parts: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """The sum of several results of ``spent``; None, which stands for no record, adds nothing."""
    costs = [part for part in parts if part]
    return {
        **{key: sum(cost[key] for cost in costs) for key in ("shards", "samples", *_SPENT)},
        **{key: sorted({name for cost in costs for name in cost[key]}) for key in _WHERE},
    }


JOINED = "; "
"""Separates machines, if a shard was started on one and finished on another."""


def join(names: Iterable[str]) -> str:
    """Names as one text, each once, in order."""
    return JOINED.join(dict.fromkeys(name for name in names if name))


# ---- the grader of a cell


@dataclass(frozen=True)
class Judge:
    """A grader in one version, which judged the samples of a cell."""

    name: str = ""
    """``benchmarks.<name>.grader``; empty if it is not known."""
    version: str = ""
    """Of its rules and libraries; empty if it is not stated, as for estimates that were recorded without it."""

    def __str__(self) -> str:
        return f"the grader {self.name} in version {self.version or '(not stated)'}"

    def differs(self, other: Judge) -> bool:
        """Whether it is certain that the two are not the same."""
        return self.name != other.name or bool(self.version and other.version and self.version != other.version)

    @classmethod
    def of(cls, entries: Mapping[str, Any], configured: str = "") -> Judge:
        """That in the provenance of scores or of recorded counts; otherwise the configured one in some version."""
        return cls(**entries["grader"]) if "grader" in entries else cls(configured)

    @classmethod
    def read(cls, landscape: Path) -> Judge:
        """That of a cell, by the folder of its landscape; without a name for a landscape of another origin."""
        path = landscape / GRADER
        return cls(**files.read_json(path)) if path.exists() else cls()

    def write(self, landscape: Path) -> None:
        """Write it to the folder of a landscape, without a time, so that equal graders have equal bytes."""
        files.replace_text(landscape / GRADER, json.dumps(asdict(self)) + "\n")


# ---- what could not be made


class Failures(dict[str, str]):
    """Tables and figures that a stage could not make, with the errors; it makes all others."""

    @contextmanager
    def caught(self, what: str, outputs: Iterable[Path]) -> Iterator[None]:
        """Go on after an error, with empty outputs; where these cannot be written either, the stage ends."""
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:
            logging.getLogger(__name__).exception("%s could not be made", what)
            for path in outputs:
                files.replace_text(path, "")
            self[what] = " ".join(f"{type(error).__name__}: {error}".split())

    def save(self, record: Path) -> None:
        """Replace the record of the run before, which counts the tries that failed."""
        if tries := (files.read_json(record)["tries"] if record.exists() else 0) + bool(self):
            files.replace_text(record, json.dumps({"tries": tries, "failed": self}))


def tried(records: Path) -> int:
    """How often a stage failed. Its rule tracks it, so it runs again after a failure, and not after a success."""
    return sum(record["tries"] for record in _records(records))


def failed(records: Path) -> dict[str, str]:
    """What the last run of a stage could not make, with the errors."""
    return {what: why for record in _records(records) for what, why in record["failed"].items()}


def _records(folder: Path) -> list[dict[str, Any]]:
    return [files.read_json(path) for path in files.entries(folder) if path.suffix == ".json"]
