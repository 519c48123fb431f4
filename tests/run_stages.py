"""Stages of one grid, each given what the command line gives it."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from searchlens.benchmarks import Question
from searchlens.boptr.cohort import CohortPlan
from searchlens.catalogue import Declaration
from searchlens.cli.options import cohort_of
from searchlens.cli.stages import costs as costs_stage
from searchlens.cli.stages.figures import figures
from searchlens.cli.stages.landscape import landscape
from searchlens.cli.stages.recovery import recovery
from searchlens.cli.stages.score import score
from searchlens.plan import Generation, Grid, needs
from searchlens.reporting.tables.table import Context, Table, build
from searchlens.store import shards
from searchlens.store.provenance import config_fingerprint


def drawn(keys: list[tuple[Question, int]], texts: list[str], **columns: Any) -> pl.DataFrame:
    """Samples of autoregressive policies, by question and number; but of ``tokens`` and ``finish`` one value."""
    numbers, length = [s for _, s in keys], [len(tokens) for tokens in columns["tokens"]]
    every = {"question": [q.id for q, _ in keys], "sample": numbers, "run": numbers, "text": texts}
    every |= {"n_tokens": length, "generated": length, "requests": 1, "details": None, "finish": "stop", **columns}
    every |= {name: [columns[name]] * len(keys) for name in ("logprobs", "sampling_logprobs")}
    every |= {"score": columns["mean_logprob"]}
    return pl.DataFrame({name: every[name] for name in shards.SAMPLES}, shards.SAMPLES)


def publish_shard(
    grid: Grid, checkpoint: str, benchmark: str, generation: Generation, samples: pl.DataFrame, start: int, stop: int
) -> shards.Shard:
    """Put a range of samples of one generation into the store."""
    folder, provenance = grid.folder(checkpoint, benchmark, generation.id), shards.Provenance(1.5, "cpu", 1, "test")
    of = {"generation_id": generation.id, "policies": generation.policies}
    return shards.publish(folder, start, stop, samples, **of, provenance=provenance)


def write_manifest(grid: Grid, checkpoint: str, benchmark: str) -> Path:
    """The manifest of a cell in one pool, whose samples are in the store."""
    made = grid.jobs.generations(checkpoint, benchmark)
    entries = [{"id": g.id, "samples": g.samples, "spec": g.spec, "policies": list(g.policies)} for g in made]
    (manifest,) = grid.manifests(checkpoint, benchmark)
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"checkpoint": checkpoint, "benchmark": benchmark, "generations": entries}))
    return manifest


def score_cell(grid: Grid, checkpoint: str, benchmark: str, manifests: Iterable[Path], output: Path) -> None:
    cell = needs.score(grid, checkpoint, benchmark)
    fingerprint = config_fingerprint(grid.config)
    score(cell, grid.inputs.questions(benchmark), grid.layout, manifests, output, fingerprint=fingerprint)


def landscape_cell(grid: Grid, benchmark: str, scores: Path, output: Path) -> None:
    landscape(needs.landscape(grid, benchmark), scores, output, fingerprint=config_fingerprint(grid.config))


def recovery_cell(grid: Grid, base: Path, rl: Path, output: Path) -> None:
    recovery(needs.recovery(grid, base.name), base, rl, output, fingerprint=config_fingerprint(grid.config))


def analyse(grid: Grid) -> None:
    """Landscapes and recovery of the recorded cells."""
    for cell, path in grid.study.recorded_counts.items():
        landscape_cell(grid, cell[1], path, grid.layout.landscape(*cell))
    for pair, benchmark in grid.study.recorded_pairs:
        base, rl = (grid.layout.landscape(grid.study.pairs[pair][role], benchmark) for role in ("base", "rl"))
        recovery_cell(grid, base, rl, grid.layout.recovery(pair, benchmark))


def figures_cell(grid: Grid, pair: str, benchmark: str, output: Path) -> None:
    figures(needs.figures(grid, pair, benchmark), grid.layout, output)
    assert not grid.study.not_made


def costs(grid: Grid) -> pl.DataFrame:
    return costs_stage.costs(needs.tables(grid).cells, grid.layout)


def prefill(grid: Grid, pair: str, benchmark: str) -> pl.DataFrame:
    return costs_stage.prefill(needs.figures(grid, pair, benchmark).samples, grid.layout)


def built(tables: Mapping[str, Declaration], context: Context) -> dict[str, Table]:
    return {name: build(declaration, context) for name, declaration in tables.items()}


def cohort_plan(grid: Grid) -> CohortPlan:
    return cohort_of(needs.transfer(grid))
