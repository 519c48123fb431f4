"""The worker and the start of the vLLM engine, with or without vLLM: the few names that they import are replaced."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bad_inputs
import fuzzing
from searchlens.engines import _vllm_request, _vllm_start
from searchlens.engines._vllm_start import require_right_numbers
from searchlens.engines.base import Completion, Floor, Request, RequestError, Sampling
from searchlens.engines.transformers import TransformersEngine
from searchlens.errors import InputError
from searchlens.seeds import generator, uniform

torch = pytest.importorskip("torch")

NAMES = ("triton_utils", "v1.outputs", "v1.sample.logits_processor", "v1.sample.metadata", "v1.sample.sampler")


class Stub(ModuleType):
    """A module in which every name is an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in (*NAMES, "v1.sample.ops.topk_topp_sampler"):
        monkeypatch.setitem(sys.modules, f"vllm.{name}", Stub(name))
    monkeypatch.delitem(sys.modules, "searchlens.engines._vllm_worker", raising=False)
    yield import_module("searchlens.engines._vllm_worker")
    sys.modules.pop("searchlens.engines._vllm_worker", None)


def log_q(worker: Any, *, all_greedy: bool) -> Any:
    """Log q of two tokens after a step in which our own draw was not called."""
    ours = object.__new__(worker.LedgerSampler)
    ours._drawn = None
    return ours._log_q(torch.tensor([3, 4]), SimpleNamespace(all_greedy=all_greedy, all_random=not all_greedy))


def test_random_draws_in_another_way_are_refused(worker: Any) -> None:
    """Their log q would be stored as 0, and a chain of power sampling would have another target."""
    assert log_q(worker, all_greedy=True).tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="log q is unknown"):
        log_q(worker, all_greedy=False)


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


def test_a_vllm_with_another_model_runner_is_refused_by_what_it_lacks(worker: Any) -> None:
    """vLLM is about to replace its model runner; without the check a later step of a job would raise."""
    worker._require_hooks(model_runner(worker._HOOKS))
    for name in worker._HOOKS:
        extension = SimpleNamespace(model_runner=model_runner(set(worker._HOOKS) - {name}))
        with pytest.raises(InputError, match=f"SimpleNamespace has no {re.escape(name)}, by which"):
            worker.Extension.searchlens_start(extension, 4, 9, [])


def test_all_that_is_read_of_the_model_runner_is_asked_for_first(worker: Any) -> None:
    used = set(re.findall(r"\brunner\.(\w+)", Path(worker.__file__).read_text()))
    assert used == {name.split(".")[0] for name in worker._HOOKS}
    batch = set(re.findall(r"\b(?:input_)?batch\.(num_\w+|logitsprocs)", Path(worker.__file__).read_text()))
    assert {f"input_batch.{name}" for name in batch} <= {".".join(name.split(".")[:2]) for name in worker._HOOKS}


def test_draws_are_those_of_the_embedded_engine(worker: Any) -> None:
    """By the uniform number of seed and position, whatever the width; a token that a filter dropped is never drawn."""
    seeds, positions = np.array([3, 2**62 + 1, 3, 3], np.uint64), np.array([0, 1, 5, 5])
    batch = SimpleNamespace(uniforms=lambda: torch.from_numpy(uniform(seeds, positions)))
    logits = torch.from_numpy(generator("draws").normal(0, 3, (4, 100)).astype(np.float32))
    logits[3] = torch.where(torch.arange(100) == 71, 0.0, -torch.inf)
    worker.apply_top_k_top_p = lambda kept, *_: kept
    tokens, log_q = worker.InverseCdf(batch, worker._draw)(logits, {}, None, None)
    law = logits.double().softmax(-1).numpy()
    numbers = batch.uniforms().numpy()
    expected = [int(np.searchsorted(np.cumsum(row), u, "right")) for row, u in zip(law, numbers, strict=True)]
    assert tokens.tolist() == expected and expected[3] == 71
    np.testing.assert_allclose(log_q, np.log(law[range(4), expected]), atol=1e-5)


def ledger_with_floor(worker: Any, alpha: float, bound: float, start: float) -> tuple[Any, Any]:
    """A ledger of two slots, and a function that draws a token of a slot: token, position, log p, log q."""
    ledger = worker.Ledger(2, 9, torch.device("cpu"))
    one = np.zeros(1, np.int64)
    floors = worker.FloorRows(one, np.array([alpha]), np.array([bound]), np.array([start]))

    def draw(slot: int, position: int, log_p: float, log_q: float, token: int = 5) -> None:
        values = torch.tensor([[log_p, log_q, 0.0, 0.0, token]])
        ledger.write(np.array([slot]), np.array([position]), values, floors)

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
    ledger._pending.append(_vllm_request.Pending(lambda: bool(arrived), np.array([0]), np.array([3]), late, floors))
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
    assert ledger.fetch([0], [2])[:, 0].tolist() == [1.0, 2.0]
    write([1, 0], [3, 0], 4.0)  # the next one in slot 0
    write([0, 1], [1, 4], 5.0)
    arrived[0] = 5
    assert ledger.fetch([1, 0], [5, 2])[:, 1].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 4.0, 5.0]


def test_rows_are_followed_through_all_their_moves(worker: Any) -> None:
    """Removed, added over, moved and swapped at random, against a plain dictionary."""
    swap, one_way = "swap", "one way"
    worker.MoveDirectionality = SimpleNamespace(SWAP=swap, UNIDIRECTIONAL=one_way)
    size, rng = 12, np.random.default_rng(0)
    runner = SimpleNamespace(max_num_reqs=size, max_model_len=20, device=torch.device("cpu"))
    batch, expected = worker.BatchRows(runner, 999), dict.fromkeys(range(size), 999)
    for slot in range(300):
        removed, added, source, target = (int(number) for number in rng.integers(size, size=4))
        row = [slot, slot + 1, False, 0.0, 1.0, 1.0, 0.0, 0.0, 1, _vllm_request.NOT_GIVEN, 0.0, -np.inf, np.nan]
        new = (added, SimpleNamespace(extra_args={_vllm_request.EXTRA_ARG: row}), [1, 2], [])
        direction = (swap, one_way)[slot % 2]
        moved = [(source, target, direction)] if source != target else []
        batch.update_state(SimpleNamespace(batch_size=size, removed=[removed], added=[new], moved=moved))
        expected[removed] = 999
        expected[added] = slot
        if moved and direction == swap:
            expected[source], expected[target] = expected[target], expected[source]
        elif moved:
            expected[target], expected[source] = expected[source], 999
        runner.input_batch = SimpleNamespace(num_reqs=size)
        assert batch.parameters().slots.tolist() == list(expected.values())
        assert batch.parameters().seeds.tolist() == [0 if slot == 999 else slot + 1 for slot in expected.values()]


def test_fields_of_a_row_are_sent_in_their_order() -> None:
    sampling = Sampling(
        0.5, min_p=0.1, typical_p=0.6, repetition_penalty=1.5, frequency_penalty=0.25, presence_penalty=0.75
    )
    request = Request((1, 2, 3), sampling, 2**62 + 1, 5, (), measures=True)
    row = np.array(tuple(_vllm_request.worker_row(request, 7)), _vllm_request.WORKER_ROW)
    *fields, start = row.item()
    assert tuple(fields) == (7, 2**62 + 1, True, 0.1, 0.6, 1.5, 0.25, 0.75, 3, _vllm_request.NOT_GIVEN, 0.0, -np.inf)
    assert np.isnan(start)
    assert _vllm_request.worker_row(request, 7, 42)[9] == 42
    bounded = request._replace(floor=Floor(4.0, -2.5, 6))
    assert _vllm_request.worker_row(bounded, 7)[10:] == [4.0, -2.5, 6]
    assert _vllm_request.worker_row(bounded._replace(top=1), 7)[11] == -np.inf


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
