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

import gc
import os
from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from searchlens import catalogue
from searchlens.config import extras
from searchlens.engines._checks import Bounds, at_most, never_drawn, require_idle, require_right_numbers
from searchlens.engines._vllm_request import (
    EXTRA_ARG,
    LEDGER_COLUMNS,
    NOT_GIVEN,
    completion,
    drawn,
    given_logprobs,
    has_floor,
    refusals,
    sampling_params,
    scoring,
    worker_row,
)
from searchlens.engines.base import Completion, Engine, EngineMemoryError, Given, Request, RequestError
from searchlens.engines.replicas import Replicas, share
from searchlens.errors import InputError
from searchlens.store.adapters import Adapter
from searchlens.store.checkpoints import require_whole

if TYPE_CHECKING:
    from vllm import SamplingParams


DType = Literal["float32", "bfloat16", "float16"]

_EXTENSION = "searchlens.engines._vllm_worker.Extension"
_CPU_ROWS = 256
_CUDA_ROWS = 1024
_GRAPH_ROWS = 512  # most rows of a CUDA graph, by vLLM's default
_CPU_BLOCK = 32  # tokens of a cache block: only whole blocks are reused, and the CPU build takes multiples of 32
_CPU_CACHE = 2**30  # bytes of keys and values, unless VLLM_CPU_KVCACHE_SPACE is set
_AHEAD = 1.25  # requests that vLLM gets per row: fewer would leave rows free at times, more would wait unsorted in vLLM
_GROUPS = (1, 16, 64)  # see ``groups``
# Environment variables that vLLM reads when it is imported; those that are set already stay as they are.
_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
_SETTINGS = {
    _RUNNER: "0",  # the sampler of the V1 runner is replaced here
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler runs in this process: nothing is serialised in a step
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
_MEMORY_MESSAGES = (
    "out of memory",
    "cache blocks",
    "kv cache",
    "memory utilization",
    "available memory",
    "free memory on device",
)
_WEIGHT_MESSAGES = ("model weights", "not initialized from checkpoint", "safetensors")


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
    generators : bool
        Draw by vLLM's generators, one of each request, as vLLM alone does with the same seeds: the same law, other
        texts, and a kernel for each row in every step. On a CPU vLLM uses the lower 32 bits of a seed.
    threads : int, optional
        CPU threads of the process, not bound to cores; by default vLLM decides.
    masked : sequence of int, optional
        Token ids that are never drawn; by default those that the folder's own files name (``store.specials``).
    adapter : Adapter, optional
        Applied to every request beside the weights, which stay as they are.

    Attributes
    ----------
    version : str
        Version of vLLM.
    repeatable : bool
        False: which requests share a batch depends on time, and with it the last digits of the logits.
    groups : tuple of int
        Numbers of new requests worth gathering: a step that mixes prefill with decode is slower than one that only
        decodes.
    steps : int
        Decode steps since the engine started, up to the last one that finished a request.

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
        dtype: DType = "bfloat16",
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
        generators: bool = False,
        threads: int | None = None,
        masked: Sequence[int] | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        on_cpu = _prepare(device, threads)
        self.device = "cpu" if on_cpu else "cuda"
        self.version = _version()
        self.repeatable = False
        self.max_rows = _rows(max_rows, on_cpu)
        self.groups = tuple(size for size in _GROUPS if size <= self.max_rows)
        self.steps = 0
        config = _load_config(Path(path), load_format != "dummy")
        self.vocab_size = int(config.vocab_size)
        if masked is None:
            masked = () if load_format == "dummy" else never_drawn(Path(path))
        self.masked = tuple(masked)
        self.max_model_len = at_most("max_model_len", max_model_len, config.max_position_embeddings)
        if adapter:
            adapter.require_fits(Path(path))
        slots = int(self.max_rows * _AHEAD)
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
            **_compilation(max_cudagraph_capture_size or _graph_rows(self.max_rows), fuse_allreduce_rms),
            # Where vLLM cannot schedule ahead it must say so: the GPU would wait for this process in every step.
            async_scheduling=None if on_cpu else True,
            **(cpu_arguments() if on_cpu else {})
            | ({"kv_cache_memory_bytes": kv_cache_memory_bytes} if kv_cache_memory_bytes else {}),
            **(_lora_arguments(adapter) if adapter else {}),
        )
        self._adapter = _lora_request(adapter) if adapter else None
        self._generators = generators
        self.bounds = Bounds(self.vocab_size, self.vocab_size - len(self.masked), self.max_model_len)
        self._engine.collective_rpc("searchlens_start", args=(slots, self.vocab_size, self.masked, generators))
        self._queue: list[tuple[int, int, int, Request, SamplingParams, int]] = []
        self._arrivals = 0
        self._running: dict[str, tuple[int, Request, int]] = {}  # vLLM's id to request id, request and slot
        self._free_slots = list(range(slots))
        self._bounded: dict[int, str] = {}  # slots of running requests with a floor, and vLLM's ids
        self._steps_of_start = 0
        self._try_out()

    def clear(self) -> None:
        """Empty the prefix cache. Raises RuntimeError if requests are waiting or running."""
        require_idle(not (self._queue or self._running), "its cache can be cleared")
        self._engine.reset_prefix_cache()

    def add(self, request_id: int, request: Request) -> None:
        """Queue a request; ``base.Engine`` says what is refused. So is what vLLM cannot draw."""
        self.bounds.check(request_id, request)
        self._enqueue(request_id, request, sampling_params(request_id, request, self._generators), NOT_GIVEN)

    def step(self) -> list[tuple[int, Completion | RequestError]]:
        """Let vLLM take one step; return the requests that finished, often none. Raises EngineMemoryError."""
        finished: list[tuple[int, Completion | RequestError]] = [*self._admit()]
        ended = self._ended(self._advance() if self._running else [])
        finished += [(request_id, completion(request, output, part)) for request_id, request, output, part in ended]
        return finished + self._rejected()

    def score(self, texts: Sequence[Given]) -> list[npt.NDArray[np.float32]]:
        """Score texts as ``base.Engine`` says; RequestError if vLLM gave up one, after the others were computed."""
        require_idle(not (self._queue or self._running), "texts can be scored")
        self.bounds.check_given(texts)
        for number, text in enumerate(texts):
            request, params = scoring(text)
            self._enqueue(number, request, params, text.tokens[-1])
        scores: dict[int, npt.NDArray[np.float32]] = {}
        failures: list[RequestError] = []
        while self._queue or self._running:
            failures += [error for _, error in self._admit()]
            for number, request, output, part in self._ended(self._advance() if self._running else []):
                done = completion(request, output, part)
                if isinstance(done, RequestError):
                    failures.append(done)
                else:
                    scores[number] = given_logprobs(texts[number], output, done.logprobs)
        if failures:
            raise failures[0]
        return [scores[number] for number in range(len(texts))]

    def close(self) -> None:
        """Drop all requests and the weights; the engine cannot be used afterwards."""
        shut_down(self._engine)
        del self._engine
        release_memory()

    def _try_out(self) -> None:
        """Draw a few tokens, of which no trace is left: neither in the prefix cache nor among ``steps``."""
        first = next(token for token in range(self.vocab_size) if token not in self.masked)
        try:
            require_right_numbers(self, _versions(), (first,))
        except BaseException:
            self.close()
            raise
        self.clear()
        self._steps_of_start, self.steps = self.steps, 0

    def _enqueue(self, request_id: int, request: Request, params: SamplingParams, given: int) -> None:
        heappush(self._queue, (request.priority, self._arrivals, request_id, request, params, given))
        self._arrivals += 1

    def _start(self, **arguments: Any) -> Any:
        from vllm import LLMEngine
        from vllm.engine.arg_utils import EngineArgs
        from vllm.usage.usage_lib import UsageContext

        try:
            return LLMEngine.from_engine_args(
                EngineArgs(
                    **arguments,
                    skip_tokenizer_init=True,
                    generation_config="vllm",
                    trust_remote_code=False,
                    enable_prefix_caching=True,
                    max_logprobs=self.vocab_size,
                    worker_extension_cls=_EXTENSION,
                    disable_log_stats=True,
                    seed=0,
                ),
                UsageContext.LLM_CLASS,  # with the defaults for throughput
            )
        except Exception as error:
            memory_error = self._memory_error(error)
            if memory_error is None:
                raise _start_error(arguments["model"], error) from error
        # Raised outside of the handler, because the traceback of vLLM's error keeps the device's memory in use.
        release_memory()
        raise memory_error

    def _advance(self) -> list[Any]:
        try:
            outputs: list[Any] = self._engine.step()
        except Exception as error:
            memory_error = self._memory_error(error)
            if memory_error is None:
                raise
        else:
            return outputs
        raise memory_error  # outside of the handler, as in ``_start``

    def _memory_error(self, error: Exception) -> EngineMemoryError | None:
        """Return an error of vLLM as one of ours if it is about memory, else None."""
        import torch

        text = " ".join(str(error).split())
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or _has_any(text, _MEMORY_MESSAGES):
            return EngineMemoryError(text, self.max_rows)
        return None

    def _admit(self) -> list[tuple[int, RequestError]]:
        """Give requests to vLLM while there are free slots; return the ones that it refuses."""
        refused = []
        while self._queue and self._free_slots:
            _, arrival, request_id, request, params, given = heappop(self._queue)
            slot = self._free_slots.pop()
            params.extra_args = {EXTRA_ARG: worker_row(request, slot, given)}
            prompt = {"prompt_token_ids": [*request.prompt, *request.prefix]}
            try:
                self._engine.add_request(str(arrival), prompt, params, lora_request=self._adapter)
            except refusals() as error:
                self._free_slots.append(slot)
                refused.append((request_id, RequestError(f"vLLM refuses the request ({error})")))
            else:
                self._running[str(arrival)] = request_id, request, slot
                if has_floor(request):
                    self._bounded[slot] = str(arrival)
        return refused

    def _ended(self, outputs: Sequence[Any]) -> list[tuple[int, Request, Any, npt.NDArray[np.float32]]]:
        """Return id, request, output and ledger of the finished requests."""
        finished = [(*self._running.pop(output.request_id), output) for output in outputs if output.finished]
        if not finished:
            return []
        slots = [slot for _, _, slot, _ in finished]
        lengths = [len(output.outputs[0].token_ids) for *_, output in finished]
        steps, ledger = self._engine.collective_rpc("searchlens_fetch", args=(slots, lengths))[0]
        self.steps = steps - self._steps_of_start
        self._release(slots)
        parts = np.split(np.frombuffer(ledger, np.float32).reshape(-1, LEDGER_COLUMNS), np.cumsum(lengths)[:-1])
        return [
            (request_id, request, output, part)
            for (request_id, request, _, output), part in zip(finished, parts, strict=True)
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
        reused = [_cached_tokens(self._engine, vllm_id) for vllm_id in ids]
        self._engine.abort_request(ids)
        self._release(slots)
        ends = np.cumsum(lengths)[:-1]
        texts = np.split(np.frombuffer(tokens, np.int32), ends)
        parts = np.split(np.frombuffer(ledger, np.float32).reshape(-1, LEDGER_COLUMNS), ends)
        owners = [self._running.pop(vllm_id)[:2] for vllm_id in ids]
        return [
            (request_id, drawn(request, text, part, "rejected", cached))
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


def _prepare(device: str, threads: int | None) -> bool:
    """Set the environment that vLLM is imported in, and import it; return whether it runs on a CPU."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    if os.environ[_RUNNER] != _SETTINGS[_RUNNER]:
        raise InputError(
            f"{_RUNNER} is {os.environ[_RUNNER]!r} in the environment; only {_SETTINGS[_RUNNER]!r} is allowed",
            "Unset it: log-probabilities are recorded by the V1 model runner of vLLM.",
        )
    if threads is not None:
        import torch

        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        torch.set_num_threads(threads)
    try:
        from vllm.platforms import current_platform
    except ImportError as error:
        raise InputError(f"The vllm engine cannot be used: {error}", extras.installing("vllm")) from error
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise InputError(f"Device {device!r} is not known; allowed are 'cpu' and 'cuda'")
    platform = "cpu" if current_platform.is_cpu() else "cuda" if current_platform.is_cuda_alike() else "no device"
    if platform != kind:
        raise InputError(
            f"Device {device!r}: the vLLM installed here runs on {platform}",
            "vLLM for GPUs is the package vllm, for CPUs vllm-cpu.",
        )
    return platform == "cpu"


def _version() -> str:
    from vllm import __version__

    return str(__version__)


def _versions() -> str:
    import torch

    return f"vLLM {_version()} with torch {torch.__version__}"


def shut_down(engine: Any) -> None:
    """Stop the processes of a ``vllm.LLMEngine``, whose memory is free after it is dropped and ``release_memory``."""
    queues = _message_queues()  # a reference here, so that vLLM's own shutdown does not collect them
    engine.engine_core.shutdown()
    _close_sockets(queues)


def release_memory() -> None:
    """Free the device's memory, so that another engine can start in this process."""
    from vllm.distributed import cleanup_dist_env_and_memory

    _close_sockets(_message_queues())  # of an engine that did not start
    cleanup_dist_env_and_memory()


def cpu_arguments() -> dict[str, Any]:
    """Return the arguments that vLLM needs on a CPU: size and blocks of its KV cache, and no chunked prefill."""
    is_set = os.environ.get("VLLM_CPU_KVCACHE_SPACE")
    return {
        "block_size": _CPU_BLOCK,
        "kv_cache_memory_bytes": None if is_set else _CPU_CACHE,
        # After a chunk of a prompt vLLM rewinds the request's generator, which fails with CPU generators.
        "enable_chunked_prefill": False,
    }


def _graph_rows(rows: int) -> int | None:
    """Return how many rows a CUDA graph is to have if vLLM's own limit is too low; it makes one for each 16 rows."""
    return rows - rows % 16 if rows > _GRAPH_ROWS else None


def _compilation(graph_rows: int | None, fuse: bool | None) -> dict[str, Any]:
    """Return vLLM's argument for what is compiled; nothing for what vLLM decides."""
    given: dict[str, Any] = {}
    if graph_rows is not None:
        given["max_cudagraph_capture_size"] = graph_rows
    if fuse is not None:
        given["pass_config"] = {"fuse_allreduce_rms": fuse}
    return {"compilation_config": given} if given else {}


def _lora_arguments(adapter: Adapter) -> dict[str, Any]:
    """Return vLLM's arguments for one adapter; it has buffers for some ranks only, in which a smaller one fits."""
    from vllm.config.lora import MaxLoRARanks

    ranks = sorted(get_args(MaxLoRARanks))
    if adapter.rank > ranks[-1]:
        raise InputError(
            f"{adapter.folder}: r is {adapter.rank}, vLLM takes at most {ranks[-1]}",
            "merge the adapter and name that folder",
        )
    rank = next(rank for rank in ranks if rank >= adapter.rank)
    return {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}


def _lora_request(adapter: Adapter) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest("adapter", 1, str(adapter.folder.absolute()))


def _cached_tokens(engine: Any, vllm_id: str) -> int:
    """Return how many tokens of a running request's prompt came from the cache; only its output would say it."""
    processor = engine.output_processor
    (internal,) = processor.external_req_ids[vllm_id]
    return int(processor.request_states[internal].num_cached_tokens or 0)


def _message_queues() -> list[Any]:
    """Return the queues between the processes of vLLM's engines; none if they run in this process."""
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    gc.unfreeze()  # the garbage collector does not list objects that vLLM froze at its start
    return [thing for thing in gc.get_objects() if type(thing) is MessageQueue]


def _close_sockets(queues: Sequence[Any]) -> None:
    """Close the sockets of queues. Left to the garbage collector, they would wait for each other forever."""
    for queue in queues:
        for socket in filter(None, (getattr(queue, name, None) for name in ("local_socket", "remote_socket"))):
            socket.context.destroy(linger=0)


def _rows(value: int | None, on_cpu: bool) -> int:
    if value is None:
        return _CPU_ROWS if on_cpu else _CUDA_ROWS
    if value < 1:
        raise InputError(f"max_rows is {value}, it must be at least 1")
    return value


def _load_config(path: Path, weights: bool) -> Any:
    """Return the model's configuration; refuse a folder without some of its weight files, if they are to be read."""
    from transformers import AutoConfig

    if weights:
        require_whole(path, embedded=False)
    try:  # without this option transformers would ask whether to run the checkpoint's own code
        config = AutoConfig.from_pretrained(path, trust_remote_code=False).get_text_config()
    except Exception as error:
        raise InputError(
            f"{path}: cannot load a model from here ({error})", "give a folder with config.json and *.safetensors"
        ) from error
    return config


def _start_error(path: str, error: Exception) -> Exception:
    """Return an error of vLLM's start as an InputError if the input or the version is wrong, else unchanged."""
    text = " ".join(str(error).split())
    if isinstance(error, ImportError):
        return InputError(
            f"{_versions()} has not all that the engine needs ({text})",
            f"install a version of vLLM that this searchlens knows: {extras.installing('vllm')}",
        )
    if _has_any(text, _WEIGHT_MESSAGES):
        return InputError(
            f"{path}: cannot load the weights ({text})", "Give a folder with config.json and complete *.safetensors."
        )
    if isinstance(error, (OSError, *refusals())):
        return InputError(f"{path}: vLLM cannot start with this model and these settings ({text})")
    return error


def _has_any(text: str, parts: Sequence[str]) -> bool:
    return any(part in text.lower() for part in parts)
