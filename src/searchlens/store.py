"""What is on disk, and whether it is what it should be.

Standard library only, because the planner imports it. What "have it" means is decided here (``uncovered``) and nowhere
else: planner, job, scorer and verifier all ask these functions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from searchlens.errors import InputError

WEIGHT_FILES = ("config.json", "tokenizer.json", "*.safetensors")
"""What decides what a checkpoint generates."""

_SHARD = re.compile(r"s(\d{5,})-(\d{5,})\.json")


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any, length: int) -> str:
    """The first ``length`` hexadecimal digits of the sha256 of ``canonical(value)``."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:length]


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def weight_files(folder: Path) -> list[Path]:
    """The files of a checkpoint that decide what it generates.

    Raises
    ------
    InputError
        The folder, one of ``config.json``, ``tokenizer.json``, ``*.safetensors``, or a part of the weights is missing.
    """
    if not folder.is_dir():
        raise InputError(
            f"checkpoint folder {folder} does not exist", "check checkpoints.<name>.path in config/models.yaml"
        )
    found: list[Path] = []
    for pattern in WEIGHT_FILES:
        matches = sorted(folder.glob(pattern))
        if not matches:
            raise InputError(
                f"checkpoint {folder} lacks {pattern}",
                "is it complete, and in transformers layout with safetensors? a gated one has no weights until its"
                " terms are accepted",
            )
        found += matches
    for index in folder.glob("*.safetensors.index.json"):
        if lost := sorted(set(read_json(index)["weight_map"].values()) - {path.name for path in found}):
            raise InputError(
                f"checkpoint {folder} lacks {', '.join(lost)}, named by its {index.name}", "download it again"
            )
    return found


def fingerprint(folder: Path, hash_of: Callable[[Path], str] = file_sha256) -> str:
    """sha256 over the hashes of a checkpoint's weight, configuration and tokenizer files."""
    return fingerprint_of({path.name: hash_of(path) for path in weight_files(folder)})


def fingerprint_of(hashes: Mapping[str, str]) -> str:
    """The fingerprint of a checkpoint whose files, by name, have these sha256."""
    return digest(hashes, 64)


@dataclass(frozen=True)
class Shard:
    """One published range of samples, as its sidecar describes it."""

    path: Path
    start: int
    stop: int
    sidecar: Mapping[str, Any]

    @cached_property
    def present(self) -> bool:
        """Whether the file is there and holds what its sidecar states.

        Size and modification time are compared; only a file whose time differs (edited, or copied without times) is
        hashed. ``searchlens verify`` hashes all and brings the times of sound files up to date.
        """
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        if found.st_size != self.sidecar["bytes"]:
            return False
        return bool(found.st_mtime_ns == self.sidecar["mtime_ns"]) or file_sha256(self.path) == self.sidecar["sha256"]


def gpu_seconds(sidecar: Mapping[str, Any]) -> float:
    """GPU time of a shard, by its sidecar: seconds of sampling times GPUs held, 0 on a CPU."""
    if "gpu_seconds" in sidecar:
        return float(sidecar["gpu_seconds"])
    on_gpu = str(sidecar["device"]).startswith("cuda")
    return float(sidecar["wall_seconds"] * sidecar["device_count"]) if on_gpu else 0.0


def read_json(path: Path) -> Any:
    """A JSON file; damage is an ``InputError`` that names it."""
    try:
        return json.loads(path.read_text())
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is damaged: {error}", "`searchlens verify` lists what is damaged; delete this file and run again"
        ) from None


def shards_of(folder: Path) -> list[Shard]:
    """The shards of one generation, by start; those whose file is gone included."""
    if not folder.is_dir():
        return []
    found = filter(None, map(shard_at, folder.iterdir()))
    return sorted(found, key=lambda shard: (shard.start, shard.stop))


def shard_at(sidecar: Path) -> Shard | None:
    """The shard that a file describes; None where its name is not that of a sidecar."""
    match = _SHARD.fullmatch(sidecar.name)
    if match is None:
        return None
    return Shard(sidecar.with_suffix(".parquet"), int(match[1]), int(match[2]), read_json(sidecar))


def gaps(folder: Path, samples: int, start: int = 0) -> list[tuple[int, int]]:
    """Ranges of [start, samples) that no present shard covers: the one meaning of "missing".

    Parameters
    ----------
    folder : Path
        ``generations/<checkpoint>/<benchmark>/<id>``.
    samples : int
        Samples per question wanted.
    start : int
        The first of them that is asked about.

    Returns
    -------
    list of (start, stop)
        In order, disjoint; empty when everything is there.
    """
    return uncovered(shards_of(folder), samples, start)


def uncovered(shards: Iterable[Shard], samples: int, start: int = 0) -> list[tuple[int, int]]:
    """``gaps`` of shards that have been listed, in order of their start."""
    missing, reached = [], start
    for shard in shards:
        if reached >= samples:
            break
        if shard.stop <= reached or not shard.present:
            continue
        if shard.start > reached:
            missing.append((reached, min(shard.start, samples)))
        reached = shard.stop
    if reached < samples:
        missing.append((reached, samples))
    return [(first, last) for first, last in missing if first < last]
