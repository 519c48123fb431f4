"""Options that several commands share, and the table of commands."""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from searchlens.cli.terminal import say
from searchlens.config import extras
from searchlens.errors import unknown
from searchlens.store import snapshots

STUDY_VARIABLE = "SEARCHLENS_STUDY"
"""Environment variable that names the folder of a study, as option ``-C`` does."""

Run = Callable[[argparse.Namespace], None]
"""What a command does."""


class Parser(argparse.ArgumentParser):
    """A parser of commands or of one command: no abbreviations, and the nearest name for an unknown one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def _print_message(self, message: str, file: Any = None) -> None:
        say(message.rstrip("\n"), file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(value, str) and not value.strip() and (value or (action.required and not action.option_strings)):
            raise argparse.ArgumentError(action, f"{value!r} names nothing")
        if action.choices is not None and value not in action.choices:
            if action.dest == "command" and value in extras.COMMANDS:
                raise extras.missing(extras.COMMANDS[value])
            raise argparse.ArgumentError(action, unknown(str(value), map(str, action.choices)))


class CommandsParser(Parser):
    """The parser of all commands. Its help lists them in groups, with one line each."""

    def __init__(self, **options: Any) -> None:
        super().__init__(usage="searchlens [-C DIR] [--quiet | --verbose] COMMAND ...", **options)
        self.groups: dict[str, dict[str, str]] = {}
        self.commands: dict[str, argparse.ArgumentParser] = {}

    def arguments(self) -> Iterator[argparse.Action]:
        """Every argument of every command, and those that stand before a command."""
        for parser in (self, *self.commands.values()):
            yield from parser._actions

    def format_help(self) -> str:
        """Usage, options, and the commands by group."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        formatter.start_section("options")
        formatter.add_arguments(self._get_optional_actions())
        formatter.end_section()
        listed = [
            f"{title}:\n" + "".join(f"  {name:<12} {text}\n" for name, text in commands.items())
            for title, commands in self.groups.items()
        ]
        return "\n".join([formatter.format_help(), *listed, "searchlens COMMAND --help says more.\n"])


class Commands:
    """Adds commands to groups, each with the options that choose its configuration."""

    def __init__(self, parser: CommandsParser) -> None:
        self._parser = parser
        self._added = parser.add_subparsers(dest="command", metavar="COMMAND", prog=parser.prog, parser_class=Parser)
        self._group: dict[str, str] = {}
        self._of_stages = False

    def group(self, title: str, *, of_stages: bool = False) -> None:
        """Begin a group: the commands that are added next belong to it.

        The workflow starts stages with the snapshot of a run. Other commands take a snapshot, too, but do not say so.
        """
        self._group = self._parser.groups.setdefault(title, {})
        self._of_stages = of_stages

    def __call__(self, name: str, run: Run, text: str, *, is_configured: bool = True) -> argparse.ArgumentParser:
        """Add one command; ``text`` is its line in the help, of at most 65 characters."""
        self._group[name] = text
        sub = self._added.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        self._parser.commands[name] = sub
        common = sub.add_argument_group("options of most commands")
        if is_configured:
            _configuration_options(common, names_snapshot=self._of_stages)
        common_options(common, argparse.SUPPRESS)  # a default here would overwrite what stands before the command
        sub.set_defaults(run=run, starts_study=False, is_named=False, named=str)
        if not is_configured:
            sub.set_defaults(config=[], snapshot="")
        return sub


def _configuration_options(group: argparse._ArgumentGroup, *, names_snapshot: bool) -> None:
    group.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="YAML",
        help="a file merged over those of the study's folder; may be repeated",
    )
    text = "snapshot of a run, instead of YAML files" if names_snapshot else argparse.SUPPRESS
    group.add_argument("--snapshot", default=os.environ.get(snapshots.VARIABLE, ""), metavar="JSON", help=text)


def common_options(group: argparse._ActionsContainer, default: Any = None) -> None:
    """What stands before a command or after it: ``-C``, ``--quiet`` and ``--verbose``.

    ``default`` is the value of an option that is not there; None: that of the option itself.
    """
    text = f"folder of the study, as if the command were run in it (default: ${STUDY_VARIABLE}, or the present folder)"
    group.add_argument("-C", dest="study", metavar="DIR", default="" if default is None else default, help=text)
    either = group.add_mutually_exclusive_group()
    level = logging.INFO if default is None else default
    either.add_argument(
        "--quiet",
        dest="level",
        action="store_const",
        const=logging.WARNING,
        default=level,
        help="results, warnings and errors alone: no progress",
    )
    either.add_argument(
        "--verbose",
        dest="level",
        action="store_const",
        const=logging.DEBUG,
        default=level,
        help="messages of libraries, too",
    )


def json_option(sub: argparse._ActionsContainer) -> None:
    """``--json``: the answer for programs."""
    sub.add_argument("--json", action="store_true", help="print the answer as JSON")


def put(
    args: argparse.Namespace,
    answer: Mapping[str, Any],
    rendered: Callable[[Mapping[str, Any]], str],
    show: Callable[[str], None] = say,
) -> None:
    """Print an answer: as JSON, or as the text that ``rendered`` makes of it, by ``show``.

    JSON has no NaN and no infinity: such numbers are null.
    """
    if args.json:
        say(json.dumps(_finite(answer), indent=1, allow_nan=False))
    else:
        show(rendered(answer))


def _finite(value: Any) -> Any:
    """A value of plain types in which numbers that are not finite are None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def cell_options(sub: argparse.ArgumentParser) -> None:
    """Checkpoint and benchmark of one cell."""
    sub.add_argument("--checkpoint", required=True, metavar="NAME", help="key of checkpoints")
    benchmark_option(sub)


_OPEN = ("date", "partial", "repeats", "id_key", "question_key", "gold_key")


def log_options(sub: argparse.ArgumentParser) -> None:
    """What formats of logs leave open; ``log_wishes`` reads it."""
    text = "task of the logs, if they have several; may be repeated"
    sub.add_argument("--task", action="append", default=[], metavar="NAME", help=text)
    sub.add_argument("--date", default="", metavar="NAME", help="run of the logs, if they have several (lm-eval)")
    sub.add_argument("--partial", action="store_true", help="read logs of unfinished runs")
    sub.add_argument("--repeats", default="", metavar="N", help="samples of each question (EvalScope without reviews)")
    text = "field of the logs' documents, if it has an unusual name (lm-eval, NeMo-Skills)"
    for option in ("--id-key", "--question-key", "--gold-key"):
        sub.add_argument(option, default="", metavar="FIELD", help=text)


def log_wishes(args: argparse.Namespace, *more: str) -> dict[str, str]:
    """What was said of it and of more options; a reader gets them by these names."""
    given = {name: getattr(args, name) for name in (*_OPEN, *more)}
    return {name: "yes" if value is True else value for name, value in given.items() if value}


def pair_option(sub: argparse.ArgumentParser) -> None:
    """A pair of the configuration."""
    sub.add_argument("--pair", required=True, metavar="NAME", help="key of pairs")


def benchmark_option(sub: argparse.ArgumentParser) -> None:
    """A benchmark of the configuration."""
    sub.add_argument("--benchmark", required=True, metavar="NAME", help="key of benchmarks")


def positive(text: str) -> int:
    """A whole number from 1 on, as an argument."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number >= 1")
    return int(text)


_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def size(text: str) -> int:
    """A number of bytes, as an argument: ``15MB``, ``500kB``, ``15000000``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kMG]?B?)", text, re.ASCII)
    if match is None or match[2] not in _UNITS or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a size above 0, such as 15MB, 500kB or 15000000")
    return round(float(match[1]) * _UNITS[match[2]])


def port(text: str) -> int:
    """A number of a port, as an argument."""
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number from 0 to 65535")
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
