"""What files outside of the package declare works like what the package declares."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import figure_data
import landscape_oracle as oracle
from figure_data import write as draw_all
from run_stages import built
from searchlens import benchmarks, catalogue, grading
from searchlens.analysis.compact import compact, expand
from searchlens.analysis.points import Landscape, operating_points
from searchlens.analysis.recovery import recover
from searchlens.analysis.uncertainty import Resamples, wilson
from searchlens.benchmarks import Question, digests
from searchlens.cli.main import main
from searchlens.cli.study import listed, listing
from searchlens.config import check
from searchlens.config.general import General
from searchlens.config.landscape import LandscapeOptions
from searchlens.config.recovery import RecoveryOptions
from searchlens.errors import InputError
from searchlens.grading.score import SAMPLES, Rules, ScoredSamples, found_answers
from searchlens.plan import Grid
from searchlens.reporting.figures.context import Labels, PairContext
from searchlens.reporting.tables.study import Cell, StudyContext
from searchlens.reporting.tables.table import write
from searchlens.sampling import generate
from searchlens.store import columns as schemas
from searchlens.store import recorded_counts

Declare = Callable[[str], None]
ROOT = Path(__file__).parents[1]


@pytest.fixture
def declare(tmp_path: Path) -> Declare:
    """Use a file with this source as an extension, for one test."""

    def use(source: str) -> None:
        path = tmp_path / "extension.py"
        path.write_text(source)
        catalogue.use([path.name], tmp_path)

    return use


FEW = LandscapeOptions(draws=60)
BUDGETS = [1, 2, 4]
OWN = list(catalogue.declared("metric"))
METRICS = """
import numpy as np
from searchlens.catalogue import metric

@metric("long", title="samples of more than 2 tokens", per_sample="mean")
def long(pool):
    return pool.tokens > 2

@metric("middle", title="mean of P and Q", of=("P", "Q"))
def middle(solved, vote):
    return (solved + vote) / 2

@metric("brief", title="samples of at most 2 tokens", of=("long",), affine=True)
def brief(share):
    return 1 - share

@metric("fewest", title="tokens of the shortest sample")
class Fewest:
    @staticmethod
    def first_k(pool, budgets, options):
        return np.minimum.accumulate(pool.tokens, axis=1)[:, budgets - 1]

@metric("all", title="every sample is right", hits=True, compared=True)
class All:
    @staticmethod
    def first_k(pool, budgets, options):
        return np.logical_and.accumulate(pool.correct, axis=1)[:, budgets - 1]
"""


def _pools(seed: int, policies: tuple[str, ...] = ("a", "b")) -> dict[str, list[list[oracle.Sample]]]:
    rng = np.random.default_rng(seed)
    return {name: [oracle.random_pool(rng, 5) for _ in range(20)] for name in policies}


def _landscape(seed: int) -> Landscape:
    return operating_points(oracle.frame(_pools(seed)), budgets=BUDGETS, options=FEW)


def _values(landscape: Landscape, metric: str, estimator: str) -> list[float]:
    return landscape.points.filter(policy="a", metric=metric, estimator=estimator)["value"].to_list()


def _long(chosen: oracle.Chosen) -> float:
    return float(np.mean([sample.tokens > 2 for sample in chosen]))


def test_metrics_of_an_extension_are_read_at_every_operating_point(declare: Declare) -> None:
    """Each form of declaration, by its definition in plain Python; the metrics of the package stay what they were."""
    before = _landscape(1)
    declare(METRICS)
    landscape, pools = _landscape(1), _pools(1)["a"]
    for n, prefix, expected in zip(
        BUDGETS, _values(landscape, "long", "first_k"), _values(landscape, "long", "unbiased"), strict=True
    ):
        assert prefix == pytest.approx(np.mean([_long(pool[:n]) for pool in pools]))
        assert expected == pytest.approx(np.mean([oracle.over_subsets(_long, pool, n) for pool in pools]))
    for estimator in schemas.ESTIMATORS:
        long, brief = _values(landscape, "long", estimator), _values(landscape, "brief", estimator)
        assert brief == pytest.approx([1 - value for value in long])
    assert _values(landscape, "fewest", "first_k") == pytest.approx(
        [np.mean([min(s.tokens for s in pool[:n]) for pool in pools]) for n in BUDGETS]
    )
    for estimator in schemas.ESTIMATORS:
        middle = np.mean([_values(landscape, metric, estimator) for metric in "PQ"], axis=0)
        assert _values(landscape, "middle", estimator) == pytest.approx(middle)
    own = landscape.points.filter(pl.col("metric").is_in(OWN))
    assert_frame_equal(own, before.points, abs_tol=1e-6)
    assert_frame_equal(landscape.hits.select(before.hits.columns), before.hits, check_exact=True)


def test_metrics_of_an_extension_have_intervals(declare: Declare) -> None:
    """Wilson where questions are counted, the shared bootstrap elsewhere; no row where there is no expectation."""
    declare(METRICS)
    landscape = _landscape(2)
    added = landscape.points.filter(~pl.col("metric").is_in(OWN))
    measures = set(added.select("metric", "estimator").iter_rows())
    both = {(metric, estimator) for metric in ("long", "middle", "brief") for estimator in schemas.ESTIMATORS}
    assert measures == both | {("fewest", "first_k"), ("all", "first_k")}
    assert added.select("value", "lo", "hi").null_count().sum_horizontal().item() == 0
    row = added.filter(policy="a", metric="all", budget=1).row(0, named=True)
    assert (row["lo"], row["hi"]) == wilson(row["hits"], 20)
    assert landscape.hits.schema == recorded_counts.hits()
    assert landscape.hits.filter(policy="a", budget=1)["all"].sum() == row["hits"]
    assert landscape.hits["all_unbiased"].null_count() == landscape.hits.height
    row = added.filter(policy="a", metric="long", estimator="first_k", budget=1).row(0, named=True)
    per_question = np.array([[_long(pool[:1])] for pool in _pools(2)["a"]])
    lo, hi = Resamples.draw(20, FEW.draws, 0).interval(per_question)
    assert (row["lo"], row["hi"]) == (pytest.approx(lo[0], abs=1e-6), pytest.approx(hi[0], abs=1e-6))


def test_a_metric_of_an_extension_is_compared_where_both_landscapes_have_it(declare: Declare) -> None:
    before = _landscape(4)
    declare(METRICS)
    options = (RecoveryOptions(), General(default_policy="a", draws=20))
    components = {"a": "abcde", "b": "abcdf"}
    tables = recover(_landscape(3), _landscape(4), components, *options)
    for name in ("same_policy", "support", "near_match", "path"):
        assert tables[name]["metric"].unique().sort().to_list() == ["P", "Q", "all"], name
    assert tables["same_policy"].filter(metric="all")["estimator"].unique().to_list() == ["first_k"]
    tables = recover(_landscape(3), before, components, *options)
    assert tables["support"]["metric"].unique().sort().to_list() == ["P", "Q"]


def test_recorded_counts_leave_out_what_they_do_not_hold(declare: Declare, tmp_path: Path) -> None:
    """Their bytes stay the same; metrics derived from recorded ones are computed, all others left out."""
    scores = oracle.frame(_pools(5))
    before = compact(scores, None, budgets=BUDGETS, options=FEW)
    declare(METRICS)
    kept = compact(scores, None, budgets=BUDGETS, options=FEW)
    assert_frame_equal(kept, before, check_exact=False, abs_tol=1e-6)
    recorded_counts.write(kept, {}, tmp_path / "sums.arrow.xz", {})
    landscape, _ = expand(recorded_counts.read(tmp_path / "sums.arrow.xz"), options=FEW)
    assert set(landscape.points["metric"]) == {*OWN, "middle"}
    assert landscape.hits.schema == recorded_counts.hits()
    assert landscape.hits["all"].null_count() == landscape.hits.height


def test_the_example_of_the_contributors_guide_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration names the file, and the command that a rule runs reads the metric."""
    monkeypatch.chdir(ROOT)
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Add a metric")[2]
    (tmp_path / "long.py").write_text(section.partition("```python\n")[2].partition("```")[0])
    (tmp_path / "study.yaml").write_text(f"extensions: [{tmp_path}/long.py]\nlandscape: {{draws: 100}}\n")
    oracle.frame(_pools(1, ("temp_0.5", "greedy"))).write_parquet(tmp_path / "scores.parquet")
    inputs = ["--config", f"{tmp_path}/study.yaml", "--benchmark", "math", "--scores", f"{tmp_path}/scores.parquet"]
    assert main(["landscape", *inputs, "--output", str(tmp_path)]) == 0
    rows = pl.read_parquet(tmp_path / "points.parquet").filter(metric="long")
    assert (rows.height, rows.select("value", "lo", "hi").null_count().row(0)) == (2 * 3 * 2, (0, 0, 0))


@pytest.mark.parametrize(
    ("declaration", "complaint"),
    [
        (
            '@metric("x", per_sampel="mean")\ndef x(pool): ...',
            "option 'per_sampel' is unknown; did you mean 'per_sample'",
        ),
        ('@metric("x", of=("P", "D"))\ndef x(p, d): ...', "of='D'"),
        ('@metric("x", affine=True)\ndef x(p): ...', "affine=True needs one metric in of"),
        ('@metric("x", hits=True, compared=True, drawn=True)\nclass X: ...', "drawn=True needs compared and an expect"),
        ('@metric("x", per_sample="max")\ndef x(pool): ...', "per_sample='max'; allowed: sum, mean"),
        ('@metric("x")\ndef x(pool, budgets, options): return pool.tokens', r"shape \(40, 5\), not .* \(40, 3\)"),
        ('@metric("x", hits=True)\ndef x(pool, budgets, options): return 2 * pool.tokens[:, :3]', "0 or 1"),
        ('@metric("x", hits=True, fractional=True)\ndef x(pool, *_): return pool.correct[:, :3] - 0.5', "0 or 1"),
        ('@metric("P")\ndef x(pool): ...', "metric 'P' is declared twice"),
    ],
)
def test_a_wrong_declaration_is_refused_by_name(declare: Declare, declaration: str, complaint: str) -> None:
    declare(f"from searchlens.catalogue import metric\n{declaration}\n")
    with pytest.raises(InputError, match=complaint):
        _landscape(1)


def _section(page: str, title: str, start: str) -> str:
    """The block of code in a section of a page that begins with ``start``."""
    section = (ROOT / page).read_text().partition(f"## {title}")[2]
    return start + section.partition(f"```python\n{start}")[2].partition("```")[0]


def _graded(texts: list[str], golds: list[str], kind: str, verdicts: Path) -> ScoredSamples:
    questions = [Question(f"q{i}", f"{i}?", gold) for i, gold in enumerate(golds)]
    rows = [
        {"policy": "p", "question": question.id, "sample": i, "run": i, "text": text, "stopped": True}
        for question in questions
        for i, text in enumerate(texts)
    ]
    answers = found_answers(pl.DataFrame(rows, schema=SAMPLES), kind)
    return Rules(questions, kind, verdicts, workers=1).scored(answers)


def test_the_grader_of_the_page_grades_and_votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration accepts it by the file it names; verdicts are stored by its version, the hash of the file."""
    monkeypatch.chdir(ROOT)
    path = tmp_path / "last_word.py"
    path.write_text(_section("docs/grading.md", "A grader of your own", "from searchlens.catalogue import grader"))
    study = tmp_path / "study.yaml"
    study.write_text(f"extensions: [{path}]\nbenchmarks: {{math: {{grader: last-word}}}}\n")
    assert main(["check", "--config", str(study)]) == 0
    texts, golds = ["so it is red", "green", "red", "", "green"], ["red"]
    scored = _graded(texts, golds, "last-word", tmp_path / "verdicts")
    assert scored.scores["correct"].to_list() == [True, False, True, False, False]
    assert scored.scores["answer"].to_list() == [0, 1, 0, -1, 1]
    assert _graded(texts, golds, "last-word", tmp_path / "verdicts").summary.pairs_graded == 0
    path.write_text(path.read_text() + "\n# edited\n")
    assert _graded(texts, golds, "last-word", tmp_path / "verdicts").summary.pairs_graded == 2


WORKING = """
import time
from searchlens.catalogue import grader
from searchlens.grading import Extraction, Grader, Verdict
from searchlens.grading.processes import Limits, judge as judge_in_workers

def judge(gold, answer):
    while answer == "slow":
        pass
    return gold == answer

@grader("working", votes=False, mathematical=True)
class Working(Grader):
    version = "working-1"

    def extract(self, text, stopped):
        return Extraction(text, "whole")

    def grade(self, pairs, *, workers=None):
        return [Verdict(correct, "") for correct in judge_in_workers(__file__, pairs, Limits(cpu_seconds=0.3), workers)]
"""


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("He has 3 + 4 = 7 eggs. The answer is 7.", "7"),
        ("He has 3 + 5 = 7 eggs. The answer is 7.", None),
        ("He has 2 + 3 + 4 = 10 eggs. The answer is 7.", None),
        ("12 eggs minus 5 eggs = 9 eggs. The answer is 7.", None),
        ("He has seven eggs. The answer is 7.", None),
        ("He has 3 + 4 = 7 eggs.", None),
    ],
)
def test_right_by_a_false_equation_is_no_answer(text: str, answer: str | None) -> None:
    """The grader that the study of a pretrained pair puts beside ``math``."""
    catalogue.use(["examples/pretrained/true_equations.py"], ROOT)
    assert grading.grader("true-equations").extract(text, True).answer == answer
    assert grading.grader("no-equation").extract(text, True).answer == ("7" if "seven" in text else None)


def test_a_grader_of_an_extension_judges_in_worker_processes(declare: Declare, tmp_path: Path) -> None:
    declare(WORKING)
    scored = _graded(["a", "slow", "b"], ["a"], "working", tmp_path / "verdicts")
    assert scored.scores["correct"].to_list() == [True, False, False]
    assert scored.scores["unknown"].to_list() == [False, True, False]
    assert scored.scores["answer"].to_list() == [0, 1, 2]  # votes=False: each sample is its own class
    assert set(pl.read_parquet(tmp_path / "verdicts" / "*.parquet")["version"]) == {"working-1"}


CAPITALS = """
from searchlens.benchmarks import Question, Row, RowError
from searchlens.catalogue import family

@family("capitals", title="Capitals", grader="choice", licence="CC0-1.0", sizes={2: "all"})
def capitals(file):
    def convert(name, row):
        if "capital" not in row:
            raise RowError("no capital")
        return Row.of(Question(name, f"What is the capital of {row['country']}?", row["capital"]))
    return file.read(convert)
"""


def _capitals(tmp_path: Path, *capitals: str) -> Path:
    path = tmp_path / "capitals.csv"
    path.write_text("country,capital\n" + "".join(f"country {i},{name}\n" for i, name in enumerate(capitals)))
    return path


def test_a_family_of_an_extension_is_read_and_checked(declare: Declare, tmp_path: Path) -> None:
    """Ids, the number of rows, rows that it refuses, and golds by the digests next to its file."""
    declare(CAPITALS)
    loaded = benchmarks.read([_capitals(tmp_path, "Paris", "Rome")], "capitals")
    assert loaded.questions == (
        Question("capitals-0001", "What is the capital of country 0?", "Paris"),
        Question("capitals-0002", "What is the capital of country 1?", "Rome"),
    )
    assert (loaded.source, loaded.checked) == ("all", 0)
    with pytest.raises(InputError, match=r"has 1 question; Capitals has 2 \(all\)"):
        benchmarks.read([_capitals(tmp_path, "Paris")], family="capitals")
    digests.write("capitals", [str(_capitals(tmp_path, "Paris", "Rome"))])
    assert (tmp_path / "golds" / "capitals.txt").exists()
    with pytest.raises(InputError, match=r"question 2 \(capitals-0002\): gold 'Milan'"):
        benchmarks.read([_capitals(tmp_path, "Paris", "Milan")], family="capitals")
    (tmp_path / "wrong.jsonl").write_text('{"country": "France"}\n')
    with pytest.raises(InputError, match="row 1: no capital"):
        benchmarks.read([tmp_path / "wrong.jsonl"], family="capitals")


def test_the_configuration_accepts_a_family_of_an_extension(declare: Declare, raw: dict[str, Any]) -> None:
    raw["benchmarks"]["sums"] |= {"family": "capitals", "path": "capitals.csv"}
    with pytest.raises(InputError, match=r"benchmarks\.sums\.family: .*'capitals'"):
        check.validate(raw)
    declare(CAPITALS)
    raw["extensions"] = [path for path, _ in catalogue.extensions()]
    assert check.validate(raw).benchmarks["sums"].family == "capitals"
    assert "capitals" in listed(listing({}, lambda _: []))
    raw["benchmarks"]["sums"]["path"] = None
    with pytest.raises(InputError, match=r"benchmarks\.sums\.path: needed"):
        check.validate(raw)


@pytest.fixture
def longest(raw: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """The study with two policies of the controller that the contributors' guide adds."""
    (tmp_path / "longest.py").write_text(_section("CONTRIBUTING.md", "Add a controller", "from dataclasses"))
    raw["checkpoints"]["toy-base"] = {"path": str(ROOT / "resources" / "zoo" / "micro-1m-base")}
    raw["policies"] |= {f"longest_{n}": {"controller": {"name": "longest", "draws": n}} for n in (1, 4)}
    raw["pools"]["three"] += ["longest_1", "longest_4"]
    raw["benchmarks"]["sums"]["max_tokens"] = 48
    return raw | {"extensions": [str(tmp_path / "longest.py")]}


def test_a_controller_of_an_extension_is_sampled(longest: dict[str, Any], make_grid: Callable[..., Grid]) -> None:
    """From the configuration to the samples; of four draws the longest is longer than one draw."""
    grid = make_grid(longest)
    (pool,) = grid.jobs.pools("toy-base", "sums")
    generate(grid, "toy-base", "sums", grid.current_manifest(pool))
    files = {g.policies[0]: grid.folder("toy-base", "sums", g.id) for g in pool.generations}
    frames = {name: pl.read_parquet(folder / "*.parquet") for name, folder in files.items()}
    one, four = frames["longest_1"], frames["longest_4"]
    assert four["finish"].is_in(["stop", "length"]).all() and four.height == 6 * 4
    assert (four["score"] == four["n_tokens"]).all() and (four["requests"] == 4).all()
    assert four["n_tokens"].mean() > one["n_tokens"].mean()


def test_an_edited_controller_is_sampled_again(longest: dict[str, Any], make_grid: Callable[..., Grid]) -> None:
    """The hash of its file is a part of the ids of the policies that use it, and of no others."""

    def ids() -> dict[str, str]:
        return {g.policies[0]: g.id for g in make_grid(longest).jobs.generations("toy-base", "sums")}

    before, path = ids(), Path(longest["extensions"][0])
    assert ids() == before
    path.write_text(path.read_text() + "# edited\n")
    after = ids()
    assert {name for name in before if after[name] != before[name]} == {"longest_1", "longest_4"}


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("whole(4)", "4", "controller 'longest': parameter draws has no range"),
        ("Longest(Controller)", "Longest", "controller 'longest' is no dataclass that inherits from"),
        ("@dataclass(frozen=True)", "", "controller 'longest' is no dataclass that inherits from"),
        (
            "transitions",
            "transition",
            "controller 'longest': option 'transition' is unknown; did you mean 'transitions'",
        ),
        ("transitions", 'colour="red", transitions', "controller 'longest': colour is 'red'; allowed: #"),
        ("transitions", "index=6, transitions", r"controller 'longest': index is 6; allowed: \[0-5\]"),
        ('"append"', '"apend"', r"transitions is \('apend',\); allowed: a tuple of append"),
        ('("append",)', '"append"', "transitions is 'append'; allowed: a tuple of append"),
    ],
)
def test_a_controller_that_is_declared_wrongly_is_refused(
    longest: dict[str, Any], make_grid: Callable[..., Grid], old: str, new: str, complaint: str
) -> None:
    path = Path(longest["extensions"][0])
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match=complaint):
        make_grid(longest)


POLICIES = ("temp_0.3", "temp_1.0", "topk20_t0.9", figure_data.DEFAULT)


@pytest.fixture(scope="module")
def cell() -> figure_data.Cell:
    return figure_data.cell(20, POLICIES)


def _pair(cell: figure_data.Cell) -> PairContext:
    labels = Labels(pair="toy", benchmark="Sums", questions=20)
    prefill = pl.DataFrame(schema=["model", "policy", "prompt", "again"]).cast(
        {"model": pl.String, "policy": pl.String, "prompt": pl.Float64, "again": pl.Float64}
    )
    return PairContext(labels=labels, prefill=prefill, **vars(cell))


def _study(cell: figure_data.Cell) -> StudyContext:
    widths = pl.DataFrame({"checkpoint": "base", "benchmark": "sums", "half_width": [0.04, 0.06]})
    cells = [Cell("toy", "Sums", cell.same_policy, cell.counts, cell.support, cell.path, cell.near_match)]
    read: dict[str, Any] = {"cells": cells, "points": {("base", "sums"): cell.base}, "widths": widths}
    nothing: dict[str, Any] = {name: {} for name in ("models", "spent", "made", "sources", "judges", "agreement")}
    return StudyContext(default_policy=figure_data.DEFAULT, costs=pl.DataFrame(), **read, **nothing)


def test_a_table_of_an_extension_is_built_and_written(declare: Declare, cell: figure_data.Cell, tmp_path: Path) -> None:
    """The guide's example is listed, the driver of its stage builds it with the others, and it has every file."""
    declare(_section("CONTRIBUTING.md", "Add a table", "from searchlens.catalogue import table"))
    names = catalogue.declared("table", stage="study")
    assert "widest_interval" in names and names["widest_interval"].is_extension
    (table,) = built({"widest_interval": names["widest_interval"]}, _study(cell)).values()
    assert table.text.row(0) == ("sums", "6.0")
    paths = write(table, tmp_path / "widest_interval")
    assert {path.suffix[1:] for path in paths} == set(catalogue.TABLE_FORMATS)


@pytest.mark.long
def test_a_figure_of_an_extension_is_drawn_and_written(
    declare: Declare, cell: figure_data.Cell, tmp_path: Path
) -> None:
    """The guide's example is listed, the driver of its stage draws it for each metric, and it has every file."""
    declare(_section("CONTRIBUTING.md", "Add a figure", "from searchlens.catalogue import figure"))
    assert {"points_P", "points_Q"} <= set(catalogue.figure_files(catalogue.declared("figure", stage="pair")))
    paths = draw_all("pair", _pair(cell), tmp_path)
    added = {path.name for path in paths if path.name.startswith("points_")}
    assert added == {f"points_{metric}.{suffix}" for metric in "PQ" for suffix in catalogue.FIGURE_FORMATS}
    drawn = cell.base.filter(metric="P", estimator="first_k")
    assert pl.read_csv(tmp_path / "points_P.csv")["value"].to_list() == drawn["value"].to_list()


@pytest.mark.long
def test_a_metric_of_an_extension_is_in_tables_and_figures(
    declare: Declare, cell: figure_data.Cell, tmp_path: Path
) -> None:
    """A metric declared as drawn has rows in tables and files of figures, also where the samples do not give it."""
    declare(METRICS.replace("compared=True", "compared=True, drawn=True"))
    assert "gap_map_all" in catalogue.figure_files(catalogue.declared("figure", stage="pair"))
    tables = {name: catalogue.find("table", name)(_study(cell)) for name in ("operating_points", "recovery_summary")}
    shown = {metric for table in tables.values() for metric in table.data["metric"]}
    assert shown == {"P", "Q"}, "these samples have no such metric"
    assert "all: every sample is right" in tables["operating_points"].notes[0]
    assert tables["operating_points"].notes[-1] == "Not recorded: all of base on sums."
    paths = draw_all("pair", _pair(cell), tmp_path)
    assert {path.stem for path in paths} == set(catalogue.figure_files(catalogue.declared("figure", stage="pair")))
    renamed = {name: _renamed(frame) for name, frame in vars(cell).items()}
    context = _study(figure_data.Cell(**renamed))
    for name in ("operating_points", "recovery_summary", "recovery_paths", "same_policy_counts"):
        assert "all" in catalogue.find("table", name)(context).data["metric"], name
    draw_all("pair", _pair(figure_data.Cell(**renamed)), tmp_path)
    ours, prefix = (pl.read_csv(tmp_path / f"gap_map_{metric}.csv") for metric in ("all", "P"))
    assert ours.height == prefix.height
    rows = cell.same_policy.filter(metric="P", estimator="first_k").select("policy", "budget", "rl_minus_base")
    both = ours.join(rows.cast({"budget": pl.Int64}), on=["policy", "budget"])
    assert (both["rl_minus_base"] - both["rl_minus_base_right"]).abs().max() < 1e-6  # type: ignore[operator]


def _renamed(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with the first-k estimates of P as those of the metric ``all``, too."""
    rows = frame.filter(metric="P", estimator="first_k") if "estimator" in frame.columns else frame.filter(metric="P")
    return pl.concat([frame, rows.with_columns(metric=pl.lit("all"))], how="vertical_relaxed")


@pytest.mark.parametrize(
    ("declaration", "complaint"),
    [
        (
            '@catalogue.table("x", stage="bopt")\ndef x(context): ...',
            "table 'x' .*: stage='bopt'; allowed: study, boptr",
        ),
        ('@catalogue.figure("x")\ndef numbers(context): ...', "figure 'x' .*: stage=None; allowed: pair, study, boptr"),
        (
            '@catalogue.figure("x", stage="pair")\ndef numbers(context): ...',
            r"has no function draw\(numbers, context\)",
        ),
        ('@catalogue.table("horizontal", stage="boptr")\ndef x(context): ...', "table 'horizontal' is declared twice"),
    ],
)
def test_a_wrong_declaration_of_a_table_or_figure_is_refused(
    declare: Declare, cell: figure_data.Cell, declaration: str, complaint: str
) -> None:
    declare(f"from searchlens import catalogue\n{declaration}\n")
    with pytest.raises(InputError, match=complaint):
        catalogue.declared("table")
        figure_data.draw("x", _pair(cell))
