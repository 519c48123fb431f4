"""Estimates of the landscape against their definitions, written out in plain Python."""

import functools
import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import landscape_oracle as oracle
from searchlens.analysis.classes import answer_classes
from searchlens.analysis.health import of_graded
from searchlens.analysis.points import operating_points
from searchlens.analysis.pool import in_parts, missed, plain_votes
from searchlens.analysis.uncertainty import Resamples, wilson
from searchlens.catalogue import declared
from searchlens.cli.stages.landscape import landscape
from searchlens.config.landscape import LandscapeOptions
from searchlens.errors import InputError
from searchlens.plan import needs
from searchlens.store import recorded_counts as metric_schemas
from searchlens.store.columns import ESTIMATORS, POINTS

FEW = LandscapeOptions(draws=50)
DEFINITIONS = {"P": oracle.solved, "Q": oracle.vote, "B": oracle.best, "T": oracle.finish}


def _pools(seed, size, questions=12, policies=("a", "b")):
    rng = np.random.default_rng(seed)
    return {name: [oracle.random_pool(rng, size) for _ in range(questions)] for name in policies}


def _at(landscape, metric, estimator, policy="a"):
    rows = landscape.points.filter(metric=metric, estimator=estimator, policy=policy)
    return dict(rows.select("budget", "value").iter_rows())


@pytest.mark.parametrize("first_finish", ["shortest", "first_index"])
@pytest.mark.parametrize("seed", range(6))
def test_expectations_equal_enumeration_of_all_subsets(seed, first_finish):
    size = 3 + seed % 4
    pools = _pools(seed, size)
    budgets = range(1, size + 1)
    options = LandscapeOptions(draws=50, first_finish=first_finish)
    hits = operating_points(oracle.frame(pools), budgets=budgets, options=options).hits
    definitions = {**DEFINITIONS, "T": oracle.finish if first_finish == "shortest" else oracle.finish_by_index}
    for row in hits.iter_rows(named=True):
        pool = pools[row["policy"]][row["question"]]
        for metric, definition in definitions.items():
            wanted = oracle.over_subsets(definition, pool, row["budget"])
            assert row[f"{metric}_unbiased"] == pytest.approx(wanted, abs=1e-6), (metric, row)


@pytest.mark.parametrize("ties", ["first", "fractional"])
@pytest.mark.parametrize("first_finish", ["shortest", "first_index"])
def test_first_k_estimates_equal_their_definitions(ties, first_finish):
    pools = _pools(11, 7, questions=40)
    options = LandscapeOptions(ties=ties, first_finish=first_finish, draws=50)
    hits = operating_points(oracle.frame(pools), budgets=[1, 2, 3, 5, 7], options=options).hits
    finish = oracle.finish if first_finish == "shortest" else oracle.finish_by_index
    for row in hits.iter_rows(named=True):
        chosen = pools[row["policy"]][row["question"]][: row["budget"]]
        wanted = [
            oracle.solved(chosen),
            oracle.vote(chosen, ties),
            oracle.best(chosen, "first"),
            finish(chosen, "first"),
        ]
        assert [row[metric] for metric in DEFINITIONS] == pytest.approx(wanted, abs=1e-6), row


def test_points_are_means_of_the_hits():
    landscape = operating_points(oracle.frame(_pools(2, 6)), budgets=[1, 2, 4], options=FEW)
    for (policy, budget), rows in landscape.hits.group_by("policy", "budget"):
        points = landscape.points.filter(policy=policy, budget=budget)
        for metric in DEFINITIONS:
            prefix, expected = (points.filter(metric=metric, estimator=r).row(0, named=True) for r in ESTIMATORS)
            assert prefix["hits"] == rows[metric].sum()
            assert prefix["value"] == pytest.approx(prefix["hits"] / 12)
            assert expected["value"] == pytest.approx(rows[f"{metric}_unbiased"].mean(), abs=1e-6)
            assert expected["hits"] is None
    for estimator in ESTIMATORS:
        p, q, d = (_at(landscape, metric, estimator) for metric in "PQD")
        assert d == pytest.approx({n: p[n] - q[n] for n in p})


def test_cost_diversity_and_rates():
    """Units: C in tokens per question, distinct in classes, rates per sample; expectations average over subsets."""
    pools = _pools(5, 6)
    landscape = operating_points(oracle.frame(pools), budgets=[1, 3, 6], options=FEW)
    measures = {
        "distinct": oracle.distinct,
        "C": lambda chosen: sum(s.tokens for s in chosen),
        "valid": lambda chosen: np.mean([s.answer >= 0 for s in chosen]),
        "stopped": lambda chosen: np.mean([s.stopped for s in chosen]),
        "truncated": lambda chosen: np.mean([not s.stopped for s in chosen]),
    }
    for metric, measure in measures.items():
        prefix, expected = (_at(landscape, metric, estimator) for estimator in ESTIMATORS)
        for n in (1, 3, 6):
            assert prefix[n] == pytest.approx(np.mean([measure(pool[:n]) for pool in pools["a"]]))
            assert expected[n] == pytest.approx(np.mean([oracle.over_subsets(measure, pool, n) for pool in pools["a"]]))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=9), st.data())
def test_expected_vote_of_any_class_sizes(sizes, data):
    """Large classes, many right ones (instructions: each answer a class) and blanks, at n around the middle."""
    labels = [label for label, size in enumerate(sizes) for _ in range(size)][:12]
    blanks = data.draw(st.integers(0 if labels else 1, 4))
    right = data.draw(st.sets(st.integers(0, len(sizes))))
    pool = [oracle.Sample(a, a in right, 1, True, 0.0) for a in [*labels, *[-1] * blanks][:12]]
    n = data.draw(st.integers(1, len(pool)))
    hits = operating_points(oracle.frame({"a": [pool]}), budgets=[n], options=FEW).hits
    assert hits["Q_unbiased"][0] == pytest.approx(oracle.over_subsets(oracle.vote, pool, n), abs=1e-6)


def test_expected_vote_of_a_large_pool_agrees_with_simulation():
    """256 samples: binomials of 75 digits, no cancellation."""
    rng = np.random.default_rng(6)
    answers = np.minimum(rng.geometric(0.25, 256), 9) - 1
    pool = [oracle.Sample(int(a), bool(a == 1), 1, True, 0.0) for a in answers]
    budgets = [1, 2, 16, 64, 256]
    hits = operating_points(oracle.frame({"a": [pool]}), budgets=budgets, options=FEW).hits
    found = dict(hits.select("budget", "Q_unbiased").iter_rows())
    assert found[1] == found[2] == pytest.approx(np.mean(answers == 1), abs=1e-6)
    draws = [oracle.vote([pool[i] for i in rng.choice(256, 16, replace=False)]) for _ in range(4000)]
    assert found[16] == pytest.approx(np.mean(draws), abs=0.03)
    assert found[256] == oracle.vote(pool)


def test_unbiased_pass_at_k_of_large_pools():
    """1 - C(N-c, k) / C(N, k) at N = 256, where the binomials do not fit 64 bits."""
    pool = [oracle.Sample(int(i < 3), i < 3, 1, True, 0.0) for i in range(256)]
    hits = operating_points(oracle.frame({"a": [pool]}), budgets=[1, 2, 256], options=FEW).hits
    assert hits["P_unbiased"].to_list() == pytest.approx([3 / 256, 1 - 253 * 252 / (256 * 255), 1.0], abs=1e-7)


def test_intervals_are_wilson_for_counts_and_bootstrap_for_the_rest():
    landscape = operating_points(oracle.frame(_pools(3, 4, questions=30)), budgets=[1, 4], seed=5)
    row = landscape.points.filter(policy="b", metric="B", estimator="first_k", budget=4).row(0, named=True)
    assert (row["lo"], row["hi"]) == wilson(row["hits"], 30)
    row = landscape.points.filter(policy="b", metric="Q", estimator="unbiased", budget=4).row(0, named=True)
    values = landscape.hits.filter(policy="b", budget=4)["Q_unbiased"].to_numpy()[:, None]
    lo, hi = Resamples.draw(30, 2000, 5).interval(values)
    assert (row["lo"], row["hi"]) == (pytest.approx(lo[0], abs=1e-6), pytest.approx(hi[0], abs=1e-6))
    assert landscape.points.filter(pl.col("lo") > pl.col("value") + 1e-9).is_empty()
    assert landscape.points.filter(pl.col("hi") < pl.col("value") - 1e-9).is_empty()


def test_shared_ties_make_the_prefix_vote_no_count():
    points = operating_points(
        oracle.frame(_pools(1, 4)), budgets=[2], options=LandscapeOptions(ties="fractional", draws=50)
    ).points
    assert points.filter(metric="Q")["hits"].null_count() == 4
    assert points.filter(metric="P", estimator="first_k")["hits"].null_count() == 0


def test_smaller_pools_have_fewer_budgets():
    pools = {"z": _pools(1, 4)["a"], "greedy": _pools(2, 1)["a"], "a": _pools(3, 4)["a"]}
    landscape = operating_points(oracle.frame(pools), budgets=[1, 2, 4], options=FEW)
    assert landscape.points["policy"].unique(maintain_order=True).to_list() == ["z", "greedy", "a"]
    assert landscape.points.filter(policy="greedy")["budget"].unique().to_list() == [1]
    assert landscape.hits.filter(policy="greedy").height == 12
    assert landscape.points.schema == POINTS
    assert landscape.hits.schema == metric_schemas.hits()
    assert landscape.points.height == (3 + 1 + 3) * len(declared("metric")) * len(ESTIMATORS)


def test_unknown_token_counts_leave_cost_and_first_finish_undecided():
    scores = oracle.frame(_pools(3, 4))
    lost = {name: pl.when(policy="a").then(None).otherwise(name) for name in ("tokens", "generated")}
    unknown = scores.with_columns(**lost).cast(scores.schema)
    before, after = (operating_points(s, budgets=[1, 2], options=FEW).points for s in (scores, unknown))
    undecided = after.filter(pl.col("policy") == "a", pl.col("metric").is_in(["C", "T"]))
    assert undecided["value"].null_count() == undecided.height == 8
    rest = ~((pl.col("policy") == "a") & pl.col("metric").is_in(["C", "T"]))
    assert after.filter(rest).equals(before.filter(rest))


def test_unknown_scores_leave_best_of_n_undecided():
    """A value from the scored part of a policy would not be comparable; the other policy keeps its value."""
    scores = oracle.frame(_pools(4, 3)).with_columns(
        score=pl.when(policy="a", question=2, sample=2).then(None).otherwise("score")
    )
    landscape = operating_points(scores, budgets=[1, 2], options=FEW)
    unknown = landscape.points.filter(policy="a", metric="B")
    assert unknown.select("hits", "value", "lo", "hi").null_count().row(0) == (4, 4, 4, 4)
    assert landscape.hits.filter(policy="a").select("B", "B_unbiased").null_count().row(0) == (24, 24)
    assert landscape.points.filter(policy="b", metric="B")["value"].null_count() == 0
    assert landscape.points.filter(pl.col("metric") != "B")["value"].null_count() == 0


def test_no_valid_answer_scores_nothing():
    """Blanks cast no vote and never finish first, and the question still counts."""
    blank = oracle.Sample(-1, False, 3, True, -1.0)
    right = oracle.Sample(0, True, 5, False, -2.0)
    landscape = operating_points(oracle.frame({"a": [[blank, blank], [blank, right]]}), budgets=[1, 2], options=FEW)
    assert landscape.hits["Q"].to_list() == [0, 0, 0, 1]
    assert landscape.hits["T"].to_list() == [False] * 4
    assert _at(landscape, "Q", "unbiased") == {1: 0.25, 2: 0.5}


BROKEN = {
    "sample 1 is missing": lambda s: s.filter(~((pl.col("question") == 3) & (pl.col("sample") == 1))),
    "sample 2 is missing": lambda s: s.filter(~((pl.col("question") == 3) & (pl.col("sample") == 2))),
    "no samples": lambda s: s.filter(pl.col("question") != 3),
    "occurs twice": lambda s: pl.concat([s, s.filter(question=3, sample=1)]),
    "sample 1 occurs twice": lambda s: s.with_columns(
        sample=pl.when((pl.col("question") == 3) & (pl.col("sample") == 2)).then(1).otherwise("sample")
    ),
    "both right and wrong": lambda s: s.with_columns(
        answer=pl.when(question=3).then(0).otherwise("answer"),
        correct=pl.when(question=3).then(pl.col("sample") == 1).otherwise("correct"),
    ),
    "no valid answer": lambda s: s.with_columns(
        answer=pl.when(question=3).then(-1).otherwise("answer"),
        correct=pl.when(question=3).then(True).otherwise("correct"),
    ),
    "correct is null": lambda s: s.with_columns(correct=pl.when(question=3).then(None).otherwise("stopped")),
}


@pytest.mark.parametrize("complaint", BROKEN)
def test_broken_pools_are_refused_by_name(complaint):
    """A missing sample would shift every later one into the wrong question."""
    scores = oracle.frame(_pools(1, 3))
    broken = BROKEN[complaint](scores.filter(policy="b")).cast(scores.schema)
    with pytest.raises(InputError, match=complaint) as error:
        operating_points(pl.concat([scores.filter(policy="a"), broken]), budgets=[1], options=FEW)
    assert "'b', question 3" in str(error.value)


def test_unusable_requests_are_refused():
    scores = oracle.frame(_pools(1, 3))
    for frame, budgets, complaint in (
        (scores.clear(), [1], "no rows"),
        (scores.drop("tokens"), [1], "no column tokens"),
        (scores, [], "one or more"),
        (scores, [0, 1], "one or more"),
        (scores, [4], "at most 3 samples"),
    ):
        with pytest.raises(InputError, match=complaint):
            operating_points(frame, budgets=budgets, options=FEW)


def test_classes_count_every_sample():
    scores = oracle.frame(_pools(seed=5, size=8))
    for row in answer_classes(scores).iter_rows(named=True):
        samples = scores.filter(policy=row["policy"], question=row["question"])
        answered = samples.filter(pl.col("answer") >= 0)
        assert (row["samples"], row["width"]) == (samples.height, 1)
        assert (row["correct"], row["answered"]) == (samples["correct"].sum(), answered.height)
        sizes = answered.group_by("answer", "correct").len().select("len", "correct").rows()
        assert sorted(_spelled_out(row["classes"])) == sorted(sizes)


def _spelled_out(classes):
    """Size and whether right of each class in text such as ``9+ 4 1x3``."""
    terms = [term.partition("x") for term in classes.split()]
    return [(int(size.strip("+")), "+" in size) for size, _, times in terms for _ in range(int(times or 1))]


# ---- candidates of searches


def _plain(metric: str, pool: oracle.Chosen, width: int, n: int) -> float | None:
    """Mean over runs of a search, by definition: the first n of one, or all of several."""
    reading = {"P": oracle.solved, "Q": oracle.vote, "distinct": oracle.distinct}[metric]
    runs = [pool[i : i + width] for i in range(0, len(pool), width)]
    if n <= width:
        return float(np.mean([reading(run[:n]) for run in runs]))
    if n % width:
        return None
    unions = [list(itertools.chain(*chosen)) for chosen in itertools.combinations(runs, n // width)]
    return float(np.mean([reading(union) for union in unions]))


@pytest.mark.parametrize(("runs", "width"), [(4, 4), (5, 2), (1, 8), (2, 3)])
def test_candidates_of_a_search_are_not_independent_samples(runs: int, width: int) -> None:
    """Expectations are over whole runs and prefixes of one, never over subsets of candidates."""
    scores, pools = oracle.searched(np.random.default_rng(runs), 6, runs, width)
    budgets = [n for n in (1, 2, 3, 4, 6, 8, 10, 16) if n <= runs * width]
    points = operating_points(scores, budgets=budgets, options=FEW).points.filter(estimator="unbiased")
    for n in budgets:
        for metric in ("P", "Q", "distinct"):
            values = [_plain(metric, pool, width, n) for pool in pools]
            (found,) = points.filter(budget=n, metric=metric)["value"]
            assert found == (None if None in values else pytest.approx(np.mean(values)))


def test_the_cost_of_a_search_is_all_that_it_drew() -> None:
    """The first candidate costs as much as the whole run."""
    scores, pools = oracle.searched(np.random.default_rng(0), 5, 2, 4)
    costs = operating_points(scores, budgets=[1, 4, 8], options=FEW).points.filter(metric="C")
    runs = [[sum(s.tokens for s in pool[i : i + 4]) + 100 for i in (0, 4)] for pool in pools]
    first, both = np.mean([run[0] for run in runs]), np.mean([sum(run) for run in runs])
    assert costs.filter(estimator="first_k")["value"].to_list() == pytest.approx([first, first, both])
    assert costs.filter(estimator="unbiased")["value"].to_list() == pytest.approx([both / 2, both / 2, both])
    lo, hi = costs.filter(estimator="unbiased", budget=8).select("lo", "hi").row(0)
    assert lo < both < hi


def test_a_search_of_one_candidate_is_a_sample() -> None:
    scores = oracle.frame(_pools(3, 8))
    assert operating_points(scores, budgets=[1, 4, 8], options=FEW).points["value"].null_count() == 0
    old = scores.drop("run", "generated")
    assert operating_points(old, budgets=[1, 4], options=FEW).points.equals(
        operating_points(scores, budgets=[1, 4], options=FEW).points
    )


def test_a_beam_is_read_by_whole_runs_only() -> None:
    scores, _ = oracle.searched(np.random.default_rng(1), 4, 2, 4)
    found = operating_points(scores, budgets=[1, 2, 4, 8], options=FEW, smallest={"tree": 4})
    assert found.points["budget"].unique().sort().to_list() == [4, 8]
    assert found.hits["budget"].unique().sort().to_list() == [4, 8]


def test_uneven_runs_are_refused() -> None:
    scores, _ = oracle.searched(np.random.default_rng(1), 4, 2, 4)
    with pytest.raises(InputError, match="sample 5 is of run 7"):
        operating_points(
            scores.with_columns(run=pl.when(pl.col("sample") == 5).then(7).otherwise("run").cast(pl.UInt32)),
            budgets=[1],
            options=FEW,
        )


@pytest.mark.parametrize("most", [1, 50, 10_000])
def test_a_landscape_does_not_depend_on_how_its_cell_is_read(most, tmp_path, monkeypatch):
    """Policy after policy, some at a time, or all at once: the same rows, and numbers that differ by rounding."""
    rng = np.random.default_rng(2)
    pools = _pools(2, 5, policies=("b", "a")) | {"one": [oracle.random_pool(rng, 1) for _ in range(12)]}
    graded = oracle.frame(pools).with_columns(plain=pl.col("answer"), wrong_key=pl.lit(None, pl.Boolean))
    graded.sample(fraction=1.0, shuffle=True, seed=4).sort("policy", descending=True).write_parquet(
        tmp_path / "s.parquet"
    )
    cell = needs.Landscape((2, 4), (2, 4), LandscapeOptions(draws=50), 0, {}, "math")
    monkeypatch.setattr("searchlens.cli.stages.landscape.in_parts", functools.partial(in_parts, most=most))
    landscape(cell, tmp_path / "s.parquet", tmp_path / "out", "")
    whole = pl.read_parquet(tmp_path / "s.parquet")
    wanted = operating_points(whole, budgets=[2, 4], options=FEW)
    found = {path.stem: pl.read_parquet(path) for path in (tmp_path / "out").glob("*.parquet")}
    assert_frame_equal(found["points"], wanted.points, abs_tol=1e-7, rel_tol=0)  # draws are in float32
    assert_frame_equal(found["hits"], wanted.hits, abs_tol=1e-7, rel_tol=0)
    assert_frame_equal(found["classes"], answer_classes(whole))
    assert_frame_equal(found["health"], of_graded(whole))
    votes = plain_votes(whole, budgets=[2, 4], ties="first")
    assert_frame_equal(found["votes"], votes, check_row_order=False, abs_tol=1e-12, rel_tol=0)


def test_a_hole_is_named_although_the_cell_is_read_in_parts(tmp_path):
    graded = oracle.frame(_pools(2, 3)).filter(~((pl.col("policy") == "b") & (pl.col("question") == 5)))
    graded.write_parquet(tmp_path / "s.parquet")
    cell = needs.Landscape((1,), (1,), LandscapeOptions(draws=50), 0, {}, "math")
    with pytest.raises(InputError, match="policy 'b', question 5: no samples, though other policies have some"):
        landscape(cell, tmp_path / "s.parquet", tmp_path / "out", "")
    oracle.frame(_pools(2, 3)).write_parquet(tmp_path / "s.parquet")
    cell = needs.Landscape((4,), (4,), LandscapeOptions(draws=50), 0, {}, "math")
    with pytest.raises(InputError, match=r"the smallest, 4, exceeds every pool \(at most 3 samples\)"):
        landscape(cell, tmp_path / "s.parquet", tmp_path / "out", "")


def test_between_whole_numbers_a_subset_misses_with_a_chance_of_0_or_more():
    """2.5 of 4 samples: the product over i < c of (1.5 - i) / (4 - i), cut at 0, not continued below it."""
    half = Fraction(3, 2)
    wanted = [1, half / 4, half / 4 * (half - 1) / 3, 0, 0]
    assert missed(4, [2.5])[:, 0] == pytest.approx([float(value) for value in wanted])
    assert missed(4, [2])[:, 0] == pytest.approx([1, 1 / 2, 1 / 6, 0, 0])


@pytest.mark.parametrize("right", [False, True])
def test_an_expectation_that_never_differs_has_an_interval_between_0_and_1(right):
    """No question of 12 is an exception: the Wilson interval of 0 out of 12, from the end of the scale."""
    same = oracle.Sample(answer=0, correct=right, tokens=9, stopped=True, score=-1.0)
    points = operating_points(oracle.frame({"a": [[same] * 3] * 12}), budgets=[2], options=FEW).points
    rows = points.filter(pl.col("metric").is_in(list("PQBT")), estimator="unbiased").select("value", "lo", "hi").rows()
    unseen = float(wilson(0, 12).hi)
    assert len(rows) == 4
    for row in rows:
        assert row == pytest.approx((1, 1 - unseen, 1) if right else (0, 0, unseen))


def test_a_landscape_has_as_many_policies_as_there_are():
    pools = {f"p{i:03d}": [[oracle.Sample(0, i % 3 == 0, 1, True, -1.0)]] for i in range(300)}
    points = operating_points(oracle.frame(pools), budgets=[1], options=FEW).points
    values = points.filter(metric="P", estimator="first_k").select("policy", "value").iter_rows()
    assert dict(values) == {name: float(i % 3 == 0) for i, name in enumerate(pools)}


@pytest.mark.parametrize("ties", ["first", "fractional"])
def test_votes_over_strings_and_over_classes_are_those_of_enumeration(ties):
    """Both estimates at every budget that the pool has, of the grader's classes and of strings, which are finer."""
    rng = np.random.default_rng(6)
    pools = {name: [oracle.random_pool(rng, 4) for _ in range(12)] for name in ("a", "b")}

    def string(sample):
        return 2 * sample.answer + sample.tokens % 2 if sample.answer >= 0 else -1

    strings = {name: [[replace(s, answer=string(s)) for s in pool] for pool in some] for name, some in pools.items()}
    graded = oracle.frame(pools).with_columns(plain=oracle.frame(strings)["answer"])
    votes = plain_votes(graded, budgets=[3, 1, 9], ties=ties)
    found = {row[:3]: row[3:] for row in votes.iter_rows()}
    assert found.keys() == set(itertools.product("ab", [1, 3], ESTIMATORS))
    for (name, n, estimator), values in found.items():
        for some, value in zip((pools[name], strings[name]), values, strict=True):
            firsts = [oracle.vote(pool[:n], ties) for pool in some]
            means = [oracle.over_subsets(oracle.vote, pool, n) for pool in some]
            assert value == pytest.approx(np.mean(firsts if estimator == "first_k" else means))


def test_budgets_with_too_many_subsets_of_runs_have_no_expectation():
    """6 of 13 runs can be chosen in 1,716 ways: a mean over the first 500 of them would be of some runs alone."""
    scores, _ = oracle.searched(np.random.default_rng(2), 3, 13, 2)
    found = operating_points(scores, budgets=[4, 12], options=FEW).points.filter(metric="P", estimator="unbiased")
    assert found["value"].is_null().to_list() == [False, True]


def test_votes_of_searches_have_no_expectation():
    scores, _ = oracle.searched(np.random.default_rng(2), 3, 2, 2)
    votes = plain_votes(scores.with_columns(plain="answer"), budgets=[2, 4], ties="first")
    assert votes.select("budget", "estimator").rows() == [(2, "first_k"), (4, "first_k")]


def test_a_part_of_a_cell_is_whole_policies_of_at_most_so_many_samples():
    """Memory is what parts are for; a larger policy is alone. Where a question is missing, a check needs them all."""
    rng, sizes = np.random.default_rng(3), {"c": 2, "a": 2, "large": 9, "b": 2}
    cell = oracle.frame({name: [oracle.random_pool(rng, size) for _ in range(12)] for name, size in sizes.items()})
    parts = [part["policy"].unique(maintain_order=True).to_list() for part in in_parts(cell.lazy(), 48)]
    assert parts == [["c", "a"], ["large"], ["b"]]
    holed = cell.filter(~((pl.col("policy") == "a") & (pl.col("question") == 3)))
    assert [part.height for part in in_parts(holed.lazy(), 48)] == [holed.height]
