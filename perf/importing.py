"""Time and memory of an import without grading, against plain ``json.loads`` of the same lines.

    python perf/importing.py

It makes a synthetic file of a million samples of 2,000 characters, all questions of one seed after those of the one
before. Baseline and import run in processes of their own, one after the other, and the largest memory of each is what
the kernel says.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness import Spent, alone, spent

from searchlens.benchmarks import Question
from searchlens.formats.reading import Choices
from searchlens.formats.reading import read as read_pools
from searchlens.store import shards

SAMPLES, CHARACTERS, QUESTIONS = 1_000_000, 2_000, 1_000


def write(path: Path) -> None:
    """Samples of sums, whose texts are words of a fixed list and a box."""
    rng = random.Random(1)
    words = [f"word{i}" for i in range(500)]
    with path.open("w") as file:
        for sample in range(SAMPLES // QUESTIONS):
            for question in range(QUESTIONS):
                text = " ".join(rng.choices(words, k=CHARACTERS // 8)) + f"\n\nSo \\boxed{{{question}}}."
                row = {"question": f"q{question:05d}", "sample": sample, "text": text, "tokens": 500, "finish": "stop"}
                file.write(json.dumps(row) + "\n")


def parse(path: Path) -> None:
    """The baseline: every line as Python objects, none of them kept."""
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def store(path: Path) -> None:
    """Read, match, check and sort the samples, and publish their shard."""
    known = [Question(f"q{i:05d}", f"{i} + 0?", str(i)) for i in range(QUESTIONS)]
    temporary = path.parent / "spilled"
    temporary.mkdir()
    choices = Choices(role="base", policy="temp_1.0")
    with read_pools([path], known, "math", choices, folder=lambda: temporary) as reading:
        (pool,) = reading.pools
        shards.publish(
            path.parent / "shard",
            0,
            pool.samples,
            pool.frames,
            generation_id=pool.id,
            policies=["temp_1.0"],
            provenance=shards.Provenance(0.0, "unknown", 0, "imported"),
        )


def _spent(work: Callable[[Path], None], path: Path) -> Spent:
    return spent(lambda: work(path))[1]


def main() -> None:
    """Print seconds, memory, and the ratio of import and baseline."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "samples.jsonl")
        write(path)
        print(f"{SAMPLES:,} samples, {path.stat().st_size / 2**20:,.0f} MiB of JSON lines")
        baseline, whole = (alone(_spent, work, path) for work in (parse, store))
    for name, took in {"json.loads of every line": baseline, "import without grading": whole}.items():
        print(f"{name}: {took}, {took.peak / 2**10:.0f} MiB")
    print(f"the import takes {whole.cpu / baseline.cpu:.1f} times the CPU of the baseline")


if __name__ == "__main__":
    main()
