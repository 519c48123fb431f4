"""Commands of the micro zoo.

``benchmarks`` writes the four JSONL files; ``train`` trains the pair; ``evaluate`` measures it on a split; ``cards``
writes the model cards; ``all`` does all of it, opening the test split only for a pair that shows the effect on dev.

``cohort --out DIR`` makes the cohort of docs/zoo-cohort.md: jobs spread over ``--devices``, resumed where they stopped,
then model cards and the thresholds on dev. ``accept --out DIR`` shows the thresholds again. ``steps --out DIR`` fits
the exponent beta to the dev curve of every RL step. ``job`` does one job.
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
from searchlens.zoo.accept import checks, shown
from searchlens.zoo.benchmarks import write_benchmarks
from searchlens.zoo.card import write_cards
from searchlens.zoo.cohort import chosen, rehearsal
from searchlens.zoo.cohort_card import write_cohort_cards
from searchlens.zoo.jobs import Workshop, make_cohort
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


def _cohort(options: argparse.Namespace) -> int:
    """The commands of the cohort."""
    if options.command == "job":
        shop = Workshop(options.out, device=options.device, workers=options.workers)
        if options.rehearse:
            shop = replace(shop, cohort=rehearsal(), scale=0.05)
        shop.do(options.name)
        return 0
    open_jobs: list[str] = []
    if options.command == "cohort":
        chosen(options.only)  # refuse an unknown name before anything starts
        devices = options.devices.split(",")
        open_jobs = make_cohort(options.out, options.only, devices, options.slots, options.minutes, options.rehearse)
    found = checks(options.out)
    print(shown(found))
    write_cohort_cards(options.out, found)
    if open_jobs:
        print(f"not done, the same command goes on with them: {' '.join(open_jobs)}", file=sys.stderr)
    return 1 if open_jobs else 0


def _steps(options: argparse.Namespace) -> int:
    """The table of RL's steps, and its figure."""
    from searchlens.zoo import steps  # needs more than training does

    frame = steps.steps(options.out)
    print(steps.flat(frame).write_csv().rstrip() if options.csv else steps.shown(frame))
    if options.figure:
        for path in steps.write_figure(frame, options.figure):
            print(path, file=sys.stderr)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m searchlens.zoo", description=__doc__)
    commands = ("benchmarks", "train", "evaluate", "cards", "all", "cohort", "accept", "steps", "job")
    parser.add_argument("command", choices=commands)
    parser.add_argument(
        "--out", type=Path, help="folder of the zoo (resources/zoo), or of the cohort (resources/zoo/cohort)"
    )
    parser.add_argument("--base", type=Path, help="start RLVR from this Base instead of pretraining one")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE", help="change the recipe")
    parser.add_argument("--split", choices=("dev", "test"), default="dev")
    parser.add_argument("--scale", type=float, default=1.0, help="dev questions relative to the benchmarks' numbers")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", default=[], metavar="PAIR", help="cohort: these, and what they need")
    parser.add_argument("--devices", default="0", help="cohort: GPUs by number, as in 0,1,2,3; or cpu")
    parser.add_argument("--slots", type=int, default=1, help="cohort: jobs side by side on each device")
    parser.add_argument("--minutes", type=float, default=0.0, help="cohort: stop then, keeping states (0: when done)")
    parser.add_argument("--rehearse", action="store_true", help="cohort: very short recipes, to try out a machine")
    parser.add_argument("--name", default="", help="job: its name, as the records and logs have it")
    parser.add_argument("--workers", type=int, default=1, help="job: processes that write a corpus")
    parser.add_argument("--csv", action="store_true", help="steps: print CSV")
    parser.add_argument(
        "--figure", type=Path, metavar="STEM", help="steps: draw STEM.svg, .pdf and .png beside STEM.csv"
    )
    options = parser.parse_args(arguments)
    if options.command in ("cohort", "accept", "steps", "job"):
        options.out = options.out or Path("resources/zoo/cohort")
        return _steps(options) if options.command == "steps" else _cohort(options)
    options.out = options.out or Path("resources/zoo")
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
