"""Reading and writing derived Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
from pyarrow import ArrowException

from searchlens.errors import InputError
from searchlens.store import files
from searchlens.store.inputs import require_no_stream
from searchlens.store.layout import Layout

UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What polars raises of a file that is no sound Parquet. It panics where bits of a header or a footer are flipped, and
a panic is no ``Exception``."""

AGAIN = "delete it and run snakemake again"
IMPORT_AGAIN = "import it again: `searchlens imports` names its log"

GROUP = 16_384
"""Rows of a group of scores. A reader of one question unpacks the whole group it is in."""


def write_frame(frame: pl.DataFrame, path: Path, group: int | None = None) -> None:
    """Write a derived Parquet file, in place of an older one.

    Parameters
    ----------
    frame : DataFrame
    path : Path
    group : int, optional
        Rows of a group, for frames of which single rows are read.
    """
    files.replace(path, lambda temporary: frame.write_parquet(temporary, compression="zstd", row_group_size=group))


def join_frames(parts: Sequence[Path], path: Path, group: int | None = None) -> None:
    """Write the rows of some derived Parquet files as one, without having all in memory.

    Parameters
    ----------
    parts : sequence of Path
        Files of equal columns, at least one.
    path, group
        As of ``write_frame``.
    """
    rows = pl.scan_parquet(list(parts))
    files.replace(path, lambda temporary: rows.sink_parquet(temporary, compression="zstd", row_group_size=group))


def write_csv(frame: pl.DataFrame, path: Path) -> None:
    """Write comma-separated values, in place of an older file.

    A spreadsheet reads what begins with =, +, - or @ as a formula, and runs it; such texts, unless they are numbers,
    get a quote before them.
    """
    texts = pl.col(pl.String)
    formula = texts.str.contains(r"^[=+@\-\t\r]") & texts.cast(pl.Float64, strict=False).is_null() & (texts != "-")
    harmless = frame.with_columns(pl.when(formula).then("'" + texts).otherwise(texts).name.keep())
    files.replace(path, harmless.write_csv)


def read_frame(path: Path, stage: str, hint: str = AGAIN) -> pl.DataFrame:
    """One frame of an earlier stage; ``hint`` is what to do if it is damaged.

    Raises
    ------
    InputError
        The file is not there, or is damaged.
    """
    with readable(path, stage, hint):
        return pl.read_parquet(path)


def read_compared(layout: Layout, checkpoint: str, benchmark: str) -> pl.DataFrame | None:
    """The recorded verdicts of a cell beside ours; None if none came with its samples.

    Raises
    ------
    InputError
        The file is damaged.
    """
    path, scores = layout.compared(checkpoint, benchmark), layout.scores(checkpoint, benchmark)
    if not path.exists():
        return None
    return read_frame(path, "score", f"delete {scores}, with which it is made, and run snakemake again")


def read_unvouched(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    """A Parquet file that no hash vouches for.

    pyarrow reads it first, batch by batch, and raises where it is damaged. polars may end the process there: at eleven
    of the 44,056 bits of a small shard, each flipped alone, it asks for more memory than there is. A job that is
    started again would end in the same way.

    Raises
    ------
    FileNotFoundError
        It is not there.
    UNREADABLE
        It is damaged.
    """
    try:
        for _ in pq.ParquetFile(path).iter_batches(use_threads=False):
            pass
    except (ArrowException, ValueError, NotImplementedError) as error:
        raise OSError(str(error)) from None
    return pl.read_parquet(path, columns=columns)


@contextmanager
def readable(path: Path, stage: str, hint: str = AGAIN) -> Iterator[None]:
    """Say what is wrong with a file of an earlier stage that cannot be read inside, and what to do (``hint``).

    Raises
    ------
    InputError
        As of ``read_frame``.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist", f"run `searchlens {stage}` or snakemake first")
    require_no_stream(path)
    try:
        yield
    except UNREADABLE as error:
        raise InputError(f"{path} is not readable Parquet ({str(error).splitlines()[0]})", hint) from None
