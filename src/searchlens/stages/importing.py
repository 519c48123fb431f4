"""``searchlens import``: samples from elsewhere into the store, where the next run reads them like its own."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from searchlens import grading
from searchlens.benchmarks import Question, asked_hash, dumps
from searchlens.errors import InputError
from searchlens.grid import Import
from searchlens.health.counts import of_graded
from searchlens.health.examples import examples
from searchlens.health.judgement import Health, judge
from searchlens.health.options import HealthOptions
from searchlens.readers.own import ImportedSamples, read_samples
from searchlens.store import files, shards
from searchlens.store.hashing import digest, file_sha256
from searchlens.store.ranges import Shard

if TYPE_CHECKING:
    from searchlens.grid import Grid


class Imported(NamedTuple):
    """The shard of imported samples, their health before any answer is judged, and texts if they are unhealthy."""

    shard: Shard
    health: Health
    examples: list[str]


def import_samples(grid: Grid, path: Path, pair: str, role: str, benchmark: str, policy: str, grader: str) -> Imported:
    """Put samples into the store and register them.

    Parameters
    ----------
    grid : Grid
    path : Path
        File of samples (docs/import.md).
    pair, role, benchmark, policy : str
        What the samples are of; ``role`` is ``base`` or ``rl``. Pair and benchmark may be new.
    grader : str
        Grader of a new benchmark; it compares with a gold answer.

    Raises
    ------
    InputError
        A name or a row is wrong, the grader is unknown or needs more than a gold answer, or this configuration samples
        the policy itself. Nothing was written.
    """
    for what, name in (("pair", pair), ("benchmark", benchmark), ("policy", policy)):
        _require_name(what, name)
    checkpoint = grid.config["pairs"].get(pair, {}).get(role, f"{pair}-{role}")
    if any(policy in generation.policies for generation in grid.generations(checkpoint, benchmark)):
        raise InputError(
            f"this configuration samples {checkpoint}/{benchmark} under {policy!r}",
            "import under another name of the policy",
        )
    questions, questions_path, is_known = _questions(grid, benchmark)
    imported = read_samples(path, questions)
    key = digest({"imported": file_sha256(path), "questions": asked_hash(imported.questions)}, 12)
    if not is_known:
        _require_references(imported.questions, grader)
        files.replace_text(grid.root / questions_path, dumps(imported.questions))
    shard = shards.publish(
        grid.layout.generation(checkpoint, benchmark, key),
        0,
        imported.samples,
        imported.frame,
        generation_id=key,
        policies=[policy],
        provenance=shards.Provenance(0.0, "unknown", 0, "imported"),
    )
    kind = grid.benchmark(benchmark)["grader"] if is_known else grader
    checked = _check(imported, kind, policy, HealthOptions(**grid.config["health"]))
    record = Import(pair, role, checkpoint, benchmark, policy, key, imported.samples, kind, questions_path)
    target = grid.layout.import_record(benchmark, pair, role, policy)
    files.replace_text(target, json.dumps(asdict(record), indent=1, sort_keys=True))
    return Imported(shard, *checked)


def _check(imported: ImportedSamples, grader: str, policy: str, limits: HealthOptions) -> tuple[Health, list[str]]:
    """How the samples ended, and whether answers are found in them."""
    extract, ids = grading.grader(grader).extract, [question.id for question in imported.questions]
    texts = imported.frame.select(pl.lit(policy).alias("policy"), "question", "sample", "text", "finish")
    stopped = texts["finish"].fill_null("stop") == "stop"
    found = [extract(text, ended) for text, ended in zip(texts["text"], stopped, strict=True)]
    graded = texts.with_columns(
        pl.col("question").replace_strict(ids, range(len(ids)), return_dtype=pl.UInt32),
        answer=pl.Series([-1 if one.answer is None else 0 for one in found], dtype=pl.Int32),
        extraction=pl.Series([one.how for one in found], dtype=pl.String),
        stopped=stopped,
        correct=pl.lit(None, pl.Boolean),
    )
    health = judge(of_graded(graded), limits=limits)
    return health, examples(graded, texts, ids) if health.reason else []


def _require_name(what: str, name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise InputError(f"{what} {name!r} cannot be a name; allowed: letters, digits, '.', '_' and '-'")


def _require_references(questions: Sequence[Question], grader: str) -> None:
    """An ``InputError`` if there is no such grader, or if it needs more than the questions have."""
    reference = grading.grader(grader).reference
    for question in questions:
        reference(question)


def _questions(grid: Grid, benchmark: str) -> tuple[Sequence[Question] | None, str, bool]:
    """Questions of a known benchmark (None for a new one), their path, and whether the benchmark is known."""
    if benchmark in grid.config["benchmarks"] or any(item.benchmark == benchmark for item in grid.imports):
        return grid.questions(benchmark), grid.benchmark(benchmark)["path"], True
    return None, str(grid.layout.imported_questions(benchmark).relative_to(grid.root)), False
