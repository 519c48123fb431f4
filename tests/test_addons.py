"""What a distribution adds is there with it, and without it a line says what brings it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from searchlens.config import addons, check
from searchlens.store import snapshots

ALONE = """
import importlib.metadata, sys
importlib.metadata.entry_points = lambda **_: ()
from searchlens.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""Runs a command as if nothing but the package itself were installed."""
ROOT = Path(__file__).parents[1]


def unnamed() -> dict[str, str]:
    """The environment without the names of add-ons, which tests of this process may have exported."""
    return {name: value for name, value in os.environ.items() if name != addons.VARIABLE}


def alone(*arguments: str, **named: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ALONE, *arguments],
        cwd=ROOT,
        env=unnamed() | named,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_command_of_the_laboratory_is_refused_with_what_installs_it() -> None:
    done = alone("simulate", "--seed", "1", "--output", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert "searchlens_lab is not installed here" in done.stderr
    assert "pip install ./lab in a clone of the repository" in done.stderr
    assert "simulate" not in alone("--help").stdout


def test_a_section_of_the_laboratory_is_left_out_and_said_once() -> None:
    done = alone("plan", "--config", "config/demo-full.yaml")
    assert done.returncode == 0
    assert done.stderr.count("equivalence is left out: searchlens_lab is not installed here; pip install ./lab") == 1


def test_no_stage_of_the_laboratory_is_planned_without_it() -> None:
    code = ALONE.replace("from searchlens.cli.main import main", "from snakemake.cli import main")
    overlay = ["--configfile", "config/demo-full.yaml", "--nolock"]
    command = [sys.executable, "-c", code, "-n", "--quiet", "rules", *overlay]
    done = subprocess.run(command, cwd=ROOT, env=unnamed(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "equivalence" not in {line.split()[0] for line in done.stdout.splitlines() if line.strip()}


def test_with_it_the_section_is_part_of_the_schema() -> None:
    assert "equivalence" in check.schema()["properties"]
    assert set(addons.stages()) == {"equivalence"}


def test_an_addon_that_is_not_there_is_named() -> None:
    assert "No module named 'no_such_addon'" in alone("check", **{addons.VARIABLE: "no_such_addon"}).stderr


def test_jobs_are_given_the_modules_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their environments see packages without entry points."""
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv(addons.VARIABLE, "")
    snapshots.export_code(tmp_path / "bin")
    assert os.environ[addons.VARIABLE] == "searchlens_lab.addon"
    monkeypatch.setenv("PATH", os.defpath)
    assert alone("equivalence", "--help", **{addons.VARIABLE: os.environ[addons.VARIABLE]}).returncode == 0
