"""Two processes of vLLM that act as one engine, compared with one engine of vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("vllm", reason="vllm is not installed")

from searchlens.engines.base import Completion, EngineMemoryError, Request, Sampling  # noqa: E402
from searchlens.engines.replicas import Replicas, share  # noqa: E402
from searchlens.engines.vllm import VllmEngine  # noqa: E402
from test_engine_contract import (  # noqa: E402
    BOS,
    FILTERS,
    TEMPERATURE,
    finish,
    given_texts,
    next_finished,
    save,
    various,
)

ROWS, BLOCK = 16, 32  # BLOCK: tokens that vLLM's cache keeps together on a CPU; fewer on a GPU
START: dict[str, Any] = {
    "device": "cuda" if torch.cuda.is_available() else "cpu",
    "dtype": "float32",
    "max_rows": ROWS,
    "gpu_memory_utilization": 0.4,
    "kv_cache_memory_bytes": None,
    "threads": 2,
}


def two(folder: Path, **changes: Any) -> Replicas:
    """Two processes that share what one engine is given."""
    return Replicas(partial(VllmEngine, folder, **share({**START, **changes}, 2)), 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("replicas"))


@pytest.fixture(scope="module")
def alone(folder: Path) -> Iterator[VllmEngine]:
    started = VllmEngine(folder, **START)
    yield started
    started.close()


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Replicas]:
    started = two(folder)
    yield started
    started.close()


def check_same(here: Completion, there: Completion) -> None:
    """The same tokens, and the same numbers but for the last digits."""
    assert here.tokens.tolist() == there.tokens.tolist()
    assert here.finish == there.finish
    for name in ("logprobs", "sampling_logprobs", "entropies", "certainties", "top_logprobs"):
        ours, theirs = getattr(here, name), getattr(there, name)
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert (here.top_tokens is None) == (there.top_tokens is None)
    assert here.top_tokens is None or here.top_tokens.tolist() == there.top_tokens.tolist()  # type: ignore[union-attr]


def test_texts_are_those_of_one_engine_and_both_processes_draw(engine: Replicas, alone: VllmEngine) -> None:
    """Protects samples: how many processes draw them must not change them, whatever filters, prefixes and seeds."""
    requests = various([TEMPERATURE, Sampling(0.0), *FILTERS.values()], 72)
    for here, there in zip(finish(engine, requests), finish(alone, requests), strict=True):
        check_same(here, there)
    steps = [process.steps for process in engine._processes]
    assert min(steps) > max(steps) / 2, "each has drawn about half of them"


def test_the_engine_says_of_itself_what_one_engine_says(engine: Replicas, alone: VllmEngine) -> None:
    """Protects jobs, which read limits and versions from the engine; rows are those of both processes together."""
    for name in ("vocab_size", "max_model_len", "max_rows", "masked", "device", "version", "bounds"):
        assert getattr(engine, name) == getattr(alone, name), name


def test_scores_are_those_of_one_engine(engine: Replicas, alone: VllmEngine) -> None:
    """Protects cross-likelihoods: each process scores a part, and the parts are put together in their order."""
    texts = given_texts(40)
    for here, there in zip(engine.score(texts), alone.score(texts), strict=True):
        np.testing.assert_allclose(here.logprobs, there.logprobs, atol=1e-4)


def test_a_continued_text_is_found_in_the_cache(engine: Replicas) -> None:
    """Protects speed of searches: a text is continued by the process that drew it, and is not computed again."""
    prompts = [(BOS, 20 + number) for number in range(6)]
    texts = finish(engine, [Request(prompt, TEMPERATURE, 7, 2 * BLOCK, ()) for prompt in prompts])
    for number, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        engine.add(number, Request(prompt, TEMPERATURE, 8, 2, (), prefix=tuple(text.tokens.tolist())))
        ((_, done),) = next_finished(engine)
        assert isinstance(done, Completion) and done.reused >= BLOCK


def test_too_little_memory_is_said_with_the_rows_of_both(folder: Path) -> None:
    """Protects the next try of a job, which halves these rows; keys and values are divided among the processes."""
    with pytest.raises(EngineMemoryError, match="KV cache") as caught:
        two(folder, kv_cache_memory_bytes=80_000)
    assert caught.value.max_rows == ROWS
