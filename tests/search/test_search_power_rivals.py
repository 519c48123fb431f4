"""Other samplers of p^alpha, on a language model small enough to enumerate: laws, costs, and what they refuse."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from plain_draws import one_by_one, plain_draw
from searchlens.engines.base import Sampling
from searchlens.search.driver import Result, run, start
from searchlens.search.policy import Policy, from_spec
from searchlens.search.task import Candidate, Task
from searchlens_lab.equivalence import reference
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, enumerate_texts
from test_search_power import (
    LIMIT,
    PROMPT,
    SPREAD,
    Deaf,
    chains,
    distance,
    frequencies,
    letters,
    power,
    target,
    text_of,
)

ALPHA = 2.0


def policy_of(controller: dict[str, Any], temperature: float = 1 / ALPHA, **parts: Any) -> Policy:
    spec = {"controller": {"alpha": ALPHA, **controller}, **parts}
    return replace(from_spec("a search", spec), local=Sampling(temperature))


def smc(**parameters: Any) -> Policy:
    return policy_of({"name": "smc", "every": 1, "ramp": 0, **parameters})


def lookahead(**parameters: Any) -> Policy:
    return policy_of({"name": "lookahead", "top": 3, "horizon": LIMIT, **parameters}, temperature=1.0)


def ends_of(policy: Policy, count: int, limit: int = LIMIT, stop: str = "") -> tuple[list[Candidate], ToyEngine]:
    engine = ToyEngine(SPREAD)
    stops = (stop,) if stop else ()
    tasks = [Task(PROMPT, seed, limit, (EOS,), (), letters, tuple, stop_texts=stops) for seed in range(count)]
    outcomes = dict(run(((task.seed, start(task, policy)) for task in tasks), engine))
    results = [outcomes[seed] for seed in range(count)]
    return [result.candidates[0] for result in results if isinstance(result, Result)], engine


GOAL = target(SPREAD, power("at 1/alpha"))


@pytest.mark.parametrize(
    "more", [{}, {"ramp": 3}, {"resample": 0.0}, {"resample": 1.0, "ramp": 2}, {"every": 3, "ramp": 4}]
)
@pytest.mark.long
def test_texts_that_count_z_times_have_the_target_law(more: dict[str, Any]) -> None:
    """Exactly, for any number of particles: three are far from enough for texts that count once."""
    ends, _ = ends_of(smc(particles=3, **more), 4000)
    weight: Counter[tuple[int, ...]] = Counter()
    for end in ends:
        weight[text_of(end)] += math.exp(end.details["log_z"])  # type: ignore[assignment]
    law = {text: value / weight.total() for text, value in weight.items()}
    assert distance(law, GOAL) < 0.035
    mean = sum(math.exp(end.details["log_z"]) for end in ends) / len(ends)
    p = enumerate_texts(SPREAD, PROMPT, LIMIT)
    assert mean == pytest.approx(sum(chance**ALPHA for chance in p.values()), rel=0.05)


RIVALS = {
    "smc": smc(particles=5, resample=0.8, every=2),
    "smc with ramp": smc(particles=4, ramp=4),
    "smc without resampling": smc(particles=3, resample=0.0, ramp=2, every=3),
    "lookahead": lookahead(rollouts=3, horizon=2),
    "lookahead with one rollout": lookahead(rollouts=1, top=2),
    "entropy cuts": policy_of(
        {"name": "power", "cut": "entropy"}, scheduler={"name": "blocks", "blocks": 2, "steps": 4}
    ),
}


@pytest.mark.parametrize("stop", ["", "ba"])
@pytest.mark.parametrize("name", RIVALS)
def test_same_tokens_as_one_continuation_at_a_time(name: str, stop: str) -> None:
    """Against plain searches that share the seeds alone, so that the laws below are theirs, too."""
    policy = RIVALS[name]
    ends, _ = ends_of(policy, 25, 6, stop)
    for seed, end in enumerate(ends):
        task = Task(PROMPT, seed, 6, (EOS,), (), letters, tuple, stop_texts=(stop,) if stop else ())
        plain = one_by_one(reference.search(task, policy, reference.total), plain_draw(SPREAD, PROMPT, policy.local))
        assert [text_of(end)] == [reference.ids(text) for text in plain]
    assert len({text_of(end) for end in ends}) > 2


@pytest.mark.long
def test_lookahead_comes_closer_with_rollouts() -> None:
    """With every token and whole rests. One rollout is biased; 24 are within twice the noise."""
    few, cheap = ends_of(lookahead(rollouts=1), 1200)
    many, dear = ends_of(lookahead(rollouts=24), 1200)
    assert distance(frequencies(many), GOAL) < 0.04 < distance(frequencies(few), GOAL)
    assert dear.generated > 10 * cheap.generated
    assert all((end.sampling_logprobs == 0).all() for end in many)


@pytest.mark.long
def test_entropy_cuts_keep_the_target() -> None:
    policy = policy_of({"name": "power", "cut": "entropy"}, scheduler={"name": "blocks", "blocks": 2, "steps": 30})
    ends, engine = chains(SPREAD, policy, 1200)
    assert distance(frequencies(ends), GOAL) < 0.035
    assert all(request.measures for request in engine.requests)
    uniform, _ = chains(SPREAD, power("at 1/alpha", steps=30), 1200)
    assert [text_of(end) for end in uniform] != [text_of(end) for end in ends]


def test_entropy_cuts_are_rejected_early_without_another_text() -> None:
    policy = policy_of({"name": "power", "cut": "entropy"}, scheduler={"name": "blocks", "blocks": 3, "steps": 6})
    early, engine = chains(SPREAD, policy, 60, 12)
    whole, deaf = chains(SPREAD, policy, 60, 12, kind=Deaf)
    assert [text_of(end) for end in early] == [text_of(end) for end in whole]
    assert [end.details["accepted"] for end in early] == [end.details["accepted"] for end in whole]
    assert sum(end.details["rejected_early"] for end in early) > 20
    assert engine.generated < deaf.generated


def test_power_without_entropy_cuts_resolves_as_before() -> None:
    """So that its ids stay."""
    assert "cut" not in power("plain").controller.resolved()
    assert policy_of({"name": "power", "cut": "entropy"}).controller.resolved()["cut"] == "entropy"
