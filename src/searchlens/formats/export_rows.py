"""A row for each sample, with the names of our own format of samples (docs/import.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from searchlens.catalogue import exporter
from searchlens.formats.export import ROWS, Pool, Record
from searchlens.store import frames

LOST = "token ids and log-probabilities of each token; which samples a search returned together"

_SCHEMA = pl.Schema(
    {
        "question": pl.String(),
        "sample": pl.Int64(),
        "text": pl.String(),
        "tokens": pl.Int64(),
        "logprob": pl.Float64(),
        "finish": pl.String(),
        "gold": pl.String(),
        "prompt": pl.String(),
        "policy": pl.String(),
        "model": pl.String(),
        "correct": pl.Boolean(),
        "answer": pl.String(),
    }
)
"""``logprob`` is the mean over tokens, as in docs/import.md."""


@exporter("jsonl")
def write_jsonl(pool: Pool, out: Path) -> Iterator[Path]:
    """JSON lines; what is not known is left out."""
    path = pool.folder(out) / "samples.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for row in _rows(pool):
            file.write(json.dumps({key: value for key, value in row.items() if value is not None}) + "\n")
    yield path


@exporter("parquet")
def write_parquet(pool: Pool, out: Path) -> Iterator[Path]:
    """Parquet."""
    path, schema = pool.folder(out) / "samples.parquet", _SCHEMA.to_frame().to_arrow().schema
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for frame in _frames(pool):
            writer.write_table(frame.to_arrow())
    yield path


@exporter("csv")
def write_csv(pool: Pool, out: Path) -> Iterator[Path]:
    """Comma-separated values, in which texts that a spreadsheet would run as formulas have a quote before them."""
    path = pool.folder(out) / "samples.csv"
    with path.open("wb") as file:
        for number, frame in enumerate(_frames(pool)):
            frames.without_formulas(frame).write_csv(file, include_header=not number)
    yield path


def _frames(pool: Pool) -> Iterator[pl.DataFrame]:
    """``_rows``, some of them at a time."""
    rows = _rows(pool)
    while part := list(islice(rows, ROWS)):
        yield pl.DataFrame(part, schema=_SCHEMA)


def _rows(pool: Pool) -> Iterator[Record]:
    for question, row in pool.rows():
        tokens, logprob = row["tokens"], row["logprob"]
        known = row | {"question": question["id"], "gold": question["gold"], "prompt": question["prompt"]}
        known |= {"policy": pool.policy, "model": pool.checkpoint}
        known["logprob"] = logprob / tokens if logprob is not None and tokens else None
        yield {name: known[name] for name in _SCHEMA}
