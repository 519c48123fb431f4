"""The folder of a study: where commands look for its configuration, and what they merge."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from conftest import Patch, Said
from searchlens import catalogue
from searchlens.cli.main import main
from searchlens.config import addons, project
from searchlens.config.sampled import CheckpointSpec
from searchlens.engines.kind import engine_kind

ROOT = Path(__file__).parents[2]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder with the shipped configuration and settings of its own; the present folder is another one."""
    folder = tmp_path / "study"
    shutil.copytree(ROOT / "config", folder / "config")
    (folder / "resources").symlink_to(ROOT / "resources")
    (folder / "config/own.yaml").write_text("results: results/own\nstudy: {benchmarks: [math]}\nequivalence: null\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


def test_a_command_outside_of_a_study_says_how_to_name_one(study: Path, capsys: Said) -> None:
    assert main(["check"]) == 2
    assert "Hint: run in the study's folder, or name it: -C DIR" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["before", "after", "variable"])
def test_a_study_is_named_from_anywhere(study: Path, place: str, monkeypatch: Patch, capsys: Said) -> None:
    """Its own settings are merged without naming them, paths are relative to it, and the present folder stays."""
    here = Path.cwd()
    if place == "variable":
        monkeypatch.setenv("SEARCHLENS_STUDY", str(study))
    named = {"before": ["-C", str(study), "check"], "after": ["check", "-C", str(study)], "variable": ["check"]}
    assert main(named[place]) == 0
    answer = capsys.readouterr()
    assert answer.out.startswith("configuration is valid: 2 cells")
    assert answer.err == "study: config/own.yaml; results: results/own\n"
    assert Path.cwd() == here and not list(here.iterdir())


def test_the_folder_of_an_option_wins_over_the_variable(study: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("SEARCHLENS_STUDY", "nowhere")
    assert main(["check"]) == 2
    assert main(["-C", str(study), "check"]) == 0


def test_a_job_with_a_snapshot_stays_in_its_folder(study: Path, monkeypatch: Patch, capsys: Said) -> None:
    """Its paths are relative to the folder in which Snakemake started it, whatever the variable says."""
    assert main(["-C", str(study), "snapshot"]) == 0
    snapshot = capsys.readouterr().out.strip()
    monkeypatch.chdir(study)
    monkeypatch.setenv("SEARCHLENS_STUDY", "nowhere")
    assert main(["check", "--snapshot", snapshot]) == 0


def test_files_are_merged_in_the_order_in_which_they_are_named(study: Path, capsys: Said) -> None:
    for name, folder in (("a", "results/a"), ("b", "results/b")):
        (study / f"{name}.yaml").write_text(yaml.safe_dump({"results": folder}))
    assert main(["check", "-C", str(study), "--config", "b.yaml", "--config", "a.yaml"]) == 0
    assert capsys.readouterr().err == "study: config/own.yaml, b.yaml, a.yaml; results: results/a\n"


def test_a_new_study_is_valid_and_says_what_is_missing(tmp_path: Path, capsys: Said) -> None:
    """Before anything is filled in: two cells with placeholders, and a law to be fitted."""
    folder = tmp_path / "new"
    assert main(["init", str(folder)]) == 0
    commands = re.findall(r"searchlens (-C \S+ \w+)", capsys.readouterr().out)
    assert commands == [f"-C {folder} {command}" for command in ("check", "plan", "run")]
    assert [main(command.split()) for command in commands[:2]] == [1, 0]
    answer = capsys.readouterr().out
    assert "BOPTR is fitted on mine/math500" in answer
    assert "50 generations, 50 to make" in answer


def test_a_new_study_has_the_shipped_files_with_their_comments(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "new")]) == 0
    for path in ("config/config.yaml", "config/policies.yaml", "config/paper.yaml", "profiles/slurm/config.yaml"):
        assert (tmp_path / "new" / path).read_bytes() == (ROOT / path).read_bytes()
    assert (tmp_path / "new/slurm/config.yaml").exists()
    assert not (tmp_path / "new/config/zoo.yaml").exists(), "it needs the cohort"
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["Snakefile", "config", "profiles", "slurm"]


@pytest.mark.parametrize("name", ["config", "Snakefile", "slurm"])
def test_nothing_is_written_over_a_study(tmp_path: Path, name: str, capsys: Said) -> None:
    (tmp_path / name).write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    assert f"already has {name}" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


def test_a_study_needs_a_folder(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file")]) == 2
    assert "is a file" in capsys.readouterr().err


def test_a_new_demo_plans_the_jobs_of_the_demo(tmp_path: Path) -> None:
    """Through Snakemake, from another folder: the study's Snakefile includes the workflow, and own.yaml is merged."""
    assert main(["init", "--demo", str(tmp_path / "demo")]) == 0
    command = [sys.executable, "-m", "searchlens", "-C", str(tmp_path / "demo"), "run", "--dry-run", "--cores", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    jobs = dict(re.findall(r"^([\w-]+) +(\d+)$", done.stdout + done.stderr, re.MULTILINE))
    assert jobs["generate"] == "4" and jobs["landscape_micro-1m-rl"] == "1", "AIME sampled, the others read"
    assert jobs["study"] == "1", "everything that the repository's own Snakefile makes by default"


def test_a_path_of_the_study_is_relative_to_it() -> None:
    assert project.locate("zoo/base", Path("study")) == Path("study/zoo/base")
    assert project.locate("/weights", Path("study")) == Path("/weights")


def test_a_command_without_its_library_names_the_extra(study: Path, monkeypatch: Patch, capsys: Said) -> None:
    """One message for every library, wherever it is imported."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    (study / "config/own.yaml").write_text("checkpoints: {x: {hub: a/b}}\n")
    assert main(["-C", str(study), "pin"]) == 2
    assert "Hint: pip install 'huggingface-hub>=" in capsys.readouterr().err


def imported() -> Iterator[str]:
    """Top-level name of every module that the package imports, anywhere in it."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                yield (node.module or "").split(".")[0]
            elif isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)


def test_every_library_that_is_imported_is_a_dependency_or_an_extra() -> None:
    """And every extra that a message names exists."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(addons.EXTRAS.values()) <= set(declared["optional-dependencies"])
    base = {re.split(r"[<>=]", text)[0].replace("-", "_").lower() for text in declared["dependencies"]}
    parts_of_them = {"yaml", "pydantic_core", "sympy", "latex2sympy2_extended", "antlr4"}
    of_torch_for_gpus = {"triton"}  # the engine does without where it is missing
    by_hand = {"lm_eval"}
    of_engines = {engine_kind(CheckpointSpec(engine=name)).library for name in catalogue.declared("engine")}
    assert of_engines <= set(declared["optional-dependencies"]), "its extra has the name of the library"
    known = base | of_engines | parts_of_them | of_torch_for_gpus | by_hand
    known |= set(addons.EXTRAS) | set(sys.stdlib_module_names)
    assert set(imported()) - known == {"searchlens"}
