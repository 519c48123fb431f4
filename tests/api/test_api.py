"""The public interface: a results folder read from Python, and measures of answers that one has."""

import json
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import searchlens
from conftest import Make, Raw
from run_stages import analyse as analyse_recorded
from scripts import printed
from searchlens.cli.stages.importing import Request, import_samples
from searchlens.cli.stages.record import record
from searchlens.comparison.statements import Statement, statements
from searchlens.errors import InputError
from searchlens.formats.reading import Choices
from searchlens.plan import Grid
from searchlens.store import snapshots
from small_results import DEFAULT, HOSTILE, RIGHT

CELL = ("toy-base", "sums")


def counts(checkpoint: str) -> list[int]:
    return list(RIGHT[checkpoint].values())


# ---- importing


def test_importing_the_package_imports_no_library() -> None:
    """The planner imports it several times per job."""
    printed(
        "import sys, searchlens; found = {'numpy', 'polars', 'pydantic', 'scipy', 'yaml'} & set(sys.modules);"
        "assert not found, found; assert {'open', 'compare', 'Study'} <= set(dir(searchlens))"
    )


def test_a_comparison_needs_neither_torch_nor_snakemake_nor_matplotlib() -> None:
    printed(
        "import sys, searchlens; searchlens.compare([1, 2, 0], [2, 2, 0], samples=2, draws=100);"
        "found = {'torch', 'snakemake', 'matplotlib', 'transformers', 'math_verify'} & set(sys.modules);"
        "assert not found, found"
    )


def test_unknown_names_of_the_package_are_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'close'"):
        searchlens.close  # noqa: B018


# ---- a study


def test_a_study_reads_every_frame_from_a_copy_in_another_place(results: Path, tmp_path: Path) -> None:
    """A copy without the configuration and the questions says the same."""
    copy = tmp_path / "elsewhere" / "copied"
    shutil.copytree(results, copy)
    before = searchlens.open(results)
    for path in tmp_path.glob("*.jsonl"):
        path.unlink()
    here, there = before, searchlens.open(copy)
    assert there.cells.rows() == [(name, "sums", "sampled", 6, 4, 4, "ok") for name in ("toy-base", "toy-rl")]
    assert there.pairs.rows() == [("toy", "sums", "toy-base", "toy-rl", "ok")]
    for read in (
        lambda study: study.points(),
        lambda study: study.hits(*CELL),
        lambda study: study.classes(benchmark="sums"),
        lambda study: study.scores("toy-rl"),
        lambda study: study.recovery("toy", "sums"),
        lambda study: study.paths(),
        lambda study: study.measures("support"),
        lambda study: study.table("debate"),
        lambda study: study.agreement(*CELL),
        lambda study: study.samples(*CELL),
    ):
        frame = read(there)
        assert frame.height
        assert frame.equals(read(here))
    with pytest.raises(InputError, match=r"sums.jsonl[\s\S]*root="):
        there.question("sums", 0)


def test_gaps_are_those_of_the_counts(results: Path) -> None:
    gaps = searchlens.open(results).gaps()
    expected = (sum(counts("toy-rl")) - sum(counts("toy-base"))) / 24
    assert gaps["budget"].to_list() == [1, 4]
    assert gaps["rl_minus_base"].to_list() == pytest.approx([expected, 0])


def test_a_question_is_found_by_position_and_by_id(results: Path) -> None:
    study = searchlens.open(results)
    question = study.question("sums", "q3")
    assert question == study.question("sums", 3)
    assert (question.text, question.gold) == ("Compute 3+4.", "7")
    assert question.text not in repr(question), "no question is shown by accident"
    with pytest.raises(InputError, match="0 to 5"):
        study.question("sums", 6)


def test_samples_have_texts_with_their_verdicts(results: Path) -> None:
    found = searchlens.open(results).samples(*CELL, DEFAULT)
    assert found.height == 24
    assert found["correct"].to_list() == [s < right for right in counts("toy-base") for s in range(4)]
    first = found.row(0, named=True)
    assert first["text"] == f"{HOSTILE} so it is \\boxed{{1}}"
    assert (first["answer"], first["tokens"], first["logprob"], first["finish"]) == ("1", 3, -0.75, "stop")


def test_samples_of_one_question_are_the_same_rows(results: Path) -> None:
    study = searchlens.open(results)
    every = study.samples(*CELL, tokens=True)
    for which in (2, "q2"):
        assert study.samples(*CELL, question=which, tokens=True).equals(every.filter(pl.col("question") == 2))
    assert every["token_ids"].list.len().to_list() == every["tokens"].to_list()


def test_texts_without_scores_have_no_verdicts(results: Path) -> None:
    (results / "scores/toy-base/sums.parquet").unlink()
    found = searchlens.open(results).samples(*CELL, DEFAULT)
    assert found["correct"].null_count() == found.height == 24
    assert found["answer"][0] == "1"


@pytest.mark.parametrize("keep", [100, -40])
def test_a_damaged_shard_is_named_by_who_reads_texts(results: Path, keep: int) -> None:
    study = searchlens.open(results)
    shard = study.shards(*CELL)[DEFAULT][0]
    shard.path.write_bytes(shard.path.read_bytes()[:keep])
    for question in (None, 0):
        with pytest.raises(InputError, match=rf"shard {shard.path} cannot be used: it has \d+ bytes"):
            study.samples(*CELL, DEFAULT, question)


def test_the_graded_stream_is_read_if_a_policy_was_sampled_twice(results: Path) -> None:
    """After a change of the configuration both streams lie in the store, and the scores are of one of them."""
    folder = results / "manifests/toy-base/sums"
    (manifest,) = folder.glob("*.json")
    content = json.loads(manifest.read_text())
    other = json.loads(next((results / "manifests/toy-rl/sums").glob("*.json")).read_text())["generations"]
    for entry in other:
        source = results / "generations/toy-rl/sums" / entry["id"]
        shutil.copytree(source, results / "generations/toy-base/sums" / entry["id"])
    newer = folder / "pool-ffffffff.json"
    newer.write_text(json.dumps({**content, "generations": other}))
    assert searchlens.open(results).samples(*CELL, DEFAULT)["tokens"].unique().to_list() == [3]


def test_a_recorded_cell_says_that_it_has_counts_only(results: Path, raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    with chdir(tmp_path):
        record(Grid(searchlens.open(results).config), tmp_path / "recorded")
    raw |= {"results": "other", "landscape": {"draws": 100}, "equivalence": None}
    raw["study"] |= {"recorded_counts": str(tmp_path / "recorded")}
    grid = make_grid(raw)
    analyse_recorded(grid)
    with chdir(tmp_path):
        snapshots.save(grid.config)
    study = searchlens.open(tmp_path / "other")
    assert set(study.cells["source"]) == {"recorded"}
    assert study.classes(*CELL).height
    with pytest.raises(InputError, match="recorded counts, which keep only how many"):
        study.samples(*CELL)
    shutil.rmtree(tmp_path / "recorded")
    assert set(searchlens.open(tmp_path / "other").cells["source"]) == {"recorded"}, "also where the counts are not"


def test_imported_samples_and_their_questions_are_read_from_a_copy(
    results: Path, raw: Raw, make_grid: Make, tmp_path: Path
) -> None:
    raw["study"]["imports"] = "all"
    rows = [
        {"question": q, "sample": s, "text": f"\\boxed{{{q}}}", "gold": "1", "prompt": f"Say {q}."}
        for q in "12"
        for s in (0, 1)
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_samples(
        make_grid(raw), [path], Request(pair="theirs", benchmark="own", choices=Choices(role="base", policy="any"))
    )
    with chdir(tmp_path):
        snapshots.save(make_grid(raw).config)
    copy = tmp_path / "elsewhere"
    shutil.copytree(results, copy)
    shutil.rmtree(results)
    study = searchlens.open(copy)
    assert study.question("own", "2").text == "Say 2."
    found = study.samples("theirs-base", "own")
    assert found.select("id", "answer", "logprob").rows() == [("1", "1", None)] * 2 + [("2", "2", None)] * 2
    assert study.cells.row(-1) == ("theirs-base", "own", "imported", None, None, None, None)


@pytest.mark.parametrize(
    ("folder", "read", "stage"),
    [
        ("landscape", lambda study: study.points(*CELL), "landscape"),
        ("landscape", lambda study: study.hits(), "landscape"),
        ("recovery", lambda study: study.recovery("toy", "sums"), "recovery"),
        ("recovery", lambda study: study.gaps(), "recovery"),
        ("measures", lambda study: study.measures(), "measures"),
        ("scores", lambda study: study.scores(*CELL), "score"),
        ("tables", lambda study: study.table("debate"), "tables"),
        ("agreement", lambda study: study.agreement(*CELL), "agreement"),
        ("boptr", lambda study: study.boptr("errors"), "boptr"),
    ],
)
def test_an_absent_file_is_one_error_that_names_file_and_stage(
    results: Path, folder: str, read: Callable[[Any], Any], stage: str
) -> None:
    shutil.rmtree(results / folder, ignore_errors=True)
    with pytest.raises(InputError) as caught:
        read(searchlens.open(results))
    assert str(results / folder) in caught.value.message
    assert f"`searchlens {stage}`" in caught.value.hint or f"stage `{stage}`" in caught.value.hint


@pytest.mark.parametrize(
    ("read", "known"),
    [
        (lambda study: study.points("toy-bse"), "toy-base"),
        (lambda study: study.samples("toy-base", "sum"), "sums"),
        (lambda study: study.samples(*CELL, "topp"), DEFAULT),
        (lambda study: study.recovery(frame="supports"), "support"),
        (lambda study: study.table("debates"), "debate"),
        (lambda study: study.measures("all"), "measures"),
    ],
)
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(
    results: Path, read: Callable[[Any], Any], known: str
) -> None:
    with pytest.raises(InputError, match=known):
        read(searchlens.open(results))


def test_what_is_no_results_folder_is_refused(tmp_path: Path, results: Path) -> None:
    for folder, why in ((tmp_path / "nothing", "does not exist"), (tmp_path / "base", "it has none of")):
        with pytest.raises(InputError, match=why):
            searchlens.open(folder)
    shutil.rmtree(results / "config")
    with pytest.raises(InputError, match=r"has no configuration[\s\S]*searchlens snapshot"):
        searchlens.open(results)


def test_the_face_of_a_study_has_its_gaps_and_runs_nothing_of_a_name(results: Path) -> None:
    study = searchlens.open(results)
    face = study._repr_html_()
    assert "RL − Base at 1" in face
    assert "+20.8 [" in face
    assert "toy-base" in repr(study.cells)
    shutil.rmtree(results / "recovery")
    assert "No recovery analysis yet" in study._repr_html_()
    shutil.copytree(results, hostile := results.with_name("<script>"))
    assert "<script" not in searchlens.open(hostile, root=results.parent)._repr_html_()


# ---- measures of one's own samples


def test_a_comparison_gives_the_numbers_of_the_stage(results: Path) -> None:
    """The same samples as arrays, with their classes: every measure and interval of the stage's frames."""
    study = searchlens.open(results)
    sides = [study.scores(name, "sums").filter(pl.col("policy") == DEFAULT) for name in RIGHT]
    right, classes = ([side[column].to_numpy().reshape(6, 4) for side in sides] for column in ("correct", "answer"))
    found = searchlens.compare(*right, classes=tuple(classes), tokens=(3, 4), draws=100, seed=study.config.seed)
    for name in ("measures", "support", "variance", "support_changes"):
        stage = study.measures(name).drop("pair", "benchmark")
        if name == "measures":  # wrong_key is graded against golds of other questions, which arrays do not have
            stage = stage.filter(~pl.col("measure").str.contains("wrong_key"))
        assert getattr(found, name).equals(stage), name
    stage = study.measures("equivalents").filter(pl.col("policy") == DEFAULT).drop("pair", "benchmark", "policy")
    assert found.equivalents.drop("policy").equals(stage)
    assert found.equivalents["policy"].unique().to_list() == ["given"]


def test_several_policies_of_base_count_for_the_best() -> None:
    weak, strong = np.zeros((8, 4), bool), np.ones((8, 4), bool)
    weak[:4, 0] = True
    rl = np.ones((8, 4), bool)
    found = searchlens.compare({"weak": weak, "strong": strong}, rl, draws=100)
    states = {row["policy"]: row["state"] for row in found.equivalents.filter(budget=1).to_dicts()}
    assert states == {"weak": "above", "strong": "level", "best": "level"}
    assert found.support["base_samples"].item() == 4
    assert found.support["expanded"].item() == 4, "one to one with the first policy"


def test_what_samples_do_not_determine_is_said_and_is_null_in_json() -> None:
    one = searchlens.compare(np.eye(3, 1, dtype=bool), np.ones((3, 1), bool), draws=100)
    said = {each.measure: each.can for each in one.statements}
    for measure in ("exponents", "guessing", "entropy", "second run", "variance", "extrapolation"):
        assert said[measure].startswith("not identified"), measure
    plain = json.loads(json.dumps(one.to_dict(), allow_nan=False))
    assert plain["variance"][0]["decoding"] is None
    assert plain["samples"] == {"base": 1, "rl": 1}
    assert len(plain["says"]) == len(one.statements)


def test_guessing_is_read_if_choices_are_given() -> None:
    found = searchlens.compare(counts("toy-base"), counts("toy-rl"), samples=4, choices=4, draws=100)
    said = {each.measure: each for each in found.statements}["guessing"]
    assert said.can.startswith("Without guessing")
    assert "pass@4: guessing alone solves 68.4%" in said.cannot


def test_no_end_of_a_variance_is_below_zero() -> None:
    """Draws of questions without noise round to a little below 0."""
    found = searchlens.compare([4, 2, 1, 0, 1, 0], [4, 4, 3, 2, 0, 0], samples=4, draws=100).variance
    ends = found.select(pl.selectors.ends_with("_lo"))
    assert (ends.min_horizontal() >= 0).all()


@pytest.mark.parametrize("questions", [1, 2, 6])
@pytest.mark.parametrize("right", [0, 1])
@pytest.mark.parametrize("samples", [1, 2, 8])
def test_degenerate_samples_have_measures(questions: int, right: int, samples: int) -> None:
    same = np.full((questions, samples), bool(right))
    found = searchlens.compare(same, same, draws=100, choices=3)
    json.dumps(found.to_dict(), allow_nan=False)
    assert str(found) in str(found) + found._repr_html_()
    assert found.pass_at_k.filter(side="Base", k=1)["value"].item() == right


ONE = [[True, False], [False, False]]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (([1, 2], ONE), r"base has shape \(2,\)[\s\S]*`samples`"),
        ((ONE, [[True, False]]), "base has 2 questions, rl has 1"),
        (([[True], []], ONE), "none of them empty"),
        (([[2, 0], [0, 1]], ONE), "other than right and wrong"),
        ((ONE, ONE, {"samples": 2}), r"allowed with `samples`: \(questions,\)"),
        (([1, 3], [0, 1], {"samples": 2}), "from 0 to 2"),
        (([1, 0.5], [0, 1], {"samples": 2}), "whole numbers"),
        (([1, 0], [0, 1], {"samples": 0}), "1 or more"),
        (({}, ONE), "one or more names"),
        ((ONE, ONE, {"classes": ([[0, 1], [1, 1]], [[0]])}), r"\(2, 2\)"),
        ((ONE, ONE, {"classes": ([[-1, 1], [1, 1]], [[0, 1], [1, 1]])}), "without an answer"),
        ((ONE, ONE, {"classes": ([[0, 0], [1, 1]], [[0, 1], [1, 1]])}), "right and wrong samples"),
        ((ONE, ONE, {"tokens": (0, 1)}), "above 0"),
        (({"a": ONE}, ONE, {"tokens": (1, 1)}), "by its name"),
        ((ONE, ONE, {"choices": 1}), "2 or more"),
        ((ONE, ONE, {"choices": [4, 4, 4]}), "one for each question"),
        ((ONE, ONE, {"confidence": 1}), "below 1"),
        ((ONE, ONE, {"draws": 10}), "100 or more"),
        ((ONE, ONE, {"seed": -1}), "0 or more"),
    ],
)
def test_wrong_arrays_are_refused(arguments: tuple[Any, ...], why: str) -> None:
    *sides, options = arguments if isinstance(arguments[-1], dict) and len(arguments) == 3 else (*arguments, {})
    with pytest.raises(InputError, match=why):
        searchlens.compare(*sides, **options)


@pytest.mark.parametrize(
    ("base", "rl", "says"),
    [
        ([[0, 0]] * 9, [[0, 0]] * 9, "Neither side solves any question."),
        ([[0]] * 9, [[1]] * 9, "With 1 sample, RL solves more: "),
        ([[1, 0]] * 9, [[1, 0]] * 9, "1 RL sample is worth 1.0 "),
    ],
)
def test_a_comparison_begins_with_the_answer(base: list[list[int]], rl: list[list[int]], says: str) -> None:
    """Of one sample each, no number of samples is named."""
    short = searchlens.compare(base, rl, draws=100).statements[0]
    assert short.measure == "in short" and short.can.startswith(says)


def test_wrong_key_is_read_from_verdicts_against_other_golds() -> None:
    """One of two questions has one sample of four that a wrong key accepts: half of 1/4 at one sample."""
    wrong_key = [[True, False, False, False], [False] * 4]
    base = [[True, True, False, False], [False] * 4]
    found = searchlens.compare(base, base, wrong_key=(wrong_key, wrong_key), draws=100)
    assert found.measures.filter(measure="wrong_key", side="Base", k=1)["value"].item() == 0.125
    assert {each.measure: each.can for each in found.statements}["wrong_key"].startswith(
        "With golds of other questions"
    )
    counts = searchlens.compare([2, 0], [2, 0], samples=4, wrong_key=([1, 0], [1, 0]), draws=100)
    assert counts.measures.filter(measure="wrong_key", side="RL", k=4)["value"].item() == 0.5
    with pytest.raises(InputError, match=r"wrong_key\[1\] has shape"):
        searchlens.compare(base, base, wrong_key=(wrong_key, [[True], [False]]), draws=100)


# ---- sentences at their edges


def said_of_exponents(**changed: object) -> Statement:
    """The sentence of one row of ``exponents``, beside local exponents of three budgets."""
    row = {"policy": "given", "empty": False, "hardly": False, "testable": True, "pool_min": 32, "pool_max": 32}
    row |= {"beta_lo": 0.7, "beta_hi": 1.1, "p": 0.5, **changed}
    frames = searchlens.compare(counts("toy-base"), counts("toy-rl"), samples=4, draws=100).frames
    slopes = pl.col("budget").replace_strict({1: 0.93, 2: 0.51}, default=None, return_dtype=pl.Float64)
    changed_frames = {"exponents": pl.DataFrame([row]), "equivalents": frames["equivalents"].with_columns(slope=slopes)}
    return {each.measure: each for each in statements(frames | changed_frames, policy="given")}["exponents"]


@pytest.mark.parametrize(
    ("changed", "can"),
    [
        ({}, "N = α b^β, N up to 32, is allowed with β from 0.70 to 1.10 (p of the best: 0.500)."),
        (
            {"hardly": True, "p": 0.058},
            "Hardly any power law N = α b^β, N up to 32, fits (p of the best: 0.058). Not rejected: β from 0.70 to"
            " 1.10. Local exponents: 0.93, 0.51.",
        ),
        (
            {"empty": True, "beta_lo": None, "beta_hi": None, "p": 0.0004},
            "No power law N = α b^β, N up to 32, that these samples can test fits them (p of the best: below 0.001)."
            " Local exponents: 0.93, 0.51.",
        ),
        ({"beta_hi": 1.7}, "not identified: N = α b^β, N up to 32, is allowed with β from 0.70 to 1.70."),
        ({"testable": False, "beta_lo": None, "beta_hi": None, "p": None}, "not identified: too few questions."),
    ],
)
def test_exponents_are_said_with_the_pool_and_with_how_well_the_best_law_fits(
    changed: dict[str, Any], can: str
) -> None:
    assert said_of_exponents(**changed).can == can


def test_a_small_set_is_not_taken_for_knowledge_of_the_exponent() -> None:
    assert said_of_exponents(hardly=True, p=0.06).cannot.startswith("β: the set is small because laws do not fit")
