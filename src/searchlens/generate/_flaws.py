"""What is wrong with what a search returned: its controller may be a user's own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from searchlens.policies import Policy
from searchlens.search.driver import Failure, Outcome
from searchlens.search.task import Candidate


def checked(outcomes: Sequence[Outcome], policy: Policy, vocab_size: int) -> Sequence[Outcome]:
    """Return the outcomes of runs of a policy, with a failure for each whose samples are invalid.

    The arrays of all candidates are looked at together, which is ten times as fast as one by one; only if there is a
    flaw somewhere is each outcome looked at. Token ids go from 0 to ``vocab_size - 1``.
    """
    results = [outcome.candidates for outcome in outcomes if not isinstance(outcome, Failure)]
    if not any(_list_flaw(result, policy.width) for result in results):
        candidates = [candidate for result in results for candidate in result]
        if not candidates or _are_sound(candidates, vocab_size):
            return outcomes
    return [_check(outcome, policy, vocab_size) for outcome in outcomes]


def _are_sound(candidates: Sequence[Candidate], vocab_size: int) -> bool:
    """Whether it is certain that no candidate has a flaw."""
    arrays = [(candidate.tokens, candidate.logprobs, candidate.sampling_logprobs) for candidate in candidates]
    if not all(type(array) is np.ndarray for three in arrays for array in three):
        return False
    if not all(tokens.ndim == 1 and tokens.size and tokens.shape == p.shape == q.shape for tokens, p, q in arrays):
        return False
    tokens, *logprobs = map(np.concatenate, zip(*arrays, strict=True))
    in_vocabulary = tokens.dtype.kind in "iu" and tokens.min() >= 0 and tokens.max() < vocab_size
    scores = [candidate.score for candidate in candidates]
    return bool(in_vocabulary and not np.isnan(logprobs).any() and all(map(math.isfinite, scores)))


def _check(outcome: Outcome, policy: Policy, vocab_size: int) -> Outcome:
    """Return the outcome of a run; a failure if its controller, which may be a user's own, returned invalid samples."""
    if isinstance(outcome, Failure):
        return outcome
    flaw = _flaw(outcome.candidates, policy.width, vocab_size)
    return Failure(f"controller {policy.controller.name} returned {flaw}", outcome.usage) if flaw else outcome


def _flaw(result: object, width: int, vocab_size: int) -> str | None:
    """Return what is wrong with the result of a search, None if it is valid."""
    if flaw := _list_flaw(result, width):
        return flaw
    assert isinstance(result, list)
    return next((flaw for candidate in result if (flaw := _candidate_flaw(candidate, vocab_size))), None)


def _list_flaw(result: object, width: int) -> str | None:
    if not isinstance(result, list) or not all(isinstance(candidate, Candidate) for candidate in result):
        return f"{result!r:.200}, not a list of candidates"
    if len(result) != width:
        return f"{len(result)} candidates, it should return {width}"
    return None


def _candidate_flaw(candidate: Candidate, vocab_size: int) -> str | None:
    tokens = candidate.tokens
    if not isinstance(tokens, np.ndarray) or tokens.ndim != 1 or not len(tokens) or tokens.dtype.kind not in "iu":
        return f"a candidate with tokens {tokens!r:.200}, no array of ids"
    if tokens.min() < 0 or tokens.max() >= vocab_size:
        outside = tokens.min() if tokens.min() < 0 else tokens.max()
        return f"a candidate with token id {outside}, but ids go from 0 to {vocab_size - 1}"
    for name in ("logprobs", "sampling_logprobs"):
        if np.shape(getattr(candidate, name)) != tokens.shape:
            return f"a candidate of {len(tokens)} tokens with {name} of shape {np.shape(getattr(candidate, name))}"
        if np.isnan(getattr(candidate, name)).any():
            return f"a candidate with {name} that are not numbers"
    if not math.isfinite(candidate.score):
        return f"a candidate with score {candidate.score}"
    return None
