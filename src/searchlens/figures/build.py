"""Makes every figure that is declared for a stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from searchlens import catalogue
from searchlens.figures import style


def draw(name: str, context: Any) -> tuple[Figure, pl.DataFrame]:
    """One figure, and the numbers that it shows.

    Parameters
    ----------
    name : str
        As declared with ``searchlens.catalogue.figure``.
    context : PairContext, StudyContext or FigureContext
        The class that the figures of its stage take.
    """
    numbers = catalogue.find("figure", name)(context)
    module = catalogue.load(catalogue.declared("figure")[name])
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
