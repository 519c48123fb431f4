"""Requests in rows that stay on the device: the host visits them every few steps.

With a small model a GPU waits for the host, which launches every kernel of a step and looks at every token. Here it
launches a whole step at once (``_device_rows.py``) and looks at what has finished after ``_STEPS`` steps. Between two
visits it is free: a chunk of steps runs while the caller handles what finished in the chunk before.

Draws are those of the other path of the engine: the same uniform numbers, filters and inverse CDF. A finished row keeps
its text until its place is needed (``KeptTexts``), so that a request which continues the text goes on in its row,
or begins with a copy of keys and values, from row to row.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from searchlens.engines import sampler
from searchlens.engines._caches import PrefixCache
from searchlens.engines._checks import require_numbers
from searchlens.engines._llama import Llama
from searchlens.engines._prompts import Tokens, parts, prefill
from searchlens.engines.base import Completion, FinishReason, Request
from searchlens.seeds import uniform
from searchlens_lab.resident._device_rows import COLUMNS, MEASURES, RUNNING, STOP, DeviceRows, Features


class KeptTexts:
    """Texts by their prompts, and the finished rows that have them until the place is given to another request.

    ``is_sorted``: false until ``sort`` is called, because most runs continue no text.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._of_row: list[tuple[Tokens, Tokens] | None] = [None] * rows
        self._of_prompt: dict[Tokens, list[tuple[Tokens, int]]] = {}  # texts and their rows, sorted
        self.is_sorted = False

    def keep(self, row: int, prompt: Tokens, text: Tokens) -> None:
        """Note what a row has that has no text so far."""
        self._of_row[row] = prompt, text
        if self.is_sorted:
            self._sort_in(row, prompt, text)

    def sort(self) -> None:
        """Sort all texts, and new ones from now on."""
        if not self.is_sorted:
            self.is_sorted = True
            for row, kept in enumerate(self._of_row):
                if kept is not None:
                    self._sort_in(row, *kept)

    def _sort_in(self, row: int, prompt: Tokens, text: Tokens) -> None:
        insort(self._of_prompt.setdefault(prompt, []), (text, row))

    def drop(self, row: int) -> None:
        """Forget the text of a row, if it has one."""
        kept = self._of_row[row]
        if kept is None:
            return
        prompt, text = kept
        self._of_row[row] = None
        if not self.is_sorted:
            return
        texts = self._of_prompt[prompt]
        del texts[bisect_left(texts, (text, row))]
        if not texts:
            del self._of_prompt[prompt]

    def find(self, prompt: Tokens, beginning: Tokens) -> int | None:
        """Return a row whose text goes on after a beginning, None if there is none.

        A text that ends there does not do: its last token was drawn, but never fed to the model.
        """
        self.sort()
        texts = self._of_prompt.get(prompt)
        if texts is None:
            return None
        place = bisect_left(texts, (beginning, self._rows))  # behind those that end there
        if place == len(texts):
            return None
        text, row = texts[place]
        return row if text[: len(beginning)] == beginning else None


_STEPS = 8  # between two visits: more cost the host less, and leave rows idle longer after they have finished
_WINDOW = 64  # columns; a graph is captured for every number of windows
_FEWER = (64, 8, 2, 1)  # a step computes 1/64, 1/8, 1/2 or all of the rows; a graph is captured for each
_KEPT = 2  # rows in use, as a multiple of those that run: more keep finished texts for longer, fewer make faster steps
_ADMIT = 16  # admit once 1/16 as many requests wait as run, and 1/16 of the rows are free: admitting costs some steps
_PLAIN = (1.0, 0.0, 0.0)  # penalties of a request that has none


class Resident:
    """Runs requests; ``collect``, ``admit`` and ``launch`` make a visit.

    ``cache``: of the engine. ``logits``: final hidden states to logits, minus infinity for what must not be drawn.
    ``max_rows``, ``max_model_len``, ``prefill_tokens``: of the engine. Raises RuntimeError if the device cannot capture
    a step, or is out of memory.
    """

    def __init__(
        self,
        model: Llama,
        cache: PrefixCache,
        logits: Callable[[Tensor], Tensor],
        max_rows: int,
        max_model_len: int,
        prefill_tokens: int,
    ) -> None:
        self._model, self._cache = model, cache
        self._rows, self._columns, self._prefill_tokens = max_rows, max_model_len, prefill_tokens
        self._device = DeviceRows(model, logits, max_rows, max_model_len, _STEPS)
        self._device.check()
        self.reset()

    def reset(self) -> None:
        """Forget all requests."""
        self._waiting: list[tuple[int, int, int, Request]] = []  # (priority, arrival, id, request)
        self._arrivals = 0
        self._is_sorted = True  # whether they wait in the order in which they are admitted
        self._unpaid: set[Tokens] = set()  # prompts that were computed before a request with them was admitted
        self._features = Features()
        self._runs_chunk = False
        rows = self._rows
        self._request: list[tuple[int, Request] | None] = [None] * rows
        self._kept = KeptTexts(rows)
        self._visits = 0
        self._busy = np.zeros(rows, np.bool_)
        self._seed = np.zeros(rows, np.uint64)
        self._length, self._drawn, self._limit, self._reused, self._top = (np.zeros(rows, np.int64) for _ in range(5))
        self._used = np.zeros(rows, np.int64)  # the visit at which a row was last in use, or copied

    @property
    def is_idle(self) -> bool:
        """Whether no request waits or runs."""
        return not self._waiting and not self._busy.any()

    def add(self, request_id: int, request: Request) -> None:
        """Queue a request. Its ``floor`` is not looked at: a row that is no longer wanted is drawn to its end."""
        if request.prefix:
            self._kept.sort()
        entry = request.priority, self._arrivals, request_id, request
        self._is_sorted &= not self._waiting or self._waiting[-1] < entry
        self._waiting.append(entry)
        self._arrivals += 1

    # ---- collect

    def collect(self) -> list[tuple[int, Completion]]:
        """Wait for the last chunk; return the requests that finished in it. InputError if logits are not numbers."""
        if not self._runs_chunk:
            return []
        self._runs_chunk = False
        self._visits += 1
        end = self._end()
        drawn, finish = self._device.progress(end)
        self._drawn[:end] = drawn
        rows = np.flatnonzero(self._busy[:end] & (finish != RUNNING))
        if not rows.size:
            return []
        self._busy[rows], self._used[rows] = False, self._visits
        lengths, finish = drawn[rows], finish[rows]
        block = self._device.drawn(rows, int(lengths.max()), self._features)
        flat = block[np.arange(block.shape[1]) < lengths[:, None]]
        require_numbers(flat[:, 1:3])
        return self._completions(rows, finish, lengths, flat, self._likely(rows, lengths))

    def _likely(
        self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
    ) -> dict[int, tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]]:
        """Return likely tokens and their log p, each of shape (draws, top), of the finished rows that want any."""
        wanted = self._top[rows] > 0
        rows, lengths = rows[wanted], lengths[wanted]
        if not rows.size:
            return {}
        block = self._device.top(rows, int(lengths.max()), int(self._top[rows].max()))
        flat = block[np.arange(block.shape[1]) < lengths[:, None]]
        tokens, logprobs = flat[:, 0].astype(np.int32), flat[:, 1].copy()
        ends = lengths.cumsum()
        columns = (values.tolist() for values in (rows, ends - lengths, ends, self._top[rows]))
        return {
            row: (tokens[begin:end, :top], logprobs[begin:end, :top])
            for row, begin, end, top in zip(*columns, strict=True)
        }

    def _completions(
        self,
        rows: npt.NDArray[np.int64],
        finish: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        flat: npt.NDArray[np.float32],
        likely: Mapping[int, tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]],
    ) -> list[tuple[int, Completion]]:
        """Cut what was drawn, shape (tokens of all rows, columns), by rows, and add likely tokens."""
        names: tuple[FinishReason, ...] = ("stop", "length")
        tokens = flat[:, 0].astype(np.int32)
        token_ids = tokens.tolist()
        logprobs, sampling_logprobs = np.ascontiguousarray(flat[:, 1:3].T)
        completions, end = [], 0
        columns = (values.tolist() for values in (rows, finish, lengths, self._reused[rows]))
        for row, code, length, reused in zip(*columns, strict=True):
            own = slice(end, end := end + length)
            entry = self._request[row]
            assert entry is not None
            request_id, request = entry
            self._request[row] = None
            drawn = tokens[own], logprobs[own], sampling_logprobs[own], names[code - STOP]
            entropies, certainties = flat[own, MEASURES:COLUMNS].T.copy() if request.measures else (None, None)
            top_tokens, top_logprobs = likely.get(row, (None, None))
            completion = Completion(*drawn, entropies, certainties, top_tokens, top_logprobs, reused)
            completions.append((request_id, completion))
            self._kept.keep(row, request.prompt, request.prefix + tuple(token_ids[own]))
        return completions

    # ---- admit

    def admit(self) -> None:
        """Put waiting requests into free rows, if it is time to."""
        running = int(self._busy.sum())
        # Once a search has continued a text, half of the rows keep what will be continued.
        most = max(1, self._rows // _KEPT) if self._kept.is_sorted else self._rows
        free = most - running
        waiting = len(self._waiting)
        if not waiting or free * _ADMIT < most or waiting * _ADMIT < running:
            return
        if not self._is_sorted:
            self._waiting.sort()
            self._is_sorted = True
        entries = [(request_id, request) for *_, request_id, request in self._waiting[:free]]
        del self._waiting[:free]
        requests = [request for _, request in entries]
        sources = np.array([self._source(request) for request in requests])
        lengths = np.array([len(request.prompt) + len(request.prefix) for request in requests])
        rows = self._places(lengths, sources)
        for row, entry in zip(rows.tolist(), entries, strict=True):
            self._request[row] = entry
            self._kept.drop(row)
        self._busy[rows], self._drawn[rows] = True, 0
        self._length[rows] = lengths
        self._limit[rows] = [request.max_tokens for request in requests]
        self._top[rows] = [request.top for request in requests]
        self._seed[rows] = np.array([request.seed for request in requests], np.uint64)
        self._begin(rows, requests, is_first=not running)
        self._fill(rows, requests, sources)

    def _source(self, request: Request) -> int:
        """Return a row that has keys and values of prompt and prefix but for the last token, -1 if there is none."""
        row = self._kept.find(request.prompt, request.prefix[:-1]) if len(request.prefix) > 1 else None
        return -1 if row is None else row

    def _places(self, lengths: npt.NDArray[np.int64], sources: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return a free row for each request, given as the length of prompt and prefix and its source.

        Rows whose whole texts are continued come first, because they lose nothing by it; then those that have been free
        for the longest; if few rows run, some of the first.
        """
        is_whole = (sources >= 0) & (lengths == (self._length + self._drawn)[sources])
        self._used[sources[sources >= 0]] = self._visits
        used = self._used.copy()
        used[sources[is_whole]] = -1
        free, count = np.flatnonzero(~self._busy), len(lengths)
        near = self._size_of(_KEPT * (self._rows - len(free) + count))
        if np.searchsorted(free, near) >= count:
            free = free[free < near]
        return _own_first(free[np.argsort(used[free], kind="stable")[:count]], sources)

    def _fill(self, rows: npt.NDArray[np.int64], requests: Sequence[Request], sources: npt.NDArray[np.int64]) -> None:
        """Give rows the keys and values of their prompts and prefixes, and note how many they did not compute."""
        known = self._length[rows] - np.array([bool(request.prefix) for request in requests])  # the last is fed first
        continued = np.array([len(request.prefix) > 1 for request in requests])
        copied = np.flatnonzero((sources >= 0) & (sources != rows))
        for part in parts(copied.tolist(), known[copied].tolist(), self._prefill_tokens):
            self._device.copy_rows(sources[part], rows[part], known[part])
        self._reused[rows] = np.where(sources >= 0, known, 0)
        self._compute(rows, requests, np.flatnonzero(continued & (sources < 0)))
        plain = np.flatnonzero(~continued)
        if plain.size:
            prompts = [requests[place].prompt for place in plain.tolist()]
            lengths = np.array([len(prompt) for prompt in prompts])
            self._reused[rows[plain]] = self._fill_prompts(rows[plain], prompts, lengths)

    def _compute(self, rows: npt.NDArray[np.int64], requests: Sequence[Request], places: npt.NDArray[np.int64]) -> None:
        """Compute the prompts and prefixes of some rows, whose texts are kept nowhere."""
        texts = {place: requests[place].prompt + requests[place].prefix[:-1] for place in places.tolist()}
        for part in parts(list(texts), [len(text) for text in texts.values()], self._prefill_tokens):
            own = [texts[place] for place in part]
            keys_values, _ = prefill(self._model, own)
            self._device.copy(keys_values, np.array([len(text) for text in own]), rows[part], np.arange(len(own)))

    def _begin(self, rows: npt.NDArray[np.int64], requests: Sequence[Request], *, is_first: bool) -> None:
        """Send what the device must know of requests, and note what their rows need."""
        policies = {id(request.sampling): request.sampling for request in requests}
        place = {key: number for number, key in enumerate(policies)}
        kind = np.array([place[id(request.sampling)] for request in requests])
        table = sampler.parameters(list(policies.values()))
        newest = [(request.prefix or request.prompt)[-1] for request in requests]
        nothing = np.zeros_like(rows)
        numbers = np.stack((newest, self._length[rows] - 1, nothing, nothing, self._limit[rows]))
        stop_ids = [request.stop_ids for request in requests]
        self._device.begin(rows, numbers, np.ascontiguousarray(table[kind].T), stop_ids)
        penalised = (table[:, 5:] != _PLAIN).any(1)
        top_p, top_k, min_p, typical_p = table[:, 1:5].T
        needs = Features(
            filters=(
                bool((min_p > 0).any()),
                bool((typical_p < 1).any()),
                bool((top_k > 0).any()),
                bool((top_p < 1).any()),
            ),
            penalties=bool(penalised.any()),
            measures=any(request.measures for request in requests),
            top=self._room_for_top(rows),
        )
        self._features = needs if is_first else needs.union(self._features)
        if needs.penalties:
            places = np.flatnonzero(penalised[kind])
            own = [requests[place] for place in places.tolist()]
            self._device.count(rows[places], [request.prompt for request in own], [request.prefix for request in own])

    def _room_for_top(self, rows: npt.NDArray[np.int64]) -> int:
        """Have memory for the likely tokens of rows; return how many a draw has to give, 0 if no row wants any.

        Numbers are rounded up, so that few steps are captured.
        """
        wanting = rows[self._top[rows] > 0]
        if not wanting.size:
            return 0
        top = min(_rounded_up(int(self._top[wanting].max())), self._model.shape.vocab)
        self._device.make_room(_rounded_up(int(self._limit[wanting].max())), top)
        return top

    def _fill_prompts(
        self, rows: npt.NDArray[np.int64], prompts: Sequence[Tokens], lengths: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Give rows the keys and values of their prompts; return how many prompt tokens each reused.

        The first row of a prompt pays for it. Prompts that are new are computed together with those of waiting
        requests: a pass of few prompts takes the host as long as one of many.
        """
        different = {id(prompt): prompt for prompt in prompts}  # a prompt is one object in most searches
        number_of = {key: number for number, key in enumerate(different)}
        number = np.array([number_of[id(prompt)] for prompt in prompts])
        _, first = np.unique(number, return_index=True)
        slots = [self._cache.find_prompt(prompt) for prompt in different.values()]
        found = [place for place, own in enumerate(slots) if own is not None]
        if found:
            keys_values = self._cache.read(np.concatenate([own for own in slots if own is not None]))
            self._device.copy(keys_values, lengths[first[found]], *_rows_of(found, rows, number))
        new = [place for place, own in enumerate(slots) if own is None]
        computed = [prompts[row] for row in first[new].tolist()]
        wanted = [*computed, *self._prompts_ahead(computed)] if new else []
        for part in parts(range(len(wanted)), [len(prompt) for prompt in wanted], self._prefill_tokens):
            own_prompts = [wanted[item] for item in part]
            keys_values, hidden = prefill(self._model, own_prompts)
            places = [new[item] for item in part if item < len(new)]  # the first ones of this part
            if places:
                own_lengths = np.array([len(prompt) for prompt in own_prompts])
                self._device.copy(keys_values, own_lengths, *_rows_of(places, rows, number))
            self._cache.add_prompts(own_prompts, keys_values, hidden)
        reused = lengths.copy()
        reused[first[new + self._pay(different.values())]] = 0
        self._unpaid.update(wanted[len(new) :])
        return reused

    def _pay(self, prompts: Iterable[Tokens]) -> list[int]:
        """Return the places of the prompts that were computed ahead and that no row has paid for; now one does."""
        places = []
        for place, prompt in enumerate(prompts):
            if prompt in self._unpaid:
                self._unpaid.discard(prompt)
                places.append(place)
        return places

    def _prompts_ahead(self, computed: Sequence[Tokens]) -> list[Tokens]:
        """Return the next waiting prompts that are not cached, as many as fit into a pass with those given."""
        room = self._prefill_tokens - sum(map(len, computed))
        seen, known = set[int](), set(computed)
        ahead: list[Tokens] = []
        for *_, request in self._waiting:
            prompt = request.prompt
            if id(prompt) in seen:
                continue
            seen.add(id(prompt))
            if prompt in known or self._cache.find_prompt(prompt) is not None:
                continue
            room -= len(prompt)
            if room < 0:
                break
            known.add(prompt)
            ahead.append(prompt)
        return ahead

    # ---- launch

    def launch(self) -> int:
        """Start the next steps of all rows, if there are any, without waiting; return how many."""
        busy = np.flatnonzero(self._busy)
        if not busy.size:
            return 0
        end = self._end()
        steps = min(_STEPS, int((self._limit - self._drawn)[busy].max()))
        longest = int((self._length + self._drawn)[busy].max()) + steps - 1
        window = min(-(-longest // _WINDOW) * _WINDOW, self._columns)
        uniforms = uniform(self._seed[:end], self._drawn[:end] + np.arange(steps)[:, None])
        self._device.advance(uniforms, window, self._features)
        self._runs_chunk = True
        return steps

    def _end(self) -> int:
        """Return how many first rows have to be computed: a part of all that has all busy rows."""
        return self._size_of(self._rows - int(self._busy[::-1].argmax()))

    def _size_of(self, needed: int) -> int:
        """Return the smallest number of rows for which a step is captured and that is enough, or all rows."""
        sizes = (-(-self._rows // share) for share in _FEWER)
        return next((size for size in sizes if size >= needed), self._rows)


def _rounded_up(number: int) -> int:
    """Return the smallest power of two that is at least a number, >= 1."""
    return 1 << (number - 1).bit_length()


def _own_first(rows: npt.NDArray[np.int64], sources: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Give each row that is a source to the first request that continues it: no row that others copy is overwritten."""
    own, first = np.unique(sources, return_index=True)
    is_given = np.isin(own, rows)
    own, first = own[is_given], first[is_given]
    places = np.empty_like(rows)
    places[first] = own
    places[np.setdiff1d(np.arange(len(rows)), first)] = np.setdiff1d(rows, own)
    return places


def _rows_of(
    places: Sequence[int], rows: npt.NDArray[np.int64], number: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rows whose number is one of ``places``, and which of them each has."""
    place = np.full(int(number.max()) + 1, -1)
    place[places] = np.arange(len(places))
    chosen = place[number] >= 0
    return rows[chosen], place[number[chosen]]
