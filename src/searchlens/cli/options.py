"""The table of commands, options that several share, and what they choose: a study, a cell, a folder of landscapes."""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from searchlens import __version__
from searchlens.cli.terminal import say
from searchlens.config import addons
from searchlens.errors import InputError, require_known, unknown
from searchlens.plan import Grid, needs
from searchlens.store import snapshots
from searchlens.store.provenance import config_fingerprint

if TYPE_CHECKING:
    from searchlens.api.study import Study
    from searchlens.boptr.cohort import CohortPlan
    from searchlens.config.boptr import BoptrOptions
    from searchlens.config.health import HealthOptions

STUDY_VARIABLE = "SEARCHLENS_STUDY"
"""Environment variable that names the folder of a study, as option ``-C`` does."""

# ---- values


def whole(least: int, most: float = math.inf) -> Callable[[str], int]:
    """A whole number in a range, as an argument."""
    allowed = f"a whole number >= {least}" if most == math.inf else f"a whole number from {least} to {most}"

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}; allowed: {allowed}")
        return int(text)

    return read


_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def size(text: str) -> int:
    """A number of bytes, as an argument: ``15MB``, ``500kB``, ``15000000``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kMG]?B?)", text, re.ASCII)
    if match is None or match[2] not in _UNITS or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a size above 0, such as 15MB, 500kB or 15000000")
    return round(float(match[1]) * _UNITS[match[2]])


# ---- commands

Run = Callable[[argparse.Namespace], None]

FIRST: Mapping[str, Sequence[str]] = {
    "compare logs that you have": ("compare", "import"),
    "sample checkpoints": ("init", "benchmarks", "check", "pin", "fetch", "plan", "run", "status"),
    "look at results": ("summary", "show", "explore", "report", "view", "diff"),
}
"""The commands that the help lists, by what a user wants; ``--help --all`` lists the others, too."""

_SHARED: Mapping[str, Mapping[str, Any]] = {
    "--checkpoint": {"required": True, "metavar": "NAME", "help": "a checkpoint, by its key in the configuration"},
    "--benchmark": {"required": True, "metavar": "NAME", "help": "a benchmark, by its key in the configuration"},
    "--pair": {"required": True, "metavar": "NAME", "help": "a pair, by its key in the configuration"},
    "--threads": {"type": whole(1), "default": 1, "metavar": "N", "help": "CPU threads or processes (default: 1)"},
    "--json": {"action": "store_true", "help": "print the answer as JSON"},
    "--output FOLDER": {"required": True, "metavar": "FOLDER", "help": "folder of the output files"},
    "--output RESULTS": {"required": True, "metavar": "RESULTS", "help": "results folder"},
}
"""Options of several commands, by name, and by the kind of their value where there are several."""


class Parser(argparse.ArgumentParser):
    """A parser of commands or of one command: no abbreviations, and the nearest name for an unknown one."""

    commands: Mapping[str, Parser] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def shared(self, *names: str) -> None:
        """Options that several commands have."""
        for name in names:
            self.add_argument(name.split()[0], **_SHARED[name])

    def text(self, name: str, metavar: str | None, text: str, *, default: Any = "", **more: Any) -> None:
        """An option with a value, which is empty by default; the help says another default."""
        said = " ".join(default) if isinstance(default, list) else str("" if default is None else default)
        self.add_argument(
            name, metavar=metavar, help=f"{text}{said and f' (default: {said})'}", default=default, **more
        )

    def choice(self, name: str, text: str, *choices: str, default: str = "") -> None:
        """An option with one of some values."""
        self.text(name, None, text, choices=choices, default=default)

    def several(self, name: str, metavar: str, text: str) -> None:
        """An option with a value that may be repeated."""
        self.add_argument(name, metavar=metavar, help=f"{text}; may be repeated", action="append", default=[])

    def flag(self, name: str, text: str) -> None:
        """An option without a value."""
        self.add_argument(name, action="store_true", help=text)

    def results(self) -> None:
        """A results folder; ``opened`` reads it."""
        self.text("folder", "RESULTS", "results folder; default: that of the configuration", nargs="?")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """An unknown option is refused first, because without it other arguments may be missing."""
        given = list(sys.argv[1:] if args is None else args)
        for text in takewhile(lambda text: text != "--" and (text[:1] == "-" or not self.commands), given):
            name, known = text.partition("=")[0], self._option_string_actions
            if name.startswith("--") and " " not in name and name not in known:
                self.error(f"option {unknown(name, (key for key in known if known[key].help != argparse.SUPPRESS))}")
        return super().parse_known_args(given, namespace)

    def error(self, message: str) -> NoReturn:
        """End with a mistake on the command line, and say which help to ask for."""
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}\nHint: `{self.prog} --help` says more")

    def _print_message(self, message: str, file: Any = None) -> None:
        say(message.rstrip("\n"), file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(value, str) and not value.strip() and (value or (action.required and not action.option_strings)):
            raise argparse.ArgumentError(action, f"{value!r} names nothing")
        if action.choices is not None and value not in action.choices:
            if action.dest == "command" and value in addons.COMMANDS:
                raise addons.missing(addons.COMMANDS[value])
            raise argparse.ArgumentError(action, unknown(str(value), map(str, action.choices)))


class Commands(Parser):
    """The parser of all commands, called to add one to a group. Its help lists them with one line each."""

    def __init__(self) -> None:
        usage = "searchlens [-C DIR] [--quiet | --verbose] COMMAND ..."
        text = "Was it already in the base model? Compare a base model with its RLVR version."
        super().__init__(prog="searchlens", usage=usage, description=text)
        self.add_argument("--version", action="version", version=__version__, help="print the version")
        text = "with --help: every command"
        self.add_argument("--all", action="store_true", dest="lists_all", default=argparse.SUPPRESS, help=text)
        self.groups = {title: dict.fromkeys(names, "") for title, names in FIRST.items()}
        self.commands: dict[str, Parser] = {}
        self._lists_all = False
        self._added = self.add_subparsers(dest="command", metavar="COMMAND", prog=self.prog, parser_class=Parser)
        self._group: dict[str, str] = {}
        self._of_stages = False
        _common_options(self)
        self.set_defaults(study="", level=logging.INFO)

    def format_help(self) -> str:
        """Usage, options, and the commands by group."""
        listed = [
            f"{title}:\n" + "".join(f"  {name:<12} {text}\n" for name, text in commands.items())
            for title, commands in self.groups.items()
            if self._lists_all or title in FIRST
        ]
        more = "`searchlens COMMAND --help` has an example; `searchlens --help --all`\nlists every command."
        self.epilog, self._added.help = "\n".join([*listed, more]), argparse.SUPPRESS
        return super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """``--all`` may stand behind ``--help``, which ends the program."""
        self._lists_all = "--all" in (sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def group(self, title: str, *, of_stages: bool = False) -> None:
        """Begin a group: the commands that are added next belong to it, but for those of ``FIRST``.

        The workflow starts stages with the snapshot of a run. Other commands take a snapshot, too, but do not say so.
        """
        self._group = self.groups.setdefault(title, {})
        self._of_stages = of_stages

    def __call__(self, name: str, run: Run, text: str, *examples: str, is_configured: bool = True) -> Parser:
        """Add one command: ``text`` is its line in the help, of at most 65 characters; ``examples`` are arguments."""
        next((self.groups[title] for title, names in FIRST.items() if name in names), self._group)[name] = text
        self.commands[name] = sub = self._added.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog="\n".join(["example:", *(f"  {self.prog} {name} {each}" for each in examples)]),
        )
        common = sub.add_argument_group("options of most commands")
        sub.set_defaults(run=run, starts_study=False, is_named=False, named=str)
        if is_configured:
            more = "a YAML file whose keys replace those of the study; may be repeated"
            common.add_argument("--config", action="append", default=[], metavar="YAML", help=more)
            more = "snapshot of a run, instead of YAML files" if self._of_stages else argparse.SUPPRESS
            given = os.environ.get(snapshots.VARIABLE, "")
            common.add_argument("--snapshot", default=given, metavar="JSON", help=more)
        else:
            sub.set_defaults(config=[], snapshot="")
        _common_options(common)
        return sub


def _common_options(group: argparse._ActionsContainer) -> None:
    """What stands before a command or after it, without defaults, which would overwrite what stands before."""
    text = f"folder of the study; relative paths begin there (default: ${STUDY_VARIABLE}, or the present folder)"
    group.add_argument("-C", dest="study", metavar="DIR", default=argparse.SUPPRESS, help=text)
    either = group.add_mutually_exclusive_group()
    for name, level, text in (
        ("--quiet", logging.WARNING, "results, warnings and errors alone: no progress"),
        ("--verbose", logging.DEBUG, "messages of libraries, too"),
    ):
        either.add_argument(name, dest="level", action="store_const", const=level, default=argparse.SUPPRESS, help=text)


# ---- answers


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


# ---- what the arguments choose


def grid_of(args: argparse.Namespace) -> Grid:
    """The study that the arguments choose: by files merged over each other, or by the snapshot of a run."""
    if args.snapshot:
        return Grid(snapshots.read(Path(args.snapshot)))
    from searchlens.config import check  # the workflow's jobs have a snapshot, and need no reader of YAML files

    files = check.read(check.files(args.config))
    args.named = files.named
    grid = Grid(check.validate(files.merged, files))
    overlays = check.overlays(args.config)
    if overlays and args.level < logging.WARNING and not args.is_named:
        args.is_named = True  # once for each command
        say(f"study: {', '.join(overlays)}; results: {grid.layout.results}", sys.stderr)
    return grid


def run_command(args: argparse.Namespace, *overlays: str) -> str:
    """The command line that runs the chosen study, with more files merged over it."""
    place = ["-C", args.study] if args.study else []
    files = [part for name in [*args.config, *overlays] for part in ("--config", name)]
    return shlex.join(["searchlens", *place, "run", *files])


def cell_of(grid: Grid, args: argparse.Namespace) -> tuple[str, str]:
    """The chosen checkpoint and benchmark; an InputError names the known ones."""
    checkpoint = require_known(args.checkpoint, {name for name, _ in grid.study.cells}, "checkpoint")
    return checkpoint, require_known(args.benchmark, {name for _, name in grid.study.cells}, "benchmark")


def is_configured(args: argparse.Namespace) -> bool:
    """Whether there is a configuration at all: some commands need none."""
    return bool(args.snapshot or args.config or Path("config").exists())


def limits_of(args: argparse.Namespace) -> HealthOptions:
    """Limits of the health check: the configured ones, or the defaults where there is no configuration."""
    from searchlens.config.health import DEFAULTS

    return grid_of(args).config.health if is_configured(args) else DEFAULTS


def cohort_of(study: Mapping[str, Any]) -> CohortPlan:
    """The typed cohort of ``needs.boptr`` or ``needs.transfer``."""
    from pydantic import TypeAdapter

    from searchlens.boptr.cohort import CohortPlan

    return TypeAdapter(CohortPlan).validate_json(json.dumps(study["cohort"]))


def cohort_of_folder(args: argparse.Namespace, landscapes: Path) -> tuple[CohortPlan, BoptrOptions, str]:
    """Plan and options of a folder of landscapes, and the fingerprint of the configuration, if there is one.

    A ``cohort.yaml`` in the folder describes the landscapes; without it, the configuration does.
    """
    from searchlens.boptr.cohort import PLAN_FILE, read_plan
    from searchlens.config.boptr import DEFAULTS

    if not landscapes.is_dir():
        found = "a file" if landscapes.exists() else "nothing"
        raise InputError(f"{landscapes}: must be a folder of landscapes, found {found}")
    described = os.path.lexists(landscapes / PLAN_FILE)  # a broken link is a mistake, not a missing file
    plan = read_plan(landscapes / PLAN_FILE) if described else None
    if plan and not is_configured(args):
        return plan, DEFAULTS, ""
    grid = grid_of(args)
    if plan is None and grid.study.without_boptr:
        raise InputError(f"BOPTR is left out: {grid.study.without_boptr}", "config/README.md: boptr.anchor, regime")
    study = {"options": grid.config.boptr} if plan else needs.transfer(grid)  # of a study, what its cohort has
    plan = plan or cohort_of(study)
    return plan, study["options"].on(plan.benchmarks), config_fingerprint(grid.config)


def opened(args: argparse.Namespace) -> Study:
    """The named results folder, or the configured one, opened for reading.

    If the chosen configuration was run, the study is read with it, otherwise with that of the newest run.
    """
    from searchlens.api.study import open_study

    if args.folder:
        return open_study(args.folder)
    grid = grid_of(args)
    fingerprint = config_fingerprint(grid.config)
    return open_study(grid.layout.results, config=fingerprint if grid.layout.snapshot(fingerprint).exists() else "")
