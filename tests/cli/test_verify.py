"""Damage of a results folder is reported, at any path; a sound folder passes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from run_stages import score_cell
from searchlens.cli.main import main
from searchlens.cli.verify import verify
from searchlens.errors import InputError
from searchlens.plan import Grid
from searchlens.sampling import generate
from searchlens.store import snapshots
from searchlens.store.ranges import shards_of, uncovered

CELL = ("toy-base", "sums")


@pytest.fixture
def results(grid: Grid, publish: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cell sampled and scored, with manifest and configuration; four shards."""
    monkeypatch.chdir(tmp_path)
    snapshots.save(grid.config)
    (pool,) = grid.jobs.pools(*CELL)
    for generation in pool.generations:
        publish(grid, *CELL, generation)
    generate(grid, *CELL, grid.current_manifest(pool))
    score_cell(grid, *CELL, grid.manifests(*CELL), grid.scores(*CELL))
    return grid.layout.results


def only(results: Path, pattern: str) -> Path:
    return sorted(results.glob(pattern))[0]


def test_a_sound_folder(results: Path) -> None:
    found = verify(results)
    assert (found.shards, found.manifests, found.damaged, found.notes) == (4, 1, [], [])
    assert found.tables >= 2, "scores and verdicts"


def test_a_copy_on_another_machine_is_sound_without_a_configuration(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copied without its times, under another name, with nothing else of the project beside it."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(results, elsewhere / "copied", copy_function=shutil.copyfile)
    shutil.rmtree(results)
    monkeypatch.chdir(elsewhere)
    assert main(["verify", "copied"]) == 0
    assert "4 shards, 1 manifest and" in capsys.readouterr().out


def test_no_file_that_matters_says_where_the_folder_lies(results: Path, tmp_path: Path) -> None:
    for path in results.rglob("*.json"):
        assert str(tmp_path) not in path.read_text(), path


def edit(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("pattern", "harm", "says"),
    [
        ("generations/*/*/*/*.json", lambda path: path.write_text("{"), "is damaged"),
        ("generations/*/*/*/*.json", lambda path: edit(path, lambda c: c.pop("sha256")), "has no key 'sha256'"),
        ("generations/*/*/*/*.json", lambda path: path.unlink(), "lists samples 0 to"),
        ("manifests/*/*/*.json", lambda path: path.write_text("[]"), "is not a manifest"),
        (
            "manifests/*/*/*.json",
            lambda path: edit(path, lambda c: c["generations"][0]["spec"].update(seed=1)),
            "does not have this id",
        ),
        ("config/*.json", lambda path: edit(path, lambda c: c.update(seed=1)), "whose hash is not its name"),
        ("scores/*/*.parquet", lambda path: path.write_bytes(path.read_bytes()[:-20]), "is not readable Parquet"),
    ],
    ids=["sidecar", "sidecar key", "lost sidecar", "manifest", "spec", "snapshot", "table"],
)
def test_what_was_harmed_is_named(results: Path, pattern: str, harm: Callable[[Path], Any], says: str) -> None:
    path = only(results, pattern)
    harm(path)
    found = verify(results)
    named = [line for line in found.damaged if str(path.with_suffix("")) in line or says.startswith("lists")]
    assert any(says in line for line in named)


def test_a_shard_whose_job_was_killed_before_its_sidecar_is_noted(results: Path, grid: Grid) -> None:
    stray = only(results, "generations/*/*/*/s00000-00004.parquet").with_name("s00004-00008.parquet")
    pl.DataFrame({"a": [1]}).write_parquet(stray)
    found = verify(results)
    (note,) = found.notes
    assert found.damaged == [] and note.startswith(f"{stray} has no sidecar: the next run takes it over")
    assert uncovered(shards_of(stray.parent), 8) == [(4, 8)]


def test_something_else_is_no_results_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a results folder"):
        verify(tmp_path)
