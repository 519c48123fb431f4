"""`searchlens`: one subcommand per stage, usable without Snakemake, and tools for studies and their samples.

Stages read the configuration either from YAML files (those of the study's folder, and ``--config`` merged over them)
or from the snapshot that a Snakemake run saved when it started (``--snapshot``), so that later edits of the files do
not change the run. The folder is the present one, or ``-C``, or the environment variable ``SEARCHLENS_STUDY``.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, chdir, nullcontext, suppress
from importlib import import_module
from pathlib import Path

from searchlens.cli import samples, stage_commands, study, terminal, tools
from searchlens.cli.options import STUDY_VARIABLE, Commands
from searchlens.config import addons
from searchlens.errors import InputError, JobError, JobStoppedError
from searchlens.garbage import collect_rarely
from searchlens.store import files

log = logging.getLogger("searchlens")


def parser() -> Commands:
    """All commands with their options."""
    every = Commands()
    for group in (study, stage_commands, samples, tools):
        group.add_to(every)
    for addon in addons.addons():
        import_module(addon.commands).add_to(every)
    return every


def _require_one_file_each(argv: Sequence[str]) -> None:
    """Refuse a second file after one ``--config``, which would be read as another argument."""
    for option, first, second in zip(argv, argv[1:], argv[2:], strict=False):
        if option == "--config" and second.endswith((".yaml", ".yml")):
            raise InputError(f"--config takes one file, found {first} {second}", f"--config {first} --config {second}")


def _in_study(args: argparse.Namespace) -> AbstractContextManager[object]:
    """The folder of the study as the present one while a command runs.

    The environment variable moves neither a job that has a snapshot, because that runs in its study's folder already,
    nor a command that starts a study.
    """
    moved = not (args.snapshot or args.starts_study)
    folder = args.study or (os.environ.get(STUDY_VARIABLE, "") if moved else "")
    if not folder:
        return nullcontext()
    if not Path(folder).is_dir():
        named_by = "-C" if args.study else STUDY_VARIABLE
        raise InputError(f"{named_by}: {folder} is not a folder", f"`searchlens init {folder}` makes one")
    return chdir(folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; messages are printed without a traceback.

    Returns 0; 2 for wrong input; 1 for a job that could not finish, or a file that the system does not give; 75 for a
    job that was stopped on request: the same command resumes it; 130 after Ctrl-C.
    """
    collect_rarely()
    handler = logging.StreamHandler()
    handler.setFormatter(terminal.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(handlers=[handler])
    sys.excepthook = terminal.say_what_was_raised
    log.setLevel(logging.INFO)
    args = argparse.Namespace(named=str)
    try:
        _require_one_file_each(sys.argv[1:] if argv is None else argv)
        every = parser()
        args = every.parse_args(argv)
        if args.command is None:
            every.print_help()
            return 0
        log.setLevel(args.level)
        if args.level == logging.DEBUG:  # otherwise warnings alone of libraries
            logging.getLogger().setLevel(logging.INFO)
        with _in_study(args):
            args.run(args)
    except InputError as error:
        return _ended(2, f"error: {InputError(args.named(error.message), error.hint)}")
    except ModuleNotFoundError as error:
        if error.name not in addons.EXTRAS:
            raise
        return _ended(2, f"error: {addons.missing(error.name)}")
    except JobError as error:
        return _ended(1, f"error: {error}")
    except JobStoppedError as error:
        return _ended(os.EX_TEMPFAIL, str(error))
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return _ended(128 + signal.SIGINT, "interrupted")
    except Exception as error:
        found = files.of_system(error)
        if found is None or found.filename is None or log.isEnabledFor(logging.DEBUG):
            raise
        return _ended(2 if found.errno in files.WRONG_NAMES else 1, f"error: {files.unread(found)}")
    return 0


def _ended(status: int, text: str) -> int:
    """The status with which the program ends, after it has said why."""
    with suppress(BrokenPipeError):  # the reading process may have ended first
        terminal.say(f"searchlens: {text}", sys.stderr)
    return status
