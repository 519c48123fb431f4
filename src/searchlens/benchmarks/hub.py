"""Which files of a dataset repository are a split, by the hub's naming conventions; no code of a dataset is run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from searchlens.benchmarks.families import Hub
from searchlens.benchmarks.files import SUFFIXES
from searchlens.errors import InputError

SPLITS = ("train", "test", "validation", "val", "dev")


def select(names: Iterable[str], hub: Hub) -> list[str]:
    """The files that hold a split, sorted.

    A configuration and a split are words of a file's path; files that name no split are the training split; of a split
    that is there in several formats, the first of ``SUFFIXES`` counts.

    Parameters
    ----------
    names : iterable of str
        Paths relative to the repository, with ``/``.
    hub : Hub

    Raises
    ------
    InputError
        None of them does.
    """
    data = sorted(name for name in names if _is_data(name))
    chosen = [name for name in data if hub.config and _has_word(name, hub.config)] or data
    named = [name for name in chosen if any(_has_word(name, split) for split in SPLITS)]
    chosen = [name for name in named if _has_word(name, hub.split)] or (chosen if not named else [])
    for suffix in SUFFIXES:
        if found := [name for name in chosen if name.endswith(suffix)]:
            return found
    raise InputError(
        f"no file of split {hub.split!r}{f' of {hub.config}' if hub.config else ''} among:"
        f" {', '.join(data) or '(no data files)'}",
        f"{hub.id} on the hub has it; or name the file itself as path",
    )


def _is_data(name: str) -> bool:
    path = PurePosixPath(name)
    hidden = any(part.startswith(".") for part in path.parts)
    return path.suffix in SUFFIXES and not hidden and not path.name.startswith("dataset_info")


def _has_word(name: str, word: str) -> bool:
    return re.search(rf"(?:^|[/_.-]){re.escape(word)}(?:$|[/_.-])", name) is not None
