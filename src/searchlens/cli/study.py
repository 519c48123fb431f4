"""Commands that start, check, run and read a study."""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from searchlens.cli.chosen import grid_of, is_configured, opened, run_command
from searchlens.cli.options import Commands, json_option, port, positive, put, size
from searchlens.cli.terminal import say
from searchlens.config.project import OWN_FILE
from searchlens.errors import JobError
from searchlens.plan import Grid


def _init(args: argparse.Namespace) -> None:
    from searchlens.cli.init import init

    written = init(Path(args.folder), demo=args.demo)
    say(f"{args.folder} has {', '.join(written)}")
    if args.demo:
        say("it holds the demo, on the micro pair; next:")
    else:
        say(f"fill in your checkpoints in {Path(args.folder, OWN_FILE)}; next:")
    place = shlex.quote(args.folder)
    comments = {"check": "mistakes, and what is missing", "plan": "what it costs", "run": "samples, tables and figures"}
    for command, comment in comments.items():
        say(f"  {f'searchlens -C {place} {command}':<{len(place) + 22}}# {comment}")


def _check(args: argparse.Namespace) -> None:
    from searchlens.cli import check

    found = check.answer(grid_of(args), with_prompts=args.prompts)
    found["missing"] = list(map(args.named, found["missing"]))
    put(args, found, check.rendered)
    if found["missing"]:
        raise JobError("the study is not ready to run", found["hint"])


def _plan(args: argparse.Namespace) -> None:
    from searchlens.cli import plan

    put(args, plan.answer(grid_of(args)), partial(plan.rendered, by_policy=args.policies))


def _run(args: argparse.Namespace) -> None:
    from searchlens.cli.run import command_of, require_installed, run

    grid = grid_of(args)
    grid.check()  # its messages are clearer than those of a workflow
    require_installed(grid, here=not args.dry_run and not args.profile)
    command = command_of(args.targets, args.config, cores=args.cores, profile=args.profile, dry_run=args.dry_run)
    run(command, grid, plain=args.dry_run or args.snakemake_log, quiet=args.level >= logging.WARNING)


def _status(args: argparse.Namespace) -> None:
    from searchlens.cli import status
    from searchlens.cli.follow import follow

    grid = grid_of(args)
    if args.follow:
        with suppress(KeyboardInterrupt):
            follow(lambda: status.answer(Grid(grid.config, grid.root)), sys.stdout)
        return
    put(args, status.answer(grid), status.rendered)


def _summary(args: argparse.Namespace) -> None:
    from searchlens.cli import summary

    put(args, summary.answer(grid_of(args), run_command(args)), summary.rendered)


def _show(args: argparse.Namespace) -> None:
    import shutil

    from searchlens.cli import show, terminal

    wanted = show.Wanted(
        pair=args.pair,
        benchmark=args.benchmark,
        questions=args.question,
        policies=args.policy,
        only=args.only,
        samples=args.samples,
        limit=args.limit,
        prompt=args.prompt,
    )
    found = show.shown(opened(args, args.folder), wanted)
    columns, lines = shutil.get_terminal_size().columns, None if args.full else show.LINES
    put(args, found, lambda _: show.rendered(found, columns, lines), terminal.page)


def _explore(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.explorer import explorer

    study = opened(args, args.folder)
    output = Path(args.output) if args.output else study.layout.explorer
    left_out = explorer(study, output, args.size, Path(args.headline) if args.headline else None)
    say(f"{output}: {output.stat().st_size / 1e6:.1f} MB; it opens in a browser, and asks no other host for anything")
    for sentence in left_out:
        say(f"left out: {sentence}")


def _report(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.report import report

    study = opened(args, args.folder)
    output = Path(args.output) if args.output else study.layout.report
    report(study, output)
    say(f"{output}: {output.stat().st_size / 1e6:.1f} MB; it opens in a browser, and asks no other host for anything")


def _view(args: argparse.Namespace) -> None:
    import webbrowser

    from searchlens.reporting.explorer_server import Server

    with Server(opened(args, args.folder), args.port) as server, suppress(KeyboardInterrupt):
        say(f"{server.url} shows {args.folder or 'the study'}; Ctrl-C ends it")
        if args.open:
            webbrowser.open(server.url)
        server.serve_forever()
    say("ended")


def _diff(args: argparse.Namespace) -> None:
    from searchlens.api.differences import differences
    from searchlens.api.study import open_study
    from searchlens.cli import diff, terminal

    found = differences(open_study(args.first), open_study(args.second))
    answer = {"a": args.first, "b": args.second, **found.to_dict()}
    lines = None if args.all else diff.LINES
    put(args, answer, lambda _: diff.rendered(found, (args.first, args.second), lines), terminal.page)


def _benchmarks(args: argparse.Namespace) -> None:
    from searchlens.benchmarks import listing

    grid = grid_of(args) if is_configured(args) else None
    found = (
        listing.answer(grid.config.benchmarks, grid.inputs.question_files) if grid else listing.answer({}, lambda _: [])
    )
    put(args, found, listing.rendered)


def add_to(command: Commands) -> None:
    """Add the commands of studies."""
    command.group("a study")
    sub = command(
        "init", _init, "write the folder of a new study, with a configuration to fill in", is_configured=False
    )
    sub.add_argument("folder", metavar="DIR", help="folder that does not have a study yet")
    sub.add_argument("--demo", action="store_true", help="the study of the micro pair, ready to run")
    sub.set_defaults(starts_study=True)
    sub = command("check", _check, "validate the configuration and everything it names")
    sub.add_argument("--prompts", action="store_true", help="print the first prompt of each cell as it is sent")
    json_option(sub)
    sub = command("plan", _plan, "show which samples are missing, and what they cost")
    sub.add_argument("--policies", action="store_true", help="one line per policy with its id, instead of per cell")
    json_option(sub)
    sub = command("run", _run, "run the study by Snakemake, or resume it")
    sub.add_argument("targets", metavar="TARGET", nargs="*", help="rules or files (default: everything)")
    sub.add_argument("--cores", default="", metavar="N", help="CPU cores, or all (default: as the profile says)")
    sub.add_argument("--profile", default="", metavar="FOLDER", help="profile of Snakemake, such as slurm")
    sub.add_argument("-n", "--dry-run", action="store_true", help="print the jobs, and run none")
    sub.add_argument(
        "--snakemake-log", action="store_true", help="print what Snakemake prints, instead of one line of progress"
    )
    sub = command("status", _status, "show progress, running and failed jobs, and their logs")
    either = sub.add_mutually_exclusive_group()
    json_option(either)
    either.add_argument(
        "--follow", action="store_true", help="print one line of overall progress now and then, until all is done"
    )
    json_option(command("summary", _summary, "print the main results of the last run"))
    _add_show(command("show", _show, "show questions with the answers of Base and RL side by side"))
    sub = command("explore", _explore, "write the study as one page that opens in a browser")
    _results_argument(sub)
    sub.add_argument(
        "--size", type=size, default="15MB", metavar="SIZE", help="most bytes of the page, such as 15MB (default)"
    )
    sub.add_argument("--output", default="", metavar="FILE", help="the page; default: explorer.html in RESULTS")
    sub.add_argument("--headline", default="", metavar="FILE", help="also write three sentences a cell, as HTML")
    sub = command("report", _report, "write figures and tables with their captions as one page")
    _results_argument(sub)
    sub.add_argument("--output", default="", metavar="FILE", help="the page; default: report.html in RESULTS")
    sub = command("view", _view, "show the study in a browser of this machine, with every sample")
    _results_argument(sub)
    sub.add_argument(
        "--port", type=port, default=8642, metavar="N", help="port of 127.0.0.1 (default: 8642); 0: any that is free"
    )
    sub.add_argument("--open", action="store_true", help="open the browser, too")
    sub = command("diff", _diff, "compare two results folders: what changed, with intervals", is_configured=False)
    sub.add_argument("first", metavar="A", help="results folder, before")
    sub.add_argument("second", metavar="B", help="results folder, after")
    sub.add_argument("--all", action="store_true", help="list every change, instead of the largest ones")
    json_option(sub)
    json_option(command("benchmarks", _benchmarks, "list known benchmarks, and which of their questions are here"))


def _add_show(sub: argparse.ArgumentParser) -> None:
    _results_argument(sub)
    sub.add_argument("--pair", default="", metavar="NAME", help="key of pairs; default: the first one")
    sub.add_argument(
        "--benchmark", default="", metavar="NAME", help="key of benchmarks; default: the first one of the pair"
    )
    sub.add_argument(
        "--question",
        action="append",
        default=[],
        metavar="N|ID",
        help="position of a question, from 0, or its id; may be repeated",
    )
    sub.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="NAME",
        help="a policy; may be repeated; default: the default policy; all: every policy that both sides have",
    )
    sub.add_argument(
        "--only",
        choices=("rl-solves", "base-solves", "graders-disagree"),
        default="",
        help="questions that RL solves and no sample of Base under these policies, or the other way round, or with a"
        " sample on which two graders disagree",
    )
    sub.add_argument("--samples", type=positive, default=2, metavar="N", help="samples of each side (default: 2)")
    sub.add_argument("--limit", type=positive, default=5, metavar="N", help="number of questions (default: 5)")
    sub.add_argument("--full", action="store_true", help="whole texts, instead of their first and last lines")
    sub.add_argument("--prompt", action="store_true", help="also the prompt as it was sent, by its tokens")
    json_option(sub)


def _results_argument(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "folder", metavar="RESULTS", nargs="?", default="", help="results folder; default: that of the configuration"
    )
