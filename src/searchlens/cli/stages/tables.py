"""Stage ``tables``: landscapes, recovery and costs of a study to its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import polars as pl

from searchlens.analysis.health import CHAINS, DETAILS, Health, cell_health, of_pair, of_rules
from searchlens.catalogue import LIKELIHOOD_FRAMES, MEASURE_FRAMES, loaded, titles
from searchlens.cli.stages import costs
from searchlens.cli.stages._frames import read_points
from searchlens.reporting.tables.graders import of_judges
from searchlens.reporting.tables.likelihood import Likelihoods
from searchlens.reporting.tables.study import Cell, StudyContext
from searchlens.reporting.tables.table import save
from searchlens.search import kinds
from searchlens.store import provenance, shards
from searchlens.store.frames import read_compared, read_frame
from searchlens.store.layout import Layout
from searchlens.store.ranges import shards_of

if TYPE_CHECKING:
    from searchlens.plan import needs
    from searchlens.plan.needs import CellSamples

Points = Mapping[tuple[str, str], pl.DataFrame]
Healths = Mapping[tuple[str, str], Health]


def tables(study: needs.Tables, layout: Layout, output: Layout, *, fingerprint: str) -> None:
    """Write every table of the study."""
    points = {
        (cell.checkpoint, cell.benchmark): read_points(layout.landscape(cell.checkpoint, cell.benchmark), study.budgets)
        for cell in study.cells
    }
    health = {key: cell_health(layout.landscape(*key), study.default_policy, study.health) for key in points}
    spent = costs.spent_by_checkpoint(study.cells, layout)
    judged = {cell: provenance.Judge.read(layout.landscape(*cell)) for cell in points}
    cells = [_cell(cell, points, health, layout, study.references) for cell in study.pair_cells]
    broken = [f"Not interpretable: {cell.pair}/{cell.benchmark}. {cell.warning}." for cell in cells if cell.warning]
    remarks = [
        f"{cell.pair}/{cell.benchmark}: {remark}."
        for cell in study.pair_cells
        if (remark := of_rules(health[cell.base, cell.benchmark], health[cell.rl, cell.benchmark]))
    ]
    context = StudyContext(
        default_policy=study.default_policy,
        cells=cells,
        points=points,
        widths=half_widths(points, study.references),
        costs=costs.costs(study.cells, layout),
        models=dict(study.models),
        spent=spent,
        made=provenance.made(fingerprint),
        measures={name: read_frame(layout.measures_frame(name), "measures") for name in MEASURE_FRAMES},
        sources=dict(zip(points, study.sources, strict=True)),
        judges=judged,
        agreement={
            cell: reason or read_frame(layout.agreement(*cell), "agreement")
            for cell, reason in zip(points, study.without_agreement, strict=True)
        },
        recorded={cell: rows for cell in points if (rows := read_compared(layout, *cell)) is not None},
        chains=_chains(study.cells, layout),
        without_costs=costs.without_costs(study.cells, layout),
        health=health,
        notes=[*broken, *remarks, *of_judges(judged), *(f"{notice}." for notice in study.unknown_wordings)],
    )
    signed, record = (fingerprint, provenance.together(spent.values())), output.failures("tables", "study.json")
    save(loaded("table", stage="study"), context, output, record, *signed)
    if not all(study.without_likelihood):
        pairs = [(cell.pair, cell.benchmark) for cell in study.pair_cells]
        frames = {
            cell: reason
            or {name: read_frame(layout.likelihood_frame(*cell, name), "likelihood") for name in LIKELIHOOD_FRAMES[1:]}
            for cell, reason in zip(pairs, study.without_likelihood, strict=True)
        }
        record = output.failures("tables", "likelihood.json")
        save(loaded("table", stage="likelihood"), Likelihoods(frames), output, record, *signed)


def _cell(cell: needs.PairCell, points: Points, health: Healths, layout: Layout, references: Iterable[str]) -> Cell:
    frames = {
        name: read_frame(layout.recovery_frame(cell.pair, cell.benchmark, name), "recovery")
        for name in ("same_policy", "counts", "support", "path", "near_match")
    }
    configured = kinds.from_specs(cell.policies)
    base = points[cell.base, cell.benchmark].filter(~pl.col("policy").is_in(list(references)))
    names = base["policy"].unique()
    sides = {"Base": cell.base, "RL": cell.rl}
    return Cell(
        cell.pair,
        cell.benchmark,
        **frames,
        searched=any(kinds.is_search(name, configured) for name in names),
        greedy={side: points[name, cell.benchmark].filter(policy="greedy") for side, name in sides.items()},
        policies=len(names),
        questions=int(base["questions"][0]),
        warning=of_pair({side: health[name, cell.benchmark] for side, name in sides.items()}, is_floor=cell.is_floor),
    )


def half_widths(points: Points, without: Iterable[str] = ()) -> pl.DataFrame:
    """Median half-width of the intervals over policies, per cell, metric, estimator and budget."""
    parts = [
        frame.filter(pl.col("metric").is_in(list(titles("metric", drawn=True))), ~pl.col("policy").is_in(list(without)))
        .group_by("metric", "estimator", "budget", "questions", maintain_order=True)
        .agg(half_width=((pl.col("hi") - pl.col("lo")) / 2).median())
        .select(pl.lit(checkpoint).alias("checkpoint"), pl.lit(benchmark).alias("benchmark"), pl.all())
        for (checkpoint, benchmark), frame in points.items()
    ]
    return pl.concat(parts)


def _chains(cells: Iterable[CellSamples], layout: Layout) -> pl.DataFrame:
    """``CHAINS``: one row per chain that a study has the samples of.

    Chains without these numbers are left out: those of recorded cells and of policies without steps.
    """
    values = {name: pl.col("details").str.json_path_match(f"$.{name}").cast(pl.Float64) for name in DETAILS}
    parts = [CHAINS.to_frame()]
    for cell in cells:
        for stream in cell.streams:
            if cell.recorded_counts or stream.controller != "power":
                continue
            for shard in shards_of(layout.generation(cell.checkpoint, cell.benchmark, stream.id)):
                if shard.present:
                    rows = shards.read(shard, stream.id, ["question", "details"])
                    where = {"checkpoint": cell.checkpoint, "benchmark": cell.benchmark, "policy": stream.policies[0]}
                    names = {key: pl.lit(name) for key, name in where.items()}
                    parts.append(rows.with_columns(**names, **values).select(CHAINS.names()).cast(CHAINS).drop_nulls())
    return pl.concat(parts)
