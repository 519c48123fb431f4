"""Recorded searches: nothing changes by recording, and the record alone tells what each controller did."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from conftest import Make, Raw
from searchlens.api.study import open_study
from searchlens.cli import verify as prune
from searchlens.cli.main import main
from searchlens.cli.verify import set_cell_aside, verify
from searchlens.config.model import plain
from searchlens.errors import InputError, JobError
from searchlens.plan import Grid, Traced
from searchlens.sampling import generate, trace
from searchlens.sampling._sample import trace_rows
from searchlens.search.components import Iterations
from searchlens.search.driver import Failure, Result, run
from searchlens.search.driver import start as started
from searchlens.search.mcts import MonteCarloTreeSearch, Node, Rule, back_propagate, scaled, select
from searchlens.search.policy import Policy, from_spec
from searchlens.search.power import PowerSampling
from searchlens.search.recorder import ROW_BYTES, TEXTS, Recorder, samples_of, text_of
from searchlens.search.task import Search, Task, Trace
from searchlens.search.thoughts import Path as Thought
from searchlens.search.thoughts import ThoughtTree
from searchlens.store import shards, snapshots, traces
from searchlens.store.columns import TRACES
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel
from test_generate import CELL, RUNS, Scripted, Start
from test_generate import start as start  # noqa: PLC0414  # a fixture
from test_generate import study as study  # noqa: PLC0414

STEP = 3
THOUGHT = {"name": "thought", "max_tokens": 4}
ROLLOUTS = [{"name": name, "rollouts": 2} for name in ("answer_agreement", "rollout_utility")]
ASKING = {"name": "self_evaluation", "question": "a", "right": "b", "wrong": "c", "top": 4}


def _searches() -> dict[str, dict[str, Any]]:
    rounds = {"name": "rounds", "rounds": 2}
    named: dict[str, dict[str, Any]] = {"autoregressive": {}, "beam": {"controller": {"name": "beam", "width": 2}}}
    for mode in ("exact", "reference"):
        named[f"power {mode}"] = {
            "local": {"temperature": 0.5},
            "controller": {"name": "power", "mode": mode},
            "scheduler": {"name": "blocks", "blocks": 3, "steps": 4},
        }
    cuts = {"controller": {"name": "power", "cut": "entropy"}, "scheduler": {"name": "blocks", "blocks": 2, "steps": 3}}
    named["power cuts"] = {"local": {"temperature": 0.5}, **cuts}
    for ramp in (0, 4):
        particles = {"name": "smc", "particles": 5, "every": 2, "ramp": ramp, "resample": 0.9}
        named[f"smc {ramp}"] = {"local": {"temperature": 0.25}, "controller": particles}
    named["lookahead"] = {"controller": {"name": "lookahead", "top": 3, "rollouts": 2, "horizon": 3}}
    for children in ("distinct", "free"):
        named[f"entropy_tree {children}"] = {
            "controller": {"name": "entropy_tree", "roots": 2, "children_per_position": 2},
            "transition": {"name": "branch", "children": children, "mask": "answer"},
            "scheduler": rounds,
        }
    for evaluator in ("mean_logprob", *ROLLOUTS, ASKING):
        shared = {"transition": THOUGHT, "evaluator": evaluator}
        name = evaluator if isinstance(evaluator, str) else evaluator["name"]
        tree = {"controller": {"name": "thought_tree", "width": 3, "children": 3}, **shared}
        named[f"thought_tree {name}"] = tree | {"scheduler": {"name": "breadth_first", "depth": 3}}
        for parallel in (1, 3):
            named[f"mcts {parallel} {name}"] = {
                "controller": {"name": "mcts", "parallel": parallel, "select": "uct" if parallel == 1 else "puct"},
                "scheduler": {"name": "iterations", "iterations": 10},
                **shared,
            }
        for diverse in ("no", "yes"):
            beam = {"name": "step_beam", "width": 4, "expand": 2, "diverse": diverse}
            named[f"step_beam {diverse} {name}"] = {"controller": beam, **shared}
    return named


SEARCHES = _searches()


def letters(tokens: Sequence[int]) -> str:
    return "".join("$abcd"[token] for token in tokens)


def stated(tokens: Sequence[int]) -> str | None:
    return letters(tokens[-2:-1]) or None


def policy_of(name: str) -> Policy:
    return from_spec(name, SEARCHES[name])


def task_of(seed: int, stops: tuple[str, ...] = (), check_every: int = 0) -> Task:
    spelled = {letter: (token,) for token, letter in enumerate("$abcd")}
    return Task((2, 1), seed, 16, (EOS,), (STEP,), letters, stated, check_every, stops, spelled.__getitem__)


def model_of(seed: int) -> ToyModel:
    return ToyModel.random(seed, 5, 1.5, eos=-1.0)


def ended(search: Search, engine: ToyEngine) -> Result:
    ((_, outcome),) = run([(0, search)], engine)
    assert isinstance(outcome, Result), outcome
    return outcome


def recorded(task: Task, policy: Policy, seed: int, limit: int = 10**6) -> tuple[Result, ToyEngine, pl.DataFrame]:
    """Result, engine, and the rows of the record; what they say of costs is the recorder's own count."""
    engine, recorder = ToyEngine(model_of(seed)), Recorder(letters, limit)
    outcome = ended(recorder.watch(started(task._replace(note=recorder.note), policy)), engine)
    recorder.finish(outcome.candidates)
    rows = [{"question": 0, "id": "q0", "run": 0, "row": i, **row} for i, row in enumerate(recorder.rows)]
    return outcome, engine, pl.DataFrame(rows, schema=TRACES)


def nodes_of(rows: pl.DataFrame) -> dict[int, dict[str, Any]]:
    return {row["node"]: row for row in rows.filter(pl.col("kind").is_in(TEXTS)).to_dicts()}


def kind(rows: pl.DataFrame, name: str) -> list[dict[str, Any]]:
    return rows.filter(kind=name).to_dicts()


STOPS = [((), 0), (("bb", "da"), 0), (("bb", "da"), 3)]


@pytest.mark.parametrize(("stops", "check_every"), STOPS, ids=str)
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.long
def test_recording_changes_nothing_and_its_costs_and_leaves_are_the_runs(
    name: str, stops: tuple[str, ...], check_every: int
) -> None:
    """Same requests, tokens and scores; requests and drawn tokens of the rows add up; every sample is a node's text."""
    policy = policy_of(name)
    for seed in range(3):
        task = task_of(seed, stops, check_every)
        plain = ended(started(task, policy), engine := ToyEngine(model_of(seed)))
        outcome, watched, rows = recorded(task, policy, seed)
        assert watched.requests == engine.requests
        assert outcome.usage == plain.usage
        for one, other in zip(outcome.candidates, plain.candidates, strict=True):
            assert (one.tokens.tolist(), one.score) == (other.tokens.tolist(), other.score)
        assert (rows["requests"].sum(), rows["generated"].sum()) == (plain.usage.requests, plain.usage.generated)
        assert samples_of(rows.to_dicts()) == {i: one.tokens.tolist() for i, one in enumerate(outcome.candidates)}
        assert rows["step"].is_sorted() or "step_beam yes" in name
        samples = kind(rows, "sample")
        assert [row["score"] for row in samples] == [one.score for one in outcome.candidates]
        assert all(row["tokens"] is None for row in samples), "each is a node that the controller noted"
        found = int(outcome.candidates[0].details.get("found", 0))
        assert len({row["node"] for row in samples[:found]}) == found, "equal leaves stay different nodes"


@pytest.mark.parametrize("name", SEARCHES)
def test_every_text_is_its_parents_beginning_and_its_own_tokens(name: str) -> None:
    """So its log-probabilities are the model's after that beginning; and all that was drawn is somebody's own."""
    policy = policy_of(name)
    for seed in range(3):
        model = model_of(seed)
        outcome, _, rows = recorded(task_of(seed), policy, seed)
        nodes = nodes_of(rows)
        own = forced = 0
        for number, row in nodes.items():
            text = text_of(nodes, number)
            assert len(text) == row["start"] + len(row["tokens"])
            assert letters(row["tokens"]) == row["text"]
            known = np.array((EOS, 2, 1, *text))
            log_p = model.logprobs[known[:-2], known[1:-1], known[2:]][row["start"] + 1 :]
            np.testing.assert_allclose(row["logp"], log_p, atol=1e-5)
            finish = None if row["finish"] == "rejected" and not row["accepted"] else row["finish"]
            assert finish == task_of(seed).finish(text)
            own, forced = own + len(text) - row["start"], forced + (row["rank"] is not None)
        asked = len(kind(rows, "judged")) if policy.evaluator.name == "self_evaluation" else 0
        if name == "beam":  # it asks for one token of every text that goes on, and draws none of them
            last = max(row["step"] for row in nodes.values())
            asked, own = 1 + sum(row["chosen"] for row in nodes.values() if row["step"] < last), 0
        if name == "lookahead":  # one token at each place, for the likeliest ones there
            asked = len(kind(rows, "chosen"))
        assert own - forced + asked == outcome.usage.generated


@pytest.mark.parametrize("name", ["power exact", "power reference"])
def test_replaying_the_decisions_of_power_gives_its_text(name: str) -> None:
    policy = policy_of(name)
    controller = policy.component(PowerSampling)
    seen = set()
    for seed in range(8):
        outcome, _, rows = recorded(task_of(seed), policy, seed)
        nodes = nodes_of(rows)

        def weights(number: int, nodes: dict[int, dict[str, Any]] = nodes) -> list[float]:
            row = nodes[number]
            own = [controller.alpha * p - q for p, q in zip(row["logp"], row["logq"], strict=True)]
            return ([] if row["parent"] is None else weights(row["parent"], nodes)[: row["start"]]) + own

        at: int | None = None
        proposed = accepted = 0
        for number, row in nodes.items():
            assert row["parent"] == at
            if row["accepted"] is None:
                assert row["start"] == len(text_of(nodes, at))
            else:
                old, new, cut = weights(at), weights(number), row["start"]  # type: ignore[arg-type]
                exact = controller.mode == "exact"
                end = len(old) if exact or row["finish"] == "rejected" else len(new)
                ratio = sum(new[cut:]) - sum(old[cut:end])
                ratio += math.log(len(old) / len(new)) if exact else 0.0
                assert row["log_ratio"] == pytest.approx(ratio, abs=1e-4)
                assert row["accepted"] == (row["uniform"] < math.exp(min(0.0, row["log_ratio"])))
                proposed, accepted = proposed + 1, accepted + row["accepted"]
            at = at if row["accepted"] is False else number
            seen.add(row["accepted"])
        (one,) = outcome.candidates
        assert text_of(nodes, at) == one.tokens.tolist()
        assert (proposed, accepted) == (one.details["proposed"], one.details["accepted"])
        assert [row["node"] for row in kind(rows, "sample")] == [at]
    assert seen == {None, True, False}


@pytest.mark.parametrize("name", [name for name in SEARCHES if name.startswith("mcts")])
def test_replaying_the_scores_of_mcts_gives_its_descents_and_visits(name: str) -> None:
    policy = policy_of(name)
    controller = policy.component(MonteCarloTreeSearch)
    rule = Rule(controller.select, controller.exploration)
    for seed in range(5):
        _, _, rows = recorded(task_of(seed), policy, seed)
        texts = nodes_of(rows)

        def node(row: dict[str, Any]) -> Node:
            zeros = np.zeros(0, np.float32)
            return Node(Thought(Trace(np.zeros(0, np.int32), zeros, zeros, None, row["finish"])), row["prior"] or 1.0)

        tree = {0: node(texts[0])}
        descents: list[list[Node]] = []
        scores: list[float] = []
        for step in range(1, rows.filter(kind="iteration")["step"].max() + 1):  # type: ignore[operator]
            of_step = [row for row in kind(rows, "iteration") if row["step"] == step]
            wave = select(tree[0], rule, len(of_step))
            for nodes in wave:
                leaf = next(number for number, each in tree.items() if each is nodes[-1])
                new = [n for n, row in texts.items() if row["parent"] == leaf and row["prior"] and row["step"] == step]
                tree |= {number: node(texts[number]) for number in new}
                nodes[-1].children = [tree[number] for number in new]
            for nodes in wave:
                if nodes[-1].children:
                    nodes.append(rule.best_child(nodes[-1]))
                    nodes[-1].visits += 1
            assert [[tree[number] for number in row["nodes"]] for row in of_step] == wave
            descents += wave
            (judged,) = [row["scores"] for row in kind(rows, "scored") if row["step"] == step]
            scores = judged if len(judged) == len(descents) else scores + judged
            back_propagate(descents, scaled(scores))
        for number, each in tree.items():
            assert (texts[number]["visits"], texts[number]["value"]) == (each.visits, each.value)
        assert sum(row["visits"] is not None for row in texts.values()) == len(tree)
        assert len(descents) <= policy.component(Iterations).iterations


@pytest.mark.parametrize("name", [name for name in SEARCHES if name.startswith(("thought_tree", "step_beam"))])
def test_what_a_level_keeps_are_its_best(name: str) -> None:
    """By the scores of the record, equal ones in their order; and what is equal to another is ranked no more."""
    policy = policy_of(name)
    for seed in range(4):
        _, _, rows = recorded(task_of(seed), policy, seed)
        texts, ranked = nodes_of(rows), dict[int, list[int]]()
        for row in rows.sort("row").to_dicts():
            if row["kind"] == "scored":
                scores = dict(zip(row["nodes"], row["scores"], strict=True))
                best = sorted(scores, key=lambda number: -scores[number])
                assert not any(texts[number]["same_as"] is not None for number in best)
            elif row["kind"] == "chosen":
                going = [number for number in best if texts[number]["finish"] is None]
                ended = [number for number in best if texts[number]["finish"]]
                if isinstance(policy.controller, ThoughtTree):
                    assert row["nodes"] == best[: policy.width]
                elif "yes" in name:
                    assert row["nodes"] == best[:1]
                else:
                    assert row["nodes"] == ended + going[:2]
                ranked[row["step"]] = best
        assert ranked
        for row in texts.values():
            if row["same_as"] is not None:
                assert text_of(texts, row["node"]) == text_of(texts, row["same_as"])


def test_branches_of_an_entropy_tree_say_where_and_why() -> None:
    """The entropy is the model's at the place, and a forced token has its rank there."""
    for seed in range(4):
        model = model_of(seed)
        _, _, rows = recorded(task_of(seed), policy_of("entropy_tree distinct"), seed)
        nodes = nodes_of(rows)
        branches = [row for row in nodes.values() if row["parent"] is not None]
        assert branches
        for row in branches:
            before, last = (2, 1, *text_of(nodes, row["parent"], row["start"]))[-2:]
            log_p = model.logprobs[before, last]
            assert row["entropy"] == pytest.approx(-(np.exp(log_p) * log_p).sum(), abs=1e-4)
            assert np.argsort(-log_p, kind="stable")[row["rank"]] == row["tokens"][0]
            assert row["logq"][0] == 0
        assert all("masked_from" in json.loads(row["detail"]) for row in nodes.values() if row["step"] < 2)


def test_a_text_is_decoded_as_it_stands_in_the_whole() -> None:
    """Tokens that spell a character together show it with the last of them; none is lost at a seam."""
    spelled = {1: b"\xc3", 2: b"\xa9", 3: b"x"}

    def decode(tokens: Sequence[int]) -> str:
        return b"".join(spelled[token] for token in tokens).decode(errors="ignore")

    recorder, part = Recorder(decode, 10**6), np.float32(0)
    for number, tokens in enumerate([(3, 1), (3, 1, 2, 3)]):
        path = Trace(np.array(tokens, np.int32), np.full(len(tokens), part), np.full(len(tokens), part))
        recorder.note("node", node=number, parent=number - 1, start=2 * number, path=path)
    assert [row["text"] for row in recorder.rows] == ["x", "éx"]


@pytest.mark.parametrize("limit", [0, 2_000])
def test_a_record_beyond_its_limit_is_cut_and_says_so(limit: int) -> None:
    policy = policy_of("mcts 3 answer_agreement")
    _, _, whole = recorded(task_of(2), policy, 2)
    outcome, _, rows = recorded(task_of(2), policy, 2, limit)
    (cut,) = kind(rows, "cut")
    told = json.loads(cut["detail"])
    assert told["mistake"] is None and told["notes"] >= whole.height - rows.height > 0
    assert rows.filter(~pl.col("kind").is_in(["sample", "cut"])).height <= limit // ROW_BYTES + 1
    assert (rows["requests"].sum(), rows["generated"].sum()) == (outcome.usage.requests, outcome.usage.generated)
    assert rows.filter(kind="sample").height == policy.width
    tokens = [one.tokens.tolist() for one in outcome.candidates]
    assert all(tokens[sample] == text for sample, text in samples_of(rows.to_dicts()).items())


@pytest.mark.parametrize(
    "values",
    [{"path": 3, "start": 0}, {"tokens": [1], "start": 0, "visits": "many"}, {"tokens": [1], "start": "here"}],
    ids=str,
)
def test_a_wrong_note_ends_the_record_and_not_the_search(values: dict[str, Any]) -> None:
    """Notes of a controller of one's own may hold anything."""

    def noting(task: Task) -> Search:
        (reply,) = yield [task.request(task.empty, policy_of("autoregressive").local, task.seed)]
        task.note("node", node="only", **values)
        return [task.empty.extend(reply, "length").candidate(0.0)]

    recorder = Recorder(letters, 10**6)
    search = noting(task_of(0)._replace(note=recorder.note))
    outcome = ended(recorder.watch(search), ToyEngine(model_of(0)))
    rows = trace_rows(recorder, outcome, (0, "q0", 0), 1)
    assert rows["requests"].sum() == 1
    (cut,) = kind(rows, "cut")
    assert json.loads(cut["detail"])["mistake"]


def test_a_failed_search_says_why_and_what_it_cost() -> None:
    def failing(task: Task) -> Search:
        yield [task.request(task.empty, policy_of("autoregressive").local, task.seed)]
        raise ValueError("no such branch")

    recorder = Recorder(letters, 10**6)
    ((_, outcome),) = run(
        [(0, recorder.watch(failing(task_of(0)._replace(note=recorder.note))))], ToyEngine(model_of(0))
    )
    assert isinstance(outcome, Failure)
    rows = trace_rows(recorder, outcome, (0, "q0", 0), 1)
    assert rows.select("kind", "requests", "generated").rows() == [("failed", 1, outcome.usage.generated)]
    assert "no such branch" in rows["detail"][0]


# ---- files


CHAIN = {"controller": "power", "scheduler": {"name": "blocks", "blocks": 2, "steps": 2}}


@pytest.fixture
def searched(study: Raw, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Raw:
    """A chain on Base beside the three policies; every question a chunk of its own."""
    monkeypatch.chdir(tmp_path)
    study["policies"]["chain"] = CHAIN
    study["pools"]["searches"] = ["chain"]
    study["benchmarks"]["sums"]["searches"] = "searches"
    return study


def with_trace(study: Raw, **trace: Any) -> Raw:
    return {**study, "study": {**study["study"], "trace": {"questions": 2, **trace}}}


def sampled(grid: Grid) -> Grid:
    for pool in grid.jobs.pools(*CELL):
        generate(grid, *CELL, grid.current_manifest(pool))
    return grid


def files(grid: Grid) -> dict[str, pl.DataFrame]:
    return {path.parent.name: traces.read(path) for path in grid.layout.trace_files()}


def stream(grid: Grid, policy: str) -> str:
    return next(g.id for g in grid.jobs.generations(*CELL) if policy in g.policies)


def test_ids_and_shards_are_the_same_with_and_without(searched: Raw, make_grid: Make, start: Start) -> None:
    """And the record holds the first run of the first questions of the search, and no other."""
    plain, grid = make_grid(searched), make_grid(with_trace(searched) | {"results": "other"})
    start(Scripted(), Scripted())
    for one in (plain, grid):
        sampled(one)
    assert plain.jobs.generations(*CELL) == grid.jobs.generations(*CELL)
    hashes = [
        {path.relative_to(one.layout.results): path.read_bytes() for path in one.layout.shards()}
        for one in (plain, grid)
    ]
    assert hashes[0] == hashes[1] and len(hashes[0]) == 5
    assert not plain.layout.trace_files()
    ((name, rows),) = files(grid).items()
    assert name == stream(grid, "chain")
    assert rows.select("question", "id", "run").unique(maintain_order=True).rows() == [(0, "q0", 0), (1, "q1", 0)]
    (path,) = grid.layout.trace_files()
    assert not list((grid.layout.results / "generations").rglob("*.trace")), "parts go with their chunks"
    shard = pl.read_parquet(grid.folder(*CELL, name) / path.name).filter(pl.col("question").is_in(["q0", "q1"]), run=0)
    assert [rows[name].sum() for name in ("requests", "generated")] == [
        shard["requests"].sum(),
        shard["generated"].sum(),
    ]
    snapshots.save(grid.config)
    opened = open_study(grid.layout.results)
    assert_frame_equal(opened.traces(*CELL, "chain"), rows)
    with pytest.raises(InputError, match="no search of greedy on toy-base/sums was recorded"):
        opened.traces(*CELL, "greedy")
    found = verify(grid.layout.results)
    assert (found.traces, found.damaged, found.notes) == (1, [], [])
    assert "1 trace " in found.counts


@pytest.mark.parametrize(
    ("chosen", "policies_"),
    [
        ("searches", {"chain"}),
        ("all", {"chain", "temp_0.5", "topp0.9_t0.7", "topp0.95_t1.0", "greedy"}),
        (["greedy"], {"greedy"}),
    ],
    ids=["searches", "all", "named"],
)
def test_which_policies_are_recorded(
    searched: Raw, make_grid: Make, start: Start, chosen: Any, policies_: set[str]
) -> None:
    grid = make_grid(with_trace(searched, policies=chosen))
    start(Scripted())
    found = files(sampled(grid))
    assert set(found) == {stream(grid, name) for name in policies_}
    for rows in found.values():
        assert rows.select("question", "run").n_unique() == 2
        assert rows.filter(kind="sample")["sample"].to_list() == [0, 0]


def test_a_killed_job_resumes_with_its_record(searched: Raw, make_grid: Make, start: Start) -> None:
    """The part of a finished chunk is kept beside it, and the file is that of a run without a stop."""
    whole, grid = make_grid(with_trace(searched)), make_grid(with_trace(searched) | {"results": "other"})
    lost = Scripted(dies=RuntimeError("lost"), at=RUNS + 40, repeatable=True)
    start(Scripted(repeatable=True), lost, Scripted(repeatable=True))
    sampled(whole)
    with pytest.raises(JobError, match="the engine died"):
        sampled(grid)
    assert not grid.layout.trace_files()
    parts = sorted(path.name for path in (grid.layout.results / "generations").rglob("*.trace"))
    assert parts, "a search's chunk had finished"
    sampled(grid)
    (one,), (other,) = files(whole).values(), files(grid).values()
    assert_frame_equal(one, other)


def test_a_job_killed_between_record_and_shard_loses_neither(
    searched: Raw, make_grid: Make, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = make_grid(with_trace(searched))
    start(Scripted())

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shards, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            sampled(grid)
    start(Scripted())
    sampled(grid)
    assert len(files(grid)) == 1
    assert verify(grid.layout.results).damaged == []


def test_searches_whose_samples_exist_are_recorded_by_drawing_them_again(
    searched: Raw, make_grid: Make, start: Start
) -> None:
    """The same rows as if they had been recorded at once; more questions complete the file."""
    grid, at_once = make_grid(searched), make_grid(with_trace(searched, questions=3) | {"results": "other"})
    start(Scripted(), Scripted(), Scripted(), Scripted())
    sampled(grid)
    sampled(at_once)
    trace(grid, *CELL, "chain", Traced(2, 1, 10**6))
    (path,) = trace(grid, *CELL, "chain", Traced(3, 1, 10**6))
    assert path == grid.layout.traces(*CELL, stream(grid, "chain")) / "s00000-00004.parquet"
    (one,), (other,) = files(grid).values(), files(at_once).values()
    assert_frame_equal(one, other)
    assert verify(grid.layout.results).damaged == []


def test_samples_that_come_out_differently_are_not_recorded(searched: Raw, make_grid: Make, start: Start) -> None:
    class Other(Scripted):
        """Draws other tokens from the same seeds, as another engine does."""

        def step(self) -> Any:
            return [(number, done._replace(tokens=done.tokens + 1)) for number, done in super().step()]  # type: ignore[union-attr, type-var]

    grid = make_grid(searched)
    start(Scripted(), Other())
    sampled(grid)
    with pytest.raises(
        JobError, match=r"question q0, sample 0: drawn again by .* from token 0 on; nothing was written"
    ):
        trace(grid, *CELL, "chain", Traced(1, 1, 10**6))
    assert not grid.layout.trace_files()


def test_what_cannot_be_drawn_again_is_named(searched: Raw, make_grid: Make, start: Start) -> None:
    grid = make_grid(searched)
    with pytest.raises(InputError, match="has no samples"):
        trace(grid, *CELL, "chain", Traced(1, 1, 10**6))
    with pytest.raises(InputError, match="policy 'chains' is unknown"):
        trace(grid, *CELL, "chains", Traced(1, 1, 10**6))
    with pytest.raises(InputError, match=r"study\.trace\.policies: 'chian' is unknown.*chain"):
        make_grid(with_trace(searched, policies=["chian"]))


def test_damage_is_found_and_what_is_unused_goes(searched: Raw, make_grid: Make, start: Start, tmp_path: Path) -> None:
    grid = make_grid(with_trace(searched))
    start(Scripted())
    (path,) = sampled(grid).layout.trace_files()
    sound = path.read_bytes()
    rows = traces.read(path)

    path.write_bytes(sound[:40] + bytes([sound[40] ^ 1]) + sound[41:])
    assert "it is damaged" in verify(grid.layout.results).damaged[0]

    other = rows.with_columns(tokens=pl.col("tokens").list.eval(pl.element() + 1))
    traces.publish(path.parent, 0, 4, other)
    (message,) = verify(grid.layout.results).damaged
    assert "run 0 of question q0 drew other samples" in message

    path.write_bytes(sound)
    assert not verify(grid.layout.results).damaged

    searched["policies"]["chain"] = {**CHAIN, "scheduler": {"name": "blocks", "blocks": 2, "steps": 3}}
    assert prune.unused(make_grid(searched))["trace folder"] == [path.parent]
    assert prune.unused(grid)["trace folder"] == []

    shards_, moved = set_cell_aside(grid, *CELL, "chain")
    assert len(shards_) == 1 and not path.exists()
    assert any(one.parent.parts[-4:-1] == ("traces", *CELL) for one in moved)


def test_the_command_takes_its_numbers_from_the_study(
    searched: Raw, make_grid: Make, start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = make_grid(searched)
    start(Scripted(), Scripted())
    sampled(grid)
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text(json.dumps(plain(make_grid(with_trace(searched)).config)))
    cell = ["--checkpoint", CELL[0], "--benchmark", CELL[1]]
    assert main(["trace", "--snapshot", str(snapshot), *cell, "--policy", "chain", "--runs", "2"]) == 0
    assert capsys.readouterr().out.strip().endswith("s00000-00004.parquet")
    (rows,) = files(grid).values()
    assert rows.select("question", "run").n_unique() == 4
