"""Reading and writing the frames that stages pass on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from searchlens.errors import InputError
from searchlens.store import files
from searchlens.store.layout import SIGNATURE


def write_frame(frame: pl.DataFrame, path: Path) -> None:
    """Write a derived Parquet file, in place of an older one."""
    files.replace(path, lambda temporary: frame.write_parquet(temporary, compression="zstd"))


def read_frame(path: Path, stage: str) -> pl.DataFrame:
    """One frame of an earlier stage.

    Raises
    ------
    InputError
        The file is not there, or is damaged.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist", f"run `searchlens {stage}` or snakemake first")
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(
            f"{path} is not readable Parquet ({str(error).splitlines()[0]})", "delete it and run snakemake again"
        ) from None


def read_points(folder: Path, budgets: Sequence[int]) -> pl.DataFrame:
    """Operating points of a landscape at the budgets of B; only BOPTR reads beyond them."""
    return read_frame(folder / "points.parquet", "landscape").filter(pl.col("budget").is_in(list(budgets)))


def read_sampling_cost(signature: Path) -> dict[str, Any] | None:
    """Sampling cost in the provenance of a derived file, or None if there is no record."""
    return files.read_json(signature).get("samples") if signature.exists() else None


def landscape_costs(folders: Sequence[Path]) -> list[dict[str, Any] | None]:
    """Sampling cost of each of these landscapes."""
    return [read_sampling_cost(folder / SIGNATURE) for folder in folders]
