"""Evaluators: values worked out by hand, rollouts where they are needed, verifiers that fail with their reason."""

import json
import math
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest

from searchlens.engines.base import Completion, FinishReason, Request, Sampling
from searchlens.errors import InputError
from searchlens.search import components
from searchlens.search.driver import Failure, run
from searchlens.search.evaluators import HttpScorer, Verifier, evaluator
from searchlens.search.policy import from_spec
from searchlens.search.task import EMPTY, Ask, Call, Evaluator, Scoring, Search, Task, Trace
from searchlens_lab.equivalence import reference
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel
from toy_searches import answer, assert_plain

LOCAL = Sampling(0.7, top_p=0.9)
KEY = ("level", 3)


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
    return evaluator(from_spec("mine", spec).evaluator)


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
    long = Trace(*[np.full(200_000, -1e-3, np.float32)] * 3, finish="stop")
    (total,) = score(build("sequence_logprob")(TASK, [long], LOCAL, KEY), asks_nothing)
    assert total == pytest.approx(200_000 * float(np.float32(-1e-3)), rel=1e-12)


def test_self_certainty_needs_measures() -> None:
    """It says so to the controller, and fails rather than guesses where they are missing."""
    assert [name for name in components.EVALUATORS if name != "verifier" and build(name).measures] == ["self_certainty"]
    bare = Trace(*[np.zeros(1, np.float32)] * 3)
    with pytest.raises(ValueError, match="drawn with measures"):
        score(build("self_certainty")(TASK, [bare], LOCAL, KEY), asks_nothing)


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


def test_paths_that_agree_equally_have_equal_scores_to_the_last_digit() -> None:
    """The same answers in another order, which rounding would tell apart; a search takes the better of two paths."""
    said = [2, 3, 3, 1, 1, 1, 1, 1, 1, 1]
    orders = (said, said[::-1], said[3:] + said[:3])
    replies = [ended([token, EOS], [-1.0, -1.0]) for order in orders for token in order]
    found = score(build("answer_agreement", rollouts=10)(TASK, [EMPTY] * 3, LOCAL, KEY), lambda _: replies)
    assert found == [0.54] * 3


def ids(text: str) -> tuple[int, ...]:
    """The inverse of `words`."""
    return tuple(map(int, text.split()))


ASKED = TASK._replace(max_tokens=10, encode=ids)
QUESTION: dict[str, Any] = {"question": "2 4", "right": "5", "wrong": "3"}


def opinion(logprobs: dict[int, float]) -> Completion:
    """One token and the most likely ones at its place."""
    zero = np.zeros(1, np.float32)
    likely = np.array([list(logprobs.values())], np.float32)
    return Completion(
        np.ones(1, np.int32), zero, zero, "length", top_tokens=np.array([list(logprobs)]), top_logprobs=likely
    )


def test_self_evaluation() -> None:
    """p(right) / (p(right) + p(wrong)) by hand; an answer that is not listed is as likely as the last that is."""
    replies = [
        opinion({5: math.log(0.6), 1: math.log(0.2), 3: math.log(0.15)}),
        opinion({1: math.log(0.5), 3: math.log(0.4), 2: math.log(0.1)}),
        opinion({1: math.log(0.5), 4: math.log(0.4), 2: math.log(0.1)}),
        opinion({3: math.log(0.9), 5: -math.inf, 1: -math.inf}),
    ]
    asked: list[Ask] = []

    def reply(asks: list[Ask]) -> list[Any]:
        asked.extend(asks)
        return replies

    found = score(build("self_evaluation", **QUESTION, top=3)(ASKED, PATHS, LOCAL, KEY), reply)
    assert found == pytest.approx([0.6 / 0.75, 0.1 / 0.5, 0.5, 0.0])
    requests = [one for one in asked if isinstance(one, Request)]
    assert [one.prefix for one in requests] == [(3, 1, 2, 4), (2, 2, 4), (3, 3, 2, 2, 2, 2, 2, 4), (2, 4)]
    assert {(one.prompt, one.max_tokens, one.top) for one in requests} == {((3, 2), 1, 3)}
    assert {one.sampling for one in requests} == {Sampling(1.0)}  # no filter, no penalty of the local policy
    assert len({one.seed for one in requests}) == 4


@pytest.mark.parametrize(
    "controller",
    [
        {"name": "thought_tree", "width": 3, "children": 3},
        {"name": "step_beam", "width": 4, "expand": 2},
        {"name": "step_beam", "width": 4, "expand": 2, "diverse": "yes"},
        {"name": "mcts", "select": "uct", "children": 2},
    ],
)
def test_searches_by_self_evaluation_are_those_of_a_plain_implementation(controller: dict[str, Any]) -> None:
    """Token-identical under the same draws; the score in the reference is looked up in the model's table."""
    model = ToyModel.random(3, vocab_size=6, eos=-0.5)
    spec = {
        "controller": controller,
        "evaluator": {"name": "self_evaluation", **QUESTION, "question": "4"},
        "transition": {"name": "thought", "max_tokens": 3},
        "scheduler": {"name": "iterations", "iterations": 5} if controller["name"] == "mcts" else "breadth_first",
    }
    mine = from_spec("mine", spec)

    def judged(text: reference.Text) -> float:
        tokens = [*ASKED.prompt, *(token for token in reference.ids(text) if token != EOS)]
        p = np.exp(model.logprobs[tokens[-1], 4])
        return round(float(p[5] / (p[5] + p[3])), 5)  # texts that end alike tie, as in the search

    assert_plain(mine, model, [ASKED._replace(seed=seed) for seed in range(8)], judged)


@pytest.mark.parametrize(
    ("controller", "says"),
    [
        *((name, "the evaluator mean_logprob gave scores [nan") for name in ("thought_tree", "step_beam", "mcts")),
        *((name, "the evaluator scored a path nan") for name in ("entropy_tree", "power")),
    ],
)
def test_a_score_that_is_no_number_fails_the_sample_with_its_reason(controller: str, says: str) -> None:
    def lost(_: Task, paths: Sequence[Trace], *__: Any) -> Scoring:
        yield from ()
        return [math.nan] * len(paths)

    lost.measures = lost.compares = False  # type: ignore[attr-defined]
    mine = from_spec("mine", {"controller": controller})
    search = mine.controller.search(TASK, mine, lost)  # type: ignore[arg-type]
    ((_, result),) = run([(0, search)], ToyEngine(ToyModel.random(0, vocab_size=6)))
    assert isinstance(result, Failure) and says in result.reason


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({"right": "5 5"}, "right is '5 5', which is 2 tokens; allowed: a text of one token"),
        ({"wrong": " "}, "wrong is ' ', which is 0 tokens"),
        ({"wrong": "05"}, "right '5' and wrong '05' are the same token"),
    ],
)
def test_answers_that_are_no_two_tokens_are_refused(answers: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        score(build("self_evaluation", **QUESTION | answers)(ASKED, PATHS, LOCAL, KEY), asks_nothing)


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

    def controller() -> Search:
        found.extend((yield from scorer(TASK, PATHS, LOCAL, KEY)))
        return []

    ((_, result),) = run([(0, controller())], ToyEngine(ToyModel.random(0)))
    return result


def test_verifier_over_http_sees_question_and_texts_alone(server: Callable[..., str]) -> None:
    """No gold answer goes out: there is none in a task."""
    heard: list[Any] = []
    url = server(b'{"scores": [1, 0.5, -2, 0], "model": "any"}', heard=heard)
    found: list[float] = []
    outcome(build("verifier", url=url), found)
    assert found == [1.0, 0.5, -2.0, 0.0]
    assert heard == [{"prompt": "3 2", "texts": ["3 1", "2 0", "3 3 2 2 2 2", ""]}]
    known = {"prompt", "seed", "max_tokens", "stop_ids", "step_ids", "decode", "answer"}
    assert {*Task._fields} == known | {"check_every", "stop_texts", "encode", "note"}


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
    url = server(body, status)
    failed = outcome(build("verifier", url=url), [])
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
