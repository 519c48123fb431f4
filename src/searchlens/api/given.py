"""What is given to ``searchlens.compare``, checked: a mistake is one line of what was found and what is allowed.

Samples are masked arrays of shape (questions, most): masked are places beyond the samples of a question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlens.analysis.class_pools import Ints
from searchlens.config.readings import ANY, BEST
from searchlens.errors import InputError

Samples = np.ma.MaskedArray[Any, Any]
MOST = 100_000
"""Samples of a question that may be given as a count."""


def wrong(name: str, found: object, allowed: str, hint: str = "") -> InputError:
    """The error of an argument; what was found is cut at 60 characters."""
    text = " ".join(repr(found).split())
    return InputError(f"{name}: {text[:60]}{' ...' * (len(text) > 60)}; allowed: {allowed}", hint)


def check_number(name: str, given: object, kind: type, fits: Callable[[Any], bool], allowed: str) -> None:
    """A single number of a kind."""
    if isinstance(given, bool) or not isinstance(given, kind) or not fits(given):
        raise wrong(name, given, allowed)


def policies(base: object) -> dict[str, Any]:
    """Base's samples by policy."""
    named = base if isinstance(base, Mapping) else {"given": base}
    if not named or not all(isinstance(name, str) and name not in ("", ANY, BEST) for name in named):
        raise wrong("base has policies", list(named), f"one or more names, text other than {ANY!r} and {BEST!r}")
    return dict(named)


def both(name: str, given: object, policies: Mapping[str, Any], *, named: bool) -> tuple[Mapping[str, Any], Any]:
    """What belongs to each policy of Base, and to RL."""
    pair = list(given) if isinstance(given, tuple | list) or (isinstance(given, np.ndarray) and given.ndim) else []
    if len(pair) != 2:
        raise wrong(name, given, "a pair, of base and of rl")
    ours = pair[0] if named else dict.fromkeys(policies, pair[0])
    if not isinstance(ours, Mapping) or not policies.keys() <= ours.keys():
        raise wrong(f"{name}[0]", ours, f"a value of each policy of base, by its name: {', '.join(policies)}")
    return ours, pair[1]


def numbers(name: str, given: object) -> npt.NDArray[Any]:
    """An array of booleans or numbers."""
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise wrong(name, given, "numbers or booleans")
    return array


def whole(array: npt.NDArray[Any], low: int, high: Any) -> bool:
    """Whether all are whole numbers in a range."""
    return array.dtype != bool and bool(((np.floor(array) == array) & (array >= low) & (array <= high)).all())


def each_sample(name: str, given: Any, like: Samples | None = None) -> Samples:
    """A number of each sample, as many as in ``like``; of a list of lists, also of different lengths."""
    try:
        array = np.asarray(given)
        ragged = array.dtype == object and array.ndim == 1
    except (TypeError, ValueError):
        ragged = isinstance(given, Sequence)
    if ragged:
        lines = [numbers(f"{name}[{i}]", line) for i, line in enumerate(given)]
    else:
        lines = list(np.atleast_1d(numbers(name, given)))
    if not lines or any(line.ndim != 1 or not line.size for line in lines):
        found = f"{len(lines)} lists" if ragged else f"shape {array.shape}"
        allowed = "(questions, samples), or lists of different lengths, none of them empty"
        raise InputError(f"{name} has {found}; allowed: {allowed}", "counts of right samples need `samples`")
    flat, drawn = np.concatenate(lines), np.array([len(line) for line in lines])
    table = np.ma.masked_all((len(lines), drawn.max()), flat.dtype)
    table[np.arange(drawn.max()) < drawn[:, None]] = flat
    return _alike(name, table, like)


def _alike(name: str, table: Samples, like: Samples | None) -> Samples:
    if like is not None and not np.array_equal(table.count(axis=1), like.count(axis=1)):
        raise InputError(f"{name} has shape {_shape(table)}; allowed: {_shape(like)}, one value for each sample")
    return table


def _shape(table: Samples) -> str:
    drawn = table.count(axis=1)
    return f"({len(drawn)}, {' to '.join(map(str, sorted({drawn.min(), drawn.max()})))})"


def verdicts(name: str, given: Any, samples: object, like: Samples | None = None) -> Samples:
    """Right and wrong samples; of counts, the right ones first."""
    if samples is None:
        table = each_sample(name, given, like)
        if not np.isin(table.compressed(), (0, 1)).all():
            raise InputError(f"{name} has values other than right and wrong; allowed: booleans, or 0 and 1")
        return np.ma.array(table, dtype=bool)
    counts, drawn = numbers(name, given), numbers("samples", samples)
    if counts.ndim != 1 or not len(counts):
        raise InputError(f"{name} has shape {counts.shape}; allowed with `samples`: (questions,), one count for each")
    if drawn.shape not in ((), counts.shape) or not whole(drawn, 1, MOST):
        raise wrong("samples", samples, f"1 or more, to {MOST}, of all questions or of each of {name}")
    if not whole(counts, 0, drawn):
        raise InputError(f"{name} has counts that are not whole numbers from 0 to {drawn.max()}, their `samples`")
    place = np.arange(drawn.max())
    beyond = np.broadcast_to(place >= drawn[..., None], (len(counts), len(place)))
    return _alike(name, np.ma.array(place < counts[:, None], mask=beyond), like)


def classes(name: str, given: Any, right: Samples) -> Samples:
    """Classes of equal answers, -1 without one."""
    table = each_sample(name, given, right)
    if not whole(table.compressed(), -1, 2**31 - 1):
        raise InputError(f"{name} has other values than classes; allowed: whole numbers from -1 to {2**31 - 1}")
    for row, (of_each, correct) in enumerate(zip(table.filled(-1), right.filled(fill_value=False), strict=True)):
        if set(of_each[correct].tolist()) & {-1, *of_each[~correct].tolist()}:
            why = f"{name}, question {row}: a class has right and wrong samples, or one without an answer (-1) is right"
            raise InputError(why, "equal answers have equal verdicts")
    return table


def mean_tokens(name: str, given: Any, right: Samples) -> float:
    """Mean tokens of a sample, given as such or for each sample."""
    values = numbers(name, given) if isinstance(given, Real) else each_sample(name, given, right).compressed()
    if values.dtype == bool or not (np.isfinite(values) & (values >= 0)).all() or not values.mean() > 0:
        raise wrong(name, given, "numbers from 0 on with a mean above 0")
    return float(values.mean())


def choices(given: Any, questions: int) -> Ints | None:
    """Lettered options of each question; None if no question has any."""
    found = numbers("choices", given)
    if found.shape not in ((), (questions,)) or not whole(found, 0, 2**31 - 1) or (found == 1).any():
        raise wrong("choices", given, f"0, or 2 or more, one for all or one for each question ({questions})")
    return np.broadcast_to(found, (questions,)).astype(np.int64) if found.any() else None
