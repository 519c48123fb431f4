"""Evaluators: values worked out by hand, rollouts where they are needed, verifiers that fail with their reason."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest

from searchlens import components, policies
from searchlens.engines.base import Completion, FinishReason, Request, Sampling
from searchlens.equivalence.explicit import EOS, Model, ToyEngine
from searchlens.policies import Part
from searchlens.search.driver import Failure, run
from searchlens.search.evaluators import HttpScorer, Verifier, evaluator
from searchlens.search.task import EMPTY, Ask, Call, Controller, Evaluator, Scoring, Task, Trace

LOCAL = Sampling(0.7, top_p=0.9)
KEY = ("level", 3)


def answer(tokens: Sequence[int]) -> Hashable | None:
    """The token before the end; a text that did not end has none."""
    return tokens[-2] if len(tokens) > 1 and tokens[-1] == EOS else None


def words(tokens: Sequence[int]) -> str:
    return " ".join(str(token) for token in tokens)


TASK = Task((3, 2), 11, 6, (EOS,), (1,), words, answer)


def trace(tokens: list[int], logprobs: list[float], finish: FinishReason | None = None) -> Trace:
    return Trace(
        np.array(tokens, np.int32),
        np.array(logprobs, np.float32),
        np.array(logprobs, np.float32),
        np.array(logprobs, np.float32) * -4,
        finish,
    )


PATHS = [
    trace([3, 1], [-0.25, -0.75]),
    trace([2, EOS], [-0.5, -1.5], "stop"),
    trace([3, 3, 2, 2, 2, 2], [-0.5] * 6, "length"),
    EMPTY,
]


def ended(tokens: list[int], logprobs: list[float]) -> Completion:
    values = np.array(logprobs, np.float32)
    return Completion(np.array(tokens, np.int32), values, values, "stop" if tokens[-1] == EOS else "length")


def score(scoring: Scoring, reply: Callable[[list[Ask]], list[Any]]) -> list[float]:
    """What an evaluator says when its asks are answered by `reply`."""
    try:
        asks = next(scoring)
        while True:
            asks = scoring.send(reply(asks))
    except StopIteration as end:
        return list(end.value)


def asks_nothing(asks: list[Ask]) -> list[Any]:
    raise AssertionError(asks)


def build(name: str, **parameters: float | str) -> Evaluator:
    """As a configuration would have it."""
    spec = {"controller": "thought_tree", "evaluator": {"name": name, **parameters}}
    return evaluator(policies.from_spec("mine", spec).evaluator)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sequence_logprob", [-1.0, -2.0, -3.0, 0.0]),
        ("mean_logprob", [-0.5, -1.0, -0.5, 0.0]),
        ("self_certainty", [2.0, 4.0, 2.0, 0.0]),
    ],
)
def test_likelihoods(name: str, values: list[float]) -> None:
    """The empty path scores 0 by each of them."""
    assert score(build(name)(TASK, PATHS, LOCAL, KEY), asks_nothing) == values


def test_likelihoods_sum_in_double_precision() -> None:
    """A sum in float32 would stop growing."""
    long = Trace(*[np.full(200_000, -1e-3, np.float32)] * 3, finish="stop")
    (total,) = score(build("sequence_logprob")(TASK, [long], LOCAL, KEY), asks_nothing)
    assert total == pytest.approx(200_000 * float(np.float32(-1e-3)), rel=1e-12)


def test_self_certainty_needs_measures() -> None:
    """It says so to the controller, and fails rather than guesses where they are missing."""
    assert [name for name in components.EVALUATORS if name != "verifier" and build(name).measures] == ["self_certainty"]
    bare = Trace(*[np.zeros(1, np.float32)] * 3)
    with pytest.raises(ValueError, match="drawn with measures"):
        score(build("self_certainty")(TASK, [bare], LOCAL, KEY), asks_nothing)


def test_every_registered_evaluator_exists() -> None:
    for name in components.EVALUATORS:
        extra = {"url": "http://localhost:1"} if name == "verifier" else {}
        assert callable(build(name, **extra))
    with pytest.raises(ValueError, match="no evaluator 'oracle'"):
        evaluator(Part("oracle"))


def test_rollout_utility() -> None:
    """exp(mean log p) of whole texts with an answer, 0 for those without; a finished path needs no rollout."""
    replies = [
        ended([2, EOS], [-1.0, -2.0]),  # after 3 1: mean of -0.25 -0.75 -1 -2
        ended([2, 2, 2, 2], [-1.0] * 4),  # no answer
        ended([3, EOS], [-0.2, -0.4]),  # after nothing
        ended([EOS], [-0.1]),  # no answer
    ]
    asked: list[Ask] = []

    def reply(asks: list[Ask]) -> list[Any]:
        asked.extend(asks)
        return replies

    found = score(build("rollout_utility", rollouts=2)(TASK, PATHS, LOCAL, KEY), reply)
    assert found == pytest.approx([math.exp(-1.0) / 2, math.exp(-1.0), 0.0, math.exp(-0.3) / 2])
    assert [(one.prompt, one.prefix, one.max_tokens, one.stop_ids) for one in asked if isinstance(one, Request)] == [
        (TASK.prompt, (3, 1), 4, (EOS,)),
        (TASK.prompt, (3, 1), 4, (EOS,)),
        (TASK.prompt, (), 6, (EOS,)),
        (TASK.prompt, (), 6, (EOS,)),
    ]


@pytest.mark.parametrize("name", ["rollout_utility", "answer_agreement"])
def test_rollouts_are_drawn_by_the_local_policy_with_seeds_of_their_own(name: str) -> None:
    """Another place in the search draws others; the same place the same."""
    seen: list[Request] = []

    def reply(asks: list[Ask]) -> list[Any]:
        requests = [one for one in asks if isinstance(one, Request)]
        seen.extend(requests)
        return [ended([2, EOS], [-1.0, -1.0])] * len(requests)

    for key in (KEY, ("level", 4), KEY):
        score(build(name, rollouts=3)(TASK, [EMPTY, EMPTY], LOCAL, key), reply)
    seeds = [one.seed for one in seen]
    assert len(set(seeds[:12])) == 12
    assert seeds[12:] == seeds[:6]
    assert {one.sampling for one in seen} == {LOCAL}


def test_answer_agreement() -> None:
    """By hand: shares {2: 1/2, 3: 1/4}, {2: 1}, {}, {3: 1}; each of four paths has one voice."""
    replies = [
        *[ended([2, EOS], [-1.0, -1.0])] * 2,  # the path 3 1 says 2, 2, 3 and nothing
        ended([3, EOS], [-1.0, -1.0]),
        ended([2] * 4, [-1.0] * 4),
        *[ended([3, EOS], [-1.0, -1.0])] * 4,  # the empty path always says 3
    ]
    found = score(build("answer_agreement", rollouts=4)(TASK, PATHS, LOCAL, KEY), lambda _: replies)
    says_2, says_3 = (1 / 2 + 1) / 4, (1 / 4 + 1) / 4
    assert found == pytest.approx([says_2 / 2 + says_3 / 4, says_2, 0.0, says_3])


def test_answer_agreement_of_finished_paths_is_their_share_of_the_vote() -> None:
    """Votes 2, 3, 2, none: no request is made, and the path without an answer agrees not even with itself."""
    paths = [trace([*before, EOS], [-1.0] * (len(before) + 1), "stop") for before in ([2], [3], [1, 2], [])]
    scoring = build("answer_agreement", rollouts=4)(TASK, paths, LOCAL, KEY)
    assert score(scoring, lambda asks: asks) == [0.5, 0.25, 0.5, 0.0]


def test_rollouts_of_a_model_have_the_utility_that_enumeration_gives() -> None:
    """The mean of many rollouts is the expectation over the texts that the local policy can draw."""
    from searchlens.equivalence.explicit import PLAIN, enumerate_texts

    model = Model.random(5, vocab_size=4)
    path = trace([3], [float(model.logprobs[3, 2, 3])])

    def utility(text: tuple[int, ...]) -> float:
        context = (*TASK.prompt, *text)
        logprobs = [model.logprobs[context[i], context[i + 1], context[i + 2]] for i in range(len(text))]
        return math.exp(np.mean(logprobs)) if answer(text) is not None else 0.0

    texts = enumerate_texts(model, (*TASK.prompt, 3), TASK.max_tokens - 1)
    expected = sum(p * utility((3, *text)) for text, p in texts.items())

    def scored() -> Controller:
        found.extend((yield from build("rollout_utility", rollouts=4_000)(TASK, [path], PLAIN, KEY)))
        return []

    found: list[float] = []
    list(run([(0, scored())], ToyEngine(model)))
    spread = math.sqrt(sum(p * (utility((3, *text)) - expected) ** 2 for text, p in texts.items()) / 4_000)
    assert found == [pytest.approx(expected, abs=4 * spread)]


@pytest.fixture
def server() -> Iterator[Callable[..., str]]:
    """A scorer that replies as told; what it was sent is in the list that is given."""
    servers: list[HTTPServer] = []
    release = threading.Event()

    def start(body: bytes, status: int = 200, heard: list[Any] | None = None, silent: bool = False) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"]))
                if heard is not None:
                    heard.append(json.loads(text))
                if silent:
                    release.wait(10)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    release.set()
    for one in servers:
        one.shutdown()
        one.server_close()


def outcome(scorer: Evaluator, found: list[float]) -> Any:
    """What the driver makes of a controller that asks for nothing but scores of the four paths."""

    def controller() -> Controller:
        found.extend((yield from scorer(TASK, PATHS, LOCAL, KEY)))
        return []

    ((_, result),) = run([(0, controller())], ToyEngine(Model.random(0)))
    return result


def test_verifier_over_http_sees_question_and_texts_alone(server: Callable[..., str]) -> None:
    """No gold answer goes out: there is none in a task."""
    heard: list[Any] = []
    url = server(b'{"scores": [1, 0.5, -2, 0], "model": "any"}', heard=heard)
    found: list[float] = []
    outcome(build("verifier", url=url), found)
    assert found == [1.0, 0.5, -2.0, 0.0]
    assert heard == [{"prompt": "3 2", "texts": ["3 1", "2 0", "3 3 2 2 2 2", ""]}]
    known = {"prompt", "seed", "max_tokens", "stop_ids", "step_ids", "decode", "answer", "check_every", "length"}
    assert {field.name for field in fields(Task)} == known


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b'{"scores": [1, 2]}', 200, "returned 2 scores for 4 texts"),
        (b'{"scores": [1, 2, 3, NaN]}', 200, "returned a score of nan, not a finite number"),
        (b'{"scores": [1, 2, 3, Infinity]}', 200, "returned a score of inf, not a finite number"),
        (b'{"scores": [1, 2, 3, "4"]}', 200, "returned a score of '4', not a finite number"),
        (b'{"scores": [1, 2, 3, null]}', 200, "returned a score of None, not a finite number"),
        (b'{"scores": 4}', 200, "returned 4, not a list of scores"),
        (b'{"score": [1, 2, 3, 4]}', 200, "not JSON of the form"),
        (b"[1, 2, 3, 4]", 200, "not JSON of the form"),
        (b"<html>", 200, "replied '<html>', not JSON of the form"),
        (b"", 503, "failed: HTTP Error 503"),
    ],
)
def test_verifier_that_fails_gives_its_reason(
    server: Callable[..., str], body: bytes, status: int, reason: str
) -> None:
    """The sample fails, not the run."""
    url = server(body, status)
    failed = outcome(build("verifier", url=url), [])
    assert isinstance(failed, Failure)
    assert url in failed.reason
    assert reason in failed.reason


def test_verifier_that_is_silent_or_gone(server: Callable[..., str]) -> None:
    url = server(b"{}", silent=True)
    failed = outcome(Verifier(HttpScorer(url, timeout=0.05), url), [])
    assert failed.reason == f"RuntimeError: verifier {url} did not reply within 0.05 s"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        failed = outcome(build("verifier", url=url), [])
    assert f"verifier {url} failed" in failed.reason


def test_verifier_can_be_a_function() -> None:
    """It runs as a call of the driver, never inside the controller; verdicts and numpy numbers are numbers."""
    mine = Verifier(lambda prompt, texts: np.array([len(prompt) + len(text) for text in texts]), "length")
    scoring = mine(TASK, PATHS, LOCAL, KEY)
    (call,) = next(scoring)
    assert isinstance(call, Call)
    found: list[float] = []
    outcome(mine, found)
    assert found == [6.0, 6.0, 14.0, 3.0]
    verdicts = Verifier(lambda _, texts: [text.endswith("0") for text in texts], "ends")
    assert score(verdicts(TASK, PATHS, LOCAL, KEY), lambda asks: [asks[0].function()]) == [0, 1, 0, 0]  # type: ignore[union-attr]

    def broken(prompt: str, texts: Sequence[str]) -> list[float]:
        raise KeyError("no weights")

    assert outcome(Verifier(broken, "broken"), []).reason == "KeyError: 'no weights'"
