"""What workers of the graders may meet: used by ``test_grading``, inside worker processes."""

from __future__ import annotations

import ctypes
import os


def judge(gold: str, answer: str) -> bool:
    """Do what the answer says; only ``end`` returns."""
    if answer == "sleep":  # one call into C, in which no signal is handled
        ctypes.PyDLL(None).sleep(60)
    elif answer == "die":
        os._exit(3)
    elif answer == "grow":
        bytearray(8 * 2**30)
    return True
