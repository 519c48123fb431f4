"""Commands of the laboratory."""

from __future__ import annotations

import argparse
from pathlib import Path

from searchlens.cli import stage_commands
from searchlens.cli.options import Commands, grid_of
from searchlens.cli.terminal import say
from searchlens.errors import InputError
from searchlens.plan import Grid
from searchlens.store.layout import Layout
from searchlens.store.provenance import config_fingerprint
from searchlens_lab.equivalence import plan


def _compared(args: argparse.Namespace) -> Grid:
    grid = grid_of(args)
    if plan.compared(grid) is None:
        hint = "set equivalence in the configuration; see config/README.md"
        raise InputError("this study has no comparison with references", hint)
    return grid


def _equivalence(args: argparse.Namespace) -> None:
    grid = _compared(args)
    from searchlens_lab.equivalence.comparisons import equivalence

    output = Layout(Path(args.output))
    equivalence(grid, output, fingerprint=config_fingerprint(grid.config), threads=args.threads)


def _samplers(args: argparse.Namespace) -> None:
    grid = _compared(args)
    if not 100 <= args.runs <= 1_000_000:
        raise InputError(f"--runs: {args.runs}; allowed: 100 to 1,000,000")
    from searchlens_lab.equivalence.samplers import write_comparison

    for path in write_comparison(grid, Path(args.output), runs=args.runs, threads=args.threads):
        say(path)


def _simulate(args: argparse.Namespace) -> None:
    from searchlens_lab.simulate import paper_design, small_design, write

    design = {"paper": paper_design, "small": small_design}[args.size](args.mode)
    write(design, args.seed, Path(args.output))
    say(f"{len(design.cells())} landscapes of known truth under {args.output}")


def _convert(args: argparse.Namespace) -> None:
    from searchlens_lab.pretrained.convert import convert

    say(convert(Path(args.file), Path(args.folder), args.dtype))


def add_to(command: Commands) -> None:
    """Add the commands."""
    command.group(stage_commands.GROUP, of_stages=True)
    text = "compare policies and searches with independent references"
    sub = command("equivalence", _equivalence, text, "--output results --threads 4")
    sub.shared("--output RESULTS", "--threads")
    text = "compare samplers of p^alpha (docs/power-sampling.md)"
    sub = command("benchmark-samplers", _samplers, text, "--output samplers --runs 1000")
    sub.shared("--output FOLDER")
    sub.text("--runs", "N", "texts of each sampler and toy (default: 1000)", type=int, default=1000)
    sub.shared("--threads")
    command.group("tools")
    text = "write a simulated study of known truth (docs/simulation.md)"
    sub = command("simulate", _simulate, text, "--seed 1 --size small --output simulated", is_configured=False)
    sub.add_argument("--seed", type=int, required=True, metavar="N", help="seed of all random numbers")
    sub.shared("--output FOLDER")
    modes = ("transform", "planted", "continuous", "ceiling", "unrelated", "equal")
    text = "how RL is derived from Base (default: transform)"
    sub.add_argument("--mode", choices=modes, default="transform", help=text)
    sub.add_argument("--size", choices=("paper", "small"), default="paper", help="size of the cohort (default: paper)")
    text = "convert a GGUF file of Gemma 3 (docs/pretrained.md)"
    sub = command("convert", _convert, text, "gemma.gguf models/base", is_configured=False)
    sub.add_argument("file", metavar="MODEL.gguf", help="file of the model")
    sub.add_argument("folder", metavar="FOLDER", help="folder to write, new or empty")
    sub.choice("--dtype", "type of the weights", "bfloat16", "float32", default="bfloat16")
