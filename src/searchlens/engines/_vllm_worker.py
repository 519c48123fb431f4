"""The part of the vLLM engine that runs in vLLM's worker: missing filters, and a ledger of every drawn token.

vLLM returns log-probabilities of the raw distribution only, as Python objects that cost a sixth or more of its speed,
and nothing about the distribution that it samples from. So its sampler is replaced, once the model is loaded, by one
that reduces the logits on the device: log p before all filters, log q after the last one. The results are copied to the
host asynchronously and stay there, in the ledger, until the request has finished.

It also draws, by the uniform number of the request's seed and the token's position, as the embedded engine does. vLLM
has a generator for each request with a seed, and starts a kernel for each in every step: at a thousand rows its host
would take longer than the model.

Nothing is registered as a custom logits processor of vLLM, because vLLM would then wait for the tokens of the previous
step before every draw. Instead, the processors are added to the running worker.

``Extension`` is injected into every worker, in one process or several; this module must be importable there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from vllm.triton_utils import HAS_TRITON
from vllm.v1.outputs import LogprobsTensors, SamplerOutput
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler, apply_top_k_top_p
from vllm.v1.sample.sampler import Sampler

from searchlens.config import addons
from searchlens.engines import sampler
from searchlens.engines._vllm_request import EXTRA_ARG, NOT_GIVEN, WORKER_ROW, FloorRows, Ints, Ledger
from searchlens.errors import InputError
from searchlens.seeds import uniform

_GREEDY = 1e-5  # vLLM draws greedily at temperatures below
_ROWS_AT_ONCE = 128  # rows that penalties and typical-p process together: they copy logits several times, 80 MB a copy

_HOOKS = (
    *("device", "max_model_len", "max_num_reqs", "model_config.get_vocab_size", "sampler.use_fp64_gumbel"),
    *("input_batch.num_reqs", "input_batch.num_prompt_tokens", "input_batch.num_tokens_no_spec"),
    *("input_batch.logitsprocs.argmax_invariant", "input_batch.logitsprocs.non_argmax_invariant"),
)
"""What is read or replaced of vLLM's model runner, none of which vLLM promises to keep."""


class Extension:
    """Methods that the engine calls by name in every worker."""

    def searchlens_start(
        self: Any, slots: int, vocab_size: int, masked: Sequence[int], generators: bool = False
    ) -> None:
        """Replace the sampler; once, after the model is loaded.

        There is a slot for each request that vLLM has at once. Ids from ``vocab_size`` on are no tokens and are never
        drawn, nor are masked ones. Raises InputError if this version of vLLM has another model runner.
        """
        runner = self.model_runner
        _require_hooks(runner)
        width = runner.model_config.get_vocab_size()
        batch = BatchRows(runner, slots)
        self.searchlens_ledger = Ledger(slots, runner.max_model_len + 1, runner.device)
        columns = [*masked, *range(vocab_size, width)]
        runner.sampler = LedgerSampler(runner, batch, self.searchlens_ledger, columns, generators)
        processors = runner.input_batch.logitsprocs
        processors.non_argmax_invariant.append(batch)
        processors.argmax_invariant.append(TypicalP(batch))  # after min-p, before top-k

    def searchlens_fetch(self: Any, slots: Sequence[int], lengths: Sequence[int]) -> tuple[int, bytes]:
        """Return the decode steps since the start, and the ledger of finished requests, by slots and lengths.

        The ledger is float32, shape (sum of lengths, LEDGER_COLUMNS), one request after the other, as bytes, which pass
        every process boundary that vLLM has.
        """
        return self.searchlens_ledger.steps, self.searchlens_ledger.fetch(slots, lengths).tobytes()

    def searchlens_rejected(self: Any) -> tuple[list[int], list[int], bytes, bytes]:
        """Return the requests that have come down to their floors since the last call, and clear their slots.

        Returns slots, numbers of tokens, the tokens, int32, one request after the other, and the ledger as
        ``searchlens_fetch``. The caller must abort the requests before the next step.
        """
        slots, lengths, tokens, numbers = self.searchlens_ledger.rejected()
        return slots, lengths, tokens.tobytes(), numbers.tobytes()


def _require_hooks(runner: Any) -> None:
    for name in _HOOKS:
        try:
            attrgetter(name)(runner)
        except AttributeError:
            raise InputError(
                f"vLLM's model runner {type(runner).__name__} has no {name}, by which log-probabilities are recorded",
                f"install a version of vLLM that this searchlens knows: {addons.installing('vllm')}",
            ) from None


@dataclass(frozen=True, slots=True)
class BatchParameters:
    """Parameters of the rows of a batch, built again only after the rows have changed."""

    slots: Ints
    """Of the ledger. Shape (rows,)."""
    seeds: npt.NDArray[np.uint64]
    """Shape (rows,)."""
    measures: bool
    """Whether any row has measures."""
    log_min_p: Tensor
    """Minus infinity without min-p. Shape (rows, 1), of float32."""
    typical_p: tuple[Tensor, Tensor] | None
    """Rows that use typical-p, and its values, shape (n, 1)."""
    penalties: PenaltyRows | None
    given: Tensor | None
    """Tokens whose log p is recorded in place of the drawn ones', ``NOT_GIVEN`` in rows without one; None if no row has
    one. Int64, shape (rows,)."""
    floors: FloorRows | None


@dataclass(frozen=True, slots=True)
class PenaltyRows:
    """The n rows that use a penalty: on the host, and on the device with their parameters, shape (n, 1)."""

    host_rows: Ints
    rows: Tensor
    slots: Tensor
    generated: Tensor
    repetition: Tensor
    frequency: Tensor
    presence: Tensor


class BatchRows(LogitsProcessor):  # type: ignore[misc]
    """The request of each row of vLLM's batch; and, as a logits processor, the penalties.

    vLLM itself counts only tokens that it generated, not those of a prefix, and only once they are on the host. Here
    the tokens of a request are counted from a copy on the device, by their positions; if vLLM discards a draw, the next
    one overwrites it.
    """

    def __init__(self, runner: Any, slots: int) -> None:
        self._runner = runner
        # With a slot that no request has.
        self._empty = np.array((slots, 0, False, 0, 1, 1, 0, 0, 0, NOT_GIVEN, 0, -np.inf, np.nan), WORKER_ROW)
        self._rows = np.full(runner.max_num_reqs, self._empty, WORKER_ROW)
        self._tokens: Tensor | None = None  # (slots, positions), once a request uses a penalty
        self._ends: Tensor | None = None  # in this step: how many tokens each row with a penalty has
        self._parameters: BatchParameters | None = None

    def is_argmax_invariant(self) -> bool:
        """Return False, so that vLLM applies penalties before temperature and to greedy requests, too."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests that enter, leave or move between rows."""
        if batch_update is None:
            return
        rows = self._rows
        for row in batch_update.removed:
            rows[row] = self._empty
        for row, params, prompt, _ in batch_update.added:
            extra = (params.extra_args or {}).get(EXTRA_ARG)
            rows[row] = self._empty if extra is None else tuple(extra)
            if not _uses_penalty(rows[row]):
                continue
            # The completion of a request that returns after preemption is there already.
            device = self._runner.device
            if self._tokens is None:
                shape = int(self._empty["slot"]) + 1, self._runner.max_model_len + 1
                self._tokens = torch.zeros(shape, dtype=torch.int32, device=device)
            self._tokens[int(rows[row]["slot"]), : len(prompt)] = _send(np.array(prompt, np.int32), device)
        for source, target, direction in batch_update.moved:
            if direction == MoveDirectionality.SWAP:
                rows[[source, target]] = rows[[target, source]]
            else:
                rows[target], rows[source] = rows[source], self._empty
        self._parameters = None

    def apply(self, logits: Tensor) -> Tensor:
        """Penalise float32 logits of shape (rows, vocab), in place."""
        penalties = self.parameters().penalties
        if penalties is None:
            return logits
        assert self._tokens is not None, "rows with a penalty have sent their prompts"
        ends = np.asarray(self._runner.input_batch.num_tokens_no_spec[penalties.host_rows], np.int64)
        self._ends = _send(ends, logits.device)
        position = torch.arange(int(ends.max()), device=logits.device)
        for begin in range(0, len(ends), _ROWS_AT_ONCE):
            part = slice(begin, begin + _ROWS_AT_ONCE)
            rows = penalties.rows[part]
            selection = logits.index_select(0, rows)
            tokens = self._tokens[penalties.slots[part], : len(position)].long()
            exists = position < self._ends[part, None]
            generated = exists & (position >= penalties.generated[part])
            occurs, counts = (
                torch.zeros_like(selection).scatter_add_(1, tokens, mask.float()) for mask in (exists, generated)
            )
            columns = penalties.repetition[part], penalties.frequency[part], penalties.presence[part]
            every = torch.arange(len(selection), device=logits.device)
            penalised = sampler.Penalties(every, *columns, occurs > 0, counts).apply(selection)
            logits.index_copy_(0, rows, penalised)
        return logits

    def record(self, tokens: Tensor) -> None:
        """Append the drawn tokens, shape (rows,), to the tokens that penalties count."""
        penalties = self.parameters().penalties
        if penalties is not None:
            assert self._tokens is not None and self._ends is not None
            self._tokens[penalties.slots, self._ends] = tokens[penalties.rows].int()

    def positions(self) -> Ints:
        """Return the position in its completion of the token that each row draws next.

        If vLLM will discard the draw, because the prompt is only partly computed, it is the position of the draw that
        replaces it.
        """
        batch = self._runner.input_batch
        rows = slice(batch.num_reqs)
        return np.asarray(batch.num_tokens_no_spec[rows] - batch.num_prompt_tokens[rows], np.int64)

    def uniforms(self) -> Tensor:
        """Return the number in [0, 1) by which each row draws its next token: float64, shape (rows,), on the device."""
        return _send(uniform(self.parameters().seeds, self.positions()), self._runner.device)

    def parameters(self) -> BatchParameters:
        """Return the parameters of the rows."""
        if self._parameters is not None:
            return self._parameters
        rows, device = self._rows[: self._runner.input_batch.num_reqs], self._runner.device
        with np.errstate(divide="ignore"):
            log_min_p = np.log(rows["min_p"]).astype(np.float32)
        typical, penal = np.flatnonzero(rows["typical_p"] < 1), np.flatnonzero(_uses_penalty(rows))
        low = np.flatnonzero(rows["bound"] > -np.inf)
        typical_p = penalties = floors = None
        if typical.size:
            typical_p = _send(typical, device), _column(rows["typical_p"][typical], device)
        if penal.size:
            names = ("generated", "repetition", "frequency", "presence")
            columns = (_column(rows[name][penal], device) for name in names)
            penalties = PenaltyRows(penal, _send(penal, device), _send(rows["slot"][penal], device), *columns)
        if low.size:
            floors = FloorRows(low, *(rows[name][low] for name in ("alpha", "bound", "start")))
        self._parameters = BatchParameters(
            slots=rows["slot"].copy(),
            seeds=rows["seed"].astype(np.uint64),
            measures=bool(rows["measures"].any()),
            log_min_p=_column(log_min_p, device),
            typical_p=typical_p,
            penalties=penalties,
            given=_send(rows["given"].copy(), device) if (rows["given"] != NOT_GIVEN).any() else None,
            floors=floors,
        )
        return self._parameters


class TypicalP(LogitsProcessor):  # type: ignore[misc]
    """Typical-p, after temperature and min-p, before top-k and top-p."""

    def __init__(self, batch: BatchRows) -> None:
        self._batch = batch

    def is_argmax_invariant(self) -> bool:
        """Return True, so that vLLM applies it after temperature, and not if all rows are greedy."""
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Do nothing: ``BatchRows`` follows the rows."""

    def apply(self, logits: Tensor) -> Tensor:
        """Filter float32 logits of shape (rows, vocab), in place."""
        parameters = self._batch.parameters().typical_p
        if parameters is None:
            return logits
        for rows, limits in zip(*(tensor.split(_ROWS_AT_ONCE) for tensor in parameters), strict=True):
            selection = logits.index_select(0, rows)
            weights = (selection - selection.amax(-1, keepdim=True)).exp_()
            sampler.filter_typical_p(weights, limits)
            logits.index_copy_(0, rows, selection.masked_fill_(weights == 0, -torch.inf))
        return logits


class InverseCdf(torch.nn.Module):
    """Draws from what vLLM's filters leave, by one uniform number a row; in place of vLLM's own last step."""

    def __init__(self, batch: BatchRows, draw: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self._batch, self._draw = batch, draw

    def forward(self, logits: Tensor, _: Any, k: Tensor | None, p: Tensor | None) -> tuple[Tensor, Tensor]:
        """Filter float32 logits of shape (rows, vocab), in place; return the drawn tokens and their log q."""
        return self._draw(apply_top_k_top_p(logits, k, p), self._batch.uniforms())


class Generators(torch.nn.Module):
    """vLLM's own last step, with the generators of the requests; it also returns log q."""

    def __init__(self, exact: bool, log_p: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self._draw = TopKTopPSampler("processed_logits", exact)  # also returns the filtered logits
        self._log_p = log_p

    def forward(
        self, logits: Tensor, generators: Any, k: Tensor | None, p: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Filter float32 logits of shape (rows, vocab); return the drawn tokens and their log q, if it is known."""
        tokens, filtered = self._draw(logits, generators, k, p)
        return tokens, None if filtered is None else self._log_p(filtered, tokens.long())


class LedgerSampler(Sampler):  # type: ignore[misc]
    """vLLM's sampler, which also records log p, log q and measures; masked columns are masked first."""

    def __init__(self, runner: Any, batch: BatchRows, ledger: Ledger, masked: Sequence[int], generators: bool) -> None:
        exact = runner.sampler.use_fp64_gumbel
        super().__init__("raw_logprobs", exact)
        self._batch, self._ledger = batch, ledger
        self._masked = torch.tensor(masked, dtype=torch.int64, device=runner.device)
        self._drawable = runner.model_config.get_vocab_size() - len(masked)
        self._drawn: Tensor | None = None  # log q of this step's random draws
        compiled = HAS_TRITON and runner.device.type == "cuda" and not runner.model_config.enforce_eager
        fused: Any = partial(torch.compile, dynamic=True) if compiled else lambda function: function
        self._log_p, self._measures = fused(_log_p), fused(_measures)
        self._scaled, draw = fused(_scaled), fused(_draw)
        self.topk_topp_sampler = Generators(exact, self._log_p) if generators else InverseCdf(batch, draw)
        if compiled:
            self._warm_up(runner, draw)

    def forward(
        self,
        logits: Tensor,
        sampling_metadata: SamplingMetadata,
        predict_bonus_token: bool = False,
        logprobs_mode_override: Any = None,
    ) -> SamplerOutput:
        """Draw a token for each row of the logits."""
        if len(self._masked):
            logits.index_fill_(-1, self._masked, -torch.inf)
        raw = logits.clone() if logits.dtype == torch.float32 else logits  # vLLM changes float32 logits in place
        self._drawn = None
        output = super().forward(logits, sampling_metadata, predict_bonus_token, logprobs_mode_override)
        tokens = output.sampled_token_ids.view(-1).long()
        self._batch.record(tokens)
        parameters = self._batch.parameters()
        log_q = self._log_q(tokens, sampling_metadata)
        measures = self._measures(raw, self._drawable) if parameters.measures else (torch.zeros_like(log_q),) * 2
        given = parameters.given
        scored = tokens if given is None else torch.where(given == NOT_GIVEN, tokens, given)
        columns = [self._log_p(raw, scored), log_q, *measures]
        if parameters.floors is not None:
            columns.append(tokens.float())  # exact below 2**24
        slots = parameters.slots.copy()  # the ledger may give them up while the numbers are on their way
        self._ledger.write(slots, self._batch.positions(), torch.stack(columns, 1), parameters.floors)
        return output

    def sample(
        self, logits: Tensor, sampling_metadata: SamplingMetadata, logprobs_mode_override: Any = None
    ) -> tuple[Tensor, None]:
        """Draw, and keep log q of random draws; there are none if every row is greedy."""
        tokens, self._drawn = super().sample(logits, sampling_metadata, logprobs_mode_override)
        return tokens, None

    def apply_temperature(self, logits: Tensor, temp: Tensor, all_random: bool) -> Tensor:
        """Return logits after temperature and min-p, in one pass over them, in which greedy rows stay as they are."""
        temp = temp if all_random else temp.masked_fill(temp < _GREEDY, 1.0)
        scaled: Tensor = self._scaled(logits, temp[:, None], self._batch.parameters().log_min_p)
        return scaled

    def compute_logprobs(self, logits: Tensor) -> Tensor:
        """Return log p of every token, float32. vLLM calls it with the logits of the tokens of a prompt, too."""
        if len(self._masked):
            logits.index_fill_(-1, self._masked, -torch.inf)
        log_p: Tensor = super().compute_logprobs(logits)
        return log_p

    @staticmethod
    def gather_logprobs(logprobs: Tensor, num_logprobs: int, token_ids: Tensor) -> LogprobsTensors:
        """Return the drawn token, then the most likely ones. Unlike vLLM's, it computes ranks of given tokens alone."""
        values, ids = logprobs.topk(num_logprobs, -1)
        drawn = token_ids[:, None]
        ranks = torch.zeros_like(token_ids) if num_logprobs else (logprobs > logprobs.gather(1, drawn)).sum(-1) + 1
        return LogprobsTensors(
            torch.cat((drawn, ids), 1).int(),
            torch.cat((logprobs.gather(1, drawn), values), 1),
            ranks,
        )

    def _log_q(self, tokens: Tensor, sampling_metadata: SamplingMetadata) -> Tensor:
        """Return log q of the drawn tokens, float32, 0 for greedy rows; RuntimeError if vLLM drew in another way."""
        if self._drawn is None:
            if not sampling_metadata.all_greedy:
                raise RuntimeError("vLLM's sampler drew at random in a way of its own, so log q is unknown")
            return torch.zeros_like(tokens, dtype=torch.float32)
        log_q = self._drawn.float()
        if not sampling_metadata.all_random:
            log_q = log_q.masked_fill(sampling_metadata.temperature < _GREEDY, 0.0)
        return log_q

    @torch.inference_mode()
    def _warm_up(self, runner: Any, draw: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        """Compile for one row and for many, so that the first requests need not wait for it."""
        device = runner.device
        for rows in (1, 2):
            tokens, ones = torch.zeros(rows, dtype=torch.int64, device=device), torch.ones(rows, 1, device=device)
            for dtype in (runner.model_config.dtype, torch.float32):
                logits = torch.zeros(rows, runner.model_config.get_vocab_size(), dtype=dtype, device=device)
                self._log_p(logits, tokens)
            self._measures(logits.to(runner.model_config.dtype), self._drawable)
            draw(self._scaled(logits, ones, -ones), tokens.double())


def _scaled(logits: Tensor, temperature: Tensor, log_min_p: Tensor) -> Tensor:
    """Return float32 logits over the temperature, less the highest of the row, without those below min-p."""
    scaled = (logits - logits.amax(-1, keepdim=True)) / temperature
    return scaled.masked_fill(scaled < log_min_p, -torch.inf)


def _draw(logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Return a token for each row of float32 logits, and its log q, by :func:`sampler.inverse_cdf`."""
    weights = sampler.weights_of(logits)
    columns = sampler.padded_vocab(logits.shape[1]) - logits.shape[1]
    return sampler.inverse_cdf(torch.nn.functional.pad(weights, (0, columns)), uniforms)


def _log_p(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the log-probability of one token per row, float32."""
    logits = logits.float()
    return logits.gather(-1, tokens[:, None]).squeeze(1) - logits.logsumexp(-1)


def _measures(logits: Tensor, drawable: int) -> tuple[Tensor, Tensor]:
    """Return entropy and self-certainty of each row over its `drawable` unmasked tokens, float32, in nats."""
    shifted = logits.float() - logits.amax(-1, keepdim=True).float()
    weights = shifted.exp()
    total = weights.sum(-1)
    shifted = shifted.masked_fill(shifted == -torch.inf, 0.0)  # masked tokens add nothing to either sum
    entropy = total.log() - (weights * shifted).sum(-1) / total
    certainty = total.log() - shifted.sum(-1) / drawable - math.log(drawable)
    return entropy, certainty


def _uses_penalty(rows: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    return np.asarray((rows["repetition"] != 1) | (rows["frequency"] != 0) | (rows["presence"] != 0))


def _column(values: npt.NDArray[Any], device: torch.device) -> Tensor:
    return _send(values.copy(), device)[:, None]


def _send(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy to the device without waiting for it."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
