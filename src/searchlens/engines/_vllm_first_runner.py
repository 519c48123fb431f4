"""The rows of vLLM's first model runner, which is that of its builds for CPUs, and the sampler in its place.

Nothing is registered as a custom logits processor of vLLM, because vLLM would then wait for the tokens of the previous
step before every draw. Instead, the follower of the rows is added to the running worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm.v1.outputs import LogprobsTensors, SamplerOutput
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler
from vllm.v1.sample.sampler import Sampler

from searchlens.engines._vllm_request import WORKER_ROW
from searchlens.engines._vllm_worker import Draws, Step, send, uses_penalty

HOOKS = (
    *("input_batch.num_reqs", "input_batch.num_prompt_tokens", "input_batch.num_tokens_no_spec"),
    *("input_batch.logitsprocs.non_argmax_invariant", "sampler"),
)
"""What is read or replaced of it, besides what is of both."""


def replace_sampler(runner: Any, draws: Draws, generators: bool) -> None:
    """Put our sampler in the place of vLLM's."""
    rows = Rows(runner, draws)
    runner.input_batch.logitsprocs.non_argmax_invariant.append(rows)
    runner.sampler = LedgerSampler(draws, rows, generators)


class Rows(LogitsProcessor):  # type: ignore[misc]
    """The request of each row of vLLM's batch. As a logits processor it is told of all that moves, and does nothing."""

    def __init__(self, runner: Any, draws: Draws) -> None:
        self._runner, self._draws = runner, draws
        self._rows = np.full(runner.max_num_reqs, draws.empty, WORKER_ROW)
        self._tokens: Tensor | None = None  # (slots, positions), once a request uses a penalty
        self._last: Step | None = None  # None once the rows have changed

    def is_argmax_invariant(self) -> bool:
        """Return False, which decides in which list it stands."""
        return False

    def apply(self, logits: Tensor) -> Tensor:
        """Return them as they are."""
        return logits

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests that enter, leave or move between rows."""
        if batch_update is None:
            return
        rows, empty = self._rows, self._draws.empty
        for row in batch_update.removed:
            rows[row] = empty
        for row, params, prompt, _ in batch_update.added:
            rows[row] = self._draws.enter(params)
            if not uses_penalty(rows[row]):
                continue
            # The completion of a request that returns after preemption is there already.
            device = self._runner.device
            if self._tokens is None:
                shape = int(empty["slot"]) + 1, self._runner.max_model_len + 1
                self._tokens = torch.zeros(shape, dtype=torch.int32, device=device)
            self._tokens[int(rows[row]["slot"]), : len(prompt)] = send(np.array(prompt, np.int32), device)
        for source, target, direction in batch_update.moved:
            if direction == MoveDirectionality.SWAP:
                rows[[source, target]] = rows[[target, source]]
            else:
                rows[target], rows[source] = rows[source], empty
        self._last = None

    def step(self) -> Step:
        """Return what is drawn now."""
        batch = self._runner.input_batch
        some = slice(batch.num_reqs)
        rows = self._rows[some].copy() if self._last is None else self._last.rows
        lengths = np.array(batch.num_tokens_no_spec[some], np.int64)
        positions = lengths - batch.num_prompt_tokens[some]
        self._last = Step(rows, positions, lengths, self._tokens, np.array(rows["slot"]))
        return self._last

    def record(self, drawn: Tensor, step: Step) -> None:
        """Append drawn tokens to those that penalties count. If vLLM discards a draw, the next one overwrites it."""
        if step.tokens is not None:
            places, lengths = (send(line, drawn.device) for line in (step.places, step.lengths))
            step.tokens[places, lengths] = drawn.int()


class LedgerSampler(Sampler):  # type: ignore[misc]
    """Our draws in the shape of the first runner's sampler."""

    def __init__(self, draws: Draws, rows: Rows, generators: bool) -> None:
        super().__init__()
        self._draws, self._rows = draws, rows
        self._own = TopKTopPSampler("raw_logprobs") if generators else None

    def forward(self, logits: Tensor, sampling_metadata: SamplingMetadata, *_: Any, **__: Any) -> SamplerOutput:
        """Draw a token for each row of the logits."""
        own, step = self._own, self._rows.step()
        generators = sampling_metadata.generators
        drawn = self._draws(logits, step, own and (lambda kept: own(kept, generators, None, None)[0].long()))
        self._rows.record(drawn, step)
        count = sampling_metadata.max_num_logprobs
        likely = None if count is None else _likely(logits, count, drawn)
        return SamplerOutput(sampled_token_ids=drawn[:, None].int(), logprobs_tensors=likely)


def _likely(logits: Tensor, count: int, drawn: Tensor) -> LogprobsTensors:
    """Return the drawn tokens, then the most likely ones, and log p. Ranks would cost much and are not read."""
    log_p = logits.log_softmax(-1, dtype=torch.float32)
    values, ids = log_p.topk(count, -1)
    chosen = drawn[:, None]
    return LogprobsTensors(
        torch.cat((chosen, ids), 1).int(), torch.cat((log_p.gather(1, chosen), values), 1), torch.zeros_like(drawn)
    )
