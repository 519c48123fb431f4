"""The vLLM engine: vLLM, with the parts of the contract that it does not have added to its worker.

vLLM schedules, batches, caches prefixes and draws. :mod:`searchlens.engines._vllm_worker` adds the missing filters, and
a ledger of the probabilities of every drawn token. Requests wait here, in the order of (priority, arrival), and vLLM
gets only a few more than it can run, so that an urgent request does not wait behind thousands.

Tokens are drawn by the same uniform numbers as on the embedded engine, so the same seed gives the same text as long as
the last digits of the logits decide nothing. One thing differs: if several tokens tie at the edge of top-p, vLLM keeps
only some of them.

docs/engine.md follows a request through the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from searchlens import catalogue
from searchlens.engines import _vllm_request, _vllm_start
from searchlens.engines._checks import Bounds, at_most, never_drawn, require_idle
from searchlens.engines._vllm_request import LEDGER_COLUMNS, completion, sampling_params
from searchlens.engines.base import (
    PLAIN,
    Completion,
    Engine,
    EngineMemoryError,
    Given,
    Request,
    RequestError,
    Sampling,
    Scored,
)
from searchlens.engines.replicas import Replicas, share
from searchlens.errors import InputError
from searchlens.store.checkpoints import Adapter

if TYPE_CHECKING:
    from vllm import SamplingParams


_EXTENSION = "searchlens.engines._vllm_worker.Extension"
_CPU_ROWS = 256
_CUDA_ROWS = 1024
_AHEAD = 1.25  # requests that vLLM gets per row: fewer would leave rows free at times, more would wait unsorted in vLLM
_GROUPS = (1, 16, 64)  # a step that mixes prefill with decode is slower than one that only decodes
_MEMORY_MESSAGES = (
    "out of memory",
    "cache blocks",
    "kv cache",
    "memory utilization",
    "available memory",
    "free memory on device",
)


class VllmEngine:
    """Samples from any causal language model that vLLM can run. A process can have one such engine at a time.

    Parameters
    ----------
    path : str or Path
        A folder in transformers' layout.
    device : str
        "cpu" or "cuda". Must be the one that the installed build of vLLM runs on.
    dtype : {"bfloat16", "float32", "float16"}
        Of weights, keys and values. Sampling is in float32 either way.
    max_rows : int, optional
        Most rows decoded together; by default 256 on a CPU and 1,024 on CUDA.
    max_model_len : int, optional
        Most tokens of prompt and completion together; by default, and at most, the model's limit.
    tensor_parallel : int
        Devices that share the weights, each with its own worker process.
    gpu_memory_utilization : float
        In (0, 1]: fraction of a CUDA device for weights, activations, keys and values.
    kv_cache_memory_bytes : int, optional
        For keys and values, instead of what is left of ``gpu_memory_utilization``, on a CPU instead of 1 GiB.
    quantization : str, optional
        vLLM's name of a method; by default the checkpoint's.
    load_format : str
        vLLM's name of a format; "dummy" gives random weights, and needs no tokenizer: nothing is masked then.
    enforce_eager : bool
        Run without CUDA graphs and compilation; on a CPU always true.
    kv_cache_dtype : str
        vLLM's name of a type of keys and values; "auto" is that of the weights.
    max_num_batched_tokens : int, optional
        Most tokens of one step; by default vLLM decides.
    max_cudagraph_capture_size : int, optional
        Most rows of a step that runs as a CUDA graph; by default as many as run, where vLLM itself stops at 512.
    fuse_allreduce_rms : bool, optional
        With several devices: fuse their sum with the normalisation after it; by default vLLM decides.
    batch_invariant : bool
        Draw with vLLM's kernels whose bits do not depend on the batch: a sample then depends on its seed alone. Needs a
        GPU of compute capability 8.0 or more.
    generators : bool
        Draw by vLLM's generators, one of each request, as vLLM alone does with the same seeds: the same law, other
        texts, and a kernel for each row in every step. On a CPU vLLM uses the lower 32 bits of a seed.
    threads : int, optional
        CPU threads of the process, not bound to cores; by default vLLM decides.
    masked : sequence of int, optional
        Token ids that are never drawn; by default those that the folder's own files name (``store.specials``).
    adapter : Adapter, optional
        Applied to every request beside the weights, which stay as they are.

    Raises
    ------
    InputError
        If vLLM is not installed, files are missing, tokenizer and model disagree, vLLM refuses an argument, or the
        first tokens that it draws have not the log-probabilities that they must have.
    EngineMemoryError
        If the model, or one sequence of the longest length, does not fit.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        device: str = "cuda",
        dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16",
        max_rows: int | None = None,
        max_model_len: int | None = None,
        tensor_parallel: int = 1,
        gpu_memory_utilization: float = 0.9,
        kv_cache_memory_bytes: int | None = None,
        quantization: str | None = None,
        load_format: str = "auto",
        enforce_eager: bool = False,
        kv_cache_dtype: str = "auto",
        max_num_batched_tokens: int | None = None,
        max_cudagraph_capture_size: int | None = None,
        fuse_allreduce_rms: bool | None = None,
        batch_invariant: bool = False,
        generators: bool = False,
        threads: int | None = None,
        masked: Sequence[int] | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        if generators and batch_invariant:  # rows are drawn in parts then, whose generators vLLM does not know
            raise InputError("generators: not together with batch_invariant", "leave out one of them")
        on_cpu = _vllm_start.prepare(device, threads, batch_invariant)
        import vllm

        if max_rows is not None and max_rows < 1:
            raise InputError(f"max_rows is {max_rows}, it must be at least 1")
        self.device = "cpu" if on_cpu else "cuda"
        self.repeatable = False  # which requests share a batch depends on time
        self.max_rows = max_rows or (_CPU_ROWS if on_cpu else _CUDA_ROWS)
        self.groups = tuple(size for size in _GROUPS if size <= self.max_rows)
        self.steps = 0  # up to the last one that finished a request
        config = _vllm_start.load_config(Path(path), load_format != "dummy")
        self.vocab_size = int(config.vocab_size)
        if masked is None:
            masked = () if load_format == "dummy" else never_drawn(Path(path))
        self.masked = tuple(masked)
        self.max_model_len = at_most("max_model_len", max_model_len, config.max_position_embeddings)
        if adapter:
            adapter.require_fits(Path(path))
        slots = int(self.max_rows * _AHEAD)
        lora_arguments, self._adapter = _vllm_start.lora(adapter)
        self._engine = self._start(
            model=str(path),
            dtype=dtype,
            max_num_seqs=self.max_rows,
            max_model_len=self.max_model_len,
            tensor_parallel_size=tensor_parallel,
            gpu_memory_utilization=gpu_memory_utilization,
            quantization=quantization,
            load_format=load_format,
            enforce_eager=enforce_eager or on_cpu,
            kv_cache_dtype=kv_cache_dtype,
            max_num_batched_tokens=max_num_batched_tokens,
            **_vllm_start.compilation(self.max_rows, max_cudagraph_capture_size, fuse_allreduce_rms),
            # Where vLLM cannot schedule ahead it must say so: the GPU would wait for this process in every step.
            async_scheduling=None if on_cpu else True,
            **(_vllm_start.cpu_arguments() if on_cpu else {})
            | ({"kv_cache_memory_bytes": kv_cache_memory_bytes} if kv_cache_memory_bytes else {}),
            **lora_arguments,
        )
        self._generators = generators
        self.bounds = Bounds(self.vocab_size, self.vocab_size - len(self.masked), self.max_model_len)
        given = slots, self.vocab_size, self.masked, generators, batch_invariant
        runner = self._engine.collective_rpc("searchlens_start", args=given)[0]
        self.version = f"{vllm.__version__} ({runner})"
        self._queue: list[tuple[int, int, int, Request, SamplingParams, tuple[int, ...]]] = []
        self._arrivals = 0
        self._running: dict[str, tuple[int, Request, int]] = {}  # vLLM's id to request id, request and slot
        self._free_slots = list(range(slots))
        self._bounded: dict[int, str] = {}  # slots of running requests with a floor, and vLLM's ids
        self._steps_of_start = 0
        self._try_out(batch_invariant)

    def clear(self) -> None:
        """Empty the prefix cache. Raises RuntimeError if requests are waiting or running."""
        require_idle(not (self._queue or self._running), "its cache can be cleared")
        self._engine.reset_prefix_cache()

    def add(self, request_id: int, request: Request) -> None:
        """Queue a request; ``base.Engine`` says what is refused. So is what vLLM cannot draw."""
        self.bounds.check(request_id, request)
        self._enqueue(request_id, request, sampling_params(request_id, request, self._generators))

    def step(self) -> list[tuple[int, Completion | RequestError]]:
        """Let vLLM take one step; return the requests that finished, often none. Raises EngineMemoryError."""
        finished: list[tuple[int, Completion | RequestError]] = [*self._admit()]
        ended = self._advance()
        finished += [(request_id, completion(request, output, part)) for request_id, request, output, part, _ in ended]
        return finished + self._rejected()

    def score(self, texts: Sequence[Given], sampling: Sampling = PLAIN) -> list[Scored]:
        """Score texts as ``base.Engine`` says; RequestError if vLLM gave up one, after the others were computed."""
        require_idle(not (self._queue or self._running), "texts can be scored")
        self.bounds.check_given(texts, sampling)
        for number, text in enumerate(texts):
            request = Request(prompt=text.prompt, sampling=sampling, seed=0, max_tokens=len(text.tokens))
            self._enqueue(number, request, sampling_params(number, request), text.tokens)
        scores: dict[int, Scored] = {}
        failures: list[RequestError] = []
        while self._queue or self._running:
            failures += [error for _, error in self._admit()]
            for number, request, output, part, ranks in self._advance():
                done = completion(request, output, part)
                if isinstance(done, RequestError):
                    failures.append(done)
                elif tuple(done.tokens) != texts[number].tokens:
                    raise RuntimeError("vLLM returned other tokens than were given")
                else:  # without filters q is p to the bit
                    log_q = done.logprobs if sampling == PLAIN else done.sampling_logprobs
                    scores[number] = Scored(done.logprobs, log_q, ranks)
        if failures:
            raise failures[0]
        return [scores[number] for number in range(len(texts))]

    def close(self) -> None:
        """Drop all requests and the weights; the engine cannot be used afterwards."""
        _vllm_start.shut_down(self._engine)
        del self._engine
        _vllm_start.release_memory()

    def _try_out(self, batch_invariant: bool) -> None:
        """Draw a few tokens, of which no trace is left: neither in the prefix cache nor among ``steps``."""
        first = next(token for token in range(self.vocab_size) if token not in self.masked)
        try:
            _vllm_start.require_right_numbers(self, _vllm_start.versions(), (first,))
            if batch_invariant:
                _vllm_start.require_same_bits(self, _vllm_start.versions(), first)
        except BaseException:
            self.close()
            raise
        self.clear()
        self._steps_of_start, self.steps = self.steps, 0

    def _enqueue(self, request_id: int, request: Request, params: SamplingParams, given: tuple[int, ...] = ()) -> None:
        heappush(self._queue, (request.priority, self._arrivals, request_id, request, params, given))
        self._arrivals += 1

    def _start(self, **arguments: Any) -> Any:
        from vllm import LLMEngine
        from vllm.engine.arg_utils import EngineArgs
        from vllm.usage.usage_lib import UsageContext

        def start() -> Any:
            settings = EngineArgs(
                **arguments,
                skip_tokenizer_init=True,
                generation_config="vllm",
                trust_remote_code=False,
                enable_prefix_caching=True,
                max_logprobs=self.vocab_size,
                worker_extension_cls=_EXTENSION,
                disable_log_stats=True,
                seed=0,
            )
            return LLMEngine.from_engine_args(settings, UsageContext.LLM_CLASS)  # with the defaults for throughput

        try:
            return self._within_memory(start)
        except EngineMemoryError:
            _vllm_start.release_memory()
            raise
        except Exception as error:
            raise _vllm_start.start_error(arguments["model"], error) from error

    def _within_memory(self, call: Callable[[], Any]) -> Any:
        """Return what a call of vLLM returns. Raises EngineMemoryError if its error is about memory."""
        import torch

        try:
            return call()
        except Exception as error:
            text = " ".join(str(error).split())
            about_memory = isinstance(error, torch.OutOfMemoryError | MemoryError)
            if not about_memory and not _vllm_start.has_any(text, _MEMORY_MESSAGES):
                raise
        # Outside of the handler, because the traceback of vLLM's error keeps the device's memory in use.
        raise EngineMemoryError(text, self.max_rows)

    def _admit(self) -> list[tuple[int, RequestError]]:
        """Give requests to vLLM while there are free slots; return the ones that it refuses."""
        refused = []
        while self._queue and self._free_slots:
            _, arrival, request_id, request, params, given = heappop(self._queue)
            slot = self._free_slots.pop()
            params.extra_args = {_vllm_request.EXTRA_ARG: _vllm_request.worker_row(request, slot, bool(given))}
            if given:
                params.extra_args[_vllm_request.GIVEN_ARG] = list(given)
            prompt = {"prompt_token_ids": [*request.prompt, *request.prefix]}
            try:
                self._engine.add_request(str(arrival), prompt, params, lora_request=self._adapter)
            except _vllm_request.refusals() as error:
                self._free_slots.append(slot)
                refused.append((request_id, RequestError(f"vLLM refuses the request ({error})")))
            else:
                self._running[str(arrival)] = request_id, request, slot
                if _vllm_request.has_floor(request):
                    self._bounded[slot] = str(arrival)
        return refused

    def _advance(self) -> list[tuple[int, Request, Any, npt.NDArray[np.float32], npt.NDArray[np.int32]]]:
        """Let vLLM take a step; return id, request, output, ledger and its notes of the requests that finished."""
        outputs = self._within_memory(self._engine.step) if self._running else []
        finished = [(*self._running.pop(output.request_id), output) for output in outputs if output.finished]
        if not finished:
            return []
        slots = [slot for _, _, slot, _ in finished]
        lengths = [len(output.outputs[0].token_ids) for *_, output in finished]
        steps, ledger, notes = self._engine.collective_rpc("searchlens_fetch", args=(slots, lengths))[0]
        self.steps = steps - self._steps_of_start
        self._release(slots)
        ends = np.cumsum(lengths)[:-1]
        parts = np.split(np.frombuffer(ledger, np.float32).reshape(-1, LEDGER_COLUMNS), ends)
        noted = np.split(np.frombuffer(notes, np.int32), ends) if notes else [np.empty(0, np.int32)] * len(parts)
        return [
            (request_id, request, output, part, note)
            for (request_id, request, _, output), part, note in zip(finished, parts, noted, strict=True)
        ]

    def _rejected(self) -> list[tuple[int, Completion]]:
        """Drop the requests that the worker knows to be below their floors, and return what was drawn of them.

        vLLM returns nothing for a request that is aborted, so tokens and numbers are those of the ledger.
        """
        if not self._bounded:
            return []
        slots, lengths, tokens, ledger = self._engine.collective_rpc("searchlens_rejected")[0]
        if not slots:
            return []
        ids = [self._bounded[slot] for slot in slots]
        processor, reused = self._engine.output_processor, []
        for vllm_id in ids:  # only the output of a request would say what of its prompt came from the cache
            (internal,) = processor.external_req_ids[vllm_id]
            reused.append(int(processor.request_states[internal].num_cached_tokens or 0))
        self._engine.abort_request(ids)
        self._release(slots)
        ends = np.cumsum(lengths)[:-1]
        texts = np.split(np.frombuffer(tokens, np.int32), ends)
        parts = np.split(np.frombuffer(ledger, np.float32).reshape(-1, LEDGER_COLUMNS), ends)
        owners = [self._running.pop(vllm_id)[:2] for vllm_id in ids]
        return [
            (request_id, _vllm_request.drawn(request, text, part, "rejected", cached))
            for (request_id, request), text, part, cached in zip(owners, texts, parts, reused, strict=True)
        ]

    def _release(self, slots: Sequence[int]) -> None:
        self._free_slots += slots
        for slot in slots:
            self._bounded.pop(slot, None)


@catalogue.engine(
    "vllm",
    library="vllm",
    dtypes=("float32", "bfloat16", "float16"),
    reads=("quantization", "kv_cache_dtype"),
    worker_mb=16000,
    weights=1.5,
    rows=1024,
)
def start(folder: Path, *, processes: int, **given: Any) -> Engine:
    """Start vLLM for a job, or several of it that share what is given to them."""
    if processes == 1:
        return VllmEngine(folder, **given)
    return Replicas(partial(VllmEngine, folder, **share(given, processes)), processes)
