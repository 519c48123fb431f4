"""N-hat(b) of the paper's rule at one scale and exponent, as budgets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from searchlens.boptr.fit import Ints, round_position


def round_budget(x: npt.ArrayLike, budgets: Sequence[int], space: str = "log2") -> Ints:
    """round_B: the allowed budget nearest to ``x`` > 0."""
    return np.asarray(budgets)[round_position(np.log2(np.asarray(x, float)), len(budgets), space)]


def budget_path(alpha: float, beta: float, budgets: Sequence[int], space: str = "log2") -> tuple[int, ...]:
    """N-hat(b) for every b in B."""
    path = round_budget(alpha * np.asarray(budgets, float) ** beta, budgets, space)
    return tuple(int(n) for n in path)
