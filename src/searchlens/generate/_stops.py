"""Ends by text: an answer is over where it holds a stop text of its template, by whatever tokens that is spelled.

Engines end a sample at single tokens only. What is drawn behind a stop text is cut here, for every engine alike; it
still counts as drawn.
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
"""Scores that are plain functions of a text's log-probabilities, and so are known of its beginning too."""


class End(NamedTuple):
    """Where a text ends.

    Attributes
    ----------
    length : int
        Tokens up to the one that completes the first stop text.
    text : str
        What stands before that stop text.
    """

    length: int
    text: str


def end(tokens: Sequence[int], text: str, stops: Sequence[str], decode: Decode) -> End | None:
    """The end of a text by a stop text; None where it holds none.

    Parameters
    ----------
    tokens : sequence of int
    text : str
        ``decode(tokens)``.
    stops : sequence of str
    decode : callable
    """

    def ended(length: int) -> bool:
        beginning = decode(tokens[:length])
        return any(stop in beginning for stop in stops)

    if not any(stop in text for stop in stops):
        return None
    length = bisect_left(range(len(tokens)), True, key=ended)
    beginning = decode(tokens[:length])
    return End(length, beginning[: min(place for stop in stops if (place := beginning.find(stop)) >= 0)])


def cut(candidate: Candidate, length: int, evaluator: str) -> Candidate:
    """The first ``length`` tokens of a candidate, as one that ended there.

    Its score is that of what is left where the evaluator reads log-probabilities alone; others keep the score by which
    the search chose it.
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
