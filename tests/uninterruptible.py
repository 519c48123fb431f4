"""What workers of the graders may meet: used by ``test_equality``, inside worker processes."""

import ctypes
import os
import signal
import time


def judge(gold: str, answer: str) -> bool:
    """Do what the answer says; others return."""
    if answer == "sleep":  # one call into C, in which no signal is handled
        ctypes.PyDLL(None).sleep(60)
    elif answer == "compute":
        pow(10**600_000, 3, 10**599_999 + 1)
    elif answer == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif answer == "die":
        os._exit(3)
    elif answer.isdigit():
        time.sleep(0.005)
    elif answer == "grow":
        bytearray(8 * 2**30)
    return True
