"""From the log files of two sides to everything that is found in them. What is written lies in a temporary folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from searchlens import grading, importing
from searchlens.api import Comparison, compare
from searchlens.benchmarks import KnownBenchmark, Question, known_benchmarks, options
from searchlens.comparing.common import Common, common
from searchlens.comparing.found import LogComparison, SideFound
from searchlens.comparing.judging import CHOICE, MATH, Judged, chosen_grader, graded, plain_golds, recorded
from searchlens.comparing.opinions import SecondJudge, opinions
from searchlens.comparing.sides import BASE, RL, TITLES, Side, base_and_rl
from searchlens.errors import InputError
from searchlens.grading.recorded import is_recorded
from searchlens.health.examples import line
from searchlens.health.judgement import judge, of_pair, of_rules
from searchlens.importing import Choices
from searchlens.importing.reading import Failed
from searchlens.readers import recognised


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the user may decide.

    Attributes
    ----------
    grader : str
        Name of a grader, or ``recorded``: the verdicts of the logs. Empty: chosen by the golds.
    questions : sequence of Question, optional
        A benchmark that is known: its golds count. Without it, the logs define one.
    models : (str, str)
        Models of Base and RL, as the logs name them, where files have several.
    tasks : tuple of str
        Tasks of the logs to read, where they have several.
    failed : {"", "drop", "wrong", "unequal"}
        As of ``importing.Choices``.
    log : mapping
        What a format leaves open: ``wishes`` of ``importing.Choices``.
    withheld : str
        Why no text may be quoted; empty: decided by the names of files and tasks.
    every_text : bool
        Other graders judge all texts, not only some.
    seed : int
        Of everything that is drawn.
    draws : int
        Bootstrap draws over questions.
    confidence : float
        Nominal coverage of intervals, in (0, 1).
    workers : int
        Processes of graders, >= 1.
    """

    grader: str = ""
    questions: Sequence[Question] | None = None
    models: tuple[str, str] = ("", "")
    tasks: tuple[str, ...] = ()
    failed: Failed = ""
    log: Mapping[str, str] = field(default_factory=dict)
    withheld: str = ""
    every_text: bool = False
    seed: int = 0
    draws: int = 2000
    confidence: float = 0.95
    workers: int = 1


def compare_logs(base: Sequence[Path], rl: Sequence[Path], wishes: Wishes = Wishes()) -> LogComparison:
    """Read, match and grade the samples of both sides, and read what they say.

    Parameters
    ----------
    base, rl : sequence of Path
        Files or folders of each side, in any format that is read (docs/import.md); the two formats may differ.
    wishes : Wishes

    Raises
    ------
    InputError
        Files cannot be read, the sides have no question in common, or nothing can be graded.
    """
    if wishes.grader:
        grading.grader(wishes.grader)
    files = []
    for paths, role in ((base, BASE), (rl, RL)):  # before anything is read, which takes time
        with _named(role):
            files += recognised(paths).files
    withheld = wishes.withheld or _gated(map(str, [*files, *wishes.tasks]))
    with tempfile.TemporaryDirectory(prefix="searchlens-compare-") as place, ExitStack() as stack:
        number = count()

        def folder() -> Path:
            made = Path(place, f"rows-{next(number)}")
            made.mkdir()
            return made

        choices = Choices(
            tasks=wishes.tasks, failed=wishes.failed, is_subset=wishes.questions is not None, wishes=wishes.log
        )

        # The grader by which golds are compared while a known benchmark is read.
        grader = wishes.grader if wishes.grader and not is_recorded(wishes.grader) else MATH

        def read(paths: Sequence[Path], role: str) -> importing.Reading:
            with _named(role):
                return stack.enter_context(
                    importing.read(
                        paths,
                        wishes.questions,
                        grader,
                        choices,
                        folder=folder,
                        quotes=not withheld,
                        needs_golds=False,
                    )
                )

        sides = base_and_rl(read(base, BASE), read(rl, RL), wishes.models)
        tasks = [pool.stream.task for side in sides for pool in side.pools.values()]
        is_floor = any(known.regime == "floor" for known in _known([*tasks, *(file.name for file in files)]))
        return _found(sides, wishes, Path(place, "pairs"), withheld or _gated(tasks), is_floor=is_floor)


@contextmanager
def _named(role: str) -> Iterator[None]:
    """Mistakes in files name the side."""
    try:
        yield
    except InputError as error:
        hint = (error.hint or "").replace("nothing was imported", "nothing was compared")
        raise InputError(f"{TITLES[role]}: {error.message}", hint) from None


def _gated(names: Iterable[str]) -> str:
    """Why texts are not to be quoted, if a name of a file or task has that of a gated benchmark; empty if none does."""
    return next((f"{known.title} is gated ({known.licence})" for known in _known(names) if known.gated), "")


def _known(names: Iterable[str]) -> list[KnownBenchmark]:
    """Benchmarks whose names are part of the names of files or tasks."""
    small = [name.lower() for name in names]
    return [known for known in known_benchmarks().values() if any(known.name in name for name in small)]


def _found(sides: tuple[Side, Side], wishes: Wishes, verdicts: Path, withheld: str, *, is_floor: bool) -> LogComparison:
    grader = chosen_grader(wishes.grader, *sides)
    by_logs = is_recorded(grader)
    known = [plain_golds(side.reading.questions, grader) for side in sides]
    both = common(known[0], known[1], "" if by_logs else grader)
    notes = [*both.notes, *_differences(*sides)]
    if by_logs:
        judged, more = recorded(sides, both, grader)
        notes += more
        second = None
    else:
        if missing := [question.id for question in both.base if not question.gold and not question.checks]:
            raise InputError(
                f"{len(missing):,} questions have no gold on either side, such as {missing[0]!r}",
                "--benchmark NAME takes the golds of a configured benchmark; --grader recorded the logs' verdicts",
            )
        second = SecondJudge(
            sides, both, grader, seed=wishes.seed, everything=wishes.every_text, workers=wishes.workers
        )
        judged = graded(sides, both, grader, verdicts, seed=wishes.seed, workers=wishes.workers, see=second.see)
    firsts = {side.role: judged[side.role][next(iter(side.pools))] for side in sides}
    nothing = SecondJudge(sides, both, CHOICE, seed=wishes.seed, everything=False, workers=1)
    agreement = opinions(
        sides,
        both,
        firsts,
        (second or nothing).verdicts(),
        is_recorded=by_logs,
        seed=wishes.seed,
        confidence=wishes.confidence,
    )
    if all(side.first.has_texts for side in sides) and sides[0].first.tally.content == sides[1].first.tally.content:
        notes.append("both sides have the same samples: every difference is 0 by construction")
    shown = [_side(side, judged[side.role]) for side in sides]
    why = of_pair({side.title: side.health for side in shown}, is_floor=is_floor)
    if why and not any(side.health.broken for side in shown):  # the last remark says the same of one side
        shown = [replace(s, health=replace(s.health, broken=(why,), remarks=s.health.remarks[:-1])) for s in shown]
        notes += [] if withheld else [_wrong_sample(side, firsts[side.role], both) for side in sides]
    elif remark := of_rules(*(side.health for side in shown)):
        shown[1] = replace(shown[1], health=replace(shown[1].health, remarks=(*shown[1].health.remarks, remark)))
    return LogComparison(
        comparison=_compared(judged, firsts, both, wishes),
        sides=tuple(shown),
        grader=grader,
        common=both,
        opinions=agreement,
        notes=tuple(notes),
        withheld=withheld,
    )


def _wrong_sample(side: Side, judged: Judged, both: Common) -> str:
    """A sample of a side that solves nothing, with its text and its gold."""
    row = judged.scores.sort(pl.col("answer") < 0, "question", "sample").row(0, named=True)
    question = both.of(side.role)[row["question"]]
    parts = (part.filter(question=question.id, sample=row["sample"]) for part in side.first.frames())
    text = next(part["text"].item() for part in parts if part.height)
    shown = line(question.id, row["sample"], row["finish"], text or "", row["policy"], question.gold)
    return f"{side.title}: {shown.lstrip()}"


def _differences(base: Side, rl: Side) -> Iterator[str]:
    """What was asked otherwise of the two models, so that their difference need not be that of training."""
    ours, theirs = base.first.asked, rl.first.asked
    keys = [key for key in {**ours, **theirs} if key not in _OF_RUNS and ours.get(key) != theirs.get(key)]
    if keys:
        said = ", ".join(f"{key} {_said(ours.get(key))} and {_said(theirs.get(key))}" for key in keys)
        yield f"Base and RL were sampled differently: {said}"
    names = [next(iter(side.pools)) for side in (base, rl)]
    if not keys and names[0] != names[1]:
        yield f"Base was sampled under {names[0]}, RL under {names[1]}"


def _said(value: object) -> str:
    return "not stated" if value is None else str(value)


_OF_RUNS = ("seed", "n")
"""Sampling parameters that differ from run to run."""


def _side(side: Side, judged: Mapping[str, Judged]) -> SideFound:
    name = next(iter(side.pools))
    pool, counts = side.first, judged[name].health
    notes = list(side.reading.notes)
    if pool.failed == "drop":
        notes.append(f"kept the first {pool.samples:,} samples of each question that did not fail")
    if pool.failed == "unequal":
        notes.append(f"questions have unequal numbers of samples that did not fail, {pool.samples:,} or more")
    if pool.failed == "wrong":
        notes.append("failed and missing samples count as wrong")
    return SideFound(
        title=side.title,
        model=side.model,
        policies=tuple(side.pools),
        unstated=pool.proposal.unstated,
        format=side.reading.format,
        files=len(side.reading.files),
        questions=len(side.reading.questions),
        samples=pool.samples,
        tokens=judged[name].tokens,
        health=judge(counts),
        counts=counts.row(0, named=True),
        notes=tuple(notes),
    )


def _compared(
    judged: Mapping[str, Mapping[str, Judged]], firsts: Mapping[str, Judged], both: Common, wishes: Wishes
) -> Comparison:
    base, rl = judged[BASE], firsts[RL]
    several = len(base) > 1
    pools = [*base.values(), rl]

    def pair(name: str, known: Sequence[Any]) -> Any:
        """What each pool has, if all have it: of Base by policy, if it has several."""
        if any(value is None for value in known):
            return None
        ours = {policy: getattr(pool, name) for policy, pool in base.items()}
        return (ours if several else ours[next(iter(ours))], getattr(rl, name))

    right = {policy: pool.right for policy, pool in base.items()}
    first = next(iter(right))
    letters = np.array([options(question) for question in both.base])
    return compare(
        right if several else right[first],
        rl.right,
        classes=pair("classes", [pool.classes for pool in pools]),
        tokens=pair("tokens", [pool.tokens for pool in pools]),
        choices=letters if letters.any() else None,
        lucky=pair("lucky", [firsts[BASE].lucky, rl.lucky]),  # of other policies of Base it was not judged
        confidence=wishes.confidence,
        draws=wishes.draws,
        seed=wishes.seed,
    )
