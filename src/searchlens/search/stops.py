"""Stop texts: an answer ends with the token that completes the first stop text of its template.

Engines stop at single tokens only. Here a stop text is found however it is cut into tokens, long requests are drawn in
pieces, and completions are cut, for every controller and engine alike. What is cut off still counts as drawn.

The token that completes the first stop text is a stopping time of the tokens: whether a text ends there depends on the
tokens up to there alone. So the texts of a task are those that end at a stop token, at that token or at the limit, and
the probability of a text is the product over its tokens up to its end, as without stop texts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from searchlens import seeds
from searchlens.engines.base import Completion, Request

if TYPE_CHECKING:
    from searchlens.search.task import Ask, Search, Task

Decode = Callable[[Sequence[int]], str]


class End(NamedTuple):
    """The end of a text by a stop text."""

    length: int
    """Tokens up to and including the one that completes the first stop text."""
    text: str
    """The text before that stop text."""


def end(tokens: Sequence[int], text: str, stops: Sequence[str], decode: Decode) -> End | None:
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
    return drawn._replace(finish="stop", **{name: column[:own] for name, column in _columns(drawn).items()})


def _joined(first: Completion, second: Completion) -> Completion:
    """Two pieces as one completion; what the engine reused is that of the first."""
    columns = zip(_columns(first).items(), _columns(second).values(), strict=True)
    joined: dict[str, Any] = {name: np.concatenate((one, two)) for (name, one), two in columns}
    return first._replace(finish=second.finish, **joined)


def _columns(completion: Completion) -> dict[str, Any]:
    """The arrays of a completion, which have an entry for each token, by name."""
    return {name: array for name, array in completion._asdict().items() if isinstance(array, np.ndarray)}
