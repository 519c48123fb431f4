"""Which questions of the two sides are the same: by text, by containment in a prompt, or by id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from searchlens.benchmarks import Question
from searchlens.errors import InputError, counted
from searchlens.formats.documents import Match, Matcher, choices, differing_golds, plain, stem
from searchlens.formats.pools import Pool
from searchlens.formats.readers.logged import Document
from searchlens.formats.reading import Reading

BASE, RL = "base", "rl"
TITLES = {BASE: "Base", RL: "RL"}
UNNAMED = "not known"
"""Name of a policy that the log does not say."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """The samples of one side."""

    role: str
    """``base`` or ``rl``."""
    reading: Reading
    pools: dict[str, Pool]
    """By the name of the policy. RL has one; that policy of Base which is compared with it one to one is the first."""

    @property
    def title(self) -> str:
        """Its name for people."""
        return TITLES[self.role]

    @property
    def first(self) -> Pool:
        """The pool that is compared one to one."""
        return next(iter(self.pools.values()))


def base_and_rl(base: Reading, rl: Reading, models: tuple[str, str]) -> tuple[Side, Side]:
    """The pools of both sides; of their models the named ones, where files have several. An ``InputError`` if a side
    has no samples or several models, RL has several policies, or two pools have one name.
    """
    ours, theirs = _by_policy(BASE, base, models[0]), _by_policy(RL, rl, models[1])
    if len(theirs) > 1:
        raise InputError(
            f"RL has samples of {len(theirs)} policies: {', '.join(theirs)}", "name the files of one of them as RL"
        )
    pools = {name: ours[name] for name in sorted(ours, key=lambda name: name not in theirs)}
    return Side(role=BASE, reading=base, pools=pools), Side(role=RL, reading=rl, pools=theirs)


def _by_policy(role: str, reading: Reading, model: str) -> dict[str, Pool]:
    """The pools of one model or, if the log knows sides, of this side."""
    kept = [pool for pool in reading.pools if (pool.stream.model == model if model else pool.role in ("", role))]
    if not kept:
        what = f"no samples of the model {model!r}" if model else "no samples: the log says that all are of the other"
        raise InputError(f"{TITLES[role]}: {what}; models of its files: {', '.join(_models(reading.pools))}")
    if len(models := _models(kept)) > 1:
        option = {BASE: "--base-model", RL: "--rl-model"}[role]
        raise InputError(f"{TITLES[role]}: the files have several models: {', '.join(models)}", f"{option} MODEL")
    named: dict[str, Pool] = {}
    for pool in kept:
        name = pool.policy or UNNAMED
        if name in named:
            raise InputError(
                f"{TITLES[role]}: two streams of samples have the policy {name}, but were drawn differently:"
                f" {differing(named[name], pool) or '(nothing is said)'}",
                "name the files of one of them",
            )
        named[name] = pool
    return named


def _models(pools: Sequence[Pool]) -> list[str]:
    return list(dict.fromkeys(pool.stream.model or "(no name)" for pool in pools))


NOT_STATED = "not stated"


def differing(one: Pool, other: Pool, apart_from: Collection[str] = ()) -> str:
    """What was asked otherwise of two pools, with both values; empty if the log says nothing that differs."""
    ours, theirs = one.stream.asked, other.stream.asked
    keys = [key for key in {**ours, **theirs} if key not in apart_from and ours.get(key) != theirs.get(key)]
    said = [{key: NOT_STATED if asked.get(key) is None else asked[key] for key in keys} for asked in (ours, theirs)]
    return ", ".join(f"{key} {said[0][key]} and {said[1][key]}" for key in keys)


SHOWN = 3
"""Ids that a message names."""


@dataclass(frozen=True, kw_only=True)
class Common:
    """The questions of both sides."""

    base: tuple[Question, ...]
    rl: tuple[Question, ...]
    """``base``, ``rl``: row by row the same question, as each side has it: ids, order of choices and letter of the gold
    may differ."""
    how: dict[str, int] = field(default_factory=dict)
    """How many were matched by text, containment or id."""
    only_base: tuple[str, ...] = ()
    only_rl: tuple[str, ...] = ()
    """``only_base``, ``only_rl``: ids of questions that the other side does not have."""
    other_golds: tuple[str, ...] = ()
    """Ids, on the side of Base, of questions that were left out because the two sides have other golds."""
    reworded: tuple[str, ...] = ()
    """Ids of questions that were matched by id although their texts differ."""

    def __len__(self) -> int:
        return len(self.base)

    def of(self, role: str) -> tuple[Question, ...]:
        """The questions as one side has them."""
        return self.base if role == BASE else self.rl

    @property
    def notes(self) -> list[str]:
        """What was left out, and what was matched in spite of other words."""
        told = {
            ("only Base has samples of", ", left out"): self.only_base,
            ("only RL has samples of", ", left out"): self.only_rl,
            ("Base and RL have other golds of", ", left out"): self.other_golds,
            ("Base and RL have other words, but the same id, for", ""): self.reworded,
        }
        lines = []
        for (why, what), ids in told.items():
            more = f" and {len(ids) - SHOWN:,} more" if len(ids) > SHOWN else ""
            lines += [f"{why} {counted(len(ids), 'question')}{what}: {', '.join(ids[:SHOWN])}{more}"] if ids else []
        return lines


Found = dict[int, tuple[int, str, dict[str, str]]]
"""Position of a question of RL to that of Base, how it was found, and letters of RL's choices to those of Base."""


def common(base: Sequence[Question], rl: Sequence[Question], grader: str) -> Common:
    """The questions that both sides have; an empty gold is taken from the other side, golds are compared by the grader,
    if it has a name. An ``InputError`` if no question is on both sides, or all have other golds.
    """
    found = _pairs(base, rl)
    if not found:
        raise InputError(
            f"no question is on both sides: of {len(base):,} of Base and {len(rl):,} of RL, ids are like"
            f" {base[0].id!r} and {rl[0].id!r}",
            "are both logs of the same benchmark? --task TASK chooses one where a log has several",
        )
    # golds of RL in the letters of Base
    golds = [(i, letters.get(rl[j].gold, rl[j].gold)) for j, (i, _, letters) in found.items() if rl[j].gold]
    differing = {i for i, _ in differing_golds(base, golds, grader)} if grader else set()
    kept = sorted((i, j) for j, (i, _, _) in found.items() if i not in differing)
    if not kept:
        raise InputError(
            f"Base and RL have other golds of all {len(found):,} common questions",
            "--benchmark NAME takes the golds of a configured benchmark; --grader recorded the verdicts of the logs",
        )
    pairs = [_completed(base[i], rl[j], found[j][2]) for i, j in kept]
    worded = [i for i, j in kept if found[j][1] == "id" and _has_text(base[i]) and _has_text(rl[j])]
    matched = {i for i, _, _ in found.values()}
    return Common(
        base=tuple(one for one, _ in pairs),
        rl=tuple(other for _, other in pairs),
        how=dict(Counter(found[j][1] for _, j in kept)),
        only_base=tuple(question.id for i, question in enumerate(base) if i not in matched),
        only_rl=tuple(question.id for j, question in enumerate(rl) if j not in found),
        other_golds=tuple(base[i].id for i in sorted(differing)),
        reworded=tuple(base[i].id for i in worded),
    )


def _pairs(base: Sequence[Question], rl: Sequence[Question]) -> Found:
    found: Found = {}
    taken: set[int] = set()

    def take(j: int, i: int, how: str, letters: dict[str, str]) -> None:
        if j not in found and i not in taken:
            found[j] = (i, how, letters)
            taken.add(i)

    here, there = Matcher(base), Matcher(rl)
    for is_templated in (False, True):
        for j, question in enumerate(rl):
            if j not in found and (match := _matched(here, question, is_templated=is_templated)):
                take(j, match.number, match.how, dict(match.letters))
    for i, question in enumerate(base):
        if i not in taken and (match := _matched(there, question, is_templated=True)):
            take(match.number, i, match.how, {theirs: ours for ours, theirs in match.letters.items()})
    for j, i in _by_id(base, rl, found, taken):
        take(j, i, "id", {})
    return found


def _matched(matcher: Matcher, question: Question, *, is_templated: bool) -> Match | None:
    if not _has_text(question):
        return None
    options = choices(question)
    for text in dict.fromkeys((question.text, stem(question))):
        match = matcher.match(Document(prompt=text, choices=options, is_templated=is_templated))
        if isinstance(match, Match):
            return match
    return None


def _by_id(base: Sequence[Question], rl: Sequence[Question], found: Found, taken: set[int]) -> list[tuple[int, int]]:
    """Questions of equal ids, of which one side has no text, or all have equal golds in spite of other prompts."""
    places = {question.id: i for i, question in enumerate(base) if i not in taken}
    pairs = [(j, places[question.id]) for j, question in enumerate(rl) if j not in found and question.id in places]
    without = [(j, i) for j, i in pairs if not (_has_text(base[i]) and _has_text(rl[j]))]
    worded = [(j, i) for j, i in pairs if (j, i) not in set(without)]
    same = all(base[i].gold and plain(base[i].gold) == plain(rl[j].gold) for j, i in worded)
    return [*without, *(worded if same else [])]


def _has_text(question: Question) -> bool:
    return bool(question.text) and question.text != question.id


def _completed(base: Question, rl: Question, letters: dict[str, str]) -> tuple[Question, Question]:
    """Both questions, a missing gold taken from the other one."""
    theirs = {ours: there for there, ours in letters.items()}
    if not base.gold:
        base = replace(base, gold=letters.get(rl.gold, rl.gold))
    if not rl.gold:
        rl = replace(rl, gold=theirs.get(base.gold, base.gold))
    return base, rl
