"""Sizes of the answer classes of a question as text, such as ``9+ 4 1x3``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

from searchlens.landscape._vote import class_sizes, unique_rows
from searchlens.landscape.pool import Bools, Ints, SamplePool

_TERM = re.compile(r"(\d+)(\+?)(?:x(\d+))?")


def to_text(pool: SamplePool) -> npt.NDArray[np.object_]:
    """How many samples gave each valid answer, largest first: ``+`` marks a right answer, ``x3`` three such classes."""
    votes = class_sizes(pool, pool.samples)
    packed = np.sort((votes * 2 + (pool.correct & (votes > 0))).astype(np.uint16), axis=1)[:, ::-1]
    distinct, which = unique_rows(packed)
    return np.array([_text(row) for row in distinct.tolist()], object)[which]


def _text(packed: list[int]) -> str:
    """Class sizes times two, plus one where right, as text.

    >>> _text([19, 8, 2, 2, 2, 0])
    '9+ 4 1x3'
    """
    terms = ((value, len(list(same))) for value, same in groupby(packed) if value)
    return " ".join(f"{value >> 1}{'+' * (value & 1)}{f'x{times}' if times > 1 else ''}" for value, times in terms)


def from_text(texts: Sequence[str]) -> tuple[Ints, Bools]:
    """Class sizes and whether they are right, shape (texts, classes), 0 for padding."""
    rows = [
        [int(size) * 2 + bool(right) for size, right, times in _TERM.findall(text) for _ in range(int(times or 1))]
        for text in texts
    ]
    packed = np.zeros((len(rows), max(1, *map(len, rows))), np.int64)
    for row, values in zip(packed, rows, strict=True):
        row[: len(values)] = values
    return packed >> 1, (packed & 1).astype(bool)
