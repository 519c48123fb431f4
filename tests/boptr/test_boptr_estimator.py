"""Option ``estimator``: path and error are read in one way, which every frame, table and figure names."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal

import planted_landscapes as planted
from drawn import words
from figure_data import draw
from run_stages import built
from searchlens import catalogue
from searchlens.analysis.points import Landscape, operating_points
from searchlens.analysis.uncertainty import wilson
from searchlens.boptr import fit
from searchlens.boptr.cohort import Benchmark, Cohort, dense_landscape
from searchlens.boptr.metrics import voteless
from searchlens.boptr.rows import estimate_interval
from searchlens.boptr.study import study
from searchlens.boptr.variants import VARIANT_ROWS
from searchlens.boptr.view import CellCounts, bootstrap_view
from searchlens.cli.stages.transfer import transfer
from searchlens.config.boptr import BoptrOptions, Estimator
from searchlens.errors import InputError
from searchlens.reporting.boptr.context import BoptrContext
from searchlens.store.columns import SCORES
from searchlens.store.frames import write_frame
from searchlens.store.layout import Layout
from searchlens_lab.simulate import Design, scores, simulate
from small_cohort import part_of_paper

BOTH: tuple[Estimator, ...] = ("unbiased", "first_k")
ANCHOR, MATH = "qwen25_7b", "math500"
BENCHMARKS = {"math": Benchmark(regime="math")}
READS_T = {row.key for row in VARIANT_ROWS if row.key.startswith(("v6", "v7"))}


def options(estimator: Estimator) -> BoptrOptions:
    return BoptrOptions(estimator=estimator, draws=20, permutations=4, reselect=5)


@cache
def design() -> Design:
    """Two models, 16 samples for each of 40 questions, one benchmark of every kind."""
    benchmarks = (MATH, "aime", "gpqa", "ifeval", "mmlu_stem", "rltrain")
    policies = ("temp_0.5", "topp0.8_t0.9", "topk20_t0.7", "topp0.95_t1.0")
    return part_of_paper((ANCHOR, "qwen25_1.5b"), benchmarks, policies, 40)


def shuffled(samples: pl.DataFrame) -> pl.DataFrame:
    """The same samples in another order: each question's in an order of its own, the same under all policies."""
    rng = np.random.default_rng(5)
    order = np.array([rng.permutation(16) for _ in range(samples["question"].n_unique())], np.uint32)
    index = order[samples["question"].to_numpy(), samples["sample"].to_numpy()]
    moved = samples.with_columns(sample=pl.Series(index), run=pl.Series(index))
    return moved.cast(SCORES)  # type: ignore[arg-type]


@cache
def landscapes(in_order: bool) -> Mapping[tuple[str, str], Landscape]:
    def read(samples: pl.DataFrame) -> Landscape:
        return operating_points(samples if in_order else shuffled(samples), budgets=design().budgets)

    return {(cell.checkpoint, cell.benchmark): read(scores(design(), 1, cell)) for cell in design().cells()}


@cache
def frames(estimator: Estimator, in_order: bool = True) -> dict[str, pl.DataFrame]:
    dense = {cell: dense_landscape(found, estimator=estimator) for cell, found in landscapes(in_order).items()}
    return study(Cohort(design().plan(), dense, estimator), options(estimator))


def without_first_finish(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows that do not read T, which depends on the order of samples in either estimator."""
    if "rule" in frame.columns:
        frame = frame.filter(~pl.col("rule").is_in(list(READS_T)))
    return frame.filter(pl.col("metric") != "T") if "metric" in frame.columns else frame


@pytest.mark.long
def test_expected_frames_do_not_depend_on_the_order_of_samples() -> None:
    """Choosing or judging on prefix anywhere would move some number when samples change places."""
    ours, theirs = frames("unbiased"), frames("unbiased", in_order=False)
    for name in ours:
        if name not in ("checklist", "signature_table"):  # of all signatures, T's among them
            one, other = (without_first_finish(found[name]) for found in (ours, theirs))
            assert_frame_equal(one, other, check_exact=False, abs_tol=1e-4)


@pytest.mark.parametrize("name", ["errors", "means", "regime_betas", "qchannel", "signatures", "descriptive"])
@pytest.mark.long
def test_first_k_frames_depend_on_the_order_of_samples(name: str) -> None:
    """So the test above can fail."""
    ours, theirs = (without_first_finish(frames("first_k", in_order)[name]) for in_order in (True, False))
    assert not ours.equals(theirs)


@pytest.mark.long
def test_the_estimator_of_frames_is_their_last_column() -> None:
    """T is prefix everywhere, and a rate is no estimator of n samples."""
    unread = {*catalogue.BOPTR_WORDS, *catalogue.declared("frame", in_words=True)}
    for estimator in BOTH:
        for name, frame in frames(estimator).items():
            if name not in unread and name != "signatures":
                assert frame.columns[-1] == "estimator", name
                assert set(frame["estimator"]) <= {estimator}, name
        labels = frames(estimator)["signatures"].select("metric", "estimator").unique()
        assert dict(labels.filter(pl.col("metric").is_in(["P", "Q", "Q/P", "T", "valid"])).iter_rows()) == {
            **dict.fromkeys(("P", "Q", "Q/P"), estimator),
            "T": "first_k",
            "valid": None,
        }


def test_study_refuses_another_estimator_than_the_options_name() -> None:
    with pytest.raises(ValueError, match="'first_k', the options name 'unbiased'"):
        study(simulate(design(), 1, "first_k"), options("unbiased"))


def blanked(policy: str, budget: int, *columns: str, question: int | None = None) -> Landscape:
    """The anchor's Base on math, with these columns unknown at a point."""
    found = landscapes(True)[f"{ANCHOR}-base", MATH]
    at = (pl.col("policy") == policy) & (pl.col("budget") == budget)
    at = at if question is None else at & (pl.col("question") == question)
    hits = found.hits.with_columns(pl.when(~at).then(name).alias(name) for name in columns)
    return Landscape(found.points, hits)


def test_a_point_without_expectation_is_left_out_under_expected_alone() -> None:
    """Such as a search at a budget that is no whole number of runs; ``complete`` then leaves the policy out."""
    partly = blanked("temp_0.5", 8, "P_unbiased", "Q_unbiased")
    found = {estimator: dense_landscape(partly, estimator=estimator) for estimator in BOTH}
    assert ("temp_0.5", 8) not in found["unbiased"].points and ("temp_0.5", 4) in found["unbiased"].points
    assert "temp_0.5" not in found["unbiased"].complete(design().budgets)
    assert "temp_0.5" in found["first_k"].complete(design().budgets)


def test_one_unknown_question_is_an_error() -> None:
    """A mean over the others would be a mean over other questions."""
    with pytest.raises(InputError, match=r"'temp_0.5' at budget 8 has 39 of 40 questions"):
        dense_landscape(blanked("temp_0.5", 8, "P_unbiased", question=3))


def test_an_unknown_expected_vote_is_an_error_that_names_the_way_out() -> None:
    with pytest.raises(InputError, match=r"'temp_0\.5' at budget 8 has no expected self-consistency") as error:
        dense_landscape(blanked("temp_0.5", 8, "Q_unbiased"))
    assert "boptr.estimator: first_k" in str(error.value.hint)


def test_whether_there_is_a_vote_is_read_from_prefixes() -> None:
    """An expected vote may rise with the budget under every policy and still be a vote."""
    for estimator in BOTH:
        found = simulate(design(), 1, estimator)
        assert {name: voteless(found, name) for name in found.plan.benchmarks} == {
            name: item.open_text for name, item in design().benchmarks.items()
        }


def test_rounding_errors_have_no_ranks() -> None:
    """At one sample P is Q: their difference ties under all policies, whatever the rounding of expectations."""
    P = np.array([[[30.1]], [[30.1]], [[22.7]]], np.float32)
    Q = P + np.array([[[2e-5]], [[-1e-5]], [[3e-5]]], np.float32)
    cell = CellCounts(("a", "b", "c"), ("autoregressive",) * 3, P, Q, np.ones(3))
    assert fit.features(cell).ranks[1].ravel().tolist() == [0.5] * 3


@pytest.mark.parametrize("estimator", BOTH)
def test_intervals_of_single_estimates(estimator: Estimator) -> None:
    """Wilson needs counts. Means of shares have percentiles, and a width where no draw differs."""
    found = planted.cohort({("a", "math"): ({planted.DEFAULT: (6, 12, 24, 60, 60)}, [9] * 5)}, BENCHMARKS)
    found = replace(found, estimator=estimator)
    boot = bootstrap_view(found, 400, 1)
    landscape = found.base("a", "math")
    counts = boot.count(landscape, "math", "P", planted.DEFAULT, planted.BUDGETS)
    ends = estimate_interval(boot, counts, "math", 0.95)
    if estimator == "first_k":
        assert np.array_equal(ends.lo, wilson([6, 12, 24, 60, 60], 60).lo)
        return
    assert np.allclose([ends.lo[:3], ends.hi[:3]], np.quantile(counts[:3, 1:] / 60, [0.025, 0.975], axis=1), atol=1e-6)
    assert ends.lo[4] < 1 and ends.hi[4] == 1


@pytest.mark.parametrize("estimator", BOTH)
def test_every_table_names_its_estimator(estimator: Estimator) -> None:
    context = BoptrContext(frames(estimator), design().plan(), options(estimator))
    for name, table in built(catalogue.declared("table", stage="boptr"), context).items():
        notes = " ".join(table.notes)
        assert f"Estimator {estimator}" in notes, name
        assert not any(f"Estimator {other}" in notes for other in BOTH if other != estimator), name
        assert ("Wilson" in notes) <= (estimator == "first_k"), name


@pytest.mark.parametrize("name", catalogue.declared("figure", stage="boptr"))
def test_every_figure_names_its_estimator(name: str) -> None:
    for estimator in BOTH:
        context = BoptrContext(frames(estimator), design().plan(), options(estimator))
        figure, _ = draw(name, context)
        assert figure is None or f"{estimator} estimates" in words(figure)


def test_tables_of_another_estimator_than_the_frames_are_refused(tmp_path: Path) -> None:
    """Otherwise numbers of one reading would be printed under the name of the other."""
    output = Layout(tmp_path)
    for name, frame in frames("first_k").items():
        write_frame(frame, output.boptr_frame(name))
    with pytest.raises(InputError, match=r"the estimator first_k, boptr\.estimator is unbiased") as error:
        transfer(design().plan(), options("unbiased"), tmp_path, output)
    assert "--estimator first_k" in str(error.value.hint)


def test_the_papers_configuration_reads_prefixes_and_others_do_not() -> None:
    folder = Path(__file__).parents[2] / "config"
    assert yaml.safe_load((folder / "paper.yaml").read_text())["boptr"]["estimator"] == "first_k"
    assert BoptrOptions().estimator == "unbiased"
