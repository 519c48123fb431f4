"""An engine that is added where it is declared: by an extension, or in a copy of the package."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import pages
from searchlens.cli.main import main
from searchlens.cli.run import require_installed
from searchlens.config import check
from searchlens.errors import InputError
from searchlens.plan import Grid, cost

ROOT = Path(__file__).parents[1]
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
