"""The table of verdicts: every distinct (benchmark, gold, answer) is judged once in its life, per grader version.

It is one table for the whole results folder, in Parquet parts that are only ever added to, in a folder per benchmark.
A part is named by its content and published whole, so any number of jobs may read and write at the same time; two jobs
that meet the same new pair at the same moment may both judge it, and nothing is lost by that.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from searchlens.errors import InputError
from searchlens.grading import Grader, Pair
from searchlens.store import files

log = logging.getLogger(__name__)

PAIR = ["gold", "answer"]
BATCH = 2_000
"""Pairs judged before they are written: what a killed job can lose."""
LONGEST = 512
"""Longer strings (whole texts, checks) are stored as ``sha256:`` and their hash."""
_HASHED = "sha256:"

VERDICTS = pl.Schema(
    {
        "benchmark": pl.String(),
        "version": pl.String(),
        "gold": pl.String(),
        "answer": pl.String(),
        "correct": pl.Boolean(),
        "form": pl.String(),
    }
)
"""One row per pair and grader version; ``searchlens.grading.Verdict`` says what the last two mean."""


@dataclass(frozen=True)
class Judged:
    """Verdicts that were asked for.

    Attributes
    ----------
    verdicts : DataFrame
        Columns gold, answer (as asked), correct, form: one row per pair, in no particular order.
    graded, reused : int
        Pairs judged now, and pairs found in the store.
    """

    verdicts: pl.DataFrame
    graded: int
    reused: int


@dataclass(frozen=True)
class VerdictStore:
    """One benchmark's part of the table.

    Parameters
    ----------
    folder : Path
        ``results/verdicts/<benchmark>``. Need not exist.
    """

    folder: Path

    def judge(self, grader: Grader, pairs: pl.DataFrame, *, workers: int | None = None) -> Judged:
        """Verdicts of all pairs, of which only those not in the store are judged.

        Parameters
        ----------
        grader : Grader
        pairs : DataFrame
            String columns gold and answer, without nulls; repetitions do not matter.
        workers : int, optional
            Processes of the grader, >= 1; by default one per available core.

        Raises
        ------
        InputError
            A part of the table is damaged.
        """
        asked = pairs.select(PAIR).unique().with_columns(_stored(name) for name in PAIR)
        known = Known(self.folder, grader.GRADER_VERSION, asked)
        todo = _rotated(known.lack(asked))
        graded = 0
        for start in range(0, todo.height, BATCH):
            batch = known.lack(todo.slice(start, BATCH))  # another job may have judged some of them meanwhile
            if not batch.is_empty():
                graded += self._judge_batch(grader, batch, workers)
        verdicts = known.verdicts()
        return Judged(
            asked.join(verdicts, left_on=_STORED, right_on=PAIR, how="inner").drop(_STORED),
            graded,
            asked.height - graded,
        )

    def _judge_batch(self, grader: Grader, batch: pl.DataFrame, workers: int | None) -> int:
        found = grader.grade([Pair(*row) for row in batch.select(PAIR).iter_rows()], workers=workers)
        rows = pl.DataFrame(
            {
                "benchmark": [self.folder.name] * batch.height,
                "version": [grader.GRADER_VERSION] * batch.height,
                "gold": batch["gold_stored"],
                "answer": batch["answer_stored"],
                "correct": [verdict.correct for verdict in found],
                "form": [verdict.form for verdict in found],
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


@dataclass
class Known:
    """What the table says about some pairs, parts that appear meanwhile included; the rest of it is not kept in memory.

    Parameters
    ----------
    folder : Path
        One benchmark's parts.
    version : str
        Of the grader.
    asked : DataFrame
        Columns gold_stored and answer_stored: pairs as the table spells them.
    """

    folder: Path
    version: str
    asked: pl.DataFrame
    _parts: dict[Path, pl.DataFrame] = field(default_factory=dict)

    def verdicts(self) -> pl.DataFrame:
        """Columns gold, answer (as stored), correct, form: one row per known pair.

        Where two jobs judged the same pair, a judgement wins over having given up.
        """
        for path in sorted(self.folder.glob("*.parquet")):
            if path not in self._parts:
                part = _read_part(path).filter(pl.col("version") == self.version).drop("benchmark", "version")
                self._parts[path] = part.join(self.asked, left_on=PAIR, right_on=_STORED, how="semi")
        rows = pl.concat([VERDICTS.to_frame().drop("benchmark", "version"), *self._parts.values()])
        if rows.select(PAIR).is_duplicated().any():
            rows = rows.sort(*PAIR, pl.col("correct").is_null(), "correct", "form").unique(PAIR, keep="first")
        return rows

    def lack(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """The pairs that are not known, sorted by gold."""
        return pairs.join(self.verdicts(), left_on=_STORED, right_on=PAIR, how="anti").sort(_STORED)


def _rotated(todo: pl.DataFrame) -> pl.DataFrame:
    """Start at a place that depends on the pairs: jobs with overlapping work, started at once, do not go in step."""
    start = int(todo.hash_rows(seed=0).sum()) % max(1, todo.height)
    return pl.concat([todo.slice(start), todo.slice(0, start)])


def _stored(column: str) -> pl.Expr:
    """A column as the table spells it, under the name ``<column>_stored``; what looks like a hash is hashed too."""
    text = pl.col(column)
    long = (text.str.len_bytes() > LONGEST) | text.str.starts_with(_HASHED)
    hashed = pl.when(long).then(text).map_elements(_hash, return_dtype=pl.String)
    return pl.coalesce(hashed, text).alias(f"{column}_stored")


def _hash(text: str) -> str:
    return _HASHED + hashlib.sha256(text.encode()).hexdigest()


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
