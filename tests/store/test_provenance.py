"""Every shard and table says what made it, and nothing of that is content."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from run_stages import landscape_cell, recovery_cell, score_cell
from searchlens import __version__
from searchlens.config.health import HealthOptions
from searchlens.plan import Grid
from searchlens.reporting.tables.samples import provenance as provenance_table
from searchlens.reporting.tables.study import StudyContext
from searchlens.reporting.tables.table import write
from searchlens.store import provenance

PACKAGE = Path(provenance.__file__).parents[1]
CELLS = (("toy-base", "sums"), ("toy-rl", "sums"))


def test_the_commit_is_that_of_the_checkout() -> None:
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        pytest.skip("not a git checkout")
    assert re.fullmatch(rf"{asked.stdout.strip()}(-dirty)?", provenance.commit())


def test_outside_of_a_checkout_there_is_no_commit_and_without_a_package_no_version(tmp_path: Path) -> None:
    """Also where the environment lies in a repository that does not track it; as matplotlib, where nothing is drawn."""
    shutil.copytree(PACKAGE, tmp_path / "searchlens", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import importlib.metadata as m\nfrom searchlens.store import provenance\nfound = m.version\n"
        "def version(name):\n    if name == 'matplotlib': raise m.PackageNotFoundError(name)\n    return found(name)\n"
        "m.version = provenance.version = version\n"
        "print([provenance.commit()], 'matplotlib' in provenance.made('')['versions'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for command in (["true"], ["git", "init", "-q", str(tmp_path)]):
        subprocess.run(command, check=True)
        said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert said.stdout == "[''] False\n"


def test_the_node_is_slurms_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    assert provenance.host() == socket.gethostname()
    monkeypatch.setenv("SLURMD_NODENAME", "node7")
    assert provenance.host() == "node7"
    assert len(provenance.config_fingerprint(HealthOptions())) == 12, "the name of the configuration's file"


def test_what_can_change_a_number_is_recorded(tmp_path: Path) -> None:
    """Versions of the libraries that compute; what is empty is left out, but for the cost, which may be unknown."""
    provenance.sign(tmp_path / "signed.json", "abc", None, grader={"name": "math"}, nothing="")
    signed = json.loads((tmp_path / "signed.json").read_text())
    assert {"searchlens", "python", "polars", "numpy", "scipy", "pyarrow"} <= signed["versions"].keys()
    assert signed["versions"]["polars"] == pl.__version__
    assert (signed["config"], signed["grader"], signed["samples"]) == ("abc", {"name": "math"}, None)
    assert "nothing" not in signed
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", signed["finished"])


def test_names_are_joined_once_and_in_order() -> None:
    assert provenance.join(["b", "", "a", "b"]) == "b; a"


def sidecar(**more: Any) -> dict[str, Any]:
    counts = {"rows": 10, "tokens": 50, "generated": 60, "wall_seconds": 3600.0, "gpu_seconds": 7200.0}
    return {**counts, "device": "cuda (X)", "device_count": 2, **more}


def test_what_several_shards_took_by_hand() -> None:
    machines = [sidecar(host="a; b"), sidecar(host="b", device="cpu", gpu_seconds=0.0), sidecar()]
    found = provenance.spent(machines)
    assert (found["shards"], found["samples"], found["generated"]) == (3, 30, 180)
    assert (found["wall_seconds"], found["gpu_seconds"]) == (3 * 3600, 2 * 7200)
    assert (found["hosts"], found["devices"], found["commits"]) == (["a", "b"], ["cpu", "cuda (X)"], [])
    twice = provenance.together([found, None, found])
    assert twice["samples"] == 60 and twice["hosts"] == ["a", "b"]


def test_the_table_of_the_report(tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567-dirty"
    made = {"versions": {"searchlens": "1.2"}, "commit": commit, "config": "abc", "host": "h", "finished": "now"}
    spent = {"base": provenance.spent([sidecar(commit=commit, host="n1", version="1.2")])}
    nothing: dict[str, Any] = {name: pl.DataFrame() for name in ("widths", "costs")}
    nothing |= {name: {} for name in ("points", "models", "sources", "judges", "agreement")}
    context = StudyContext(default_policy="", cells=(), spent=spent, made=made, **nothing)
    table = provenance_table(context)
    row = table.data.row(0, named=True)
    assert (row["checkpoint"], row["hosts"], row["gpu_h"], row["wall_h"]) == ("base", "n1", 2, 1)
    assert row["commits"] == commit
    assert table.text["commit"].to_list() == ["0123456789ab-dirty"]
    assert table.notes == ["Tables: searchlens 1.2, commit 0123456789ab-dirty; configuration abc; on h, now."]
    csv, *_ = write(table, tmp_path / "provenance")
    assert pl.read_csv(csv, schema=table.data.schema).equals(table.data)
    assert provenance_table(replace(context, spent={})).data.height == 0, "nothing was sampled here"


def test_derived_files_say_what_their_samples_took(grid: Grid, publish: Callable[..., Any]) -> None:
    """From shards to scores, landscapes and recovery, without a change to any of them."""
    for cell in CELLS:
        for generation in grid.jobs.generations(*cell):
            publish(grid, *cell, generation)
        (pool,) = grid.jobs.pools(*cell)
        manifest = grid.current_manifest(pool)
        manifest.parent.mkdir(parents=True)
        entries = [{"id": g.id, "policies": g.policies, "samples": g.samples} for g in pool.generations]
        manifest.write_text(json.dumps({"generations": entries}))
        score_cell(grid, *cell, [manifest], grid.scores(*cell))
        landscape_cell(grid, "sums", grid.scores(*cell), grid.layout.results / "landscape" / cell[0] / "sums")
    landscape = grid.layout.results / "landscape"
    results = grid.layout.results
    recovery_cell(grid, landscape / "toy-base/sums", landscape / "toy-rl/sums", results / "recovery/toy/sums")
    derived = [f"{folder}/provenance.json" for folder in ("landscape/toy-base/sums", "recovery/toy/sums")]
    signatures = [json.loads((results / where).read_text()) for where in ("scores/toy-base/sums.json", *derived)]
    assert [signature["samples"]["samples"] for signature in signatures] == [78, 78, 156]
    assert [signature["samples"]["wall_seconds"] for signature in signatures] == [4 * 1.5, 4 * 1.5, 8 * 1.5]
    for signature in signatures:
        assert signature["versions"]["searchlens"] == __version__ and "polars" in signature["versions"]
        assert signature["config"] == provenance.config_fingerprint(grid.config)
        assert signature["host"] and signature["wall_seconds"] > 0
