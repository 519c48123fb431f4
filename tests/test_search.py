"""The driver, with scripted completions: many controllers, no barriers, failures that stay where they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import pytest

from searchlens.engines.base import Completion, Request, Sampling
from searchlens.errors import InputError
from searchlens.search.autoregressive import autoregressive
from searchlens.search.driver import Candidate, Controller, Failure, run


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
    max_model_len = 100

    def __init__(self) -> None:
        self.queue: deque[tuple[int, Request]] = deque()
        self.most = 0

    def add(self, request_id: int, request: Request) -> None:
        if request.prompt == (13,):
            raise InputError("refused")
        self.queue.append((request_id, request))
        self.most = max(self.most, len(self.queue))

    def step(self) -> list[tuple[int, Completion]]:
        request_id, asked = self.queue.pop()
        return [(request_id, completion(*asked.prompt))]

    def close(self) -> None: ...


def chain(start: int, length: int) -> Controller:
    """Ask for one thing after the other."""
    seen: list[int] = []
    for i in range(length):
        (done,) = yield [request(start + i)]
        seen += done.tokens.tolist()
    return [candidate(*seen)]


def fan(start: int, width: int) -> Controller:
    """Ask for many things at once."""
    done = yield [request(start + i) for i in range(width)]
    return [candidate(*one.tokens.tolist()) for one in done]


def tokens(outcome: Sequence[Candidate] | Failure) -> list[list[int]]:
    assert not isinstance(outcome, Failure)
    return [one.tokens.tolist() for one in outcome]


def test_autoregressive() -> None:
    ((key, outcome),) = run([("only", autoregressive(request(4, 5)))], Echo())
    assert key == "only"
    assert not isinstance(outcome, Failure)
    (one,) = outcome
    assert (one.tokens.tolist(), one.finish, one.score) == ([4, 5], "stop", -0.5)


def test_completions_come_back_in_the_order_of_the_requests() -> None:
    """The engine answers the last request first."""
    ((_, outcome),) = run([(0, fan(20, 5))], Echo())
    assert tokens(outcome) == [[20], [21], [22], [23], [24]]


def test_controllers_advance_without_waiting_for_each_other() -> None:
    """All are queued at once; a short one ends while a long one still asks."""
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
    def failing() -> Controller:
        yield [request(1)]
        raise ValueError("no such branch")

    def failing_at_once() -> Controller:
        raise RuntimeError("early")
        yield []

    outcomes = dict(run([(0, chain(20, 3)), (1, failing()), (2, failing_at_once()), (3, chain(30, 2))], Echo()))
    assert outcomes[1] == Failure("ValueError: no such branch")
    assert outcomes[2] == Failure("RuntimeError: early")
    assert tokens(outcomes[0]) == [[20, 21, 22]]
    assert tokens(outcomes[3]) == [[30, 31]]


def test_refused_request_ends_the_run() -> None:
    """Wrong input is the user's to mend, not one sample's bad luck."""
    with pytest.raises(InputError, match="refused"):
        list(run([(0, chain(20, 2)), (1, chain(13, 1))], Echo()))


def test_asking_for_nothing_and_returning_nothing() -> None:
    def idle() -> Controller:
        assert (yield []) == []
        return []

    assert list(run([(0, idle())], Echo())) == [(0, [])]
    assert list(run([], Echo())) == []
