"""Where results come from: versions, commit, machine and configuration, recorded beside what they made.

Standard library only at import, because every command starts with it.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from searchlens import __version__
from searchlens.store import files
from searchlens.store.hashing import digest
from searchlens.store.ranges import gpu_seconds

_STARTED = time.monotonic()

_ANALYSIS = ("polars", "numpy", "scipy", "pyarrow", "matplotlib", "math-verify")
"""Packages whose versions may show in a table."""


def config_fingerprint(config: Mapping[str, Any]) -> str:
    """12 hexadecimal digits of a configuration; ``<results>/config/<fingerprint>.json`` holds it."""
    return digest(config, 12)


@cache
def commit() -> str:
    """The commit of the checkout that runs, with ``-dirty`` where tracked files were edited; empty outside of one."""
    folder = Path(__file__).parent
    tracked = _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
    return _git(folder, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40") if tracked else ""


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]  # hundreds of jobs may ask at once
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def host() -> str:
    """The node's name, by Slurm where it says one."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def slurm_job() -> str:
    """Number of the Slurm job; empty outside of one."""
    return os.environ.get("SLURM_JOB_ID", "")


def now() -> str:
    """The time in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _installed() -> dict[str, str]:
    found = {"searchlens": __version__, "python": platform.python_version()}
    for name in _ANALYSIS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def made(fingerprint: str) -> dict[str, Any]:
    """What made a table: to be written next to it.

    Parameters
    ----------
    fingerprint : str
        Of the configuration; empty if there is none, as for a folder of landscapes.

    Returns
    -------
    dict
        versions, commit, host, slurm_job, config (its fingerprint), finished, wall_seconds (since the process began).
    """
    return {
        "versions": _installed(),
        "commit": commit(),
        "host": host(),
        "slurm_job": slurm_job(),
        "config": fingerprint,
        "finished": now(),
        "wall_seconds": round(time.monotonic() - _STARTED, 3),
    }


def sign(signature: Path, fingerprint: str, samples: Mapping[str, Any] | None) -> None:
    """Write what made a derived file into a file next to it, so that equal content has equal bytes.

    Parameters
    ----------
    signature : Path
    fingerprint : str
        As for :func:`made`.
    samples : mapping or None
        What the samples of the derived file took (:func:`spent`); None if there is no record.
    """
    files.replace_text(signature, json.dumps({**made(fingerprint), "samples": samples}, indent=1))


_WHERE = {
    "devices": "device",
    "engines": "engine",
    "hosts": "host",
    "versions": "version",
    "commits": "commit",
    "configs": "config",
}


def spent(sidecars: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What samples took, and where they were drawn, by the sidecars of their shards.

    Returns
    -------
    dict
        shards, samples, generated (tokens), wall_seconds, gpu_seconds; devices, engines, hosts, versions, commits and
        configs, each named once. Older sidecars name fewer.
    """
    found = list(sidecars)
    where = {
        plural: sorted({name for one in found for name in str(one.get(key, "")).split(JOINED) if name})
        for plural, key in _WHERE.items()
    }
    return {
        "shards": len(found),
        "samples": sum(one["rows"] for one in found),
        "generated": sum(one.get("generated", one["tokens"]) for one in found),
        "wall_seconds": sum(one["wall_seconds"] for one in found),
        "gpu_seconds": sum(gpu_seconds(one) for one in found),
        **where,
    }


def together(parts: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """``spent`` of several tables' samples as one; those of which nothing is known count for nothing."""
    found = [part for part in parts if part]
    numbers = ("shards", "samples", "generated", "wall_seconds", "gpu_seconds")
    return {
        **{key: sum(part[key] for part in found) for key in numbers},
        **{key: sorted({name for part in found for name in part[key]}) for key in _WHERE},
    }


JOINED = "; "
"""Between the machines of a shard that was begun on one and finished on another."""


def join(names: Iterable[str]) -> str:
    """Names as one text, each once, in order."""
    return JOINED.join(dict.fromkeys(name for name in names if name))
