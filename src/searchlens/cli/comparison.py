"""`searchlens compare`: what two sides' log files say, for people."""

from __future__ import annotations

from collections.abc import Iterator

from searchlens.api.statements import told
from searchlens.cli.terminal import cells, wrapped
from searchlens.compare import LogComparison
from searchlens.compare.sections import Section, remarks, sections
from searchlens.errors import one_line

GAP = "  "


def rendered(found: LogComparison, width: int) -> str:
    """All tables, then a sentence on what each reading can and cannot say, wrapped at ``width`` cells."""
    lines: list[str] = []
    for section in sections(found):
        lines += [*_section(section, width), ""]
    lines.append("What these data can and cannot say")
    for each in told(found.statements):
        lines += _wrapped(f"{each.reading}: {each.can}", width)
        lines += _wrapped(f"  cannot say: {each.cannot}", width) if each.cannot else []
    notes = list(remarks(found))
    lines += ["", *(line for note in notes for line in _wrapped(f"note: {note}", width))] if notes else []
    return "\n".join(lines)


def _section(section: Section, width: int) -> Iterator[str]:
    yield section.title
    if section.rows:
        table = [[one_line(cell) for cell in row] for row in (section.heads, *section.rows)]
        columns = [max(map(cells, column)) for column in zip(*table, strict=True)]
        for row in table:
            padded = (cell + " " * (wide - cells(cell)) for cell, wide in zip(row, columns, strict=True))
            yield f"  {GAP.join(padded)}".rstrip()
    if section.note:
        yield from _wrapped(f"  {section.note}", width)


def _wrapped(text: str, width: int) -> list[str]:
    return wrapped(text, max(40, width))
