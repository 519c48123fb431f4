"""Finds the files of a split in a dataset repository by the naming conventions of the hub, without running its code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from searchlens.benchmarks.files import SUFFIXES
from searchlens.benchmarks.known import HubSplit
from searchlens.errors import InputError

SPLITS = ("train", "test", "validation", "val", "dev")


def select(names: Iterable[str], split: HubSplit) -> list[str]:
    """The files that hold a split, sorted, of paths relative to the repository, with ``/``.

    The configuration and the split are words in the path of a file. Files that name no split are the training split. If
    the split is there in several formats, the first of ``SUFFIXES`` is used. Raises InputError if no file holds it.
    """
    data = sorted(name for name in names if _is_data(name))
    configured = [name for name in data if split.config and _has_word(name, split.config)] or data
    with_split = [name for name in configured if any(_has_word(name, word) for word in SPLITS)]
    files = [name for name in with_split if _has_word(name, split.split)] or ([] if with_split else configured)
    for suffix in SUFFIXES:
        if same_format := [name for name in files if name.endswith(suffix)]:
            return same_format
    raise InputError(
        f"no file of split {split.split!r}{f' of {split.config}' if split.config else ''} among:"
        f" {', '.join(data) or '(no data files)'}",
        f"{split.id} on the hub has it; or name the file itself as path",
    )


def _is_data(name: str) -> bool:
    path = PurePosixPath(name)
    hidden = any(part.startswith(".") for part in path.parts)
    return path.suffix in SUFFIXES and not hidden and not path.name.startswith("dataset_info")


def _has_word(name: str, word: str) -> bool:
    return re.search(rf"(?:^|[/_.-]){re.escape(word)}(?:$|[/_.-])", name) is not None
