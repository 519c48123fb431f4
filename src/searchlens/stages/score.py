"""Stage ``score``: the samples of one cell to verdicts."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from searchlens import grading
from searchlens.benchmarks import Question
from searchlens.errors import InputError
from searchlens.grading.recorded import is_recorded, score_recorded
from searchlens.grading.score import SAMPLES, found_answers, score_answers
from searchlens.health.counts import of_graded
from searchlens.health.examples import examples
from searchlens.health.judgement import judge
from searchlens.health.options import DEFAULTS, HealthOptions
from searchlens.stages import costs
from searchlens.stages._frames import GROUP, write_frame
from searchlens.stages._recorded import recorded_verdicts, write_compared
from searchlens.store import provenance, shards
from searchlens.store.files import read_json
from searchlens.store.judges import Judge
from searchlens.store.layout import Layout

if TYPE_CHECKING:
    from searchlens.grid import needs

log = logging.getLogger(__name__)

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

    Parameters
    ----------
    cell : needs.Score
    questions : sequence of Question
        Those of the benchmark.
    layout : Layout
        Results folder with the samples and the verdicts.
    manifests : iterable of Path
        Of the cell's pools. They list the samples, also if the configuration has changed since.
    output : Path
        Parquet file of graded samples.
    fingerprint : str
        Of the configuration, for the provenance.
    threads : int
        Processes of the grader.
    limits : HealthOptions
        They decide what is logged, and nothing that is written.
    quotes : bool
        Whether the log may show texts; the terms of gated benchmarks forbid it.

    Raises
    ------
    InputError
        There are no samples, or a shard cannot be used.
    """
    manifests = tuple(manifests)
    scores, summary = _scored(cell, questions, layout, manifests, threads)
    write_frame(scores, output, GROUP)
    find = partial(read_some, cell, layout, manifests)
    write_compared(cell, questions, layout, find, scores)
    grader = Judge(cell.grader, grading.grader(cell.grader).version)
    provenance.sign(output.with_suffix(".json"), fingerprint, costs.spent(cell.samples, layout), grader=grader.entry)
    name = f"{cell.samples.checkpoint}/{cell.samples.benchmark}"
    health = judge(of_graded(scores), cell.default_policy, limits)
    log.info("%s: %s", name, summary)
    if health.reason:
        shown = examples(scores, find, [question.id for question in questions], quotes=quotes)
        log.warning("%s: some of its texts:\n%s", name, "\n".join(shown))
    log.log(logging.INFO if health.level == "ok" else logging.WARNING, "%s: %s; %s", name, health, health.shares)


def _scored(
    cell: needs.Score, questions: Sequence[Question], layout: Layout, manifests: Sequence[Path], threads: int
) -> tuple[pl.DataFrame, str]:
    """Graded samples and their counts in words; by the log's verdicts where these count.

    Texts are in memory of one stream at a time; what was found in them is kept of all.
    """
    streams = _read(cell, layout, _streams(cell, manifests))
    if is_recorded(cell.grader):
        samples, said = pl.concat(part.drop("text") for part in streams), recorded_verdicts(cell, layout)
        scores = score_recorded(samples, said, questions, q_instructions=cell.q_instructions)  # type: ignore[arg-type]
        right, unknown = int(scores["correct"].sum()), int(scores["unknown"].sum())
        return scores, f"{scores.height} samples: {right} right by {cell.grader}, {unknown} without a verdict"
    answers = pl.concat(found_answers(part, cell.grader) for part in streams)
    scored = score_answers(
        answers,
        questions,
        cell.grader,
        layout.verdicts(cell.samples.benchmark),
        policies=answers["policy"].unique(maintain_order=True).to_list(),
        q_instructions=cell.q_instructions,  # type: ignore[arg-type]
        luck_policy=cell.default_policy,
        seed=cell.seed,
        workers=threads,
    )
    return scored.scores, str(scored.summary)


class _Stream(NamedTuple):
    """Samples [0, samples) of one folder of the store, and the policies that they are of."""

    id: str
    samples: int
    policies: Sequence[str]


def _streams(cell: needs.Score, manifests: Iterable[Path]) -> list[_Stream]:
    """What a cell's samples are stored in, sampled ones first."""
    names = {stream.id: stream.policies for stream in cell.samples.streams}
    found = [
        _Stream(entry["id"], entry["samples"], names.get(entry["id"], entry["policies"]))
        for entry in _manifest_entries(manifests)
    ]
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
        samples = shards.read_generation(folder, stream.id, stream.samples, _COLUMNS, questions)
        yield from _named(samples, stream.policies)


def read_some(cell: needs.Score, layout: Layout, manifests: Iterable[Path], wanted: pl.DataFrame) -> pl.DataFrame:
    """The samples of a cell that are ``wanted``, with their texts.

    Parameters
    ----------
    cell : needs.Score
    layout : Layout
    manifests : iterable of Path
        Of the cell's pools.
    wanted : DataFrame
        ``policy``, ``question`` (an id) and ``sample``; other columns are ignored. Policies and questions that are not
        named in it are not read.

    Returns
    -------
    DataFrame
        ``grading.score.SAMPLES``, in the order of the store.

    Raises
    ------
    InputError
        There are no samples, or a shard cannot be used.
    """
    keys = wanted.select("policy", "question", pl.col("sample").cast(pl.UInt32))
    streams = [stream for stream in _streams(cell, manifests) if keys["policy"].is_in(stream.policies).any()]
    parts = _read(cell, layout, streams, keys["question"].unique().to_list())
    found = [part.join(keys, on=keys.columns, how="semi", maintain_order="left") for part in parts]
    return pl.concat(found) if found else SAMPLES.to_frame()


def _manifest_entries(manifests: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Each generation once, with the largest number of samples: several jobs may share a stream."""
    entries: dict[str, dict[str, Any]] = {}
    for path in manifests:
        try:
            for entry in read_json(path)["generations"]:
                first = entries.setdefault(entry["id"], entry)
                first["samples"] = max(first["samples"], entry["samples"])
        except (KeyError, TypeError):
            raise InputError(f"{path} is no manifest of samples", "delete it; the next run writes it again") from None
    yield from entries.values()


def _named(samples: pl.DataFrame, names: Iterable[str]) -> list[pl.DataFrame]:
    """The samples once for each policy name, in the columns that grading takes."""
    columns = samples.select(
        "question",
        "sample",
        "run",
        "text",
        tokens=pl.col("n_tokens"),
        generated=pl.col("generated"),
        stopped=pl.col("finish") == "stop",  # null where it is unknown how the text ended
        score=pl.col("score"),
        finish=pl.col("finish"),
    )
    return [columns.select(pl.lit(name).alias("policy"), pl.all()) for name in names]
