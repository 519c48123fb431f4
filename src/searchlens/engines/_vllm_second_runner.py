"""The rows of vLLM's second model runner, which is that of its builds for GPUs, and the sampler in its place."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor
from vllm.v1.worker.gpu.sample.sampler import Sampler

from searchlens.engines._vllm_request import WORKER_ROW
from searchlens.engines._vllm_worker import Draws, Step

HOOKS = ("req_states.prompt_len.np", "req_states.all_token_ids.gpu", "sampler.add_request", "sampler.sample")
"""What is read or replaced of it, besides what is of both."""
BATCH_HOOKS = ("idx_mapping_np", "num_computed_tokens_np", "num_scheduled_tokens", "prefill_len_np")
"""What is read of its ``InputBatch``, which exists only in a step."""


def replace_sampler(runner: Any, draws: Draws, generators: bool) -> None:
    """Put our sampler in the place of vLLM's."""
    runner.sampler = LedgerSampler(runner, draws, generators)


class LedgerSampler(Sampler):  # type: ignore[misc]
    """vLLM's sampler, in which the draw is ours. It returns the most likely tokens, of the raw logits, as ever."""

    def __init__(self, runner: Any, draws: Draws, generators: bool) -> None:
        self.__dict__.update(vars(runner.sampler))  # versions differ in what their constructors take
        self._runner, self._draws, self._generators = runner, draws, generators
        self._rows = np.full(runner.max_num_reqs, draws.empty, WORKER_ROW)  # by the runner's index of a request
        self._batch: Any = None
        self._last: tuple[Any, Any] | None = None  # indices of the rows, and the rows; None once a request has entered

    def add_request(self, req_idx: int, *given: Any) -> None:
        """Note a request that enters, also one that returns after preemption; its parameters come last."""
        super().add_request(req_idx, *given)
        self._rows[req_idx] = self._draws.enter(given[-1])
        self._last = None

    def __call__(self, logits: Tensor, input_batch: Any) -> Any:
        """Draw a token for each row of the logits."""
        self._batch = input_batch
        return super().__call__(logits, input_batch)

    def sample(self, logits: Tensor, *given: Any, **named: Any) -> tuple[Tensor, Tensor]:
        """Return the drawn tokens and logits, from raw ones."""
        if not self._generators:
            return self._draws(logits, self._step()), logits
        parent = super().sample
        return self._draws(logits, self._step(), lambda kept: parent(kept.clone(), *given, **named)[0]), logits

    def _step(self) -> Step:
        batch, states = self._batch, self._runner.req_states
        index = batch.idx_mapping_np
        if self._last is None or not np.array_equal(self._last[0], index):
            self._last = index.copy(), self._rows[index]
        computed = batch.num_computed_tokens_np + batch.num_scheduled_tokens
        lengths = np.maximum(computed, batch.prefill_len_np).astype(np.int64)  # of a prompt that is computed in parts
        positions = lengths - states.prompt_len.np[index]
        return Step(self._last[1], positions, lengths, states.all_token_ids.gpu, index.astype(np.int64))
