"""Commands of the micro zoo.

The first pair (docs/zoo.md), in the folder --output (default: resources/zoo): ``benchmarks`` writes the four JSONL
files; ``train`` trains the pair; ``evaluate`` measures it on a split; ``cards`` writes the model cards; ``all`` does
all of it, and opens the test split only if the pair shows the effect on dev.

The cohort (docs/zoo-cohort.md), in the folder --output (default: resources/zoo/cohort): ``cohort`` trains and measures
all pairs as jobs spread over ``--devices``, then writes the model card and checks the thresholds on dev; run it again
to resume. ``accept`` prints the thresholds again. ``steps`` fits the exponent beta to the dev curve of every RL step.
``job`` runs one job.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import AutoTokenizer

from searchlens.errors import InputError
from searchlens_lab.zoo import model as models
from searchlens_lab.zoo.card import BASE, RECORD, RL, checks, text_table, write_cards, write_cohort_card
from searchlens_lab.zoo.cohort import with_needs
from searchlens_lab.zoo.corpus import build_corpus, train_tokenizer
from searchlens_lab.zoo.evaluate import DEFAULT, POLICIES, claims, sample_roles, summarise, write_benchmarks
from searchlens_lab.zoo.jobs import Workshop, make_cohort
from searchlens_lab.zoo.pretrain import pretrain
from searchlens_lab.zoo.recipe import Recipe
from searchlens_lab.zoo.rlvr import train_rlvr
from searchlens_lab.zoo.tasks import Split

_T = TypeVar("_T")


def train(folder: Path, recipe: Recipe, device: str, base: Path | None = None) -> None:
    """Train a pair into ``folder``, from a Base if one is given; ``training.json`` has recipe and curves."""
    folder.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    started = time.monotonic()
    record: dict[str, Any] = {"recipe": asdict(recipe)}
    if base is None:
        tokenizer = _timed(seconds, "tokenizer", lambda: train_tokenizer(recipe))
        text = tokenizer.backend_tokenizer.to_str()
        corpus = _timed(seconds, "corpus", lambda: build_corpus(recipe, text, os.cpu_count() or 1))
        trained, curve = _timed(seconds, "pretraining", lambda: pretrain(corpus, recipe, device))
        record["corpus"] = {"documents": len(corpus.lengths), "tokens": len(corpus.flat)}
        record["pretraining"] = curve
        models.save(trained, tokenizer, folder / BASE)
    else:
        tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
        models.save(models.load(base), tokenizer, folder / BASE)
    start = models.load(folder / BASE, device)
    rl, record["rlvr"] = _timed(seconds, "rlvr", lambda: train_rlvr(start, tokenizer.backend_tokenizer, recipe))
    models.save(rl, tokenizer, folder / RL)
    record["seconds"] = seconds | {"total": round(time.monotonic() - started, 1)}
    record["hardware"] = torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"
    _write(folder / RECORD, record)


def evaluate(folder: Path, device: str, split: Split, scale: float = 1.0) -> bool:
    """Measure the pair in ``folder`` on ``split`` and record the numbers; returns whether all claims hold."""
    recipe = Recipe()
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    started = time.monotonic()
    numbers, outcomes = {}, {}
    for name in (BASE, RL):
        tokenizer = AutoTokenizer.from_pretrained(folder / name, trust_remote_code=False)
        model = models.load(folder / name, device)
        measured = sample_roles(model, tokenizer.backend_tokenizer, recipe, split, tuple(POLICIES), scale)
        numbers[name], outcomes[name] = summarise(measured), measured["math", DEFAULT][1]
    results = claims(numbers[BASE], numbers[RL], outcomes[BASE], outcomes[RL])
    record[split] = {"models": numbers, "claims": results}
    record["seconds"][split] = round(time.monotonic() - started, 1)
    record["seconds"]["total"] = round(record["seconds"]["total"] + record["seconds"][split], 1)
    _write(folder / RECORD, record)
    for claim, result in results.items():
        print(f"{split}: {'holds' if result['holds'] else 'FAILS'}: {claim}: {result['value']}")
    return all(result["holds"] for result in results.values())


def _timed(seconds: dict[str, float], stage: str, work: Callable[[], _T]) -> _T:
    started = time.monotonic()
    result = work()
    seconds[stage] = round(time.monotonic() - started, 1)
    print(f"{stage}: {seconds[stage]} s", flush=True)
    return result


def _write(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")


COHORT_COMMANDS = ("cohort", "accept", "steps", "job")


def with_settings(recipe: Recipe, settings: list[str]) -> Recipe:
    """The recipe with ``section.field=value`` settings applied; a top-level field has no section."""
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


def _cohort_command(options: argparse.Namespace) -> int:
    if options.command == "steps":
        return _steps(options)
    if options.command == "job":
        workshop = Workshop(options.output, device=options.device, workers=options.workers)
        workshop.do(options.name)
        return 0
    open_jobs: list[str] = []
    if options.command == "cohort":
        with_needs(options.only)  # refuse an unknown name before anything starts
        devices = options.devices.split(",")
        open_jobs = make_cohort(options.output, options.only, devices, options.slots, options.minutes)
    thresholds = checks(options.output)
    print(text_table(thresholds))
    write_cohort_card(options.output, thresholds)
    if open_jobs:
        print(f"not done yet: {' '.join(open_jobs)}; run the same command to resume", file=sys.stderr)
    return 1 if open_jobs else 0


def _steps(options: argparse.Namespace) -> int:
    """Print the table of RL steps as CSV; draw its figure if asked for."""
    from searchlens.reporting.figures import style  # needs packages that training does without
    from searchlens_lab.zoo import steps

    frame = steps.fit_steps(options.output)
    table = steps.csv_frame(frame)
    print(table.write_csv().rstrip())
    if options.figure:
        for path in style.save(steps.draw(frame), options.figure, table):
            print(path, file=sys.stderr)
    return 0


def _pair_command(options: argparse.Namespace) -> int:
    if options.command in ("benchmarks", "all"):
        for path in write_benchmarks(options.output / "benchmarks", Recipe()):
            print(path)
    if options.command in ("train", "all"):
        train(options.output, with_settings(Recipe(), options.set), options.device, options.base)
    if options.command == "evaluate":
        evaluate(options.output, options.device, options.split, options.scale)
    if options.command == "all":
        if not evaluate(options.output, options.device, "dev", options.scale):
            print("the pair does not show the effect on dev; the test split stays closed", file=sys.stderr)
            return 1
        evaluate(options.output, options.device, "test")
    if options.command in ("cards", "all"):
        for path in write_cards(options.output):
            print(path)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m searchlens_lab.zoo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = ("benchmarks", "train", "evaluate", "cards", "all", *COHORT_COMMANDS)
    parser.add_argument("command", choices=commands)
    parser.add_argument("--output", type=Path, help="default: resources/zoo, or resources/zoo/cohort")
    parser.add_argument("--base", type=Path, help="train: start RLVR from this Base instead of pretraining one")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE", help="change the recipe")
    parser.add_argument("--split", choices=("dev", "test"), default="dev")
    parser.add_argument("--scale", type=float, default=1.0, help="dev questions relative to the benchmarks' numbers")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", default=[], metavar="PAIR", help="cohort: these pairs and what they need")
    parser.add_argument("--devices", default="0", help="cohort: GPUs by number, as in 0,1,2,3; or cpu")
    parser.add_argument("--slots", type=int, default=1, help="cohort: jobs at a time on each device")
    parser.add_argument("--minutes", type=float, default=0.0, help="cohort: stop after this time (0: when all is done)")
    parser.add_argument("--name", default="", help="job: its name, as in records and logs")
    parser.add_argument("--workers", type=int, default=1, help="job: processes that write a corpus")
    parser.add_argument("--figure", type=Path, metavar="STEM", help="steps: write STEM.svg, .pdf, .png and .csv")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status: 2 for wrong input, 1 if jobs are left or the pair fails on dev."""
    parser = _parser()
    try:
        options = parser.parse_args(arguments)
        if options.base and options.command != "train":
            raise InputError("--base works with train only: the record of `all` needs its own pretraining")
        if options.command in COHORT_COMMANDS:
            options.output = options.output or Path("resources/zoo/cohort")
            return _cohort_command(options)
        options.output = options.output or Path("resources/zoo")
        return _pair_command(options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
