"""The embedded engine: transformers' weights and a decode loop of our own, in one process, on a CPU or one GPU.

A request that is admitted gets a row of the batch. Rows with the same prompt share its keys and values. A decode step
draws one token for every row; finished rows are removed, and waiting requests are admitted together once there is room
for several. Keys and values of prompts are cached for later requests in a fixed amount of memory, and so are those of
finished rows once any request has continued an earlier text.

All decisions depend on the queue and on the drawn tokens alone, never on time. docs/engine.md follows a request through
the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from searchlens import catalogue
from searchlens.engines import _llama, sampler
from searchlens.engines._caches import CachedPrefix, PrefixCache, RowGroup, attend, plan_merges
from searchlens.engines._checks import Bounds, at_most, never_drawn, require_idle, require_numbers
from searchlens.engines._prompts import Ints, Prefills, Prompts, Tokens, parts, token_index
from searchlens.engines._rows import Queue, Rows
from searchlens.engines.base import PLAIN, Completion, EngineMemoryError, Given, Request, Sampling, Scored
from searchlens.errors import InputError
from searchlens.store.checkpoints import Adapter

# Rows that are decoded together. More rows make a step cheaper per token and take more memory.
_CPU_ROWS = 512
_CUDA_ROWS = 4096
CUDA_MEMORY = 0.35  # fraction of the device for keys and values at full length; a growing cache exists twice

# When rows are removed and admitted.
_COMPACT = 8  # compact once 1/8 of the rows have finished; it costs about a step, and finished rows slow every step
_REFILL = 2  # admit once 1/2 of the rows are free, to keep row groups few and of few different lengths
_WAVE = 4  # and once 1/4 as many requests wait as rows run, because searches submit a few requests at a time

# Memory of the prefix cache. More memory finds more prefixes.
_CPU_CACHE = 2**28  # bytes
_CUDA_CACHE = 0.05  # fraction of the device
_CPU_PREFILLS = 2**26  # bytes of results of prompts that were computed together; none are kept on CUDA

# Prompt tokens in one forward pass. More tokens use the device better and take more memory.
_CPU_PREFILL = 2048
_CUDA_PREFILL = 32768

# Rows of logits that are computed together when texts are scored.
_SCORED_LOGITS = 512  # 300 MB with a vocabulary of 150,000, in float32

# Cells (rows x columns) of padding that merging two row groups may add. Each group costs every step some kernel
# launches, and padding costs it reading masked cells; launches weigh more on CUDA.
_CPU_MASKED = 1000
_CUDA_MASKED = 200_000

_MEMORY_SIGNS = ("out of memory", "ALLOC_FAILED")  # of CUDA and its libraries, which have no error of their own for it


class TransformersEngine:
    """Samples from a causal language model of the Llama family.

    Next to weights and batch it keeps a prefix cache: up to 256 MiB on a CPU, and up to 5 % of a CUDA device; on a CPU
    also up to 64 MiB of what was computed of prompts, whatever the cache has.

    Parameters
    ----------
    path : str or Path
        A folder in transformers' layout.
    device : str
        "cpu", "cuda" or "cuda:<index>".
    dtype : {"float32", "bfloat16"}
        Of weights, keys and values. Sampling is in float32 either way.
    max_rows : int, optional
        Most rows decoded together. By default 512 on a CPU, and on CUDA up to 4,096, fewer if their keys and values
        would not fit. The prefix cache never has more tokens than this many rows at full length.
    max_model_len : int, optional
        Most tokens of prompt and completion together; by default, and at most, the model's limit.
    threads : int, optional
        CPU threads of the whole process; by default torch decides.
    masked : sequence of int, optional
        Token ids that are never drawn, and left out of every distribution, including raw log-probabilities; by default
        those that the folder's own files name (``store.specials``).
    adapter : Adapter, optional
        Merged into the weights when they are loaded.

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
        dtype: Literal["float32", "bfloat16"] = "float32",
        max_rows: int | None = None,
        max_model_len: int | None = None,
        threads: int | None = None,
        masked: Sequence[int] | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        target, number = _required(device, dtype)
        with torch.inference_mode():
            self._model = _llama.Llama(_llama.load(Path(path), number, adapter), target)
        shape = self._model.shape
        self.device = str(target)
        self.repeatable = on_cpu = target.type == "cpu"
        self.groups: tuple[int, ...] = (1,)  # it gathers requests itself, by their number
        self.steps = 0
        self.vocab_size = shape.vocab
        self.max_model_len = at_most("max_model_len", max_model_len, shape.max_len)
        self.max_rows, cached = _room(self._model, max_rows, self.max_model_len)
        self.masked = never_drawn(Path(path)) if masked is None else tuple(masked)
        self._masked = torch.tensor(self.masked, dtype=torch.int64, device=target)
        self.bounds = Bounds(self.vocab_size, self.vocab_size - len(self.masked), self.max_model_len)
        self._max_masked = _CPU_MASKED if on_cpu else _CUDA_MASKED
        self._prefill_tokens = _CPU_PREFILL if on_cpu else _CUDA_PREFILL
        self._cache = PrefixCache(shape, min(self.max_rows * self.max_model_len, cached), target, self._model.dtype)
        kept = _CPU_PREFILLS // bytes_per_token(self._model) if on_cpu else 0
        self._prefill = Prefills(self._model, kept)
        self._reset()

    def clear(self) -> None:
        """Empty the prefix cache. Raises RuntimeError if requests are waiting or running."""
        require_idle(self._is_idle, "its cache can be cleared")
        self._reset()

    def add(self, request_id: int, request: Request) -> None:
        """Queue a request; ``base.Engine`` says what is refused."""
        self.bounds.check(request_id, request)
        self._caches_rows |= bool(request.prefix)
        self._queue.add(request_id, request)

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Completion]]:
        """Decode until at least one request finishes; return the finished ones, nothing if no request is left.

        Raises EngineMemoryError, and InputError if the model's logits are not numbers.
        """
        finished: list[tuple[int, Completion]] = []
        with self._memory():
            while not finished and not self._is_idle:
                finished += self._turn()
        return finished

    def _turn(self) -> list[tuple[int, Completion]]:
        """Admit requests, if it is time to, and decode once; return what finished."""
        running = int(self._rows.alive.sum())
        free = self.max_rows - running
        due = free * _REFILL >= self.max_rows and len(self._queue) * _WAVE >= running
        requests = self._queue.take(free) if due else []
        self._compact(requests)
        finished = self._admit(requests) if requests else []
        return finished + self._decode() if self._rows.alive.any() else finished

    @torch.inference_mode()
    def score(self, texts: Sequence[Given], sampling: Sampling = PLAIN) -> list[Scored]:
        """Score texts as ``base.Engine`` says: similar lengths together, with prompts from the prefix cache."""
        require_idle(self._is_idle, "texts can be scored")
        self.bounds.check_given(texts, sampling)
        lengths = [len(text.prompt) + len(text.tokens) for text in texts]
        order = sorted(range(len(texts)), key=lengths.__getitem__)
        scores: dict[int, Scored] = {}
        try:
            with self._memory():
                for part in parts(order, [lengths[number] for number in order], self._prefill_tokens):
                    found = self._score([texts[number] for number in part], sampling)
                    scores.update(zip(part, found, strict=True))
        finally:
            self._drop_rows()
        return [scores[number] for number in range(len(texts))]

    def close(self) -> None:
        """Drop all requests and the weights; the engine cannot be used afterwards."""
        self._reset()
        del self._model, self._prefill

    @property
    def _is_idle(self) -> bool:
        return not (self._queue or self._rows.alive.any())

    def _reset(self) -> None:
        self._queue = Queue()
        self._caches_rows = False  # whether finished rows are cached: once a request has continued an earlier text
        self._cache.clear()
        self._drop_rows()

    def _drop_rows(self) -> None:
        model = self._model
        self._prompts = Prompts(model.shape, model.device, model.dtype)
        self._groups: list[RowGroup] = []  # longest first; the rows of the batch are theirs, one group after the other
        self._rows = Rows.of(())
        self._last_tokens = torch.zeros(0, dtype=torch.int64, device=model.device)
        self._sampling: sampler.SamplingBatch | None = None  # None after the rows have changed

    @contextmanager
    def _memory(self) -> Iterator[None]:
        """Raise EngineMemoryError for lack of memory, which something else that runs on the device may have taken."""
        try:
            yield
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and not any(sign in str(error) for sign in _MEMORY_SIGNS):
                raise
            raise EngineMemoryError(" ".join(str(error).split()), self.max_rows) from error

    # ---- compact

    def _compact(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Remove finished rows, if they are many or requests are to be admitted."""
        finished = len(self._rows) - int(self._rows.alive.sum())
        if not finished or (finished * _COMPACT < len(self._rows) and not requests):
            return
        orders, begin = [], 0
        for group in self._groups:
            own = slice(begin, begin + group.rows)
            alive = self._rows.alive[own]
            if self._caches_rows:  # what was rejected is never continued
                self._cache_rows(group, begin, np.flatnonzero(~alive & ~self._rows.state["rejected"][own]))
            orders.append(begin + group.keep_rows(alive))
            begin = own.stop
        self._groups = [group for group in self._groups if group.rows]
        self._reorder(np.concatenate(orders), {request.prompt for _, request in requests})

    def _cache_rows(self, group: RowGroup, begin: int, rows: Ints) -> None:
        """Copy rows of a group, whose first row is row `begin` of the batch, to the prefix cache."""
        state, tokens = self._rows.state[begin + rows], self._rows.tokens[begin + rows]
        texts = [tuple(row[:length].tolist()) for row, length in zip(tokens, state["length"], strict=True)]
        keys = list(zip(state["prompt"], texts, strict=True))
        skipped, slots = self._cache.allocate(keys, state["cached_prefix"].tolist())
        if slots.size:
            row, position = token_index(state["length"] - 1 - skipped)
            self._cache.write(slots, group.read(rows[row], skipped[row] + position))

    def _reorder(self, order: Ints, wanted: Collection[Tokens] = ()) -> None:
        """Bring the batch into the order that the row groups have already; keep wanted prompts without rows."""
        self._rows = self._rows.select(order)
        self._last_tokens = self._last_tokens.index_select(0, torch.from_numpy(order).to(self._last_tokens.device))
        self._prompts.keep_rows(order, wanted)
        self._sampling = None

    # ---- admit

    def _admit(self, admitted: list[tuple[int, Request]]) -> list[tuple[int, Completion]]:
        """Prefill requests and add their rows to the batch; return the ones that finish with their first token.

        A request without a prefix draws its first token here, from the last hidden state of its prompt. One with a
        prefix draws it in the next decode step, which feeds the last token of the prefix to the model.
        """
        admitted = sorted(admitted, key=lambda entry: -len(entry[1].prefix))
        rows, requests = Rows.of(admitted), [request for _, request in admitted]
        prompts = [request.prompt for request in requests]
        rows.state["reused"] += self._prefill_prompts(prompts)
        numbers = self._prompts.numbers(prompts)
        lengths = np.maximum(rows.state["prefix_length"] - 1, 0)
        for begin, end in _runs(lengths, self._max_masked):
            part = slice(begin, end)
            group = RowGroup.allocate(self._model.shape, lengths[part], self._model.device, self._model.dtype)
            cached = self._prefill_prefixes(group, requests[part], numbers[part])
            rows.state["cached_prefix"][part] = cached
            rows.state["reused"][part] += [prefix.length for prefix in cached]
            self._groups.append(group)
        continued = int((rows.state["prefix_length"] > 0).sum())
        last_tokens = torch.tensor([request.prefix[-1] for request in requests[:continued]], dtype=torch.int64)
        self._append(rows.select(np.arange(continued)), last_tokens.to(self._last_tokens.device))
        finished: list[tuple[int, Completion]] = []
        if continued < len(rows):
            first = rows.select(np.arange(continued, len(rows)))
            uniforms = torch.from_numpy(first.uniforms).to(self._model.device)
            hidden = self._prompts.hidden(numbers[continued:])
            finished, last_tokens = self._draw(first, self._prepare(first), hidden, uniforms)
            self._append(first, last_tokens)
        self._prompts.append_rows(numbers)
        self._merge_groups()
        return finished

    def _prefill_prompts(self, prompts: list[Tokens]) -> Ints:
        """Add the prompts of new rows to the batch; return how many prompt tokens each row reused.

        The first row of a prompt that is neither in the batch nor in the cache pays for it.
        """
        first_row = {prompt: row for row, prompt in reversed(list(enumerate(prompts)))}
        slots = {prompt: self._cache.find_prompt(prompt) for prompt in first_row}
        missing = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self._prompts]
        cached = [prompt for prompt in missing if slots[prompt] is not None]
        if cached:
            keys_values = self._cache.read(np.concatenate([slots[prompt] for prompt in cached]))
            self._prompts.add(cached, keys_values, self._cache.hidden(cached))
        new = [prompt for prompt in missing if slots[prompt] is None]
        for part in parts(new, [len(prompt) for prompt in new], self._prefill_tokens):
            keys_values, hidden = self._prefill(part)
            self._prompts.add(part, keys_values, hidden)
            self._cache.add_prompts(part, keys_values, hidden)
        reused = np.array([len(prompt) for prompt in prompts])
        reused[np.array([first_row[prompt] for prompt in new], np.int64)] = 0
        return reused

    def _prefill_prefixes(self, group: RowGroup, requests: list[Request], numbers: Ints) -> list[CachedPrefix]:
        """Fill a new group with the prefixes of its requests, but for their last tokens; return what was cached."""
        cached = [self._cache.find_prefix(request.prompt, request.prefix) for request in requests]
        lengths = np.array([prefix.length for prefix in cached])
        if lengths.any():
            row, position = token_index(lengths)
            group.write(row, position, self._cache.read(np.concatenate([prefix.slots for prefix in cached])))
        incomplete = [row for row, request in enumerate(requests) if lengths[row] < len(request.prefix) - 1]
        missing = {row: requests[row].prefix[lengths[row] : -1] for row in incomplete}
        for part in parts(incomplete, [len(missing[row]) for row in incomplete], self._prefill_tokens):
            rows = np.array(part)
            tokens = [missing[row] for row in part]
            group.prefill(self._model, self._prompts, numbers[rows], rows, lengths[rows], tokens)
        return cached

    def _append(self, rows: Rows, last_tokens: Tensor) -> None:
        """Add rows to the batch, each with the token that the next step feeds to the model."""
        self._rows = self._rows.join(rows)
        self._last_tokens = torch.cat((self._last_tokens, last_tokens))
        self._sampling = None

    def _merge_groups(self) -> None:
        """Sort row groups by length, and merge neighbours as long as that adds little padding."""
        ends = np.cumsum([group.rows for group in self._groups])
        rows = np.split(np.arange(ends[-1]), ends[:-1])
        by_length = sorted(range(len(rows)), key=lambda number: -self._groups[number].longest)
        sizes = [(self._groups[number].rows, self._groups[number].longest) for number in by_length]
        groups, order = [], []
        for part in plan_merges(sizes, self._max_masked):
            # The largest group takes over the others, because its rows would be the most to move.
            first, *others = sorted(by_length[part], key=lambda number: -self._groups[number].rows)
            order += [rows[first], *(rows[number] for number in others)]
            if others:
                self._groups[first].merge([self._groups[number] for number in others])
            groups.append(self._groups[first])
        self._groups = groups
        self._reorder(np.concatenate(order))

    # ---- decode

    def _decode(self) -> list[tuple[int, Completion]]:
        """Draw one token for every row; return the rows that finish with it."""
        self.steps += 1
        rows = self._rows
        inputs = torch.from_numpy(np.stack((rows.uniforms, rows.positions))).to(self._model.device)
        uniforms, positions = inputs[0], inputs[1].long()
        for group in self._groups:
            group.begin_step()
        hidden = self._model.forward(self._last_tokens, positions, partial(attend, self._prompts, self._groups))
        for group in self._groups:
            group.end_step()
        if self._sampling is None:
            self._sampling = self._prepare(rows)
        finished, self._last_tokens = self._draw(rows, self._sampling, hidden, uniforms)
        return finished

    def _prepare(self, rows: Rows) -> sampler.SamplingBatch:
        sampling, prompts, length, *wanted = (
            rows.state[name] for name in ("sampling", "prompt", "length", "measures", "top")
        )
        width = sampler.padded_vocab(self.vocab_size)
        return sampler.prepare(sampling, prompts, rows.tokens, length, width, self._model.device, *wanted)

    def _draw(
        self, rows: Rows, sampling: sampler.SamplingBatch, hidden: Tensor, uniforms: Tensor
    ) -> tuple[list[tuple[int, Completion]], Tensor]:
        """Draw and record one token per row; return the completions of rows that finish, and the tokens."""
        draw = sampler.draw(self._logits(hidden), sampling, uniforms)
        return rows.record(draw), draw.tokens

    def _logits(self, hidden: Tensor) -> Tensor:
        """Return logits without the columns that are never drawn."""
        logits = self._model.logits(hidden)
        logits[:, self.vocab_size :] = -torch.inf
        return logits.index_fill_(1, self._masked, -torch.inf) if self.masked else logits

    # ---- score

    def _score(self, texts: Sequence[Given], sampling: Sampling) -> list[Scored]:
        """Score texts that fit into one forward pass.

        The first token follows from the last hidden state of the prompt, each later one from the token before it.
        """
        self._drop_rows()
        prompts = [text.prompt for text in texts]
        self._prefill_prompts(prompts)
        numbers = self._prompts.numbers(prompts)
        hidden, tokens = [self._prompts.hidden(numbers)], [text.tokens[0] for text in texts]
        longer = [row for row, text in enumerate(texts) if len(text.tokens) > 1]
        if longer:
            fed = [texts[row].tokens[:-1] for row in longer]
            lengths = np.array([len(tokens) for tokens in fed])
            group = RowGroup.allocate(self._model.shape, lengths, self._model.device, self._model.dtype)
            rows = np.arange(len(longer))
            hidden.append(group.prefill(self._model, self._prompts, numbers[longer], rows, np.zeros_like(rows), fed))
            tokens += [token for row in longer for token in texts[row].tokens[1:]]
        values = self._scored(torch.cat(hidden), tokens, sampling)
        ends = np.cumsum([len(text.tokens) - 1 for text in texts])[:-1]
        first, later = (each.T for each in np.split(values, [len(texts)], axis=1))
        each_text = zip(first, np.split(later, ends), strict=True)
        found = (np.vstack((one, rest)).T for one, rest in each_text)
        return [Scored(p.astype(np.float32), q.astype(np.float32), rank.astype(np.int32)) for p, q, rank in found]

    def _scored(self, hidden: Tensor, tokens: Sequence[int], sampling: Sampling) -> npt.NDArray[np.float64]:
        """Return log p, log q and rank of one token after each hidden state, shape (3, tokens)."""
        wanted = torch.tensor(tokens, dtype=torch.int64, device=hidden.device)
        parts = []
        for begin in range(0, len(wanted), _SCORED_LOGITS):
            part = slice(begin, begin + _SCORED_LOGITS)
            parts.append(sampler.given(self._logits(hidden[part]), wanted[part], sampling))
        values: npt.NDArray[Any] = torch.cat(parts, 1).cpu().numpy()
        require_numbers(values)
        return values


@catalogue.engine("transformers", embedded=True)
def start(folder: Path, **given: Any) -> TransformersEngine:
    """Load a checkpoint for a job."""
    return TransformersEngine(folder, **given)


def _runs(lengths: Ints, max_masked: int) -> Iterator[tuple[int, int]]:
    """Cut rows of falling length into runs; padding a run to its longest row adds at most `max_masked` cells."""
    begin, masked = 0, 0
    for row, length in enumerate(lengths):
        masked += int(lengths[begin] - length)
        if masked > max_masked and row > begin:
            yield begin, row
            begin, masked = row, 0
    yield begin, len(lengths)


def _required(device: str, dtype: str) -> tuple[torch.device, torch.dtype]:
    """The device and the type of these names; InputError if there is none."""
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise InputError(f"Device {device!r} is not known; allowed are 'cpu', 'cuda' and 'cuda:<index>'")
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(f"Device {device!r}: torch finds no CUDA device here", "Use device: cpu.")
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if dtype not in dtypes:
        raise InputError(f"dtype {dtype!r} is not known; allowed are {', '.join(dtypes)}")
    return torch.device(device), dtypes[dtype]


def _room(model: _llama.Llama, max_rows: int | None, max_model_len: int) -> tuple[int, int]:
    """Rows to decode together, and tokens of the prefix cache.

    By default they follow from device and model, not from free memory, which changes from run to run.
    """
    if max_rows is not None and max_rows < 1:
        raise InputError(f"max_rows is {max_rows}, it must be at least 1")
    token = bytes_per_token(model)
    if model.device.type == "cpu":
        return max_rows or _CPU_ROWS, int(_CPU_CACHE / token)
    memory = torch.cuda.get_device_properties(model.device).total_memory
    rows = max(1, min(_CUDA_ROWS, int(memory * CUDA_MEMORY / (token * max_model_len))))
    return max_rows or rows, int(memory * _CUDA_CACHE / token)


def bytes_per_token(model: _llama.Llama) -> int:
    """Return the size of the keys and values of one token."""
    shape = model.shape
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * model.dtype.itemsize
