"""Makes the figures that are declared for a stage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from searchlens.catalogue import Declaration, definition, figure_files, load
from searchlens.errors import InputError
from searchlens.figures import style


def draw(figure: Declaration, context: Any) -> tuple[Figure, pl.DataFrame]:
    """One figure, and the numbers that it shows.

    The figures of a pair that is not interpretable say so in place of their panels, since every panel is a comparison.

    Parameters
    ----------
    figure : Declaration
    context : PairContext, StudyContext or FigureContext
        The class that the figures of its stage take.

    Raises
    ------
    InputError
        Its file has no function ``draw``.
    """
    numbers, module = definition(figure)(context), load(figure)
    if not hasattr(module, "draw"):
        raise InputError(f"figure {figure.name!r}: {figure.path} has no function draw(numbers, context)")
    if figure.options["stage"] == "pair" and context.labels.warning:
        return style.not_interpretable(context.labels), numbers
    return module.draw(numbers, context), numbers


def write(figures: Mapping[str, Declaration], context: Any, folder: Path) -> list[Path]:
    """Draw some declared figures of one stage.

    Parameters
    ----------
    figures : mapping of str to Declaration
        Such as ``catalogue.declared("figure", stage="pair")``, those of extensions included.
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
    for stem, (name, metric) in figure_files(figures).items():
        figure, numbers = draw(figures[name], context.with_metric(metric) if metric else context)
        files += style.save(figure, folder / stem, numbers)
    return files
