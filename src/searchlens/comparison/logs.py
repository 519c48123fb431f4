"""From the log files of two sides to everything that is found in them, and what it can and cannot say, in sentences.

What is written lies in a temporary folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from searchlens import grading
from searchlens.analysis.claims import leader, solved
from searchlens.analysis.frames import pick
from searchlens.analysis.health import SILENT, Health, cut_off, judge, line, of_graded, of_pair, of_rules, percent
from searchlens.analysis.measures import DIFFERENCE
from searchlens.benchmarks import KnownBenchmark, Question, known_benchmarks, options
from searchlens.comparison import judging
from searchlens.comparison.arrays import Comparison, compare
from searchlens.comparison.common import BASE, NOT_STATED, RL, TITLES, Common, Side, base_and_rl, common, differing
from searchlens.comparison.judging import by_question, mean_tokens
from searchlens.comparison.samples import to_read
from searchlens.comparison.statements import Statement, stated, told
from searchlens.errors import InputError, one_line, within
from searchlens.formats import reading
from searchlens.formats.readers.fitting import recognised
from searchlens.formats.readers.logged import Notes
from searchlens.formats.reading import LEFT_OUT, Choices, Failed, SeveralTasksError, files_of_tasks
from searchlens.grading.score import is_recorded


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the user may decide."""

    grader: str = ""
    """Name of a grader, or ``recorded``: the verdicts of the logs. Empty: chosen by the golds."""
    questions: Sequence[Question] | None = None
    """A benchmark that is known: its golds count. Without it, the logs define one."""
    models: tuple[str, str] = ("", "")
    """Models of Base and RL, as the logs name them, where files have several."""
    tasks: tuple[str, ...] = ()
    """Tasks of the logs to read, where they have several."""
    failed: Failed = ""
    log: Mapping[str, str] = field(default_factory=dict)
    """``failed``, ``log``: ``failed`` and ``wishes`` of ``importing.Choices``."""
    withheld: str = ""
    """Why no text may be quoted; empty: decided by the names of files and tasks."""
    samples: bool = False
    """Keep samples to be read."""
    every_text: bool = False
    """Other graders judge all texts, not only some."""
    seed: int = 0
    """Of everything that is drawn."""
    draws: int = 2000
    """Bootstrap draws over questions."""
    confidence: float = 0.95
    """Nominal coverage of intervals, in (0, 1)."""
    workers: int = 1
    """Processes of graders, >= 1."""


DOUBTFUL = 0.95
"""Share of samples on which two graders agree; their disagreement is named unless it is surely at least that."""

DEMO = Path(__file__).parent / "demo_logs"
HARNESSES = {"lm_eval": "lm-evaluation-harness", "inspect": "Inspect"}
"""Sample logs, which come with the package (demo_logs/README.md): folder to the harness that wrote them; the first is
compared."""

UNLIKELY = 50
"""Characters of a text from which on two samples are hardly equal by chance."""


@dataclass(frozen=True, kw_only=True)
class SideFound:
    """The samples of one side."""

    title: str
    """``Base`` or ``RL``."""
    model: str
    """As the log names it; empty if it does not."""
    policies: tuple[str, ...]
    """As the log says them; the first is compared one to one."""
    not_stated: tuple[str, ...]
    """Parameters of the first policy that the log does not give."""
    format: str
    """Name of the reader."""
    files: int
    questions: int
    samples: int
    """``files``, ``questions``, ``samples``: files, questions in them, and samples of each question."""
    mean_tokens: float | None
    """Of a sample; None if unknown."""
    health: Health
    """Of the samples of the common questions."""
    counts: Mapping[str, Any]
    """``store.columns.HEALTH`` of all policies together."""
    notes: tuple[str, ...]
    """What was chosen or left out while reading."""

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types."""
        health = {"level": self.health.level, "reason": self.health.reason, **self.counts}
        named = {key: value for key, value in vars(self).items() if key not in ("title", "counts")} | {"health": health}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in named.items()}


@dataclass(frozen=True, kw_only=True)
class LogComparison:
    """Everything that was found."""

    comparison: Comparison
    """The measures."""
    sides: tuple[SideFound, ...]
    """Base and RL."""
    grader: str
    """Name of the grader, or ``recorded``."""
    common: Common
    """The questions."""
    agreeing: pl.DataFrame
    """What other graders say: ``judging.AGREEING``."""
    examples: pl.DataFrame
    """Some samples that they judge differently: ``judging.EXAMPLE``."""
    notes: tuple[str, ...]
    """What was left out or chosen for both sides."""
    withheld: str
    """Why no text may be quoted; empty if texts may be."""
    to_read: pl.DataFrame | None = None
    """``samples.to_read``, if samples are wished and there are texts that may be quoted."""
    task: str = ""
    """Name of the task, if the logs have several."""

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What each measure can and cannot say: those of the measures, then of the verdicts and of the samples."""
        short, *others = self.comparison.statements
        broken = [f"{side.title}: {'; '.join(side.health.broken)}" for side in self.sides if side.health.broken]
        if broken:
            short = Statement(short.measure, f"not interpretable. {'. '.join(broken)}.", "")
        return (short, *others, self._graders(), self._health())

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types, for JSON. Texts are left out."""
        base, rl = self.sides
        return {
            "base": base.to_dict(),
            "rl": rl.to_dict(),
            "grader": self.grader,
            "matched": {
                "questions": len(self.common),
                **{f"by_{how}": number for how, number in self.common.how.items()},
                **{key: list(getattr(self.common, key)) for key in ("only_base", "only_rl", "other_golds", "reworded")},
                "ids": [question.id for question in self.common.base],
            },
            "graders": self.agreeing.to_dicts(),
            "notes": list(self.notes),
            "withheld": self.withheld,
            **self.comparison.to_dict(),
            "says": [statement.to_dict() for statement in self.statements],
        }

    def __str__(self) -> str:
        return "\n".join(map(str, told(self.statements)))

    def _graders(self) -> Statement:
        rows = self.agreeing.to_dicts()
        found = "; ".join(
            f"{row['grader']} on {solved(row['share'], row['lo'], row['hi'])} of {row['compared']:,} samples"
            f" ({row['side']})"
            for row in rows
        )
        doubtful = "; ".join(f"{row['grader']}, {row['side']}" for row in rows if row["lo"] < DOUBTFUL)
        row = {"grader": self.grader, "recorded": is_recorded(self.grader), "found": found, "doubtful": doubtful}
        return stated("graders", row)

    def _health(self) -> Statement:
        parts = []
        for side in self.sides:
            answered, unknown_end = (
                percent(side.counts[name], side.counts["samples"]) for name in ("answered", "unknown_end")
            )
            shares = f"answers in {answered}, {cut_off(side.counts)} cut off, unknown end of {unknown_end}"
            parts.append(f"{side.title}: {shares} of {side.counts['samples']:,} samples")
        unknown = [side.title for side in self.sides if side.counts["unknown_end"] != 0]
        ill = [f"{side.title} than its samples allow ({side.health})" for side in self.sides if side.health.reason]
        return stated("health", {"found": "; ".join(parts), "unknown": " and ".join(unknown), "ill": ", of ".join(ill)})


def compare_tasks(base: Sequence[Path], rl: Sequence[Path], wishes: Wishes = Wishes()) -> list[LogComparison]:
    """``compare_logs`` of all samples or, if the logs have several tasks and none is wished, of each that both sides
    have. Tasks that are left out are noted; an ``InputError`` names them if all are.
    """
    try:
        return [compare_logs(base, rl, wishes)]
    except SeveralTasksError:
        if wishes.questions is not None:
            raise
    ours, theirs = (files_of_tasks(paths, wishes.log) for paths in (base, rl))
    beside = Notes()
    for path, what in (item for paths in (base, rl) for item in recognised(paths).left_out.items()):
        beside.add(f"{LEFT_OUT}: {what}", str(path))
    found, left_out = list[LogComparison](), beside.lines
    for task in sorted({**ours, **theirs}):
        try:
            if task in ours and task in theirs:
                one = compare_logs(ours[task], theirs[task], replace(wishes, tasks=(task,)))
                found.append(replace(one, task=task))
            else:
                left_out.append(f"only {TITLES[BASE if task in ours else RL]} has the task {task}")
        except InputError as error:
            left_out.append(f"the task {task} is left out: {error.message.splitlines()[0]}")
    if not found:
        raise InputError(f"no task can be compared: {'; '.join(left_out)}", "--task TASK compares one, and says more")
    return [replace(each, notes=(*each.notes, *left_out)) for each in found]


def compare_logs(base: Sequence[Path], rl: Sequence[Path], wishes: Wishes = Wishes()) -> LogComparison:
    """Read, match and grade the samples of both sides, whose formats may differ, and read what they say. An
    ``InputError`` if files cannot be read, no question is on both sides, or nothing can be graded.
    """
    if wishes.grader:
        grading.grader(wishes.grader)
    given, files = {BASE: base, RL: rl}, []
    for role, paths in given.items():  # before anything is read, which takes time
        with within(TITLES[role]):
            files += recognised(paths).files
    withheld = wishes.withheld or _gated(map(str, [*files, *wishes.tasks]))
    choices = Choices(
        tasks=wishes.tasks, failed=wishes.failed, is_subset=wishes.questions is not None, wishes=wishes.log
    )
    # Golds of a known benchmark are compared by its grader.
    grader = wishes.grader if wishes.grader and not is_recorded(wishes.grader) else judging.MATH
    with tempfile.TemporaryDirectory(prefix="searchlens-compare-") as place, ExitStack() as stack:
        readings = {}
        for role, paths in given.items():
            with within(TITLES[role]):
                one = reading.read(
                    paths,
                    wishes.questions,
                    grader,
                    choices,
                    quotes=not withheld,
                    needs_golds=False,
                )
                readings[role] = stack.enter_context(one)
        sides = base_and_rl(readings[BASE], readings[RL], wishes.models)
        tasks = [pool.stream.task for side in sides for pool in side.pools.values()]
        is_floor = any(known.regime == "floor" for known in _known([*tasks, *(file.name for file in files)]))
        return _found(sides, wishes, Path(place, "pairs"), withheld or _gated(tasks), is_floor=is_floor)


def sample_logs(harness: str = next(iter(HARNESSES))) -> tuple[Path, Path]:
    """Folders of sample logs of Base and of RL."""
    return DEMO / harness / "base", DEMO / harness / "rl"


def demo() -> LogComparison:
    """What is found in the sample logs, as ``searchlens compare --demo`` shows it: a toy pair on toy questions."""
    base, rl = sample_logs()
    return compare_logs([base], [rl])


def _gated(names: Iterable[str]) -> str:
    """Why texts are not to be quoted, if a name of a file or task has that of a gated benchmark; empty if none does."""
    return next((f"{known.title} is gated ({known.licence})" for known in _known(names) if known.gated), "")


def _known(names: Iterable[str]) -> list[KnownBenchmark]:
    """Benchmarks whose names are part of the names of files or tasks."""
    small = [name.lower() for name in names]
    return [known for known in known_benchmarks().values() if any(known.name in name for name in small)]


def _found(sides: tuple[Side, Side], wishes: Wishes, verdicts: Path, withheld: str, *, is_floor: bool) -> LogComparison:
    grader, seed, workers = judging.chosen_grader(wishes.grader, *sides), wishes.seed, wishes.workers
    by_logs = is_recorded(grader)
    known = [judging.plain_golds(side.reading.questions, grader) for side in sides]
    both = common(known[0], known[1], "" if by_logs else grader)
    notes = [*both.notes, *_differences(*sides)]
    second = judging.SecondJudge(sides, both, grader, seed=seed, everything=wishes.every_text, workers=workers)
    alike = dict.fromkeys((BASE, RL), 0)

    def see(role: str, rows: pl.DataFrame) -> None:
        second.see(role, rows)
        alike[role] += _alike(rows)

    if by_logs:
        scores, more = judging.recorded(sides, both, grader)
        notes += more
    else:
        scores = judging.graded(sides, both, grader, verdicts, seed=seed, workers=workers, see=see)
    firsts = {side.role: scores[side.role].filter(policy=next(iter(side.pools))) for side in sides}
    theirs = second.verdicts()
    agreeing, examples = judging.opinions(sides, both, firsts, theirs, grader, seed=seed, confidence=wishes.confidence)
    has_texts = all(side.first.has_texts for side in sides)
    if has_texts and sides[0].first.tally.content == sides[1].first.tally.content:
        notes.append("both sides have the same samples: every difference is 0 by construction")
    elif (model := sides[0].first.stream.model) and model == sides[1].first.stream.model:
        notes.append(f"both sides are samples of a model that is called {one_line(model)}: are they two models?")
    shown = [_side(side, firsts[side.role]) for side in sides]
    why = of_pair({side.title: side.health for side in shown}, is_floor=is_floor)
    if why and not any(side.health.broken for side in shown):  # the last remark says the same of one side
        shown = [replace(s, health=replace(s.health, broken=(why,), remarks=s.health.remarks[:-1])) for s in shown]
        notes += [] if withheld else [_wrong_sample(side, firsts[side.role], both) for side in sides]
    elif remark := of_rules(*(side.health for side in shown)):
        shown[1] = replace(shown[1], health=replace(shown[1].health, remarks=(*shown[1].health.remarks, remark)))
    found = _compared(scores[BASE], scores[RL], both, wishes)
    notes += _suspicions(shown, found, alike)
    return LogComparison(
        comparison=found,
        sides=tuple(shown),
        grader=grader,
        common=both,
        agreeing=agreeing,
        examples=examples,
        notes=tuple(notes),
        withheld=withheld,
        to_read=to_read(sides, both, firsts, grader) if wishes.samples and not withheld and has_texts else None,
    )


def _wrong_sample(side: Side, scores: pl.DataFrame, both: Common) -> str:
    """A sample of a side that solves nothing, with its text and its gold."""
    row = scores.sort(pl.col("answer") < 0, "question", "sample").row(0, named=True)
    question = both.of(side.role)[row["question"]]
    parts = (part.filter(question=question.id, sample=row["sample"]) for part in side.first.frames())
    text = next(part["text"].item() for part in parts if part.height)
    shown = line(question.id, row["sample"], row["finish"], text or "", row["policy"], question.gold)
    return f"{side.title}: {shown.lstrip()}"


def _differences(base: Side, rl: Side) -> Iterator[str]:
    """What was asked otherwise of the two models, so that their difference need not be that of training."""
    names = [next(iter(side.pools)) for side in (base, rl)]
    if said := differing(base.first, rl.first, apart_from=("seed", "n")):  # these differ from run to run
        what = "may have been" if NOT_STATED in said else "were"
        yield f"Base and RL {what} sampled differently: {said}"
    elif names[0] != names[1]:
        yield f"Base was sampled under {names[0]}, RL under {names[1]}"


def _alike(rows: pl.DataFrame) -> int:
    """Of how many questions all samples are one text that is hardly drawn twice."""
    text = pl.col("text")
    is_one = (text == text.first()).all() & (text.first().str.len_chars() >= UNLIKELY) & (pl.len() > 1)
    return int(rows.group_by("question").agg(is_one=is_one)["is_one"].sum())


def _suspicions(sides: Sequence[SideFound], found: Comparison, alike: Mapping[str, int]) -> Iterator[str]:
    """What a mistake in how samples were drawn or named looks like."""
    for side, count in zip(sides, alike.values(), strict=True):
        if count > found.questions / 2:
            what = f"all samples of {count:,} of {found.questions:,} questions are one text"
            yield f"{side.title}: {what}: was the temperature 0?"
    if any(side.health.broken for side in sides):
        return
    differences = pick(found.measures, measure="pass@k", side=DIFFERENCE)
    if {leader(row["lo"], row["hi"]) for row in differences.to_dicts()} == {"Base"}:
        yield "Base leads at every budget: are the two sides swapped?"
    ours, theirs = ((side.counts["answered"], side.counts["samples"]) for side in sides)
    if None not in (*ours, *theirs) and abs(ours[0] / ours[1] - theirs[0] / theirs[1]) > SILENT:
        shares = f"{percent(*ours)} of Base's samples and {percent(*theirs)} of RL's state an answer"
        yield f"{shares}: part of the difference may be format"


def _side(side: Side, scores: pl.DataFrame) -> SideFound:
    pool, counts = side.first, of_graded(scores)
    left_out = {
        "drop": f"kept the first {pool.samples:,} samples of each question that did not fail",
        "unequal": f"questions have unequal numbers of samples that did not fail, {pool.samples:,} or more",
        "wrong": "failed and missing samples count as wrong",
    }
    return SideFound(
        title=side.title,
        model=pool.stream.model,
        policies=tuple(side.pools),
        not_stated=pool.proposal.unstated,
        format=side.reading.format,
        files=len(side.reading.files),
        questions=len(side.reading.questions),
        samples=pool.samples,
        mean_tokens=mean_tokens(scores),
        health=judge(counts),
        counts=counts.row(0, named=True),
        notes=(*side.reading.notes, *([left_out[pool.failed]] if pool.failed else [])),
    )


def _compared(base: pl.DataFrame, rl: pl.DataFrame, both: Common, wishes: Wishes) -> Comparison:
    names = base["policy"].unique(maintain_order=True).to_list()

    def pair(read: Callable[[pl.DataFrame], Any], needed: Sequence[str] = names) -> Any:
        """What is read of Base and of RL, if all that is needed is known: of Base by policy, if it has several."""
        ours, theirs = {name: read(base.filter(policy=name)) for name in names}, read(rl)
        if theirs is None or any(ours[name] is None for name in needed):
            return None
        return (ours if len(names) > 1 else ours[names[0]], theirs)

    letters = np.array([options(question) for question in both.base])
    return compare(
        *pair(partial(by_question, column="correct")),
        classes=pair(partial(by_question, column="answer")),
        tokens=pair(mean_tokens),
        choices=letters if letters.any() else None,
        wrong_key=pair(
            partial(by_question, column="wrong_key"), names[:1]
        ),  # of other policies of Base it was not judged
        confidence=wishes.confidence,
        draws=wishes.draws,
        seed=wishes.seed,
    )
