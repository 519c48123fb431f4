"""Files to files: each stage's inputs read, its pure functions called, its outputs written.

Nothing is computed here; the command line and the rules call these and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from searchlens import files, shards
from searchlens.errors import InputError
from searchlens.grid import Grid, read_json

log = logging.getLogger(__name__)

_GRADED_COLUMNS = ("question", "sample", "text", "n_tokens", "mean_logprob", "finish")


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """A derived Parquet table, in place of an older one."""
    files.replace(path, lambda temporary: frame.write_parquet(temporary, compression="zstd"))


# ---- score


def _named(samples: pl.DataFrame, names: Iterable[str]) -> list[pl.DataFrame]:
    raw = samples.select(
        "question",
        "sample",
        "text",
        tokens=pl.col("n_tokens"),
        stopped=pl.col("finish") == "stop",
        score=pl.col("mean_logprob"),
    )
    return [raw.select(pl.lit(name).alias("policy"), pl.all()) for name in names]


def _cell_samples(grid_: Grid, checkpoint: str, benchmark: str, manifests: Iterable[Path]) -> pl.DataFrame:
    """Raw samples of a cell, by policy; the ids come from the manifests, never from a configuration edited since."""
    parts: list[pl.DataFrame] = []
    names = {g.id: g.policies for g in grid_.generations(checkpoint, benchmark)}
    entries = [entry for path in manifests for entry in read_json(path)["generations"]]
    for entry in entries:
        folder = grid_.folder(checkpoint, benchmark, entry["id"])
        samples = shards.read_generation(folder, entry["id"], entry["samples"], _GRADED_COLUMNS)
        parts += _named(samples, names.get(entry["id"], entry["policies"]))
    for item in grid_.imported(checkpoint, benchmark):
        folder = grid_.folder(checkpoint, benchmark, item.id)
        parts += _named(shards.read_generation(folder, item.id, item.samples, _GRADED_COLUMNS), [item.policy])
    if not parts:
        raise InputError(f"{checkpoint}/{benchmark} has no samples to grade")
    return pl.concat(parts)


def score_cell(grid_: Grid, checkpoint: str, benchmark: str, manifests: Iterable[Path], output: Path) -> None:
    """Grade one cell."""
    from searchlens.score import score_samples
    from searchlens.verdicts import VerdictStore

    samples = _cell_samples(grid_, checkpoint, benchmark, manifests)
    scored = score_samples(
        samples,
        grid_.questions(benchmark),
        grid_.benchmark(benchmark)["grader"],
        VerdictStore(grid_.results / "verdicts" / benchmark),
        policies=samples["policy"].unique(maintain_order=True).to_list(),
        q_instructions=grid_.config["landscape"]["q_instructions"],
    )
    write_table(scored.scores, output)
    log.info("%s/%s: %s", checkpoint, benchmark, scored.summary)


# ---- landscape and recovery


def landscape_options(config: dict[str, Any]) -> Any:
    """The typed options of the landscape stage."""
    from searchlens.landscape import LandscapeOptions

    section = config["landscape"]
    return LandscapeOptions(
        ties=section["ties"],
        first_finish=section["first_finish"],
        draws=section["draws"],
        seed=config["seed"],
        confidence=section["confidence"],
    )


def landscape_cell(grid_: Grid, scores: Path, output: Path) -> None:
    """Operating points of one cell."""
    from searchlens.landscape import operating_points

    graded = pl.read_parquet(scores)
    found = operating_points(graded, budgets=grid_.config["budgets"], options=landscape_options(dict(grid_.config)))
    write_table(found.points, output / "points.parquet")
    write_table(found.hits, output / "hits.parquet")
    log.info("%s: %d samples, %d operating points", scores, graded.height, found.points.height)
