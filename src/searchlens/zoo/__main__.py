"""Commands of the micro zoo.

``benchmarks`` writes the four JSONL files; ``train`` trains the pair; ``evaluate`` measures it on a split; ``cards``
writes the model cards; ``all`` does all of it, opening the test split only for a pair that shows the effect on dev.
"""

from __future__ import annotations

import argparse
import ast
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from searchlens.errors import InputError
from searchlens.zoo.benchmarks import write_benchmarks
from searchlens.zoo.card import write_cards
from searchlens.zoo.recipe import Recipe
from searchlens.zoo.train import evaluate, train


def changed(recipe: Recipe, settings: list[str]) -> Recipe:
    """The recipe with ``section.field=value`` settings applied, for trials; a top-level field has no section."""
    for setting in settings:
        path, _, text = setting.partition("=")
        section, _, name = path.rpartition(".")
        try:
            value: Any = ast.literal_eval(text)
            if section:
                value = replace(getattr(recipe, section), **{name: value})
            recipe = replace(recipe, **{section or name: value})
        except (AttributeError, SyntaxError, TypeError, ValueError) as error:
            raise InputError(f"--set {setting}: {error}", "write section.field=value, as in rlvr.lr=5e-5") from error
    return recipe


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m searchlens.zoo", description=__doc__)
    parser.add_argument("command", choices=("benchmarks", "train", "evaluate", "cards", "all"))
    parser.add_argument("--out", type=Path, default=Path("resources/zoo"), help="folder of the zoo")
    parser.add_argument("--base", type=Path, help="start RLVR from this Base instead of pretraining one")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE", help="change the recipe")
    parser.add_argument("--split", choices=("dev", "test"), default="dev")
    parser.add_argument("--scale", type=float, default=1.0, help="dev questions relative to the benchmarks' numbers")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    if options.base and options.command != "train":
        parser.error("--base is for trials with the command train: a complete record needs its own pretraining")
    if options.command in ("benchmarks", "all"):
        for path in write_benchmarks(options.out / "benchmarks", Recipe()):
            print(path)
    if options.command in ("train", "all"):
        train(options.out, changed(Recipe(), options.set), options.device, options.base)
    if options.command == "evaluate":
        evaluate(options.out, options.device, options.split, options.scale)
    if options.command == "all":
        if not evaluate(options.out, options.device, "dev", options.scale):
            print("the test split stays closed: the dev split does not show the effect", file=sys.stderr)
            return 1
        evaluate(options.out, options.device, "test")
    if options.command in ("cards", "all"):
        for path in write_cards(options.out):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
