"""Requests that wait for a free row."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from searchlens.engines._ragged import Tokens
from searchlens.engines.base import Request


class Queue:
    """Requests in the order in which they are admitted.

    Requests with the same prompt and priority form a group, so that they share the prompt in the batch. Groups are
    ordered by priority, then by the arrival of their first request. So a request never overtakes one with a lower
    priority number; among equal ones it overtakes only by joining a group that is there already.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[int, Tokens], deque[tuple[int, Request]]] = {}
        self._order: list[tuple[int, int, Tokens]] = []  # a heap of (priority, arrival, prompt)
        self._arrivals = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, request_id: int, request: Request) -> None:
        """Add a request to its group."""
        key = request.priority, request.prompt
        group = self._groups.get(key)  # hashes the prompt, which is a large part of what adding a request takes
        if group is None:
            group = self._groups[key] = deque()
            heappush(self._order, (request.priority, self._arrivals, request.prompt))
            self._arrivals += 1
        group.append((request_id, request))
        self._length += 1

    def take(self, limit: int) -> list[tuple[int, Request]]:
        """Remove and return up to `limit` requests: whole groups, or a part of the first one if it is larger."""
        requests: list[tuple[int, Request]] = []
        while self._order and len(requests) < limit:
            priority, _, prompt = self._order[0]
            group = self._groups[priority, prompt]
            if len(group) <= limit - len(requests):
                heappop(self._order)
                requests += self._groups.pop((priority, prompt))
            elif requests:
                break
            else:
                requests += [group.popleft() for _ in range(limit)]
        self._length -= len(requests)
        return requests
