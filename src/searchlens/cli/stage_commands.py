"""One command per stage of a run: the jobs of the workflow, usable without it."""

from __future__ import annotations

import argparse
from pathlib import Path

from searchlens.cli.chosen import cell_of, cohort_of_folder, grid_of, limits_of
from searchlens.cli.options import (
    Commands,
    benchmark_option,
    cell_options,
    cohort_options,
    folder_option,
    pair_option,
    results_option,
    threads_option,
)
from searchlens.errors import InputError, require_known
from searchlens.plan import needs
from searchlens.store import snapshots
from searchlens.store.layout import Layout
from searchlens.store.provenance import config_fingerprint

GROUP = "stages (the jobs of a run, usable without it)"


def _generate(args: argparse.Namespace) -> None:
    from searchlens.sampling import generate, stop_signals

    grid = grid_of(args)
    checkpoint, benchmark = cell_of(grid, args)
    manifests = [Path(args.manifest)] if args.manifest else grid.manifests(checkpoint, benchmark)
    snapshots.save(grid.config)  # sidecars of shards have its fingerprint
    with stop_signals(grid.config.grace_seconds) as notice:
        for manifest in manifests:
            generate(grid, checkpoint, benchmark, manifest, threads=args.threads, notice=notice)


def _score(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.score import score

    grid = grid_of(args)
    cell = cell_of(grid, args)
    manifests = [Path(path) for path in args.manifests]
    score(
        needs.score(grid, *cell),
        grid.inputs.questions(cell[1]),
        grid.layout,
        manifests,
        Path(args.output),
        fingerprint=config_fingerprint(grid.config),
        threads=args.threads,
        limits=limits_of(args),
        quotes=not grid.study.is_gated(cell[1]),
    )


def _agreement(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.agreement import agreement

    grid = grid_of(args)
    cell = cell_of(grid, args)
    if reason := grid.study.without_agreement(*cell):
        raise InputError(f"{'/'.join(cell)} has no samples to judge again: {reason}")
    manifests = [Path(path) for path in args.manifests]
    study = needs.agreement(grid, *cell)
    agreement(study, grid.inputs.questions(cell[1]), grid.layout, manifests, Path(args.output), threads=args.threads)


def _landscape(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.landscape import landscape

    grid = grid_of(args)
    _require_as_many(args, "scores", "output")
    for benchmark, scores, output in zip(args.benchmark, args.scores, args.output, strict=True):
        landscape(needs.landscape(grid, benchmark), Path(scores), Path(output), config_fingerprint(grid.config))


def _recovery(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.recovery import recovery

    grid = grid_of(args)
    args.benchmark = args.benchmark or [Path(base).name for base in args.base]
    _require_as_many(args, "base", "rl", "output")
    for benchmark, base, rl, output in zip(args.benchmark, args.base, args.rl, args.output, strict=True):
        pair, fingerprint = needs.recovery(grid, benchmark), config_fingerprint(grid.config)
        recovery(pair, Path(base), Path(rl), Path(output), fingerprint)


def _require_as_many(args: argparse.Namespace, *options: str) -> None:
    """Several cells in one command have one value each behind every option."""
    for option in options:
        if (count := len(getattr(args, option))) != (wanted := len(args.benchmark)):
            raise InputError(f"--{option}: {count} given; wanted: one for each benchmark, {wanted}")


def _readings(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.readings import readings

    grid = grid_of(args)
    readings(needs.readings(grid), grid.layout, fingerprint=config_fingerprint(grid.config))


def _likelihood(args: argparse.Namespace) -> None:
    grid = grid_of(args)
    cell = (args.pair, args.benchmark)
    require_known("/".join(cell), ["/".join(each) for each in grid.study.pair_cells], "pair and benchmark")
    if reason := grid.jobs.without_likelihood(*cell):
        raise InputError(f"{'/'.join(cell)}: no texts are scored under both sides: {reason}")
    from searchlens.cli.stages.likelihood import likelihood

    study, fingerprint = needs.likelihood(grid, *cell), config_fingerprint(grid.config)
    likelihood(grid, study, Path(args.output), fingerprint=fingerprint, threads=args.threads)


def _figures(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.figures import figures

    grid = grid_of(args)
    require_known(
        f"{args.pair}/{args.benchmark}", ["/".join(cell) for cell in grid.study.pair_cells], "pair and benchmark"
    )
    figures(needs.figures(grid, args.pair, args.benchmark), grid.layout, Path(args.output))


def _overview(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.overview import overview

    grid = grid_of(args)
    overview(needs.overview(grid), grid.layout, Path(args.output))


def _tables(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.tables import tables

    grid = grid_of(args)
    tables(needs.tables(grid), grid.layout, Layout(Path(args.output)), fingerprint=config_fingerprint(grid.config))


def _boptr(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from searchlens.cli.stages.boptr import boptr

    if args.draws is not None and args.draws < 100:
        raise InputError(f"--draws: {args.draws}; allowed: 100 or more")
    landscapes, output = Path(args.folder), Layout(Path(args.output))
    plan, options, fingerprint = cohort_of_folder(args, landscapes)
    options = replace(options, draws=args.draws or options.draws, readout=args.readout or options.readout)
    boptr(plan, options, landscapes, output, fingerprint=fingerprint)
    if not args.frames_only:
        from searchlens.cli.stages.transfer import transfer

        transfer(plan, options, landscapes, output, limits_of(args), fingerprint=fingerprint, figures=args.figures)


def _transfer(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from searchlens.cli.stages.transfer import transfer

    landscapes, output = Path(args.folder), Layout(Path(args.output))
    plan, options, fingerprint = cohort_of_folder(args, landscapes)
    options = replace(options, readout=args.readout or options.readout)
    transfer(plan, options, landscapes, output, limits_of(args), fingerprint=fingerprint, figures=args.figures)


def add_to(command: Commands) -> None:
    """Add the commands of the stages, in the order of a run."""
    command.group(GROUP, of_stages=True)
    _add_cells(command)
    _add_studies(command)


def _add_cells(command: Commands) -> None:
    sub = command("generate", _generate, "draw the missing samples of one cell")
    cell_options(sub)
    sub.add_argument(
        "--manifest", default="", metavar="FILE", help="manifest of one pool; default: every pool of the cell"
    )
    threads_option(sub)
    sub = command("score", _score, "grade the samples of one cell")
    cell_options(sub)
    threads_option(sub)
    sub.add_argument("--output", required=True, metavar="FILE", help="Parquet file to write")
    sub.add_argument("manifests", nargs="*", metavar="MANIFEST", help="the cell's manifests")
    sub = command("agreement", _agreement, "judge some samples of one cell by math-verify alone, too")
    cell_options(sub)
    threads_option(sub)
    sub.add_argument("--output", required=True, metavar="FILE", help="Parquet file to write")
    sub.add_argument("manifests", nargs="*", metavar="MANIFEST", help="the cell's manifests")
    sub = command("landscape", _landscape, "compute the operating points of one cell, or of several")
    _each_option(sub, "benchmark", "NAME", "key of benchmarks, of each cell")
    _each_option(sub, "scores", "FILE", "graded samples, or compact readouts, of each cell")
    _each_option(sub, "output", "FOLDER", "folder of the output files of each cell")
    sub = command("recovery", _recovery, "compare Base and RL of a pair: RL's curve inside Base's or not")
    text = "key of benchmarks, of each comparison; by default the names of the folders of --base"
    _each_option(sub, "benchmark", "NAME", text, required=False)
    _each_option(sub, "base", "FOLDER", "landscape folder of the Base checkpoint, of each comparison")
    _each_option(sub, "rl", "FOLDER", "landscape folder of the RL checkpoint, of each comparison")
    _each_option(sub, "output", "FOLDER", "folder of the output files of each comparison")


def _each_option(sub: argparse.ArgumentParser, name: str, metavar: str, text: str, *, required: bool = True) -> None:
    sub.add_argument(f"--{name}", nargs="+", required=required, metavar=metavar, help=text)


def _add_studies(command: Commands) -> None:
    command(
        "readings",
        _readings,
        "read what RL's curve is worth in samples of Base, for every pair",
    )
    sub = command("likelihood", _likelihood, "score the texts of each side of a pair under the other, too")
    pair_option(sub)
    benchmark_option(sub)
    folder_option(sub)
    threads_option(sub)
    sub = command("figures", _figures, "draw the figures of one pair on one benchmark")
    pair_option(sub)
    benchmark_option(sub)
    folder_option(sub)
    sub = command("overview", _overview, "draw the figures of the whole study")
    folder_option(sub)
    sub = command("tables", _tables, "write the tables of the whole study")
    results_option(sub)
    sub = command("boptr", _boptr, "predict the RL curves of a cohort from Base (BOPTR)")
    cohort_options(sub)
    sub.add_argument("--draws", type=int, metavar="N", help="bootstrap draws, instead of the configured number")
    sub.add_argument(
        "--frames-only", action="store_true", help="write the frames with numbers; `transfer` makes all else"
    )
    sub = command("transfer", _transfer, "write the tables and figures of BOPTR from its frames")
    cohort_options(sub)
