"""Grading: whether an answer to a question is right, and which answers count as the same.

One file per kind of question declares a ``Grader``, which finds the answer in the text of a sample and judges distinct
(gold, answer) pairs. ``grading/verdicts.py`` stores the verdicts, so that no pair is judged twice. Importing this
package is cheap: math-verify is imported in worker processes only, and only if an answer needs it.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast

from searchlens import catalogue
from searchlens.benchmarks import Question
from searchlens.store.files import file_sha256
from searchlens.store.inputs import DIGITS, require_at_most

MAX_ANSWER = 512
"""Longest answer in characters. Models that repeat themselves box more, which takes seconds to parse in vain."""

RIGHT = "gold"
"""Class key of every right answer."""

How = Literal["boxed", "kept", "fallback", "number", "whole", "withdrawn", "none"]
STATED = ("boxed", "kept", "fallback", "whole")
"""The values of ``How`` by which a text states its answer; the last number of a text is not a stated answer."""


class Extraction(NamedTuple):
    """The answer in the text of a sample."""

    answer: str | None
    """None if there is no answer; such a sample is not correct and does not vote."""
    how: How
    """Where the answer was found: in the last box; in the last closed box, which the open one behind it repeats
    (``kept``); in a closing sentence; as the last number; as the whole text. ``withdrawn`` and ``none`` have no answer:
    an open box behind the last closed one holds something else, or nothing states an answer."""


NO_ANSWER = Extraction(None, "none")
WITHDRAWN = Extraction(None, "withdrawn")


class GradedPair(NamedTuple):
    """What is judged: an answer against the reference of its question (``Grader.reference``)."""

    gold: str
    answer: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one pair."""

    correct: bool | None
    """None if a limit of time, memory or size was reached. Such an answer counts as not correct, and is reported as
    unknown."""
    form: str
    """The normalised answer, if answers of this kind vote; otherwise what the grader reports about its checks."""
    is_lasting: bool = True
    """False if something from outside ended the judging: such a verdict is not stored, and the pair is judged again
    when it is asked for next."""

    @property
    def key(self) -> str:
        """Class of equivalent answers within a question: ``RIGHT`` for right ones, otherwise ``~`` and the form.

        Wrong answers are compared by form only, which favours the right class in a vote.
        """
        return RIGHT if self.correct else "~" + self.form


class Grader(ABC):
    """Grades one kind of question. A subclass is declared with ``searchlens.catalogue.grader``::

        @grader("choice")
        class Choice(Grader): ...

    Options of the decorator, as literals: ``mathematical=True`` if answers are formulas (only then is ``recipe_stops``
    allowed), and ``votes=False`` if answers cannot be equivalent, so that a majority means nothing. ``recorded=True``
    is for the verdicts of imported logs, which no benchmark of a configuration can name.
    """

    @property
    def version(self) -> str:
        """Name of the grading rules: verdicts of one version are never used for another.

        A subclass that sets no version has its name and the hash of its file, so that every edit is a new version.
        """
        path = Path(str(sys.modules[type(self).__module__].__file__))
        return f"{type(self).__name__}/{file_sha256(path)[:12]}"

    def reference(self, question: Question) -> str:
        """What answers to a question are judged against, as text: its gold answer, up to numbers of ``DIGITS``."""
        longest = max(map(len, re.findall(r"\d+", question.gold)), default=0)
        require_at_most(DIGITS, longest, "digits in a number of its gold", f"question {question.id!r}")
        return question.gold

    @abstractmethod
    def extract(self, text: str, stopped: bool) -> Extraction:
        """The answer in the text of a sample; ``stopped`` is False if the token limit cut the text off."""

    def guide(self, text: str, stopped: bool) -> Extraction:
        """The answer that a search reads from a text, by default that of ``extract``.

        A search draws tokens by what it reads. A grader that learns to find more answers keeps its earlier rule here;
        otherwise samples of one id would be drawn in two ways.
        """
        return self.extract(text, stopped)

    @abstractmethod
    def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:
        """One verdict per pair, in order.

        Parameters
        ----------
        pairs : sequence of GradedPair
            Sorted by gold, they are judged fastest.
        workers : int, optional
            Number of worker processes, >= 1, for a grader that uses them; by default one per core.
        """


def grader(kind: str) -> Grader:
    """The grader of a kind of question. Raises InputError if it is unknown; the message lists the known ones."""
    return cast(Grader, catalogue.find("grader", kind)())


def votes(kind: str) -> bool:
    """Whether answers of this kind can be equivalent, so that the most frequent answer means something."""
    return bool(catalogue.declaration("grader", kind).options.get("votes", True))
