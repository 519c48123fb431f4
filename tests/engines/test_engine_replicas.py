"""Several processes with an engine each that act as one engine.

The engines are made up, so that their processes start fast: a text is a function of its seed alone, and each engine
draws a token a step for all of its requests, as real ones do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from searchlens.engines.base import Completion, EngineMemoryError, Given, Request, RequestError, Sampling, complete
from searchlens.engines.replicas import Replicas, share
from searchlens.errors import InputError

ROWS, VOCAB, LIMIT = 8, 50, 400


class Limits:
    """Refuses what the engines do not have."""

    def check(self, request_id: int, request: Request) -> None:
        if max(request.prompt) >= VOCAB:
            raise InputError(f"Request {request_id}: token id {max(request.prompt)}")

    def check_given(self, texts: Sequence[Given], sampling: Sampling) -> None:
        if not all(text.tokens for text in texts):
            raise InputError("no tokens after a prompt")


class Made:
    """An engine whose texts are functions of their seeds. Seed 13 is given up, 14 is out of memory, 15 a fault.

    ``reused`` of a completion is the process id, so that tests see who drew it.
    """

    vocab_size, max_model_len, max_rows, groups, masked = VOCAB, LIMIT, ROWS, (1, 4), ()
    device, version, repeatable, bounds = "cpu", "made up", False, Limits()

    def __init__(self) -> None:
        self.steps = 0
        self.live: dict[int, tuple[Request, int]] = {}

    def clear(self) -> None:
        assert not self.live

    def add(self, request_id: int, request: Request) -> None:
        self.live[request_id] = request, 0

    def step(self) -> list[tuple[int, Completion | RequestError]]:
        self.steps += 1
        time.sleep(0.0005)  # as if there were a model
        finished: list[tuple[int, Completion | RequestError]] = []
        for request_id, (request, drawn) in list(self.live.items())[:ROWS]:
            if request.seed == 14:
                raise EngineMemoryError("no memory", ROWS)
            if request.seed == 15:
                raise ZeroDivisionError("a fault")
            if request.seed == 16:
                os.kill(os.getpid(), signal.SIGKILL)
            self.live[request_id] = request, drawn + 1
            if request.seed == 13:
                finished.append((request_id, RequestError("given up")))
            elif drawn + 1 == request.max_tokens:
                finished.append((request_id, self._completion(request)))
        for request_id, _ in finished:
            del self.live[request_id]
        return finished

    @staticmethod
    def _completion(request: Request) -> Completion:
        tokens = np.random.default_rng(request.seed).integers(5, VOCAB, request.max_tokens).astype(np.int32)
        numbers = -tokens.astype(np.float32)
        return Completion(tokens, numbers, numbers, "length", reused=os.getpid())

    def score(self, texts: Sequence[Given], sampling: Sampling) -> list[np.ndarray]:
        if any(text.tokens[0] == 13 for text in texts):
            raise RequestError("given up")
        return [-np.array(text.tokens, np.float32) for text in texts]

    def close(self) -> None:
        pass


def request(seed: int, max_tokens: int = 5, prompt: tuple[int, ...] = (1, 2), prefix: tuple[int, ...] = ()) -> Request:
    return Request(prompt, Sampling(), seed, max_tokens, (), prefix)


@pytest.fixture
def engine() -> Iterator[Replicas]:
    started = Replicas(Made, 2)
    yield started
    started.close()


def drawn(engine: Replicas, requests: Sequence[Request]) -> list[Completion]:
    done = dict(complete(engine, requests))
    return [done[number] for number in range(len(requests))]


def test_results_are_those_of_one_engine_and_all_processes_draw(engine: Replicas) -> None:
    """Protects texts: they must not depend on how many processes there are; and the purpose, that all of them work."""
    requests = [request(100 + n, 3 + n % 40, prompt=(1, 5 + n // 8)) for n in range(200)]
    alone = Made()
    done = drawn(engine, requests)
    for got, asked in zip(done, requests, strict=True):
        want = alone._completion(asked)
        assert got.tokens.tolist() == want.tokens.tolist()
        assert got.logprobs.tobytes() == want.logprobs.tobytes()
    counts = Counter(completion.reused for completion in done)
    assert len(counts) == 2
    assert min(counts.values()) > 60
    assert engine.max_rows == 2 * ROWS
    assert engine.steps >= sum(completion.tokens.size for completion in done) / (2 * ROWS)


def test_texts_are_continued_where_their_keys_and_values_are(engine: Replicas) -> None:
    """Protects the prefix cache: a continuation elsewhere would compute its whole text again."""
    first = drawn(engine, [request(100 + n, 20, prompt=(1, 5 + n)) for n in range(8)])
    homes = [completion.reused for completion in first]
    follow = [
        request(200 + n, 4, (1, 5 + n), tuple(completion.tokens[:18].tolist())) for n, completion in enumerate(first)
    ]
    for number, asked in enumerate(follow):
        engine.add(number, asked)
    done: dict[int, Completion | RequestError] = {}
    while len(done) < len(follow):
        done.update(engine.step())
    assert [done[number].reused for number in range(8)] == homes  # type: ignore[union-attr]
    assert len(set(homes)) == 2


def test_a_process_with_much_to_do_gets_no_more(engine: Replicas) -> None:
    """Protects the balance: all requests of one prompt would otherwise wait for one process."""
    done = drawn(engine, [request(n, 30, prompt=(1, 7)) for n in range(100, 164)])
    counts = Counter(completion.reused for completion in done)
    assert sorted(counts.values()) == [32, 32]


def test_chains_need_not_wait_for_each_other(engine: Replicas) -> None:
    """Protects searches: a continuation joins at the next step, not when another text ends."""
    engine.add(0, request(100, 390))
    engine.add(1, request(101, 390, prompt=(1, 3)))
    long, rounds = {0, 1}, 0
    engine.add(2, request(102, 1, prompt=(1, 4)))
    while long:
        for number, completion in engine.step():
            assert isinstance(completion, Completion)
            long.discard(number)
            if number >= 2 and long:
                rounds += 1
                engine.add(number + 1, request(103 + rounds, 1, prompt=(1, 4)))
    while engine.step():
        pass
    assert rounds > 10


def test_a_request_that_is_given_up_harms_no_other(engine: Replicas) -> None:
    """Protects the other samples of a job."""
    engine.add(0, request(13))
    engine.add(1, request(100))
    done: dict[int, Completion | RequestError] = {}
    while len(done) < 2:
        done.update(engine.step())
    assert isinstance(done[0], RequestError)
    assert isinstance(done[1], Completion)


@pytest.mark.parametrize(
    ("seed", "error", "text"),
    [
        (14, EngineMemoryError, "no memory"),
        (15, RuntimeError, "ZeroDivisionError: a fault"),
        (16, RuntimeError, "ended with exit code -9"),
    ],
)
def test_a_failure_in_a_process_is_raised_here(engine: Replicas, seed: int, error: type, text: str) -> None:
    """Protects jobs: they must end, and start again with fewer rows where memory is the reason."""
    engine.add(0, request(100, 300))
    engine.add(1, request(seed, prompt=(1, 3)))
    with pytest.raises(error, match=text) as caught:
        while True:
            engine.step()
    if isinstance(caught.value, EngineMemoryError):
        assert caught.value.max_rows == 2 * ROWS


FAILURES = {"input": InputError("wrong file", "use another"), "memory": EngineMemoryError("full", 4)}


def failing(name: str) -> Made:
    raise FAILURES[name]


@pytest.mark.parametrize("name", FAILURES)
def test_an_engine_that_does_not_start_says_why(name: str) -> None:
    """Protects the message, and the second try with fewer rows."""
    with pytest.raises(type(FAILURES[name])) as caught:
        Replicas(partial(failing, name), 2)
    assert str(caught.value) == str(FAILURES[name])
    if isinstance(caught.value, EngineMemoryError):
        assert caught.value.max_rows == 8


def test_wrong_requests_are_refused_before_they_are_sent(engine: Replicas) -> None:
    """Protects the contract: ``add`` and ``score`` raise, and the engine goes on."""
    with pytest.raises(InputError, match="token id 50"):
        engine.add(0, request(1, prompt=(1, VOCAB)))
    with pytest.raises(InputError, match="no tokens after"):
        engine.score([Given((1, 2), ())])
    assert len(drawn(engine, [request(3)])) == 1


def test_scores_keep_the_order_of_the_texts(engine: Replicas) -> None:
    """Protects cross-likelihoods: each part is scored elsewhere."""
    texts = [Given((1, 2), tuple(range(5, 6 + n))) for n in range(7)]
    assert [scores.tolist() for scores in engine.score(texts)] == [(-np.array(t.tokens)).tolist() for t in texts]
    assert engine.score([]) == []
    with pytest.raises(RequestError, match="given up"):
        engine.score([Given((1, 2), (13,)), Given((1, 2), (5,))])
    assert [scores.tolist() for scores in engine.score(texts[:1])] == [[-5.0]]
    engine.add(0, request(1))
    with pytest.raises(RuntimeError, match="not idle"):
        engine.score(texts)
    with pytest.raises(RuntimeError, match="not idle"):
        engine.clear()


def test_large_messages_pass_both_ways_at_once(engine: Replicas) -> None:
    """Protects against two ends that both wait to be read: requests and replies far larger than a pipe holds."""
    prompt = (1, *[5] * 300)
    done = drawn(engine, [request(n, 1 + n % 2, prompt) for n in range(100, 3100)])
    assert len(done) == 3000


def test_an_engine_is_closed_at_once_whatever_it_still_has_to_say() -> None:
    """Protects the next engine of a job: processes that wait for their replies to be read must free the device, too."""
    engine = Replicas(Made, 2)
    for number in range(100, 3100):
        engine.add(number, request(number, 1))
    time.sleep(0.5)  # until the pipes are full
    processes = [process.process for process in engine._processes]
    engine.close()
    assert [process.exitcode for process in processes] == [0, 0], "ended by themselves, not killed"


def test_processes_end_with_their_job(tmp_path: Path) -> None:
    """Protects the device's memory: nothing may run on after a job was killed, or after signals meant for the job."""
    script = tmp_path / "job.py"
    script.write_text(
        "import sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "if __name__ == '__main__':\n"
        "    from test_engine_replicas import Made, Replicas\n"
        "    engine = Replicas(Made, 2)\n"
        "    print(*[process.process.pid for process in engine._processes], flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout
        children = [int(word) for word in job.stdout.readline().split()]
        assert len(children) == 2
        for child in children:
            os.kill(child, signal.SIGTERM)  # ignored: the job decides
        time.sleep(0.2)
        assert all(map(_runs, children))
        job.kill()
    for _ in range(100):
        if not any(map(_runs, children)):
            return
        time.sleep(0.1)
    raise AssertionError("processes run on")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_settings_are_divided() -> None:
    """Protects the meaning of settings: they are those of all processes together."""
    settings = {"max_rows": 2048, "threads": 3, "kv_cache_memory_bytes": None, "gpu_memory_utilization": 0.9, "seed": 1}
    assert share(settings, 2) == {**settings, "max_rows": 1024, "threads": 1, "gpu_memory_utilization": 0.45}
    assert share({**settings, "max_rows": 1, "kv_cache_memory_bytes": 9}, 2)["max_rows"] == 1
    assert share({**settings, "kv_cache_memory_bytes": 9}, 2)["kv_cache_memory_bytes"] == 4
