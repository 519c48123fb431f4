"""The embedded engine: transformers weights, our own decode loop, one process, CPU or CUDA.

Requests that stand next to each other in the queue with the same prompt share its keys and values. A batch holds up to
``max_rows`` samples; a finished one leaves, and new ones are admitted from the queue once there is room for a few
together. What is decided when depends on the queue and on the sampled tokens alone, never on time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from searchlens.engines import _llama, _sampling
from searchlens.engines._cohort import Cohort, prefill
from searchlens.engines.base import Completion, Request
from searchlens.errors import InputError
from searchlens.seeds import uniform

DType = Literal["float32", "bfloat16"]

_CPU_ROWS = 512
_CUDA_ROWS = 4096
_CUDA_MEMORY = 0.35  # fraction of the device for keys and values at their longest; a growing store exists twice
_COMPACT = 8  # finished rows leave once they are one in so many: moving others costs about a step
_REFILL = 2  # rows are admitted once one in so many is free: few cohorts, of few different ages
_WAVE = 4  # and once the queue holds one in so many of the running: search asks in drips
_CPU_PREFILL = 2048  # prompt tokens in one forward pass
_CUDA_PREFILL = 32768
# A cohort costs a step some launches, a merged one reads masked slots: merge while fewer (rows x slots) are masked.
_CPU_MASKED = 1000
_CUDA_MASKED = 200_000


@dataclass(slots=True)
class _Waiting:
    """Requests with one prompt, not admitted yet."""

    prompt: tuple[int, ...]
    requests: deque[tuple[int, Request]]


@dataclass(slots=True)
class _Rows:
    """What the host knows about each row of the batch, in the order of the device's rows."""

    ids: npt.NDArray[np.int64]
    seeds: npt.NDArray[np.uint64]
    prompt_lengths: npt.NDArray[np.int64]
    limits: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    alive: npt.NDArray[np.bool_]
    stops: npt.NDArray[np.int64]  # (rows, most stop ids of a row), filled up with -1
    parameters: npt.NDArray[np.float64]
    prompts: npt.NDArray[np.object_]
    tokens: npt.NDArray[np.int32]  # (rows, largest limit)
    logprobs: npt.NDArray[np.float32]
    sampling_logprobs: npt.NDArray[np.float32]

    @classmethod
    def of(cls, batch: Sequence[tuple[int, Request]]) -> _Rows:
        """Start rows for requests."""
        requests = [request for _, request in batch]
        limits = np.array([request.max_tokens for request in requests], np.int64)
        size = (len(batch), int(limits.max(initial=0)))
        stops = np.full((len(batch), max((len(request.stop_ids) for request in requests), default=0)), -1, np.int64)
        prompts = np.empty(len(batch), np.object_)
        for row, request in enumerate(requests):
            stops[row, : len(request.stop_ids)] = request.stop_ids
            prompts[row] = request.prompt
        return cls(
            ids=np.array([request_id for request_id, _ in batch], np.int64),
            seeds=np.array([request.seed for request in requests], np.uint64),
            prompt_lengths=np.array([len(request.prompt) for request in requests], np.int64),
            limits=limits,
            counts=np.zeros(len(batch), np.int64),
            alive=np.ones(len(batch), np.bool_),
            stops=stops,
            parameters=_sampling.parameters([request.sampling for request in requests]),
            prompts=prompts,
            tokens=np.zeros(size, np.int32),
            logprobs=np.zeros(size, np.float32),
            sampling_logprobs=np.zeros(size, np.float32),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, order: npt.NDArray[np.int64]) -> _Rows:
        """Return some rows in a new order."""
        return _Rows(*(getattr(self, one.name)[order] for one in fields(self)))

    def join(self, other: _Rows) -> _Rows:
        """Return these rows and then the other's."""
        return _Rows(*(_stack(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)))

    def record(self, tokens: Tensor, logprobs: Tensor, sampling_logprobs: Tensor) -> list[int]:
        """Write down one token of each living row; return the rows that ended with it."""
        # One transfer: a token id below 2**24 is exact in float32, and larger vocabularies do not exist yet.
        step = torch.stack((tokens.float(), logprobs, sampling_logprobs)).cpu().numpy()
        rows = np.flatnonzero(self.alive)
        column = self.counts[rows]
        new = step[0, rows].astype(np.int32)
        self.tokens[rows, column] = new
        self.logprobs[rows, column] = step[1, rows]
        self.sampling_logprobs[rows, column] = step[2, rows]
        self.counts[rows] += 1
        ended = rows[(self.counts[rows] == self.limits[rows]) | (new[:, None] == self.stops[rows]).any(1)]
        self.alive[ended] = False
        return [int(row) for row in ended]

    def completion(self, row: int) -> Completion:
        """Return what a row that ended has to show."""
        count = self.counts[row]
        return Completion(
            tokens=self.tokens[row, :count].copy(),
            logprobs=self.logprobs[row, :count].copy(),
            sampling_logprobs=self.sampling_logprobs[row, :count].copy(),
            finish="stop" if self.tokens[row, count - 1] in self.stops[row] else "length",
        )


def _stack(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Put rows below rows, widening the narrower with zeros (-1 for the id columns, which are int64)."""
    if first.ndim == 2 and first.shape[1] != second.shape[1]:
        width = max(first.shape[1], second.shape[1])
        fill = -1 if first.dtype == np.int64 else 0
        first, second = (
            np.pad(one, ((0, 0), (0, width - one.shape[1])), constant_values=fill) for one in (first, second)
        )
    return np.concatenate((first, second))


class TransformersEngine:
    """Samples from a causal language model of the Llama family.

    Parameters
    ----------
    path : str or Path
        A folder in transformers' layout, or a hub id.
    device : str
        "cpu", "cuda" or "cuda:<index>".
    dtype : {"float32", "bfloat16"}
        Of weights, keys and values; sampling is in float32 either way.
    max_rows : int, optional
        Most samples decoded together. By default 256 on a CPU, and on CUDA up to 4,096, fewer if their keys and values
        would not fit.
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
        self.vocab_size = shape.vocab
        self.max_model_len = _at_most("max_model_len", max_model_len, shape.max_len)
        self.max_rows = _rows(max_rows, shape, self.max_model_len, target, self._model.dtype)
        self.bos_id, self.pad_id = _special_ids(path, revision, config)
        on_cpu = target.type == "cpu"
        self._masked = _CPU_MASKED if on_cpu else _CUDA_MASKED
        self._prefill_tokens = _CPU_PREFILL if on_cpu else _CUDA_PREFILL
        self.steps = 0
        self._reset()

    def clear(self) -> None:
        """Forget what was kept of earlier requests; there is nothing to forget."""

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
            If the prompt is empty, has a token id that does not exist or more than one BOS, or does not fit together
            with ``max_tokens``.
        """
        if not self._queue or self._queue[-1].prompt != request.prompt:
            self._check_prompt(request_id, request.prompt)
            self._check_room(request_id, request)
            self._queue.append(_Waiting(request.prompt, deque()))
        else:
            self._check_room(request_id, request)
        self._queue[-1].requests.append((request_id, request))
        self._waiting += 1

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Completion]]:
        """Decode until at least one request finished; return those that did, or nothing when nothing is left."""
        finished: list[tuple[int, Completion]] = []
        while not finished and (self._queue or self._rows.alive.any()):
            self._compact()
            finished += self._admit()
            if self._rows.alive.any():
                finished += self._decode()
        return finished

    def close(self) -> None:
        """Drop all requests and the weights; the engine cannot be used afterwards."""
        self._reset()
        del self._model

    def _reset(self) -> None:
        self._queue: deque[_Waiting] = deque()
        self._waiting = 0  # requests in the queue
        self._cohorts: list[Cohort] = []  # oldest first; their rows, one cohort after the other, are the batch
        self._rows = _Rows.of(())
        self._last = torch.zeros(0, dtype=torch.int64, device=self._model.device)
        self._plan: _sampling.Plan | None = None

    def _check_prompt(self, request_id: int, prompt: tuple[int, ...]) -> None:
        if not prompt:
            raise InputError(f"Request {request_id}: the prompt is empty")
        if min(prompt) < 0 or max(prompt) >= self.vocab_size:
            raise InputError(
                f"Request {request_id}: the prompt has token id {min(prompt) if min(prompt) < 0 else max(prompt)}, "
                f"but ids go from 0 to {self.vocab_size - 1}",
                "Use the tokenizer of this model.",
            )
        if self.bos_id is not None and prompt.count(self.bos_id) > 1:
            raise InputError(
                f"Request {request_id}: the prompt has the BOS token {self.bos_id} {prompt.count(self.bos_id)} times",
                "A template that writes BOS must be tokenised without special tokens.",
            )

    def _check_room(self, request_id: int, request: Request) -> None:
        if request.max_tokens < 1:
            raise InputError(f"Request {request_id}: max_tokens is {request.max_tokens}, it must be at least 1")
        needed = len(request.prompt) + request.max_tokens
        if needed > self.max_model_len:
            raise InputError(
                f"Request {request_id}: {len(request.prompt)} prompt tokens and max_tokens {request.max_tokens} need "
                f"{needed} tokens, the limit is {self.max_model_len}",
                "Lower max_tokens, or leave out the question; prompts are never cut.",
            )

    def _compact(self) -> None:
        """Let finished rows leave, when there are enough to be worth moving others."""
        dead = len(self._rows) - int(self._rows.alive.sum())
        if dead * _COMPACT < len(self._rows) or not dead:
            return
        kept, begin = [], 0
        for cohort in self._cohorts:
            end = begin + cohort.rows
            kept.append(begin + cohort.keep(self._rows.alive[begin:end]))
            begin = end
        self._cohorts = [cohort for cohort in self._cohorts if cohort.rows]
        order = np.concatenate(kept)
        self._rows = self._rows.take(order)
        self._last = self._last.index_select(0, torch.from_numpy(order).to(self._last.device))
        self._plan = None

    def _admit(self) -> list[tuple[int, Completion]]:
        """Fill free rows from the queue, and draw the first token of each."""
        room = self.max_rows - len(self._rows)
        running = int(self._rows.alive.sum())
        if not self._queue or room * _REFILL < self.max_rows or self._waiting * _WAVE < running:
            return []
        groups = self._take(room)
        prompts, hidden = self._prefill([group.prompt for group in groups])
        prompt_of_row = np.repeat(np.arange(len(groups)), [len(group.requests) for group in groups])
        rows = _Rows.of([one for group in groups for one in group.requests])
        lengths = np.array([len(group.prompt) for group in groups])
        self._cohorts.append(Cohort(self._model.shape, prompts, lengths, prompt_of_row))
        hidden = hidden.index_select(0, torch.from_numpy(prompt_of_row).to(hidden.device))
        finished, tokens = self._emit(
            rows, self._plan_for(rows), hidden, torch.from_numpy(self._uniforms(rows)).to(hidden.device)
        )
        self._rows = self._rows.join(rows)
        self._last = torch.cat((self._last, tokens))
        self._plan = None
        self._merge()
        return finished

    def _take(self, room: int) -> list[_Waiting]:
        """Take whole groups from the queue while they fit, or a part of the first."""
        taken: list[_Waiting] = []
        while self._queue and room:
            first = self._queue[0]
            if len(first.requests) <= room:
                taken.append(self._queue.popleft())
            elif taken:
                break
            else:
                taken.append(_Waiting(first.prompt, deque(first.requests.popleft() for _ in range(room))))
            room -= len(taken[-1].requests)
        self._waiting -= sum(len(group.requests) for group in taken)
        return taken

    def _prefill(self, prompts: list[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        """Run prompts, a bounded number of tokens at a time."""
        parts: list[list[tuple[int, ...]]] = [[]]
        tokens = 0
        for prompt in prompts:
            if parts[-1] and tokens + len(prompt) > self._prefill_tokens:
                parts.append([])
                tokens = 0
            parts[-1].append(prompt)
            tokens += len(prompt)
        done = [prefill(self._model, part) for part in parts]
        longest = max(stored.shape[4] for stored, _ in done)
        stored = [torch.nn.functional.pad(one, (0, 0, 0, longest - one.shape[4])) for one, _ in done]
        return torch.cat(stored, 1), torch.cat([hidden for _, hidden in done])

    def _merge(self) -> None:
        """Merge neighbouring cohorts as long as that masks few slots."""
        while len(self._cohorts) > 1:
            pairs = zip(self._cohorts, self._cohorts[1:], strict=False)
            masked = [young.rows * (old.slots - young.slots) for old, young in pairs]
            best = int(np.argmin(masked))
            if masked[best] > self._masked:
                return
            self._cohorts[best].absorb(self._cohorts.pop(best + 1))

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
        if self._plan is None:
            self._plan = self._plan_for(rows)
        finished, self._last = self._emit(rows, self._plan, hidden, step[0])
        return finished

    def _attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """Attend cohort by cohort."""
        if len(self._cohorts) == 1 and queries.shape[0] == len(self._rows):
            return self._cohorts[0].attend(layer, queries, keys_values)
        out = queries.new_zeros(queries.shape[0], queries.shape[1] * queries.shape[2])
        begin = 0
        for cohort in self._cohorts:
            part = slice(begin, begin + cohort.rows)
            out[part] = cohort.attend(layer, queries[part], keys_values[part])
            begin = part.stop
        return out

    def _emit(
        self, rows: _Rows, plan: _sampling.Plan, hidden: Tensor, uniforms: Tensor
    ) -> tuple[list[tuple[int, Completion]], Tensor]:
        """Draw and record one token per row; return what finished, and the tokens."""
        logits = self._model.logits(hidden)
        logits[:, self.vocab_size :] = -torch.inf
        if self.pad_id is not None:
            logits[:, self.pad_id] = -torch.inf
        drawn = _sampling.draw(logits, plan, uniforms)
        ended = rows.record(drawn.tokens, drawn.logprobs, drawn.sampling_logprobs)
        return [(int(rows.ids[row]), rows.completion(row)) for row in ended], drawn.tokens

    def _plan_for(self, rows: _Rows) -> _sampling.Plan:
        generated = [tokens[:count] for tokens, count in zip(rows.tokens, rows.counts, strict=True)]
        width = _sampling.padded_vocab(self.vocab_size)
        return _sampling.plan(rows.parameters, list(rows.prompts), generated, width, self._model.device)

    def _uniforms(self, rows: _Rows) -> npt.NDArray[np.float64]:
        return uniform(rows.seeds, rows.counts)


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


def _at_most(name: str, value: int | None, limit: int) -> int:
    if value is None:
        return limit
    if not 1 <= value <= limit:
        raise InputError(f"{name} is {value}; allowed is 1 to {limit}, what the model was made for")
    return value


def _rows(value: int | None, shape: _llama.Shape, max_model_len: int, device: torch.device, dtype: torch.dtype) -> int:
    """Choose how many rows to decode together. Free memory is not asked: the choice must not change from run to run."""
    if value is not None:
        if value < 1:
            raise InputError(f"max_rows is {value}, it must be at least 1")
        return value
    if device.type == "cpu":
        return _CPU_ROWS
    per_token = 2 * shape.layers * shape.kv_heads * shape.head_dim * dtype.itemsize
    memory = torch.cuda.get_device_properties(device).total_memory * _CUDA_MEMORY
    return max(1, min(_CUDA_ROWS, int(memory / (per_token * max_model_len))))


def _special_ids(path: str | Path, revision: str | None, config: Any) -> tuple[int | None, int | None]:
    """Return the ids of BOS and pad, None where there is none or, for pad, where it is also an end of text.

    The tokenizer decides: some checkpoints name a BOS in their configuration that no template ever writes.
    """
    from transformers import AutoTokenizer, GenerationConfig

    try:
        generation = GenerationConfig.from_pretrained(path, revision=revision)
    except OSError:
        generation = None
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, revision=revision)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: cannot load the tokenizer ({error})") from error
    ends: set[int | None] = {tokenizer.eos_token_id}
    for source in (config, generation):
        end = getattr(source, "eos_token_id", None)
        ends.update(end if isinstance(end, list) else [end])
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else config.pad_token_id
    return tokenizer.bos_token_id, None if pad in ends else pad
