"""The key of a Philox, given in the place of a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISeedSequence


class PhiloxKey(ISeedSequence):
    """The words that a ``numpy.random.Philox`` takes as its key, given as its ``seed``.

    Given as ``key``, they make the same stream, but numpy first asks the system for a seed that it does not use, which
    takes longer than all the rest.

    Parameters
    ----------
    digest : bytes
        A big-endian integer of 128 bits.
    """

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def generate_state(self, n_words: int, dtype: npt.DTypeLike = np.uint64) -> npt.NDArray[Any]:
        """Return the key, the lower word first."""
        assert (n_words, dtype) == (2, np.uint64), "the size of the key of a Philox"
        return np.frombuffer(self._digest, ">u8")[::-1].astype(np.uint64)
