"""The store of samples: schema, atomic publication, reading with checks, verification and pruning.

A shard is a range of samples of every question of one generation. It is published by hard link, which never overwrites,
and described by a JSON sidecar (rows, bytes, sha256, tokens, wall seconds, device). The Parquet file has only
content, so sampling again on the same kind of machine gives the same bytes.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
from polars.exceptions import PolarsError

from searchlens.errors import InputError
from searchlens.store import files
from searchlens.store.files import read_json
from searchlens.store.hashing import file_sha256
from searchlens.store.layout import Layout, shard_name
from searchlens.store.ranges import Shard, missing_ranges, shard_at, shards_of

log = logging.getLogger(__name__)

SCHEMA_VERSION = 2

PAGE = 65_536
"""Bytes of a page before compression. A reader of one question fetches the pages that hold its rows, a tenth of what it
would fetch in pages of 1 MB; files are 3% larger."""

SAMPLES = pl.Schema(
    {
        "question": pl.String(),
        "sample": pl.UInt32(),
        "run": pl.UInt32(),
        "text": pl.String(),
        "tokens": pl.List(pl.Int32()),
        "logprobs": pl.List(pl.Float32()),
        "sampling_logprobs": pl.List(pl.Float32()),
        "n_tokens": pl.UInt32(),
        "mean_logprob": pl.Float32(),
        "score": pl.Float32(),
        "finish": pl.String(),
        "generated": pl.UInt32(),
        "requests": pl.UInt32(),
        "details": pl.String(),
    }
)
"""One row per sample. ``tokens`` and the log-probabilities are null for imported samples without them.

A ``run`` is one search: its candidates are consecutive samples, the best first, and not independent draws.
``score`` is the evaluator's, minus infinity where the run failed (``finish`` is then ``failed``). ``generated`` (tokens
drawn, returned or not) and ``requests`` are the run's, on its first sample, and 0 on the others. ``details``: JSON,
the controller's record of its search, or why it failed."""


@dataclass(frozen=True)
class Provenance:
    """How a shard was made and at what cost: recorded in its sidecar, never part of its content.

    Attributes
    ----------
    wall_seconds : float
        Of sampling, without loading of the model; the shard's share if others were sampled at the same time
        (``generate.sample``).
    device : str
        As torch names it.
    device_count : int
        Devices held during that time.
    engine : str
        Family and version.
    prefilled, reused : int
        Tokens of prompts and prefixes that were computed, and that were not computed again. With the columns
        ``generated`` and ``requests`` of the samples, the work of the engine.
    mean_running : float
        Mean number of requests per step of the engine, those of other shards included; 0 if there is no record.
    gpu_seconds : float
        ``wall_seconds`` times GPUs; 0 on a CPU.
    host, version, commit, config, slurm_job : str
        Node, searchlens and its commit (``provenance.commit``), fingerprint of the configuration, Slurm job. Several,
        joined, if a job was resumed elsewhere; ``device`` and ``engine`` likewise.
    finished : str
        UTC.
    """

    wall_seconds: float
    device: str
    device_count: int
    engine: str
    prefilled: int = 0
    reused: int = 0
    mean_running: float = 0.0
    gpu_seconds: float = 0.0
    host: str = ""
    version: str = ""
    commit: str = ""
    config: str = ""
    slurm_job: str = ""
    finished: str = ""


def _ordered(samples: pl.DataFrame) -> pl.DataFrame:
    return samples.select(SAMPLES.names()).cast(SAMPLES)


def write_parquet(samples: pl.DataFrame, path: Path, metadata: Mapping[str, str]) -> None:
    """Write samples with metadata; zstd level 3, in pages of ``PAGE``, with an index of them (polars writes it)."""
    _ordered(samples).write_parquet(
        path, compression="zstd", compression_level=3, data_page_size=PAGE, metadata=dict(metadata)
    )


def publish(
    folder: Path,
    start: int,
    stop: int,
    samples: pl.DataFrame,
    *,
    generation_id: str,
    policies: Iterable[str],
    provenance: Provenance,
) -> Shard:
    """Publish samples [start, stop) of a generation with their sidecar; an existing shard stays as it is.

    Parameters
    ----------
    folder : Path
        ``Layout.generation``.
    start, stop : int
        Range of the sample stream.
    samples : DataFrame
        Columns of ``SAMPLES``; every question once per sample, in benchmark order.
    generation_id : str
        Written into the file, so that a shard in the wrong place is noticed.
    policies : iterable of str
        Names, for people.
    provenance : Provenance

    Returns
    -------
    Shard
    """
    target = folder / shard_name(start, stop)
    metadata = _metadata(start, stop, generation_id)
    published = _published(target, lambda path: write_parquet(samples, path, metadata), samples.height, metadata)
    totals = _totals(samples if published is None else published)
    return _with_sidecar(target, start, stop, totals, generation_id, policies, provenance)


def publish_frames(
    folder: Path,
    start: int,
    stop: int,
    frames: Iterable[pl.DataFrame],
    *,
    generation_id: str,
    policies: Iterable[str],
    provenance: Provenance,
) -> Shard:
    """As ``publish``, of samples that come in pieces, of which one is in memory at a time.

    Parameters
    ----------
    frames : iterable of DataFrame
        Columns of ``SAMPLES``; one after another they have every question once per sample, in benchmark order.
    """
    target = folder / shard_name(start, stop)
    metadata = _metadata(start, stop, generation_id)
    totals = dict.fromkeys(_totals(pl.DataFrame(schema=SAMPLES)), 0)

    def write(path: Path) -> None:
        totals.update(dict.fromkeys(totals, 0))  # it is called again if an unusable file was in the way
        with _writer(path, metadata) as writer:
            for frame in frames:
                samples = _ordered(frame)
                writer.write_table(samples.to_arrow().cast(writer.schema))
                for name, value in _totals(samples).items():
                    totals[name] += value

    published = _published(target, write, None, metadata)
    return _with_sidecar(
        target, start, stop, totals if published is None else _totals(published), generation_id, policies, provenance
    )


def _metadata(start: int, stop: int, generation_id: str) -> dict[str, str]:
    return {
        "searchlens.schema": str(SCHEMA_VERSION),
        "searchlens.generation": generation_id,
        "searchlens.range": f"{start}-{stop}",
    }


def _writer(path: Path, metadata: Mapping[str, str]) -> pq.ParquetWriter:
    """A writer of the columns, metadata, compression and pages of ``write_parquet``."""
    schema = pl.DataFrame(schema=SAMPLES).to_arrow().schema.with_metadata(dict(metadata))
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=3,
        use_dictionary=["question", "finish"],
        data_page_size=PAGE,
        write_batch_size=64,  # after so many values it looks whether the page is full
        write_page_index=True,
    )


def _totals(samples: pl.DataFrame) -> dict[str, int]:
    """Rows and sums of the sidecar."""
    return {
        "rows": samples.height,
        "tokens": int(samples["n_tokens"].sum()),
        "generated": int(samples["generated"].sum()),
        "requests": int(samples["requests"].sum()),
    }


def _with_sidecar(
    target: Path,
    start: int,
    stop: int,
    totals: Mapping[str, int],
    generation_id: str,
    policies: Iterable[str],
    provenance: Provenance,
) -> Shard:
    """The shard, after its sidecar was published."""
    sidecar = {
        "generation": generation_id,
        "policies": list(policies),
        "start": start,
        "stop": stop,
        **totals,
        "bytes": target.stat().st_size,
        "mtime_ns": target.stat().st_mtime_ns,
        "sha256": file_sha256(target),
        **asdict(provenance),
    }
    files.publish(target.with_suffix(".json"), lambda path: _write_sidecar(path, sidecar))
    return Shard(target, start, stop, read_json(target.with_suffix(".json")))


def _published(
    target: Path, write: Callable[[Path], None], height: int | None, metadata: Mapping[str, str]
) -> pl.DataFrame | None:
    """Publish samples; a usable file that exists already stays, and its counts are returned instead.

    Such a file is from another job that samples the same pool at the same time, or from a job that was killed before it
    wrote the sidecar. It is usable if it has the same metadata and, where ``height`` is known, as many rows.
    """
    if files.publish(target, write):
        return None
    try:
        existing = pl.read_parquet(target, columns=["n_tokens", "generated", "requests"])
        same = height is None or existing.height == height
        if same and metadata.items() <= pl.read_parquet_metadata(target).items():
            return existing
    except (PolarsError, OSError):
        pass
    aside = target.with_suffix(".unreadable")
    log.warning("%s cannot be used and has no sound sidecar: moved to %s", target, aside.name)
    target.replace(aside)
    files.publish(target, write)
    return None


def _write_sidecar(path: Path, sidecar: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(dict(sidecar), indent=1))


def _damaged(path: Path, why: str) -> InputError:
    hint = "`searchlens verify` lists every such shard; run snakemake again: only damaged shards are sampled again"
    return InputError(f"shard {path} cannot be used: {why}", hint)


def read(
    shard: Shard, generation_id: str, columns: Iterable[str] | None = None, questions: Collection[str] | None = None
) -> pl.DataFrame:
    """Samples of one shard, checked against its sidecar and its id; of some questions alone if their ids are given.

    Raises
    ------
    InputError
        Missing, truncated, of another generation or schema: the message names the file, what is wrong and what to do.
    """
    if not shard.path.exists():
        raise _damaged(shard.path, "it is missing")
    size = shard.path.stat().st_size
    if size != shard.sidecar["bytes"]:
        raise _damaged(shard.path, f"it has {size} bytes, its sidecar says {shard.sidecar['bytes']} (truncated?)")
    if not shard.present:
        raise _damaged(shard.path, "its sha256 is not the one in its sidecar (bytes were changed)")
    try:
        metadata = pl.read_parquet_metadata(shard.path)
        samples = _rows(shard.path, columns, questions)
    except (PolarsError, OSError) as error:
        raise _damaged(shard.path, f"it is not readable Parquet ({str(error).splitlines()[0]})") from None
    if metadata.get("searchlens.generation") != generation_id:
        raise _damaged(
            shard.path,
            f"it belongs to generation {metadata.get('searchlens.generation')!r}, not {generation_id!r} (foreign)",
        )
    if metadata.get("searchlens.schema") != str(SCHEMA_VERSION):
        raise _damaged(
            shard.path,
            f"its schema version is {metadata.get('searchlens.schema')!r}, this searchlens reads {SCHEMA_VERSION}",
        )
    if questions is None and samples.height != shard.sidecar["rows"]:
        raise _damaged(shard.path, f"it has {samples.height} rows, its sidecar says {shard.sidecar['rows']}")
    return samples


def _rows(path: Path, columns: Iterable[str] | None, questions: Collection[str] | None) -> pl.DataFrame:
    rows = pl.scan_parquet(path)
    rows = rows if questions is None else rows.filter(pl.col("question").is_in(list(questions)))
    return (rows.select(list(columns)) if columns else rows).collect()


def read_generation(
    folder: Path,
    generation_id: str,
    samples: int,
    columns: Iterable[str] | None = None,
    questions: Collection[str] | None = None,
) -> pl.DataFrame:
    """Samples [0, samples) of one generation, from all shards that they need; of some questions if their ids are given.

    Raises
    ------
    InputError
        A range is missing, or a shard cannot be used.
    """
    if missing := missing_ranges(folder, samples):
        raise InputError(f"{folder} has no samples {missing}", "run snakemake again: it samples the missing ones")
    names = list(columns) if columns else None
    parts = [
        read(shard, generation_id, names, questions)
        for shard in shards_of(folder)
        if shard.present and shard.start < samples
    ]
    return (
        pl.concat(parts)
        .filter(pl.col("sample") < samples)
        .unique(["question", "sample"], keep="first", maintain_order=True)
    )


def verify(layout: Layout) -> Iterator[tuple[Path, str]]:
    """Compare the hash of every shard in a store with its sidecar, and read it; update the times of sound copies.

    Parameters
    ----------
    layout : Layout
        Of the results folder; if it is not writable, times are not updated.

    Yields
    ------
    tuple of (Path, str)
        Sidecar of a shard, and what is wrong with the shard; empty if nothing is.
    """
    for sidecar in layout.sidecars():
        yield sidecar, _damage(sidecar)


def _damage(sidecar: Path) -> str:
    try:
        shard = shard_at(sidecar)
        if shard is None:
            return ""
        if shard.path.exists() and file_sha256(shard.path) != shard.sidecar["sha256"]:
            raise _damaged(shard.path, "its sha256 is not the one in its sidecar (bytes were changed)")
        read(shard, sidecar.parent.name)
    except InputError as error:
        return error.message
    except KeyError as error:
        return f"{sidecar} has no key {error}"
    time_now = shard.path.stat().st_mtime_ns
    if time_now != shard.sidecar["mtime_ns"] and os.access(sidecar.parent, os.W_OK):
        files.replace(sidecar, lambda path: _write_sidecar(path, {**shard.sidecar, "mtime_ns": time_now}))
    return ""


def set_aside(layout: Layout, unwanted: Iterable[Shard]) -> list[Path]:
    """Move shards, sidecars and records of their searches out of the store, into ``aside/<time>/``; nothing is deleted.

    Returns
    -------
    list of Path
        Their new paths.
    """
    stamp = time.strftime("%Y%m%dT%H%M%S")
    moved = []
    for shard in unwanted:
        trace = layout.trace_of(shard.path)
        for path in (shard.path, shard.path.with_suffix(".json"), trace, trace.with_suffix(".json")):
            if path.exists():
                target = layout.aside(stamp, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                moved.append(Path(shutil.move(path, target)))
    return moved
