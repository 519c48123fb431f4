"""Scoring: the rows that come out, whatever the order of those that go in."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import Make, Patch, Raw
from run_stages import analyse, landscape_cell, recovery_cell, score_cell
from searchlens.analysis.points import operating_points
from searchlens.analysis.pool import plain_votes
from searchlens.benchmarks import Question
from searchlens.boptr.cohort import CohortPlan
from searchlens.cli.stages import score as stage
from searchlens.cli.stages.agreement import agreement
from searchlens.cli.stages.measures import measures
from searchlens.cli.stages.record import record
from searchlens.cli.stages.tables import tables
from searchlens.config.boptr import BoptrOptions
from searchlens.errors import InputError
from searchlens.grading import GradedPair, grader, processes, score
from searchlens.grading.score import Rules, ScoredSamples, answer_classes, distinct_forms, found_answers, together
from searchlens.plan import Grid, needs
from searchlens.reporting.boptr.context import BoptrContext
from searchlens.reporting.tables.graders import of_judges
from searchlens.store import columns as schemas
from searchlens.store import layout
from searchlens.store.columns import AGREEMENT
from searchlens.store.provenance import Judge

SUMS = (Question("one", "1+1?", "2"), Question("two", "2+2?", "4"))
LISTS = (Question("list", "List two.", "", {"count": {"n": 2, "separator": ", "}}),)


def sample(
    question: str, number: int, text: str, *, policy: str = "p", stopped: bool = True, **more: Any
) -> dict[str, Any]:
    return {
        "policy": policy,
        "question": question,
        "sample": number,
        "run": number,
        "text": text,
        "tokens": 3,
        "generated": 3,
        "stopped": stopped,
        "score": -0.5,
        **more,
    }


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=score.SAMPLES)


def score_samples(
    samples: pl.DataFrame,
    questions: tuple[Question, ...],
    kind: str,
    verdicts: Path,
    *,
    policies: list[str] | None = None,
    **options: Any,
) -> ScoredSamples:
    return Rules(questions, kind, verdicts, **options).scored(found_answers(samples, kind), policies)


def answers(scores: pl.DataFrame) -> list[tuple[bool, int]]:
    return list(scores.select("correct", "answer").iter_rows())


def test_rows_follow_the_schema_and_the_order_of_policy_question_sample(tmp_path: Path) -> None:
    rows = [sample(q, s, r"\boxed{2}", policy=p) for p in ("z", "a") for q in ("two", "one") for s in (1, 0)]
    scores = score_samples(frame(*rows), SUMS, "math", tmp_path, policies=["z", "unused", "a"]).scores
    assert scores.schema == schemas.GRADED
    keys = list(scores.select("policy", "question", "sample").iter_rows())
    assert keys == [(p, q, s) for p in ("z", "a") for q in (0, 1) for s in (0, 1)]
    assert scores["correct"].to_list() == [True, True, False, False] * 2
    assert scores.select("tokens", "stopped", "score").unique().rows() == [(3, True, -0.5)]


def test_classes_are_numbered_within_a_question_and_right_answers_are_class_zero(tmp_path: Path) -> None:
    texts = [r"\boxed{9}", r"\boxed{2}", r"\boxed{2.0}", r"\boxed{\frac{18}{2}}", r"\boxed{7}", "none", r"\boxed{"]
    rows = [sample("one", i, text) for i, text in enumerate(texts)] + [sample("two", 0, r"\boxed{7}")]
    rows.append(sample("one", 0, r"\boxed{9.0}", policy="q"))  # of another policy, in the same class
    scores = score_samples(frame(*rows), SUMS, "math", tmp_path).scores
    expected = [(False, 2), (True, 0), (True, 0), (False, 2), (False, 1), (False, -1), (False, -1), (False, 1)]
    expected.append((False, 2))
    assert answers(scores) == expected


def test_unknown_scores_and_lengths_stay_unknown(tmp_path: Path) -> None:
    scores = score_samples(frame(sample("one", 0, "", tokens=None, score=None)), SUMS, "math", tmp_path).scores
    assert scores.select("tokens", "score").row(0) == (None, None)


TEXTS = ["", r"\boxed{2}", r"\boxed{4}", r"\boxed{2.0}", r"\boxed{5}", r"\boxed{15}", r"\boxed{"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_order_of_the_rows_does_not_matter(tmp_path: Path, data: st.DataObject) -> None:
    keys = [(p, q, s) for p in "pr" for q in ("one", "two") for s in range(3)]
    rows = [sample(q, s, data.draw(st.sampled_from(TEXTS)), policy=p) for p, q, s in keys]
    shuffled = data.draw(st.permutations(rows))
    order = {"policies": ["p", "r"]}
    first = score_samples(frame(*rows), SUMS, "math", tmp_path, **order)
    second = score_samples(frame(*shuffled), SUMS, "math", tmp_path, **order)
    assert first.scores.equals(second.scores)


def test_a_second_run_judges_nothing(tmp_path: Path) -> None:
    base, rl = (
        frame(*(sample(q, s, rf"\boxed{{{s % most}}}") for q in ("one", "two") for s in range(12))) for most in (3, 4)
    )
    first = score_samples(base, SUMS, "math", tmp_path).summary
    assert (first.pairs_graded, first.pairs_reused) == (6, 0)
    other = score_samples(rl, SUMS, "math", tmp_path).summary  # another cell of the same benchmark
    assert (other.pairs_graded, other.pairs_reused) == (2, 6)
    again = score_samples(base, SUMS, "math", tmp_path).summary
    assert (again.pairs_graded, again.pairs_reused) == (0, 6)


def test_the_summary_counts_samples_and_pairs(tmp_path: Path) -> None:
    """The first two are too large to be compared."""
    texts = [r"\boxed{10^{10^{10}}}", r"\boxed{10^{10^{10}}}", r"\boxed{2}", "", r"\boxed{3}"]
    scored = score_samples(frame(*(sample("one", i, text) for i, text in enumerate(texts))), SUMS, "math", tmp_path)
    assert scored.summary == score.Summary(
        samples=5,
        correct=1,
        finished=4,
        no_answer=1,
        extraction={"boxed": 4, "none": 1},
        unknown=2,
        pairs_graded=3,
        pairs_reused=0,
        pairs_unknown=1,
    )
    assert str(scored.summary).startswith(
        "5 samples: 1 correct, 4 finished with an answer, 1 without one, 2 unknown (3"
    )
    assert answers(scored.scores) == [(False, 1), (False, 1), (True, 0), (False, -1), (False, 2)]
    assert scored.scores["unknown"].to_list() == [True, True, False, False, False]


def test_finished_is_recorded_by_its_own_definition_and_not_by_what_is_graded(tmp_path: Path) -> None:
    texts = [(r"\boxed{2}", True), (r"\boxed{2}", False), ("The answer is 2.", True), ("so it is 2", True), ("", True)]
    rows = [sample("one", i, text, stopped=stopped) for i, (text, stopped) in enumerate(texts)]
    strict = score_samples(frame(*rows), SUMS, "math", tmp_path / "strict").scores
    assert strict["extraction"].to_list() == ["boxed", "boxed", "fallback", "none", "none"]
    assert strict["correct"].to_list() == [True, True, True, False, False]
    assert strict["finished"].to_list() == [True, False, True, False, False]
    lenient = score_samples(frame(*rows), SUMS, "simplerl", tmp_path / "lenient").scores
    assert lenient["extraction"].to_list() == ["boxed", "boxed", "fallback", "number", "none"]
    assert lenient["correct"].to_list() == [True, True, True, True, False]
    assert lenient["finished"].to_list() == strict["finished"].to_list()  # the last number in sight is no stated answer


def test_answers_kept_and_withdrawn_by_an_open_box_are_told_apart(tmp_path: Path) -> None:
    texts = [r"\boxed{2} so \boxed{2", r"\boxed{2} so \boxed{3", r"so \boxed{2", r"\boxed{2}"]
    rows = [sample("one", i, text, stopped=i == 0) for i, text in enumerate(texts)]
    scored = score_samples(frame(*rows), SUMS, "math", tmp_path)
    assert scored.scores["extraction"].to_list() == ["kept", "withdrawn", "none", "boxed"]
    assert scored.scores["correct"].to_list() == [True, False, False, True]
    assert scored.scores["finished"].to_list() == [True, False, False, False]
    assert scored.summary.no_answer == 2


def test_plain_classes_are_those_of_normalised_strings(tmp_path: Path) -> None:
    question = (Question("q", "?", "1/2"),)
    texts = ["0.5", r"\frac12", r"\frac{2}{4}", r"\frac{x}{2x}", "0.25", r"\frac14", "none"]
    rows = [sample("q", i, rf"\boxed{{{text}}}") for i, text in enumerate(texts)]
    scores = score_samples(frame(*rows), question, "math", tmp_path).scores
    assert scores["answer"].to_list() == [0, 0, 0, 0, 1, 1, 2]  # one class of right answers
    plain = scores["plain"].to_list()
    assert plain[0] == plain[1] == plain[2] != plain[3]  # which plain strings do not see
    assert plain[4] == plain[5]
    assert len(set(plain)) == 4


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("first_sample", [(True, 0), (True, 1), (False, 2), (False, -1)]),
        ("verdict_majority", [(True, 0), (True, 0), (False, 1), (False, -1)]),
    ],
)
def test_instructions_are_classes_of_their_own_or_pass_and_fail(
    tmp_path: Path, option: Any, expected: list[Any]
) -> None:
    rows = [sample("list", 0, "a, b"), sample("list", 1, "a, b"), sample("list", 2, "a")]
    rows.append(sample("list", 3, "a, b", stopped=False))  # cut off: neither correct nor valid
    scored = score_samples(frame(*rows), LISTS, "instructions", tmp_path, q_instructions=option)
    assert answers(scored.scores) == expected
    assert scored.summary.pairs_graded == 2
    assert scored.scores["plain"].equals(scored.scores["answer"], check_names=False)


def test_letters_vote(tmp_path: Path) -> None:
    question = (Question("q", "? (A) 1 (B) 2", "B"),)
    texts = [r"\boxed{B}", "The answer is B", r"\boxed{A}", r"\boxed{2}"]
    scored = score_samples(frame(*(sample("q", i, t) for i, t in enumerate(texts))), question, "choice", tmp_path)
    assert answers(scored.scores) == [(True, 0), (True, 0), (False, 1), (False, -1)]
    assert scored.summary.extraction == {"boxed": 2, "fallback": 1, "none": 1}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([sample("three", 0, "")], "samples of unknown question: three"),
        ([sample("one", 0, "", policy="x")], "samples of unknown policy: x"),
        ([sample("one", 0, "a"), sample("one", 0, "b")], "sample 0 of question one, policy p, occurs more than once"),
    ],
)
def test_samples_that_do_not_fit_are_refused(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        score_samples(frame(*rows), SUMS, "math", tmp_path, policies=["p"])


def test_the_vote_by_plain_strings_stands_beside_that_by_classes(tmp_path: Path) -> None:
    """Two spellings of the right answer outvote two equal wrong ones together, and not apart."""
    question = (Question("q", "?", "1/2"),)
    texts = ["0.3", r"\frac{1}{2}", "0.3", r"\frac{x}{2x}", r"\frac{1}{2}"]
    rows = [sample("q", i, rf"\boxed{{{text}}}") for i, text in enumerate(texts)]
    scores = score_samples(frame(*rows), question, "math", tmp_path).scores
    votes = plain_votes(scores, budgets=[1, 4, 5, 9], ties="first")
    assert votes.schema == schemas.VOTES
    prefix = votes.filter(estimator="first_k").select("budget", "Q", "Q_plain").rows()
    assert prefix == [(1, 0, 0), (4, 0, 0), (5, 1, 0)]
    expected = votes.filter(estimator="unbiased").select("budget", "Q", "Q_plain").rows()
    # Of the five fours, by class: 1, 1, and three ties; by string: 1, 1, 0, 0 and a tie.
    assert [row[1:] for row in expected] == [pytest.approx(two) for two in ((0.6, 0.6), (0.7, 0.5), (1, 0.5))]


def test_the_first_to_finish_states_an_answer(tmp_path: Path) -> None:
    """A last number is an answer to SimpleRL's rules, but the sample that has only that has not finished with one."""
    texts = [("so perhaps 3", 2), (r"\boxed{2}", 9)]
    rows = [sample("one", i, text, tokens=tokens, generated=tokens) for i, (text, tokens) in enumerate(texts)]
    scores = score_samples(frame(*rows), SUMS[:1], "simplerl", tmp_path).scores
    points = operating_points(scores, budgets=[2]).points.filter(metric="T", estimator="first_k")
    assert points["value"].to_list() == [1.0]
    graded_elsewhere = scores.select(schemas.SCORES.names())  # does not say: every answer counts
    assert operating_points(graded_elsewhere, budgets=[2]).points.filter(metric="T")["value"].to_list() == [0.0, 0.0]


ARITHMETIC = tuple(Question(str(i), f"{i}+0?", str(i)) for i in range(6))


def test_wrong_key_is_the_verdict_of_another_questions_gold(tmp_path: Path) -> None:
    """Every answer names one question, so a wrong key accepts one sample of each question, and never its own answer."""
    rows = [sample(q.id, i, rf"\boxed{{{i}}}", policy=p) for p in "pr" for q in ARITHMETIC for i in range(6)]
    scored = score_samples(frame(*rows), ARITHMETIC, "math", tmp_path, wrong_key_policy="p", seed=3)
    found = scored.scores
    counts = (
        found.filter(policy="p").group_by("question", maintain_order=True).agg(pl.col("wrong_key", "correct").sum())
    )
    assert counts["wrong_key"].to_list() == [1] * 6
    assert not found.select((pl.col("wrong_key") & pl.col("correct")).any()).item()
    assert found.filter(policy="r")["wrong_key"].null_count() == 36
    assert scored.summary.others_graded == 36 - scored.summary.others_reused


def test_verdicts_of_other_golds_are_stored_and_change_no_other_column(tmp_path: Path) -> None:
    rows = frame(*(sample(q.id, i, rf"\boxed{{{i}}}") for q in ARITHMETIC for i in range(3)))
    first = score_samples(rows, ARITHMETIC, "math", tmp_path, wrong_key_policy="p", seed=3)
    again = score_samples(rows, ARITHMETIC, "math", tmp_path, wrong_key_policy="p", seed=3)
    assert again.scores.equals(first.scores)
    assert (again.summary.others_graded, again.summary.others_reused) == (0, 18)
    plain = score_samples(rows, ARITHMETIC, "math", tmp_path).scores
    assert plain["wrong_key"].null_count() == plain.height
    assert plain.drop("wrong_key").equals(first.scores.drop("wrong_key"))


def test_a_question_without_an_answer_is_not_accepted_and_a_single_question_has_no_other(tmp_path: Path) -> None:
    none = frame(*(sample(q.id, 0, "") for q in ARITHMETIC))
    assert (
        score_samples(none, ARITHMETIC, "math", tmp_path, wrong_key_policy="p").scores["wrong_key"].to_list()
        == [False] * 6
    )
    alone = frame(sample("one", 0, r"\boxed{2}"))
    assert score_samples(alone, SUMS[:1], "math", tmp_path, wrong_key_policy="p").scores["wrong_key"].to_list() == [
        None
    ]


def test_instructions_have_no_wrong_key(tmp_path: Path) -> None:
    rows = frame(sample("list", 0, "a, b"))
    scores = score_samples(
        rows,
        (*LISTS, Question("other", "List one.", "", {"count": {"n": 1}})),
        "instructions",
        tmp_path,
        wrong_key_policy="p",
    ).scores
    assert scores["wrong_key"].to_list() == [None]


def test_policies_graded_apart_are_graded_as_together(tmp_path: Path) -> None:
    """Answers are numbered over all policies; of the counts only those of pairs depend on the parts."""
    texts = {"p": [r"\boxed{3}", r"\boxed{2}", "none"], "q": [r"\boxed{4}", r"\boxed{3}", r"\boxed{2.0}"]}
    rows = [sample("one", i, text, policy=name) for name, each in texts.items() for i, text in enumerate(each)]
    whole = score_samples(frame(*rows), SUMS, "math", tmp_path, wrong_key_policy="p", seed=3)
    rules = Rules(SUMS, "math", tmp_path, wrong_key_policy="p", seed=3)
    parts = [rules.judged(found_answers(frame(*rows[place : place + 3]), "math")) for place in (0, 3)]
    classes = answer_classes([distinct_forms(judged) for judged, _ in parts])
    graded = pl.concat([rules.graded(judged, classes) for judged, _ in parts])
    assert graded.equals(whole.scores)
    assert graded["answer"].to_list() == [1, 0, -1, 2, 1, 0]
    summary = together([counts for _, counts in parts])
    for name in ("samples", "correct", "finished", "no_answer", "extraction", "unknown"):
        assert getattr(summary, name) == getattr(whole.summary, name)


def test_a_cell_in_parts_is_written_as_in_one(sampled: Grid, monkeypatch: Patch) -> None:
    """Memory is bounded by what is judged together; the file does not say how much that was."""
    manifests, output = sampled.manifests("toy-base", "sums"), sampled.scores("toy-base", "sums")
    whole, in_parts = pl.read_parquet(output), stage._parts
    assert whole["policy"].n_unique() > 2
    for limits in ({"rows": 1}, {"size": 1}):
        output.unlink()
        monkeypatch.setattr(stage, "_parts", partial(in_parts, **limits))
        score_cell(sampled, "toy-base", "sums", manifests, output)
        assert pl.read_parquet(output).equals(whole)
        assert not [path for path in output.parent.iterdir() if path.suffix == ".tmp"]


# ---- Who judged a cell: recorded with it, named in tables, and never mixed in silence


CELLS = (("toy-base", "sums"), ("toy-rl", "sums"))
MATH = Judge("math", grader("math").version)


def landscapes(grid: Grid) -> list[Path]:
    folders = [grid.layout.landscape(*cell) for cell in CELLS]
    for cell, folder in zip(CELLS, folders, strict=True):
        landscape_cell(grid, "sums", grid.scores(*cell), folder)
    return folders


def write_tables(grid: Grid) -> None:
    measures(needs.measures(grid), grid.layout, fingerprint="0" * 12)
    tables(needs.tables(grid), grid.layout, grid.layout, fingerprint="0" * 12)


@pytest.fixture
def kept(raw: Raw, make_grid: Make, sampled: Grid, tmp_path: Path) -> Grid:
    """A study that reads the recorded counts of the toy study."""
    record(sampled, tmp_path / "kept")
    study = {**raw["study"], "recorded_counts": "kept", "sample": []}
    return make_grid({**raw, "results": "elsewhere", "study": study})


def state(grid: Grid, cell: tuple[str, str], judge: dict[str, str] | None) -> None:
    """Let recorded counts say who judged them."""
    path = layout.counts_sidecar(grid.scores(*cell))
    entries = {key: value for key, value in json.loads(path.read_text()).items() if key != "grader"}
    path.write_text(json.dumps(entries | ({"grader": judge} if judge else {})))


def test_the_grader_of_samples_reaches_landscapes_and_counts(sampled: Grid, kept: Grid) -> None:
    assert [Judge.read(folder) for folder in landscapes(sampled)] == [MATH, MATH]
    analyse(kept)
    assert [Judge.read(kept.layout.landscape(*cell)) for cell in CELLS] == [MATH, MATH]


def test_counts_that_do_not_state_their_grader_are_read_and_tables_say_so(kept: Grid) -> None:
    for cell in CELLS:
        state(kept, cell, None)
    kept.check()
    analyse(kept)
    write_tables(kept)
    text = kept.layout.table("graders", "md").read_text()
    assert text.count("recorded") == 2
    assert text.count("not stated") == 2
    assert "2 of 2 cells do not state the version of their grader" in text
    assert "Not to be compared" not in kept.layout.table("recovery_summary", "md").read_text()


def test_every_table_says_that_versions_are_mixed(kept: Grid) -> None:
    state(kept, CELLS[0], None)
    analyse(kept)
    write_tables(kept)
    for name in ("graders", "recovery_summary", "operating_points"):
        text = kept.layout.table(name, "md").read_text()
        assert "judged by different versions of the grader math: not stated in toy-base/sums; math-" in text, name


def test_counts_of_another_grader_are_refused(kept: Grid) -> None:
    state(kept, CELLS[0], {"name": "choice", "version": "choice-2"})
    with pytest.raises(InputError, match="were judged by the grader choice, not by math"):
        kept.check()


def test_every_table_says_which_golds_were_not_checked(kept: Grid) -> None:
    analyse(kept)
    measures(needs.measures(kept), kept.layout, fingerprint="0" * 12)
    study = replace(needs.tables(kept), unknown_wordings=("benchmarks.sums: 1 of 6 questions has a wording",))
    tables(study, kept.layout, kept.layout, fingerprint="0" * 12)
    for name in ("health", "provenance", "recovery_summary", "operating_points"):
        text = kept.layout.table(name, "md").read_text()
        assert "benchmarks.sums: 1 of 6 questions has a wording." in text, name


def test_a_pair_that_was_judged_by_two_versions_is_refused(sampled: Grid, tmp_path: Path) -> None:
    base, rl = landscapes(sampled)
    Judge("math", "math-0").write(rl)
    with pytest.raises(InputError, match=r"Base .* in version math-\d.*, RL .* in version math-0"):
        recovery_cell(sampled, base, rl, tmp_path / "recovery")
    assert not (tmp_path / "recovery").exists()
    Judge("math").write(rl)
    recovery_cell(sampled, base, rl, tmp_path / "recovery")


def test_versions_of_different_graders_are_no_mixture() -> None:
    cells = {(name, "b"): Judge("math", "math-4") for name in "abcde"}
    assert of_judges({**cells, ("a", "c"): Judge("choice", "choice-2")}) == []
    (note,) = of_judges({**cells, ("a", "c"): Judge("math", "math-3")})
    assert "math-4 in a/b, b/b, c/b and 2 more; math-3 in a/c" in note


def test_boptr_repeats_the_warning_under_its_tables() -> None:
    plan = SimpleNamespace(benchmarks=["b"], said_source=lambda benchmarks: "from recorded samples")
    flags = pl.DataFrame(schema=dict.fromkeys(("flag", "severity", "model", "benchmark", "detail"), pl.String))
    context = BoptrContext({"protocol_flags": flags}, cast(CohortPlan, plan), BoptrOptions(), ["Not to be compared."])
    assert context.notes[1:] == ("Not to be compared.", "From recorded samples.")


# ---- Two graders on the same samples: what is drawn, what both say, and which cells have none


CELL = ("toy-base", "sums")


def drawn(grid: Grid, output: Path) -> pl.DataFrame:
    agreement(needs.agreement(grid, *CELL), grid.inputs.questions("sums"), grid.layout, grid.manifests(*CELL), output)
    return pl.read_parquet(output)


def of_size(raw: Raw, make_grid: Make, size: int, **changes: Any) -> Grid:
    return make_grid({**raw, **changes, "study": {**raw["study"], "agreement": size}})


def test_a_sample_is_judged_by_both_and_drawn_by_the_seed(
    raw: Raw, make_grid: Make, sampled: Grid, tmp_path: Path
) -> None:
    """Odd samples are right, all others hold another answer."""
    grid = of_size(raw, make_grid, 6)
    found = drawn(grid, tmp_path / "a.parquet")
    assert (found.schema, found.height) == (AGREEMENT, 6)
    for judge in ("ours", "math_verify"):
        assert found[judge].to_list() == ["right" if sample % 2 else "wrong" for sample in found["sample"]]
    answers = [gold if sample % 2 else "x" for gold, sample in found.select("gold", "sample").iter_rows()]
    assert found["answer"].to_list() == answers
    assert drawn(grid, tmp_path / "b.parquet").equals(found)
    everything = drawn(of_size(raw, make_grid, 10_000), tmp_path / "c.parquet")
    assert everything.select("policy", "question", "sample").is_unique().all()
    assert everything.height == pl.read_parquet(sampled.scores(*CELL)).height > 6
    other = needs.agreement(grid, *CELL)
    assert needs.hash_of(other) != needs.hash_of(needs.agreement(of_size(raw, make_grid, 7), *CELL))


def test_math_verify_alone_finds_answers_by_its_own_rules() -> None:
    texts = {r"so \boxed{\frac{1}{2}}": "right", "so $x = 0.5$": "right", "answer is 3": "wrong", "no idea": "none"}
    pairs = [GradedPair(r"\frac{1}{2}", text) for text in texts]
    found = processes.judge("searchlens.grading.math_verify_alone", pairs, processes.DEFAULT, 1)
    assert found == list(texts.values())


def test_cells_that_math_verify_cannot_judge_say_why(raw: Raw, make_grid: Make, sampled: Grid, tmp_path: Path) -> None:
    assert sampled.study.agreement_cells == sampled.study.cells
    assert of_size(raw, make_grid, 0).study.without_agreement(*CELL) == "study.agreement is 0"
    raw["benchmarks"]["sums"]["grader"] = "choice"
    assert make_grid(raw).study.without_agreement(*CELL) == "math-verify does not apply to the grader choice"
    raw["benchmarks"]["sums"]["grader"] = "math"
    record(sampled, tmp_path / "kept")
    kept = make_grid({**raw, "study": {**raw["study"], "recorded_counts": "kept", "sample": []}})
    assert kept.study.without_agreement(*CELL) == "no texts: read from recorded counts"
    assert kept.study.agreement_cells == ()
