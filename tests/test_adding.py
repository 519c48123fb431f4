"""Adding a metric, a table and so on to the package takes one file, or two, and the commands of a user find it.

Families and engines are added by the pages about them; controllers and graders by ``test_extensions.py``.
"""

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
from searchlens.cli.main import main
from searchlens.cli.run import require_installed
from searchlens.config import check
from searchlens.errors import InputError
from searchlens.plan import Grid, cost

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
    def first_k(pool, budgets, options):
        return np.logical_and.accumulate(pool.correct, axis=1)[:, budgets - 1]

    @staticmethod
    def unbiased(pool, budgets, options):
        return expected_best(pool.correct, pool.correct, budgets)

@metric("score", title="mean score", recorded=True)
class Score:
    @staticmethod
    def first_k(pool, budgets, options):
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
def test_a_metric_is_read_from_samples_and_not_recorded_in_earlier_counts(copy: Copy) -> None:
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
    """Every form comes back: the tests of recorded counts of this package, run with the metrics of the copy."""
    names = "(a_landscape_is_the_same and shortest) or two_candidates"
    estimates = ROOT / "tests/analysis/test_recorded_counts.py"
    copy.python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(estimates), "-k", names)


def test_tables_figures_and_frames_are_planned(copy: Copy) -> None:
    study = {"benchmarks": ["gpqa"], "sample": [], "recorded_counts": "resources/zoo/recorded"}
    content = {"results": "results", "study": study, "boptr": {"anchor": {"benchmark": "gpqa"}, "draws": 100}}
    (copy.path / "study.json").write_text(json.dumps(content))
    wanted = ("tables/my_table.csv", "tables/my_number.csv", "figures/my_figure.svg", "boptr/models.parquet")
    targets = [f"results/{path}" for path in (*wanted, "figures/micro-1m/gpqa/gap_map_all.svg")]
    said = copy.python("-m", "snakemake", "-n", "--cores", "1", "--configfile", "study.json", "--", *targets)
    assert all(target in said for target in targets)


def test_a_frame_is_computed(copy: Copy) -> None:
    """With the label of its estimator, from the rule or from other frames."""
    code = (
        "import rooms; import test_boptr_study as t; from dataclasses import replace; small = t.small_design()\n"
        "one = replace(small, models={t.ANCHOR: small.models[t.ANCHOR]})\n"
        "found = t.study(t.simulate(one, 7), replace(t.OPTIONS, mu_without=()))\n"
        "print(found['models'].rows(), found['my_count']['n'][0])"
    )
    name, count = copy.python("-c", code).rsplit(maxsplit=1)
    assert "unbiased" in name or "first_k" in name
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
        "print([q.gold for q in benchmarks.read([Path('data/capitals.jsonl')], family='capitals').questions])"
    )
    assert pages.run(checkout, sys.executable, "-c", code).stdout == "['A', 'B']\n"


# ---- An engine that is added where it is declared: by an extension, or in a copy of the package


BASE = ("--checkpoint", "micro-1m-base", "--benchmark", "math")
OWN = """
extensions: [short.py]
samples: 2
budgets: [1, 2]
equivalence: null
references: []
study: {benchmarks: [math]}
benchmarks: {math: {questions: 2, pool: few, searches: null}}
pools: {few: [topp0.95_t1.0, power_t0.25]}
checkpoints: {micro-1m-base: {engine: short}}
"""
Said = pytest.CaptureFixture[str]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped configuration, whose micro Base runs on the engine of the contributors' guide."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "resources").symlink_to(ROOT / "resources")
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Add an engine")[2]
    (tmp_path / "short.py").write_text(section.partition("```python\n")[2].partition("```")[0])
    (tmp_path / "config/own.yaml").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def grid_of(study: Path) -> Grid:
    return Grid(check.load([*check.DEFAULT_FILES, study / "config/own.yaml"]), root=study)


def edit(study: Path, file: str, old: str, new: str) -> None:
    path = study / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_an_engine_of_an_extension_is_checked_planned_and_sampled(study: Path, capsys: Said) -> None:
    """By the commands of a user, from one file and its name in the configuration."""
    assert main(["check"]) == 0
    assert "pair micro-1m: Base has engine short; RL has engine transformers" in capsys.readouterr().out
    assert main(["plan", "--json"]) == 0
    cells = {cell["checkpoint"]: cell for cell in json.loads(capsys.readouterr().out)["cells"]}
    assert cells["micro-1m-base"]["to_make"] == 2
    assert main(["generate", "--quiet", *BASE]) == 0
    (manifest,) = study.glob("results/manifests/**/*.json")
    grid, cell = grid_of(study), ("micro-1m-base", "math")
    assert not any(any(grid.missing(pool)) for pool in grid.jobs.pools(*cell))
    for generation in grid.jobs.generations(*cell):
        assert generation.spec["engine"]["family"] == "short"
        folder = grid.folder(*cell, generation.id)
        assert pl.read_parquet(folder / "*.parquet").height == 2 * 2
        assert json.loads(next(folder.glob("*.json")).read_text())["engine"].startswith("short ")
    assert manifest.exists()


def test_planning_reads_the_declaration_and_not_the_engine(study: Path) -> None:
    """What it declares, and the defaults; the file is not run."""
    edit(study, "short.py", "from searchlens.engines", "from searchlens.no_engines")
    grid = grid_of(study)
    weights = cost.weights_bytes(grid, "micro-1m-base") / 1e6
    ours, embedded = (cost.memory_mb(grid, name) for name in ("micro-1m-base", "micro-1m-rl"))
    assert 0 <= ours - (2000 + 3 * weights) < 1 and embedded - ours == 2000
    assert (grid.study.engine("micro-1m-base").processes, grid.study.gpus("micro-1m-base")) == (1, 0)


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        (
            "config/own.yaml",
            "engine: short",
            "engine: shrt",
            "config/own.yaml: checkpoints.micro-1m-base.engine: 'shrt' is unknown; did you mean 'short'?"
            " Known: resident, short, transformers, vllm",
        ),
        (
            "config/own.yaml",
            "extensions: [short.py]",
            "extensions: []",
            "checkpoints.micro-1m-base.engine: 'short' is unknown. Known: resident, transformers, vllm",
        ),
        (
            "config/own.yaml",
            "engine: short",
            "engine: short, dtype: bfloat16",
            "config/own.yaml: checkpoints.micro-1m-base.dtype: bfloat16 needs engine: transformers or vllm",
        ),
        (
            "config/own.yaml",
            "engine: short",
            "engine: short, vllm: {processes: 2}",
            "config/own.yaml: checkpoints.micro-1m-base.vllm.processes: 2 needs engine: vllm",
        ),
        ("short.py", "worker_mb", "worker_gb", "short.py: option 'worker_gb' is unknown; did you mean 'worker_mb'?"),
        ("short.py", '"short"', '"vllm"', "engine 'vllm' is declared twice: in "),
        ("short.py", "2000", "2 * 1000", "short.py, line 5: 2 * 1000 is not a literal"),
    ],
    ids=["name", "extension", "dtype", "section", "option", "twice", "literal"],
)
def test_a_mistake_is_one_line_with_its_place(
    study: Path, capsys: Said, file: str, old: str, new: str, complaint: str
) -> None:
    edit(study, file, old, new)
    for command in ("check", "plan"):
        assert main([command]) == 2
        lines = [line for line in capsys.readouterr().err.splitlines() if complaint in line]
        assert len(lines) == 1


def test_a_library_that_is_missing_is_named_before_a_run(study: Path) -> None:
    pytest.importorskip("snakemake")
    edit(study, "short.py", "embedded=True", 'embedded=True, library="no_such_library"')
    with pytest.raises(InputError, match="no_such_library is not installed here\nHint: pip install no_such_library"):
        require_installed(grid_of(study), here=True)


PLANNED = """
import json, sys
from searchlens.config.model import from_plain
from searchlens.plan import Grid, cost
grid = Grid(from_plain(json.load(open(sys.argv[1]))))
print(grid.study.gpus("micro-1m-base"), cost.memory_mb(grid, "micro-1m-base") > 3 * 7000)
"""


def test_an_engine_of_the_package_is_one_file_and_its_section(study: Path) -> None:
    """In a copy of the package: its options are checked, and planning reads what it knows of them."""
    shutil.copytree(ROOT / "src", study / "src", ignore=shutil.ignore_patterns("__pycache__"))
    declaration = (study / "short.py").read_text().replace("2000", "7000")
    (study / "src/searchlens/engines/short.py").write_text(declaration)
    spec = "@dataclass(frozen=True, kw_only=True)\nclass {}(Strict):\n    {}\n"
    of_engine = spec.format("ShortSpec", "tensor_parallel: Small = 1")
    sections, before = "src/searchlens/config/sampled.py", "@dataclass(frozen=True)\nclass ShapeSpec"
    edit(study, sections, before, f"{of_engine}\n\n{before}")
    key = "    vllm: VllmSpec = VllmSpec()\n"
    edit(study, sections, key, key + "    short: ShortSpec = ShortSpec()\n")
    edit(study, "config/own.yaml", "extensions: [short.py]", "extensions: []")
    edit(study, "config/own.yaml", "engine: short", "engine: short, short: {tensor_parallel: 3}, device: cuda")

    def do(*command: str) -> subprocess.CompletedProcess[str]:
        return pages.run(study, sys.executable, *command)

    assert do("-m", "searchlens", "check").stdout.startswith("configuration is valid")
    snapshot = do("-m", "searchlens", "snapshot").stdout.strip()
    assert do("-c", PLANNED, snapshot).stdout == "3 True\n"
    edit(study, "config/own.yaml", "device: cuda", "device: cpu")
    complaint = "checkpoints.micro-1m-base.short.tensor_parallel: 3 needs device: cuda (found cpu)"
    assert complaint in do("-m", "searchlens", "plan").stderr
