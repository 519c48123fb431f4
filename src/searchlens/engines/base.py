"""What an engine is: token ids in, token ids out, nothing about policies, benchmarks or files.

The filter order is part of this contract, because a policy must mean the same on every engine. Logits pass through, in
this order (vLLM's own order):

1. repetition penalty (prompt and generated tokens), then frequency and presence penalties (generated tokens only),
2. temperature (``temperature == 0`` is greedy: the arg-max after 1; filters have no effect),
3. min-p (relative to the most likely token, after temperature),
4. typical-p,
5. top-k,
6. top-p, on the distribution renormalised after 5; the token that crosses the threshold is kept.

3 to 6 each see the distribution renormalised after the filter before, and keep what ties with the last kept token (vLLM
keeps some of what ties at the edge of top-p). The sampling distribution q is the renormalised result. A pad token that
does not also end a text is masked before everything: p and q are distributions without it.

How a seed becomes a token of q is an engine's own matter, so the same seed gives another sample on another engine. The
embedded one turns one uniform number per token into a token by inverse CDF in token-id order, in float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:  # the planner imports this module for ``Sampling`` alone, several times per job
    import numpy as np
    import numpy.typing as npt

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Every parameter of a local policy, none left to an engine's or a checkpoint's default.

    Attributes
    ----------
    temperature : float
        >= 0; 0 is greedy.
    top_p : float
        In (0, 1]; 1 keeps everything.
    top_k : int
        >= 0; 0 keeps everything.
    min_p : float
        In [0, 1); 0 keeps everything.
    typical_p : float
        In (0, 1]; 1 keeps everything.
    repetition_penalty : float
        > 0; 1 is none. Positive logits of seen tokens are divided by it, negative ones multiplied.
    frequency_penalty, presence_penalty : float
        In [-2, 2]; 0 is none. Subtracted per occurrence, or once, of a generated token.
    """

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0


@dataclass(frozen=True, slots=True)
class Request:
    """One continuation to draw.

    Attributes
    ----------
    prompt : tuple of int
        Token ids, at least one; the engine adds nothing (no BOS, no template). Requests with equal prompts share it.
    sampling : Sampling
        How to draw.
    seed : int
        63-bit; decides every draw of this sample, whatever else is in the batch.
    max_tokens : int
        Most tokens to generate, >= 1.
    stop_ids : tuple of int
        Generation ends after one of these; it is the last token returned.
    prefix : tuple of int
        Token ids between prompt and continuation that were generated before: the model sees them, penalties count them
        as generated, none is returned. The draws begin anew: they depend on ``seed`` and the place in the continuation.
    measures : bool
        Whether entropy and certainty of the raw distribution are wanted.
    top : int
        How many of the most likely tokens are wanted at every position; 0 wants none.
    priority : int
        A lower one is admitted first; equal ones in the order of arrival.
    """

    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int
    max_tokens: int
    stop_ids: tuple[int, ...]
    prefix: tuple[int, ...] = ()
    measures: bool = False
    top: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """What one request gave.

    Attributes
    ----------
    tokens : int32 array, shape (n,)
        Generated token ids, n >= 1, the stop token included when there is one.
    logprobs : float32 array, shape (n,)
        Natural log p(token) under the model's raw distribution (before penalties, temperature and filters).
    sampling_logprobs : float32 array, shape (n,)
        Natural log q(token) under the distribution that was sampled from; 0 for greedy.
    finish : {"stop", "length"}
        Whether a stop token ended it or ``max_tokens`` did.
    entropies, certainties : float32 array, shape (n,), or None
        Where ``measures`` were asked for, of the raw distribution p over the V token ids that can be drawn: its entropy
        in nats, and the divergence of the uniform distribution from it, ``-mean_v log(V p(v))``, in nats
        (self-certainty, Kang et al. 2025).
    top_tokens : int32 array, shape (n, top), or None
    top_logprobs : float32 array, shape (n, top), or None
        The most likely tokens of the raw distribution, most likely first, and their natural log p; ties by token id.
    reused : int
        Tokens of prompt and prefix that were not computed again for this request.
    """

    tokens: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]
    sampling_logprobs: npt.NDArray[np.float32]
    finish: FinishReason
    entropies: npt.NDArray[np.float32] | None = None
    certainties: npt.NDArray[np.float32] | None = None
    top_tokens: npt.NDArray[np.int32] | None = None
    top_logprobs: npt.NDArray[np.float32] | None = None
    reused: int = 0


class RequestError(RuntimeError):
    """The engine gave one request up; the others go on."""


class EngineMemoryError(RuntimeError):
    """The device's memory did not suffice, at the start or during a step: the engine is lost, fewer rows may fit.

    Parameters
    ----------
    message : str
        What the library said, on one line.
    max_rows : int
        What the engine was started with.
    """

    def __init__(self, message: str, max_rows: int) -> None:
        self.max_rows = max_rows
        super().__init__(message)


class Engine(Protocol):
    """A continuously batched sampler.

    ``add`` queues; ``step`` advances until at least one request finished (or nothing is left) and returns what did.
    Where ``repeatable``, the same sequence of ``add`` calls into a cleared engine gives the same results bit for bit:
    batch shapes depend on the queue alone. Elsewhere the last digits of a logit, and with them now and then a token,
    depend on what else ran.
    """

    vocab_size: int
    max_model_len: int
    max_rows: int
    """Most requests that draw tokens together."""
    repeatable: bool
    """Whether what is sampled together should be a matter of the samples alone, and not of what else there is to do."""
    groups: tuple[int, ...]
    """How many new requests may be worth gathering before they are added; the best is found by trying. (1,) where
    gathering them gains nothing."""
    steps: int
    """Times that one token was drawn for every running request, since the engine started."""

    def clear(self) -> None:
        """Forget what was kept of earlier requests; only while idle. What follows depends on later requests alone."""
        ...

    def add(self, request_id: int, request: Request) -> None:
        """Queue a request. Raises InputError when prompt, prefix and max_tokens exceed ``max_model_len``."""
        ...

    def step(self) -> Sequence[tuple[int, Completion | RequestError]]:
        """Advance; return the requests that finished or failed, possibly none while work remains."""
        ...

    def close(self) -> None:
        """Free the device."""
        ...


def complete(engine: Engine, requests: Iterable[Request]) -> Iterator[tuple[int, Completion]]:
    """Queue all requests under their position and yield (position, completion) as they finish.

    Parameters
    ----------
    engine : Engine
        Must be idle.
    requests : iterable of Request

    Yields
    ------
    tuple of (int, Completion)
        In order of completion, each position once.

    Raises
    ------
    RequestError
        The engine gave a request up.
    """
    waiting = 0
    engine.clear()
    for position, request in enumerate(requests):
        engine.add(position, request)
        waiting += 1
    while waiting:
        for position, completion in engine.step():
            if isinstance(completion, RequestError):
                raise completion
            waiting -= 1
            yield position, completion
