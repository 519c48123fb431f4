"""What a user sees of a run from another terminal: states, sums, and why something failed."""

import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Patch, Raw
from searchlens.cli.status import (
    LOG_SECONDS,
    SILENT_SECONDS,
    answer,
    follow,
    is_finished,
    line,
    rendered,
    status,
    time_left,
)
from searchlens.errors import JobError
from searchlens.plan import Grid
from searchlens.progress import TimeLeft
from searchlens.sampling import Notice, generate
from test_generate import CELL, RUNS, Make, Scripted, Start, start, study

__all__ = ["start", "study"]  # fixtures


def sample(grid: Grid) -> None:
    (pool,) = grid.jobs.pools(*CELL)
    generate(grid, *CELL, grid.current_manifest(pool), notice=Notice())


def base(grid: Grid, **more: Any) -> Any:
    return next(cell for cell in status(grid, **more) if (cell.checkpoint, cell.benchmark) == CELL)


def files(grid: Grid) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in grid.layout.results.rglob("*") if path.is_file()}


def test_nothing_is_begun_yet(study: Raw, make_grid: Make) -> None:
    grid = make_grid(study)
    assert [(cell.state, cell.drawn, cell.wanted) for cell in status(grid)] == [("missing", 0, RUNS)] * 2
    assert not grid.layout.results.exists(), "looking writes nothing"


def test_a_running_job_is_seen_while_it_holds_its_lock(study: Raw, make_grid: Make, start: Start) -> None:
    """Two shards and a chunk are there after 52 of the runs."""
    grid, engine = make_grid(study), Scripted()
    planned = base(grid).planned_left
    seen: list[Any] = []

    def look() -> None:
        if engine.steps == 52:
            before = files(grid)
            seen.append(base(make_grid(study)))
            assert files(grid) == before

    engine.each_step = look
    start(engine)
    sample(grid)
    (cell,) = seen
    assert (cell.state, cell.drawn, cell.wanted) == ("running", 52, RUNS)
    assert cell.pools[0].record["total"] == RUNS
    last = base(grid)
    assert last.state == "done" and last.drawn == RUNS and last.planned_left == 0
    record = last.pools[0].record
    assert record["tokens"] == pytest.approx(planned) and not any(record["unfinished"].values())


def test_a_failed_job_says_why_and_where_its_log_is(study: Raw, make_grid: Make, start: Start, tmp_path: Path) -> None:
    grid = make_grid(study)
    start(Scripted(dies=OSError("the device fell off"), at=30), Scripted())
    with pytest.raises(JobError):
        sample(grid)
    (pool,) = grid.jobs.pools(*CELL)
    log = Path("logs/generate") / CELL[0] / CELL[1] / f"{pool.name}.log"
    assert f"log: none at {log}" in rendered(answer(grid))
    (tmp_path / log).parent.mkdir(parents=True)
    (tmp_path / log).touch()
    said = rendered(answer(grid)) + "\n"
    assert "2 cells: 0 done, 0 running, 1 failed, 1 missing; 0 scored, 0 landscapes" in said
    assert f"failed: toy-base/sums {pool.name} on " in said
    assert "JobError: the engine died: OSError: the device fell off; Hint:" in said
    assert f"  log: {log}\n" in said
    sample(grid)
    assert base(grid).state == "done", "what failed before is over"


def test_a_job_that_says_nothing_any_more_has_failed(study: Raw, make_grid: Make) -> None:
    """SIGKILL and a dead node leave no word."""
    grid = make_grid(study)
    (pool,) = grid.jobs.pools(*CELL)
    record = {"state": "running", "message": "", "updated": 1000.0, "manifest": f"{pool.name}.r1.json", "host": "node1"}
    record |= {"slurm_job": "17", "started": "2026-01-01T00:00:00Z", "drawn": 3, "total": 9}
    grid.layout.job_record(*pool.key).parent.mkdir(parents=True)
    grid.layout.job_record(*pool.key).write_text(json.dumps(record))
    assert base(grid, now=1000 + SILENT_SECONDS - 1).state == "running"
    generation = grid.jobs.generations(*CELL)[0]
    grid.layout.job_record(*pool.key).write_text(json.dumps(record | {"unfinished": {generation.id: 3}}))
    planned, cell = base(grid, now=10_000).planned_left, base(grid, now=1001)
    drawn = 3 * grid.jobs.tokens_each(generation.policies[0], CELL[1])
    assert cell.drawn == 0 and cell.planned_left == pytest.approx(planned - drawn), "it may still be lost"
    cell = base(grid, now=1000 + SILENT_SECONDS + 1)
    assert cell.state == "failed" and "it was killed, or its node died" in cell.pools[0].record["message"]
    assert cell.pools[0].log.name == f"{pool.name}.r1.log", "the log has the manifest's name"
    grid.layout.job_record(*pool.key).write_text(json.dumps(record)[:20])
    assert base(grid).state == "missing", "half a record is none"


def test_a_job_that_was_stopped_on_request_is_missing_and_not_failed(study: Raw, make_grid: Make, start: Start) -> None:
    from searchlens.errors import JobStoppedError

    grid, notice, engine = make_grid(study), Notice(), Scripted(repeatable=True)
    engine.each_step = lambda: setattr(notice, "signal", "SIGTERM")
    start(engine)
    with pytest.raises(JobStoppedError):
        generate(grid, *CELL, grid.current_manifest(grid.jobs.pools(*CELL)[0]), notice=notice)
    cell = base(grid)
    assert (cell.state, cell.drawn, cell.pools[0].record["state"]) == ("missing", 4, "stopped")


def test_one_running_job_makes_a_running_cell(study: Raw, make_grid: Make, start: Start) -> None:
    grid = make_grid(study | {"pool_size": 3})
    first, second = grid.jobs.pools(*CELL)
    start(Scripted())
    generate(grid, *CELL, grid.current_manifest(second))
    assert [one.state for one in base(grid).pools] == ["missing", "done"] and base(grid).state == "missing"
    grid.layout.job_record(*first.key).write_text(
        json.dumps({"state": "running", "updated": time.time(), "manifest": "x.json"})
    )
    assert base(grid).state == "running"


def test_what_was_spent_and_what_is_to_go(study: Raw, make_grid: Make, publish: Callable[..., Any]) -> None:
    """24 samples of three tokens on two GPUs in an hour: 72 tokens; as many are left for each of the other cells."""
    study["pairs"]["toy"]["parameters"] = 1e9
    grid = make_grid(study)
    generation = grid.jobs.generations(*CELL)[0]
    shard = publish(grid, *CELL, generation)
    sidecar = shard.path.with_suffix(".json")
    took = {"device": "cuda (X)", "device_count": 2, "wall_seconds": 3600, "gpu_seconds": 7200}
    sidecar.write_text(json.dumps(json.loads(sidecar.read_text()) | took))
    cell = base(grid)
    assert (cell.tokens, cell.gpu_hours, cell.hours, cell.drawn) == (72, 2, 1, 24)
    assert cell.remaining_tokens == (24 + 24 + 6) * 3
    assert cell.remaining_gpu_hours == pytest.approx(cell.remaining_tokens / (72 / 2)), "at the speed of the others"
    assert "spent: 72 tokens, 2.00 GPU-hours, 1.00 hours of sampling" in rendered(answer(grid))


# ---- `searchlens status --follow`: progress on one line, in a terminal and in a log, until all is done


def found(drawn: int, *, running: int = 1, failed: int = 0, read: int = 0) -> dict[str, Any]:
    """Two cells of 100 samples each; the first is drawn first. Those of the second take four times as long."""
    counts = [min(drawn, 100), max(drawn - 100, 0)]
    cells = [{"drawn": n, "wanted": 100, "planned_left": (1 + 3 * i) * (100 - n)} for i, n in enumerate(counts)]
    states = {"done": counts.count(100)}
    jobs = [{"checkpoint": "toy-base", "benchmark": f"sums{drawn // 100}"}] * running
    rest = {"running": jobs, "failed": [{}] * failed, "waiting": 3 - running}
    return {"cells": cells, "states": states, "scored": read, "landscapes": read, **rest}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def followed(out: io.StringIO, looks: list[dict[str, Any]], seconds: float) -> None:
    answers, times = iter(looks), iter(range(0, 10**6, int(seconds)))
    waited: list[float] = []
    last = follow(lambda: next(answers), out, sleep=waited.append, clock=lambda: next(times))
    assert is_finished(last) and next(answers, None) is None
    assert len(waited) == len(looks) - 1


def test_a_log_has_a_line_at_each_look_with_the_time_left() -> None:
    out = io.StringIO()
    looks = [found(0), found(50), found(150, running=2, failed=1), found(200, running=0, read=1)]
    followed(out, [*looks, found(200, running=0, read=2)], LOG_SECONDS)
    lines = [each.partition(" ")[2] for each in out.getvalue().splitlines()]
    assert lines == [
        "sampling toy-base/sums0; 2 jobs waiting",
        "0% sampled: 0 of 200, time left unknown, 1 job running, 0 of 2 graded, 0 of 2 read",
        "25% sampled: 50 of 200, sampling: about 9 min left, then tables and figures, 1 job running,"
        " 0 of 2 graded, 0 of 2 read",
        "sampling toy-base/sums1; 1 job waiting",
        "75% sampled: 150 of 200, sampling: about 4 min left, then tables and figures, 2 jobs running, 1 job failed,"
        " 0 of 2 graded, 0 of 2 read",
        "100% sampled: 200 of 200, 1 of 2 graded, 1 of 2 read",
        "100% sampled: 200 of 200, 2 of 2 graded, 2 of 2 read",
    ]


def test_a_terminal_has_one_line_that_is_written_over(monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    followed(out, [found(150), found(200, running=0, read=2)], 5)
    stands, rest = out.getvalue().split("\n", 1)
    assert stands == "now sampling toy-base/sums1; 2 jobs waiting"
    assert rest.count("\n") == 1 and rest.endswith("\n")
    first, second = rest.rstrip("\n").split("\r")[1:]
    assert len(first) == 39 and second.startswith("100% sampled"), "no line is wider than the terminal"


def test_an_interrupt_ends_the_line() -> None:
    def looks() -> Iterator[dict[str, Any]]:
        yield found(10)
        raise KeyboardInterrupt

    out, answers = Terminal(), looks()
    with pytest.raises(KeyboardInterrupt):
        follow(lambda: next(answers), out, sleep=lambda _: None)
    assert out.getvalue().endswith("\n")


Job = list[tuple[int, float, float]]
"""Policies in the order in which a job samples them: samples, planned tokens of each, and its true seconds."""


def replayed(jobs: list[Job], every: int) -> list[tuple[float, float]]:
    """Minutes left as shown, and in truth, at each look at two processes that take the jobs in turn.

    Chunks of a policy are saved when it ends; until then the record of the job counts, which is as old as 30 seconds.
    """
    free, parts = [0.0, 0.0], []
    for job in jobs:
        process = free.index(min(free))
        begun = time_ = free[process] + 15
        for samples, tokens, seconds in job:
            parts.append((begun, time_, time_ + samples * seconds, samples * tokens))
            time_ = parts[-1][2]
        free[process] = time_
    pace, looks = TimeLeft(after=60), []
    for now in range(every, int(max(free)), every):
        beats = [begun + (now - begun) // 30 * 30 for begun, *_ in parts]
        work = [
            0 if now >= stop else all_of_it * min(max((stop - beat) / (stop - start), 0), 1)
            for beat, (_, start, stop, all_of_it) in zip(beats, parts, strict=True)
        ]
        if (left := pace.see(now, sum(work))) is not None:
            looks.append((left / 60, (max(free) - now) / 60))
    return looks


PLAIN, SLOW, TREES = (2400, 40, 0.004), (2400, 40, 0.04), (2400, 900, 0.09)


@pytest.mark.parametrize("every", [5, 60])
@pytest.mark.parametrize(
    ("jobs", "as_planned"),
    [
        ([[PLAIN] * 10 + [TREES] * 3, *[[PLAIN] * 13] * 8], True),
        ([*[[PLAIN] * 13] * 20, [TREES] * 2, [TREES] * 2], True),
        ([*[[PLAIN] * 12] * 4, *[[SLOW] * 12] * 2], False),
        ([*[[SLOW] * 12] * 2, *[[PLAIN] * 12] * 6], False),
    ],
)
def test_the_time_left_never_jumps_on_a_steady_machine(jobs: list[Job], as_planned: bool, every: int) -> None:
    """Cells and policies differ in speed, by what the plan knows and by ten times more; a minute is the least shown."""
    looks = replayed(jobs, every)
    shown = [max(left, 1.0) for left, _ in looks]
    assert len(shown) > 300 // every
    for before, after in zip(shown, shown[60 // every :], strict=False):
        assert before / 2.001 < after < before * 2.001
    for left, truth in looks[len(looks) // 4 :]:
        assert not as_planned or truth / 1.5 - 1 < left < truth * 1.5 + 1


def test_the_time_left_of_a_minute_is_the_time_left() -> None:
    pace = TimeLeft()
    assert [pace.see(now, left) for now, left in [(100, 40), (110, 30), (120, 20), (130, 10), (140, 0)]] == [
        None,
        *(30, 20, 10, 0),
    ]


def test_a_study_that_was_resumed_did_not_draw_its_first_samples_now() -> None:
    pace = TimeLeft(after=60)
    assert [time_left(pace, *look) for look in [(0, found(100, running=0)), (30, found(100)), (80, found(105))]] == [
        None
    ] * 3
    assert time_left(pace, 630, found(110)) == pytest.approx(90 * 60)


def test_status_says_what_runs_what_waits_and_how_long_it_takes(study: Raw, make_grid: Make) -> None:
    """At the mean speed of all jobs, those that ended included."""
    grid = make_grid(study | {"pool_size": 3})
    (first, _), other = grid.jobs.pools(*CELL), grid.jobs.pools("toy-rl", CELL[1])[0]
    record = {"updated": time.time(), "manifest": "x.json", "host": "node1", "slurm_job": "", "started": "now"}
    planned = sum(cell.planned_left for cell in status(grid))
    for pool, state, tokens, seconds in [(first, "running", 0.1, 50), (other, "stopped", 0.3, 150)]:
        path = grid.layout.job_record(*pool.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        more = {"state": state, "drawn": 3, "total": 9, "tokens": tokens * planned, "seconds": seconds}
        path.write_text(json.dumps(record | more))
    told = answer(grid)
    assert told["to_go"]["seconds"] == pytest.approx(500) and told["waiting"] == 3
    assert "now sampling toy-base/sums; 3 jobs waiting\nsampling: about 8 min left, then tables" in rendered(told)


def test_it_reads_what_status_says(grid: Grid) -> None:
    said = line(answer(grid), None)
    assert said.startswith("0% sampled: 0 of ") and not is_finished(answer(grid))
