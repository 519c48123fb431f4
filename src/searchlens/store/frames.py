"""Reading and writing derived Parquet files."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from searchlens.errors import InputError
from searchlens.store import files


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
