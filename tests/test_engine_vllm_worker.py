"""What the worker of the vLLM engine refuses, with or without vLLM: the few names that it imports are replaced."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

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
