"""What passes between controllers, evaluators and driver.

A controller is a generator without I/O. It yields a list of asks, requests for the engine or calls of slow functions,
receives their results in the same order, and returns its candidates. An evaluator is a generator of the same kind that
returns scores, so that a controller runs one by ``yield from``. Neither knows engine, clock or gold answer: a test can
script every reply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from searchlens.engines.base import Completion, FinishReason, Request, Sampling
from searchlens.seeds import child


@dataclass(frozen=True, slots=True)
class Task:
    """What a policy may know of one run: question and limits, never the answer.

    Attributes
    ----------
    prompt : tuple of int
        Token ids of the rendered question.
    seed : int
        Of the run; every request's own is ``seed_of`` its place in the search.
    max_tokens : int
        Most tokens of one candidate.
    stop_ids : tuple of int
        Tokens that end a candidate.
    step_ids : tuple of int
        Tokens that end a thought: those whose text holds the step delimiter.
    decode : callable
        Token ids to text.
    answer : callable
        Token ids to the final answer that they state, as a class that equal answers share, or None.
    check_every : int
        Tokens after which a text that is drawn to its end is searched for a stop text; 0: only once it has ended.
    length : callable
        Token ids to how many of them are the text's own where a stop text ends it; None where none does.
    encode : callable
        Text to the token ids that spell it, with nothing added around them.
    """

    prompt: tuple[int, ...]
    seed: int
    max_tokens: int
    stop_ids: tuple[int, ...]
    step_ids: tuple[int, ...]
    decode: Callable[[Sequence[int]], str]
    answer: Callable[[Sequence[int]], Hashable | None]
    check_every: int = 0
    length: Callable[[Sequence[int]], int | None] = lambda _: None
    encode: Callable[[str], tuple[int, ...]] = lambda _: ()

    def seed_of(self, *key: str | int) -> int:
        """Seed of the request that stands at ``key`` in the search."""
        return child(self.seed, *key)


@dataclass(frozen=True, slots=True)
class Trace:
    """A path that a search has gone so far: generated tokens after the prompt.

    Attributes
    ----------
    tokens : int32 array, shape (n,)
    logprobs, sampling_logprobs : float32 array, shape (n,)
        As in ``Completion``; 0 in ``sampling_logprobs`` where a token was forced, not drawn.
    certainties : float32 array, shape (n,), or None
        As in ``Completion``; None unless every part was asked for measures.
    finish : {"stop", "length"} or None
        None while the path can go on.
    """

    tokens: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]
    sampling_logprobs: npt.NDArray[np.float32]
    certainties: npt.NDArray[np.float32] | None = None
    finish: FinishReason | None = None

    @property
    def prefix(self) -> tuple[int, ...]:
        """The tokens as a request wants them."""
        return tuple(self.tokens.tolist())

    def cut(self, length: int) -> Trace:
        """The first ``length`` tokens, as a path that can go on."""
        measured = None if self.certainties is None else self.certainties[:length]
        return Trace(self.tokens[:length], self.logprobs[:length], self.sampling_logprobs[:length], measured)

    def extend(self, done: Completion, finish: FinishReason | None) -> Trace:
        """The path with a continuation behind it."""
        measured = None
        if done.certainties is not None and (self.certainties is not None or not len(self.tokens)):
            before = np.zeros(0, np.float32) if self.certainties is None else self.certainties
            measured = np.concatenate((before, done.certainties))
        return Trace(
            np.concatenate((self.tokens, done.tokens)),
            np.concatenate((self.logprobs, done.logprobs)),
            np.concatenate((self.sampling_logprobs, done.sampling_logprobs)),
            measured,
            finish,
        )


EMPTY = Trace(np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.float32))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One complete answer that a controller returned.

    Attributes
    ----------
    tokens : int32 array, shape (n,)
    logprobs, sampling_logprobs : float32 array, shape (n,)
        As in ``Trace``.
    finish : {"stop", "length"}
    score : float
        What the evaluator says of it; higher is better.
    details : mapping of str to float
        What the controller tells of the search, such as acceptance; on the first candidate of a run.
    """

    tokens: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]
    sampling_logprobs: npt.NDArray[np.float32]
    finish: FinishReason
    score: float
    details: Mapping[str, float] = field(default_factory=dict)


def candidate(trace: Trace, score: float, details: Mapping[str, float] | None = None) -> Candidate:
    """A finished path as an answer.

    Raises
    ------
    ValueError
        The path is not finished, or the score is not a number.
    """
    if trace.finish is None:
        raise ValueError("the path is not finished")
    if not math.isfinite(score):
        raise ValueError(f"the evaluator scored a path {score}")
    return Candidate(trace.tokens, trace.logprobs, trace.sampling_logprobs, trace.finish, float(score), details or {})


@dataclass(frozen=True, slots=True)
class Call:
    """A slow function, such as an external verifier, to be run outside while the engine goes on.

    Attributes
    ----------
    function : callable
        Takes nothing; what it returns comes back in place of a completion, what it raises fails the controller.
    """

    function: Callable[[], Any]


Ask = Request | Call
Controller = Generator[list[Ask], list[Any], list[Candidate]]
"""Yields asks, receives their results in the same order, returns at least one candidate, the best first."""
Scoring = Generator[list[Ask], list[Any], list[float]]
"""The same, returning one score for each path, higher is better."""


class Evaluator(Protocol):
    """Scores paths of one task, unfinished ones too.

    Attributes
    ----------
    measures : bool
        Whether the paths must come from requests with ``measures``.
    compares : bool
        Whether a score depends on the other paths of the call.
    """

    measures: bool
    compares: bool

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        """Score ``traces``; ``key`` says where in the search this happens and seeds what is drawn."""
        ...
