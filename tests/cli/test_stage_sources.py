"""What a stage depends on is derived from its imports: all that runs, and editing any of it reruns the stage."""

import ast
import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from conftest import Make, Raw
from run_stages import landscape_cell, recovery_cell, score_cell
from searchlens import catalogue
from searchlens.cli.stages import source
from searchlens.cli.stages.importing import Request, import_samples
from searchlens.cli.stages.measures import measures
from searchlens.config import addons
from searchlens.config.boptr import BoptrOptions
from searchlens.config.model import plain as plain_config
from searchlens.errors import InputError
from searchlens.formats.reading import Choices
from searchlens.plan import Grid, needs
from searchlens.store.columns import AGREEMENT
from searchlens.store.frames import write_frame
from searchlens.store.layout import Layout
from searchlens_lab.simulate import small_design
from searchlens_lab.simulate import write as simulate
from test_equivalence import grid as compared_grid
from test_likelihood import drawn as drawn_pair
from test_likelihood import study as pair_study

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "src/searchlens"
ROOT = TESTS.parent
STAGES = (
    *("score", "agreement", "landscape", "recovery", "measures", "figures", "overview", "tables"),
    *("boptr", "transfer", "equivalence", "likelihood", "explorer", "report"),
)

EDIT = """
import json, re
from searchlens.catalogue import PACKAGE
from searchlens.cli.stages import source

stages = {stages!r}
closures = {{stage: [str(path) for path in source.closure(stage)] for stage in stages}}
before = {{stage: source.stage_source(stage) for stage in stages}}

def changed_stages():
    source._hash.cache_clear()
    source._read.cache_clear()
    return [stage for stage in stages if source.stage_source(stage) != before[stage]]

texts = {{path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}}
for path, text in texts.items():
    said = re.sub(r'^((?:    )*r?\\"{{3}})(?=[A-Z])', r"\\1Edited. ", text, flags=re.MULTILINE)
    path.write_text("# edited\\n\\n" + said + "\\n\\n# edited\\n")
by_words = changed_stages()
changed = {{}}
for path, text in texts.items():
    path.write_text(text)
for path, text in {{**texts, **{{path: path.read_text() for path in PACKAGE.rglob("*.j2")}}}}.items():
    path.write_text(text + "EDITED = 1\\n")
    changed[str(path.relative_to(PACKAGE))] = changed_stages()
    path.write_text(text)
print(json.dumps([closures, by_words, changed]))
"""


def test_there_is_a_stage_for_each_of_these() -> None:
    rules = {path.stem for path in (PACKAGE / "cli/stages").glob("[a-z]*.py")} | set(addons.stages())
    assert rules - {"source", "costs", "chains", "record", "importing", "preview"} == set(STAGES)


def test_code_in_any_file_reruns_the_stages_that_depend_on_it_and_no_other_and_words_rerun_none(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "searchlens", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", EDIT.format(stages=STAGES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    closures, by_words, changed = json.loads(done.stdout)
    assert by_words == [], "another comment or docstring"
    assert changed == {path: [stage for stage in STAGES if path in closures[stage]] for path in changed}
    assert len(changed) == len(list(PACKAGE.rglob("*.py"))) + len(list(PACKAGE.rglob("*.j2")))
    assert changed["reporting/report.html.j2"] == ["report"]
    assert changed["cli/stages/tables.py"] == ["tables"]
    drawn = ["figures", "overview", "transfer"]
    assert changed["reporting/figures/style.py"] == drawn, "a legend must not fit BOPTR again"
    assert changed["boptr/fit.py"][:1] == ["boptr"]
    assert not any(changed[path] for path in changed if path.startswith(("config/check/", "zoo.py")))
    whole = ["equivalence", "likelihood", "explorer", "report"]
    assert changed["config/model.py"] == whole, "those that read the whole"
    stating = {"figures", "overview", "transfer"}
    assert set(changed["config/recovery.py"]) == {"recovery", *stating, *whole}
    assert not any(changed[path] for path in source.EXEMPT) and changed["__init__.py"] == [], "another version"
    policies = {f"search/{name}.py" for name in ("__init__", "components", "kinds", "policy")}
    searches = [path for path in changed if path.startswith("search/") and path not in policies]
    by_searches = {stage for path in searches for stage in changed[path]}
    assert by_searches.isdisjoint(
        {"score", "landscape", "recovery", "recoveries", "boptr", "recorded_counts", "measures", "figures", "tables"}
    )
    assert changed["search/mcts.py"] == ["equivalence"]


def test_what_is_read_of_a_file_is_what_python_reads() -> None:
    """Texts that stand alone are left out, of every file, and nothing else."""
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "lab/src").rglob("*.py")]:
        text = path.read_text()
        alone = {
            (node.lineno, node.end_lineno)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        }
        found = [each for each in source._WORDS.finditer(text) if (each["words"] or "#").lstrip()[0] != "#"]
        lines = [text.count("\n", 0, each.start()) + 1 for each in found]
        ends = [line + each[0].count("\n") for line, each in zip(lines, found, strict=True)]
        assert set(zip(lines, ends, strict=True)) == alone, path


MINE = """
from searchlens.catalogue import table

@table("mine", stage="study")
def mine(context):
    ...
"""


def test_an_extension_is_a_part_of_the_stage_that_it_adds_to(tmp_path: Path) -> None:
    before = {stage: source.stage_source(stage) for stage in STAGES}
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    catalogue.use([str(file)])
    added = {stage: source.stage_source(stage) for stage in STAGES}
    assert {stage for stage in STAGES if added[stage] != before[stage]} == {"tables", "explorer", "report"}
    for text, is_same in ((MINE + "# edited\n", True), (MINE + "EDITED = 1\n", False)):
        file.write_text(text)
        source._hash.cache_clear()
        source._read.cache_clear()
        assert (source.stage_source("tables") == added["tables"]) == is_same
    assert source.stage_source("boptr") == before["boptr"]


def plain(value: Any) -> Any:
    """What a stage is given, in classes that load no module of searchlens."""
    if is_dataclass(value) and not isinstance(value, type) and type(value).__module__.startswith("searchlens.plan"):
        return SimpleNamespace(**{field.name: plain(getattr(value, field.name)) for field in fields(value)})
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return tuple(plain(one) for one in value) if isinstance(value, tuple) else value


Given = tuple[dict[str, Any], list[Any], dict[str, Any]]
"""Configuration of the grid that a stage is given, if any; its arguments; its keyword arguments."""


@pytest.fixture
def study(sampled: Grid, tmp_path: Path) -> dict[str, Given]:
    """Every stage of small studies, everything before it done."""
    layout, signed = sampled.layout, {"fingerprint": "0" * 12}
    for checkpoint, benchmark in sampled.study.cells:
        folder = layout.landscape(checkpoint, benchmark)
        landscape_cell(sampled, benchmark, sampled.scores(checkpoint, benchmark), folder)
        write_frame(AGREEMENT.to_frame(), layout.agreement(checkpoint, benchmark))
    base, rl = (layout.landscape(checkpoint, "sums") for checkpoint in ("toy-base", "toy-rl"))
    recovery_cell(sampled, base, rl, layout.recovery("toy", "sums"))
    measures(needs.measures(sampled), layout, **signed)
    cell, again = ("toy-base", "sums"), Layout(tmp_path / "again")
    manifests, questions = sampled.manifests(*cell), sampled.inputs.questions("sums")
    pair = needs.figures(sampled, "toy", "sums")
    return {
        "score": ({}, [needs.score(sampled, *cell), questions, layout, manifests, tmp_path / "s"], signed),
        "agreement": ({}, [needs.agreement(sampled, *cell), questions, layout, manifests, tmp_path / "a"], {}),
        "landscape": ({}, [needs.landscape(sampled, "sums"), sampled.scores(*cell), tmp_path / "l"], signed),
        "recovery": ({}, [needs.recovery(sampled, "sums"), base, rl, tmp_path / "r"], signed),
        "measures": ({}, [needs.measures(sampled), layout], signed),
        "figures": ({}, [pair, layout, tmp_path / "f"], {}),
        "overview": ({}, [needs.overview(sampled), layout, tmp_path / "o"], {}),
        "tables": ({}, [needs.tables(sampled), layout, again], signed),
    }


def loaded_by(stage: str, given: Given, folder: Path) -> set[str]:
    """Files of searchlens that a stage loads when it runs in a process of its own."""
    setup, arguments, keywords = given
    path = folder / f"{stage}.pickle"
    path.write_bytes(pickle.dumps((stage, setup, [plain(one) for one in arguments], keywords)))
    command = [sys.executable, str(TESTS / "run_one_stage.py"), str(path)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def closure(stage: str) -> set[str]:
    return {str(path) for path in source.closure(stage)} | set(source.EXEMPT)


@pytest.mark.long
def test_whatever_a_stage_loads_when_it_runs_lies_in_what_was_derived(study: dict[str, Given], tmp_path: Path) -> None:
    for stage, given in study.items():
        loaded = loaded_by(stage, given, tmp_path)
        assert f"cli/stages/{stage}.py" in loaded
        assert loaded <= closure(stage), stage


def test_boptr_and_its_tables_load_what_was_derived(tmp_path: Path) -> None:
    design = small_design()
    simulate(design, 1, tmp_path / "landscapes")
    plan, output = design.plan(), Layout(tmp_path / "results")
    options = replace(BoptrOptions(), draws=100, reselect=0, permutations=2).on(plan.benchmarks)
    for stage in ("boptr", "transfer"):
        given: Given = ({}, [plan, options, tmp_path / "landscapes", output], {})
        assert loaded_by(stage, given, tmp_path) <= closure(stage)


@pytest.mark.long
def test_the_comparison_loads_what_was_derived(tmp_path: Path) -> None:
    """It is given a grid, whose own modules are not counted: what a grid resolves is tracked by its values."""
    pytest.importorskip("torch")
    config = plain_config(compared_grid(policies=["greedy"], questions=2, draws=100).config)
    given = (config, [Layout(tmp_path / "results")], {"fingerprint": "0" * 12})
    assert loaded_by("equivalence", given, tmp_path) <= closure("equivalence")


@pytest.mark.long
def test_scoring_under_both_sides_loads_what_was_derived(tmp_path: Path) -> None:
    """As the comparison, it is given a grid."""
    pytest.importorskip("torch")
    grid = drawn_pair(pair_study(tmp_path / "results"))
    arguments = [needs.likelihood(grid, "micro", "math"), tmp_path / "out"]
    given = (plain_config(grid.config), arguments, {"fingerprint": "0" * 12})
    assert loaded_by("likelihood", given, tmp_path) <= closure("likelihood")


# ---- Stage after stage on files, without Snakemake: samples of a benchmark of one's own reach tables and figures


DEFAULT = "topp0.95_t1.0"


def rows(right: int, samples: int = 4, **extra: Any) -> list[dict[str, Any]]:
    """Three questions of one's own; the first ``right`` samples of each are right."""
    golds = {"one": "1", "half": "\\frac{1}{2}", "pair": "(1,2)"}
    return [
        {"question": q, "sample": s, "text": f"\\boxed{{{gold if s < right else 7}}}", "gold": gold, **extra}
        for q, gold in golds.items()
        for s in range(samples)
    ]


def bring(
    grid: Grid, tmp_path: Path, role: str, lines: list[dict[str, Any]], policy: str = DEFAULT, grader: str = "math"
) -> None:
    path = tmp_path / f"{role}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in lines))
    import_samples(
        grid, [path], Request(pair="theirs", benchmark="own", grader=grader, choices=Choices(role=role, policy=policy))
    )


def test_without_the_ends_of_texts_no_readout_says_how_they_ended(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    lines = [{**row, "tokens": 5} for row in rows(right=1)]
    bring(make_grid(raw), tmp_path, "base", lines)
    bring(make_grid(raw), tmp_path, "rl", [{**row, "finish": "stop"} for row in lines])
    assert ("theirs", "own") not in make_grid(raw).study.pair_cells, "a study has only the imports that it names"
    raw["study"]["imports"] = "all"
    grid = make_grid(raw)
    for role in ("base", "rl"):
        cell = (f"theirs-{role}", "own")
        score_cell(grid, *cell, [], grid.scores(*cell))
        landscape_cell(grid, "own", grid.scores(*cell), grid.layout.landscape(*cell))
        points = pl.read_parquet(grid.layout.landscape_frame(*cell, "points"))
        known = set(points.filter(pl.col("value").is_not_null())["metric"])
        assert {"P", "Q", "C", "valid"} <= known
        ends = {"T", "stopped", "truncated"}
        assert ends & known == (set() if role == "base" else ends)


def test_importing_again_replaces_the_pool(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    bring(make_grid(raw), tmp_path, "base", rows(right=1))
    bring(make_grid(raw), tmp_path, "base", rows(right=2, samples=8))
    (item,) = make_grid(raw).study.every_import
    assert item.samples == 8


@pytest.mark.parametrize(
    ("pair", "policy", "says"),
    [
        ("toy", "temp_0.5", "this configuration samples .* under 'temp_0.5'"),
        ("a/b", DEFAULT, "pair 'a/b' cannot be a name"),
        ("theirs", "../up", "policy '../up' cannot be a name"),
    ],
)
def test_a_name_that_would_mislead_is_refused(grid: Grid, tmp_path: Path, pair: str, policy: str, says: str) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(json.dumps({"question": "q0", "sample": 0, "text": "1"}) + "\n")
    with pytest.raises(InputError, match=says):
        import_samples(grid, [path], Request(pair=pair, benchmark="sums", choices=Choices(role="base", policy=policy)))
    assert not (grid.layout.results / "imports").exists()


@pytest.mark.parametrize(
    ("grader", "says"), [("essay", "grader 'essay' is unknown"), ("instructions", "question 'half' has no checks")]
)
def test_a_grader_that_cannot_grade_the_questions_imports_nothing(
    grid: Grid, tmp_path: Path, grader: str, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        bring(grid, tmp_path, "base", rows(right=1), grader=grader)
    assert not grid.layout.results.exists()
