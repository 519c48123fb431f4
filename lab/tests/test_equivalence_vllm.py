"""Comparisons on vLLM: what is compared and how it is judged, without it; that they hold on the micro pair, with it."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from searchlens.config import check  # noqa: E402
from searchlens.engines import replicas  # noqa: E402
from searchlens.engines.base import Completion, Sampling  # noqa: E402
from searchlens.errors import InputError  # noqa: E402
from searchlens.plan import Grid  # noqa: E402
from searchlens.reporting.tables.table import Table  # noqa: E402
from searchlens.search.policy import parse  # noqa: E402
from searchlens_lab.equivalence import engines, plan  # noqa: E402
from searchlens_lab.equivalence.engines import STRATEGIES, Match, Strategy  # noqa: E402
from searchlens_lab.equivalence.subject import Subject  # noqa: E402
from searchlens_lab.equivalence.tables import ComparisonRow, Comparisons, frame, udf_engines, udf_tier12  # noqa: E402
from test_equivalence import folder, planned, written  # noqa: E402

__all__ = ["folder"]  # a fixture
with_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")


def study_of(base: str = "vllm", rl: str = "vllm", **changes: Any) -> dict[str, Any]:
    """The small study of the micro pair, with the engine of each checkpoint."""
    raw = written(**{"questions": 3, "engine_policies": ["temp_0.7", "temp_1.0"], "engine_samples": 4, **changes})
    raw["checkpoints"]["base"]["engine"], raw["checkpoints"]["rl"]["engine"] = base, rl
    return {**raw, "samples": 4, "budgets": [1, 2]}


def grid(**changes: Any) -> Grid:
    return Grid(check.validate(study_of(**changes)))


# What is written by hand.


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.name)
def test_both_sides_of_a_strategy_say_the_same(strategy: Strategy) -> None:
    """Field by field, and nothing besides."""
    assert Sampling(**strategy.parameters) == parse(strategy.policy).local


def test_the_strategies_are_those_of_the_paper() -> None:
    names = ["greedy", "temperature", "top-k", "top-p", "min-p", "temp + rep. penalty", "top-p + freq. penalty"]
    assert [one.name for one in STRATEGIES] == names


# How it is judged.


def a_match(output: float, answers: float) -> Match:
    return Match(STRATEGIES[0], 50, output, answers)


def test_a_strategy_holds_with_both_shares() -> None:
    assert a_match(0.75, 0.9).holds
    assert not a_match(0.74, 1.0).holds and not a_match(1.0, 0.89).holds
    assert not a_match(float("nan"), float("nan")).holds


def table_of(matches: list[Match]) -> Table:
    return udf_tier12(Comparisons(frame([]), engines.match_frame(matches)))


def test_table_of_strategies() -> None:
    made = table_of([a_match(0.86, 0.92), replace(a_match(0.5, 1.0), strategy=STRATEGIES[1])])
    assert made.data.row(0) == ("greedy", "greedy", 50, 0.86, 0.75, 0.92, 0.9, True)
    assert made.text.row(1) == ("temperature", "temp_0.7", "50", "0.50 (≥ 0.75)", "1.00 (≥ 0.9)", "×")
    assert made.notes[0] == "Does not hold: temperature."
    assert table_of([a_match(1.0, 1.0)]).notes[0] == "Every strategy is equivalent."


def test_texts_and_answers_are_compared_on_their_own() -> None:
    """Equal answers in different texts agree, and so do two texts without an answer."""
    subject = Subject.of(grid(base="transformers"), 1)
    encode = subject.job.prompter.tokenizer.encode
    seven, also, other, none, neither = (
        tuple(encode(text).ids) for text in ("\\boxed{7}", "so \\boxed{7}", "\\boxed{8}", "so", "if")
    )
    assert subject.job.answer(seven) == subject.job.answer(also) != subject.job.answer(other)
    assert subject.job.answer(none) == subject.job.answer(neither)
    found = engines.compare_texts(subject, STRATEGIES[0], [seven, seven, seven, none], [seven, also, other, neither])
    assert (found.n, found.output_match, found.em_agree) == (4, 0.25, 0.75)


def test_first_difference() -> None:
    assert engines.common_length((1, 2, 3), (1, 2, 4)) == 2
    assert engines.common_length((1, 2), (1, 2, 4)) == 2
    assert engines.common_length((3, 2), (1, 2)) == 0


def test_differences_are_those_of_the_same_tokens() -> None:
    """In any order, and without tokens that only one engine lists."""

    def listed(tokens: list[int], logprobs: list[float]) -> Completion:
        top = np.array([tokens], np.int32), np.array([logprobs], np.float32)
        nothing = np.zeros(1, np.float32)
        return Completion(np.zeros(1, np.int32), nothing, nothing, "length", top_tokens=top[0], top_logprobs=top[1])

    found = engines.logprob_differences(listed([5, 6, 7], [-1.0, -2.0, -3.0]), listed([6, 5, 8], [-1.5, -1.25, -3.0]))
    assert sorted(found) == [0.25, 0.5]


def test_pass_at_k_is_the_mean_over_subsets() -> None:
    for right in range(5):
        samples = [1] * right + [0] * (4 - right)
        exact = [np.mean([any(chosen) for chosen in combinations(samples, k)]) for k in (1, 2, 4)]
        assert engines.pass_at(np.array([right]), 4, [1, 2, 4])[0] == pytest.approx(exact)


def test_intervals_of_chance_are_those_of_every_way_to_deal() -> None:
    """Two questions of three samples a side: all ways to deal the pooled samples out, against the random ones."""
    right, samples = np.array([[3, 1], [1, 0]]), 3
    ways: list[list[float]] = []
    for total in right.sum(0):
        pool = np.arange(2 * samples) < total
        dealt = [pool[list(chosen)].sum() for chosen in combinations(range(2 * samples), samples)]
        ways.append([(mine - (total - mine)) / samples for mine in dealt])
    exact = np.sort([np.mean(pair) for pair in product(*ways)])
    for confidence in (0.5, 0.9):
        found = engines.permutation_interval(right, samples, [1], confidence)
        tail = (1 - confidence) / 2
        assert (found.lo[0], found.hi[0]) == pytest.approx((np.quantile(exact, tail), np.quantile(exact, 1 - tail)))


def test_an_interval_holds_where_it_covers_the_threshold() -> None:
    def row(lo: float | None, hi: float | None) -> ComparisonRow:
        return ComparisonRow(
            "engines", "mine", "theirs", "difference", 4, "questions", 0.1, "covers", 0.0, 0.6, 0.5, lo, hi
        )

    assert row(-0.1, 0.3).holds and row(0.0, 0.2).holds
    assert row(0.8 - 0.7 - 0.1, 0.7).holds  # the end is the threshold, but for rounding
    assert not row(0.05, 0.15).holds and not row(None, None).holds and not row(float("nan"), float("nan")).holds
    made = udf_engines(Comparisons(frame([row(-0.1, 0.3), replace(row(None, None), bound="at least")])))
    assert made.data.select("lo", "hi").rows() == [(-0.1, 0.3), (None, None)]
    assert made.text["value"][0] == "+0.100 [\N{MINUS SIGN}0.100, +0.300] (0.60 against 0.50)"
    assert made.text["threshold"].to_list() == ["covers 0", "≥ 0"]
    bare = frame([replace(row(None, None), bound="at least")])
    assert "lo" not in udf_engines(Comparisons(bare)).data.columns


# The comparison of engines, with the embedded one on both sides.


@pytest.fixture
def embedded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Subject.of.__func__  # type: ignore[attr-defined]

    def of(cls: Any, grid_: Grid, threads: int, checkpoint: str = "", engine: str = "transformers") -> Subject:
        made: Subject = honest(cls, grid_, threads, checkpoint)
        return made

    monkeypatch.setattr(Subject, "of", classmethod(of))


@pytest.mark.usefixtures("embedded_twice")
def test_an_engine_is_itself() -> None:
    rows = engines.compare(grid(), 1)
    assert {row.reference for row in rows} == {"embedded engine, base", "embedded engine, rl"}
    assert len(rows) == 2 * (6 + 2 * 2)
    assert [row.value for row in rows[:2]] == [1.0, 1.0]
    assert {row.value for row in rows[2:10]} == {0.0}
    assert all(row.holds for row in rows)
    assert any(row.lo is not None and row.hi is not None and row.lo < 0 < row.hi for row in rows)


@pytest.mark.usefixtures("embedded_twice")
def test_another_model_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second engine runs the RL checkpoint: texts, log-probabilities and pass@k are others."""
    of = Subject.of
    calls: list[str] = []

    def other(grid_: Grid, threads: int, checkpoint: str = "", engine: str = "transformers") -> Subject:
        calls.append(checkpoint)
        return of(grid_, threads, "rl" if len(calls) == 2 else checkpoint)

    monkeypatch.setattr(Subject, "of", other)
    rows = engines.compare(grid(rl="transformers", questions=24, engine_policies=["temp_1.0"]), 1)
    assert calls == ["base", "base"]
    by_statistic = {(row.policy, row.statistic): row for row in rows}
    assert not by_statistic["greedy", "same texts"].holds
    assert not by_statistic["temp_1.0, forced", "mean difference of log p of 20"].holds
    assert not by_statistic["temp_1.0", "difference of pass@1"].holds


# Configuration and rule.


@pytest.mark.parametrize("name", ["greedy", "beam", "tree"])
def test_policies_without_independent_candidates_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=rf"equivalence\.engine_policies: '{name}' has no independent candidates"):
        grid(engine_policies=[name])


def test_a_policy_that_no_name_says_is_refused() -> None:
    with pytest.raises(InputError, match=r"equivalence\.engine_policies: policy name 'temp_x' is malformed"):
        grid(engine_policies=["temp_x"])


def test_the_tables_are_part_of_the_study_where_base_runs_on_vllm(folder: Path) -> None:
    for engines_, there in ((("vllm", "vllm"), True), (("transformers", "vllm"), False)):
        assert plan.is_on_vllm(grid(base=engines_[0], rl=engines_[1])) == there
        (folder / "config/config.yaml").write_text(yaml.safe_dump(study_of(*engines_)))
        jobs = planned(folder)
        assert ("results/tables/udf_tier12.csv" in jobs) == ("results/tables/udf_engines.csv" in jobs) == there
        assert "results/tables/udf_tier34.csv" in jobs


# For real.


@with_vllm
def test_strategies_are_those_of_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """All seven, and one whose parameters are not ours, which is noticed.

    Ours runs in this process, whose environment it sets for vLLM alone, also where a study uses several.
    """
    wrong = Strategy("wrong", "temp_0.7", {"temperature": 0.7, "top_k": 1})
    monkeypatch.setattr(engines, "STRATEGIES", (*STRATEGIES, wrong))
    monkeypatch.setattr(replicas, "Replicas", None)
    raw = study_of(questions=4)
    raw["checkpoints"]["base"]["vllm"] = {"processes": 2}
    *found, other = engines.compare_strategies(Grid(check.validate(raw)), 1)
    assert [one.strategy for one in found] == list(STRATEGIES)
    assert all(one.n == 4 and one.output_match == one.em_agree == 1.0 for one in found)
    assert other.output_match < 1.0


@with_vllm
def test_vllm_is_the_embedded_engine() -> None:
    """On the Base checkpoint alone: the other one is left to the embedded engine."""
    rows = engines.compare(grid(rl="transformers", engine_policies=["temp_0.7", "power"]), 1)
    assert {row.reference for row in rows} == {"embedded engine, base"}
    assert all(row.holds for row in rows)
    assert rows[0].value == 1.0 and rows[0].n == 3
    assert 0 < rows[2].value < 1e-4
