"""Cohorts: the plan file and its errors, and landscapes read from a folder, compared with their samples."""

import copy
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from conftest import Raw
from searchlens.boptr.cohort import (
    PLAN_FILE,
    Benchmark,
    Cohort,
    CohortPlan,
    Model,
    read_cohort,
    read_plan,
    votes_fall,
    write_plan,
)
from searchlens.boptr.rule import Reason, Rule, attempt
from searchlens.boptr.view import sample_view
from searchlens.cli.main import main
from searchlens.config.boptr import Estimator
from searchlens.errors import InputError
from searchlens.plan import Grid
from searchlens_lab.simulate import scores, simulate, small_design, write

DESIGN, SEED = small_design(), 3
ANCHOR, OTHER, MATH, GPQA = "qwen25_7b", "qwen25_1.5b", "math500", "gpqa"
BUDGETS = DESIGN.budgets
PLAN = CohortPlan(
    "a",
    "math500",
    {
        "a": Model("a-base", "a-rl", parameters=7.6e9, batches={"123": {"base": "a-base-123", "rl": "a-rl-123"}}),
        "b": Model("b-base", None, "lower", rltrain="train"),
        "c": Model("a-base", "c-rl", "new"),
    },
    {
        "math500": Benchmark("math", title="Math, 500: “all”"),
        "train": Benchmark("math", "rltrain"),
        "aime": Benchmark("floor", "held_out"),
        "stem": Benchmark("nonmath", "descriptive"),
    },
    "temp_0.7",
    (1, 2, 4, 8),
    "recorded",
    {"warm": {"local": {"temperature": 0.8, "top_k": 50}}},
)
LEAST: dict[str, Any] = {
    "anchor_model": "a",
    "anchor_benchmark": "math500",
    "models": {"a": {"base": "a-base"}},
    "benchmarks": {"math500": {"regime": "math"}},
}


def test_plan_file_gives_the_plan_back(tmp_path: Path) -> None:
    """Every field differs from its default, names keep their order, and titles may hold any character."""
    write_plan(PLAN, tmp_path / PLAN_FILE)
    found = read_plan(tmp_path / PLAN_FILE)
    assert replace(found, budgets=tuple(found.budgets)) == PLAN
    assert list(found.models) == list(PLAN.models) and list(found.benchmarks) == list(PLAN.benchmarks)


def test_what_may_be_left_out_has_the_documented_defaults(tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE).write_text(yaml.safe_dump(LEAST))
    found = read_plan(tmp_path / PLAN_FILE)
    assert (found.default_policy, list(found.budgets), found.source) == ("topp0.95_t1.0", [1, 2, 4, 8, 16], "sampled")
    assert found.models["a"] == Model("a-base", None, "upper", None, None, {})
    assert found.benchmarks["math500"] == Benchmark("math", "fitted", "")


def test_what_the_plan_says_of_its_models_and_benchmarks() -> None:
    assert PLAN.with_role("fitted", "held_out") == ["math500", "aime"]
    assert PLAN.fitted_models == ["a", "b"] and PLAN.in_group("new", "lower") == ["b", "c"]
    assert [PLAN.title(d) for d in ("math500", "aime")] == ["Math, 500: “all”", "aime"]


def test_a_wrong_policy_in_the_plan_is_named(tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE).write_text(yaml.safe_dump(LEAST | {"policies": {"warm": {"local": {"temperatur": 0.8}}}}))
    with pytest.raises(InputError, match=r"warm.*temperatur"):
        read_plan(tmp_path / PLAN_FILE)


def test_a_vote_falls_only_from_one_budget_of_a_policy_to_the_next() -> None:
    """That another policy solves fewer says nothing."""
    points = {("a", 1): 0, ("a", 2): 1, ("b", 1): 2, ("b", 2): 3}
    rises = np.array([[0, 1], [1, 1], [0, 0], [0, 1]], np.float32)
    assert not votes_fall(points, rises)
    for row in (1, 3):
        falls = rises.copy()
        falls[row - 1, 0], falls[row, 0] = 1, 0
        assert votes_fall(points, falls)


def test_training_split_is_the_models_own_or_the_only_one() -> None:
    two = {**PLAN.benchmarks, "other": Benchmark("nonmath", "rltrain")}
    assert [PLAN.rltrain(m) for m in "abc"] == ["train", "train", "train"]
    plan = CohortPlan("a", "math500", PLAN.models, two)
    assert [plan.rltrain(m) for m in "abc"] == [None, "train", None]


def edited(path: str, value: object) -> dict[str, Any]:
    """The smallest plan with one value set; None: the key is taken out."""
    content = copy.deepcopy(LEAST)
    *folders, key = path.split(".")
    place = content
    for name in folders:
        place = place[name]
    place[key] = value
    if value is None:
        del place[key]
    return content


@pytest.mark.parametrize(
    ("path", "value", "allowed"),
    [
        ("benchmarks.math500.regime", "maths", "'math', 'nonmath' or 'floor'"),
        ("benchmarks.math500.role", "train", "'fitted', 'held_out', 'descriptive' or 'rltrain'"),
        ("models.a.group", "middle", "'upper', 'lower' or 'new'"),
        ("source", "dreamt", "'sampled', 'imported', 'recorded' or 'simulated'"),
        ("benchmarks.math500.regime", None, "required"),
        ("models.a.rl", 7, "string"),
        ("models.a.parameters", "7", "number"),
        ("models.a.batches", ["123"], "object"),
        ("budgets", 16, "array"),
        ("budgets", [1, 2.5], "integer"),
        ("models.a.checkpoint", "a-base", "nexpected"),
        ("anchor", "a", "nexpected"),
        ("anchor_model", None, "required"),
    ],
)
def test_bad_plan_file_names_file_key_and_what_is_allowed(
    path: str, value: object, allowed: str, tmp_path: Path
) -> None:
    file = tmp_path / PLAN_FILE
    file.write_text(yaml.safe_dump(edited(path, value)))
    with pytest.raises(InputError) as error:
        read_plan(file)
    assert str(file) in error.value.message
    assert path in error.value.message and allowed in error.value.message
    assert error.value.hint


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    content = edited("benchmarks.math500.regime", "maths") | {"source": "dreamt"}
    (tmp_path / PLAN_FILE).write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=r"(?s)mistakes: 2.*benchmarks.math500.regime.*source"):
        read_plan(tmp_path / PLAN_FILE)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "a cohort", "models: [", "a:\n\t- b"])
def test_files_that_are_no_plan_are_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE).write_text(text)
    with pytest.raises(InputError) as error:
        read_plan(tmp_path / PLAN_FILE)
    assert str(tmp_path / PLAN_FILE) in error.value.message and error.value.hint


def test_absent_plan_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*cohort.yaml: No such file"):
        read_plan(tmp_path / PLAN_FILE)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("anchor_model", "z", ("'z'", "there are a, b")),
        ("anchor_benchmark", "gsm8k", ("'gsm8k'", "there are math500")),
        ("models", {}, ("'a'", "(none)")),
        ("budgets", (1, 2, 3), ("[1, 2, 3]", "1, 2, 4")),
        ("budgets", (2, 4), ("[2, 4]", "1, 2, 4")),
        ("budgets", (1,), ("[1]", "1, 2, 4")),
        ("budgets", (), ("[]", "1, 2, 4")),
    ],
)
def test_plan_without_its_anchor_or_with_other_budgets_is_refused(key: str, value: Any, words: tuple[str, ...]) -> None:
    """What was found and what there is, wherever the plan comes from."""
    fields = {name: getattr(PLAN, name) for name in ("anchor_model", "anchor_benchmark", "models", "benchmarks")}
    with pytest.raises(InputError) as error:
        CohortPlan(**{**fields, key: value})
    named = "anchor_model" if key == "models" else key
    assert all(word in error.value.message for word in (named, *words))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("landscapes")
    write(DESIGN, SEED, folder)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(written, tmp_path / "landscapes"))


def read(folder: Path, **options: Any) -> Cohort:
    return read_cohort(folder, read_plan(folder / PLAN_FILE), **options)


def place(folder: Path, model: str = OTHER, side: str = "base", benchmark: str = GPQA) -> Path:
    return folder / f"{model}-{side}" / benchmark


def rewrite(place: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Both files of a landscape, changed."""
    for name in ("hits", "points"):
        path = place / f"{name}.parquet"
        change(pl.read_parquet(path)).write_parquet(path)


def test_folder_holds_what_its_samples_say(written: Path) -> None:
    """Every estimator of P, and tokens, counted from the graded samples, question by question."""
    found = read(written, estimator="first_k")
    cells = {(cell.checkpoint, cell.benchmark): cell for cell in DESIGN.cells()}
    assert found.landscapes.keys() == cells.keys()
    for key, cell in cells.items():
        landscape, samples = found.landscapes[key], scores(DESIGN, SEED, cell)
        assert landscape.questions.tolist() == list(range(40)) and landscape.policies == DESIGN.policies
        for name in DESIGN.policies:
            own = samples.filter(policy=name).sort("question", "sample")
            correct = own["correct"].to_numpy().reshape(40, 16)
            for n in BUDGETS:
                row = landscape.credit["P"][landscape.points[name, n]]
                np.testing.assert_array_equal(row, correct[:, :n].any(axis=1))
            assert landscape.tokens[name] == pytest.approx(own["tokens"].cast(pl.Float64).mean())


@pytest.mark.parametrize("estimator", ["unbiased", "first_k"])
def test_folder_is_the_cohort_in_memory(written: Path, estimator: Estimator) -> None:
    disk, memory = read(written, estimator=estimator), simulate(DESIGN, SEED, estimator)
    assert (disk.plan, disk.estimator) == (memory.plan, memory.estimator)
    assert disk.landscapes.keys() == memory.landscapes.keys()
    for key, ours in disk.landscapes.items():
        theirs = memory.landscapes[key]
        assert list(ours.points.items()) == list(theirs.points.items())
        assert ours.votes_fall == theirs.votes_fall
        for metric in "PQT":
            np.testing.assert_array_equal(ours.credit[metric], theirs.credit[metric])


def test_batches_are_read_under_their_own_names(folder: Path) -> None:
    """The same weights sampled again are another checkpoint."""
    shutil.copytree(folder / f"{ANCHOR}-base", folder / "again")
    plan = read_plan(folder / PLAN_FILE)
    pair = Model(f"{ANCHOR}-base", f"{ANCHOR}-rl", batches={"7": {"base": "again"}})
    found = read_cohort(folder, CohortPlan(ANCHOR, MATH, {ANCHOR: pair}, plan.benchmarks))
    assert {checkpoint for checkpoint, _ in found.landscapes} == {f"{ANCHOR}-base", f"{ANCHOR}-rl", "again"}


def test_absent_folder_is_an_absent_cell(folder: Path) -> None:
    shutil.rmtree(place(folder))
    shutil.rmtree(folder / f"{OTHER}-rl")
    found = read(folder)
    assert found.base(OTHER, GPQA) is None and found.rl(OTHER, MATH) is None
    assert found.base(OTHER, MATH) is not None
    rule = Rule(sample_view(found))
    assert attempt(rule.cell, OTHER, GPQA) == Reason("no_base")
    assert attempt(rule.cell, OTHER, MATH) == Reason("no_rl")


@pytest.mark.parametrize("side", ["base", "rl"])
def test_anchor_that_was_not_sampled_is_refused(side: str, folder: Path) -> None:
    shutil.rmtree(place(folder, ANCHOR, side, MATH))
    with pytest.raises(InputError) as error:
        read(folder)
    assert all(word in error.value.message for word in (f"{ANCHOR}/{MATH}", f"{ANCHOR}-{side}"))
    assert error.value.hint


def test_anchor_without_an_rl_checkpoint_is_refused(written: Path) -> None:
    plan = read_plan(written / PLAN_FILE)
    alone = CohortPlan(ANCHOR, MATH, {ANCHOR: Model(f"{ANCHOR}-base")}, plan.benchmarks)
    with pytest.raises(InputError, match=f"the anchor {ANCHOR}/{MATH} has no RL landscape"):
        read_cohort(written, alone)


@pytest.mark.parametrize("name", ["hits", "points"])
def test_damaged_landscape_is_named(name: str, folder: Path) -> None:
    """Half of a file, or one file of two, is not an absent cell."""
    path = place(folder) / f"{name}.parquet"
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(InputError) as error:
        read(folder)
    assert str(place(folder)) in error.value.message and error.value.hint
    path.unlink()
    with pytest.raises(InputError, match=rf"gpqa cannot be read: .*{name}.parquet does not exist"):
        read(folder)


@pytest.mark.parametrize("kept", [pl.col("question") < 30, pl.col("question") != 0], ids=["thirty", "all but one"])
def test_sides_with_other_questions_are_refused(kept: pl.Expr, folder: Path) -> None:
    path = place(folder, side="rl") / "hits.parquet"
    hits = pl.read_parquet(path).filter(kept)
    hits.write_parquet(path)
    with pytest.raises(InputError) as error:
        read(folder)
    words = (f"{OTHER}-rl/{GPQA}", "40", str(hits["question"].n_unique()))
    assert all(word in error.value.message for word in words)


def test_as_many_questions_but_other_ones_are_refused(folder: Path) -> None:
    def shifted(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.col("question") + 1) if "question" in frame.columns else frame

    rewrite(place(folder, side="rl"), shifted)
    with pytest.raises(InputError, match="not the same ones"):
        read(folder)


def test_models_with_other_questions_are_refused(folder: Path) -> None:
    """Draws of the bootstrap, and curves of other models, are shared by question."""
    for side in ("base", "rl"):
        path = place(folder, side=side) / "hits.parquet"
        pl.read_parquet(path).filter(pl.col("question") < 30).write_parquet(path)
    with pytest.raises(InputError, match=r"(?s)gpqa.*not the same ones") as error:
        read(folder)
    assert all(word in error.value.message for word in ("40", "30", f"{OTHER}-base"))


def test_operating_point_that_lacks_a_question_is_refused(folder: Path) -> None:
    """It would be neither solved nor unsolved."""
    path = place(folder) / "hits.parquet"
    gone = (pl.col("policy") == "temp_0.5") & (pl.col("budget") == 4) & (pl.col("question") == 7)
    pl.read_parquet(path).filter(~gone).write_parquet(path)
    with pytest.raises(InputError) as error:
        read(folder)
    assert all(word in error.value.message for word in ("temp_0.5", "4", "39 of 40"))


def test_landscape_without_rows_is_refused(folder: Path) -> None:
    rewrite(place(folder), lambda frame: frame.clear())
    with pytest.raises(InputError, match="no estimates"):
        read(folder)


def test_aliases_that_stand_for_millions_of_values_are_refused(tmp_path: Path) -> None:
    """Written out they take all memory, and no error would ever be printed."""
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    (tmp_path / "cohort.yaml").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"cohort\.yaml: its aliases stand for .* values"):
        read_plan(tmp_path / "cohort.yaml")


@pytest.mark.long
def test_models_to_leave_out_are_those_of_the_cohort_that_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], raw: Raw, make_grid: Callable[..., Grid]
) -> None:
    """Not those of the study whose configuration has the options; of a study, a wrong name is found by its check."""
    folder, options = tmp_path / "cohort", tmp_path / "options.yaml"
    assert main(["simulate", "--seed", "3", "--size", "small", "--output", str(folder)]) == 0
    arguments = ["boptr", str(folder), "--config", str(options), "--output", str(tmp_path / "out"), "--frames-only"]
    options.write_text("boptr: {mu_without: [qwen25_1.5b], permutations: 5, reselect: 0}\n")
    for estimator, more in (("unbiased", []), ("first_k", ["--estimator", "first_k"])):
        assert main([*arguments, "--draws", "100", *more]) == 0
        cells = pl.read_parquet(tmp_path / "out/boptr/percell.parquet").filter(mu="without")
        assert cells.height > 0 and set(cells["estimator"]) == {estimator}
        assert "qwen25_1.5b" not in cells["model"].to_list()
    options.write_text("boptr: {mu_without: [micro-1m]}\n")
    assert main(arguments) == 2
    assert "boptr.mu_without: 'micro-1m' is unknown" in capsys.readouterr().err
    raw["boptr"] = {**raw.get("boptr", {}), "mu_without": ["micro-1b"]}
    with pytest.raises(InputError, match="'micro-1b' is unknown"):
        make_grid(raw).check()
