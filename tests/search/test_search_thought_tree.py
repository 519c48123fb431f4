"""Tree of Thoughts against a plain sequential implementation, and its edges: ends, duplicates, too few paths."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from searchlens.engines.base import Request
from searchlens.search.evaluators import Verifier, evaluator
from searchlens.search.policy import Policy, from_spec
from searchlens.search.task import EMPTY
from searchlens.search.thoughts import Path, Thoughts
from searchlens.seeds import child
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel
from toy_searches import STEP, TASK, assert_plain, found, texts


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


@pytest.mark.parametrize(("b", "k", "depth"), [(4, 2, 3), (3, 4, 5), (1, 3, 2), (8, 3, 1)])
def test_same_tokens_as_a_plain_sequential_implementation(b: int, k: int, depth: int) -> None:
    tasks = [TASK._replace(seed=seed) for seed in range(10)]
    model = ToyModel.random(b, vocab_size=6, eos=-0.5)
    assert_plain(policy(width=b, children=k, depth=depth), model, tasks, max_rows=17)


def test_requests_are_thoughts_with_the_local_policy() -> None:
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


def test_a_search_whose_paths_have_all_ended_asks_for_nothing_more() -> None:
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


def test_a_narrow_tree_is_found_again_in_a_wide_one() -> None:
    """Seeds come from the place in the tree: with every path kept, the wide tree holds the narrow one's thoughts."""
    model = ToyModel.random(4, vocab_size=6, eos=-0.5)
    narrow, wide = ToyEngine(model), ToyEngine(model)
    found(TASK, policy(width=2, children=2, depth=3), narrow)
    found(TASK, policy(width=100, children=3, depth=3), wide)
    assert {(one.prefix, one.seed) for one in narrow.requests} <= {(one.prefix, one.seed) for one in wide.requests}


def test_places_of_children() -> None:
    tree = Thoughts(TASK, policy(), evaluator(policy().evaluator))
    parents = [Path(EMPTY, (0,)), Path(EMPTY, (1,)), Path(EMPTY, (0,))]
    growth = tree.think(parents)
    seeds = [ask.seed for ask in next(growth) if isinstance(ask, Request)]
    places = [(0, 0), (1, 0), (0, 1)]
    assert seeds == [child(TASK.seed, "thought", *place) for place in places]
