"""A table and its files: CSV for programs, HTML and Markdown for reading, LaTeX (booktabs) for the paper."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from searchlens.analysis.claims import DASH, number
from searchlens.api import pages
from searchlens.catalogue import TABLE_FORMATS, Declaration, definition
from searchlens.store import files, provenance
from searchlens.store.frames import write_csv
from searchlens.store.layout import Layout
from searchlens.store.provenance import Failures

_MATHS = {
    "\N{MINUS SIGN}": "-",
    "→": r"\to",
    "≤": r"\leq",
    "≥": r"\geq",
    "±": r"\pm",
    "×": r"\times",
    "∞": r"\infty",
    "✓": r"\surd",
    "†": r"\dagger",
    "≈": r"\approx",
    "≠": r"\neq",
    "α": r"\alpha",
    "β": r"\beta",
    "δ": r"\delta",
    "Δ": r"\Delta",
    "ε": r"\varepsilon",
    "λ": r"\lambda",
    "μ": r"\mu",
    "π": r"\pi",
    "τ": r"\tau",
    "<": "<",
    ">": ">",
    "|": "|",
}
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    DASH: "---",
    "–": "--",
    **{character: f"${command}$" for character, command in _MATHS.items()},
}
_HATTED = re.compile("(.)\N{COMBINING CIRCUMFLEX ACCENT}")
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
"""Line breaks and other characters that control something; a text is one line."""


@dataclass(frozen=True)
class Part:
    """One block of a table as it is printed."""

    text: pl.DataFrame
    """Strings; a column name is its heading."""
    title: str = ""
    """What the block holds; empty in a table of one block."""
    rule_before: Sequence[int] = ()
    """Rows that have a horizontal rule above them."""


@dataclass(frozen=True)
class Table:
    """One table: its values for programs, and the same values as they are printed."""

    data: pl.DataFrame
    """Content of the CSV: one value per column, proportions in full precision. A list is written as its items,
    separated by spaces."""
    parts: Sequence[Part]
    """The printed blocks, each with its own columns: percentages, an interval in brackets after its value."""
    notes: Sequence[str] = ()
    """Sentences under the table."""

    @property
    def text(self) -> pl.DataFrame:
        """The first block."""
        return self.parts[0].text


def write(table: Table, stem: Path) -> list[Path]:
    """Write ``stem.csv``, ``.tex`` (needs the LaTeX package booktabs), ``.md`` and ``.html``; returns the paths."""
    csv, tex, md, page = (stem.with_name(f"{stem.name}.{suffix}") for suffix in ("csv", "tex", "md", "html"))
    lists = [name for name, kind in table.data.schema.items() if isinstance(kind, pl.List)]
    write_csv(table.data.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(" ")), csv)
    files.replace_text(tex, latex(table))
    files.replace_text(md, markdown(table))
    files.replace_text(page, html(table, csv))
    return [csv, tex, md, page]


# ---- LaTeX


def latex(table: Table) -> str:
    """A booktabs ``tabular`` for each part, columns of words left and of numbers right; notes as comments."""
    notes = "".join(f"% {escape(note)}\n" for note in table.notes)  # in one line each, which ``escape`` makes of them
    return "\n".join([_tabular(part) for part in table.parts]) + notes


def _tabular(part: Part) -> str:
    columns = part.text.columns
    align = "".join("r" if _numeric(part.text[name]) else "l" for name in columns)
    lines = [f"\\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines += [f"\\multicolumn{{{len(columns)}}}{{l}}{{\\textit{{{escape(part.title)}}}}} \\\\"] if part.title else []
    lines += [_line(columns), r"\midrule"]
    for i, row in enumerate(part.text.iter_rows()):
        lines += [r"\midrule"] if i in part.rule_before else []
        lines.append(_line(row))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escape(text: str) -> str:
    """Text for LaTeX: its special characters, and the Greek letters and signs of these tables as mathematics."""
    pieces = _HATTED.split(_BREAKS.sub(" ", text))
    plain = ["".join(map(_escaped, f" {piece}", piece)) for piece in pieces[::2]]
    hats = [rf"$\widehat{{{_MATHS.get(letter, letter)}}}$" for letter in pieces[1::2]]
    return "".join(piece for pair in zip(plain, [*hats, ""], strict=True) for piece in pair)


def _escaped(before: str, character: str) -> str:
    """A character behind another one; two hyphens, quotes or commas stay two."""
    return ("{}" if before == character and character in "-'," else "") + _ESCAPES.get(character, character)


def _line(cells: Sequence[str]) -> str:
    text = " & ".join(escape(cell) for cell in cells)
    # LaTeX takes a bracket or star after the preceding row's \\ for that command's option.
    return ("{}" if text.startswith(("[", "*")) else "") + text + r" \\"


def _numeric(column: pl.Series) -> bool:
    return all(text in ("", DASH) or text[0].isdigit() or text[0] in "+.\N{MINUS SIGN}" for text in column)


# ---- Markdown


def markdown(table: Table) -> str:
    """Pipe tables with padded columns, one for each part, and the notes as a list."""
    blocks = [(f"**{_marked(part.title)}**\n\n" if part.title else "") + _pipes(part) for part in table.parts]
    notes = "".join(f"- {_marked(note)}\n" for note in table.notes)
    return "\n".join([*blocks, notes] if notes else blocks)


_MARKUP = re.compile(
    r"<(?=[A-Za-z/!?])|&(?=[#A-Za-z])|(?<=\])[(\[:]|!(?=\[)"  # tags, entities, links, images
    r"|[*`~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|\\(?=[!-/:-@\[-`{-~]|$)"  # emphasis, code, what is escaped already
    r"|^[>#]|^[-+]+(?=\s|$)|^[0-9]+[.)](?=\s|$)"  # beginnings of quotes, headings and lists
)
"""What has its last character escaped."""


def _marked(text: str) -> str:
    """Text for Markdown: in one line, in which nothing is markup."""
    return _MARKUP.sub(lambda found: f"{found.group()[:-1]}\\{found.group()[-1]}", _BREAKS.sub(" ", text))


def _pipes(part: Part) -> str:
    columns = {name: [name, *part.text[name]] for name in part.text.columns}
    cells = {name: [_marked(text).replace("|", r"\|") for text in column] for name, column in columns.items()}
    widths = {name: max(3, *map(_width, column)) for name, column in cells.items()}
    right = {name: _numeric(part.text[name]) for name in columns}

    def line(i: int) -> str:
        padded = []
        for name, column in cells.items():
            space = " " * (widths[name] - _width(column[i]))
            padded.append(space + column[i] if right[name] else column[i] + space)
        return f"| {' | '.join(padded)} |"

    rule = "|".join("-" * (widths[name] + 1) + (":" if right[name] else "-") for name in cells)
    return "\n".join([line(0), f"|{rule}|", *(line(i) for i in range(1, part.text.height + 1)), ""])


def _width(text: str) -> int:
    return sum(not unicodedata.combining(character) for character in text)


# ---- HTML

LINKED = 200_000
"""Bytes up to which a page holds its CSV, so that it can be taken from a report without other files."""


def html(table: Table, csv: Path) -> str:
    """A page without script that needs no other file: the parts, the notes, and the CSV as a link.

    The CSV is in the page up to ``LINKED`` bytes; of a larger one the page has the name.
    """
    content = csv.read_bytes() if csv.stat().st_size <= LINKED else b""
    return pages.rendered(
        "reporting/tables/table.html.j2",
        title=csv.stem,
        parts=table.parts,
        numeric=lambda part: [i for i, column in enumerate(part.text) if _numeric(column)],
        notes=table.notes,
        name=csv.name,
        csv=base64.b64encode(content).decode(),
    )


class Context(Protocol):
    """What the tables of a stage are made from; each stage has a class of its own."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences under every table of the stage."""


def build(declaration: Declaration, context: Context) -> Table:
    """One declared table, from the class that the tables of its stage take, with the notes of the stage."""
    table: Table = definition(declaration)(context)
    return replace(table, notes=(*table.notes, *context.notes))


def save(tables: Mapping[str, Declaration], context: Context, output: Layout, record: Path, *signed: Any) -> None:
    """Write some declared tables, each with its provenance (``provenance.sign``), and record those that fail."""
    found = Failures()
    for name, declaration in tables.items():
        paths = [output.table(name, suffix) for suffix in TABLE_FORMATS]
        with found.caught(f"table {name}", paths):
            write(build(declaration, context), paths[0].with_suffix(""))
        provenance.sign(output.table(name, "json"), *signed)
    found.save(record)


Line = dict[str, str]
"""One printed line, by heading."""
# ---- lines and numbers

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
