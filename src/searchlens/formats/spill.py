"""Rows that are sorted by question outside of memory: sorted runs in temporary Arrow files, merged when they are read.

The rows of each pool are collected until they fill the memory that is allowed, then sorted and written as a run. To
read a pool, all its runs are read side by side, a piece of each at a time.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

MEMORY = 96 * 2**20
"""Bytes of texts that are held before a run is written, and about those of a piece that is read."""

_PIECE = 2**20
"""Bytes of one record batch of a run."""

ROW = pl.Schema(
    {
        "number": pl.UInt32(),
        "sample": pl.UInt32(),
        "text": pl.String(),
        "tokens": pl.List(pl.Int32()),
        "logprobs": pl.List(pl.Float32()),
        "n_tokens": pl.UInt32(),
        "mean_logprob": pl.Float32(),
        "finish": pl.String(),
        "details": pl.String(),
        "verdicts": pl.String(),
        "place": pl.String(),
    }
)
"""One sample. ``number`` numbers the questions in the order of their first samples; ``verdicts`` and
``details`` are JSON or null."""

Positions = npt.NDArray[np.int64]

Rank = Callable[[int], Any]
"""What the questions are ordered by: number of a question to anything that can be compared."""


class Spill:
    """Rows of several pools, which are read in the order of ``rank``; that of a number never changes. ``folder`` makes
    the folder of temporary files when the first is written.
    """

    def __init__(self, rank: Rank, folder: Callable[[], Path]) -> None:
        self._rank = rank
        self._make = folder
        self._folder: Path | None = None
        self._rows: defaultdict[Hashable, list[tuple[Any, ...]]] = defaultdict(list)
        self._sizes: Counter[Hashable] = Counter()
        self._runs: dict[Hashable, list[Path]] = {}
        self._held = 0

    def add(self, pool: Hashable, row: tuple[Any, ...], size: int) -> None:
        """Add a row (the columns of ``ROW``) of about ``size`` bytes."""
        self._rows[pool].append(row)
        self._sizes[pool] += size
        self._held += size
        if self._held > MEMORY:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self._held -= self._sizes.pop(largest)
            self._write(largest, self._sorted(self._rows.pop(largest)))

    def read(self, pool: Hashable, positions: Positions) -> Iterator[pl.DataFrame]:
        """The rows of a pool in pieces of whole questions, by rank, then by sample; ``positions`` of questions, by
        number, are in the order of the ranks.
        """
        runs = [_batches(path) for path in self._runs.get(pool, [])]
        if self._rows.get(pool):
            runs.append(iter([self._sorted(self._rows[pool])]))
        waiting: list[pl.DataFrame] = []
        for part in _merged(runs, positions):
            waiting.append(part)
            if sum(each.estimated_size() for each in waiting) > MEMORY // 4:
                yield self._ordered(pl.concat(waiting))
                waiting = []
        if waiting:
            yield self._ordered(pl.concat(waiting))

    def close(self) -> None:
        """Delete the temporary files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, pool: Hashable, rows: pl.DataFrame) -> None:
        if self._folder is None:
            self._folder = self._make()
        path = self._folder / f"{sum(map(len, self._runs.values())):05d}.arrow"
        each = max(1, int(rows.height * _PIECE / max(1, rows.estimated_size())))
        table = rows.to_arrow()
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=each)
        self._runs.setdefault(pool, []).append(path)

    def _sorted(self, rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
        columns = dict(zip(ROW.names(), zip(*rows, strict=True), strict=True))
        series = [pl.Series(name, columns[name], dtype=kind, strict=False) for name, kind in ROW.items()]
        return self._ordered(pl.DataFrame(series))

    def _ordered(self, rows: pl.DataFrame) -> pl.DataFrame:
        numbers = sorted(rows["number"].unique().to_list(), key=self._rank)
        order = pl.col("number").replace_strict(numbers, range(len(numbers)), return_dtype=pl.UInt32)
        return rows.sort(order, "sample", maintain_order=True)


def _batches(path: Path) -> Iterator[pl.DataFrame]:
    """The record batches of a run; one of them is in memory at a time."""
    with pa.OSFile(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield pl.DataFrame(pl.from_arrow(reader.get_batch(number)))


def _merged(runs: Sequence[Iterator[pl.DataFrame]], positions: Positions) -> Iterator[pl.DataFrame]:
    """The rows of sorted runs in pieces of whole questions: what a run has not given yet is at its last position or
    behind it, so that everything before the smallest of these positions is complete.
    """
    held, places = [pl.DataFrame(schema=ROW)] * len(runs), [np.empty(0, np.int64)] * len(runs)
    unread = dict(enumerate(runs))
    due = list(unread)
    while unread:
        for i in due:
            if (batch := next(unread[i], None)) is None:
                del unread[i]
            else:
                held[i] = pl.concat([held[i], batch])
                places[i] = positions[held[i]["number"].to_numpy()]
        ends = {i: int(places[i][-1]) for i in unread}
        edge = min(ends.values(), default=len(positions))
        due = [i for i, end in ends.items() if end == edge]
        counts = [int(np.searchsorted(each, edge)) for each in places]
        if any(counts):
            yield pl.concat([rows[:count] for rows, count in zip(held, counts, strict=True) if count])
        held = [rows[count:] for rows, count in zip(held, counts, strict=True)]
        places = [each[count:] for each, count in zip(places, counts, strict=True)]
