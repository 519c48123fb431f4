"""Writes docs/columns.md: ``make schema``. Columns and types are those of the code, meanings those of columns.yaml."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl
import yaml

PAGE = Path(__file__).parents[1] / "docs/columns.md"
MEANINGS = Path(__file__).with_suffix(".yaml")
HEAD = """# Files and columns

For anyone who reads the files of a run with other programs: every file, and every column with its type and meaning.
`make schema` writes this page.
"""


def schema(name: str) -> Mapping[str, pl.DataType]:
    """The columns of a frame, by the name of its schema in the code, or of what returns it."""
    module, _, inner = name.rpartition(".")
    found = getattr(import_module(module), inner)
    return found if isinstance(found, pl.Schema) else found()


def rows(described: Mapping[str, str], types: Mapping[str, pl.DataType]) -> Iterator[tuple[str, str, str]]:
    """Names, types and meaning, a row for each meaning; neighbours of one type without a meaning share a row."""
    of = {name: names for names in described for name in names.split(", ")}
    kinds = {name: str(kind) for name, kind in types.items()}
    others = [name for name in of if name not in types]
    for key, group in groupby([*types, *others], lambda name: of.get(name) or (kinds[name],)):
        each = [*group]
        shown = [kinds[name] for name in each if name in kinds]
        shown = shown[: 1 if len(set(shown)) == 1 else None]
        yield ", ".join(f"`{name}`" for name in each), ", ".join(shown), described.get(key, "")


def table(block: Mapping[str, Any]) -> str:
    """The columns of one file, with types where the code has a schema."""
    types = schema(block["schema"]) if "schema" in block else {}
    head = "| column | type | meaning |\n|---|---|---|\n" if types else "| column | meaning |\n|---|---|\n"
    lines = [[names, kinds, meaning.replace("|", "\\|")] for names, kinds, meaning in rows(block["columns"], types)]
    cells = lines if types else [[names, meaning] for names, _, meaning in lines]
    file = f"`{block['file']}`:\n\n" if "file" in block else ""
    return file + head + "".join(f"| {' | '.join(row)} |\n" for row in cells)


def page() -> str:
    """The text of the page."""
    parts = [HEAD]
    for section in yaml.safe_load(MEANINGS.read_text("utf-8")):
        parts.append(f"## {section['title']}\n")
        parts += [block if isinstance(block, str) else table(block) for block in section["blocks"]]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
