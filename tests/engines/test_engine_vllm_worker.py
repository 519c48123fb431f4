"""The worker and the start of the vLLM engine, with or without vLLM: the few names that they import are replaced."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bad_inputs
import fuzzing
from searchlens.engines import _vllm_request, _vllm_start, sampler
from searchlens.engines._vllm_start import require_right_numbers
from searchlens.engines.base import Completion, Floor, Request, RequestError, Sampling
from searchlens.engines.transformers import TransformersEngine
from searchlens.errors import InputError
from searchlens.seeds import generator, uniform

torch = pytest.importorskip("torch")

NAMES = ("triton_utils", "v1.outputs", "v1.sample.logits_processor", "v1.sample.metadata", "v1.sample.sampler")
OURS = ("_vllm_worker", "_vllm_first_runner", "_vllm_second_runner")


class Stub(ModuleType):
    """A module in which every name is an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Our modules in the worker, by their names, imported without vLLM."""
    for name in (*NAMES, "v1.sample.ops.topk_topp_sampler", "v1.worker.gpu.sample.sampler"):
        monkeypatch.setitem(sys.modules, f"vllm.{name}", Stub(name))
    for name in OURS:
        monkeypatch.delitem(sys.modules, f"searchlens.engines.{name}", raising=False)
    made = SimpleNamespace(**{name: import_module(f"searchlens.engines.{name}") for name in OURS})
    made._vllm_worker.HAS_TRITON = False
    made._vllm_worker.apply_top_k_top_p = lambda kept, *_: kept
    yield made
    for name in OURS:
        sys.modules.pop(f"searchlens.engines.{name}", None)


@pytest.fixture
def worker(ours: Any) -> Any:
    return ours._vllm_worker


def model_runner(names: Iterable[str]) -> Any:
    """A runner that has these names and no other."""
    runner = SimpleNamespace()
    for name in names:
        *above, last = name.split(".")
        place = runner
        for part in above:
            place = place.__dict__.setdefault(part, SimpleNamespace())
        setattr(place, last, None)
    return runner


@pytest.mark.parametrize("kind", ["first", "second"])
def test_a_vllm_with_another_model_runner_is_refused_by_what_it_lacks(ours: Any, kind: str) -> None:
    """vLLM is about to replace its model runner; without the check a later step of a job would raise."""
    hooks = (*ours._vllm_worker._HOOKS, *getattr(ours, f"_vllm_{kind}_runner").HOOKS)
    ours._vllm_worker.require_hooks(model_runner(hooks), hooks)
    for name in hooks:
        extension = SimpleNamespace(model_runner=model_runner(set(hooks) - {name}))
        with pytest.raises(InputError, match=f"SimpleNamespace has no {re.escape(name)}, by which"):
            ours._vllm_worker.Extension.searchlens_start(extension, 4, 9, [], False, False)


@pytest.mark.parametrize("kind", ["first", "second"])
def test_all_that_is_read_of_the_model_runner_is_asked_for_first(ours: Any, kind: str) -> None:
    own = getattr(ours, f"_vllm_{kind}_runner")
    text = Path(own.__file__).read_text()
    hooks = {*ours._vllm_worker._HOOKS, *own.HOOKS}
    assert set(re.findall(r"\brunner\.(\w+)", text)) <= {name.split(".")[0] for name in hooks}
    batch = set(re.findall(r"\bbatch\.(\w+)", text)) - {"logitsprocs"}
    known = {name.split(".")[1] for name in own.HOOKS if name.startswith("input_batch.")}
    assert batch - {"removed", "added", "moved"} <= known | {*getattr(own, "BATCH_HOOKS", ())}
    assert set(re.findall(r"\bstates\.(\w+)", text)) <= {name.split(".")[1] for name in own.HOOKS if "." in name}


WIDTH = 100


def draws_of(worker: Any, *, same_bits: bool = False, positions: int = 40, masked: Iterable[int] = ()) -> Any:
    """Our draws and their ledger, of a runner with 9 slots."""
    config = SimpleNamespace(get_vocab_size=lambda: WIDTH, enforce_eager=True, dtype=torch.float32)
    runner = SimpleNamespace(device=torch.device("cpu"), model_config=config, max_model_len=positions, max_num_reqs=6)
    ledger = worker.Ledger(9, positions + 1, runner.device)
    return runner, worker.Draws(runner, ledger, [*masked], same_bits), ledger


def params(request: Request, slot: int, given: tuple[int, ...] = ()) -> Any:
    """What vLLM has of a request, of its prompt as well."""
    extra = {_vllm_request.EXTRA_ARG: _vllm_request.worker_row(request, slot, bool(given))}
    return SimpleNamespace(extra_args=extra | ({_vllm_request.GIVEN_ARG: [*given]} if given else {}))


def step_of(worker: Any, draws: Any, entries: list[tuple[Any, int]], tokens: Any = None) -> Any:
    """A step whose rows have these parameters and positions; prompts have one token."""
    rows = np.array([draws.enter(one).item() for one, _ in entries], _vllm_request.WORKER_ROW)
    positions = np.array([position for _, position in entries])
    return worker.Step(rows, positions, positions + 1, tokens, np.arange(len(rows)))


@pytest.mark.parametrize("same_bits", [False, True])
def test_draws_are_those_of_the_embedded_engine(worker: Any, same_bits: bool) -> None:
    """By the uniform number of seed and position, whatever the width; a masked token is never drawn.

    Also where bits must not depend on the batch: rows are drawn 64 at a time there, wherever they stand.
    """
    _, draws, ledger = draws_of(worker, same_bits=same_bits, masked=[3, 99])
    samplings = [Sampling(), Sampling(0.5), Sampling(0.0), Sampling(2.0, min_p=0.05), Sampling(1.0, typical_p=0.7)]
    seeds = [3, 2**62 + 1, 3, 4, 5]
    requests = [Request((5,), one, seed, 30, measures=True) for one, seed in zip(samplings, seeds, strict=True)]
    entries = [(params(request, slot), 5 * slot) for slot, request in enumerate(requests)]
    logits = torch.from_numpy(generator("draws").normal(0, 3, (5, WIDTH)).astype(np.float32))
    step = step_of(worker, draws, entries)
    tokens = draws(logits.clone(), step)
    logits[:, [3, 99]] = -torch.inf
    padded = torch.nn.functional.pad(logits, (0, 28), value=-torch.inf)
    batch = sampler.prepare(
        sampler.parameters(samplings), [(5,)] * 5, np.zeros((5, 0), np.int32), np.zeros(5, np.int64), 128, logits.device
    )
    numbers = uniform(step.rows["seed"].astype(np.uint64), step.positions)
    wanted = sampler.draw(padded, batch, torch.from_numpy(numbers))
    assert tokens.tolist() == wanted.tokens.tolist()
    ledger._enter()
    for slot in range(5):
        got = ledger._entries[slot, 5 * slot]
        np.testing.assert_allclose(got[:2], [wanted.logprobs[slot], wanted.sampling_logprobs[slot]], atol=1e-5)
    again = draws_of(worker, same_bits=same_bits, masked=[3, 99])[1]
    order = [3, 0, 4]
    some = again(logits[order].clone(), step_of(worker, again, [entries[i] for i in order]))
    assert some.tolist() == tokens[order].tolist()


def test_bits_of_a_row_do_not_depend_on_the_others(worker: Any) -> None:
    """1 to 200 rows, at any place: the same bits of every number."""
    logits = torch.from_numpy(generator("bits").normal(0, 3, (200, WIDTH)).astype(np.float32))
    requests = [Request((5,), Sampling(0.8, typical_p=0.9), seed, 30, measures=True) for seed in range(200)]

    def numbers(rows: list[int]) -> Any:
        runner, draws, _ = draws_of(worker, same_bits=True)
        ledger = worker.Ledger(200, runner.max_model_len + 1, runner.device)
        draws._ledger = ledger
        draws(logits[rows].clone(), step_of(worker, draws, [(params(requests[i], i), 0) for i in rows]))
        return ledger.fetch(rows, [1] * len(rows))[0]

    everything = numbers([*range(200)])
    for rows in ([7], [199, 0, 64], [*range(150, 20, -1)]):
        assert numbers(rows).tobytes() == everything[rows].tobytes()


@pytest.mark.parametrize("same_bits", [False, True])
def test_tokens_that_are_given_are_returned_and_scored(worker: Any, same_bits: bool) -> None:
    """Log p and log q of the given token, minus infinity where a filter drops it; its rank is the note.

    Nothing is drawn, and without filters nothing is filtered.
    """
    _, draws, ledger = draws_of(worker, same_bits=same_bits)
    draws._draw, filtered = None, draws._filtered
    logits = torch.from_numpy(generator("given").normal(0, 2, (2, WIDTH)).astype(np.float32))
    given = int(logits[1].argsort(descending=True)[4])
    for sampling, log_q in ((Sampling(), None), (Sampling(0.5, min_p=0.9), -np.inf)):
        draws._filtered = filtered if log_q else None
        requests = [Request((5,), one, 0, 9) for one in (Sampling(), sampling)]
        entries = [(params(requests[0], 0, (3,)), 0), (params(requests[1], 1, (8, given)), 1)]
        assert draws(logits.clone(), step_of(worker, draws, entries)).tolist() == [3, given]
        ledger._entries[1, 0] = 0.0
        numbers, notes = ledger.fetch([1, 0], [2, 1])
        log_p = logits.double().log_softmax(1)
        assert notes[1] == 5 and numbers[1, 1] == (log_q or numbers[1, 0])
        np.testing.assert_allclose(numbers[1:, 0], [log_p[1, given], log_p[0, 3]], atol=1e-5)
        np.testing.assert_allclose(numbers[2, 1], log_p[0, 3], atol=1e-5)


def test_of_several_workers_the_first_one_has_the_numbers(worker: Any) -> None:
    """Those of another may be on their way when vLLM reports an end, or have come earlier; its tally is no other's."""
    ledger, draw = ledger_with_floor(worker, 1.0, -3.0, np.nan)
    for position in range(4):
        draw(0, position, -2.0, 0.0)
    second = SimpleNamespace(rank=1, searchlens_ledger=ledger)
    assert worker.Extension.searchlens_fetch(second, [1], [3])[1:] == (b"", b"")
    assert worker.Extension.searchlens_rejected(second) == ([], [], b"", b"")
    first = SimpleNamespace(rank=0, searchlens_ledger=ledger)
    assert worker.Extension.searchlens_rejected(first)[0] == [0]


@dataclass
class Seeing:
    """Draws that keep the steps."""

    draws: Any
    seen: list[Any]

    def enter(self, params: Any) -> Any:
        return self.draws.enter(params)

    def __call__(self, logits: Any, step: Any) -> Any:
        self.seen.append(step)
        return logits.argmax(-1)


def test_rows_of_the_second_runner(ours: Any) -> None:
    """In the order of each step, by its index of a request; a prompt in parts, and a request that was preempted."""
    runner, draws, _ = draws_of(ours._vllm_worker)
    parent = ours._vllm_second_runner.LedgerSampler.__mro__[1]
    parent.add_request = lambda *_: None
    parent.__call__ = lambda self, logits, batch: self.sample(logits, "anything", batch=batch)
    lengths = np.array([3, 9, 4, 2, 0, 0])
    table = torch.arange(6 * 40, dtype=torch.int32).view(6, 40) % WIDTH
    gpu = SimpleNamespace(gpu=table)
    runner.req_states = SimpleNamespace(prompt_len=SimpleNamespace(np=lengths), all_token_ids=gpu)
    runner.sampler = SimpleNamespace(penalties_state="vLLM's own")
    ours._vllm_second_runner.replace_sampler(runner, draws, False)
    seen = []
    sampler = runner.sampler
    assert sampler.penalties_state == "vLLM's own"
    sampler._draws = Seeing(draws, seen)
    for index in range(4):
        sampler.add_request(
            index, *((index,) if index % 2 else ()), params(Request((5,), Sampling(), index, 30), 7 - index)
        )

    def step(index: list[int], computed: list[int], scheduled: list[int], prefill: list[int]) -> Any:
        arrays = (np.array(one, np.int32) for one in (index, computed, scheduled, prefill))
        names = ours._vllm_second_runner.BATCH_HOOKS
        sampler(torch.zeros(len(index), WIDTH), SimpleNamespace(**dict(zip(names, arrays, strict=True))))
        return seen[-1]

    first = step([2, 0, 1], [4, 0, 0], [1, 3, 5], [4, 3, 9])
    assert first.rows["slot"].tolist() == [5, 7, 6] and first.tokens is table and first.places.tolist() == [2, 0, 1]
    assert first.positions.tolist() == [1, 0, 0], "the draw of a prompt in parts is that of its first token"
    assert first.lengths.tolist() == [5, 3, 9]
    assert step([2, 0, 1], [5, 3, 5], [1, 1, 4], [4, 3, 9]).rows is first.rows, "the parameters can be kept"
    sampler.add_request(0, 3, params(Request((5,), Sampling(), 9, 30), 1))
    later = step([2, 0, 1], [6, 0, 9], [1, 2, 1], [4, 5, 9])
    assert later.rows["slot"].tolist() == [5, 1, 6]
    assert later.positions.tolist() == [3, 2, 1], "of a text with two tokens that is computed again in parts"


def ledger_with_floor(worker: Any, alpha: float, bound: float, start: float) -> tuple[Any, Any]:
    """A ledger of two slots, and a function that draws a token of a slot: token, position, log p, log q."""
    ledger = worker.Ledger(2, 9, torch.device("cpu"))
    one = np.zeros(1, np.int64)
    floors = worker.FloorRows(one, np.array([alpha]), np.array([bound]), np.array([start]))

    def draw(slot: int, position: int, log_p: float, log_q: float, token: int = 5) -> None:
        values = torch.tensor([[log_p, log_q, 0.0, 0.0, token]])
        ledger.write(np.array([slot]), np.array([position]), values, floors, noted=True)

    return ledger, draw


def test_a_request_is_low_once_the_token_that_made_it_so_is_certain(worker: Any) -> None:
    """A draw that vLLM discards does not count: the next one has its position."""
    ledger, draw = ledger_with_floor(worker, 2.0, -3.0, np.nan)
    draw(1, 0, -1.0, -1.0, 7)
    draw(1, 1, -9.0, 0.0, 8)  # discarded: it would be the end
    assert ledger.rejected()[0] == []
    draw(1, 1, -0.5, -0.5, 9)
    draw(1, 2, -2.0, -2.0, 10)  # 2 * -3.5 + 3.5 = -3.5
    assert ledger.rejected()[0] == []
    draw(1, 3, -0.1, -0.1, 11)
    slots, lengths, tokens, numbers = ledger.rejected()
    assert (slots, lengths, tokens.tolist()) == ([1], [4], [7, 9, 10, 11])
    np.testing.assert_allclose(numbers[:, 0], [-1.0, -0.5, -2.0, -0.1], rtol=1e-6)
    assert ledger.rejected()[0] == []


def test_the_length_of_a_continuation_counts(worker: Any) -> None:
    """Minus log(start + t): weights of -1 each, and a beginning of 6 tokens."""
    ledger, draw = ledger_with_floor(worker, 1.0, -3.0 - np.log(8.5), 6.0)
    for position in range(3):
        draw(0, position, -1.0, 0.0)
        assert ledger.rejected()[0] == []
    draw(0, 3, -1.0, 0.0)  # three count: -3 - log 9, which is low only with the term
    assert ledger.rejected()[1] == [4]


def test_numbers_on_their_way_are_not_those_of_the_next_request(worker: Any) -> None:
    """A slot is free at once; a step that was under way belongs to nobody then, and does not reject its successor."""
    ledger, draw = ledger_with_floor(worker, 1.0, -3.0, np.nan)
    for position in range(3):
        draw(0, position, -2.0, 0.0)
    arrived: list[bool] = []  # as on a GPU, whose numbers arrive later
    late = torch.tensor([[-9.0, 0.0, 0.0, 0.0, 1.0]])
    floors = ledger._pending[-1].floors
    pending = _vllm_request.Pending(lambda: bool(arrived), np.array([0]), np.array([3]), late, floors, True)
    ledger._pending.append(pending)
    assert ledger.rejected()[:2] == ([0], [3])
    arrived.append(True)
    for position in range(3):
        draw(0, position, -0.5, 0.0)
    assert ledger.rejected()[0] == []
    with pytest.raises(RuntimeError, match="missing"):
        ledger.fetch([0], [4])


def test_a_vllm_that_lacks_a_name_is_refused_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM imports our worker when it starts, and that imports vLLM's sampler by name."""
    monkeypatch.setattr(_vllm_start, "versions", lambda: "vLLM 9.9 with torch 2.11")
    lacks = ImportError("cannot import name 'Sampler' from 'vllm.v1.sample.sampler'")
    error = _vllm_start.start_error("folder", lacks)
    assert isinstance(error, InputError)
    assert error.message.startswith("vLLM 9.9 with torch 2.11 has not all that the engine needs (cannot import name")


def test_ledger_is_filled_in_the_order_of_the_device(worker: Any) -> None:
    """Numbers arrive a step late, a finished request has one more step in flight, and its slot is used at once."""
    arrived = [0]
    ledger = worker.Ledger(2, 6, torch.device("cpu"))

    def write(slots: list[int], positions: list[int], value: float) -> None:
        step = ledger.steps
        values = torch.full((len(slots), _vllm_request.LEDGER_COLUMNS), value)
        ledger.write(np.array(slots), np.array(positions), values)
        ledger._pending[-1] = ledger._pending[-1]._replace(has_arrived=lambda: arrived[0] > step)

    write([0, 1], [0, 0], 1.0)
    write([0, 1], [1, 1], 2.0)
    write([1, 0], [2, 2], 3.0)  # the request in slot 0 ended with the step before
    with pytest.raises(RuntimeError, match="missing"):
        ledger.fetch([0], [2])
    arrived[0] = 2
    assert ledger.fetch([0], [2])[0][:, 0].tolist() == [1.0, 2.0]
    write([1, 0], [3, 0], 4.0)  # the next one in slot 0
    write([0, 1], [1, 4], 5.0)
    arrived[0] = 5
    assert ledger.fetch([1, 0], [5, 2])[0][:, 1].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 4.0, 5.0]


def test_rows_are_followed_through_all_their_moves(ours: Any) -> None:
    """Removed, added over, moved and swapped at random, against a plain dictionary."""
    swap, one_way = "swap", "one way"
    first = ours._vllm_first_runner
    first.MoveDirectionality = SimpleNamespace(SWAP=swap, UNIDIRECTIONAL=one_way)
    size, rng = 12, np.random.default_rng(0)
    runner = SimpleNamespace(max_num_reqs=size, max_model_len=20, device=torch.device("cpu"))
    draws = draws_of(ours._vllm_worker)[1]
    batch, expected = first.Rows(runner, draws), dict.fromkeys(range(size), 9)
    for slot in range(300):
        removed, added, source, target = (int(number) for number in rng.integers(size, size=4))
        new = (added, params(Request((1, 2), Sampling(), slot + 1, 5), slot), [1, 2], [])
        direction = (swap, one_way)[slot % 2]
        moved = [(source, target, direction)] if source != target else []
        batch.update_state(SimpleNamespace(batch_size=size, removed=[removed], added=[new], moved=moved))
        expected[removed] = 9
        expected[added] = slot
        if moved and direction == swap:
            expected[source], expected[target] = expected[target], expected[source]
        elif moved:
            expected[target], expected[source] = expected[source], 9
        counts = np.full(size, 2), np.full(size, 5)
        runner.input_batch = SimpleNamespace(num_reqs=size, num_prompt_tokens=counts[0], num_tokens_no_spec=counts[1])
        step = batch.step()
        assert step.rows["slot"].tolist() == list(expected.values())
        assert step.rows is batch.step().rows and step.positions.tolist() == [3] * size


def test_fields_of_a_row_are_sent_in_their_order() -> None:
    sampling = Sampling(
        0.5, 0.9, 7, 0.1, typical_p=0.6, repetition_penalty=1.5, frequency_penalty=0.25, presence_penalty=0.75
    )
    request = Request((1, 2, 3), sampling, 2**62 + 1, 5, (), measures=True)
    row = np.array(tuple(_vllm_request.worker_row(request, 7)), _vllm_request.WORKER_ROW)
    *fields, start = row.item()
    assert tuple(fields) == (7, 2**62 + 1, True, False, 0.5, 0.9, 7, 0.1, 0.6, 1.5, 0.25, 0.75, 3, 0.0, -np.inf)
    assert np.isnan(start)
    assert _vllm_request.worker_row(request, 7, True)[3]
    bounded = request._replace(floor=Floor(4.0, -2.5, 6))
    assert _vllm_request.worker_row(bounded, 7)[13:] == [4.0, -2.5, 6]
    assert _vllm_request.worker_row(bounded._replace(top=1), 7)[14] == -np.inf


# ---- what the engine draws at its start to see whether log p and log q are right
# The embedded engine stands in for it: it keeps the same contract.

PROMPT = (5,)


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    return TransformersEngine(Path(__file__).parents[2] / "resources/zoo/micro-1m-base", device="cpu")


class Spoiled:
    """An engine whose completions are changed before they are returned."""

    def __init__(self, engine: TransformersEngine, spoil: Callable[[Completion], Any]) -> None:
        self.engine, self.spoil = engine, spoil
        self.max_model_len, self.clear, self.add = engine.max_model_len, engine.clear, engine.add

    def step(self) -> list[tuple[int, Any]]:
        return [(number, self.spoil(done)) for number, done in self.engine.step()]


def test_rounding_of_a_large_vocabulary_is_no_error(engine: TransformersEngine) -> None:
    """vLLM's own log p on a CPU, of 262,144 tokens: all of a row are off by as much."""

    def off(done: Completion) -> Completion:
        return done._replace(top_logprobs=done.top_logprobs + np.float32(3e-4))  # type: ignore[operator]

    rounded: Any = Spoiled(engine, off)
    require_right_numbers(rounded, "vLLM 9.9", PROMPT)


@pytest.mark.parametrize("room", [True, False], ids=["the contract is kept", "no room for a token"])
def test_nothing_wrong_is_no_error(engine: TransformersEngine, room: bool) -> None:
    require_right_numbers(engine, "the embedded engine", PROMPT * (1 if room else engine.max_model_len))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda done: {"sampling_logprobs": np.zeros_like(done.sampling_logprobs)}, "log q without filters"),
        (lambda done: {"sampling_logprobs": done.logprobs}, "log q of the two most likely tokens"),
        (lambda done: {"logprobs": np.roll(done.logprobs, 1)}, "log (p|q) .* differs by"),
        (lambda done: {"logprobs": np.full_like(done.logprobs, np.nan)}, ".* differs by nan"),
    ],
    ids=["no filtered logits", "log q before filters", "one step late", "no numbers"],
)
def test_wrong_numbers_are_refused_by_name(
    engine: TransformersEngine, wrong: Callable[[Completion], dict[str, Any]], message: str
) -> None:
    spoiled: Any = Spoiled(engine, lambda done: done._replace(**wrong(done)))
    with pytest.raises(InputError, match=f"vLLM 9.9 with torch 9: {message}") as error:
        require_right_numbers(spoiled, "vLLM 9.9 with torch 9", PROMPT)
    assert "requirements/vllm.txt" in str(error.value)


class Rounded:
    """In place of the last digits of a text are those of a product of so many rows."""

    max_rows = 64

    def __init__(self, engine: TransformersEngine, digits: Callable[[int, int], float]) -> None:
        self.engine, self.digits = engine, digits
        self.max_model_len, self.vocab_size = engine.max_model_len, engine.vocab_size
        self.added: list[tuple[int, Request]] = []

    def clear(self) -> None:
        self.engine.clear()
        self.added.clear()

    def add(self, number: int, request: Request) -> None:
        self.engine.add(number, request)
        self.added.append((number, request))

    def step(self) -> list[tuple[int, Any]]:
        """The prompts of as many as have a row are computed at once."""
        first = [number for number, _ in self.added[: self.max_rows]]
        tokens = sum(len(request.prompt) for _, request in self.added[: self.max_rows])
        made = []
        for number, done in self.engine.step():
            digits = np.full_like(done.logprobs, self.digits(tokens, first.index(number) if number in first else -1))
            made.append((number, done._replace(logprobs=digits, sampling_logprobs=digits)))
        return made


@pytest.mark.parametrize(
    ("digits", "same"),
    [
        (lambda tokens, position: 0, True),
        (lambda tokens, position: tokens, False),
        (lambda tokens, position: tokens > 6000, False),  # one order has 6,176 tokens of prompts in a step
        (lambda tokens, position: tokens < 128, False),
        (lambda tokens, position: position == 17, False),
    ],
    ids=["the same", "others in each batch", "of many rows", "of few rows", "of one place in the batch"],
)
def test_bits_that_depend_on_the_batch_are_refused(
    engine: TransformersEngine, digits: Callable[[int, int], float], same: bool
) -> None:
    rounded: Any = Rounded(engine, digits)
    with nullcontext() if same else pytest.raises(InputError, match=r"vLLM 9.9: batch_invariant, but a text differs"):
        _vllm_start.require_same_bits(rounded, "vLLM 9.9", 5)


def test_bits_are_not_compared_without_room_for_a_token() -> None:
    _vllm_start.require_same_bits(SimpleNamespace(max_model_len=1), "vLLM 9.9", 5)  # type: ignore[arg-type]


def test_a_gpu_without_the_kernels_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    with pytest.raises(InputError, match=r"batch_invariant: Tesla T4 has compute capability 7.5, needed is 8.0"):
        _vllm_start._require_invariant_kernels("cuda")
    with pytest.raises(InputError, match="batch_invariant: vLLM has its kernels for GPUs alone"):
        _vllm_start._require_invariant_kernels("cpu")


def test_a_start_that_was_refused_does_not_decide_batch_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads the variable once is imported with an engine, not with vLLM's platforms."""
    monkeypatch.setitem(sys.modules, "vllm.envs", Stub("vllm.envs"))
    monkeypatch.delitem(sys.modules, "vllm.engine.arg_utils", raising=False)
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    _vllm_start._set_invariant(False)
    assert os.environ["VLLM_BATCH_INVARIANT"] == "0"
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", Stub("vllm.engine.arg_utils"))
    with pytest.raises(InputError, match="batch_invariant: true after an engine with the other value"):
        _vllm_start._set_invariant(True)


def test_a_model_runner_is_chosen_by_vllm_or_is_one_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for platform, chosen, allowed in (
        ("cuda", "1", True),
        ("cuda", "0", True),
        ("cuda", "2", False),
        ("cpu", "1", False),
    ):
        monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", chosen)
        with nullcontext() if allowed else pytest.raises(InputError, match=f"is '{chosen}' in the environment"):
            _vllm_start._require_runner(platform)
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER")
    _vllm_start._require_runner("cuda")
    assert "VLLM_USE_V2_MODEL_RUNNER" not in os.environ


def test_a_version_that_refuses_these_requests_is_named(engine: TransformersEngine) -> None:
    refusing: Any = Spoiled(engine, lambda _: RequestError("no top-k"))
    with pytest.raises(InputError, match=r"vLLM 9.9 refuses .*no top-k"):
        require_right_numbers(refusing, "vLLM 9.9", PROMPT)
    while engine.step():  # what the error left running
        pass


def test_code_that_a_checkpoint_brings_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    for name, content in {**bad_inputs.CHECKPOINT, **dict([fuzzing.MODELS["remote code"]])}.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "mine.py").write_text("raise SystemExit('it was run')")
    with pytest.raises(InputError):
        _vllm_start.load_config(tmp_path, weights=True)
