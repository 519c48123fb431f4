"""Searches from configuration to samples, on the shipped Base model: gold unseen, runs repeatable, failures told."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from conftest import Make, Raw
from searchlens.engines.transformers import TransformersEngine
from searchlens.errors import JobError
from searchlens.plan import Generation
from searchlens.sampling._chunks import Chunk
from searchlens.sampling._job import Job
from searchlens.sampling._sample import sample

MODEL = Path(__file__).parents[2] / "resources" / "zoo" / "micro-1m-base"
LINE = {"name": "thought", "delimiter": "\n", "max_tokens": 12}
SEARCHES: dict[str, Any] = {
    "power": {
        "local": {"temperature": 0.5},
        "controller": "power",
        "scheduler": {"name": "blocks", "blocks": 4, "steps": 2},
    },
    "tree": {"controller": "entropy_tree"},
    "masked": {"controller": "entropy_tree", "transition": {"name": "branch", "mask": "answer"}},
    "thoughts": {"controller": "thought_tree", "transition": LINE, "evaluator": "answer_agreement"},
    "mcts": {"controller": "mcts", "transition": LINE, "scheduler": {"name": "iterations", "iterations": 4}},
    "steps": {"controller": "step_beam", "transition": LINE, "evaluator": {"name": "rollout_utility", "rollouts": 1}},
    "asking": {
        "controller": {"name": "thought_tree", "width": 2},
        "transition": LINE,
        "evaluator": {"name": "self_evaluation", "right": " is", "wrong": " not", "top": 639},
    },
    "beam": {"controller": {"name": "beam", "width": 2}},
}
QUESTIONS = ("Tom has 7 eggs. Tom finds 5 more. How many eggs does Tom have now?", "What is 12+30?")


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    return TransformersEngine(MODEL, max_rows=64, threads=1)


@pytest.fixture
def job(raw: Raw, make_grid: Make, tmp_path: Path, engine: TransformersEngine) -> Callable[..., Job]:
    """A job of the searches on Base, for questions with these golds."""

    def made(golds: tuple[str, str] = ("12", "42"), policies: dict[str, Any] = SEARCHES, **settings: Any) -> Job:
        rows = [
            {"id": f"q{i}", "question": q, "gold": g} for i, (q, g) in enumerate(zip(QUESTIONS, golds, strict=True))
        ]
        (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        study = {
            **raw,
            **settings,
            "policies": raw["policies"] | policies,
            "pools": raw["pools"] | {"searches": list(policies)},
            "checkpoints": raw["checkpoints"] | {"toy-base": {"path": str(MODEL)}},
            "benchmarks": {
                "sums": {
                    "path": "asked.jsonl",
                    "grader": "math",
                    "max_tokens": 24,
                    "pool": "three",
                    "searches": "searches",
                }
            },
        }
        grid = make_grid(study)
        found = Job(grid, grid.jobs.pools("toy-base", "sums")[0], threads=1)
        found.__dict__["engine"] = engine
        return found

    return made


def searched(job: Job) -> dict[str, Generation]:
    return {g.policies[0]: g for g in job.pool.generations if g.policies[0] in SEARCHES or g.policies[0] == "judged"}


def sampled(job: Job, name: str, start: int = 0, stop: int = 4) -> pl.DataFrame:
    ((_, made),) = sample(job, [Chunk(searched(job)[name], Path(), start, stop, 0, 2)], lambda count, chunk: None)
    return made.frame


def test_searches_are_sampled_on_base_alone(job: Callable[..., Job]) -> None:
    """The RL model is compared by its default policy: nothing is searched there."""
    here = job()
    assert set(searched(here)) == set(SEARCHES)
    names = {g.policies[0] for pool in here.grid.jobs.pools("toy-rl", "sums") for g in pool.generations}
    assert not names & set(SEARCHES)
    assert searched(here)["beam"].samples == 2  # the same whatever the seed: one run is enough


@pytest.mark.parametrize("name", SEARCHES)
def test_no_search_sees_the_gold_answer(name: str, job: Callable[..., Job]) -> None:
    """With other golds the same tokens, scores and costs: text, order and evaluation know only the question."""
    stop = 2 if name == "beam" else 4
    right, wrong = (sampled(job(golds), name, stop=stop) for golds in (("12", "42"), ("9", "7")))
    assert_frame_equal(right, wrong)
    assert right.height == 2 * stop and (right["finish"] != "failed").all()


@pytest.mark.parametrize("name", ["power", "tree", "mcts"])
def test_a_run_is_the_same_in_any_company(name: str, job: Callable[..., Job]) -> None:
    """Tokens and cost of a run depend on its seed alone: a later part of the stream, sampled by itself, is the same."""
    here = job(samples=8)
    whole, part = sampled(here, name, stop=8), sampled(here, name, start=4, stop=8)
    kept = ["question", "sample", "run", "tokens", "finish", "generated", "requests"]
    assert_frame_equal(whole.filter(pl.col("sample") >= 4).select(kept), part.select(kept))


def test_costs_are_those_of_whole_runs(job: Callable[..., Job]) -> None:
    frame = sampled(job(), "tree")
    assert frame["run"].to_list() == [0] * 8
    first = frame.filter(pl.col("sample") == 0)
    assert (first["requests"] == 4).all() and frame.filter(pl.col("sample") > 0)["requests"].sum() == 0
    assert (
        first["generated"] <= frame.group_by("question", maintain_order=True).agg(pl.col("n_tokens").sum())["n_tokens"]
    ).all()


def test_acceptance_is_kept_with_every_chain(job: Callable[..., Job]) -> None:
    details = [json.loads(text) for text in sampled(job(), "power")["details"]]
    assert all(0 <= one["accepted"] <= one["proposed"] for one in details) and details[0]["proposed"] > 0


JUDGED = {
    "judged": {
        "controller": {"name": "thought_tree", "width": 2},
        "transition": LINE,
        "evaluator": {"name": "verifier", "url": "http://127.0.0.1:9/score"},
    }
}


def test_a_broken_verifier_ends_the_job_with_its_reason(job: Callable[..., Job]) -> None:
    with pytest.raises(JobError, match=r"4 searches of judged failed; sums question q0, run 0: .*127\.0\.0\.1:9"):
        sampled(job(policies=JUDGED), "judged")


def test_failed_searches_count_as_unsolved_where_that_is_allowed(job: Callable[..., Job]) -> None:
    """Every sample of a failed run is there, empty, with the reason, below every other in score."""
    frame = sampled(job(policies=JUDGED, failed_share=1.0), "judged")
    assert frame.height == 8 and (frame["finish"] == "failed").all() and (frame["text"] == "").all()
    assert (frame["score"] == float("-inf")).all()
    assert all("127.0.0.1:9" in json.loads(text)["failed"] for text in frame["details"])
