"""Generation with scripted engines: one run per pool, chunks and shards as they complete, and what breaks meanwhile."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from conftest import Logged, Make, Patch, Raw
from searchlens import sampling as stage
from searchlens.engines.base import Completion, EngineMemoryError, Request, RequestError, Sampling
from searchlens.errors import InputError, JobError
from searchlens.plan import Grid
from searchlens.sampling import generate
from searchlens.search.policy import Policy
from searchlens.search.task import Candidate, Evaluator, Search, Task
from searchlens.search.thoughts import ThoughtTree
from searchlens.seeds import sample_seed

MODEL = Path(__file__).parents[2] / "resources" / "zoo" / "micro-1m-base"
CELL = ("toy-base", "sums")
RUNS = 3 * 6 * 4 + 6  # three policies, six questions, four samples, and greedy
CHUNKS = 3 * 6 + 2


class Scripted:
    """Completes one request per step, in an order of its own; its tokens are a function of the seed.

    ``dies`` raises in step ``at``; ``refused`` are the requests, by number, that it gives up.
    """

    vocab_size, groups, device = 100, (1,), "cpu"

    def __init__(
        self,
        max_rows: int | None = None,
        *,
        order: Callable[[int], int] = lambda waiting: 0,
        dies: Exception | None = None,
        at: int = 0,
        refused: Sequence[int] = (),
        max_model_len: int = 1000,
        repeatable: bool = False,
    ) -> None:
        self.max_rows, self.max_model_len, self.repeatable = max_rows or 8, max_model_len, repeatable
        self.order, self.dies, self.at, self.refused = order, dies, at, refused
        self.waiting: list[tuple[int, Request]] = []
        self.asked: list[Request] = []
        self.clears = self.steps = self.most = 0
        self.closed = False
        self.each_step: Callable[[], None] = lambda: None

    def clear(self) -> None:
        self.clears += 1

    def add(self, request_id: int, request: Request) -> None:
        self.waiting.append((request_id, request))
        self.asked.append(request)
        self.most = max(self.most, len(self.waiting))

    def step(self) -> list[tuple[int, Completion | RequestError]]:
        self.each_step()
        if self.dies and self.steps == self.at:
            raise self.dies
        self.steps += 1
        request_id, request = self.waiting.pop(self.order(len(self.waiting)))
        if request_id in self.refused:
            return [(request_id, RequestError("aborted"))]
        random = np.random.default_rng(request.seed)
        tokens = random.integers(5, 60, size=int(random.integers(1, request.max_tokens + 1)), dtype=np.int32)
        zeros = np.zeros(len(tokens), np.float32)
        return [(request_id, Completion(tokens, zeros - 0.5, zeros - 0.5, "length", reused=len(request.prompt)))]

    def close(self) -> None:
        self.closed = True


Start = Callable[..., list[int | None]]


@pytest.fixture
def start(monkeypatch: Patch) -> Start:
    """Have a job start these engines, one after the other; the result lists the rows asked for at each start."""

    def scripted(*engines: Scripted | Exception) -> list[int | None]:
        left, rows = list(engines), []

        def started(folder: Path, spec: Any, max_rows: int | None, threads: int, **_: Any) -> Scripted:
            rows.append(max_rows)
            engine = left.pop(0)
            if isinstance(engine, Exception):
                raise engine
            return engine

        monkeypatch.setattr(stage._job, "start_engine", started)
        return rows

    return scripted


@pytest.fixture
def study(raw: Raw) -> dict[str, Any]:
    """Three policies and greedy on six questions; every question a chunk of its own."""
    raw["checkpoints"]["toy-base"] = {"path": str(MODEL), "engine": "vllm"}
    return raw | {"chunk_samples": 4}


def sample(grid: Grid) -> None:
    (pool,) = grid.jobs.pools(*CELL)
    generate(grid, *CELL, grid.current_manifest(pool))


def shards(grid: Grid) -> dict[str, pl.DataFrame]:
    folder = grid.layout.results / "generations"
    return {path.parent.name: pl.read_parquet(path) for path in sorted(folder.glob("*/*/*/*.parquet"))}


def chunks(grid: Grid) -> list[Path]:
    return grid.layout.every(grid.layout.generation("*", "*", "*") / "chunks" / "*.chunk")


def sidecars(grid: Grid) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((grid.layout.results / "generations").glob("*/*/*/*.json"))]


def test_one_run_of_the_driver_serves_the_pool(study: Raw, make_grid: Make, start: Start) -> None:
    """No barrier between chunks or policies: everything is alive at once, and nothing is asked for twice."""
    engine = Scripted()
    start(engine)
    sample(make_grid(study))
    assert (engine.clears, engine.most, len(engine.asked)) == (1, RUNS, RUNS)
    assert len(shards(make_grid(study))) == 4 and not chunks(make_grid(study))
    assert engine.closed


def test_where_an_engine_repeats_chunks_are_sampled_one_by_one(study: Raw, make_grid: Make, start: Start) -> None:
    engine = Scripted(repeatable=True)
    start(engine)
    sample(make_grid(study))
    assert (engine.clears, engine.most) == (CHUNKS, 4)


def test_the_order_of_completion_does_not_show(study: Raw, make_grid: Make, start: Start) -> None:
    first, other = make_grid(study), make_grid(study | {"results": "other"})
    start(Scripted(), Scripted(order=lambda waiting: waiting // 2))
    sample(first)
    sample(other)
    assert {one["sha256"] for one in sidecars(first)} == {one["sha256"] for one in sidecars(other)}


def test_shards_are_published_as_soon_as_they_are_whole(study: Raw, make_grid: Make, start: Start) -> None:
    """In order of completion the first policy is there after its 24 samples, while the others wait."""
    grid, engine = make_grid(study), Scripted()
    seen: list[tuple[int, int]] = []
    engine.each_step = lambda: seen.append((len(shards(grid)), len(chunks(grid))))
    start(engine)
    sample(grid)
    assert [count for count, _ in seen[::24]] == [0, 1, 2, 3]
    assert [count for _, count in seen[:24]] == [i // 4 for i in range(24)]


def test_the_longest_search_starts_first_and_equal_ones_in_their_order(
    study: Raw, make_grid: Make, start: Start
) -> None:
    """By the tokens that a run is expected to draw: what starts last ends last, alone."""
    spec = {"controller": "power", "local": {"temperature": 0.5}}
    study["policies"]["short"] = {**spec, "scheduler": {"name": "blocks", "blocks": 2, "steps": 1}}
    study["policies"]["long"] = {**spec, "scheduler": {"name": "blocks", "blocks": 4, "steps": 9}}
    study["pools"]["searches"] = ["short", "long"]
    study["benchmarks"]["sums"]["searches"] = "searches"
    engine = Scripted()
    start(engine)
    sample(make_grid(study))
    limit = study["benchmarks"]["sums"]["max_tokens"]
    assert [request.max_tokens for request in engine.asked[: 2 * 24]] == [limit // 4] * 24 + [limit // 2] * 24
    grid = make_grid(study)
    seeds = {request.seed: place for place, request in enumerate(engine.asked[2 * 24 :]) if request.max_tokens == limit}
    first = {
        generation.policies[0]: seeds[sample_seed(generation.id, "q0", 0)]
        for generation in grid.jobs.generations(*CELL)
        if generation.policies[0] not in ("short", "long", "greedy")
    }
    assert list(first) == sorted(first, key=first.__getitem__), "plain policies in the order of the configuration"


def test_two_chunks_under_way_share_by_tokens(study: Raw, make_grid: Make, start: Start, monkeypatch: Patch) -> None:
    """Two policies on one question with one sample each of a, b in the order a1 b1 a2 b2, by hand."""
    study |= {"samples": 2, "budgets": [1, 2], "references": [], "default_policy": "temp_0.5"}
    study["pools"]["three"] = ["temp_0.5", "topp0.9_t0.7"]
    study["benchmarks"]["sums"]["questions"] = 1
    picks = iter([0, 1, 0, 0])  # of [a1 a2 b1 b2], [a2 b1 b2], [a2 b2], [b2]
    grid, engine = make_grid(study), Scripted(order=lambda waiting: next(picks))
    monkeypatch.setattr(stage._sample.time, "monotonic", lambda: float(engine.steps))
    start(engine)
    sample(grid)
    frames = shards(grid)
    a1, a2, b1, _ = (
        frames[g.id]["n_tokens"][place] for g in grid.jobs.pools(*CELL)[0].generations for place in range(2)
    )
    seconds = {one["policies"][0]: one["wall_seconds"] for one in sidecars(grid)}
    of_a = 3 * (a1 + a2) / (a1 + a2 + b1)
    assert seconds == {"temp_0.5": pytest.approx(of_a), "topp0.9_t0.7": pytest.approx(4 - of_a)}


def test_a_dead_engine_loses_no_finished_chunk_and_the_next_run_goes_on(
    study: Raw, make_grid: Make, start: Start
) -> None:
    whole, grid = make_grid(study | {"results": "whole"}), make_grid(study)
    again = Scripted()
    start(Scripted(), Scripted(dies=OSError("the device fell off"), at=50), again)
    sample(whole)
    says = r"the engine died: OSError: the device fell off\nHint: .*same command to resume"
    with pytest.raises(JobError, match=says):
        sample(grid)
    # 50 runs: two whole policies, and two samples of the thirteenth question
    assert len(shards(grid)) == 2 and not chunks(grid)
    sample(grid)
    assert len(again.asked) == RUNS - 48
    assert {one["sha256"] for one in sidecars(grid)} == {one["sha256"] for one in sidecars(whole)}


def test_chunks_of_an_unfinished_shard_are_kept(study: Raw, make_grid: Make, start: Start, caplog: Logged) -> None:
    caplog.set_level("INFO")
    grid, again = make_grid(study), Scripted()
    start(Scripted(dies=OSError("lost"), at=22), again)
    with pytest.raises(JobError):
        sample(grid)
    assert len(chunks(grid)) == 5 and not shards(grid)
    chunks(grid)[0].write_bytes(b"half a file")
    sample(grid)
    assert f"{RUNS - 4 * 4} samples to draw" in caplog.text
    assert len(again.asked) == RUNS - 4 * 4, "the unreadable chunk is made again, the others are not"
    assert all(frame.n_unique(["question", "sample"]) == frame.height for frame in shards(grid).values())


def test_a_job_killed_before_publishing_needs_no_engine(
    study: Raw, make_grid: Make, start: Start, monkeypatch: Patch
) -> None:
    grid = make_grid(study)
    start(Scripted())
    with monkeypatch.context() as patch, pytest.raises(JobError, match="lost while the job ran"):
        patch.setattr(stage._chunks.MissingShard, "publish", lambda shard: None)
        sample(grid)
    assert len(chunks(grid)) == CHUNKS
    assert start() == [], "another start would find no engine"
    sample(grid)
    assert len(shards(grid)) == 4 and not chunks(grid)


def test_memory_that_is_short_at_the_start_is_tried_once_with_half_the_rows(
    study: Raw, make_grid: Make, start: Start, caplog: Logged
) -> None:
    study["checkpoints"]["toy-base"]["max_rows"] = 100
    rows = start(EngineMemoryError("no room for keys and values", 100), Scripted())
    sample(make_grid(study))
    assert rows == [100, 50] and len(shards(make_grid(study))) == 4
    assert "out of memory with 100 rows (no room for keys and values): trying again with 50" in caplog.text


def test_memory_that_runs_out_in_a_step_costs_no_finished_chunk(study: Raw, make_grid: Make, start: Start) -> None:
    first, second = Scripted(dies=EngineMemoryError("out of memory", 64), at=30), Scripted()
    assert start(first, second) == []
    sample(make_grid(study))
    assert first.closed and len(second.asked) == RUNS - 28


@pytest.mark.parametrize(("engine", "says"), [("transformers", r"max_rows;"), ("vllm", r"max_rows or .*_utilization;")])
def test_memory_that_is_short_again_is_an_error_that_says_what_to_set(
    study: Raw, make_grid: Make, start: Start, engine: str, says: str
) -> None:
    study["checkpoints"]["toy-base"]["engine"] = engine
    rows = start(EngineMemoryError("short", 64), Scripted(dies=EngineMemoryError("short", 32), at=9))
    with pytest.raises(InputError, match=rf"(?s)max_rows 64, and again with 32: short.*checkpoints\.toy-base\.{says}"):
        sample(make_grid(study))
    assert rows == [None, 32] and len(chunks(make_grid(study))) == 2


@pytest.mark.parametrize("kind", ["OutOfMemoryError", "RuntimeError"])
def test_the_embedded_engine_says_that_memory_ran_out(monkeypatch: Patch, kind: str) -> None:
    """CUDA and its libraries have no error of their own for it."""
    torch = pytest.importorskip("torch")
    from searchlens.engines.transformers import TransformersEngine

    def full(engine: TransformersEngine) -> None:
        raise getattr(torch, kind, RuntimeError)("CUDA out of memory.\nTried to allocate 2 GiB")

    engine = TransformersEngine(MODEL, max_rows=64, threads=1)
    monkeypatch.setattr(TransformersEngine, "_decode", full)
    engine.add(0, Request((5,), Sampling(1.0), 0, 4, ()))
    with pytest.raises(EngineMemoryError, match=r"CUDA out of memory\. Tried to allocate") as error:
        engine.step()
    assert error.value.max_rows == 64


def test_a_request_that_the_engine_gives_up_fails_its_run_alone(study: Raw, make_grid: Make, start: Start) -> None:
    grid = make_grid(study | {"failed_share": 0.25})
    start(Scripted(refused=[5]))
    sample(grid)
    frame = pl.concat(shards(grid).values())
    (row,) = frame.filter(pl.col("finish") == "failed").rows(named=True)
    assert (row["question"], row["sample"], row["text"], row["generated"]) == ("q1", 1, "", 0)
    assert json.loads(row["details"]) == {"failed": "RequestError: aborted"}
    assert frame.height == RUNS


def test_too_many_of_them_end_the_job(study: Raw, make_grid: Make, start: Start) -> None:
    start(Scripted(refused=[5]))
    says = r"1 searches of temp_0\.5 failed; sums question q1, run 1: RequestError: aborted"
    with pytest.raises(JobError, match=says):
        sample(make_grid(study))
    assert len(chunks(make_grid(study))) == 1


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("config.json", {"vocab_size": 500}, r": tokenizer\.json: token .* has id 639, but .* has vocab_size 500"),
        (
            "generation_config.json",
            {"eos_token_id": [2, 700]},
            r"/generation_config\.json: eos_token_id is '\[2, 700\]'; allowed: a token id from 0 to 639",
        ),
    ],
)
def test_a_tokenizer_of_another_model_is_refused_before_the_engine_starts(
    study: Raw,
    make_grid: Make,
    start: Start,
    tmp_path: Path,
    engine: str,
    name: str,
    content: Any,
    says: str,
) -> None:
    shutil.copytree(MODEL, tmp_path / "mixed")
    path = tmp_path / "mixed" / name
    path.write_text(json.dumps(json.loads(path.read_text()) | content))
    study["checkpoints"]["toy-base"] = {"path": "mixed", "engine": engine}
    rows = start()
    with pytest.raises(InputError, match=rf"mixed{says}"):
        sample(make_grid(study))
    assert rows == []


def searched(study: Raw, **policies: Any) -> dict[str, Any]:
    """The study with these searches on Base."""
    study["policies"] |= policies
    study["pools"]["searches"] = list(policies)
    study["benchmarks"]["sums"]["searches"] = "searches"
    return study


ASKING = {"name": "self_evaluation", "right": " is", "wrong": " not"}


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (
            {"controller": {"name": "beam", "width": 320}},
            "controller beam: width is 320; allowed: at most 319, because 639 tokens can be drawn",
        ),
        (
            {"controller": {"name": "entropy_tree", "children_per_position": 639}},
            "controller entropy_tree: children_per_position is 639; allowed: at most 638, because",
        ),
        (
            {"controller": "mcts", "evaluator": ASKING | {"top": 640}},
            "evaluator self_evaluation: top is 640; allowed: at most 639, because",
        ),
        (
            {"controller": "mcts", "evaluator": ASKING | {"right": " yes"}},
            "evaluator self_evaluation: right is ' yes', which is 3 tokens; allowed: a text of one token",
        ),
    ],
)
def test_a_policy_that_the_vocabulary_does_not_serve_is_refused_before_the_engine_starts(
    study: Raw, make_grid: Make, start: Start, policy: dict[str, Any], says: str
) -> None:
    rows = start()
    with pytest.raises(InputError) as error:
        sample(make_grid(searched(study, mine=policy)))
    assert f"policy 'mine': {says}" in str(error.value)
    assert rows == []


def test_the_question_of_an_evaluator_must_fit_too(study: Raw, make_grid: Make, start: Start) -> None:
    """The question stands behind a whole candidate, and its answer behind that: exactly so much room is enough."""
    mine = {"controller": "thought_tree", "evaluator": ASKING | {"question": " is is"}}
    grid = make_grid(searched(study, mine=mine))
    (pool,) = grid.jobs.pools(*CELL)
    longest = max(map(len, stage.Job(grid, pool, threads=1).prompts))
    start(Scripted(max_model_len=longest + 8 + 2))
    says = rf"{longest} tokens, 3 of an evaluator's question and max_tokens 8 need .* is"
    with pytest.raises(InputError, match=says):
        sample(grid)
    start(Scripted(max_model_len=longest + 8 + 3))
    assert stage.Job(grid, pool, threads=1).engine.max_model_len == longest + 11


def good(tokens: Sequence[int] = (7, 8), **other: Any) -> Candidate:
    ids, zeros = np.array(tokens, np.int32), np.zeros(len(tokens), np.float32)
    return Candidate(
        **{"tokens": ids, "logprobs": zeros, "sampling_logprobs": zeros, "finish": "stop", "score": 0.0} | other
    )


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (None, "None, not a list of candidates"),
        ([], "0 candidates, it should return 2"),
        ([good()] * 3, "3 candidates, it should return 2"),
        ([good(), "text"], "not a list of candidates"),
        ([good(), good((7, 100))], "a candidate with token id 100, but ids go from 0 to 99"),
        ([good((-1, 3)), good()], "a candidate with token id -1, but ids go from 0 to 99"),
        ([good(), good(())], "no array of ids"),
        ([good(), good()._replace(tokens=np.zeros((2, 1), np.int32))], "no array of ids"),
        ([good(), good()._replace(tokens=np.ones(2))], "no array of ids"),
        ([good(), good()._replace(tokens=[7, 8])], r"a candidate with tokens \[7, 8\], no array of ids"),
        ([good(), good(logprobs=np.zeros(1))], r"a candidate of 2 tokens with logprobs of shape \(1,\)"),
        ([good(), good(score=float("nan"))], "a candidate with score nan"),
        ([good(), good(logprobs=np.array([-1, np.nan]))], "a candidate with logprobs that are not numbers"),
        ([good(sampling_logprobs=np.array([np.nan, 0])), good()], "with sampling_logprobs that are not numbers"),
    ],
)
def test_a_controller_that_returns_no_samples_fails_its_run_alone(
    study: Raw, make_grid: Make, start: Start, monkeypatch: Patch, returned: Any, reason: str
) -> None:
    """A user's own controller: its reason is kept with what it cost, every other sample is there."""

    def search(self: ThoughtTree, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        yield [Request(task.prompt, policy.local, task.seed, 1, ())]
        return returned  # type: ignore[no-any-return]

    monkeypatch.setattr(ThoughtTree, "search", search)
    start(Scripted())
    grid = make_grid(searched(study, mine={"controller": {"name": "thought_tree", "width": 2}}) | {"failed_share": 1.0})
    sample(grid)
    (pool,) = grid.jobs.pools(*CELL)
    (mine,) = (generation.id for generation in pool.generations if "mine" in generation.policies)
    frames = shards(grid)
    failed = frames.pop(mine)
    assert failed.height == 6 * 4 and (failed["finish"] == "failed").all()
    assert all(re.search(f"controller thought_tree returned .*{reason}", text) for text in failed["details"])
    assert failed["requests"].sum() == 6 * 2
    assert all((frame["finish"] != "failed").all() for frame in frames.values()) and len(frames) == 4


@pytest.mark.parametrize("declared", [False, True])
def test_a_prompt_that_does_not_fit_is_found_before_anything_is_sampled(
    study: Raw, make_grid: Make, start: Start, declared: bool
) -> None:
    """A declared context is checked before weights are loaded."""
    engine = Scripted(max_model_len=10)
    rows = start() if declared else start(engine)
    study["checkpoints"]["toy-base"]["context"] = 10 if declared else None
    with pytest.raises(InputError, match=r"sums: its longest prompt of \d+ tokens and max_tokens 8 need .* is 10"):
        sample(make_grid(study))
    assert not engine.asked and len(rows) == (not declared)
