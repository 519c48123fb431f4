"""Options that several commands share, and the table of commands."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from searchlens.arguments import renamed_options
from searchlens.store import snapshots

STUDY_VARIABLE = "SEARCHLENS_STUDY"
"""Environment variable that names the folder of a study, as option ``-C`` does."""


class Commands:
    """Adds subcommands, each with the options that choose its configuration."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def __call__(self, name: str, run: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        """Add one command."""
        sub = self._parsers.add_parser(name, help=text, description=text, allow_abbrev=False)
        sub.add_argument(
            "--config",
            action="append",
            default=[],
            metavar="YAML",
            help="a file merged over those of the study's folder; may be repeated",
        )
        study_option(sub, argparse.SUPPRESS)  # a default here would overwrite a folder named before the command
        snapshot = os.environ.get(snapshots.VARIABLE, "")
        sub.add_argument(
            "--snapshot", default=snapshot, metavar="JSON", help="snapshot of a run, instead of YAML files"
        )
        sub.set_defaults(run=run, starts_study=False)
        return sub


def study_option(parser: argparse.ArgumentParser, default: str) -> None:
    """``-C``, before a command and after it."""
    text = f"folder of the study, as if the command were run in it (default: ${STUDY_VARIABLE}, or the present folder)"
    parser.add_argument("-C", dest="study", metavar="DIR", default=default, help=text)


def cell_options(sub: argparse.ArgumentParser) -> None:
    """Checkpoint and benchmark of one cell."""
    sub.add_argument("--checkpoint", required=True, help="key of checkpoints")
    sub.add_argument("--benchmark", required=True, help="key of benchmarks")


def positive(text: str) -> int:
    """A whole number from 1 on, as an argument."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number >= 1")
    return int(text)


def threads_option(sub: argparse.ArgumentParser) -> None:
    """How many CPU threads or processes a stage uses."""
    sub.add_argument("--threads", type=positive, default=1, metavar="N", help="CPU threads or processes (default: 1)")


def folder_option(sub: argparse.ArgumentParser) -> None:
    """Folder of output files."""
    sub.add_argument("--output", required=True, metavar="FOLDER", help="folder of the output files")


def results_option(sub: argparse.ArgumentParser) -> None:
    """Results folder that a stage writes into."""
    sub.add_argument("--output", required=True, metavar="RESULTS", help="results folder")


def cohort_options(sub: argparse.ArgumentParser) -> None:
    """What BOPTR's stages share: landscapes, outputs, readout, figures."""
    sub.add_argument("folder", metavar="FOLDER", help="folder of landscapes; a cohort.yaml in it describes them")
    results_option(sub)
    sub.add_argument(
        "--readout",
        choices=("expected", "prefix"),
        help="instead of boptr.readout; prefix: the tables in the paper's reading",
    )
    sub.add_argument(
        "--figures", action=argparse.BooleanOptionalAction, default=True, help="draw figures as well (default: yes)"
    )
    renamed_options(sub, {"--landscape": "the first argument, FOLDER", "--out": "--output"})
