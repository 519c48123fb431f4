"""Stage ``score``: the samples of one cell to verdicts."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from searchlens import grading
from searchlens.analysis.health import Counts, counted, examples, judge, together
from searchlens.benchmarks import Question
from searchlens.cli.stages import costs
from searchlens.cli.stages._recorded import recorded_verdicts, write_compared
from searchlens.config.health import DEFAULTS, HealthOptions
from searchlens.config.limits import PART_ROWS
from searchlens.errors import InputError
from searchlens.grading.score import (
    SAMPLES,
    Rules,
    answer_classes,
    distinct_forms,
    found_answers,
    is_recorded,
    named,
    score_recorded,
)
from searchlens.grading.score import together as all_counts
from searchlens.store import provenance, shards
from searchlens.store.files import read_bytes, read_json, temporary_folder
from searchlens.store.frames import GROUP, join_frames, write_frame
from searchlens.store.layout import Layout
from searchlens.store.provenance import Judge

if TYPE_CHECKING:
    from searchlens.plan import needs

log = logging.getLogger(__name__)

_PART_BYTES = 2**28
"""Most bytes of answers that are judged together: where an answer is the whole text, they are many."""

_COLUMNS = ("question", "sample", "text", "run", "n_tokens", "generated", "score", "finish")


def score(
    cell: needs.Score,
    questions: Sequence[Question],
    layout: Layout,
    manifests: Iterable[Path],
    output: Path,
    *,
    fingerprint: str,
    threads: int = 1,
    limits: HealthOptions = DEFAULTS,
    quotes: bool = True,
) -> None:
    """Grade the samples of one cell, and log its health, with some of its texts unless all is well.

    ``manifests`` of the cell's pools list the samples, also if the configuration has changed since. ``limits`` decide
    what is logged, and nothing that is written. Without ``quotes`` the log shows no texts: the terms of gated
    benchmarks forbid it. An InputError: there are no samples, or a shard cannot be used.
    """
    manifests = tuple(manifests)
    counts, summary = _write(cell, questions, layout, manifests, threads, output)
    scores, find = pl.scan_parquet(read_bytes(output)), partial(read_some, cell, layout, manifests)
    write_compared(cell, questions, layout, find, scores)
    grader = Judge(cell.grader, grading.grader(cell.grader).version)
    spent = provenance.spent(sidecar for _, sidecar in costs.sidecars(cell.samples, layout))
    provenance.sign(output.with_suffix(".json"), fingerprint, spent, grader=vars(grader))
    name = f"{cell.samples.checkpoint}/{cell.samples.benchmark}"
    health = judge(together(counts), cell.default_policy, limits)
    log.info("%s: %s", name, summary)
    if health.reason:
        log.warning("%s: some of its texts:\n%s", name, "\n".join(examples(scores, find, questions, quotes=quotes)))
    log.log(logging.INFO if health.level == "ok" else logging.WARNING, "%s: %s; %s", name, health, health.shares)


def _write(
    cell: needs.Score,
    questions: Sequence[Question],
    layout: Layout,
    manifests: Sequence[Path],
    threads: int,
    output: Path,
) -> tuple[list[Counts], str]:
    """Write graded samples; returns their counts for the health of the cell, and in words.

    Texts are in memory of one policy at a time, and what was found in them of some policies (``PART_ROWS``). Their
    verdicts wait beside the output until the answers of all policies are numbered. Verdicts of a log that count in
    place of a grader's are read all at once.
    """
    streams = _streams(cell, manifests)
    if is_recorded(cell.grader):
        samples = pl.concat(part.drop("text") for part in _read(cell, layout, streams))
        said = recorded_verdicts(cell, layout)
        scores = score_recorded(samples, said, questions, q_instructions=cell.q_instructions)  # type: ignore[arg-type]
        write_frame(scores, output, GROUP)
        right, unknown = int(scores["correct"].sum()), int(scores["unknown"].sum())
        text = f"{scores.height} samples: {right} right by {cell.grader}, {unknown} without a verdict"
        return [counted(scores)], text
    rules = Rules(
        questions,
        cell.grader,
        layout.verdicts(cell.samples.benchmark),
        q_instructions=cell.q_instructions,  # type: ignore[arg-type]
        luck_policy=cell.default_policy,
        seed=cell.seed,
        workers=threads,
    )
    with temporary_folder(output) as folder:
        waiting, forms, summaries = [], [], []
        for number, part in enumerate(_parts(_answers(cell, layout, streams))):
            rows, summary = rules.judged(part)
            waiting.append(folder / f"{number}.parquet")
            write_frame(rows, waiting[-1])
            forms.append(distinct_forms(rows))
            summaries.append(summary)
        classes, counts = answer_classes(forms), []
        for path in waiting:
            graded = rules.graded(pl.read_parquet(read_bytes(path)), classes)
            counts.append(counted(graded))
            write_frame(graded, path, GROUP)
        join_frames(waiting, output, GROUP)
    return counts, str(all_counts(summaries))


def _answers(cell: needs.Score, layout: Layout, streams: Sequence[_Stream]) -> Iterator[pl.DataFrame]:
    """What was found in the texts of each policy, policies in the order of the streams."""
    for policy in dict.fromkeys(name for stream in streams for name in stream.policies):
        own = [stream._replace(policies=(policy,)) for stream in streams if policy in stream.policies]
        yield pl.concat(found_answers(part, cell.grader) for part in _read(cell, layout, own))


def _parts(policies: Iterable[pl.DataFrame], rows: int = PART_ROWS, size: int = _PART_BYTES) -> Iterator[pl.DataFrame]:
    """Some policies after others: as many together as have so many samples and bytes; at least one."""
    part: list[pl.DataFrame] = []
    for policy in policies:
        together = [*part, policy]
        if part and (sum(map(len, together)) > rows or sum(each.estimated_size() for each in together) > size):
            yield pl.concat(part)
            together = [policy]
        part = together
    yield pl.concat(part)


class _Stream(NamedTuple):
    """Samples [0, samples) of one folder of the store, and the policies that they are of."""

    id: str
    samples: int
    policies: Sequence[str]


def _streams(cell: needs.Score, manifests: Iterable[Path]) -> list[_Stream]:
    """What a cell's samples are stored in, sampled ones first."""
    names = {stream.id: stream.policies for stream in cell.samples.streams}
    entries: dict[str, _Stream] = {}
    for path in manifests:  # several jobs may share a stream
        try:
            for entry in read_json(path)["generations"]:
                key, samples = entry["id"], entry["samples"]
                first = entries.setdefault(key, _Stream(key, samples, names.get(key, entry["policies"])))
                entries[key] = first._replace(samples=max(first.samples, samples))
        except (KeyError, TypeError):
            raise InputError(f"{path} is no manifest of samples", "delete it; the next run writes it again") from None
    found = list(entries.values())
    found += [_Stream(key, count, (policy,)) for key, policy, count in cell.imports]
    if not found:
        where = f"{cell.samples.checkpoint}/{cell.samples.benchmark}"
        raise InputError(f"{where} has no samples to grade", "sample it first, or import samples")
    return found


def _read(
    cell: needs.Score, layout: Layout, streams: Iterable[_Stream], questions: Collection[str] | None = None
) -> Iterator[pl.DataFrame]:
    """Samples under the name of each policy, one stream after the other; of some questions if their ids are given."""
    where = (cell.samples.checkpoint, cell.samples.benchmark)
    for stream in streams:
        folder = layout.generation(*where, stream.id)
        samples = shards.read_generation(folder, stream.samples, _COLUMNS, questions)
        yield from (named(samples, policy) for policy in stream.policies)


def read_some(cell: needs.Score, layout: Layout, manifests: Iterable[Path], wanted: pl.DataFrame) -> pl.DataFrame:
    """The samples of a cell that are ``wanted``, with their texts, in the order of the store.

    ``wanted`` has ``policy``, ``question`` (an id) and ``sample``; policies and questions that are not named in it are
    not read.
    """
    keys = wanted.select("policy", "question", pl.col("sample").cast(pl.UInt32))
    streams = [stream for stream in _streams(cell, manifests) if keys["policy"].is_in(stream.policies).any()]
    parts = _read(cell, layout, streams, keys["question"].unique().to_list())
    found = [part.join(keys, on=keys.columns, how="semi", maintain_order="left") for part in parts]
    return pl.concat(found) if found else SAMPLES.to_frame()
