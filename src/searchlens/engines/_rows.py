"""Requests on the host: those that wait, and the rows of the batch with everything that was drawn for them.

On the device, rows are identified by their position alone. A row stays in the batch for some steps after its sequence
has finished, because removing it moves others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from searchlens.engines import sampler
from searchlens.engines._caches import CachedPrefix
from searchlens.engines._checks import require_numbers
from searchlens.engines._prompts import Ints, Tokens
from searchlens.engines.base import NO_FLOOR, Completion, Floor, Request
from searchlens.seeds import uniform

ROW = np.dtype(
    [
        ("request_id", np.int64),
        ("seed", np.uint64),
        ("prompt_length", np.int64),
        ("prefix_length", np.int64),
        ("length", np.int64),  # private tokens: those of the prefix and the drawn ones
        ("limit", np.int64),  # length at which the row finishes
        ("alive", np.bool_),  # whether its sequence has not finished
        ("sampling", np.float64, 8),  # a row of `sampler.parameters`
        ("measures", np.bool_),
        ("top", np.int64),
        ("reused", np.int64),
        ("alpha", np.float64),  # of the floor of the request; 0 without one
        ("bound", np.float64),  # log weight at which the row is rejected; -inf without a floor
        ("start", np.float64),  # tokens that count with the drawn ones in log(start + t); not a number: no such term
        ("weight", np.float64),  # sum of alpha log p - log q over the drawn tokens
        ("rejected", np.bool_),
        ("prompt", np.object_),
        ("cached_prefix", np.object_),
    ],
    align=True,
)
"""State of one row; names are those of `Request` and `Completion` where they mean the same."""


@dataclass(slots=True)
class Rows:
    """Rows of a batch, in the order of the device."""

    state: npt.NDArray[np.void]
    """Array of ``ROW``. Shape (rows,)."""
    stop_ids: Ints
    """Padded with -1. Shape (rows, most stop ids of a row)."""
    tokens: npt.NDArray[np.int32]
    """Private tokens, the prefix first. Shape (rows, largest limit)."""
    logprobs: npt.NDArray[np.float32]
    sampling_logprobs: npt.NDArray[np.float32]
    """Both of drawn tokens. Shape (rows, largest max_tokens)."""
    measures: npt.NDArray[np.float32]
    """Entropy and self-certainty of each draw; none if no row has any. Shape (rows, largest max_tokens, 2)."""
    top_tokens: npt.NDArray[np.int32]
    top_logprobs: npt.NDArray[np.float32]
    """Both of the most likely tokens of each draw; no columns if no row has a top. Shape (rows, largest max_tokens,
    largest top)."""

    @classmethod
    def of(cls, entries: Sequence[tuple[int, Request]]) -> Rows:
        """Return new rows for requests, each given with its id."""
        count, requests = len(entries), [request for _, request in entries]
        draws = max((request.max_tokens for request in requests), default=0)
        state = np.zeros(count, ROW)
        state["request_id"] = [request_id for request_id, _ in entries]
        state["seed"] = np.array([request.seed for request in requests], np.uint64)
        state["prompt_length"] = [len(request.prompt) for request in requests]
        state["prefix_length"] = state["length"] = [len(request.prefix) for request in requests]
        state["limit"] = [len(request.prefix) + request.max_tokens for request in requests]
        state["alive"] = True
        state["sampling"] = sampler.parameters([request.sampling for request in requests])
        state["measures"] = [request.measures for request in requests]
        state["top"] = [request.top for request in requests]
        state["cached_prefix"] = CachedPrefix()
        for name in Floor._fields:
            state[name] = np.array([getattr(request.floor or NO_FLOOR, name) for request in requests], np.float64)
        tokens = np.zeros((count, int(state["limit"].max(initial=0))), np.int32)
        stop_ids = np.full((count, max((len(request.stop_ids) for request in requests), default=0)), -1, np.int64)
        for row, request in enumerate(requests):
            state["prompt"][row] = request.prompt
            stop_ids[row, : len(request.stop_ids)] = request.stop_ids
            tokens[row, : len(request.prefix)] = request.prefix
        top_shape = count, draws if state["top"].any() else 0, int(state["top"].max(initial=0))
        return cls(
            state=state,
            stop_ids=stop_ids,
            tokens=tokens,
            logprobs=np.zeros((count, draws), np.float32),
            sampling_logprobs=np.zeros((count, draws), np.float32),
            measures=np.zeros((count, draws if state["measures"].any() else 0, 2), np.float32),
            top_tokens=np.zeros(top_shape, np.int32),
            top_logprobs=np.zeros(top_shape, np.float32),
        )

    def __len__(self) -> int:
        return len(self.state)

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """Which rows have not finished."""
        alive: npt.NDArray[np.bool_] = self.state["alive"]
        return alive

    @property
    def positions(self) -> Ints:
        """Position in its sequence of the newest token of each row."""
        return np.asarray(self.state["prompt_length"] + self.state["length"] - 1)

    @property
    def uniforms(self) -> npt.NDArray[np.float64]:
        """The random number in [0, 1) by which each row draws its next token."""
        return uniform(self.state["seed"], self.state["length"] - self.state["prefix_length"])

    def select(self, order: Ints) -> Rows:
        """Return some rows, in a new order."""
        return Rows(*(getattr(self, field.name)[order] for field in fields(self)))

    def join(self, other: Rows) -> Rows:
        """Return these rows and, after them, the other ones."""
        names = [field.name for field in fields(self)]
        return Rows(*(_stack([getattr(self, name), getattr(other, name)]) for name in names))

    def record(self, draw: sampler.Draw) -> list[tuple[int, Completion]]:
        """Append one token to each living row; return completions. InputError if the logits are not numbers."""
        state = self.state
        (tokens, logprobs, sampling_logprobs), measures, top_tokens, top_logprobs = _to_host(draw)
        require_numbers((logprobs + sampling_logprobs)[state["alive"]])
        column = state["length"] - state["prefix_length"]
        for selected, target, values in (
            (state["measures"], self.measures, measures),
            (state["top"] > 0, self.top_tokens, top_tokens),
            (state["top"] > 0, self.top_logprobs, top_logprobs),
        ):
            if values is not None:
                alive = state["alive"][selected]
                rows = np.flatnonzero(selected)[alive]
                target[rows, column[rows], : len(values)] = values.T[alive]
        rows = np.flatnonzero(state["alive"])
        drawn = tokens[rows].astype(np.int32)
        length = state["length"][rows]
        self.tokens[rows, length] = drawn
        self.logprobs[rows, column[rows]] = logprobs[rows]
        self.sampling_logprobs[rows, column[rows]] = sampling_logprobs[rows]
        state["length"][rows] = length + 1
        stopped = (drawn[:, None] == self.stop_ids[rows]).any(1)
        finished = stopped | (length + 1 == state["limit"][rows])
        bounded = np.flatnonzero(np.isfinite(state["bound"][rows]) & ~finished)
        if bounded.size:
            row = rows[bounded]
            state["weight"][row] += state["alpha"][row] * logprobs[row].astype(np.float64) - sampling_logprobs[row]
            start = state["start"][row]
            counted = np.log(np.where(np.isnan(start), 1, start + column[row] + 1))
            low = bounded[state["weight"][row] - counted <= state["bound"][row]]
            state["rejected"][rows[low]] = finished[low] = True
        state["alive"][rows[finished]] = False
        return self._completions(rows[finished], stopped[finished])

    def _completions(self, rows: Ints, stopped: npt.NDArray[np.bool_]) -> list[tuple[int, Completion]]:
        names = ["request_id", "prefix_length", "length", "measures", "top", "reused", "rejected"]
        columns = (self.state[name][rows].tolist() for name in names)
        completions = []
        for row, stop, request_id, begin, end, measures, top, reused, rejected in zip(
            rows.tolist(), stopped.tolist(), *columns, strict=True
        ):
            drawn = row, slice(end - begin)
            tokens, log_q = self.tokens[row, begin:end].copy(), self.sampling_logprobs[drawn].copy()
            finish: Any = "rejected" if rejected else "stop" if stop else "length"
            completion = Completion(tokens, self.logprobs[drawn].copy(), log_q, finish, reused=reused)
            if measures:
                entropies, certainties = self.measures[drawn].T.copy()
                completion = completion._replace(entropies=entropies, certainties=certainties)
            if top:
                likely = self.top_tokens[drawn][:, :top].copy(), self.top_logprobs[drawn][:, :top].copy()
                completion = completion._replace(top_tokens=likely[0], top_logprobs=likely[1])
            completions.append((request_id, completion))
        return completions


def _to_host(draw: sampler.Draw) -> list[Any]:
    """Return (tokens, logprobs, sampling_logprobs) as one array, then measures, top tokens and top logprobs, or None.

    Everything crosses in one transfer, as float32: a token id below 2**24 is exact in it, and no vocabulary is larger.
    """
    parts = [
        torch.stack((draw.tokens.float(), draw.logprobs, draw.sampling_logprobs)),
        *(draw.measures, draw.top_tokens, draw.top_logprobs),
    ]
    tensors = [part for part in parts if part is not None]
    if len(tensors) == 1:
        return [tensors[0].cpu().numpy(), None, None, None]
    flat = torch.cat([tensor.float().reshape(-1) for tensor in tensors]).cpu().numpy()
    arrays = iter(np.split(flat, np.cumsum([tensor.numel() for tensor in tensors])[:-1]))
    return [None if part is None else next(arrays).reshape(part.shape) for part in parts]


def _stack(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Put rows below rows, and pad the narrower array: stop ids, which are int64, with -1 and others with zeros."""
    shape = np.maximum(*(array.shape[1:] for array in arrays))
    for i, array in enumerate(arrays):
        padding = [(0, 0), *((0, int(more)) for more in shape - array.shape[1:])]
        if np.any(padding):
            arrays[i] = np.pad(array, padding, constant_values=-1 if array.dtype == np.int64 else 0)
    return np.concatenate(arrays)


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
