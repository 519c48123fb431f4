"""Simulated studies with known truth, for testing the analysis (``docs/simulation.md``).

``simulate`` draws a study in memory, ``write`` writes the same study to a folder, ``Truth`` has its values in the
population of questions.
"""

from searchlens_lab.simulate._design import (
    PAPER24,
    Design,
    Mode,
    Planted,
    fitted_design,
    paper_design,
    small_design,
)
from searchlens_lab.simulate._draw import scores, simulate, write
from searchlens_lab.simulate._truth import Truth, power_law

__all__ = [
    "PAPER24",
    "Design",
    "Mode",
    "Planted",
    "Truth",
    "fitted_design",
    "paper_design",
    "power_law",
    "scores",
    "simulate",
    "small_design",
    "write",
]
