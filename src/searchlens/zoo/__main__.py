"""Commands of the micro zoo: ``python -m searchlens.zoo benchmarks``."""

from __future__ import annotations

import argparse
from pathlib import Path

from searchlens.zoo.benchmarks import write_benchmarks
from searchlens.zoo.recipe import Recipe


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and run one command."""
    parser = argparse.ArgumentParser(prog="python -m searchlens.zoo", description=__doc__)
    parser.add_argument("command", choices=("benchmarks",))
    parser.add_argument("--out", type=Path, default=Path("resources/zoo"), help="folder of the zoo")
    options = parser.parse_args(arguments)
    for path in write_benchmarks(options.out / "benchmarks", Recipe()):
        print(path)


if __name__ == "__main__":
    main()
