"""The production engine: vLLM, with the parts of the contract that it lacks hung into its worker.

vLLM schedules, batches, caches prefixes and draws; :mod:`searchlens.engines._vllm_worker` adds what it draws from, the
filters it lacks and a ledger of log-probabilities. Requests wait here, in the order of (priority, arrival), and vLLM
holds only a few more than it can run, so that an urgent one never stands behind thousands.

What differs from the embedded engine: a sample is drawn by vLLM's own generator, seeded by the request, so the same
seed gives another sample than there; and where several tokens tie at the edge of top-p, vLLM keeps some of them.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from searchlens.engines._checks import Bounds, at_most, load_tokenizer, special_ids
from searchlens.engines.base import Completion, EngineMemoryError, Request, RequestError
from searchlens.errors import InputError

if TYPE_CHECKING:
    from vllm import SamplingParams

DType = Literal["float32", "bfloat16", "float16"]

KEY = "searchlens"
"""Under which a vLLM request's extra arguments hold the fields of ``ROW``, as a list of plain numbers."""
ROW = np.dtype(
    [
        ("slot", "i8"),  # the request's own in the ledger, while vLLM has it
        ("measures", "?"),
        ("typical_p", "f8"),
        ("repetition", "f4"),
        ("frequency", "f4"),
        ("presence", "f4"),
        ("generated", "i8"),  # place of the first token that counts as generated
    ]
)
"""What the worker knows of a request beside vLLM's own parameters."""
NOTED = 4
"""Numbers in the ledger per token: log p, log q, entropy and certainty; float32, in nats."""

_EXTENSION = "searchlens.engines._vllm_worker.Extension"
_CPU_ROWS = 256
_CUDA_ROWS = 1024
_CPU_BLOCK = 32  # only whole blocks of a prefix are reused; the least that the CPU build takes
_CPU_CACHE = 2**30  # bytes of keys and values, unless VLLM_CPU_KVCACHE_SPACE says otherwise
_AHEAD = 1.25  # requests that vLLM holds per row, so that a free row is never waited for
_GROUPS = (1, 16, 64)
_COOLEST = 0.01  # vLLM draws cooler samples at this temperature
_SETTINGS = {
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # the one whose sampler is replaced here
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler in this process: no serialisation per step
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
_MEMORY = (
    "out of memory",
    "cache blocks",
    "kv cache",
    "memory utilization",
    "available memory",
    "free memory on device",
)
_WEIGHTS = ("model weights", "not initialized from checkpoint", "safetensors")


class VllmEngine:
    """Samples from any causal language model that vLLM can run; one engine at a time in a process.

    Parameters
    ----------
    path : str or Path
        A folder in transformers' layout, or a hub id.
    revision : str, optional
        Of a hub id.
    device : str
        "cpu" or "cuda". The installed build of vLLM decides; another one than asked for is an error.
    dtype : {"bfloat16", "float32", "float16"}
        Of weights, keys and values; sampling is in float32 either way.
    max_rows : int, optional
        Most samples decoded together; by default 256 on a CPU and 1,024 on CUDA.
    max_model_len : int, optional
        Most tokens of prompt and completion together; by default, and at most, what the model was made for.
    tensor_parallel : int
        Devices that share the weights, each with its own worker process.
    gpu_memory_utilization : float
        In (0, 1]: fraction of a CUDA device for weights, activations, keys and values.
    quantization : str, optional
        vLLM's name of a method; by default what the checkpoint says.
    load_format : str
        vLLM's; "dummy" gives random weights, and needs no tokenizer.
    enforce_eager : bool
        Run without CUDA graphs and compilation; a CPU always does.
    threads : int, optional
        CPU threads of the process, not bound to cores; vLLM's choice when not given.

    Attributes
    ----------
    device : str
    version : str
        Of vLLM.
    vocab_size : int
        The tokenizer's; rows that the embedding has beyond it are never drawn.
    max_model_len, max_rows : int
    repeatable : bool
        False: what is batched together depends on time, and with it the last digits of the logits.
    groups : tuple of int
        Sizes of groups worth trying: a step that mixes prompts with decoding costs more than one that only decodes.
    steps : int
        Times that tokens were drawn, up to the last that ended a request.
    bos_id : int or None
        The tokenizer's; a prompt may hold it once.
    pad_id : int or None
        Never sampled, as in the embedded engine.

    Raises
    ------
    InputError
        If vLLM is not installed, files are missing, tokenizer and model disagree, or vLLM refuses an argument.
    EngineMemoryError
        If the model or one sample of the longest length does not fit.

    Notes
    -----
    Seeds pass unfolded; on a CPU the generators use their lower 32 bits.

    vLLM reads a few settings from the environment when it is imported: those of ``_SETTINGS`` are set here, unless they
    are set already.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        revision: str | None = None,
        device: str = "cuda",
        dtype: DType = "bfloat16",
        max_rows: int | None = None,
        max_model_len: int | None = None,
        tensor_parallel: int = 1,
        gpu_memory_utilization: float = 0.9,
        quantization: str | None = None,
        load_format: str = "auto",
        enforce_eager: bool = False,
        threads: int | None = None,
    ) -> None:
        on_cpu = _prepare(device, threads)
        self.device = "cpu" if on_cpu else "cuda"
        self.version = _version()
        self.repeatable = False
        self.max_rows = _rows(max_rows, on_cpu)
        self.groups = tuple(size for size in _GROUPS if size <= self.max_rows)
        self.steps = 0
        config = _load_config(path, revision)
        self.vocab_size, self.bos_id, self.pad_id = _vocabulary(path, revision, config, load_format == "dummy")
        self.max_model_len = at_most("max_model_len", max_model_len, config.max_position_embeddings)
        self._limit = int(self.max_rows * _AHEAD)
        self._engine = self._start(
            model=str(path),
            revision=revision,
            dtype=dtype,
            max_num_seqs=self.max_rows,
            max_model_len=self.max_model_len,
            tensor_parallel_size=tensor_parallel,
            gpu_memory_utilization=gpu_memory_utilization,
            quantization=quantization,
            load_format=load_format,
            enforce_eager=enforce_eager or on_cpu,
            **(cpu_arguments() if on_cpu else {}),
        )
        masked = [] if self.pad_id is None else [self.pad_id]
        drawable = self.vocab_size - len(masked)
        self._bounds = Bounds(self.vocab_size, drawable, self.max_model_len, self.bos_id)
        self._engine.collective_rpc("searchlens_start", args=(self._limit, self.vocab_size, masked))
        self._queue: list[tuple[int, int, int, Request, SamplingParams]] = []
        self._arrivals = 0
        self._running: dict[str, tuple[int, Request, int]] = {}
        self._slots = list(range(self._limit))

    def clear(self) -> None:
        """Forget what was kept of earlier requests.

        Raises
        ------
        RuntimeError
            Requests are waiting or running.
        """
        if self._queue or self._running:
            raise RuntimeError("the engine is not idle: only then can it forget what it keeps")
        self._engine.reset_prefix_cache()

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
            BOS, all does not fit together with ``max_tokens``, ``top`` is more than the vocabulary, or vLLM cannot
            draw in this way.
        """
        self._bounds.check(request_id, request)
        params = _parameters(request_id, request)
        heappush(self._queue, (request.priority, self._arrivals, request_id, request, params))
        self._arrivals += 1

    def step(self) -> list[tuple[int, Completion | RequestError]]:
        """Decode until at least one request finished; return those that did, or nothing when nothing is left.

        Raises
        ------
        EngineMemoryError
            The device's memory does not suffice.
        """
        finished: list[tuple[int, Completion | RequestError]] = []
        while not finished and (self._queue or self._running):
            finished += self._admit()
            finished += self._finish(self._advance() if self._running else [])
        return finished

    def close(self) -> None:
        """Drop all requests and the weights; the engine cannot be used afterwards."""
        shut_down(self._engine)
        del self._engine
        release_memory()

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
                UsageContext.LLM_CLASS,  # its defaults are those for throughput
            )
        except Exception as error:
            memory = self._memory_error(error)
            if memory is None:
                raise _start_error(arguments["model"], error) from error
        release_memory()
        raise memory  # out here, because the traceback of vLLM's error holds on to the device's memory

    def _advance(self) -> list[Any]:
        """Let vLLM take a step; return its outputs."""
        try:
            outputs: list[Any] = self._engine.step()
        except Exception as error:
            memory = self._memory_error(error)
            if memory is None:
                raise
        else:
            return outputs
        raise memory  # out here, as in ``_start``

    def _memory_error(self, error: Exception) -> EngineMemoryError | None:
        """Say so, if memory is what an error is about."""
        import torch

        text = " ".join(str(error).split())
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or any(part in text.lower() for part in _MEMORY):
            return EngineMemoryError(text, self.max_rows)
        return None

    def _admit(self) -> list[tuple[int, RequestError]]:
        """Hand requests to vLLM while it has use for them; return those that it refuses."""
        refused = []
        while self._queue and self._slots:
            _, arrival, request_id, request, params = heappop(self._queue)
            slot = self._slots.pop()
            params.extra_args = {KEY: _row(request, slot)}
            prompt = {"prompt_token_ids": [*request.prompt, *request.prefix]}
            try:
                self._engine.add_request(str(arrival), prompt, params)
            except _refusals() as error:
                self._slots.append(slot)
                refused.append((request_id, RequestError(f"vLLM refuses the request ({error})")))
            else:
                self._running[str(arrival)] = request_id, request, slot
        return refused

    def _finish(self, outputs: Sequence[Any]) -> list[tuple[int, Completion | RequestError]]:
        """Turn vLLM's outputs into completions, with what the ledger has of them."""
        done = [(*self._running.pop(output.request_id), output) for output in outputs if output.finished]
        if not done:
            return []
        slots = [slot for _, _, slot, _ in done]
        lengths = [len(output.outputs[0].token_ids) for *_, output in done]
        self.steps, noted = self._engine.collective_rpc("searchlens_fetch", args=(slots, lengths))[0]
        self._slots += slots
        parts = np.split(np.frombuffer(noted, np.float32).reshape(-1, NOTED), np.cumsum(lengths)[:-1])
        return [
            (request_id, _completion(request, output, part))
            for (request_id, request, _, output), part in zip(done, parts, strict=True)
        ]


def _prepare(device: str, threads: int | None) -> bool:
    """Import vLLM as it is used here; return whether it runs on a CPU."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    if threads is not None:
        import torch

        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        torch.set_num_threads(threads)
    try:
        from vllm.platforms import current_platform
    except ImportError as error:
        raise InputError(
            f"The vllm engine cannot be used: {error}", "Install it with: pip install 'searchlens[vllm]'"
        ) from error
    wanted = device.partition(":")[0]
    if wanted not in ("cpu", "cuda"):
        raise InputError(f"Device {device!r} is not known; allowed are 'cpu' and 'cuda'")
    found = "cpu" if current_platform.is_cpu() else "cuda" if current_platform.is_cuda_alike() else "no device"
    if found != wanted:
        raise InputError(
            f"Device {device!r}: the vLLM installed here runs on {found}",
            "vLLM for GPUs is the package vllm, for CPUs vllm-cpu.",
        )
    return found == "cpu"


def _version() -> str:
    from vllm import __version__

    return str(__version__)


def shut_down(engine: Any) -> None:
    """End what vLLM's engine runs; its memory is free once it is dropped, too, and ``release_memory`` was called."""
    queues = _queues()  # held, so that vLLM's own clearing away does not collect them
    engine.engine_core.shutdown()
    _close(queues)


def release_memory() -> None:
    """Give the device's memory back, so that another engine can start in this process."""
    from vllm.distributed import cleanup_dist_env_and_memory

    _close(_queues())  # of an engine that did not start
    cleanup_dist_env_and_memory()


def _queues() -> list[Any]:
    """What the engine's processes talk through; nothing where there is one process."""
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    gc.unfreeze()  # what vLLM froze at its start is not listed
    return [one for one in gc.get_objects() if type(one) is MessageQueue]


def _close(queues: Sequence[Any]) -> None:
    """Close the queues' sockets: in the hands of the garbage collector they wait for each other forever."""
    for queue in queues:
        for socket in filter(None, (getattr(queue, name, None) for name in ("local_socket", "remote_socket"))):
            socket.context.destroy(linger=0)


def cpu_arguments() -> dict[str, Any]:
    """Arguments that vLLM needs on a CPU: block size and memory of its cache."""
    given = os.environ.get("VLLM_CPU_KVCACHE_SPACE")
    return {
        "block_size": _CPU_BLOCK,
        "kv_cache_memory_bytes": None if given else _CPU_CACHE,
        # The draw behind a part of a prompt is taken back, which CPU generators cannot do: vLLM would stop.
        "enable_chunked_prefill": False,
    }


def _rows(value: int | None, on_cpu: bool) -> int:
    if value is None:
        return _CPU_ROWS if on_cpu else _CUDA_ROWS
    if value < 1:
        raise InputError(f"max_rows is {value}, it must be at least 1")
    return value


def _load_config(path: str | Path, revision: str | None) -> Any:
    """Read what the model says of itself."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(path, revision=revision).get_text_config()
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path}: cannot load a model from here ({error})",
            "Give a folder with config.json and *.safetensors, or a hub id whose files are in the local cache.",
        ) from error
    index = Path(path) / "model.safetensors.index.json"
    if index.is_file():
        named = set(json.loads(index.read_text())["weight_map"].values())
        missing = sorted(name for name in named if not (Path(path) / name).is_file())
        if missing:  # vLLM would leave their weights as they happen to lie in memory
            raise InputError(f"{path}: {index.name} names {', '.join(missing)}, which the folder lacks")
    return config


def _vocabulary(
    path: str | Path, revision: str | None, config: Any, may_lack: bool
) -> tuple[int, int | None, int | None]:
    """Return how many token ids there are, and the ids of BOS and pad.

    Many models have more rows in their embedding than their tokenizer has ids, for speed.
    """
    size = int(config.vocab_size)
    if may_lack and not (Path(path) / "tokenizer_config.json").exists():
        return size, None, None
    tokenizer = load_tokenizer(path, revision)
    highest = max(tokenizer.get_vocab().values())
    bos, pad = special_ids(path, revision, config, tokenizer)
    for name, value in (("token id", highest), ("BOS", bos), ("EOS", tokenizer.eos_token_id)):
        if value is not None and value >= size:
            raise InputError(
                f"{path}: tokenizer.json has {name} {value}, but vocab_size in config.json is {size}",
                "Tokenizer and weights are not of the same model.",
            )
    return highest + 1, bos, pad


def _start_error(path: str, error: Exception) -> Exception:
    """Tell wrong input from what is wrong with vLLM."""
    text = " ".join(str(error).split())
    if any(part in text.lower() for part in _WEIGHTS):
        return InputError(
            f"{path}: cannot load the weights ({text})", "Give a folder with config.json and complete *.safetensors."
        )
    if isinstance(error, (OSError, *_refusals())):
        return InputError(f"{path}: vLLM cannot start with this model and these settings ({text})")
    return error


def _refusals() -> tuple[type[Exception], ...]:
    """What vLLM raises for wrong input; its own class was a ValueError once."""
    from vllm.exceptions import VLLMValidationError

    return ValueError, VLLMValidationError


def _parameters(request_id: int, request: Request) -> SamplingParams:
    """Every parameter as the request has it; penalties and typical-p are not vLLM's."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    sampling = request.sampling
    if 0 < sampling.temperature < _COOLEST:
        raise InputError(
            f"Request {request_id}: temperature is {sampling.temperature}; vLLM allows 0 and from {_COOLEST} on"
        )
    try:
        params = SamplingParams(
            n=1,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            repetition_penalty=1.0,
            frequency_penalty=0.0,
            presence_penalty=0.0,
            seed=request.seed,
            max_tokens=request.max_tokens,
            min_tokens=0,
            stop=None,
            ignore_eos=True,  # nothing but ``stop_ids`` ends a text
            logprobs=request.top or None,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
        )
    except _refusals() as error:
        raise InputError(f"Request {request_id}: vLLM refuses its sampling parameters ({error})") from error
    params.stop_token_ids = _stop_ids(request.stop_ids)
    return params


class _StopIds(list[int]):
    """Stop tokens as vLLM wants them, in a list; it looks into it for every token, and steps may end at a thousand."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        super().__init__(ids)
        self._set = frozenset(ids)

    def __contains__(self, token: object) -> bool:
        return token in self._set


@lru_cache(maxsize=256)
def _stop_ids(ids: tuple[int, ...]) -> _StopIds:
    return _StopIds(ids)


def _row(request: Request, slot: int) -> list[float]:
    """The fields of ``ROW``; greedy has no filters."""
    sampling = request.sampling
    return [
        slot,
        request.measures,
        sampling.typical_p if sampling.temperature > 0 else 1.0,
        sampling.repetition_penalty,
        sampling.frequency_penalty,
        sampling.presence_penalty,
        len(request.prompt),
    ]


def _completion(request: Request, output: Any, noted: npt.NDArray[np.float32]) -> Completion | RequestError:
    """What the contract wants of a finished request."""
    text = output.outputs[0]
    if text.finish_reason not in ("stop", "length"):
        return RequestError(f"vLLM gave the request up ({text.finish_reason})")
    logprobs, sampling_logprobs, entropies, certainties = noted.T.copy()
    done = Completion(
        tokens=np.array(text.token_ids, np.int32),
        logprobs=logprobs,
        sampling_logprobs=sampling_logprobs,
        finish=text.finish_reason,
        entropies=entropies if request.measures else None,
        certainties=certainties if request.measures else None,
        reused=output.num_cached_tokens or 0,
    )
    if not request.top:
        return done
    top_tokens, top_logprobs = _top(text.logprobs, request.top)
    return replace(done, top_tokens=top_tokens, top_logprobs=top_logprobs)


def _top(flat: Any, most: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """The most likely tokens of each position; vLLM puts the drawn one before them."""
    first = np.array(flat.start_indices)[:, None] + np.arange(1, most + 1)
    tokens = np.array(flat.token_ids, np.int32)[first]
    logprobs = np.array(flat.logprobs, np.float32)[first]
    order = np.lexsort((tokens, -logprobs))
    return np.take_along_axis(tokens, order, 1), np.take_along_axis(logprobs, order, 1)
