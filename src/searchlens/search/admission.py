"""When new requests go to the engine: at once, or several together.

An engine may be slower at a step that mixes new prompts with decoding than at one that only decodes. Searches submit
their requests a few at a time, which would make every step a slow one; gathered, they cost one slow step in many. The
best number to gather depends on model, prompts and machine, so it is found by trial.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from searchlens.engines.base import Completion, Engine, Request, RequestError

log = logging.getLogger(__name__)

_TRIAL_STEPS = 48  # long enough that a group of each size comes several times, short against a run
HELD_SHARE = 16
"""At most 1/16 of the running requests are held back, so that stragglers do not wait."""


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
