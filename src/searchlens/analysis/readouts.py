"""Readouts of a pool, question by question: of the first n samples, and as means over all n-subsets.

``prefix`` and ``expected`` return one array of shape (rows, budgets) for each metric, rows as in ``SamplePool``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from searchlens import catalogue
from searchlens.analysis.pool import Floats, Ints, SamplePool, first_of_class
from searchlens.config.landscape import LandscapeOptions
from searchlens.errors import InputError, require_known

MOST_SUBSETS = 500
"""Most subsets of runs over which an expectation is taken: a budget with more of them has no expectation."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A declared metric: the options of ``catalogue.metric``, and what it decorates."""

    name: str
    """Column and row name."""
    definition: Any
    """Class or function. See ``landscape.metrics``."""
    title: str
    """Name in figures and tables; if there is none, ``name``."""
    per_sample: Literal["sum", "mean"] | None = None
    """The definition gives a number for each sample; the metric is its sum or mean over n samples."""
    of: tuple[str, ...] = ()
    """The definition is a function of the readouts of these metrics, which are not derived themselves. It should be
    linear: it is applied to their expectations, too."""
    affine: bool = False
    """That function is a + b x of one metric, so value and interval are transformed, and nothing is bootstrapped."""
    hits: bool = False
    """A question is solved (1) or not (0): ``hits.parquet`` has the readouts of each question, and counts have Wilson
    intervals."""
    fractional: bool = False
    """With ``hits``: under ``ties: fractional`` a question may be solved in part."""
    compared: bool = False
    """The recovery stage compares Base and RL on it; needs ``hits``."""
    drawn: bool = False
    """Tables and figures show it; needs ``compared`` and an expectation."""
    recorded: bool = False
    """Compact readouts hold it, so changing this changes their format (``store.readouts.COMPACT``). Without effect on
    the metrics of extensions."""

    def __post_init__(self) -> None:
        """Refuse options that do not go together."""
        if self.per_sample not in (None, "sum", "mean"):
            raise InputError(f"metric {self.name!r}: per_sample={self.per_sample!r}; allowed: sum, mean")
        drawable = self.compared and (bool(self.of) or self.has_expectation)
        needs = {
            "affine": (len(self.of) == 1, "one metric in of"),
            "fractional": (self.hits, "hits"),
            "compared": (self.hits, "hits"),
            "drawn": (drawable, "compared and an expectation"),
        }
        for option, (met, needed) in needs.items():
            if getattr(self, option) and not met:
                raise InputError(f"metric {self.name!r}: {option}={getattr(self, option)} needs {needed}")

    @property
    def power(self) -> int | None:
        """The expectation over n independent samples is n to this power times a constant; None if it is not."""
        return {"sum": 1, "mean": 0, None: None}[self.per_sample]

    @property
    def has_expectation(self) -> bool:
        """Whether a metric that is not derived has an ``expected`` readout."""
        return self.per_sample is not None or hasattr(self.definition, "expected")

    def prefix(self, pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Floats:
        """Readout of the first n samples, of a metric that is not derived; shape (rows, budgets)."""
        if self.per_sample:
            values = self.definition(pool).cumsum(axis=1)[:, budgets - 1]
            values = values / budgets if self.per_sample == "mean" else values
        else:
            values = getattr(self.definition, "prefix", self.definition)(pool, budgets, options)
        return self._checked(values, pool, budgets)

    def expected(self, pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Floats:
        """Mean over all n-subsets of a pool of independent samples, of a metric that has it; shape (rows, budgets)."""
        if self.power is not None:
            values = self.definition(pool).mean(axis=1)[:, None] * budgets.astype(float) ** self.power
        else:
            values = self.definition.expected(pool, budgets, options)
        return self._checked(values, pool, budgets)

    def _checked(self, values: npt.ArrayLike, pool: SamplePool, budgets: Ints) -> Floats:
        array, shape = np.asarray(values, float), (len(pool.correct), len(budgets))
        if array.shape != shape:
            raise InputError(f"metric {self.name!r}: readouts have shape {array.shape}, not (rows, budgets) = {shape}")
        return array


def metrics() -> list[Metric]:
    """Every declared metric, in the order of points: this package's own, then those of extensions.

    An InputError: an option is unknown or needs another one, or a metric is derived from one that is derived or not
    declared.
    """
    known, allowed_options = [], Metric.__dataclass_fields__.keys() - {"name", "definition"}
    for name, declaration in catalogue.loaded("metric").items():
        for option in declaration.options:
            require_known(option, allowed_options, f"metric {name!r}: option")
        options = {"title": name, **declaration.options}
        known.append(Metric(name=name, definition=catalogue.definition(declaration), **options))
    direct = [metric.name for metric in known if not metric.of]
    for metric in known:
        for name in metric.of:
            if name not in direct:
                allowed = ", ".join(direct)
                raise InputError(f"metric {metric.name!r}: of={name!r} is derived or not declared; allowed: {allowed}")
    return known


def prefix(pool: SamplePool, budgets: Sequence[int], options: LandscapeOptions) -> dict[str, Floats]:
    """Readouts of the first n samples of the stream, for all metrics except affine ones.

    An InputError: a metric with ``hits`` is not 0 or 1, or the result of a metric has the wrong shape.
    """
    known = metrics()
    values = _prefix(known, pool, np.asarray(budgets), options)
    for metric in known:
        if metric.hits:
            found = values[metric.name]
            allowed = (found >= 0) & (found <= 1) if metric.fractional else (found == 0) | (found == 1)
            if not (allowed | np.isnan(found)).all():
                raise InputError(f"metric {metric.name!r}: prefix readouts are not 0 or 1", "declare it without hits")
    return values


def expected(
    pool: SamplePool, budgets: Sequence[int], options: LandscapeOptions, only: Collection[str] = ()
) -> dict[str, Floats]:
    """Means over all n-subsets of the pool, for all metrics with an expectation except affine ones, or for some.

    The order of the samples does not matter, and ties share their credit.

    Candidates of one search are not independent. For them the mean is over runs: of the first n candidates of one run,
    or of all candidates of several whole runs. It is NaN for a budget beyond one run that is not a multiple of the
    width of a run, and for a budget with more than ``MOST_SUBSETS`` subsets of runs. A last run with fewer candidates
    is left out. ``only``: metrics to compute, none of them derived; empty: all.
    """
    every = metrics()
    direct = {metric.name for metric in every if not metric.of and metric.has_expectation}
    known = [metric for metric in every if (direct.issuperset(metric.of) if metric.of else metric.name in direct)]
    known = [metric for metric in known if not only or metric.name in only]
    if pool.width > 1:
        parts = [_mean_over_runs(known, pool, n, options) for n in budgets]
        return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
    at = np.asarray(budgets)
    return derived(known, {metric.name: metric.expected(pool, at, options) for metric in known if not metric.of})


def derived(known: Iterable[Metric], values: Mapping[str, Floats]) -> dict[str, Floats]:
    """``values``, and the derived metrics whose sources are among them, except affine ones."""
    computable = [metric for metric in known if metric.of and not metric.affine and values.keys() >= set(metric.of)]
    return {**values, **{metric.name: metric.definition(*(values[of] for of in metric.of)) for metric in computable}}


def _prefix(known: Sequence[Metric], pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> dict[str, Floats]:
    return derived(known, {metric.name: metric.prefix(pool, budgets, options) for metric in known if not metric.of})


def _mean_over_runs(
    known: Sequence[Metric], pool: SamplePool, budget: int, options: LandscapeOptions
) -> dict[str, Floats]:
    runs_needed = max(1, budget // pool.width)
    subsets = list(islice(combinations(range(pool.samples // pool.width), runs_needed), MOST_SUBSETS + 1))
    defined = (budget <= pool.width or budget % pool.width == 0) and 0 < len(subsets) <= MOST_SUBSETS
    if not defined:
        return {metric.name: np.full((len(pool.correct), 1), np.nan) for metric in known if not metric.affine}
    shared_ties, read = replace(options, ties="fractional"), []
    for runs in subsets:
        columns = (np.asarray(runs)[:, None] * pool.width + np.arange(pool.width)).ravel()
        names = ("correct", "valid", "stopped", "finished", "tokens", "spent", "score")
        parts = {name: getattr(pool, name)[:, columns] for name in names}
        of_runs = replace(pool, first=first_of_class(pool.first[:, columns]), **parts)
        read.append(_prefix(known, of_runs, np.array([budget]), shared_ties))
    return {name: np.mean([part[name] for part in read], axis=0) for name in read[0]}
