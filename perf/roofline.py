"""The most tokens that GPUs can draw from a model per second, and what a pair of models takes at a share of it.

    python perf/roofline.py qwen2.5-7b-base path/to/checkpoint [--rows 1024] [--tokens 645] [--quantization fp8]
    python perf/roofline.py --pair qwen2.5-7b [--share 0.5]

A model is a checkpoint of the configuration, the paper's by default, or a folder with config.json. Every limit is that
of ``searchlens.plan.cost``, and every number of tokens that of ``searchlens plan``: nothing here is measured but
the shares, of searches and of other samples, which are those of ``cost.efficiency`` unless ``--share`` gives another.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from searchlens.config import check
from searchlens.config.sampled import CheckpointSpec
from searchlens.engines.kind import engine_kind
from searchlens.errors import InputError
from searchlens.plan import Grid, cost
from searchlens.plan.cost import GPUS, Limit, Shape, limit
from searchlens.plan.pins import shape_of
from searchlens.search.policy import Texts, from_spec

ROOT = Path(__file__).parents[1]


def shape_of_model(grid: Grid, model: str) -> Shape:
    """The shape of a checkpoint of the configuration, or of a folder.

    Raises InputError if it is neither, or its architecture is unknown.
    """
    known = model in grid.config.checkpoints
    shape = grid.inputs.shape(model) if known else shape_of(Path(model)) if Path(model).is_dir() else None
    if shape is None:
        raise InputError(
            f"{model}: no checkpoint of a known shape",
            "give a checkpoint of the configuration, or a folder with the config.json of a Llama, Mistral or Qwen",
        )
    return shape


def limits(shape: Shape, texts: Texts, args: argparse.Namespace) -> dict[str, Limit]:
    """The limit of each kind of GPU."""
    context = args.prompt + texts.running
    options = {"dtype": args.dtype, "quantization": args.quantization, "utilization": 0.9}
    return {name: limit(shape, gpu, args.rows, context, **options) for name, gpu in GPUS.items()}


def cell_tokens(grid: Grid, checkpoint: str, benchmark: str) -> Iterator[tuple[str, bool, float]]:
    """Kind of work, whether searches do it, and tokens to draw of a cell, as ``searchlens plan`` counts them."""
    usual = grid.config.samples
    texts = cost.texts(grid.config, benchmark, cost.assumed_length(grid.config, benchmark))
    for generation in grid.jobs.generations(checkpoint, benchmark):
        policy = from_spec("it", generation.spec["policy"])
        each = cost.tokens_per_run(policy, texts) / policy.width * grid.inputs.count(benchmark)
        searches = cost.is_search(policy)
        pool = 0 if searches else min(generation.samples, usual)
        yield f"pool, {usual} samples", searches, pool * each
        beyond = policy.controller.name if searches else "samples beyond them"
        yield beyond, searches, (generation.samples - pool) * each


def pair_tokens(grid: Grid, pair: str) -> Iterator[tuple[str, str, bool, float]]:
    """The same of a study of one pair, with its benchmark; batches with other seeds are a kind of their own."""
    for checkpoint, benchmark in grid.study.cells:
        for kind, searches, tokens in cell_tokens(grid, checkpoint, benchmark):
            if tokens:
                repeated = checkpoint not in grid.study.pairs[pair].values()
                yield benchmark, "batches with other seeds" if repeated else kind, searches, tokens


def print_limits(grid: Grid, args: argparse.Namespace) -> None:
    texts = Texts.of_mean(args.tokens, args.most, cost.SPREAD)
    print(
        f"{args.dtype}, quantization {args.quantization}, prompts of {args.prompt:g}, texts of {args.tokens:g} tokens"
    )
    print(f"{'model':28}{'GPU':6}{'rows':>6} {'bound by':10}{'ms a step':>10}{'tokens/s':>10}")
    for model in args.models:
        for name, bound in limits(shape_of_model(grid, model), texts, args).items():
            step = 1000 * bound.rows / bound.tokens_per_second
            numbers = f"{bound.rows:6,} {bound.rows_bound_by:10}{step:10.1f}{bound.tokens_per_second:10,.0f}"
            print(f"{model[-26:]:28}{name:6}{numbers}")


def print_pair(grid: Grid, args: argparse.Namespace) -> None:
    """GPU-hours by benchmark and kind of work, at the limit of each GPU and at a share of it."""
    measured = grid.config.cost.efficiency[0]
    shares = [args.share or getattr(measured, key) or measured.share for key in ("share", "searches")]
    shape = shape_of_model(grid, grid.study.pairs[args.pair]["base"])
    rows: dict[tuple[str, str], list[float]] = {}
    for benchmark, kind, searches, tokens in pair_tokens(grid, args.pair):
        texts = cost.texts(grid.config, benchmark, cost.assumed_length(grid.config, benchmark))
        hours = [tokens / bound.tokens_per_second / 3600 for bound in limits(shape, texts, args).values()]
        hours += [value / shares[searches] for value in hours]
        for key in ((benchmark, kind), ("all benchmarks", kind), ("all benchmarks", "together")):
            total = rows.setdefault(key, [0.0] * (1 + len(hours)))
            rows[key] = [sum(both) for both in zip(total, (tokens, *hours), strict=True)]
    print(f"| {args.pair} | | million tokens | {' | '.join(f'{name}, hours' for name in GPUS)} |")
    print("|---" * (3 + len(GPUS)) + "|")
    for (benchmark, kind), (tokens, *hours) in sorted(rows.items(), key=lambda row: (row[0][0], -row[1][0])):
        pairs = zip(hours[: len(GPUS)], hours[len(GPUS) :], strict=True)
        cells = " | ".join(f"{value:,.1f} ({of_share:,.1f})" for value, of_share in pairs)
        print(f"| {benchmark} | {kind} | {tokens / 1e6:,.0f} | {cells} |")
    print(f"\nHours at the limit (at {shares[0]:g} of it, searches at {shares[1]:g}), one GPU.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", help="checkpoints of the configuration, or folders")
    parser.add_argument("--pair", help="print the hours of a pair of the configuration")
    parser.add_argument("--share", type=float, help="of the limit; by default the first of cost.efficiency")
    parser.add_argument("--rows", type=int, default=engine_kind(CheckpointSpec(engine="vllm")).rows)
    parser.add_argument("--prompt", type=float, default=150)
    parser.add_argument("--tokens", type=float, default=645, help="mean length of a text")
    parser.add_argument("--most", type=int, default=2048, help="longest text")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument("--quantization", choices=("fp8",))
    args = parser.parse_args()
    grid = Grid(check.load([ROOT / name for name in (*check.DEFAULT_FILES, "config/paper.yaml")]), ROOT)
    if args.pair:
        names = replace(grid.config.study, pairs=(args.pair,))
        print_pair(Grid(replace(grid.config, study=names), ROOT), args)
    else:
        args.models = args.models or list(grid.config.checkpoints)
        print_limits(grid, args)


if __name__ == "__main__":
    main()
