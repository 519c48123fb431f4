"""Comparisons with references: they hold on the micro model, they fail if a side is wrong, and their tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from plain_draws import one_by_one, plain_draw  # noqa: E402
from searchlens import catalogue  # noqa: E402
from searchlens.benchmarks import prompts  # noqa: E402
from searchlens.cli.main import main  # noqa: E402
from searchlens.config import check  # noqa: E402
from searchlens.engines.base import Sampling  # noqa: E402
from searchlens.errors import InputError  # noqa: E402
from searchlens.plan import Grid  # noqa: E402
from searchlens.reporting.tables.table import Table  # noqa: E402
from searchlens.search.policy import from_spec  # noqa: E402
from searchlens.search.task import Task  # noqa: E402
from searchlens_lab.equivalence import comparisons, explicit, plan, samplers  # noqa: E402
from searchlens_lab.equivalence.explicit import PROMPT, ToyEngine, ToyModel, enumerate_texts  # noqa: E402
from searchlens_lab.equivalence.plan import EquivalenceOptions  # noqa: E402
from searchlens_lab.equivalence.reference import ids, mean, search  # noqa: E402
from searchlens_lab.equivalence.samplers import LOOKS, table_of, write_results  # noqa: E402
from searchlens_lab.equivalence.subject import Subject  # noqa: E402
from searchlens_lab.equivalence.tables import ComparisonRow, Comparisons, chi_square, frame, total_variation, udf_tier34  # noqa: E402

ROOT = Path(__file__).parents[2]
OPTIONS = EquivalenceOptions(policies=("greedy",))
POLICIES: dict[str, Any] = {
    "topp0.95_t1.0": None,
    "beam": {"controller": {"name": "beam", "width": 2}},
    "power": {
        "local": {"temperature": 0.5},
        "controller": {"name": "power", "alpha": 4.0},
        "scheduler": {"name": "blocks", "blocks": 2, "steps": 2},
    },
    "entropy_cuts": {
        "local": {"temperature": 0.5},
        "controller": {"name": "power", "alpha": 4.0, "cut": "entropy"},
        "scheduler": {"name": "blocks", "blocks": 2, "steps": 2},
    },
    "smc": {"local": {"temperature": 0.25}, "controller": {"name": "smc", "particles": 3, "every": 8, "ramp": 16}},
    "lookahead": {"controller": {"name": "lookahead", "top": 2, "rollouts": 2, "horizon": 4}},
    "tree": {"controller": {"name": "entropy_tree", "positions": 2}, "transition": {"name": "branch", "gap": 2}},
    "mcts": {
        "controller": {"name": "mcts", "children": 2},
        "transition": {"name": "thought", "delimiter": "\n", "max_tokens": 12},
        "scheduler": {"name": "iterations", "iterations": 3},
    },
    "thoughts": {
        "controller": {"name": "thought_tree", "width": 2},
        "transition": {"name": "thought", "delimiter": "\n", "max_tokens": 12},
        "scheduler": {"name": "breadth_first", "depth": 2},
    },
    "step_beam": {
        "controller": {"name": "step_beam", "width": 4, "expand": 2},
        "transition": {"name": "thought", "delimiter": "\n", "max_tokens": 12},
        "scheduler": {"name": "breadth_first", "depth": 2},
    },
}


def written(**changes: Any) -> dict[str, Any]:
    """A small study of the micro pair."""
    return {
        "study": {"pairs": ["micro"], "benchmarks": ["math"]},
        "checkpoints": {name: {"path": str(ROOT / f"resources/zoo/micro-1m-{name}")} for name in ("base", "rl")},
        "pairs": {"micro": {"base": "base", "rl": "rl"}},
        "benchmarks": {
            "math": {
                "path": str(ROOT / "resources/zoo/benchmarks/math.jsonl"),
                "grader": "math",
                "max_tokens": 48,
                "pool": "one",
            }
        },
        "policies": POLICIES,
        "pools": {"one": ["topp0.95_t1.0"]},
        "equivalence": {"policies": ["greedy"], "questions": 4, "draws": 500, "chains": 100, **changes},
    }


def grid(**changes: Any) -> Grid:
    return Grid(check.validate(written(**changes)))


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject.of(grid(), 1)


def by_statistic(rows: list[ComparisonRow]) -> dict[str, ComparisonRow]:
    return {row.statistic: row for row in rows}


@pytest.mark.parametrize(
    "name",
    [
        "greedy",
        "temp_0.7",
        "topk5_t0.9",
        "topp0.8_t1.0",
        "minp0.1_t1.0",
        "typical0.9_t1.0",
        "temp_0.7_rep1.3",
        "temp_0.7_freq0.5_pres0.2",
        "greedy_rep1.2",
        "minp0.05_typical0.95_topk20_topp0.9_t1.0",
    ],
)
def test_local_policies_are_those_of_transformers(subject: Subject, name: str) -> None:
    """Every filter alone, all filters in our order, and penalties; on the micro model, token by token."""
    policy = from_spec(name, None)
    rows = by_statistic(comparisons.compare_local(subject, name, policy))
    tokens = rows["same tokens on the same logits"]
    assert tokens.value == 1.0
    assert rows["same texts"].n == 4 < tokens.n
    assert all(row.holds for row in rows.values())
    assert ("our order" in tokens.reference) == ("topk20" in name)
    assert ("plain formula" in tokens.reference) == ("freq" in name)


def test_another_filter_is_noticed(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers gets another temperature than we use: tokens and texts differ."""
    honest = comparisons._processors

    def other(draws: Any) -> list[Any]:
        return honest(replace(draws, sampling=Sampling(1.5)))

    monkeypatch.setattr(comparisons, "_processors", other)
    rows = by_statistic(comparisons.compare_local(subject, "temp_0.7", from_spec("temp_0.7", None)))
    assert rows["same tokens on the same logits"].value < 1
    assert not rows["same tokens on the same logits"].holds
    assert rows["same texts"].value < 1


def test_searches_are_the_plain_ones(subject: Subject) -> None:
    """Through driver and engine, all at once, on the micro model: every candidate in its place."""
    names = ("power", "entropy_cuts", "smc", "lookahead", "tree", "mcts", "thoughts", "step_beam")
    chosen = {name: from_spec(name, POLICIES[name]) for name in names}
    rows = comparisons.compare(subject, chosen)
    assert [row.policy for row in rows] == [name for name in chosen for _ in range(2)]
    for same, accuracy in zip(rows[::2], rows[1::2], strict=True):
        questions = 2 if same.policy == "lookahead" else 4
        assert (same.value, same.n, same.holds) == (1.0, questions * chosen[same.policy].width, True)
        assert accuracy.ours == accuracy.theirs


def test_another_search_is_noticed(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain tree branches at other places: its texts are not ours."""
    other = from_spec("tree", {**POLICIES["tree"], "controller": {"name": "entropy_tree", "positions": 1}})
    honest = comparisons.reference.search
    monkeypatch.setattr(comparisons.reference, "search", lambda task, policy, score: honest(task, other, score))
    same, _ = comparisons.compare(subject, {"tree": from_spec("tree", POLICIES["tree"])})
    assert same.value < 1
    assert not same.holds


def test_beams_are_those_of_transformers(subject: Subject) -> None:
    rows = by_statistic(comparisons.compare_beam(subject, "beam", from_spec("beam", POLICIES["beam"])))
    assert rows["same texts"].value == 1.0
    assert rows["largest difference of scores of equal texts"].value < 1e-4
    assert rows["same texts"].n == 8


@pytest.fixture
def stopping() -> Subject:
    """The same comparison under a template with stop texts that the micro model often writes."""
    stops = {**vars(prompts.families()["zoo"]), "stop_texts": ["=", "so"], "check_every": 5}
    raw = written() | {"templates": {"zoo": stops}}
    return Subject.of(Grid(check.validate(raw)), 1)


def test_comparisons_hold_with_stop_texts(stopping: Subject) -> None:
    """Every kind of policy ends at stop texts as its reference does; without them the micro model would go on."""
    chosen = {name: from_spec(name, POLICIES[name]) for name in ("power", "tree", "mcts", "thoughts", "step_beam")}
    rows = [
        *comparisons.compare(stopping, chosen),
        *comparisons.compare_beam(stopping, "beam", from_spec("beam", POLICIES["beam"])),
        *comparisons.compare_local(stopping, "topp0.9_t1.0", from_spec("topp0.9_t1.0", None)),
    ]
    assert all(row.holds for row in rows)
    assert {row.value for row in rows if row.statistic == "same texts"} == {1.0}
    read, stops = stopping.job.prompter.text, ("=", "so")
    for name, policy in [*chosen.items(), ("beam", from_spec("beam", POLICIES["beam"]))]:
        found = stopping.search([(policy, task) for task in stopping.tasks(policy)])
        texts = [one.tokens.tolist() for candidates in found for one in candidates]
        assert any(stop in read(text) for stop in stops for text in texts), name
        assert not any(stop in read(text[:-1]) for stop in stops for text in texts), name


def test_running_together_changes_no_search() -> None:
    """Requests of different questions in one batch give the same texts as each search alone with the plain draw."""
    model = ToyModel.random(3, vocab_size=6, eos=-0.5)
    policy = from_spec("tree", {"controller": "entropy_tree", "transition": {"name": "branch", "gap": 1}})
    tasks = [Task((3, 2), seed, 10, (0,), (), str, tuple) for seed in range(6)]
    plain = [search(task, policy, mean) for task in tasks]
    found = comparisons.run_together(plain, [(policy, task) for task in tasks], ToyEngine(model))
    draw = plain_draw(model, (3, 2), policy.local)
    for task, texts in zip(tasks, found, strict=True):
        alone = search(task, policy, mean)
        assert [ids(text) for text in texts] == [ids(text) for text in one_by_one(alone, draw)]


# Statistics, worked out by hand.


def test_chi_square() -> None:
    law = {(1,): 0.5, (2,): 0.3, (3,): 0.19, (4,): 0.01}
    counts = Counter({(1,): 55, (2,): 25, (3,): 20})  # the rarest two are one cell, expected 20: 25/50 + 25/30 + 0
    assert chi_square(counts, law) == pytest.approx(0.5134, abs=1e-3)  # exp(-(4/3) / 2), two degrees of freedom
    assert chi_square(Counter({(5,): 1, (1,): 99}), law) == 0.0
    assert chi_square(Counter({(1,): 100}), law) < 1e-20
    assert chi_square(Counter({(1,): 7}), {(1,): 1.0}) == 1.0


def test_total_variation() -> None:
    assert total_variation(Counter({(1,): 3, (2,): 1}), {(1,): 0.5, (2,): 0.25, (3,): 0.25}) == pytest.approx(0.25)


def test_a_wrong_law_is_noticed() -> None:
    """Draws of one temperature against the law of another, and a chain without steps against its target."""
    hot, cold = from_spec("temp_1.0", None), from_spec("temp_0.9", None)
    counts, _ = explicit.draws(explicit.LOCAL, hot, 4000, explicit.LOCAL_LIMIT)
    assert explicit.compare("temp_1.0", hot, OPTIONS)[0].holds
    law = explicit.enumerate_texts(explicit.LOCAL, explicit.PROMPT, explicit.LOCAL_LIMIT, sampling=cold.local)
    assert chi_square(counts, law) < OPTIONS.p_value
    still = {**POLICIES["power"], "scheduler": {"name": "blocks", "blocks": 2, "steps": 0}}
    distance, p = explicit.compare("power", from_spec("power", still), OPTIONS)
    assert not distance.holds
    assert not p.holds


def test_power_sampling_is_at_its_target() -> None:
    spec = {"local": {"temperature": 0.25}, "controller": "power", "scheduler": {"name": "blocks", "steps": 4}}
    assert all(row.holds for row in explicit.compare("power", from_spec("power", spec), OPTIONS))


def row(value: float, bound: Any = "at least", threshold: float = 0.75, **more: Any) -> ComparisonRow:
    return ComparisonRow("tier34", "mine", "theirs", "same texts", 4, "texts", value, bound, threshold, **more)


def test_a_row_holds_on_the_right_side() -> None:
    assert row(0.75).holds and not row(0.74).holds
    assert row(0.1, "at most", 0.1).holds and not row(0.11, "at most", 0.1).holds
    assert not row(float("nan")).holds and not row(float("nan"), "at most").holds


def table(rows: list[ComparisonRow]) -> Table:
    return udf_tier34(Comparisons(frame(rows)))


def test_the_table_says_what_does_not_hold() -> None:
    made = table([row(0.5), row(0.0, "at most", 0.1, ours=0.25, theirs=0.25), row(float("nan"))])
    assert made.data["holds"].to_list() == [False, True, False]
    assert made.data["value"].to_list() == [0.5, 0.0, None]
    assert made.text["holds"].to_list() == ["×", "✓", "×"]
    assert made.text["value"].to_list() == ["0.500", "0.000 (0.25 against 0.25)", "—"]
    assert made.notes[0].count("mine against theirs: same texts") == 2
    assert table([row(1.0)]).notes[0] == "Every comparison holds."
    assert table([]).data.height == 0


# Configuration, command and rule.


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"policies": ["temp_x"]}, "equivalence.policies: policy name 'temp_x' is malformed"),
        ({"policies": []}, "equivalence.policies: List should have at least 1 item"),
        ({"questions": -1}, "equivalence.questions: must be an integer, >= 0"),
        ({"draws": 5}, "equivalence.draws: must be an integer, >= 100, <= 100_000"),
    ],
)
def test_a_wrong_section_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as error:
        grid(**changes)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "spec",
    [
        {"controller": "step_beam", "evaluator": "self_certainty"},
        {"controller": "mcts", "evaluator": "answer_agreement"},
    ],
)
def test_a_policy_without_a_reference_is_refused(spec: dict[str, Any]) -> None:
    raw = written(policies=["mine"])
    raw["policies"] = {**POLICIES, "mine": spec}
    with pytest.raises(InputError, match=r"equivalence\.policies: 'mine' has no reference"):
        check.validate(raw)


def test_without_questions_nothing_is_compared() -> None:
    assert plan.compared(grid()) == ("base", "math")
    assert plan.compared(grid(questions=0)) is None
    raw = written()
    assert plan.compared(Grid(check.validate({**raw, "equivalence": None}))) is None
    without = {**raw, "study": {"pairs": [], "benchmarks": []}}
    assert plan.compared(Grid(check.validate(without))) is None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config").mkdir()
    for path in check.DEFAULT_FILES:
        (tmp_path / path).write_text("{}")
    (tmp_path / "config/config.yaml").write_text(yaml.safe_dump(written(policies=["temp_0.7", "tree"], questions=2)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_command(folder: Path) -> None:
    assert main(["equivalence", "--output", "results"]) == 0
    names = ("udf_local", "udf_tier34")
    assert set(catalogue.declared("table", stage="equivalence")) == set(names)
    local_table, search_table = (pl.read_csv(folder / f"results/tables/{name}.csv") for name in names)
    assert local_table["policy"].unique().to_list() == ["temp_0.7"]
    assert search_table["statistic"].to_list() == ["same texts", "difference of accuracies"]
    assert search_table["n"].to_list() == [2 * (1 + 2), 2]  # a root and two branches for each question
    assert local_table["holds"].all()
    for name in names:
        assert (folder / f"results/tables/{name}.tex").exists()
        assert "| ✓" in (folder / f"results/tables/{name}.md").read_text()
        made = json.loads((folder / f"results/tables/{name}.json").read_text())
        assert made["config"] and made["wall_seconds"] > 0, "provenance is written next to the table"


def test_command_without_a_section_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "off.yaml").write_text("equivalence: null")
    assert main(["equivalence", "--config", "off.yaml", "--output", "results"]) == 2
    assert "this study has no comparison with references" in capsys.readouterr().err


def planned(folder: Path) -> str:
    command = [str(Path(sys.executable).parent / "snakemake"), "--snakefile", str(ROOT / "Snakefile"), "-n"]
    profile = ["--workflow-profile", str(ROOT / "profiles/default"), "--cores", "1"]
    done = subprocess.run([*command, *profile], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_the_rule_is_part_of_the_study_unless_left_out(folder: Path) -> None:
    assert "\nequivalence " in planned(folder)
    (folder / "config/config.yaml").write_text(yaml.safe_dump(written(questions=0)))
    assert "\nequivalence " not in planned(folder)


# ---- The comparison of samplers of p^alpha: its toys, its numbers on few runs, and what it writes


def low_temperature_distance(seed: int) -> float:
    model = ToyModel.random(seed, vocab_size=4, eos=-1.0)
    p = enumerate_texts(model, PROMPT, 5)
    total = sum(chance**4 for chance in p.values())
    q = enumerate_texts(model, PROMPT, 5, sampling=Sampling(0.25))
    return 0.5 * sum(abs(q.get(text, 0.0) - chance**4 / total) for text, chance in p.items())


def test_toys_are_one_near_the_median_and_the_last_but_one() -> None:
    found = [low_temperature_distance(seed) for seed in range(80)]
    order = sorted(range(80), key=found.__getitem__)
    assert (order.index(1), order.index(14)) == (34, 78)
    assert (found[1], found[14]) == (pytest.approx(0.764, abs=1e-3), pytest.approx(0.975, abs=1e-3))


def settings() -> list[samplers.Setting]:
    return [
        one for one in samplers.SETTINGS if one.setting in ("T = 1/4", "2 steps", "N = 4", "1 rollouts", "4 rollouts")
    ]


def accuracies() -> pl.DataFrame:
    rows = [(one.sampler, one.setting, 50, 0.7, 0.56, 0.81, 120.0, -2.5) for one in settings() if one.real]
    return pl.DataFrame(rows, samplers.ACCURACIES, orient="row")


def test_every_sampler_has_a_look_and_policies_that_can_run() -> None:
    assert {one.sampler for one in samplers.SETTINGS} == set(LOOKS)
    for one in samplers.SETTINGS:
        for spec in (one.toy, one.real or one.toy):
            from_spec(one.sampler, spec)
    assert len({(one.sampler, one.setting) for one in samplers.SETTINGS}) == len(samplers.SETTINGS)


def test_distances_and_costs_on_few_runs(tmp_path: Path) -> None:
    """Low temperature is as far as its exact law says; two runs are equal; table and figure hold every sampler."""
    toys = samplers.TOYS[:2]
    found = samplers.distances(200, settings(), toys)
    assert found.equals(samplers.distances(200, settings(), toys))
    low = found.filter(sampler="low temperature", toy="median").row(0, named=True)
    assert low["distance"] == pytest.approx(low_temperature_distance(1), abs=2 * low["noise"])
    tokens = dict(found.filter(toy="median").select("sampler", "tokens").iter_rows())
    assert 1 <= tokens["low temperature"] <= 5
    assert tokens["SMC"] > 2 * tokens["low temperature"]
    assert 2.5 < tokens["best of N, reweighted"] / tokens["low temperature"] < 5.5
    table = table_of(found, accuracies())
    assert table.data.height == len(settings())
    written = write_results(found, accuracies(), tmp_path)
    assert {path.suffix for path in written} == {".parquet", ".csv", ".md", ".tex", ".html", ".svg", ".pdf", ".png"}
    assert all(path.stat().st_size for path in written)
    assert pl.read_parquet(tmp_path / "samplers.parquet").equals(table.data)
    assert "low temperature" in (tmp_path / "sampler_distance.svg").read_text()
