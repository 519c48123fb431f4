"""Commands that start, check, run and read a study."""

from __future__ import annotations

import argparse
import logging
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from searchlens.benchmarks import known
from searchlens.benchmarks.questions import content_hash
from searchlens.cli.options import Commands, Parser, grid_of, is_configured, opened, put, run_command, size, whole
from searchlens.cli.terminal import page, say
from searchlens.config import project
from searchlens.config.sampled import BenchmarkSpec
from searchlens.errors import InputError, JobError, counted
from searchlens.plan import TO_GET_READY, Grid
from searchlens.store import snapshots

OF_THE_REPOSITORY = ("ci.yaml", "zoo.yaml", "zoo-tables.yaml", "zoo-power.yaml", "own.yaml", "*.lock.json", "lock.json")
"""Files of ``config/`` that a new study does not get: they need the cohort of the zoo, or belong to another study."""

DEMO = """# The demo: the micro pair at laptop size. Snakemake and every command merge these settings over the
# other files of this folder.
"""

HEAD = ("family", "title", "questions", "regime", "grader", "licence")

Configured = Mapping[str, BenchmarkSpec]
PathsOf = Callable[[str], Sequence[Path]]


def _init(args: argparse.Namespace) -> None:
    written = init(Path(args.folder), demo=args.demo)
    say(f"created {', '.join(written[:-1])} and {written[-1]} in {args.folder.rstrip('/')}/")
    if args.demo:
        say("it holds the demo, on the micro pair; next:")
    else:
        say(f"fill in your checkpoints in {Path(args.folder, project.OWN_FILE)}; next:")
    place = shlex.quote(args.folder)
    comments = {"check": "mistakes, and what is missing", "plan": "what it costs", "run": "samples, tables and figures"}
    for command, comment in comments.items():
        say(f"  {f'searchlens -C {place} {command}':<{len(place) + 22}}# {comment}")


def init(folder: Path, *, demo: bool = False) -> list[str]:
    """Write the folder of a study: ``config/``, ``profiles/``, and a ``Snakefile`` that includes the workflow.

    The workflow itself stays where it is installed, because its rules call the code of their own version. ``demo``: the
    study of the micro pair, ready to run, in place of one to fill in. Returns the names of what was written. Raises
    InputError, and writes nothing, if the folder is a file, cannot be written to, or has one of these names already; or
    the micro pair is not installed.
    """
    names = ("config", "profiles", "slurm", "Snakefile")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a study needs a folder")
    for name in names:
        if (folder / name).exists() or (folder / name).is_symlink():
            raise InputError(f"{folder} already has {name}: nothing is written over it", "name another folder")
    if demo:
        project.zoo()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".init-") as temporary:
            _write(Path(temporary), demo=demo)
            for name in names:
                Path(temporary, name).rename(folder / name)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    return list(names)


def _write(folder: Path, *, demo: bool) -> None:
    source = project.root()
    shutil.copytree(source / "config", folder / "config", ignore=shutil.ignore_patterns(*OF_THE_REPOSITORY))
    shutil.copytree(source / "profiles", folder / "profiles")
    shutil.copyfile(project.TEMPLATES / "Snakefile", folder / "Snakefile")
    (folder / "slurm").symlink_to(Path("profiles", "slurm"))  # where `--profile slurm` looks for it
    settings = source / "config" / "demo.yaml" if demo else project.TEMPLATES / "own.yaml"
    (folder / project.OWN_FILE).write_text((DEMO if demo else "") + settings.read_text("utf-8"), "utf-8")


def _check(args: argparse.Namespace) -> None:
    found = check(grid_of(args), with_prompts=args.prompts)
    found["missing"] = list(map(args.named, found["missing"]))
    put(args, found, checked)
    if found["missing"]:
        raise JobError("the study is not ready to run", found["hint"])


def check(grid: Grid, *, with_prompts: bool = False) -> dict[str, Any]:
    """Check the study, and count its cells: what is missing for a run of it, and what will be left out.

    ``missing`` says why it is not ready to run, and ``hint`` what to do then. ``anchor`` is the pair and benchmark on
    which BOPTR is fitted, or empty, and then ``without_boptr`` says why. ``prompts``, if they are asked for, has the
    first prompt of each cell. Raises InputError if the configuration names something that does not exist or does not
    fit, or nothing can be written.
    """
    from searchlens.sampling import prompts

    grid.check()
    if not grid.study.cells:
        raise InputError(
            "the study has no cell: study.pairs or study.benchmarks is empty, and no imported samples belong to it",
            "name keys of pairs and benchmarks, or import samples (docs/import.md)",
        )
    refusals, notes, sent = prompts(grid, shown=with_prompts)
    return {
        "cells": len(grid.study.cells),
        "pair_cells": len(grid.study.pair_cells),
        "missing": [*(reasons := grid.refusals()), *refusals],
        "hint": TO_GET_READY if reasons else "",
        "notes": [*grid.study.unlike_sides, *notes],
        "unknown_wordings": list(grid.inputs.unknown_wordings),
        "without_likelihoods": list(grid.jobs.without_likelihoods),
        "without_budgets": grid.study.without_budgets,
        "anchor": "" if grid.study.without_boptr else "/".join(grid.study.anchor),
        "without_boptr": grid.study.without_boptr,
        "prompts": sent,
    }


def checked(found: Mapping[str, Any]) -> str:
    """The answer of ``check`` as text."""
    from searchlens.cli.show import prompt_lines

    state = "the study cannot run yet" if found["missing"] else "configuration is valid"
    lines = [f"{state}: {counted(found['cells'], 'cell')}, {counted(found['pair_cells'], 'comparison')} of Base and RL"]
    lines += [f"not ready to run: {reason}" for reason in found["missing"]]
    lines += [*found["unknown_wordings"], *found["without_budgets"], *found["notes"]]
    lines += [f"no cross-likelihoods of {reason}" for reason in found["without_likelihoods"]]
    left_out = found["without_boptr"]
    lines.append(f"BOPTR is left out: {left_out}" if left_out else f"BOPTR is fitted on {found['anchor']}")
    for each in found["prompts"]:
        title = f"{each['checkpoint']}/{each['benchmark']}: prompt of question {each['question']}"
        lines += ["", *prompt_lines(title, each["prompt"])]
    return "\n".join(lines)


def _plan(args: argparse.Namespace) -> None:
    from searchlens.cli import plan

    put(args, plan.answer(grid_of(args)), partial(plan.rendered, by_policy=args.policies))


def _run(args: argparse.Namespace) -> None:
    from searchlens.cli.run import command_of, require_installed, run

    grid = grid_of(args)
    grid.check()  # its messages are clearer than those of a workflow
    if not args.dry_run:
        grid.require_ready()
    require_installed(grid, here=not args.dry_run and not args.profile)
    run(
        command_of(args),
        grid,
        args.config,
        plain=args.dry_run or args.snakemake_log,
        quiet=args.level >= logging.WARNING,
    )


def _status(args: argparse.Namespace) -> None:
    from searchlens.cli import status

    grid = grid_of(args)
    if args.follow:
        with suppress(KeyboardInterrupt):
            status.follow(lambda: status.answer(Grid(grid.config, grid.root)), sys.stdout)
    else:
        put(args, status.answer(grid), status.rendered)


def _summary(args: argparse.Namespace) -> None:
    from searchlens.cli import summary

    grid = grid_of(args)
    written = grid.layout.snapshots()
    if written and not args.snapshot and snapshots.path_of(grid.config) not in written:
        # The last run had another configuration, such as that of the demo.
        grid = Grid(snapshots.read(max(written, key=lambda path: path.stat().st_mtime_ns)))
    put(args, summary.answer(grid, run_command(args)), summary.rendered)


def _show(args: argparse.Namespace) -> None:
    from searchlens.cli import show

    found = show.shown(opened(args), args)
    columns, lines = shutil.get_terminal_size().columns, None if args.full else show.LINES
    put(args, found, lambda _: show.rendered(found, columns, lines), page)


def _explore(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.explorer import explorer

    study = opened(args)
    output = Path(args.output) if args.output else study.layout.explorer
    left_out = explorer(study, output, args.size, Path(args.headline) if args.headline else None)
    _say_page(output)
    for sentence in left_out:
        say(f"left out: {sentence}")


def _report(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.report import report

    study = opened(args)
    output = Path(args.output) if args.output else study.layout.report
    report(study, output)
    _say_page(output)


def _say_page(path: Path) -> None:
    say(f"{path}: {path.stat().st_size / 1e6:.1f} MB; it opens in a browser, and asks no other host for anything")


def _view(args: argparse.Namespace) -> None:
    import webbrowser

    from searchlens.cli import status
    from searchlens.progress import TimeLeft
    from searchlens.reporting.explorer_server import Server

    study, pace = opened(args), TimeLeft(after=60)
    grid = Grid(replace(study.config, results=str(study.results.absolute())), study.root)

    def progress() -> dict[str, Any]:
        with suppress(InputError):  # of a copied folder, checkpoints may not be here
            found = status.answer(Grid(grid.config, grid.root))
            if not status.is_finished(found):
                drawn, wanted = (sum(cell[key] for cell in found["cells"]) for key in ("drawn", "wanted"))
                seconds = status.time_left(pace, time.monotonic(), found)
                return {"words": status.line(found, seconds), "share": drawn / max(1, wanted)}
        return {}

    with Server(study, args.port, progress=progress) as server, suppress(KeyboardInterrupt):
        say(f"{server.url} shows {args.folder or 'the study'}; Ctrl-C ends it")
        if args.open:
            webbrowser.open(server.url)
        server.serve_forever()
    say("ended")


def _diff(args: argparse.Namespace) -> None:
    from searchlens.api.differences import differences
    from searchlens.api.study import open_study
    from searchlens.cli import show

    found = differences(open_study(args.first), open_study(args.second))
    answer = {"a": args.first, "b": args.second, **found.to_dict()}
    lines = None if args.all else show.DIFF_LINES
    put(args, answer, lambda _: show.rendered_diff(found, (args.first, args.second), lines), page)


def _benchmarks(args: argparse.Namespace) -> None:
    grid = grid_of(args) if is_configured(args) else None
    configured = (grid.config.benchmarks, grid.inputs.question_files) if grid else ({}, lambda _: [])
    put(args, listing(*configured), listed)


def listing(configured: Configured, paths_of: PathsOf) -> dict[str, Any]:
    """The ``known`` benchmarks and the ``own`` ones, with configured files and datasets on the hub.

    ``paths_of`` gives the files and folders of a configured benchmark by its name, or raises InputError. ``configured``
    of a benchmark maps the names in the configuration to what is there, in words.
    """
    return {
        "known": [
            {
                "family": benchmark.name,
                "title": benchmark.title,
                "questions": list(benchmark.sizes),
                **{key: getattr(benchmark, key) for key in HEAD[3:]},
                "hub": [
                    {key: getattr(split, key) for key in ("id", "config", "split", "gated")}
                    for split in benchmark.splits
                ],
                "configured": _files(benchmark.name, configured, paths_of),
            }
            for benchmark in known.known_benchmarks().values()
        ],
        "own": _files(known.OWN, configured, paths_of),
    }


def listed(found: Mapping[str, Any]) -> str:
    """The known benchmarks as a table; under each one its configured files and its datasets on the hub."""
    sizes = [" or ".join(map(str, benchmark["questions"])) or "not known" for benchmark in found["known"]]
    shown = [{**benchmark, "questions": size} for benchmark, size in zip(found["known"], sizes, strict=True)]
    cells = [HEAD, *([each[key] for key in HEAD] for each in shown)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    head, *table = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
    lines = [head]
    for benchmark, row in zip(found["known"], table, strict=True):
        splits = benchmark["hub"]
        places = ", ".join(" ".join(filter(None, (one["id"], one["config"], f"({one['split']})"))) for one in splits)
        gated = "; gated, give your own file" if any(one["gated"] for one in splits) else ""
        lines += [row, *_file_lines(benchmark["configured"]), f"    on the hub: {places or 'no'}{gated}"]
    if own := _file_lines(found["own"]):
        lines += [f"{known.OWN} (the project's own format)", *own]
    return "\n".join(lines)


def _files(family: str, configured: Configured, paths_of: PathsOf) -> dict[str, str]:
    """What is there of each configured benchmark of a family."""
    return {name: _state(name, spec, paths_of) for name, spec in configured.items() if spec.family == family}


def _file_lines(states: Mapping[str, str]) -> list[str]:
    return [f"    {name}: {state}" for name, state in states.items()]


def _state(name: str, spec: BenchmarkSpec, paths_of: PathsOf) -> str:
    try:
        paths = paths_of(name)
    except InputError as error:
        return f"not here: {error.message}"
    where = " + ".join(str(path) for path in paths)
    if not all(path.exists() for path in paths):
        return f"not here: {where}"
    try:
        benchmark = known.read(paths, spec.family, expected_sha256=spec.sha256, check=spec.check)
        count = sum(len(known.files_at(path, spec.family)) for path in paths)
    except InputError as error:
        return f"REFUSED: {' '.join(error.message.split())}"
    source = f" ({benchmark.source})" if benchmark.source else ""
    without_gold = benchmark.rows - len(benchmark.questions)
    left_out = f", {counted(without_gold, 'row')} without a gold left out" if without_gold else ""
    notice = f"; {benchmark.notice}" if benchmark.notice else ""
    return (
        f"{where}, {counted(count, 'file')}: {counted(len(benchmark.questions), 'question')}{source}"
        f"{left_out}, {benchmark.checked} golds checked, content {content_hash(benchmark.questions)[:12]}{notice}"
    )


def add_to(command: Commands) -> None:
    """Add the commands of studies."""
    sub = command("init", _init, "start the folder of a new study", "mine", "demo --demo", is_configured=False)
    sub.add_argument("folder", metavar="DIR", help="folder that does not have a study yet")
    sub.flag("--demo", "the study of the micro pair, ready to run")
    sub.set_defaults(starts_study=True)
    sub = command("check", _check, "validate the configuration and everything it names", "-C mine --prompts")
    sub.flag("--prompts", "print the first prompt of each cell as it is sent")
    sub.shared("--json")
    sub = command("plan", _plan, "show which samples are missing, and what they cost", "-C mine --policies")
    sub.flag("--policies", "one line per policy with its id, instead of per cell")
    sub.shared("--json")
    sub = command("run", _run, "run the study, or resume it", "-C mine --cores 8", "-C mine --profile slurm")
    sub.add_argument("targets", metavar="TARGET", nargs="*", help="rules or files (default: everything)")
    sub.text("--cores", "N", "CPU cores, or all (default: as the profile says)")
    sub.text("--profile", "FOLDER", "profile of Snakemake, such as slurm")
    sub.add_argument("-n", "--dry-run", action="store_true", help="print the jobs, and run none")
    sub.flag("--snakemake-log", "print what Snakemake prints, instead of one line of progress")
    sub = command("status", _status, "show progress, running and failed jobs, and their logs", "-C mine --follow")
    either = sub.add_mutually_exclusive_group()
    either.add_argument("--json", action="store_true", help="print the answer as JSON")
    either.add_argument("--follow", action="store_true", help="print one line of progress now and then, until the end")
    command("summary", _summary, "print the main results of the last run", "-C mine").shared("--json")
    _add_show(command("show", _show, "show the answers of Base and RL side by side", "-C mine --only rl-solves"))
    sub = command("explore", _explore, "write the study as one page that opens in a browser", "-C mine --size 5MB")
    sub.results()
    sub.text("--size", "SIZE", "most bytes of the page", type=size, default="15MB")
    sub.text("--output", "FILE", "the page; default: explorer.html in RESULTS")
    sub.text("--headline", "FILE", "also write three sentences a cell, as HTML")
    sub = command("report", _report, "write figures and tables as one page", "-C mine --output report.html")
    sub.results()
    sub.text("--output", "FILE", "the page; default: report.html in RESULTS")
    sub = command("view", _view, "show the study in a browser of this machine, with every sample", "-C mine --open")
    sub.results()
    sub.text("--port", "N", "port of 127.0.0.1; 0: any that is free", type=whole(0, 65535), default=8642)
    sub.flag("--open", "open the browser, too")
    sub = command("diff", _diff, "say what changed between two results folders", "before after", is_configured=False)
    sub.add_argument("first", metavar="A", help="results folder, before")
    sub.add_argument("second", metavar="B", help="results folder, after")
    sub.flag("--all", "list every change, instead of the largest ones")
    sub.shared("--json")
    command("benchmarks", _benchmarks, "list benchmarks, and which are here", "-C mine").shared("--json")


def _add_show(sub: Parser) -> None:
    sub.results()
    sub.text("--pair", "NAME", "key of pairs; default: the first one")
    sub.text("--benchmark", "NAME", "key of benchmarks; default: the first one of the pair")
    sub.several("--question", "N|ID", "position of a question, from 0, or its id")
    sub.several("--policy", "NAME", "a policy; default: the default policy; all: every policy that both sides have")
    text = "questions that one side alone solves under these policies, or that have a sample on which graders disagree"
    sub.choice("--only", text, "rl-solves", "base-solves", "graders-disagree")
    sub.text("--samples", "N", "samples of each side", type=whole(1), default=2)
    sub.text("--limit", "N", "number of questions", type=whole(1), default=5)
    sub.flag("--full", "whole texts, instead of their first and last lines")
    sub.flag("--prompt", "also the prompt as it was sent, by its tokens")
    sub.shared("--json")
