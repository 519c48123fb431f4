"""Makes the tables that are declared for a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from searchlens.catalogue import Declaration, definition
from searchlens.tables.table import Table


class Context(Protocol):
    """What the tables of a stage are made from; each stage has a class of its own."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences under every table of the stage."""


def build(tables: Mapping[str, Declaration], context: Context) -> dict[str, Table]:
    """Some declared tables of one stage, by name.

    Parameters
    ----------
    tables : mapping of str to Declaration
        Such as ``catalogue.declared("table", stage="study")``, those of extensions included.
    context : Context
        The class that the tables of the stage take: ``study.StudyContext``, ``boptr.context.TableContext``,
        ``equivalence.Comparisons`` or ``likelihood.Likelihoods``.
    """
    made = {name: definition(declaration)(context) for name, declaration in tables.items()}
    return {name: replace(table, notes=(*table.notes, *context.notes)) for name, table in made.items()}
