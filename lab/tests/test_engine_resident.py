"""Rows that stay on the device against the other path of the embedded engine: the same texts from the same seeds.

On CUDA the step is a graph; here the same step runs without one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from searchlens.engines import _llama  # noqa: E402
from searchlens.engines._llama import Llama  # noqa: E402
from searchlens.engines._prompts import prefill  # noqa: E402
from searchlens.engines.base import Completion, EngineMemoryError, Request, Sampling  # noqa: E402
from searchlens.engines.transformers import TransformersEngine  # noqa: E402
from searchlens.search.driver import Result, run, start  # noqa: E402
from searchlens.search.policy import from_spec  # noqa: E402
from searchlens.search.task import Task  # noqa: E402
from searchlens_lab.resident import _device_rows, _resident  # noqa: E402
from searchlens_lab.resident._device_rows import RUNNING, DeviceRows, Features  # noqa: E402
from searchlens_lab.resident._resident import KeptTexts  # noqa: E402
from searchlens_lab.resident.engine import ResidentEngine  # noqa: E402
from test_engine_contract import FILTERS, TEMPERATURE, VOCAB, finish, save, various  # noqa: E402

Engines = tuple[TransformersEngine, TransformersEngine]
SAMPLINGS = (Sampling(0.0), TEMPERATURE, *FILTERS.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("resident"))


@pytest.fixture(scope="module")
def engines(folder: Path) -> Engines:
    """The other path, and rows on the device; with so few rows that places are used again."""
    plain, resident = (
        make(folder, max_rows=rows, threads=1) for make, rows in ((TransformersEngine, 64), (ResidentEngine, 24))
    )
    return plain, resident


def assert_equal(first: Sequence[Completion], second: Sequence[Completion]) -> None:
    """Tokens and ends to the last bit, numbers up to rounding."""
    for one, other in zip(first, second, strict=True):
        assert one.finish == other.finish
        for name, values, others in zip(Completion._fields, one, other, strict=True):
            if name.endswith("tokens") and values is not None:
                np.testing.assert_array_equal(values, others)
                assert values.dtype == others.dtype
            elif isinstance(values, np.ndarray):
                np.testing.assert_allclose(values, others, rtol=1e-5, atol=1e-5)
                assert values.dtype == others.dtype
            elif name not in ("finish", "reused"):
                assert values is others is None


def test_whatever_is_asked_for(engines: Engines) -> None:
    """Filters, stop tokens, limits, measures and likely tokens, mixed.

    Most continue a text, also under penalties, some of these one of a single token.
    """
    requests = various(SAMPLINGS, 300)
    assert {request.top for request in requests} == {0, 2, 5}
    assert any(request.prefix and request.sampling == SAMPLINGS[-1] for request in requests)
    assert {0, 1} < {len(request.prefix) for request in requests}
    plain, resident = (finish(engine, requests) for engine in engines)
    assert {completion.finish for completion in plain} == {"stop", "length"}
    assert_equal(plain, resident)


def test_needs_that_come_and_go(engines: Engines) -> None:
    """A row that began before another one needed more has its numbers at their places; idle, needs are forgotten."""
    late = [Request((1, 20, 21), SAMPLINGS[i], 100 + i, 40, (), measures=i % 3 == 0) for i in range(len(SAMPLINGS))]
    early = [Request((1, 20), TEMPERATURE, i, 40, ()) for i in range(12)]
    completions = []
    for engine in engines:
        engine.clear()
        done: dict[int, Completion] = {}
        for i, request in enumerate(early):
            engine.add(i, request)
        engine.add(99, Request((1, 22), TEMPERATURE, 0, 2, ()))
        done.update(engine.step())
        for i, request in enumerate(late):
            engine.add(12 + i, request)
        while len(done) < 13 + len(late):
            done.update(engine.step())
        completions.append([done[i] for i in sorted(done)])
    assert_equal(*completions)


@pytest.mark.parametrize("steps", [1, 3, 40])
def test_visits_change_nothing(engines: Engines, folder: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """However many steps lie between two visits, and however wide the window is."""
    monkeypatch.setattr(_resident, "_STEPS", steps)
    monkeypatch.setattr(_resident, "_WINDOW", 16)
    requests = various(SAMPLINGS, 80)
    engine = ResidentEngine(folder, max_rows=8, threads=1)
    assert_equal(finish(engines[0], requests), finish(engine, requests))


def test_prompts_are_computed_ahead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass computes the prompts of all that wait, as far as a pass goes, and one request pays for each."""
    passes: list[int] = []

    def counted(model: Llama, prompts: Sequence[tuple[int, ...]]) -> Any:
        passes.append(len(prompts))
        return prefill(model, prompts)

    monkeypatch.setattr(_resident, "prefill", counted)
    prompts = [(1, 20 + i, 21) for i in range(20)]
    requests = [Request(prompts[i // 3], TEMPERATURE, i, 6, ()) for i in range(60)]
    for room, expected in ((2048, [20]), (27, [9, 9, 2])):
        engine = ResidentEngine(folder, max_rows=4, threads=1)
        assert engine._resident is not None
        engine._resident._prefill_tokens = room
        passes.clear()
        completions = finish(engine, requests)
        assert passes == expected
        assert sum(3 - completion.reused for completion in completions) == 60


@pytest.mark.parametrize("max_rows", [4, 24, 128])
def test_continuations_begin_with_what_finished_rows_have(engines: Engines, folder: Path, max_rows: int) -> None:
    """With few rows most texts have lost their places by then; the numbers are the same."""
    resident = ResidentEngine(folder, max_rows=max_rows, threads=1)
    begun = [Request((1, 20 + i % 5), TEMPERATURE, i, 9, ()) for i in range(40)]
    results, reused = [], []
    for engine in (engines[0], resident):
        engine.clear()
        texts = dict(_all(engine, dict(enumerate([begun[0]._replace(prefix=(30,)), *begun]))))
        longer = {
            i: request._replace(seed=99 + i, prefix=tuple(texts[i + 1].tokens.tolist())[: 2 + i % 7])
            for i, request in enumerate(begun)
        }
        done = dict(_all(engine, longer))
        results.append([texts[i] for i in sorted(texts)] + [done[i] for i in sorted(done)])
        reused.append(sum(done[i].reused for i in done))
    assert_equal(*results)
    whole = sum(1 + len(request.prefix) for request in longer.values())
    assert reused[1] == whole if max_rows == 128 else reused[1] < whole


@pytest.mark.parametrize("max_rows", [8, 33, 128])
def test_a_token_beam_computes_no_text_again(folder: Path, max_rows: int) -> None:
    """However few rows there are: a path goes on in the row of its parent, and its siblings copy from there."""
    engine = ResidentEngine(folder, max_rows=max_rows, threads=1)
    tasks = [Task((1, 20 + i), 7 + i, 24, (2,), (10, 11), str, tuple) for i in range(8)]
    policy = from_spec("beam", {"controller": "beam"})
    outcomes = [done for _, done in run(((i, start(task, policy)) for i, task in enumerate(tasks)), engine)]
    requests, prefilled = (sum(getattr(done.usage, name) for done in outcomes) for name in ("requests", "prefilled"))
    prompts = sum(len(task.prompt) for task in tasks)
    assert prefilled == prompts + requests - len(tasks), "of a path its last token alone, which a step feeds"


def test_no_row_is_overwritten_that_others_copy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        count = int(rng.integers(1, 12))
        rows = rng.permutation(16)[:count]
        sources = rng.integers(-1, 16, count)
        places = _resident._own_first(rows, sources)
        assert sorted(places) == sorted(rows)
        for row in set(sources) & set(rows):
            (request,) = np.flatnonzero(places == row)
            assert sources[request] == row


def _all(engine: TransformersEngine, requests: dict[int, Request]) -> list[tuple[int, Completion]]:
    """Run requests on an engine as it is, without clearing it."""
    for number, request in requests.items():
        engine.add(number, request)
    done: list[tuple[int, Completion]] = []
    while len(done) < len(requests):
        done += engine.step()
    return done


def test_no_request_leaves_the_rows(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise AssertionError("the other path")

    monkeypatch.setattr(TransformersEngine, "_admit", fails)
    assert len(finish(engines[1], various(SAMPLINGS, 60))) == 60


def test_likely_tokens(engines: Engines, folder: Path, graph: type[Graph]) -> None:
    """The steps that write them go to where memory has grown. Rows that want none are longer than those that do."""
    requests = [
        Request((1, 20 + i % 7), TEMPERATURE, i, 1 + i, (), measures=i % 2 == 0, top=(0, 1, 3, 5)[i % 4])
        for i in range(60)
    ]
    few = [request._replace(max_tokens=2, top=VOCAB - 1) for request in requests[:5]]
    engine = ResidentEngine(folder, max_rows=8, threads=1)
    for part in (requests, few, requests):
        assert_equal(finish(engines[0], part), finish(engine, part))
    device = engine._resident._device
    assert device._top.shape == (8, 65, 2, VOCAB)
    assert {features.top for *_, features in device._graphs} == {0, 8, VOCAB}, "of both trials at the start one stays"


def test_rows_without_likely_tokens_take_the_step_that_they_took(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once no row that wants any is left; until then all rows take the step that has them."""
    steps: list[int] = []
    step = DeviceRows._step

    def noted(self: DeviceRows, rows: int, window: int, features: Features) -> None:
        steps.append(features.top)
        step(self, rows, window, features)

    monkeypatch.setattr(DeviceRows, "_step", noted)
    engine = ResidentEngine(folder, max_rows=8, threads=1)
    for top, expected in ((0, 0), (5, 8), (0, 0)):
        steps.clear()
        _all(engine, {0: Request((1, 20), TEMPERATURE, 1, 12, ()), 1: Request((1, 21), TEMPERATURE, 2, 3, (), top=top)})
        assert steps == [expected] * 12


def test_one_token_takes_one_step(folder: Path) -> None:
    """No row waits for steps that no row needs."""
    engine = ResidentEngine(folder, max_rows=8, threads=1)
    _all(engine, {i: Request((1, 20 + i), TEMPERATURE, i, 1, (), top=4) for i in range(8)})
    assert engine.steps == 1


def test_no_memory_for_likely_tokens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says so, and with how many rows, as for other memory that runs out in a step."""
    engine = ResidentEngine(folder, max_rows=8, threads=1)

    def fails(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(DeviceRows, "make_room", fails)
    engine.add(0, Request((1, 20), TEMPERATURE, 1, 12, (), top=50))
    with pytest.raises(EngineMemoryError, match="out of memory") as caught:
        engine.step()
    assert caught.value.max_rows == 8


@pytest.mark.parametrize("controller", ["power", "entropy_tree", "beam", "lookahead", "step_beam"])
def test_same_searches(engines: Engines, controller: str) -> None:
    """Texts and, up to rounding, scores."""
    local = {} if controller == "beam" else {"local": {"temperature": 0.8}}
    policy = from_spec(controller, {**local, "controller": controller})
    answers = []
    for engine in engines:
        tasks = [Task((1, 20 + i), 7 + i, 24, (2,), (10, 11), str, tuple) for i in range(6)]
        done = dict(run(((i, start(task, policy)) for i, task in enumerate(tasks)), engine))
        assert all(isinstance(outcome, Result) for outcome in done.values()), done
        answers.append([candidate for i in range(6) for candidate in done[i].candidates])
    for one, other in zip(*answers, strict=True):
        assert tuple(one.tokens) == tuple(other.tokens)
        assert one.score == pytest.approx(other.score, rel=1e-4)


class Graph:
    """What a CUDA graph does with a step, as far as a CPU can: capturing changes what the step changes, too."""

    steps: list[Any] = []  # noqa: RUF012  # of all rows, in the order of time
    refuses = False

    def capture_begin(self, **_: object) -> None:
        if self.refuses:
            raise RuntimeError("operation not permitted when stream is capturing\nSearch for it in the manual.")

    def capture_end(self) -> None:
        self.replay = self.steps[-1]


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> type[Graph]:
    """Steps are captured and replayed, as on CUDA."""
    step, init = DeviceRows._step, DeviceRows.__init__
    stream: Any = SimpleNamespace(wait_stream=lambda other: None)

    def on_a_stream(self: DeviceRows, *args: Any) -> None:
        init(self, *args)
        self._stream = stream

    def noted(self: DeviceRows, *args: Any) -> None:
        Graph.steps.append(lambda: step(self, *args))
        step(self, *args)

    monkeypatch.setattr(DeviceRows, "__init__", on_a_stream)
    monkeypatch.setattr(DeviceRows, "_step", noted)
    for name, value in (("CUDAGraph", Graph), ("current_stream", lambda device: stream), ("stream", nullcontext)):
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(Graph, "steps", [])
    return Graph


def test_captures_change_nothing(engines: Engines, folder: Path, graph: type[Graph]) -> None:
    requests = various(SAMPLINGS, 80)
    engine = ResidentEngine(folder, max_rows=8, threads=1)
    assert_equal(finish(engines[0], requests), finish(engine, requests))
    assert len(graph.steps) > 2


def test_a_device_that_cannot_capture(
    engines: Engines,
    folder: Path,
    graph: type[Graph],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other path runs all requests, and one line says so."""
    monkeypatch.setattr(graph, "refuses", True)
    requests = various(SAMPLINGS, 40)
    engine = ResidentEngine(folder, max_rows=8, threads=1)
    assert_equal(finish(engines[0], requests), finish(engine, requests))
    why = "operation not permitted when stream is capturing"
    assert [record.getMessage() for record in caplog.records] == [
        f"rows do not stay on cpu, so that sampling is slower ({why})"
    ]


def test_a_kernel_for_attention(engines: Engines, folder: Path, graph: type[Graph]) -> None:
    """It gets whole columns and the state of rows; there is one graph for all windows."""
    calls = 0

    def kernel(queries: torch.Tensor, cache: torch.Tensor, position: torch.Tensor, finish: torch.Tensor) -> Any:
        nonlocal calls
        calls += 1
        rows = len(queries)
        out = _device_rows._attend(queries, cache[:, :rows], torch.arange(cache.shape[3]) > position[:, None])
        return out * (finish == RUNNING)[:, None]

    requests = various(SAMPLINGS, 80)
    engine = ResidentEngine(folder, max_rows=8, threads=1)
    device = engine._resident._device
    device._kernel = kernel
    assert_equal(finish(engines[0], requests), finish(engine, requests))
    assert calls > 100
    longest = engine.max_model_len
    assert {window for _, window, _ in device._graphs} == {longest, 1}, "the trial at the start had no kernel yet"


def test_without_the_kernel(engines: Engines, caplog: pytest.LogCaptureFixture) -> None:
    """Where it cannot run, as on a CPU, a line of the log says so."""
    resident = engines[1]._resident
    with caplog.at_level("INFO"):
        assert resident._device._load_kernel(heads=4) is None
    assert [record.getMessage()[:24] for record in caplog.records] == ["attention without Triton"]


@pytest.mark.parametrize("features", [Features(), Features((True,) * 4, True, True, 8)])
def test_a_step_asks_the_device_nothing(folder: Path, features: Features) -> None:
    """As a CUDA graph requires. The meta device has no values, so what depends on one raises; it is no CPU either."""
    weights = _llama.load(folder, torch.float32)
    with torch.inference_mode():
        on_meta = Llama(weights, torch.device("meta"))
        rows = DeviceRows(on_meta, on_meta.logits, rows=8, columns=128, steps=2)
        rows.make_room(16, features.top)
        rows._step(8, 64, features)
        with pytest.raises((NotImplementedError, RuntimeError)):
            rows.progress(8)


# ---- texts that finished rows still have


PROMPT, OTHER = (1, 5), (1, 6)


def test_texts_from_before_the_first_search_are_found() -> None:
    """Rows may have been given away in between; the last token of a text was never fed to the model."""
    kept = KeptTexts(8)
    kept.keep(3, PROMPT, (7, 8, 9))
    kept.keep(5, OTHER, (7, 8, 9))
    for row in (5, 5, 0):
        kept.drop(row)
    assert not kept.is_sorted
    assert kept.find(PROMPT, (7, 8)) == 3
    assert kept.find(PROMPT, (7, 8, 9)) is None
    assert kept.find(OTHER, (7, 8)) is None


def test_any_order_of_keeping_and_dropping() -> None:
    """What is found is what a look at all rows finds."""
    draw = random.Random(0)
    kept, rows = KeptTexts(12), dict[int, tuple[int, ...]]()
    for _ in range(3000):
        row = draw.randrange(12)
        if rows.pop(row, None):
            kept.drop(row)
        else:
            rows[row] = tuple(draw.randrange(2) for _ in range(draw.randint(1, 5)))
            kept.keep(row, PROMPT, rows[row])
        beginning = tuple(draw.randrange(2) for _ in range(draw.randint(1, 4)))
        matches = {r for r, text in rows.items() if len(text) > len(beginning) and text[: len(beginning)] == beginning}
        found = kept.find(PROMPT, beginning)
        assert found in matches if matches else found is None
