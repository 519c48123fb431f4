"""Makes the figures that are declared for a stage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from searchlens.catalogue import FIGURE_FORMATS, Declaration, definition, figure_files, import_named
from searchlens.errors import InputError
from searchlens.reporting.figures import style
from searchlens.store.provenance import Failures


def draw(figure: Declaration, context: Any) -> tuple[Figure | None, pl.DataFrame]:
    """One figure, and the numbers that it shows; None in place of an ``optional`` one that has nothing to show.

    The figures of a pair that is not interpretable say so in place of their panels, since every panel is a comparison.

    An InputError: its file has no function ``draw``, or that returned nothing although the figure is not optional.
    """
    numbers, module = definition(figure)(context), import_named(figure.module)
    if not hasattr(module, "draw"):
        raise InputError(f"figure {figure.name!r}: {figure.path} has no function draw(numbers, context)")
    stage = figure.options["stage"]
    if stage == "pair" and context.labels.warning:
        return style.in_words(context.labels, f"not interpretable. {context.labels.warning}"), numbers
    if stage != "boptr" and numbers.is_empty():
        return style.in_words(context.labels, "these samples have no such readouts of both models"), numbers
    drawn = module.draw(numbers, context)
    if drawn is None and not figure.options.get("optional"):
        hint = "return a figure, or declare it with optional=True"
        raise InputError(f"figure {figure.name!r}: draw in {figure.path} returned nothing", hint)
    return drawn, numbers


def write(figures: Mapping[str, Declaration], context: Any, folder: Path, record: Path) -> list[Path]:
    """Draw some declared figures of one stage, those of extensions included; returns the files.

    For one figure per metric, ``context.with_metric(metric)`` is drawn. ``folder`` receives
    ``<name>.{svg,pdf,png,csv}``, or ``<name>_<metric>`` for each metric of the declaration. For an ``optional`` figure
    they lie in a folder of its name, which is empty if there is nothing to draw. The file ``record`` gets those that
    could not be drawn.
    """
    files, found = list[Path](), Failures()
    for stem, (name, metric) in figure_files(figures).items():
        optional = figures[name].options.get("optional")
        place = folder / stem if optional else folder
        place.mkdir(parents=True, exist_ok=True)
        paths = [place / f"{stem}.{suffix}" for suffix in FIGURE_FORMATS]
        for path in paths:  # of an earlier run that had something to draw
            path.unlink(missing_ok=True)
        with found.caught(f"figure {stem}", [] if optional else paths):
            figure, numbers = draw(figures[name], context.with_metric(metric) if metric else context)
            files += style.save(figure, place / stem, numbers) if figure else []
    found.save(record)
    return files
