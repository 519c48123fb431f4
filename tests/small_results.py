"""A finished study of two sides that differ, in a folder of its own: sums of our own, with samples written by hand."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import polars as pl

from run_stages import drawn, landscape_cell, publish_shard, recovery_cell, score_cell, write_manifest
from searchlens.analysis.bounds import BOUNDS
from searchlens.cli.stages.measures import measures
from searchlens.cli.stages.tables import tables
from searchlens.config import check
from searchlens.plan import Grid, needs
from searchlens.store import snapshots
from searchlens.store.columns import AGREEMENT, SCORED_TEXTS
from searchlens.store.files import digest, file_sha256
from searchlens.store.frames import write_frame
from searchlens.store.provenance import config_fingerprint

DEFAULT = "topp0.95_t1.0"
HOSTILE = "\x1b[31mred\x1b[0m \u202eevil"
"""A terminal would turn red, and write backwards."""
RIGHT: Mapping[str, Mapping[str, int]] = {
    "toy-base": {"q0": 4, "q1": 2, "q2": 1, "q3": 0, "q4": 1, "q5": 0},
    "toy-rl": {"q0": 4, "q1": 4, "q2": 3, "q3": 2, "q4": 0, "q5": 0},
}
"""Right samples of 4, under every policy: RL alone solves q3, Base alone q4, neither q5."""


def texts(grid: Grid, checkpoint: str, benchmark: str, samples: int, right: Mapping[str, int]) -> pl.DataFrame:
    """The first samples of a question are right; the others say 99, or are cut off."""
    keys = [(q, s) for q in grid.inputs.questions(benchmark) for s in range(samples)]
    length = 3 if checkpoint == "toy-base" else 4
    written = [f"{HOSTILE} so it is \\boxed{{{q.gold if s < right[q.id] else 99}}}" for q, s in keys]
    finish = ["length" if s == samples - 1 and s >= right[q.id] else "stop" for q, s in keys]
    columns = {"tokens": [list(range(length))] * len(keys), "mean_logprob": -0.25, "finish": finish}
    return drawn(keys, written, **columns, logprobs=[-0.25] * length, sampling_logprobs=[-0.5] * length)


def sample(grid: Grid, checkpoint: str, benchmark: str, right: Mapping[str, int]) -> None:
    """Put all samples of a cell into the store, with their manifest, and grade them."""
    for generation in grid.jobs.generations(checkpoint, benchmark):
        samples = texts(grid, checkpoint, benchmark, generation.samples, right)
        publish_shard(grid, checkpoint, benchmark, generation, samples, 0, generation.samples)
    manifest = write_manifest(grid, checkpoint, benchmark)
    score_cell(grid, checkpoint, benchmark, [manifest], grid.scores(checkpoint, benchmark))


_KEPT = tempfile.TemporaryDirectory()
"""Results by the digest of what they are of: two seconds each."""


def finish(raw: dict[str, Any], root: Path, right: Mapping[str, Mapping[str, int]] = RIGHT) -> Path:
    """Sample, grade and analyse a study in a folder; returns its results."""
    results = root / "results"
    files = {str(path.relative_to(root)): file_sha256(path) for path in root.rglob("*") if path.is_file()}
    kept = Path(_KEPT.name, digest([raw, right, files], 16))
    if results.exists():
        return _finished(raw, root, right)
    if kept.exists():
        return shutil.copytree(kept, results)
    shutil.copytree(_finished(raw, root, right), kept)
    return results


def _finished(raw: dict[str, Any], root: Path, right: Mapping[str, Mapping[str, int]]) -> Path:
    settings = {"landscape": {"draws": 100}, "measures": {"draws": 100}, "equivalence": None}
    with chdir(root):
        grid = Grid(check.validate({**raw, **settings}))
        for cell in grid.study.cells:
            sample(grid, *cell, right[cell[0]])
        analyse(grid)
        snapshots.save(grid.config)
    return root / "results"


def analyse(grid: Grid) -> None:
    """Every stage behind the scores, and one sample on which two graders disagree."""
    layout = grid.layout
    for checkpoint, benchmark in grid.study.cells:
        landscape_cell(grid, benchmark, grid.scores(checkpoint, benchmark), layout.landscape(checkpoint, benchmark))
        row = (DEFAULT, "q1", 0, "3", "3", "right", "wrong", "so it is 3")
        write_frame(pl.DataFrame([row], AGREEMENT, orient="row"), layout.agreement(checkpoint, benchmark))
    for pair, benchmark in grid.study.pair_cells:
        sides = [layout.landscape(grid.study.pairs[pair][role], benchmark) for role in ("base", "rl")]
        recovery_cell(grid, *sides, layout.recovery(pair, benchmark))
    fingerprint = config_fingerprint(grid.config)
    measures(needs.measures(grid), layout, fingerprint=fingerprint)
    tables(needs.tables(grid), layout, layout, fingerprint=fingerprint)
    assert not grid.study.not_made


def score_tokens(results: Path) -> None:
    """Say of the first two samples of every question what both sides say, and bound Base's chance of q3."""
    rows = [
        {"question": question, "sample": sample, "side": side, "token_ids": list(range(n))}
        | {"logps_base": [-4.0] * n, "logps_rl": [-5.5, -4.0, -2.5, -1.0][:n]}
        | {"ranks_base": [11, 12, 13, 14][:n], "ranks_rl": [21, 22, 23, 24][:n]}
        for side, n in (("base", 3), ("rl", 4))
        for question in range(6)
        for sample in range(2)
    ]
    folder = results / "likelihood/toy/sums"
    write_frame(pl.DataFrame(rows, SCORED_TEXTS), folder / "texts.parquet")
    bound = {"question": [3], "id": ["q3"], "at_least": [0.00231], "at_most": [0.6024]}
    write_frame(pl.DataFrame(bound, {name: BOUNDS[name] for name in bound}), folder / "bounds.parquet")
    (path,) = (results / "config").glob("*.json")
    content = json.loads(path.read_text())
    content["study"]["likelihood"] = {"tokens": True}
    path.write_text(json.dumps(content))


def gate(results: Path) -> None:
    """Make its questions those of a gated benchmark."""
    heads = ("Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    rows = [heads, *((f"Secret {i}?", f"right{i}", "no1", "no2", "no3") for i in range(6))]
    (results.parent / "own.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    (path,) = (results / "config").glob("*.json")
    content = json.loads(path.read_text())
    content["benchmarks"]["sums"] |= {"family": "gpqa", "path": "own.csv", "check": False, "grader": "choice-narrow"}
    path.write_text(json.dumps(content))
