"""The documents of a log as questions: of a benchmark that is known, or of one that the log defines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from searchlens import grading
from searchlens.benchmarks import Question
from searchlens.benchmarks.choices import LETTERS, letter_of
from searchlens.errors import InputError
from searchlens.formats.matching import Ids, Match, Matcher, choices, differing_golds, letters
from searchlens.formats.readers.logged import Document, Problems, shown
from searchlens.store.files import digest


class Located(NamedTuple):
    """The question of a sample: its number, its id, and how letters of the log read here."""

    number: int
    name: str
    letters: Mapping[str, str]


class KnownDocuments:
    """Documents of a known benchmark; ``ids`` as of ``Matcher``. Without ``quotes``, messages name ids alone."""

    def __init__(self, questions: Sequence[Question], ids: Ids = "own", *, quotes: bool = True) -> None:
        self.questions = questions
        self._quotes = quotes
        self.notes: list[str] = []
        self._matcher = Matcher(questions, ids)
        self._known: dict[Document, Located | None] = {}
        self._wrong = Problems()
        self._names: dict[int, dict[str, str]] = {}
        self._golds: dict[tuple[int, str], str] = {}
        self._how: dict[int, str] = {}

    @property
    def found(self) -> str:
        """How many questions were found in which way."""
        counts = Counter(self._how.values())
        ways = [f"{counts[how]:,} by {how}" for how in ("id", "text", "containment", "index") if counts[how]]
        return ", ".join(ways) or "none"

    def locate(self, document: Document, place: str) -> Located | None:
        """The question of a document; one that is none is counted once."""
        if document in self._known:
            return self._known[document]
        match = self._matcher.match(document)
        if not isinstance(match, Match):
            name = f"question {shown(document.id)}" if document.id is not None else ""
            self._wrong.add(f"not a question of the benchmark: {match.why}", place, name)
            self._known[document] = None
            return None
        number = match.number
        name = str(document.id) if document.id is not None else digest(letters(document.prompt or ""), 12)
        self._names.setdefault(number, {}).setdefault(name, place)
        self._how.setdefault(number, match.how)
        if document.gold:
            gold = _gold(document)
            self._golds.setdefault((number, match.letters.get(gold, gold)), place)
        self._known[document] = Located(number, self.questions[number].id, match.letters)
        return self._known[document]

    def rank(self, number: int) -> int:
        """The order of the benchmark."""
        return number

    def check(self, problems: Problems, grader: str, *, is_subset: bool = False) -> None:
        """Documents that are no questions, questions that are two documents, and golds that differ.

        With ``is_subset``, documents that are no questions are left out and noted.
        """
        if self._wrong and is_subset:
            self.notes += [f"left out: {line}" for line in self._wrong.lines]
        elif self._wrong:
            known = f"its ids are like {shown(self.questions[0].id)}, {shown(self.questions[-1].id)}"
            problems.take(self._wrong, known)
        for number, names in self._names.items():
            if len(names) > 1:
                what = "two documents of the log are the same question of the benchmark"
                both = " and ".join(f"{name!r} ({place})" for name, place in list(names.items())[:2])
                problems.add(what, f"question {self.questions[number].id!r}", both)
        for pair in differing_golds(self.questions, list(self._golds), grader):
            number, gold = pair
            question = self.questions[number]
            found = f"question {question.id!r}"
            if self._quotes:
                found += f": {shown(gold)} in the log, {shown(question.gold)} here"
            problems.add("a gold of the log is not the benchmark's", self._golds[pair], found)


class OwnDocuments:
    """Documents that define a benchmark of their own, ordered by id, so that the order of lines does not matter.
    Without ``quotes``, messages name places alone.
    """

    def __init__(self, *, needs_golds: bool = True, quotes: bool = True) -> None:
        self._needs_golds = needs_golds
        self._quotes = quotes
        self.notes: list[str] = []
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._known: dict[Document, Located] = {}
        self._places: list[str] = []
        self._golds: dict[str, tuple[str, str]] = {}
        self._prompts: dict[str, tuple[str, str]] = {}
        self._several = 0
        self._wrong = Problems()

    @property
    def found(self) -> str:
        """All are new."""
        return f"{len(self._names):,} new" if self._names else "none"

    def locate(self, document: Document, place: str) -> Located:
        """The question of a document, which is new if its id or, without one, its prompt is."""
        if document not in self._known:
            name = f"text-{digest(letters(document.prompt or ''), 12)}" if document.id is None else str(document.id)
            if name not in self._numbers:
                self._numbers[name] = len(self._names)
                self._names.append(name)
                self._places.append(place)
            self._keep(name, document, place)
            self._known[document] = Located(self._numbers[name], name, {})
        return self._known[document]

    def _keep(self, name: str, document: Document, place: str) -> None:
        """Gold and prompt may be on several rows of a question, but must not differ."""
        self._several += len(document.gold) > 1
        contents = {
            "gold": (self._golds, _gold(document) if document.gold else None),
            "prompt": (self._prompts, _asked(document)),
        }
        for key, (known, content) in contents.items():
            if content is None:
                continue
            first, where = known.setdefault(name, (content, place))
            if first != content:
                found = f"{shown(content)}, not {shown(first)} as in {where}" if self._quotes else f"as in {where}"
                self._wrong.add(f"a {key} differs from that of an earlier row", place, found)

    def rank(self, number: int) -> str:
        """The order of ids."""
        return self._names[number]

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """The benchmark, when all documents are known."""
        prompts = {name: self._prompts.get(name, (name, ""))[0] for name in sorted(self._names)}
        golds = {name: self._golds.get(name, ("", ""))[0] for name in prompts}
        return tuple(_lettered(Question(name, prompt, golds[name])) for name, prompt in prompts.items())

    def check(self, problems: Problems, grader: str, *, is_subset: bool = False) -> None:  # noqa: ARG002
        """Questions without a gold or with another one's text, golds and prompts that differ, and a wrong grader."""
        problems.take(self._wrong)
        for name, number in self._numbers.items():
            if name not in self._golds and self._needs_golds:
                what = "a question has no gold on any row; a benchmark of your own needs one"
                problems.add(what, self._places[number], f"question {shown(name)}")
        first: dict[str, str] = {}
        for question in self.questions:
            if (other := first.setdefault(question.text, question.id)) != question.id:
                place = self._places[self._numbers[question.id]]
                problems.add("questions have the same prompt", place, f"{shown(other)} and {shown(question.id)}")
        if self._several:
            self.notes.append(f"{self._several:,} questions have several golds; the first is used")
        reference = grading.grader(grader).reference
        try:
            for question in self.questions:
                reference(question)
        except InputError as error:
            problems.add(error.message)


def _gold(document: Document) -> str:
    """The first gold; of a document with choices the letter of its choice, as it is written if it is none of them."""
    gold = document.gold[0]
    return (letter_of(gold, document.choices) if document.choices else None) or gold


def _lettered(question: Question) -> Question:
    """The question with a plain letter as its gold, if it shows lettered choices and the gold names one of them."""
    named = replace(question, gold=letter_of(question.gold) or "")
    there = choices(named)
    return named if there and letter_of(question.gold, there) == named.gold else question


def _asked(document: Document) -> str | None:
    """The prompt with its choices as lettered lines, unless it shows them already."""
    if document.prompt is None or not document.choices:
        return document.prompt
    shown_there = letters(document.prompt)
    if all(letters(choice) in shown_there for choice in document.choices):
        return document.prompt
    lines = [f"{letter}) {choice}" for letter, choice in zip(LETTERS, document.choices, strict=False)]
    return "\n".join([f"{document.prompt}\n", *lines])
