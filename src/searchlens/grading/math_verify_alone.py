r"""Runs in worker processes: math-verify by itself, as its documentation uses it, without any rule of ours.

The gold answer is parsed between dollar signs, the answer is whatever math-verify finds in the whole text, and gold
comes first in the comparison. Only workers import this module, because importing math-verify takes seconds.
"""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from typing import Any

# Set before sympy is imported. Inside a long gmpy2 call no signal is handled, so that no limit would end it.
os.environ["SYMPY_GROUND_TYPES"] = "python"
os.environ["MPMATH_NOGMPY"] = "1"

from math_verify import parse, verify

logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it warns of limits, which are counted here


def judge(gold: str, text: str) -> str:
    """``right``, ``wrong``, or ``none`` if math-verify finds no answer in the text.

    Its own limits of time need the clock of the worker, which has a limit for the whole call.
    """
    answer = parse(text, parsing_timeout=None)
    if not answer:
        return "none"
    return "right" if verify(_parsed(gold), answer, timeout_seconds=None) else "wrong"


@lru_cache(maxsize=8)  # pairs come sorted by gold
def _parsed(gold: str) -> list[Any]:
    parsed: list[Any] = parse(f"${gold}$", parsing_timeout=None)
    return parsed
