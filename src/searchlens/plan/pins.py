"""Pins: which commit of a hub repository a name stands for, and which bytes that commit holds.

A name such as ``Qwen/Qwen2.5-7B`` stands for other bytes whenever its owner pushes. ``searchlens pin`` asks the hub
once and writes the commit and the sha256 of every file in use into a lock file. Ids, downloads and checks then read the
lock file only.

Standard library only, because the planner reads locks.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from searchlens.benchmarks import HubSplit
from searchlens.benchmarks.known import select
from searchlens.config.limits import record
from searchlens.errors import InputError
from searchlens.plan.cost import Shape
from searchlens.store import files
from searchlens.store.chat import FILE as CHAT
from searchlens.store.checkpoints import WEIGHT_FILES
from searchlens.store.files import digest, file_sha256, read_json
from searchlens.store.inputs import require_no_stream
from searchlens.store.specials import FILES, Specials

LOCK_VERSION = 1

Kind = Literal["model", "dataset"]

CHECKPOINT_FILES = ("*.json", "*.safetensors", CHAT)
"""Files of a checkpoint's repository that are pinned and fetched: weights in safetensors, settings and tokenizer."""
_DUPLICATES = ("consolidated*",)
"""Copies of the weights in a layout that no engine here reads."""

COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Source:
    """A hub repository as the configuration names it."""

    repo: str
    """``owner/name``."""
    revision: str
    """Branch, tag or commit that ``searchlens pin`` looks up."""
    split: HubSplit | None = None
    """Split of a dataset; None for a checkpoint."""

    @property
    def kind(self) -> Kind:
        """The type of the repository on the hub."""
        return "dataset" if self.split else "model"

    @property
    def key(self) -> str:
        """Its key in the lock file."""
        part = f":{self.split.config or 'default'}/{self.split.split}" if self.split else ""
        return f"{self.repo}@{self.revision}{part}"

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"

    def in_use(self, names: Iterable[str]) -> list[str]:
        """The files of the repository that searchlens reads, sorted.

        An InputError: files of a checkpoint are missing, or a dataset has no files of the split.
        """
        if self.split:
            return select(names, self.split)
        used = sorted(name for name in names if _matches(name, CHECKPOINT_FILES) and not _matches(name, _DUPLICATES))
        absent = [pattern for pattern in WEIGHT_FILES if not any(fnmatchcase(name, pattern) for name in used)]
        if absent:
            raise InputError(
                f"{self} has no {', '.join(absent)}",
                "convert it to safetensors with a fast tokenizer, and name the folder by `path`",
            )
        return used


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return "/" not in name and any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class File:
    """One pinned file: ``size`` in bytes, ``sha256`` as 64 hexadecimal digits."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Pin:
    """The commit and the files that a source stood for when it was pinned."""

    commit: str
    """40 hexadecimal digits."""
    files: Mapping[str, File]
    """By path inside the repository, in alphabetical order."""
    shape: Shape | None = field(default=None, compare=False)
    """Of a checkpoint, for estimates of its cost; None for an architecture that is not known, or a dataset."""
    specials: Specials | None = field(default=None, compare=False)
    """Of a checkpoint: what ends and pads its texts; None for a dataset."""
    chat: str | None = field(default=None, compare=False)
    """Digest of a checkpoint's chat template, empty if it has none; None as for ``specials``."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())

    @property
    def fingerprint(self) -> str:
        """``store.fingerprint`` of a folder with these files: a checkpoint has the same id from hub and folder."""
        kept = (name for name in self.files if any(fnmatchcase(name, pattern) for pattern in WEIGHT_FILES))
        return digest({name: self.files[name].sha256 for name in kept}, 64)


@dataclass(frozen=True)
class Lock:
    """The pins of a lock file."""

    path: Path
    pins: Mapping[tuple[str, str], Pin]
    """By (kind, key)."""

    @classmethod
    def read(cls, path: Path) -> Lock:
        """A lock file; one that does not exist has no pins. An InputError: damaged, or from another version."""
        if not path.exists():
            return cls(path, {})
        content = read_json(path)
        try:
            if content["version"] != LOCK_VERSION:
                raise InputError(
                    f"{path} has version {content['version']}, this searchlens reads version {LOCK_VERSION}",
                    "delete it and run `searchlens pin`",
                )
            pins = {
                (kind, key): record(Pin, pin | {"files": dict(pin["files"])})
                for kind in ("model", "dataset")
                for key, pin in content[f"{kind}s"].items()
            }
            for (kind, key), pin in pins.items():
                checked_commit(pin.commit)
                if kind == "model" and None in (pin.specials, pin.chat):
                    raise KeyError(key)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{path} is not a lock file: {error!r}", "delete it and run `searchlens pin`") from None
        return cls(path, pins)

    def get(self, source: Source) -> Pin | None:
        """The pin of a source, if there is one."""
        return self.pins.get((source.kind, source.key))

    def __getitem__(self, source: Source) -> Pin:
        pin = self.get(source)
        if pin is None:
            raise InputError(
                f"{source} is not pinned in {self.path}", "run `searchlens pin` where the hub can be reached"
            )
        return pin

    def write(self) -> None:
        """Replace the file; the same pins always give the same bytes."""
        content: dict[str, Any] = {"version": LOCK_VERSION, "models": {}, "datasets": {}}
        for (kind, key), pin in sorted(self.pins.items()):
            said = asdict(replace(pin, files=dict(sorted(pin.files.items()))))
            content[f"{kind}s"][key] = {name: part for name, part in said.items() if part is not None}
        files.replace_text(self.path, json.dumps(content, indent=1) + "\n")


def checked_commit(text: str) -> str:
    """The text, if it is 40 hexadecimal digits; otherwise a ValueError."""
    if not COMMIT.fullmatch(text):
        raise ValueError(f"commit {text!r} is not 40 hexadecimal digits")
    return text


def shape_of(folder: Path) -> Shape | None:
    """The shape in the ``config.json`` of a checkpoint's folder; None if there is none, or it is not understood."""
    try:
        content = json.loads(require_no_stream(folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return Shape.read(content) if isinstance(content, dict) else None


# ---- where files are


def cache_folder() -> Path:
    """The hub cache of this machine, located as ``huggingface_hub`` does."""
    home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("HF_HOME", f"{home}/huggingface")
    older = os.environ.get("HUGGINGFACE_HUB_CACHE", f"{home}/hub")
    return Path(os.path.expandvars(os.environ.get("HF_HUB_CACHE", older))).expanduser()


def cached_repository(source: Source) -> Path:
    """Folder of a repository in the hub cache."""
    return cache_folder() / f"{source.kind}s--{source.repo.replace('/', '--')}"


def snapshot(source: Source, pin: Pin) -> Path:
    """The folder that has the files of a pinned source after they were fetched."""
    return cached_repository(source) / "snapshots" / pin.commit


# ---- checks


class Hashes:
    """sha256 of files, computed once for each (path, size, modification time) and stored in a folder.

    A change that leaves size and time as they were is not noticed; ``searchlens fetch --rehash`` notices it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, path: Path) -> str:
        """64 hexadecimal digits."""
        stat = path.stat()
        entry = self.folder / digest([str(path.resolve()), stat.st_size, stat.st_mtime_ns], 32)
        if entry.exists():
            return entry.read_text()
        value = file_sha256(path)
        files.replace_text(entry, value)
        return value


def missing_files(source: Source, pin: Pin) -> list[str]:
    """One message for each file of a snapshot that is missing or of another size; no bytes are read."""
    found = []
    for name, file in pin.files.items():
        path = snapshot(source, pin) / name
        if not path.is_file():
            found.append(f"{name} is missing")
        elif (size := path.stat().st_size) != file.size:
            found.append(f"{name} has {size} bytes, but was pinned with {file.size} ({path.resolve()})")
    return found


def check(source: Source, pin: Pin, hash_of: Callable[[Path], str]) -> Path:
    """Compare every byte of a snapshot with its pin, by ``hash_of`` (such as ``Hashes``), and return its folder.

    An InputError names all files that are missing, differ, or are weights that are not in the lock file.
    """
    folder = snapshot(source, pin)
    problems = missing_files(source, pin)
    if not problems:
        problems = [
            f"{name} has sha256 {actual[:12]}…, but was pinned with {file.sha256[:12]}… ({(folder / name).resolve()})"
            for name, file in pin.files.items()
            if (actual := hash_of(folder / name)) != file.sha256
        ]
        if source.kind == "model":
            present = source.in_use(path.name for path in folder.iterdir())
            read = (name for name in present if name.endswith(".safetensors") or name in FILES)
            problems += [f"{name} is not pinned" for name in read if name not in pin.files]
    if problems:
        raise InputError(
            f"{source} in {folder} is not what was pinned: {'; '.join(problems)}",
            "delete the damaged files, then run `searchlens fetch` where the hub can be reached",
        )
    return folder
