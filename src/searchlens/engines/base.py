"""The contract of an engine: token ids in, token ids out. It knows no policies, benchmarks or files.

The order of filters is part of the contract, because a policy must mean the same on every engine. Logits pass through
these steps, in vLLM's own order:

1. repetition penalty (prompt and generated tokens), then frequency and presence penalties (generated tokens only),
2. temperature (``temperature == 0`` is greedy: the arg-max after step 1, and filters have no effect),
3. min-p (relative to the most likely token, after temperature),
4. typical-p,
5. top-k,
6. top-p, on the distribution renormalised after step 5; the token that crosses the threshold is kept.

Each of the filters 3 to 6 sees the distribution renormalised after the previous filter, and keeps every token that ties
with the last kept one (vLLM keeps only some of the ties at the edge of top-p). The sampling distribution q is the
renormalised result. Ids without a token, and a pad token that does not also end a text, are masked before step 1: p and
q are distributions without them.

The contract does not say how a seed becomes a token of q. Both engines draw one uniform number per token, of the seed
and the token's position, and invert the CDF in token-id order, in float64. So the same seed gives the same sample on
both as long as no last digit of a logit decides a token, which in bfloat16 it soon does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from searchlens.config.policies import Sampling as Sampling  # noqa: PLC0414 - a part of the contract

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

FinishReason = Literal["stop", "length"]
"""How a text has ended."""


PLAIN = Sampling()
"""Temperature 1 without filters: q is p."""


class Floor(NamedTuple):
    """When a continuation is no longer wanted: as soon as its log weight is as low as ``bound``, in nats.

    After t tokens the log weight is the sum of ``alpha log p - log q`` over them, minus ``log(start + t)``. Whoever
    asks must know that it cannot rise again; then the tokens that would follow change nothing.

    Attributes
    ----------
    alpha : float
    bound : float
        -inf: never.
    start : int or None
        Tokens before the continuation that count as its length; None: without the term ``log(start + t)``.
    """

    alpha: float
    bound: float
    start: int | None = None

    def after(self, completion: Completion) -> Floor:
        """The same floor for what follows a completion."""
        start = None if self.start is None else self.start + len(completion.tokens)
        return Floor(self.alpha, self.bound - self._weight(completion), start)

    def is_reached(self, completion: Completion) -> bool:
        """Whether a completion has come down to it with its last token."""
        length = 1 if self.start is None else self.start + len(completion.tokens)
        return self._weight(completion) - math.log(length) <= self.bound

    def _weight(self, completion: Completion) -> float:
        weights = self.alpha * completion.logprobs.astype("float64") - completion.sampling_logprobs
        return float(weights.sum())


NO_FLOOR = Floor(0.0, -math.inf)


class Request(NamedTuple):
    """One continuation to draw.

    Attributes
    ----------
    prompt : tuple of int
        Token ids, at least one. The engine adds nothing (no BOS, no template). Requests with equal prompts share it.
    sampling : Sampling
    seed : int
        63-bit; decides every draw of this sample, whatever else is in the batch.
    max_tokens : int
        Most tokens to generate, >= 1.
    stop_ids : tuple of int
        Generation ends after one of these tokens; it is returned as the last one.
    prefix : tuple of int
        Token ids between prompt and continuation that an earlier request generated. The model sees them and penalties
        count them as generated, but they are not returned. Draws depend on ``seed`` and on the position in the
        continuation, not on the prefix.
    measures : bool
        Whether to return entropy and self-certainty of the raw distribution.
    top : int
        How many of the most likely tokens to return for every position, >= 0.
    priority : int
        Requests with a lower number are admitted first, equal ones in the order of arrival.
    floor : Floor or None
        When the continuation is no longer wanted. An engine may end it then, or some tokens later, and need not.
    """

    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int
    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    prefix: tuple[int, ...] = ()
    measures: bool = False
    top: int = 0
    priority: int = 0
    floor: Floor | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """A text to be scored instead of drawn.

    Attributes
    ----------
    prompt : tuple of int
        Token ids, at least one, as in a ``Request``.
    tokens : tuple of int
        Token ids of the text after it, at least one, those that end it included.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


class Scored(NamedTuple):
    """What an engine says of the tokens of a given text.

    Attributes
    ----------
    logprobs : float32 array, shape (n,)
        Natural log p(token) under the model's raw distribution, as in a ``Completion``; -inf for masked tokens.
    sampling_logprobs : float32 array, shape (n,)
        Natural log q(token) under the sampling distribution; -inf for a token that its filters drop.
    ranks : int32 array, shape (n,)
        1 plus the number of tokens of higher p.
    """

    logprobs: npt.NDArray[np.float32]
    sampling_logprobs: npt.NDArray[np.float32]
    ranks: npt.NDArray[np.int32]


class Completion(NamedTuple):
    """The result of one request.

    Attributes
    ----------
    tokens : int32 array, shape (n,)
        Generated token ids, n >= 1, including the stop token if one was drawn.
    logprobs : float32 array, shape (n,)
        Natural log p(token) under the model's raw distribution (before penalties, temperature and filters).
    sampling_logprobs : float32 array, shape (n,)
        Natural log q(token) under the sampling distribution; 0 for greedy.
    finish : {"stop", "length", "rejected"}
        Whether a stop token or ``max_tokens`` ended it; "rejected": neither, but the ``floor`` of the request. It has
        the tokens drawn until then.
    entropies, certainties : float32 array, shape (n,), or None
        None unless the request has ``measures``. Of the raw distribution p over the V token ids that can be drawn: its
        entropy, and the divergence of the uniform distribution from it, ``-mean_v log(V p(v))`` (self-certainty, Kang
        et al. 2025), both in nats.
    top_tokens : int32 array, shape (n, top), or None
    top_logprobs : float32 array, shape (n, top), or None
        The most likely tokens of the raw distribution, most likely first, and their natural log p; ties by token id.
        None if ``top`` is 0.
    reused : int
        Tokens of prompt and prefix whose keys and values were not computed for this request, but shared or cached.
    """

    tokens: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]
    sampling_logprobs: npt.NDArray[np.float32]
    finish: FinishReason | Literal["rejected"]
    entropies: npt.NDArray[np.float32] | None = None
    certainties: npt.NDArray[np.float32] | None = None
    top_tokens: npt.NDArray[np.int32] | None = None
    top_logprobs: npt.NDArray[np.float32] | None = None
    reused: int = 0


class RequestError(RuntimeError):
    """The engine gave up one request; the others continue."""


class EngineMemoryError(RuntimeError):
    """The device ran out of memory, at the start or during a step. The engine is unusable; fewer rows may fit.

    Parameters
    ----------
    message : str
        The library's message, on one line.
    max_rows : int
        The engine's ``max_rows``.
    """

    def __init__(self, message: str, max_rows: int) -> None:
        self.max_rows = max_rows
        super().__init__(message)


class Engine(Protocol):
    """A continuously batched sampler.

    ``add`` queues a request. ``step`` decodes for a while and returns the requests that have finished.
    """

    vocab_size: int
    max_model_len: int
    max_rows: int
    """Most requests that are decoded together."""
    repeatable: bool
    """Whether the same ``add`` calls into a cleared engine give the same results bit for bit. If not, the last digits
    of a logit, and with them now and then a token, depend on which other requests share the batch."""
    groups: tuple[int, ...]
    """Numbers of new requests that may be worth gathering before they are added; the caller finds the best one by
    trying. (1,) if gathering does not make the engine faster."""

    @property
    def steps(self) -> int:
        """Decode steps since the engine started; each drew one token for every running request."""

    def clear(self) -> None:
        """Empty the prefix cache, so that results depend on later requests alone. Only while no request is left."""

    def add(self, request_id: int, request: Request) -> None:
        """Queue a request, whose ``request_id`` is returned with its completion.

        Raises
        ------
        InputError
            If the prompt is empty, prompt or prefix have a token id that does not exist, prompt, prefix and
            ``max_tokens`` do not fit together, or ``top`` is more than the tokens that can be drawn.
        """

    def step(self) -> Sequence[tuple[int, Completion | RequestError]]:
        """Decode; return the requests that finished or failed, possibly none while others are running."""

    def score(self, texts: Sequence[Given], sampling: Sampling = PLAIN) -> list[Scored]:
        """Return log p, log q and rank of every token of given texts. Nothing is drawn. Only while no request is left.

        Parameters
        ----------
        texts : sequence of Given
            In any order; texts with equal prompts may share its computation.
        sampling : Sampling
            What q is, with a temperature above 0 and without penalties. By default q is p.

        Returns
        -------
        list of Scored
            In the order of the texts.

        Raises
        ------
        InputError
            A text is empty, does not fit into ``max_model_len`` together with its prompt, or has a token id that does
            not exist: nothing was computed then. Or, on the embedded engine, the model's logits are not numbers.
        RuntimeError
            Requests are waiting or running; or, on vLLM, the model's logits are not numbers.
        EngineMemoryError
            The device is out of memory.
        """

    def close(self) -> None:
        """Free the device."""


def complete(engine: Engine, requests: Iterable[Request]) -> Iterator[tuple[int, Completion]]:
    """Clear an engine, run all requests, and yield each completion as soon as it is there.

    Parameters
    ----------
    engine : Engine
        Without waiting or running requests.
    requests : iterable of Request

    Yields
    ------
    tuple of (int, Completion)
        Position of the request and its completion, in order of completion.

    Raises
    ------
    RequestError
        The engine gave up a request.
    """
    unfinished = 0
    engine.clear()
    for position, request in enumerate(requests):
        engine.add(position, request)
        unfinished += 1
    while unfinished:
        for position, completion in engine.step():
            if isinstance(completion, RequestError):
                raise completion
            unfinished -= 1
            yield position, completion
