"""What other graders say of the same samples: math-verify alone, and the verdicts that the logs recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from searchlens import catalogue, seeds
from searchlens.benchmarks import Question
from searchlens.comparing.common import Common
from searchlens.comparing.judging import Judged, verdicts_of
from searchlens.comparing.sides import Side
from searchlens.grading import GradedPair, processes
from searchlens.grading.score import positions
from searchlens.uncertainty import Resamples, with_width

TEXTS = 2000
"""Texts of both sides together that math-verify alone judges, too, unless all are asked for."""
MATH_VERIFY = "math-verify alone"
EXAMPLES = 5
"""Samples of each side and grader that are kept to be shown, of those that are judged differently."""
_HELD = 4000
"""Texts that are held until they are judged."""
_TAIL = 300
"""Characters of the end of a text that are kept, where an answer usually stands."""

AGREEING = pl.Schema(
    {
        "side": pl.String(),
        "grader": pl.String(),
        **dict.fromkeys(("compared", "agree", "ours_alone", "theirs_alone"), pl.UInt32()),
        **dict.fromkeys(("share", "lo", "hi"), pl.Float64()),
    }
)
"""``compared`` samples, on how many both graders ``agree`` that they are right or not, and how many only ours or only
the other one takes for right. ``share`` agrees, with an interval over questions."""
EXAMPLE = pl.Schema(
    {
        **dict.fromkeys(("side", "grader", "question"), pl.String()),
        "sample": pl.UInt32(),
        "ours": pl.Boolean(),
        "theirs": pl.Boolean(),
        "gold": pl.String(),
        "end": pl.String(),
    }
)


@dataclass(frozen=True, kw_only=True)
class Opinions:
    """How our verdicts and those of others agree."""

    agreeing: pl.DataFrame
    """``AGREEING``."""
    examples: pl.DataFrame
    """``EXAMPLE``: some samples that are judged differently. ``end``, of the text, is null of recorded verdicts."""


class SecondJudge:
    """Judges texts by math-verify alone while they are read, those of both sides that a seed draws or all of them.

    Parameters
    ----------
    grader : str
        Nothing is judged if it is no mathematical one.
    everything : bool
        Judge all texts.
    workers : int
        Processes, >= 1.
    """

    def __init__(
        self, sides: Sequence[Side], common: Common, grader: str, *, seed: int, everything: bool, workers: int
    ) -> None:
        self._wanted = bool(catalogue.declaration("grader", grader).options.get("mathematical"))
        self._golds = {side.role: {q.id: q.gold for q in common.of(side.role)} for side in sides}
        self._drawn = {
            side.role: None if everything else _drawn(side, list(self._golds[side.role]), seed, TEXTS // len(sides))
            for side in sides
        }
        self._workers = workers
        self._held: list[tuple[str, str, int, str]] = []
        self._judged: list[tuple[str, str, int, str, str]] = []

    def see(self, role: str, rows: pl.DataFrame) -> None:
        """Take the drawn ones of some samples."""
        if not self._wanted:
            return
        drawn = self._drawn[role]
        kept = rows if drawn is None else rows.join(drawn, on=["question", "sample"], how="semi", maintain_order="left")
        for start in range(0, kept.height, _HELD):
            part = kept.slice(start, _HELD).select(pl.lit(role), "question", "sample", "text")
            self._held += part.rows()
            if len(self._held) >= _HELD:
                self._judge()

    def verdicts(self) -> pl.DataFrame:
        """Of all texts that were taken: ``side``, ``question`` (id), ``sample``, ``verdict``, ``end``."""
        self._judge()
        names = {"side": pl.String(), "question": pl.String(), "sample": pl.UInt32()}
        return pl.DataFrame(self._judged, {**names, "verdict": pl.String(), "end": pl.String()}, orient="row")

    def _judge(self) -> None:
        order = sorted(self._held, key=lambda one: (self._golds[one[0]][one[1]], one[:3]))
        pairs = [GradedPair(self._golds[role][question], text) for role, question, _, text in order]
        theirs = processes.judge("searchlens.grading.math_verify_alone", pairs, processes.DEFAULT, self._workers)
        self._judged += [
            (role, question, sample, verdict or "unknown", text[-_TAIL:])
            for (role, question, sample, text), verdict in zip(order, theirs, strict=True)
        ]
        self._held = []


def _drawn(side: Side, ids: Sequence[str], seed: int, count: int) -> pl.DataFrame:
    """Some samples of the first pool, each as likely as any other."""
    samples = side.first.samples
    total = len(ids) * samples
    generator = seeds.generator("agreement", seed, side.role)
    chosen = np.sort(generator.choice(total, min(count, total), replace=False))
    rows = {"question": [ids[i // samples] for i in chosen], "sample": chosen % samples}
    return pl.DataFrame(rows, {"question": pl.String(), "sample": pl.UInt32()})


def opinions(
    sides: Sequence[Side],
    common: Common,
    judged: Mapping[str, Judged],
    theirs: pl.DataFrame,
    *,
    is_recorded: bool,
    seed: int,
    confidence: float,
) -> Opinions:
    """Compare verdicts.

    Parameters
    ----------
    judged : mapping
        Role to the samples of its first pool.
    theirs : DataFrame
        Of ``SecondJudge.verdicts``.
    is_recorded : bool
        Our verdicts are the recorded ones, so that these are no other opinion.
    seed : int
        Of the draws over questions.
    confidence : float
        Nominal coverage, in (0, 1).
    """
    counts, examples = [pl.DataFrame(schema=AGREEING)], [pl.DataFrame(schema=EXAMPLE)]
    for side in sides:
        questions = common.of(side.role)
        ours = judged[side.role].scores.select("question", "sample", ours="correct")
        for grader, rows in _others(side, questions, theirs, is_recorded=is_recorded):
            both = ours.join(rows, on=["question", "sample"], maintain_order="left")
            if both.height:
                counts.append(_counted(side.title, grader, both, seed, confidence))
                examples.append(_examples(side.title, grader, both, questions))
    return Opinions(agreeing=pl.concat(counts), examples=pl.concat(examples))


def _others(
    side: Side, questions: Sequence[Question], theirs: pl.DataFrame, *, is_recorded: bool
) -> list[tuple[str, pl.DataFrame]]:
    """Name of a grader, and ``question`` (position), ``sample``, ``theirs`` (right or not), ``end``."""
    known = theirs.filter(pl.col("side") == side.role, pl.col("verdict") != "unknown")
    alone = known.join(positions(questions), on="question")
    found = [
        (MATH_VERIFY, alone.select("sample", "end", question="position", theirs=pl.col("verdict") == "right")),
    ]
    if is_recorded:
        return found
    said = verdicts_of(side.first, questions).filter(pl.col("value").is_in([0.0, 1.0]))
    return [
        *found,
        *(
            (
                f"{name} (recorded)",
                said.filter(scorer=name).select(
                    "question", "sample", theirs=pl.col("value") == 1, end=pl.lit(None, pl.String)
                ),
            )
            for name in side.first.tally.scorers
        ),
    ]


def _counted(title: str, grader: str, both: pl.DataFrame, seed: int, confidence: float) -> pl.DataFrame:
    same = pl.col("ours") == pl.col("theirs")
    total = both.select(
        agree=same.sum(),
        ours_alone=(pl.col("ours") & ~pl.col("theirs")).sum(),
        theirs_alone=(~pl.col("ours") & pl.col("theirs")).sum(),
    ).row(0, named=True)
    by_question = both.group_by("question").agg(same.sum().alias("same"), pl.len().alias("all")).sort("question")
    shares = (by_question["same"] / by_question["all"]).to_numpy()
    weights = by_question["all"].to_numpy() / by_question["all"].mean()
    share = np.array([total["agree"] / both.height])
    resamples = Resamples.draw(len(shares), 1000, seed)
    lo, hi = with_width(
        share, resamples.interval((shares * weights)[:, None], confidence), len(shares), confidence, (0.0, 1.0)
    )
    row = {"side": title, "grader": grader, "compared": both.height, **total}
    return pl.DataFrame([{**row, "share": share[0], "lo": float(lo[0]), "hi": float(hi[0])}], AGREEING)


def _examples(title: str, grader: str, both: pl.DataFrame, questions: Sequence[Question]) -> pl.DataFrame:
    differing = both.filter(pl.col("ours") != pl.col("theirs")).sort("question", "sample")
    some = differing.unique("question", keep="first", maintain_order=True).head(EXAMPLES)
    ids, golds = ([getattr(questions[i], name) for i in some["question"]] for name in ("id", "gold"))
    return some.select(
        pl.lit(title).alias("side"),
        pl.lit(grader).alias("grader"),
        pl.Series("question", ids, pl.String),
        "sample",
        "ours",
        "theirs",
        pl.Series("gold", golds, pl.String),
        "end",
    ).cast(EXAMPLE)
