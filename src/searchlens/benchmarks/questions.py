"""Questions, the rows of files that they are read from, and what the readers of known benchmarks share.

Readers share layouts of field names, and errors that name a row. No error quotes the text of a row, because the terms
of GPQA forbid to show it.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from searchlens.errors import InputError
from searchlens.store.files import digest


@dataclass(frozen=True, slots=True)
class Question:
    """One item of a benchmark."""

    id: str
    """Unique within the benchmark."""
    text: str
    """The question, without any prompt template."""
    gold: str
    """The right answer; empty if ``checks`` decide instead."""
    checks: Mapping[str, Any] | None = None
    """Name of a check to its parameters, for graders that run checks on the text."""
    tags: Mapping[str, Any] = field(default_factory=dict)
    """Information for readers, such as level and subject. No code depends on it."""


def content_hash(questions: Iterable[Question]) -> str:
    """sha256 of everything in the questions, in their order, whatever the layout of their file."""
    return digest([asdict(question) for question in questions], 64)


def asked_hash(questions: Iterable[Question]) -> str:
    """sha256 of ids and texts, which decide the samples. A corrected gold does not change it."""
    return digest([[question.id, question.text] for question in questions], 64)


def plain(text: str) -> str:
    """Letters and digits only: spacing, punctuation and signs differ between files of the same wording."""
    return "".join(letter for letter in unicodedata.normalize("NFKC", text).lower() if letter.isalnum())


def dumps(questions: Iterable[Question]) -> str:
    """The questions as text of the family ``jsonl``. Reading the text gives equal questions."""
    lines = []
    for question in questions:
        row: dict[str, Any] = {"id": question.id, "question": question.text, "gold": question.gold}
        row |= {} if question.checks is None else {"checks": question.checks}
        row |= {"tags": question.tags} if question.tags else {}
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return "".join(lines)


# ---- rows of files

SOURCE_IDS = ("unique_id", "id", "key", "idx", "source_index", "Record ID", "extra_info.index")
SUBJECTS = ("subject", "topic", "type", "subfield", "Subdomain")

RawRow = Mapping[str, Any]


class RowError(Exception):
    """A row that cannot be used. The message says why, without quoting the row."""


class Row(NamedTuple):
    """A question, with what identifies it in every layout."""

    question: Question
    wording: str
    """The question with its choices, independent of their order."""
    answer: str
    """The gold answer as text; of choices the right one, not its letter."""

    @classmethod
    def of(cls, question: Question) -> Row:
        """A row whose wording is the text of the question, and whose answer is its gold."""
        return cls(question, question.text, question.gold)


@dataclass(frozen=True, slots=True)
class Layout:
    """Field names under which a benchmark circulates."""

    source: str
    """Where files with this layout come from."""
    fields: Mapping[str, str]
    """Content that is needed (``question``, ``gold``, ...) to the field that holds it; ``a.b`` is field b of field
    a."""
    boxed: bool = False
    """The gold is the last box in the text of its field."""

    def __str__(self) -> str:
        return f"{', '.join(self.fields.values())} ({self.source})"

    def value(self, row: RawRow, part: str) -> Any:
        """The content of the field that holds a part; None if the row does not have it."""
        return value(row, self.fields[part])

    def text(self, row: RawRow, part: str) -> str | None:
        """The text of the field that holds a part; None if it has none."""
        return text_of(self.value(row, part))


@dataclass(frozen=True, slots=True)
class BenchmarkFile:
    """Rows of one file of a known benchmark, as they are in the file."""

    path: Path
    rows: Sequence[RawRow]
    """Field name to content; at least one row."""
    family: str
    """Name of the known benchmark."""
    start: int = 0
    """Number of rows in earlier files of the family."""

    def layout(self, layouts: Sequence[Layout]) -> Layout:
        """The first layout whose fields the first row has; InputError if none fits, which lists fields and layouts."""
        for layout in layouts:
            if all(layout.value(self.rows[0], part) is not None for part in layout.fields):
                return layout
        known = "\n".join(f"  {layout}" for layout in layouts)
        fields = [  # with the names one level inside nested ones
            f"{name}.{inner}" if inner else name
            for name, content in self.rows[0].items()
            for inner in (content if isinstance(content, Mapping) and content else [""])
        ]
        raise InputError(
            f"{self.path}: no known layout; its fields are {', '.join(fields) or '(none)'}. Known layouts:\n{known}",
            "rename the fields to one of them, or use the family jsonl (docs/add-a-benchmark.md)",
        )

    def read(self, convert: Callable[[str, RawRow], Row | None]) -> list[Row]:
        """Convert each row by a function of its id (family and position) and the raw row; None leaves the row out.

        Raises InputError with the first ten rows that cannot be used (``RowError``).
        """
        rows: list[Row] = []
        errors: list[tuple[int, str]] = []
        for number, raw in enumerate(self.rows, start=1):
            try:
                row = convert(f"{self.family}-{self.start + number:04d}", raw)
            except RowError as error:
                errors.append((number, str(error)))
            else:
                rows += [row] if row else []
        if errors:
            lines = [f"{self.path}: row {row}: {what}" for row, what in errors[:10]]
            lines += [f"… and {len(errors) - 10} more errors"] if len(errors) > 10 else []
            raise InputError("\n".join(lines), "is it the file that its name says? docs/artifacts.md has the sources")
        return rows


def value(row: RawRow, name: str) -> Any:
    """The field of a dotted name; None if the row does not have it."""
    content: Any = row
    for part in name.split("."):
        content = content.get(part) if isinstance(content, Mapping) else None
    return content


def text_of(content: Any) -> str | None:
    """The stripped text of a field: a string, or the last message of a chat; None if there is no text."""
    if isinstance(content, str):
        return content.strip() or None
    if isinstance(content, Sequence) and content and isinstance(content[-1], Mapping):
        return text_of(content[-1].get("content", content[-1].get("value")))
    return None


def tags_of(row: RawRow) -> dict[str, Any]:
    """Information about a row for readers: its id in the source, its subject and level."""
    tags: dict[str, Any] = {}
    for tag, names in (("source_id", SOURCE_IDS), ("subject", SUBJECTS), ("level", ("level",))):
        contents = [value(row, name) for name in names]
        if usable := [content for content in contents if isinstance(content, str | int) and content != ""]:
            tags[tag] = usable[0]
    return tags
