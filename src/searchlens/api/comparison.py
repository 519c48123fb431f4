"""The readings of the debate from right and wrong answers in arrays, without files and without a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.api import faces
from searchlens.api.statements import Statement, statements, told
from searchlens.errors import InputError
from searchlens.landscape.classes import answer_classes
from searchlens.readings.extrapolation import judged
from searchlens.readings.options import ANY, BEST, ReadingsOptions
from searchlens.readings.pool import Ints, Pool, read_pools
from searchlens.readings.study import LAW_BUDGETS, READINGS, PairPools
from searchlens.schemas.columns import SCORES

ONLY = "given"
"""Name of the policy of samples that were given without one."""

FRAMES = (
    *("measures", "equivalents", "exponents", "exponent_profiles"),
    *("support", "support_changes", "variance", "extrapolated"),
)

Samples = int | tuple[int, int]
Both = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Comparison:
    """What the samples of Base and RL say about what RL adds; made by ``searchlens.compare``.

    Attributes
    ----------
    questions, base_samples, rl_samples : int
        Number of questions, and of samples of each.
    confidence : float
        Nominal coverage of all intervals, which are over questions.
    measures : DataFrame
        pass@k, Cover@tau, G-Pass@k, guessing, luck, entropies and P(RL beats Base): measure, k, tau, side (``Base``,
        ``RL``, ``RL - Base``), value, lo, hi.
    equivalents : DataFrame
        N*(b): samples of Base that solve as much as b of RL, one row for each b and policy of Base.
    exponents, exponent_profiles : DataFrame
        The set of exponents beta of N = alpha b^beta that the samples allow, and the p-value at each. No rows: too few
        questions.
    support, support_changes : DataFrame
        Questions kept, shrunk, expanded and out, and those that changed (``question``: row of the arrays).
    variance : DataFrame
        Parts of the variance of pass@1.
    extrapolated : DataFrame
        pass@k at four times the samples, with how often the same method is right on these samples.
    statements : tuple of Statement
        What each reading can and cannot say here.

    Notes
    -----
    docs/data.md (readings) describes all columns, docs/readings.md has definitions and sources.
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
        head = f"{self.questions} questions, {self.base_samples} samples of Base and {self.rl_samples} of RL"
        return "\n".join([head, *map(str, told(self.statements))])

    def _repr_html_(self) -> str:
        rows = [(each.reading, each.can, each.cannot) for each in told(self.statements)]
        return faces.table(("reading", "these samples say", "they cannot say"), rows)


def compare(
    base: npt.ArrayLike | Mapping[str, npt.ArrayLike],
    rl: npt.ArrayLike,
    *,
    samples: Samples | None = None,
    classes: Both | None = None,
    tokens: Both | None = None,
    choices: npt.ArrayLike | None = None,
    lucky: Both | None = None,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Read what RL adds to its Base from samples that were graded already.

    Parameters
    ----------
    base, rl : array_like of bool, shape (questions, samples)
        Whether each sample is right; the same questions in the same order. The numbers of samples may differ. Base may
        also be a mapping of policies to such arrays: the first is compared with RL one to one, and all of them count
        for N*(b) of the best policy.
        With ``samples``, the numbers of right samples of each question, shape (questions,).
    samples : int or (int, int), optional
        Samples of each question, of both sides or of Base and RL, if counts are given.
    classes : (base, rl), optional
        Class of equal answers of each sample: integers of the shape of ``base`` and ``rl``, -1 without an answer. Of a
        mapping, a mapping. Without it, entropies are not identified.
    tokens : (base, rl), optional
        Tokens of each sample, or their mean, for the ratio of tokens at equal pass@k. Of a mapping, a mapping.
    choices : int or array_like of int, shape (questions,), optional
        Lettered options of the questions, 0 for an open one. Without it, nothing is said about guessing.
    lucky : (base, rl), optional
        Whether each sample would be right if its question had the gold of another one: booleans of the shape of
        ``base`` and ``rl``, or with ``samples`` counts. Of a mapping, a mapping. Without it, nothing is said of luck.
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
        Arrays of other shapes or with other values than these.

    Examples
    --------
    >>> import searchlens
    >>> found = searchlens.compare([3, 0, 1, 2, 0, 4], [4, 0, 3, 4, 1, 4], samples=4, draws=200)
    >>> found.support["kept"].item(), found.support["expanded"].item()
    (4, 1)
    """
    _check_options(confidence, draws, seed)
    policies = dict(base) if isinstance(base, Mapping) else {ONLY: base}
    if not policies:
        raise InputError("base is a mapping without policies", "give at least one array")
    of_base, of_rl = samples if isinstance(samples, tuple) else (samples, samples)
    named = {name: f"base[{name!r}]" if isinstance(base, Mapping) else "base" for name in policies}
    right = {name: _right(named[name], given, of_base) for name, given in policies.items()}
    theirs = _right("rl", rl, of_rl)
    for name, array in right.items():
        if len(array) != len(theirs):
            why = f"{named[name]} has {len(array)} questions, rl has {len(theirs)}"
            raise InputError(why, "give the same questions to both")
    first = next(iter(right))
    ours = {
        name: _pool(
            name,
            array,
            _part(classes, 0, name, base),
            _part(tokens, 0, name, base),
            _lucky(f"lucky[0] of {named[name]}", _part(lucky, 0, name, base), of_base, array.shape),
        )
        for name, array in right.items()
    }
    of_other = _lucky("lucky[1]", None if lucky is None else lucky[1], of_rl, theirs.shape)
    target = _pool(
        first, theirs, None if classes is None else classes[1], None if tokens is None else tokens[1], of_other
    )
    options = ReadingsOptions(draws=draws, default_policy=first, seed=seed, confidence=confidence)
    cell = PairPools("pair", "benchmark", ours, {first: target}, _choices(choices, len(theirs)))
    frames = _frames(cell, options, with_classes=classes is not None)
    said = statements(frames, questions=len(theirs), policy=first)
    return Comparison(len(theirs), ours[first].samples, target.samples, confidence, **frames, statements=said)


def _check_options(confidence: float, draws: int, seed: int) -> None:
    if not 0 < confidence < 1:
        raise InputError(f"confidence: {confidence}; allowed: above 0 and below 1")
    if draws < 100:
        raise InputError(f"draws: {draws}; allowed: 100 or more")
    if seed < 0:
        raise InputError(f"seed: {seed}; allowed: 0 or more")


def _right(name: str, given: npt.ArrayLike, samples: int | None) -> npt.NDArray[np.bool_]:
    """Right and wrong samples, shape (questions, samples); of counts, the right ones first."""
    try:
        array = np.asarray(given)
    except ValueError:
        raise InputError(f"{name} is not rectangular", "give as many samples of every question") from None
    if samples is None:
        if array.ndim != 2 or 0 in array.shape:
            raise InputError(
                f"{name} has shape {array.shape}; allowed: (questions, samples), none of them 0",
                "give `samples` if these are counts of right samples",
            )
        if array.dtype != bool and not np.isin(array, (0, 1)).all():
            raise InputError(f"{name} has values other than right and wrong", "give booleans, or 0 and 1")
        return array.astype(bool)
    if array.ndim != 1 or not len(array):
        raise InputError(f"{name} has shape {array.shape}; allowed with `samples`: (questions,), one count for each")
    if samples < 1:
        raise InputError(f"samples: {samples}; allowed: 1 or more")
    if not (np.equal(np.mod(array, 1), 0) & (array >= 0) & (array <= samples)).all():
        raise InputError(f"{name} has counts that are not whole numbers from 0 to {samples}")
    return np.arange(samples) < array[:, None]


def _part(given: Both | None, side: int, name: str, base: object) -> Any:
    """What was given for one policy of Base."""
    if given is None:
        return None
    if len(given) != 2:
        raise InputError(f"classes, tokens and lucky are pairs, of base and of rl; found {len(given)} parts")
    part = given[side]
    if not isinstance(base, Mapping):
        return part
    if not isinstance(part, Mapping) or name not in part:
        raise InputError(f"base has policies: give classes, tokens and lucky of {name!r}, too, by its name")
    return part[name]


def _lucky(name: str, given: Any, samples: int | None, shape: tuple[int, ...]) -> npt.NDArray[np.bool_] | None:
    if given is None:
        return None
    array = _right(name, given, samples)
    if array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}; allowed: {shape}, one value for each sample")
    return array


def _pool(
    name: str, right: npt.NDArray[np.bool_], classes: Any, tokens: Any, lucky: npt.NDArray[np.bool_] | None
) -> Pool:
    """Samples as the readings take them."""
    questions, samples = right.shape
    answer = np.where(right, 0, 1) if classes is None else _classes(right, classes)
    scores = pl.DataFrame(
        {
            "policy": np.repeat(name, right.size),
            "question": np.repeat(np.arange(questions), samples),
            "sample": np.tile(np.arange(samples), questions),
            "run": np.tile(np.arange(samples), questions),
            "correct": right.ravel(),
            "answer": answer.ravel(),
        }
    ).with_columns(tokens=None, generated=None, stopped=True, score=None)
    guessed = pl.Series("lucky", [None] * right.size if lucky is None else lucky.ravel(), pl.Boolean)
    mean = float("nan") if tokens is None else float(np.mean(np.asarray(tokens, float)))
    if mean <= 0:
        raise InputError(f"tokens have the mean {mean}; allowed: above 0")
    return read_pools(answer_classes(scores.cast(SCORES).with_columns(guessed)), {name: mean})[name]


def _classes(right: npt.NDArray[np.bool_], given: Any) -> Ints:
    classes = np.asarray(given)
    if classes.shape != right.shape or not np.issubdtype(classes.dtype, np.integer) or (classes < -1).any():
        raise InputError(
            f"classes have shape {classes.shape}, type {classes.dtype}; allowed: {right.shape}, whole numbers from -1"
        )
    if (right & (classes < 0)).any():
        raise InputError("a sample without an answer (class -1) is marked right")
    for row, (known, correct) in enumerate(zip(classes, right, strict=True)):
        if set(known[correct].tolist()) & set(known[~correct].tolist()):
            raise InputError(
                f"question {row}: a class has right and wrong samples", "equal answers have equal verdicts"
            )
    return classes


def _choices(given: npt.ArrayLike | None, questions: int) -> Ints | None:
    if given is None:
        return None
    choices = np.asarray(given)
    if choices.shape not in ((), (questions,)) or not np.issubdtype(choices.dtype, np.integer):
        raise InputError(f"choices have shape {choices.shape}; allowed: one whole number, or one for each question")
    if ((choices < 0) | (choices == 1)).any():
        raise InputError("choices of a question are 0, or 2 or more")
    return np.broadcast_to(choices, (questions,)).astype(np.int64) if choices.any() else None


def _frames(cell: PairPools, options: ReadingsOptions, *, with_classes: bool) -> dict[str, pl.DataFrame]:
    """The frames of the stage for one cell, without what says the same twice or was not given."""
    questions = len(cell.rl[options.default_policy].questions)
    frames: dict[str, pl.DataFrame] = {}
    for read in READINGS:
        if read.__name__ == "exponents" and questions <= len(LAW_BUDGETS):
            continue
        frames |= read(cell, options)
    rows = frames["extrapolated"].with_columns(benchmark=pl.lit(cell.benchmark))
    frames["extrapolated"] = judged(rows, options.confidence).drop("benchmark")
    if not with_classes:
        frames["measures"] = frames["measures"].filter(~pl.col("measure").str.starts_with("entropy"))
    if len(cell.base) == 1:
        several = pl.col("policy").is_in([ANY, BEST])
        frames |= {name: frames[name].filter(~several) for name in ("equivalents", *_LAW) if name in frames}
    return {name: frames.get(name, pl.DataFrame()) for name in FRAMES}


_LAW = ("exponents", "exponent_profiles")
