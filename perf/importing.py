"""Time and memory of an import without grading, against plain ``json.loads`` of the same lines.

    python perf/importing.py [--samples 1000000] [--characters 2000] [--questions 1000]

It makes a synthetic file of samples, all questions of one seed after those of the one before. Baseline and import run
in processes of their own, one after the other, and the largest memory of each is what the kernel says.
"""

from __future__ import annotations

import argparse
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


def write(path: Path, questions: int, samples: int, characters: int) -> None:
    """Samples of sums, whose texts are words of a fixed list and a box."""
    rng = random.Random(1)
    words = [f"word{i}" for i in range(500)]
    with path.open("w") as file:
        for sample in range(samples):
            for question in range(questions):
                text = " ".join(rng.choices(words, k=characters // 8)) + f"\n\nSo \\boxed{{{question}}}."
                row = {"question": f"q{question:05d}", "sample": sample, "text": text, "tokens": 500, "finish": "stop"}
                file.write(json.dumps(row) + "\n")


def parse(path: Path, questions: int) -> None:  # noqa: ARG001
    """The baseline: every line as Python objects, none of them kept."""
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def store(path: Path, questions: int) -> None:
    """Read, match, check and sort the samples, and publish their shard."""
    known = [Question(f"q{i:05d}", f"{i} + 0?", str(i)) for i in range(questions)]
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


def _spent(work: Callable[[Path, int], None], path: Path, questions: int) -> Spent:
    return spent(lambda: work(path, questions))[1]


def main() -> None:
    """Print seconds, memory, and the ratio of import and baseline."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--characters", type=int, default=2000)
    parser.add_argument("--questions", type=int, default=1000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "samples.jsonl")
        write(path, args.questions, args.samples // args.questions, args.characters)
        print(f"{args.samples:,} samples, {path.stat().st_size / 2**20:,.0f} MiB of JSON lines")
        baseline, whole = (alone(_spent, work, path, args.questions) for work in (parse, store))
    for name, took in {"json.loads of every line": baseline, "import without grading": whole}.items():
        print(f"{name}: {took}, {took.peak / 2**10:.0f} MiB")
    print(f"the import takes {whole.cpu / baseline.cpu:.1f} times the CPU of the baseline")


if __name__ == "__main__":
    main()
