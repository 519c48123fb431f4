"""`searchlens check`: a valid configuration, what is missing for a run of it, and what will be left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from searchlens.cli.show import prompt_lines
from searchlens.errors import InputError
from searchlens.plan import TO_GET_READY, Grid
from searchlens.sampling import prompts


def answer(grid: Grid, *, with_prompts: bool = False) -> dict[str, Any]:
    """Check the study, and count its cells.

    ``missing`` says why it is not ready to run, and ``hint`` what to do then. ``anchor`` is the pair and benchmark on
    which BOPTR is fitted, or empty, and then ``without_boptr`` says why. ``prompts``, if they are asked for, has the
    first prompt of each cell. Raises InputError if the configuration names something that does not exist or does not
    fit, or nothing can be written.
    """
    grid.check()
    if not grid.study.cells:
        raise InputError(
            "the study has no cell: study.pairs or study.benchmarks is empty, and no imported samples belong to it",
            "name keys of pairs and benchmarks, or import samples (docs/import.md)",
        )
    refusals, notes, sent = prompts(grid, shown=with_prompts)
    return {
        "cells": len(grid.study.cells),
        "pair_cells": len(grid.study.pair_cells),
        "missing": [*(reasons := grid.refusals()), *refusals],
        "hint": TO_GET_READY if reasons else "",
        "notes": [*grid.study.unlike_sides, *notes],
        "unknown_wordings": list(grid.inputs.unknown_wordings),
        "without_likelihoods": list(grid.jobs.without_likelihoods),
        "without_budgets": grid.study.without_budgets,
        "anchor": "" if grid.study.without_boptr else "/".join(grid.study.anchor),
        "without_boptr": grid.study.without_boptr,
        "prompts": sent,
    }


def rendered(found: Mapping[str, Any]) -> str:
    """The answer as text."""
    state = "the study cannot run yet" if found["missing"] else "configuration is valid"
    lines = [f"{state}: {found['cells']} cells, {found['pair_cells']} pairs x benchmarks"]
    lines += [f"not ready to run: {reason}" for reason in found["missing"]]
    lines += [*found["unknown_wordings"], *found["without_budgets"], *found["notes"]]
    lines += [f"no cross-likelihoods of {reason}" for reason in found["without_likelihoods"]]
    left_out = found["without_boptr"]
    lines.append(f"BOPTR is left out: {left_out}" if left_out else f"BOPTR is fitted on {found['anchor']}")
    for each in found["prompts"]:
        title = f"{each['checkpoint']}/{each['benchmark']}: prompt of question {each['question']}"
        lines += ["", *prompt_lines(title, each["prompt"])]
    return "\n".join(lines)
