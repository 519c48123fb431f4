"""Command ``referee``: one table and one figure of how close samplers of p^alpha come to it, and at which cost."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from searchlens.analysis.claims import percent
from searchlens.plan import Grid
from searchlens.reporting.figures import style
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.table import Part, Table, write
from searchlens.store.frames import write_frame
from searchlens_lab.equivalence import referee
from searchlens_lab.equivalence import samplers_figure as figure
from searchlens_lab.equivalence.subject import Subject

NOTES = (
    "Total variation from p^4, by exact enumeration: 0 is the law itself, 1 has nothing in common with it. Tokens:"
    " drawn for one text, mean; those of proposals, particles and rollouts that are thrown away count.",
    "Right: share of right answers on a checkpoint, one text for each question, with the 95% Wilson interval. A sampler"
    " that is closer to p^4 need not be right more often.",
)


def write_referee(grid: Grid, output: Path, *, runs: int, threads: int = 1) -> list[Path]:
    """Compare all samplers, and write ``referee.{parquet,csv,md,tex,html}`` and ``referee_distance.{svg,pdf,png,csv}``.

    ``grid``: its compared checkpoint answers the first questions of its benchmark (section ``equivalence``).
    ``output``: folder of the files. ``runs``: texts of each sampler and toy. ``threads``: CPU threads of the engine.
    Returns the files.
    """
    subject = Subject.of(grid, threads)
    accuracies = referee.accuracies(subject)
    subject.close()
    return write_results(referee.distances(runs), accuracies, output)


def write_results(distances: pl.DataFrame, accuracies: pl.DataFrame, output: Path) -> list[Path]:
    """Write table and figure from ``referee.DISTANCES`` and ``referee.ACCURACIES``."""
    table = table_of(distances, accuracies)
    output.mkdir(parents=True, exist_ok=True)
    write_frame(table.data, output / "referee.parquet")
    files = [output / "referee.parquet", *write(table, output / "referee")]
    return [*files, *style.save(figure.draw(distances), output / "referee_distance", distances)]


def table_of(distances: pl.DataFrame, accuracies: pl.DataFrame) -> Table:
    """One row for each sampler and setting: distance and tokens on every toy, share of right answers and tokens."""
    toys = distances["toy"].unique(maintain_order=True).to_list()
    data = distances.select("sampler", "setting").unique(maintain_order=True)
    for toy in toys:
        names = {name: f"{name}_{toy}" for name in ("distance", "noise", "tokens")}
        rows = distances.filter(toy=toy).select("sampler", "setting", *names).rename(names)
        data = data.join(rows, on=["sampler", "setting"], how="left", maintain_order="left")
    data = data.join(accuracies, on=["sampler", "setting"], how="left", maintain_order="left")
    lines = [
        {
            "sampler": row["sampler"],
            "setting": row["setting"],
            **{
                key: text
                for toy in toys
                for key, text in (
                    (f"{toy}: distance", f"{row[f'distance_{toy}']:.3f}"),
                    (f"{toy}: tokens", f"{row[f'tokens_{toy}']:,.0f}"),
                )
            },
            "right (%)": "" if row["accuracy"] is None else percent(row["accuracy"], row["lo"], row["hi"]),
            "log p": "" if row["log_p"] is None else f"{row['log_p']:.2f}",
            "tokens": "" if row["tokens"] is None else f"{row['tokens']:,.0f}",
        }
        for row in data.iter_rows(named=True)
    ]
    noise = ", ".join(f"{toy} {data[f'noise_{toy}'][0]:.3f}" for toy in toys)
    notes = [f"By chance alone {distances['runs'][0]:,} draws from p^4 itself are away: {noise}.", *NOTES]
    return Table(
        data, [Part(fmt.text_frame(lines, missing=""), rule_before=fmt.changes(data["sampler"].to_list()))], notes
    )
