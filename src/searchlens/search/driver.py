"""The driver: many controllers alive at once on one continuously batched engine, without barriers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from searchlens.engines.base import Completion, Engine, Request
from searchlens.errors import InputError
from searchlens.search.task import Ask, Candidate, Controller


@dataclass(frozen=True, slots=True)
class Failure:
    """A controller that raised; the run goes on without its sample.

    Attributes
    ----------
    reason : str
        Type and message of the exception.
    """

    reason: str


Outcome = list[Candidate] | Failure
Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _Live:
    """A controller that waits for completions."""

    key: Hashable
    controller: Controller
    waiting: int = 0
    received: list[Completion | None] = field(default_factory=list)


def run(controllers: Iterable[tuple[Key, Controller]], engine: Engine) -> Iterator[tuple[Key, Outcome]]:
    """Drive all controllers to their end.

    Parameters
    ----------
    controllers : iterable of (key, controller)
        All are started before the engine's first step, so that it sees the whole queue.
    engine : Engine
        Must be idle.

    Yields
    ------
    tuple of (key, list of Candidate or Failure)
        In order of completion, each key once.

    Raises
    ------
    InputError
        The engine refuses a request.
    """
    driver = _Driver(engine)
    for key, controller in controllers:
        yield from driver.resume(_Live(key, controller), None)  # type: ignore[misc]
    while driver.owners:
        for request_id, completion in engine.step():
            yield from driver.deliver(request_id, completion)  # type: ignore[misc]


class _Driver:
    """Which request belongs to which controller."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.owners: dict[int, tuple[_Live, int]] = {}
        self._next_id = 0

    def deliver(self, request_id: int, completion: Completion) -> Iterator[tuple[Hashable, Outcome]]:
        """Hand a completion to its controller; resume it once it has all it asked for."""
        live, place = self.owners.pop(request_id)
        live.received[place] = completion
        live.waiting -= 1
        if not live.waiting:
            yield from self.resume(live, [done for done in live.received if done is not None])

    def resume(self, live: _Live, received: list[Completion] | None) -> Iterator[tuple[Hashable, Outcome]]:
        """Let a controller go on until it asks for something, returns or fails."""
        try:
            requests = next(live.controller) if received is None else live.controller.send(received)
            while not requests:
                requests = live.controller.send([])
        except StopIteration as end:
            yield live.key, end.value
            return
        except InputError:
            raise
        except Exception as error:
            yield live.key, Failure(f"{type(error).__name__}: {error}")
            return
        self._submit(live, requests)

    def _submit(self, live: _Live, asks: list[Ask]) -> None:
        live.waiting, live.received = len(asks), [None] * len(asks)
        for place, request in enumerate(asks):
            if not isinstance(request, Request):
                raise NotImplementedError
            self.owners[self._next_id] = live, place
            self.engine.add(self._next_id, request)
            self._next_id += 1
