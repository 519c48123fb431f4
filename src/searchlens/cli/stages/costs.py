"""The cost of sampling a cell, from the sidecars of its shards or from its recorded counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from searchlens.store import provenance, recorded_counts
from searchlens.store.layout import Layout
from searchlens.store.ranges import shards_of

if TYPE_CHECKING:
    from searchlens.plan.needs import CellSamples, Stream

Sidecar = Mapping[str, Any]

_COST = {
    **dict.fromkeys(("rows", "tokens", "generated", "requests", "prefilled", "reused"), pl.Int64()),
    **dict.fromkeys(("mean_running", "wall_seconds"), pl.Float64()),
    "device": pl.String(),
    "device_count": pl.Int64(),
}


def sidecars(cell: CellSamples, layout: Layout) -> Iterator[tuple[Stream, Sidecar]]:
    """(stream, sidecar) of every shard of a cell, sampled or recorded."""
    if cell.recorded_counts:
        recorded = recorded_counts.sidecars(recorded_counts.read(Path(cell.recorded_counts)))
        for stream in cell.streams:
            yield from ((stream, sidecar) for name in stream.policies for sidecar in recorded[name])
        return
    for stream in cell.streams:
        for shard in shards_of(layout.generation(cell.checkpoint, cell.benchmark, stream.id)):
            if not shard.flaw:
                yield stream, shard.sidecar


def spent_by_checkpoint(cells: Iterable[CellSamples], layout: Layout) -> dict[str, dict[str, Any]]:
    """The total cost of sampling each checkpoint; checkpoints without shards are left out."""
    shards: dict[str, list[Sidecar]] = {}
    for cell in cells:
        for _, sidecar in sidecars(cell, layout):
            shards.setdefault(cell.checkpoint, []).append(sidecar)
    return {checkpoint: provenance.spent(parts) for checkpoint, parts in shards.items()}


def without_costs(cells: Iterable[CellSamples], layout: Layout) -> int:
    """Number of cells that were recorded without the sidecars of their shards."""
    return sum(bool(cell.recorded_counts) and not any(True for _ in sidecars(cell, layout)) for cell in cells)


def costs(cells: Iterable[CellSamples], layout: Layout) -> pl.DataFrame:
    """One row per shard that a study uses, with the cost of sampling it.

    Beside the cell, policy and controller, what ``shards.publish`` and ``shards.Provenance`` record. An autoregressive
    sample is one request and returns what it generates. Imported samples cost nothing here and are left out, as are
    recorded samples without sidecars.
    """
    rows = []
    for cell in cells:
        for stream, sidecar in sidecars(cell, layout):
            cost: dict[str, Any] = {key: sidecar[key] for key in _COST}
            cost["mean_running"] = cost["mean_running"] or None
            if stream.controller == "autoregressive":
                cost |= {"generated": sidecar["tokens"], "requests": sidecar["rows"]}
            names = {"checkpoint": cell.checkpoint, "benchmark": cell.benchmark, "policy": stream.policies[0]}
            rows.append({**names, "controller": stream.controller, **cost})
    labels = dict.fromkeys(("checkpoint", "benchmark", "policy", "controller"), pl.String())
    return pl.DataFrame(rows, schema={**labels, **_COST})


def prefill(cells: Mapping[str, CellSamples], layout: Layout) -> pl.DataFrame:
    """Tokens that were computed but not generated, per policy: what FLOPs count besides the generated tokens.

    ``model`` is the key of the cell, ``Base`` or ``RL``. ``prompt``: mean tokens of a question's prompt, computed once
    for all its samples. ``again``: tokens of prompts and prefixes computed beyond that, per generated token. Policies
    without shards, or with a shard that has no such record, have no row.
    """
    columns = {"model": pl.String(), "policy": pl.String(), "prompt": pl.Float64(), "again": pl.Float64()}
    rows: list[tuple[str, str, float, float]] = []
    for model, cell in cells.items():
        by_policy: dict[str, list[Sidecar]] = {}
        autoregressive = []
        for stream, sidecar in sidecars(cell, layout):
            if stream.controller == "autoregressive":
                autoregressive.append(sidecar)
            for name in stream.policies:
                by_policy.setdefault(name, []).append(sidecar)
        # Autoregressive samples are one request each, and continue only a prompt.
        recorded = [sidecar for sidecar in autoregressive if _context_tokens(sidecar)]
        asked = sum(sidecar["rows"] for sidecar in recorded)
        prompt = sum(map(_context_tokens, recorded)) / asked if recorded else 0.0
        for name, parts in by_policy.items():
            if prompt and all(map(_context_tokens, parts)):
                beyond = sum(part["prefilled"] - prompt * cell.questions for part in parts)
                again = max(0.0, beyond) / max(1, sum(part["generated"] for part in parts))
                rows.append((model, name, prompt, again))
    return pl.DataFrame(rows, columns, orient="row")


def _context_tokens(sidecar: Sidecar) -> int:
    """Tokens of the prompts and prefixes that an engine continued; 0 if there is no record."""
    return int(sidecar["prefilled"] + sidecar["reused"])
