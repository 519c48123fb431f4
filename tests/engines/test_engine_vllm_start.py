"""What the vLLM engine draws at its start to see whether log p and log q are right.

The embedded engine stands in for it: it keeps the same contract, so it must pass, and one that says something else must
not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from searchlens.engines._vllm_start import require_right_numbers
from searchlens.engines.base import Completion, RequestError
from searchlens.engines.transformers import TransformersEngine
from searchlens.errors import InputError

PROMPT = (5,)
Spoil = Callable[[Completion], Completion]


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


def test_an_engine_that_keeps_the_contract_passes(engine: TransformersEngine) -> None:
    require_right_numbers(engine, "the embedded engine", PROMPT)


def test_rounding_of_a_large_vocabulary_is_no_error(engine: TransformersEngine) -> None:
    """vLLM's own log p on a CPU, of 262,144 tokens: all of a row are off by as much."""

    def off(done: Completion) -> Completion:
        return done._replace(top_logprobs=done.top_logprobs + np.float32(3e-4))  # type: ignore[operator]

    rounded: Any = Spoiled(engine, off)
    require_right_numbers(rounded, "vLLM 9.9", PROMPT)


def test_no_room_for_a_token_is_no_error(engine: TransformersEngine) -> None:
    require_right_numbers(engine, "the embedded engine", PROMPT * engine.max_model_len)


def without_log_q(done: Completion) -> Completion:
    """As if a version handed back no filtered logits: log q 0 for every token."""
    return done._replace(sampling_logprobs=np.zeros_like(done.sampling_logprobs))


def log_q_before_filters(done: Completion) -> Completion:
    """As if the logits were kept before temperature and top-k."""
    return done._replace(sampling_logprobs=done.logprobs)


def shifted(done: Completion) -> Completion:
    """As if the ledger were one step late."""
    return done._replace(logprobs=np.roll(done.logprobs, 1), sampling_logprobs=np.roll(done.sampling_logprobs, 1))


def not_numbers(done: Completion) -> Completion:
    return done._replace(logprobs=np.full_like(done.logprobs, np.nan))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_log_q, "log q without filters"),
        (log_q_before_filters, "log q of the two most likely tokens"),
        (shifted, "log (p|q) .* differs by"),
        (not_numbers, ".* differs by nan"),
    ],
)
def test_wrong_numbers_are_refused_by_name(engine: TransformersEngine, spoil: Spoil, message: str) -> None:
    spoiled: Any = Spoiled(engine, spoil)
    with pytest.raises(InputError, match=f"vLLM 9.9 with torch 9: {message}") as error:
        require_right_numbers(spoiled, "vLLM 9.9 with torch 9", PROMPT)
    assert "constraints-vllm.txt" in str(error.value)


def test_a_version_that_refuses_these_requests_is_named(engine: TransformersEngine) -> None:
    refusing: Any = Spoiled(engine, lambda _: RequestError("no top-k"))
    with pytest.raises(InputError, match=r"vLLM 9.9 refuses .*no top-k"):
        require_right_numbers(refusing, "vLLM 9.9", PROMPT)
    while engine.step():  # what the error left running
        pass
