"""Plain searches answered without an engine: token by token, from a language model small enough to enumerate."""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np

from searchlens.engines.base import Sampling
from searchlens.seeds import uniform
from searchlens_lab.equivalence.explicit import EOS, ToyModel, distribution, inverse_cdf
from searchlens_lab.equivalence.reference import Continuation, Text, Token, ids

Draw = Callable[[Continuation], Text]


def one_by_one(search: Generator[Any, Any, Any], draw: Draw) -> Any:
    """Run a search to its end, one continuation after the other; returns what the search returns."""
    tokens: Text | list[Text] | None = None
    while True:
        try:
            asked = search.send(tokens)  # a generator starts with None
        except StopIteration as end:
            return end.value
        tokens = [draw(one) for one in asked] if isinstance(asked, list) else draw(asked)


def plain_draw(model: ToyModel, prompt: tuple[int, ...], sampling: Sampling) -> Draw:
    """Continue texts token by token, with the plain filters and the uniform numbers of the engine's contract."""

    def draw(continuation: Continuation) -> Text:
        new: Text = ()
        local = sampling
        if continuation.temperature is not None:
            local = replace(sampling, temperature=continuation.temperature)
        while len(new) < continuation.max_tokens and not (new and new[-1].id in continuation.stop_ids):
            before = ids(continuation.text + new)
            q = distribution(model.next((*prompt, *before)).astype(np.float64), local, prompt, before)
            token = inverse_cdf(q, float(uniform(np.array([continuation.seed], np.uint64), np.array([len(new)]))[0]))
            log_p = model.logprobs[(EOS, *prompt, *before)[-2:]]
            likely = tuple((int(i), float(log_p[i])) for i in np.argsort(-log_p, kind="stable"))
            entropy = float(-(np.exp(log_p) * log_p).sum())
            new = (*new, Token(token, float(log_p[token]), float(np.log(q[token])), entropy, likely))
        return new

    return draw
