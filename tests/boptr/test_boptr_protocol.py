"""Protocol flags, the pool guard and the checklist."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from statsmodels.stats.proportion import confint_proportions_2indep

from searchlens.analysis.uncertainty import unseen, wilson
from searchlens.boptr.cohort import Benchmark, DenseLandscape, Model
from searchlens.boptr.protocol import FLAG_NAMES, checklist, protocol_flags, rate, rate_difference
from searchlens.boptr.study import CONTRASTS
from searchlens.store.columns import HEALTH
from small_cohort import DEFAULT, Rate, cohort, dense_landscape, hits, views

N = 40


def healthy(valid: Rate = (0.9, 0.88, 0.92), tokens: float = 100.0, *, searched: bool = False) -> DenseLandscape:
    P = {DEFAULT: [hits(10, N), hits(20, N)], "temp_0.3": [hits(12, N), hits(14, N)]}
    if searched:
        P["mcts_16"] = [hits(15, N), hits(25, N)]
    return dense_landscape(P, tokens=tokens, rates={"valid": valid, "stopped": (0.95, 0.94, 0.96)})


def flags(base: DenseLandscape, rl: DenseLandscape, **options: object) -> dict[str, dict[str, object]]:
    rule, _ = views(cohort({("base", "math"): base, ("rl", "math"): rl}), 10, **options)
    return {str(row["flag"]): row for row in protocol_flags(rule).iter_rows(named=True)}


@pytest.mark.parametrize(("first", "second"), [((45, 60), (30, 50)), ((0, 60), (9, 40)), ((20, 20), (20, 20))])
def test_square_and_add_of_wilson_intervals_is_newcombes(first: tuple[int, int], second: tuple[int, int]) -> None:
    """Against statsmodels' difference of two independent proportions."""
    sides = [(hit / n, *map(float, wilson(hit, n))) for hit, n in (first, second)]
    _, lo, hi = rate_difference(*sides)  # type: ignore[arg-type]
    assert (lo, hi) == pytest.approx(confint_proportions_2indep(*first, *second, compare="diff", method="newcomb"))


@pytest.mark.parametrize(
    ("valid", "severity"),
    [
        ((0.91, 0.90, 0.92), "ok"),
        ((0.99, 0.985, 0.995), "attention"),
        ((0.80, 0.79, 0.81), "attention"),
        ((0.95, 0.93, 0.97), "undecided"),
    ],
)
def test_a_rate_differs_when_its_interval_leaves_the_margin(valid: Rate, severity: str) -> None:
    found = flags(healthy(), healthy(valid))["extraction"]
    assert found["severity"] == severity
    assert found["difference"] == pytest.approx(valid[0] - 0.9)


def test_truncation_is_what_did_not_stop() -> None:
    """More truncation on RL is a positive difference, and the ends of the interval change places."""
    base, rl = (dense_landscape({DEFAULT: [hits(10, N), hits(20, N)]}, rates={"stopped": rate, "valid": rate})
                for rate in ((0.9, 0.85, 0.92), (0.6, 0.5, 0.65)))  # fmt: skip
    found = flags(base, rl)
    assert found["truncation"]["difference"] == pytest.approx(0.3)
    assert found["truncation"]["lo"] == pytest.approx(-found["extraction"]["hi"])  # type: ignore[operator]
    assert found["truncation"]["severity"] == "attention"


def test_level_is_the_rate_and_not_an_end_of_its_interval() -> None:
    """Truncated at a tenth, give or take anything: shown as a tenth, and nothing to say."""
    side, wide = ({"stopped": (0.9, lo, 1.0), "valid": (0.9, lo, 1.0)} for lo in (0.88, 0.0))
    counts = {DEFAULT: [hits(10, N), hits(20, N)]}
    found = flags(dense_landscape(counts, rates=side), dense_landscape(counts, rates=wide))
    for name, level in (("truncation", 0.1), ("extraction", 0.9)):
        assert (found[name]["base"], found[name]["rl"]) == pytest.approx((level, level))
        assert found[name]["severity"] == "undecided"


def test_rate_that_all_samples_agree_on_has_a_width() -> None:
    """No sample of 40 questions is without an answer: the next question might be. Wilson's interval of 0 of 40."""
    counts = {DEFAULT: [hits(10, N), hits(20, N)]}
    for value, ends in ((1.0, (1 - float(unseen(N)), 1.0)), (0.0, (0.0, float(unseen(N))))):
        side = dense_landscape(counts, rates={"valid": (value, value, value)})
        assert rate(side, DEFAULT, "valid") == pytest.approx((value, *ends))


@pytest.mark.parametrize(
    ("stopped", "valid", "flagged"),
    [
        ((0.1, 0.09, 0.11), (0.9, 0.89, 0.91), {"truncation"}),
        ((0.9, 0.89, 0.91), (0.0, 0.0, 0.01), {"extraction"}),
        ((0.9, 0.89, 0.91), (0.3, 0.29, 0.31), set()),
    ],
)
def test_a_level_needs_attention_even_if_both_sides_have_it(stopped: Rate, valid: Rate, flagged: set[str]) -> None:
    """Both at 90% truncated or both without answers is no difference, and no comparison either."""
    side = dense_landscape({DEFAULT: [hits(10, N), hits(20, N)]}, rates={"stopped": stopped, "valid": valid})
    found = flags(side, side)
    names = {name for name in ("truncation", "extraction") if found[name]["severity"] == "attention"}
    assert names == flagged


def test_a_cell_that_is_not_interpretable_is_flagged_with_its_reason() -> None:
    counts = dict.fromkeys(HEALTH.names(), 0) | {"policy": None, "samples": 640, "stopped": 640, "questions": N}
    silent, fine = (pl.DataFrame([counts | {"answered": n, "whole_answered": n}], HEALTH) for n in (0, 600))
    found = flags(replace(healthy(), health=fine), replace(healthy(), health=silent))["health"]
    assert (found["severity"], found["base"], found["rl"]) == ("attention", 600 / 640, 0.0)
    assert found["detail"] == "RL: 0% of 640 samples have an answer (template? token limit? grader?)"
    unknown = flags(healthy(), replace(healthy(), health=fine))["health"]
    assert (unknown["severity"], unknown["reason"]) == (None, "no_rates")


def test_lengths_differ_by_their_ratio_in_either_direction() -> None:
    assert flags(healthy(), healthy(tokens=149.0))["length"]["severity"] == "ok"
    assert flags(healthy(), healthy(tokens=150.0))["length"]["severity"] == "attention"
    assert flags(healthy(tokens=200.0), healthy())["length"]["severity"] == "attention"
    assert flags(healthy(tokens=np.nan), healthy())["length"]["reason"] == "unknown_tokens"


@pytest.mark.parametrize(
    ("base", "rl", "flagged"),
    [
        (([0, 0], [0, 0]), [10, 20], {"all_or_nothing", "constant_base_pool"}),
        (([10, 20], [12, 14]), [N, N], {"all_or_nothing", "constant_rl_curve"}),
        (([10, 20], [12, 14]), [10, 10], {"constant_rl_curve"}),
        (([10, 20], [10, 20]), [10, 20], {"constant_base_pool"}),
        (([10, 20], [10, 21]), [10, 20], set()),
    ],
)
def test_degenerate_cells_are_flagged(base: tuple[list[int], list[int]], rl: list[int], flagged: set[str]) -> None:
    ours = dense_landscape(
        {name: [hits(k, N) for k in counts] for name, counts in zip((DEFAULT, "temp_0.3"), base, strict=True)}
    )
    theirs = dense_landscape({DEFAULT: [hits(k, N) for k in rl]})
    found = flags(ours, theirs)
    assert {name for name, row in found.items() if row["severity"] == "attention"} == flagged


def test_few_questions_are_fewer_than_thirty() -> None:
    for questions, severity in ((29, "attention"), (30, "ok")):
        side = dense_landscape({DEFAULT: [hits(10, questions), hits(20, questions)]})
        assert flags(side, side)["few_questions"]["severity"] == severity


def test_every_cell_keeps_every_flag() -> None:
    models = {"m": Model(base="base", rl="rl"), "absent": Model(base="none", rl="rl"), "base only": Model(base="base")}
    plain = dense_landscape({DEFAULT: [hits(10, N), hits(20, N)]})
    rule, _ = views(cohort({("base", "math"): plain, ("rl", "math"): plain}, models), 10)
    frame = protocol_flags(rule)
    assert frame.group_by("model", maintain_order=True).agg("flag")["flag"].to_list() == [list(FLAG_NAMES)] * 3
    reasons = {row["model"]: row["reason"] for row in frame.filter(flag="extraction").iter_rows(named=True)}
    assert reasons == {"m": "no_rates", "absent": "no_base", "base only": "no_rl"}
    assert frame.filter(pl.col("severity").is_null() == pl.col("reason").is_null()).is_empty()


# ---- the checklist

ERRORS = ["rule", "kind", "model", "benchmark", "pool", "exponents", "error"]


def errors(*rows: tuple[str, str, str, str, float | None]) -> pl.DataFrame:
    whole = [(*row[:4], "ar", "paper", row[4]) for row in rows]
    return pl.DataFrame(whole, [*((name, pl.String()) for name in ERRORS[:-1]), ("error", pl.Float64())], orient="row")


def checks(
    scored: pl.DataFrame,
    base: DenseLandscape | None = None,
    rl: DenseLandscape | None = None,
    benchmarks: dict[str, Benchmark] | None = None,
    contrasts: pl.DataFrame | None = None,
    unvoted: tuple[str, ...] = (),
) -> dict[str, dict[str, str]]:
    benchmarks = benchmarks or {"math": Benchmark(regime="math")}
    sides = {("base", "math"): base or healthy(), ("rl", "math"): rl or healthy()}
    rule, _ = views(cohort(sides, benchmarks=benchmarks), 10)
    frame = CONTRASTS.to_frame() if contrasts is None else contrasts
    found = checklist(rule, scored, protocol_flags(rule), frame, unvoted)
    assert found["item"].str.len_chars().min() == 1
    return {row["item"]: row for row in found.iter_rows(named=True)}


def contrast(first: str, verdict: str, corrected: float | None = 1.0, **other: str) -> dict[str, object]:
    keys = {"exponents": "paper", "scope": "cohort", "first": first, "second": "V3"}
    ends = {"corrected": corrected, "lo_corrected": 0.5, "hi_corrected": 1.5, "cells": 3, "verdict": verdict}
    ends |= {"verdict_models": "not shown" if verdict == "not distinguishable" else verdict}
    return keys | ends | other


def prediction(*rows: dict[str, object]) -> dict[str, str]:
    return checks(errors(), contrasts=pl.DataFrame(rows, CONTRASTS))["b"]


def test_prediction_claim_needs_every_rival_beaten_beyond_its_interval() -> None:
    won = prediction(contrast("H1", "second lower"), contrast("low temp", "second lower"))
    assert won["status"] == "ok"
    assert won["detail"].startswith("H1 − V3 = +1.00 [+0.50, +1.50] pp (cells: 3); low temp − V3")
    for verdict, said in (
        ("not distinguishable", "over questions not distinguishable from V3: H2"),
        ("first lower", "over questions better than V3: H2"),
    ):
        lost = prediction(contrast("H1", "second lower"), contrast("H2", verdict))
        assert lost["status"] == "attention"
        assert lost["detail"].endswith(f"; {said}; over models not shown to be worse than V3: H2")
    here_alone = prediction(contrast("H1", "second lower"), contrast("H2", "second lower", verdict_models="not shown"))
    assert here_alone["status"] == "attention"
    assert here_alone["detail"].endswith("; over models not shown to be worse than V3: H2")


def test_prediction_claim_without_a_rival_wants_attention() -> None:
    """Neither an oracle, nor a row that shares no cell, nor another block of contrasts is one."""
    nothing = (
        contrast("V1", "second lower"),
        contrast("H1", "", None),
        contrast("H1", "second lower", scope="anchor"),
        contrast("H1", "second lower", exponents="own"),
    )
    for rows in ((), nothing):
        assert prediction(*rows)["status"] == "attention"


def test_directions_are_told_apart() -> None:
    here, there = ("H5", "rule", "m", "math", 2.0), ("V3", "rule", "other", "math", 4.0)
    assert checks(errors(here))["c"]["status"] == "not applicable"
    both = checks(errors(here, there))["c"]
    assert both["status"] == "ok"
    assert both["detail"] == "horizontal: H5 2.00 pp (cells: 1); vertical: V3 4.00 pp (cells: 1)"


def test_expanded_pools_are_listed() -> None:
    """AR-only everywhere is fine; a mixture of the two is what must be marked."""
    two = {"math": Benchmark(regime="math"), "gpqa": Benchmark(regime="nonmath")}
    scored = errors(("V3", "rule", "m", "math", 3.0))
    assert checks(scored)["d"]["status"] == "not applicable"
    mixed = checks(scored, base=healthy(searched=True), benchmarks=two)["d"]
    assert mixed["status"] == "attention"
    assert "m/math" in mixed["detail"]
    assert "m/gpqa" not in mixed["detail"]
    assert mixed["detail"].endswith("; AR-only: the other 1 cells")


@pytest.mark.parametrize(
    ("regime", "status", "detail"),
    [
        ("nonmath", "ok", "nonmath: lists"),
        ("math", "attention", "lists is math"),
        ("floor", "attention", "lists is floor"),
    ],
)
def test_an_instruction_benchmark_is_never_math(regime: str, status: str, detail: str) -> None:
    benchmarks = {"math": Benchmark(regime="math"), "lists": Benchmark(regime=regime)}  # type: ignore[arg-type]
    scored = errors(("V3", "rule", "m", "math", 3.0))
    found = checks(scored, benchmarks=benchmarks, unvoted=("lists",))["e"]
    assert (found["status"], found["detail"]) == (status, detail)
    assert checks(scored, benchmarks=benchmarks)["e"]["status"] == "not applicable"
    assert checks(scored)["e"]["status"] == "not applicable"


def test_stress_models_are_named_with_what_differs() -> None:
    scored = errors(("V3", "rule", "m", "math", 3.0))
    assert checks(scored)["f"]["status"] == "ok"
    stressed = checks(scored, rl=healthy((0.99, 0.985, 0.995), tokens=250.0))["f"]
    assert stressed["status"] == "attention"
    assert stressed["detail"] == "m: math extraction +9.0 pp, math length x 2.50"
    endless = replace(healthy(), rates=healthy().rates.with_columns(value=0.6, lo=0.58, hi=0.62))
    assert checks(scored, rl=endless)["f"]["detail"] == "m: math truncation +35.0 pp, math extraction -30.0 pp"
    silent = dense_landscape({DEFAULT: [hits(10, N), hits(20, N)]}, tokens=np.nan)
    assert checks(scored, base=silent)["f"]["status"] == "not applicable"
