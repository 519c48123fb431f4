"""Makes every figure that is declared for a stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from searchlens import catalogue
from searchlens.errors import InputError
from searchlens.figures import style


def draw(name: str, context: Any) -> tuple[Figure, pl.DataFrame]:
    """One figure, and the numbers that it shows.

    Parameters
    ----------
    name : str
        As declared with ``searchlens.catalogue.figure``.
    context : PairContext, StudyContext or FigureContext
        The class that the figures of its stage take.

    Raises
    ------
    InputError
        No figure of this name is declared, or its file has no function ``draw``.
    """
    numbers = catalogue.find("figure", name)(context)
    declaration = catalogue.declared("figure")[name]
    module = catalogue.load(declaration)
    if not hasattr(module, "draw"):
        raise InputError(f"figure {name!r}: {declaration.path} has no function draw(numbers, context)")
    return module.draw(numbers, context), numbers


def write(stage: str, context: Any, folder: Path) -> list[Path]:
    """Draw every figure that is declared for a stage, in this package and in the extensions in use.

    Parameters
    ----------
    stage : {"pair", "study", "boptr"}
    context : PairContext, StudyContext or FigureContext
        For one figure per metric, ``context.with_metric(metric)`` is drawn.
    folder : Path
        Receives ``<name>.{svg,pdf,png,csv}``, or ``<name>_<metric>`` for each metric of the declaration.

    Returns
    -------
    list of Path
        The files.
    """
    files = []
    for stem, (name, metric) in catalogue.figure_files(stage).items():
        figure, numbers = draw(name, context.with_metric(metric) if metric else context)
        files += style.save(figure, folder / stem, numbers)
    return files
