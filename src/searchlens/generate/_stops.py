"""Candidates that go on after a stop text: what a controller kept of it is cut off before it is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from searchlens.search.task import Candidate

_SCORES: Mapping[str, Callable[..., Any]] = {"mean_logprob": np.mean, "sequence_logprob": np.sum}
"""Evaluators whose score is a function of log-probabilities alone, which can be computed again for a cut text."""


def cut(candidate: Candidate, length: int, evaluator: str) -> Candidate:
    """Return a candidate cut to its first ``length`` tokens, as one that stopped there.

    If the evaluator's score is a function of log-probabilities alone, it is computed again for the cut text. Otherwise
    the candidate keeps the score by which the search chose it.
    """
    logprobs = candidate.logprobs[:length]
    rescore = _SCORES.get(evaluator)
    return candidate._replace(
        tokens=candidate.tokens[:length],
        logprobs=logprobs,
        sampling_logprobs=candidate.sampling_logprobs[:length],
        finish="stop",
        score=float(rescore(logprobs, dtype=np.float64)) if rescore else candidate.score,
    )
