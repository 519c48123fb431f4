"""The driver, with scripted completions: many controllers, no barriers, failures that stay where they are."""

import gc
import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from conftest import Make, Raw
from searchlens.engines.base import Completion, Request, Sampling
from searchlens.engines.transformers import TransformersEngine
from searchlens.errors import InputError, JobError
from searchlens.garbage import collect_rarely
from searchlens.plan import Generation
from searchlens.sampling._chunks import Chunk
from searchlens.sampling._job import Job
from searchlens.sampling._sample import sample
from searchlens.search import driver
from searchlens.search.driver import Admission, Failure, Outcome, Result, Trials, Usage, run, start
from searchlens.search.policy import parse
from searchlens.search.task import Call, Candidate, Search, Task


def request(*prompt: int) -> Request:
    return Request(prompt, Sampling(1.0), 0, 8, ())


def candidate(*tokens: int) -> Candidate:
    done = completion(*tokens)
    return Candidate(done.tokens, done.logprobs, done.sampling_logprobs, done.finish, 0.0)


def completion(*tokens: int) -> Completion:
    zeros = np.zeros(len(tokens), np.float32)
    return Completion(np.array(tokens, np.int32), zeros - 0.5, zeros, "stop")


class Echo:
    """Completes with the prompt: the request that was added last first, one per step. Prompts of 13 are refused."""

    vocab_size = 100
    steps = 0
    max_model_len = 100
    max_rows = 100
    repeatable = True
    groups: tuple[int, ...] = (1,)

    def __init__(self) -> None:
        self.queue: deque[tuple[int, Request]] = deque()
        self.most = 0

    def clear(self) -> None:
        assert not self.queue

    def add(self, request_id: int, request: Request) -> None:
        if request.prompt == (13,):
            raise InputError("refused")
        self.queue.append((request_id, request))
        self.most = max(self.most, len(self.queue))

    def step(self) -> list[tuple[int, Completion]]:
        request_id, asked = self.queue.pop()
        return [(request_id, completion(*asked.prompt))]

    def close(self) -> None: ...


def chain(start: int, length: int) -> Search:
    """Ask for one thing after the other."""
    seen: list[int] = []
    for i in range(length):
        (done,) = yield [request(start + i)]
        seen += done.tokens.tolist()
    return [candidate(*seen)]


def fan(start: int, width: int) -> Search:
    """Ask for many things at once."""
    done = yield [request(start + i) for i in range(width)]
    return [candidate(*one.tokens.tolist()) for one in done]


def tokens(outcome: Outcome) -> list[list[int]]:
    return [one.tokens.tolist() for one in outcome.candidates]


def test_autoregressive() -> None:
    task = Task((4, 5), 0, 8, (), (), lambda tokens: "", lambda tokens: None)
    ((key, outcome),) = run([("only", start(task, parse("temp_1.0")))], Echo())
    assert key == "only"
    (one,) = outcome.candidates
    assert (one.tokens.tolist(), one.finish, one.score) == ([4, 5], "stop", -0.5)


def test_completions_come_back_in_the_order_of_the_requests() -> None:
    ((_, outcome),) = run([(0, fan(20, 5))], Echo())
    assert tokens(outcome) == [[20], [21], [22], [23], [24]]


def test_controllers_advance_without_waiting_for_each_other() -> None:
    engine = Echo()
    outcomes = list(run([("long", chain(20, 6)), ("short", chain(40, 1)), ("wide", fan(50, 3))], engine))
    assert engine.most == 5
    assert {key: tokens(outcome) for key, outcome in outcomes} == {
        "long": [[20, 21, 22, 23, 24, 25]],
        "short": [[40]],
        "wide": [[50], [51], [52]],
    }
    assert [key for key, _ in outcomes][-1] == "long"


def test_a_failing_controller_fails_alone() -> None:
    def failing() -> Search:
        yield [request(1)]
        raise ValueError("no such branch")

    def failing_at_once() -> Search:
        raise RuntimeError("early")
        yield []

    outcomes = dict(run([(0, chain(20, 3)), (1, failing()), (2, failing_at_once()), (3, chain(30, 2))], Echo()))
    assert outcomes[1] == Failure("ValueError: no such branch", Usage(1, 1, 1, 0))
    assert outcomes[2] == Failure("RuntimeError: early")
    assert tokens(outcomes[0]) == [[20, 21, 22]]
    assert tokens(outcomes[3]) == [[30, 31]]


def test_garbage_is_looked_for_rarely_while_searches_live_and_then_as_before() -> None:
    """Also where a run fails: a caller who has set it otherwise goes on as it was."""
    seen = []

    def looking(prompt: int) -> Search:
        seen.append(gc.get_threshold())
        yield [request(prompt)]
        return []

    before = gc.get_threshold()
    try:
        gc.set_threshold(123, 4, 5)
        list(run([(0, looking(20))], Echo()))
        with pytest.raises(InputError, match="refused"):
            list(run([(0, looking(13))], Echo()))
        assert gc.get_threshold() == (123, 4, 5)
        collect_rarely()
        assert seen == [gc.get_threshold()] * 2 and gc.get_threshold()[0] > 10_000
    finally:
        gc.set_threshold(*before)


def test_asking_for_nothing_and_returning_nothing() -> None:
    def idle() -> Search:
        assert (yield []) == []
        return []

    assert list(run([(0, idle())], Echo())) == [(0, Result([], Usage()))]
    assert list(run([], Echo())) == []


def test_no_more_controllers_live_than_asked_for() -> None:
    alive, most = set(), [0]

    def counted(i: int) -> Search:
        alive.add(i)
        most[0] = max(most[0], len(alive))
        found = yield from chain(20 + i, 2)
        alive.remove(i)
        return found

    outcomes = dict(run(((i, counted(i)) for i in range(10)), Echo(), live=3))
    assert most == [3] and sorted(outcomes) == list(range(10))


def test_new_requests_are_held_until_a_group_has_gathered() -> None:
    class Waves(Echo):
        """Finishes one request per step and notes how many arrive together."""

        def __init__(self) -> None:
            super().__init__()
            self.arrivals: list[int] = []
            self.new = 0

        def add(self, request_id: int, request: Request) -> None:
            super().add(request_id, request)
            self.new += 1

        def step(self) -> list[tuple[int, Completion]]:
            self.arrivals.append(self.new)
            self.new = 0
            return super().step()

    engine = Waves()
    assert len(list(run([(i, chain(20, 3)) for i in range(80)], engine, group=4))) == 80
    arrivals = [n for n in engine.arrivals if n]
    assert (arrivals[:3], arrivals[-1]) == ([80, 4, 4], 1)  # stragglers do not wait for a group


def test_the_fastest_group_is_kept() -> None:
    """Each size is tried twice for as many steps; a machine that slows down meanwhile favours none."""
    trials = Trials((1, 16, 64))
    tried, slowdown = [trials.size], 1.0
    while not trials.is_decided:
        seconds = {1: 1.4, 16: 1.0, 64: 1.1}[trials.size] * slowdown
        slowdown += 0.01
        trials.note(4, 100, 4 * seconds)
        if tried[-1] != trials.size:
            tried.append(trials.size)
    assert tried == [1, 16, 64, 16, 1, 16]
    assert Trials((8,)).is_decided


def test_an_engine_that_gathers_nothing_itself_gets_no_more_than_it_can_run() -> None:
    """The rest waits, the earliest controllers' requests first."""
    engine = Echo()
    engine.groups, engine.max_rows = (1, 4), 3
    admission = Admission(engine)
    for i, priority in enumerate([5, 4, 3, 2, 1]):
        admission.hold(i, request(i)._replace(priority=priority))
    admission.admit()
    assert ([i for i, _ in engine.queue], admission.running) == ([4, 3, 2], 3)
    admission.admit()
    assert len(engine.queue) == 3
    admission.step()
    admission.admit()
    assert ([i for i, _ in engine.queue], admission.running) == ([4, 3, 1], 3)


def test_what_a_controller_cost() -> None:
    ((_, outcome),) = run([(0, chain(20, 3))], Echo())
    assert outcome.usage == Usage(requests=3, generated=3, prefilled=3, reused=0)


def test_calls_run_outside_and_come_back_in_their_place() -> None:
    def mixed() -> Search:
        said, done = yield [Call(lambda: "seven"), request(7)]
        assert said == "seven"
        return [candidate(*done.tokens.tolist())]

    def broken() -> Search:
        yield [Call(lambda: 1 // 0)]
        return []

    outcomes = dict(run([("mixed", mixed()), ("broken", broken())], Echo()))
    assert tokens(outcomes["mixed"]) == [[7]]
    assert isinstance(outcomes["broken"], Failure) and "ZeroDivisionError" in outcomes["broken"].reason


@pytest.mark.parametrize(
    ("asks", "limit", "usage", "reason"),
    [
        ([request(1)], "MOST_ASKS", Usage(50, 50, 50, 0), "it has asked for 51 requests; the limit is 50"),
        ([request(1)], "MOST_GENERATED", Usage(51, 51, 51, 0), "51 tokens were generated for it; the limit is 50"),
        ([Call(lambda: 1)], "MOST_ASKS", Usage(), "it has asked for 51 requests; the limit is 50"),
        ([], "MOST_ASKS", Usage(), "it has asked for 51 requests; the limit is 50"),
    ],
)
def test_an_endless_controller_is_ended(
    monkeypatch: pytest.MonkeyPatch, asks: list[Any], limit: str, usage: Usage, reason: str
) -> None:
    """Calls, and asking for nothing, cost the engine nothing, and would go on forever."""
    monkeypatch.setattr(driver, limit, 50)

    def endless() -> Search:
        while True:
            yield asks

    outcomes = dict(run([(0, endless()), (1, chain(20, 2))], Echo()))
    assert outcomes[0] == Failure(f"RuntimeError: {reason}", usage)
    assert tokens(outcomes[1]) == [[20, 21]]


def test_earlier_controllers_have_priority() -> None:
    """A straggler's next request goes before those of controllers that started later."""
    seen: list[tuple[int, int]] = []

    class Noting(Echo):
        def add(self, request_id: int, request: Request) -> None:
            seen.append((request.prompt[0], request.priority))
            super().add(request_id, request)

    list(run([(0, chain(20, 2)), (1, chain(40, 2))], Noting()))
    first, second = dict(seen)[20], dict(seen)[40]
    assert first < second and dict(seen)[21] == first


# ---- Searches from configuration to samples, on the shipped Base model: gold unseen, runs repeatable, failures told


MODEL = Path(__file__).parents[2] / "resources" / "zoo" / "micro-1m-base"
LINE = {"name": "thought", "delimiter": "\n", "max_tokens": 12}
SEARCHES: dict[str, Any] = {
    "power": {
        "local": {"temperature": 0.5},
        "controller": "power",
        "scheduler": {"name": "blocks", "blocks": 4, "steps": 2},
    },
    "tree": {"controller": "entropy_tree"},
    "masked": {"controller": "entropy_tree", "transition": {"name": "branch", "mask": "answer"}},
    "thoughts": {"controller": "thought_tree", "transition": LINE, "evaluator": "answer_agreement"},
    "mcts": {"controller": "mcts", "transition": LINE, "scheduler": {"name": "iterations", "iterations": 4}},
    "steps": {"controller": "step_beam", "transition": LINE, "evaluator": {"name": "rollout_utility", "rollouts": 1}},
    "asking": {
        "controller": {"name": "thought_tree", "width": 2},
        "transition": LINE,
        "evaluator": {"name": "self_evaluation", "right": " is", "wrong": " not", "top": 639},
    },
    "beam": {"controller": {"name": "beam", "width": 2}},
}
QUESTIONS = ("Tom has 7 eggs. Tom finds 5 more. How many eggs does Tom have now?", "What is 12+30?")


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    return TransformersEngine(MODEL, max_rows=64, threads=1)


@pytest.fixture
def job(raw: Raw, make_grid: Make, tmp_path: Path, engine: TransformersEngine) -> Callable[..., Job]:
    """A job of the searches on Base, for questions with these golds."""

    def made(golds: tuple[str, str] = ("12", "42"), policies: dict[str, Any] = SEARCHES, **settings: Any) -> Job:
        rows = [
            {"id": f"q{i}", "question": q, "gold": g} for i, (q, g) in enumerate(zip(QUESTIONS, golds, strict=True))
        ]
        (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        study = {
            **raw,
            **settings,
            "policies": raw["policies"] | policies,
            "pools": raw["pools"] | {"searches": list(policies)},
            "checkpoints": raw["checkpoints"] | {"toy-base": {"path": str(MODEL)}},
            "benchmarks": {
                "sums": {
                    "path": "asked.jsonl",
                    "grader": "math",
                    "max_tokens": 24,
                    "pool": "three",
                    "searches": "searches",
                }
            },
        }
        grid = make_grid(study)
        found = Job(grid, grid.jobs.pools("toy-base", "sums")[0], threads=1)
        found.__dict__["engine"] = engine
        return found

    return made


def searched(job: Job) -> dict[str, Generation]:
    return {g.policies[0]: g for g in job.pool.generations if g.policies[0] in SEARCHES or g.policies[0] == "judged"}


def sampled(job: Job, name: str, start: int = 0, stop: int = 4) -> pl.DataFrame:
    ((_, made),) = sample(job, [Chunk(searched(job)[name], Path(), start, stop, 0, 2)], lambda count, chunk: None)
    return made.frame


def test_searches_are_sampled_on_base_alone(job: Callable[..., Job]) -> None:
    """The RL model is compared by its default policy: nothing is searched there."""
    here = job()
    assert set(searched(here)) == set(SEARCHES)
    names = {g.policies[0] for pool in here.grid.jobs.pools("toy-rl", "sums") for g in pool.generations}
    assert not names & set(SEARCHES)
    assert searched(here)["beam"].samples == 2  # the same whatever the seed: one run is enough


@pytest.mark.parametrize("name", SEARCHES)
def test_no_search_sees_the_gold_answer(name: str, job: Callable[..., Job]) -> None:
    """With other golds the same tokens, scores and costs: text, order and evaluation know only the question."""
    stop = 2 if name == "beam" else 4
    right, wrong = (sampled(job(golds), name, stop=stop) for golds in (("12", "42"), ("9", "7")))
    assert_frame_equal(right, wrong)
    assert right.height == 2 * stop and (right["finish"] != "failed").all()


@pytest.mark.parametrize("name", ["power", "tree", "mcts"])
def test_a_run_is_the_same_in_any_company(name: str, job: Callable[..., Job]) -> None:
    """Tokens and cost of a run depend on its seed alone: a later part of the stream, sampled by itself, is the same."""
    here = job(samples=8)
    whole, part = sampled(here, name, stop=8), sampled(here, name, start=4, stop=8)
    kept = ["question", "sample", "run", "tokens", "finish", "generated", "requests"]
    assert_frame_equal(whole.filter(pl.col("sample") >= 4).select(kept), part.select(kept))


def test_costs_are_those_of_whole_runs(job: Callable[..., Job]) -> None:
    frame = sampled(job(), "tree")
    assert frame["run"].to_list() == [0] * 8
    first = frame.filter(pl.col("sample") == 0)
    assert (first["requests"] == 4).all() and frame.filter(pl.col("sample") > 0)["requests"].sum() == 0
    assert (
        first["generated"] <= frame.group_by("question", maintain_order=True).agg(pl.col("n_tokens").sum())["n_tokens"]
    ).all()


def test_acceptance_is_kept_with_every_chain(job: Callable[..., Job]) -> None:
    details = [json.loads(text) for text in sampled(job(), "power")["details"]]
    assert all(0 <= one["accepted"] <= one["proposed"] for one in details) and details[0]["proposed"] > 0


JUDGED = {
    "judged": {
        "controller": {"name": "thought_tree", "width": 2},
        "transition": LINE,
        "evaluator": {"name": "verifier", "url": "http://127.0.0.1:9/score"},
    }
}


def test_a_broken_verifier_ends_the_job_with_its_reason(job: Callable[..., Job]) -> None:
    with pytest.raises(JobError, match=r"4 searches of judged failed; sums question q0, run 0: .*127\.0\.0\.1:9"):
        sampled(job(policies=JUDGED), "judged")


def test_failed_searches_count_as_unsolved_where_that_is_allowed(job: Callable[..., Job]) -> None:
    """Every sample of a failed run is there, empty, with the reason, below every other in score."""
    frame = sampled(job(policies=JUDGED, failed_share=1.0), "judged")
    assert frame.height == 8 and (frame["finish"] == "failed").all() and (frame["text"] == "").all()
    assert (frame["score"] == float("-inf")).all()
    assert all("127.0.0.1:9" in json.loads(text)["failed"] for text in frame["details"])
