"""The vLLM engine beyond the contract: its ledger, its error messages, and checkpoints that do not fit together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from searchlens.engines import _vllm_request as vllm_request
from searchlens.engines import _vllm_start as engine_module
from searchlens.engines.base import EngineMemoryError, Floor, Given, Request, RequestError, Sampling
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

from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality  # noqa: E402

from searchlens.engines import _vllm_worker as worker  # noqa: E402
from searchlens_lab.equivalence import filters as oracle  # noqa: E402
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
    next_finished,
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
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.resize_token_embeddings(WIDE, mean_resizing=False)
    with torch.no_grad():
        model.lm_head.weight[VOCAB:] = 3 * model.lm_head.weight[PAD]
    path = tmp_path_factory.mktemp("wide")
    model.save_pretrained(path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (path / name).write_bytes((folder / name).read_bytes())
    return path


def reference(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits_of(model: Any, context: tuple[int, ...], tokens: list[int]) -> np.ndarray:
    """Logits of transformers before each of `tokens`, over the tokens that can be drawn."""
    with torch.no_grad():
        logits = model(torch.tensor([[*context, *tokens]])).logits[0, len(context) - 1 : -1].double().numpy()
    logits[:, PAD] = -np.inf
    return logits[:, :VOCAB]


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
            assert done.top_tokens is not None
            assert done.top_tokens.tolist() == np.argsort(-log_p, 1)[:, :4].tolist()

    def test_a_seed_gives_the_text_that_it_gives_on_the_embedded_engine(self, engine: VllmEngine, folder: Path) -> None:
        """Both draw by the uniform number of seed and position, in the order of token ids."""
        requests = [Request(PROMPT, sampling, seed, 12, ()) for sampling in FILTERS.values() for seed in range(9)]
        embedded = TransformersEngine(folder, device="cpu", dtype="float32", threads=1)
        for here, there in zip(finish(engine, requests), finish(embedded, requests), strict=True):
            assert here.tokens.tolist() == there.tokens.tolist()
            np.testing.assert_allclose(here.sampling_logprobs, there.sampling_logprobs, atol=1e-4)

    def test_given_texts_are_scored_without_rows_that_are_no_tokens(self, engine: VllmEngine, wide: Path) -> None:
        """The raw log-softmax over the tokens, for the tokens that vLLM scores as a prompt and for the last one."""
        model = reference(wide)
        texts = [Given(PROMPT, (30, 5, 40)), *given_texts(30)]
        for text, scored in zip(texts, engine.score(texts), strict=True):
            logits = logits_of(model, text.prompt, list(text.tokens))
            log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            np.testing.assert_allclose(scored, log_p[np.arange(len(text.tokens)), text.tokens], atol=1e-4)

    def test_text_that_vllm_refuses_is_an_error_and_the_engine_stays_usable(
        self, engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refusing(*_: Any, **__: Any) -> Any:
            raise ValueError("no")

        with monkeypatch.context() as patch:
            patch.setattr(engine._engine, "add_request", refusing)
            with pytest.raises(RequestError, match=r"vLLM refuses the request \(no\)"):
                engine.score(given_texts(10))
        assert len(engine.score([Given(PROMPT, (30, 31))])[0]) == 2

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

    @pytest.mark.parametrize("temperature", [0.005, -1.0])
    def test_temperatures_that_vllm_would_change_are_refused(self, engine: VllmEngine, temperature: float) -> None:
        with pytest.raises(InputError, match=r"Request 3: .*temperature"):
            engine.add(3, Request(PROMPT, Sampling(temperature), 0, 5, ()))

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
    monkeypatch.setattr(engine_module, "_CPU_CACHE", 250_000)
    monkeypatch.setattr(worker, "_ROWS_AT_ONCE", 2)
    small = VllmEngine(folder, **START)
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


def test_ledger_is_filled_in_the_order_of_the_device() -> None:
    """Numbers arrive a step late, a finished request has one more step in flight, and its slot is used at once."""
    arrived = [0]
    ledger = worker.Ledger(2, 6, torch.device("cpu"))

    def write(slots: list[int], positions: list[int], value: float) -> None:
        step = ledger.steps
        values = torch.full((len(slots), vllm_request.LEDGER_COLUMNS), value)
        ledger.write(np.array(slots), np.array(positions), values)
        ledger._pending[-1] = ledger._pending[-1]._replace(has_arrived=lambda: arrived[0] > step)

    write([0, 1], [0, 0], 1.0)
    write([0, 1], [1, 1], 2.0)
    write([1, 0], [2, 2], 3.0)  # the request in slot 0 ended with the step before
    with pytest.raises(RuntimeError, match="missing"):
        ledger.fetch([0], [2])
    arrived[0] = 2
    assert ledger.fetch([0], [2])[:, 0].tolist() == [1.0, 2.0]
    write([1, 0], [3, 0], 4.0)  # the next one in slot 0
    write([0, 1], [1, 4], 5.0)
    arrived[0] = 5
    assert ledger.fetch([1, 0], [5, 2])[:, 1].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 4.0, 5.0]


def test_rows_are_followed_through_all_their_moves() -> None:
    """Removed, added over, moved and swapped at random, against a plain dictionary."""
    size, rng = 12, np.random.default_rng(0)
    runner = SimpleNamespace(max_num_reqs=size, max_model_len=20, device=torch.device("cpu"))
    batch, expected = worker.BatchRows(runner, 999), dict.fromkeys(range(size), 999)
    for slot in range(300):
        removed, added, source, target = (int(number) for number in rng.integers(size, size=4))
        row = [slot, slot + 1, False, 0.0, 1.0, 1.0, 0.0, 0.0, 1, vllm_request.NOT_GIVEN, 0.0, -np.inf, np.nan]
        new = (added, SimpleNamespace(extra_args={vllm_request.EXTRA_ARG: row}), [1, 2], [])
        direction = (MoveDirectionality.SWAP, MoveDirectionality.UNIDIRECTIONAL)[slot % 2]
        moved = [(source, target, direction)] if source != target else []
        batch.update_state(BatchUpdate(size, [removed], [new], moved))
        expected[removed] = 999
        expected[added] = slot
        if moved and direction == MoveDirectionality.SWAP:
            expected[source], expected[target] = expected[target], expected[source]
        elif moved:
            expected[target], expected[source] = expected[source], 999
        runner.input_batch = SimpleNamespace(num_reqs=size)
        assert batch.parameters().slots.tolist() == list(expected.values())
        assert batch.parameters().seeds.tolist() == [0 if slot == 999 else slot + 1 for slot in expected.values()]


def test_fields_of_a_row_are_sent_in_their_order() -> None:
    sampling = Sampling(
        0.5, min_p=0.1, typical_p=0.6, repetition_penalty=1.5, frequency_penalty=0.25, presence_penalty=0.75
    )
    request = Request((1, 2, 3), sampling, 2**62 + 1, 5, (), measures=True)
    row = np.array(tuple(vllm_request.worker_row(request, 7)), vllm_request.WORKER_ROW)
    *fields, start = row.item()
    assert tuple(fields) == (7, 2**62 + 1, True, 0.1, 0.6, 1.5, 0.25, 0.75, 3, vllm_request.NOT_GIVEN, 0.0, -np.inf)
    assert np.isnan(start)
    assert vllm_request.worker_row(request, 7, 42)[9] == 42
    bounded = request._replace(floor=Floor(4.0, -2.5, 6))
    assert vllm_request.worker_row(bounded, 7)[10:] == [4.0, -2.5, 6]
    assert vllm_request.worker_row(bounded._replace(top=1), 7)[11] == -np.inf


def test_scores_in_bfloat16(folder: Path) -> None:
    engine = VllmEngine(folder, **{**START, "dtype": "bfloat16"})
    check_bfloat16(engine, folder)
    engine.close()


@on_cpu
def test_out_of_memory_while_starting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room for one sequence of the longest length; afterwards an engine that fits starts in the same process."""
    monkeypatch.setattr(engine_module, "_CPU_CACHE", 40_000)
    with pytest.raises(EngineMemoryError, match="KV cache") as caught:
        VllmEngine(folder, **START)
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
    zeros = lambda _, tokens, __: torch.zeros_like(tokens, dtype=torch.float32)  # noqa: E731
    with monkeypatch.context() as spoiled:
        spoiled.setattr(worker.LedgerSampler, "_log_q", zeros)
        with pytest.raises(InputError, match=r"vLLM \S+ with torch \S+: log q without filters"):
            VllmEngine(folder, **START)
    engine = VllmEngine(folder, **START)
    assert engine.steps == 0
    engine.close()


@on_cpu
def test_the_benchmark_of_rates_runs_here(tmp_path: Path) -> None:
    """Its rates mean nothing on a CPU, but its columns do: full rows and tail, steps, host, versions and conditions."""
    script, written = Path(__file__).parents[2] / "perf/vllm.py", tmp_path / "lines.json"
    options = ["--shape", "tiny", "--device", "cpu", "--dtype", "float32", "--rows", "1", "--runs", "1", "--mean", "9"]
    command = [sys.executable, "-P", str(script), *options, "--only", "pool", "--json", str(written)]
    subprocess.run(command, check=True, timeout=600, capture_output=True)
    measured = json.loads(written.read_text())
    assert set(measured["versions"]) == {"vllm", "torch", "searchlens"} and measured["arguments"]["rows"] == 1
    (line,) = measured["lines"]
    assert line["requests"] == 8 and line["generated"] == line["returned"] > 0
    assert line["full"]["tokens"] == line["generated"], "one row is always full"
    assert line["full"]["steps"] >= line["generated"] and line["full"]["host"] > 0
    assert 0 < line["full"]["seconds"] <= line["seconds"] * 1.001


def test_another_model_runner_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    with pytest.raises(InputError, match="only '0' is allowed"):
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


def test_missing_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nothing/config\.json"):
        VllmEngine(tmp_path / "nothing", device=DEVICE)


def test_missing_tokenizer(folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(InputError, match=r"tokenizer\.json has no vocabulary"):
        VllmEngine(tmp_path, device=DEVICE)


@pytest.mark.parametrize(
    ("index", "message"), [(False, r"has no \*\.safetensors"), (True, "names b.safetensors, which")]
)
def test_missing_weights(folder: Path, tmp_path: Path, index: bool, message: str) -> None:
    """No weight file at all, and one of two missing, whose weights vLLM would not initialise."""
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    if index:
        (tmp_path / "a.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
        parts = {"model.norm.weight": "a.safetensors", "lm_head.weight": "b.safetensors"}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    with pytest.raises(InputError, match=message):
        VllmEngine(tmp_path, **START)


def test_tokenizer_of_another_model(folder: Path, tmp_path: Path) -> None:
    """An id without a row in the model is refused before anything is loaded."""
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["new"] = VOCAB + 4
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InputError, match=rf"token 'new' has id {VOCAB + 4}, but config.json has vocab_size {VOCAB}"):
        VllmEngine(tmp_path, device=DEVICE)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_rows": 0}, "max_rows is 0"),
        ({"max_model_len": 129}, "max_model_len is 129; allowed is 1 to 128"),
        ({"load_format": "tarball"}, "tarball"),
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
