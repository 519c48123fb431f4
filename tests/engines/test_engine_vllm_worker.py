"""What the worker of the vLLM engine refuses, with or without vLLM: the few names that it imports are replaced."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from searchlens.engines import _vllm_request
from searchlens.engines import _vllm_start as engine
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
    monkeypatch.setattr(engine, "versions", lambda: "vLLM 9.9 with torch 2.11")
    lacks = ImportError("cannot import name 'Sampler' from 'vllm.v1.sample.sampler'")
    error = engine.start_error("folder", lacks)
    assert isinstance(error, InputError)
    assert error.message.startswith("vLLM 9.9 with torch 2.11 has not all that the engine needs (cannot import name")
