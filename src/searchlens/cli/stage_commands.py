"""One command per stage of a run: the jobs of the workflow, usable without it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from searchlens.cli.options import Commands, Parser, cell_of, cohort_of_folder, grid_of, limits_of
from searchlens.errors import InputError, require_known
from searchlens.plan import Grid, needs
from searchlens.store import snapshots
from searchlens.store.layout import Layout
from searchlens.store.provenance import config_fingerprint

GROUP = "stages (the jobs of a run, usable without it)"


def _generate(args: argparse.Namespace) -> None:
    from searchlens.sampling import generate, stop_signals

    grid = grid_of(args)
    cell = cell_of(grid, args)
    manifests = [Path(args.manifest)] if args.manifest else grid.manifests(*cell)
    snapshots.save(grid.config)  # sidecars of shards have its fingerprint
    with stop_signals(grid.config.grace_seconds) as notice:
        for manifest in manifests:
            generate(grid, *cell, manifest, threads=args.threads, notice=notice)


def _score(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.score import score

    grid = grid_of(args)
    cell = cell_of(grid, args)
    score(
        needs.score(grid, *cell),
        grid.inputs.questions(cell[1]),
        grid.layout,
        [Path(path) for path in args.manifests],
        Path(args.output),
        fingerprint=config_fingerprint(grid.config),
        threads=args.threads,
        limits=limits_of(args),
        quotes=not grid.study.terms(cell[1]),
    )


def _agreement(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.agreement import agreement

    grid = grid_of(args)
    cell = cell_of(grid, args)
    if reason := grid.study.without_agreement(*cell):
        raise InputError(f"{'/'.join(cell)} has no samples to judge again: {reason}")
    manifests, questions = [Path(path) for path in args.manifests], grid.inputs.questions(cell[1])
    study = needs.agreement(grid, *cell)
    agreement(study, questions, grid.layout, manifests, Path(args.output), threads=args.threads)


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
    for benchmark, *places in zip(args.benchmark, args.base, args.rl, args.output, strict=True):
        base, rl, output = map(Path, places)
        recovery(needs.recovery(grid, benchmark), base, rl, output, config_fingerprint(grid.config))


def _require_as_many(args: argparse.Namespace, *options: str) -> None:
    """Several cells in one command have one value each behind every option."""
    for option in options:
        if (count := len(getattr(args, option))) != (wanted := len(args.benchmark)):
            raise InputError(f"--{option}: {count} given; wanted: one for each benchmark, {wanted}")


def _measures(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.measures import measures

    grid = grid_of(args)
    measures(needs.measures(grid), grid.layout, fingerprint=config_fingerprint(grid.config))


def _pair_cell(grid: Grid, args: argparse.Namespace) -> tuple[str, str]:
    """The chosen pair and benchmark; an InputError names the known ones."""
    known = ["/".join(cell) for cell in grid.study.pair_cells]
    require_known(f"{args.pair}/{args.benchmark}", known, "pair and benchmark")
    return args.pair, args.benchmark


def _likelihood(args: argparse.Namespace) -> None:
    grid = grid_of(args)
    cell = _pair_cell(grid, args)
    if reason := grid.jobs.without_likelihood(*cell):
        raise InputError(f"{'/'.join(cell)}: no texts are scored under both sides: {reason}")
    from searchlens.cli.stages.likelihood import likelihood

    study, fingerprint = needs.likelihood(grid, *cell), config_fingerprint(grid.config)
    likelihood(grid, study, Path(args.output), fingerprint=fingerprint, threads=args.threads)


def _figures(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.figures import figures

    grid = grid_of(args)
    figures(needs.figures(grid, *_pair_cell(grid, args)), grid.layout, Path(args.output))


def _overview(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.overview import overview

    grid = grid_of(args)
    overview(needs.overview(grid), grid.layout, Path(args.output))


def _tables(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.tables import tables

    grid = grid_of(args)
    tables(needs.tables(grid), grid.layout, Layout(Path(args.output)), fingerprint=config_fingerprint(grid.config))


def _boptr(args: argparse.Namespace) -> None:
    """Stage ``boptr``, unless the frames with numbers are there, and stage ``transfer``, unless they are enough."""
    if args.draws is not None and args.draws < 100:
        raise InputError(f"--draws: {args.draws}; allowed: 100 or more")
    landscapes, output = Path(args.folder), Layout(Path(args.output))
    plan, options, fingerprint = cohort_of_folder(args, landscapes)
    options = replace(options, draws=args.draws or options.draws, estimator=args.estimator or options.estimator)
    if args.makes_frames:
        from searchlens.cli.stages.boptr import boptr

        boptr(plan, options, landscapes, output, fingerprint=fingerprint)
    if not args.frames_only:
        from searchlens.cli.stages.transfer import transfer

        transfer(plan, options, landscapes, output, limits_of(args), fingerprint=fingerprint, figures=args.figures)


def add_to(command: Commands) -> None:
    """Add the commands of the stages, in the order of a run."""
    command.group(GROUP, of_stages=True)
    cell = "--checkpoint mine-base --benchmark math500"
    sub = command("generate", _generate, "draw the missing samples of one cell", f"{cell} --threads 4")
    sub.shared("--checkpoint", "--benchmark")
    sub.text("--manifest", "FILE", "manifest of one pool; default: every pool of the cell")
    sub.shared("--threads")
    cell += " results/manifests/mine-base/math500/*.json --output"
    _add_graded(command("score", _score, "grade the samples of one cell", f"{cell} scores.parquet"))
    text = "judge some samples of one cell by math-verify alone, too"
    _add_graded(command("compare-graders", _agreement, text, f"{cell} judged.parquet"))
    text = "compute the operating points of one cell, or of several"
    sub = command("landscape", _landscape, text, "--benchmark math500 --scores scores.parquet --output out")
    each: dict[str, Any] = {"nargs": "+", "required": True}
    sub.text("--benchmark", "NAME", "key of benchmarks, of each cell", **each)
    sub.text("--scores", "FILE", "graded samples, or recorded counts, of each cell", **each)
    sub.text("--output", "FOLDER", "folder of the output files of each cell", **each)
    text = "compare Base and RL of a pair: RL's curve inside Base's or not"
    example = "--base results/landscape/mine-base/math500 --rl results/landscape/mine-rl/math500 --output out"
    sub = command("recovery", _recovery, text, example)
    sub.text("--benchmark", "NAME", "key of benchmarks, of each comparison; default: names of folders", nargs="+")
    sub.text("--base", "FOLDER", "landscape folder of the Base checkpoint, of each comparison", **each)
    sub.text("--rl", "FOLDER", "landscape folder of the RL checkpoint, of each comparison", **each)
    sub.text("--output", "FOLDER", "folder of the output files of each comparison", **each)
    command("measures", _measures, "read what RL's curve is worth in samples of Base, for every pair", "-C mine")
    cell = "--pair mine --benchmark math500 --output out"
    sub = command("likelihood", _likelihood, "score the texts of each side of a pair under the other, too", cell)
    sub.shared("--pair", "--benchmark", "--output FOLDER", "--threads")
    sub = command("figures", _figures, "draw the figures of one pair on one benchmark", cell)
    sub.shared("--pair", "--benchmark", "--output FOLDER")
    command("overview", _overview, "draw the figures of the whole study", "--output figures").shared("--output FOLDER")
    command("tables", _tables, "write the tables of the whole study", "--output results").shared("--output RESULTS")
    cell = "results/landscape --output results"
    sub = command("boptr", _boptr, "predict the RL curves of a cohort from Base (BOPTR)", cell)
    _add_cohort(sub)
    sub.set_defaults(makes_frames=True)
    sub.text("--draws", "N", "bootstrap draws, instead of the configured number", type=int, default=None)
    sub.flag("--frames-only", "write the frames with numbers; `transfer` makes all else")
    sub = command("transfer", _boptr, "write the tables and figures of BOPTR from its frames", cell)
    _add_cohort(sub)
    sub.set_defaults(makes_frames=False, draws=None, frames_only=False)


def _add_graded(sub: Parser) -> None:
    sub.shared("--checkpoint", "--benchmark", "--threads")
    sub.text("--output", "FILE", "Parquet file to write", required=True)
    sub.add_argument("manifests", nargs="*", metavar="MANIFEST", help="the cell's manifests")


def _add_cohort(sub: Parser) -> None:
    sub.add_argument("folder", metavar="FOLDER", help="folder of landscapes; a cohort.yaml in it describes them")
    sub.shared("--output RESULTS")
    text = "instead of `boptr.estimator`; first_k: the tables as the paper computes them"
    sub.choice("--estimator", text, "unbiased", "first_k")
    sub.add_argument("--figures", action=argparse.BooleanOptionalAction, default=True, help="draw figures as well")
