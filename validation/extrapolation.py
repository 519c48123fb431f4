"""Does pass@k beyond the samples come true? Predictions from few of 1,024 real samples, against all of them.

    python validation/extrapolation.py --results results/deep --output docs/extrapolation.csv --support docs/support.csv

The folder holds scores of both sides of a pair with 1,024 samples of each question under one policy. To draw them (1.15
million samples, two and a half minutes on an H100; the ids do not depend on the device), write this as deep.yaml, then
run ``snakemake --configfile deep.yaml --cores 2``:

    results: results/deep
    study: {benchmarks: [math, aime]}
    pools: {one: [topp0.95_t1.0]}
    benchmarks:
      math: {samples: 1024, pool: one, searches: null}
      aime: {samples: 1024, pool: one, searches: null}
    equivalence: {questions: 0}

The samples of a cell are cut into disjoint blocks of n. In each trial one block
is taken, as many questions as there are are drawn with replacement, pass@k is predicted from their n samples, and
compared with pass@k of the cell: the mean over all choices of k of the 1,024 samples. Beside these stands what the
reading itself says of its first n samples: the coverage of its own trials, which predict pass@n from n / 4, and
whether it would print the prediction.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from searchlens.analysis.classes import Pool
from searchlens.analysis.extrapolation import MODELS, extrapolated, fit, judged
from searchlens.analysis.measures import support
from searchlens.analysis.pool import Ints, missed
from searchlens.analysis.uncertainty import Floats, Resamples
from searchlens.seeds import resampler
from searchlens.store.layout import Layout

POLICY = "topp0.95_t1.0"
SIDES, BENCHMARKS = (("micro-1m-base", "Base"), ("micro-1m-rl", "RL")), ("math", "aime")
SAMPLES = 1024
BLOCKS = (16, 64, 256)
TARGETS = (64, 256, 1024)
LEVEL = 0.95
SEED, TRIALS = 1, 320
OWN_TRIALS = 240
"""Of the reading, on each side."""
SUPPORT_AT = (16, 64, 256, 1024)


class Cell(NamedTuple):
    """One checkpoint on one benchmark; whether each sample is right, shape (questions, samples) in stream order."""

    side: str
    benchmark: str
    right: np.ndarray

    def pool(self, samples: int, block: int = 0) -> Pool:
        """One block of the samples."""
        correct = self.right[:, block * samples : (block + 1) * samples].sum(axis=1)
        count = len(correct)
        return Pool(POLICY, samples, np.arange(count, dtype=np.uint32), correct, correct, np.full(count, ""))


def read(layout: Layout, checkpoint: str, side: str, benchmark: str) -> Cell:
    """The samples of a cell, from its scores."""
    rows = pl.read_parquet(layout.scores(checkpoint, benchmark)).filter(policy=POLICY).sort("question", "sample")
    return Cell(side, benchmark, rows["correct"].to_numpy().reshape(-1, SAMPLES))


def predictions(cell: Cell, samples: int) -> Iterator[dict[str, object]]:
    """How predictions from blocks of ``samples`` come out at every larger target, under each model."""
    targets = [k for k in TARGETS if k > samples]
    whole = cell.pool(SAMPLES)
    truth = dict(zip(targets, (1 - missed(SAMPLES, targets)[whole.correct]).mean(axis=0), strict=True))
    blocks = [cell.pool(samples, block).correct for block in range(SAMPLES // samples)]
    rng = resampler(SEED, samples, zlib.crc32(f"{cell.side} {cell.benchmark}".encode()))
    count = len(whole.correct)
    drawn = [blocks[i % len(blocks)][rng.integers(0, count, count)] for i in range(TRIALS)]
    for model, inflated in MODELS.items():
        found = np.array([solved(counts, samples, targets, inflated) for counts in drawn])
        for i, k in enumerate(targets):
            value, low, high = found[:, i].T
            known, half = np.isfinite(value), 0.5 / count
            inside = (low - half <= truth[k]) & (truth[k] <= high + half)
            yield {
                "benchmark": cell.benchmark,
                "side": cell.side,
                "questions": count,
                "model": model,
                "samples": samples,
                "blocks": len(blocks),
                "k": k,
                "trials": TRIALS,
                "found": truth[k],
                "error": float((value[known] - truth[k]).mean()) if known.any() else None,
                "spread": float(value[known].std(ddof=1)) if known.sum() > 1 else None,
                "width": float((high - low)[known].mean()) if known.any() else None,
                "inside": int(inside.sum()),
                "coverage": float(inside.mean()),
            }


def solved(counts: Ints, samples: int, targets: list[int], inflated: bool) -> Floats:
    """pass@k with its interval at each target, shape (targets, 3); NaN if the counts determine no fit."""
    found = fit(counts, samples, zero_inflated=inflated)
    return np.array([found.solved(k, LEVEL) if found else (np.nan,) * 3 for k in targets])


def own_judgement(cells: list[Cell], samples: int) -> pl.DataFrame:
    """What the reading says of the first ``samples``: its measured coverage, and whether it prints the prediction."""
    parts = [
        extrapolated(cell.side, cell.pool(samples), trials=OWN_TRIALS, seed=SEED, confidence=LEVEL).select(
            pl.lit(cell.benchmark).alias("benchmark"), pl.all()
        )
        for cell in cells
    ]
    rows = judged(pl.concat(parts), LEVEL).select("benchmark", "side", "model", "samples", "k", "coverage", "trusted")
    return rows.rename({"coverage": "own_coverage", "trusted": "printed"})


def supports(base: Cell, rl: Cell) -> Iterator[pl.DataFrame]:
    """What RL keeps, loses and adds, in the first samples of both sides."""
    for samples in SUPPORT_AT:
        draws = Resamples.draw(len(base.right), 2000, SEED)
        found, _ = support(base.pool(samples), rl.pool(samples), draws, confidence=LEVEL)
        yield found.select(pl.lit(base.benchmark).alias("benchmark"), pl.lit(samples).alias("samples"), pl.all())


def main() -> None:
    """Write both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--support", type=Path, required=True)
    args = parser.parse_args()
    layout = Layout(args.results)
    cells = {(side, b): read(layout, name, side, b) for b in BENCHMARKS for name, side in SIDES}
    pairs = [(cells["Base", b], cells["RL", b]) for b in BENCHMARKS]
    changed = pl.concat([part for pair in pairs for part in supports(*pair)])
    changed.with_columns(pl.selectors.float().round(4)).write_csv(args.support)
    rows = [row for cell in cells.values() for n in BLOCKS for row in predictions(cell, n)]
    own = pl.concat([own_judgement(list(cells.values()), n) for n in BLOCKS])
    keys = ["benchmark", "side", "model", "samples", "k"]
    table = pl.DataFrame(rows).with_columns(pl.col("samples", "k").cast(pl.UInt32))
    table = table.join(own, on=keys, how="left", maintain_order="left")
    table.with_columns(pl.selectors.float().round(4)).write_csv(args.output)


if __name__ == "__main__":
    main()
