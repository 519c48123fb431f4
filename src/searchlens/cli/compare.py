"""The command that needs no study: two sides' logs to all readings."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from searchlens.benchmarks import Question
from searchlens.cli.chosen import grid_of, is_configured
from searchlens.cli.options import Commands, json_option, log_options, log_wishes, positive, put
from searchlens.errors import InputError, require_known
from searchlens.store.files import replace_text


class _Known(NamedTuple):
    """A benchmark of a study: questions, grader, and why its texts are not to be quoted."""

    questions: Sequence[Question] | None = None
    grader: str = ""
    withheld: str = ""


def _compare(args: argparse.Namespace) -> None:
    from searchlens.cli import comparison, terminal
    from searchlens.compare import Wishes, compare_logs, page

    if args.html and not Path(args.html).absolute().parent.is_dir():
        raise InputError(f"--html {args.html}: there is no folder {Path(args.html).parent}")
    known = _known_benchmark(args)
    wishes = Wishes(
        grader=args.grader or known.grader,
        questions=known.questions,
        models=(args.base_model, args.rl_model),
        tasks=tuple(args.task),
        failed=args.failed,
        log=log_wishes(args),
        withheld=known.withheld or ("--no-texts" if args.no_texts else ""),
        every_text=args.all_graders,
        seed=args.seed,
        workers=args.threads,
    )
    found = compare_logs([Path(path) for path in args.base], [Path(path) for path in args.against], wishes)
    if args.html:
        replace_text(Path(args.html), page(found))
    columns = shutil.get_terminal_size().columns
    put(args, found.to_dict() if args.json else {}, lambda _: comparison.rendered(found, columns), terminal.page)


def _known_benchmark(args: argparse.Namespace) -> _Known:
    if not args.benchmark:
        return _Known()
    if not is_configured(args):
        raise InputError(
            f"--benchmark {args.benchmark}: there is no configuration here",
            "name the folder of a study that has the benchmark: -C DIR; or leave --benchmark out: the logs have golds",
        )
    grid = grid_of(args)
    name = require_known(args.benchmark, grid.config.benchmarks, "benchmark")
    return _Known(grid.inputs.questions(name), grid.study.benchmark(name).grader, grid.study.terms(name))


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number >= 0")
    return int(text)


def add_to(command: Commands) -> None:
    """Add the command."""
    command.group("logs of other tools")
    sub = command("compare", _compare, "compare Base and RL from their log files: all readings at once")
    sub.add_argument("base", metavar="BASE", nargs="+", help="files or folders with samples of Base")
    sub.add_argument("--against", metavar="RL", nargs="+", required=True, help="files or folders with samples of RL")
    sub.add_argument("--html", default="", metavar="FILE", help="write a page for others to read")
    json_option(sub)
    text = "grader (docs/grading.md), or recorded[:SCORER]: the logs' verdicts (default: math or choice, by the golds)"
    sub.add_argument("--grader", default="", metavar="NAME", help=text)
    text = "key of benchmarks of a study (-C DIR), whose golds count"
    sub.add_argument("--benchmark", default="", metavar="NAME", help=text)
    sub.add_argument("--base-model", default="", metavar="NAME", help="model of Base, if its files have several")
    sub.add_argument("--rl-model", default="", metavar="NAME", help="model of RL, if its files have several")
    text = "what to do with failed requests and missing samples"
    sub.add_argument("--failed", default="", choices=("drop", "wrong", "unequal"), help=text)
    log_options(sub)
    sub.add_argument("--all-graders", action="store_true", help="let math-verify judge all texts, not 2,000 of them")
    sub.add_argument("--no-texts", action="store_true", help="quote no text on the page")
    sub.add_argument("--seed", type=_seed, default=0, metavar="N", help="seed of all that is drawn (default: 0)")
    cores = len(os.sched_getaffinity(0))
    sub.add_argument("--threads", type=positive, default=cores, metavar="N", help="processes (default: all cores)")
