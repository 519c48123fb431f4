"""Monte Carlo tree search against a plain sequential one under the same draws, and on examples worked out by hand."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from plain_draws import one_by_one, plain_draw
from searchlens.engines.base import Sampling
from searchlens.search.evaluators import AnswerAgreement
from searchlens.search.mcts import Node, Rule, back_propagate, descend, scaled
from searchlens.search.policy import Policy, from_spec
from searchlens.search.task import EMPTY, Candidate, Evaluator, Scoring, Search, Task, Trace
from searchlens.search.thoughts import Path
from searchlens.seeds import generator, uniform
from searchlens_lab.equivalence import reference
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel, distribution, inverse_cdf
from toy_searches import refuse, returned, texts

STEP = 3


def make_task(seed: int = 0, max_tokens: int = 16) -> Task:
    return Task((2, 1), seed, max_tokens, (EOS,), (STEP,), refuse, refuse)


def make_policy(local: dict[str, float] | None = None, **parameters: int | float | str) -> Policy:
    def part(name: str, *keys: str) -> dict[str, Any]:
        return {"name": name, **{key: parameters[key] for key in keys if key in parameters}}

    return from_spec(
        "search",
        {
            "local": local or {"temperature": 1.0},
            "controller": part("mcts", "select", "exploration", "children", "parallel"),
            "transition": part("thought", "max_tokens"),
            "scheduler": part("iterations", "iterations"),
        },
    )


@dataclass
class Scorer:
    """Scores texts by their tokens; keeps what it was shown: all, or the last where it compares."""

    of: Callable[[tuple[int, ...]], float]
    measures: bool = False
    compares: bool = False
    seen: list[tuple[int, ...]] = field(default_factory=list)

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        yield from ()
        assert all(trace.finish for trace in traces)
        new = [trace.prefix for trace in traces]
        self.seen = new if self.compares else self.seen + new
        return [self.of(text) for text in new]


def taste(text: tuple[int, ...]) -> float:
    """A score with no rule to it, and no range."""
    return float(10 * generator("taste", *text).standard_normal() - 40)


def found(
    task: Task, policy: Policy, engine: ToyEngine, scorer: Evaluator | None = None, yields: list[int] | None = None
) -> list[Candidate]:
    search = policy.controller.search(task, policy, scorer or Scorer(taste))
    return returned(counted(search, [] if yields is None else yields), engine)


def counted(controller: Search, yields: list[int]) -> Search:
    """The controller; ``yields`` collects how much it asks for at a time."""
    received: list[Any] | None = None
    while True:
        try:
            asks = controller.send(received)  # type: ignore[arg-type]
        except StopIteration as end:
            found: list[Candidate] = end.value
            return found
        yields.append(len(asks))
        received = yield asks


SETTINGS: list[dict[str, Any]] = [
    {"iterations": 12, "max_tokens": 4},
    {"iterations": 12, "max_tokens": 4, "select": "uct"},
    {"iterations": 16, "max_tokens": 3, "select": "uct", "exploration": 0.2, "children": 2},
    {"iterations": 16, "max_tokens": 3, "exploration": 3.0, "children": 5},
    {"iterations": 14, "max_tokens": 4, "select": "uct", "parallel": 4},
    {"iterations": 14, "max_tokens": 4, "parallel": 3, "local": {"temperature": 0.8, "top_p": 0.9}},
    {"iterations": 8, "max_tokens": 30, "exploration": 0.0},
]


@pytest.mark.parametrize("compares", [False, True])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.long
def test_tokens_and_order_are_those_of_a_plain_sequential_search(setting: dict[str, Any], compares: bool) -> None:
    """Selection, expansion, merging, closing, virtual loss, seeds and back-up, under the same draws; whether the
    evaluator sees every rollout once, or all of them whenever there are new ones."""
    policy, deepest = make_policy(**setting), 0
    for seed in range(6):
        model, task, scorer = ToyModel.random(seed, 5, 1.5, eos=-1.0), make_task(seed), Scorer(taste, compares=compares)
        plain = reference.MonteCarlo(task, policy, lambda text: taste(reference.ids(text)))
        draw = plain_draw(model, task.prompt, policy.local)
        wanted = [reference.ids(text) for text in one_by_one(plain.search(), draw)]
        got = found(task, policy, ToyEngine(model), scorer)
        assert scorer.seen == wanted
        assert texts(got)[: len(wanted)] == sorted(wanted, key=lambda text: -taste(text))
        assert got[0].details == {"found": len(wanted)}
        deepest = max(deepest, *(len(states) for states, _ in plain.simulations))
    assert deepest > 2


def test_parallel_leaves_are_asked_for_at_once() -> None:
    yields: list[int] = []
    policy = make_policy(iterations=9, parallel=4, max_tokens=4)
    found(make_task(max_tokens=40), policy, ToyEngine(ToyModel.random(1, 5, eos=-6.0)), yields=yields)
    assert yields == [3, 1, 9, 3, 12, 4, 3, 1]  # at first there is the root alone, then its three children


# By hand.


def test_uct_and_puct() -> None:
    parent, child = Node(Path(EMPTY), visits=10), Node(Path(EMPTY), prior=0.25, visits=4, values=[1.0, 1.0, 0.0])
    assert Rule("uct", 1.4)(parent, child) == pytest.approx(0.5 + 1.4 * 0.758715, abs=1e-5)  # sqrt(2.302585 / 4)
    assert Rule("uct", 0.0)(parent, child) == 0.5
    assert Rule("uct", 1.4)(parent, Node(Path(EMPTY))) == math.inf
    parent.visits = 16
    assert Rule("puct", 2.0)(parent, child) == pytest.approx(0.5 + 2 * 0.25 * 4 / 5)
    assert Rule("puct", 2.0)(parent, Node(Path(EMPTY), prior=0.25)) == pytest.approx(2 * 0.25 * 4)


def test_scores_are_scaled_to_their_range() -> None:
    assert scaled([-30.0, -10.0, -25.0]) == [0.0, 1.0, 0.25]
    assert scaled([7.0, 7.0]) == [0.5, 0.5]
    assert scaled([-1.0, -1.00000002, -1.0]) == [0.5, 0.5, 0.5]
    assert scaled([-1.0, -1.001]) == [1.0, 0.0]


@dataclass
class Noisy(Scorer):
    """The same scores, each off by up to a millionth, as if their last digits depended on the batch."""

    noise: Any = None

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        scores = yield from Scorer.__call__(self, task, traces, sampling, key)
        return [score + self.noise.uniform(-1e-6, 1e-6) for score in scores]


@pytest.mark.parametrize(
    "of", [lambda text: 3.0, lambda text: float(text[0] == 1), taste], ids=["constant", "first", "taste"]
)
@pytest.mark.parametrize("compares", [False, True])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.long
def test_the_last_digits_of_scores_move_no_tree(
    setting: dict[str, Any], compares: bool, of: Callable[[tuple[int, ...]], float]
) -> None:
    """Rollouts of one score, of two, and of many; texts that are found again are scored again where paths compare."""
    policy = make_policy(**setting)
    for seed in range(3):
        model, task = ToyModel.random(seed, 5, 1.5, eos=-1.0), make_task(seed)
        clean = Scorer(of, compares=compares)
        found(task, policy, ToyEngine(model), clean)
        for again in range(2):
            noisy = Noisy(of, compares=compares, noise=generator("noise", seed, again))
            found(task, policy, ToyEngine(model), noisy)
            assert noisy.seen == clean.seen


def hand_tree() -> tuple[Node, Node, Node]:
    better = Node(Path(EMPTY, (0,)), 0.5, visits=2, values=[0.9, 0.9])
    worse = Node(Path(EMPTY, (1,)), 0.5, visits=2, values=[0.8, 0.8])
    return Node(Path(EMPTY), children=[better, worse], visits=4), better, worse


def test_virtual_loss_turns_the_next_descent_elsewhere() -> None:
    """The better child falls from 0.9 to 1.8 / 3 while a descent through it is under way."""
    root, better, worse = hand_tree()
    better.children = [Node(Path(EMPTY, (0, 0)), visits=1), Node(Path(EMPTY, (0, 1)), visits=1)]
    rule = Rule("uct", 0.1)
    assert descend(root, rule)[1] is better
    assert better.value == pytest.approx(0.6)
    assert descend(root, rule)[1] is worse
    assert (root.visits, better.visits, worse.visits) == (6, 3, 3)


def test_a_leaf_under_way_is_not_chosen_again_until_it_returns() -> None:
    root, better, worse = hand_tree()
    rule = Rule("uct", 0.1)
    under_way = [descend(root, rule), descend(root, rule)]
    assert [nodes[-1] for nodes in under_way] == [better, worse]
    assert not root.is_open
    back_propagate(under_way, [1.0, 0.0])
    assert root.is_open and (better.values, worse.values, root.values) == ([1.0], [0.0], [1.0, 0.0])


def test_values_that_are_known_are_not_given_again() -> None:
    root, better, worse = hand_tree()
    descents = [[root, better], [root, worse]]
    back_propagate(descents, [1.0, 0.0])
    descents.append([root, better])
    back_propagate(descents, [1.0, 0.0, 0.5], known=2)
    assert (better.values, worse.values, root.values) == ([1.0, 0.5], [0.0], [1.0, 0.0, 0.5])
    back_propagate(descents, [0.5, 0.0, 1.0])
    assert (better.values, worse.values, root.values) == ([0.5, 1.0], [0.0], [0.5, 0.0, 1.0])


def test_a_fully_explored_tree_ends_early_and_each_end_counts_once() -> None:
    """Texts of one token among five: as many candidates as there are different thoughts, from one node's draws."""
    policy = make_policy(children=8, iterations=16)
    for seed in range(8):
        engine = ToyEngine(ToyModel.random(seed, 5))
        got = texts(found(make_task(seed, max_tokens=1), policy, engine))
        drawn = set(got)
        assert len(engine.requests) == 8
        assert got == (got[: len(drawn)] * 16)[:16]
        assert drawn == {draw_one(engine.model, make_task(seed, 1), place) for place in range(8)}


def draw_one(model: ToyModel, task: Task, place: int) -> tuple[int, ...]:
    q = distribution(model.next(task.prompt).astype(np.float64), Sampling(1.0))
    return (inverse_cdf(q, float(uniform(np.array([task.seed_of("thought", place)], np.uint64), np.zeros(1, int))[0])),)


def test_agreement_is_that_of_all_rollouts_so_far() -> None:
    """A rollout alone would always agree with itself. Answers here are last tokens but one."""
    task = Task((2, 1), 0, 12, (EOS,), (STEP,), refuse, lambda tokens: tokens[-2] if len(tokens) > 1 else None)
    policy = make_policy(iterations=8, max_tokens=4)
    got = found(task, policy, ToyEngine(ToyModel.random(1, 5, eos=-1.0)), AnswerAgreement(2))
    assert got[0].details == {"found": 8}
    answers = [task.answer(one.tokens.tolist()) for one in got]
    assert len(set(answers)) > 1
    for one, answer in zip(got, answers, strict=True):
        assert one.score == pytest.approx(0.0 if answer is None else answers.count(answer) / 8)
