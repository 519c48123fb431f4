"""A mini study with a scripted engine: sampled, graded and analysed in a fraction of a second, without torch."""

import functools
import hashlib
import json
import mmap
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import polars as pl  # imported here, not used: threads of polars do not survive a fork
import pyarrow.parquet as pq
from tokenizers import Tokenizer

import searchlens.sampling as stage
from searchlens.cli import main as cli
from searchlens.cli import verify
from searchlens.cli import verify as prune
from searchlens.cli.stages import importing, landscape, record, recovery, score
from searchlens.config import check
from searchlens.config.model import from_plain, plain
from searchlens.engines.base import Completion, Request
from searchlens.plan import Grid
from searchlens.store import layout, shards

__all__ = ["importing", "landscape", "layout", "pl", "pq", "prune", "record", "recovery", "score"]
__all__ += ["verify"]  # warm before the fork

cli.parser = functools.cache(cli.parser)  # the same for every command; to build it is a third of what a short one takes
cli.parser()

MODEL = Path(__file__).parents[2] / "resources" / "zoo" / "micro-1m-base"
CELLS = (("toy-base", "sums"), ("toy-rl", "sums"))
QUESTIONS, SAMPLES = 4, 4
RUNS = 2 * QUESTIONS * SAMPLES + QUESTIONS
"""Samples of a cell: of two policies, and one greedy one of each question."""
CHUNK = 8
"""Samples of a chunk: the most that a fault may cost."""


class Counter:
    """Samples drawn by the processes of one point, which share it."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 8)

    @property
    def value(self) -> int:
        return int.from_bytes(self._shared[:8], "little")

    def add(self) -> None:
        self._shared[:8] = (self.value + 1).to_bytes(8, "little")


class Scripted:
    """Answers one request per step by a number in a box, which is a function of the request's seed."""

    vocab_size, groups, device, max_rows, max_model_len = 100_000, (1,), "cpu", 8, 1000

    def __init__(self, drawn: Counter, *, repeatable: bool = True) -> None:
        self.repeatable = repeatable
        self._drawn, self._waiting, self.steps = drawn, list[tuple[int, Request]](), 0
        self._tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))

    def clear(self) -> None:
        self._waiting.clear()

    def add(self, request_id: int, request: Request) -> None:
        self._waiting.append((request_id, request))

    def step(self) -> list[tuple[int, Completion]]:
        request_id, request = self._waiting.pop(0)
        self._drawn.add()
        self.steps += 1
        number = 2 * int(np.random.default_rng(request.seed).integers(0, QUESTIONS)) + 1
        ids = self._tokenizer.encode(f"\\boxed{{{number}}}", add_special_tokens=False).ids[: request.max_tokens]
        tokens = np.array(ids, np.int32)
        zeros = np.zeros(len(tokens), np.float32)
        return [(request_id, Completion(tokens, zeros - 0.5, zeros - 0.5, "length", reused=len(request.prompt)))]

    def close(self) -> None:
        pass


def script(drawn: Counter, *, repeatable: bool = True) -> None:
    """Have every job of this process draw by the scripted engine."""
    stage._job.start_engine = lambda *_, **__: Scripted(drawn, repeatable=repeatable)
    stage.Job.hardware = shards.Provenance(0.0, "cpu", 1, "scripted")


# ---- the study


def raw(**changes: Any) -> dict[str, Any]:
    """Its configuration: one pair, two policies and greedy, four questions."""
    policies = ["temp_0.5", "topp0.95_t1.0"]
    return {
        "results": "results",
        "samples": SAMPLES,
        "budgets": [1, 2, 4],
        "chunk_samples": CHUNK,
        "pool_size": 2,
        "landscape": {"draws": 100},
        "study": {"pairs": ["toy"], "benchmarks": ["sums"], "likelihood": None},
        "checkpoints": {name: {"path": name, "engine": "vllm"} for name in ("toy-base", "toy-rl")},
        "pairs": {"toy": {"base": "toy-base", "rl": "toy-rl"}},
        "benchmarks": {"sums": {"path": "sums.jsonl", "grader": "math", "max_tokens": 24, "pool": "some"}},
        "policies": dict.fromkeys([*policies, "topp0.9_t0.7", "greedy"]),
        "pools": {"some": policies},
        "references": ["greedy"],
    } | changes


def found(folder: Path) -> None:
    """Create the folder of the study, with everything but results."""
    folder.mkdir(parents=True)
    for name in ("toy-base", "toy-rl"):
        (folder / name).symlink_to(MODEL)
    rows = [{"id": f"q{i}", "question": f"Compute {i}+{i + 1}.", "gold": str(2 * i + 1)} for i in range(QUESTIONS)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = [
        {"question": f"q{i}", "sample": k, "text": f"\\boxed{{{i + k}}}", "tokens": 3, "finish": "stop"}
        for i in range(QUESTIONS)
        for k in range(2)
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
    configure(folder, raw())


def configure(folder: Path, content: dict[str, Any]) -> None:
    """Write the configuration, as a snapshot, which a command reads fastest."""
    (folder / "study.json").write_text(json.dumps(plain(check.validate(content))))


def grid_at(folder: Path) -> Grid:
    return Grid(from_plain(json.loads((folder / "study.json").read_text())), folder)


def run(command: str, *arguments: str) -> int:
    """One command in the present folder."""
    return cli.main([command, "--snapshot", "study.json", *arguments])


def generate() -> list[list[str]]:
    return [["generate", "--checkpoint", cell[0], "--benchmark", cell[1]] for cell in CELLS[:1]]


def graded(cells: Sequence[tuple[str, str]] = CELLS[:1]) -> Iterator[list[str]]:
    grid = grid_at(Path())
    for cell in cells:
        manifests = [str(path) for path in grid.manifests(*cell)]
        options = ["--checkpoint", cell[0], "--benchmark", cell[1], "--output", str(grid.scores(*cell))]
        yield ["score", *options, *manifests]


# ---- what is there


def content(folder: Path) -> dict[str, str]:
    """sha256 of every Parquet file of the results that is not set aside, nor in a temporary folder."""
    results = folder / "results"
    paths = [path for path in results.rglob("*.parquet") if path.relative_to(results).parts[0] != "aside"]
    paths = [path for path in paths if not path.parent.name.endswith(".tmp")]
    return {str(path.relative_to(results)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(paths)}


def temporary(folder: Path) -> list[Path]:
    """Temporary files and folders; what is in such a folder counts with it."""
    found = [path for path in (folder / "results").rglob("*") if path.name.endswith(".tmp")]
    return [path for path in found if path.parent not in found]


def missing(folder: Path) -> int:
    """Samples that a plan would draw."""
    grid = grid_at(folder)
    pools = grid.jobs.pools(*CELLS[0])
    lacking = sum(stop - start for pool in pools for _, start, stop in grid.missing(pool))
    return lacking + sum(not grid.current_manifest(pool).exists() for pool in pools)


def scratch() -> Path:
    """A folder in memory if there is one: thousands of small studies are laid out and synced."""
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 2**30 else Path("/tmp")
