"""Reads files of samples into pools: matched with the questions of a benchmark, checked, and in bounded memory."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from searchlens import grading
from searchlens.benchmarks import Question
from searchlens.errors import InputError, printable
from searchlens.formats.documents import Ids, KnownDocuments, OwnDocuments
from searchlens.formats.pools import Pool, Spill, Tally, proposed
from searchlens.formats.readers.fitting import Recognised, guarded, recognised
from searchlens.formats.readers.logged import LoggedSample, Notes, NoTextsError, Problems, Stream

Documents = KnownDocuments | OwnDocuments
LEFT_OUT = "a file has no samples of this format"
"""Note on a file in a folder of logs."""
Failed = Literal["", "drop", "wrong", "unequal"]


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the user decides of an import."""

    role: str = ""
    """Side of the pair that all samples are of: ``base``, ``rl``, or empty."""
    base: str = ""
    rl: str = ""
    """``base``, ``rl``: names of the models of the two sides, as the log spells them."""
    policy: str = ""
    """Name of the policy of all samples; confirms or overrules what the log says."""
    tasks: tuple[str, ...] = ()
    """Tasks of the log to read, where it has several."""
    ids: Ids = "own"
    """Whether positions in the log's file are positions in the benchmark."""
    failed: Failed = ""
    """Failed requests: refused, left out with as many samples of every other question, counted as wrong, or left out
    alone, so that questions have unequal numbers of samples, which no study takes."""
    is_subset: bool = False
    """The questions of the benchmark that have samples are enough."""
    wishes: Mapping[str, str] = field(default_factory=dict)
    """What the user says that a format leaves open (``readers.logged.Reader.read``)."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What was read."""

    pools: tuple[Pool, ...]
    """One for each model and policy."""
    questions: tuple[Question, ...]
    """Those that have samples, in the order of the benchmark."""
    found: str
    """How the documents of the log were matched."""
    format: str
    """Name of the reader."""
    files: tuple[Path, ...]
    notes: tuple[str, ...]
    """What the reader and the matching chose or left out."""


class SeveralTasksError(InputError):
    """Files have several tasks, and the user chose none."""


def files_of_tasks(paths: Sequence[Path], wishes: Mapping[str, str]) -> dict[str, list[Path]]:
    """The files of each task, as readers name it; a file may have several. ``wishes`` are those of ``Choices``."""
    chosen = recognised(paths)
    # a file that would be left out among others, or refused, has tasks, too
    alone = {**{name: wish for name, wish in wishes.items() if name != "date"}, "partial": "yes"}
    found: dict[str, list[Path]] = {}
    for file in chosen.files:
        try:
            tasks = {sample.stream.task for sample in guarded(chosen.reader, [file], alone, Notes())}
        except NoTextsError as error:
            tasks = {error.task}
        for task in tasks:
            found.setdefault(task, []).append(file)
    return found


@contextmanager
def read(
    paths: Sequence[Path],
    questions: Sequence[Question] | None,
    grader: str,
    choices: Choices = Choices(),
    *,
    quotes: bool = True,
    needs_golds: bool = True,
) -> Iterator[Reading]:
    """Read files of one format into pools that can be read in the ``with`` block: matched with the questions, or with a
    benchmark that the log defines, and checked. Nothing is stored.

    Golds are compared by the grader; with ``needs_golds`` a benchmark of the log must have all. More
    than about 100 MB of texts need temporary files. Without ``quotes``, messages quote nothing.
    An ``InputError`` if a file cannot be used, documents are not questions of the benchmark, golds differ, or samples
    do not make pools.
    """
    chosen = recognised(paths)
    notes = Notes()
    documents: Documents = OwnDocuments(needs_golds=needs_golds, quotes=quotes)
    if questions is not None:
        documents = KnownDocuments(questions, choices.ids, quotes=quotes)
    spill = Spill(documents.rank)
    try:
        yield _Assembly(chosen, documents, spill, grader, choices, notes).reading()
    finally:
        spill.close()


@dataclass
class _Assembly:
    """One import while it is read."""

    chosen: Recognised
    documents: Documents
    spill: Spill
    grader: str
    choices: Choices
    notes: Notes
    problems: Problems = field(default_factory=Problems)
    tallies: dict[str, Tally] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    tasks: dict[str, None] = field(default_factory=dict)
    _keys: dict[int, tuple[Stream, str | None]] = field(default_factory=dict)

    def reading(self) -> Reading:
        """Read everything, check it, and describe the pools."""
        self._extract = grading.grader(self.grader).extract
        for path, what in self.chosen.left_out.items():
            self.notes.add(f"{LEFT_OUT}: {what}", str(path))
        for sample in guarded(self.chosen.reader, self.chosen.files, self.choices.wishes, self.notes):
            self._add(sample)
        if absent := [task for task in self.choices.tasks if task not in self.tasks]:
            raise InputError(f"no task {', '.join(absent)} in the files; found: {', '.join(self.tasks)}")
        if len(self.tasks) > 1 and not self.choices.tasks:
            raise SeveralTasksError(
                f"the files have {len(self.tasks)} tasks: {', '.join(sorted(self.tasks))}",
                "choose one with --task TASK; several --task are read as one benchmark",
            )
        if not self.tallies:
            self.problems.add("no samples", ", ".join(map(str, self.chosen.files)))
        self.documents.check(self.problems, self.grader, is_subset=self.choices.is_subset)
        self.problems.refuse()
        if not all(tally.count for tally in self.tallies.values()):
            files = ", ".join(map(str, self.chosen.files))
            raise InputError("\n".join(["no question of the benchmark has samples", *self.documents.notes]), files)
        questions = self.documents.questions
        self._positions = np.argsort(sorted(range(len(questions)), key=self.documents.rank))
        covered = self._check_coverage(questions)
        sizes = {key: self._size(key) for key in self.tallies}
        self.problems.refuse()
        return Reading(
            pools=tuple(self._pool(key, questions, covered, size) for key, size in sizes.items()),
            questions=tuple(questions[i] for i in covered),
            found=self.documents.found,
            format=self.chosen.name,
            files=tuple(self.chosen.files),
            notes=(*self.notes.lines, *self.documents.notes),
        )

    # ---- one sample

    def _add(self, sample: LoggedSample) -> None:
        key = self._key(sample.stream)
        if key is None:
            return
        located = self.documents.locate(sample.document, sample.place)
        if located is None:
            return
        if sample.sample >= 1 << 20:
            self.problems.add("a sample is numbered above a million", sample.place, f"found {sample.sample}")
            return
        n_tokens = _count(sample)
        finish, is_inferred = _finish(sample, n_tokens)
        text = sample.text or ""
        if located.letters:  # the answer in the order of choices of the benchmark stands at the end
            answer = self._extract(text, finish not in ("length", "failed")).answer
            if answer is not None and (letter := located.letters.get(answer, answer)) != answer:
                text = f"{text}\n\n(In this benchmark's order of choices: \\boxed{{{letter}}})"
        tally = self.tallies[key]
        tally.add(located.number, located.name, sample, text, finish, n_tokens)
        tally.inferred += is_inferred
        for scorer in sample.document_verdicts:
            what = f"verdicts of {scorer} are on all samples of a document together, and are not kept"
            self.notes.add(what, sample.place)
        tokens = list(sample.tokens) if isinstance(sample.tokens, tuple) else None
        logprobs = list(sample.logprobs) if isinstance(sample.logprobs, tuple) else None
        verdicts = [{"scorer": name, "value": v.value, "answer": v.answer} for name, v in sample.verdicts.items()]
        row = (
            located.number,
            sample.sample,
            text,
            tokens,
            logprobs,
            n_tokens,
            _mean(sample.logprobs),
            finish,
            json.dumps(dict(sample.numbers), sort_keys=True) if sample.numbers else None,
            json.dumps(verdicts) if verdicts else None,
            printable(sample.place),  # a file may have a name that is no UTF-8
        )
        self.spill.add(key, row, len(text) + 40 * (len(tokens or ()) + len(logprobs or ())) + 200)

    def _key(self, stream: Stream) -> str | None:
        """What tells the pools apart; None for a task that is not wanted."""
        if id(stream) not in self._keys:
            wanted = not self.choices.tasks or stream.task in self.choices.tasks
            self.tasks.setdefault(stream.task)
            asked = {name: value for name, value in stream.asked.items() if name != "seed" and value is not None}
            parts = [stream.model, stream.role, stream.policy, json.dumps(asked, sort_keys=True, default=str)]
            key = "\0".join(parts) if wanted else None
            self._keys[id(stream)] = stream, key
            if key is not None and key not in self.streams:
                self.streams[key], self.tallies[key] = stream, Tally()
        return self._keys[id(stream)][1]

    # ---- all samples

    def _check_coverage(self, questions: Sequence[Question]) -> list[int]:
        """Positions of the questions to keep: all, unless some may be missing."""
        present = [{int(self._positions[number]) for number in tally.samples} for tally in self.tallies.values()]
        if self.choices.is_subset:
            common = set.intersection(*present)
            if common != set.union(*present):
                self.problems.add("the pools do not have the same questions, so that they make no common subset")
            return sorted(common)
        for tally_present in present:
            for i in range(len(questions)):
                if i not in tally_present:
                    what = "a question of the benchmark has no samples (--subset NAME: import the others alone)"
                    self.problems.add(what, f"question {questions[i].id!r}")
        return list(range(len(questions)))

    def _size(self, key: str) -> int:
        """Samples of each question of a pool."""
        tally = self.tallies[key]
        for number, sample in tally.repeated():
            where = f"{self._name(number)}, sample {sample}"
            self.problems.add("a sample occurs twice", where, self._places(key, number, sample))
        if (equal := tally.equal_samples) is not None:
            what = f"samples {equal[0]} and {equal[1]} have the same texts in all questions, so they are no two draws"
            self.problems.add(what, self.streams[key].model)
        numbers = list(tally.samples)
        if self.choices.failed in ("drop", "unequal"):
            size = min((tally.usable(number) for number in numbers), default=0)
            if not size:
                worst = min(numbers, key=tally.usable)
                self.problems.add("a question has no sample that did not fail", self._name(worst))
            return size
        size = max(max(samples) for samples in tally.samples.values()) + 1
        if self.choices.failed == "wrong":
            return size
        hint = "choose --failed drop (as many samples of every question as all have) or --failed wrong"
        for number in sorted(numbers, key=self.documents.rank):
            name = self._name(number)
            for sample in tally.failed.get(number, ()):
                self.problems.add(f"a request failed; {hint}", f"{name}, sample {sample}")
            if len(tally.samples[number]) < size:
                absent = sorted(set(range(size)) - set(tally.samples[number]))
                which = f"and {len(absent) - 1} more are missing" if len(absent) > 1 else "is missing"
                what = f"every question needs samples 0 to {size - 1}; {hint}"
                self.problems.add(what, name, f"sample {absent[0]} {which}")
        return size

    def _name(self, number: int) -> str:
        return f"question {self.documents.questions[int(self._positions[number])].id!r}"

    def _places(self, key: str, number: int, sample: int) -> str:
        """Where a sample stands, of which there are several."""
        wanted = (pl.col("number") == number) & (pl.col("sample") == sample)
        for part in self.spill.read(key, self._positions):
            if places := part.filter(wanted)["place"].to_list():
                return ", ".join(places[:3])
        return ""

    def _pool(self, key: str, questions: Sequence[Question], covered: Sequence[int], size: int) -> Pool:
        stream, tally = self.streams[key], self.tallies[key]
        positions = self._positions
        renumbered = np.full(len(questions) + 1, -1, np.int64)
        renumbered[list(covered)] = np.arange(len(covered))

        def parts() -> Iterator[pl.DataFrame]:
            for part in self.spill.read(key, positions):
                numbers = renumbered[positions[part["number"].to_numpy()]]
                kept = part.with_columns(number=pl.Series(numbers)).filter(pl.col("number") >= 0)
                yield kept.cast({"number": pl.UInt32})

        is_short = bool(tally.failed) or any(len(samples) != size for samples in tally.samples.values())
        proposal, choices = proposed(stream.asked, stream.policy), self.choices
        named = next((role for role in ("base", "rl") if stream.model and getattr(choices, role) == stream.model), "")
        return Pool(
            stream=stream,
            role=choices.role or named or stream.role,
            proposal=proposal,
            policy=self.choices.policy or proposal.name,
            questions=tuple(questions[i] for i in covered),
            samples=size,
            tally=tally,
            failed=self.choices.failed if is_short else "",
            _read=parts,
            _places=renumbered[positions].tolist(),
        )


def _count(sample: LoggedSample) -> int | None:
    each = next((value for value in (sample.tokens, sample.logprobs) if isinstance(value, tuple)), None)
    return len(each) if each is not None else sample.tokens if isinstance(sample.tokens, int) else None


def _mean(logprobs: tuple[float, ...] | float | None) -> float | None:
    if isinstance(logprobs, tuple):
        return math.fsum(logprobs) / len(logprobs) if logprobs else None
    return logprobs


def _finish(sample: LoggedSample, n_tokens: int | None) -> tuple[str, bool]:
    """How a text ended, and whether that is inferred from the limit of tokens."""
    limit = sample.stream.asked.get("max_tokens")
    if sample.finish == "unknown" and isinstance(limit, int) and n_tokens is not None and n_tokens >= limit > 0:
        return "length", True
    return sample.finish, sample.is_finish_inferred
