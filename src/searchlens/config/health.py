"""Options of the health check: from where on a cell is called broken."""

from __future__ import annotations

from dataclasses import dataclass

from searchlens.config.limits import Proportion, Strict


@dataclass(frozen=True, kw_only=True)
class HealthOptions(Strict):
    """Limits of the health check (docs/troubleshooting.md): whether a cell is interpretable. They decide words, never
    numbers, and are far from what a weak model does, so that they find a wrong template, token limit or grader: in all
    recorded cells of the micro zoo, Base models included, at least 78% of the samples have an answer.
    """

    answered: Proportion = 0.10
    """Smallest share of samples with an answer. Below it, pass@k says how often an answer was found, not how often it
    was right; a Base model that rarely keeps to the format of the prompt stays above it."""
    answered_of_finished: Proportion = 0.20
    """Smallest share with an answer among the texts that were not cut off, judged from 20 such texts on. A finished
    text without an answer is hardly ever the fault of the token limit: look at template and grader."""
    unknown: Proportion = 0.20
    """Largest share of answers whose verdict is unknown. They count as wrong, so pass@k may be too low by as much."""


DEFAULTS = HealthOptions()
