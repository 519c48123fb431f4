"""Adding a metric, a table and so on to the package takes one file, or two, and the commands of a user find it.

Families and engines are added by the pages about them; controllers and graders by ``test_extensions.py``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import landscape_oracle as oracle
import pages
from searchlens.analysis.metrics import __file__ as metrics_file

ROOT = Path(__file__).parents[1]
RECORDED = "resources/zoo/recorded/micro-1m-base/aime.arrow.xz"
TABLE = """
from searchlens.catalogue import table
from searchlens.reporting.tables.table import Table

@table("{name}", stage="{stage}")
def {name}(context):
    return Table({data}, [])
"""


def example(section: str) -> str:
    """The code of a section of the contributors' guide."""
    return (ROOT / "CONTRIBUTING.md").read_text().partition(f"## {section}")[2].split("```")[1].removeprefix("python")


ADDED = {
    "metric": {
        "analysis/metrics.py": """
@metric("long", title="answers of more than 2 tokens", per_sample="mean")
def long(pool):
    return pool.tokens > 2

@metric("short", title="answers of at most 2 tokens", per_sample="mean", recorded=True)
def short(pool):
    return pool.tokens <= 2

@metric("all", title="every sample is right", hits=True, compared=True, drawn=True, recorded=True)
class All:
    @staticmethod
    def prefix(pool, budgets, options):
        return np.logical_and.accumulate(pool.correct, axis=1)[:, budgets - 1]

    @staticmethod
    def expected(pool, budgets, options):
        return expected_best(pool.correct, pool.correct, budgets)

@metric("score", title="mean score", recorded=True)
class Score:
    @staticmethod
    def prefix(pool, budgets, options):
        return pool.score.cumsum(axis=1)[:, budgets - 1] / budgets

@metric("either", title="mean of B and T", of=("B", "T"), recorded=True)
def either(best, first):
    return (best + first) / 2
"""
    },
    "table": {"reporting/tables/mine.py": TABLE.format(name="my_table", stage="study", data="context.widths")},
    "figure": {
        "reporting/figures/mine.py": """
from searchlens.catalogue import figure

@figure("my_figure", stage="study")
def numbers(context):
    return context.cells[0].base

def draw(numbers, context):
    ...
"""
    },
    "reader": {
        "formats/readers/mine.py": """
from searchlens.catalogue import reader
from searchlens.formats.readers.logged import LoggedSample, Stream

@reader("my-reader", title="my logs", versions="1", ran=True)
class Mine:
    def files(self, path):
        return [path] if path.suffix == ".mine" else []

    def read(self, files, wishes, notes):
        return iter(())
"""
    },
    "exporter": {
        "formats/mine.py": """
from searchlens.catalogue import exporter

@exporter("my-format", lost="all")
def write(pool, out):
    yield from ()
"""
    },
    "frame": {
        "boptr/mine.py": example("Add a number of BOPTR")
        + """

@frame("my_count", of=("models", "errors"))
def my_count(models, errors):
    return pl.DataFrame({"n": [len(models), len(errors)]}, schema("n"))
""",
        "reporting/boptr/mine.py": TABLE.format(name="my_number", stage="boptr", data='context.frames["models"]'),
    },
}
"""Kind to what is added for one, by file."""


class Copy:
    """A checkout whose package has everything of ``ADDED``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        package = path / "src/searchlens"
        shutil.copytree(Path(metrics_file).parents[1], package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "workflow", path / "workflow")
        for name in ("config", "resources", "profiles", "Snakefile", "pyproject.toml"):
            (path / name).symlink_to(ROOT / name)
        for files in ADDED.values():
            for file, text in files.items():
                with (package / file).open("a") as stream:
                    stream.write(text)
        for caption in ("tables/my_table", "tables/my_number", "figures/my_figure"):
            (path / f"workflow/report/{caption}.rst").write_text("Mine.\n")

    def python(self, *arguments: str) -> str:
        """What Python prints with this package."""
        paths = [str(self.path / "src"), os.environ.get("PYTHONPATH", ""), str(ROOT / "lab/src"), str(ROOT / "tests")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "200"}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=self.path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def searchlens(self, *arguments: str) -> str:
        return self.python("-m", "searchlens", *arguments)

    def landscape(self, scores: str) -> dict[str, pl.DataFrame]:
        """The frames ``points`` and ``hits`` of the rule."""
        (self.path / "few.yaml").write_text("landscape: {draws: 100}\n")
        inputs = ("--config", "few.yaml", "--benchmark", "aime", "--scores", scores, "--output", "out")
        self.searchlens("landscape", *inputs)
        return {name: pl.read_parquet(self.path / f"out/{name}.parquet") for name in ("points", "hits")}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("copy"))


@pytest.mark.long
def test_a_metric_is_read_from_samples_and_not_recorded_in_earlier_readouts(copy: Copy) -> None:
    rng = np.random.default_rng(1)
    pools = {name: [oracle.random_pool(rng, 4) for _ in range(5)] for name in ("temp_0.5", "greedy")}
    oracle.frame(pools).write_parquet(copy.path / "scores.parquet")
    added = {"long", "short", "all", "score"}
    sampled = copy.landscape("scores.parquet")
    assert added | {"either"} <= set(sampled["points"]["metric"])
    assert not sampled["hits"]["all"].has_nulls()
    earlier = copy.landscape(RECORDED)
    assert {"P", "B", "stopped", "either"} <= set(earlier["points"]["metric"])
    assert not added & set(earlier["points"]["metric"])
    assert earlier["hits"]["all"].null_count() == earlier["hits"].height


@pytest.mark.long
def test_a_metric_is_recorded_from_now_on(copy: Copy) -> None:
    """Every form comes back; the tests of readouts are those of this package, run with the metrics of the copy."""
    names = "(a_landscape_is_the_same and shortest) or two_candidates"
    readouts = ROOT / "tests/analysis/test_readouts.py"
    copy.python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(readouts), "-k", names)


def test_tables_figures_and_frames_are_planned(copy: Copy) -> None:
    study = {"benchmarks": ["gpqa"], "sample": [], "readouts": "resources/zoo/recorded"}
    content = {"results": "results", "study": study, "boptr": {"anchor": {"benchmark": "gpqa"}, "draws": 100}}
    (copy.path / "study.json").write_text(json.dumps(content))
    wanted = ("tables/my_table.csv", "tables/my_number.csv", "figures/my_figure.svg", "boptr/models.parquet")
    targets = [f"results/{path}" for path in (*wanted, "figures/micro-1m/gpqa/gap_map_all.svg")]
    said = copy.python("-m", "snakemake", "-n", "--cores", "1", "--configfile", "study.json", "--", *targets)
    assert all(target in said for target in targets)


def test_a_frame_is_computed(copy: Copy) -> None:
    """With the label of its readout, from the rule or from other frames."""
    code = (
        "import rooms; import test_boptr_study as t; from dataclasses import replace; small = t.small_design()\n"
        "one = replace(small, models={t.ANCHOR: small.models[t.ANCHOR]})\n"
        "found = t.study(t.simulate(one, 7), replace(t.OPTIONS, mu_without=()))\n"
        "print(found['models'].rows(), found['my_count']['n'][0])"
    )
    name, count = copy.python("-c", code).rsplit(maxsplit=1)
    assert "expected" in name or "prefix" in name
    assert count == "1"


def test_a_reader_and_an_exporter_are_known(copy: Copy) -> None:
    assert "my-format" in copy.searchlens("export", "--help")
    code = "from searchlens.catalogue import find; print(find('reader', 'my-reader').__name__)"
    assert copy.python("-c", code).split() == ["Mine"]


# ---- docs/add-a-benchmark.md, followed to the letter in a copy of the sources


BLOCKS = pages.blocks("docs/add-a-benchmark.md")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return pages.checkout(tmp_path)


def follow(block: re.Match[str], folder: Path) -> None:
    """Do what one block says."""
    if block["path"]:
        (folder / block["path"]).write_text(block["text"])
    elif block["kind"] == "console":
        command, expected = block["text"].removeprefix("$ ").split("\n", 1)
        done = pages.run(folder, *command.split())
        assert (done.stdout, done.returncode) == (expected, 0), done.stderr


@pytest.mark.long
def test_the_page_works_as_written(checkout: Path) -> None:
    """Files are written, and commands print what the page shows."""
    for block in BLOCKS:
        follow(block, checkout)
    assert len((checkout / "golds/capitals.txt").read_text().splitlines()) == 2
    assert sum(block["kind"] == "console" for block in BLOCKS) == 5


@pytest.mark.long
def test_what_the_page_promises_of_a_wrong_file_holds(checkout: Path) -> None:
    """A known family refuses another number of rows, and a new one a gold that its digests do not know."""
    for block in BLOCKS:
        follow(block, checkout)
    amc = checkout / "config/amc.yaml"
    amc.write_text(amc.read_text().replace("check: false", "check: true"))
    capitals = checkout / "data/capitals.jsonl"
    capitals.write_text(capitals.read_text().replace('"answer": 0', '"answer": 1'))
    for name, expected in (("amc", "AMC23 has 40"), ("capitals", "question 2 (capitals-0002): gold 'B'")):
        done = pages.run(checkout, "searchlens", "check", "--config", f"config/{name}.yaml")
        assert done.returncode == 2
        assert expected in done.stderr


def test_a_family_with_fields_of_its_own_and_one_moved_into_the_package(checkout: Path) -> None:
    """The page's function that converts row by row, and its last paragraph."""
    for block in BLOCKS:
        if block["path"]:
            follow(block, checkout)
    converted = next(block["text"] for block in BLOCKS if block["kind"] == "text")
    declared = (checkout / "capitals.py").read_text()
    families = checkout / "src/searchlens/benchmarks/families.py"
    families.write_text(
        f"{families.read_text()}\n\nfrom searchlens.benchmarks.questions import Question\n\n"
        + declared.replace("def capitals(file):\n    return choices.read(file)\n", converted)
    )
    rows = ('{"country": "France", "capital": "A"}\n', '{"country": "Italy", "capital": "B"}\n')
    (checkout / "data/capitals.jsonl").write_text("".join(rows))
    code = (
        "from pathlib import Path\nfrom searchlens import benchmarks\n"
        "print([q.gold for q in benchmarks.load(Path('data/capitals.jsonl'), family='capitals')])"
    )
    assert pages.run(checkout, sys.executable, "-c", code).stdout == "['A', 'B']\n"
