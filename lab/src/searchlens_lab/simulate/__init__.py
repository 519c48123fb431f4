"""Simulated studies with known truth, for testing the analysis (``docs/simulation.md``).

``simulate`` draws a study in memory, ``write`` writes the same study to a folder, ``Truth`` has its values in the
population of questions.
"""

from searchlens_lab.simulate._design import (
    BaseModel,
    Cell,
    Design,
    Mode,
    Planted,
    PolicyEffect,
    RLEffect,
    SimBenchmark,
    SimModel,
    Strangers,
)
from searchlens_lab.simulate._draw import scores, simulate, write
from searchlens_lab.simulate._law import power_law
from searchlens_lab.simulate._paper import PAPER24, fitted_design, paper_design, small_design
from searchlens_lab.simulate._truth import Truth

__all__ = [
    "PAPER24",
    "BaseModel",
    "Cell",
    "Design",
    "Mode",
    "Planted",
    "PolicyEffect",
    "RLEffect",
    "SimBenchmark",
    "SimModel",
    "Strangers",
    "Truth",
    "fitted_design",
    "paper_design",
    "power_law",
    "scores",
    "simulate",
    "small_design",
    "write",
]
