"""Stop texts: an answer ends before the first stop text of its template, however that text is cut into tokens.

Engines stop at single tokens only. What they draw after a stop text is cut off here, for every engine alike; it still
counts as drawn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from searchlens.search.task import Candidate

Decode = Callable[[Sequence[int]], str]

_SCORES: Mapping[str, Callable[..., Any]] = {"mean_logprob": np.mean, "sequence_logprob": np.sum}
"""Evaluators whose score is a function of log-probabilities alone, which can be computed again for a cut text."""


class End(NamedTuple):
    """The end of a text by a stop text.

    Attributes
    ----------
    length : int
        Tokens up to and including the one that completes the first stop text.
    text : str
        The text before that stop text.
    """

    length: int
    text: str


def end(tokens: Sequence[int], text: str, stops: Sequence[str], decode: Decode) -> End | None:
    """Return the end of a text by a stop text, None if the text contains no stop text.

    Parameters
    ----------
    tokens : sequence of int
    text : str
        ``decode(tokens)``.
    stops : sequence of str
    decode : callable
    """

    def has_stop(length: int) -> bool:
        head = decode(tokens[:length])
        return any(stop in head for stop in stops)

    if not any(stop in text for stop in stops):
        return None
    length = bisect_left(range(len(tokens)), True, key=has_stop)
    head = decode(tokens[:length])
    return End(length, head[: min(place for stop in stops if (place := head.find(stop)) >= 0)])


def cut(candidate: Candidate, length: int, evaluator: str) -> Candidate:
    """Return a candidate cut to its first ``length`` tokens, as one that stopped there.

    If the evaluator's score is a function of log-probabilities alone, it is computed again for the cut text. Otherwise
    the candidate keeps the score by which the search chose it.
    """
    logprobs = candidate.logprobs[:length]
    rescore = _SCORES.get(evaluator)
    return replace(
        candidate,
        tokens=candidate.tokens[:length],
        logprobs=logprobs,
        sampling_logprobs=candidate.sampling_logprobs[:length],
        finish="stop",
        score=float(rescore(logprobs, dtype=np.float64)) if rescore else candidate.score,
    )
