"""What the arguments of a command choose: a study, one of its cells, a folder of landscapes."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from searchlens.cli.terminal import say
from searchlens.errors import InputError, require_known
from searchlens.plan import Grid, needs
from searchlens.store import snapshots
from searchlens.store.provenance import config_fingerprint

if TYPE_CHECKING:
    from searchlens.api.study import Study
    from searchlens.boptr.cohort import CohortPlan
    from searchlens.config.boptr import BoptrOptions
    from searchlens.config.health import HealthOptions


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
    checkpoints = {checkpoint for checkpoint, _ in grid.study.cells}
    names = {benchmark for _, benchmark in grid.study.cells}
    checkpoint = require_known(args.checkpoint, checkpoints, "checkpoint")
    return checkpoint, require_known(args.benchmark, names, "benchmark")


def is_configured(args: argparse.Namespace) -> bool:
    """Whether there is a configuration at all: some commands need none."""
    return bool(args.snapshot or args.config or Path("config").exists())


def limits_of(args: argparse.Namespace) -> HealthOptions:
    """Limits of the health check: the configured ones, or the defaults where there is no configuration."""
    from searchlens.config.health import DEFAULTS

    if not is_configured(args):
        return DEFAULTS
    return grid_of(args).config.health


def cohort_of_folder(args: argparse.Namespace, landscapes: Path) -> tuple[CohortPlan, BoptrOptions, str]:
    """Plan and options of a folder of landscapes, and the fingerprint of the configuration, if there is one.

    A ``cohort.yaml`` in the folder describes the landscapes; without it, the configuration does.
    """
    from searchlens.boptr.cohort import PLAN_FILE, read_plan
    from searchlens.cli.stages._cohort import cohort_of
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


def opened(args: argparse.Namespace, folder: str) -> Study:
    """The results folder of that name, or the configured one, opened for reading.

    If the chosen configuration was run, the study is read with it, otherwise with that of the newest run.
    """
    from searchlens.api.study import open_study

    if folder:
        return open_study(folder)
    grid = grid_of(args)
    fingerprint = config_fingerprint(grid.config)
    was_run = grid.layout.snapshot(fingerprint).exists()
    return open_study(grid.layout.results, config=fingerprint if was_run else "")
