"""The part of the vLLM engine that runs in vLLM's worker: how tokens are drawn, and a ledger of every drawn token.

vLLM returns log-probabilities of the raw distribution only, as Python objects that cost a sixth or more of its speed,
and nothing about the distribution that it samples from. So its sampler is replaced, once the model is loaded, by one
that reduces the logits on the device: log p before all filters, log q after the last one. The results are copied to the
host asynchronously and stay there, in the ledger, until the request has finished.

It draws by the uniform number of the request's seed and the token's position, as the embedded engine does. vLLM has a
generator for each request with a seed, and starts a kernel for each in every step: at a thousand rows its host would
take longer than the model.

vLLM has two model runners. What is common to both is here; :mod:`searchlens.engines._vllm_first_runner` and
:mod:`searchlens.engines._vllm_second_runner` say which requests are in the rows of a step. The first one is that of
vLLM on CPUs; its file goes with the last version that has no other there.

``Extension`` is injected into every worker, in one process or several; this module must be importable there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from vllm.triton_utils import HAS_TRITON
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

from searchlens.config import addons
from searchlens.engines import sampler
from searchlens.engines._vllm_request import EXTRA_ARG, GIVEN_ARG, WORKER_ROW, FloorRows, Ints, Ledger, worker_row
from searchlens.engines.base import PLAIN, Request, Sampling
from searchlens.errors import InputError
from searchlens.seeds import uniform

Own = Callable[[Tensor], Tensor]
_ROWS_AT_ONCE = 128  # rows that penalties and typical-p process together: they copy logits several times, 80 MB a copy
_SAME_ROWS = 64  # rows that are always drawn together where bits must not depend on the batch

_HOOKS = ("device", "max_model_len", "max_num_reqs", "model_config.get_vocab_size")
"""What is read or replaced of both model runners, none of which vLLM promises to keep."""


class Extension:
    """Methods that the engine calls by name in every worker."""

    def searchlens_start(
        self: Any, slots: int, vocab_size: int, masked: Sequence[int], generators: bool, same_bits: bool
    ) -> str:
        """Replace the sampler, once, after the model is loaded; return the name of the model runner.

        There is a slot for each request that vLLM has at once. Ids from ``vocab_size`` on are no tokens and are never
        drawn, nor are masked ones. ``same_bits``: whether numbers of a row must not depend on the other rows. Raises
        InputError if this version of vLLM has another model runner.
        """
        runner = self.model_runner
        kind = "second" if hasattr(runner, "req_states") else "first"
        own = import_module(f"searchlens.engines._vllm_{kind}_runner")
        require_hooks(runner, (*_HOOKS, *own.HOOKS))
        width = runner.model_config.get_vocab_size()
        self.searchlens_ledger = Ledger(slots, runner.max_model_len + 1, runner.device)
        draws = Draws(runner, self.searchlens_ledger, [*masked, *range(vocab_size, width)], same_bits)
        own.replace_sampler(runner, draws, generators)
        return f"{kind} model runner"

    def searchlens_fetch(self: Any, slots: Sequence[int], lengths: Sequence[int]) -> tuple[int, bytes, bytes]:
        """Return the decode steps since the start, and the ledger of finished requests, by slots and lengths.

        The ledger is float32, shape (sum of lengths, LEDGER_COLUMNS), one request after the other, as bytes, which pass
        every process boundary that vLLM has; so are its notes, int32, none if no request has any. Of several workers
        only the first one is asked: when vLLM reports an end, the numbers of another may still be on their way.
        """
        if self.rank:
            return 0, b"", b""
        numbers, notes = self.searchlens_ledger.fetch(slots, lengths)
        return self.searchlens_ledger.steps, numbers.tobytes(), notes.tobytes()

    def searchlens_rejected(self: Any) -> tuple[list[int], list[int], bytes, bytes]:
        """Return the requests that have come down to their floors since the last call, and clear their slots.

        Returns slots, numbers of tokens, the tokens, int32, one request after the other, and the ledger as
        ``searchlens_fetch``. The caller must abort the requests before the next step.
        """
        if self.rank:
            return [], [], b"", b""
        slots, lengths, tokens, numbers = self.searchlens_ledger.rejected()
        return slots, lengths, tokens.tobytes(), numbers.tobytes()


def require_hooks(runner: Any, names: Sequence[str]) -> None:
    """Refuse a model runner that lacks one of some attributes, by name."""
    for name in names:
        try:
            attrgetter(name)(runner)
        except AttributeError:
            raise InputError(
                f"vLLM's model runner {type(runner).__name__} has no {name}, by which log-probabilities are recorded",
                f"install a version of vLLM that this searchlens knows: {addons.installing('vllm')}",
            ) from None


class Step(NamedTuple):
    """What a model runner says of the rows of a step.

    If vLLM will discard a draw, because a prompt is only partly computed, its row has the position of the draw that
    replaces it.
    """

    rows: npt.NDArray[np.void]
    """Array of ``WORKER_ROW``, the same object as in the step before if it has the same requests. Shape (rows,)."""
    positions: Ints
    """Position in its completion of the token that each row draws."""
    lengths: Ints
    """Tokens before it, those of prompt and prefix included."""
    tokens: Tensor | None
    """All tokens of requests, int32 on the device; at least those of rows with a penalty. Shape (any, tokens)."""
    places: Ints
    """The row of ``tokens`` that a row has."""

    def of(self, part: slice) -> Step:
        """Some rows of it."""
        rows, positions, lengths, tokens, places = self
        return Step(rows[part], positions[part], lengths[part], tokens, places[part])


class PenaltyRows(NamedTuple):
    """The n rows that use a penalty: on the host, and on the device with their parameters, shape (n, 1)."""

    host_rows: Ints
    rows: Tensor
    generated: Tensor
    repetition: Tensor
    frequency: Tensor
    presence: Tensor


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of rows that are drawn together, on the device unless said."""

    count: int
    """Of rows; with ``same_bits`` there may be more of everything else, which belong to nobody."""
    greedy: Tensor | None
    """Which rows are greedy; None: none. Shape (rows,)."""
    all_greedy: bool
    temperature: Tensor
    """1 for greedy rows. Shape (rows, 1), of float32."""
    log_min_p: Tensor
    """Minus infinity without min-p. Shape (rows, 1), of float32."""
    typical_p: tuple[Tensor, Tensor] | None
    """Rows that use typical-p, and its values, shape (n, 1)."""
    top_k: Tensor | None
    top_p: Tensor | None
    """``top_k``, ``top_p``: as vLLM takes them, shape (rows,); None: no row uses it."""
    penalties: PenaltyRows | None
    given: Tensor | None
    """Slots of rows whose tokens are given; None: of no row. An engine scores only while nothing is drawn."""
    plain: bool
    """Whether no row has a temperature or a filter."""
    measures: bool
    """Whether any row has measures."""

    @classmethod
    def of(cls, rows: npt.NDArray[np.void], width: int, count: int, same: int, device: torch.device) -> Parameters:
        """Return the parameters of rows whose logits have a width.

        ``same``: as many rows are taken out for a filter wherever any is, some more than once; 0: as many as use it.
        """
        greedy = rows["temperature"] == 0
        top_k = np.where((rows["top_k"] > 0) & (rows["top_k"] < width) & ~greedy, rows["top_k"], width)
        top_p = np.where(greedy, 1.0, rows["top_p"])
        with np.errstate(divide="ignore"):
            log_min_p = np.where(greedy, -np.inf, np.log(rows["min_p"]))
        typical, penal = (
            np.resize(chosen, same) if same and chosen.size else chosen
            for chosen in map(np.flatnonzero, ((rows["typical_p"] < 1) & ~greedy, uses_penalty(rows)))
        )
        given, filters = rows["given"][:count], ("temperature", "top_p", "top_k", "min_p", "typical_p")
        assert given.all() or not given.any(), "nothing is drawn while texts are scored"
        penalties = None
        if penal.size:
            names = ("generated", "repetition", "frequency", "presence")
            columns = (_column(rows[name][penal], device) for name in names)
            penalties = PenaltyRows(penal, send(penal, device), *columns)
        return cls(
            count=count,
            greedy=send(greedy, device) if greedy.any() else None,
            all_greedy=bool(greedy.all()),
            temperature=_column(np.where(greedy, 1.0, rows["temperature"]).astype(np.float32), device),
            log_min_p=_column(log_min_p.astype(np.float32), device),
            typical_p=(send(typical, device), _column(rows["typical_p"][typical], device)) if typical.size else None,
            top_k=send(top_k.astype(np.int32), device) if (top_k < width).any() else None,
            top_p=send(top_p.astype(np.float32), device) if (top_p < 1).any() else None,
            penalties=penalties,
            given=send(rows["slot"].copy(), device) if given.any() else None,
            plain=all((rows[name][:count] == getattr(PLAIN, name)).all() for name in filters),
            measures=bool(rows["measures"].any()),
        )


class Draws:
    """Draws a token for each row of a step and writes its numbers into the ledger; masked columns are masked first."""

    def __init__(self, runner: Any, ledger: Ledger, masked: Sequence[int], same_bits: bool) -> None:
        self._device, self._width = runner.device, runner.model_config.get_vocab_size()
        self._ledger, self._same_bits = ledger, same_bits
        self._masked = torch.tensor(masked, dtype=torch.int64, device=self._device)
        self._drawable = self._width - len(masked)
        nothing = Request(prompt=(), sampling=Sampling(0.0), seed=0, max_tokens=1)
        self.empty = np.array(tuple(worker_row(nothing, ledger.nobody)), WORKER_ROW)
        """The row of no request: greedy, and in a slot that none has."""
        # (slots, positions), as many as the longest text that was scored has, and one more
        self._given = torch.zeros(ledger.nobody + 1, 0, dtype=torch.int32, device=self._device)
        self._rows: npt.NDArray[np.void] | None = None  # of the last step
        self._parts: list[Parameters] = []  # of these rows
        # A compiled kernel may sum in another order in another process.
        compiled = (
            HAS_TRITON and self._device.type == "cuda" and not runner.model_config.enforce_eager and not same_bits
        )
        fused: Any = partial(torch.compile, dynamic=True) if compiled else lambda function: function
        self._log_p, self._measures = fused(_log_p), fused(_measures)
        self._scaled, self._draw = fused(_scaled), fused(_draw)
        if compiled:
            self._warm_up(runner.model_config.dtype)

    def enter(self, params: Any) -> npt.NDArray[np.void]:
        """Return the row of a request that enters the batch, from vLLM's parameters of it."""
        extra = params.extra_args or {}
        row = np.array(tuple(extra[EXTRA_ARG]), WORKER_ROW) if EXTRA_ARG in extra else self.empty
        if row["given"]:
            given = np.array(extra[GIVEN_ARG], np.int32)
            if (missing := len(given) + 1 - self._given.shape[1]) > 0:
                self._given = torch.nn.functional.pad(self._given, (0, missing))
            self._given[int(row["slot"]), : len(given)] = send(given, self._device)
        return row

    def mask(self, logits: Tensor) -> None:
        """Give masked columns of logits no probability, in place."""
        if len(self._masked):
            logits.index_fill_(-1, self._masked, -torch.inf)

    def __call__(self, logits: Tensor, step: Step, own: Own | None = None) -> Tensor:
        """Return a token for each row of logits, int64, shape (rows,). Logits change in masked columns alone.

        ``own``: a draw of vLLM's, from filtered float32 logits, in place of that by uniform numbers.
        """
        self.mask(logits)
        rows = step.rows
        if rows is not self._rows:
            self._rows, self._parts = rows, [self._parameters(rows[part]) for part in self._split(len(rows))]
        numbers = send(uniform(rows["seed"].astype(np.uint64), step.positions), self._device)
        drawn = [
            self._part(logits[part], numbers[part], parameters, step.of(part), own)
            for part, parameters in zip(self._split(len(rows)), self._parts, strict=True)
        ]
        tokens, values = (torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*drawn, strict=True))
        low = np.flatnonzero(rows["bound"] > -np.inf)
        floors = FloorRows(low, *(rows[name][low] for name in ("alpha", "bound", "start"))) if low.size else None
        slots = rows["slot"].copy()  # the ledger may give them up while the numbers are on their way
        self._ledger.write(slots, step.positions, values, floors, noted=bool(low.size or rows["given"].any()))
        return tokens

    def _split(self, count: int) -> Iterator[slice]:
        """Rows that are drawn together."""
        size = _SAME_ROWS if self._same_bits else max(count, 1)
        return (slice(begin, min(begin + size, count)) for begin in range(0, count, size))

    def _parameters(self, rows: npt.NDArray[np.void]) -> Parameters:
        """Parameters of rows that are drawn together; with ``same_bits`` of as many as always are."""
        count = len(rows)
        same = _SAME_ROWS if self._same_bits else 0
        if same:
            rows = np.concatenate((rows, np.full(same - count, self.empty, WORKER_ROW)))
        return Parameters.of(rows, self._width, count, same, self._device)

    def _part(
        self, logits: Tensor, numbers: Tensor, parameters: Parameters, step: Step, own: Own | None
    ) -> tuple[Tensor, Tensor]:
        """Return tokens, shape (rows,), and what the ledger gets of them, float32, shape (rows, columns)."""
        count = parameters.count
        if self._same_bits:  # the same kernels every time, and rows that begin at the same alignment
            padding = 0, sampler.padded_vocab(self._width) - self._width
            logits = torch.nn.functional.pad(logits.float(), padding, value=-torch.inf)
            logits = torch.nn.functional.pad(logits, (0, 0, 0, _SAME_ROWS - count))
            numbers = torch.nn.functional.pad(numbers, (0, _SAME_ROWS - count))
        if parameters.given is not None:  # nothing is drawn; without filters q is p
            places = send(np.pad(step.positions, (0, len(logits) - count)), self._device)
            tokens = self._given[parameters.given, places].long()
            log_p = log_q = self._log_p(logits, tokens)
            if not parameters.plain:
                log_q = self._log_p(self._filtered(logits, parameters), tokens)
            none = torch.zeros_like(log_p)
            return tokens[:count], torch.stack((log_p, log_q, none, none, _ranks(logits, tokens)), 1)[:count]
        penalised = logits if parameters.penalties is None else self._penalised(logits, parameters.penalties, step)
        kept = None if parameters.all_greedy else self._filtered(penalised, parameters)
        if kept is None:
            tokens = penalised.argmax(-1)
            log_q = torch.zeros_like(tokens, dtype=torch.float32)
        else:
            if own is None:
                tokens, log_q = self._draw(kept, numbers)
            else:
                tokens = own(kept)
                log_q = self._log_p(kept, tokens)
            log_q = log_q.float()
            if parameters.greedy is not None:
                tokens = torch.where(parameters.greedy, penalised.argmax(-1), tokens)
                log_q = log_q.masked_fill(parameters.greedy, 0.0)
        measures = self._measures(logits, self._drawable) if parameters.measures else (torch.zeros_like(log_q),) * 2
        notes = tokens.float()  # exact below 2**24
        return tokens[:count], torch.stack((self._log_p(logits, tokens), log_q, *measures, notes), 1)[:count]

    def _filtered(self, logits: Tensor, parameters: Parameters) -> Tensor:
        """Return float32 logits after temperature and all filters; those of greedy rows are unfiltered."""
        kept: Tensor = self._scaled(logits, parameters.temperature, parameters.log_min_p)
        for rows, limits in zip(*(tensor.split(_ROWS_AT_ONCE) for tensor in parameters.typical_p or ()), strict=True):
            selection = kept.index_select(0, rows)
            weights = (selection - selection.amax(-1, keepdim=True)).exp_()
            sampler.filter_typical_p(weights, limits)
            kept.index_copy_(0, rows, selection.masked_fill_(weights == 0, -torch.inf))
        filtered: Tensor = apply_top_k_top_p(kept, parameters.top_k, parameters.top_p)
        return filtered

    def _penalised(self, logits: Tensor, penalties: PenaltyRows, step: Step) -> Tensor:
        """Return penalised float32 logits.

        vLLM itself counts only tokens that it generated, not those of a prefix, and some of them late.
        """
        result = logits.float() if logits.dtype != torch.float32 else logits.clone()
        assert step.tokens is not None, "rows with a penalty have their tokens on the device"
        lengths, places = (send(line[penalties.host_rows], self._device) for line in (step.lengths, step.places))
        position = torch.arange(int(step.lengths[penalties.host_rows].max()), device=self._device)
        for begin in range(0, len(penalties.host_rows), _ROWS_AT_ONCE):
            part = slice(begin, begin + _ROWS_AT_ONCE)
            rows = penalties.rows[part]
            selection = result.index_select(0, rows)
            tokens = step.tokens[places[part], : len(position)].long()
            exists = position < lengths[part, None]
            generated = exists & (position >= penalties.generated[part])
            occurs, counts = (
                # Behind the end of a text there may be anything.
                torch.zeros_like(selection).scatter_add_(1, tokens.where(mask, 0), mask.float())
                for mask in (exists, generated)
            )
            columns = penalties.repetition[part], penalties.frequency[part], penalties.presence[part]
            every = torch.arange(len(selection), device=self._device)
            penalised = sampler.Penalties(every, *columns, occurs > 0, counts).apply(selection)
            result.index_copy_(0, rows, penalised)
        return result

    @torch.inference_mode()
    def _warm_up(self, dtype: torch.dtype) -> None:
        """Compile for one row and for many, so that the first requests need not wait for it."""
        for rows in (1, 2):
            tokens = torch.zeros(rows, dtype=torch.int64, device=self._device)
            ones = torch.ones(rows, 1, device=self._device)
            for kind in (dtype, torch.float32):
                logits = torch.zeros(rows, self._width, dtype=kind, device=self._device)
                self._log_p(logits, tokens)
                self._scaled(logits, ones, -ones)
            self._measures(logits.to(dtype), self._drawable)
            self._draw(logits, tokens.double())


def uses_penalty(rows: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Which rows have a penalty."""
    return np.asarray((rows["repetition"] != 1) | (rows["frequency"] != 0) | (rows["presence"] != 0))


def send(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy to the device without waiting for it."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def _scaled(logits: Tensor, temperature: Tensor, log_min_p: Tensor) -> Tensor:
    """Return float32 logits over the temperature, less the highest of the row, without those below min-p."""
    logits = logits.float()
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


def _ranks(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return 1 plus the number of tokens of higher probability than one per row, float32."""
    return (logits > logits.gather(-1, tokens[:, None])).sum(-1).float() + 1


def _measures(logits: Tensor, drawable: int) -> tuple[Tensor, Tensor]:
    """Return entropy and self-certainty of each row over its `drawable` unmasked tokens, float32, in nats."""
    shifted = logits.float() - logits.amax(-1, keepdim=True).float()
    weights = shifted.exp()
    total = weights.sum(-1)
    shifted = shifted.masked_fill(shifted == -torch.inf, 0.0)  # masked tokens add nothing to either sum
    entropy = total.log() - (weights * shifted).sum(-1) / total
    certainty = total.log() - shifted.sum(-1) / drawable - math.log(drawable)
    return entropy, certainty


def _column(values: npt.NDArray[Any], device: torch.device) -> Tensor:
    return send(values.copy(), device)[:, None]
