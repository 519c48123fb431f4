"""Checks that all engines share: requests and limits are refused with the same messages.

Of vLLM also whether it draws as the engine assumes. The engine replaces parts inside of it, and a version that goes
another way inside would not fail: it would store wrong numbers, and power sampling, which reads them, would become
another chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from searchlens.engines.base import Completion, Engine, Given, Request, RequestError, Sampling, complete
from searchlens.errors import InputError
from searchlens.store.specials import Specials


class _Flaw(NamedTuple):
    """What is wrong, and what may help."""

    what: str
    hint: str = ""


@lru_cache(4096)  # many requests have the same prompt, and nothing else of a check takes as long
def _prompt_flaw(prompt: tuple[int, ...], vocab_size: int) -> _Flaw | None:
    return _id_flaw("prompt", prompt, vocab_size) if prompt else _Flaw("the prompt is empty")


def _id_flaw(name: str, tokens: tuple[int, ...], vocab_size: int) -> _Flaw | None:
    if not tokens or (min(tokens) >= 0 and max(tokens) < vocab_size):
        return None
    return _Flaw(
        f"the {name} has token id {min(tokens) if min(tokens) < 0 else max(tokens)}, "
        f"but ids go from 0 to {vocab_size - 1}",
        "Use the tokenizer of this model.",
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a request."""

    vocab_size: int
    """Token ids are 0 to ``vocab_size - 1``."""
    drawable: int
    """How many of them can be drawn."""
    max_model_len: int
    """Most tokens of prompt, prefix and completion together."""

    def check(self, request_id: int, request: Request) -> None:
        """Raise InputError if a prompt is empty, a token id does not exist, prompt, prefix and ``max_tokens`` do not
        fit together, or ``top`` is more than the tokens that can be drawn.
        """
        self._require("Request", request_id, _prompt_flaw(request.prompt, self.vocab_size))
        self._require("Request", request_id, _id_flaw("prefix", request.prefix, self.vocab_size))
        if not 0 <= request.top <= self.drawable:
            limits = f"0 to {self.drawable}, the vocabulary"
            raise InputError(f"Request {request_id}: top is {request.top}; allowed is {limits}")
        self._check_length(request_id, request)

    def check_given(self, texts: Sequence[Given]) -> None:
        """Raise InputError if prompt or text are empty, have an id that does not exist, or do not fit together."""
        for number, text in enumerate(texts):
            self._require("Text", number, _prompt_flaw(text.prompt, self.vocab_size))
            self._require("Text", number, _id_flaw("text", text.tokens, self.vocab_size))
            if not text.tokens:
                raise InputError(f"Text {number}: it has no tokens after its prompt")
            needed = len(text.prompt) + len(text.tokens)
            if needed > self.max_model_len:
                raise InputError(
                    f"Text {number}: {len(text.prompt)} prompt tokens and {len(text.tokens)} given tokens need {needed}"
                    f" tokens, the limit is {self.max_model_len}",
                    "Leave the text out; neither prompts nor texts are cut.",
                )

    @staticmethod
    def _require(kind: str, number: int, flaw: _Flaw | None) -> None:
        if flaw:
            raise InputError(f"{kind} {number}: {flaw.what}", flaw.hint)

    def _check_length(self, request_id: int, request: Request) -> None:
        if request.max_tokens < 1:
            raise InputError(f"Request {request_id}: max_tokens is {request.max_tokens}, it must be at least 1")
        needed = len(request.prompt) + len(request.prefix) + request.max_tokens
        if needed > self.max_model_len:
            prefix = f", {len(request.prefix)} prefix tokens" if request.prefix else ""
            raise InputError(
                f"Request {request_id}: {len(request.prompt)} prompt tokens{prefix} and max_tokens "
                f"{request.max_tokens} need {needed} tokens, the limit is {self.max_model_len}",
                "Lower max_tokens, or leave out the question; prompts are never cut.",
            )


def require_idle(is_idle: bool, what: str) -> None:
    """Refuse what an engine does only while no request waits or runs."""
    if not is_idle:
        raise RuntimeError(f"the engine is not idle: {what} only when no request waits or runs")


def require_numbers(log_p: npt.NDArray[np.float32]) -> None:
    """Refuse the weights of a model whose log-probabilities are not numbers."""
    if np.isnan(log_p).any():
        raise InputError(
            "log-probabilities are not numbers: look for NaN in the model's logits",
            "the weights of the checkpoint are damaged, or too large for its dtype",
        )


def at_most(name: str, value: int | None, limit: int) -> int:
    """Return a value between 1 and the model's limit, by default the limit; refuse other values."""
    if value is None:
        return limit
    if not 1 <= value <= limit:
        raise InputError(f"{name} is {value}; allowed is 1 to {limit}, the limit of the model")
    return value


def never_drawn(folder: Path) -> tuple[int, ...]:
    """Return the token ids that are masked where texts end at the folder's own stop tokens alone."""
    specials = Specials.read(folder)
    return specials.masked(specials.ends)


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
