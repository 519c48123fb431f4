"""Tree of Thoughts against a plain sequential implementation, and its edges: ends, duplicates, too few paths."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pytest

from plain_draws import one_by_one, plain_draw
from searchlens.engines.base import Request, Sampling
from searchlens.search.driver import Failure, Result, run
from searchlens.search.evaluators import Verifier, evaluator
from searchlens.search.policy import Policy, from_spec
from searchlens.search.task import EMPTY, Candidate, Evaluator, Task
from searchlens.search.thoughts import Path, Thoughts
from searchlens.seeds import child
from searchlens_lab.equivalence import reference
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel

STEP = 1
LOCAL = Sampling(1.0, top_p=0.95)


def answer(tokens: Sequence[int]) -> Hashable | None:
    """The token before the end; a text that did not end has none."""
    return tokens[-2] if len(tokens) > 1 and tokens[-1] == EOS else None


TASK = Task((3, 2), 11, 14, (EOS,), (STEP,), str, answer)


def policy(local: dict[str, Any] | None = None, evaluator: Any = "mean_logprob", **parameters: Any) -> Policy:
    """As a configuration would have it; `depth` and `max_tokens` go to scheduler and transition."""
    spec: dict[str, Any] = {
        "local": local or {"temperature": 1.0, "top_p": 0.95},
        "scheduler": {"name": "breadth_first", "depth": parameters.pop("depth", 3)},
        "transition": {"name": "thought", "max_tokens": parameters.pop("max_tokens", 4)},
        "controller": {"name": "thought_tree", **parameters},
        "evaluator": evaluator,
    }
    return from_spec("mine", spec)


def found(task: Task, policy: Policy, engine: ToyEngine, scorer: Evaluator | None = None) -> list[Candidate]:
    scorer = scorer or evaluator(policy.evaluator)
    ((_, result),) = run([(0, policy.controller.search(task, policy, scorer))], engine)
    assert isinstance(result, Result), result
    return result.candidates


def texts(candidates: Sequence[Candidate]) -> list[tuple[int, ...]]:
    return [tuple(one.tokens.tolist()) for one in candidates]


@pytest.mark.parametrize(("b", "k", "depth"), [(4, 2, 3), (3, 4, 5), (1, 3, 2), (8, 3, 1)])
def test_same_tokens_as_a_plain_sequential_implementation(b: int, k: int, depth: int) -> None:
    """Under the same draws, for many runs at once on one engine."""
    model = ToyModel.random(b, vocab_size=6, eos=-0.5)
    tasks = [TASK._replace(seed=seed) for seed in range(10)]
    mine = policy(width=b, children=k, depth=depth)
    controllers = [(i, mine.controller.search(task, mine, evaluator(mine.evaluator))) for i, task in enumerate(tasks)]
    results = dict(run(controllers, ToyEngine(model, max_rows=17)))
    for i, task in enumerate(tasks):
        draw = plain_draw(model, task.prompt, mine.local)
        expected = one_by_one(reference.search(task, mine, reference.mean), draw)
        result = results[i]
        assert isinstance(result, Result)
        filled = [expected[j % len(expected)] for j in range(b)]
        assert texts(result.candidates) == [reference.ids(text) for text in filled]
        assert [one.score for one in result.candidates] == pytest.approx(list(map(reference.mean, filled)), abs=1e-6)


def test_what_is_returned() -> None:
    """Finished texts within the limit, with the probabilities of every token, `width` of them, best first."""
    model = ToyModel.random(7, vocab_size=6, eos=-1.0)
    for seed in range(20):
        task = TASK._replace(seed=seed)
        candidates = found(task, policy(width=4, children=3), ToyEngine(model))
        assert len(candidates) == 4
        scores = [one.score for one in candidates]
        for one in candidates:
            text = tuple(one.tokens.tolist())
            assert len(text) <= task.max_tokens
            assert one.finish == ("stop" if text[-1] == EOS else "length")
            assert one.finish == "stop" or len(text) == task.max_tokens
            context = (*task.prompt, *text)
            expected = [model.logprobs[context[i : i + 3]] for i in range(len(text))]
            np.testing.assert_allclose(one.logprobs, expected, atol=1e-5)
        repeated = next((i for i in range(1, 4) if candidates[i] is candidates[0]), 4)
        assert scores[:repeated] == sorted(scores[:repeated], reverse=True)


def test_requests_are_thoughts_with_the_local_policy() -> None:
    """One request a thought, stopped at step and end, as long as a thought or what is left of a candidate."""
    engine = ToyEngine(ToyModel.random(2, vocab_size=6, eos=-3.0))
    mine = policy(width=2, children=3, depth=4)
    found(TASK, mine, engine)
    assert {one.sampling for one in engine.requests} == {mine.local}
    assert {one.prompt for one in engine.requests} == {TASK.prompt}
    assert len({one.seed for one in engine.requests}) == len(engine.requests)
    for one in engine.requests:
        room = TASK.max_tokens - len(one.prefix)
        assert one.max_tokens == (min(4, room) if one.stop_ids == (STEP, EOS) else room)
    assert [len(one.prefix) for one in engine.requests[:4]][:3] == [0, 0, 0]


def always(model: ToyModel, text: Sequence[int], prompt: Sequence[int]) -> ToyModel:
    """A model that writes `text` and nothing else."""
    logits = np.full_like(model.logits, -50.0)
    context = [*prompt, *text]
    for i in range(len(text)):
        logits[context[i], context[i + 1], context[i + 2]] = 50.0
    return ToyModel(logits)


def test_duplicates_are_kept_once_and_the_rest_is_filled_up() -> None:
    """A model with one text: one path goes on, and all candidates are that text."""
    model = always(ToyModel.random(0, vocab_size=6), [4, STEP, 5, 3, STEP, 2, EOS], TASK.prompt)
    engine = ToyEngine(model)
    candidates = found(TASK, policy(width=3, children=2, depth=2), engine)
    assert texts(candidates) == [(4, STEP, 5, 3, STEP, 2, EOS)] * 3
    assert [(one.prefix, one.max_tokens) for one in engine.requests] == [
        *[((), 4)] * 2,
        *[((4, STEP), 4)] * 2,
        ((4, STEP, 5, 3, STEP), 9),
    ]


def test_a_search_whose_paths_have_all_ended_asks_for_nothing_more() -> None:
    """Depth is the most levels, not how many there are."""
    engine = ToyEngine(always(ToyModel.random(0, vocab_size=6), [4, EOS], TASK.prompt))
    candidates = found(TASK, policy(width=3, children=2, depth=50), engine)
    assert texts(candidates) == [(4, EOS)] * 3
    assert len(engine.requests) == 2


def test_an_ended_path_competes_and_can_be_displaced() -> None:
    """It is scored again at every level, and keeps its place only while it is among the best."""
    model = ToyModel.random(3, vocab_size=6, eos=-0.5)
    longer = Verifier(lambda _, shown: [len(text) for text in shown], "longest")
    shorter = Verifier(lambda _, shown: [-len(text) for text in shown], "shortest")
    task = TASK._replace(decode=lambda tokens: "x" * len(tokens))
    mine = policy(width=2, children=4, depth=5)
    long = found(task, mine, ToyEngine(model), longer)
    short = found(task, mine, ToyEngine(model), shorter)
    assert max(len(one.tokens) for one in short) < min(len(one.tokens) for one in long)
    assert [one.score for one in long] == [len(one.tokens) for one in long]


def test_measures_are_asked_for_when_the_evaluator_needs_them() -> None:
    engine = ToyEngine(ToyModel.random(2, vocab_size=6))
    candidates = found(TASK, policy(evaluator="self_certainty", width=2), engine)
    assert all(one.measures for one in engine.requests)
    assert all(one.score > 0 for one in candidates)


def test_rollouts_and_agreement_guide_a_search() -> None:
    """Evaluators that draw: their seeds differ from level to level, and no text outgrows the limit."""
    for name in ("rollout_utility", "answer_agreement"):
        engine = ToyEngine(ToyModel.random(2, vocab_size=6, eos=-0.5))
        candidates = found(TASK, policy(evaluator=name, width=2, depth=2), engine)
        assert len({one.seed for one in engine.requests}) == len(engine.requests)
        assert all(len(one.prefix) + one.max_tokens <= TASK.max_tokens for one in engine.requests)
        assert all(0 <= one.score <= 1 for one in candidates)


def test_a_broken_evaluator_fails_the_sample_with_its_reason() -> None:
    mine = policy()

    def nan(*_: Any) -> Any:
        yield from ()
        return [0.0, float("nan")]

    nan.measures = False  # type: ignore[attr-defined]
    ((_, result),) = run([(0, mine.controller.search(TASK, mine, nan))], ToyEngine(ToyModel.random(2, vocab_size=6)))  # type: ignore[arg-type]
    assert isinstance(result, Failure)
    assert result.reason == "ValueError: the evaluator mean_logprob gave scores [0.0, nan]"


def test_a_narrow_tree_is_found_again_in_a_wide_one() -> None:
    """Seeds come from the place in the tree: with every path kept, the wide tree holds the narrow one's thoughts."""
    model = ToyModel.random(4, vocab_size=6, eos=-0.5)
    narrow, wide = ToyEngine(model), ToyEngine(model)
    found(TASK, policy(width=2, children=2, depth=3), narrow)
    found(TASK, policy(width=100, children=3, depth=3), wide)
    assert {(one.prefix, one.seed) for one in narrow.requests} <= {(one.prefix, one.seed) for one in wide.requests}


def test_places_of_children() -> None:
    """Siblings are numbered in the order of their parents, and come back in it."""
    tree = Thoughts(TASK, policy(), evaluator(policy().evaluator))
    parents = [Path(EMPTY, (0,)), Path(EMPTY, (1,)), Path(EMPTY, (0,))]
    growth = tree.think(parents)
    seeds = [ask.seed for ask in next(growth) if isinstance(ask, Request)]
    places = [(0, 0), (1, 0), (0, 1)]
    assert seeds == [child(TASK.seed, "thought", *place) for place in places]
