"""`searchlens plan`: what a run would sample, policy by policy, before it costs anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from searchlens.grid import Generation, Grid
from searchlens.store import gaps, shards_of


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
        Estimated tokens still to generate.
    """

    checkpoint: str
    benchmark: str
    generation: Generation
    missing: int
    damaged: int
    tokens: int

    @property
    def state(self) -> str:
        """``done``, ``missing``, ``damaged``, or how many more samples a longer stream needs."""
        if self.damaged:
            return "damaged"
        if not self.missing:
            return "done"
        return "missing" if self.missing == self.generation.samples else f"{self.missing} more"


def _tokens_per_sample(grid: Grid, checkpoint: str, benchmark: str) -> float:
    """Mean over the cell's shards; half the token limit where there is none yet."""
    found = [
        s.sidecar
        for g in grid.generations(checkpoint, benchmark)
        for s in shards_of(grid.folder(checkpoint, benchmark, g.id))
    ]
    rows = sum(sidecar["rows"] for sidecar in found)
    limit = int(grid.config["benchmarks"][benchmark]["max_tokens"])
    return sum(sidecar["tokens"] for sidecar in found) / rows if rows else limit / 2


def plan(grid: Grid) -> Iterator[PlanLine]:
    """Every generation of every sampled cell, in order."""
    for checkpoint, benchmark in grid.cells:
        generations = grid.generations(checkpoint, benchmark)
        per_sample = _tokens_per_sample(grid, checkpoint, benchmark) if generations else 0.0
        for generation in generations:
            folder = grid.folder(checkpoint, benchmark, generation.id)
            missing = sum(stop - start for start, stop in gaps(folder, generation.samples))
            damaged = sum(not shard.present for shard in shards_of(folder))
            tokens = round(missing * len(grid.questions(benchmark)) * per_sample)
            yield PlanLine(checkpoint, benchmark, generation, missing, damaged, tokens)


def show_plan(grid: Grid) -> None:
    """Print the plan as a table with a total."""
    lines = list(plan(grid))
    width = max([len("cell"), *(len(f"{line.checkpoint}/{line.benchmark}") for line in lines)])
    names = max([len("policy"), *(len(", ".join(line.generation.policies)) for line in lines)])
    print(f"{'cell':{width}}  {'policy':{names}}  {'id':12}  {'state':9}  tokens to generate (estimate)")
    for line in lines:
        cell, policy = f"{line.checkpoint}/{line.benchmark}", ", ".join(line.generation.policies)
        print(f"{cell:{width}}  {policy:{names}}  {line.generation.id}  {line.state:9}  {line.tokens or '':>12}")
    todo = [line for line in lines if line.missing]
    print(f"{len(lines)} generations, {len(todo)} to make, about {sum(line.tokens for line in lines):,} tokens")
