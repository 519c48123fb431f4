"""The table of verdicts: each distinct (benchmark, gold, answer) is judged once per grader version.

One table serves the whole results folder. It consists of Parquet files, in a folder per benchmark, which are added and
never changed. A file is named by its content and published whole, so that any number of jobs may read and write at the
same time. Two jobs that find the same new pair at the same time may both judge it, which is harmless.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from searchlens.errors import InputError
from searchlens.grading import GradedPair, Grader
from searchlens.seeds import resampler
from searchlens.store import files
from searchlens.store.frames import read_unvouched

log = logging.getLogger(__name__)

PAIR = ["gold", "answer"]
BATCH = 2_000
"""Pairs judged before they are written: the most that a killed job loses."""
LONGEST = 512
"""Longer strings (whole texts, checks), in bytes, are stored as ``sha256:`` and their hash."""
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
"""One row per pair and grader version; ``searchlens.grading.Verdict`` describes the last two columns."""


@dataclass(frozen=True)
class Judgements:
    """Verdicts of requested pairs."""

    verdicts: pl.DataFrame
    """Columns gold, answer (as requested), correct, form: one row per distinct pair, in no particular order."""
    graded: int
    reused: int
    """``graded``, ``reused``: number of pairs judged now, and of pairs read from the table."""


@dataclass(frozen=True)
class VerdictStore:
    """The part of the table for one benchmark."""

    folder: Path
    """``results/verdicts/<benchmark>``; it need not exist."""
    batch: int | None = None
    """Pairs judged before they are written, by default ``BATCH``. Each batch starts processes, so a table that nobody
    keeps has large ones."""

    def judge(self, grader: Grader, pairs: pl.DataFrame, *, workers: int | None = None) -> Judgements:
        """Verdicts of all pairs, none null; only those that the table lacks are judged. InputError if it is damaged."""
        distinct = pairs.select(PAIR).unique().with_columns(_stored(name) for name in PAIR)
        table = VerdictTable(self.folder, grader.version, distinct)
        missing = table.missing(distinct)
        # Begun at a row that depends on the pairs, so that jobs with overlapping pairs judge different ones first.
        start = int(missing.hash_rows(seed=0).sum()) % max(1, missing.height)
        missing = pl.concat([missing.slice(start), missing.slice(0, start)])
        graded, passing = 0, [VERDICTS.to_frame()]
        size = self.batch or BATCH
        for start in range(0, missing.height, size):
            batch = table.missing(missing.slice(start, size))  # another job may have judged some of them meanwhile
            if not batch.is_empty():
                graded += batch.height
                passing.append(self._judge_batch(grader, batch, workers))
        interrupted = pl.concat(passing).drop("benchmark", "version")
        if interrupted.height:
            log.warning("%d answers stay without a verdict until they are scored again", interrupted.height)
        known = pl.concat([table.verdicts(), interrupted]).unique(PAIR, keep="first")
        verdicts = distinct.join(known, left_on=_STORED, right_on=PAIR, how="inner").drop(_STORED)
        return Judgements(verdicts, graded, distinct.height - graded)

    def _judge_batch(self, grader: Grader, batch: pl.DataFrame, workers: int | None) -> pl.DataFrame:
        """Judge pairs and publish their verdicts; those that do not last are returned instead."""
        verdicts = grader.grade([GradedPair(*row) for row in batch.select(PAIR).iter_rows()], workers=workers)
        rows = batch.select(
            benchmark=pl.lit(self.folder.name),
            version=pl.lit(grader.version),
            gold="gold_stored",
            answer="answer_stored",
            correct=pl.Series([verdict.correct for verdict in verdicts], dtype=pl.Boolean),
            form=pl.Series([verdict.form for verdict in verdicts], dtype=pl.String),
        )
        lasting = pl.Series([verdict.is_lasting for verdict in verdicts], dtype=pl.Boolean)
        if lasting.any():
            kept = rows.filter(lasting)
            content = json.dumps(kept.rows(), ensure_ascii=False, separators=(",", ":"))
            path = self.folder / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.parquet"
            files.publish(path, lambda temporary: kept.write_parquet(temporary, compression="zstd"))
            log.info("judged %d new pairs (%s)", kept.height, path.name)
        return rows.filter(~lasting)

    def wrong_key(
        self, grader: Grader, rows: pl.DataFrame, references: pl.DataFrame, policy: str, seed: int, workers: int | None
    ) -> tuple[pl.Series, int, int]:
        """Which samples of a policy would be right if their question had the gold of another (``other_golds``).

        What an answer earns there, it earns without knowing the question: by being an answer that often is right. Golds
        of other questions that equal the own one stay, because a guess meets them as often as any other. Returns
        ``wrong_key`` of the samples, null where nothing was judged, and the numbers of pairs judged now, and read.

        Rows have ``policy``, ``question`` and ``answer``, null if there is none. Samples of other policies are not
        judged, since each distinct pair of gold and answer costs a verdict. A sample without an answer, or whose
        verdict is unknown, is not accepted. With a single question, or without samples of the policy, all is null.
        """
        judged = pl.col("policy") == policy
        if references.height < 2 or not rows.select(judged.any()).item():
            return pl.Series("wrong_key", [None] * rows.height, pl.Boolean), 0, 0
        paired = rows.select("policy", "question", "answer").join(
            other_golds(references, seed), on="question", how="left", maintain_order="left"
        )
        asked = paired.filter(judged, pl.col("answer").is_not_null()).select("answer", gold="other")
        found = self.judge(grader, asked, workers=workers)
        verdicts = found.verdicts.select("answer", "correct", other="gold")
        accepted = paired.join(verdicts, on=["other", "answer"], how="left", maintain_order="left")
        column = accepted.select(wrong_key=pl.when(judged).then(pl.col("correct").fill_null(False)))["wrong_key"]
        return column, found.graded, found.reused


_STORED = [f"{name}_stored" for name in PAIR]


@dataclass
class VerdictTable:
    """The rows of the table for some pairs, given as the table spells them: columns gold_stored and answer_stored.

    Files that other jobs add are read when they appear. Rows of other pairs are not kept in memory.
    """

    folder: Path
    version: str
    pairs: pl.DataFrame
    _parts: dict[Path, pl.DataFrame] = field(default_factory=dict)

    def verdicts(self) -> pl.DataFrame:
        """Columns gold, answer (as stored), correct, form: a row per pair, of two verdicts the decided one."""
        for path in files.entries(self.folder):
            if path.suffix == ".parquet" and path not in self._parts:
                content = read_unvouched(path)
                if not content or content[0].schema != VERDICTS:
                    has = f"has the columns {', '.join(content[0].columns)}" if content else "is not readable Parquet"
                    raise InputError(
                        f"verdicts {path} cannot be read: it {has}", "delete this file; its pairs are judged again"
                    )
                part = content[0].filter(version=self.version).drop("benchmark", "version")
                self._parts[path] = part.join(self.pairs, left_on=PAIR, right_on=_STORED, how="semi")
        rows = pl.concat([VERDICTS.to_frame().drop("benchmark", "version"), *self._parts.values()])
        if rows.select(PAIR).is_duplicated().any():
            rows = rows.sort(*PAIR, pl.col("correct").is_null(), "correct", "form").unique(PAIR, keep="first")
        return rows

    def missing(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """The pairs that have no verdict yet, sorted by gold."""
        return pairs.join(self.verdicts(), left_on=_STORED, right_on=PAIR, how="anti").sort(_STORED)


def _stored(column: str) -> pl.Expr:
    """A column as the table spells it, named ``<column>_stored``; text that looks like a hash is hashed, too."""
    text = pl.col(column)
    long = (text.str.len_bytes() > LONGEST) | text.str.starts_with(_HASHED)
    hashed = (
        pl.when(long)
        .then(text)
        .map_elements(lambda whole: _HASHED + hashlib.sha256(whole.encode()).hexdigest(), return_dtype=pl.String)
    )
    return pl.coalesce(hashed, text).alias(f"{column}_stored")


def other_golds(references: pl.DataFrame, seed: int) -> pl.DataFrame:
    """The gold of another question, ``other``, for each question: of the one that follows in a random cyclic order.

    References are ``question`` and ``gold``, a row for each of at least two questions. The same questions and seed,
    that of the study, give the same golds, so that all checkpoints are compared with them.
    """
    order = resampler(seed, references.height).permutation(references.height)
    following = np.empty_like(order)
    following[order] = np.roll(order, -1)
    return references.select("question", other=pl.col("gold").gather(following))
