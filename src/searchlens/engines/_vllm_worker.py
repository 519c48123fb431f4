"""What runs inside vLLM's worker: the parts of the engine contract that vLLM lacks, and a ledger of what was drawn.

vLLM hands out log-probabilities of the raw distribution alone, through Python objects that cost a sixth or more of its
speed, and nothing about the distribution that it samples from. Here its sampler is replaced, once the model is loaded,
by one that reduces the logits where they are: log p before everything, log q on what is left after the last filter. The
reductions follow the tokens to the host without anybody waiting for them, and lie there until the request is done.

Nothing is registered with vLLM as a custom logits processor: it would then wait for the tokens of the last step before
every draw. The same processors are hung into the running worker instead.

One process or several, ``Extension`` is injected into every worker; this module must be importable there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from vllm.triton_utils import HAS_TRITON
from vllm.v1.outputs import LogprobsTensors, SamplerOutput
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler
from vllm.v1.sample.sampler import Sampler

from searchlens.engines import sampler
from searchlens.engines.vllm import KEY, NOTED, ROW

_GREEDY = 1e-5  # vLLM's own limit
_WIDE = 128  # rows that are filtered together where it takes several copies of their logits: 80 MB each at Qwen's size


class Extension:
    """Methods that the engine calls by name in every worker."""

    def searchlens_start(self: Any, slots: int, vocab_size: int, masked: Sequence[int]) -> None:
        """Replace the sampler; once, after the model is loaded.

        Parameters
        ----------
        slots : int
            Most requests that vLLM holds at once.
        vocab_size : int
            Token ids from here on stand for nothing and are never drawn.
        masked : sequence of int
            Token ids below it that are never drawn.
        """
        runner = self.model_runner
        width = runner.model_config.get_vocab_size()
        never = [*masked, *range(vocab_size, width)]
        batch = Batch(runner, slots)
        self.searchlens_ledger = Ledger(slots, runner.max_model_len + 1, runner.device)
        runner.sampler = LedgerSampler(runner, batch, self.searchlens_ledger, never)
        processors = runner.input_batch.logitsprocs
        processors.non_argmax_invariant.append(batch)
        processors.argmax_invariant.append(Typical(batch))  # behind min-p, before top-k

    def searchlens_fetch(self: Any, slots: Sequence[int], lengths: Sequence[int]) -> tuple[int, bytes]:
        """Return how often tokens were drawn since the start, and what was noted of some requests.

        Parameters
        ----------
        slots, lengths : sequences of int
            Of requests that are done.

        Returns
        -------
        tuple of (int, bytes)
            A float32 array of shape (sum of lengths, NOTED), one request after the other. Bytes pass through every
            kind of process boundary that vLLM has.
        """
        return self.searchlens_ledger.steps, self.searchlens_ledger.fetch(slots, lengths).tobytes()


class Pending(NamedTuple):
    """Numbers of one step on their way to the host."""

    arrived: Callable[[], bool]
    slots: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    values: Tensor


class Ledger:
    """What was noted of every token, by the request's slot and the token's place in the completion.

    It lies on the host. A step's numbers are copied there behind the step, in the order of the device's work, and
    entered once they have arrived. A request's last tokens have arrived when vLLM reports its end, because its tokens
    took the same way later. The step after it may be under way by then and writes one place further, so there is one
    place more than tokens; a slot's next request is entered after that.

    Parameters
    ----------
    slots : int
    places : int
        Most tokens of a request, and one.
    device : torch.device

    Attributes
    ----------
    steps : int
        Times that tokens were drawn.
    """

    def __init__(self, slots: int, places: int, device: torch.device) -> None:
        self._cells = np.full((slots + 1, places, NOTED), np.nan, np.float32)
        self._pending: deque[Pending] = deque()
        self._on_cpu = device.type == "cpu"
        self.steps = 0

    def write(self, slots: npt.NDArray[np.int64], places: npt.NDArray[np.int64], values: Tensor) -> None:
        """Note a step's numbers, float32 of shape (rows, NOTED); never waits for the device."""
        self.steps += 1
        self._enter()
        if self._on_cpu:
            arrived: Callable[[], bool] = _at_once
        else:
            values = values.to("cpu", non_blocking=True)  # into pinned memory
            event = torch.cuda.Event()
            event.record()
            arrived = event.query
        self._pending.append(Pending(arrived, slots, places, values))

    def fetch(self, slots: Sequence[int], lengths: Sequence[int]) -> npt.NDArray[np.float32]:
        """Hand out what was noted of some requests, one after the other, and forget it.

        Raises
        ------
        RuntimeError
            Something is missing, or the model's logits are not numbers.
        """
        self._enter()
        noted = np.concatenate([self._cells[slot, :length] for slot, length in zip(slots, lengths, strict=True)])
        if np.isnan(noted[:, :2]).any():
            raise RuntimeError("log-probabilities are missing or not numbers: look for NaN in the model's logits")
        for slot, length in zip(slots, lengths, strict=True):
            self._cells[slot, : length + 1] = np.nan
        return noted

    def _enter(self) -> None:
        while self._pending and self._pending[0].arrived():
            _, slots, places, values = self._pending.popleft()
            self._cells[slots, places] = values.numpy()


def _at_once() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Plan:
    """What the rows of a batch want; made anew only when the rows change.

    Attributes
    ----------
    slots : int64 array, shape (rows,)
    measures : bool
        Whether any row wants measures.
    typical : tuple of tensors, or None
        Rows that use typical-p, and its value, shape (n, 1).
    penalised : Penalised or None
    """

    slots: npt.NDArray[np.int64]
    measures: bool
    typical: tuple[Tensor, Tensor] | None
    penalised: Penalised | None


@dataclass(frozen=True, slots=True)
class Penalised:
    """Rows that use a penalty: on the host, and on the device with what they ask for, shape (n, 1)."""

    host: npt.NDArray[np.int64]
    rows: Tensor
    slots: Tensor
    generated: Tensor
    repetition: Tensor
    frequency: Tensor
    presence: Tensor


class Batch(LogitsProcessor):  # type: ignore[misc]
    """Whose the rows of the batch are; and, as a logits processor, the penalties.

    vLLM would count only tokens that it generated itself, not those of a prefix, and only once they are on the host.
    Here a request's tokens are counted from a copy on the device, by their places, so that a draw that vLLM throws away
    is overwritten like everywhere else.
    """

    def __init__(self, runner: Any, slots: int) -> None:
        self._runner = runner
        self._nobody = np.array((slots, False, 1, 1, 0, 0, 0), ROW)
        self._rows = np.full(runner.max_num_reqs, self._nobody, ROW)
        self._tokens: Tensor | None = None  # (slots, places), once a request uses a penalty
        self._ends: Tensor | None = None  # of this step: how many tokens each penalised row has
        self._plan: Plan | None = None

    def is_argmax_invariant(self) -> bool:
        """Penalties come first, and count for greedy too."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the requests as they come, leave and move between rows."""
        if batch_update is None:
            return
        rows = self._rows
        for row in batch_update.removed:
            rows[row] = self._nobody
        for row, params, prompt, _ in batch_update.added:
            asked = (params.extra_args or {}).get(KEY)
            rows[row] = self._nobody if asked is None else tuple(asked)
            if _uses_penalty(rows[row]):
                self._remember(int(rows[row]["slot"]), prompt)
        for source, target, direction in batch_update.moved:
            if direction == MoveDirectionality.SWAP:
                rows[[source, target]] = rows[[target, source]]
            else:
                rows[target], rows[source] = rows[source], self._nobody
        self._plan = None

    def apply(self, logits: Tensor) -> Tensor:
        """Penalise; float32 logits of shape (rows, vocab), changed in place."""
        asked = self.plan().penalised
        if asked is None:
            return logits
        ends = np.asarray(self._runner.input_batch.num_tokens_no_spec[asked.host], np.int64)
        self._ends = _send(ends, logits.device)
        longest = int(ends.max())
        for begin in range(0, len(ends), _WIDE):
            part = slice(begin, begin + _WIDE)
            rows = asked.rows[part]
            logits.index_copy_(0, rows, self._penalised(logits.index_select(0, rows), asked, part, longest))
        return logits

    def _penalised(self, logits: Tensor, asked: Penalised, part: slice, longest: int) -> Tensor:
        assert self._tokens is not None and self._ends is not None
        tokens = self._tokens[asked.slots[part], :longest].long()
        place = torch.arange(longest, device=logits.device)
        seen = place < self._ends[part, None]
        generated = seen & (place >= asked.generated[part])
        occurs, counts = (torch.zeros_like(logits).scatter_add_(1, tokens, one.float()) for one in (seen, generated))
        columns = asked.repetition[part], asked.frequency[part], asked.presence[part]
        rows = torch.arange(len(logits), device=logits.device)
        return sampler.Penalties(rows, *columns, occurs > 0, counts).apply(logits)

    def record(self, tokens: Tensor) -> None:
        """Append the drawn tokens, shape (rows,), to those that penalties look at."""
        asked = self.plan().penalised
        if asked is not None:
            assert self._tokens is not None and self._ends is not None
            self._tokens[asked.slots, self._ends] = tokens[asked.rows].int()

    def places(self) -> npt.NDArray[np.int64]:
        """Place of the token about to be drawn in each row's completion.

        Where vLLM throws a draw away, because a prompt is only partly computed, it is the place of the one that counts.
        """
        batch = self._runner.input_batch
        rows = slice(batch.num_reqs)
        return np.asarray(batch.num_tokens_no_spec[rows] - batch.num_prompt_tokens[rows], np.int64)

    def plan(self) -> Plan:
        """Return what the rows want."""
        if self._plan is None:
            rows, device = self._rows[: self._runner.input_batch.num_reqs], self._runner.device
            typical = np.flatnonzero(rows["typical_p"] < 1)
            penalised = np.flatnonzero(_uses_penalty(rows))
            self._plan = Plan(
                slots=rows["slot"].copy(),
                measures=bool(rows["measures"].any()),
                typical=(_send(typical, device), _column(rows["typical_p"][typical], device)) if typical.size else None,
                penalised=_penalised(rows, penalised, device) if penalised.size else None,
            )
        return self._plan

    def _remember(self, slot: int, prompt: Sequence[int]) -> None:
        """Note a prompt that penalties will look at; a request that comes back has its completion here already."""
        device = self._runner.device
        if self._tokens is None:
            places = int(self._nobody["slot"]) + 1, self._runner.max_model_len + 1
            self._tokens = torch.zeros(places, dtype=torch.int32, device=device)
        self._tokens[slot, : len(prompt)] = _send(np.array(prompt, np.int32), device)


class Typical(LogitsProcessor):  # type: ignore[misc]
    """Typical-p, after temperature and min-p, before top-k and top-p."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def is_argmax_invariant(self) -> bool:
        """It says so, to come after temperature: greedy has no filters."""
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Nothing to do: the batch knows."""

    def apply(self, logits: Tensor) -> Tensor:
        """Filter; float32 logits of shape (rows, vocab), changed in place."""
        asked = self._batch.plan().typical
        if asked is None:
            return logits
        for rows, limits in zip(asked[0].split(_WIDE), asked[1].split(_WIDE), strict=True):
            part = logits.index_select(0, rows)
            weights = (part - part.amax(-1, keepdim=True)).exp_()
            sampler.filter_typical_p(weights, limits)
            logits.index_copy_(0, rows, part.masked_fill_(weights == 0, -torch.inf))
        return logits


class LedgerSampler(Sampler):  # type: ignore[misc]
    """vLLM's sampler, which also notes what it drew from.

    Parameters
    ----------
    runner : the worker's model runner
    batch : Batch
    ledger : Ledger
    never : sequence of int
        Columns of the logits that are masked before everything.
    """

    def __init__(self, runner: Any, batch: Batch, ledger: Ledger, never: Sequence[int]) -> None:
        exact = runner.sampler.use_fp64_gumbel
        super().__init__("raw_logprobs", exact)
        self.topk_topp_sampler = TopKTopPSampler("processed_logits", exact)  # hands back what it drew from
        self._batch, self._ledger = batch, ledger
        self._never = torch.tensor(never, dtype=torch.int64, device=runner.device)
        self._drawable = runner.model_config.get_vocab_size() - len(never)
        self._filtered: Tensor | None = None
        self._log_p: Callable[[Tensor, Tensor], Tensor] = _log_p
        self._measures: Callable[[Tensor, int], tuple[Tensor, Tensor]] = _measures
        if HAS_TRITON and runner.device.type == "cuda" and not runner.model_config.enforce_eager:
            self._log_p = torch.compile(_log_p, dynamic=True)
            self._measures = torch.compile(_measures, dynamic=True)
            self._warm_up(runner)

    def forward(
        self,
        logits: Tensor,
        sampling_metadata: SamplingMetadata,
        predict_bonus_token: bool = False,
        logprobs_mode_override: Any = None,
    ) -> SamplerOutput:
        """Draw a token for each row of the logits."""
        if len(self._never):
            logits.index_fill_(-1, self._never, -torch.inf)
        raw = logits.clone() if logits.dtype == torch.float32 else logits  # float32 is worked on in place
        self._filtered = None
        output = super().forward(logits, sampling_metadata, predict_bonus_token, logprobs_mode_override)
        tokens = output.sampled_token_ids.view(-1).long()
        self._batch.record(tokens)
        plan = self._batch.plan()
        log_q = self._log_q(tokens, sampling_metadata)
        measures = self._measures(raw, self._drawable) if plan.measures else (torch.zeros_like(log_q),) * 2
        noted = torch.stack((self._log_p(raw, tokens), log_q, *measures), 1)
        self._ledger.write(plan.slots, self._batch.places(), noted)
        return output

    def sample(
        self, logits: Tensor, sampling_metadata: SamplingMetadata, logprobs_mode_override: Any = None
    ) -> tuple[Tensor, None]:
        """Draw, and keep the logits that were drawn from; none where every row is greedy."""
        tokens, self._filtered = super().sample(logits, sampling_metadata, logprobs_mode_override)
        return tokens, None

    @staticmethod
    def gather_logprobs(logprobs: Tensor, num_logprobs: int, token_ids: Tensor) -> LogprobsTensors:
        """Return the most likely tokens behind the drawn one, without counting ranks as vLLM does: nobody asks."""
        values, ids = logprobs.topk(num_logprobs, -1)
        drawn = token_ids[:, None]
        return LogprobsTensors(
            torch.cat((drawn, ids), 1).int(),
            torch.cat((logprobs.gather(1, drawn), values), 1),
            torch.zeros_like(token_ids),
        )

    def _log_q(self, tokens: Tensor, sampling_metadata: SamplingMetadata) -> Tensor:
        if self._filtered is None:
            return torch.zeros_like(tokens, dtype=torch.float32)
        log_q = self._log_p(self._filtered, tokens)
        if not sampling_metadata.all_random:
            log_q = log_q.masked_fill(sampling_metadata.temperature < _GREEDY, 0.0)
        return log_q

    @torch.inference_mode()
    def _warm_up(self, runner: Any) -> None:
        """Compile now, for one row and for many, and not in the middle of the first requests."""
        for rows in (1, 2):
            tokens = torch.zeros(rows, dtype=torch.int64, device=runner.device)
            for dtype in (runner.model_config.dtype, torch.float32):
                logits = torch.zeros(rows, runner.model_config.get_vocab_size(), dtype=dtype, device=runner.device)
                self._log_p(logits, tokens)
            self._measures(logits.to(runner.model_config.dtype), self._drawable)


def _log_p(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probability of one token per row, float32."""
    logits = logits.float()
    return logits.gather(-1, tokens[:, None]).squeeze(1) - logits.logsumexp(-1)


def _measures(logits: Tensor, drawable: int) -> tuple[Tensor, Tensor]:
    """Entropy and self-certainty of each row over the `drawable` tokens that are not masked, float32, in nats."""
    below = logits.float() - logits.amax(-1, keepdim=True).float()
    weights = below.exp()
    total = weights.sum(-1)
    below = below.masked_fill(below == -torch.inf, 0.0)  # masked: neither has weight nor counts
    entropy = total.log() - (weights * below).sum(-1) / total
    certainty = total.log() - below.sum(-1) / drawable - math.log(drawable)
    return entropy, certainty


def _uses_penalty(rows: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    return np.asarray((rows["repetition"] != 1) | (rows["frequency"] != 0) | (rows["presence"] != 0))


def _penalised(rows: npt.NDArray[np.void], chosen: npt.NDArray[np.int64], device: torch.device) -> Penalised:
    asked = rows[chosen]
    names = ("generated", "repetition", "frequency", "presence")
    return Penalised(
        chosen,
        _send(chosen, device),
        _send(asked["slot"].copy(), device),
        *(_column(asked[name], device) for name in names),
    )


def _column(values: npt.NDArray[Any], device: torch.device) -> Tensor:
    return _send(values.copy(), device)[:, None]


def _send(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy to the device without waiting for it."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
