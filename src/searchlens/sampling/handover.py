"""Handover: Base continues beginnings of texts that either side drew, as it goes on after its own beginnings.

A beginning is cut between tokens and given as tokens, so none are merged or split where Base takes over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from searchlens import seeds
from searchlens.config.model import HandoverSpec
from searchlens.engines.base import EngineMemoryError, Sampling
from searchlens.errors import JobError
from searchlens.grading.score import SAMPLES
from searchlens.plan import Grid, JobPool
from searchlens.sampling._again import out_of_memory
from searchlens.sampling._job import Job
from searchlens.search.driver import Failure, run
from searchlens.search.task import Search, Task, ended
from searchlens.store.columns import BEGINNINGS

if TYPE_CHECKING:
    from searchlens.plan import needs

log = logging.getLogger(__name__)

KINDS = {"rl_right": ("rl", True), "rl_wrong": ("rl", False), "base_right": ("base", True)}
"""Kind of a text: the side that drew it, and whether it is right."""


def beginnings(texts: pl.DataFrame, spec: HandoverSpec) -> pl.DataFrame:
    """The beginnings of scored texts (``store.columns.SCORED_TEXTS`` with its lists) that Base continues.

    Returns ``store.columns.BEGINNINGS``: of each kind, and of each question that RL solves.
    """
    solved = texts.filter(pl.col("right"), side="rl")["question"].unique().sort().head(spec.questions)
    cuts = [("fraction", share) for share in spec.fractions] + [("tokens", float(count)) for count in spec.tokens]
    parts = []
    for kind, (side, right) in KINDS.items():
        own = texts.filter(pl.col("right") == right, pl.col("question").is_in(solved.implode()), side=side)
        first = (
            own.unique(["question", "text"], keep="first", maintain_order=True).group_by("question").head(spec.texts)
        )
        for unit, at in cuts:
            share = (at * (pl.col("tokens") - 1)).cast(pl.UInt32).clip(1) if unit == "fraction" else pl.lit(int(at))
            length = pl.min_horizontal(share, "tokens").cast(pl.UInt32)
            parts.append(first.with_columns(kind=pl.lit(kind), unit=pl.lit(unit), at=pl.lit(at), length=length))
    cut = pl.concat(parts).with_columns(
        prefix=pl.col("token_ids").list.head("length"),
        logp_base=pl.col("logps_base").list.head("length").list.eval(pl.element().cast(pl.Float64)).list.sum(),
        whole=pl.col("length") == pl.col("tokens"),
    )
    return cut.select(BEGINNINGS.names()).cast(BEGINNINGS).sort("question", "unit", "at", "kind", "sample")  # type: ignore[arg-type]


def continued(grid: Grid, cell: needs.Likelihood, starts: pl.DataFrame, threads: int) -> pl.DataFrame:
    """Draw the continuations of beginnings that are not whole texts, under the cell's policy.

    Returns ``grading.score.SAMPLES``, each text with its beginning; ``policy`` is the row of the beginning. A
    continuation depends on its own seed alone.

    Raises JobError if a continuation fails, or the device is out of memory.
    """
    assert cell.handover is not None, "there are beginnings"
    checkpoint, _ = cell.sides["base"]
    job = Job(grid, JobPool(checkpoint, cell.benchmark, ()), threads)
    prompter, local = job.prompter, grid.jobs.local(cell.policy)
    open_rows = starts.with_row_index("row").filter(~pl.col("whole"))

    def searches() -> Iterator[tuple[tuple[int, int], Search]]:
        for row in open_rows.iter_rows(named=True):
            key = row["kind"], row["sample"], row["unit"], repr(row["at"])
            name = job.questions[row["question"]].id
            for number in range(cell.handover.continuations):  # type: ignore[union-attr]
                task = job.task(row["question"], seeds.child(cell.seed, "handover", name, *key, number))
                yield (row["row"], number), ended(task, _go_on(task, row["prefix"], local))

    rows = []
    try:
        for (start, number), outcome in run(searches(), job.engine):
            if isinstance(outcome, Failure):
                raise JobError(f"{checkpoint}/{cell.benchmark}: a continuation failed: {outcome.reason}")
            (text,) = outcome.candidates
            tokens = text.tokens.tolist()
            end = prompter.end(tokens, whole := prompter.text(tokens))
            question = job.questions[starts["question"][start]].id
            told = end.text if end else whole
            rows.append((str(start), question, number, number, told, len(tokens), 0, text.finish == "stop", None, None))
    except EngineMemoryError as error:
        raise out_of_memory(job, "continuing", error) from None
    finally:
        job.close()
    return pl.DataFrame(rows, SAMPLES, orient="row").sort("policy", "sample")


def _go_on(task: Task, prefix: Sequence[int], local: Sampling) -> Search:
    nothing = np.zeros(len(prefix), np.float32)
    begun = task.empty._replace(
        tokens=np.array(prefix, np.int32), logprobs=nothing, sampling_logprobs=nothing, entropies=None, certainties=None
    )
    (reply,) = yield [task.request(begun, local, task.seed)]
    return [task.extend(begun, reply).candidate(0.0)]
