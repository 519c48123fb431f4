"""What the readers of known benchmarks share: files of rows, layouts of field names, and errors that name a row.

No error quotes the text of a row, because the terms of GPQA forbid to show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from searchlens.benchmarks.questions import Question
from searchlens.errors import InputError

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
class BenchmarkFile:
    """Rows of one file of a known benchmark, as they are in the file."""

    path: Path
    rows: Sequence[RawRow]
    """Field name to content; at least one row."""
    family: str
    """Name of the known benchmark."""
    start: int = 0
    """Number of rows in earlier files of the family."""

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
        _refuse(self.path, errors)
        return rows


def _refuse(path: Path, errors: Sequence[tuple[int, str]], shown: int = 10) -> None:
    if not errors:
        return
    lines = [f"{path}: row {row}: {what}" for row, what in errors[:shown]]
    if len(errors) > shown:
        lines.append(f"… and {len(errors) - shown} more errors")
    raise InputError("\n".join(lines), "is it the file that its name says? docs/artifacts.md has the sources")


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


def layout_of(file: BenchmarkFile, layouts: Sequence[Layout]) -> Layout:
    """The first layout whose fields the first row has; InputError if none fits, which lists fields and layouts."""
    for layout in layouts:
        if all(value(file.rows[0], name) is not None for name in layout.fields.values()):
            return layout
    known = "\n".join(f"  {layout}" for layout in layouts)
    fields = ", ".join(_fields(file.rows[0])) or "(none)"
    raise InputError(
        f"{file.path}: no known layout; its fields are {fields}. Known layouts:\n{known}",
        "rename the fields to one of them, or use the family jsonl (docs/add-a-benchmark.md)",
    )


def _fields(row: RawRow) -> list[str]:
    """Names of the fields of a row, with the names one level inside nested ones."""
    return [
        f"{name}.{inner}" if inner else name
        for name, content in row.items()
        for inner in (content if isinstance(content, Mapping) and content else [""])
    ]


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
