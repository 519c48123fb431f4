"""Makes every table that is declared for a stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from searchlens import catalogue
from searchlens.tables.table import Table


class Context(Protocol):
    """What the tables of a stage are made from; each stage has a class of its own."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences under every table of the stage."""


def build(stage: str, context: Context) -> dict[str, Table]:
    """Every table that is declared for a stage, in this package and in the extensions in use, by name.

    Parameters
    ----------
    stage : {"study", "boptr", "equivalence", "equivalence_vllm"}
    context : Context
        The class that the tables of this stage take: ``study.StudyContext``, ``boptr.context.TableContext`` or
        ``equivalence.Comparisons``.
    """
    tables = {name: catalogue.find("table", name)(context) for name in catalogue.declared("table", stage=stage)}
    return {name: replace(table, notes=(*table.notes, *context.notes)) for name, table in tables.items()}
