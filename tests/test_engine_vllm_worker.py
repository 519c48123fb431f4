"""What the worker of the vLLM engine refuses, with or without vLLM: the few names that it imports are replaced."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

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
    """Log q of two tokens after a step whose sampler kept no filtered logits."""
    ours = object.__new__(worker.LedgerSampler)
    ours._filtered = None
    return ours._log_q(torch.tensor([3, 4]), SimpleNamespace(all_greedy=all_greedy, all_random=not all_greedy))


def test_random_draws_without_filtered_logits_are_refused(worker: Any) -> None:
    """Their log q would be stored as 0, and a chain of power sampling would have another target."""
    assert log_q(worker, all_greedy=True).tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="log q is unknown"):
        log_q(worker, all_greedy=False)


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
    ledger._pending.append(worker.Pending(lambda: bool(arrived), np.array([0]), np.array([3]), late, floors))
    assert ledger.rejected()[:2] == ([0], [3])
    arrived.append(True)
    for position in range(3):
        draw(0, position, -0.5, 0.0)
    assert ledger.rejected()[0] == []
    with pytest.raises(RuntimeError, match="missing"):
        ledger.fetch([0], [4])
