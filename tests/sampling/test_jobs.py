"""Jobs that end early, and jobs that meet."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from conftest import Patch, Raw, micro_study, write_config
from searchlens.config import check
from searchlens.config.model import from_plain, plain
from searchlens.config.sampled import CheckpointSpec, VllmSpec
from searchlens.engines import kind
from searchlens.errors import JobError, JobStoppedError, counted
from searchlens.plan import Grid
from searchlens.sampling import GraceExpired, Job, Notice, _job, _work, generate, stop_signals, work
from searchlens.sampling._chunks import Chunk, ChunkSamples
from searchlens.store import files, ranges, shards, traces
from searchlens.store.columns import TRACES
from searchlens.store.leases import Leases
from searchlens.store.ranges import shards_of, uncovered
from test_generate import CELL, RUNS, Make, Scripted, Start, chunks, sidecars, start, study

__all__ = ["start", "study"]  # fixtures

ROOT = Path(__file__).parents[2]


# ---- stopped by a signal, with scripted engines


def sample(grid: Grid, notice: Notice) -> None:
    (pool,) = grid.jobs.pools(*CELL)
    generate(grid, *CELL, grid.current_manifest(pool), notice=notice)


def telling(engine: Scripted, notice: Notice, at: int, error: BaseException | None = None) -> Scripted:
    """Have the notice given in step ``at`` of an engine, which then raises where it should."""

    def each_step() -> None:
        if engine.steps == at:
            notice.signal = "SIGTERM"
            if error:
                raise error

    engine.each_step = each_step
    return engine


def test_the_chunk_under_way_is_finished_and_no_other_is_begun(study: Raw, make_grid: Make, start: Start) -> None:
    """One chunk after the other, of four samples: stopped in the second it keeps 2, and the next run draws the rest."""
    grid, notice, again = make_grid(study), Notice(), Scripted(repeatable=True)
    start(telling(Scripted(repeatable=True), notice, 5), again)
    with pytest.raises(
        JobStoppedError, match=rf"stopped by SIGTERM: toy-base/sums pool-\w+ has {RUNS - 8} samples left"
    ):
        sample(grid, notice)
    assert len(chunks(grid)) == 2 and not list(grid.layout.results.glob("manifests/**/*.json"))
    sample(grid, Notice())
    assert len(again.asked) == RUNS - 8 and len(sidecars(grid)) == 4


def test_where_chunks_share_a_run_whole_ones_are_kept(study: Raw, make_grid: Make, start: Start) -> None:
    """The grace ends in the 50th run: twelve chunks of four are whole."""
    grid, notice, again = make_grid(study), Notice(), Scripted()
    start(telling(Scripted(), notice, 50, GraceExpired()), again)
    with pytest.raises(JobStoppedError):
        sample(grid, notice)
    sample(grid, Notice())
    assert len(again.asked) == RUNS - 48


def test_an_engine_that_the_signal_took_first_is_no_failure(study: Raw, make_grid: Make, start: Start) -> None:
    """Schedulers signal all processes of a job, and the workers of an engine do not wait."""
    grid, notice = make_grid(study), Notice()
    start(telling(Scripted(), notice, 9, RuntimeError("worker died")))
    with pytest.raises(JobStoppedError):
        sample(grid, notice)
    assert len(chunks(grid)) == 2


def test_a_notice_that_comes_too_late_stops_nothing(study: Raw, make_grid: Make, start: Start) -> None:
    grid, notice = make_grid(study), Notice()
    start(telling(Scripted(), notice, RUNS - 1))
    sample(grid, notice)
    assert not any(any(grid.missing(pool)) for pool in grid.jobs.pools(*CELL))


def test_a_job_that_was_stopped_before_it_began_starts_no_engine(study: Raw, make_grid: Make, start: Start) -> None:
    rows = start()
    with pytest.raises(JobStoppedError, match=f"has {RUNS} samples left"):
        sample(make_grid(study), Notice("SIGUSR1"))
    assert rows == []


def test_what_is_written_at_the_end_is_not_broken_off(
    study: Raw, make_grid: Make, start: Start, monkeypatch: Patch
) -> None:
    """By then the timer of the grace has stopped."""
    grid, engine, timers = make_grid(study), Scripted(), list[float]()
    engine.each_step = lambda: os.kill(os.getpid(), signal.SIGTERM) if engine.steps == RUNS - 1 else None
    start(engine)
    replace_text = files.replace_text

    def watched(path: Path, text: str) -> None:
        if "manifests" in path.parts:
            timers.append(signal.getitimer(signal.ITIMER_REAL)[0])
        replace_text(path, text)

    monkeypatch.setattr(files, "replace_text", watched)
    with stop_signals(3600) as notice:
        sample(grid, notice)
        assert notice.signal == "SIGTERM"
    assert timers == [0] and all(path.exists() for path in grid.manifests(*CELL))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_is_noted_and_its_grace_ends(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # under nohup the tests, too, ignore SIGHUP
    try:
        with pytest.raises(GraceExpired), stop_signals(0.1) as notice:
            assert not notice.signal
            os.kill(os.getpid(), number)
            assert notice.signal == number.name
            time.sleep(10)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_closed_terminal_ends_nothing_that_runs_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals(0.1) as notice:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not notice.signal
    finally:
        signal.signal(signal.SIGHUP, before)


def test_further_signals_take_nothing_of_the_grace() -> None:
    with stop_signals(60) as notice:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert notice.signal == "SIGUSR1"
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


# ---- two jobs at once, in processes of their own


LONG = 600
"""Seconds after which a process hangs: no machine is so busy."""

SECOND_CHUNK = 9
"""Requests that a job has answered soon after it has saved two chunks of four."""


class Twins:
    """Jobs of one pool, each in a process of its own (``twin_job.py``)."""

    def __init__(self, grid: Grid, *, repeatable: bool) -> None:
        self.grid, self.repeatable = grid, repeatable
        self.config = grid.root / "config.json"
        self.config.write_text(json.dumps(plain(grid.config)))
        self.jobs: list[subprocess.Popen[str]] = []

    def begin(self, pause: int = -1) -> subprocess.Popen[str]:
        """Start a job; it waits for ``go`` when it has answered so many requests."""
        job = [sys.executable, str(ROOT / "tests/twin_job.py"), self.config, self.grid.root, self.repeatable, pause]
        self.jobs.append(subprocess.Popen(map(str, job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return self.jobs[-1]

    def go(self) -> None:
        (self.grid.root / "go").touch()

    def wait_for(self, count: int, kind: str = "chunk") -> None:
        """Until so many chunks, or leases on them, are there, and nothing is being written."""
        until, left = time.monotonic() + LONG, self.grid.layout.temporary
        while len(list(self.grid.layout.results.rglob(f"chunks/*.{kind}"))) < count or (kind != "chunk" and left()):
            assert time.monotonic() < until, "nothing was sampled"
            assert all(job.poll() is None for job in self.jobs), [job.communicate() for job in self.jobs]
            time.sleep(0.005)

    def end(self) -> int:
        """Let all end well; requests that they made together."""
        said = [job.communicate(timeout=LONG) for job in self.jobs]
        assert [job.returncode for job in self.jobs] == [0] * len(self.jobs), said
        return sum(int(out) for out, _ in said)

    def made(self) -> dict[Path, int]:
        """Shards and manifests with their times; only of a store that is whole, sound and without duplicates."""
        left = [
            path for path in self.grid.layout.results.rglob("*") if path.suffix in (".chunk", ".tmp", ".unreadable")
        ]
        assert not left
        assert not any(why for _, why in shards.verify(self.grid.layout))
        for generation in self.grid.jobs.generations(*CELL):
            folder = self.grid.folder(*CELL, generation.id)
            assert not uncovered(shards_of(folder), generation.samples)
            (frame,) = (pl.read_parquet(path) for path in folder.glob("*.parquet"))
            assert frame.n_unique(["question", "sample"]) == frame.height == 6 * generation.samples
        (manifest,) = self.grid.manifests(*CELL)
        return {path: path.stat().st_mtime_ns for path in (manifest, *self.grid.layout.results.rglob("*.parquet"))}


@pytest.fixture(params=[True, False], ids=["by chunk", "one run"])
def twins(study: Raw, make_grid: Make, start: Start, request: pytest.FixtureRequest) -> Iterator[Twins]:
    made = Twins(make_grid(study), repeatable=request.param)
    yield made
    for job in made.jobs:
        job.kill()
        job.wait()


def content(grid: Grid) -> set[str]:
    return {one["sha256"] for one in sidecars(grid)}


@pytest.fixture
def undisturbed(study: Raw, make_grid: Make, start: Start) -> set[str]:
    """Content that one job alone makes."""
    grid = make_grid(study | {"results": "undisturbed"})
    start(Scripted())
    sample(grid, Notice())
    return content(grid)


@pytest.mark.long
def test_an_orphan_and_its_replacement_may_run_at_once(twins: Twins, undisturbed: set[str]) -> None:
    twins.begin(SECOND_CHUNK)
    twins.wait_for(2)
    twins.begin()
    twins.wait_for(3)
    twins.go()
    asked = twins.end()
    assert twins.made() and content(twins.grid) == undisturbed
    if twins.repeatable:
        assert asked <= RUNS + 8, "they share the work: no more than they had in hand when they met is double"


@pytest.mark.long
def test_a_job_that_hangs_with_a_lease_holds_no_job_up(twins: Twins, undisturbed: set[str]) -> None:
    """As on a node that is cut off: it comes back when all is done, and changes nothing."""
    hung = twins.begin(SECOND_CHUNK)
    twins.wait_for(2)
    twins.wait_for(3, "lease0")
    hung.send_signal(signal.SIGSTOP)
    assert twins.begin().wait(LONG) == 0
    made = twins.made()
    twins.go()
    hung.send_signal(signal.SIGCONT)
    twins.end()
    assert twins.made() == made, "nothing is written again, so nothing downstream runs again"
    assert content(twins.grid) == undisturbed


# ---- workers


def of_two_checkpoints(study: Raw, **changes: Any) -> Raw:
    """In pools of one policy each."""
    study["checkpoints"]["toy-rl"] = study["checkpoints"]["toy-base"] | {"seed": 1}
    return study | {"pool_size": 1} | changes


def is_whole(grid: Grid) -> list[bool]:
    pools = [pool for cell in grid.study.cells for pool in grid.jobs.pools(*cell)]
    return [grid.current_manifest(pool).exists() for pool in pools]


def test_a_worker_loads_each_checkpoint_once_and_leaves_nothing_to_sample(
    study: Raw, make_grid: Make, start: Start
) -> None:
    grid, engines = make_grid(of_two_checkpoints(study)), (Scripted(repeatable=True), Scripted())
    assert len(start(*engines)) == 0
    work(grid, Notice())
    assert all(is_whole(grid)) and len(is_whole(grid)) == 8
    assert all(engine.closed for engine in engines) and sum(len(engine.asked) for engine in engines) == 2 * RUNS
    work(grid, Notice())  # without an engine


def test_a_worker_that_is_stopped_begins_no_other_pool(study: Raw, make_grid: Make, start: Start) -> None:
    grid, notice = make_grid(of_two_checkpoints(study)), Notice()
    engines = [telling(Scripted(), notice, 3) for _ in range(2)]
    start(*engines)
    with pytest.raises(JobStoppedError, match="stopped by SIGTERM"):
        work(grid, notice)
    assert is_whole(grid).count(True) <= 1 and not sidecars(grid)[2:]
    engines[0].each_step = engines[1].each_step = lambda: None
    notice.signal = ""
    start(*engines, Scripted())
    work(grid, notice)
    assert all(is_whole(grid))


def test_a_pool_that_fails_ends_no_other_and_the_worker_says_why(study: Raw, make_grid: Make, start: Start) -> None:
    grid = make_grid(of_two_checkpoints(study))
    start(Scripted(dies=ValueError("broken"), at=3), Scripted(), Scripted())
    with pytest.raises(JobError, match="the engine died: ValueError: broken"):
        work(grid, Notice())
    assert is_whole(grid).count(False) == 1


def test_a_worker_waits_for_what_others_sample_and_takes_over_from_one_that_died(
    study: Raw, make_grid: Make, start: Start, monkeypatch: Patch
) -> None:
    """On another machine, whose locks are not seen: after five minutes without news."""
    grid, lost, waits = make_grid(of_two_checkpoints(study, pool_size=4)), Leases(), list[float]()
    monkeypatch.setattr(lost, "_machine", b"another")
    (pool,) = grid.jobs.pools(*CELL)
    (chunk, *_) = Job(grid, pool, 1).missing_shards()[0].chunks
    assert lost.take(chunk.path)

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        assert len(chunks(grid)) == 5 and is_whole(grid) == [False, True], "all others are finished"
        if len(waits) == 2:
            os.utime(next(iter(lost._held)), (1, time.time() - 301))

    monkeypatch.setattr(_work.time, "sleep", sleep)
    start(Scripted(), Scripted(), Scripted())
    work(grid, Notice())
    assert len(waits) == 2 and all(is_whole(grid)) and not chunks(grid)


def test_a_shard_is_published_once_the_last_of_several_workers_is_done_with_it(
    study: Raw, make_grid: Make, start: Start, tmp_path: Path
) -> None:
    """Not when each has gone through all shards: what another one finished meanwhile is seen."""
    grid, notice, another, engine = make_grid(study), Notice(), Leases(), Scripted(repeatable=True)
    start(telling(Scripted(repeatable=True), notice, 5), engine)
    with pytest.raises(JobStoppedError):
        sample(grid, notice)
    (kept, _), published = chunks(grid), list[int]()
    elsewhere = kept.rename(tmp_path / kept.name)
    assert another.take(kept)

    def each_step() -> None:
        if engine.steps == 2:
            elsewhere.rename(kept)
        published.append(len(sidecars(grid)))

    engine.each_step = each_step
    sample(grid, Notice())
    assert published[-1] == 3 and len(sidecars(grid)) == 4
    assert len(engine.asked) == RUNS - 8, "nothing is drawn again"


def test_a_worker_leaves_a_shard_to_the_one_that_publishes_it(study: Raw, make_grid: Make, start: Start) -> None:
    """It has the lease on the last chunk until that is done."""
    grid, seen, engine = make_grid(study), list[object](), Scripted(repeatable=True)
    (pool,) = grid.jobs.pools(*CELL)
    publish = shards.publish

    def watched(*given: Any, **named: Any) -> None:
        missing = Job(grid, pool, 1).missing_shards()
        whole = all(chunk.exists for shard in missing for chunk in shard.chunks)
        seen.append(_work._next(grid, [pool], Leases(), None) if whole else whole)
        publish(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "publish", watched)
        start(engine)
        sample(grid, Notice())
    assert seen == [False, False, False, None]


# ---- what other jobs take away


def test_a_chunk_that_another_job_has_saved_keeps_the_record_of_its_own_searches(tmp_path: Path) -> None:
    """On a GPU the slower job has drawn other tokens."""
    chunk, costs = Chunk(cast(Any, None), tmp_path, 0, 4, 0, 1), shards.Provenance(0.0, "cuda", 1, "scripted")
    for job in ("first", "second"):
        trace = pl.DataFrame([{"id": job}], schema=TRACES)
        chunk.save(ChunkSamples(pl.DataFrame(schema=shards.SAMPLES), 1.0, costs, trace))
    assert traces.read(chunk.trace_path)["id"].to_list() == ["first"]


def test_a_manifest_that_another_job_has_set_aside_is_missing(tmp_path: Path) -> None:
    assert "is missing" in str(ranges.listed(tmp_path / "pool-00000000.json"))


def test_a_manifest_that_is_gone_during_the_look_is_not_the_current_one(
    study: Raw, make_grid: Make, start: Start, monkeypatch: Patch
) -> None:
    """Another job has set it aside."""
    grid = make_grid(study)
    start(Scripted())
    sample(grid, Notice())
    (pool,) = grid.jobs.pools(*CELL)
    before, lists = grid.current_manifest(pool), Grid.lists

    def losing(self: Grid, manifest: Path, pool: Any) -> bool:
        found = lists(self, manifest, pool)
        manifest.unlink()
        return found

    monkeypatch.setattr(Grid, "lists", losing)
    assert grid.current_manifest(pool) != before


def test_a_shard_that_is_set_aside_while_the_job_runs_is_made_again_by_it(
    study: Raw, make_grid: Make, start: Start
) -> None:
    """Another job that repairs took it for the damaged one before it."""
    grid, engine = make_grid(study), Scripted(repeatable=True)

    def each_step() -> None:
        if engine.steps == 60:
            shards.set_aside(grid.layout, [shard for shard, _ in shards.verify(grid.layout)][:1])

    engine.each_step = each_step
    start(engine)
    sample(grid, Notice())
    assert len(engine.asked) == RUNS + 24 and len(sidecars(grid)) == 4


# ---- the command


def working(path: Path) -> Grid:
    """A working directory with the micro pair and 40 questions."""
    content = micro_study(questions=40)
    write_config(path, content)
    return Grid(check.validate(content), path)


def begun(grid: Grid) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "searchlens", "generate", "--checkpoint", "micro-1m-base", "--benchmark", "math"]
    environment = {**os.environ, "SLURMD_NODENAME": "node1", "SLURM_JOB_ID": "17"}
    return subprocess.Popen(command, cwd=grid.root, stderr=subprocess.PIPE, text=True, env=environment)


def end(job: subprocess.Popen[str]) -> tuple[int, str]:
    said = job.communicate(timeout=LONG)[1]
    return job.returncode, said


@pytest.mark.long
def test_slurms_warning_ends_a_job_in_one_line_with_a_status_of_its_own(tmp_path: Path) -> None:
    """And what it leaves becomes, byte for byte, what one job alone makes; its shards say what made them."""
    import torch

    from searchlens import __version__

    whole, stopped = working(tmp_path / "whole"), working(tmp_path / "stopped")
    job, other = begun(stopped), begun(whole)
    until = time.monotonic() + LONG
    while job.poll() is None and not chunks(stopped) and time.monotonic() < until:
        time.sleep(0.01)
    job.send_signal(signal.SIGTERM)
    status, said = end(job)
    assert status == os.EX_TEMPFAIL == 75, said
    assert said.splitlines()[-1].startswith("searchlens: stopped by SIGTERM: micro-1m-base/math pool-")
    assert "Traceback" not in said
    kept = len(chunks(stopped))
    assert kept
    status, said = end(begun(stopped))
    assert status == 0 and f" samples in {counted(kept, 'chunk')} are there already" in said
    assert end(other)[0] == 0
    assert content(stopped) == content(whole)
    for one in sidecars(stopped):
        assert (one["host"], one["slurm_job"], one["device"]) == ("node1", "17", "cpu")
        assert one["version"] == __version__ and torch.__version__ in one["engine"]
        assert one["wall_seconds"] > 0 and one["gpu_seconds"] == 0 and one["finished"].endswith("Z")
        snapshot = stopped.root / "results/config" / f"{one['config']}.json"
        assert from_plain(json.loads(snapshot.read_text())) == stopped.config


# ---- locks


def test_only_one_job_is_alone(tmp_path: Path) -> None:
    with files.alone(tmp_path / "lock") as first, files.alone(tmp_path / "lock") as second:
        assert (first, second) == (True, False)
    with files.alone(tmp_path / "lock") as again:
        assert again


# ---- Parallel jobs spread over the visible GPUs: real processes with real locks, and a made-up number of GPUs


JOB = """
import sys, torch
torch.cuda.device_count = lambda: int(sys.argv[1])
from searchlens.engines import kind
print(kind.take_gpu(), flush=True)
sys.stdin.read()
"""

Begin = Callable[[int], tuple[str, subprocess.Popen[str]]]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: Patch) -> Iterator[Begin]:
    """Start a job that sees this many GPUs, and wait until it has taken one; return the GPU and the process."""
    (tmp_path / "torch.py").write_text("class cuda: pass")  # importing the real one takes a job seconds
    environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    environment |= {"TMPDIR": str(tmp_path), "PYTHONPATH": f"{tmp_path}:{Path(kind.__file__).parents[2]}"}
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ExitStack() as stack:

        def start(gpus: int) -> tuple[str, subprocess.Popen[str]]:
            job = subprocess.Popen(
                [sys.executable, "-P", "-c", JOB, str(gpus)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(job.communicate)
            assert job.stdout
            return job.stdout.readline().strip(), job

        yield start


def test_jobs_take_the_gpu_that_fewest_have_taken(begin: Begin) -> None:
    """Seven jobs on three GPUs: three on the first, two on each other one; the GPU of killed jobs is taken next."""
    taken = [begin(3) for _ in range(7)]
    assert [gpu for gpu, _ in taken] == list("0120120")
    for killed in (taken[1][1], taken[4][1]):  # both of GPU 1, which is empty now, its slots open
        killed.kill()
        killed.wait()
    assert [begin(3)[0] for _ in range(3)] == ["1", "1", "1"]


@pytest.mark.parametrize(
    ("variable", "gpus"), [(None, ["0", "1", "2"]), ("4,2, 7", ["4", "2", "7"]), ("3,-1,5", ["3"])]
)
def test_gpus_have_the_names_that_they_are_shown_by(monkeypatch: Patch, variable: str | None, gpus: list[str]) -> None:
    """If a user makes three of eight GPUs visible, jobs use these three; CUDA sees no GPU after a -1."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: len(gpus))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert kind.visible_gpus() == gpus


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_single_gpu_is_not_chosen(monkeypatch: Patch, tmp_path: Path, gpus: int) -> None:
    """The job of a scheduler sees one GPU, and keeps the name that the scheduler gave it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5f2a")
    assert kind.take_gpu() is None
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-5f2a"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("device", "parallel", "takes"), [("cuda", 1, True), ("auto", 1, True), ("cuda", 2, False), ("cpu", 1, False)]
)
def test_a_job_of_one_gpu_takes_it_before_its_engine_starts(
    monkeypatch: Patch, device: str, parallel: int, takes: bool
) -> None:
    """An engine over several GPUs uses all visible ones, and one on a CPU none."""
    calls: list[str] = []

    def engine(*_: Any, device: str, **given: Any) -> SimpleNamespace:
        calls.append("engine")
        return SimpleNamespace()

    monkeypatch.setattr("searchlens.engines.transformers.TransformersEngine", engine)
    monkeypatch.setattr("searchlens.engines.vllm.VllmEngine", engine)
    monkeypatch.setattr(_job, "take_gpu", lambda: calls.append("take"))
    spec = CheckpointSpec(device=device, engine="vllm", vllm=VllmSpec(tensor_parallel=parallel))
    _job.start_engine(Path("somewhere"), spec, max_rows=None, threads=1, adapter=None, masked=())
    assert calls == (["take", "engine"] if takes else ["engine"])
    calls.clear()
    _job.start_engine(
        Path("somewhere"), replace(spec, engine="transformers"), max_rows=None, threads=1, adapter=None, masked=()
    )
    assert calls == (["engine"] if device == "cpu" else ["take", "engine"]), "the options of another engine say nothing"
