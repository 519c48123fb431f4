"""Commands beside the studies: pins of the hub, power, the schema."""

from __future__ import annotations

import argparse
from pathlib import Path

from searchlens.cli.options import Commands, cohort_of_folder, grid_of
from searchlens.cli.terminal import say
from searchlens.store import snapshots
from searchlens.store.checkpoints import fingerprint
from searchlens.store.files import file_sha256


def _power(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from searchlens.cli import sample_size

    components = sample_size.TYPICAL
    if args.folder:
        source = Path(args.folder)
        if source.is_dir():
            plan, options, _ = cohort_of_folder(args, source)
            contributions = sample_size.landscape_contributions(source, plan, options, *args.rows)
        else:
            contributions = sample_size.read_contributions(source)
        components = sample_size.estimate_components(contributions)
    names = ("question_sd", "sample_sd", "model_sd", "shared")
    changes = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    design = sample_size.Design(tuple(args.questions), args.models, args.seeds)
    say(sample_size.report(design, replace(components, **changes), args.gap, args.alpha, args.contrasts))


def _pin(args: argparse.Namespace) -> None:
    from searchlens.cli.pin import Cache, Hub, pin

    grid = grid_of(args)
    registry = Cache() if args.from_cache else Hub()
    sources = grid.inputs.sources(everything=True)
    pin(grid.inputs.lock, sources, registry, update=args.update)
    if not sources:
        say("nothing to pin: the configuration names no checkpoint or dataset of the hub")


def _fetch(args: argparse.Namespace) -> None:
    from searchlens.cli.pin import fetch
    from searchlens.plan.pins import Hashes

    grid = grid_of(args)
    hash_of = file_sha256 if args.rehash else Hashes(grid.layout.hashes)
    fetch(grid.inputs.lock, grid.inputs.sources(), hash_of)


def _fingerprint(args: argparse.Namespace) -> None:
    say(fingerprint(Path(args.path)))


def _convert(args: argparse.Namespace) -> None:
    from searchlens.engines.convert import convert

    say(convert(Path(args.file), Path(args.folder), args.dtype))


def _schema(_: argparse.Namespace) -> None:
    from searchlens.config import check

    print(check.schema_text(), end="")


def _snapshot(args: argparse.Namespace) -> None:
    say(snapshots.save(grid_of(args).config))


def _completion(args: argparse.Namespace) -> None:
    import shtab

    from searchlens.cli.main import parser

    every = parser()
    for action in (action for sub in (every, *every.commands.values()) for action in sub._actions):
        if action.metavar in ("DIR", "FOLDER", "RESULTS"):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar in ("FILE", "YAML", "JSON", "MANIFEST"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(every, args.shell))


def add_to(command: Commands) -> None:
    """Add the other tools."""
    command.group("tools")
    sub = command("pin", _pin, "write the lock file: commit and hashes of every name of the hub")
    sub.flag("--update", "look up again names that are pinned already")
    sub.flag("--from-cache", "read the hub cache of this machine instead of the hub")
    sub = command("fetch", _fetch, "download the pinned files, and compare every byte with the pins")
    sub.flag("--rehash", "hash all files, also those with a stored hash")
    sub = command("fingerprint", _fingerprint, "print the fingerprint of a checkpoint folder", is_configured=False)
    sub.add_argument("path", metavar="FOLDER", help="folder of a checkpoint")
    text = "write a checkpoint folder from a GGUF file of Gemma 3"
    sub = command("convert", _convert, text, is_configured=False)
    sub.add_argument("file", metavar="MODEL.gguf", help="file of the model")
    sub.add_argument("folder", metavar="FOLDER", help="folder to write, new or empty")
    text = "type of the weights (default: bfloat16)"
    sub.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help=text)
    _add_power(command)
    text = "print what completes commands and options in a shell"
    sub = command("completion", _completion, text, is_configured=False)
    sub.add_argument("shell", choices=("bash", "zsh"), help="name of the shell")
    command("schema", _schema, "print the JSON schema of the configuration", is_configured=False)
    command("snapshot", _snapshot, "write the merged configuration into the results folder")


def _add_power(command: Commands) -> None:
    sub = command("power", _power, "say how large a study must be (docs/power.md)")
    text = "landscapes of a study, or a file of contributions"
    sub.add_argument("folder", metavar="FOLDER", nargs="?", default="", help=text)
    text = "difference of mean errors, percentage points"
    sub.add_argument("--gap", type=float, metavar="X", required=True, help=text)
    sub.add_argument("--models", type=int, metavar="N", required=True, help="number of models")
    text = "number of questions of each benchmark"
    sub.add_argument("--questions", type=int, metavar="N", nargs="+", required=True, help=text)
    sub.text("--seeds", "N", "pools of samples that curves are averaged over (default: 1)", type=int, default=1)
    sub.text("--alpha", "P", "level of the test (default: 0.05)", type=float, default=0.05)
    sub.text("--contrasts", "N", "number of contrasts tested together (default: 1)", type=int, default=1)
    text = "rows whose difference is estimated from the landscapes (default: V3 H4)"
    sub.text("--rows", "ROW", text, nargs=2, default=["V3", "H4"])
    text = "variance component; default: estimated from FOLDER, or typical"
    for name in ("question-sd", "sample-sd", "model-sd", "shared"):
        sub.text(f"--{name}", "X", text, type=float, default=None)
