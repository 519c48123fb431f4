"""What every reader yields: samples as another tool recorded them, before they are matched, checked or stored.

A reader knows one format of files and nothing of studies, benchmarks or the store. What a format does not say stays
unsaid (None, ``unknown``, an absent sampling parameter): nobody here guesses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from searchlens.errors import InputError

Finish = Literal["stop", "length", "failed", "unknown"]
"""How a text ended: by the model, by a limit of tokens, by an error of the request, or the format does not say."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What all samples share that one model drew for one benchmark with one set of sampling parameters."""

    model: str = ""
    """As the log names it; empty if it does not."""
    task: str = ""
    """Benchmark or task, as the log names it; empty if it does not."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Sampling parameters as found, under the names of ``policies.Sampling`` where they have one (``temperature``,
    ``top_p``, ``top_k``, ``min_p``, ``max_tokens``, ``seed``, ...). Absent ones stay absent."""
    made_by: str = ""
    """Harness and version, as far as the log says."""
    policy: str = ""
    role: str = ""
    """``policy``, ``role``: name of the policy, and side of the pair (``base`` or ``rl``), where the log itself says
    them."""


@dataclass(frozen=True, slots=True)
class Document:
    """A question as the log has it."""

    id: str | int | None = None
    """The document's own id; an index of a row only if ``is_index``."""
    is_index: bool = False
    """The id is a position in some file, which need not be the order of another copy of the benchmark."""
    prompt: str | None = None
    """What was asked, as bare as the log has it."""
    is_templated: bool = False
    """Instructions, worked examples or a chat template stand around the question."""
    choices: tuple[str, ...] = ()
    """In the log's order; empty for open questions."""
    gold: tuple[str, ...] = ()
    """Right answers; empty if the log has none. A letter refers to ``choices``."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a scorer of the harness said of one sample: a value in [0, 1] or None, and the answer that it took."""

    value: float | None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class LoggedSample:
    """One sample of a log."""

    stream: Stream
    document: Document
    sample: int
    """Position in the stream of this document's samples, from 0, by the rule of the format."""
    text: str | None
    """What the model wrote, with reasoning that the format keeps apart put before it; None if only verdicts are kept,
    or if the request failed and left no text."""
    place: str
    """File, and line or member, for messages."""
    finish: Finish = "unknown"
    tokens: tuple[int, ...] | int | None = None
    """Generated tokens of this sample alone: their ids, or their number."""
    logprobs: tuple[float, ...] | float | None = None
    """Natural log-probabilities under the raw model: one per token, or their mean."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """Scorer to its verdict on this sample. A verdict on all samples of a document is not one."""
    document_verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """Scorer to its verdict on all samples of the document together (pass@k, a vote, a mean); the same with each."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Name to a number on this sample that is no verdict, in its own unit: a reward, the score of a reward model."""
    is_finish_inferred: bool = False
    """The format does not say how the text ended; it has as many tokens as its limit allows."""


class NoTextsError(InputError):
    """A task generated no texts."""

    task = ""
    """Its name."""


class Notes:
    """What a reader did or found that is no error, but that whoever imports should know: one line for each kind.

    A reader adds to them while it reads, so they are complete when the last sample has come.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._places: dict[str, str] = {}
        self.current: tuple[str, Any] = ("", None)
        """Place and content of the record that is being read, for messages."""

    def at(self, place: str, record: Any) -> None:
        """Remember which record is read now."""
        self.current = place, record

    def add(self, what: str, place: str = "") -> None:
        """Note something once more: its kind, without anything that differs from place to place, and file and line of
        the first time.
        """
        self._counts[what] = self._counts.get(what, 0) + 1
        self._places.setdefault(what, place)

    @property
    def lines(self) -> list[str]:
        """One line for each kind, in the order of their first time, with how often and where first."""
        lines = []
        for what, count in self._counts.items():
            place = self._places[what]
            parts = [f"{count:,} times", f"first in {place}" if place else ""] if count > 1 else [place]
            aside = ", ".join(filter(None, parts))
            lines.append(f"{what} ({aside})" if aside else what)
        return lines


class Reader(Protocol):
    """Reads one format. Declared with ``catalogue.reader``, as a class that is made without arguments.

    The decorator states ``title``, ``versions`` (from which the reader was made), ``ran`` (whether it was tried on
    files that the package itself wrote) and ``wishes`` (names of the options that it understands).
    """

    def files(self, path: Path) -> list[Path]:
        """Files of this format: the path itself, or those in a folder. Empty if it is another format.

        Decided from names and first bytes alone; compressed files are recognised by ``readers.lines``.
        """

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples, one after the other, without holding a file in memory.

        Parameters
        ----------
        files : sequence of Path
            Of one model's run, or of several; in an order that does not matter.
        wishes : mapping
            What the user says that a format leaves open, by the name of the option (``date``, ``requests``, ``right``,
            ``partial``).
        notes : Notes
            Where the reader says what it left out, chose or could not know.

        Raises
        ------
        InputError
            A file cannot be used; the message names the file, the line or member, and what to do.
        """


SHOWN = 10
"""Largest number of kinds in one message."""

HINT = "docs/import.md describes what is read"


class Problems:
    """Counts mistakes by kind, and refuses them once there are ``most``."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._counts: dict[str, int] = {}
        self._examples: dict[str, list[tuple[str, str]]] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, what: str, place: str = "", found: str = "") -> None:
        """Count one mistake: its kind, without anything that belongs to one place, file and line, and what stands
        there.
        """
        self._counts[what] = self._counts.get(what, 0) + 1
        examples = self._examples.setdefault(what, [])
        if len(examples) < 2:
            examples.append((place, found))
        if self._most and sum(self._counts.values()) >= self._most:
            self.refuse()

    def take(self, others: Problems, remark: str = "") -> None:
        """Add all mistakes of another collection, with a remark behind each kind."""
        for what, count in others._counts.items():
            kind = f"{what}; {remark}" if remark else what
            self._counts[kind] = self._counts.get(kind, 0) + count
            self._examples.setdefault(kind, []).extend(others._examples[what])

    @property
    def lines(self) -> list[str]:
        """One line for each kind, in the order in which they were found."""
        lines = []
        for what, count in self._counts.items():
            (place, found), *_ = examples = self._examples[what][:2]
            shown = [place + (f" ({found})" if found and place else found) for place, found in examples]
            more = f" and {count - len(shown):,} more" if count > len(shown) else ""
            alone = f"{place}{': ' if place else ''}{what}{', ' if found else ''}{found}"
            several = f"{what} ({count:,} times): {', '.join(filter(None, shown))}{more}"
            lines.append(alone if count == 1 else several)
        return lines

    def refuse(self) -> None:
        """Raise one ``InputError`` if anything was counted."""
        if not self:
            return
        lines = self.lines
        more = [f"… and {len(lines) - SHOWN} more kinds of mistakes"] if len(lines) > SHOWN else []
        raise InputError("\n".join([*lines[:SHOWN], *more]), HINT)


def shown(value: object) -> str:
    """A value as it is quoted in a message: at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
