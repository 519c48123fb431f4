"""The driver: thousands of controllers alive at once on one continuously batched engine, without barriers.

Whichever controller has all it asked for goes on at once; ``admission`` says when the engine gets what it asks for.
Controllers started earlier have priority, so that stragglers do not finish alone.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from searchlens.engines.base import Completion, Engine, Request
from searchlens.errors import InputError
from searchlens.search.admission import Admission
from searchlens.search.task import Ask, Call, Candidate, Controller

_CALLS_AT_ONCE = 16
_LIVE = 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """What one controller may ask for before it is taken to be endless.

    Attributes
    ----------
    requests, generated : int
        Requests and calls in all (asking for nothing counts as one), and tokens generated in all.
    """

    requests: int = 200_000
    generated: int = 2_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """What one controller has cost.

    Attributes
    ----------
    requests : int
    generated : int
        Tokens that the engine drew for it, returned or not.
    prefilled, reused : int
        Tokens of prompts and prefixes that were computed for it, and that were not computed again.
    """

    requests: int = 0
    generated: int = 0
    prefilled: int = 0
    reused: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.requests + other.requests,
            self.generated + other.generated,
            self.prefilled + other.prefilled,
            self.reused + other.reused,
        )


@dataclass(frozen=True, slots=True)
class Result:
    """A controller that came to its end.

    Attributes
    ----------
    candidates : list of Candidate
        The best first.
    usage : Usage
    """

    candidates: list[Candidate]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Failure:
    """A controller that raised, or asked for too much; the run goes on without its sample.

    Attributes
    ----------
    reason : str
        Type and message of the exception.
    usage : Usage
        Until then.
    """

    reason: str
    usage: Usage = Usage()


Outcome = Result | Failure
Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _Live:
    """A controller that waits for what it asked for."""

    key: Hashable
    controller: Controller
    order: int
    waiting: int = 0
    received: list[Any] = field(default_factory=list)
    asked: int = 0
    requests: int = 0
    generated: int = 0
    prefilled: int = 0
    reused: int = 0

    def pay(self, request: Request, done: Completion) -> None:
        """Add what a request has cost."""
        self.requests += 1
        self.generated += len(done.tokens)
        self.prefilled += len(request.prompt) + len(request.prefix) - done.reused
        self.reused += done.reused

    @property
    def usage(self) -> Usage:
        """The cost so far."""
        return Usage(self.requests, self.generated, self.prefilled, self.reused)


def run(
    controllers: Iterable[tuple[Key, Controller]],
    engine: Engine,
    *,
    live: int | None = None,
    group: int | None = None,
    limits: Limits = Limits(),
) -> Iterator[tuple[Key, Outcome]]:
    """Drive all controllers to their end.

    Parameters
    ----------
    controllers : iterable of (key, controller)
        Taken from it only as others end, so that memory is bounded however many there are.
    engine : Engine
        Must be idle; what it kept of earlier requests is forgotten first, so that batches, and with them the last
        digits of a result, depend on these controllers alone.
    live : int, optional
        Most controllers alive at once, >= 1; by default 4,096, or twice what the engine runs at once if that is more,
        so that it need not wait for those between two requests.
    group : int, optional
        New requests are held until so many have gathered, or a sixteenth of those that the engine has. By default the
        engine's ``groups`` are tried at the start, and the fastest is kept.
    limits : Limits
        Of each controller.

    Yields
    ------
    tuple of (key, Result or Failure)
        In order of completion, each key once.

    Raises
    ------
    InputError
        The engine refuses a request.
    """
    engine.clear()
    source, most = iter(controllers), live or max(_LIVE, 2 * engine.max_rows)
    with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool, _rare_collections():
        driver = _Driver(Admission(engine, group), pool, limits)
        exhausted = False
        while driver.alive or not exhausted:
            while driver.alive < most and not exhausted:
                started = next(source, None)
                exhausted = started is None
                if started is not None:
                    yield from driver.start(*started)  # type: ignore[misc]
            yield from driver.advance()  # type: ignore[misc]


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for cyclic garbage rarely: thousands of live controllers are looked through each time, and hold none."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Driver:
    """Which ask belongs to which controller."""

    def __init__(self, admission: Admission, pool: ThreadPoolExecutor, limits: Limits) -> None:
        self._admission, self._pool, self._limits = admission, pool, limits
        self.alive = 0
        self._started = 0
        self._next_id = 0
        self._asked: dict[int, tuple[_Live, int, Request]] = {}
        self._called: dict[Future[Any], tuple[_Live, int]] = {}

    def start(self, key: Hashable, controller: Controller) -> Iterator[tuple[Hashable, Outcome]]:
        """Let a controller ask for the first time."""
        self.alive += 1
        self._started += 1
        yield from self._resume(_Live(key, controller, self._started), None)

    def advance(self) -> Iterator[tuple[Hashable, Outcome]]:
        """Let the engine and the calls go on until something has finished, and hand it out."""
        self._admission.admit()
        if self._admission.running:
            for request_id, done in self._admission.step():
                owner, place, request = self._asked.pop(request_id)
                if isinstance(done, Completion):
                    owner.pay(request, done)
                yield from self._deliver(owner, place, done)
        elif self._called:
            wait(self._called, return_when=FIRST_COMPLETED)
        for future in [one for one in self._called if one.done()]:
            yield from self._return(future)

    def _return(self, future: Future[Any]) -> Iterator[tuple[Hashable, Outcome]]:
        owner, place = self._called.pop(future)
        error = future.exception()
        if error is None:
            yield from self._deliver(owner, place, future.result())
        else:
            yield from self._deliver(owner, place, error)

    def _deliver(self, owner: _Live, place: int, what: Any) -> Iterator[tuple[Hashable, Outcome]]:
        """Hand a result to its controller; resume it once it has all it asked for."""
        owner.received[place] = what
        owner.waiting -= 1
        if not owner.waiting:
            yield from self._resume(owner, owner.received)

    def _resume(self, owner: _Live, received: list[Any] | None) -> Iterator[tuple[Hashable, Outcome]]:
        """Let a controller go on until it asks for something, returns or fails."""
        try:
            asks = self._checked(owner, self._go_on(owner.controller, received))
            while not asks:
                asks = self._checked(owner, owner.controller.send([]))
        except StopIteration as end:
            self.alive -= 1
            yield owner.key, Result(end.value, owner.usage)
            return
        except InputError:
            raise
        except Exception as error:
            self.alive -= 1
            owner.controller.close()
            yield owner.key, Failure(f"{type(error).__name__}: {error}", owner.usage)
            return
        self._submit(owner, asks)

    @staticmethod
    def _go_on(controller: Controller, received: list[Any] | None) -> list[Ask]:
        if received is None:
            return next(controller)
        failed = next((one for one in received if isinstance(one, BaseException)), None)
        return controller.throw(failed) if failed is not None else controller.send(received)

    def _checked(self, owner: _Live, asks: list[Ask]) -> list[Ask]:
        owner.asked += max(1, len(asks))
        if owner.asked > self._limits.requests:
            raise RuntimeError(f"it has asked for {owner.asked} requests; the limit is {self._limits.requests}")
        if owner.generated > self._limits.generated:
            raise RuntimeError(f"{owner.generated} tokens were generated for it; the limit is {self._limits.generated}")
        return asks

    def _submit(self, owner: _Live, asks: list[Ask]) -> None:
        owner.waiting, owner.received = len(asks), [None] * len(asks)
        for place, ask in enumerate(asks):
            if isinstance(ask, Call):
                self._called[self._pool.submit(ask.function)] = owner, place
                continue
            self._asked[self._next_id] = owner, place, ask
            self._admission.hold(self._next_id, _ranked(ask, owner.order))
            self._next_id += 1


def _ranked(request: Request, priority: int) -> Request:
    """The request with a priority; spelled out, since ``dataclasses.replace`` costs as much as a step of a search."""
    return Request(
        request.prompt,
        request.sampling,
        request.seed,
        request.max_tokens,
        request.stop_ids,
        request.prefix,
        request.measures,
        request.top,
        priority,
    )
