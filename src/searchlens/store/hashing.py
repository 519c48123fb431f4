"""Hashes of what is on disk: of JSON values, of files, and the fingerprint of a checkpoint.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from searchlens.errors import InputError
from searchlens.store.checkpoints import index_names
from searchlens.store.files import patiently
from searchlens.store.inputs import require_no_stream

WEIGHT_FILES = ("config.json", "tokenizer.json", "*.safetensors")
"""Files that decide the tokens that a checkpoint generates."""


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any, length: int) -> str:
    """The first ``length`` hexadecimal digits of the sha256 of ``canonical(value)``."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()[:length]


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, read in pieces."""

    def read() -> str:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    return patiently(require_no_stream(path), read)


def weight_files(folder: Path) -> list[Path]:
    """The files of a checkpoint that decide what it generates; InputError names one that is missing."""
    if not folder.is_dir():
        raise InputError(f"checkpoint folder {folder} does not exist", "correct the path, or put the folder there")
    paths: list[Path] = []
    for pattern in WEIGHT_FILES:
        matches = sorted(folder.glob(pattern))
        if not matches:
            hint = "download it again, in transformers layout with safetensors; for a gated one, accept its terms first"
            if pattern == "tokenizer.json" and (folder / "tokenizer.model").exists():
                hint = "convert it to a fast tokenizer: load it with transformers, and save it"
            raise InputError(f"checkpoint {folder} has no {pattern}", hint)
        if odd := next((path for path in matches if not path.is_file()), None):
            raise InputError(f"checkpoint {folder}: {odd.name} is no file", "download it again")
        paths += matches
    for index in folder.glob("*.safetensors.index.json"):
        if missing := sorted(set(index_names(index)) - {path.name for path in paths}):
            raise InputError(
                f"checkpoint {folder} has no {', '.join(missing)}, which its {index.name} names", "download it again"
            )
    return paths


def fingerprint(folder: Path, hash_of: Callable[[Path], str] = file_sha256) -> str:
    """sha256 over the hashes of a checkpoint's weight, configuration and tokenizer files."""
    return fingerprint_of({path.name: hash_of(path) for path in weight_files(folder)})


def fingerprint_of(hashes: Mapping[str, str]) -> str:
    """The fingerprint of a checkpoint whose files, by name, have these sha256."""
    return digest(hashes, 64)
