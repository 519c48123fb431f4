r"""Runs in worker processes: one comparison through math-verify, with a known outcome when a limit is reached."""

from __future__ import annotations

import os
import resource
from functools import lru_cache
from itertools import product
from typing import Any

# Before sympy is imported: inside one long gmpy2 call an alarm is never handled, so 10^9! would not end.
os.environ["SYMPY_GROUND_TYPES"] = "python"
os.environ["MPMATH_NOGMPY"] = "1"

GAVE_UP = (MemoryError, RecursionError)


def prepare(memory_bytes: int) -> None:
    """Cap the memory of this process and parse once, so that no pair pays for imports out of its own limit.

    Raises
    ------
    RuntimeError
        math-verify is broken.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    _silence()
    # A parser that does not fit its runtime fails on everything, and would make every answer wrong.
    if equal(r"\frac{1}{2}+x", "x+0.5", 60) is not True:
        raise RuntimeError("math-verify does not work here: it does not find 1/2+x equal to x+0.5")


def _silence() -> None:
    """math-verify warns about every time-out; here they are counted instead."""
    import logging

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)


@lru_cache(maxsize=512)
def _parsed(text: str, seconds: int) -> tuple[Any, ...] | None:
    """Readings of an answer, best first; none when it cannot be read; None when a limit was reached."""
    from math_verify import parse
    from math_verify.errors import TimeoutException

    try:
        return tuple(parse(f"\\boxed{{{text}}}", parsing_timeout=seconds, raise_on_error=True))
    except (TimeoutException, *GAVE_UP):
        return None
    except Exception:  # unreadable: sympy and the parser raise nearly anything
        return ()


def _same(gold: Any, answer: Any, seconds: int) -> bool | None:
    from math_verify import verify
    from math_verify.errors import TimeoutException

    try:
        return bool(verify(gold, answer, timeout_seconds=seconds, raise_on_error=True))
    except (TimeoutException, *GAVE_UP):
        return None
    except Exception:  # not comparable
        return False


def equal(gold: str, answer: str, seconds: int) -> bool | None:
    """Whether an answer equals the gold one.

    Parameters
    ----------
    gold, answer : str
        LaTeX, without a box.
    seconds : int
        Limit of each of the phases, >= 1.

    Returns
    -------
    bool or None
        None when a limit was reached before anything was found equal.
    """
    golds, answers = _parsed(gold, seconds), _parsed(answer, seconds)
    if golds is None or answers is None:
        return None
    # One comparison at a time: an error in the first must not hide that the second would succeed.
    gave_up = False
    for one, other in product(golds, answers):
        outcome = _same(one, other, seconds)
        if outcome:
            return True
        gave_up |= outcome is None
    return None if gave_up else False
