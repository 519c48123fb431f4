"""What the readers of the known benchmarks share: field-name layouts, and errors that name a row but never quote it.

Nothing of a row's text enters a message, because the terms of GPQA forbid to show it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from searchlens.benchmarks import Question
from searchlens.errors import InputError

SOURCE_IDS = ("unique_id", "id", "key", "idx", "source_index", "Record ID", "extra_info.index")
SUBJECTS = ("subject", "topic", "type", "subfield", "Subdomain")


@dataclass(frozen=True, slots=True)
class Layout:
    """Field names under which a benchmark circulates.

    Attributes
    ----------
    where : str
        Who writes it.
    fields : mapping
        What is needed (``question``, ``gold``, ...) to the field that holds it; ``a.b`` is field b inside field a.
    boxed : bool
        The gold is the last box of the field's text.
    """

    where: str
    fields: Mapping[str, str]
    boxed: bool = False

    def __str__(self) -> str:
        return f"{', '.join(self.fields.values())} ({self.where})"


class Row(NamedTuple):
    """A question with what identifies it whatever the layout.

    Attributes
    ----------
    question : Question
    wording : str
        What is asked, choices included, in no order of ours.
    answer : str
        The gold as text: of choices the right one, not its letter.
    """

    question: Question
    wording: str
    answer: str


def value(row: Mapping[str, Any], name: str) -> Any:
    """The field of a dotted name; None where there is none."""
    found: Any = row
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def layout_of(path: Path, rows: Sequence[Mapping[str, Any]], layouts: Sequence[Layout]) -> Layout:
    """The first layout whose fields the first row has.

    Raises
    ------
    InputError
        None fits: the fields found and all layouts known are listed.
    """
    for layout in layouts:
        if all(value(rows[0], name) is not None for name in layout.fields.values()):
            return layout
    known = "\n".join(f"  {layout}" for layout in layouts)
    raise InputError(
        f"{path}: no known layout; its fields are {', '.join(_fields(rows[0])) or '(none)'}. Known layouts:\n{known}",
        "rename the fields to one of them, or use the family jsonl (docs/add-a-benchmark.md)",
    )


def _fields(row: Mapping[str, Any]) -> list[str]:
    """Names of a row's fields, one level deep into nested ones."""
    return [
        f"{name}.{inner}" if inner else name
        for name, content in row.items()
        for inner in (content if isinstance(content, Mapping) and content else [""])
    ]


def refuse_rows(path: Path, errors: Sequence[tuple[int, str]], shown: int = 10) -> None:
    """Raise one ``InputError`` with the first errors, by row counted from 1; without any, return."""
    if not errors:
        return
    lines = [f"{path}: row {row}: {what}" for row, what in errors[:shown]]
    if len(errors) > shown:
        lines.append(f"… and {len(errors) - shown} more errors")
    raise InputError("\n".join(lines), "is it the file that its name says? docs/artifacts.md has the sources")


def text_of(found: Any) -> str | None:
    """The stripped text of a field: a string, or a chat, of which it is the last message that has one; else None."""
    if isinstance(found, str):
        return found.strip() or None
    if isinstance(found, Sequence) and found and isinstance(found[-1], Mapping):
        return text_of(found[-1].get("content", found[-1].get("value")))
    return None


def tags_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What people may want to know of a row: its id in the source, its subject and level."""
    tags: dict[str, Any] = {}
    for tag, names in (("source_id", SOURCE_IDS), ("subject", SUBJECTS), ("level", ("level",))):
        found = [value(row, name) for name in names]
        if present := [content for content in found if isinstance(content, str | int) and content != ""]:
            tags[tag] = present[0]
    return tags


def canonical(content: Any) -> str:
    """JSON with sorted keys and no spaces."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
