"""How numbers, intervals and lines of a table are printed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import polars as pl

from searchlens.analysis.claims import DASH, number
from searchlens.reporting.tables.table import Part

Line = dict[str, str]
"""One printed line, by heading."""
YES, NO = "✓", "×"
_NEGATIVE = re.compile(r"(?<!\w)-(?=\d)")


def spread(mean: float | None, sd: float | None) -> str:
    """A mean with its standard deviation, such as ``1.96 ± 0.84``."""
    return number(mean) if mean is None or sd is None else f"{number(mean)} ± {number(sd)}"


def fraction(count: int | None, total: int | None) -> str:
    """A count with its total, such as ``4/27``."""
    return DASH if count is None or total is None else f"{count}/{total}"


def tick(holds: bool | None) -> str:
    """A tick, a cross, or a dash for None."""
    return DASH if holds is None else YES if holds else NO


def word(value: object) -> str:
    """Text, or a dash for None and for empty text."""
    return DASH if value is None or value == "" else str(value)


def minus(text: str) -> str:
    """Text with true minus signs in its negative numbers; hyphens in names stay.

    >>> minus("gpt-2 -8.1")
    'gpt-2 −8.1'
    """
    return _NEGATIVE.sub("\N{MINUS SIGN}", text)


def text_frame(lines: Sequence[Mapping[str, str]], missing: str = DASH) -> pl.DataFrame:
    """Lines as a frame of strings, with all their headings in the order of first appearance.

    Without lines, one row that holds ``missing``, which also stands where a line does not have a heading.
    """
    headings = list(dict.fromkeys(heading for line in lines for heading in line)) or ["(no rows)"]
    rows = [[line.get(heading, missing) for heading in headings] for line in lines] or [[missing]]
    return pl.DataFrame(rows, dict.fromkeys(headings, pl.String()), orient="row")


def part(lines: Sequence[Mapping[str, str]], title: str = "", rule_before: Sequence[int] = ()) -> Part:
    """A block of lines; a heading that a line does not have is a dash there."""
    return Part(text_frame(lines), title, rule_before)


def block(lines: Sequence[Mapping[str, str]], *groups: str, title: str = "") -> Part:
    """Lines with a rule where one of these headings changes; a heading that a line does not have is left empty."""
    keys = [tuple(line[group] for group in groups) for line in lines]
    return Part(text_frame(lines, missing=""), title, changes(keys))


def changes(values: Sequence[object]) -> list[int]:
    """Places at which a sequence changes: the rows of a table that start a new group.

    >>> changes(["a", "a", "b"])
    [2]
    """
    return [i for i in range(1, len(values)) if values[i] != values[i - 1]]


def named(frame: pl.DataFrame, **names: str) -> pl.DataFrame:
    """A frame behind columns that have the same words in every row."""
    return frame.select(*(pl.lit(value).alias(name) for name, value in names.items()), pl.all())


def stacked(**blocks: pl.DataFrame) -> pl.DataFrame:
    """Frames with different columns as one; the column ``block`` says which frame a row comes from."""
    return pl.concat((named(frame, block=name) for name, frame in blocks.items()), how="diagonal_relaxed")
