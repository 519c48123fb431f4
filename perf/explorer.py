"""The explorer on a study of 1,000,000 samples, and what one question of a shard costs by ranges.

    python perf/explorer.py [--questions 500] [--policies 63] [--tokens 40] [--keep FOLDER]

The study has two checkpoints, 63 policies, 500 questions and 16 samples each, with short texts, verdicts, landscapes
and a recovery analysis. Measured: the index that `searchlens view` makes, against a reading of all texts (the baseline:
what a page without an index would need); the page of `searchlens explore`; and the first reply to a request for the
answers to one question. CPU seconds are those of this process.

One question of a shard of 500 questions, 16 samples, 2.4 kB a text and 300 to 1,000 tokens each is read by the page's
own reader, with node, if `make web` was run: bytes that it fetches, against the whole shard (the baseline), and against
the same rows in pages of 1 MB, which polars writes unless it is told otherwise.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

import searchlens
from searchlens.cli.stages.landscape import landscape
from searchlens.cli.stages.recovery import recovery
from searchlens.config import check
from searchlens.plan import Generation, Grid, needs
from searchlens.reporting.explorer_files import Files
from searchlens.reporting.explorer_html import PLACE, explorer_page
from searchlens.store import shards, snapshots
from searchlens.store.columns import GRADED
from searchlens.store.frames import GROUP, write_frame
from searchlens.store.provenance import config_fingerprint

ROOT = Path(__file__).parents[1]
SAMPLES = 16
WRONG = 5
Made = TypeVar("Made")

TOKENIZER = {
    "version": "1.0",
    **dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")),
    "added_tokens": [],
    "model": {"type": "WordLevel", "vocab": {f"word{i}": i for i in range(150_001)}, "unk_token": "word0"},
}
"""Its texts are no words of a language, but as many as in a large vocabulary."""

READER = """
import { closeSync, openSync, readSync, statSync } from "node:fs";
import { parquetMetadataAsync, parquetReadObjects } from "hyparquet";
import { decompress } from "fzstd";
const [, path, first, last, ...columns] = process.argv;
const size = statSync(path).size, descriptor = openSync(path);
let bytes = 0;
const slice = async (start, end = size) => {
  bytes += end - start;
  const buffer = Buffer.alloc(end - start);
  readSync(descriptor, buffer, 0, end - start, start);
  return buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.length);
};
const file = { byteLength: size, slice }, rowStart = Number(first), rowEnd = Number(last);
const compressors = { ZSTD: (data, length) => decompress(data, new Uint8Array(length)) };
const started = performance.now();
const metadata = await parquetMetadataAsync(file, { initialFetchSize: 65536 });
const rows = await parquetReadObjects({ file, metadata, compressors, rowStart, rowEnd, columns, useOffsetIndex: true });
console.log(JSON.stringify({ bytes, size, rows: rows.length, ms: performance.now() - started }));
closeSync(descriptor);
"""
TEXTS = ("question", "sample", "text", "finish")
LISTS = ("tokens", "logprobs", "sampling_logprobs")


# ---- a study


def study(policies: int) -> dict[str, Any]:
    """A configuration: names of policies are temperatures."""
    names = [*(f"temp_{0.01 * (i + 30):.2f}".rstrip("0") for i in range(policies - 1)), "topp0.95_t1.0"]
    return {
        "results": "results",
        "samples": SAMPLES,
        "budgets": [1, 2, 4, 8, 16],
        "study": {"pairs": ["large"], "benchmarks": ["sums"]},
        "checkpoints": {name: {"path": name} for name in ("large-base", "large-rl")},
        "pairs": {"large": {"base": "large-base", "rl": "large-rl"}},
        "benchmarks": {"sums": {"path": "sums.jsonl", "grader": "math", "max_tokens": 4096, "pool": "all"}},
        "policies": dict.fromkeys(names),
        "pools": {"all": names},
        "references": [],
        "landscape": {"draws": 200},
        "equivalence": None,
    }


def build(folder: Path, policies: int, questions: int, tokens: int) -> Path:
    """Write a study; returns its results."""
    for name in ("large-base", "large-rl"):
        (folder / name).mkdir()
        for file in ("config.json", "model.safetensors"):
            (folder / name / file).write_text(name)
        (folder / name / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    rows = [{"id": f"q{i}", "question": f"Compute {i}+{i + 1}.", "gold": str(2 * i + 1)} for i in range(questions)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with chdir(folder):
        grid = Grid(check.validate(study(policies)))
        for seed, cell in enumerate(grid.study.cells):
            _fill(grid, *cell, np.random.default_rng(seed), tokens)
        for pair, benchmark in grid.study.pair_cells:
            base, rl = (grid.layout.landscape(grid.study.pairs[pair][role], benchmark) for role in ("base", "rl"))
            output, options = grid.layout.recovery(pair, benchmark), needs.recovery(grid, benchmark)
            recovery(options, base, rl, output, fingerprint=config_fingerprint(grid.config))
        snapshots.save(grid.config)
    return folder / "results"


def _fill(grid: Grid, checkpoint: str, benchmark: str, rng: np.random.Generator, tokens: int) -> None:
    """Samples, verdicts and landscape of one cell."""
    graded, entries = [], []
    ability = rng.normal(0.4 if checkpoint.endswith("rl") else -0.3, 2.0, grid.inputs.count(benchmark))
    for generation in grid.jobs.generations(checkpoint, benchmark):
        drawn, verdicts = _samples(grid, benchmark, generation, ability, rng, tokens)
        shards.publish(
            grid.folder(checkpoint, benchmark, generation.id),
            0,
            SAMPLES,
            drawn,
            generation_id=generation.id,
            policies=generation.policies,
            provenance=shards.Provenance(1.0, "cpu", 1, "made up"),
        )
        graded.append(verdicts)
        entries.append(
            {"id": generation.id, "samples": SAMPLES, "spec": generation.spec, "policies": list(generation.policies)}
        )
    for manifest in grid.manifests(checkpoint, benchmark):
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(json.dumps({"checkpoint": checkpoint, "benchmark": benchmark, "generations": entries}))
    write_frame(pl.concat(graded), grid.scores(checkpoint, benchmark), GROUP)
    landscape(
        needs.landscape(grid, benchmark),
        grid.scores(checkpoint, benchmark),
        grid.layout.landscape(checkpoint, benchmark),
        fingerprint=config_fingerprint(grid.config),
    )


def _samples(
    grid: Grid, benchmark: str, generation: Generation, ability: np.ndarray, rng: np.random.Generator, tokens: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Samples of one policy with their verdicts: right ones, and a few wrong answers."""
    questions = grid.inputs.questions(benchmark)
    rows = len(questions) * SAMPLES
    is_right = rng.random(rows) < np.repeat(1 / (1 + np.exp(-ability)), SAMPLES)
    answer = np.where(is_right, 0, rng.integers(1, WRONG, rows))
    golds = np.repeat([int(question.gold) for question in questions], SAMPLES)
    numbers = rng.integers(0, 10**6, (rows, 3))
    drafts = zip(numbers, golds, answer, strict=True)
    texts = [f"so {a}, then {b}, and {c}: \\boxed{{{gold + k}}}" for (a, b, c), gold, k in drafts]
    drawn = pl.DataFrame(
        {
            "question": [question.id for question in questions for _ in range(SAMPLES)],
            "sample": list(range(SAMPLES)) * len(questions),
            "run": list(range(SAMPLES)) * len(questions),
            "text": texts,
            **_lists(rng, np.full(rows, tokens)),
            "n_tokens": tokens,
            "mean_logprob": -0.3,
            "score": -0.3,
            "finish": "stop",
            "generated": tokens,
            "requests": 1,
            "details": pl.Series([None] * rows, dtype=pl.String),
        }
    ).cast(shards.SAMPLES)  # type: ignore[arg-type]
    verdicts = drawn.select(
        pl.lit(generation.policies[0]).alias("policy"),
        question=np.repeat(np.arange(len(questions)), SAMPLES),
        sample="sample",
        run="run",
        correct=answer == 0,
        answer=answer,
        tokens="n_tokens",
        generated="generated",
        stopped=pl.lit(value=True),
        score="score",
        finished=pl.lit(value=True),
        unknown=pl.lit(value=False),
        extraction=pl.lit("boxed"),
        plain=answer,
        checks=pl.lit(None, pl.String),
        finish="finish",
        lucky=pl.lit(None, pl.Boolean),
    )
    return drawn, verdicts.cast(GRADED)  # type: ignore[arg-type]


def _lists(rng: np.random.Generator, lengths: np.ndarray) -> dict[str, pl.Series]:
    """Tokens and their log-probabilities, as incompressible as real ones."""
    ends, count = np.cumsum(lengths)[:-1], int(lengths.sum())
    values = {
        "tokens": np.minimum(rng.zipf(1.3, count), 150_000).astype(np.int32),
        **{name: -rng.gamma(0.3, 1.0, count).astype(np.float32) for name in ("logprobs", "sampling_logprobs")},
    }
    return {name: pl.Series(name, np.split(column, ends)) for name, column in values.items()}


# ---- measuring


def timed(make: Callable[[], Made]) -> tuple[Made, str]:
    """The result, and the wall and CPU seconds it took."""
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    made = make()
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return made, f"{wall:.2f} s ({cpu:.2f} CPU s)"


def measure(results: Path) -> None:
    """Index, page and answers of a study."""
    opened = searchlens.open(results)
    parts = [shard for cell in _cells(opened) for shards_ in opened.shards(*cell).values() for shard in shards_]
    samples = sum(shard.sidecar["rows"] for shard in parts)
    size = sum(path.stat().st_size for path in results.rglob("*.parquet"))
    print(f"{samples:,} samples, {size / 1e6:,.0f} MB of Parquet")
    files = Files(opened)
    index, took = timed(lambda: files.index)
    print(f"index of {len(index) / 1e3:.0f} kB: {took}")
    _, took = timed(lambda: [_read_all(opened, *cell) for cell in _cells(opened)])
    print(f"reading all texts instead (baseline): {took}")
    _, took = timed(lambda: files.made(f"answers/large-rl/sums/{opened.default_policy}/7.parquet"))
    print(f"answers to one question under one policy, first request: {took}")
    with tempfile.TemporaryDirectory() as name:
        template = Path(name, "page.html")
        template.write_text(PLACE)
        made, took = timed(lambda: explorer_page(opened, template=template))
    print(f"data of explorer.html, {len(made.html) / 1e6:.1f} MB: {took}; left out: {' '.join(made.left_out)}")
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def _cells(opened: searchlens.Study) -> list[tuple[str, str]]:
    return [(side, benchmark) for _, benchmark, *both in opened.sides for side in both]


def _read_all(opened: searchlens.Study, checkpoint: str, benchmark: str) -> int:
    """Texts of a cell, without verdicts."""
    paths = [shard.path for parts in opened.shards(checkpoint, benchmark).values() for shard in parts]
    return sum(pl.read_parquet(path, columns=["question", "text"]).height for path in paths)


def ranges(folder: Path) -> None:
    """What one question costs in a shard with long texts."""
    if shutil.which("node") is None or not (ROOT / "web/node_modules/hyparquet").exists():
        print("one question by ranges: not measured; `make web` installs the page's reader")
        return
    rng, rows = np.random.default_rng(0), 500 * SAMPLES
    lengths = rng.integers(300, 1001, rows)
    words = np.array([f"word{i}" for i in range(5_000)])
    drawn = pl.DataFrame(
        {
            **{name: pl.Series([None] * rows, dtype=kind) for name, kind in shards.SAMPLES.items()},
            "question": [f"q{i // SAMPLES}" for i in range(rows)],
            "sample": [i % SAMPLES for i in range(rows)],
            "text": [" ".join(words[rng.integers(0, 5_000, 270)]) for _ in range(rows)],
            **_lists(rng, lengths),
        }
    ).cast(shards.SAMPLES)  # type: ignore[arg-type]
    shards.write_parquet(drawn, folder / "small.parquet", {})
    drawn.write_parquet(folder / "large.parquet", compression="zstd", compression_level=3)
    for name, columns in (("texts", TEXTS), ("texts, tokens and log-probabilities", (*TEXTS, *LISTS))):
        ours, theirs = (_asked(folder / f"{pages}.parquet", columns) for pages in ("small", "large"))
        more = [size / ours["bytes"] for size in (theirs["bytes"], ours["size"])]
        print(f"16 samples of one question, {name}: {ours['bytes'] / 1e3:.0f} kB with the footer, {ours['ms']:.0f} ms")
        print(f"  pages of 1 MB: {theirs['bytes'] / 1e3:.0f} kB, {more[0]:.1f} times as much")
        print(f"  whole shard (baseline): {ours['size'] / 1e6:.1f} MB, {more[1]:.0f} times as much")
    sizes = [(folder / f"{name}.parquet").stat().st_size for name in ("small", "large")]
    print(f"small pages make the file {100 * (sizes[0] / sizes[1] - 1):.1f}% larger")


def _asked(path: Path, columns: tuple[str, ...]) -> dict[str, float]:
    rows = [str(250 * SAMPLES), str(251 * SAMPLES)]
    command = ["node", "--input-type=module", "--eval", READER, "--", str(path), *rows, *columns]
    done = subprocess.run(command, cwd=ROOT / "web", capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    assert found["rows"] == SAMPLES
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--policies", type=int, default=63)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--keep", type=Path, help="an empty or new folder that gets the study, and keeps it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = args.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        results, took = timed(lambda: build(folder, args.policies, args.questions, args.tokens))
        print(f"a study in {results}: {took} to write")
        measure(results)
        ranges(Path(name))


if __name__ == "__main__":
    main()
