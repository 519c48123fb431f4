"""Token by token to the end: one request, one candidate."""

from __future__ import annotations

import numpy as np

from searchlens.engines.base import Request
from searchlens.search.task import Candidate, Controller


def autoregressive(request: Request) -> Controller:
    """Draw one sample; its score is the mean natural log-probability of its tokens under the raw model."""
    (done,) = yield [request]
    score = float(np.mean(done.logprobs, dtype=np.float64))
    return [Candidate(done.tokens, done.logprobs, done.sampling_logprobs, done.finish, score)]
