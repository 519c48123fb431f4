"""Reading and writing derived Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
from pyarrow import ArrowException, BufferReader

from searchlens.errors import InputError
from searchlens.store import files
from searchlens.store.layout import Layout

DAMAGED = (
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException, ArrowException),
    *(OSError, ValueError, NotImplementedError),
)
"""What polars and pyarrow raise of bytes in memory that are no sound Parquet. polars panics where bits of a header or a
footer are flipped, and a panic is no ``Exception``. Of a path the disk could raise some of them as well."""

AGAIN = "delete it; `searchlens run` makes it again"
IMPORT_AGAIN = "import it again: `searchlens imports` names its log"

GROUP = 16_384
"""Rows of a group of scores. A reader of one question unpacks the whole group it is in."""


def write_frame(frame: pl.DataFrame, path: Path, group: int | None = None) -> None:
    """Write a derived Parquet file, in place of an older one, in groups of rows if single rows of it are read."""
    files.replace(path, lambda temporary: frame.write_parquet(temporary, compression="zstd", row_group_size=group))


def join_frames(parts: Sequence[Path], path: Path, group: int | None = None) -> None:
    """Write the rows of at least one derived Parquet file of equal columns as one, without having all in memory."""
    rows = pl.scan_parquet([files.read_bytes(part) for part in parts])
    files.replace(path, lambda temporary: rows.sink_parquet(temporary, compression="zstd", row_group_size=group))


def write_csv(frame: pl.DataFrame, path: Path) -> None:
    """Write comma-separated values that are no formulas, in place of an older file."""
    files.replace(path, without_formulas(frame).write_csv)


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame for comma-separated values.

    A spreadsheet reads what begins with =, +, - or @ as a formula, and runs it; such texts, unless they are numbers,
    get a quote before them.
    """
    texts = pl.col(pl.String)
    formula = texts.str.contains(r"^[=+@\-\t\r]") & texts.cast(pl.Float64, strict=False).is_null() & (texts != "-")
    return frame.with_columns(pl.when(formula).then("'" + texts).otherwise(texts).name.keep())


def read_frame(path: Path, stage: str, hint: str = AGAIN) -> pl.DataFrame:
    """One frame of an earlier stage, or InputError; ``hint`` is what to do if it is damaged."""
    with readable(path, stage, hint) as content:
        return pl.read_parquet(content)


def read_compared(layout: Layout, checkpoint: str, benchmark: str) -> pl.DataFrame | None:
    """The recorded verdicts of a cell beside ours; None if none came with its samples. InputError if damaged."""
    path, scores = layout.compared(checkpoint, benchmark), layout.scores(checkpoint, benchmark)
    if not path.exists():
        return None
    return read_frame(path, "score", f"delete {scores}, with which it is made; `searchlens run` makes both again")


def write_checked(frame: pl.DataFrame, path: Path, metadata: Mapping[str, str], *, is_indexed: bool = False) -> None:
    """Write Parquet whose pages have checksums, for ``read_unvouched``: no hash elsewhere vouches for the file.

    Pages are small; with an index of them, which has no checksum, a reader of byte ranges need not fetch them all.
    """
    pq.write_table(
        frame.to_arrow().replace_schema_metadata(dict(metadata)),
        path,
        compression="zstd",
        compression_level=3,
        write_statistics=False,
        data_page_size=65_536,
        write_batch_size=64,  # after so many values it looks whether the page is full
        write_page_index=is_indexed,
        write_page_checksum=True,
    )


def read_unvouched(path: Path, columns: list[str] | None = None) -> tuple[pl.DataFrame, dict[str, str]] | None:
    """Rows and metadata of a Parquet file that no hash vouches for; None if it is damaged.

    pyarrow reads it first, batch by batch, and raises where it is damaged. polars may end the process there: at eleven
    of the 44,056 bits of a small shard, each flipped alone, it asks for more memory than there is. A job that is
    started again would end in the same way. Raises OSError if the file is not there, or cannot be read.
    """
    content = files.read_bytes(path)
    try:
        for _ in pq.ParquetFile(BufferReader(content), page_checksum_verification=True).iter_batches(use_threads=False):
            pass
        return pl.read_parquet(content, columns=columns), pl.read_parquet_metadata(content)
    except DAMAGED:
        return None


def made_by(stage: str) -> str:
    """What is said where a file that a stage makes is not there."""
    return f"`searchlens run` makes it, or its stage alone: `searchlens {stage}`"


@contextmanager
def readable(path: Path, stage: str, hint: str = AGAIN) -> Iterator[bytes]:
    """Content of a file of an earlier stage; InputError as ``read_frame``, also if it cannot be parsed inside."""
    if not path.exists():
        raise InputError(f"{path} does not exist", made_by(stage))
    content = files.read_bytes(path)
    try:
        yield content
    except DAMAGED as error:
        raise InputError(f"{path} is not readable Parquet ({str(error).splitlines()[0]})", hint) from None
