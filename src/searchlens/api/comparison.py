"""The readings of the debate from right and wrong answers in arrays, without files and without a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.class_pools import Pool, read_pools
from searchlens.analysis.classes import answer_classes
from searchlens.analysis.extrapolation import judged
from searchlens.analysis.readings import READINGS, PairPools
from searchlens.api import faces, given
from searchlens.api.statements import Statement, statements, told
from searchlens.config.readings import ANY, BEST, ReadingsOptions
from searchlens.errors import InputError
from searchlens.store.columns import SCORES

FRAMES = (
    *("measures", "equivalents", "exponents", "exponent_profiles"),
    *("support", "support_changes", "variance", "extrapolated"),
)

Samples = npt.ArrayLike | tuple[npt.ArrayLike, npt.ArrayLike]
Both = tuple[Any, Any]


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
        pass@k, Cover@tau, G-Pass@k, guessing, luck, entropies and P(RL beats Base): measure, k, tau, side (``Base``,
        ``RL``, ``RL - Base``), value, lo, hi.
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
        return faces.comparison(told(self.statements), self.measures)


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
    lucky : (base, rl), optional
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
    given.check_number("confidence", confidence, Real, lambda x: 1e-9 < x < 1 - 1e-9, "a number above 0 and below 1")
    given.check_number("draws", draws, Integral, lambda x: 100 <= x <= 10**5, "a whole number, 100 or more, to 100000")
    given.check_number("seed", seed, Integral, lambda x: x >= 0, "a whole number, 0 or more")
    of_base, of_rl = samples if isinstance(samples, tuple) and len(samples) == 2 else (samples, samples)
    parts = {"classes": classes, "tokens": tokens, "lucky": lucky}
    policies, named = given.policies(base), isinstance(base, Mapping)
    known = {key: given.both(key, part, policies, named=named) for key, part in parts.items() if part is not None}
    theirs, ours = given.verdicts("rl", rl, of_rl), {}
    for name, array in policies.items():
        place = f"[{name!r}]" if named else ""
        right = given.verdicts(f"base{place}", array, of_base)
        if len(right) != len(theirs):
            why = f"base{place} has {len(right)} questions, rl has {len(theirs)}"
            raise InputError(why, "give the same questions to both")
        ours[name] = _pool(name, right, {key: part[0][name] for key, part in known.items()}, of_base, f"[0]{place}")
    first = next(iter(ours))
    target = _pool(first, theirs, {key: part[1] for key, part in known.items()}, of_rl, "[1]")
    options = ReadingsOptions(draws=int(draws), default_policy=first, seed=int(seed), confidence=float(confidence))
    lettered = None if choices is None else given.choices(choices, len(theirs))
    cell = PairPools("pair", "benchmark", ours, {first: target}, lettered)
    drawn = [pool.drawn for pool in (ours[first], target) if pool.drawn is not None]
    unequal = f"questions have {min(map(min, drawn))} to {max(map(max, drawn))} samples" if drawn else ""
    frames = _frames(cell, options, with_classes=classes is not None, unequal=bool(unequal))
    said = statements(frames, policy=first, unequal=unequal)
    return Comparison(len(theirs), ours[first].samples, target.samples, options.confidence, **frames, statements=said)


def _pool(name: str, right: given.Samples, more: Mapping[str, Any], samples: Any, place: str) -> Pool:
    """Samples as the readings take them, with classes, tokens and lucky ones as far as they were given."""
    answer = given.classes(f"classes{place}", more["classes"], right) if "classes" in more else 1 - right
    mean = given.mean_tokens(f"tokens{place}", more["tokens"], right) if "tokens" in more else float("nan")
    lucky = None
    if more.get("lucky") is not None:
        lucky = given.verdicts(f"lucky{place}", more["lucky"], samples, right).sum(axis=1).filled(0)
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
    pool = read_pools(answer_classes(scores.cast(SCORES)), {name: mean})[name]
    drawn = right.count(axis=1)
    unequal = drawn if drawn.min() < most else None
    return replace(pool, samples=int(drawn.min()), drawn=unequal, lucky=lucky)


def _frames(cell: PairPools, options: ReadingsOptions, *, with_classes: bool, unequal: bool) -> dict[str, pl.DataFrame]:
    """The frames of the stage for one cell, without what says the same twice or was not given."""
    frames: dict[str, pl.DataFrame] = {}
    for read in READINGS:
        needs_equal = read.__name__ in ("supports", "extrapolations")
        frames |= read(replace(cell, base={}, rl={}) if unequal and needs_equal else cell, options)
    rows = frames["extrapolated"].with_columns(benchmark=pl.lit(cell.benchmark))
    frames["extrapolated"] = judged(rows, options.confidence).drop("benchmark")
    if not with_classes:
        frames["measures"] = frames["measures"].filter(~pl.col("measure").str.starts_with("entropy"))
    if len(cell.base) == 1:
        several = pl.col("policy").is_in([ANY, BEST])
        frames |= {name: frames[name].filter(~several) for name in ("equivalents", "exponents", "exponent_profiles")}
    return {name: frames[name] for name in FRAMES}
