"""The folder of a study: where commands look for its configuration, and what they merge."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from searchlens.cli import main

ROOT = Path(__file__).parents[1]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the shipped configuration and settings of its own; the present folder is another one."""
    folder = tmp_path / "study"
    shutil.copytree(ROOT / "config", folder / "config")
    (folder / "resources").symlink_to(ROOT / "resources")
    (folder / "config/own.yaml").write_text("results: results/own\nstudy: {benchmarks: [math]}\nequivalence: null\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


def test_a_command_outside_of_a_study_says_how_to_name_one(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 2
    assert "Hint: run in the study's folder, or name it: -C DIR" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["before", "after", "variable"])
def test_a_study_is_named_from_anywhere(
    study: Path, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_the_folder_of_an_option_wins_over_the_variable(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCHLENS_STUDY", "nowhere")
    assert main(["check"]) == 2
    assert main(["-C", str(study), "check"]) == 0


def test_a_job_with_a_snapshot_stays_in_its_folder(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its paths are relative to the folder in which Snakemake started it, whatever the variable says."""
    assert main(["-C", str(study), "snapshot"]) == 0
    snapshot = capsys.readouterr().out.strip()
    monkeypatch.chdir(study)
    monkeypatch.setenv("SEARCHLENS_STUDY", "nowhere")
    assert main(["check", "--snapshot", snapshot]) == 0


def test_files_are_merged_in_the_order_in_which_they_are_named(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, folder in (("a", "results/a"), ("b", "results/b")):
        (study / f"{name}.yaml").write_text(yaml.safe_dump({"results": folder}))
    assert main(["check", "-C", str(study), "--config", "b.yaml", "--config", "a.yaml"]) == 0
    assert capsys.readouterr().err == "study: config/own.yaml, b.yaml, a.yaml; results: results/a\n"
