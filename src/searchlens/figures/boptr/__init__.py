"""Figures of the transfer analysis, drawn from the frames of ``searchlens.boptr.study``.

Every module has ``numbers``, which only selects and arranges rows, and ``draw``, which draws what it returned. What a
cohort lacks is said in the figure by the reason that its frame gives.

==================  ================================================================================
beta_robustness     exponents that the anchor's benchmarks prefer, with intervals and ties
horizontal          mean error of every way of predicting the anchor's RL curves
vertical            errors of the transferred rule in every cell of the cohort
parameters          scale of every model with its identified interval, locked policy, offset
v4_null             linear prediction of the scale from Base, against shuffled models
frontier            error against the amount of RL information
crossing            Base envelope and RL on the floor benchmarks at all sampled budgets
pipeline, udf       schematics of the analysis and of the decoding framework
==================  ================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from searchlens.boptr.cohort import CohortPlan
from searchlens.figures import style
from searchlens.figures.boptr import (
    beta_robustness,
    crossing,
    frontier,
    horizontal,
    parameters,
    pipeline,
    udf,
    v4_null,
    vertical,
)
from searchlens.figures.boptr.parts import Study

__all__ = ["BOPTR_MODULES", "BOPTR_NAMES", "SCHEMATICS", "Study", "draw", "numbers", "write_boptr"]

BOPTR_MODULES = {
    "beta_robustness": beta_robustness,
    "horizontal": horizontal,
    "vertical": vertical,
    "parameters": parameters,
    "v4_null": v4_null,
    "frontier": frontier,
    "crossing": crossing,
}
SCHEMATICS = {"pipeline": pipeline, "udf": udf}
BOPTR_NAMES = (*BOPTR_MODULES, *SCHEMATICS)


def numbers(name: str, frames: Mapping[str, pl.DataFrame], study: Study) -> pl.DataFrame:
    """What the figure ``name`` (one of ``BOPTR_NAMES``) shows, as one table."""
    match name:
        case "beta_robustness":
            return beta_robustness.numbers(frames["regime_betas"], study)
        case "horizontal":
            return horizontal.numbers(frames["means"], study)
        case "vertical":
            return vertical.numbers(frames["errors"], study)
        case "parameters":
            return parameters.numbers(frames["identified_scale"], study)
        case "v4_null":
            return v4_null.numbers(frames["v4_null"], frames["v4_summary"], frames["v4"])
        case "frontier":
            return frontier.numbers(frames["means"])
        case "crossing":
            return crossing.numbers(frames["aime_large_budget"], frames["crossing"], study)
        case "pipeline" | "udf":
            return SCHEMATICS[name].numbers()  # type: ignore[no-any-return]
    raise ValueError(f"no figure {name!r}; there are {', '.join(BOPTR_NAMES)}")


def draw(name: str, table: pl.DataFrame, study: Study) -> Figure:
    """Draw what ``numbers`` returned; a schematic says nothing about the study."""
    module = {**BOPTR_MODULES, **SCHEMATICS}[name]
    drawn: Figure = module.draw(table) if name in SCHEMATICS else module.draw(table, study)
    return drawn


def write_boptr(
    name: str,
    frames: Mapping[str, pl.DataFrame],
    plan: CohortPlan,
    folder: Path,
    *,
    source: style.Source = "sampled",
    confidence: float = 0.95,
) -> list[Path]:
    """Draw one figure of a cohort.

    Parameters
    ----------
    name : str
        One of ``BOPTR_NAMES``.
    frames : mapping of str to DataFrame
        As ``searchlens.boptr.study.study`` returns them.
    plan : CohortPlan
        The cohort of the frames.
    folder : Path
        Where ``<name>.{svg,pdf,png,csv}`` go.
    source : {"sampled", "imported", "recorded"}
        Where the samples come from.
    confidence : float
        Level of the intervals in the frames.

    Returns
    -------
    list of Path
        The files; the CSV holds the numbers that the figure shows.
    """
    study = Study(plan=plan, source=source, confidence=confidence)
    table = numbers(name, frames, study)
    return style.save(draw(name, table, study), folder / name, table)
