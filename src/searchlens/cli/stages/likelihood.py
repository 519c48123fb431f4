"""Stage ``likelihood``: samples of a pair to their log p under both checkpoints, and what these say."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from searchlens.analysis.likelihood import summary
from searchlens.sampling import scored_texts
from searchlens.store import provenance
from searchlens.store.frames import read_frame, write_frame
from searchlens.store.layout import SIGNATURE

if TYPE_CHECKING:
    from searchlens.plan import Grid, needs

log = logging.getLogger(__name__)


def likelihood(grid: Grid, cell: needs.Likelihood, output: Path, *, fingerprint: str, threads: int = 1) -> None:
    """Score the texts of one pair on one benchmark under both of its checkpoints.

    The folder gets ``texts.parquet`` and ``summary.parquet``. Checkpoints and questions are read as for sampling. An
    InputError: a side is not sampled or scored, or both tokenizers differ.
    """
    right = {
        side: read_frame(grid.scores(checkpoint, cell.benchmark), "score")
        .filter(policy=cell.policy)
        .select("question", "sample", right=pl.col("correct"))
        for side, (checkpoint, _) in cell.sides.items()
    }
    texts = scored_texts(grid, cell, right, threads)
    write_frame(texts, output / "texts.parquet")
    write_frame(summary(texts, cell.confidence, cell.draws, cell.seed), output / "summary.parquet")
    provenance.sign(output / SIGNATURE, fingerprint, None)
    log.info("%s/%s: %d texts scored under both checkpoints", cell.pair, cell.benchmark, texts.height)
