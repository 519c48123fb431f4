"""The vLLM engine beyond the contract: its ledger, its error messages, and checkpoints that do not fit together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlens.engines.base import EngineMemoryError, Given, Request, RequestError
from searchlens.engines.transformers import TransformersEngine
from searchlens.engines.vllm import VllmEngine
from searchlens.errors import InputError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def test_without_vllm_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("vllm", "vllm.platforms"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"pip install 'vllm[<>=.,\d]+'"):
        VllmEngine(tmp_path, device="cpu")


pytest.importorskip("vllm", reason="vllm is not installed")

from searchlens_lab.equivalence import explicit as oracle  # noqa: E402
from test_engine_contract import (  # noqa: E402
    BOS,
    EOS,
    FILTERS,
    PAD,
    PROMPT,
    TEMPERATURE,
    VOCAB,
    check_bfloat16,
    finish,
    given_texts,
    logits_of,
    next_finished,
    reference,
    save,
    various,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDE = VOCAB + 10
START: dict[str, Any] = {
    "device": DEVICE,
    "dtype": "float32",
    "max_rows": 8,
    "gpu_memory_utilization": 0.3,
    "threads": 1,
}
on_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="sizes the CPU's cache of keys and values")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("vllm"))


@pytest.fixture(scope="module")
def wide(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with rows in its embedding that are no tokens, and that would be the most likely ones."""
    model = reference(folder)
    model.resize_token_embeddings(WIDE, mean_resizing=False)
    with torch.no_grad():
        model.lm_head.weight[VOCAB:] = 3 * model.lm_head.weight[PAD]
    path = tmp_path_factory.mktemp("wide")
    model.save_pretrained(path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (path / name).write_bytes((folder / name).read_bytes())
    return path


class TestRunning:
    """On one engine, which is closed before the next one starts: a process can have one at a time."""

    @pytest.fixture(scope="class")
    @staticmethod
    def engine(wide: Path) -> Iterator[VllmEngine]:
        started = VllmEngine(wide, **START)
        yield started
        started.close()

    def test_rows_of_the_embedding_without_a_token_are_never_drawn(self, engine: VllmEngine, wide: Path) -> None:
        """Nor do they count for log p, for the measures or among the likely tokens."""
        assert (engine.vocab_size, engine.masked) == (WIDE, (PAD, *range(VOCAB, WIDE)))
        model = reference(wide)
        requests = [
            Request(PROMPT, sampling, seed, 6, (), measures=True, top=4)
            for sampling in FILTERS.values()
            for seed in range(9)
        ]
        for request, done in zip(requests, finish(engine, requests), strict=True):
            tokens = done.tokens.tolist()
            assert max(tokens) < VOCAB
            logits = logits_of(model, request.prompt, tokens)
            log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            np.testing.assert_allclose(done.logprobs, log_p[np.arange(6), tokens], atol=1e-4)
            np.testing.assert_allclose(
                done.certainties, -np.log(VOCAB - 1) - np.delete(log_p, PAD, 1).mean(1), atol=1e-4
            )
            assert done.top_tokens.tolist() == np.argsort(-log_p, 1)[:, :4].tolist()

    def test_a_seed_gives_the_text_that_it_gives_on_the_embedded_engine(self, engine: VllmEngine, folder: Path) -> None:
        """Both draw by the uniform number of seed and position, in the order of token ids."""
        requests = [Request(PROMPT, sampling, seed, 12, ()) for sampling in FILTERS.values() for seed in range(9)]
        embedded = TransformersEngine(folder, device="cpu", dtype="float32", threads=1)
        for here, there in zip(finish(engine, requests), finish(embedded, requests), strict=True):
            assert here.tokens.tolist() == there.tokens.tolist()
            np.testing.assert_allclose(here.sampling_logprobs, there.sampling_logprobs, atol=1e-4)

    def test_given_texts_are_scored_without_rows_that_are_no_tokens(self, engine: VllmEngine, wide: Path) -> None:
        """The raw log-softmax over the tokens."""
        model = reference(wide)
        texts = [Given(PROMPT, (30, 5, 40)), *given_texts(30)]
        for text, scored in zip(texts, engine.score(texts), strict=True):
            logits = logits_of(model, text.prompt, list(text.tokens))
            log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            np.testing.assert_allclose(scored.logprobs, log_p[np.arange(len(text.tokens)), text.tokens], atol=1e-4)

    def test_text_that_vllm_refuses_is_an_error_and_the_engine_stays_usable(
        self, engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refusing(*_: Any, **__: Any) -> Any:
            raise ValueError("no")

        with monkeypatch.context() as patch:
            patch.setattr(engine._engine, "add_request", refusing)
            with pytest.raises(RequestError, match=r"vLLM refuses the request \(no\)"):
                engine.score(given_texts(10))
        assert len(engine.score([Given(PROMPT, (30, 31))])[0].ranks) == 2

    def test_request_that_vllm_refuses_fails_alone(self, engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its slot is free again. Versions refuse different things; here, stop tokens out of range."""
        add = engine._engine.add_request

        def refusing(request_id: str, prompt: Any, params: Any, **others: Any) -> Any:
            if max(params.stop_token_ids or [0]) >= WIDE:
                raise ValueError("token ids are out of the vocabulary")
            return add(request_id, prompt, params, **others)

        monkeypatch.setattr(engine._engine, "add_request", refusing)
        for turn in range(2 * engine.max_rows):
            engine.add(0, Request(PROMPT, TEMPERATURE, turn, 2, (WIDE + 5,)))
            engine.add(1, Request(PROMPT, TEMPERATURE, turn, 2, ()))
            done: dict[int, Any] = {}
            while len(done) < 2:
                done.update(engine.step())
            assert isinstance(done[0], RequestError)
            assert len(done[1].tokens) == 2

    def test_request_that_vllm_gives_up_fails_alone(self, engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        """For any reason other than a stop token or the limit."""
        step = engine._engine.step

        def aborting() -> list[Any]:
            outputs = step()
            for output in outputs:
                if len(output.outputs[0].token_ids) == 3:
                    output.outputs[0].finish_reason = "abort"
            return list(outputs)

        monkeypatch.setattr(engine._engine, "step", aborting)
        for i in range(20):
            engine.add(i, Request(PROMPT, TEMPERATURE, i, 3 if i == 7 else 5, ()))
        done: dict[int, Any] = {}
        while len(done) < 20:
            done.update(engine.step())
        assert str(done.pop(7)) == "vLLM gave the request up (abort)"
        assert all(len(completion.tokens) == 5 for completion in done.values())

    def test_out_of_memory_while_stepping(self, engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its own error, without a context that keeps memory in use; every other error passes unchanged."""
        for failure, wanted in (
            (torch.OutOfMemoryError("tried to allocate"), EngineMemoryError),
            (KeyError("x"), KeyError),
        ):
            with monkeypatch.context() as patch:

                def fail(failure: Exception = failure) -> None:
                    raise failure

                patch.setattr(engine._engine, "step", fail)
                engine.add(0, Request(PROMPT, TEMPERATURE, 0, 2, ()))
                with pytest.raises(wanted) as caught:
                    engine.step()
            if wanted is EngineMemoryError:
                assert (caught.value.max_rows, caught.value.__context__) == (8, None)
            assert len(next_finished(engine)) == 1


@on_cpu
def test_preempted_requests_return_unchanged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With keys and values for a few rows only, vLLM drops requests and computes them again: the same numbers.

    Filters work on a few rows at once here.
    """
    monkeypatch.setattr("searchlens.engines._vllm_worker._ROWS_AT_ONCE", 2)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")  # the scheduler runs in this process nevertheless
    small = VllmEngine(folder, **START, kv_cache_memory_bytes=250_000)
    scheduler = small._engine.engine_core.engine_core.scheduler
    preempted, preempt = [], scheduler._preempt_request
    monkeypatch.setattr(
        scheduler, "_preempt_request", lambda *given, **named: (preempted.append(1), preempt(*given, **named))[1]
    )
    model = reference(folder)
    samplings = [TEMPERATURE, FILTERS["typical"], FILTERS["penalties"]]
    requests = [request._replace(max_tokens=40, stop_ids=()) for request in various(samplings, 40)]
    for request, done in zip(requests, finish(small, requests), strict=True):
        tokens = done.tokens.tolist()
        for i, logits in enumerate(logits_of(model, (*request.prompt, *request.prefix), tokens)):
            q = oracle.distribution(logits, request.sampling, request.prompt, (*request.prefix, *tokens[:i]))
            assert done.logprobs[i] == pytest.approx(logits[tokens[i]] - np.log(np.exp(logits).sum()), abs=1e-4)
            assert done.sampling_logprobs[i] == pytest.approx(np.log(q[tokens[i]]), abs=2e-4)
    small.close()
    assert preempted


def test_scores_in_bfloat16(folder: Path) -> None:
    engine = VllmEngine(folder, **{**START, "dtype": "bfloat16"})
    check_bfloat16(engine, folder)
    engine.close()


@on_cpu
def test_out_of_memory_while_starting(folder: Path) -> None:
    """No room for one sequence of the longest length; afterwards an engine that fits starts in the same process."""
    with pytest.raises(EngineMemoryError, match="KV cache") as caught:
        VllmEngine(folder, **START, kv_cache_memory_bytes=40_000)
    assert (caught.value.max_rows, caught.value.__context__) == (8, None)
    fits = VllmEngine(
        folder,
        **START,
        max_model_len=32,
        max_num_batched_tokens=64,
        max_cudagraph_capture_size=4,
        fuse_allreduce_rms=False,
        kv_cache_memory_bytes=200_000,
    )
    chosen = fits._engine.vllm_config  # options that decide no sample reach vLLM
    assert chosen.scheduler_config.max_num_batched_tokens == 64
    assert chosen.cache_config.kv_cache_memory_bytes == 200_000, "as given, also on a CPU"
    assert chosen.compilation_config.pass_config.fuse_allreduce_rms is False
    fits.close()


def test_a_version_with_another_log_q_does_not_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its texts would look right, and power sampling would be another chain. The next engine starts as ever."""
    from searchlens.engines import _vllm_worker

    draw = _vllm_worker._draw
    with monkeypatch.context() as spoiled:
        spoiled.setattr(_vllm_worker, "_draw", lambda *given: (draw(*given)[0], torch.zeros(len(given[0]))))
        with pytest.raises(InputError, match=r"vLLM \S+ with torch \S+: log q without filters"):
            VllmEngine(folder, **START)
    engine = VllmEngine(folder, **START)
    assert engine.steps == 0
    engine.close()


def test_another_version_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm.__version__", "0.40.1")
    with pytest.raises(InputError, match=r"vLLM 0.40.1 is installed; allowed is \S*>=0.26"):
        VllmEngine(folder, **START)


@on_cpu
def test_what_is_not_there_on_a_cpu_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="batch_invariant: true after an engine with the other value"):
        VllmEngine(folder, **START, batch_invariant=True)
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    with pytest.raises(InputError, match="batch_invariant: vLLM has its kernels for GPUs alone"):
        VllmEngine(folder, **START, batch_invariant=True)
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "0")
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    with pytest.raises(InputError, match=r"VLLM_USE_V2_MODEL_RUNNER is '1' .* on a cpu device: 0"):
        VllmEngine(folder, **START)


@pytest.mark.skipif((torch.cuda.device_count() if DEVICE == "cuda" else os.cpu_count() or 1) < 2, reason="needs two")
def test_two_workers_share_a_model(folder: Path, tmp_path: Path) -> None:
    """Both have all requests, the ledger is that of one; no socket between them stays open, or they would hang."""
    script, written = Path(__file__).parents[1] / "two_workers.py", tmp_path / "report.json"
    subprocess.run([sys.executable, str(script), str(folder), DEVICE, str(written)], check=True, timeout=300)
    report = json.loads(written.read_text())
    assert report["contexts"] > 0 and report["open"] == 0
    model = reference(folder)
    for request, (tokens, logprobs) in zip(various([*FILTERS.values()], 24), report["drawn"], strict=True):
        logits = logits_of(model, (*request.prompt, *request.prefix), tokens)
        expected = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        np.testing.assert_allclose(logprobs, expected[np.arange(len(tokens)), tokens], atol=1e-4)


def test_device_that_this_vllm_does_not_serve(folder: Path) -> None:
    other = "cuda" if DEVICE == "cpu" else "cpu"
    with pytest.raises(InputError, match=f"Device '{other}': the vLLM installed here runs on"):
        VllmEngine(folder, device=other)
    with pytest.raises(InputError, match="'tpu' is not known"):
        VllmEngine(folder, device="tpu")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_rows": 0}, "max_rows is 0"),
        ({"max_model_len": 129}, "max_model_len is 129; allowed is 1 to 128"),
        ({"load_format": "tarball"}, "tarball"),
        ({"generators": True, "batch_invariant": True}, "generators: not together with batch_invariant"),
    ],
)
def test_bad_arguments(folder: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        VllmEngine(folder, **{**START, **given})


def test_random_weights_need_no_tokenizer(folder: Path, tmp_path: Path) -> None:
    """To measure speed with the sizes of a model whose weights are not there."""
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    dummy = VllmEngine(tmp_path, **START, load_format="dummy")
    assert (dummy.vocab_size, dummy.masked) == (VOCAB, ())
    (done,) = finish(dummy, [Request((BOS, 4), TEMPERATURE, 0, 9, (EOS,))])
    assert len(done.tokens) == 9 or done.tokens[-1] == EOS
    dummy.close()
