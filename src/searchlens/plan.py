"""`searchlens plan`: what a run would sample, policy by policy, and what it would cost, before it costs anything.

Tokens are those of samples that are there already; where there are none, a stated assumption by regime
(``cost.tokens_per_sample``), and for searches what their controller draws on average for a text of that length. Time is
tokens over a measured throughput (``cost.throughput``), scaled by the number of parameters. Every assumption that an
estimate rests on is printed with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from searchlens import policies
from searchlens.components import Value
from searchlens.grid import Generation, Grid
from searchlens.store import Shard, gaps, shards_of


@dataclass(frozen=True)
class PlanLine:
    """One generation of one cell.

    Attributes
    ----------
    missing : int
        Samples per question that the store lacks.
    damaged : int
        Shards that are there in name but not in content.
    tokens : int
        Estimated tokens still to draw, by searches those that they do not return included.
    hours : float or None
        Estimated GPU-hours of them; None without a measured throughput or a known number of parameters.
    """

    checkpoint: str
    benchmark: str
    generation: Generation
    missing: int
    damaged: int
    tokens: int
    hours: float | None

    @property
    def state(self) -> str:
        """``done``, ``missing``, ``damaged``, or how many more samples a longer stream needs."""
        if self.damaged:
            return "damaged"
        if not self.missing:
            return "done"
        return "missing" if self.missing == self.generation.samples else f"{self.missing} more"


# ---- tokens


def tokens_per_run(policy: policies.Policy, length: float, limit: int) -> float:
    """Tokens that one run of a policy draws on average, if its texts have a mean length.

    Parameters
    ----------
    policy : Policy
    length : float
        T, mean tokens of a text, > 0.
    limit : int
        Most tokens of a text, which sets the blocks of power sampling.

    Returns
    -------
    float
        Of a whole run, which returns ``policy.width`` candidates. Rollouts of evaluators are not counted.

    Notes
    -----
    power
        ``T + N (B n (n + 1) / 4 + T / 2)``: N steps in each of the n = floor(T / B) blocks of B tokens that a text
        fills, and in the last one, each redrawing half of what is there; the paper's ``N T^2 / (4 B)`` where blocks are
        many.
    entropy_tree
        Every branch redraws half a text.
    thought_tree, step_beam
        Thoughts of half their limit m, so T / m levels; a level draws ``children`` behind each of at most ``width``
        paths.
    mcts
        An iteration expands a node by ``children`` thoughts and draws half a text, until the tree of T / m levels has
        no node left to expand.
    """
    name = policy.controller.name
    return _PER_RUN[name](policy.parameters, length, limit) if name in _PER_RUN else length * policy.width


def _power(p: Mapping[str, Value], length: float, limit: int) -> float:
    block = math.ceil(limit / int(p["blocks"]))
    filled = int(length // block)
    return length + int(p["steps"]) * (block * filled * (filled + 1) / 4 + length / 2)


def _entropy_tree(p: Mapping[str, Value], length: float, _: int) -> float:
    branches = int(p["positions"]) * int(p["rounds"]) * int(p["children_per_position"])
    return int(p["roots"]) * length * (1 + branches / 2)


def _thoughts(p: Mapping[str, Value], length: float) -> tuple[float, int]:
    """Mean tokens of a thought, and thoughts of a text."""
    thought = min(int(p["max_tokens"]), length) / 2
    return thought, math.ceil(length / thought)


def _thought_tree(p: Mapping[str, Value], length: float, _: int) -> float:
    thought, levels = _thoughts(p, length)
    width, children, depth = int(p["width"]), int(p["children"]), min(int(p["depth"]), levels)
    drawn = sum(children * min(float(width), float(children) ** level) for level in range(depth))
    return drawn * thought + width * (levels - depth) * thought


def _mcts(p: Mapping[str, Value], length: float, _: int) -> float:
    thought, levels = _thoughts(p, length)
    children = int(p["children"])
    nodes = sum(float(children) ** level for level in range(levels))
    return min(float(p["iterations"]), nodes) * (children * thought + length / 2)


_PER_RUN: Mapping[str, Callable[[Mapping[str, Value], float, int], float]] = {
    "power": _power,
    "entropy_tree": _entropy_tree,
    "thought_tree": _thought_tree,
    "mcts": _mcts,
}


@dataclass(frozen=True)
class Length:
    """T of a cell.

    Attributes
    ----------
    tokens : float
    source : str
        Where it comes from.
    """

    tokens: float
    source: str


def _length(grid: Grid, checkpoint: str, benchmark: str) -> Length:
    """Mean over the cell's samples; an assumption where there are none."""
    found = [
        s.sidecar for g in grid.generations(checkpoint, benchmark) for s in _shards(grid, checkpoint, benchmark, g)
    ]
    if rows := sum(sidecar["rows"] for sidecar in found):
        return Length(sum(sidecar["tokens"] for sidecar in found) / rows, "samples that are there")
    spec, assumed = grid.config["benchmarks"][benchmark], grid.config["cost"]["tokens_per_sample"]
    if spec["regime"] in assumed:
        tokens = min(float(assumed[spec["regime"]]), spec["max_tokens"])
        return Length(tokens, f"{spec['regime']} benchmarks: {tokens:g} tokens a sample")
    return Length(spec["max_tokens"] / 2, "half of max_tokens a sample")


def _shards(grid: Grid, checkpoint: str, benchmark: str, generation: Generation) -> list[Shard]:
    return [shard for shard in shards_of(grid.folder(checkpoint, benchmark, generation.id)) if shard.present]


def _tokens_per_sample(grid: Grid, checkpoint: str, benchmark: str, generation: Generation, length: Length) -> float:
    """Drawn for one sample of a generation: as its own shards say, or else by its controller."""
    found = [shard.sidecar for shard in _shards(grid, checkpoint, benchmark, generation)]
    if rows := sum(sidecar["rows"] for sidecar in found):
        return float(sum(sidecar["generated"] for sidecar in found) / rows)
    policy = policies.from_spec(generation.id, generation.spec["policy"])
    limit = int(grid.config["benchmarks"][benchmark]["max_tokens"])
    return tokens_per_run(policy, length.tokens, limit) / policy.width


# ---- time


@dataclass(frozen=True)
class Speed:
    """Throughput of a checkpoint.

    Attributes
    ----------
    tokens_per_second : float
        On one GPU.
    source : str
        The measurement it is scaled from.
    """

    tokens_per_second: float
    source: str


def speed(grid: Grid, checkpoint: str) -> Speed | None:
    """Estimated from the measured model that is nearest in size; None where size or measurements are missing."""
    measured = grid.config["cost"]["throughput"]
    size = _parameters(grid, checkpoint)
    if not measured or size is None:
        return None
    nearest = min(measured, key=lambda one: abs(math.log(one["parameters"] / size)))
    scaled = nearest["tokens_per_second"] * nearest["parameters"] / size
    return Speed(scaled, f"{nearest['tokens_per_second']:,.0f} tokens/s: {nearest['source']}")


def _parameters(grid: Grid, checkpoint: str) -> float | None:
    for name in grid.config["study"]["pairs"]:
        pair = grid.config["pairs"][name]
        again = [side for batch in pair["batches"].values() for side in batch.values()]
        if checkpoint in (pair["base"], pair["rl"], *again):
            return float(pair["parameters"]) if pair["parameters"] else None
    return None


# ---- the plan


def plan(grid: Grid) -> Iterator[PlanLine]:
    """Every generation of every sampled cell, in order."""
    for checkpoint, benchmark in grid.cells:
        generations = grid.generations(checkpoint, benchmark)
        if not generations:
            continue
        length, pace, questions = _length(grid, checkpoint, benchmark), speed(grid, checkpoint), grid.count(benchmark)
        for generation in generations:
            folder = grid.folder(checkpoint, benchmark, generation.id)
            missing = sum(stop - start for start, stop in gaps(folder, generation.samples))
            damaged = sum(not shard.present for shard in shards_of(folder))
            each = _tokens_per_sample(grid, checkpoint, benchmark, generation, length)
            tokens = round(missing * questions * each)
            hours = tokens / pace.tokens_per_second / 3600 if pace else None
            yield PlanLine(checkpoint, benchmark, generation, missing, damaged, tokens, hours)


def assumptions(grid: Grid) -> list[str]:
    """What the estimates of a plan rest on, each once."""
    cells = [cell for cell in grid.cells if grid.generations(*cell)]
    checkpoints, asked = dict.fromkeys(c for c, _ in cells), dict.fromkeys(b for _, b in cells)
    told = dict.fromkeys(_length(grid, *cell).source for cell in cells)
    if source := grid.config["cost"]["source"]:
        told[source] = None
    for pace in filter(None, (speed(grid, name) for name in checkpoints)):
        told[f"{pace.source}; other sizes in proportion, batch full, start-up not counted"] = None
    if absent := [f"{name} {grid.count(name)}" for name in asked if grid.absent(name)]:
        told[f"questions are not here, taken to be as many as published: {', '.join(absent)}"] = None
    sources = filter(None, (grid.checkpoint_source(name) for name in checkpoints))
    if moving := [source.key for source in dict.fromkeys(sources) if not grid.lock.get(source)]:
        told[f"checkpoints are not pinned, ids are placeholders: {', '.join(moving)}"] = None
    return list(told)


def show_plan(grid: Grid, *, by_policy: bool = False) -> None:
    """Print the plan as a table with totals and assumptions.

    Parameters
    ----------
    grid : Grid
    by_policy : bool
        One line for each policy of each cell, instead of one for each cell.
    """
    lines = list(plan(grid))
    _show_policies(lines) if by_policy else _show_cells(lines)
    todo = [line for line in lines if line.missing]
    hours = _sum_hours(lines)
    print(
        f"{len(lines)} generations, {len(todo)} to make, about {sum(line.tokens for line in lines):,} tokens"
        + (f" and {hours:,.1f} GPU-hours" if hours is not None else "")
    )
    if todo:
        print("\n".join(["estimated from:", *(f"  {line}" for line in assumptions(grid))]))


def _sum_hours(lines: list[PlanLine]) -> float | None:
    known = [line.hours for line in lines if line.hours is not None]
    return sum(known) if len(known) == len(lines) and lines else None


def _shown(hours: float | None) -> str:
    return "" if hours is None else f"{hours:,.2f}"


def _show_policies(lines: list[PlanLine]) -> None:
    width = max([len("cell"), *(len(f"{line.checkpoint}/{line.benchmark}") for line in lines)])
    names = max([len("policy"), *(len(", ".join(line.generation.policies)) for line in lines)])
    print(f"{'cell':{width}}  {'policy':{names}}  {'id':12}  {'state':9}  {'tokens to draw':>14}  {'GPU-hours':>9}")
    for line in lines:
        cell, policy = f"{line.checkpoint}/{line.benchmark}", ", ".join(line.generation.policies)
        cost = f"{line.tokens if line.missing else '':>14}  {_shown(line.hours) if line.missing else '':>9}"
        print(f"{cell:{width}}  {policy:{names}}  {line.generation.id}  {line.state:9}  {cost}".rstrip())


def _show_cells(lines: list[PlanLine]) -> None:
    width = max([len("cell"), *(len(f"{line.checkpoint}/{line.benchmark}") for line in lines)])
    print(f"{'cell':{width}}  {'policies':>8}  {'to make':>7}  {'tokens to draw':>16}  {'GPU-hours':>9}")
    for (checkpoint, benchmark), group in groupby(lines, key=lambda line: (line.checkpoint, line.benchmark)):
        found = list(group)
        counts = f"{len(found):>8}  {sum(bool(line.missing) for line in found):>7}"
        cost = f"{sum(line.tokens for line in found):>16,}  {_shown(_sum_hours(found)):>9}"
        print(f"{f'{checkpoint}/{benchmark}':{width}}  {counts}  {cost}".rstrip())
