"""Graded samples as dense arrays, checked once; every metric reads these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import comb

from searchlens.config.landscape import Ties
from searchlens.config.limits import PART_ROWS
from searchlens.errors import InputError
from searchlens.store.columns import SCORES, VOTES

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Budgets = Sequence[int] | Ints
"""Numbers of samples n."""

_MAY_BE_UNKNOWN = ("tokens", "generated", "stopped", "score")


@dataclass(frozen=True, eq=False)
class Rows:
    """What the rows of estimates stand for: each question under each policy."""

    policies: tuple[str, ...]
    """In the order of the scores. Policy i has rows i * questions to (i + 1) * questions."""
    questions: npt.NDArray[np.uint32]
    """Increasing; the same for every policy."""
    width: int
    """Samples of one run. Above 1 they are candidates of one search, which are not independent draws."""


@dataclass(frozen=True, eq=False)
class SamplePool(Rows):
    """The samples of all policies that have the same number of samples, in runs of the same width.

    A column is one sample, in stream order.
    """

    correct: Bools
    valid: Bools
    stopped: Bools | Floats
    """Floats, and NaN throughout a policy, where it is not known how some samples ended."""
    finished: Bools
    """Stopped and with an answer. If the scores do not record this (samples graded by others): stopped and valid."""
    first: Ints
    """Column of the earliest sample with the same answer class; undefined where not ``valid``."""
    tokens: Floats
    """NaN throughout a policy with any unknown value, as imported samples may have; so are ``spent`` and ``score``."""
    spent: Floats
    """Tokens drawn by the whole run, on its first sample, 0 on the others."""
    score: Floats
    """Of the evaluator."""

    @property
    def samples(self) -> int:
        """Samples per question."""
        return int(self.correct.shape[1])


def read_pools(scores: pl.DataFrame) -> list[SamplePool]:
    """Split graded samples by pool size and width, policies in order of appearance.

    An InputError names policy and question: missing columns or values, no rows, missing or repeated samples, unequal
    numbers of samples, runs of different widths, or an answer class that is both right and wrong.
    """
    if "run" not in scores.columns:  # written without searches: every sample is a run
        scores = scores.with_columns(run=pl.col("sample"), generated=pl.col("tokens"))
    _check_columns(scores)
    names = scores["policy"].unique(maintain_order=True)
    keyed = scores.with_columns(code=pl.col("policy").cast(pl.Enum(names)).to_physical())
    ordered = keyed.sort("code", "question", "sample")
    questions = ordered["question"].unique().sort().to_numpy()
    counts = np.bincount(ordered["code"].to_numpy(), minlength=len(names))
    per_question = counts // len(questions)
    question, sample, ends = ordered["question"].to_numpy(), ordered["sample"].to_numpy(), np.cumsum(counts)
    for name, start, end in zip(names, ends - counts, ends, strict=True):
        size, rest = divmod(end - start, len(questions))
        expected = np.repeat(questions, size), np.tile(np.arange(size), len(questions))
        found = question[start:end], sample[start:end]
        if rest or not all(np.array_equal(*each) for each in zip(found, expected, strict=True)):
            _explain_hole(name, *found, questions)
    kinds = list(zip(per_question.tolist(), _widths(ordered, names), strict=True))
    if len(set(kinds)) == 1:
        return [_pool(ordered, tuple(names), questions, *kinds[0])]
    pools = []
    for kind in dict.fromkeys(kinds):
        members = [i for i, other in enumerate(kinds) if other == kind]
        part = ordered.filter(pl.col("code").is_in(members))
        pools.append(_pool(part, tuple(names[i] for i in members), questions, *kind))
    return pools


def _widths(ordered: pl.DataFrame, names: pl.Series) -> list[int]:
    """Samples per run of each policy."""
    first = pl.col("question") == pl.col("question").min()
    widths = ordered.filter(first, pl.col("run") == 0).group_by("code", maintain_order=True).len()["len"].to_list()
    width = pl.col("code").replace_strict(list(range(len(widths))), widths, return_dtype=pl.UInt32)
    odd = ordered.filter(pl.col("run") != pl.col("sample") // width) if len(widths) == len(names) else ordered
    if not odd.is_empty():
        raise InputError(
            f"scores: {_place(odd)} is of run {odd['run'][0]}",
            "number runs from 0 and give each the same number of consecutive samples",
        )
    return widths


def _check_columns(scores: pl.DataFrame) -> None:
    missing = [name for name in SCORES if name not in scores.columns]
    if missing:
        raise InputError(f"scores: no column {', '.join(missing)}; required are {', '.join(SCORES)}")
    if scores.is_empty():
        raise InputError("scores: no rows", "sample and score this cell first")
    for name in SCORES:
        if name not in _MAY_BE_UNKNOWN and scores[name].null_count():
            where = _place(scores.filter(pl.col(name).is_null()))
            raise InputError(f"scores: {name} is null at {where}; only {', '.join(_MAY_BE_UNKNOWN)} may be null")


def _place(rows: pl.DataFrame) -> str:
    policy, question, sample = rows.select("policy", "question", "sample").row(0)
    return f"policy {policy!r}, question {question}, sample {sample}"


def _explain_hole(
    policy: str, question: npt.NDArray[np.uint32], sample: npt.NDArray[np.uint32], questions: npt.NDArray[np.uint32]
) -> NoReturn:
    distinct, times = np.unique(np.stack([question, sample], axis=1), axis=0, return_counts=True)
    absent = np.setdiff1d(questions, question)
    size = int(sample.max()) + 1
    present = np.bincount(np.searchsorted(questions, distinct[:, 0]), minlength=len(questions))
    hint = "every policy needs samples 0, 1, ... of every question, each once"
    if times.max() > 1:
        twice = distinct[times.argmax()]
        raise InputError(f"scores: policy {policy!r}, question {twice[0]}: sample {twice[1]} occurs twice", hint)
    if len(absent):
        raise InputError(
            f"scores: policy {policy!r}, question {absent[0]}: no samples, though other policies have some", hint
        )
    short = int(np.flatnonzero(present < size)[0])
    have = distinct[distinct[:, 0] == questions[short], 1]
    gap = np.setdiff1d(np.arange(size), have)[0]
    where = f"policy {policy!r}, question {questions[short]}"
    raise InputError(f"scores: {where}: {len(have)} samples of {size}, sample {gap} is missing", hint)


def _pool(
    part: pl.DataFrame, policies: tuple[str, ...], questions: npt.NDArray[np.uint32], samples: int, width: int
) -> SamplePool:
    def dense(name: str) -> npt.NDArray[np.generic]:
        return part[name].to_numpy().reshape(-1, samples)

    def float_or_nan(name: str) -> Floats:
        values = part[name].cast(pl.Float64).fill_null(np.nan).to_numpy().reshape(len(policies), -1).copy()
        values[np.isnan(values).any(axis=1)] = np.nan
        return values.reshape(-1, samples)

    answer = dense("answer").astype(np.int64)
    valid = answer >= 0
    stopped = float_or_nan("stopped") if part["stopped"].null_count() else dense("stopped").astype(bool)
    if "finished" in part.columns:
        finished = part["finished"].fill_null(False).to_numpy().reshape(-1, samples)
    else:
        finished = (stopped == 1) & valid
    numbers = {"tokens": "tokens", "spent": "generated", "score": "score"}
    pool = SamplePool(
        policies,
        questions,
        width,
        correct=dense("correct").astype(bool),
        valid=valid,
        stopped=stopped,
        finished=finished,
        first=first_of_class(answer),
        **{field: float_or_nan(name) for field, name in numbers.items()},
    )
    _check_classes(pool)
    return pool


def first_of_class(answer: Ints) -> Ints:
    """Column of the earliest equal entry in each row."""
    order = np.argsort(answer, axis=1, kind="stable")
    ranked = np.take_along_axis(answer, order, axis=1)
    opens = np.ones(answer.shape, dtype=bool)
    opens[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    start = np.maximum.accumulate(np.where(opens, np.arange(answer.shape[1]), 0), axis=1)
    first = np.empty_like(order)
    np.put_along_axis(first, order, np.take_along_axis(order, start, axis=1), axis=1)
    return first


def _check_classes(pool: SamplePool) -> None:
    mixed = np.take_along_axis(pool.correct, pool.first, axis=1) != pool.correct
    wrong = np.flatnonzero(((mixed & pool.valid) | (pool.correct & ~pool.valid)).any(axis=1))
    if not len(wrong):
        return
    policy, question = divmod(int(wrong[0]), len(pool.questions))
    where = f"policy {pool.policies[policy]!r}, question {pool.questions[question]}"
    if (pool.correct & ~pool.valid)[wrong[0]].any():
        hint = "give it an answer class from 0, or mark it as not correct"
        raise InputError(f"scores: {where}: a sample is correct but has no valid answer (answer is negative)", hint)
    hint = "give right and wrong answers different classes"
    raise InputError(f"scores: {where}: an answer class is both right and wrong", hint)


def missed(samples: int, budgets: Sequence[float] | Ints) -> Floats:
    """Probability that an n-subset of N samples contains none of c given samples: row c, column n.

    C(N - c, n) / C(N, n). Between whole numbers it is the product over i < c of (N - n - i) / (N - i), cut at 0. For
    whole n its mean over samples is (1 - p)^n. For any other n in [1, N] it is nearly the binomial series of (1 - p)^n
    up to p^N, which is at most 0.0016 off for N = 16 and 0.0003 for N = 64. Chen et al. (2021), arXiv:2107.03374,
    section 2.1.
    """
    n, c = np.asarray(budgets, float)[None, :], np.arange(samples, dtype=float)[:, None]
    steps = np.maximum(samples - n - c, 0) / (samples - c)
    return np.vstack([np.ones((1, len(budgets))), np.cumprod(steps, axis=0)])


def first_best(key: Floats, credit: Bools, budgets: Ints) -> Floats:
    """Credit of the sample with the smallest key among the first n; ties go to the earlier sample.

    0 or 1, shape (rows, budgets); NaN in rows whose first key is NaN.
    """
    best = np.stack([key[:, :n].argmin(axis=1) for n in budgets], axis=1)
    return np.where(np.isnan(key[:, :1]), np.nan, np.take_along_axis(credit, best, axis=1))


def expected_best(key: Floats, credit: Bools, budgets: Ints) -> Floats:
    """Mean over all n-subsets of the credit of the sample with the smallest key, equal keys being equally likely.

    Shape (rows, budgets); NaN in rows whose first key is NaN. The r-th smallest of N is the smallest of the subset in
    C(N-1-r, n-1) of C(N, n) cases. Within a group of equal keys samples are exchangeable, so each earns the group's
    mean credit.
    """
    rows, samples = key.shape
    order = np.argsort(key, axis=1)
    ranked = np.take_along_axis(key, order, axis=1)
    opens = np.ones(key.shape, dtype=bool)
    opens[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    start = np.flatnonzero(opens)
    length = np.diff(start, append=rows * samples)
    total = np.add.reduceat(np.take_along_axis(credit, order, axis=1).ravel().astype(float), start)
    shared = np.repeat(total / length, length).reshape(rows, samples)
    rank = np.arange(samples, dtype=float)[:, None]
    earned: Floats = shared @ (missed(samples, budgets)[:-1] * budgets.astype(float) / (samples - rank))
    return np.where(np.isnan(key[:, :1]), np.nan, np.minimum(earned, 1.0))


COLUMNS = (
    *("policy", "question", "sample", "run", "correct", "answer", "tokens", "generated", "stopped", "score"),
    *("finished", "unknown", "extraction", "plain", "finish", "wrong_key"),
)
"""What the landscape, its votes, classes and health read of ``store.columns.GRADED``."""


def in_parts(scores: pl.LazyFrame, most: int = PART_ROWS) -> Iterator[pl.DataFrame]:
    """The samples of some policies after those of others, policies in order of appearance.

    Of ``store.columns.GRADED``, rows in any order, the ``COLUMNS`` that there are. A policy with more samples than
    ``most`` is a part of its own. Samples of which something is missing are one part, so that a check of the whole says
    what it is.
    """
    names = scores.collect_schema().names()
    needed = scores.select([name for name in COLUMNS if name in names])
    policies = _policies(scores) if {"policy", "question"} <= set(names) else None
    if policies is None:
        yield needed.collect()
        return
    parts: list[list[str]] = []
    room = 0
    for name, rows in policies.items():
        if rows > room:
            parts.append([])
            room = most
        parts[-1].append(name)
        room -= rows
    for part in parts:
        yield needed.filter(pl.col("policy").is_in(part)).collect()


def _policies(scores: pl.LazyFrame) -> dict[str, int] | None:
    """Samples of each policy; None if policies differ in their questions, or samples have no policy."""
    counted = (
        scores.select("policy", "question")
        .with_row_index()
        .group_by("policy")
        .agg(first=pl.col("index").min(), rows=pl.len(), questions=pl.col("question").unique().sort())
        .collect(engine="streaming")
        .sort("first")
    )
    regular = counted["policy"].null_count() == 0 and counted["questions"].n_unique() == 1
    return dict(counted.select("policy", "rows").iter_rows()) if regular else None


# ---- the majority vote: over the first samples of the stream, and its exact expectation over subsets of the pool

VOTE_POOL_LIMIT = 512
"""Largest pool whose expected vote is computed; the exact value for a larger one takes too long."""

_Integer = TypeVar("_Integer", bound=np.integer)

_WORK = 1 << 21
"""Most numbers in one array of the dynamic programme (16 MiB), to bound its memory."""


def class_sizes(pool: SamplePool, budget: int) -> Ints:
    """Votes among the first ``budget`` samples, in the column of the earliest sample of each class; 0 elsewhere."""
    rows, samples = pool.valid.shape
    votes = (pool.first + np.arange(rows)[:, None] * samples)[:, :budget][pool.valid[:, :budget]]
    return np.bincount(votes, minlength=rows * samples).reshape(rows, samples)


def prefix_vote(pool: SamplePool, budget: int, *, shared: bool) -> Floats:
    """Credit of the vote over the first ``budget`` samples, shape (rows,); 0 where no answer is valid.

    ``shared``: on a tie, the share of tied classes that are right. Otherwise the class seen earliest wins a tie.
    """
    votes = class_sizes(pool, budget)
    if shared:
        top = (votes == votes.max(axis=1, keepdims=True)) & (votes > 0)
        share: Floats = (top & pool.correct).sum(axis=1) / np.maximum(top.sum(axis=1), 1)
        return share
    winner = votes.argmax(axis=1)[:, None]
    won = np.take_along_axis(pool.correct, winner, axis=1) & (np.take_along_axis(votes, winner, axis=1) > 0)
    return won[:, 0].astype(float)


def expected_vote(pool: SamplePool, budgets: Budgets) -> Floats:
    """Mean credit of the vote over all subsets of each size, ties shared, shape (rows, budgets).

    The value depends on a row only through the sizes of its right and wrong classes, its signature, so it is computed
    once per signature. NaN for pools larger than ``VOTE_POOL_LIMIT``.
    """
    distinct, which = signatures(pool)
    sizes, right = (distinct >> 1).astype(np.int64), (distinct & 1).astype(bool)
    return vote_of_signatures(sizes, right, pool.samples, budgets)[which]


def signatures(pool: SamplePool) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.intp]]:
    """Sizes of the answer classes times two, plus one where right, largest first: the distinct ones, and each row's."""
    votes = class_sizes(pool, pool.samples)
    return unique_rows(np.sort((votes * 2 + (pool.correct & (votes > 0))).astype(np.uint16), axis=1)[:, ::-1])


def vote_of_signatures(sizes: Ints, right: Bools, samples: int, budgets: Budgets) -> Floats:
    """Expected credit of the vote in subsets of a pool, for given class sizes: shape (signatures, budgets).

    ``sizes``, shape (signatures, classes), has the votes for each class, 0 for padding; the other samples of the pool
    cast no vote. NaN for pools larger than ``VOTE_POOL_LIMIT``.

    Sum over right classes j and winning counts M of: C(c_j, M) ways to get M votes from j, times the ways in which
    every other class k has at most M votes, t - 1 of them exactly M, weighted by the credit 1/t. With 1/t the integral
    of y^(t-1) over y in [0, 1], the latter is the coefficient of x^(n-M) in

        integral of (1 + x)^blanks * prod_k [ sum_{i<M} C(c_k, i) x^i + y C(c_k, M) x^M ] dy,

    a polynomial in y, which Gauss-Legendre quadrature integrates exactly. A class smaller than M cannot tie, so its
    factor is (1 + x)^c_k and joins the blanks. All terms are positive: nothing cancels.
    """
    if samples > VOTE_POOL_LIMIT:
        return np.full((len(sizes), len(budgets)), np.nan)
    row, column = np.nonzero(right & (sizes > 0))
    others = sizes[row].copy()
    votes = others[np.arange(len(row)), column]
    others[np.arange(len(row)), column] = 0
    tasks, which = unique_rows(np.column_stack([votes, -np.sort(-others, axis=1)]).astype(np.int16))
    value = _credit(tasks[:, 0].astype(np.int64), tasks[:, 1:].astype(np.int64), samples, budgets)
    credit = np.zeros((len(sizes), len(budgets)))
    np.add.at(credit, row, value[which])
    return np.minimum(credit, 1.0)


def _credit(votes: Ints, others: Ints, samples: int, budgets: Budgets) -> Floats:
    """Expected credit of a right class of size ``votes`` against ``others`` (descending), shape (tasks, budgets)."""
    choose = comb(np.arange(samples + 1)[:, None], np.arange(samples + 1)[None, :]).astype(float)
    total = np.zeros((len(votes), len(budgets)))
    for top in range(1, int(votes.max(initial=0)) + 1):
        open_ = np.flatnonzero(votes >= top)
        rivals = np.where(others[open_] >= top, others[open_], 0)
        rivals = rivals[:, : int((rivals > 0).sum(axis=1).max(initial=0))]
        rest = samples - votes[open_] - rivals.sum(axis=1)
        cases, which = unique_rows(np.column_stack([rivals, rest]).astype(np.int16))
        ways = _ways(cases[:, :-1].astype(np.int64), cases[:, -1].astype(np.int64), top, choose, budgets)
        total[open_] += choose[votes[open_], top][:, None] * ways[which]
    credit: Floats = total / choose[samples, list(budgets)]
    return credit


def _ways(rivals: Ints, rest: Ints, top: int, choose: Floats, budgets: Budgets) -> Floats:
    """The integral of ``vote_of_signatures`` for each case: ways to draw the other n - top samples of a subset.

    Shape (cases, budgets).
    """
    degree = max(budgets) - top
    ways = np.zeros((len(rest), len(budgets)))
    if degree < 0:
        return ways
    node, weight = np.polynomial.legendre.leggauss(rivals.shape[1] // 2 + 1)
    node, weight = (node + 1) / 2, weight / 2
    reached = [(i, n - top) for i, n in enumerate(budgets) if n >= top]
    step = max(1, _WORK // (len(node) * (degree + 1)))
    for start in range(0, len(rest), step):
        chunk = slice(start, start + step)
        factor = np.repeat(choose[rest[chunk], None, : degree + 1], len(node), axis=1)
        for k in range(rivals.shape[1]):
            active = np.flatnonzero(rivals[chunk, k])
            factor[active] = _times(factor[active], choose[rivals[chunk, k][active]], node, top)
        for i, power in reached:
            ways[chunk, i] = factor[:, :, power] @ weight
    return ways


def _times(factor: Floats, coefficients: Floats, node: Floats, top: int) -> Floats:
    """Product with sum_{i<top} c_i x^i + y c_top x^top, truncated; ``factor`` is (cases, nodes, powers)."""
    product = factor.copy()
    powers = factor.shape[2]
    for i in range(1, min(top, powers - 1) + 1):
        scale = coefficients[:, i, None, None] * (node[None, :, None] if i == top else 1.0)
        product[:, :, i:] += scale * factor[:, :, : powers - i]
    return product


def unique_rows(rows: npt.NDArray[_Integer]) -> tuple[npt.NDArray[_Integer], npt.NDArray[np.intp]]:
    """Distinct rows and, for each row, which of them it is."""
    packed = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * rows.dtype.itemsize)))[:, 0]
    _, index, inverse = np.unique(packed, return_index=True, return_inverse=True)
    return rows[index], inverse


def plain_votes(scores: pl.DataFrame, *, budgets: Sequence[int], ties: Ties) -> pl.DataFrame:
    """The vote under both kinds of classes, for comparison: ``store.columns.VOTES``.

    The classes of the grader merge spellings of the right answer, but not those of wrong answers; plain strings merge
    neither. The share of questions solved by the vote over ``answer`` is Q, over ``plain`` Q_plain, for each policy,
    budget up to its pool, and estimator. Candidates of searches have no ``unbiased`` rows.
    """

    def solved(pool: SamplePool, budget: int, estimator: str) -> Floats:
        """Mean over questions for each policy."""
        if estimator == "first_k":
            credit = prefix_vote(pool, budget, shared=ties == "fractional")
        else:
            credit = expected_vote(pool, [budget])[:, 0]
        return np.asarray(np.mean(credit.reshape(len(pool.policies), -1), axis=1))

    pools = read_pools(scores), read_pools(scores.with_columns(answer="plain"))
    rows = [
        (policy, budget, estimator, *values)
        for by_class, by_string in zip(*pools, strict=True)
        for budget in sorted({n for n in budgets if n <= by_class.samples})
        for estimator in ("first_k", "unbiased")[: 2 if by_class.width == 1 else 1]
        for policy, *values in zip(
            by_class.policies, solved(by_class, budget, estimator), solved(by_string, budget, estimator), strict=True
        )
    ]
    return pl.DataFrame(rows, schema=VOTES, orient="row")
