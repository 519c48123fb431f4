"""The whole study: which frames there are, that no cell is passed over in silence, and small tables by hand."""

import re
from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
import pytest
from polars.testing import assert_frame_equal

from searchlens.boptr import study as module
from searchlens.boptr.cohort import Benchmark, Cohort, CohortPlan, Model
from searchlens.boptr.evaluate import Constants, Task
from searchlens.boptr.protocol import blocks
from searchlens.boptr.rows import ROWS
from searchlens.boptr.rule import REASONS
from searchlens.boptr.study import study, words
from searchlens.boptr.transfer import ERRORS, held_out_criterion, percell
from searchlens.catalogue import BOPTR_WORDS, boptr_frames
from searchlens.config.boptr import BoptrOptions
from searchlens.config.health import HealthOptions
from searchlens.errors import InputError
from searchlens.search.kinds import is_search
from searchlens.search.policy import parse
from searchlens.store.frames import read_frame, write_frame
from searchlens_lab.simulate import Design, paper_design, simulate, small_design
from small_cohort import part_of_paper

Frames = dict[str, pl.DataFrame]
ANCHOR, SMALL, LLAMA, NEW = "qwen25_7b", "qwen25_1.5b", "llama31_8b", "orz_7b"
FITTED_MODELS, MODELS = (ANCHOR, SMALL, LLAMA), (ANCHOR, SMALL, LLAMA, NEW)
FITTED, HELD_OUT = ("math500", "aime", "gpqa"), ("amc23",)
RENAMED = "renamed-"
"""Prefix of names in place of those that spell a policy."""
OPTIONS = BoptrOptions(draws=20, permutations=6, reselect=5, mu_without=(SMALL,))


def design() -> Design:
    """Three fitted pairs and a new one, one benchmark of every role and regime; Llama without GPQA."""
    policies = ("temp_0.5", "topp0.8_t0.9", "topk20_t0.7", "topp0.95_t1.0")
    searches = {"math500": {"mcts16_temp_0.7": paper_design().searches["math500"]["mcts16_temp_0.7"]}}
    more = {"extension": {"math500": 32}, "batches": {"123": ("base",)}, "missing": frozenset({(LLAMA, "gpqa")})}
    benchmarks = (*FITTED, *HELD_OUT, "rltrain", "mmlu_stem")
    return part_of_paper(MODELS, benchmarks, policies, 25, searches=searches, **more)


@pytest.fixture(scope="module")
def frames() -> Frames:
    return study(simulate(design(), 7), OPTIONS)


@pytest.fixture(scope="module")
def alone() -> Frames:
    """The anchor's pair on two benchmarks."""
    small = small_design()
    one = replace(small, models={ANCHOR: small.models[ANCHOR]})
    return study(simulate(one, 7), replace(OPTIONS, mu_without=()))


def documented() -> set[str]:
    """Files of the boptr section of the page on data."""
    page = (Path(__file__).parents[2] / "docs" / "columns.md").read_text()
    section = page.split("\n## boptr\n")[1].split("\n### ")[0]
    return set(re.findall(r"`(\w+)\.parquet`", section))


@pytest.mark.parametrize("which", ["frames", "alone"])
@pytest.mark.long
def test_frames_are_those_of_the_page_on_data(which: str, request: pytest.FixtureRequest) -> None:
    found: Frames = request.getfixturevalue(which)
    assert tuple(found) == boptr_frames()
    assert set(found) == documented()


@pytest.mark.parametrize("which", ["frames", "alone"])
def test_frames_survive_their_files(which: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Tables and figures are made from the files: types and values are the same, and what is undefined is null."""
    found: Frames = request.getfixturevalue(which)
    for name, frame in found.items():
        write_frame(frame, tmp_path / f"{name}.parquet")
        assert_frame_equal(read_frame(tmp_path / f"{name}.parquet", "boptr"), frame, check_exact=True)
        assert not any(column.is_nan().any() for column in frame.select(cs.float())), name
        assert not frame.select(cs.by_dtype(pl.Null, pl.Object)).width, name


def cells(frame: pl.DataFrame) -> set[tuple[str, str]]:
    return set(frame.select("model", "benchmark").rows())


STUDY = set(product(MODELS, (*FITTED, *HELD_OUT)))
COHORT = set(product(FITTED_MODELS, FITTED))
PER_CELL = {
    "errors": STUDY,
    "qchannel": STUDY,
    "identified_set": STUDY,
    "signatures": STUDY,
    "protocol_flags": STUDY,
    "readout_consistency": STUDY,
    "extension": STUDY | {(model, None) for model in MODELS},
    "percell": COHORT,
    "regime_betas": COHORT | set(product(FITTED_MODELS, HELD_OUT)),
    "variant_heads": STUDY,
    "identified_scale": set(product(MODELS, ["math500"])),
    "aime_large_budget": set(product(MODELS, ["aime"])),
    "crossing": set(product(MODELS, ["aime"])),
    "descriptive": set(product(MODELS, ["mmlu_stem"])),
    "beta_sensitivity": {(ANCHOR, name) for name in (*FITTED, None)},
}


@pytest.mark.parametrize("name", PER_CELL)
def test_every_cell_of_the_plan_has_its_row(name: str, frames: Frames) -> None:
    assert cells(frames[name]) == PER_CELL[name]


def test_frames_by_cell_are_all_listed_here(frames: Frames) -> None:
    found = {name for name, frame in frames.items() if {"model", "benchmark"} <= set(frame.columns)}
    assert found == set(PER_CELL)


@pytest.mark.parametrize("name", ["formula_same", "offsets"])
def test_every_model_has_its_row(name: str, frames: Frames) -> None:
    assert frames[name]["model"].to_list() == list(MODELS)


VALUE = {
    "errors": "error",
    "means": "error",
    "contrasts": "difference",
    "nulls": "error",
    "regime_betas": "beta",
    "beta_stability": "beta",
    "beta_sensitivity": "error",
    "percell": "mech_anchor",
    "formula_same": "alpha",
    "identified_scale": "alpha",
    "identified_set": "error",
    "offsets": "delta_hat",
    "crossing": "never",
    "extension": "error",
    "seed_replication": "error",
    "seed_summary": "mean",
    "readout_consistency": "mean_abs",
    "descriptive": "value",
}
"""The number that a row is there for."""


@pytest.mark.parametrize("which", ["frames", "alone"])
def test_a_row_has_its_number_or_a_known_reason(which: str, request: pytest.FixtureRequest) -> None:
    found: Frames = request.getfixturevalue(which)
    for name, frame in found.items():
        if "reason" in frame.columns:
            assert set(frame["reason"].drop_nulls()) <= set(REASONS), name
    for name, value in VALUE.items():
        wrong = found[name].filter(pl.col(value).is_null() == pl.col("reason").is_null())
        assert wrong.is_empty(), (name, wrong)


def test_cell_that_was_not_sampled_says_so(frames: Frames) -> None:
    for name in ("errors", "percell", "regime_betas", "identified_set", "qchannel", "signatures", "protocol_flags"):
        rows = frames[name].filter(model=LLAMA, benchmark="gpqa")
        assert set(rows["reason"]) == {"no_base"}, name


def test_errors_have_every_row_of_the_study_once(frames: Frames) -> None:
    errors = frames["errors"]
    keys = ["exponents", "mu", "rule", "pool", "model", "benchmark"]
    assert errors.select(keys).is_unique().all()
    for (exponents, mu, row, _), rows in errors.group_by("exponents", "mu", "rule", "pool"):
        short = mu == "without" or row.startswith(("v5", "v6", "v7", "per-budget", "smooth")) or re.search("[λτ]=", row)
        models = [name for name in MODELS if name != SMALL] if mu == "without" else MODELS
        expected = set(product(models, FITTED if short else (*FITTED, *HELD_OUT)))
        assert cells(rows) == expected, (exponents, mu, row)
    whole = errors.filter(mu="cohort", pool="ar")
    assert set(whole.filter(exponents="own")["rule"]) < set(whole.filter(exponents="paper")["rule"])
    assert {"H1", "H7", "V3", "V5b", "A3", "Z1-u", "B0", "mean RL"} <= set(whole.filter(exponents="own")["rule"])
    assert {"V3", "A1", "A2", "A3", "cell-fit"} <= set(errors.filter(mu="without")["rule"])


@pytest.mark.long
def test_same_seed_same_study() -> None:
    cohort = simulate(small_design(), 1)
    options = replace(OPTIONS, mu_without=())
    first, again = study(cohort, options), study(cohort, options)
    for name, frame in first.items():
        assert_frame_equal(frame, again[name], check_exact=True)
    other = study(cohort, replace(options, seed=43))["errors"]
    columns = ["rule", "pool", "model", "benchmark", "exponents", "error", "path", "reason"]
    assert_frame_equal(other.select(columns), first["errors"].select(columns))
    assert not other["lo"].equals(first["errors"]["lo"])


def test_one_pair_is_a_study(alone: Frames) -> None:
    errors = alone["errors"].filter(exponents="paper", pool="ar", benchmark="math500")
    found = dict(errors.select("rule", "reason").iter_rows())
    assert {found[row] for row in ("H1", "H2", "H5", "H7", "V3", "A2", "B0")} == {None}
    assert {found[row] for row in ("mean RL", "Base+gain")} == {"no_other_models"}
    assert {found[row] for row in ("V5b", "Z0-u", "Z1-N*")} == {"no_rltrain"}
    assert set(alone["nulls"]["reason"]) == {"too_few_models"}
    contrasts = alone["contrasts"].filter(scope="cohort")
    assert contrasts["p"].null_count() == contrasts.height
    assert set(alone["v4"]["reason"]) <= {"too_few_models"} and alone["probe"]["reason"].to_list() == ["too_few_models"]
    v3, h5 = (errors.filter(rule=row)["error"].item() for row in ("V3", "H5"))
    assert v3 == h5


def test_without_the_anchors_rl_there_is_no_study() -> None:
    whole = simulate(small_design(), 1)
    landscapes = {key: found for key, found in whole.landscapes.items() if key != (f"{ANCHOR}-rl", "math500")}
    with pytest.raises(InputError, match=f"{ANCHOR}/math500 has no RL landscape"):
        study(Cohort(whole.plan, landscapes), OPTIONS)


# ---- means and nulls as they come out of the whole


def renamed(cohort: Cohort) -> Cohort:
    """The same estimates under names that spell nothing, in the same alphabetical order, which decides ties."""
    names = dict.fromkeys(name for landscape in cohort.landscapes.values() for name in landscape.policies)
    searches = {name: {"controller": "mcts"} for name in names if is_search(name)}
    specs = searches | {name: {"local": asdict(parse(name).local)} for name in names if name not in searches}
    plan = replace(
        cohort.plan,
        default_policy=f"{RENAMED}{cohort.plan.default_policy}",
        policies={f"{RENAMED}{name}": spec for name, spec in specs.items()},
    )
    landscapes = {
        cell: replace(
            landscape,
            points={(f"{RENAMED}{name}", n): row for (name, n), row in landscape.points.items()},
            tokens={f"{RENAMED}{name}": tokens for name, tokens in landscape.tokens.items()},
            rates=landscape.rates.with_columns(pl.format(f"{RENAMED}{{}}", "policy").alias("policy")),
        )
        for cell, landscape in cohort.landscapes.items()
    }
    return Cohort(plan, landscapes)


@pytest.mark.long
def test_names_of_policies_decide_nothing(frames: Frames) -> None:
    """What a policy is, is asked of the plan: under other names every frame is the same, but for the names."""
    for name, frame in study(renamed(simulate(design(), 7)), OPTIONS).items():
        assert_frame_equal(frame.with_columns(cs.string().str.replace_all(RENAMED, "", literal=True)), frames[name])


def test_nulls_are_over_the_re_pairings_without_the_true_one() -> None:
    """Three complete models: mean and least of five; p counts the true one and ties."""
    cohort = simulate(replace(design(), missing=frozenset()), 7)
    task = Task(Constants(), tuple(row for row in ROWS if row.key in ("V1", "V3")), FITTED)
    partners, means = module.mismatched(cohort, OPTIONS, task)
    found = {row["rule"]: row for row in module.nulls(cohort, OPTIONS).iter_rows(named=True)}
    for name, (own, *others) in means.items():
        row = found[name]
        assert (row["pairings"], row["models"], row["reason"]) == (6, len(partners), None) == (6, 3, None)
        assert [row[key] for key in ("error", "null_mean", "null_lowest")] == pytest.approx(
            [own, np.mean(others), min(others)]
        )
        assert row["p"] == pytest.approx((1 + sum(other <= own + 1e-9 for other in others)) / 6)


# ---- small tables by hand


def made(rows: Iterable[tuple[str, str, str, float | None]], **more: Any) -> pl.DataFrame:
    """Row, model, benchmark, error; held out, AR pool, paper's exponents by default."""
    shared = {"exponents": "paper", "mu": "cohort", "pool": "ar", "group": "upper", "role": "held_out"} | more
    named = (dict(zip(("rule", "model", "benchmark", "error"), row, strict=True)) for row in rows)
    return pl.DataFrame(
        [{**shared, **row, "reason": "no_rl" if row["error"] is None else None} for row in named], ERRORS
    )


def test_held_out_criterion_by_hand() -> None:
    rule = [("V3", "a", "amc", 4.0), ("V3", "b", "amc", 14.0), ("V3", "a", "tiny", 7.0), ("V3", "b", "tiny", None)]
    oracle = [("V1", "a", "amc", 2.0), ("V1", "b", "amc", 3.0), ("V1", "a", "tiny", 1.0), ("V1", "b", "tiny", 50.0)]
    other = [("V1", "a", "amc", 90.0), ("V3", "a", "amc", 90.0)]
    errors = pl.concat(
        [
            made(rule + oracle),
            made(other, pool="full"),
            made(other, group="new"),
            made(other, role="fitted"),
            made(other, mu="without"),
            made([("H1", "a", "amc", 90.0)]),
        ]
    )
    found = {row["benchmark"]: row for row in held_out_criterion(errors).iter_rows(named=True)}
    amc, tiny, whole = found["amc"], found["tiny"], found[None]
    assert (amc["mean"], amc["oracle"], amc["gap"], amc["cells"], amc["meets"]) == (9, 2.5, 6.5, 2, False)
    assert (tiny["mean"], tiny["oracle"], tiny["gap"], tiny["cells"], tiny["meets"]) == (7, 1, 6, 1, True)
    assert (whole["mean"], whole["cells"]) == (pytest.approx(25 / 3), 3)
    assert (amc["beyond"], tiny["beyond"], whole["beyond"]) == ("b 14.0", "", "b 14.0")


def test_percell_is_the_rule_beside_the_cells_own_fit() -> None:
    rows = [("V3", "a", "x", 5.0), ("cell-fit", "a", "x", 6.5), ("V3", "b", "x", 4.0), ("cell-fit", "b", "x", None)]
    rows += [("V3", "c", "x", None), ("cell-fit", "c", "x", 1.0), ("H1", "a", "x", 9.0)]
    errors = pl.concat([made(rows, role="fitted"), made(rows, role="held_out"), made(rows, role="fitted", group="new")])
    found = {row["model"]: row for row in percell(errors).iter_rows(named=True)}
    assert percell(errors).height == 3
    assert {"lo", "hi", "corrected", "lo_corrected", "hi_corrected"} < set(percell(errors).columns)
    assert (found["a"]["mech_anchor"], found["a"]["mech_cell"], found["a"]["gap"]) == (5, 6.5, -1.5)
    assert (found["b"]["mech_cell"], found["b"]["gap"]) == (None, None)
    assert (found["c"]["mech_anchor"], found["c"]["gap"], found["c"]["reason"]) == (None, None, "no_rl")


def test_percell_keeps_the_variants_apart() -> None:
    rule, cell = [("V3", "a", "x", 5.0)], [("cell-fit", "a", "x", 1.0)]
    parts = [
        made(rule + cell, role="fitted"),
        made([("V3", "a", "x", 7.0), ("cell-fit", "a", "x", 4.0)], role="fitted"),
    ]
    errors = pl.concat([parts[0], parts[1].with_columns(exponents=pl.lit("own"))])
    assert dict(percell(errors).select("exponents", "gap").iter_rows()) == {"paper": 4, "own": 3}


def test_blocks_name_models_and_benchmarks_by_their_part() -> None:
    plan = CohortPlan(
        "a",
        "math",
        {"a": Model("A", "B"), "b": Model("C", "D"), "c": Model("E", "F", "lower"), "n": Model("A", "G", "new")},
        {
            "math": Benchmark("math", title="Math500"),
            "gpqa": Benchmark("nonmath", title="GPQA"),
            "amc": Benchmark("math", "held_out"),
            "split": Benchmark("math", "rltrain"),
        },
    )
    assert dict(blocks(plan).select("block", "settings").iter_rows()) == {
        "Anchor": "a / Math500",
        "Horizontal": "a / GPQA",
        "Vertical": "b",
        "Stress": "c",
        "New models": "n",
        "Held out": "amc",
        "Descriptive": "—",
    }


def test_frames_with_numbers_do_not_depend_on_words(alone: Frames) -> None:
    """What ``transfer`` writes is left out; titles and limits of the health check are in it."""
    small = small_design()
    cohort = simulate(replace(small, models={ANCHOR: small.models[ANCHOR]}), 7)
    titled = {name: replace(spec, title=f"Title of {name}") for name, spec in cohort.plan.benchmarks.items()}
    other = study(replace(cohort, plan=replace(cohort.plan, benchmarks=titled)), replace(OPTIONS, mu_without=()))
    assert {name for name in alone if not alone[name].equals(other[name])} == {"blocks"} < set(BOPTR_WORDS)
    assert words(cohort, OPTIONS, alone)["protocol_flags"].equals(alone["protocol_flags"])
    strict = words(cohort, OPTIONS, alone, HealthOptions(answered=1.0))["protocol_flags"]
    assert set(strict.filter(flag="extraction")["severity"]) != set(
        alone["protocol_flags"].filter(flag="extraction")["severity"]
    )
