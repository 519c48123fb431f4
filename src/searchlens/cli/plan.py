"""`searchlens plan`: the samples that a run would draw, by policy, and their estimated cost.

The mean number of tokens is that of samples in the store. If there are none, it is an assumption by regime
(``cost.tokens_per_sample``), and for searches the number that their controller draws on average for texts of that
length. Time is tokens over a speed: that of the checkpoint's samples on GPUs, or the one that ``plan.cost`` expects.
The assumptions of an estimate are printed with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from searchlens.errors import counted
from searchlens.plan import Generation, Grid
from searchlens.plan.cost import Length, Speed, assumed_length, assumed_speed, is_search, texts, tokens_per_run
from searchlens.search.policy import Policy, from_spec
from searchlens.store.ranges import Shard, uncovered


@dataclass(frozen=True)
class PlanLine:
    """One generation of one cell."""

    checkpoint: str
    benchmark: str
    generation: Generation
    missing: int
    """Missing samples per question."""
    damaged: int
    """Shards with a sidecar whose file is missing or changed."""
    tokens: int
    """Estimated tokens still to draw; of searches, also those that they do not return."""
    hours: float | None
    """Estimated GPU-hours of them; None without a measured throughput or a known number of parameters."""

    @property
    def state(self) -> str:
        """``done``, ``missing``, ``damaged``, or how many more samples a longer stream needs."""
        if self.damaged:
            return "damaged"
        if not self.missing:
            return "done"
        return "missing" if self.missing == self.generation.samples else f"{self.missing} more"


# ---- stored samples


StoredShards = Mapping[tuple[str, str], Mapping[str, Sequence[Shard]]]
"""The shards of every generation, by cell and id, as read from the store."""


def read_store(grid: Grid) -> StoredShards:
    """Every shard of the study; the store is read once."""
    return {
        cell: {g.id: grid.stored(*cell, g) for g in generations}
        for cell in grid.study.cells
        if (generations := grid.jobs.generations(*cell))
    }


def _total(shards: Iterable[Shard], key: str) -> int:
    return sum(int(shard.sidecar[key]) for shard in shards)


def _length(grid: Grid, stored: StoredShards, cell: tuple[str, str]) -> Length:
    """Mean over the samples of a cell, or an assumption if there are none."""
    present = [shard for shards in stored[cell].values() for shard in shards if shard.present]
    if rows := _total(present, "rows"):
        return Length(_total(present, "tokens") / rows, "samples that are there")
    return assumed_length(grid.config, cell[1])


def _policy(generation: Generation) -> Policy:
    return from_spec(generation.id, generation.spec["policy"])


ENOUGH_SECONDS = 60.0
"""Minimum GPU time of a checkpoint's samples for measuring its speed; with less, the start of the engine dominates."""


def speed(grid: Grid, stored: StoredShards, cell: tuple[str, str], *, of_searches: bool = False) -> Speed | None:
    """Speed on a cell: that of the checkpoint's samples on GPUs, or else the one estimated from the configuration."""
    checkpoint, benchmark = cell
    there = [shard for other in stored if other[0] == checkpoint for s in stored[other].values() for shard in s]
    present = [shard for shard in there if not shard.flaw]
    seconds = sum(shard.sidecar["gpu_seconds"] for shard in present)
    if seconds < ENOUGH_SECONDS:
        expected = texts(grid.config, benchmark, _length(grid, stored, cell))
        return assumed_speed(grid.config, checkpoint, grid.inputs.shape(checkpoint), expected, of_searches=of_searches)
    drawn = sum(shard.sidecar["generated"] for shard in present if shard.sidecar["gpu_seconds"])
    return Speed(drawn / seconds, f"{drawn / seconds:,.0f} tokens/s", f"samples of {checkpoint} that are there")


# ---- the plan


def plan(grid: Grid, stored: StoredShards | None = None) -> Iterator[PlanLine]:
    """Every generation of every sampled cell, in order; ``stored`` is ``read_store(grid)``, if it is known."""
    stored = read_store(grid) if stored is None else stored
    for cell in stored:
        checkpoint, benchmark = cell
        length, questions = _length(grid, stored, cell), grid.inputs.count(benchmark)
        paces = [speed(grid, stored, cell, of_searches=kind) for kind in (False, True)]
        for generation in grid.jobs.generations(*cell):
            policy, shards = _policy(generation), stored[cell][generation.id]
            present = [shard for shard in shards if shard.present]
            missing = sum(stop - start for start, stop in uncovered(shards, generation.samples))
            if rows := _total(present, "rows"):
                each = _total(present, "generated") / rows
            else:
                each = tokens_per_run(policy, texts(grid.config, benchmark, length)) / policy.width
            tokens, pace = round(missing * questions * each), paces[is_search(policy)]
            hours = tokens / pace.tokens_per_second / 3600 if pace else None
            yield PlanLine(checkpoint, benchmark, generation, missing, len(shards) - len(present), tokens, hours)


def assumptions(grid: Grid, stored: StoredShards | None = None) -> list[str]:
    """The assumptions of the estimates of a plan, each once."""
    stored = read_store(grid) if stored is None else stored
    checkpoints, benchmarks = dict.fromkeys(c for c, _ in stored), dict.fromkeys(b for _, b in stored)
    sources = dict.fromkeys(_length(grid, stored, cell).source for cell in stored)
    if source := grid.config.cost.source:
        sources[source] = None
    speeds, without_formula = _speeds(grid, stored)
    sources.update(dict.fromkeys(f"{', '.join(names)}: {pace.source}" for pace, names in speeds.items()))
    sources.update(dict.fromkeys(f"{pace.measured}; batch full, start-up not counted" for pace in speeds))
    if without_formula:
        sources[f"tokens unknown, a text for each candidate is assumed: controller {', '.join(without_formula)}"] = None
    if absent := [f"{name} {grid.inputs.count(name)}" for name in benchmarks if grid.inputs.absent(name)]:
        sources[f"questions are missing here; their published numbers are assumed: {', '.join(absent)}"] = None
    models = filter(None, (grid.inputs.checkpoint_source(name) for name in checkpoints))
    if unpinned := [model.key for model in dict.fromkeys(models) if not grid.inputs.lock.get(model)]:
        sources[f"checkpoints are not pinned, ids are placeholders: {', '.join(unpinned)}"] = None
    return list(sources)


def _speeds(grid: Grid, stored: StoredShards) -> tuple[dict[Speed, dict[str, None]], dict[str, None]]:
    """The checkpoints of each speed, and the controllers that do not say how many tokens they draw."""
    speeds: dict[Speed, dict[str, None]] = {}
    silent: dict[str, None] = {}
    for cell in stored:
        policies = [_policy(generation) for generation in grid.jobs.generations(*cell)]
        for kind in sorted(set(map(is_search, policies))):
            if pace := speed(grid, stored, cell, of_searches=kind):
                speeds.setdefault(pace, {})[cell[0]] = None
        expected = texts(grid.config, cell[1], _length(grid, stored, cell))
        silent |= {one.controller.name: None for one in policies if one.expected_tokens(expected) is None}
    return speeds, silent


def answer(grid: Grid) -> dict[str, Any]:
    """The plan with totals and assumptions.

    ``cells`` has of each its generations and their totals. ``generations`` and ``to_make`` count, ``tokens`` and
    ``gpu_hours`` add up what is still to draw, None where it cannot be estimated.
    """
    stored = read_store(grid)
    lines = list(plan(grid, stored))
    cells = []
    for (checkpoint, benchmark), group in groupby(lines, key=lambda line: (line.checkpoint, line.benchmark)):
        cell = list(group)
        policies = [
            {
                "names": list(line.generation.policies),
                "id": line.generation.id,
                "state": line.state,
                "missing": line.missing,
                "damaged": line.damaged,
                "tokens": line.tokens,
                "gpu_hours": line.hours,
            }
            for line in cell
        ]
        cells.append({"checkpoint": checkpoint, "benchmark": benchmark, **_totals(cell), "policies": policies})
    return {
        "cells": cells,
        **_totals(lines),
        "estimated_from": assumptions(grid, stored) if any(line.missing for line in lines) else [],
        "without_boptr": grid.study.without_boptr,
    }


def _totals(lines: Sequence[PlanLine]) -> dict[str, Any]:
    return {
        "generations": len(lines),
        "to_make": sum(bool(line.missing) for line in lines),
        "tokens": sum(line.tokens for line in lines),
        "gpu_hours": sum_hours([line.hours for line in lines]) if lines else None,
    }


def rendered(found: Mapping[str, Any], *, by_policy: bool = False) -> str:
    """The plan as a table with totals and assumptions: a line for each cell, or for each policy of each cell."""
    lines = _policy_lines(found["cells"]) if by_policy else _cell_lines(found["cells"])
    hours = "" if found["gpu_hours"] is None else f" and {found['gpu_hours']:,.1f} GPU-hours"
    counts = f"{counted(found['generations'], 'generation')}, {found['to_make']} to make"
    lines.append(f"{counts}, about {found['tokens']:,} tokens{hours}")
    if found["estimated_from"]:
        lines += ["estimated from:", *(f"  {line}" for line in found["estimated_from"])]
    if found["without_boptr"]:
        lines.append(f"BOPTR is left out: {found['without_boptr']}")
    return "\n".join(lines)


def sum_hours(hours: Sequence[float | None]) -> float | None:
    """Sum of GPU-hours; None if there is no estimate for one of them."""
    known = [one for one in hours if one is not None]
    return sum(known) if len(known) == len(hours) else None


def _format(hours: float | None) -> str:
    return "" if hours is None else f"{hours:,.2f}"


def _name(cell: Mapping[str, Any]) -> str:
    return f"{cell['checkpoint']}/{cell['benchmark']}"


def _policy_lines(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [(_name(cell), ", ".join(policy["names"]), policy) for cell in cells for policy in cell["policies"]]
    width = max([len("cell"), *(len(cell) for cell, _, _ in rows)])
    names = max([len("policy"), *(len(policy) for _, policy, _ in rows)])
    lines = [f"{'cell':{width}}  {'policy':{names}}  {'id':12}  {'state':9}  {'tokens to draw':>14}  {'GPU-hours':>9}"]
    for cell, policy, line in rows:
        todo = line["missing"]
        cost = f"{line['tokens'] if todo else '':>14}  {_format(line['gpu_hours']) if todo else '':>9}"
        lines.append(f"{cell:{width}}  {policy:{names}}  {line['id']}  {line['state']:9}  {cost}".rstrip())
    return lines


def _cell_lines(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    width = max([len("cell"), *(len(_name(cell)) for cell in cells)])
    lines = [f"{'cell':{width}}  {'policies':>8}  {'to make':>7}  {'tokens to draw':>16}  {'GPU-hours':>9}"]
    for cell in cells:
        counts = f"{cell['generations']:>8}  {cell['to_make']:>7}"
        cost = f"{cell['tokens']:>16,}  {_format(cell['gpu_hours']):>9}"
        lines.append(f"{_name(cell):{width}}  {counts}  {cost}".rstrip())
    return lines
