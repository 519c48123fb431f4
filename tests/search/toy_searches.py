"""Searches on a language model small enough to enumerate: how one is run, and what a plain one would return."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest

from plain_draws import one_by_one, plain_draw
from searchlens.engines.base import Engine
from searchlens.search.driver import Result, run, start
from searchlens.search.evaluators import evaluator
from searchlens.search.policy import Policy
from searchlens.search.task import Candidate, Evaluator, Search, Task
from searchlens_lab.equivalence import reference
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel

STEP = 1


def answer(tokens: Sequence[int]) -> Hashable | None:
    """The token before the end; a text that did not end has none."""
    return tokens[-2] if len(tokens) > 1 and tokens[-1] == EOS else None


def refuse(_: object) -> Any:
    """In place of what reads texts or answers, where a search must not."""
    raise AssertionError("the search looked at a text or an answer")


TASK = Task((3, 2), 11, 14, (EOS,), (STEP,), str, answer)


def returned(search: Search, engine: Engine) -> list[Candidate]:
    """What a search returns if it is run alone."""
    ((_, outcome),) = run([(0, search)], engine)
    assert isinstance(outcome, Result), outcome
    return outcome.candidates


def found(task: Task, policy: Policy, engine: Engine, scorer: Evaluator | None = None) -> list[Candidate]:
    """Candidates of one run of a policy, by default with its own evaluator."""
    return returned(policy.controller.search(task, policy, scorer or evaluator(policy.evaluator)), engine)


def texts(candidates: Sequence[Candidate]) -> list[tuple[int, ...]]:
    return [tuple(one.tokens.tolist()) for one in candidates]


def assert_plain(
    policy: Policy,
    model: ToyModel,
    tasks: Sequence[Task],
    score: Callable[[reference.Text], float] = reference.mean,
    max_rows: int = 1000,
) -> None:
    """Many runs at once on one engine have the tokens of a plain sequential search under the same draws."""
    results = dict(run(((task.seed, start(task, policy)) for task in tasks), ToyEngine(model, max_rows=max_rows)))
    for task in tasks:
        expected = one_by_one(reference.search(task, policy, score), plain_draw(model, task.prompt, policy.local))
        result = results[task.seed]
        assert isinstance(result, Result), result
        filled = [expected[place % len(expected)] for place in range(policy.width)]
        assert texts(result.candidates) == [reference.ids(text) for text in filled]
        assert [one.score for one in result.candidates] == pytest.approx(list(map(score, filled)), abs=1e-5)
