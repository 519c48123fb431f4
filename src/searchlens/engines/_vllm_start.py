"""vLLM's start and end: environment, arguments, errors, memory, and whether it draws as the engine assumes.

The engine replaces parts inside of vLLM, and a version that goes another way inside would not fail: it would store
wrong numbers, and power sampling, which reads them, would become another chain.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from searchlens.config import addons
from searchlens.engines._vllm_request import refusals
from searchlens.engines.base import PLAIN, Completion, Engine, Request, RequestError, Sampling, complete
from searchlens.errors import InputError
from searchlens.store.checkpoints import Adapter, require_whole

_GRAPH_ROWS = 512  # most rows of a CUDA graph, by vLLM's default
_CPU_BLOCK = 32  # tokens of a cache block: only whole blocks are reused, and the CPU build takes multiples of 32
_CPU_CACHE = 2**30  # bytes of keys and values, unless VLLM_CPU_KVCACHE_SPACE is set
# Environment variables that vLLM reads when it is imported; those that are set already stay as they are.
_SETTINGS = {
    "TRITON_F32_DEFAULT": "ieee",  # where attention is a kernel of Triton's, float32 is that, and not TF32
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
_INVARIANT = "VLLM_BATCH_INVARIANT"
_CAPABILITY = 8, 0  # the least that has vLLM's kernels for it
_WEIGHT_MESSAGES = ("model weights", "not initialized from checkpoint", "safetensors")

TOLERANCE = 5e-4
"""Nats between two numbers that are the same but for rounding in float32. On a CPU, the log-softmax by which vLLM
reports log p was off by up to 6e-5 among 262,144 tokens; what the engine records, by 3e-6."""

_TOKENS = 8
_LONGEST = 128  # tokens of a prompt
_TEMPERATURE = 0.5
_WAYS = Sampling(1.0), Sampling(_TEMPERATURE, top_k=2), Sampling(0.0)


def prepare(device: str, threads: int | None, batch_invariant: bool = False) -> bool:
    """Set the environment that vLLM is imported in, and import it; return whether it runs on a CPU."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    # The scheduler runs in this process: nothing is serialised, and no step is taken before we abort what is rejected.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    _set_invariant(batch_invariant)
    if threads is not None:
        import torch

        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        torch.set_num_threads(threads)
    try:
        from vllm.platforms import current_platform
    except ImportError as error:
        raise InputError(f"The vllm engine cannot be used: {error}", addons.installing("vllm")) from error
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise InputError(f"Device {device!r} is not known; allowed are 'cpu' and 'cuda'")
    platform = "cpu" if current_platform.is_cpu() else "cuda" if current_platform.is_cuda_alike() else "no device"
    if platform != kind:
        raise InputError(
            f"Device {device!r}: the vLLM installed here runs on {platform}",
            "vLLM for GPUs is the package vllm, for CPUs vllm-cpu.",
        )
    _require_version()
    _require_runner(platform)
    if batch_invariant:
        _require_invariant_kernels(platform)
    return platform == "cpu"


def _set_invariant(wanted: bool) -> None:
    """Set whether bits depend on the batch. Some of vLLM's modules read it when they are imported, and only then."""
    value = str(int(wanted))
    if "vllm.engine.arg_utils" in sys.modules and os.environ.get(_INVARIANT, "0") != value:
        raise InputError(
            f"batch_invariant: {str(wanted).lower()} after an engine with the other value in the same process",
            "start it in a process of its own",
        )
    os.environ[_INVARIANT] = value


def _require_version() -> None:
    """Refuse a vLLM whose names nobody has compared with those that are used here."""
    from packaging.requirements import Requirement
    from vllm import __version__

    for text in addons.requirements("vllm") or ():
        wanted = Requirement(text).specifier
        if not wanted.contains(__version__, prereleases=True):
            raise InputError(f"vLLM {__version__} is installed; allowed is {wanted}", addons.installing("vllm"))


def _require_runner(platform: str) -> None:
    """Refuse a model runner that the environment asks for and that is not there. Unset, vLLM decides on a GPU."""
    allowed = ("0",) if platform == "cpu" else ("0", "1")
    if (chosen := os.environ.get(_RUNNER)) not in (None, *allowed):
        raise InputError(
            f"{_RUNNER} is {chosen!r} in the environment; allowed on a {platform} device: {', '.join(allowed)}",
            "unset it, and vLLM chooses its model runner",
        )
    if platform == "cpu":
        os.environ[_RUNNER] = "0"


def _require_invariant_kernels(platform: str) -> None:
    import torch

    if platform == "cpu":
        raise InputError(
            "batch_invariant: vLLM has its kernels for GPUs alone", "on a CPU engine: transformers repeats"
        )
    found = torch.cuda.get_device_capability()
    if found < _CAPABILITY:
        name, least = torch.cuda.get_device_name(), ".".join(map(str, _CAPABILITY))
        raise InputError(
            f"batch_invariant: {name} has compute capability {found[0]}.{found[1]}, needed is {least}",
            "leave it out; samples then differ in the last digits of their logits from run to run",
        )


def versions() -> str:
    """The versions of vLLM and torch, for messages."""
    import torch
    from vllm import __version__

    return f"vLLM {__version__} with torch {torch.__version__}"


def load_config(path: Path, weights: bool) -> Any:
    """Return the model's configuration; refuse a folder without some of its weight files, if they are to be read."""
    from transformers import AutoConfig

    if weights:
        require_whole(path, embedded=False)
    try:  # without this option transformers would ask whether to run the checkpoint's own code
        return AutoConfig.from_pretrained(path, trust_remote_code=False).get_text_config()
    except Exception as error:
        raise InputError(
            f"{path}: cannot load a model from here ({error})", "give a folder with config.json and *.safetensors"
        ) from error


def cpu_arguments() -> dict[str, Any]:
    """Return the arguments that vLLM needs on a CPU: size and blocks of its KV cache, and no chunked prefill."""
    is_set = os.environ.get("VLLM_CPU_KVCACHE_SPACE")
    return {
        "block_size": _CPU_BLOCK,
        "kv_cache_memory_bytes": None if is_set else _CPU_CACHE,
        # After a chunk of a prompt vLLM rewinds the request's generator, which fails with CPU generators.
        "enable_chunked_prefill": False,
    }


def compilation(rows: int, graph_rows: int | None, fuse: bool | None) -> dict[str, Any]:
    """Return vLLM's argument for what is compiled; nothing for what vLLM decides.

    If its limit for CUDA graphs is below ``rows``, it is as many as run: vLLM makes a graph for each 16 rows.
    """
    graph_rows = graph_rows or (rows - rows % 16 if rows > _GRAPH_ROWS else None)
    given: dict[str, Any] = {} if graph_rows is None else {"max_cudagraph_capture_size": graph_rows}
    if fuse is not None:
        given["pass_config"] = {"fuse_allreduce_rms": fuse}
    return {"compilation_config": given} if given else {}


def lora(adapter: Adapter | None) -> tuple[dict[str, Any], Any]:
    """Return vLLM's arguments for an adapter, and what goes with each request.

    vLLM has buffers for some ranks only, in which a smaller one fits.
    """
    if adapter is None:
        return {}, None
    from vllm.config.lora import MaxLoRARanks
    from vllm.lora.request import LoRARequest

    ranks = sorted(get_args(MaxLoRARanks))
    if adapter.rank > ranks[-1]:
        raise InputError(
            f"{adapter.folder}: r is {adapter.rank}, vLLM takes at most {ranks[-1]}",
            "merge the adapter and name that folder",
        )
    rank = next(rank for rank in ranks if rank >= adapter.rank)
    arguments = {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}
    return arguments, LoRARequest("adapter", 1, str(adapter.folder.absolute()))


def start_error(path: str, error: Exception) -> Exception:
    """Return an error of vLLM's start as an InputError if the input or the version is wrong, else unchanged."""
    text = " ".join(str(error).split())
    if isinstance(error, ImportError):
        return InputError(
            f"{versions()} has not all that the engine needs ({text})",
            f"install a version of vLLM that this searchlens knows: {addons.installing('vllm')}",
        )
    if has_any(text, _WEIGHT_MESSAGES):
        return InputError(
            f"{path}: cannot load the weights ({text})", "Give a folder with config.json and complete *.safetensors."
        )
    if isinstance(error, (OSError, *refusals())):
        return InputError(f"{path}: vLLM cannot start with this model and these settings ({text})")
    return error


def has_any(text: str, parts: Sequence[str]) -> bool:
    """Whether a text contains one of some parts, in lower case."""
    return any(part in text.lower() for part in parts)


def shut_down(engine: Any) -> None:
    """Stop the processes of a ``vllm.LLMEngine``, whose memory is free after it is dropped and ``release_memory``."""
    queues = _message_queues()  # a reference here, so that vLLM's own shutdown does not collect them
    engine.engine_core.shutdown()
    _close_sockets(queues)


def release_memory() -> None:
    """Free the device's memory, so that another engine can start in this process."""
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    _close_sockets(_message_queues())  # of an engine that did not start
    cleanup_dist_env_and_memory()


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


def require_right_numbers(engine: Engine, version: str, prompt: tuple[int, ...]) -> None:
    """Draw eight tokens three ways on an idle engine; InputError if log p or log q are not what they must be."""
    count = min(_TOKENS, engine.max_model_len - len(prompt))
    if count < 1:
        return
    first = Request(prompt=prompt, sampling=_WAYS[0], seed=0, max_tokens=count, top=3)
    requests = [first._replace(sampling=sampling, seed=seed) for seed, sampling in enumerate(_WAYS)]
    try:
        drawn = dict(complete(engine, requests))
    except RequestError as error:
        raise InputError(f"{version} refuses the requests that it is tried with at its start ({error})") from error
    for what, difference in differences(*(drawn[number] for number in range(len(_WAYS)))):
        if not difference <= TOLERANCE:
            raise InputError(
                f"{version}: {what} differs by {difference:.3g} from what it must be, allowed is {TOLERANCE:g}",
                "numbers of this version would be wrong: install one that requirements/vllm.txt names",
            )


def require_same_bits(engine: Engine, version: str, token: int) -> None:
    """Draw more texts than rows, in two orders and alone, on an idle engine; InputError if a bit depends on others.

    Products of few rows may have other kernels than products of many, so a step has from one token to as many as fit.
    Prompts begin differently, as far as the vocabulary allows, and nothing is in the cache.
    """
    longest = min(_LONGEST, engine.max_model_len // 2)
    if not longest:
        return
    count = min(3 * _TOKENS, engine.max_model_len - longest)
    requests = [
        Request(
            prompt=((token + number) % engine.vocab_size,) * (longest - number % longest),
            sampling=PLAIN,
            seed=number,
            max_tokens=1 + number % count,
        )
        for number in range(engine.max_rows + engine.max_rows // 4)
    ]
    every = range(len(requests))
    drawn = dict[int, bytes]()
    for order in (every, every[::-1], *([number] for number in every[:: 1 + len(every) // 4])):
        for position, done in dict(complete(engine, [requests[number] for number in order])).items():
            bits = b"".join(array.tobytes() for array in done[:3])
            if drawn.setdefault(order[position], bits) != bits:
                raise InputError(
                    f"{version}: batch_invariant, but a text differs if others are drawn beside it",
                    "vLLM has no such kernels for this model on this device: leave the option out",
                )


def differences(plain: Completion, two: Completion, greedy: Completion) -> list[tuple[str, float]]:
    """What is compared, and by how much it is off, in nats.

    The completions are one at temperature 1 without filters, one at 0.5 of the two most likely tokens, and a greedy
    one, all with ``top``.
    """
    assert two.top_logprobs is not None and greedy.top_logprobs is not None
    assert two.top_tokens is not None
    first, second, third = two.top_logprobs.T.astype(np.float64)
    log_p, log_q = (array.astype(np.float64) for array in (two.logprobs, two.sampling_logprobs))
    # All from vLLM's own numbers, so that what they are off by together cancels.
    is_first, is_second, _ = (two.tokens[:, None] == two.top_tokens).T
    drawn = np.select([is_first, is_second], [first, second], -np.inf)
    expected = drawn / _TEMPERATURE - np.logaddexp(first / _TEMPERATURE, second / _TEMPERATURE)
    are_two = second > third  # a third token that is as likely as the second may be kept, too
    return [
        ("log q without filters, compared with log p,", _largest(plain.sampling_logprobs - plain.logprobs)),
        ("log q of the two most likely tokens, which must sum to 1,", _largest((log_q - expected)[are_two])),
        ("log q of greedy tokens", _largest(greedy.sampling_logprobs)),
        ("log p, compared with vLLM's own,", _largest(greedy.logprobs - greedy.top_logprobs[:, 0])),
        (
            "log p of one of the two most likely tokens, compared with vLLM's own,",
            _largest(np.minimum(np.abs(log_p - first), np.abs(log_p - second))),
        ),
    ]


def _largest(differences: npt.NDArray[np.floating]) -> float:
    return float(np.abs(differences).max(initial=0.0))
