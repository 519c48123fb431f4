"""Grading: whether an answer to a question is right, and which answers count as the same.

One module per kind of question, each a ``Grader``: it finds the answer in a sample's text, and it judges distinct
(gold, answer) pairs, so that nothing is judged twice (``grading/verdicts.py`` remembers). Importing this package costs
nothing; math-verify is imported in worker processes, and only when some answer needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, NamedTuple, Protocol, cast

from searchlens.benchmarks import Question
from searchlens.errors import InputError

KINDS: dict[str, str] = {
    "math": "searchlens.grading.math",
    "simplerl": "searchlens.grading.simplerl",
    "simplerl-units": "searchlens.grading.simplerl_units",
    "choice": "searchlens.grading.choice",
    "instructions": "searchlens.grading.checklist",
    "ifeval": "searchlens.grading.ifeval",
}
"""Kind of question to the module that grades it."""

MAX_ANSWER = 512
"""Most characters of an extracted answer; looping models box more, and parsing that takes seconds and says nothing."""

RIGHT = "gold"
"""Class key of every right answer."""

How = Literal["boxed", "fallback", "number", "whole", "none"]
STATED = ("boxed", "fallback", "whole")
"""How a valid answer is given; the last number in sight is no statement."""


class Extraction(NamedTuple):
    """The answer that a text gives.

    Attributes
    ----------
    answer : str or None
        None when there is no answer; such a sample is not correct and casts no vote.
    how : {"boxed", "fallback", "number", "whole", "none"}
        From the last box, from a closing sentence, the last number in sight, the whole text, or not at all.
    """

    answer: str | None
    how: How


NO_ANSWER = Extraction(None, "none")


class Pair(NamedTuple):
    """What is judged: an answer against a question's reference (``Grader.reference``)."""

    gold: str
    answer: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement of one pair.

    Attributes
    ----------
    correct : bool or None
        None when a limit of time, memory or size was reached: unknown. It counts as not correct, and is reported.
    form : str
        The normalised answer, where answers can be equivalent; otherwise what the grader has to say about its checks.
    """

    correct: bool | None
    form: str

    @property
    def key(self) -> str:
        """Class of equivalent answers within the question: ``RIGHT`` for right ones, otherwise ``~`` and the form.

        Wrong answers are not compared with each other beyond that, which favours the right class in a vote.
        """
        return RIGHT if self.correct else "~" + self.form


class Grader(Protocol):
    """A module that grades one kind of question."""

    GRADER_VERSION: str
    VOTES: bool
    """Whether answers can be equivalent, so that a majority means something."""

    def reference(self, question: Question) -> str:
        """What answers to a question are judged against, as text."""
        ...

    def extract(self, text: str, stopped: bool) -> Extraction:
        """The answer in a sample's text; ``stopped`` says that it was not cut off by the token limit."""
        ...

    def grade(self, pairs: Sequence[Pair], *, workers: int | None = None) -> list[Verdict]:
        """One verdict per pair, in order; ``workers``: processes where it needs any, by default one per core."""
        ...


def grader(kind: str) -> Grader:
    """The grader of a kind.

    Raises
    ------
    InputError
        Unknown kind; lists the known ones.
    """
    if kind not in KINDS:
        raise InputError(f"grader {kind!r} is unknown; known: {', '.join(sorted(KINDS))}")
    return cast(Grader, import_module(KINDS[kind]))


def grade(kind: str, pairs: Sequence[Pair]) -> list[Verdict]:
    """One verdict per pair, in order."""
    return grader(kind).grade(pairs)
