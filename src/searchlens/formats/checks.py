"""What is looked at before anything is stored: have texts answers, and are our verdicts the recorded ones?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from searchlens import grading
from searchlens.analysis.health import line, percent
from searchlens.errors import counted, one_line
from searchlens.formats.pools import Examined, Pool
from searchlens.formats.reading import Reading
from searchlens.grading import GradedPair
from searchlens.grading.score import is_recorded

ANSWERED = 0.80
"""Smallest share with an answer among the finished texts of a pool."""

AGREEING = 0.90
"""Smallest share of recorded verdicts that ours agree with."""

FEWEST = 20
"""Fewest texts or verdicts on which anything is decided."""

SHOWN = 3
"""Texts that are shown of a pool that fails."""


VERDICTS = 0.90
"""Smallest share of samples with a verdict that is right or wrong, where those of the log count."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """What was found in the texts that were looked at (``tally.EXAMINED`` of each pool)."""

    examined: int
    finished: int
    answered: int
    """``examined``, ``finished``, ``answered``: texts; those of them that are not cut off; of these, with an answer."""
    agreeing: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Scorer to the number of its verdicts that ours agree with, and of those that were compared."""
    verdicts: tuple[str, int, int] | None = None
    """Where the log's verdicts count: their scorer, those that are right, and all that are right or wrong."""
    faults: tuple[str, ...] = ()
    """Why the pool should not be stored; empty if nothing speaks against it."""
    examples: tuple[str, ...] = ()
    """Some texts, one line each, if there are faults."""

    def __str__(self) -> str:
        if self.verdicts is not None:
            scorer, right, known = self.verdicts
            parts = [f"judged by the log: {scorer} calls {percent(right, known)} right", "no text is graded"]
            parts += [f"{percent(self.examined - known, self.examined)} without a verdict"] * (known < self.examined)
            return f"{', '.join(parts)} (of {self.examined:,} samples looked at)"
        parts = [f"answers in {percent(self.answered, self.finished)} of finished texts"]
        parts += [f"cut off {percent(self.examined - self.finished, self.examined)}"]
        parts += [f"agrees with {name} on {percent(*both)}" for name, both in self.agreeing.items()]
        return f"{', '.join(parts)} (of {self.examined:,} texts looked at)"


def check(pool: Pool, grader: str, *, quotes: bool = True) -> Check:
    """Look for answers in some texts of a pool, and grade those that have a recorded verdict; with ``quotes``, texts
    are shown.
    """
    examined = [one for one in pool.examined if one.finish != "failed"]
    if is_recorded(grader):
        return _of_verdicts(pool, examined)
    extract = grading.grader(grader).extract
    answers = [extract(one.text, one.finish != "length").answer for one in examined]
    finished = [(one, answer) for one, answer in zip(examined, answers, strict=True) if one.finish != "length"]
    silent = [one for one, answer in finished if answer is None]
    compared = _compared(pool, grader, examined, answers)
    agreeing = {name: (sum(same for _, same in pairs), len(pairs)) for name, pairs in compared.items() if pairs}
    faults, shown = [], []
    if not pool.has_texts:
        hint = "; --grader recorded takes its verdicts" if pool.tally.scorers else ""
        faults.append(f"the log has no texts to grade{hint}")
    elif len(finished) >= FEWEST and len(silent) > (1 - ANSWERED) * len(finished):
        share = percent(len(finished) - len(silent), len(finished))
        faults.append(f"only {share} of {len(finished):,} finished texts have an answer that {grader} finds")
        shown += silent
    for name, (same, count) in agreeing.items():
        if count >= FEWEST and same < AGREEING * count:
            faults.append(f"our verdicts agree with {percent(same, count)} of {count:,} recorded by {name}")
            shown += [one for one, is_same in compared[name] if not is_same]
    examples = []
    for one in shown[:SHOWN]:
        finish, text = None if one.finish == "unknown" else one.finish, one.text if quotes else None
        name = pool.question(one.number).id
        examples.append(line(name, one.sample, finish, text, pool.policy or "no name of a policy"))
    return Check(
        examined=len(examined),
        finished=len(finished),
        answered=len(finished) - len(silent),
        agreeing=agreeing,
        faults=tuple(faults),
        examples=tuple(examples),
    )


def _of_verdicts(pool: Pool, examined: Sequence[Examined]) -> Check:
    """Whether samples have verdicts, and whether these are right or wrong rather than something between."""
    values = [one.verdicts[pool.scorer].value if pool.scorer in one.verdicts else None for one in examined]
    found = [value for value in values if value is not None]
    plain = [value for value in found if value in (0, 1)]
    faults = []
    if len(values) >= FEWEST and len(found) < VERDICTS * len(values):
        share = percent(len(found), len(values))
        faults.append(f"only {share} of {len(values):,} samples have a verdict of {pool.scorer}")
    elif len(found) >= FEWEST and len(plain) < VERDICTS * len(found):
        between = percent(len(found) - len(plain), len(found))
        faults.append(f"{between} of {len(found):,} values of {pool.scorer} are between 0 and 1, which counts as wrong")
    return Check(
        examined=len(examined),
        finished=sum(one.finish != "length" for one in examined),
        answered=0,
        verdicts=(pool.scorer, sum(value == 1 for value in plain), len(found)),
        faults=tuple(faults),
    )


def _compared(
    pool: Pool, grader: str, examined: Sequence[Examined], answers: Sequence[str | None]
) -> dict[str, list[tuple[Examined, bool]]]:
    """Scorer to the samples that it judged right or wrong, each with whether our verdict is the same."""
    judge = grading.grader(grader)
    wanted = [(one, answer) for one, answer in zip(examined, answers, strict=True) if one.verdicts]
    pairs = {
        (one.number, answer): GradedPair(judge.reference(pool.question(one.number)), answer)
        for one, answer in wanted
        if answer is not None
    }
    order = sorted(set(pairs.values()))
    verdicts = dict(zip(order, judge.grade(order, workers=1), strict=True)) if order else {}
    compared: dict[str, list[tuple[Examined, bool]]] = {}
    for one, answer in wanted:
        is_right = answer is not None and bool(verdicts[pairs[one.number, answer]].correct)
        for name, verdict in one.verdicts.items():
            if verdict.value in (0, 1):
                compared.setdefault(name, []).append((one, is_right == bool(verdict.value)))
    return compared


def report(reading: Reading, pools: Sequence[Pool], checks: Sequence[Check]) -> list[str]:
    """Questions matched, then each pool with its policy, samples and checks, then what was chosen or left out."""
    lines = [
        f"{counted(len(reading.files), 'file')}, read as {reading.format}",
        f"questions: {len(reading.questions):,} ({reading.found})",
    ]
    for pool, check in zip(pools, checks, strict=True):
        lines += _of_pool(pool, check)
    return [*lines, *(f"note: {note}" for note in reading.notes)]


def _of_pool(pool: Pool, check: Check) -> list[str]:
    tally = pool.tally
    who = " ".join(part for part in (pool.role, pool.stream.model) if part) or "samples"
    sizes = f"{counted(len(pool.questions), 'question')} x {counted(pool.samples, 'sample')}"
    head = f"{who}: policy {pool.policy or 'not known'}, {sizes}"
    lines = [one_line(head, 1000), one_line(f"  in the log: {pool.proposal}", 1000), f"  {check}"]
    kept = len(pool.questions) * pool.samples
    if tally.ends["failed"]:
        lines.append(f"  {tally.ends['failed']:,} requests failed")
    if pool.failed == "drop":
        lines.append(f"  kept the first {pool.samples:,} samples of each question: {kept:,} of {tally.count:,}")
    if pool.failed == "wrong":
        lines.append(f"  {kept - tally.count + tally.ends['failed']:,} failed or missing samples count as wrong")
    if tally.ends["unknown"]:
        lines.append(f"  of {tally.ends['unknown']:,} samples it is not known how they ended")
    if tally.inferred:
        lines.append(f"  of {tally.inferred:,} samples it is inferred from the limit of tokens that they were cut off")
    whole = tally.count - tally.ends["failed"]
    for what, known in (("token counts", tally.with_tokens), ("log-probabilities", tally.with_logprobs)):
        if 0 < known < whole:
            lines.append(f"  {what} are left out: only {known:,} of {whole:,} samples have them")
    lines += [f"  attention: {fault}" for fault in check.faults]
    return [*lines, *check.examples]
