"""The measures of the debate from right and wrong answers in arrays, without files and without a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.classes import Pool, answer_classes, independent_pools
from searchlens.analysis.extrapolation import judged
from searchlens.analysis.pair_measures import PairPools, read_pair
from searchlens.analysis.pool import Ints
from searchlens.api import pages
from searchlens.comparison.statements import Statement, statements, told
from searchlens.config.general import General
from searchlens.config.measures import ANY, BEST, MeasuresOptions
from searchlens.errors import InputError, counted
from searchlens.store.columns import SCORES

FRAMES = (
    *("measures", "equivalents", "exponents", "exponent_profiles"),
    *("support", "support_changes", "variance", "extrapolated"),
)

Samples = npt.ArrayLike | tuple[npt.ArrayLike, npt.ArrayLike]
Both = tuple[Any, Any]
_Samples = np.ma.MaskedArray[Any, Any]
"""Shape (questions, most): masked are places beyond the samples of a question."""
MOST_SAMPLES = 100_000
"""_Samples of a question that may be given as a count."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """What the samples of Base and RL say about what RL adds; made by ``searchlens.compare``.

    Attributes
    ----------
    questions, base_samples, rl_samples : int
        Number of questions, and of samples of each: the smallest, if questions differ.
    confidence : float
        Nominal coverage of all intervals, which are over questions.
    measures : DataFrame
        pass@k, Cover@tau, G-Pass@k, guessing, wrong_key, entropies and P(RL beats Base): measure, k, tau,
        side (``Base``, ``RL``, ``RL - Base``), value, lo, hi.
    equivalents : DataFrame
        N*(b): samples of Base that solve as much as b of RL, one row for each b and policy of Base.
    exponents, exponent_profiles : DataFrame
        The set of exponents beta of N = alpha b^beta that the samples allow, and the p-value at each.
    support, support_changes : DataFrame
        Questions kept, shrunk, expanded and out, and those that changed (``question``: row of the arrays).
    variance : DataFrame
        Parts of the variance of pass@1.
    extrapolated : DataFrame
        pass@k at four times the samples, with how often the same method is right on these samples.
    statements : tuple of Statement
        What each measure can and cannot say here.

    Notes
    -----
    docs/columns.md (measures) describes all columns, docs/measures.md has definitions and sources.
    """

    questions: int
    base_samples: int
    rl_samples: int
    confidence: float
    measures: pl.DataFrame
    equivalents: pl.DataFrame
    exponents: pl.DataFrame
    exponent_profiles: pl.DataFrame
    support: pl.DataFrame
    support_changes: pl.DataFrame
    variance: pl.DataFrame
    extrapolated: pl.DataFrame
    statements: tuple[Statement, ...]

    @property
    def frames(self) -> dict[str, pl.DataFrame]:
        """All frames by name."""
        return {name: getattr(self, name) for name in FRAMES}

    @property
    def pass_at_k(self) -> pl.DataFrame:
        """pass@k of both sides and their difference: k, side, value, lo, hi."""
        return self.measures.filter(pl.col("measure") == "pass@k").select("k", "side", "value", "lo", "hi")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types, for JSON; a null is a number that these samples do not determine."""
        return {
            "questions": self.questions,
            "samples": {"base": self.base_samples, "rl": self.rl_samples},
            "confidence": self.confidence,
            "says": [statement.to_dict() for statement in self.statements],
            **{name: frame.to_dicts() for name, frame in self.frames.items()},
        }

    def __str__(self) -> str:
        head = f"{counted(self.questions, 'question')}, {self.base_samples} samples of Base and {self.rl_samples} of RL"
        return "\n".join([head, *map(str, told(self.statements))])

    def _repr_html_(self) -> str:
        return pages.rendered(
            "comparison/face.html.j2",
            statements=[(each.measure, each.can, each.cannot) for each in told(self.statements)],
            picture=picture(self),
        )


def picture(found: Comparison) -> str:
    """pass@k of both sides as an address for a page; empty if there is a single k."""
    from searchlens.reporting.figures import pass_curves  # matplotlib and seaborn, which numbers do not need

    return pass_curves.picture(found.measures)


def compare(
    base: npt.ArrayLike | Mapping[str, npt.ArrayLike],
    rl: npt.ArrayLike,
    *,
    samples: Samples | None = None,
    classes: Both | None = None,
    tokens: Both | None = None,
    choices: npt.ArrayLike | None = None,
    wrong_key: Both | None = None,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Read what RL adds to its Base from samples that were graded already.

    Parameters
    ----------
    base, rl : array_like of bool, shape (questions, samples)
        Whether each sample is right; the same questions in the same order. The numbers of samples may differ between
        sides, and between questions, as a list of lists. Base may also be a mapping of policies to such arrays: the
        first is compared with RL one to one, and all of them count for N*(b) of the best policy.
        With ``samples``, the numbers of right samples of each question, shape (questions,).
    samples : int or array_like of int, shape (questions,), or a tuple of two of them, optional
        Samples of each question, of both sides or of Base and RL, if counts are given.
    classes : (base, rl), optional
        Class of equal answers of each sample: integers of the shape of ``base`` and ``rl``, -1 without an answer. Of a
        mapping, a mapping. Without it, entropies are not identified.
    tokens : (base, rl), optional
        Tokens of each sample, or their mean, for the ratio of tokens at equal pass@k. Of a mapping, a mapping.
    choices : int or array_like of int, shape (questions,), optional
        Lettered options of the questions, 0 for an open one. Without it, nothing is said about guessing.
    wrong_key : (base, rl), optional
        Whether each sample would be right if its question had the gold of another one: booleans of the shape of
        ``base`` and ``rl``, or with ``samples`` counts. Of a mapping, a mapping. Where it is None, nothing is said.
    confidence : float
        Nominal coverage of intervals, in (0, 1).
    draws : int
        Bootstrap draws over questions, at least 100.
    seed : int
        Of the draws, non-negative.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        Any argument of another kind, shape or value than these.

    Notes
    -----
    Where questions of a side differ in their number of samples, curves go up to the smallest of them and are means over
    all subsets of each question's own samples, without bias. Support, Cover@tau, entropies and extrapolation depend on
    the number of samples itself, and are not identified.

    Examples
    --------
    >>> import searchlens
    >>> found = searchlens.compare([3, 0, 1, 2, 0, 4], [4, 0, 3, 4, 1, 4], samples=4, draws=200)
    >>> found.support["kept"].item(), found.support["expanded"].item()
    (4, 1)
    """
    _check_number("confidence", confidence, Real, lambda x: 1e-9 < x < 1 - 1e-9, "a number above 0 and below 1")
    _check_number("draws", draws, Integral, lambda x: 100 <= x <= 10**5, "a whole number, 100 or more, to 100000")
    _check_number("seed", seed, Integral, lambda x: x >= 0, "a whole number, 0 or more")
    of_base, of_rl = samples if isinstance(samples, tuple) and len(samples) == 2 else (samples, samples)
    parts = {"classes": classes, "tokens": tokens, "wrong_key": wrong_key}
    policies, named = _by_policy(base), isinstance(base, Mapping)
    known = {key: _both(key, part, policies, named=named) for key, part in parts.items() if part is not None}
    theirs, ours = _verdicts("rl", rl, of_rl), {}
    for name, array in policies.items():
        place = f"[{name!r}]" if named else ""
        right = _verdicts(f"base{place}", array, of_base)
        if len(right) != len(theirs):
            why = f"base{place} has {counted(len(right), 'question')}, rl has {len(theirs)}"
            raise InputError(why, "give the same questions to both")
        ours[name] = _pool(name, right, {key: part[0][name] for key, part in known.items()}, of_base, f"[0]{place}")
    first = next(iter(ours))
    target = _pool(first, theirs, {key: part[1] for key, part in known.items()}, of_rl, "[1]")
    general = General(draws=int(draws), default_policy=first, seed=int(seed), confidence=float(confidence))
    lettered = None if choices is None else _choices(choices, len(theirs))
    cell = PairPools("pair", "benchmark", ours, {first: target}, lettered)
    drawn = [pool.drawn for pool in (ours[first], target) if pool.drawn is not None]
    unequal = f"questions have {min(map(min, drawn))} to {max(map(max, drawn))} samples" if drawn else ""
    frames = _frames(cell, general, with_classes=classes is not None)
    said = statements(frames, policy=first, unequal=unequal)
    return Comparison(len(theirs), ours[first].samples, target.samples, general.confidence, **frames, statements=said)


def _pool(name: str, right: _Samples, more: Mapping[str, Any], samples: Any, place: str) -> Pool:
    """Samples as the measures take them, with classes, tokens and what wrong keys accept, as far as they were given."""
    answer = _classes(f"classes{place}", more["classes"], right) if "classes" in more else 1 - right
    mean = _mean_tokens(f"tokens{place}", more["tokens"], right) if "tokens" in more else float("nan")
    wrong_key = None
    if more.get("wrong_key") is not None:
        wrong_key = _verdicts(f"wrong_key{place}", more["wrong_key"], samples, right).sum(axis=1).filled(0)
    questions, most = right.shape
    scores = pl.DataFrame(
        {
            "policy": np.repeat(name, right.size),
            "question": np.repeat(np.arange(questions), most),
            "sample": np.tile(np.arange(most), questions),
            "run": np.tile(np.arange(most), questions),
            "correct": right.filled(fill_value=False).ravel(),
            "answer": answer.filled(-1).ravel(),
        }
    ).with_columns(tokens=None, generated=None, stopped=True, score=None)
    pool = independent_pools(answer_classes(scores.cast(SCORES)), {name: mean})[name]
    drawn = right.count(axis=1)
    unequal = drawn if drawn.min() < most else None
    return replace(pool, samples=int(drawn.min()), drawn=unequal, wrong_key=wrong_key)


def _frames(cell: PairPools, general: General, *, with_classes: bool) -> dict[str, pl.DataFrame]:
    """The frames of the stage for one cell, without what says the same twice or was not given."""
    frames = read_pair(cell, MeasuresOptions(), general)
    rows = frames["extrapolated"].with_columns(benchmark=pl.lit(cell.benchmark))
    frames["extrapolated"] = judged(rows, general.confidence).drop("benchmark")
    if not with_classes:
        frames["measures"] = frames["measures"].filter(~pl.col("measure").str.starts_with("entropy"))
    if len(cell.base) == 1:
        several = pl.col("policy").is_in([ANY, BEST])
        frames |= {name: frames[name].filter(~several) for name in ("equivalents", "exponents", "exponent_profiles")}
    return {name: frames[name] for name in FRAMES}


# ---- what is given, checked: a mistake is one line of what was found and what is allowed


def _wrong(name: str, found: object, allowed: str, hint: str = "") -> InputError:
    """The error of an argument; what was found is cut at 60 characters."""
    text = " ".join(repr(found).split())
    return InputError(f"{name}: {text[:60]}{' ...' * (len(text) > 60)}; allowed: {allowed}", hint)


def _check_number(name: str, given: object, kind: type, fits: Callable[[Any], bool], allowed: str) -> None:
    if isinstance(given, bool) or not isinstance(given, kind) or not fits(given):
        raise _wrong(name, given, allowed)


def _by_policy(base: object) -> dict[str, Any]:
    named = base if isinstance(base, Mapping) else {"given": base}
    if not named or not all(isinstance(name, str) and name not in ("", ANY, BEST) for name in named):
        raise _wrong("base has policies", list(named), f"one or more names, text other than {ANY!r} and {BEST!r}")
    return dict(named)


def _both(name: str, given: object, policies: Mapping[str, Any], *, named: bool) -> tuple[Mapping[str, Any], Any]:
    """What belongs to each policy of Base, and to RL."""
    pair = list(given) if isinstance(given, tuple | list) or (isinstance(given, np.ndarray) and given.ndim) else []
    if len(pair) != 2:
        raise _wrong(name, given, "a pair, of base and of rl")
    ours = pair[0] if named else dict.fromkeys(policies, pair[0])
    if not isinstance(ours, Mapping) or not policies.keys() <= ours.keys():
        raise _wrong(f"{name}[0]", ours, f"a value of each policy of base, by its name: {', '.join(policies)}")
    return ours, pair[1]


def _numbers(name: str, given: object) -> npt.NDArray[Any]:
    """An array of booleans or numbers."""
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise _wrong(name, given, "numbers or booleans")
    return array


def _whole(array: npt.NDArray[Any], low: int, high: Any) -> bool:
    return array.dtype != bool and bool(((np.floor(array) == array) & (array >= low) & (array <= high)).all())


def _each_sample(name: str, given: Any, like: _Samples | None = None) -> _Samples:
    """A number of each sample, as many as in ``like``; of a list of lists, also of different lengths."""
    try:
        array = np.asarray(given)
        ragged = array.dtype == object and array.ndim == 1
    except (TypeError, ValueError):
        ragged = isinstance(given, Sequence)
    if ragged:
        lines = [_numbers(f"{name}[{i}]", line) for i, line in enumerate(given)]
    else:
        lines = list(np.atleast_1d(_numbers(name, given)))
    if not lines or any(line.ndim != 1 or not line.size for line in lines):
        found = f"{len(lines)} lists" if ragged else f"shape {array.shape}"
        allowed = "(questions, samples), or lists of different lengths, none of them empty"
        raise InputError(f"{name} has {found}; allowed: {allowed}", "counts of right samples need `samples`")
    flat, drawn = np.concatenate(lines), np.array([len(line) for line in lines])
    table = np.ma.masked_all((len(lines), drawn.max()), flat.dtype)
    table[np.arange(drawn.max()) < drawn[:, None]] = flat
    return _alike(name, table, like)


def _alike(name: str, table: _Samples, like: _Samples | None) -> _Samples:
    if like is not None and not np.array_equal(table.count(axis=1), like.count(axis=1)):
        drawn = [each.count(axis=1) for each in (table, like)]
        shapes = [f"({len(n)}, {' to '.join(map(str, sorted({n.min(), n.max()})))})" for n in drawn]
        raise InputError(f"{name} has shape {shapes[0]}; allowed: {shapes[1]}, one value for each sample")
    return table


def _verdicts(name: str, given: Any, samples: object, like: _Samples | None = None) -> _Samples:
    """Right and wrong samples; of counts, the right ones first."""
    if samples is None:
        table = _each_sample(name, given, like)
        if not np.isin(table.compressed(), (0, 1)).all():
            raise InputError(f"{name} has values other than right and wrong; allowed: booleans, or 0 and 1")
        return np.ma.array(table, dtype=bool)
    counts, drawn = _numbers(name, given), _numbers("samples", samples)
    if counts.ndim != 1 or not len(counts):
        raise InputError(f"{name} has shape {counts.shape}; allowed with `samples`: (questions,), one count for each")
    if drawn.shape not in ((), counts.shape) or not _whole(drawn, 1, MOST_SAMPLES):
        raise _wrong("samples", samples, f"1 or more, to {MOST_SAMPLES}, of all questions or of each of {name}")
    if not _whole(counts, 0, drawn):
        raise InputError(f"{name} has counts that are not whole numbers from 0 to {drawn.max()}, their `samples`")
    place = np.arange(drawn.max())
    beyond = np.broadcast_to(place >= drawn[..., None], (len(counts), len(place)))
    return _alike(name, np.ma.array(place < counts[:, None], mask=beyond), like)


def _classes(name: str, given: Any, right: _Samples) -> _Samples:
    """Classes of equal answers, -1 without one."""
    table = _each_sample(name, given, right)
    if not _whole(table.compressed(), -1, 2**31 - 1):
        raise InputError(f"{name} has other values than classes; allowed: whole numbers from -1 to {2**31 - 1}")
    for row, (of_each, correct) in enumerate(zip(table.filled(-1), right.filled(fill_value=False), strict=True)):
        if set(of_each[correct].tolist()) & {-1, *of_each[~correct].tolist()}:
            why = f"{name}, question {row}: a class has right and wrong samples, or one without an answer (-1) is right"
            raise InputError(why, "give equal answers equal verdicts")
    return table


def _mean_tokens(name: str, given: Any, right: _Samples) -> float:
    """Mean tokens of a sample, given as such or for each sample."""
    values = _numbers(name, given) if isinstance(given, Real) else _each_sample(name, given, right).compressed()
    if values.dtype == bool or not (np.isfinite(values) & (values >= 0)).all() or not values.mean() > 0:
        raise _wrong(name, given, "numbers from 0 on with a mean above 0")
    return float(values.mean())


def _choices(given: Any, questions: int) -> Ints | None:
    """Lettered options of each question; None if no question has any."""
    found = _numbers("choices", given)
    if found.shape not in ((), (questions,)) or not _whole(found, 0, 2**31 - 1) or (found == 1).any():
        raise _wrong("choices", given, f"0, or 2 or more, one for all or one for each question ({questions})")
    return np.broadcast_to(found, (questions,)).astype(np.int64) if found.any() else None
