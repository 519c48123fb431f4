"""Checks that all engines share: requests and limits are refused with the same messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from searchlens.engines.base import Given, Request, Sampling
from searchlens.errors import InputError
from searchlens.store.specials import Specials


def _unknown(tokens: tuple[int, ...], vocab_size: int) -> int | None:
    """A token id that does not exist; None if all do."""
    extremes = min(tokens, default=0), max(tokens, default=0)
    return next((token for token in extremes if not 0 <= token < vocab_size), None)


# Many requests have the same prompt, and nothing else of a check takes as long.
_unknown_of_prompt = lru_cache(4096)(_unknown)


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
        self._require_tokens("Request", request_id, request.prompt, "prefix", request.prefix)
        if not 0 <= request.top <= self.drawable:
            limits = f"0 to {self.drawable}, the vocabulary"
            raise InputError(f"Request {request_id}: top is {request.top}; allowed is {limits}")
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

    def check_given(self, texts: Sequence[Given], sampling: Sampling) -> None:
        """Raise InputError if prompt or text are empty, have an id that does not exist, or do not fit together.

        Or if log q would depend on more than the distribution p at each token.
        """
        if sampling.temperature == 0 or sampling.has_penalties:
            raise InputError("texts cannot be scored under a greedy policy, or one with penalties")
        for number, text in enumerate(texts):
            self._require_tokens("Text", number, text.prompt, "text", text.tokens)
            if not text.tokens:
                raise InputError(f"Text {number}: it has no tokens after its prompt")
            needed = len(text.prompt) + len(text.tokens)
            if needed > self.max_model_len:
                raise InputError(
                    f"Text {number}: {len(text.prompt)} prompt tokens and {len(text.tokens)} given tokens need {needed}"
                    f" tokens, the limit is {self.max_model_len}",
                    "Leave the text out; neither prompts nor texts are cut.",
                )

    def _require_tokens(
        self, kind: str, number: int, prompt: tuple[int, ...], name: str, after: tuple[int, ...]
    ) -> None:
        if not prompt:
            raise InputError(f"{kind} {number}: the prompt is empty")
        unknown = _unknown_of_prompt(prompt, self.vocab_size)
        name, unknown = ("prompt", unknown) if unknown is not None else (name, _unknown(after, self.vocab_size))
        if unknown is not None:
            raise InputError(
                f"{kind} {number}: the {name} has token id {unknown}, but ids go from 0 to {self.vocab_size - 1}",
                "Use the tokenizer of this model.",
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
