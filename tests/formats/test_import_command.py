"""`searchlens import` and `imports` as a user meets them: the documented page, refusals, and taking an import back."""

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import searchlens
from reading import written
from run_stages import analyse, landscape_cell, recovery_cell, score_cell
from searchlens.analysis.pool import read_pools
from searchlens.benchmarks import Question
from searchlens.cli import verify as prune
from searchlens.cli.main import main
from searchlens.cli.stages import importing
from searchlens.cli.stages.importing import Request, import_samples
from searchlens.cli.stages.measures import measures
from searchlens.cli.stages.tables import tables
from searchlens.cli.study import init
from searchlens.cli.verify import remove
from searchlens.errors import InputError
from searchlens.formats.reading import Choices, read
from searchlens.grading.score import SAMPLES, score_recorded, scorer_of
from searchlens.plan import Grid, StudyCells, needs
from searchlens.reporting import explorer_files
from searchlens.reporting.tables.graders import recorded_agreement, recorded_disagreements
from searchlens.store import snapshots

PAGE = Path(__file__).parents[2] / "docs" / "import.md"


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.long
def test_the_page_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    blocks = [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    ")]
    study = tmp_path / "study"
    init(study)
    monkeypatch.chdir(study)
    (study / "capitals.jsonl").write_text("\n".join(line for line in blocks if line.startswith("{")))
    before = everything(study)
    commands = [shlex.split(line)[1:] for line in blocks if line.startswith("searchlens ") and "FILE" not in line]
    commands.insert(0, [*commands[0], "--dry-run"])
    printed = {}
    for arguments in commands:
        if arguments[0] == "run":
            dry = ["searchlens", *arguments, "-n"]
            plan = subprocess.run(
                dry, check=False, capture_output=True, text=True, cwd=shutil.copytree(study, tmp_path / "dry")
            )
            assert plan.returncode == 0, f"every stage of an imported study can be planned: {plan.stderr}"
        else:
            assert main(arguments) == 0, capsys.readouterr().err
            printed[" ".join(arguments)] = capsys.readouterr().out
        if "--dry-run" in arguments:
            assert everything(study) == before
    dry, stored, listed, plan, _ = printed.values()
    assert "questions: 2 (2 new)" in dry and "nothing was written" in dry
    assert "imported 4 samples as mine/capitals/rl/temp_1.0" in stored
    assert stored.splitlines()[-1] == "next: searchlens run --config config/imports.yaml"
    assert len(listed.splitlines()) == 2
    assert "0 generations, 0 to make" in plan, "a study of imports samples nothing"
    assert everything(study) == before, "taken back, nothing is left"


def test_the_default_policy_of_an_imported_study_is_one_that_rl_has(grid: Grid, tmp_path: Path) -> None:
    """A study of imports reads its RL curve under a policy that was imported, or says so before anything runs."""
    for role in ("base", "rl"):
        import_samples(grid, [write(tmp_path, rows(), f"{role}.jsonl")], request(choices={"role": role}))
    study = replace(grid.config.study, pairs=(), benchmarks=(), imports="all")
    config = replace(grid.config, study=study, default_policy=None)
    assert Grid(config, grid.root).study.default_policy == "mine"
    with pytest.raises(InputError, match="the RL side of theirs/own has samples of mine"):
        Grid(replace(config, default_policy="temp_1.0"), grid.root).check()


def rows(**more: Any) -> list[dict[str, Any]]:
    return [
        {"question": f"q{q}", "sample": s, "text": f"\\boxed{{{q}}} {s}", "gold": "0", **more}
        for q in range(25)
        for s in range(2)
    ]


def write(folder: Path, lines: list[dict[str, Any]], name: str = "samples.jsonl") -> Path:
    return written(folder / name, lines)


def request(**changes: Any) -> Request:
    choices = Choices(**{"role": "base", "policy": "mine", **changes.pop("choices", {})})
    return Request(**{"pair": "theirs", "benchmark": "own", "choices": choices, **changes})


def test_a_pool_without_answers_is_stored_only_if_one_says_so(grid: Grid, tmp_path: Path) -> None:
    path = write(tmp_path, rows(text="no answer"))
    with pytest.raises(InputError) as error:
        import_samples(grid, [path], request())
    lines = error.value.message.splitlines()
    assert lines[0] == "mine: only 0% of 50 finished texts have an answer that math finds"
    assert len(lines) == 4, "three texts are shown"
    assert not grid.layout.results.exists()
    assert import_samples(grid, [path], request(is_confirmed=True)).shards


def test_verdicts_that_ours_do_not_agree_with_are_shown_first(grid: Grid, tmp_path: Path) -> None:
    path = write(tmp_path, rows(correct=True))
    with pytest.raises(InputError, match="our verdicts agree with 4% of 50 recorded by correct"):
        import_samples(grid, [path], request())


def test_recorded_verdicts_are_kept_beside_ours(grid: Grid, tmp_path: Path) -> None:
    lines = [{**line, "correct": line["question"] == "q0", "answer": line["question"]} for line in rows()]
    (record,) = import_samples(grid, [write(tmp_path, lines)], request()).records
    found = pl.read_parquet(grid.layout.recorded("theirs-base", "own", record.id))
    assert found.height == 50
    assert found.filter(value=1.0).select("question", "sample", "scorer", "answer").rows() == [
        ("q0", 0, "correct", "q0"),
        ("q0", 1, "correct", "q0"),
    ]


@pytest.mark.parametrize("gated", [False, True])
def test_every_recorded_verdict_is_counted_and_every_disagreement_listed(
    raw: dict[str, Any], make_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gated: bool
) -> None:
    """25 questions of two samples, of which question 0 alone is right; three planted disagreements, one unscored."""
    raw["study"]["imports"] = "all"
    monkeypatch.setattr(StudyCells, "terms", lambda *_: "it is gated" if gated else "")
    lines = [{**line, "correct": line["question"] == "q0", "answer": "theirs"} for line in rows()]
    for place, value in ((0, False), (5, True), (7, True)):
        lines[place]["correct"] = value
    del lines[9]["correct"], lines[9]["answer"]
    import_samples(make_grid(raw), [write(tmp_path, lines)], request())
    grid, cell = make_grid(raw), ("theirs-base", "own")
    score_cell(grid, *cell, [], grid.scores(*cell))
    context: Any = SimpleNamespace(recorded={cell: pl.read_parquet(grid.layout.compared(*cell))})
    (counts,) = recorded_agreement(context).data.rows(named=True)
    names = {"checkpoint": "theirs-base", "benchmark": "own", "policy": "mine", "scorer": "correct"}
    assert counts == {
        **names, "samples": 49, "both_right": 1, "ours_alone": 1, "theirs_alone": 2, "both_wrong": 45, "unscored": 0
    }  # fmt: skip
    apart = recorded_disagreements(context).data.select("question", "sample", "gold", "ours", "theirs", "end").rows()
    expected = [("q0", 0, "0", "0", "theirs", "\\boxed{0} 0"), ("q2", 1, "0", "2", "theirs", "\\boxed{2} 1")]
    expected.append(("q3", 1, "0", "3", "theirs", "\\boxed{3} 1"))
    assert apart == [(*each[:2], *((None,) * 4 if gated else each[2:])) for each in expected]


def test_two_models_in_one_import_need_their_sides(grid: Grid, tmp_path: Path) -> None:
    lines = [{**line, "model": model} for model in ("small", "large") for line in rows()]
    path = write(tmp_path, lines)
    with pytest.raises(InputError, match="no side of the pair is known for small, large") as error:
        import_samples(grid, [path], request(choices={"role": "", "policy": "mine"}))
    assert "--base MODEL --rl MODEL" in error.value.hint
    sides = {"role": "", "base": "small", "rl": "large"}
    records = import_samples(grid, [path], request(choices=sides)).records
    assert [(record.role, record.log["model"]) for record in records] == [("base", "small"), ("rl", "large")]


def test_some_questions_become_a_benchmark_of_their_own(grid: Grid, tmp_path: Path) -> None:
    lines = [{"question": f"q{q}", "sample": 0, "text": "\\boxed{1}"} for q in (3, 1)] + [
        {"question": "elsewhere", "sample": 0, "text": "\\boxed{1}"}
    ]
    path = write(tmp_path, lines)
    imported = import_samples(grid, [path], request(benchmark="sums", subset="some"))
    assert any("left out: " in line and "elsewhere" in line for line in imported.report)
    (record,) = imported.records
    again = Grid(grid.config, grid.root)
    assert [question.id for question in again.inputs.questions("some")] == ["q1", "q3"]
    assert record.benchmark == "some"


def test_an_import_that_breaks_off_leaves_nothing(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, [{**line, "role": role} for role in ("base", "rl") for line in rows()])
    before = everything(tmp_path)
    publish, calls = importing._publish, []

    def breaks(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return publish(*arguments, **options)

    monkeypatch.setattr(importing, "_publish", breaks)
    with pytest.raises(KeyboardInterrupt):
        import_samples(grid, [path], request(choices={"role": ""}))
    left = {each for each in everything(tmp_path) - before if each.is_file()}
    assert not left


def test_prune_finds_what_a_killed_import_left(grid: Grid, tmp_path: Path) -> None:
    (record,) = import_samples(grid, [write(tmp_path, rows())], request()).records
    assert not prune.unused(Grid(grid.config, grid.root))["generation folder"], (
        "an import of another study is not unused"
    )
    grid.layout.import_record("own", "theirs", "base", "mine").unlink()
    orphan = grid.layout.generation("theirs-base", "own", record.id)
    assert prune.unused(Grid(grid.config, grid.root))["generation folder"] == [orphan]


def test_removing_an_import_leaves_the_others(grid: Grid, tmp_path: Path) -> None:
    path = write(tmp_path, rows())
    import_samples(grid, [path], request())
    before = everything(tmp_path)
    import_samples(Grid(grid.config, grid.root), [path], request(choices={"policy": "other"}))
    again = Grid(grid.config, grid.root)
    with pytest.raises(InputError, match=r"import 'theirs' is unknown\. Known: theirs/own/base/mine, theirs/own"):
        remove(again, "theirs")
    remove(again, "theirs/own/base/other")
    assert everything(tmp_path) == before, "both have the same samples, which stay as long as one needs them"
    remove(Grid(grid.config, grid.root), "theirs/own")
    assert not grid.layout.results.exists()


# ---- Benchmarks whose verdicts are those of the imported log: ids, classes, refusals, and tables that say who judged


RIGHT = {"base": (4, 1, 0, 2, 0), "rl": (4, 3, 2, 2, 0)}
"""Right samples of each question, of four."""
CELL = ("mine-base", "code")


def log(folder: Path, side: str, *, answers: bool = True, text: str | None = None, **more: Any) -> Path:
    """A folder of lm-evaluation-harness: a run for each sample, whose text was taken out, judged by two metrics."""
    made = folder / side / f"org__{side}"
    for sample in range(4):
        rows = [row(i, sample, sample < right, answers, text) | more for i, right in enumerate(RIGHT[side])]
        written(made / f"samples_code_2026-01-0{sample + 1}T00-00-00.000000.jsonl", rows)
    return made


def row(number: int, sample: int, is_right: bool, answers: bool, text: str | None) -> dict[str, Any]:
    asked = {"temperature": 1.0, "top_p": 1.0, "do_sample": True}
    taken = "done" if is_right else ("[invalid]" if sample == 3 else f"error {sample}")
    return {
        "doc_id": number,
        "doc": {"question": f"Write program {number}."},
        "arguments": {"gen_args_0": {"arg_0": f"Write program {number}.", "arg_1": asked}},
        "resps": [[text]],
        "filtered_resps": [taken] if answers else [],
        "filter": "none",
        "metrics": ["pass", "style"],
        "pass": float(is_right),
        "style": 1.0,
        "run": sample,
    }


def request_of(side: str, **changes: Any) -> Request:
    choices = Choices(role=side, policy="temp_1.0", wishes={"date": "all"})
    return Request(**{"pair": "mine", "benchmark": "code", "grader": "recorded", "choices": choices} | changes)


def test_a_log_of_verdicts_goes_all_the_way_to_tables(raw: dict[str, Any], make_grid: Any, tmp_path: Path) -> None:
    raw["study"] = {"pairs": [], "benchmarks": [], "imports": "all"}
    raw["default_policy"] = None
    for side, right in RIGHT.items():
        (check,) = import_samples(make_grid(raw), [log(tmp_path, side)], request_of(side)).checks
        assert f"judged by the log: pass,none calls {sum(right) * 5}% right" in str(check)
    grid = make_grid(raw)
    assert {item.grader for item in grid.study.imports} == {"recorded:pass,none"}
    for side, right in RIGHT.items():
        cell = (f"mine-{side}", "code")
        score_cell(grid, *cell, [], grid.scores(*cell))
        landscape_cell(grid, "code", grid.scores(*cell), grid.layout.landscape(*cell))
        by_question = pl.read_parquet(grid.scores(*cell)).group_by("question").agg(pl.col("correct").sum())
        assert by_question.sort("question")["correct"].to_list() == [*right]
        points = pl.read_parquet(grid.layout.landscape(*cell) / "points.parquet")
        assert points.filter(metric="P", estimator="unbiased", budget=1)["value"].item() == pytest.approx(
            sum(right) / 20
        )
        assert grid.study.without_agreement(*cell) == "the verdicts are those of the log (recorded:pass,none)"
    analyse(grid)
    base, rl = (grid.layout.landscape(f"mine-{side}", "code") for side in RIGHT)
    recovery_cell(grid, base, rl, grid.layout.recovery("mine", "code"))
    measures(needs.measures(grid), grid.layout, fingerprint="0" * 12)
    tables(needs.tables(grid), grid.layout, grid.layout, fingerprint="0" * 12)
    judged = "Judged by the imported log, as its pass,none, not here: mine-base/code, mine-rl/code."
    for name in ("graders", "recovery_summary", "health"):
        assert judged in grid.layout.table(name, "md").read_text()
    agreement = pl.read_csv(grid.layout.table("recorded_agreement", "csv"))
    assert agreement["scorer"].unique().to_list() == ["style,none"], "the other scorer is compared with the judge"
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(grid.root)
        snapshots.save(grid.config)
    found = searchlens.open(grid.layout.results, root=grid.root).samples("mine-base", "code")
    assert found.filter(id="1")["answer"].to_list() == ["done", "error 1", "error 2", None]


@pytest.fixture
def imported(raw: dict[str, Any], make_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grid:
    """A graded cell of a log of verdicts."""
    raw["study"] = {"pairs": [], "benchmarks": [], "imports": "all"}
    raw["default_policy"] = None
    import_samples(make_grid(raw), [log(tmp_path, "base")], request_of("base"))
    grid: Grid = make_grid(raw)
    score_cell(grid, *CELL, [], grid.scores(*CELL))
    monkeypatch.chdir(grid.root)
    snapshots.save(grid.config)
    return grid


def harm(path: Path, kind: str) -> None:
    """Cut a file off, or flip bits of its footer, where it says what is in it."""
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[-8:-4], "little")
    content[-8 - length : -8] = bytes(byte ^ 0xFF for byte in content[-8 - length : -8])
    path.write_bytes(content if kind == "flipped" else path.read_bytes()[: -length // 2])


@pytest.mark.parametrize("kind", ["flipped", "cut off"])
def test_damaged_verdicts_of_a_log_are_named_and_come_back_with_the_log(
    imported: Grid, tmp_path: Path, kind: str
) -> None:
    (path,) = imported.layout.every(imported.layout.recorded(*CELL, "*"))
    study = searchlens.open(imported.layout.results, root=imported.root)
    sound = study.samples(*CELL)
    harm(path, kind)
    for read_it in (
        lambda: study.samples(*CELL),
        lambda: score_cell(imported, *CELL, [], imported.scores(*CELL)),
    ):
        with pytest.raises(InputError, match=rf"{path} is not readable Parquet \(") as error:
            read_it()
        assert error.value.hint == "import it again: `searchlens imports` names its log"
    import_samples(Grid(imported.config, imported.root), [tmp_path / "base" / "org__base"], request_of("base"))
    assert study.samples(*CELL).equals(sound)


@pytest.mark.parametrize("kind", ["flipped", "cut off"])
def test_a_damaged_comparison_with_a_log_is_named_and_made_again_with_the_scores(imported: Grid, kind: str) -> None:
    path, scores = imported.layout.compared(*CELL), imported.scores(*CELL)
    study = searchlens.open(imported.layout.results, root=imported.root)
    sound = explorer_files.recorded_verdicts(study, *CELL)
    assert sound.height == 20
    harm(path, kind)
    with pytest.raises(InputError, match=rf"{path} is not readable Parquet \(") as error:
        explorer_files.recorded_verdicts(study, *CELL)
    assert error.value.hint == f"delete {scores}, with which it is made; `searchlens run` makes both again"
    scores.unlink()
    score_cell(imported, *CELL, [], scores)
    again = explorer_files.recorded_verdicts(study, *CELL)
    assert again.sort("question", "sample").equals(sound.sort("question", "sample"))


def test_ids_hold_the_verdicts_that_count_and_nothing_else(tmp_path: Path) -> None:
    """Two logs without texts differ in their verdicts alone; ids of imports that are graded know no verdicts."""

    def id_of(folder: str, scorer: str, **more: Any) -> str:
        path = log(tmp_path / folder, "base", **more)
        with read([path], None, "recorded", Choices(wishes={"date": "all"}), needs_golds=False) as reading:
            return replace(reading.pools[0], scorer=scorer).id

    assert id_of("a", "") == id_of("b", "", **{"pass": 1.0})
    first = id_of("c", "pass,none")
    assert first == id_of("d", "pass,none", style=0.0), "the verdicts of another scorer do not count"
    others = [
        id_of("e", "pass,none", **{"pass": 1.0}),
        id_of("f", "pass,none", answers=False),
        id_of("g", "style,none"),
    ]
    assert len({first, *others, id_of("h", "")}) == 5


QUESTIONS = (Question("q0", "?", "", {"recorded": {}}), Question("q1", "!", "", {"recorded": {}}))
KEY = {"policy": ["p"] * 8, "question": ["q0"] * 4 + ["q1"] * 4, "sample": [0, 1, 2, 3] * 2}


def scored(values: Sequence[float | None], answers: Sequence[str | None], finish: str | None = "stop") -> pl.DataFrame:
    """Four samples of each of two questions."""
    known = {**KEY, "run": KEY["sample"], "text": [""] * 8, "stopped": [finish == "stop"] * 8, "finish": [finish] * 8}
    samples = pl.DataFrame({name: pl.Series(name, known.get(name, [None] * 8), kind) for name, kind in SAMPLES.items()})
    kinds = {"policy": pl.String, "question": pl.String, "sample": pl.UInt32, "value": pl.Float64, "answer": pl.String}
    return score_recorded(samples, pl.DataFrame({**KEY, "value": values, "answer": answers}, kinds), QUESTIONS)


def test_classes_are_those_of_the_answers_that_the_scorer_took() -> None:
    """Right ones are one class, wrong ones are told apart by their texts, and one without a text does not vote."""
    found = scored([1, 1, 0, 0, 0, 0, 0.5, None], ["a", "A", "b", None, "x", "y", "x", "y"])
    assert found["correct"].to_list() == [True, True, *[False] * 6]
    assert found["answer"].to_list() == [0, 0, 1, -1, 1, 2, 1, 2]
    assert found["plain"][0] != found["plain"][1], "spellings are told apart"
    assert found["unknown"].to_list() == [False] * 7 + [True]
    assert found["finished"].to_list() == [True, True, True, False, True, True, True, True]
    assert read_pools(found)[0].correct.sum() == 2


def test_without_answers_each_sample_is_a_class_of_its_own() -> None:
    """One class of right ones beside as many wrong ones as there are samples would win every vote."""
    found = scored([1, 1, 0, 0, 0, 0, 0, 1], [None] * 8)
    assert found["answer"].to_list() == [0, 1, 2, 3] * 2
    assert read_pools(found)[0].valid.all()


def test_a_failed_request_is_wrong_and_has_no_answer() -> None:
    found = scored([None] * 8, [None] * 8, "failed")
    assert not found["correct"].any() and not found["unknown"].any()
    assert set(found["answer"]) == {-1}


def test_the_scorer_is_one_that_all_samples_have() -> None:
    assert scorer_of("recorded", [["a", "b"], ["b", "c"]]) == "b"
    assert scorer_of("recorded:b", [["a", "b"], ["b"]]) == "b"
    for kind, found, message in (
        ("recorded", [["a"], []], "no verdicts of its own"),
        ("recorded", [["a"], ["b"]], "no scorer in common; found: a, b"),
        ("recorded:c", [["a", "b"]], "not all samples have verdicts of 'c'; the scorers of the log: a, b"),
    ):
        with pytest.raises(InputError, match=message):
            scorer_of(kind, found)


def own(folder: Path, name: str = "rows.jsonl", **more: Any) -> Path:
    """The questions of the toy study, two samples each, without texts."""
    rows = [{"question": f"q{q}", "sample": s, "correct": s == 0, **more} for q in range(5) for s in range(2)]
    return written(folder / name, rows)


def test_a_benchmark_has_one_judge(grid: Grid, tmp_path: Path) -> None:
    path = own(tmp_path)
    sums = request_of("base", benchmark="sums", choices=Choices(role="base", policy="theirs"))
    with pytest.raises(InputError, match="sums is judged by math, not by recorded") as error:
        import_samples(grid, [path], sums)
    assert "--subset NAME" in error.value.hint
    (record,) = import_samples(grid, [path], replace(sums, subset="judged")).records
    assert (record.benchmark, record.grader) == ("judged", "recorded:correct")
    again = Grid(grid.config, grid.root)
    with pytest.raises(InputError, match="judged is judged by recorded:correct, not by recorded:other"):
        import_samples(again, [path], replace(sums, subset="judged", grader="recorded:other"))
    rl = replace(sums, benchmark="judged", grader="math", choices=Choices(role="rl", policy="theirs"))
    assert import_samples(again, [path], rl).records[0].grader == "recorded:correct", "the benchmark says who judges"


def test_logs_without_texts_or_verdicts_are_refused_with_what_helps(grid: Grid, tmp_path: Path) -> None:
    theirs = {"choices": Choices(role="base", policy="theirs")}
    rows = [{"question": f"q{i}", "sample": 0, "gold": "1", "correct": i != 3} for i in range(25)]
    path = written(tmp_path / "samples.jsonl", rows)
    with pytest.raises(InputError, match="the log has no texts to grade; --grader recorded takes its verdicts"):
        import_samples(grid, [path], request_of("base", grader="math", **theirs))
    unscored = [{**each, "correct": None, "text": ""} if i < 4 else each for i, each in enumerate(rows)]
    written(path, unscored)
    with pytest.raises(InputError, match="only 84% of 25 samples have a verdict of correct"):
        import_samples(grid, [path], request_of("base", **theirs))
    between = [{**each, "correct": 0.5} if i < 4 else each for i, each in enumerate(rows)]
    written(path, between)
    with pytest.raises(InputError, match="16% of 25 values of correct are between 0 and 1, which counts as wrong"):
        import_samples(grid, [path], request_of("base", **theirs))


def test_no_configuration_names_the_judge_of_a_log(raw: dict[str, Any], make_grid: Any) -> None:
    """What a study samples itself has no log that could judge it."""
    raw["benchmarks"]["sums"]["grader"] = "recorded"
    with pytest.raises(InputError, match=r"benchmarks\.sums\.grader"):
        make_grid(raw)


def test_a_part_of_a_gated_benchmark_is_gated(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = own(tmp_path, text="\\boxed{1}")
    with monkeypatch.context() as patched:
        patched.setattr(StudyCells, "family", lambda *_: "gpqa")
        wanted = request_of("base", benchmark="sums", subset="some", choices=Choices(role="base", policy="theirs"))
        import_samples(grid, [path], wanted)
    again = Grid(grid.config, grid.root)
    assert again.study.terms("some").startswith("GPQA-Diamond is gated")
    assert not again.study.terms("sums")
    config = replace(grid.config, study=replace(grid.config.study, imports="all"))
    assert Grid(config, grid.root).study.terms("some")
