"""Whether a cell is interpretable, and why not, in words; how its samples ended and whether they state an answer.

Also whether the chains of power sampling have mixed: what their own record can tell, and what it cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import polars as pl

from searchlens.config.health import DEFAULTS, HealthOptions
from searchlens.store.columns import HEALTH
from searchlens.store.frames import read_frame

if TYPE_CHECKING:
    from searchlens.benchmarks import Question

Level = Literal["ok", "attention", "not interpretable"]
_Row = Mapping[str, Any]
"""One row of ``store.columns.HEALTH``."""

SILENT = 0.20
"""Largest share without an answer among the texts that were not cut off. Above it the cell needs attention: a grader
that misses a common wording, or a Base model that keeps to no format."""
TRUNCATED = 0.50
"""Largest share of samples that the token limit cut off. Above it the cell needs attention; it is interpretable if
there are answers, since a Base model may well answer and ramble on."""
FAILED = 0.05
"""Largest share of a policy's samples that come from failed searches. Above it the cell needs attention."""
FEWEST = 20
"""Fewest whole texts on whose share of answers anything is decided: none of 20 is surely below one in five."""

_OTHER_RULES = 0.10
"""Largest difference of the shares of answers that two sides state in words instead of a box."""


@dataclass(frozen=True)
class Health:
    """The health of one cell."""

    counts: _Row
    """All policies together."""
    broken: tuple[str, ...]
    """Why the numbers of the cell say nothing about the model; empty if they do."""
    remarks: tuple[str, ...]
    """What a reader must know of a cell, interpretable or not."""

    @property
    def level(self) -> Level:
        """The worst that was found."""
        return "not interpretable" if self.broken else "attention" if self.remarks else "ok"

    @property
    def reason(self) -> str:
        """Everything that was found; empty if nothing was."""
        return "; ".join([*self.broken, *self.remarks])

    @property
    def whole(self) -> int | None:
        """Texts that are not known to be cut off; None if that was not recorded."""
        return _whole(self.counts)

    @property
    def shares(self) -> str:
        """The counts as one line."""
        counts = self.counts
        samples, answered = counts["samples"], counts["answered"]
        parts = [
            f"answers {percent(answered, samples)}",
            f"of finished texts {percent(counts['whole_answered'], self.whole)}",
            f"stopped {percent(counts['stopped'], samples)}",
            f"cut off {cut_off(counts)}",
            f"unknown end {percent(counts['unknown_end'], samples)}",
            f"unknown verdicts {percent(counts['unknown'], answered)}",
            f"failed {percent(counts['failed'], samples)}",
            f"kept {percent(counts['kept'], samples)}",
            f"withdrawn {percent(counts['withdrawn'], samples)}",
            f"unsolved questions {counts['unsolved']} of {counts['questions']}",
        ]
        return ", ".join(parts if counts["unsolved"] is not None else parts[:-1])

    def __str__(self) -> str:
        return f"{self.level}: {self.reason}" if self.reason else self.level


def judge(counts: pl.DataFrame, default_policy: str = "", limits: HealthOptions = DEFAULTS) -> Health:
    """Judge a cell (``HEALTH``) by all its samples, and by those of the default policy, the target of RL, if any."""
    rows = counts.rows(named=True)
    total = next(row for row in rows if row["policy"] is None)
    policies = [row for row in rows if row["policy"] is not None]
    broken = [*_broken(total, limits)]
    if not broken and len(policies) > 1:
        broken = [
            f"{reason}, under {default_policy}"
            for row in policies
            if row["policy"] == default_policy
            for reason in _broken(row, limits)
        ]
    return Health(total, tuple(broken), tuple(_remarks(total, policies, of_answers=not broken)))


def of_pair(sides: Mapping[str, Health], *, is_floor: bool = False) -> str:
    """Why a comparison is not interpretable, by the names of its sides; empty if it is.

    Two sides that solve nothing are compared only where that is expected (``is_floor``): a wrong grader looks the same.

    >>> fine, bad = Health({}, (), ()), Health({}, ("0% of 8 samples have an answer",), ())
    >>> of_pair({"Base": fine, "RL": bad})
    'RL: 0% of 8 samples have an answer'
    """
    broken = "; ".join(f"{name}: {', '.join(side.broken)}" for name, side in sides.items() if side.broken)
    counts = [side.counts for side in sides.values()]
    solved = any(not c.get("answered") or c["samples"] < FEWEST or c["unsolved"] != c["questions"] for c in counts)
    if broken or is_floor or solved:
        return broken
    return f"neither side solves any of {counts[0]['questions']:,} questions (golds? grader?)"


def of_rules(base: Health, rl: Health) -> str:
    """What is to be known if the answers of two sides were mostly found by different rules; else empty."""
    counts = {"Base": base.counts, "RL": rl.counts}
    if any(side.get("unboxed") is None or side["answered"] < FEWEST for side in counts.values()):
        return ""
    ours, theirs = (side["unboxed"] / side["answered"] for side in counts.values())
    if abs(ours - theirs) <= _OTHER_RULES:
        return ""
    shares = " and ".join(f"{percent(side['unboxed'], side['answered'])} of {name}'s" for name, side in counts.items())
    return f"{shares} answers were found without a box (other prompts? grader?)"


def percent(part: int | None, whole: int | None) -> str:
    """A share in whole percent, a dash if it is of nothing; rounding makes nothing 0% or 100% that is not.

    >>> percent(0, 8), percent(1, 1000), percent(999, 1000), percent(1, 3), percent(None, 8), percent(0, 0)
    ('0%', 'under 1%', 'over 99%', '33%', 'unknown', '—')
    """
    if part is None or whole is None:
        return "unknown"
    if not whole:
        return "—"
    share = 100 * part / whole
    if 0 < share < 1:
        return "under 1%"
    return "over 99%" if 99 < share < 100 else f"{share:.0f}%"


def cut_off(counts: _Row) -> str:
    """The share of samples that are known to be cut off, which is the least where ends are unknown.

    >>> known = {"truncated": 2, "unknown_end": 0, "samples": 8}
    >>> cut_off(known), cut_off(known | {"truncated": 0, "unknown_end": 1})
    ('25%', '0% or more')
    """
    share = percent(counts["truncated"], counts["samples"])
    return f"{share} or more" if counts["unknown_end"] else share


def _whole(counts: _Row) -> int | None:
    """Texts that are not known to be cut off: also those of unknown end, which grading takes as finished."""
    if counts["whole_answered"] is None:
        return None
    return (counts["stopped"] or 0) + (counts["unknown_end"] or 0)


def _broken(counts: _Row, limits: HealthOptions) -> Iterator[str]:
    samples, answered, whole = counts["samples"], counts["answered"], _whole(counts)
    if _below(answered, samples, limits.answered):
        yield f"{percent(answered, samples)} of {samples:,} samples have an answer (template? token limit? grader?)"
    elif whole and whole >= FEWEST and _below(counts["whole_answered"], whole, limits.answered_of_finished):
        share = percent(counts["whole_answered"], whole)
        yield f"{share} of {whole:,} finished texts have an answer (template? grader?)"
    if _above(counts["unknown"], answered, limits.unknown):
        yield f"the verdict of {percent(counts['unknown'], answered)} of {answered:,} answers is unknown (grader?)"


def _remarks(total: _Row, policies: Sequence[_Row], *, of_answers: bool) -> Iterator[str]:
    samples, whole = total["samples"], _whole(total)
    if of_answers and whole is not None and whole >= FEWEST:
        silent = whole - total["whole_answered"]
        if _above(silent, whole, SILENT):
            yield f"{percent(silent, whole)} of {whole:,} finished texts have no answer (template? grader?)"
    if _above(total["truncated"], samples, TRUNCATED):
        yield f"{percent(total['truncated'], samples)} of {samples:,} samples were cut off (token limit? stop texts?)"
    failed = [row for row in policies if _above(row["failed"], row["samples"], FAILED)]
    if failed:
        names = ", ".join(f"{row['policy']} ({percent(row['failed'], row['samples'])})" for row in failed)
        yield f"searches failed: {names}"
    if total["answered"] and total["unsolved"] == total["questions"]:
        yield f"no sample solves any of {total['questions']:,} questions (golds? grader?)"


def _below(part: int | None, whole: int | None, limit: float) -> bool:
    return part is not None and whole is not None and part < limit * whole


def _above(part: int | None, whole: int | None, limit: float) -> bool:
    return part is not None and whole is not None and part > limit * whole


def cell_health(landscape: Path, default_policy: str, limits: HealthOptions) -> Health:
    """The health of one cell, by the section ``health``. Raises InputError if its landscape is missing or damaged."""
    return judge(read_frame(landscape / "health.parquet", "landscape"), default_policy, limits)


class Counts(NamedTuple):
    """Counts of some policies of a cell."""

    rows: pl.DataFrame
    """``store.columns.HEALTH``: one row for each policy."""
    solved: pl.DataFrame
    """``question``, once for each policy, and ``correct``: whether any of its samples is right; null if unknown."""


def of_graded(graded: pl.DataFrame) -> pl.DataFrame:
    """Counts of graded samples: first the row of all policies together, then one for each policy.

    Samples have at least ``SCORES`` of ``store.columns.GRADED``; ``correct`` may be null: not judged. In
    ``store.columns.HEALTH``, what the columns of the samples do not say is null, never 0.
    """
    return together([counted(graded)])


def counted(graded: pl.DataFrame) -> Counts:
    """Counts of the graded samples of some policies, for ``together``."""
    marked = graded.select("policy", "question", "correct", **_marks(graded.columns))
    solved = marked.group_by("policy", "question", maintain_order=True).agg(pl.col("correct").any(ignore_nulls=False))
    known = [name for name in HEALTH.names() if name in marked.columns and name != "policy"]
    rows = []
    for name in marked["policy"].unique(maintain_order=True):
        samples = marked.filter(policy=name)
        sums = samples.select(known_sum(column) for column in known).row(0, named=True)
        rows.append({"policy": name, "samples": samples.height, **sums, **_questions(solved.filter(policy=name))})
    return Counts(pl.DataFrame(rows, HEALTH), solved.drop("policy"))


def together(parts: Sequence[Counts]) -> pl.DataFrame:
    """The result of ``of_graded`` from the counts of all policies, some of them in each part."""
    rows = pl.concat([part.rows for part in parts])
    questions = _questions(pl.concat([part.solved for part in parts]))
    sums = rows.select(known_sum(name) for name in HEALTH.names() if name not in ("policy", *questions))
    total = {"policy": None, **sums.row(0, named=True), **questions}
    return pl.concat([pl.DataFrame([total], HEALTH), rows])


def of_classes(classes: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Counts, as of ``of_graded``, of a cell that is read from recorded counts, as far as these have them.

    Answer classes are ``store.columns.CLASSES``; points, for the share of samples that stopped,
    ``store.columns.POINTS``. Recorded counts do not say why a sample did not stop, nor which answers were not
    judged: ``truncated`` is all that did not stop, and the columns that they do not have are null.
    """
    shares = points.filter(metric="stopped", estimator="unbiased").group_by("policy").agg(pl.col("value").last())
    counted = classes.group_by("policy", maintain_order=True).agg(
        pl.col("samples").sum(),
        pl.col("answered").sum(),
        questions=pl.col("question").n_unique(),
        unsolved=(pl.col("correct") == 0).sum(),
    )
    rows = counted.join(shares, on="policy", how="left", maintain_order="left").with_columns(
        stopped=(pl.col("value") * pl.col("samples")).round()
    )
    rows = rows.with_columns(truncated=pl.col("samples") - pl.col("stopped"))
    known = rows.select(name for name in HEALTH.names() if name in rows.columns)
    solved = classes.select("question", correct=pl.col("correct") > 0)
    return together([Counts(pl.DataFrame(known.to_dicts(), HEALTH, strict=False), solved)])


def _marks(columns: list[str]) -> dict[str, pl.Expr]:
    """What is counted, as a Boolean for each sample; null throughout if the samples do not say it."""
    answered, nothing = pl.col("answer") >= 0, pl.lit(None, pl.Boolean)
    unknown_end = pl.col("finish").is_null() if "finish" in columns else nothing
    failed = pl.col("finish") == "failed" if "finish" in columns else pl.col("score") == float("-inf")
    found = pl.col("extraction") if "extraction" in columns else pl.lit(None, pl.String)
    no_end, not_failed = unknown_end.fill_null(False), ~failed.fill_null(False)
    stopped = pl.col("stopped") & ~no_end
    return {
        "answered": answered,
        "stopped": stopped,
        "truncated": ~pl.col("stopped").fill_null(True) & not_failed,
        "unknown_end": unknown_end,
        "whole_answered": (stopped | no_end) & answered,
        "unknown": pl.col("unknown") if "unknown" in columns else nothing,
        "failed": failed.fill_null(False) if "finish" in columns else failed,
        "kept": found.eq("kept"),
        "withdrawn": found.eq("withdrawn"),
        "unboxed": found.is_in(["fallback", "number"]),
    }


def known_sum(column: str) -> pl.Expr:
    """The sum; null if a value is unknown."""
    return pl.when(~pl.col(column).is_null().any()).then(pl.col(column).sum()).alias(column)


def _questions(solved: pl.DataFrame) -> dict[str, int | None]:
    """Number of questions, and of those that no sample solves."""
    by_question = solved.group_by("question").agg(unsolved=~pl.col("correct").any(ignore_nulls=False))
    return {"questions": by_question.height, **by_question.select(unsolved=known_sum("unsolved")).row(0, named=True)}


EXAMPLES = 5
SHOWN = 100
"""Characters of the end of a text that are shown."""
Find = Callable[[pl.DataFrame], pl.DataFrame]
"""Looks samples up: given policy, question (an id) and sample, it returns these columns and the text."""


def examples(graded: pl.LazyFrame, find: Find, questions: Sequence[Question], *, quotes: bool = True) -> list[str]:
    """Five samples without an answer, one line for each: question, sample, finish and the end of the text.

    Samples are ``store.columns.GRADED`` of a cell, spread over it; questions are in the order of the benchmark. If
    every sample has an answer, samples with an unknown verdict are shown, if there are any. If no sample is right, two
    with an answer follow, with their golds. ``quotes``: whether texts may be shown; the terms of gated benchmarks
    forbid it.
    """
    chosen = _spread(graded.filter(pl.col("answer") < 0))
    if chosen.is_empty():
        chosen = _spread(graded.filter(pl.col("unknown")))
    chosen = chosen.with_columns(gold=pl.lit(None, pl.String))
    if not graded.select(pl.col("correct").any()).collect().item():
        wrong = _spread(graded.filter(pl.col("answer") >= 0), 2)
        golds = pl.Series([question.gold for question in questions], dtype=pl.String)
        chosen = pl.concat([chosen, wrong.with_columns(gold=golds.gather(wrong["question"]))])
    if chosen.is_empty():
        return []
    chosen = chosen.with_columns(question=pl.Series([one.id for one in questions]).gather(chosen["question"]))
    shown = chosen.join(find(chosen), on=["policy", "question", "sample"], how="left", maintain_order="left")
    return [
        line(row["question"], row["sample"], row["finish"], row["text"] if quotes else None, row["policy"], row["gold"])
        for row in shown.iter_rows(named=True)
    ]


def _spread(rows: pl.LazyFrame, most: int = EXAMPLES) -> pl.DataFrame:
    """Some of the rows, from the first to the last; no more than these are in memory."""
    numbered = rows.select("policy", "sample", "finish", "question").with_row_index()
    count = int(numbered.select(pl.len()).collect().item())
    places = sorted({i * max(count - 1, 0) // (most - 1) for i in range(most)})
    return numbered.filter(pl.col("index").is_in(places)).drop("index").collect(engine="streaming")


def line(question: str, sample: int, finish: str | None, text: str | None, policy: str, gold: str | None = None) -> str:
    """One sample as a line of ASCII and what else can be printed, line breaks escaped; ids alone without a text."""
    head = f"  {policy}, question {question}, sample {sample}, finish {finish or 'unknown'}"
    if text is None:
        return f"{head}: not shown, the benchmark is gated"
    end = text[-SHOWN:]
    cut = "…" if len(text) > SHOWN else ""
    return f"{head}: {cut}{end!r}" + (f", gold {gold!r}" if gold is not None else "")


# ---- chains of power sampling

RHAT = 1.1
"""Largest ratio at which chains count as mixed; the customary value (Gelman et al., Bayesian Data Analysis, 11.4)."""
RISE = 3.0
"""Standard errors above 0 from which on log p counts as rising."""

CHAINS = pl.Schema(
    {
        **dict.fromkeys(("checkpoint", "benchmark", "policy", "question"), pl.String()),
        **dict.fromkeys(("proposed", "accepted", "changed", "rejected_early", "logp_half", "logp_after"), pl.Float64()),
        **dict.fromkeys(("chain_mean", "chain_variance", "chain_states"), pl.Float64()),
    }
)
"""One chain: counts of its steps, and log p of its text as in the details of its sample (docs/search.md)."""

DETAILS = tuple(name for name, kind in CHAINS.items() if kind == pl.Float64())

MIXING = pl.Schema(
    {
        **dict.fromkeys(("checkpoint", "benchmark", "policy"), pl.String()),
        **dict.fromkeys(("questions", "chains"), pl.UInt32()),
        **dict.fromkeys(("accepted", "changed", "rise", "rise_error", "rhat"), pl.Float64()),
        "verdict": pl.String(),
    }
)


def mixing(chains: pl.DataFrame) -> pl.DataFrame:
    """``MIXING``: what the chains of each cell and policy (``CHAINS``, without nulls) say, in their order.

    ``accepted`` and ``changed`` are shares of the steps. ``rise`` is the mean of log p of the text after all steps
    minus that after half of them, in nats, and ``rise_error`` its standard error over questions; ``rhat`` is that of
    the function. The verdict is "not mixed" if ``rhat`` is above ``RHAT`` or the rise ``RISE`` standard errors above 0,
    "unknown" if no question has two chains, else "no sign".
    """
    rows = []
    for key, group in chains.group_by("checkpoint", "benchmark", "policy", maintain_order=True):
        rises = (pl.col("logp_after") - pl.col("logp_half")).mean().alias("rise")
        rise = group.group_by("question", maintain_order=True).agg(rises)["rise"]
        mean: float = rise.mean()  # type: ignore[assignment]
        error = float(np.std(rise.to_numpy(), ddof=1)) / math.sqrt(rise.len()) if rise.len() > 1 else None
        steps, ratio = int(group["proposed"].sum()), rhat(group)
        row = {
            **dict(zip(("checkpoint", "benchmark", "policy"), key, strict=True)),
            "questions": rise.len(),
            "chains": group.height,
            "accepted": int(group["accepted"].sum()) / steps,
            "changed": int(group["changed"].sum()) / steps,
            "rise": mean,
            "rise_error": error,
            "rhat": ratio,
        }
        is_rising = error is not None and mean > RISE * error
        verdict = "unknown" if ratio is None else "not mixed" if ratio > RHAT else "no sign"
        rows.append(row | {"verdict": "not mixed" if is_rising else verdict})
    return pl.DataFrame(rows, MIXING)


def rhat(chains: pl.DataFrame) -> float | None:
    """The potential scale reduction of log p, with one variance for all questions.

    None if no question has two chains. ``sqrt((n - 1) / n + B / W)``: W is the mean variance within a chain, B the mean
    over questions of the variance between the means of a question's chains; n is the smallest number of states. About 1
    if chains have mixed, as long chains of any start must; infinite if no chain moved and chains differ, 1 if nothing
    differs. Of each chain, ``chain_variance`` has divisor n - 1, and ``chain_states`` is n. Gelman and Rubin (1992),
    Inference from iterative simulation using multiple sequences, section 2.
    """
    several = chains.filter(pl.len().over("question") > 1)
    if several.is_empty():
        return None
    means = several.group_by("question", maintain_order=True).agg(variance=pl.col("chain_mean").var())
    between = means["variance"].to_numpy().mean()
    within = several["chain_variance"].to_numpy().mean()
    states = several["chain_states"].to_numpy().min()
    if within == 0:
        return math.inf if between > 0 else 1.0
    return math.sqrt((states - 1) / states + between / within)


def unmixed(table: pl.DataFrame) -> Sequence[str]:
    """One sentence for each policy of a cell whose chains have not mixed."""
    return [
        f"{row['checkpoint']}/{row['benchmark']}: the chains of {row['policy']} have not mixed."
        for row in table.filter(verdict="not mixed").iter_rows(named=True)
    ]
