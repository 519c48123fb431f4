"""What stages read and write of the files that they pass on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from searchlens.store import files
from searchlens.store.files import file_sha256
from searchlens.store.frames import read_frame
from searchlens.store.layout import CONTENT, SIGNATURE


def read_points(folder: Path, budgets: Sequence[int]) -> pl.DataFrame:
    """Operating points of a landscape at the budgets of B; only BOPTR reads beyond them."""
    return read_frame(folder / "points.parquet", "landscape").filter(pl.col("budget").is_in(list(budgets)))


def read_sampling_cost(signature: Path) -> dict[str, Any] | None:
    """Sampling cost in the provenance of a derived file, or None if there is no record."""
    return files.read_json(signature).get("samples") if signature.exists() else None


def write_content(folder: Path, names: Iterable[str]) -> None:
    """Write the hashes of files of a folder, which the jobs that read them depend on: equal files, equal hashes."""
    hashes = {name: file_sha256(folder / name) for name in names}
    files.replace_text(folder / CONTENT, json.dumps(hashes, indent=1) + "\n")


def landscape_costs(folders: Sequence[Path]) -> list[dict[str, Any] | None]:
    """Sampling cost of each of these landscapes."""
    return [read_sampling_cost(folder / SIGNATURE) for folder in folders]
