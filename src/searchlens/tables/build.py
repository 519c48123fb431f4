"""Makes the tables that are declared for a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from searchlens.catalogue import TABLE_FORMATS, Declaration, definition
from searchlens.store import provenance
from searchlens.store.failures import Failures
from searchlens.store.layout import Layout
from searchlens.tables.table import Table, write


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
