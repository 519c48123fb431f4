"""The driver: thousands of searches alive at once on one continuously batched engine, without barriers.

A search resumes as soon as all that it asked for has been answered; ``Admission`` decides when the engine gets its
requests. Searches that started earlier have priority, so that stragglers do not finish alone.

An engine may be slower at a step that mixes new prompts with decoding than at one that only decodes. Searches submit
their requests a few at a time, which would make every step a slow one; gathered, they cost one slow step in many. The
best number to gather depends on model, prompts and machine, so it is found by trial.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from operator import add
from typing import Any, NamedTuple, TypeVar

from searchlens.engines.base import Completion, Engine, Request, RequestError
from searchlens.errors import InputError
from searchlens.garbage import collected_rarely
from searchlens.search.evaluators import evaluator
from searchlens.search.policy import Policy
from searchlens.search.task import Ask, Call, Candidate, Search, Task, ended

log = logging.getLogger(__name__)

_THREADS = 16  # calls that run at the same time; they wait for a network, not for a processor
_LIVE = 4096  # searches alive at once: enough to fill an engine, few enough to fit in memory
_TRIAL_STEPS = 48  # long enough that a group of each size comes several times, short against a run
HELD_SHARE = 16
"""At most 1/16 of the running requests are held back, so that stragglers do not wait."""


def start(task: Task, policy: Policy) -> Search:
    """The search of a policy on one task, with the policy's evaluator, up to stop texts; ``run`` drives it."""
    return ended(task, policy.controller.search(task, policy, evaluator(policy.evaluator)))


MOST_ASKS = 200_000
"""Requests and calls of one search, an empty list of asks counting as one; one that has more is endless, and fails."""
MOST_GENERATED = 2_000_000
"""Generated tokens of one search, likewise."""


class Usage(NamedTuple):
    """What one search has cost."""

    requests: int = 0
    generated: int = 0
    """Tokens that the engine drew for it, returned or not."""
    prefilled: int = 0
    """Tokens of prompts and prefixes that were computed for it."""
    reused: int = 0
    """Those that did not have to be computed again."""

    def __add__(self, other: Usage) -> Usage:  # type: ignore[override]
        return Usage(*map(add, self, other))


class Result(NamedTuple):
    """A search that ended."""

    candidates: list[Candidate]
    """The best first."""
    usage: Usage


class Failure(NamedTuple):
    """A search that raised an exception or exceeded a limit; the run goes on without its sample."""

    reason: str
    """Type and message of the exception."""
    usage: Usage = Usage()
    """Until then."""


Outcome = Result | Failure
_NOTHING = Usage()
Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _Live:
    """A search that waits for replies."""

    key: Hashable
    search: Search
    order: int
    """Its place among all searches of the run, by start."""
    waiting: int = 0
    """Asks that have no reply yet."""
    replies: list[Any] | None = None
    """Replies to the present asks, in their order."""
    asks: int = 0
    """Asks so far, at most ``MOST_ASKS``."""
    failed: bool = False
    """Whether one of the replies is an exception."""
    usage: Usage = _NOTHING


def run(
    searches: Iterable[tuple[Key, Search]], engine: Engine, *, live: int | None = None, group: int | None = None
) -> Iterator[tuple[Key, Outcome]]:
    """Drive all searches to their end; yields each key once, with its outcome, in order of completion.

    The next search is taken only as another ends, so that memory is bounded however many there are. The engine must be
    idle. It is cleared first, so that batches, and with them the last digits of a result, depend on these searches
    alone. At most ``live`` searches are alive at once, by default 4,096, or twice the engine's ``max_rows`` if that is
    more, so that the engine has work while some searches are between two requests. New requests are held until
    ``group`` of them have gathered, or 1/16 of those that the engine has; by default the engine's ``groups`` are tried
    at the start, and the fastest stays in use. Raises InputError if the engine refuses a request.
    """
    engine.clear()
    source, most = iter(searches), live or max(_LIVE, 2 * engine.max_rows)
    # A collection visits thousands of live searches, which hold no garbage.
    with ThreadPoolExecutor(_THREADS) as pool, collected_rarely():
        driver = _Driver(Admission(engine, group), pool)
        while (new := list(islice(source, most - driver.alive))) or driver.alive:
            for item in new:
                if ended := driver.start(*item):
                    yield ended  # type: ignore[misc]
            yield from driver.advance()  # type: ignore[misc]


class _Driver:
    """Passes requests and calls on, and their replies back to the searches that asked."""

    def __init__(self, admission: Admission, pool: ThreadPoolExecutor) -> None:
        self._admission, self._pool = admission, pool
        self.alive = 0
        self._starts = 0
        self._next_id = 0
        self._requests: dict[int, tuple[_Live, int, Request]] = {}
        self._calls: dict[Future[Any], tuple[_Live, int]] = {}

    def start(self, key: Hashable, search: Search) -> tuple[Hashable, Outcome] | None:
        """Let a search ask for the first time; return it if it ended at once."""
        self.alive += 1
        self._starts += 1
        return self._resume(_Live(key, search, self._starts))

    def advance(self) -> Iterator[tuple[Hashable, Outcome]]:
        """Let the engine and the calls go on until one finishes, deliver its reply, and yield the searches that end."""
        self._admission.admit()
        if self._admission.running:
            for request_id, reply in self._admission.step():
                owner, place, request = self._requests.pop(request_id)
                if isinstance(reply, Completion):
                    computed = len(request.prompt) + len(request.prefix) - reply.reused
                    owner.usage += Usage(1, len(reply.tokens), computed, reply.reused)
                if ended := self._deliver(owner, place, reply):
                    yield ended
        elif self._calls:
            wait(self._calls, return_when=FIRST_COMPLETED)
        for future in [future for future in self._calls if future.done()]:
            owner, place = self._calls.pop(future)
            error = future.exception()
            if ended := self._deliver(owner, place, future.result() if error is None else error):
                yield ended

    def _deliver(self, owner: _Live, place: int, reply: Any) -> tuple[Hashable, Outcome] | None:
        """Hand a reply to its search, which goes on once it has all replies; return it if it ended."""
        assert owner.replies is not None, "it has asked for something"
        owner.replies[place] = reply
        owner.waiting -= 1
        owner.failed |= isinstance(reply, BaseException)
        return None if owner.waiting else self._resume(owner)

    def _resume(self, owner: _Live) -> tuple[Hashable, Outcome] | None:
        """Let a search go on until it asks for something, returns or fails; return it if it ended."""
        try:
            if owner.failed:
                owner.failed, replies = False, owner.replies or ()
                asked = owner.search.throw(next(reply for reply in replies if isinstance(reply, BaseException)))
            else:
                asked = next(owner.search) if owner.replies is None else owner.search.send(owner.replies)
            asks = self._within_limits(owner, asked)
            while not asks:
                asks = self._within_limits(owner, owner.search.send([]))
        except StopIteration as end:
            self.alive -= 1
            return owner.key, Result(end.value, owner.usage)
        except InputError:
            raise
        except Exception as error:
            self.alive -= 1
            owner.search.close()
            return owner.key, Failure(f"{type(error).__name__}: {error}", owner.usage)
        owner.waiting, owner.replies = len(asks), [None] * len(asks)
        for place, ask in enumerate(asks):
            if isinstance(ask, Call):
                self._calls[self._pool.submit(ask.function)] = owner, place
                continue
            self._requests[self._next_id] = owner, place, ask
            self._admission.hold(self._next_id, ask._replace(priority=owner.order))
            self._next_id += 1
        return None

    def _within_limits(self, owner: _Live, asks: list[Ask]) -> list[Ask]:
        owner.asks += max(1, len(asks))
        if owner.asks > MOST_ASKS:
            raise RuntimeError(f"it has asked for {owner.asks} requests; the limit is {MOST_ASKS}")
        if (drawn := owner.usage.generated) > MOST_GENERATED:
            raise RuntimeError(f"{drawn} tokens were generated for it; the limit is {MOST_GENERATED}")
        return asks


class Trials:
    """Tries sizes of a group in turn, twice, and then stays with the fastest; a single one needs no trial."""

    def __init__(self, sizes: Sequence[int]) -> None:
        # The second time in reverse, so that a drift favours no size.
        self._turns = [*sizes, *reversed(sizes)] if len(sizes) > 1 else list(sizes)
        self._tokens, self._seconds = dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0.0)
        self._steps = 0
        self.size = self._turns.pop(0)
        self.is_decided = len(sizes) == 1

    def note(self, steps: int, running: int, seconds: float) -> None:
        """Count ``steps`` of the engine, each of which drew a token for each of ``running`` requests."""
        self._tokens[self.size] += steps * running
        self._seconds[self.size] += seconds
        self._steps += steps
        if self._steps < _TRIAL_STEPS:
            return
        self._steps = 0
        if self._turns:
            self.size = self._turns.pop(0)
            return
        rates = {size: tokens / max(self._seconds[size], 1e-9) for size, tokens in self._tokens.items()}
        self.size, self.is_decided = max(rates, key=lambda size: rates[size]), True
        listing = ", ".join(f"{rate:,.0f} by {size}" for size, rate in rates.items())
        log.info("new requests are added %d at a time; tokens/s were %s", self.size, listing)


class Admission:
    """Holds requests that the engine does not have yet.

    An engine with a single size in ``groups`` gathers requests itself and gets all at once. Another gets no more than
    ``max_rows``, those of the lowest priority numbers first. A given ``group`` is used instead of trying the engine's.
    """

    def __init__(self, engine: Engine, group: int | None = None) -> None:
        self._engine = engine
        self._trials = Trials(engine.groups if group is None else (group,))
        self._most = engine.max_rows if len(engine.groups) > 1 else None
        self._held: list[tuple[int, int, Request]] = []
        self.running = 0

    def hold(self, request_id: int, request: Request) -> None:
        """Take a request in; ids grow."""
        self._held.append((request.priority, request_id, request))

    def admit(self) -> None:
        """Give the engine the requests that need not wait any longer."""
        ready = len(self._held) if self._most is None else min(len(self._held), self._most - self.running)
        if ready < min(self._trials.size, 1 + self.running // HELD_SHARE):
            return
        self._held.sort()
        for _, request_id, request in self._held[:ready]:
            self._engine.add(request_id, request)
        del self._held[:ready]
        self.running += ready

    def step(self) -> Sequence[tuple[int, Completion | RequestError]]:
        """Let the engine go on, and return the requests that finished."""
        steps, start = self._engine.steps, time.perf_counter()
        finished = self._engine.step()
        if not self._trials.is_decided:
            self._trials.note(self._engine.steps - steps, self.running, time.perf_counter() - start)
        self.running -= len(finished)
        return finished
