"""What passes between the vLLM engine, vLLM and its worker: requests, completions, and the ledger of drawn tokens."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from searchlens.engines.base import NO_FLOOR, Completion, FinishReason, Request, RequestError
from searchlens.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from vllm import SamplingParams

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
EXTRA_ARG = "searchlens"
"""Key of a vLLM request's extra arguments; its value is a list of plain numbers, the fields of ``WORKER_ROW``."""
WORKER_ROW = np.dtype(
    [
        ("slot", "i8"),  # of the ledger; the request's own until vLLM has returned it
        ("seed", "i8"),
        ("measures", "?"),
        ("given", "?"),  # whether the tokens are given and only scored
        ("temperature", "f8"),
        ("top_p", "f8"),
        ("top_k", "i8"),
        ("min_p", "f8"),
        ("typical_p", "f8"),
        ("repetition", "f4"),
        ("frequency", "f4"),
        ("presence", "f4"),
        ("generated", "i8"),  # position of the first token that counts as generated
        ("alpha", "f8"),  # of the floor of the request; 0 without one
        ("bound", "f8"),  # -inf without a floor
        ("start", "f8"),  # NaN: without the term log(start + t)
    ]
)
"""What the worker knows of a request; vLLM's own parameters leave the distribution as it is."""
GIVEN_ARG = "searchlens_given"
"""Key of the tokens that are given."""
LEDGER_COLUMNS = 4
"""Numbers in the ledger per token: log p, log q, entropy and self-certainty; float32, in nats."""


def refusals() -> tuple[type[Exception], ...]:
    """Return the exceptions that vLLM raises for wrong input; VLLMValidationError was a ValueError in some versions."""
    from vllm.exceptions import VLLMValidationError

    return ValueError, VLLMValidationError


def sampling_params(request_id: int, request: Request, generators: bool = False) -> SamplingParams:
    """Return vLLM's parameters of a request, none of them a default; how tokens are drawn is left to the worker.

    ``generators``: vLLM is to draw by a generator of the request's seed. Raises InputError if vLLM refuses them.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    try:
        params = SamplingParams(
            n=1,
            temperature=1.0 if generators and request.sampling.temperature > 0 else 0.0,
            top_p=1.0,
            top_k=0,
            min_p=0.0,
            repetition_penalty=1.0,
            frequency_penalty=0.0,
            presence_penalty=0.0,
            seed=request.seed if generators else None,
            max_tokens=request.max_tokens,
            min_tokens=0,
            stop=None,
            ignore_eos=True,  # only ``stop_ids`` end a text
            logprobs=request.top or None,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
        )
    except refusals() as error:
        raise InputError(f"Request {request_id}: vLLM refuses its sampling parameters ({error})") from error
    params.stop_token_ids = _stop_ids(request.stop_ids)
    return params


class _StopIds(list[int]):
    """Stop tokens, perhaps a thousand, as the list that vLLM takes, with the membership test of a set."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        super().__init__(ids)
        self._set = frozenset(ids)

    def __contains__(self, token: object) -> bool:
        return token in self._set


_stop_ids = lru_cache(maxsize=256)(_StopIds)


def worker_row(request: Request, slot: int, given: bool = False) -> list[float]:
    """Return the fields of ``WORKER_ROW``."""
    sampling = request.sampling
    floor = request.floor if request.floor and has_floor(request) else NO_FLOOR
    return [
        slot,
        request.seed,
        request.measures,
        given,
        sampling.temperature,
        sampling.top_p,
        sampling.top_k,
        sampling.min_p,
        sampling.typical_p,
        sampling.repetition_penalty,
        sampling.frequency_penalty,
        sampling.presence_penalty,
        len(request.prompt),
        floor.alpha,
        floor.bound,
        math.nan if floor.start is None else floor.start,
    ]


def has_floor(request: Request) -> bool:
    """Whether a request is ended at its floor; vLLM does not return the most likely tokens of one that it drops."""
    return request.floor is not None and request.floor.bound > -math.inf and not request.top


def drawn(
    request: Request,
    tokens: npt.NDArray[np.int32],
    ledger: Floats,
    finish: FinishReason | Literal["rejected"],
    reused: int,
) -> Completion:
    """Return what was drawn of a request, without its most likely tokens; the ledger has shape (n, LEDGER_COLUMNS)."""
    logprobs, sampling_logprobs, entropies, certainties = ledger.T.copy()
    result = Completion(tokens, logprobs, sampling_logprobs, finish, reused=reused)
    return result._replace(entropies=entropies, certainties=certainties) if request.measures else result


def completion(request: Request, output: Any, ledger: Floats) -> Completion | RequestError:
    """Return the completion of a finished request, from a ``vllm.RequestOutput`` and its ledger."""
    text = output.outputs[0]
    if text.finish_reason not in ("stop", "length"):
        return RequestError(f"vLLM gave the request up ({text.finish_reason})")
    tokens = np.array(text.token_ids, np.int32)
    result = drawn(request, tokens, ledger, text.finish_reason, output.num_cached_tokens or 0)
    if not request.top:
        return result
    top_tokens, top_logprobs = _top(text.logprobs, request.top)
    return result._replace(top_tokens=top_tokens, top_logprobs=top_logprobs)


def _top(flat: Any, count: int) -> tuple[npt.NDArray[np.int32], Floats]:
    """Return the most likely tokens of each position. vLLM lists them after the drawn token."""
    index = np.array(flat.start_indices)[:, None] + np.arange(1, count + 1)
    tokens = np.array(flat.token_ids, np.int32)[index]
    logprobs = np.array(flat.logprobs, np.float32)[index]
    order = np.lexsort((tokens, -logprobs))
    return np.take_along_axis(tokens, order, 1), np.take_along_axis(logprobs, order, 1)


class FloorRows(NamedTuple):
    """The n rows whose requests have a floor, with its parameters; float64 arrays, shape (n,). All on the host."""

    rows: Ints
    alpha: npt.NDArray[np.float64]
    bound: npt.NDArray[np.float64]
    start: npt.NDArray[np.float64]


class Pending(NamedTuple):
    """Numbers of one step that are being copied to the host."""

    has_arrived: Callable[[], bool] | None
    """None: they are there already."""
    slots: Ints
    positions: Ints
    values: Tensor
    floors: FloorRows | None
    noted: bool
    """Whether the notes among the values are of use."""


class Ledger:
    """Numbers of every drawn token, by the request's slot and the token's position in the completion. On the host.

    The numbers of a step are copied to the host after the step, in the order of the device's work, and entered once
    they have arrived. Those of a request's last token have arrived when vLLM reports its end, because the token itself
    is copied after them. One more step may be running by then; it writes one position further, so a slot has one more
    position than tokens. The slot's next request writes later still. What is on its way for a slot when the slot is
    given up belongs to nobody.

    Of requests with a floor the ledger also has the tokens, and of given texts the ranks: the notes. Of a floor it has
    the log weight, which is summed up as numbers are entered. vLLM may discard a draw, for instance of a prompt that is
    computed in parts, and the next one has the same position. So a number counts once the position after it is entered,
    and a request is known to have come down to its floor one or two steps later.
    """

    def __init__(self, slots: int, positions: int, device: torch.device) -> None:
        self.nobody = slots
        self._entries = np.full((slots + 1, positions, LEDGER_COLUMNS), np.nan, np.float32)
        self._pending: deque[Pending] = deque()
        self._notes: npt.NDArray[np.int32] | None = None  # (slots, positions), once a request has any
        self._weights = np.zeros(slots + 1)  # of the tokens that count
        self._latest = np.zeros(slots + 1)  # weight of the token after them
        self._places = np.zeros(slots + 1, np.int64)  # its position
        self._low: set[int] = set()  # slots of the requests that have come down to their floors
        self._on_cpu = device.type == "cpu"
        self.steps = 0

    def write(
        self, slots: Ints, positions: Ints, values: Tensor, floors: FloorRows | None = None, *, noted: bool = False
    ) -> None:
        """Record a step's numbers, (rows, LEDGER_COLUMNS), and behind them its notes, without waiting."""
        self.steps += 1
        self._enter()
        has_arrived = None
        if not self._on_cpu:
            import torch

            values = values.to("cpu", non_blocking=True)  # into pinned memory
            event = torch.cuda.Event()
            event.record()
            has_arrived = event.query
        self._pending.append(Pending(has_arrived, slots, positions, values, floors, noted))

    def fetch(self, slots: Sequence[int], lengths: Sequence[int]) -> tuple[Floats, npt.NDArray[np.int32]]:
        """Return numbers and notes of finished requests, one request after the other, and clear their slots.

        Raises RuntimeError if numbers are missing, or the model's logits are not numbers.
        """
        self._enter()
        return self._take(slots, lengths)

    def rejected(self) -> tuple[list[int], list[int], npt.NDArray[np.int32], Floats]:
        """Return slots, lengths, tokens and numbers of the requests known to be below their floors; clear their slots.

        Raises RuntimeError if numbers are missing, or the model's logits are not numbers.
        """
        self._enter()
        slots = sorted(self._low)
        if not slots:
            return [], [], np.empty(0, np.int32), np.empty((0, LEDGER_COLUMNS), np.float32)
        lengths = [int(self._places[slot]) + 1 for slot in slots]
        numbers, tokens = self._take(slots, lengths)
        return slots, lengths, tokens, numbers

    def _take(self, slots: Sequence[int], lengths: Sequence[int]) -> tuple[Floats, npt.NDArray[np.int32]]:
        parts = [*zip(slots, lengths, strict=True)]
        values = np.concatenate([self._entries[slot, :length] for slot, length in parts])
        if np.isnan(values[:, :2]).any():
            raise RuntimeError("log-probabilities are missing or not numbers: look for NaN in the model's logits")
        noted = [] if self._notes is None else [self._notes[slot, :length] for slot, length in parts]
        for slot, length in parts:
            self._entries[slot, : length + 1] = np.nan
        for pending in self._pending:
            pending.slots[np.isin(pending.slots, slots)] = self.nobody
        self._low -= set(slots)
        return values, np.concatenate(noted) if noted else np.empty(0, np.int32)

    def _enter(self) -> None:
        """Enter the numbers of all steps that have arrived, and note the requests that are below their floors."""
        while self._pending and ((has_arrived := self._pending[0].has_arrived) is None or has_arrived()):
            _, slots, positions, values, floors, noted = self._pending.popleft()
            numbers = values.numpy()
            self._entries[slots, positions] = numbers[:, :LEDGER_COLUMNS]
            if noted:
                if self._notes is None:
                    self._notes = np.zeros(self._entries.shape[:2], np.int32)
                self._notes[slots, positions] = numbers[:, LEDGER_COLUMNS]
            if floors is None:
                continue
            slots, positions, numbers = slots[floors.rows], positions[floors.rows], numbers[floors.rows]
            goes_on = positions == self._places[slots] + 1
            weights = self._weights[slots] + np.where(goes_on, self._latest[slots], 0.0)
            self._weights[slots] = weights = np.where(positions == 0, 0.0, weights)
            self._latest[slots] = floors.alpha * numbers[:, 0].astype(np.float64) - numbers[:, 1]
            self._places[slots] = positions
            length = np.where(np.isnan(floors.start), 1.0, floors.start + positions)
            with np.errstate(divide="ignore"):  # without any token
                is_low = goes_on & (weights - np.log(length) <= floors.bound)
            self._low.update(set(slots[is_low].tolist()) - {self.nobody})
