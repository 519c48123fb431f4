"""`searchlens plan`: what a run would sample, policy by policy, and what it would cost, before it costs anything.

Tokens are those of samples that are there already; where there are none, a stated assumption by regime
(``cost.tokens_per_sample``), and for searches what their controller draws on average for a text of that length. Time is
tokens over a throughput: that of the checkpoint's samples on GPUs, or a measured one (``cost.throughput``) scaled by
the number of parameters. Every assumption that an estimate rests on is printed with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from searchlens import policies
from searchlens.grid import Generation, Grid
from searchlens.grid.cost import Length, Speed, assumed_length, assumed_speed
from searchlens.store.ranges import Shard, gpu_seconds, shards_of, uncovered


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


# ---- what is there


Found = Mapping[tuple[str, str], Mapping[str, Sequence[Shard]]]
"""The shards of every generation, by cell and id, as they were read from the store."""


def stored(grid: Grid) -> Found:
    """Every shard of the study; the store is read once."""
    return {
        cell: {g.id: shards_of(grid.folder(*cell, g.id)) for g in generations}
        for cell in grid.cells
        if (generations := grid.generations(*cell))
    }


def _told(shards: Iterable[Shard], key: str) -> int:
    return sum(int(shard.sidecar[key]) for shard in shards)


def _length(grid: Grid, found: Found, cell: tuple[str, str]) -> Length:
    """Mean over the cell's samples; an assumption where there are none."""
    there = [shard for shards in found[cell].values() for shard in shards if shard.present]
    if rows := _told(there, "rows"):
        return Length(_told(there, "tokens") / rows, "samples that are there")
    return assumed_length(grid.config, cell[1])


def _tokens_per_sample(grid: Grid, benchmark: str, generation: Generation, shards: Sequence[Shard], t: Length) -> float:
    """Drawn for one sample of a generation: as its own shards say, or else by its controller."""
    there = [shard for shard in shards if shard.present]
    if rows := _told(there, "rows"):
        return _told(there, "generated") / rows
    policy = policies.from_spec(generation.id, generation.spec["policy"])
    limit = int(grid.config["benchmarks"][benchmark]["max_tokens"])
    return policy.expected_tokens(t.tokens, limit) / policy.width


ENOUGH_SECONDS = 60.0
"""Least GPU time of a checkpoint's samples from which its speed is taken."""


def speed(grid: Grid, found: Found, checkpoint: str) -> Speed | None:
    """As its samples were drawn on GPUs; where there are none, as the configuration says."""
    there = [shard for cell in found if cell[0] == checkpoint for shards in found[cell].values() for shard in shards]
    seconds = sum(gpu_seconds(shard.sidecar) for shard in there)
    if seconds < ENOUGH_SECONDS:
        return assumed_speed(grid.config, checkpoint)
    drawn = sum(shard.sidecar["generated"] for shard in there if gpu_seconds(shard.sidecar))
    return Speed(drawn / seconds, f"{drawn / seconds:,.0f} tokens/s: samples of {checkpoint} that are there")


# ---- the plan


def plan(grid: Grid, found: Found | None = None) -> Iterator[PlanLine]:
    """Every generation of every sampled cell, in order.

    Parameters
    ----------
    grid : Grid
    found : Found, optional
        ``stored(grid)``, where it is at hand.
    """
    found = stored(grid) if found is None else found
    paces = {checkpoint: speed(grid, found, checkpoint) for checkpoint in dict.fromkeys(c for c, _ in found)}
    for cell in found:
        checkpoint, benchmark = cell
        length, pace, questions = _length(grid, found, cell), paces[checkpoint], grid.count(benchmark)
        for generation in grid.generations(*cell):
            shards = found[cell][generation.id]
            missing = sum(stop - start for start, stop in uncovered(shards, generation.samples))
            damaged = sum(not shard.present for shard in shards)
            each = _tokens_per_sample(grid, benchmark, generation, shards, length)
            tokens = round(missing * questions * each)
            hours = tokens / pace.tokens_per_second / 3600 if pace else None
            yield PlanLine(checkpoint, benchmark, generation, missing, damaged, tokens, hours)


def assumptions(grid: Grid, found: Found | None = None) -> list[str]:
    """What the estimates of a plan rest on, each once."""
    found = stored(grid) if found is None else found
    checkpoints, asked = dict.fromkeys(c for c, _ in found), dict.fromkeys(b for _, b in found)
    told = dict.fromkeys(_length(grid, found, cell).source for cell in found)
    if source := grid.config["cost"]["source"]:
        told[source] = None
    for pace in filter(None, (speed(grid, found, name) for name in checkpoints)):
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
    found = stored(grid)
    lines = list(plan(grid, found))
    _show_policies(lines) if by_policy else _show_cells(lines)
    todo = [line for line in lines if line.missing]
    hours = sum_hours(lines)
    print(
        f"{len(lines)} generations, {len(todo)} to make, about {sum(line.tokens for line in lines):,} tokens"
        + (f" and {hours:,.1f} GPU-hours" if hours is not None else "")
    )
    if todo:
        print("\n".join(["estimated from:", *(f"  {line}" for line in assumptions(grid, found))]))


def sum_hours(lines: Sequence[PlanLine]) -> float | None:
    """GPU-hours of some lines; None where those of one are not known."""
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
        cost = f"{sum(line.tokens for line in found):>16,}  {_shown(sum_hours(found)):>9}"
        print(f"{f'{checkpoint}/{benchmark}':{width}}  {counts}  {cost}".rstrip())
