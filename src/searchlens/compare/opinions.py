"""What other graders say of the same samples: math-verify alone, and the verdicts that the logs recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from searchlens import catalogue, seeds
from searchlens.analysis.uncertainty import Resamples, with_width
from searchlens.benchmarks import Question
from searchlens.compare.common import Common, Side
from searchlens.compare.judging import verdicts_of
from searchlens.formats.pools import Pool
from searchlens.grading import GradedPair, processes
from searchlens.grading.score import positions

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
    """Judges texts by math-verify alone while they are read: those of both sides that a seed draws, or everything.

    Nothing is judged beside a grader that is no mathematical one.
    """

    def __init__(
        self, sides: Sequence[Side], common: Common, grader: str, *, seed: int, everything: bool, workers: int
    ) -> None:
        self._wanted = bool(catalogue.declaration("grader", grader.partition(":")[0]).options.get("mathematical"))
        self._golds = {side.role: {q.id: q.gold for q in common.of(side.role)} for side in sides}
        self._drawn = {
            side.role: None if everything else _drawn(side, list(self._golds[side.role]), seed, TEXTS // len(sides))
            for side in sides
        }
        self._workers = workers
        self._held: list[tuple[str, str, int, str]] = []
        self._judged: list[tuple[str, str, int, bool | None, str]] = []

    def see(self, role: str, rows: pl.DataFrame) -> None:
        """Take the drawn ones of some samples."""
        if not self._wanted:
            return
        drawn = self._drawn[role]
        kept = rows if drawn is None else rows.join(drawn, on=["question", "sample"], how="semi", maintain_order="left")
        for start in range(0, kept.height, _HELD):
            self._held += kept.slice(start, _HELD).select(pl.lit(role), "question", "sample", "text").rows()
            if len(self._held) >= _HELD:
                self._judge()

    def verdicts(self) -> pl.DataFrame:
        """Of all texts that were taken: ``side``, ``question``, ``sample``, ``end``; ``theirs``, null if undecided."""
        self._judge()
        schema = {name: EXAMPLE[name] for name in ("side", "question", "sample", "theirs", "end")}
        return pl.DataFrame(self._judged, schema, orient="row")

    def _judge(self) -> None:
        order = sorted(self._held, key=lambda one: (self._golds[one[0]][one[1]], one[:3]))
        pairs = [GradedPair(self._golds[role][question], text) for role, question, _, text in order]
        theirs = processes.judge("searchlens.grading.math_verify_alone", pairs, processes.DEFAULT, self._workers)
        self._judged += [
            (role, question, sample, verdict == "right" if isinstance(verdict, str) else None, text[-_TAIL:])
            for (role, question, sample, text), verdict in zip(order, theirs, strict=True)
        ]
        self._held = []


def _drawn(side: Side, ids: Sequence[str], seed: int, count: int) -> pl.DataFrame:
    """Some samples of the first pool, each as likely as any other."""
    samples = side.first.samples
    total = len(ids) * samples
    chosen = np.sort(seeds.generator("agreement", seed, side.role).choice(total, min(count, total), replace=False))
    rows = {"question": [ids[i // samples] for i in chosen], "sample": chosen % samples}
    return pl.DataFrame(rows, {"question": pl.String(), "sample": pl.UInt32()})


def opinions(
    sides: Sequence[Side],
    common: Common,
    scores: Mapping[str, pl.DataFrame],
    theirs: pl.DataFrame,
    *,
    is_recorded: bool,
    seed: int,
    confidence: float,
) -> Opinions:
    """How others agree with ``scores``, our verdicts on the first pool of each role. ``theirs`` is of
    ``SecondJudge.verdicts``; if ours are the recorded ones, these are no other opinion. ``seed`` draws questions.
    """
    counts, examples = [pl.DataFrame(schema=AGREEING)], [pl.DataFrame(schema=EXAMPLE)]
    for side in sides:
        questions = common.of(side.role)
        ours = scores[side.role].select("sample", position="question", ours="correct")
        others = {MATH_VERIFY: theirs.filter(side=side.role)}
        if not is_recorded:
            others |= _recorded(side.first)
        for grader, rows in others.items():
            known = rows.drop_nulls("theirs").join(positions(questions), on="question")
            both = ours.join(known, on=["position", "sample"], maintain_order="left")
            if both.height:
                counts.append(_counted(side.title, grader, both, seed, confidence))
                examples.append(_examples(side.title, grader, both, questions))
    return Opinions(agreeing=pl.concat(counts), examples=pl.concat(examples))


def _recorded(pool: Pool) -> dict[str, pl.DataFrame]:
    """The same of each scorer of the log, which says nothing of a text's end."""
    said = verdicts_of(pool).with_columns(theirs=pl.col("value") == 1, end=pl.lit(None, pl.String))
    return {f"{name} (recorded)": said.filter(scorer=name) for name in pool.tally.scorers}


def _counted(title: str, grader: str, both: pl.DataFrame, seed: int, confidence: float) -> pl.DataFrame:
    same = pl.col("ours") == pl.col("theirs")
    total = both.select(
        agree=same.sum(),
        ours_alone=(pl.col("ours") & ~pl.col("theirs")).sum(),
        theirs_alone=(~pl.col("ours") & pl.col("theirs")).sum(),
    ).row(0, named=True)
    by_question = both.group_by("position").agg(same.sum().alias("same"), pl.len().alias("all")).sort("position")
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
    differing = both.filter(pl.col("ours") != pl.col("theirs")).sort("position", "sample")
    some = differing.unique("position", keep="first", maintain_order=True).head(EXAMPLES)
    golds = pl.Series([questions[i].gold for i in some["position"]], dtype=pl.String)
    named = some.with_columns(side=pl.lit(title), grader=pl.lit(grader), gold=golds)
    return named.select(EXAMPLE.names()).cast(EXAMPLE)
