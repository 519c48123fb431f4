"""The entropy tree against a plain sequential one under the same draws, and on models whose forks are known."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from plain_draws import one_by_one, plain_draw
from searchlens.engines.base import Request, Sampling
from searchlens.errors import InputError
from searchlens.search.entropy_tree import EntropyTree
from searchlens.search.policy import Policy, from_spec
from searchlens.search.task import Candidate, Evaluator, Scoring, Task, Trace
from searchlens_lab.equivalence import reference
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel
from toy_searches import refuse, returned, texts

WRITTEN = {2: "a conc", 3: "lusion ", 4: " The ANSWER"}
"""How tokens are written where texts are read; the others are dots."""


def make_task(seed: int = 0, max_tokens: int = 16, mask: object = None) -> Task:
    """A task of which only that can be read what the mask reads."""
    return Task(
        (2, 1),
        seed,
        max_tokens,
        (EOS,),
        (),
        write if mask == "words" else refuse,
        stated if mask == "answer" else refuse,
    )


def write(tokens: Sequence[int]) -> str:
    return "".join(WRITTEN.get(token, ".") for token in tokens)


def stated(tokens: Sequence[int]) -> int | None:
    """The last token behind a 4."""
    behind = [one for before, one in pairwise(tokens) if before == 4]
    return behind[-1] if behind else None


def make_policy(local: dict[str, float] | None = None, **parameters: int | float | str) -> Policy:
    own = {"roots", "positions", "children_per_position", "select", "threshold"}
    policy = from_spec(
        "tree",
        {
            "controller": {"name": "entropy_tree", **{k: v for k, v in parameters.items() if k in own}},
            "transition": {
                "name": "branch",
                **{k: v for k, v in parameters.items() if k in ("children", "gap", "mask")},
            },
            "scheduler": {"name": "rounds", "rounds": parameters.get("rounds", 1)},
        },
    )
    # Greedy trees are refused at planning, but the places where they branch are easily told.
    return replace(policy, local=Sampling(**{"temperature": 1.0, **(local or {})}))  # type: ignore[arg-type]


@dataclass
class Scorer:
    """Scores texts by ``of``, by default all alike, and keeps what it saw."""

    measures: bool = False
    compares: bool = False
    seen: Sequence[Trace] = ()

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        yield from ()
        self.seen = list(traces)
        return [self.of(trace) for trace in traces]

    def of(self, trace: Trace) -> float:
        return 0.0


class Tokens(Scorer):
    """Few different scores, so that ties occur."""

    def of(self, trace: Trace) -> float:
        return float(trace.tokens.sum() % 3)


def found(task: Task, policy: Policy, engine: ToyEngine, scorer: Evaluator | None = None) -> list[Candidate]:
    return returned(policy.controller.search(task, policy, scorer or Scorer()), engine)


def entropy(model: ToyModel, context: Sequence[int]) -> float:
    log_p = model.logprobs[context[-2], context[-1]]
    return float(-(np.exp(log_p) * log_p).sum())


def plain(model: ToyModel, task: Task, policy: Policy) -> list[tuple[int, ...]]:
    """All leaves in order of creation, by the plain sequential search."""
    found = one_by_one(reference.entropy_tree(task, policy), plain_draw(model, task.prompt, policy.local))
    return [reference.ids(text) for text in found]


SETTINGS: list[dict[str, Any]] = [
    {},
    {"positions": 2, "children_per_position": 2, "roots": 2, "gap": 1},
    {"positions": 2, "rounds": 3, "gap": 2},
    {"positions": 2, "rounds": 2, "children_per_position": 2, "roots": 2, "children": "free", "gap": 1},
    {"select": "threshold", "threshold": 1.2, "positions": 4, "rounds": 2, "gap": 1},
    {"positions": 9, "rounds": 2, "gap": 5, "children": "free"},
    {"positions": 2, "rounds": 2, "local": {"temperature": 0.7, "top_p": 0.8, "frequency_penalty": 0.5}},
    {"positions": 3, "rounds": 2, "children_per_position": 3, "local": {"temperature": 0.0}},
    {"positions": 2, "rounds": 2, "roots": 2, "gap": 1, "mask": "answer"},
    {"positions": 2, "rounds": 2, "roots": 2, "gap": 1, "mask": "words", "children": "free"},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_tokens_and_order_are_those_of_a_plain_sequential_tree(setting: dict[str, Any]) -> None:
    policy, made = make_policy(**setting), 0
    for seed in range(12):
        model, task = ToyModel.random(seed, 5, 1.5, eos=-1.0), make_task(seed, mask=setting.get("mask"))
        leaves = plain(model, task, policy)
        wanted = sorted(leaves, key=lambda text: -(sum(text) % 3))
        got = found(task, policy, ToyEngine(model), Tokens())
        assert texts(got)[: len(leaves)] == wanted
        assert got[0].details == {"found": len(leaves)}
        made += len(leaves)
    assert made > 12 * policy.component(EntropyTree).roots  # otherwise nothing branched


def fork_model(**forks: float) -> ToyModel:
    """Counts 1, 2, ... 7 and ends, in this order nearly always; after ``after_<token>`` logits are flatter."""
    logits = np.zeros((8, 8, 8), np.float32)
    for token in range(8):
        logits[:, token, (token + 1) % 8] = forks.get(f"after_{token}", 12.0)
    return ToyModel(logits)


def counting(max_tokens: int = 16, mask: object = None) -> Task:
    return make_task(0, max_tokens, mask)._replace(prompt=(EOS, EOS))


def branches(engine: ToyEngine, roots: int = 1) -> list[Request]:
    return engine.requests[roots:]


def test_threshold_takes_what_reaches_it_and_no_more() -> None:
    """Only the position behind 3 has the entropy; what is lacking is filled up with the best, and said to be."""
    model = fork_model(after_3=1.0, after_5=3.0)
    limit = entropy(model, (2, 3))
    engine = ToyEngine(model)
    policy = make_policy({"temperature": 0.0}, select="threshold", threshold=limit - 0.01, gap=1, children="free")
    got = found(counting(), policy, engine)
    assert [request.prefix for request in branches(engine)] == [(1, 2, 3)]
    assert len(got) == 4 and got[0].details == {"found": 2} and not got[1].details
    engine = ToyEngine(model)
    policy = make_policy({"temperature": 0.0}, select="threshold", threshold=limit + 0.01, gap=1)
    got = found(counting(), policy, engine)
    assert not branches(engine)
    assert texts(got) == [(1, 2, 3, 4, 5, 6, 7, 0)] * 4


def test_the_gap_reaches_into_branches_and_other_branches_are_other_paths() -> None:
    """The second round may not branch behind the fork that the first took, in the root or in a branch (whose tokens
    before the fork are the same), but may behind a like fork of a branch that went another way."""
    logits = fork_model(after_3=1.0).logits.copy()
    logits[:, 3, 2] = 0.9  # the best alternative goes back to 2, then 3 again
    engine = ToyEngine(ToyModel(logits))
    found(counting(), make_policy({"temperature": 0.0}, positions=1, rounds=2, gap=1), engine)
    first, second = branches(engine)
    assert first.prefix == (1, 2, 3, 2)
    assert second.prefix == (1, 2, 3, 2, 3, 2)


@pytest.mark.parametrize(("mask", "places"), [("none", [6, 5, 4]), ("answer", [4, 3, 2]), ("words", [2, 1])])
def test_behind_a_stated_answer_nothing_is_branched_from(mask: str, places: list[int]) -> None:
    """Entropy rises to the end of 1, 2, ... 7: it is highest behind the answer, the 5 that follows 4, and behind the
    word that 2 and 3 spell. The token that states the answer is still branched from, as in EPTree."""
    engine = ToyEngine(fork_model(after_2=6.0, after_3=5.0, after_4=4.0, after_5=2.0, after_6=0.5))
    policy = make_policy({"temperature": 0.0}, positions=3, gap=1, children="free", mask=mask)
    found(counting(mask=mask), policy, engine)
    assert [len(request.prefix) for request in branches(engine)] == places


def test_a_text_that_opens_with_the_word_is_not_branched_from() -> None:
    engine = ToyEngine(ToyModel(np.roll(fork_model().logits, 3, axis=-1)))  # 4 0
    got = found(counting(mask="words"), make_policy(positions=3, gap=1, mask="words"), engine)
    assert len(engine.requests) == 1 and len(got) == 4 and got[0].details == {"found": 1}


def test_the_mask_is_part_of_a_policy_only_where_there_is_one() -> None:
    """Ids of trees without it are those of before there was a mask; wrong names are refused before anything runs."""
    assert make_policy(mask="none").resolved() == make_policy().resolved()
    assert "mask" not in make_policy().resolved()["transition"]
    masked = make_policy(mask="words")
    assert masked.resolved()["transition"]["mask"] == "words"
    assert from_spec("again", masked.resolved()) == masked
    with pytest.raises(InputError, match="mask is 'gold'; allowed: one of none, words, answer"):
        make_policy(mask="gold")


def test_distinct_children_take_the_most_likely_other_tokens() -> None:
    """Their first tokens are forced: raw log p, log q 0. One that ends the text is a leaf without a request."""
    logits = fork_model(after_3=3.0).logits.copy()
    logits[:, 3, [7, 0, 2]] = 2.0, 1.0, 0.5
    model, scorer = ToyModel(logits), Scorer(measures=True)
    engine = ToyEngine(model)
    found(counting(), make_policy(positions=1, children_per_position=3, gap=1), engine, scorer)
    root, *rest = scorer.seen
    assert root.prefix[:4] == (1, 2, 3, 4)
    assert [trace.prefix[:4] for trace in rest] == [(1, 2, 3, 7), (1, 2, 3, 0), (1, 2, 3, 2)]
    assert [request.prefix for request in branches(engine)] == [(1, 2, 3, 7), (1, 2, 3, 2)]
    assert rest[1].finish == "stop"
    for trace in rest:
        assert trace.logprobs[3] == pytest.approx(model.logprobs[2, 3, trace.tokens[3]], abs=1e-6)
        assert trace.sampling_logprobs[3] == 0.0


@pytest.mark.parametrize("children", ["distinct", "free"])
def test_paths_keep_the_measures_of_every_token(children: str) -> None:
    for seed in range(6):
        model, task, scorer = ToyModel.random(seed, 5, eos=-1.0), make_task(seed), Scorer(measures=True)
        found(task, make_policy(children=children, rounds=2, gap=1), ToyEngine(model), scorer)
        for trace in scorer.seen:
            before = [(*task.prompt, *trace.prefix[:t])[-2:] for t in range(len(trace.tokens))]
            log_p = np.array([model.logprobs[a, b] for a, b in before])
            np.testing.assert_allclose(trace.logprobs, log_p[np.arange(len(log_p)), trace.tokens], atol=1e-5)
            np.testing.assert_allclose(trace.certainties, -np.log(5) - log_p.mean(-1), atol=1e-5)


def test_measures_are_asked_for_only_where_they_are_used() -> None:
    engine = ToyEngine(ToyModel.random(0, 5, eos=-2.0))
    found(make_task(), make_policy(positions=1, rounds=2, gap=1), engine)
    assert [request.measures for request in engine.requests] == [True, True, False]
    assert [request.top for request in engine.requests] == [2, 2, 0]


def test_more_distinct_children_than_other_tokens_are_refused() -> None:
    task, policy = make_task(), make_policy(children_per_position=5, gap=1)
    with pytest.raises(InputError, match="vocabulary of more than 5 tokens, but only 4 others"):
        found(task, policy, ToyEngine(ToyModel.random(0, 5, eos=-2.0)))
