"""Whether vLLM draws as the engine assumes: a few tokens drawn three ways when it starts, with known relations.

The engine replaces parts inside of vLLM. A version that goes another way inside would not fail: it would store wrong
numbers, and power sampling, which reads them, would become another chain.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from searchlens.engines.base import Completion, Engine, Request, RequestError, Sampling, complete
from searchlens.errors import InputError

TOLERANCE = 5e-4
"""Nats between two numbers that are the same but for rounding in float32. On a CPU, the log-softmax by which vLLM
reports log p was off by up to 6e-5 among 262,144 tokens; what the engine records, by 3e-6."""

_TOKENS = 8
_TEMPERATURE = 0.5
_WAYS = Sampling(1.0), Sampling(_TEMPERATURE, top_k=2), Sampling(0.0)


def require_right_numbers(engine: Engine, version: str, prompt: tuple[int, ...]) -> None:
    """Draw eight tokens three ways on an idle engine; InputError if log p or log q are not what they must be."""
    count = min(_TOKENS, engine.max_model_len - len(prompt))
    if count < 1:
        return
    first = Request(prompt=prompt, sampling=_WAYS[0], seed=0, max_tokens=count, top=3)
    requests = [first._replace(sampling=sampling, seed=seed) for seed, sampling in enumerate(_WAYS)]
    try:
        drawn = dict(complete(engine, requests))
    except RequestError as error:
        raise InputError(f"{version} refuses the requests that it is tried with at its start ({error})") from error
    for what, difference in differences(*(drawn[number] for number in range(len(_WAYS)))):
        if not difference <= TOLERANCE:
            raise InputError(
                f"{version}: {what} differs by {difference:.3g} from what it must be, allowed is {TOLERANCE:g}",
                "numbers of this version would be wrong: install one that constraints-vllm.txt names",
            )


def differences(plain: Completion, two: Completion, greedy: Completion) -> list[tuple[str, float]]:
    """What is compared, and by how much it is off, in nats.

    The completions are one at temperature 1 without filters, one at 0.5 of the two most likely tokens, and a greedy
    one, all with ``top``.
    """
    assert two.top_logprobs is not None and greedy.top_logprobs is not None
    assert two.top_tokens is not None
    first, second, third = two.top_logprobs.T.astype(np.float64)
    log_p, log_q = (array.astype(np.float64) for array in (two.logprobs, two.sampling_logprobs))
    # All from vLLM's own numbers, so that what they are off by together cancels.
    is_first, is_second, _ = (two.tokens[:, None] == two.top_tokens).T
    drawn = np.select([is_first, is_second], [first, second], -np.inf)
    expected = drawn / _TEMPERATURE - np.logaddexp(first / _TEMPERATURE, second / _TEMPERATURE)
    are_two = second > third  # a third token that is as likely as the second may be kept, too
    return [
        ("log q without filters, compared with log p,", _largest(plain.sampling_logprobs - plain.logprobs)),
        ("log q of the two most likely tokens, which must sum to 1,", _largest((log_q - expected)[are_two])),
        ("log q of greedy tokens", _largest(greedy.sampling_logprobs)),
        ("log p, compared with vLLM's own,", _largest(greedy.logprobs - greedy.top_logprobs[:, 0])),
        (
            "log p of one of the two most likely tokens, compared with vLLM's own,",
            _largest(np.minimum(np.abs(log_p - first), np.abs(log_p - second))),
        ),
    ]


def _largest(differences: npt.NDArray[np.floating]) -> float:
    return float(np.abs(differences).max(initial=0.0))
