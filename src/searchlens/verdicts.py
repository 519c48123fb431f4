"""The table of verdicts of one benchmark: every distinct (gold, answer) pair is judged once in its life.

It is a folder of Parquet parts that are only ever added to. A part is named by its content and published whole, so any
number of jobs may read and write at the same time; two jobs that meet the same new pair at the same moment may both
judge it, and nothing is lost by that.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from searchlens import files
from searchlens.errors import InputError
from searchlens.grading import Grader, Pair

log = logging.getLogger(__name__)

PAIR = ["gold", "answer"]
BATCH = 10_000
"""Pairs judged before they are written: what a killed job can lose."""
LONGEST = 512
"""Longer strings (whole texts, checks) are stored as ``sha256:`` and their hash."""

VERDICTS = pl.Schema(
    {
        "version": pl.String(),
        "gold": pl.String(),
        "answer": pl.String(),
        "correct": pl.Boolean(),
        "key": pl.String(),
        "timeout": pl.Boolean(),
    }
)
"""One row per pair and grader version; ``searchlens.grading.Verdict`` says what the last three mean."""


@dataclass(frozen=True)
class Judged:
    """Verdicts that were asked for.

    Attributes
    ----------
    verdicts : DataFrame
        Columns gold, answer (as asked), correct, key, timeout: one row per pair, in no particular order.
    graded, reused : int
        Pairs judged now, and pairs found in the store.
    """

    verdicts: pl.DataFrame
    graded: int
    reused: int


@dataclass(frozen=True)
class VerdictStore:
    """The parts under one folder (``results/verdicts/<benchmark>``).

    Parameters
    ----------
    folder : Path
        Need not exist.
    """

    folder: Path
    _read: dict[Path, pl.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    def known(self, version: str) -> pl.DataFrame:
        """All verdicts of a grader version, one row per pair, parts that appeared meanwhile included.

        Where two jobs judged the same pair, a judgement wins over having given up.

        Raises
        ------
        InputError
            A part is damaged.
        """
        for path in sorted(self.folder.glob("*.parquet")):
            if path not in self._read:
                self._read[path] = _read_part(path)
        parts = [self._read[path] for path in sorted(self._read)]
        rows = pl.concat(parts) if parts else VERDICTS.to_frame()
        rows = rows.filter(pl.col("version") == version).sort(*PAIR, "timeout", "correct", "key")
        return rows.unique(PAIR, keep="first", maintain_order=True)

    def judge(self, grader: Grader, pairs: pl.DataFrame) -> Judged:
        """Verdicts of all pairs, of which only those not in the store are judged.

        Parameters
        ----------
        grader : Grader
        pairs : DataFrame
            String columns gold and answer, without nulls; repetitions do not matter.
        """
        asked = pairs.select(PAIR).unique().with_columns(_stored(name) for name in PAIR)
        todo = asked.join(self.known(grader.GRADER_VERSION), left_on=_STORED, right_on=PAIR, how="anti")
        todo = todo.unique(_STORED).sort(_STORED)
        graded = sum(self._judge_batch(grader, todo.slice(start, BATCH)) for start in range(0, todo.height, BATCH))
        known = self.known(grader.GRADER_VERSION).select(*PAIR, "correct", "key", "timeout")
        found = asked.join(known, left_on=_STORED, right_on=PAIR, how="inner").drop(_STORED)
        return Judged(found, graded, asked.n_unique(_STORED) - graded)

    def _judge_batch(self, grader: Grader, batch: pl.DataFrame) -> int:
        known = self.known(grader.GRADER_VERSION)  # again: another job may have judged some of them meanwhile
        batch = batch.join(known, left_on=_STORED, right_on=PAIR, how="anti").sort(_STORED)
        if batch.is_empty():
            return 0
        found = grader.grade([Pair(*row) for row in batch.select(PAIR).iter_rows()])
        rows = pl.DataFrame(
            {
                "version": [grader.GRADER_VERSION] * batch.height,
                "gold": batch["gold_stored"],
                "answer": batch["answer_stored"],
                "correct": [verdict.correct for verdict in found],
                "key": [verdict.key for verdict in found],
                "timeout": [verdict.timeout for verdict in found],
            },
            schema=VERDICTS,
        )
        self._publish(rows)
        return rows.height

    def _publish(self, rows: pl.DataFrame) -> None:
        content = json.dumps(rows.rows(), ensure_ascii=False, separators=(",", ":"))
        path = self.folder / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.parquet"
        files.publish(path, lambda temporary: rows.write_parquet(temporary, compression="zstd"))
        log.info("judged %d new pairs (%s)", rows.height, path.name)


_STORED = [f"{name}_stored" for name in PAIR]


def _stored(column: str) -> pl.Expr:
    """A column as the store spells it, under the name ``<column>_stored``."""
    text = pl.col(column)
    hashed = text.map_elements(_hashed, return_dtype=pl.String)
    return pl.when(text.str.len_bytes() > LONGEST).then(hashed).otherwise(text).alias(f"{column}_stored")


def _hashed(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest() if len(text.encode()) > LONGEST else text


def _read_part(path: Path) -> pl.DataFrame:
    try:
        part = pl.read_parquet(path)
    except (PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
    else:
        if part.schema == VERDICTS:
            return part
        reason = f"it has the columns {', '.join(part.columns)}"
    raise InputError(f"verdicts {path} cannot be read: {reason}", "delete this file; its pairs are judged again")
