"""Which grader judged the samples of a cell: ``grader.json`` in the folder of its landscape.

The file has no time, so that equal graders have equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from searchlens.store import files
from searchlens.store.layout import GRADER


@dataclass(frozen=True)
class Judge:
    """A grader in one version."""

    name: str = ""
    """``benchmarks.<name>.grader``; empty if it is not known."""
    version: str = ""
    """Of its rules and libraries; empty if it is not stated, as for readouts that were recorded without it."""

    def __str__(self) -> str:
        return f"the grader {self.name} in version {self.version or '(not stated)'}"

    def differs(self, other: Judge) -> bool:
        """Whether it is certain that the two are not the same."""
        return self.name != other.name or bool(self.version and other.version and self.version != other.version)

    @property
    def entry(self) -> dict[str, str]:
        """As it is written to a JSON file."""
        return asdict(self)


UNSTATED = Judge()


def of(entries: Mapping[str, Any], configured: str = "") -> Judge:
    """The grader in the provenance of scores or of compact readouts; otherwise the configured one in some version."""
    return Judge(**entries["grader"]) if "grader" in entries else Judge(configured)


def write(judge: Judge, landscape: Path) -> None:
    """Write the grader of a cell to the folder of its landscape."""
    files.replace_text(landscape / GRADER, json.dumps(judge.entry) + "\n")


def read(landscape: Path) -> Judge:
    """The grader of a cell; ``UNSTATED`` for a landscape of another origin."""
    path = landscape / GRADER
    return Judge(**files.read_json(path)) if path.exists() else UNSTATED
