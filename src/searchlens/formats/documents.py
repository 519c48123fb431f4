"""The documents of a log as questions: of a benchmark that is known, or of one that the log defines."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from searchlens import grading
from searchlens.benchmarks import Question, options
from searchlens.benchmarks.choices import LETTERS, letter_of
from searchlens.errors import InputError
from searchlens.formats.readers.logged import Document, Problems, shown
from searchlens.grading import GradedPair
from searchlens.grading.score import is_recorded
from searchlens.store.files import digest


def plain(text: str) -> str:
    r"""Unicode NFC, white space collapsed, both ends stripped.

    >>> plain(" 1 +\n 1? ")
    '1 + 1?'
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def letters(text: str) -> str:
    """Letters and digits alone, letters small.

    >>> letters("What is $1 + 1$?")
    'whatis11'
    """
    return "".join(filter(str.isalnum, unicodedata.normalize("NFC", text))).lower()


def stem(question: Question) -> str:
    """The text of a question without its lettered choices; the whole text if it has none."""
    marks = _marks(question)
    return question.text[: marks[0].start()].strip() if marks else question.text


def choices(question: Question) -> tuple[str, ...]:
    r"""The texts of the lettered choices of a question, in its order; empty if it has none.

    >>> choices(Question("1", "Even?\n\nA) 3\nB) 4", "B"))
    ('3', '4')
    """
    marks = _marks(question)
    ends = [*(mark.start() for mark in marks[1:]), len(question.text)]
    return tuple(question.text[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=bool(marks)))


def _marks(question: Question) -> list[re.Match[str]]:
    """The letters before the choices, as ``benchmarks.options`` counts them; empty if there are none."""
    count = options(question)
    for before in (r"^", r"(?<!\w)"):
        marks: list[re.Match[str]] = []
        for letter in LETTERS[:count]:
            start = marks[-1].end() if marks else 0
            mark = re.compile(rf"{before}\(?{letter}[).:]\s+", re.MULTILINE).search(question.text, start)
            if not mark:
                break
            marks.append(mark)
        if count and len(marks) == count:
            return marks
    return []


How = Literal["id", "text", "containment", "index"]
Ids = Literal["own", "index"]

_WINDOW = 24
"""Letters and digits at the beginning of a question by which prompts that may contain it are found."""


@dataclass(frozen=True)
class Match:
    """The question that a document is."""

    number: int
    """Position in the benchmark."""
    how: How
    """What told."""
    letters: Mapping[str, str]
    """Letter of a choice in the log to the letter of the same choice here; empty if they are the same."""


class Matcher:
    """Finds documents of a log among the questions of a benchmark. Only with ``ids="index"`` is the position in the
    log's file that in the benchmark, because copies of a benchmark differ in order.
    """

    def __init__(self, questions: Sequence[Question], ids: Ids = "own") -> None:
        self.questions = questions
        self._ids = ids
        self._choices = [choices(question) for question in questions]
        stems = [stem(question) for question in questions]
        self._own = {question.id: i for i, question in enumerate(questions)}
        tags = ((q.tags.get("source_id"), i) for i, q in enumerate(questions))
        self._source = _unique((str(tag), i) for tag, i in tags if tag is not None)
        self._plain = _unique((plain(question.text), i) for i, question in enumerate(questions))
        self._letters = _unique((letters(question.text), i) for i, question in enumerate(questions))
        self._stems = _unique((letters(text), i) for i, text in enumerate(stems) if self._choices[i])
        worded = ((_wording(text, self._choices[i]), i) for i, text in enumerate(stems) if self._choices[i])
        self._wordings = _unique(worded)
        self._parts = [(letters(question.text), letters(text)) for question, text in zip(questions, stems, strict=True)]
        self._openings: dict[str, list[int]] = defaultdict(list)
        for i, (_, text) in enumerate(self._parts):
            if text:
                self._openings[text[:_WINDOW]].append(i)
        self._lengths = sorted({len(opening) for opening in self._openings})

    def match(self, document: Document) -> Match | str:
        """The question that a document is, or why it is none."""
        if document.is_index and self._ids == "index":
            number = int(document.id) if str(document.id).isdecimal() else -1  # type: ignore[arg-type]
            if not 0 <= number < len(self.questions):
                return f"its index is not one of 0 to {len(self.questions) - 1}"
            return self._with_letters(document, number, "index", is_ours=False)
        by_id = None if document.is_index or document.id is None else self._by_id(str(document.id))
        by_text = self._by_text(document)
        if by_id and by_text and by_id[0] != by_text[0]:
            return "its id is that of one question, its text that of another"
        if by_id:
            return self._with_letters(document, by_id[0], "id", is_ours=by_id[1] or bool(by_text and by_text[1]))
        if by_text:
            return self._with_letters(document, by_text[0], "text", is_ours=by_text[1])
        if document.prompt and document.is_templated:
            return self._by_containment(document)
        return "neither its id nor its text is that of a question of the benchmark"

    def _by_id(self, name: str) -> tuple[int, bool] | None:
        """Position, and whether the id is the project's own, so that the choices are in its order."""
        if (number := self._own.get(name)) is not None:
            return number, True
        number = self._source.get(name)
        return None if number is None else (number, False)

    def _by_text(self, document: Document) -> tuple[int, bool] | None:
        """Position, and whether the choices were matched in their order, too."""
        if not document.prompt:
            return None
        text = letters(document.prompt)
        if (number := self._plain.get(plain(document.prompt), self._letters.get(text))) is not None:
            return number, True
        if document.choices and (number := self._wordings.get(_wording(document.prompt, document.choices))) is not None:
            return number, False
        number = self._stems.get(text)
        return None if number is None else (number, False)

    def _by_containment(self, document: Document) -> Match | str:
        """The one question whose text is in the prompt; a question that is part of another one there does not count."""
        prompt = letters(document.prompt or "")
        windows = {prompt[i : i + length] for length in self._lengths for i in range(len(prompt) - length + 1)}
        near = {number for window in windows for number in self._openings.get(window, ())}
        whole = {number for number in near if self._parts[number][0] in prompt}
        found = whole or {number for number in near if self._parts[number][1] in prompt}
        texts = {number: self._parts[number][0 if whole else 1] for number in found}
        widest = [n for n, text in texts.items() if not any(text in other for m, other in texts.items() if m != n)]
        if len(widest) != 1:
            return "its prompt contains several questions" if found else "its prompt contains no question"
        return self._with_letters(document, widest[0], "containment", is_ours=bool(whole))

    def _with_letters(self, document: Document, number: int, how: How, *, is_ours: bool) -> Match | str:
        """A match with the letters of its choices, which may stand in another order in the log."""
        ours = self._choices[number]
        if not ours:
            return Match(number, how, {})
        if not document.choices:
            return Match(number, how, {}) if is_ours else "it has letters, but not the choices that they are of"
        places = {letters(choice): letter for choice, letter in zip(ours, LETTERS, strict=False)}
        theirs = [letters(choice) for choice in document.choices]
        if len(places) != len(ours) or sorted(theirs) != sorted(places):
            same = [plain(choice) for choice in document.choices] == [plain(choice) for choice in ours]
            return Match(number, how, {}) if same else "its choices are not those of the question"
        mapped = {letter: places[choice] for letter, choice in zip(LETTERS, theirs, strict=False)}
        return Match(number, how, {} if all(a == b for a, b in mapped.items()) else mapped)


def _unique(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Keys that belong to one question alone."""
    known = list(pairs)
    counts = Counter(key for key, _ in known)
    return {key: number for key, number in known if key and counts[key] == 1}


def _wording(text: str, options: Sequence[str]) -> str:
    return "\n".join([letters(text), *sorted(map(letters, options))])


def differing_golds(
    questions: Sequence[Question], golds: Sequence[tuple[int, str]], grader: str
) -> list[tuple[int, str]]:
    """The (position of a question, answer or text that ends in one) of a log that are not right by the grader.

    There are none where it compares nothing with a gold.
    """
    if is_recorded(grader):
        return []
    judge = grading.grader(grader)
    distinct = [pair for pair in dict.fromkeys(golds) if questions[pair[0]].gold and pair[1] != questions[pair[0]].gold]
    if not distinct or not grading.votes(grader):
        return []
    answers = [judge.extract(gold, True).answer for _, gold in distinct]
    asked = [
        GradedPair(judge.reference(questions[number]), text)
        for (number, gold), answer in zip(distinct, answers, strict=True)
        for text in (gold, answer if answer is not None else gold)
    ]
    order = sorted(set(asked))
    verdicts = dict(zip(order, judge.grade(order, workers=1), strict=True))
    right = [bool(verdicts[pair].correct) for pair in asked]
    is_right = (plainly or found for plainly, found in zip(right[::2], right[1::2], strict=True))
    return [pair for pair, same in zip(distinct, is_right, strict=True) if not same]


# ---- documents


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
            self._wrong.add(f"not a question of the benchmark: {match}", place, name)
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
