"""The embedded engine: transformers weights, our own decode loop, one process, CPU or CUDA.

Requests with the same prompt share its keys and values. A batch holds up to ``max_rows`` samples; a finished one
leaves, and new ones are admitted from the queue once there is room for a few together. What was computed for prompts
is kept for later requests within a fixed memory; so is what was generated, once some of it is continued. What is
decided when depends on the queue and on the sampled tokens alone, never on time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from searchlens.engines import _llama, sampler
from searchlens.engines._checks import Bounds, at_most, load_tokenizer, special_ids
from searchlens.engines._cohort import Cohort, Prompts, attend, neighbours, prefill, ragged
from searchlens.engines._store import Beginning, Store
from searchlens.engines.base import Completion, EngineMemoryError, Request
from searchlens.errors import InputError
from searchlens.seeds import uniform

DType = Literal["float32", "bfloat16"]
Item = TypeVar("Item")

_CPU_ROWS = 512
_CUDA_ROWS = 4096
_CUDA_MEMORY = 0.35  # fraction of the device for keys and values at their longest; a growing store exists twice
_COMPACT = 8  # finished rows leave once they are one in so many: moving others costs about a step
_REFILL = 2  # rows are admitted once one in so many is free: few cohorts, of few different ages
_WAVE = 4  # and once the queue holds one in so many of the running: search asks in drips
_CPU_STORE = 2**28  # bytes of keys and values kept of earlier requests
_CUDA_STORE = 0.05  # fraction of the device for the same
_CPU_PREFILL = 2048  # prompt tokens in one forward pass
_CUDA_PREFILL = 32768
# A cohort costs a step some launches, a merged one reads masked slots: merge while fewer (rows x slots) are masked.
_CPU_MASKED = 1000
_CUDA_MASKED = 200_000


class _Queue:
    """Requests not admitted yet.

    Those of one prompt and priority are a group, and leave together; groups leave in the order of (priority, arrival of
    the group's first). So a request never overtakes one of a lower priority number, and among equals only to join its
    group.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[int, tuple[int, ...]], deque[tuple[int, Request]]] = {}
        self._order: list[tuple[int, int, tuple[int, ...]]] = []
        self._arrivals = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, request_id: int, request: Request) -> None:
        """Queue a request behind its group, or as the first of a new one."""
        key = request.priority, request.prompt
        if key not in self._groups:
            self._groups[key] = deque()
            heappush(self._order, (request.priority, self._arrivals, request.prompt))
            self._arrivals += 1
        self._groups[key].append((request_id, request))
        self._length += 1

    def take(self, room: int) -> list[tuple[int, Request]]:
        """Take whole groups while they fit, or a part of the first."""
        taken: list[tuple[int, Request]] = []
        while self._order and len(taken) < room:
            priority, _, prompt = self._order[0]
            group = self._groups[priority, prompt]
            if len(group) <= room - len(taken):
                heappop(self._order)
                taken += self._groups.pop((priority, prompt))
            elif taken:
                break
            else:
                taken += [group.popleft() for _ in range(room)]
        self._length -= len(taken)
        return taken


@dataclass(slots=True)
class _Rows:
    """What the host knows about each row of the batch, in the order of the device's rows."""

    ids: npt.NDArray[np.int64]
    seeds: npt.NDArray[np.uint64]
    prompt_lengths: npt.NDArray[np.int64]
    prefix_lengths: npt.NDArray[np.int64]
    limits: npt.NDArray[np.int64]  # of the prefix and what is drawn
    counts: npt.NDArray[np.int64]  # tokens of the prefix and drawn ones
    alive: npt.NDArray[np.bool_]
    stops: npt.NDArray[np.int64]  # (rows, most stop ids of a row), filled up with -1
    parameters: npt.NDArray[np.float64]
    measures: npt.NDArray[np.bool_]
    top: npt.NDArray[np.int64]
    reused: npt.NDArray[np.int64]
    prompts: npt.NDArray[np.object_]
    begun: npt.NDArray[np.object_]  # Beginning of each prefix
    tokens: npt.NDArray[np.int32]  # (rows, largest limit), the prefix first
    logprobs: npt.NDArray[np.float32]  # (rows, most drawn tokens), like what follows
    sampling_logprobs: npt.NDArray[np.float32]
    measured: npt.NDArray[np.float32]  # (rows, most drawn tokens, 2), or no columns where nobody wants any
    top_tokens: npt.NDArray[np.int32]  # (rows, most drawn tokens, most wanted), likewise
    top_logprobs: npt.NDArray[np.float32]

    @classmethod
    def of(cls, batch: Sequence[tuple[int, Request]]) -> _Rows:
        """Start rows for requests."""
        count, requests = len(batch), [request for _, request in batch]
        most = max((request.max_tokens for request in requests), default=0)
        limits = np.array([len(request.prefix) + request.max_tokens for request in requests], np.int64)
        tokens = np.zeros((count, int(limits.max(initial=0))), np.int32)
        stops = np.full((count, max((len(request.stop_ids) for request in requests), default=0)), -1, np.int64)
        prompts = np.empty(count, np.object_)
        for row, request in enumerate(requests):
            stops[row, : len(request.stop_ids)] = request.stop_ids
            tokens[row, : len(request.prefix)] = request.prefix
            prompts[row] = request.prompt
        measures = np.array([request.measures for request in requests], np.bool_)
        top = np.array([request.top for request in requests], np.int64)
        prefix_lengths = np.array([len(request.prefix) for request in requests], np.int64)
        likely = count, most if top.any() else 0, int(top.max(initial=0))
        return cls(
            ids=np.array([request_id for request_id, _ in batch], np.int64),
            seeds=np.array([request.seed for request in requests], np.uint64),
            prompt_lengths=np.array([len(request.prompt) for request in requests], np.int64),
            prefix_lengths=prefix_lengths,
            limits=limits,
            counts=prefix_lengths.copy(),
            alive=np.ones(count, np.bool_),
            stops=stops,
            parameters=sampler.parameters([request.sampling for request in requests]),
            measures=measures,
            top=top,
            reused=np.zeros(count, np.int64),
            prompts=prompts,
            begun=np.full(count, Beginning(), np.object_),
            tokens=tokens,
            logprobs=np.zeros((count, most), np.float32),
            sampling_logprobs=np.zeros((count, most), np.float32),
            measured=np.zeros((count, most if measures.any() else 0, 2), np.float32),
            top_tokens=np.zeros(likely, np.int32),
            top_logprobs=np.zeros(likely, np.float32),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, order: npt.NDArray[np.int64]) -> _Rows:
        """Return some rows in a new order."""
        return _Rows(*(getattr(self, one.name)[order] for one in fields(self)))

    def join(self, other: _Rows) -> _Rows:
        """Return these rows and then the other's."""
        return _Rows(*(_stack(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)))

    def record(self, drawn: sampler.Draw) -> list[tuple[int, Completion]]:
        """Write down one token of each living row; return what ended with it."""
        step, (measures, top_tokens, top_logprobs) = _to_host(drawn)
        column = self.counts - self.prefix_lengths
        for wanted, target, values in (
            (self.measures, self.measured, measures),
            (self.top > 0, self.top_tokens, top_tokens),
            (self.top > 0, self.top_logprobs, top_logprobs),
        ):
            if values is not None:
                living = self.alive[wanted]
                rows = np.flatnonzero(wanted)[living]
                target[rows, column[rows], : len(values)] = values.T[living]
        rows = np.flatnonzero(self.alive)
        new = step[0, rows].astype(np.int32)
        self.tokens[rows, self.counts[rows]] = new
        self.logprobs[rows, column[rows]] = step[1, rows]
        self.sampling_logprobs[rows, column[rows]] = step[2, rows]
        self.counts[rows] += 1
        stopped = (new[:, None] == self.stops[rows]).any(1)
        ended = stopped | (self.counts[rows] == self.limits[rows])
        self.alive[rows[ended]] = False
        return self._completions(rows[ended], stopped[ended])

    def _completions(
        self, ended: npt.NDArray[np.int64], stopped: npt.NDArray[np.bool_]
    ) -> list[tuple[int, Completion]]:
        """Return what rows that ended have to show."""
        columns = self.ids, self.prefix_lengths, self.counts, self.measures, self.top, self.reused
        known = zip(ended.tolist(), stopped.tolist(), *(column[ended].tolist() for column in columns), strict=True)
        found = []
        for row, stop, request_id, begin, end, measured, top, reused in known:
            drawn = slice(end - begin)
            entropies, certainties = self.measured[row, drawn].T.copy() if measured else (None, None)
            completion = Completion(
                tokens=self.tokens[row, begin:end].copy(),
                logprobs=self.logprobs[row, drawn].copy(),
                sampling_logprobs=self.sampling_logprobs[row, drawn].copy(),
                finish="stop" if stop else "length",
                entropies=entropies,
                certainties=certainties,
                top_tokens=self.top_tokens[row, drawn, :top].copy() if top else None,
                top_logprobs=self.top_logprobs[row, drawn, :top].copy() if top else None,
                reused=reused,
            )
            found.append((request_id, completion))
        return found


def _to_host(drawn: sampler.Draw) -> tuple[npt.NDArray[np.float32], list[npt.NDArray[np.float32] | None]]:
    """Return (tokens, logprobs, sampling_logprobs) stacked; and measures, top tokens and top logprobs. One transfer.

    A token id below 2**24 is exact in float32, and larger vocabularies do not exist yet.
    """
    step = torch.stack((drawn.tokens.float(), drawn.logprobs, drawn.sampling_logprobs))
    wanted = drawn.measures, drawn.top_tokens, drawn.top_logprobs
    if all(one is None for one in wanted):
        return step.cpu().numpy(), [None] * 3
    parts = [step, *(one for one in wanted if one is not None)]
    flat = torch.cat([one.float().reshape(-1) for one in parts]).cpu().numpy()
    split = np.split(flat, np.cumsum([one.numel() for one in parts])[:-1])
    shaped = iter([one.reshape(part.shape) for one, part in zip(split, parts, strict=True)])
    return next(shaped), [None if one is None else next(shaped) for one in wanted]


def _stack(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Put rows below rows, widening the narrower with zeros (-1 for the id columns, which are int64)."""
    shape = np.maximum(first.shape[1:], second.shape[1:])
    fill = -1 if first.dtype == np.int64 else 0
    return np.concatenate([_widen(one, shape, fill) for one in (first, second)])


def _widen(array: npt.NDArray[Any], shape: npt.NDArray[np.int64], fill: int) -> npt.NDArray[Any]:
    missing = [(0, 0), *((0, int(more)) for more in shape - array.shape[1:])]
    return np.pad(array, missing, constant_values=fill) if np.any(missing) else array


class TransformersEngine:
    """Samples from a causal language model of the Llama family.

    Beside weights and batch it keeps keys and values of earlier requests: up to 256 MiB on a CPU, on CUDA up to 5 % of
    the device.

    Parameters
    ----------
    path : str or Path
        A folder in transformers' layout, or a hub id.
    device : str
        "cpu", "cuda" or "cuda:<index>".
    dtype : {"float32", "bfloat16"}
        Of weights, keys and values; sampling is in float32 either way.
    max_rows : int, optional
        Most samples decoded together. By default 512 on a CPU, and on CUDA up to 4,096, fewer if their keys and values
        would not fit. Between requests no more tokens are kept than so many rows have at their longest.
    max_model_len : int, optional
        Most tokens of prompt and completion together; by default, and at most, what the model was made for.
    threads : int, optional
        CPU threads of the whole process; torch's choice when not given.
    revision : str, optional
        Of a hub id.

    Attributes
    ----------
    device : str
    vocab_size, max_model_len, max_rows : int
    repeatable : bool
        On a CPU.
    groups : tuple of int
        (1,): it gathers requests itself, by their number.
    bos_id : int or None
        The tokenizer's; a prompt may hold it once.
    pad_id : int or None
        Never sampled: the model's distribution, including the raw log-probabilities, is the one without it. None when
        the checkpoint has none or pads with a token that ends a text.

    Raises
    ------
    InputError
        If files are missing, the architecture is not supported, or an argument is out of range.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        device: str = "cpu",
        dtype: DType = "float32",
        max_rows: int | None = None,
        max_model_len: int | None = None,
        threads: int | None = None,
        revision: str | None = None,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        target = _device(device)
        with torch.inference_mode():
            self._model, config = _llama.load(path, revision, target, _dtype(dtype))
        shape = self._model.shape
        self.device = str(target)
        self.repeatable = target.type == "cpu"
        self.groups: tuple[int, ...] = (1,)
        self.vocab_size = shape.vocab
        self.max_model_len = at_most("max_model_len", max_model_len, shape.max_len)
        self.max_rows = _rows(max_rows, shape, self.max_model_len, target, self._model.dtype)
        self.bos_id, self.pad_id = special_ids(path, revision, config, load_tokenizer(path, revision))
        drawable = self.vocab_size - (self.pad_id is not None)
        self._bounds = Bounds(self.vocab_size, drawable, self.max_model_len, self.bos_id)
        on_cpu = target.type == "cpu"
        self._masked = _CPU_MASKED if on_cpu else _CUDA_MASKED
        self._prefill_tokens = _CPU_PREFILL if on_cpu else _CUDA_PREFILL
        self.steps = 0
        stored = min(self.max_rows * self.max_model_len, _stored_tokens(shape, target, self._model.dtype))
        self._store = Store(shape, stored, target, self._model.dtype)
        self._reset()

    def clear(self) -> None:
        """Forget what was kept of earlier requests.

        Raises
        ------
        RuntimeError
            Requests are waiting or running.
        """
        if self._queue or self._rows.alive.any():
            raise RuntimeError("the engine is not idle: only then can it forget what it keeps")
        self._reset()

    def add(self, request_id: int, request: Request) -> None:
        """Queue a request.

        Parameters
        ----------
        request_id : int
            Comes back with the completion.
        request : Request

        Raises
        ------
        InputError
            If the prompt is empty, prompt or prefix have a token id that does not exist, the prompt has more than one
            BOS, all does not fit together with ``max_tokens``, or ``top`` is more than the vocabulary.
        """
        self._bounds.check(request_id, request)
        self._queue.add(request_id, request)
        if request.prefix:
            self._continues = True

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Completion]]:
        """Decode until at least one request finished; return those that did, or nothing when nothing is left.

        Raises
        ------
        EngineMemoryError
            The device's memory does not suffice.
        """
        finished: list[tuple[int, Completion]] = []
        try:
            while not finished and (self._queue or self._rows.alive.any()):
                admitted = self._due()
                self._compact(admitted)
                if admitted:
                    finished += self._admit(admitted)
                if self._rows.alive.any():
                    finished += self._decode()
        except torch.OutOfMemoryError as error:
            raise EngineMemoryError(" ".join(str(error).split()), self.max_rows) from error
        return finished

    def close(self) -> None:
        """Drop all requests and the weights; the engine cannot be used afterwards."""
        self._reset()
        del self._model

    def _reset(self) -> None:
        model = self._model
        self._queue = _Queue()
        self._continues = False  # whether a request continued what was generated before: then finished rows are kept
        self._store.clear()
        self._prompts = Prompts(model.shape, model.device, model.dtype)
        self._cohorts: list[Cohort] = []  # the longest first; their rows, one cohort after the other, are the batch
        self._rows = _Rows.of(())
        self._last = torch.zeros(0, dtype=torch.int64, device=model.device)
        self._sampling: sampler.SamplingBatch | None = None

    def _compact(self, admitted: Sequence[tuple[int, Request]]) -> None:
        """Let finished rows leave, unless they are too few to be worth moving others and nothing is admitted."""
        dead = len(self._rows) - int(self._rows.alive.sum())
        if not dead or (dead * _COMPACT < len(self._rows) and not admitted):
            return
        kept, begin = [], 0
        for cohort in self._cohorts:
            end = begin + cohort.rows
            alive = self._rows.alive[begin:end]
            if self._continues:
                self._keep(cohort, np.flatnonzero(~alive), begin)
            kept.append(begin + cohort.keep(alive))
            begin = end
        self._cohorts = [cohort for cohort in self._cohorts if cohort.rows]
        self._arrange(np.concatenate(kept), {request.prompt for _, request in admitted})

    def _keep(self, cohort: Cohort, ended: npt.NDArray[np.int64], begin: int) -> None:
        """Store keys and values of a cohort's rows that ended."""
        rows = self._rows
        generated = [tuple(rows.tokens[row, : rows.counts[row]].tolist()) for row in begin + ended]
        paths = list(zip(rows.prompts[begin + ended], generated, strict=True))
        known, places = self._store.add(paths, rows.begun[begin + ended].tolist())
        if places.size:
            row, token = ragged(rows.counts[begin + ended] - 1 - known)
            self._store.write(places, cohort.read(ended[row], known[row] + token))

    def _arrange(self, order: npt.NDArray[np.int64], wanted: Collection[tuple[int, ...]] = ()) -> None:
        """Keep some rows of the batch, in a new order, and wanted prompts; cohorts have it already."""
        self._rows = self._rows.take(order)
        self._last = self._last.index_select(0, torch.from_numpy(order).to(self._last.device))
        self._prompts.keep(order, wanted)
        self._sampling = None

    def _due(self) -> list[tuple[int, Request]]:
        """Take what fills free rows from the queue, once it is time for that."""
        running = int(self._rows.alive.sum())
        room = self.max_rows - running
        due = room * _REFILL >= self.max_rows and len(self._queue) * _WAVE >= running
        return self._queue.take(room) if due else []

    def _admit(self, taken: list[tuple[int, Request]]) -> list[tuple[int, Completion]]:
        """Let requests begin; return what finished with its first token."""
        taken = sorted(taken, key=lambda one: -len(one[1].prefix))
        rows, requests = _Rows.of(taken), [request for _, request in taken]
        prompts = [request.prompt for request in requests]
        rows.reused += self._provide(prompts)
        places = self._prompts.places(prompts)
        lengths = np.maximum(rows.prefix_lengths - 1, 0)  # the prefix's last token is the first to be decoded
        for begin, end in _runs(lengths, self._masked):
            part = slice(begin, end)
            cohort = Cohort.begun(self._model.shape, lengths[part], self._model.device, self._model.dtype)
            rows.begun[part] = self._recall(cohort, requests[part], places[part])
            rows.reused[part] += [beginning.count for beginning in rows.begun[part]]
            self._cohorts.append(cohort)
        continued = int((rows.prefix_lengths > 0).sum())
        last = torch.tensor([request.prefix[-1] for request in requests[:continued]], dtype=torch.int64)
        self._join(rows.take(np.arange(continued)), last.to(self._last.device))
        finished = self._begin(rows.take(np.arange(continued, len(rows))), places[continued:])
        self._prompts.append(places)
        self._merge()
        return finished

    def _begin(self, rows: _Rows, places: npt.NDArray[np.int64]) -> list[tuple[int, Completion]]:
        """Draw the first token of rows that begin behind their prompt."""
        if not len(rows):
            return []
        uniforms = torch.from_numpy(self._uniforms(rows)).to(self._model.device)
        finished, tokens = self._emit(rows, self._sampling_of(rows), self._prompts.hidden(places), uniforms)
        self._join(rows, tokens)
        return finished

    def _join(self, rows: _Rows, last: Tensor) -> None:
        """Add rows to the batch, with the token that each is to be decoded from."""
        self._rows = self._rows.join(rows)
        self._last = torch.cat((self._last, last))
        self._sampling = None

    def _provide(self, prompts: list[tuple[int, ...]]) -> npt.NDArray[np.int64]:
        """Have the prompts of new rows in the batch; return how many tokens each row did not have to compute."""
        first = {prompt: row for row, prompt in reversed(list(enumerate(prompts)))}
        stored = {prompt: self._store.prompt(prompt) for prompt in first}
        lacking = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self._prompts]
        known = [prompt for prompt in lacking if stored[prompt] is not None]
        if known:
            found = self._store.read(np.concatenate([stored[prompt] for prompt in known]))
            self._prompts.add(known, found, self._store.hidden(known))
        new = [prompt for prompt in lacking if stored[prompt] is None]
        for part in _parts(new, [len(prompt) for prompt in new], self._prefill_tokens):
            keys_values, hidden = prefill(self._model, part)
            self._prompts.add(part, keys_values, hidden)
            self._store.add_prompts(part, keys_values, hidden)
        reused = np.array([len(prompt) for prompt in prompts])
        reused[np.array([first[prompt] for prompt in new], np.int64)] = 0
        return reused

    def _recall(self, cohort: Cohort, requests: list[Request], places: npt.NDArray[np.int64]) -> list[Beginning]:
        """Fill in keys and values of prefixes but for their last tokens; return what the store had."""
        found = [self._store.prefix(request.prompt, request.prefix) for request in requests]
        counts = np.array([beginning.count for beginning in found])
        if counts.any():
            row, token = ragged(counts)
            cohort.write(row, token, self._store.read(np.concatenate([beginning.places for beginning in found])))
        lacking = [i for i, request in enumerate(requests) if counts[i] < len(request.prefix) - 1]
        missing = {i: requests[i].prefix[counts[i] : -1] for i in lacking}
        for part in _parts(lacking, [len(missing[i]) for i in lacking], self._prefill_tokens):
            rows = np.array(part)
            cohort.compute(self._model, self._prompts, places[rows], rows, counts[rows], [missing[i] for i in part])
        return found

    def _merge(self) -> None:
        """Order cohorts by length, and merge neighbours as long as that masks few slots."""
        ends = np.cumsum([cohort.rows for cohort in self._cohorts])
        rows = np.split(np.arange(ends[-1]), ends[:-1])
        by_length = sorted(range(len(rows)), key=lambda place: -self._cohorts[place].window)
        sizes = [(self._cohorts[place].rows, self._cohorts[place].window) for place in by_length]
        cohorts, order = [], []
        for group in neighbours(sizes, self._masked):
            # The largest takes the others over: it would have the most to move.
            first, *others = sorted(by_length[group], key=lambda place: -self._cohorts[place].rows)
            order += [rows[first], *(rows[place] for place in others)]
            if others:
                self._cohorts[first].absorb([self._cohorts[place] for place in others])
            cohorts.append(self._cohorts[first])
        self._cohorts = cohorts
        self._arrange(np.concatenate(order))

    def _decode(self) -> list[tuple[int, Completion]]:
        """Advance all rows by one token."""
        self.steps += 1
        rows = self._rows
        device = self._model.device
        host = np.stack((self._uniforms(rows), rows.prompt_lengths + rows.counts - 1))
        step = torch.from_numpy(host).to(device)
        for cohort in self._cohorts:
            cohort.begin_step()
        hidden = self._model.forward(self._last, step[1].long(), self._attend)
        for cohort in self._cohorts:
            cohort.end_step()
        if self._sampling is None:
            self._sampling = self._sampling_of(rows)
        finished, self._last = self._emit(rows, self._sampling, hidden, step[0])
        return finished

    def _attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        return attend(self._prompts, self._cohorts, layer, queries, keys_values)

    def _emit(
        self, rows: _Rows, sampling: sampler.SamplingBatch, hidden: Tensor, uniforms: Tensor
    ) -> tuple[list[tuple[int, Completion]], Tensor]:
        """Draw and record one token per row; return what finished, and the tokens."""
        logits = self._model.logits(hidden)
        logits[:, self.vocab_size :] = -torch.inf
        if self.pad_id is not None:
            logits[:, self.pad_id] = -torch.inf
        drawn = sampler.draw(logits, sampling, uniforms)
        return rows.record(drawn), drawn.tokens

    def _sampling_of(self, rows: _Rows) -> sampler.SamplingBatch:
        width, device = sampler.padded_vocab(self.vocab_size), self._model.device
        return sampler.prepare(
            rows.parameters, rows.prompts, rows.tokens, rows.counts, width, device, rows.measures, rows.top
        )

    def _uniforms(self, rows: _Rows) -> npt.NDArray[np.float64]:
        return uniform(rows.seeds, rows.counts - rows.prefix_lengths)


def _runs(lengths: npt.NDArray[np.int64], masked: int) -> Iterator[tuple[int, int]]:
    """Cut rows of falling length into runs whose alignment masks few slots."""
    begin, total = 0, 0
    for row, length in enumerate(lengths):
        total += int(lengths[begin] - length)
        if total > masked and row > begin:
            yield begin, row
            begin, total = row, 0
    yield begin, len(lengths)


def _parts(items: Sequence[Item], sizes: Sequence[int], most: int) -> Iterator[list[Item]]:
    """Cut a list into parts of bounded size, at least one item each."""
    part: list[Item] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        if part and total + size > most:
            yield part
            part, total = [], 0
        part.append(item)
        total += size
    if part:
        yield part


def _device(name: str) -> torch.device:
    kind = name.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise InputError(f"Device {name!r} is not known; allowed are 'cpu', 'cuda' and 'cuda:<index>'")
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(f"Device {name!r}: torch finds no CUDA device here", "Use device: cpu.")
    return torch.device(name)


def _dtype(name: str) -> torch.dtype:
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name not in known:
        raise InputError(f"dtype {name!r} is not known; allowed are {', '.join(known)}")
    return known[name]


def _rows(value: int | None, shape: _llama.Shape, max_model_len: int, device: torch.device, dtype: torch.dtype) -> int:
    """Choose how many rows to decode together. Free memory is not asked: the choice must not change from run to run."""
    if value is not None:
        if value < 1:
            raise InputError(f"max_rows is {value}, it must be at least 1")
        return value
    if device.type == "cpu":
        return _CPU_ROWS
    memory = torch.cuda.get_device_properties(device).total_memory * _CUDA_MEMORY
    return max(1, min(_CUDA_ROWS, int(memory / (_per_token(shape, dtype) * max_model_len))))


def _stored_tokens(shape: _llama.Shape, device: torch.device, dtype: torch.dtype) -> int:
    """Say for how many tokens' keys and values there is memory between requests."""
    on_cpu = device.type == "cpu"
    memory = _CPU_STORE if on_cpu else torch.cuda.get_device_properties(device).total_memory * _CUDA_STORE
    return int(memory / _per_token(shape, dtype))


def _per_token(shape: _llama.Shape, dtype: torch.dtype) -> int:
    """Bytes of a token's keys and values."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * dtype.itemsize
