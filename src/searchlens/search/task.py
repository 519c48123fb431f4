"""What passes between controllers, evaluators and driver, and where stop texts end it.

A search is a generator without I/O. It yields a list of asks (requests for the engine, or calls of slow functions),
receives their results in the same order, and returns its candidates. An evaluator is a generator of the same kind that
returns scores, so that a search runs one by ``yield from``. Neither knows engine, clock or gold answer, so a test can
script every reply.

An answer ends with the token that completes the first stop text of its template. Engines stop at single tokens only.
Here a stop text is found however it is cut into tokens, long requests are drawn in pieces, and completions are cut, for
every controller and engine alike. What is cut off still counts as drawn.

That token is a stopping time: whether a text ends there depends on the tokens up to there alone. So the texts of a task
are those that end at a stop token, at that token or at the limit, and the probability of a text is the product over its
tokens up to its end, as without stop texts.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from searchlens import seeds
from searchlens.engines.base import Completion, FinishReason, Floor, Request, Sampling


def unrecorded(kind: str, **values: Any) -> None:
    """Forget a note: the searches of most runs are not recorded."""


class Task(NamedTuple):
    """What a policy may know of one run: the question and limits, never the gold answer."""

    prompt: tuple[int, ...]
    """Token ids of the rendered question."""
    seed: int
    """Of the run; the seed of a request is ``seed_of`` its place in the search."""
    max_tokens: int
    """Most tokens of one candidate."""
    stop_ids: tuple[int, ...]
    """Tokens that end a candidate."""
    step_ids: tuple[int, ...]
    """Tokens that end a thought: those whose text holds the step delimiter."""
    decode: Callable[[Sequence[int]], str]
    """Token ids to text."""
    answer: Callable[[Sequence[int]], Hashable | None]
    """Token ids to the final answer that they state, as a class that equal answers share, or None."""
    check_every: int = 0
    """A continuation is searched for a stop text after every ``check_every`` tokens; 0: only at its end."""
    stop_texts: tuple[str, ...] = ()
    """Texts that end a candidate which contains one of them."""
    encode: Callable[[str], tuple[int, ...]] = lambda _: ()
    """Text to the token ids that spell it, with nothing added around them."""
    note: Callable[..., None] = unrecorded
    """Called by controllers and evaluators with what they did, as ``note(kind, **values)``; ``recorder`` says with
    what. It returns nothing, so that no search depends on whether it is recorded."""

    @property
    def is_recorded(self) -> bool:
        """Whether anyone reads the notes; a note that costs time to make need not be made otherwise."""
        return self.note is not unrecorded

    def seed_of(self, *key: str | int) -> int:
        """Seed of the request at a place in the search, such as ``("thought", 0, 2)``."""
        return seeds.child(self.seed, *key)

    def generator(self, *key: str | int) -> np.random.Generator:
        """Random numbers of this run that draw no token, such as cut points of a chain."""
        return seeds.generator(self.seed, *key)

    def length(self, tokens: Sequence[int]) -> int | None:
        """Number of tokens up to the one that completes the first stop text; None if there is no stop text."""
        if not self.stop_texts:
            return None  # without decoding, which takes as long as the text is
        found = end(tokens, self.decode(tokens), self.stop_texts, self.decode)
        return found.length if found else None

    def text(self, tokens: Sequence[int]) -> str:
        """What an answer says: the text of its tokens, up to a stop text."""
        text = self.decode(tokens)
        found = end(tokens, text, self.stop_texts, self.decode)
        return found.text if found else text

    def finish(self, tokens: Sequence[int]) -> FinishReason | None:
        """How a text has ended, at a stop token, a stop text or the limit; None if it can go on."""
        if self.length(tokens) is not None:
            return "stop"
        return self._finish_by_token(tokens[-1], len(tokens)) if tokens else None

    def _finish_by_token(self, newest: int, count: int) -> FinishReason | None:
        if newest in self.stop_ids:
            return "stop"
        return "length" if count == self.max_tokens else None

    def extend(self, path: Trace, completion: Completion) -> Trace:
        """A path followed by what was drawn for it, cut where a stop text ends it; ``finish`` says how it has ended."""
        if self.stop_texts:
            longer = path.extend(completion, None)
            if (length := self.length(longer.prefix)) is not None:
                return longer.cut(length)._replace(finish="stop")
        tokens = completion.tokens if len(completion.tokens) else path.tokens
        count = len(path.tokens) + len(completion.tokens)
        return path.extend(completion, self._finish_by_token(tokens.item(-1), count) if count else None)

    def force(self, path: Trace, reply: Completion, position: int, rank: int) -> Trace:
        """A path followed by one of the most likely tokens at a position of a reply, which was not drawn."""
        assert reply.top_tokens is not None and reply.top_logprobs is not None, "the engine was asked for them"
        chosen = position, slice(rank, rank + 1)
        token = reply.top_tokens[chosen], reply.top_logprobs[chosen], np.zeros(1, np.float32)
        both = reply.entropies, reply.certainties
        entropies, certainties = (None if each is None else each[position : position + 1] for each in both)
        return self.extend(path, Completion(*token, "length", entropies, certainties))

    @property
    def empty(self) -> Trace:
        """The path without a token, where every search begins."""
        return EMPTY

    def request(
        self,
        path: Trace,
        sampling: Sampling,
        seed: int,
        tokens: int | None = None,
        *,
        step_ids: tuple[int, ...] = (),
        measures: bool = False,
        top: int = 0,
        floor: Floor | None = None,
    ) -> Request:
        """A continuation of an unfinished path, of at most ``tokens``, and never more than a candidate may still have.

        ``step_ids`` end it besides ``stop_ids``; ``measures``, ``top`` and ``floor`` are as in ``Request``.
        """
        room = self.max_tokens - len(path.tokens)
        return Request(
            prompt=self.prompt,
            sampling=sampling,
            seed=seed,
            max_tokens=room if tokens is None else min(tokens, room),
            stop_ids=step_ids + self.stop_ids,
            prefix=path.prefix,
            measures=measures,
            top=top,
            floor=floor,
        )


class Trace(NamedTuple):
    """A path of a search so far: the generated tokens after the prompt, with arrays as in ``Completion``."""

    tokens: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]
    sampling_logprobs: npt.NDArray[np.float32]
    """0 for a token that was forced, not drawn."""
    certainties: npt.NDArray[np.float32] | None = None
    finish: FinishReason | None = None
    """None while the path can go on."""
    entropies: npt.NDArray[np.float32] | None = None
    """``certainties``, ``entropies``: None unless every part was requested with measures."""

    @property
    def prefix(self) -> tuple[int, ...]:
        """The tokens in the form that a request needs."""
        return tuple(self.tokens.tolist())

    @property
    def log_p(self) -> float:
        """Natural log p of the path under the raw model; 0 for the empty path."""
        return float(self.logprobs.sum(dtype=np.float64))

    def cut(self, length: int) -> Trace:
        """The first ``length`` tokens, as a path that can go on."""
        return Trace(**{name: array[:length] for name, array in _arrays(self).items()})

    def after(self, start: int) -> dict[str, Any]:
        """The path without its first ``start`` tokens, as ``Task.note`` takes it."""
        arrays = {"tokens": self.tokens, "logp": self.logprobs, "logq": self.sampling_logprobs}
        return {**{name: array[start:] for name, array in arrays.items()}, "finish": self.finish}

    def extend(self, completion: Completion, finish: FinishReason | None) -> Trace:
        """The path followed by a continuation; with measures if both have them."""
        return Trace(**_followed(self, completion), finish=finish)

    def candidate(self, score: float, details: Mapping[str, float] | None = None) -> Candidate:
        """The finished path as an answer; ValueError if it is not finished, or the score is not a finite number."""
        if self.finish is None:
            raise ValueError("the path is not finished")
        if not math.isfinite(score):
            raise ValueError(f"the evaluator scored a path {score}")
        return Candidate(self.tokens, self.logprobs, self.sampling_logprobs, self.finish, float(score), details or {})


def _arrays(drawn: Trace | Completion) -> dict[str, Any]:
    """The arrays with an entry for each token, by name."""
    return {name: array for name, array in drawn._asdict().items() if isinstance(array, np.ndarray)}


def _followed(first: Trace | Completion, second: Completion) -> dict[str, Any]:
    """The arrays that two parts of a text both have, one after the other."""
    after = _arrays(second)
    return {name: np.concatenate((array, after[name])) for name, array in _arrays(first).items() if name in after}


_NOTHING = np.zeros(0, np.float32)
EMPTY = Trace(np.zeros(0, np.int32), _NOTHING, _NOTHING, certainties=_NOTHING, entropies=_NOTHING)


class Candidate(NamedTuple):
    """One complete answer that a search returned."""

    tokens: npt.NDArray[np.int32]
    """Shape (n,)."""
    logprobs: npt.NDArray[np.float32]
    sampling_logprobs: npt.NDArray[np.float32]
    """``logprobs``, ``sampling_logprobs``: as in ``Trace``. Shape (n,), of float32."""
    finish: FinishReason
    score: float
    """By the evaluator; higher is better."""
    details: Mapping[str, float] = MappingProxyType({})
    """Figures about the search, such as acceptance; on the first candidate of a run."""


@dataclass(frozen=True, slots=True)
class Call:
    """A slow function, such as an external verifier, that runs in a thread while the engine goes on."""

    function: Callable[[], Any]
    """Takes nothing. Its return value comes in place of a completion; an exception fails the search."""


Ask = Request | Call
Search = Generator[list[Ask], list[Any], list[Candidate]]
"""Yields asks, receives their results in the same order, and returns at least one candidate, the best first."""
Scoring = Generator[list[Ask], list[Any], list[float]]
"""Yields asks like a search, and returns one score for each path; higher is better."""


class Evaluator(Protocol):
    """Scores paths of one task, finished or not."""

    measures: bool = False
    """Whether the paths must come from requests with ``measures``."""
    compares: bool = False
    """Whether a score depends on the other paths of the call."""

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        """Score ``traces``; ``key`` is the place of the call in the search, and seeds what is drawn for it."""


# ---- stop texts


class End(NamedTuple):
    """The end of a text by a stop text."""

    length: int
    """Tokens up to and including the one that completes the first stop text."""
    text: str
    """The text before that stop text."""


def end(tokens: Sequence[int], text: str, stops: Sequence[str], decode: Callable[[Sequence[int]], str]) -> End | None:
    """Return the end of a text, ``decode(tokens)``, by a stop text, None if the text contains no stop text."""

    def has_stop(length: int) -> bool:
        head = decode(tokens[:length])
        return any(stop in head for stop in stops)

    if not any(stop in text for stop in stops):
        return None
    length = bisect_left(range(len(tokens)), True, key=has_stop)
    head = decode(tokens[:length])
    return End(length, head[: min(place for stop in stops if (place := head.find(stop)) >= 0)])


def ended(task: Task, search: Search) -> Search:
    """The same search, whose completions end at the task's stop texts.

    Every request that continues an answer, which is one with the prompt and the stop tokens of the task, is drawn in
    pieces of ``task.check_every`` tokens, each with a seed of its own, until a stop text is complete. The search
    receives the tokens up to there as one completion with ``finish`` "stop". The pieces of all requests that a search
    makes at a time are drawn together.
    """
    return through(search, partial(_replies, task)) if task.stop_texts else search


def through(search: Search, exchange: Callable[[list[Ask]], Generator[list[Ask], list[Any], list[Any]]]) -> Search:
    """The same search, which gets what ``exchange`` returns as replies to its asks, or the exception that it raises."""
    resume: Callable[[], list[Ask]] = partial(next, search)
    while True:
        try:
            asks = resume()
        except StopIteration as done:
            candidates: list[Any] = done.value
            return candidates
        try:
            replies = yield from exchange(asks)
        except Exception as error:  # a request or call that failed: the search may know what to do
            resume = partial(search.throw, error)
        else:
            resume = partial(search.send, replies)


def _replies(task: Task, asks: Sequence[Ask]) -> Generator[list[Ask], list[Any], list[Any]]:
    """The results of some asks, in their order."""
    replies: dict[int, Any] = {}
    waiting = dict(enumerate(asks))
    if most := task.check_every:
        for i, ask in enumerate(asks):
            if isinstance(ask, Request) and _continues_an_answer(task, ask):
                waiting[i] = ask._replace(max_tokens=min(ask.max_tokens, most))
    while True:
        received = yield list(waiting.values())
        for i, reply in zip(list(waiting), received, strict=True):
            ask = asks[i]
            if not isinstance(ask, Request) or not _continues_an_answer(task, ask):
                replies[i] = reply
                del waiting[i]
                continue
            replies[i] = drawn = _cut(task, ask, _joined(replies[i], reply) if i in replies else reply)
            if drawn.finish in ("stop", "rejected") or len(drawn.tokens) == ask.max_tokens:
                del waiting[i]
            elif ask.floor and ask.floor.is_reached(drawn):
                replies[i] = drawn._replace(finish="rejected")
                del waiting[i]
            else:
                prefix, left = ask.prefix + tuple(drawn.tokens.tolist()), ask.max_tokens - len(drawn.tokens)
                waiting[i] = ask._replace(
                    prefix=prefix,
                    seed=seeds.child(ask.seed, "from", len(prefix)),
                    max_tokens=min(left, task.check_every or left),
                    floor=ask.floor and ask.floor.after(drawn),
                )
        if not waiting:
            return [replies[i] for i in range(len(asks))]


def _continues_an_answer(task: Task, request: Request) -> bool:
    return request.prompt == task.prompt and set(task.stop_ids) <= set(request.stop_ids)


def _cut(task: Task, request: Request, drawn: Completion) -> Completion:
    """What was drawn up to a stop text; all of it if there is none, or if there was one before.

    A text that was rejected for tokens after a stop text ends there and is whole.
    """
    length = task.length((*request.prefix, *drawn.tokens.tolist()))
    own = 0 if length is None else length - len(request.prefix)
    if own < 1:
        return drawn
    return drawn._replace(finish="stop", **{name: column[:own] for name, column in _arrays(drawn).items()})


def _joined(first: Completion, second: Completion) -> Completion:
    """Two pieces as one completion; what the engine reused is that of the first."""
    return first._replace(finish=second.finish, **_followed(first, second))
