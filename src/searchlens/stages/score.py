"""Stage ``score``: the samples of one cell to verdicts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from searchlens import grading
from searchlens.benchmarks import Question
from searchlens.errors import InputError
from searchlens.grading.recorded import is_recorded, score_recorded
from searchlens.grading.score import score_samples
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
    samples = read_samples(cell, layout, manifests)
    scores, summary = _scored(cell, questions, layout, samples, threads)
    write_frame(scores, output, GROUP)
    write_compared(cell, questions, layout, samples, scores)
    grader = Judge(cell.grader, grading.grader(cell.grader).version)
    provenance.sign(output.with_suffix(".json"), fingerprint, costs.spent(cell.samples, layout), grader=grader.entry)
    name = f"{cell.samples.checkpoint}/{cell.samples.benchmark}"
    health = judge(of_graded(scores), cell.default_policy, limits)
    log.info("%s: %s", name, summary)
    if health.reason:
        shown = examples(scores, samples, [question.id for question in questions], quotes=quotes)
        log.warning("%s: some of its texts:\n%s", name, "\n".join(shown))
    log.log(logging.INFO if health.level == "ok" else logging.WARNING, "%s: %s; %s", name, health, health.shares)


def _scored(
    cell: needs.Score, questions: Sequence[Question], layout: Layout, samples: pl.DataFrame, threads: int
) -> tuple[pl.DataFrame, str]:
    """Graded samples and their counts in words; by the log's verdicts where these count."""
    if is_recorded(cell.grader):
        said = recorded_verdicts(cell, layout)
        scores = score_recorded(samples, said, questions, q_instructions=cell.q_instructions)  # type: ignore[arg-type]
        right, unknown = int(scores["correct"].sum()), int(scores["unknown"].sum())
        return scores, f"{scores.height} samples: {right} right by {cell.grader}, {unknown} without a verdict"
    scored = score_samples(
        samples,
        questions,
        cell.grader,
        layout.verdicts(cell.samples.benchmark),
        policies=samples["policy"].unique(maintain_order=True).to_list(),
        q_instructions=cell.q_instructions,  # type: ignore[arg-type]
        luck_policy=cell.default_policy,
        seed=cell.seed,
        workers=threads,
    )
    return scored.scores, str(scored.summary)


def read_samples(cell: needs.Score, layout: Layout, manifests: Iterable[Path]) -> pl.DataFrame:
    """Samples of the cell under the name of each policy, sampled ones first."""
    where = (cell.samples.checkpoint, cell.samples.benchmark)
    names = {stream.id: stream.policies for stream in cell.samples.streams}
    parts: list[pl.DataFrame] = []
    for entry in _manifest_entries(manifests):
        samples = shards.read_generation(
            layout.generation(*where, entry["id"]), entry["id"], entry["samples"], _COLUMNS
        )
        parts += _named(samples, names.get(entry["id"], entry["policies"]))
    for key, policy, count in cell.imports:
        parts += _named(shards.read_generation(layout.generation(*where, key), key, count, _COLUMNS), [policy])
    if not parts:
        raise InputError(f"{'/'.join(where)} has no samples to grade", "sample it first, or import samples")
    return pl.concat(parts)


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
