"""Power sampling on a language model small enough to enumerate: exact laws, a plain second implementation, costs."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chisquare

from plain_draws import one_by_one, plain_draw
from searchlens.engines.base import Completion, Request, Sampling
from searchlens.search.components import Blocks, Component
from searchlens.search.driver import Result, run, start
from searchlens.search.policy import Policy, from_spec
from searchlens.search.power import PowerSampling
from searchlens.search.task import Candidate, Scoring, Task, Trace, ended
from searchlens_lab.equivalence import reference
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel, distribution, enumerate_texts

Text = tuple[int, ...]
Law = dict[Text, float]
Weights = list[float]
PROMPT = (1, 2)
LIMIT = 4
SAMPLERS: dict[str, Callable[[float], Sampling]] = {
    "at 1/alpha": lambda alpha: Sampling(1 / alpha),
    "plain": lambda _: Sampling(1.0),
    "top-p": lambda _: Sampling(0.5, top_p=0.85),
}
# Chosen among random ones: the target is far from every sampler and spread over lengths 2 to 4; and one whose law of
# answers, which end at a stop text, is far from that of whole texts.
SPREAD = ToyModel.random(19, vocab_size=3, scale=1.5, eos=-0.5)
STOPPING = ToyModel.random(18, vocab_size=3, scale=0.7)


def power(sampler: str, mode: str = "exact", alpha: float = 2.0, blocks: int = 2, steps: int = 10) -> Policy:
    parts = {
        "controller": {"name": "power", "alpha": alpha, "mode": mode},
        "scheduler": {"name": "blocks", "blocks": blocks, "steps": steps},
    }
    return replace(from_spec("a search", parts), local=SAMPLERS[sampler](alpha))


class Total:
    """Scores by the summed log-probability."""

    measures = False
    compares = False

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        return [float(trace.logprobs.sum()) for trace in traces]
        yield []


def letters(text: Sequence[int]) -> str:
    return "".join("$ab"[token] for token in text)


def stopped(stop: str) -> Callable[[Text], bool]:
    return lambda text: bool(stop) and stop in letters(text)


def chains(
    model: ToyModel,
    policy: Policy,
    count: int,
    limit: int = LIMIT,
    stop_ids: Text = (EOS,),
    stop: str = "",
    check_every: int = 0,
    kind: type[ToyEngine] = ToyEngine,
) -> tuple[list[Candidate], ToyEngine]:
    """Where many chains end, in the order of their seeds; and the engine that they ran on."""
    engine, stops = kind(model), (stop,) if stop else ()
    tasks = [Task(PROMPT, seed, limit, stop_ids, (), letters, tuple, check_every, stops) for seed in range(count)]
    searches = ((task.seed, ended(task, policy.controller.search(task, policy, Total()))) for task in tasks)
    ends: dict[int, Candidate] = {}
    for seed, outcome in run(searches, engine):
        assert isinstance(outcome, Result), outcome
        (ends[seed],) = outcome.candidates
    return [ends[task.seed] for task in tasks], engine


def text_of(end: Candidate) -> Text:
    return tuple(end.tokens.tolist())


def frequencies(ends: Sequence[Candidate]) -> Law:
    return {text: count / len(ends) for text, count in Counter(map(text_of, ends)).items()}


def distance(one: Law, other: Law) -> float:
    """Total variation."""
    return 0.5 * sum(abs(one.get(text, 0) - other.get(text, 0)) for text in {*one, *other})


def noise(law: Law, count: int) -> float:
    """Expected total variation between a law and `count` draws from it, each frequency taken as normal."""
    return 0.5 * sum(math.sqrt(2 * p * (1 - p) / (math.pi * count)) for p in law.values())


def target(model: ToyModel, policy: Policy, limit: int = LIMIT, stop_ids: Text = (EOS,), stop: str = "") -> Law:
    """p^alpha over the texts that the local policy can draw."""
    p = enumerate_texts(model, PROMPT, limit, stop_ids, stopped=stopped(stop))
    drawn = enumerate_texts(model, PROMPT, limit, stop_ids, policy.local, stopped(stop))
    weight = {text: p[text] ** policy.component(PowerSampling).alpha for text in drawn}
    return {text: weight[text] / sum(weight.values()) for text in weight}


def weights(model: ToyModel, policy: Policy, text: Text) -> Weights:
    """alpha log p - log q of each token."""
    result = []
    for place, token in enumerate(text):
        logits = model.next((*PROMPT, *text[:place])).astype(np.float64)
        p = np.exp(logits[token]) / np.exp(logits).sum()
        q = distribution(logits, policy.local, PROMPT, text[:place])[token]
        result.append(float(policy.component(PowerSampling).alpha * np.log(p) - np.log(q)))
    return result


def acceptance(old: Weights, new: Weights, cut: int, mode: str) -> float:
    """Chance to go from one text to another that differs from `cut` on, given the weights of their tokens."""
    if mode == "reference":
        return min(1.0, math.exp(sum(new[cut:]) - sum(old[cut : len(new)])))
    return min(1.0, math.exp(sum(new[cut:]) - sum(old[cut:])) * len(old) / len(new))


def transitions(
    model: ToyModel, policy: Policy, texts: Sequence[Text], rest: Callable[[Text, int], Law]
) -> npt.NDArray[np.float64]:
    """Chances of one step of a block; ``rest`` has the law of proposals after a beginning, given the present length."""
    number = {text: i for i, text in enumerate(texts)}
    weight = [weights(model, policy, text) for text in texts]
    kernel = np.zeros((len(texts), len(texts)))
    for i, old in enumerate(texts):
        for cut in range(len(old)):
            for new, q in rest(old[:cut], len(old)).items():
                accepted = acceptance(weight[i], weight[number[new]], cut, policy.component(PowerSampling).mode)
                kernel[i, number[new]] += q * accepted / len(old)
                kernel[i, i] += q * (1 - accepted) / len(old)
    return kernel


def exact_law(model: ToyModel, policy: Policy, stop: str = "") -> Law:
    """Law of the text that a chain of two blocks ends with, by summing over all that can happen."""
    steps, exact = policy.component(Blocks).steps, policy.component(PowerSampling).mode == "exact"
    has_stop = stopped(stop)

    def rest(start: Text, most: int) -> Law:
        drawn = enumerate_texts(
            model, (*PROMPT, *start), most - len(start), (EOS,), policy.local, lambda text: has_stop((*start, *text))
        )
        return {(*start, *suffix): q for suffix, q in drawn.items()}

    def after_steps(law: Law, most: int) -> Law:
        texts = sorted({text for n in range(1, most + 1) for text in rest((), n)})
        kernel = transitions(model, policy, texts, lambda start, longest: rest(start, most if exact else longest))
        start = np.array([law.get(text, 0.0) for text in texts])
        return dict(zip(texts, start @ np.linalg.matrix_power(kernel, steps), strict=True))

    size = LIMIT // 2
    first = after_steps(rest((), size), size)
    over = {text: chance for text, chance in first.items() if text[-1] == EOS or has_stop(text)}
    begun: Law = defaultdict(float)
    for text in first.keys() - over:
        for longer, q in rest(text, len(text) + size).items():
            begun[longer] += first[text] * q
    if exact:
        return after_steps({**begun, **over}, LIMIT)
    second = after_steps(begun, LIMIT)
    return {**second, **{text: second[text] + chance for text, chance in over.items()}}


@pytest.mark.parametrize("stop", ["", "ba"])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("mode", ["exact", "reference"])
def test_chains_follow_the_law_of_their_procedure(mode: str, sampler: str, stop: str) -> None:
    """After few steps, so that the law still shows where a chain began; chi-square, rare texts in one cell."""
    policy = power(sampler, mode, steps=3)
    ends, _ = chains(SPREAD, policy, 800, stop=stop)
    law = exact_law(SPREAD, policy, stop)
    counts = Counter(map(text_of, ends))
    assert counts.keys() <= {text for text, chance in law.items() if chance > 0}
    often = sorted((text for text in law if law[text] * len(ends) >= 5), key=law.__getitem__)
    assert len(often) >= (4 if stop else 5)
    cells = often[1:]
    rare = law.keys() - cells
    observed = [*(counts[text] for text in cells), sum(counts[text] for text in rare)]
    expected = [*(len(ends) * law[text] for text in cells), len(ends) * sum(law[text] for text in rare)]
    assert chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_exact_tends_to_the_target_and_reference_away(sampler: str) -> None:
    """No noise here: laws after 40 and 2000 steps per block, where texts end at every length."""
    goal = target(SPREAD, power(sampler))
    assert distance(enumerate_texts(SPREAD, PROMPT, LIMIT, sampling=power(sampler).local), goal) > 0.1
    assert distance(exact_law(SPREAD, power(sampler, steps=40)), goal) < 1e-4
    biased = [distance(exact_law(SPREAD, power(sampler, "reference", steps=steps)), goal) for steps in (40, 2000)]
    assert 0.3 < biased[0] < biased[1]


@pytest.mark.parametrize("stop", ["a", "b", "ba"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_exact_tends_to_the_target_over_texts_that_end_at_a_stop_text(sampler: str, stop: str) -> None:
    """No noise here. The chain over longer texts, cut afterwards, has another law."""
    policy = power(sampler, steps=40)
    goal = target(SPREAD, policy, stop=stop)
    assert sum(chance for text, chance in goal.items() if stopped(stop)(text)) > 0.05
    assert distance(exact_law(SPREAD, policy, stop), goal) < 1e-4


@pytest.mark.parametrize(("alpha", "check_every"), [(2.0, 0), (4.0, 1)])
def test_the_answers_of_exact_chains_have_the_target_law(alpha: float, check_every: int) -> None:
    """3000 chains are 0.005 from p^alpha over answers by chance alone; texts that are cut afterwards are far away."""
    policy = power("at 1/alpha", alpha=alpha, steps=3)
    goal = target(STOPPING, policy, stop="b")
    ends, _ = chains(STOPPING, policy, 3000, stop="b", check_every=check_every)
    assert noise(goal, len(ends)) < 0.006
    assert distance(frequencies(ends), goal) <= 0.01
    cut: Law = defaultdict(float)
    for text, chance in target(STOPPING, policy).items():
        cut[text[: text.index(2) + 1] if 2 in text else text] += chance
    assert distance(cut, goal) > 0.25


@pytest.mark.parametrize("stop", ["", "ba"])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("mode", ["exact", "reference"])
@pytest.mark.parametrize(("limit", "blocks", "steps"), [(4, 2, 5), (7, 3, 4), (5, 4, 3), (5, 1, 6), (6, 2, 0)])
def test_same_tokens_as_one_chain_at_a_time(
    limit: int, blocks: int, steps: int, mode: str, sampler: str, stop: str
) -> None:
    policy = power(sampler, mode, blocks=blocks, steps=steps)
    ends, _ = chains(SPREAD, policy, 20, limit, stop=stop)
    for seed, end in enumerate(ends):
        task = Task(PROMPT, seed, limit, (EOS,), (), letters, tuple, stop_texts=(stop,) if stop else ())
        plain = plain_draw(SPREAD, PROMPT, policy.local)
        text, accepted = one_by_one(reference.chain(task, policy), plain)
        assert (text_of(end), end.details["accepted"]) == (reference.ids(text), accepted)
        assert end.finish == ("stop" if end.tokens[-1] == EOS or stopped(stop)(text_of(end)) else "length")


class Deaf(ToyEngine):
    """Ignores floors, which an engine may; remembers every request with one, and what was drawn for it."""

    def _run(self, requests: Sequence[Request]) -> list[Completion]:
        whole = super()._run([request._replace(floor=None) for request in requests])
        self.bounded = [*getattr(self, "bounded", ()), *zip(requests, whole, strict=True)]
        return whole


@pytest.mark.parametrize(("stop", "check_every"), [("", 0), ("ba", 0), ("ba", 2), ("ba", 1)])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("mode", ["exact", "reference"])
@pytest.mark.long
def test_early_rejection_changes_no_text(mode: str, sampler: str, stop: str, check_every: int) -> None:
    """The same texts and decisions from fewer tokens; and of whole texts all that is known to fail before its end is
    caught at its first token that tells, and no other. What can be known is told from weights of the model itself."""
    policy, limit = power(sampler, mode, alpha=3.0, blocks=3, steps=6), 12
    early, engine = chains(SPREAD, policy, 60, limit, stop=stop, check_every=check_every)
    deaf_ends, deaf = chains(SPREAD, policy, 60, limit, stop=stop, check_every=check_every, kind=Deaf)
    assert isinstance(deaf, Deaf) and [text_of(end) for end in deaf_ends] == [text_of(end) for end in early]
    for one, other in zip(early, deaf_ends, strict=True):
        cost = ("rejected_early", "proposal_tokens")
        assert all(one.details[key] == other.details[key] for key in one.details if key not in cost)
        assert one.details["rejected_early"] <= one.details["proposed"] - one.details["accepted"]
        assert one.details["proposal_tokens"] <= other.details["proposal_tokens"]
    if check_every == 1:  # every token is looked at: nothing is left that only the engine could save
        assert engine.generated == deaf.generated and sum(end.details["rejected_early"] for end in early) > 5
        return
    assert engine.generated < deaf.generated
    if stop:
        return
    known = saved = 0
    for request, drawn in deaf.bounded:
        if request.floor is not None:
            text = (*request.prefix, *drawn.tokens.tolist())
            level = np.cumsum(weights(SPREAD, policy, text)[len(request.prefix) :])
            if mode == "exact":
                level -= np.log(np.arange(len(request.prefix), len(text)) + 1)
            low = np.flatnonzero(level[:-1] <= request.floor.bound)
            known += bool(low.size)
            saved += len(level) - 1 - int(low[0]) if low.size else 0
    assert known == sum(end.details["rejected_early"] for end in early) > 5
    assert deaf.generated - engine.generated == saved


@pytest.mark.parametrize(
    ("local", "alpha"),
    [
        (Sampling(0.4), 2.0),  # alpha < 1 / T
        (Sampling(1.5), 4.0),
        (Sampling(0.5, repetition_penalty=1.1), 2.0),
        (Sampling(0.5, frequency_penalty=0.1), 2.0),
        (Sampling(0.5, presence_penalty=-0.1), 2.0),
    ],
)
def test_nothing_is_rejected_early_where_weights_can_rise(local: Sampling, alpha: float) -> None:
    """There a bad beginning says nothing of the end, so no request has a floor."""
    policy = replace(power("plain", alpha=alpha, blocks=2, steps=5), local=local)
    ends, engine = chains(SPREAD, policy, 30, 6)
    assert all(request.floor is None for request in engine.requests)
    assert sum(end.details["rejected_early"] for end in ends) == 0


def test_tokens_drawn() -> None:
    """On average T + N (T (K + 1) / 4 + K / 2) where nothing is rejected early: a cut leaves 1 to L_k tokens, each
    equally often."""
    blocks, steps, length, count = 4, 5, 3, 200
    limit = blocks * length
    _, engine = chains(SPREAD, power("plain", blocks=blocks, steps=steps), count, limit, (), kind=Deaf)
    expected = limit + steps * (limit * (blocks + 1) / 4 + blocks / 2)
    variance = steps * sum(((k * length) ** 2 - 1) / 12 for k in range(1, blocks + 1))
    assert abs(engine.generated / count - expected) < 3 * math.sqrt(variance / count)
    assert engine.generated == sum(request.max_tokens for request in engine.requests)


def test_what_ended_goes_to_the_last_block() -> None:
    """A text that always ends at once is drawn once, and proposed for in the first block and in the last."""
    certain = ToyModel.random(0, vocab_size=3, eos=50.0)
    (end,), engine = chains(certain, power("plain", blocks=8, steps=3), 1, 16)
    assert [request.max_tokens for request in engine.requests] == [2] * 4 + [16] * 3
    details = {
        "proposed": 6,
        "accepted": 6,
        "changed": 0,
        "rejected_early": 0,
        "proposal_tokens": 1.0,
        "chain_states": 2,
    }
    still = [f"{what}_{when}" for what in ("log_weight", "logp") for when in ("before", "half", "after")]
    still += ["chain_mean", "chain_variance"]
    assert (text_of(end), end.details) == ((EOS,), details | dict.fromkeys(still, pytest.approx(0.0, abs=1e-9)))
    (_,), engine = chains(certain, power("plain", "reference", blocks=8, steps=3), 1, 16)
    assert [request.max_tokens for request in engine.requests] == [2, 1, 1, 1]


def test_score_is_the_evaluators() -> None:
    task = Task(PROMPT, 5, 6, (EOS,), (), decode=str, answer=tuple)
    certain = replace(power("plain"), evaluator=Component("self_certainty"))
    for policy in (power("plain"), certain):
        ((_, outcome),) = run([(0, start(task, policy))], ToyEngine(SPREAD))
        (end,) = outcome.candidates
        context = (*PROMPT, *text_of(end))
        log_p = np.array([SPREAD.logprobs[context[i : i + 2]] for i in range(len(end.tokens))])
        expected = end.logprobs.sum() if policy is not certain else np.mean(-np.log(3) - log_p.mean(1))
        assert end.score == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("mode", ["exact", "reference"])
def test_a_ratio_that_is_not_a_number_fails_the_sample(mode: str) -> None:
    """It is never accepted, whatever arithmetic says of comparisons with it."""

    class Broken(ToyEngine):
        def _run(self, requests: Sequence[Request]) -> list[Completion]:
            return [reply._replace(sampling_logprobs=reply.logprobs * np.nan) for reply in super()._run(requests)]

    task = Task(PROMPT, 5, 6, (EOS,), (), decode=str, answer=tuple)
    ((_, outcome),) = run([(0, start(task, power("plain", mode)))], Broken(SPREAD))
    assert outcome.reason == "ValueError: the acceptance ratio of a proposal is not a number"


# ---- Other samplers of p^alpha: laws, costs, and what they refuse


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
