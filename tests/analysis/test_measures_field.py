"""Measures of the field: support, reliability, guessing, entropy, variance, by brute force on small pools."""

import io
import lzma
import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from searchlens import benchmarks
from searchlens.analysis import measures
from searchlens.analysis.classes import Pool, answer_classes, independent_pools, recorded_classes
from searchlens.analysis.compact import compact
from searchlens.analysis.measures import COUNTS, DIFFERENCE, by_chance, compared, ratios, support
from searchlens.analysis.uncertainty import Resamples
from searchlens.benchmarks import Question
from searchlens.store import recorded_counts
from searchlens.store.columns import SCORES

COHORT = Path(__file__).parents[2] / "resources/zoo/cohort/recorded_counts"
DEFAULT = "topp0.95_t1.0"


def pool(correct: list[int], samples: int, classes: list[str] | None = None, answered: list[int] | None = None) -> Pool:
    counts = np.array(correct)
    full = np.array(answered if answered is not None else [samples] * len(correct))
    return Pool(
        "default",
        samples,
        np.arange(len(correct), dtype=np.uint32),
        counts,
        full,
        np.array(classes or [""] * len(correct)),
    )


def recorded(checkpoint: str, benchmark: str = "zoo-math") -> Pool:
    rows = recorded_counts.read(COHORT / checkpoint / f"{benchmark}.arrow.xz")
    return independent_pools(recorded_classes(rows.filter(policy=DEFAULT)), {})[DEFAULT]


def subsets(right: int, samples: int, k: int) -> list[int]:
    """Right samples in every k-subset."""
    marks = [i < right for i in range(samples)]
    return [sum(marks[i] for i in chosen) for chosen in combinations(range(samples), k)]


def test_support_of_four_questions() -> None:
    found, changes = support(pool([3, 2, 0, 0], 4), pool([4, 0, 1, 0], 4), Resamples.draw(4, 200, 0))
    row = found.row(0, named=True)
    assert [row[name] for name in COUNTS] == [1, 1, 1, 1]
    assert (row["srr"], row["ndr"], row["sds"], row["nscr"]) == (0.5, 0.5, 0.5, 0.0)
    assert changes.select("question", "change", "base", "rl").rows() == [(1, "shrunk", 2, 0), (2, "expanded", 0, 1)]
    assert changes["p"].to_list() == pytest.approx([stats.fisher_exact([[2, 2], [0, 4]])[1], 1.0])


def test_support_where_nothing_is_solved() -> None:
    """A ratio of nothing is null, not 0 or 1; counts keep an interval with a width."""
    row = support(pool([0] * 5, 4), pool([0] * 5, 4), Resamples.draw(5, 200, 0))[0].row(0, named=True)
    assert row["out"] == 5 and row["out_lo"] < 5
    assert [row[name] for name in ("srr", "ndr", "sds", "nscr", "srr_lo")] == [None] * 5


def test_ratios_without_a_kept_question() -> None:
    """Only lost: nothing is retained, discovery is undefined. Lost and found, none kept: the score is 0."""
    lost = ratios({"kept": 0, "shrunk": 3, "expanded": 0})
    assert (lost["srr"], lost["nscr"]) == (0, -1) and np.isnan([lost["ndr"], lost["sds"]]).all()
    assert ratios({"kept": 0, "shrunk": 3, "expanded": 2})["sds"] == 0


def test_changes_by_chance_are_those_of_dealing_samples_at_random() -> None:
    """Against a count of all deals of 2 right samples among 3 + 3."""
    deals = [sum(1 for i in chosen if i < 3) for chosen in combinations(range(6), 2)]
    found = by_chance(pool([2], 3), pool([0], 3), 0.05)
    assert found["shrunk_null"] == pytest.approx(deals.count(2) / len(deals))
    assert found["expanded_null"] == pytest.approx(deals.count(0) / len(deals))
    assert found["significant_null"] == 0
    certain = by_chance(pool([8], 8), pool([0], 8), 0.05)
    assert certain["significant_null"] == pytest.approx(2 / math.comb(16, 8)), "all of 8 on one side is significant"


@pytest.mark.parametrize("tau", [0.25, 0.5, 0.75, 1.0])
def test_g_pass_is_the_share_of_subsets(tau: float) -> None:
    for right in range(7):
        wanted = np.mean([hits >= math.ceil(tau * 4) for hits in subsets(right, 6, 4)])
        assert measures.g_pass(pool([right], 6), 4, [tau])[0, 0] == pytest.approx(wanted)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_mg_pass_is_the_sum_over_thresholds_above_half(k: int) -> None:
    for right in range(7):
        hits = subsets(right, 6, k)
        wanted = 2 / k * sum(np.mean([h >= i for h in hits]) for i in range(math.ceil(k / 2) + 1, k + 1))
        assert measures.mg_pass(pool([right], 6), k)[0, 0] == pytest.approx(wanted)


def test_cover_counts_the_share_itself() -> None:
    """A question at the threshold is covered, although 0.05 times 20 is a little above 1 in floating point."""
    assert measures.cover(pool([0, 1, 2], 20), [0.05, 0.1]).tolist() == [[0, 0], [1, 0], [1, 1]]
    for wrong in (0.0, 1.1):
        with pytest.raises(ValueError, match="not all in"):
            measures.cover(pool([1], 4), [wrong])


def test_guess_correction_is_unbiased_for_knowing_or_guessing() -> None:
    """Exactly: the mean over all counts of c, weighted by their probabilities, is pass@k of knowing."""
    known, guess, samples = 0.3, 0.25, 8
    right = known + (1 - known) * guess
    weights = stats.binom.pmf(np.arange(samples + 1), samples, right)
    found = measures.guess_corrected(pool(list(range(samples + 1)), samples), np.full(samples + 1, guess), [1, 4])
    assert weights @ found == pytest.approx([known, 1 - (1 - known) ** 4])


def test_an_open_question_is_not_corrected() -> None:
    one = pool([1, 3], 8)
    assert measures.guess_chance([0, 4]).tolist() == [0, 0.25]
    assert np.allclose(measures.guess_corrected(one, np.zeros(2), [1, 4]), one.solved([1, 4]))
    assert measures.guess_null(np.array([0.0, 0.25]), [1, 4]).tolist() == [[0, 0], [0.25, pytest.approx(1 - 0.75**4)]]


@pytest.mark.parametrize(
    ("text", "gold", "number"),
    [
        ("Which? (A) 1 (B) 2 (C) 3 (D) 4", "D", 4),
        ("Which?\nA) E. coli\nB) A. niger", "B", 2),
        ("Points A. and B. are near. Which?\n\nA. 1\nB. 2\nC. 3", "C", 3),
        ("How far is A from B?", "7", 0),
        ("Which? (A) 1 (B) 2", "C", 0),
        ("Which? (A) 1 (B) 2", "", 0),
        ("Plan A) only", "A", 0),
    ],
)
def test_options_are_counted_in_the_question(text: str, gold: str, number: int) -> None:
    assert benchmarks.options(Question("1", text, gold)) == number


def test_entropy_of_classes_and_missing_answers() -> None:
    """Eight samples: 4 right, 2 of one kind, 2 without an answer; and a question with one answer only."""
    found = measures.entropy(pool([4, 8], 8, ["4+ 2", "8+"], [6, 8]))
    plain = -(0.5 * math.log(0.5) + 2 * 0.25 * math.log(0.25))
    assert found.tolist() == [[pytest.approx(plain), pytest.approx(plain + 2 / 16)], [0, 0]]


def test_winner_of_a_rerun() -> None:
    ours, theirs = pool([2, 4, 1, 3], 8), pool([4, 5, 1, 6], 8)
    share, other = ours.correct / 8, theirs.correct / 8
    noise = sum((p * (1 - p) * 8 / 7).sum() / 16 for p in (share, other))
    value, lo, hi = measures.beats(ours, theirs, Resamples.draw(4, 400, 0))
    assert value == pytest.approx(stats.norm.cdf((other - share).mean() / math.sqrt(noise)))
    assert lo <= value <= hi
    draws = Resamples.draw(2, 100, 0)
    assert measures.beats(pool([8, 0], 8), pool([8, 0], 8), draws)[0] == 0.5
    assert measures.beats(pool([8, 0], 8), pool([8, 8], 8), draws)[0] == 1.0
    assert math.isnan(measures.beats(pool([1, 0], 1), pool([1, 1], 1), draws)[0])


def test_parts_of_variance_add_up_and_find_the_truth() -> None:
    """Over many worlds of known difficulty, the parts are Var(p) / Q and the mean of p (1 - p) / (Q n)."""
    rng = np.random.default_rng(0)
    difficulty = rng.beta(2, 3, (400, 50))
    rows = [
        measures.variance_parts("Base", pool(rng.binomial(8, p).tolist(), 8), Resamples.draw(50, 100, 0))
        for p in difficulty
    ]
    found = pl.concat(rows)
    assert found["questions_part"].mean() == pytest.approx(0.04 / 50, rel=0.05)
    assert found["decoding"].mean() == pytest.approx(0.2 / 400, rel=0.05)
    assert (found["total"] - found["questions_part"] - found["decoding"]).abs().max() < 1e-12
    assert found["seeds"].null_count() == 400


def test_seeds_that_differ_by_decoding_alone_add_nothing() -> None:
    rng = np.random.default_rng(1)
    difficulty = rng.beta(2, 3, 400)
    batches = [pool(rng.binomial(16, difficulty).tolist(), 16) for _ in range(3)]
    shifted = pool(rng.binomial(16, np.clip(difficulty + 0.2, 0, 1)).tolist(), 16)
    draws = Resamples.draw(400, 100, 0)
    alike = measures.variance_parts("Base", batches[0], draws, batches=batches[1:])["seeds"][0]
    apart = measures.variance_parts("Base", batches[0], draws, batches=[shifted])["seeds"][0]
    assert alike < 1e-4
    assert apart > 0.01


def test_a_single_sample_or_question_has_no_parts() -> None:
    row = measures.variance_parts("Base", pool([1, 0], 1), Resamples.draw(2, 100, 0)).row(0, named=True)
    assert row["questions_part"] is None and row["decoding"] is None and row["total"] is None
    row = measures.variance_parts("Base", pool([1], 4), Resamples.draw(1, 100, 0)).row(0, named=True)
    assert row["questions_part"] is None and row["decoding_lo"] is None


def test_a_difference_is_paired() -> None:
    """Both sides equal on every question: no difference in any draw, and what so few questions leave open."""
    values = np.linspace(0, 1, 20)[:, None]
    rows = {row["side"]: row for row in compared("x", values, values, Resamples.draw(20, 200, 0), 0.95).to_dicts()}
    assert rows["RL - Base"]["value"] == 0
    assert rows["RL - Base"]["hi"] == -rows["RL - Base"]["lo"] == pytest.approx(0.161, abs=0.01)
    assert rows["Base"]["hi"] - rows["Base"]["lo"] > 0.2


@pytest.fixture(scope="module")
def anchor() -> tuple[Pool, Pool]:
    return recorded("anchor-base"), recorded("anchor-rl")


@pytest.mark.cohort
def test_measures_of_the_recorded_anchor(anchor: tuple[Pool, Pool]) -> None:
    """The numbers that a separate short computation from the recorded counts gives."""
    base, rl = anchor
    row = support(base, rl, Resamples.draw(500, 100, 0))[0].row(0, named=True)
    assert [row[name] for name in COUNTS] == [465, 30, 4, 1]
    taus = [0.05, 0.25, 0.5, 0.75, 0.9]
    change = 100 * (measures.cover(rl, taus) - measures.cover(base, taus)).mean(axis=0)
    assert change.round().tolist() == [-10, 8, 55, 64, 48]
    for side, wanted in ((base, [68.0, 31.2, 0.1]), (rl, [76.4, 74.8, 21.2])):
        assert (100 * measures.g_pass(side, 16, [0.25, 0.5, 1]).mean(axis=0)).round(1).tolist() == wanted
    assert [round(float(measures.entropy(side)[:, 0].mean()), 2) for side in anchor] == [2.44, 0.55]


@pytest.mark.cohort
def test_guessing_on_the_recorded_choices() -> None:
    path = COHORT.parent / "benchmarks/gpqa.jsonl.gz"
    guess = measures.guess_chance([benchmarks.options(question) for question in benchmarks.read([path]).questions])
    assert (100 * measures.guess_null(guess, [1, 4, 16]).mean(axis=0)).round(1).tolist() == [20.0, 57.6, 94.7]
    for checkpoint, wanted in (("anchor-base", [21.1, 57.8]), ("anchor-rl", [41.0, 73.2])):
        found = measures.guess_corrected(recorded(checkpoint, "zoo-gpqa"), guess, [1, 4])
        assert (100 * found.mean(axis=0)).round(1).tolist() == wanted


def test_wrong_key_is_pass_at_k_of_the_samples_that_other_golds_accept() -> None:
    wrong_key = replace(pool([4, 0, 1], 4), wrong_key=np.array([0, 1, 4]))
    assert np.allclose(measures.wrong_key(wrong_key, [1, 2, 4]), [[0, 0, 0], [1 / 4, 1 / 2, 1], [1, 1, 1]])
    with pytest.raises(ValueError, match="unknown"):
        measures.wrong_key(pool([1], 4), [1])


def test_wrong_key_of_a_difference_and_pass_at_k_without_it_find_what_is_known() -> None:
    """2,000 questions x 16 samples: 30% are known to RL, and 5% of the others' samples are right by a wrong key."""
    rng = np.random.default_rng(1)
    sides = []
    for share in (0.0, 0.3):
        knows = rng.random(2000) < share
        wrong_key, meant = rng.binomial(16, 0.05, 2000), rng.binomial(16, 0.05, 2000)
        sides.append(replace(pool(np.where(knows, 16, meant).tolist(), 16), wrong_key=wrong_key))
    found = measures.beside_wrong_key(*sides, [1, 4, 16, 64], Resamples.draw(2000, 300, 0), 0.95)
    assert found["k"].unique(maintain_order=True).to_list() == [1, 4, 16]
    assert found.filter(measure="wrong_key", side="RL - Base", k=16)["value"].item() == pytest.approx(0, abs=0.04)
    for side, truth in (("Base", 0.0), ("RL", 0.3), ("RL - Base", 0.3)):
        rows = found.filter(measure="wrong_key-corrected pass@k", side=side)
        assert rows["value"].to_list() == pytest.approx([truth] * 3, abs=0.08)
        assert (rows["lo"] < truth).all() and (truth < rows["hi"]).all()


def test_wrong_key_that_solves_everything_leaves_nothing_known() -> None:
    accepted = replace(pool([4, 0, 1], 4), wrong_key=np.array([4, 4, 4]))
    found = measures.beside_wrong_key(accepted, accepted, [1], Resamples.draw(3, 100, 0), 0.95)
    assert found.filter(measure="wrong_key-corrected pass@k").select("value", "lo", "hi").null_count().row(0) == (
        3,
        3,
        3,
    )
    assert measures.beside_wrong_key(pool([1], 4), accepted, [1], Resamples.draw(1, 100, 0), 0.95).is_empty()


def test_accepted_samples_are_counted_and_survive_recorded_counts(tmp_path: Path) -> None:
    """Counts of a policy whose samples were judged; none of one whose were not. Files without the column are read."""
    marks = {"judged": [True, False, True, True], "other": [None] * 4}
    rows = [
        {"policy": name, "question": i // 2, "sample": i % 2, "run": i % 2, "correct": False, "answer": 1}
        | {"tokens": 3, "generated": 3, "stopped": True, "score": -0.5, "wrong_key": mark}
        for name, column in marks.items()
        for i, mark in enumerate(column)
    ]
    scores = pl.DataFrame(rows, {**SCORES, "wrong_key": pl.Boolean()})
    classes = answer_classes(scores)
    assert classes["wrong_key"].to_list() == [1, 2, None, None]
    path = tmp_path / "cell.arrow.xz"
    recorded_counts.write(compact(scores, None, budgets=[1, 2]), {}, path, {})
    assert recorded_classes(recorded_counts.read(path)).equals(classes)
    assert {name: pool.wrong_key is None for name, pool in independent_pools(classes, {}).items()} == {
        "judged": False,
        "other": True,
    }
    older = pl.read_ipc(lzma.decompress(path.read_bytes())).drop("wrong_key")
    stream = io.BytesIO()
    older.write_ipc(stream)
    path.write_bytes(lzma.compress(stream.getvalue()))
    assert recorded_classes(recorded_counts.read(path))["wrong_key"].null_count() == 4


def test_a_share_that_all_questions_agree_on_is_never_below_none() -> None:
    """Where no question has an exception, an interval of a side stays in [0, 1], one of the difference in [-1, 1]."""
    none = np.zeros((2, 1))
    rows = compared("cover", none, none, Resamples.draw(2, 50, 0), 0.95)
    sides, difference = rows.filter(pl.col("side") != DIFFERENCE), rows.filter(side=DIFFERENCE)
    assert sides["lo"].to_list() == [0.0, 0.0] and (sides["hi"] > 0.5).all()
    assert difference["lo"].item() == -difference["hi"].item() < -0.5
