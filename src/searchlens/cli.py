"""`searchlens`: one subcommand per stage, usable without Snakemake, and tools for studies and their samples.

Stages read the configuration either from YAML files (those of the study's folder, and ``--config`` merged over them)
or from the snapshot that a Snakemake run saved when it started (``--snapshot``), so that later edits of the files do
not change the run. The folder is the present one, or ``-C``, or the environment variable ``SEARCHLENS_STUDY``.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, chdir, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from searchlens import __version__, config
from searchlens.arguments import renamed_options
from searchlens.errors import InputError, JobError, JobStoppedError
from searchlens.grid import Grid, Import, needs, require_known
from searchlens.project import IMPORTS_FILE, OWN_FILE, extras
from searchlens.store import snapshots
from searchlens.store.files import require_writable
from searchlens.store.hashing import file_sha256, fingerprint
from searchlens.store.layout import Layout
from searchlens.store.provenance import config_fingerprint

if TYPE_CHECKING:
    from searchlens.api import Study
    from searchlens.boptr.cohort import CohortPlan
    from searchlens.boptr.options import BoptrOptions
    from searchlens.health.options import HealthOptions

log = logging.getLogger("searchlens")

STUDY_VARIABLE = "SEARCHLENS_STUDY"
"""Environment variable that names the folder of a study, as option ``-C`` does."""


def _grid(args: argparse.Namespace) -> Grid:
    if args.snapshot:
        return Grid(snapshots.read(Path(args.snapshot)))
    grid = Grid(config.plain(config.load(config.files(args.config))))
    if overlays := config.overlays(args.config):
        print(f"study: {', '.join(overlays)}; results: {grid.layout.results}", file=sys.stderr)
    return grid


def _cell(grid: Grid, args: argparse.Namespace) -> tuple[str, str]:
    checkpoints = {checkpoint for checkpoint, _ in grid.cells}
    names = {benchmark for _, benchmark in grid.cells}
    checkpoint = require_known(args.checkpoint, checkpoints, "checkpoint")
    return checkpoint, require_known(args.benchmark, names, "benchmark")


# ---- stages


def _generate(args: argparse.Namespace) -> None:
    from searchlens.generate import generate, stop_signals

    grid = _grid(args)
    checkpoint, benchmark = _cell(grid, args)
    manifests = [Path(args.manifest)] if args.manifest else grid.manifests(checkpoint, benchmark)
    snapshots.save(grid.config)  # sidecars of shards have its fingerprint
    with stop_signals(grid.config["grace_seconds"]) as notice:
        for manifest in manifests:
            generate(grid, checkpoint, benchmark, manifest, threads=args.threads, notice=notice)


def _score(args: argparse.Namespace) -> None:
    from searchlens.stages.score import score

    grid = _grid(args)
    cell = _cell(grid, args)
    manifests = [Path(path) for path in args.manifests]
    score(
        needs.score(grid, *cell),
        grid.questions(cell[1]),
        grid.layout,
        manifests,
        Path(args.output),
        fingerprint=config_fingerprint(grid.config),
        threads=args.threads,
        limits=_limits(args),
    )


def _agreement(args: argparse.Namespace) -> None:
    from searchlens.stages.agreement import agreement

    grid = _grid(args)
    cell = _cell(grid, args)
    if reason := grid.without_agreement(*cell):
        raise InputError(f"{'/'.join(cell)} has no samples to judge again: {reason}")
    manifests = [Path(path) for path in args.manifests]
    study = needs.agreement(grid, *cell)
    agreement(study, grid.questions(cell[1]), grid.layout, manifests, Path(args.output), threads=args.threads)


def _landscape(args: argparse.Namespace) -> None:
    from searchlens.stages.landscape import landscape

    grid = _grid(args)
    cell = needs.landscape(grid, args.benchmark)
    landscape(cell, Path(args.scores), Path(args.output), fingerprint=config_fingerprint(grid.config))


def _recovery(args: argparse.Namespace) -> None:
    from searchlens.stages.recovery import recovery

    grid = _grid(args)
    pair = needs.recovery(grid, args.benchmark or Path(args.base).name)
    recovery(pair, Path(args.base), Path(args.rl), Path(args.output), fingerprint=config_fingerprint(grid.config))


def _analyse(args: argparse.Namespace) -> None:
    from searchlens.stages.readouts import readouts

    grid = _grid(args)
    readouts(needs.readouts(grid), grid.layout, fingerprint=config_fingerprint(grid.config), threads=args.threads)


def _readings(args: argparse.Namespace) -> None:
    from searchlens.stages.readings import readings

    grid = _grid(args)
    readings(needs.readings(grid), grid.layout, fingerprint=config_fingerprint(grid.config))


def _likelihood(args: argparse.Namespace) -> None:
    grid = _grid(args)
    cell = (args.pair, args.benchmark)
    require_known("/".join(cell), ["/".join(each) for each in grid.pair_cells], "pair and benchmark")
    if reason := grid.without_likelihood(*cell):
        raise InputError(f"{'/'.join(cell)}: no texts are scored under both sides: {reason}")
    from searchlens.stages.likelihood import likelihood

    study, fingerprint = needs.likelihood(grid, *cell), config_fingerprint(grid.config)
    likelihood(grid, study, Path(args.output), fingerprint=fingerprint, threads=args.threads)


def _recoveries(args: argparse.Namespace) -> None:
    from searchlens.stages.recoveries import recoveries

    grid = _grid(args)
    recoveries(needs.recoveries(grid), grid.layout, fingerprint=config_fingerprint(grid.config), threads=args.threads)


def _figures(args: argparse.Namespace) -> None:
    from searchlens.stages.figures import figures

    grid = _grid(args)
    require_known(f"{args.pair}/{args.benchmark}", ["/".join(cell) for cell in grid.pair_cells], "pair and benchmark")
    figures(needs.figures(grid, args.pair, args.benchmark), grid.layout, Path(args.output))


def _overview(args: argparse.Namespace) -> None:
    from searchlens.stages.overview import overview

    grid = _grid(args)
    overview(needs.overview(grid), grid.layout, Path(args.output))


def _tables(args: argparse.Namespace) -> None:
    from searchlens.stages.tables import tables

    grid = _grid(args)
    tables(needs.tables(grid), grid.layout, Layout(Path(args.output)), fingerprint=config_fingerprint(grid.config))


def _equivalence(args: argparse.Namespace) -> None:
    grid = _grid(args)
    if grid.compared is None:
        raise InputError(
            "this study has no comparison with references", "set equivalence in the configuration; see config/README.md"
        )
    from searchlens.stages.equivalence import equivalence

    output = Layout(Path(args.output))
    equivalence(grid, output, fingerprint=config_fingerprint(grid.config), threads=args.threads)


def _boptr(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from searchlens.stages.boptr import boptr

    if args.draws is not None and args.draws < 100:
        raise InputError(f"--draws: {args.draws}; allowed: 100 or more")
    landscapes, output = Path(args.folder), Layout(Path(args.output))
    plan, options, fingerprint = _cohort(args, landscapes)
    options = replace(options, draws=args.draws or options.draws, readout=args.readout or options.readout)
    boptr(plan, options, landscapes, output, limits=_limits(args), fingerprint=fingerprint)
    if not args.frames_only:
        from searchlens.stages.transfer import transfer

        transfer(plan, options, landscapes, output, fingerprint=fingerprint, figures=args.figures)


def _limits(args: argparse.Namespace) -> HealthOptions:
    """Limits of the health check: the configured ones, or the defaults where there is no configuration."""
    from searchlens.health.options import DEFAULTS, HealthOptions

    if not _configured(args):
        return DEFAULTS
    return HealthOptions(**_grid(args).config["health"])


def _configured(args: argparse.Namespace) -> bool:
    return bool(args.snapshot or args.config or Path("config").exists())


def _transfer(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from searchlens.stages.transfer import transfer

    landscapes = Path(args.folder)
    plan, options, fingerprint = _cohort(args, landscapes)
    options = replace(options, readout=args.readout or options.readout)
    transfer(plan, options, landscapes, Layout(Path(args.output)), fingerprint=fingerprint, figures=args.figures)


def _cohort(args: argparse.Namespace, landscapes: Path) -> tuple[CohortPlan, BoptrOptions, str]:
    """Plan and options of a folder of landscapes, and the fingerprint of the configuration, if there is one.

    A ``cohort.yaml`` in the folder describes the landscapes; without it, the configuration does.
    """
    from searchlens.boptr.cohort import PLAN_FILE, read_plan
    from searchlens.boptr.options import DEFAULTS
    from searchlens.stages._cohort import cohort_of, options_of

    if not landscapes.is_dir():
        found = "a file" if landscapes.exists() else "nothing"
        raise InputError(f"{landscapes}: must be a folder of landscapes, found {found}")
    plan = read_plan(landscapes / PLAN_FILE) if (landscapes / PLAN_FILE).exists() else None
    if plan and not _configured(args):
        return plan, DEFAULTS, ""
    grid = _grid(args)
    if plan is None and grid.without_boptr:
        raise InputError(f"BOPTR is left out: {grid.without_boptr}", "config/README.md: boptr.anchor, regime")
    study = needs.boptr(grid)
    plan = plan or cohort_of(study)
    return plan, options_of(study, plan), config_fingerprint(grid.config)


# ---- tools


def _plan(args: argparse.Namespace) -> None:
    from searchlens.commands.plan import show_plan

    show_plan(_grid(args), by_policy=args.policies)


def _status(args: argparse.Namespace) -> None:
    from searchlens.commands.status import show

    show(_grid(args))


def _benchmarks(args: argparse.Namespace) -> None:
    from searchlens.benchmarks.listing import listing

    if not _configured(args):
        print(listing({}, lambda _: []))
        return
    grid = _grid(args)
    print(listing(grid.config["benchmarks"], grid.question_files))


def _verify(args: argparse.Namespace) -> None:
    from searchlens.commands.verify import verify

    report = verify(Path(args.folder) if args.folder else _grid(args).layout.results)
    print("".join(f"{line}\n" for line in [*report.damaged, *report.notes]), end="")
    counts = f"{report.shards} shards, {report.manifests} manifests and {report.tables} tables"
    print(f"{counts} checked, {len(report.damaged)} damaged or missing")
    if report.damaged:
        raise InputError(
            f"{counts} checked, {len(report.damaged)} are damaged or missing",
            "run snakemake again: it samples damaged shards again; delete other damaged files first",
        )


def _show(args: argparse.Namespace) -> None:
    import json
    import shutil

    from searchlens.commands import show, terminal

    wanted = show.Wanted(
        pair=args.pair,
        benchmark=args.benchmark,
        questions=args.question,
        policies=args.policy,
        only=args.only,
        samples=args.samples,
        limit=args.limit,
    )
    found = show.shown(_opened(args, args.folder), wanted)
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        terminal.page(show.rendered(found, shutil.get_terminal_size().columns, None if args.full else show.LINES))


def _diff(args: argparse.Namespace) -> None:
    import json

    from searchlens.api import open_study
    from searchlens.api.differences import differences
    from searchlens.commands import diff, terminal

    found = differences(open_study(args.first), open_study(args.second))
    if args.json:
        print(json.dumps({"a": args.first, "b": args.second, **found.to_dict()}, indent=1))
    else:
        terminal.page(diff.rendered(found, (args.first, args.second), None if args.all else diff.LINES))


def _opened(args: argparse.Namespace, folder: str) -> Study:
    from searchlens.api import open_study

    return open_study(folder or _grid(args).layout.results)


def _prune(args: argparse.Namespace) -> None:
    from searchlens.commands import prune

    unused = prune.unused(_grid(args))
    for path in unused.paths():
        print(path)
    if args.delete:
        prune.delete(unused.paths())
    verb = "deleted" if args.delete else "would be deleted (add --delete)"
    print(
        f"{len(unused.generations)} generation folders, {len(unused.manifests)} manifests and"
        f" {len(unused.temporary)} temporary files {verb}"
    )


def _rerun(args: argparse.Namespace) -> None:
    from searchlens.commands.rerun import set_cell_aside

    grid = _grid(args)
    checkpoint, benchmark = _cell(grid, args)
    if args.policy:
        names = [name for generation in grid.generations(checkpoint, benchmark) for name in generation.policies]
        require_known(args.policy, names, "policy")
    shards, moved = set_cell_aside(grid, checkpoint, benchmark, args.policy)
    for path in moved:
        print(path)
    print(f"{len(shards)} shards moved aside; run snakemake as usual: it samples them again")


def _import(args: argparse.Namespace) -> None:
    from searchlens.importing import Choices
    from searchlens.stages.importing import Request, import_samples

    wishes = {name: getattr(args, name) for name in _WISHES if getattr(args, name)}
    choices = Choices(
        role=args.role,
        base=args.base,
        rl=args.rl,
        policy=args.policy,
        tasks=tuple(args.task),
        ids=args.ids,
        failed=args.failed,
        wishes={name: "yes" if value is True else value for name, value in wishes.items()},
    )
    request = Request(
        pair=args.pair,
        benchmark=args.benchmark,
        grader=args.grader,
        subset=args.subset,
        choices=choices,
        is_confirmed=args.yes,
    )
    grid = _grid(args)
    imported = import_samples(grid, [Path(file) for file in args.files], request, is_dry=args.dry_run)
    print("\n".join(imported.report))
    if args.dry_run:
        print("nothing was written (--dry-run)")
        return
    for record, shard in zip(imported.records, imported.shards, strict=True):
        print(f"imported {shard.sidecar['rows']:,} samples as {record.name} into {shard.path}")
    print(f"next: {_next_command(_grid(args), args, imported.records)}")


def _next_command(grid: Grid, args: argparse.Namespace, records: Sequence[Import]) -> str:
    """What analyses imported samples: the study itself, if they belong to it, or all imports and nothing else."""
    belonging = {item.name for item in grid.imports}
    overlays = [] if {record.name for record in records} <= belonging else [IMPORTS_FILE]
    return " ".join(["searchlens run", *(f"--config {name}" for name in [*args.config, *overlays])])


def _imports(args: argparse.Namespace) -> None:
    from searchlens.commands.imports import listing, remove

    grid = _grid(args)
    if not args.remove:
        print(listing(grid))
        return
    for path in remove(grid, args.remove):
        print(path)


def _record(args: argparse.Namespace) -> None:
    from searchlens.stages.record import record

    written, unfinished = record(_grid(args), Path(args.output))
    for path in written:
        print(path)
    for cell in unfinished:
        print(f"skipped, because it is not sampled and scored yet: {cell}")


def _power(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from searchlens.commands import sample_size

    components = sample_size.TYPICAL
    if args.folder:
        source = Path(args.folder)
        if source.is_dir():
            plan, options, _ = _cohort(args, source)
            contributions = sample_size.landscape_contributions(source, plan, options, *args.rows)
        else:
            contributions = sample_size.read_contributions(source)
        components = sample_size.estimate_components(contributions)
    names = ("question_sd", "sample_sd", "model_sd", "shared")
    changes = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    design = sample_size.Design(tuple(args.questions), args.models, args.seeds)
    print(sample_size.report(design, replace(components, **changes), args.gap, args.alpha, args.contrasts))


def _pin(args: argparse.Namespace) -> None:
    from searchlens.commands.pin import Cache, Hub, pin

    grid = _grid(args)
    registry = Cache() if args.from_cache else Hub()
    sources = grid.sources(everything=True)
    pin(grid.lock, sources, registry, update=args.update)
    if not sources:
        print("nothing to pin: the configuration names no checkpoint or dataset of the hub")


def _fetch(args: argparse.Namespace) -> None:
    from searchlens.commands.pin import fetch
    from searchlens.grid.pins import Hashes

    grid = _grid(args)
    hash_of = file_sha256 if args.rehash else Hashes(grid.layout.hashes)
    fetch(grid.lock, grid.sources(), hash_of)


def _init(args: argparse.Namespace) -> None:
    from searchlens.commands.init import init

    written = init(Path(args.folder), demo=args.demo)
    print(f"{args.folder} has {', '.join(written)}")
    if args.demo:
        print("it holds the demo, on the micro pair; next:")
    else:
        print(f"fill in your checkpoints in {Path(args.folder, OWN_FILE)}; next:")
    place = shlex.quote(args.folder)
    comments = {"check": "mistakes, and what is missing", "plan": "what it costs", "run": "samples, tables and figures"}
    for command, comment in comments.items():
        print(f"  {f'searchlens -C {place} {command}':<{len(place) + 22}}# {comment}")


def _run(args: argparse.Namespace) -> None:
    from searchlens.commands.run import command_of, require_installed, run

    grid = _grid(args)
    grid.check()  # its messages are clearer than those of a workflow
    require_installed(grid, here=not args.dry_run and not args.profile)
    run(command_of(args.targets, args.config, cores=args.cores, profile=args.profile, dry_run=args.dry_run))


def _fingerprint(args: argparse.Namespace) -> None:
    print(fingerprint(Path(args.path)))


def _check(args: argparse.Namespace) -> None:
    grid = _grid(args)
    require_writable(grid.layout.results)
    grid.check()
    print(f"configuration is valid: {len(grid.cells)} cells, {len(grid.pair_cells)} pairs x benchmarks")
    for reason in grid.refusals():
        print(f"not ready to run: {reason}")
    for notice in grid.unknown_wordings:
        print(notice)
    for reason in grid.without_likelihoods:
        print(f"no cross-likelihoods of {reason}")
    if grid.without_boptr:
        print(f"BOPTR is left out: {grid.without_boptr}")
    else:
        print(f"BOPTR is fitted on {'/'.join(grid.anchor)}")


def _schema(_: argparse.Namespace) -> None:
    print(config.schema_text(), end="")


def _snapshot(args: argparse.Namespace) -> None:
    print(snapshots.save(_grid(args).config))


def _summary(args: argparse.Namespace) -> None:
    from searchlens.commands.summary import summarise

    print(summarise(_grid(args)))


def _simulate(args: argparse.Namespace) -> None:
    from searchlens.simulate import paper_design, small_design, write

    design = {"paper": paper_design, "small": small_design}[args.size](args.mode)
    write(design, args.seed, Path(args.output))
    print(f"{len(design.cells())} landscapes of known truth under {args.output}")


# ---- arguments


class _Commands:
    """Adds subcommands, each with the options that choose its configuration."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def __call__(self, name: str, run: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        sub = self._parsers.add_parser(name, help=text, description=text, allow_abbrev=False)
        sub.add_argument(
            "--config",
            action="append",
            default=[],
            metavar="YAML",
            help="a file merged over those of the study's folder; may be repeated",
        )
        _study_option(sub, argparse.SUPPRESS)  # a default here would overwrite a folder named before the command
        snapshot = os.environ.get(snapshots.VARIABLE, "")
        sub.add_argument(
            "--snapshot", default=snapshot, metavar="JSON", help="snapshot of a run, instead of YAML files"
        )
        sub.set_defaults(run=run, starts_study=False)
        return sub


def _study_option(parser: argparse.ArgumentParser, default: str) -> None:
    text = f"folder of the study, as if the command were run in it (default: ${STUDY_VARIABLE}, or the present folder)"
    parser.add_argument("-C", dest="study", metavar="DIR", default=default, help=text)


def _cell_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--checkpoint", required=True, help="key of checkpoints")
    sub.add_argument("--benchmark", required=True, help="key of benchmarks")


def _add_stages(command: _Commands) -> None:
    sub = command("generate", _generate, "draw the missing samples of one cell")
    _cell_options(sub)
    sub.add_argument("--manifest", default="", help="manifest of one pool; default: every pool of the cell")
    _threads_option(sub)
    sub = command("score", _score, "grade the samples of one cell")
    _cell_options(sub)
    _threads_option(sub)
    sub.add_argument("--output", required=True, help="Parquet file")
    sub.add_argument("manifests", nargs="*", help="the cell's manifests")
    sub = command("agreement", _agreement, "judge some graded samples of one cell by math-verify alone, too")
    _cell_options(sub)
    _threads_option(sub)
    sub.add_argument("--output", required=True, help="Parquet file")
    sub.add_argument("manifests", nargs="*", help="the cell's manifests")
    sub = command("landscape", _landscape, "compute the operating points of one cell")
    sub.add_argument("--benchmark", required=True, help="key of benchmarks")
    sub.add_argument("--scores", required=True, help="graded samples, or compact readouts")
    _folder_option(sub)
    sub = command("recovery", _recovery, "compare the landscapes of a pair: is RL's curve inside Base's landscape?")
    sub.add_argument("--benchmark", default="", help="key of benchmarks; by default the name of the folder of --base")
    sub.add_argument("--base", required=True, help="landscape folder of the Base checkpoint")
    sub.add_argument("--rl", required=True, help="landscape folder of the RL checkpoint")
    _folder_option(sub)
    sub = command("analyse", _analyse, "compute the landscapes of all recorded cells from their compact readouts")
    _threads_option(sub)
    sub = command("recoveries", _recoveries, "compare the landscapes of all recorded pairs")
    _threads_option(sub)
    command("readings", _readings, "read all samples of every pair: what RL's curve is worth in samples of Base")
    sub = command("likelihood", _likelihood, "score the texts of each side of a pair under the other side, too")
    sub.add_argument("--pair", required=True, help="key of pairs")
    sub.add_argument("--benchmark", required=True, help="key of benchmarks")
    _folder_option(sub)
    _threads_option(sub)
    sub = command("figures", _figures, "draw the figures of one pair on one benchmark")
    sub.add_argument("--pair", required=True, help="key of pairs")
    sub.add_argument("--benchmark", required=True, help="key of benchmarks")
    _folder_option(sub)
    sub = command("overview", _overview, "draw the figures of the whole study")
    _folder_option(sub)
    sub = command("tables", _tables, "write the tables of the whole study")
    _results_option(sub)
    sub = command("boptr", _boptr, "predict the RL curves from Base: frames, tables and figures of a cohort")
    _cohort_options(sub)
    sub.add_argument("--draws", type=int, metavar="N", help="bootstrap draws, instead of the configured number")
    sub.add_argument(
        "--frames-only", action="store_true", help="write the frames only; `transfer` makes tables and figures"
    )
    sub = command("transfer", _transfer, "write the tables and figures of BOPTR from its frames")
    _cohort_options(sub)
    sub = command("equivalence", _equivalence, "compare policies and searches with independent references")
    _results_option(sub)
    _threads_option(sub)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number >= 1")
    return int(text)


def _threads_option(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--threads", type=_positive, default=1, metavar="N", help="CPU threads or processes (default: 1)")


def _folder_option(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--output", required=True, metavar="FOLDER", help="folder of the output files")


def _results_option(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--output", required=True, metavar="RESULTS", help="results folder")


def _cohort_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("folder", metavar="FOLDER", help="folder of landscapes; a cohort.yaml in it describes them")
    _results_option(sub)
    sub.add_argument(
        "--readout",
        choices=("expected", "prefix"),
        help="instead of boptr.readout; prefix: the tables in the paper's reading",
    )
    sub.add_argument(
        "--figures", action=argparse.BooleanOptionalAction, default=True, help="draw figures as well (default: yes)"
    )
    renamed_options(sub, {"--landscape": "the first argument, FOLDER", "--out": "--output"})


def _add_tools(command: _Commands) -> None:
    sub = command("init", _init, "write the folder of a new study: configuration, profiles and Snakefile")
    sub.add_argument("folder", metavar="DIR")
    sub.add_argument("--demo", action="store_true", help="the study of the micro pair, ready to run")
    sub.set_defaults(starts_study=True)
    sub = command("run", _run, "run the workflow of the study by Snakemake, which resumes what was stopped")
    sub.add_argument("targets", metavar="TARGET", nargs="*", help="rules or files (default: everything)")
    sub.add_argument("--cores", default="", metavar="N", help="CPU cores, or all (default: as the profile says)")
    sub.add_argument("--profile", default="", metavar="FOLDER", help="profile of Snakemake, such as slurm")
    sub.add_argument("-n", "--dry-run", action="store_true", help="print the jobs, and run none")
    sub = command("plan", _plan, "show finished and missing samples, and their cost in tokens and GPU-hours")
    sub.add_argument("--policies", action="store_true", help="one line per policy with its id, instead of per cell")
    command("status", _status, "show progress: cells done, running, failed and missing; logs of failed jobs")
    command("benchmarks", _benchmarks, "list known benchmarks: licence, size, regime, and files of their questions")
    sub = command("verify", _verify, "check a whole results folder: shards, manifests, tables")
    sub.add_argument(
        "folder", metavar="FOLDER", nargs="?", default="", help="results folder; default: that of the configuration"
    )
    sub = command("prune", _prune, "list unused samples and leftovers of killed jobs")
    sub.add_argument("--delete", action="store_true", help="delete them")
    sub = command("rerun", _rerun, "move shards aside, so that the next run samples them again")
    _cell_options(sub)
    sub.add_argument("--policy", default="", help="only this policy")
    renamed_options(sub, {"--model": "--checkpoint"})
    _add_imports(command)
    sub = command("record", _record, "save compact readouts of finished cells, for analysis without samples")
    sub.add_argument(
        "--output",
        required=True,
        metavar="FOLDER",
        help="folder of readouts; later studies name it as `study.readouts`",
    )
    sub = command("simulate", _simulate, "write a simulated study of known truth (docs/simulation.md)")
    sub.add_argument("--seed", type=int, required=True, help="seed of all random numbers")
    _folder_option(sub)
    modes = ("transform", "planted", "continuous", "ceiling", "unrelated", "equal")
    sub.add_argument(
        "--mode", choices=modes, default="transform", help="how RL is derived from Base (default: transform)"
    )
    sub.add_argument("--size", choices=("paper", "small"), default="paper", help="size of the cohort (default: paper)")
    renamed_options(sub, {"--out": "--output"})
    _add_power(command)
    sub = command("pin", _pin, "look up the commit and file hashes of every hub name, and write the lock file")
    sub.add_argument("--update", action="store_true", help="look up again names that are pinned already")
    sub.add_argument("--from-cache", action="store_true", help="read the hub cache of this machine instead of the hub")
    sub = command("fetch", _fetch, "download the pinned files of this study, and compare every byte with the pins")
    sub.add_argument("--rehash", action="store_true", help="hash all files, also those with a stored hash")
    sub = command("fingerprint", _fingerprint, "print the fingerprint of a checkpoint folder")
    sub.add_argument("path", metavar="FOLDER")
    command("check", _check, "validate the configuration and everything it names")
    command("schema", _schema, "print the JSON schema of the configuration")
    command("snapshot", _snapshot, "write the merged configuration into the results folder")
    command("summary", _summary, "print the main results of the last run")


def _add_readers(command: _Commands) -> None:
    sub = command("show", _show, "show questions with their golds, and the answers of Base and RL side by side")
    sub.add_argument(
        "folder", metavar="RESULTS", nargs="?", default="", help="results folder; default: that of the configuration"
    )
    sub.add_argument("--pair", default="", help="default: the first one")
    sub.add_argument("--benchmark", default="", help="default: the first one of the pair")
    sub.add_argument(
        "--question", action="append", default=[], metavar="N|ID", help="position from 0, or id; repeatable"
    )
    sub.add_argument(
        "--policy",
        action="append",
        default=[],
        help="repeatable; default: the default policy; all: every policy that both sides have",
    )
    sub.add_argument(
        "--only",
        choices=("rl-solves", "base-solves", "graders-disagree"),
        default="",
        help="questions that RL solves and Base never under these policies, or the other way round, or with a sample on"
        " which two graders disagree",
    )
    sub.add_argument("--samples", type=_positive, default=2, metavar="N", help="of each side (default: 2)")
    sub.add_argument("--limit", type=_positive, default=5, metavar="N", help="questions (default: 5)")
    sub.add_argument("--full", action="store_true", help="whole texts, instead of their first and last lines")
    sub.add_argument("--json", action="store_true", help="write JSON")
    sub = command(
        "diff", _diff, "compare two results folders: cells, samples, points, verdicts, readings, with intervals"
    )
    sub.add_argument("first", metavar="A", help="results folder, before")
    sub.add_argument("second", metavar="B", help="results folder, after")
    sub.add_argument("--all", action="store_true", help="list every change, instead of the largest ones")
    sub.add_argument("--json", action="store_true", help="write JSON")


_WISHES = ("date", "requests", "right", "partial", "custom_id", "logprobs")
"""Options of ``import`` that say what a format leaves open; a reader gets them by these names."""


def _add_imports(command: _Commands) -> None:
    sub = command("import", _import, "import samples that were drawn elsewhere (docs/import.md)")
    sub.add_argument("files", metavar="FILE", nargs="+", help="files or folders of one format")
    sub.add_argument("--pair", required=True, help="key of pairs, or a new name")
    sub.add_argument("--benchmark", required=True, help="key of benchmarks, or a new name")
    sub.add_argument("--role", default="", choices=("base", "rl"), help="side of the pair that drew all samples")
    sub.add_argument("--base", default="", metavar="MODEL", help="Base, as the log names it")
    sub.add_argument("--rl", default="", metavar="MODEL", help="RL, as the log names it")
    sub.add_argument("--policy", default="", help="name of the policy; default: what the log says")
    sub.add_argument("--grader", default="math", help="grader of a new benchmark (docs/grading.md; default: math)")
    sub.add_argument("--task", action="append", default=[], help="task of the log, if it has several; may be repeated")
    sub.add_argument("--ids", default="own", choices=("own", "index"), help="index: the log's order is the benchmark's")
    sub.add_argument("--subset", default="", metavar="NAME", help="new benchmark of the questions that have samples")
    sub.add_argument("--failed", default="", choices=("drop", "wrong"), help="what to do with failed requests")
    sub.add_argument("--dry-run", action="store_true", help="show what was found and write nothing")
    sub.add_argument("--yes", action="store_true", help="import in spite of what was found")
    sub.add_argument("--date", default="", help="run of the log, if it has several (lm-eval)")
    sub.add_argument("--requests", default="", metavar="FILE", help="what was asked (batch output)")
    sub.add_argument("--custom-id", default="", metavar="PATTERN", help="such as {question}#{sample} (batch output)")
    sub.add_argument("--right", default="", metavar="CONDITION", help="such as 'acc == 1' (rollouts of training)")
    sub.add_argument("--logprobs", default="", choices=("raw",), help="they are those of the raw model (batch output)")
    sub.add_argument("--partial", action="store_true", help="read logs of unfinished runs")
    renamed_options(sub, {"--model": "--pair"})
    sub = command("imports", _imports, "list imported samples, or take some back")
    sub.add_argument("--remove", default="", metavar="PAIR/BENCHMARK[/ROLE[/POLICY]]", help="take these back")


def _add_power(command: _Commands) -> None:
    sub = command("power", _power, "how large a study must be to distinguish two rows of a table (docs/power.md)")
    sub.add_argument(
        "folder", metavar="FOLDER", nargs="?", default="", help="landscapes of a study, or a file of contributions"
    )
    sub.add_argument("--gap", type=float, required=True, help="difference of mean errors, percentage points")
    sub.add_argument("--models", type=int, required=True, help="number of models")
    sub.add_argument("--questions", type=int, nargs="+", required=True, help="number of questions of each benchmark")
    sub.add_argument("--seeds", type=int, default=1, help="pools of samples that curves are averaged over (default: 1)")
    sub.add_argument("--alpha", type=float, default=0.05, help="level of the test (default: 0.05)")
    sub.add_argument("--contrasts", type=int, default=1, help="number of contrasts tested together (default: 1)")
    sub.add_argument(
        "--rows",
        nargs=2,
        default=["V3", "H4"],
        metavar="ROW",
        help="rows whose difference is estimated from the landscapes (default: V3 H4)",
    )
    for name in ("question-sd", "sample-sd", "model-sd", "shared"):
        sub.add_argument(f"--{name}", type=float, help="variance component; default: estimated from FOLDER, or typical")
    renamed_options(sub, {"--from": "the first argument, FOLDER", "--tiers": "--rows"})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="searchlens", description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=__version__)
    _study_option(parser, "")
    commands = _Commands(parser)
    _add_stages(commands)
    _add_tools(commands)
    _add_readers(commands)
    return parser


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
    """Run one subcommand.

    Returns
    -------
    int
        0; 2 for wrong input; 1 for a job that could not finish; 75 for a job that was stopped on request: the same
        command resumes it. Messages are printed without a traceback.
    """
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    log.setLevel(logging.INFO)  # of searchlens alone; messages of libraries below a warning are not shown
    try:
        _require_one_file_each(sys.argv[1:] if argv is None else argv)
        args = _parser().parse_args(argv)
        with _in_study(args):
            args.run(args)
    except InputError as error:
        _print_error(f"error: {error}")
        return 2
    except ModuleNotFoundError as error:
        if error.name not in extras.EXTRAS:
            raise
        _print_error(f"error: {extras.missing(error.name)}")
        return 2
    except JobError as error:
        _print_error(f"error: {error}")
        return 1
    except JobStoppedError as error:
        _print_error(str(error))
        return os.EX_TEMPFAIL
    except BrokenPipeError:
        return 0
    return 0


def _print_error(text: str) -> None:
    with suppress(BrokenPipeError):  # the reading process may have ended first
        print(f"searchlens: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
