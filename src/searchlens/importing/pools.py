"""A pool of samples that was read: matched with questions, checked, and given out in pieces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from searchlens.benchmarks import Question, asked_hash
from searchlens.importing.policies import Proposal
from searchlens.importing.tally import Examined, Tally
from searchlens.readers.logged import Stream
from searchlens.store.hashing import digest
from searchlens.store.shards import SAMPLES

RECORDED = pl.Schema(
    {
        "question": pl.String(),
        "sample": pl.UInt32(),
        "scorer": pl.String(),
        "value": pl.Float64(),
        "answer": pl.String(),
    }
)
"""What the scorers of a harness said of each sample: a value in [0, 1] or null, and the answer that they took."""

_VERDICTS = pl.List(pl.Struct({"scorer": pl.String(), "value": pl.Float64(), "answer": pl.String()}))


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The samples of one model under one policy on one benchmark, complete and consistent."""

    stream: Stream
    """Of the log."""
    role: str
    """``base`` or ``rl``; empty if neither the log nor the user says."""
    proposal: Proposal
    """What the log says of the policy."""
    policy: str
    """Its name: what the user says, or the proposal."""
    questions: tuple[Question, ...]
    samples: int
    """Samples of each question, numbered from 0; the smallest number, if they are unequal."""
    tally: Tally
    """Counts of everything that was read, dropped samples included."""
    failed: str = ""
    """``drop``, ``wrong`` or ``unequal`` where requests failed or samples are missing; empty if none do."""
    scorer: str = ""
    """Scorer of the log whose verdicts count in place of a grader's; empty if a grader judges."""
    _read: Callable[[], Iterator[pl.DataFrame]] = field(repr=False)
    """The rows (``spill.ROW``), with ``number`` as the position of the question."""
    _places: Sequence[int] = field(repr=False)
    """Number of a question, as the tally has it, to its position in ``questions``; -1 for one that is left out."""

    @cached_property
    def id(self) -> str:
        """12 hexadecimal digits of a hash of the samples and of what was asked, whatever format they came in.

        Verdicts of the log are part of it only where they count (``scorer``).
        """
        content = {
            "imported": self.tally.content,
            "questions": asked_hash(self.questions),
            "samples": self.samples,
            "failed": self.failed,
        }
        return digest(content | ({"recorded": self._recorded_hash()} if self.scorer else {}), 12)

    def _recorded_hash(self) -> str:
        """Hash of the verdicts that count, in the order of the samples."""
        content = hashlib.sha256(json.dumps(self.scorer).encode())
        for part in self.recorded():
            rows = part.filter(scorer=self.scorer).select("question", "sample", "value", "answer")
            content.update("".join(json.dumps(row) + "\n" for row in rows.iter_rows()).encode())
        return content.hexdigest()

    @property
    def has_texts(self) -> bool:
        """Whether there is a text to grade; otherwise only verdicts were kept."""
        return self.tally.with_text > 0

    @property
    def examined(self) -> list[Examined]:
        """Some of the samples, to be looked at before anything is stored."""
        return [one for one in self.tally.examined if self._places[one.number] >= 0]

    def question(self, number: int) -> Question:
        """The question that has a number in the tally."""
        return self.questions[self._places[number]]

    def frames(self) -> Iterator[pl.DataFrame]:
        """The samples in pieces (columns of ``shards.SAMPLES``), in the order of the benchmark, then by sample."""
        tally = self.tally
        whole = tally.count - tally.ends["failed"]
        has_tokens, has_logprobs = 0 < whole <= tally.with_tokens, 0 < whole <= tally.with_logprobs
        unknown = pl.lit(None)
        for part in self._parts():
            failed = pl.col("finish") == "failed"
            score = pl.when(failed).then(float("-inf")).otherwise("mean_logprob") if has_logprobs else unknown
            n_tokens = pl.col("n_tokens").fill_null(0) if has_tokens else unknown
            yield part.select(
                "question",
                "sample",
                pl.col("sample").alias("run"),
                pl.col("text").fill_null(""),
                "tokens" if has_tokens else unknown.alias("tokens"),
                "logprobs" if has_logprobs else unknown.alias("logprobs"),
                unknown.alias("sampling_logprobs"),
                n_tokens.alias("n_tokens"),
                "mean_logprob" if has_logprobs else unknown.alias("mean_logprob"),
                score.alias("score"),
                pl.when(pl.col("finish") != "unknown").then("finish").alias("finish"),
                n_tokens.alias("generated"),
                pl.lit(1).alias("requests"),
                "details",
            ).cast(SAMPLES)

    def recorded(self) -> Iterator[pl.DataFrame]:
        """The recorded verdicts in pieces (columns of ``RECORDED``), ordered like the samples."""
        if not self.tally.scorers:
            return
        for part in self._parts():
            said = part.filter(pl.col("verdicts").is_not_null()).select(
                "question", "sample", pl.col("verdicts").str.json_decode(_VERDICTS)
            )
            yield said.explode("verdicts").unnest("verdicts").cast(RECORDED)  # type: ignore[arg-type]

    def _parts(self) -> Iterator[pl.DataFrame]:
        ids = pl.Series([question.id for question in self.questions])
        for part in self._read():
            kept = part
            if self.failed in ("drop", "unequal"):
                kept = _first(part, self.samples if self.failed == "drop" else part.height)
            if self.failed == "wrong":
                kept = _filled(part, self.samples)
            yield kept.with_columns(question=ids.gather(kept["number"]))


def _first(part: pl.DataFrame, samples: int) -> pl.DataFrame:
    """The first samples of each question that did not fail, numbered again from 0."""
    usable = part.filter(pl.col("finish") != "failed")
    rank = (pl.col("sample").cum_count().over("number") - 1).cast(pl.UInt32)
    return usable.with_columns(sample=rank).filter(pl.col("sample") < samples)


def _filled(part: pl.DataFrame, samples: int) -> pl.DataFrame:
    """Every sample of each question; one that is missing is a failed request."""
    numbers = part.select(pl.col("number").unique(maintain_order=True))
    every = numbers.join(pl.DataFrame({"sample": pl.int_range(samples, dtype=pl.UInt32, eager=True)}), how="cross")
    filled = every.join(part, on=["number", "sample"], how="left", maintain_order="left")
    return filled.with_columns(pl.col("finish").fill_null("failed"))


def verdicts_text(verdicts: Mapping[str, Any]) -> str | None:
    """Verdicts of one sample as JSON, in the form that ``recorded`` reads."""
    if not verdicts:
        return None
    return json.dumps([{"scorer": name, "value": v.value, "answer": v.answer} for name, v in verdicts.items()])
