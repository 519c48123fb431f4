"""Requests as vLLM takes them, completions from what it returns, and what the worker gets to know of a request."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from searchlens.engines.base import Completion, FinishReason, Floor, Given, Request, RequestError, Sampling
from searchlens.errors import InputError

if TYPE_CHECKING:
    from vllm import SamplingParams

EXTRA_ARG = "searchlens"
"""Key of a vLLM request's extra arguments; its value is a list of plain numbers, the fields of ``WORKER_ROW``."""
WORKER_ROW = np.dtype(
    [
        ("slot", "i8"),  # of the ledger; the request's own until vLLM has returned it
        ("seed", "i8"),
        ("measures", "?"),
        ("min_p", "f8"),
        ("typical_p", "f8"),
        ("repetition", "f4"),
        ("frequency", "f4"),
        ("presence", "f4"),
        ("generated", "i8"),  # position of the first token that counts as generated
        ("given", "i8"),  # the token whose log p is recorded in place of the drawn one's; NOT_GIVEN: none
        ("alpha", "f8"),  # of the floor of the request; 0 without one
        ("bound", "f8"),  # -inf without a floor
        ("start", "f8"),  # NaN: without the term log(start + t)
    ]
)
"""What the worker knows of a request, next to vLLM's own parameters."""
NOT_GIVEN = -1
LEDGER_COLUMNS = 4
"""Numbers in the ledger per token: log p, log q, entropy and self-certainty; float32, in nats."""

_NO_FLOOR = Floor(0.0, -math.inf)
_MIN_TEMPERATURE = 0.01  # vLLM would draw at this temperature if a request had a lower one


def refusals() -> tuple[type[Exception], ...]:
    """Return the exceptions that vLLM raises for wrong input; VLLMValidationError was a ValueError in some versions."""
    from vllm.exceptions import VLLMValidationError

    return ValueError, VLLMValidationError


def sampling_params(request_id: int, request: Request, generators: bool = False) -> SamplingParams:
    """Return vLLM's parameters of a request, none of them a default; the rest is left to the worker.

    These are penalties, min-p and typical-p, and the seed unless vLLM is to draw by ``generators`` of its own. Raises
    InputError if vLLM cannot draw in this way.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    sampling = request.sampling
    if 0 < sampling.temperature < _MIN_TEMPERATURE:
        raise InputError(
            f"Request {request_id}: temperature is {sampling.temperature}; "
            f"vLLM allows 0, and {_MIN_TEMPERATURE} or more"
        )
    try:
        params = SamplingParams(
            n=1,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
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


def scoring(text: Given) -> tuple[Request, SamplingParams]:
    """Return the request that scores a text, and its parameters.

    vLLM returns log p of the tokens of a prompt, so that all tokens of the text but the last go there. The last one is
    the ``given`` token of the only draw, because a prompt must leave room for one token, and the text may fill it.
    vLLM computes such a prompt as a whole: it reads no cached prefix, whose tokens would have no log p.
    """
    request = Request(prompt=text.prompt, sampling=Sampling(0.0), seed=0, max_tokens=1, prefix=text.tokens[:-1])
    params = sampling_params(0, request)
    params.prompt_logprobs = 0  # of the prompt's own tokens alone
    params.skip_reading_prefix_cache = True
    return request, params


def given_logprobs(text: Given, output: Any, last: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return log p of a text, from vLLM's numbers of the prompt and the ledger's last; RuntimeError if wrong."""
    flat, count = output.prompt_logprobs, len(text.tokens) - 1
    begin = len(flat.token_ids) - count
    if tuple(flat.token_ids[begin:]) != text.tokens[:-1]:
        raise RuntimeError("vLLM returned log-probabilities of other tokens than were given")
    values = np.append(np.array(flat.logprobs[begin:], np.float32), last)
    if np.isnan(values).any():
        raise RuntimeError("log-probabilities are not numbers: look for NaN in the model's logits")
    return values


def worker_row(request: Request, slot: int, given: int = NOT_GIVEN) -> list[float]:
    """Return the fields of ``WORKER_ROW``. A greedy request has no filters, so its typical-p is 1."""
    sampling = request.sampling
    floor = request.floor if request.floor and has_floor(request) else _NO_FLOOR
    return [
        slot,
        request.seed,
        request.measures,
        sampling.min_p,
        sampling.typical_p if sampling.temperature > 0 else 1.0,
        sampling.repetition_penalty,
        sampling.frequency_penalty,
        sampling.presence_penalty,
        len(request.prompt),
        given,
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
    ledger: npt.NDArray[np.float32],
    finish: FinishReason | Literal["rejected"],
    reused: int,
) -> Completion:
    """Return what was drawn of a request, without its most likely tokens; the ledger has shape (n, LEDGER_COLUMNS)."""
    logprobs, sampling_logprobs, entropies, certainties = ledger.T.copy()
    return Completion(
        tokens=tokens,
        logprobs=logprobs,
        sampling_logprobs=sampling_logprobs,
        finish=finish,
        entropies=entropies if request.measures else None,
        certainties=certainties if request.measures else None,
        reused=reused,
    )


def completion(request: Request, output: Any, ledger: npt.NDArray[np.float32]) -> Completion | RequestError:
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


def _top(flat: Any, count: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return the most likely tokens of each position. vLLM lists them after the drawn token."""
    index = np.array(flat.start_indices)[:, None] + np.arange(1, count + 1)
    tokens = np.array(flat.token_ids, np.int32)[index]
    logprobs = np.array(flat.logprobs, np.float32)[index]
    order = np.lexsort((tokens, -logprobs))
    return np.take_along_axis(tokens, order, 1), np.take_along_axis(logprobs, order, 1)
