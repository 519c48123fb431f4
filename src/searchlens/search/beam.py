"""Token beam: the texts of highest log-probability per length**penalty that a beam of fixed width finds.

The rule is that of transformers' ``generate(num_beams=width, num_return_sequences=width, early_stopping=False)``. At
every step the best K continuations of all live beams are taken, K = width * max(2, 1 + number of stop tokens), so that
``width`` of them go on whatever ends. Those among the first ``width`` that end with a stop token, or all of them at the
last token allowed, become hypotheses, with the score ``sum log p / length**length_penalty`` over generated tokens, the
stop token included; the ``width`` best hypotheses are kept. The search ends when there are ``width`` and the best live
beam, scored at its present length, is not better than the worst of them.

Where transformers would fill up a beam with copies, because K exceeds the vocabulary, this refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from searchlens.engines.base import Completion, FinishReason, Request, Sampling
from searchlens.errors import InputError
from searchlens.policies import Policy
from searchlens.search.task import Candidate, Controller, Evaluator, Task

_RAW = Sampling(temperature=1.0)


def continuations(width: int, stop_ids: Sequence[int]) -> int:
    """K, the most likely continuations that each path is asked for; no more than there are tokens."""
    return width * max(2, 1 + len(stop_ids))


@dataclass(frozen=True, slots=True)
class _Beam:
    """A text, live or ended.

    Attributes
    ----------
    tokens : tuple of int
    logprobs : tuple of float
        Of each token, under the raw model.
    total : float
        Their sum.
    """

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    total: float = 0.0

    def then(self, token: int, logprob: float) -> _Beam:
        return _Beam((*self.tokens, token), (*self.logprobs, logprob), self.total + logprob)


def search(task: Task, policy: Policy, evaluator: Evaluator) -> Controller:
    """Search one beam; nothing in it is drawn.

    Parameters
    ----------
    task : Task
    policy : Policy
        ``width`` and ``length_penalty``. The local policy must be neutral, because the beam reads the raw model.
    evaluator : Evaluator
        Not called: ``sequence_logprob``, the only one that goes with this controller, is the running sum.

    Returns
    -------
    Controller
        ``width`` candidates, best first, scored with the length penalty. Their ``sampling_logprobs`` are 0.

    Raises
    ------
    InputError
        The beam needs more continuations than the vocabulary has tokens.
    """
    del evaluator
    width, penalty = int(policy.parameters["width"]), float(policy.parameters["length_penalty"])
    k = continuations(width, task.stop_ids)
    live, ended = [_Beam()], list[_Beam]()

    def score(beam: _Beam) -> float:
        return float(beam.total / len(beam.tokens) ** penalty)

    for length in range(1, task.max_tokens + 1):
        done = yield [Request(task.prompt, _RAW, task.seed, 1, (), prefix=beam.tokens, top=k) for beam in live]
        best = _continuations(live, done, k)
        last = length == task.max_tokens
        ended += [beam for beam in best[:width] if last or beam.tokens[-1] in task.stop_ids]
        ended = sorted(ended, key=score, reverse=True)[:width]
        live = [beam for beam in best if beam.tokens[-1] not in task.stop_ids][:width]
        if len(ended) == width and score(live[0]) <= score(ended[-1]):
            break
    return [_candidate(task, beam, score(beam)) for beam in ended]


def _continuations(live: list[_Beam], done: list[Completion], k: int) -> list[_Beam]:
    """The ``k`` most likely continuations of all live beams; equal ones by beam, then by token id."""
    found = []
    for beam, one in zip(live, done, strict=True):
        assert one.top_tokens is not None and one.top_logprobs is not None, "the engine was asked for them"
        tokens, logprobs = one.top_tokens[0].tolist(), one.top_logprobs[0].tolist()
        possible = [(token, logprob) for token, logprob in zip(tokens, logprobs, strict=True) if logprob > -np.inf]
        if len(possible) < k:
            raise InputError(
                f"controller beam needs the {k} most likely tokens, but the model can draw only {len(possible)}",
                "lower width; each path of a beam needs 2, or 1 more than there are stop tokens",
            )
        found += [(beam.total + logprob, beam, token, logprob) for token, logprob in possible]
    found.sort(key=lambda one: one[0], reverse=True)
    return [beam.then(token, logprob) for _, beam, token, logprob in found[:k]]


def _candidate(task: Task, beam: _Beam, score: float) -> Candidate:
    finish: FinishReason = "stop" if beam.tokens[-1] in task.stop_ids else "length"
    logprobs = np.array(beam.logprobs, np.float32)
    return Candidate(np.array(beam.tokens, np.int32), logprobs, np.zeros_like(logprobs), finish, score)
