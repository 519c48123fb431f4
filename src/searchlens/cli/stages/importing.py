"""``searchlens import``: samples from elsewhere into the store, where the next run reads them like its own."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pyarrow.parquet as pq

from searchlens import grading
from searchlens.benchmarks import OWN, dumps
from searchlens.errors import NAME, NAMES, InputError, one_line, printable
from searchlens.formats.checks import Check, check, report
from searchlens.formats.pools import RECORDED, Pool
from searchlens.formats.reading import Choices, Reading, read
from searchlens.grading.score import RECORDED as RECORDED_BY
from searchlens.grading.score import is_recorded, scorer_of
from searchlens.plan import Import
from searchlens.store import files, shards
from searchlens.store.ranges import Shard

if TYPE_CHECKING:
    from searchlens.plan import Grid


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is imported as what."""

    pair: str
    benchmark: str
    """``pair``, ``benchmark``: what the samples are of; both may be new."""
    grader: str = "math"
    """Grader of a new benchmark; ``recorded`` or ``recorded:SCORER`` for the verdicts of the log."""
    subset: str = ""
    """Name of a new benchmark of those questions that have samples; empty: all must have some."""
    choices: Choices = field(default_factory=Choices)
    is_confirmed: bool = False
    """Store also what the checks speak against, and policies of which the log does not state everything."""


class Imported(NamedTuple):
    """What was stored, or would be: shards and records are empty then."""

    records: list[Import]
    shards: list[Shard]
    checks: list[Check]
    report: list[str]


def import_samples(grid: Grid, paths: Sequence[Path], request: Request, *, is_dry: bool = False) -> Imported:
    """Put samples into the store and register them; ``is_dry`` reads and checks everything, and writes nothing.

    An InputError, before anything is written: a name or a sample is wrong, the grader is unknown or needs more than a
    gold answer, this configuration samples the policy itself, or what was found is doubtful and not confirmed.
    """
    for what, name in (("pair", request.pair), ("benchmark", request.subset or request.benchmark)):
        _require_name(what, name)
    _require_free(grid, request, request.choices.role, request.choices.policy)
    is_known = request.benchmark in _known(grid)
    known = grid.inputs.questions(request.benchmark) if is_known else None
    grader = _grader(grid, request)
    grading.grader(grader)
    choices = replace(request.choices, is_subset=bool(request.subset))
    quotes = not grid.study.terms(request.benchmark)
    with read(paths, known, grader, choices, quotes=quotes, needs_golds=not is_recorded(grader)) as reading:
        pools = reading.pools
        if is_recorded(grader):
            scorer = scorer_of(grader, [pool.tally.scorers for pool in pools])
            grader, pools = f"{RECORDED_BY}:{scorer}", tuple(replace(pool, scorer=scorer) for pool in pools)
        _require_distinct(grid, pools, request)
        checks = [check(pool, grader, quotes=quotes) for pool in pools]
        lines = report(reading, pools, checks)
        if is_dry:
            return Imported([], [], checks, lines)
        _require_named(pools, request)
        _require_sound(pools, checks, request)
        return Imported(*_stored(grid, pools, reading, request, grader, is_known=is_known), checks, lines)


# ---- what the samples are of


def _known(grid: Grid) -> set[str]:
    """Benchmarks that are configured, or were imported before."""
    return set(grid.config.benchmarks) | {item.benchmark for item in grid.study.every_import}


def _grader(grid: Grid, request: Request) -> str:
    """The grader of the benchmark that samples are imported into; an InputError if the log was judged by another."""
    known, wanted = _known(grid), request.grader
    for name in (request.subset, request.benchmark):
        if name not in known:
            if name and is_recorded(wanted):
                return wanted
            continue
        found = grid.study.benchmark(name).grader
        if not is_recorded(wanted) or found == wanted or (wanted == RECORDED_BY and is_recorded(found)):
            return found
        raise InputError(
            f"{name} is judged by {found}, not by {wanted}",
            "one benchmark has one judge: --subset NAME makes another one, of the questions that have samples",
        )
    return wanted


def _require_name(what: str, name: str) -> None:
    if not re.fullmatch(NAME, name):
        raise InputError(f"{what} {one_line(repr(name))} cannot be a name; allowed: {NAMES}")


def _require_free(grid: Grid, request: Request, role: str, policy: str) -> None:
    """An ``InputError`` if a policy cannot have this name, or this study samples it itself."""
    if policy:
        _require_name("policy", policy)
    if not role or not policy:
        return
    checkpoint, benchmark = _checkpoint(grid, request, role), _target(request)
    if any(policy in generation.policies for generation in grid.jobs.generations(checkpoint, benchmark)):
        raise InputError(
            f"this configuration samples {checkpoint}/{benchmark} under {policy!r}",
            "import under another name of the policy",
        )


def _require_distinct(grid: Grid, pools: Sequence[Pool], request: Request) -> None:
    """An ``InputError`` if a pool has the name of another one of this import, or a name that is not free."""
    for pool in pools:
        _require_free(grid, request, pool.role, pool.policy)
        same = [each for each in pools if (each.role, each.policy) == (pool.role, pool.policy)]
        if len(same) > 1 and pool.role and pool.policy:
            sides = f"{pool.role}, {pool.policy}"
            raise InputError(
                f"the files have {len(same)} streams of samples for {sides}: {'; '.join(_told_apart(same))}",
                "name the models: --base MODEL --rl MODEL; or import them one by one, under other names of the policy",
            )


def _told_apart(pools: Sequence[Pool]) -> Iterator[str]:
    """What differs between streams, in words."""
    for pool in pools:
        others = [each.stream.asked for each in pools if each is not pool]
        differing = {key: value for key, value in pool.stream.asked.items() if any(o.get(key) != value for o in others)}
        yield f"{pool.stream.model or 'no model'} {differing or ''}".strip()


def _target(request: Request) -> str:
    return request.subset or request.benchmark


def _checkpoint(grid: Grid, request: Request, role: str) -> str:
    pair = grid.config.pairs.get(request.pair)
    return str(getattr(pair, role)) if pair else f"{request.pair}-{role}"


def _require_named(pools: Sequence[Pool], request: Request) -> None:
    """An ``InputError`` if a pool has no side of the pair, or no policy that is certain."""
    if without := [pool for pool in pools if not pool.role]:
        models = list(dict.fromkeys(pool.stream.model for pool in pools))
        if len(models) > 1:
            named = ", ".join(dict.fromkeys(pool.stream.model or "(no name)" for pool in without))
            raise InputError(f"no side of the pair is known for {named}", "name the models: --base MODEL --rl MODEL")
        raise InputError("which side of the pair drew the samples is not known", "--role base, or --role rl")
    if nameless := [pool for pool in pools if not pool.policy]:
        whose = ", ".join(f"{pool.stream.model or 'the samples'} ({pool.proposal})" for pool in nameless)
        raise InputError(f"the policy is not known of {whose}", "--policy NAME, such as temp_1.0 or topp0.95_t0.6")
    doubtful = [pool for pool in pools if pool.proposal.unstated and not request.choices.policy]
    if doubtful and not request.is_confirmed:
        found = "; ".join(dict.fromkeys(str(pool.proposal) for pool in doubtful))
        raise InputError(
            f"the log does not state everything that decides the policy: {found}",
            "where a parameter is absent, a server takes it from the model's generation_config.json; confirm with"
            f" --policy {doubtful[0].policy}, or name another one" + (", or --yes for all" if len(pools) > 1 else ""),
        )


def _require_sound(pools: Sequence[Pool], checks: Sequence[Check], request: Request) -> None:
    faults = [f"{pool.policy}: {fault}" for pool, found in zip(pools, checks, strict=True) for fault in found.faults]
    if faults and not request.is_confirmed:
        texts = [text for found in checks for text in found.examples]
        hint = "another --grader (docs/grading.md)? another benchmark? --yes imports it as it is"
        raise InputError("\n".join([*faults, *texts[:3]]), hint)


# ---- writing


def _stored(
    grid: Grid, pools: Sequence[Pool], reading: Reading, request: Request, grader: str, *, is_known: bool
) -> tuple[list[Import], list[Shard]]:
    """Publish all samples, then the questions of a new benchmark, then the records, without which nothing is used."""
    target = _target(request)
    path = grid.layout.imported_questions(target)
    family = grid.study.family(request.benchmark)
    part_of = family if family != OWN else ""
    records, published, made = [], [], []
    try:
        for pool in pools:
            folder = grid.layout.generation(_checkpoint(grid, request, pool.role), target, pool.id)
            made += [] if folder.exists() else [folder]
            published.append(_publish(grid, folder, pool, quotes=not grid.study.terms(request.benchmark)))
            known = grid.study.benchmark(target).path if is_known and not request.subset else None
            questions = known if isinstance(known, str) else str(path.relative_to(grid.root))
            names = (request.pair, pool.role, folder.parts[-3], target, pool.policy, pool.id)
            records.append(Import(*names, pool.samples, grader, questions, part_of, _log(pool, reading)))
    except BaseException:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)
            for empty in folder.parents[:2]:
                with suppress(OSError):  # it is not empty
                    empty.rmdir()
        raise
    if request.subset or not is_known:
        recorded: dict[str, Any] = {RECORDED_BY: {}}  # which judges a question without a gold
        judged = [one if one.gold or one.checks else replace(one, checks=recorded) for one in reading.questions]
        files.replace_text(path, dumps(judged))
    for record in records:
        place = grid.layout.import_record(record.benchmark, record.pair, record.role, record.policy)
        files.replace_text(place, json.dumps(asdict(record), indent=1, sort_keys=True))
    return records, published


def _publish(grid: Grid, folder: Path, pool: Pool, *, quotes: bool) -> Shard:
    shard = shards.publish(
        folder,
        0,
        pool.samples,
        pool.frames,
        generation_id=pool.id,
        policies=[pool.policy],
        provenance=shards.Provenance(0.0, "unknown", 0, "imported"),
    )
    if pool.tally.scorers:
        checkpoint, benchmark = folder.parts[-3:-1]
        files.replace(
            grid.layout.recorded(checkpoint, benchmark, pool.id),
            lambda path: _write_recorded(pool, path, quotes=quotes),
        )
    return shard


def _write_recorded(pool: Pool, path: Path, *, quotes: bool) -> None:
    metadata = {"searchlens.quotes": "yes" if quotes else "no"}
    schema = pl.DataFrame(schema=RECORDED).to_arrow().schema.with_metadata(metadata)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for frame in pool.recorded():
            writer.write_table(frame.to_arrow().cast(schema))


def _log(pool: Pool, reading: Reading) -> dict[str, Any]:
    """Where a pool came from, for its record."""
    return {
        "format": reading.format,
        "files": [printable(str(file)) for file in reading.files],
        "model": pool.stream.model,
        "task": pool.stream.task,
        "made_by": pool.stream.made_by,
        "asked": {key: value for key, value in pool.stream.asked.items() if key != "seed"},
        "not_stated": list(pool.proposal.unstated),
        "proposed": pool.proposal.name,
        "failed": pool.failed,
        "failed_requests": pool.tally.ends["failed"],
        "inferred_ends": pool.tally.inferred,
        "unknown_ends": pool.tally.ends["unknown"],
        "scorers": list(pool.tally.scorers),
        "notes": list(reading.notes),
    }
