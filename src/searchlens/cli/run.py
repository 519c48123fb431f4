"""`searchlens run`: Snakemake in the folder of a study, with the workflow of this installation."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from searchlens.cli.follow import Rate, line
from searchlens.cli.status import answer
from searchlens.cli.supervise import supervise
from searchlens.config import extras, project
from searchlens.plan import Grid


def command_of(
    targets: Sequence[str], configs: Sequence[str], *, cores: str = "", profile: str = "", dry_run: bool = False
) -> list[str]:
    """The command line of Snakemake, whose configurations are merged last; without targets it makes everything.

    Without a number of ``cores``, or ``all``, the profile decides. The profile is a folder or its name; if empty, only
    that of the study's folder counts. ``dry_run``: print the jobs, and run none.
    """
    own = Path("Snakefile")
    snakefile = own if own.exists() else project.root() / "Snakefile"
    options = [*(["--configfile", *configs] if configs else []), *(["--cores", cores] if cores else [])]
    options += [*(["--profile", profile] if profile else []), *(["--dry-run"] if dry_run else [])]
    return [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile), *options, "--", *targets]


def require_installed(grid: Grid, *, here: bool) -> None:
    """Raise InputError, which names the extra, if Snakemake or, for jobs that run here, a library is missing."""
    extras.require("snakemake")
    if here:
        sampled = [cell for cell in grid.study.cells if any(any(grid.missing(pool)) for pool in grid.jobs.pools(*cell))]
        engines = {grid.study.engine(checkpoint).library for checkpoint, _ in sampled}
        extras.require(
            *(["matplotlib", "seaborn", "docutils", "jinja2"] if grid.study.pair_cells else []), *sorted(engines)
        )


def run(command: list[str], grid: Grid, *, plain: bool = False, quiet: bool = False) -> NoReturn:
    """Run Snakemake and end with its exit status; its jobs find the programs of this installation first.

    Samples are counted meanwhile. ``plain``: become Snakemake, whose output is shown as it is. ``quiet``: no progress.
    """
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    sys.stdout.flush()
    sys.stderr.flush()
    if plain:
        os.execv(command[0], command)
    rate = Rate()

    def sampling() -> str:
        """What is drawn, while something is left to draw."""
        found = answer(Grid(grid.config, grid.root))
        drawn, wanted = (sum(cell[key] for cell in found["cells"]) for key in ("drawn", "wanted"))
        rate.see(time.monotonic(), drawn)
        return line(found, rate.per_second) if drawn < wanted else ""

    sys.exit(supervise(command, sampling, sys.stderr, shown=not quiet))
