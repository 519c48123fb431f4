"""The store of samples: schema, atomic publication, reading with checks, verification and pruning.

A shard is a range of samples of every question of one generation. It is published by hard link, which never overwrites,
and described by a JSON sidecar (rows, bytes, sha256, tokens, wall seconds, device). The Parquet file has only
content, so sampling again on the same kind of machine gives the same bytes.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from searchlens.errors import InputError
from searchlens.store import files
from searchlens.store.files import file_sha256
from searchlens.store.frames import DAMAGED, IMPORT_AGAIN, read_unvouched
from searchlens.store.layout import Layout, chunks_of, parse_shard, shard_name
from searchlens.store.ranges import Shard, shard_at, shards_of, uncovered

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
    """How a shard was made and at what cost: recorded in its sidecar, never part of its content."""

    wall_seconds: float
    """Of sampling, without loading of the model; the shard's share if others were sampled at the same time
    (``sampling.sample``)."""
    device: str
    """As torch names it."""
    device_count: int
    """Devices held during that time."""
    engine: str
    """Family and version."""
    prefilled: int = 0
    reused: int = 0
    """``prefilled``, ``reused``: tokens of prompts and prefixes that were computed, and that were not computed again.
    With the columns ``generated`` and ``requests`` of the samples, the work of the engine."""
    mean_running: float = 0.0
    """Mean number of requests per step of the engine, those of other shards included; 0 if there is no record."""
    gpu_seconds: float = 0.0
    """``wall_seconds`` times GPUs; 0 on a CPU."""
    host: str = ""
    version: str = ""
    commit: str = ""
    config: str = ""
    slurm_job: str = ""
    """``host``, ``version``, ``commit``, ``config``, ``slurm_job``: node, searchlens and its commit
    (``provenance.commit``), fingerprint of the configuration, Slurm job. Several, joined, if a job was resumed
    elsewhere; ``device`` and ``engine`` likewise."""
    finished: str = ""
    """UTC."""
    specials: str = ""
    """``Prompter.record`` as JSON: where texts begin and end, what is never drawn, and a hash of what makes prompts."""


_MEETINGS = 10
"""How often a shard is published again that other jobs take for a damaged one before it, and move away."""


def publish(
    folder: Path,
    start: int,
    stop: int,
    samples: pl.DataFrame | Callable[[], Iterable[pl.DataFrame]],
    *,
    generation_id: str,
    policies: Iterable[str],
    provenance: Provenance,
) -> Shard:
    """Publish samples [start, stop) of a generation with their sidecar; an existing shard stays as it is.

    Samples have the columns of ``SAMPLES``, every question once per sample, in benchmark order. Instead, a function may
    give them in pieces, one in memory at a time; it is called again if an unusable file was there. The id is written
    into the file, so that a shard in the wrong place is noticed. Names of policies are for people.
    """
    target, names = folder / shard_name(start, stop), list(policies)
    metadata, totals = _metadata(start, stop, generation_id), Counter[str]()

    def write(path: Path) -> None:
        totals.clear()
        totals.update(_totals(pl.DataFrame(schema=SAMPLES)))  # zeros, for no pieces
        with _writer(path, metadata) as writer:
            for frame in [samples] if isinstance(samples, pl.DataFrame) else samples():
                piece = frame.select(SAMPLES.names()).cast(SAMPLES)
                writer.write_table(piece.to_arrow().cast(writer.schema))
                totals.update(_totals(piece))

    height = samples.height if isinstance(samples, pl.DataFrame) else None
    for _ in range(_MEETINGS):
        there = _published(target, write, height, metadata)
        known = totals if there is None else _totals(there)
        shard = _with_sidecar(target, (start, stop), known, generation_id, names, provenance)
        if shard is not None:
            return shard
    raise InputError(f"{target} is moved away whenever it is written", "run the same command again, alone")


def _metadata(start: int, stop: int, generation_id: str) -> dict[str, str]:
    return {
        "searchlens.schema": str(SCHEMA_VERSION),
        "searchlens.generation": generation_id,
        "searchlens.range": f"{start}-{stop}",
    }


def _writer(path: Path, metadata: Mapping[str, str]) -> pq.ParquetWriter:
    """A writer of the columns, metadata, compression and pages of a shard."""
    return pq.ParquetWriter(
        path,
        pl.DataFrame(schema=SAMPLES).to_arrow().schema.with_metadata(dict(metadata)),
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
        **{name: int(samples[name].sum()) for name in ("generated", "requests")},
    }


def _with_sidecar(
    target: Path,
    samples: tuple[int, int],
    totals: Mapping[str, int],
    generation_id: str,
    policies: Iterable[str],
    provenance: Provenance,
) -> Shard | None:
    """The shard, after its sidecar was published; None if another job has moved one of its files away meanwhile."""
    try:
        stat, sha256 = target.stat(), file_sha256(target)
    except FileNotFoundError:
        return None
    sidecar = {
        "generation": generation_id,
        "policies": list(policies),
        "start": samples[0],
        "stop": samples[1],
        **totals,
        "bytes": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "sha256": sha256,
        **asdict(provenance),
    }
    path = target.with_suffix(".json")
    files.publish(path, lambda temporary: temporary.write_text(json.dumps(sidecar, indent=1)))
    return shard_at(path)


def _published(
    target: Path, write: Callable[[Path], None], height: int | None, metadata: Mapping[str, str]
) -> pl.DataFrame | None:
    """Publish samples; a usable file that exists already stays, and its counts are returned instead.

    Such a file is from another job that samples the same pool at the same time, or from a job that was killed before it
    wrote the sidecar. It is usable if it has the same metadata and, where ``height`` is known, as many rows.
    """
    if files.publish(target, write):
        return None
    looked_at, content = _file_number(target), None
    with suppress(FileNotFoundError):
        content = read_unvouched(target, columns=["n_tokens", "generated", "requests"])
    if content:
        existing, stated = content
        same, shard = height is None or existing.height == height, shard_at(target.with_suffix(".json"))
        if same and metadata.items() <= stated.items() and not (shard and _change(shard)):
            return existing
    if looked_at == _file_number(target):  # otherwise another job has put its shard there
        put_away(target)
    files.publish(target, write)
    return None


def put_away(path: Path) -> None:
    """Move a shard that cannot be used, and its sidecar, to names beside them that nothing reads."""
    for file in (path, path.with_suffix(".json")):
        aside = file.with_suffix(f"{file.suffix}.unreadable" if file.suffix == ".json" else ".unreadable")
        if file.exists() and files.move(file, aside):
            log.warning("%s cannot be used: moved to %s", file, aside.name)


_AGAIN = "`searchlens run` samples damaged shards again, and only them"
_REPAIR = "`searchlens verify --repair` sets such shards aside; then run again: only they are sampled again"


def _damaged(shard: Shard, why: str, hint: str = _AGAIN) -> InputError:
    """What is said of a damaged shard; ``hint`` is what to do if it was sampled here."""
    is_imported = shard.sidecar.get("engine") == "imported"
    return InputError(f"shard {shard.path} cannot be used: {why}", IMPORT_AGAIN if is_imported else hint)


def read(
    shard: Shard, generation_id: str, columns: Iterable[str] | None = None, questions: Collection[str] | None = None
) -> pl.DataFrame:
    """Samples of one shard, checked against its sidecar and its id; of some questions alone if their ids are given.

    The bytes are hashed, once in the life of a process. A shard whose bytes were changed gets a new time, by which the
    next plan notices it. Raises InputError if the shard is missing, truncated, changed, of another range, generation or
    schema, or without some of its samples: the message names the file, what is wrong and what to do.
    """
    shard = _sound(shard)
    content = files.read_bytes(shard.path)
    try:
        metadata = pl.read_parquet_metadata(content)
        rows = pl.scan_parquet(content)
        rows = rows if questions is None else rows.filter(pl.col("question").is_in(list(questions)))
        samples = (rows.select(list(columns)) if columns else rows).collect()
    except DAMAGED as error:
        raise _damaged(shard, f"it is not readable Parquet ({str(error).splitlines()[0]})", _REPAIR) from None
    generation, schema, stated = (metadata.get(f"searchlens.{key}") for key in ("generation", "schema", "range"))
    why = ""
    if generation != generation_id:
        why = f"it belongs to generation {generation!r}, not {generation_id!r} (foreign)"
    elif schema != str(SCHEMA_VERSION):
        why = f"its schema version is {schema!r}, this searchlens reads {SCHEMA_VERSION}"
    elif stated != f"{shard.start}-{shard.stop}":
        why = f"it holds the samples {stated}, not those of its name"
    elif questions is None and samples.height != shard.sidecar["rows"]:
        why = f"it has {samples.height} rows, its sidecar says {shard.sidecar['rows']}"
    elif {"question", "sample"} <= set(samples.columns) and not _is_whole(samples, shard.start, shard.stop):
        why = f"it has not each sample {shard.start} to {shard.stop} of its questions once"
    if why:
        raise _damaged(shard, why, _REPAIR)
    return samples


def _sound(shard: Shard) -> Shard:
    """The shard, if its file is there with the bytes that its sidecar states; as another job has just replaced it."""
    why = _change(shard)
    if why and (now := shard_at(shard.path.with_suffix(".json"))) is not None and not (again := _change(now)):
        return now
    if why:
        with suppress(OSError):  # of the file, or of a folder that one may only read
            os.utime(shard.path)
        raise _damaged(shard, why if now is None else again)
    return shard


def _change(shard: Shard) -> str:
    """What is wrong with the bytes of a shard; empty if nothing is."""
    if shard.flaw:
        return shard.flaw
    try:
        stat = shard.path.stat()
        if stat.st_size != shard.sidecar["bytes"]:
            return f"it has {stat.st_size} bytes, its sidecar says {shard.sidecar['bytes']} (truncated?)"
        content = _hash_once(shard.path, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    except FileNotFoundError:
        return "it is missing"
    return "" if content == shard.sidecar["sha256"] else "its sha256 is not the one in its sidecar (bytes were changed)"


@lru_cache(maxsize=65_536)
def _hash_once(path: Path, *_: int) -> str:
    """sha256 of a file; the other arguments tell it from an earlier one at its path."""
    return file_sha256(path)


def _is_whole(samples: pl.DataFrame, start: int, stop: int) -> bool:
    """Whether each of the questions has each sample of a range once."""
    if samples.is_empty():
        return True
    numbers, questions = samples["sample"], samples["question"].n_unique()
    return (
        samples.height == questions * (stop - start)
        and int(numbers.min()) >= start  # type: ignore[arg-type]  # not empty
        and int(numbers.max()) < stop  # type: ignore[arg-type]
        and not samples.select("question", "sample").is_duplicated().any()
    )


def read_generation(
    folder: Path, samples: int, columns: Iterable[str] | None = None, questions: Collection[str] | None = None
) -> pl.DataFrame:
    """Samples [0, samples) of the generation of a folder, from all shards that it needs; InputError if one lacks."""
    there = shards_of(folder)
    if missing := uncovered(there, samples):
        is_imported = any(shard.sidecar.get("engine") == "imported" for shard in there)
        hint = IMPORT_AGAIN if is_imported else "`searchlens run` samples the missing ones"
        raise InputError(f"{folder} has no samples {', '.join(f'{a} to {b}' for a, b in missing)}", hint)
    names = list(columns) if columns else None
    used = (shard for shard in there if shard.present and shard.start < samples)
    parts = [read(shard, folder.name, names, questions) for shard in used]
    rows = (
        pl.concat(parts)
        .filter(pl.col("sample") < samples)
        .unique(["question", "sample"], keep="first", maintain_order=True)
    )
    if rows.height != (due := rows["question"].n_unique() * samples):
        raise InputError(
            f"the shards in {folder} have {rows.height} of {due} samples: not all are of the same questions", _REPAIR
        )
    return rows


def verify(layout: Layout) -> Iterator[tuple[Shard, str]]:
    """Read every shard in a store, and compare it with its sidecar; yields what is wrong, empty if nothing is.

    The times of sound copies are updated, if the folder is writable. A shard whose bytes were changed gets a new time,
    so that the next run makes it again.
    """
    for sidecar in layout.sidecars():
        if shard := shard_at(sidecar):
            yield shard, _damage(shard)


def _damage(shard: Shard) -> str:
    try:
        for key, total in _totals(read(shard, shard.path.parent.name)).items():
            if (stated := shard.sidecar.get(key, total)) != total:
                raise _damaged(shard, f"its sidecar says {stated} {key}, it has {total}", _REPAIR)
    except InputError as error:
        return error.message
    time_now = shard.path.stat().st_mtime_ns
    if time_now != shard.sidecar["mtime_ns"] and os.access(shard.path.parent, os.W_OK):
        with suppress(InputError):  # of a full disk
            text = json.dumps({**shard.sidecar, "mtime_ns": time_now}, indent=1)
            files.replace(shard.path.with_suffix(".json"), lambda path: path.write_text(text))
    return ""


def take_over(layout: Layout, found: Iterable[Shard], folder: Path) -> None:
    """Give the folder of a generation those shards that lie in others, with the records of their searches."""
    for shard in (each for each in found if each.path.parent != folder):
        log.info("%s has the samples of %s", folder, shard.path)
        path = folder / shard.path.name
        for source, target in ((shard.path, path), (layout.trace_of(shard.path), layout.trace_of(path))):
            for suffix in (".json", ".parquet"):  # a shard that lost its sidecar gets one that knows no costs
                if source.with_suffix(suffix).exists():
                    files.link(source.with_suffix(suffix), target.with_suffix(suffix))


# ---- what was damaged


def set_aside(layout: Layout, unwanted: Iterable[Shard]) -> list[Path]:
    """Move shards, sidecars and records of their searches into ``aside/<time>-<process>/``; nothing is deleted.

    The sidecar goes first: without it there is no shard, whatever happens meanwhile. Who moves it moves the rest: a job
    that comes later would move what the first one has made again. Returns the new paths.
    """
    moved = []
    for shard in unwanted:
        trace, looked_at = layout.trace_of(shard.path), _file_number(shard.path)
        if claimed := _claimed(layout, shard):
            samples = [shard.path] if looked_at == _file_number(shard.path) else []  # not what was made again meanwhile
            moved += [claimed, *files.aside(layout, [*samples, trace])]
    return moved


def _claimed(layout: Layout, shard: Shard) -> Path | None:
    """The sidecar of a shard, moved aside; None if another job was first, or has made the shard again."""
    sidecar = shard.path.with_suffix(".json")
    now = shard_at(sidecar)
    if now is None or now.sidecar != shard.sidecar:
        return None
    for path in files.aside(layout, [sidecar]):
        if not shard.sidecar or json.loads(path.read_bytes()) == shard.sidecar:
            return path
        files.move(path, sidecar)
    return None


def repair(layout: Layout, folder: Path, vouched: Mapping[str, Collection[str]]) -> list[Path]:
    """Set aside what is damaged in the folder of a generation, and describe whole shards that lost their sidecar anew.

    Shards whose chunks are there are left alone: the job that publishes them knows more of them. ``vouched`` has the
    hashes that manifests state of a shard, by its name; one with another hash is not described anew. Returns the new
    paths of what was set aside.
    """
    there = shards_of(folder)
    torn = [shard.path.with_suffix(".json") for shard in there if shard.flaw and not shard.sidecar]
    still = [path for path in torn if (now := shard_at(path)) and now.flaw]  # and not set aside by another job
    moved = files.aside(layout, still)
    moved += set_aside(layout, [shard for shard in there if shard.sidecar and not shard.present])
    for path in (path for path in files.entries(folder) if path.suffix == ".parquet"):
        samples = parse_shard(path)
        # In this order, because another job removes chunks only after it has written the shard's sidecar.
        if samples is None or chunks_of(folder, samples) or path.with_suffix(".json").exists():
            continue
        looked_at = _file_number(path)
        if not _adopted(path, samples, vouched.get(path.name, ())) and looked_at == _file_number(path):
            moved += files.aside(layout, [path])
    return moved


def _file_number(path: Path) -> int:
    """By which a file is told from one that another job has put in its place; 0 if none is there."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def _adopted(path: Path, samples: tuple[int, int], hashes: Collection[str]) -> bool:
    """Write the sidecar of a shard that is whole but has none; False if it is not whole, or another job moved it."""
    try:
        content = None if hashes and file_sha256(path) not in hashes else read_unvouched(path)
    except FileNotFoundError:
        return False
    if content is None:
        return False
    rows, metadata = content
    expected = _metadata(*samples, path.parent.name)
    if rows.schema != SAMPLES or not expected.items() <= metadata.items() or not _is_whole(rows, *samples):
        return False
    unknown = Provenance(0.0, "unknown", 0, "unknown: the sidecar was lost")
    if _with_sidecar(path, samples, _totals(rows), path.parent.name, (), unknown) is None:
        return False
    log.warning("%s had no sidecar; it is whole and got a new one", path)
    return True
