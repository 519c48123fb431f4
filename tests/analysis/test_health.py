"""A broken run says so: wrong template, token limit or grader, and searches that failed, are named and never read."""

import json
import logging
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from conftest import Make, Raw
from run_stages import figures_cell, landscape_cell, recovery_cell, score_cell
from searchlens.analysis.classes import answer_classes
from searchlens.analysis.health import (
    CHAINS,
    DETAILS,
    MIXING,
    Health,
    examples,
    judge,
    mixing,
    of_classes,
    of_graded,
    of_pair,
    of_rules,
    rhat,
)
from searchlens.analysis.points import operating_points
from searchlens.benchmarks import Question
from searchlens.cli import status, summary
from searchlens.cli.stages.importing import Request, import_samples
from searchlens.cli.stages.measures import measures
from searchlens.cli.stages.tables import tables
from searchlens.config.health import DEFAULTS
from searchlens.engines.base import Sampling
from searchlens.formats.reading import Choices
from searchlens.plan import Grid, needs
from searchlens.reporting.tables.samples import mixing as mixing_table
from searchlens.search.driver import run, start
from searchlens.search.policy import from_spec
from searchlens.search.task import Task
from searchlens.store.columns import GRADED, HEALTH, SCORES
from searchlens.store.provenance import config_fingerprint
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel

DEFAULT = "topp0.95_t1.0"


def graded(*groups: tuple[int, dict[str, Any]], policy: str = DEFAULT) -> pl.DataFrame:
    """Samples of 10 questions in turn; each group is a number of samples and what they differ in from right ones."""
    right = {"correct": True, "answer": 0, "stopped": True, "finish": "stop", "finished": True, "unknown": False}
    rows = [{**right, "extraction": "boxed", "score": -1.0, **more} for count, more in groups for _ in range(count)]
    keys = [{"policy": policy, "question": i % 10, "sample": i // 10, "run": i // 10} for i in range(len(rows))]
    return pl.DataFrame([{**key, **row} for key, row in zip(keys, rows, strict=True)], GRADED)


RIGHT: dict[str, Any] = {}
SILENT = {"correct": False, "answer": -1, "finished": False, "extraction": "none"}
CUT = {"stopped": False, "finish": "length", "finished": False}
FAILED = {**SILENT, **CUT, "finish": "failed", "score": float("-inf")}


def health(*groups: tuple[int, dict[str, Any]], **limits: float) -> Health:
    return judge(of_graded(graded(*groups)), DEFAULT, replace(DEFAULTS, **limits))


# ---- counts


def test_every_kind_of_sample_is_counted_once() -> None:
    unjudged, withdrawn = {"correct": False, "unknown": True}, {**SILENT, "extraction": "withdrawn"}
    unknown_end = {"finish": None}
    counts = of_graded(
        graded(
            (2, RIGHT), (3, CUT), (4, {**CUT, **SILENT}), (1, FAILED), (5, unjudged), (2, withdrawn), (3, unknown_end)
        )
    )
    expected = {
        "samples": 20,
        "answered": 2 + 3 + 5 + 3,
        "stopped": 2 + 5 + 2,
        "truncated": 7,
        "unknown_end": 3,
        "whole_answered": 2 + 5 + 3,
        "unknown": 5,
        "failed": 1,
        "kept": 0,
        "unboxed": 0,
        "withdrawn": 2,
        "questions": 10,
    }
    rows = counts.drop("unsolved").rows(named=True)
    assert rows == [{"policy": None, **expected}, {"policy": DEFAULT, **expected}]
    assert counts["unsolved"][0] == 2, "right samples are of the questions 0 to 4 and 7 to 9"


def test_policies_are_counted_apart_and_questions_once() -> None:
    counts = of_graded(pl.concat([graded((10, RIGHT)), graded((20, SILENT), policy="hot")]))
    assert counts.select("policy", "samples", "answered", "unsolved").rows() == [
        (None, 30, 10, 0),
        (DEFAULT, 10, 10, 0),
        ("hot", 20, 0, 10),
    ]


def test_what_was_not_recorded_is_unknown_and_never_none() -> None:
    """Samples that were graded elsewhere have no column for it; recorded counts have answers and stops."""
    scores = graded((30, RIGHT), (20, {**CUT, **SILENT})).select(SCORES.names())
    row = of_graded(scores).row(0, named=True)
    assert {name for name, count in row.items() if count is None} == {
        "policy",
        "unknown_end",
        "unknown",
        "kept",
        "withdrawn",
        "unboxed",
    }
    landscape = operating_points(scores, budgets=[1, 4])
    compact = of_classes(answer_classes(scores), landscape.points)
    assert compact.schema == HEALTH
    both = ("samples", "answered", "stopped", "truncated", "questions", "unsolved")
    assert compact.select(both).row(0) == tuple(row[name] for name in both)
    assert compact.drop("policy", *both).row(0) == (None,) * 7
    assert "unknown verdicts unknown" in judge(compact, DEFAULT).shares


# ---- judgements


BROKEN, REMARK = "not interpretable", "attention"


@pytest.mark.parametrize(
    ("level", "groups", "says"),
    [
        ("ok", [(90, RIGHT), (5, {**CUT, **SILENT}), (5, SILENT)], ""),
        (REMARK, [(15, RIGHT), (45, {**CUT, **SILENT}), (40, SILENT)], "73% of 55 finished texts have no answer"),
        (REMARK, [(10, RIGHT), (90, CUT)], "90% of 100 samples were cut off"),
        (REMARK, [(90, RIGHT), (10, FAILED)], f"searches failed: {DEFAULT} (10%)"),
        (REMARK, [(100, {"correct": False})], "no sample solves any of 10 questions (golds? grader?)"),
        (BROKEN, [(8, SILENT)], "0% of 8 samples have an answer (template? token limit? grader?)"),
        (BROKEN, [(9, RIGHT), (91, {**CUT, **SILENT})], "9% of 100 samples have an answer"),
        (
            BROKEN,
            [(10, {**CUT}), (10, RIGHT), (80, SILENT)],
            "11% of 90 finished texts have an answer (template? grader?)",
        ),
        (BROKEN, [(70, RIGHT), (30, {"unknown": True})], "the verdict of 30% of 100 answers is unknown"),
    ],
)
def test_a_cell_is_read_within_its_limits(level: str, groups: list[tuple[int, dict[str, Any]]], says: str) -> None:
    """Few answers are what a Base model may give; beyond a limit a cell is not interpretable."""
    found = health(*groups)
    assert found.level == level
    assert says in found.reason and (bool(found.reason) == bool(says))


def test_the_default_policy_is_judged_by_itself() -> None:
    """Its curve is the target: that of RL says nothing if only the other policies were answered."""
    frame = pl.concat([graded((100, RIGHT), policy="cold"), graded((10, SILENT))])
    found = judge(of_graded(frame), DEFAULT)
    assert found.broken == (f"0% of 10 samples have an answer (template? token limit? grader?), under {DEFAULT}",)
    assert judge(of_graded(frame), "cold").level == "ok"


def test_limits_are_options() -> None:
    groups = [(15, RIGHT), (85, {**CUT, **SILENT})]
    assert health(*groups).level == "attention"
    assert health(*groups, answered=0.16).level == "not interpretable"


TEN = [Question(f"q{i}", "", f"({'ABCD'[i % 4]})") for i in range(10)]


def test_two_sides_that_solve_nothing_are_not_compared() -> None:
    """From 20 samples a side on; where nothing is expected to be solved it stays a remark of each cell."""
    wrong = {"correct": False}
    nothing, few, some = health((20, wrong)), health((19, wrong)), health((19, wrong), (1, RIGHT))
    assert of_pair({"Base": nothing, "RL": nothing}) == "neither side solves any of 10 questions (golds? grader?)"
    assert of_pair({"Base": nothing, "RL": nothing}, is_floor=True) == ""
    assert of_pair({"Base": nothing, "RL": few}) == of_pair({"Base": some, "RL": nothing}) == ""
    assert nothing.level == "attention"


def test_answers_of_two_sides_that_were_found_by_different_rules_are_said() -> None:
    """From 20 answers a side on, and if the shares differ by more than a tenth."""
    boxed, few, other = ({"extraction": how} for how in ("boxed", "kept", "fallback"))
    base = health((80, boxed), (20, other))
    assert of_rules(base, health((69, few), (31, other))) == (
        "20% of Base's and 31% of RL's answers were found without a box (other prompts? grader?)"
    )
    assert of_rules(base, health((70, boxed), (30, other))) == "", "a tenth"
    assert of_rules(health((19, boxed)), health((19, other))) == "", "few answers"
    assert of_rules(base, judge(of_graded(graded((90, RIGHT)).drop("extraction")), DEFAULT)) == "", "not recorded"


def test_golds_are_shown_where_nothing_is_right() -> None:
    frame = graded((20, {"correct": False, "answer": 1}))
    texts = frame.select("policy", "sample", question=pl.format("q{}", "question"), text=pl.lit("It is (A)."))
    shown = examples(frame.lazy(), lambda _: texts, TEN)
    assert shown == [
        f"  {DEFAULT}, question q0, sample 0, finish stop: 'It is (A).', gold '(A)'",
        f"  {DEFAULT}, question q9, sample 1, finish stop: 'It is (A).', gold '(B)'",
    ]
    withheld = examples(frame.lazy(), lambda _: texts, TEN, quotes=False)
    assert len(withheld) == 2 and not any("gold" in line for line in withheld)


def test_five_texts_are_shown_with_their_ends() -> None:
    frame = graded((10, RIGHT), (20, {**CUT, **SILENT}))
    texts = frame.select(
        "policy", "sample", question=pl.format("q{}", "question"), text=pl.lit("x" * 200 + "\nno \\boxed{")
    )
    shown = examples(frame.lazy(), lambda _: texts, TEN)
    assert len(shown) == 5
    assert shown[0].startswith(f"  {DEFAULT}, question q0, sample 1, finish length: …'xx")
    assert shown[-1].startswith(f"  {DEFAULT}, question q9, sample 2, ")
    assert all(line.endswith("\\nno \\\\boxed{'") for line in shown)
    withheld = examples(frame.lazy(), lambda _: texts, TEN, quotes=False)
    assert len(withheld) == 5 and not any("xx" in line for line in withheld), "of gated benchmarks, ids alone"


# ---- a study whose samples have no answer


def bring(grid: Grid, folder: Path, role: str, text: str) -> None:
    path = folder / f"{role}.jsonl"
    rows = [{"question": f"q{q}", "sample": s, "text": text, "gold": "A"} for q in range(40) for s in range(16)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    choices = Choices(role=role, policy=DEFAULT)
    request = Request(pair="mine", benchmark="own", grader="choice", choices=choices, is_confirmed=True)
    (check,) = import_samples(grid, [path], request).checks
    assert (not check.faults) == ("boxed" in text), "said at once, before anything is graded"
    assert len(check.examples) == (0 if "boxed" in text else 3)


def analysed(raw: Raw, make_grid: Make, folder: Path, texts: dict[str, str]) -> Grid:
    """Everything up to the tables and figures of a study of imported samples."""
    raw |= {
        "study": {"pairs": [], "benchmarks": [], "imports": "all"},
        "samples": 16,
        "budgets": [1, 4, 16],
        "landscape": {"draws": 100},
    }
    for role, text in texts.items():
        bring(make_grid(raw), folder, role, text)
    grid = make_grid(raw)
    for cell in grid.study.cells:
        score_cell(grid, *cell, [], grid.scores(*cell))
        landscape_cell(grid, "own", grid.scores(*cell), grid.layout.landscape(*cell))
    base, rl = (grid.layout.landscape(f"mine-{role}", "own") for role in ("base", "rl"))
    recovery_cell(grid, base, rl, grid.layout.recovery("mine", "own"))
    measures(needs.measures(grid), grid.layout, fingerprint=config_fingerprint(grid.config))
    tables(needs.tables(grid), grid.layout, grid.layout, fingerprint=config_fingerprint(grid.config))
    return grid


def test_a_study_without_answers_is_never_read(
    raw: Raw,
    make_grid: Make,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """640 texts a side that state nothing: 0 of 40 questions against 0 is neither a tie nor inside."""
    with caplog.at_level(logging.INFO):
        grid = analysed(raw, make_grid, tmp_path, dict.fromkeys(("base", "rl"), "Hard to say.\nMaybe B?"))
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert any("mine-base/own: not interpretable: 0% of 640 samples have an answer" in text for text in warned)
    said = summary.rendered(summary.answer(grid))
    assert "inside" not in said and "+0.0" not in said
    assert (
        "mine/own: not interpretable. Base: 0% of 640 samples have an answer (template? token limit? grader?)" in said
    )
    assert said.count(r"finish unknown: 'Hard to say.\nMaybe B?'") == 2 * 5
    assert said.endswith("0 of 2 cells are healthy; see docs/troubleshooting.md")
    assert "  mine-rl/own: not interpretable: 0% of 640 samples" in status.rendered(status.answer(grid))
    for name in ("recovery_summary", "same_policy_counts", "health"):
        assert "Not interpretable: mine/own. Base: 0% of 640" in grid.layout.table(name, "md").read_text()
    figures_cell(grid, "mine", "own", tmp_path / "figures")
    assert pl.read_csv(tmp_path / "figures/support_region_P.csv").filter(layer="support").height == 3


def test_a_study_in_which_no_gold_fits_is_never_read(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    """All 640 texts of both sides have an answer, and none is right."""
    grid = analysed(raw, make_grid, tmp_path, dict.fromkeys(("base", "rl"), r"\boxed{B}"))
    said = summary.rendered(summary.answer(grid))
    assert "mine/own: not interpretable. neither side solves any of 40 questions (golds? grader?)" in said
    assert said.count(r"finish unknown: '\\boxed{B}', gold 'A'") == 2 * 2
    assert "inside" not in said


def test_a_study_with_answers_is_read(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    """The summary names the size of the pool that "inside" rests on."""
    grid = analysed(raw, make_grid, tmp_path, {"base": r"\boxed{A}", "rl": r"\boxed{A}"})
    found = summary.answer(grid)
    (pair,) = json.loads(json.dumps(found))["pairs"]
    assert (pair["inside"], pair["budgets"], pair["both_zero"], pair["source"]) == (3, 3, 0, "imported")
    assert [(row["budget"], row["value"]) for row in pair["rl_minus_base"]] == [(1, 0.0), (16, 0.0)]
    said = summary.rendered(found)
    assert "(40 questions, imported). By the estimates RL is inside what Base's 1 policy reach at 3 of 3" in said
    assert said.endswith("2 of 2 cells are healthy")


# ---- What is said of the mixing of chains, on chains of known law and through a table


def chains_of(levels: np.ndarray, policy: str = "power") -> pl.DataFrame:
    """Chains whose log p goes through ``levels``, shape (questions, chains, states)."""
    counts = {"proposed": 20, "accepted": 18, "changed": 3, "rejected_early": 1}
    names = {"checkpoint": "base", "benchmark": "math", "policy": policy, **counts}
    rows = [
        names
        | {"question": f"q{q}", "logp_half": states[0], "logp_after": states[-1], "chain_states": len(states)}
        | {"chain_mean": states.mean(), "chain_variance": states.var(ddof=1)}
        for q, question in enumerate(levels)
        for states in question
    ]
    return pl.DataFrame(rows, CHAINS, strict=False)


def test_rhat_is_that_of_the_textbook() -> None:
    """For one question against Gelman and Rubin's formula, written out; about 1 for draws from one law."""
    levels = np.random.default_rng(0).standard_normal((1, 4, 50)) + np.arange(4)[None, :, None]
    n, between = 50, 50 * levels[0].mean(1).var(ddof=1)
    within = levels[0].var(1, ddof=1).mean()
    wanted = math.sqrt(((n - 1) / n * within + between / n) / within)
    assert rhat(chains_of(levels)) == pytest.approx(wanted)
    mixed = np.random.default_rng(1).standard_normal((40, 16, 50)) + 100 * np.arange(40)[:, None, None]
    assert rhat(chains_of(mixed)) == pytest.approx(1.0, abs=0.01)


def test_extremes() -> None:
    """Chains that never move and differ; that never move and agree; one chain for each question."""
    assert rhat(chains_of(np.zeros((3, 4, 5)) + np.arange(4)[None, :, None])) == math.inf
    assert rhat(chains_of(np.zeros((3, 4, 5)))) == 1.0
    assert rhat(chains_of(np.random.default_rng(0).standard_normal((3, 1, 5)))) is None
    assert mixing(CHAINS.to_frame()).schema == MIXING


def test_verdicts() -> None:
    """A ratio above its limit, or a rise that is no noise; a single chain has no ratio but may rise."""
    noise = np.random.default_rng(2).standard_normal((40, 8, 30))
    rising = noise + np.linspace(0, 2, 30)
    apart = noise + 3 * np.arange(8)[None, :, None]
    frames = {"fine": noise, "rising": rising, "apart": apart, "alone": noise[:, :1], "alone rising": 3 * rising[:, :1]}
    found = mixing(pl.concat([chains_of(levels, name) for name, levels in frames.items()]))
    assert dict(found.select("policy", "verdict").iter_rows()) == {
        "fine": "no sign",
        "rising": "not mixed",
        "apart": "not mixed",
        "alone": "unknown",
        "alone rising": "not mixed",
    }
    assert found["accepted"].to_list() == [0.9] * 5 and found["changed"].to_list() == [0.15] * 5


@pytest.mark.parametrize(("steps", "verdict"), [(4, "not mixed"), (400, "no sign")])
def test_chains_on_a_small_model(steps: int, verdict: str) -> None:
    """Few steps are found out, and enough steps are not accused: several questions, 16 chains each."""
    model = ToyModel.random(19, vocab_size=3, scale=1.5, eos=-0.5)
    parts = {"controller": {"name": "power", "alpha": 2}, "scheduler": {"name": "blocks", "blocks": 1, "steps": steps}}
    policy = replace(from_spec("power", parts), local=Sampling(1.0))
    tasks = {
        (question, chain): Task((1, question), 100 * question + chain, 4, (EOS,), (), decode=str, answer=tuple)
        for question in range(3)
        for chain in range(16)
    }
    rows = []
    for (question, _), outcome in run(((key, start(task, policy)) for key, task in tasks.items()), ToyEngine(model)):
        details = json.loads(json.dumps(dict(outcome.candidates[0].details)))
        names = {"checkpoint": "base", "benchmark": "math", "policy": "power", "question": str(question)}
        rows.append(names | {name: details[name] for name in DETAILS})
    found = mixing(pl.DataFrame(rows, CHAINS, strict=False))
    assert found["verdict"].to_list() == [verdict]


def test_table_names_chains_that_have_not_mixed() -> None:
    noise = np.random.default_rng(2).standard_normal((5, 4, 30))
    apart = chains_of(noise + 3 * np.arange(4)[None, :, None], "power_t0.25")
    context: Any = SimpleNamespace(chains=apart)
    table = mixing_table(context)
    assert table.notes[0] == "base/math: the chains of power_t0.25 have not mixed."
    assert table.data["verdict"].to_list() == ["not mixed"]
    nothing: Any = SimpleNamespace(chains=CHAINS.to_frame())
    assert "No samples" in mixing_table(nothing).notes[0]
