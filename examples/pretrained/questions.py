"""Draw questions of known benchmarks by a seed, into files of the project's own format (docs/pretrained.md).

    python examples/pretrained/questions.py --count 200 --seed 1 --output data \
        gsm8k=gsm8k_test.jsonl svamp=SVAMP.json mawps=mawps_fold0_dev.csv

The files of the benchmarks are yours; counts and golds are checked before anything is drawn. The first questions of a
file are a fair sample of all, so that `questions: 50` of a benchmark needs no other file. No question is drawn twice.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from searchlens import benchmarks, seeds
from searchlens.benchmarks.questions import plain
from searchlens.errors import InputError


def draw(family: str, path: Path, count: int, seed: int) -> list[benchmarks.Question]:
    """Different questions of one benchmark, in random order.

    Raises
    ------
    InputError
        The file is not the known one, or has fewer questions.
    """
    different = {plain(question.text): question for question in benchmarks.read([path], family).questions}
    if count > len(different):
        raise InputError(f"{path} has {len(different)} different questions, {count} are asked for", "lower --count")
    questions = list(different.values())
    order = seeds.generator("questions of a study", family, seed).permutation(len(questions))
    return [questions[place] for place in order[:count]]


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", metavar="FAMILY=FILE")
    parser.add_argument("--count", type=int, default=200, help="questions of each (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="(default: 1)")
    parser.add_argument("--output", type=Path, default=Path("data"), help="folder for FAMILY.jsonl (default: data)")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    for each in args.files:
        family, _, path = each.partition("=")
        questions = draw(family, Path(path), args.count, args.seed)
        (args.output / f"{family}.jsonl").write_text(benchmarks.dumps(questions))
        print(f"{args.output / f'{family}.jsonl'}: {len(questions)} questions of {family}")


if __name__ == "__main__":
    main()
