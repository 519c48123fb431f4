"""The generation ids and pools of every shipped study stay what they are: a change of an id samples the study again."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from searchlens.config import check
from searchlens.plan import Grid

GOLDEN = {
    "demo": ("5668ef917ac1", "37f3d1ce35f8"),
    "demo-full": ("a482b4c71fdf", "9757b53735cc"),
    "recorded": ("767ed3480769", "44136fa355b3"),
    "zoo": ("1e422dacb0d5", "19b2ca59efc9"),
    "vllm": ("07597064eca2", "975f7ceec65a"),
    "paper": ("4c2212439f4a", "6800eb4c444f"),
}
"""Digest of all ids, names and sample counts, and of all pools; of config/paper.yaml with nothing pinned.

Pools follow ``cost``: a new one starts other jobs over the same shards. A new id samples the study again.
"""


OF_THE_COHORT = pytest.mark.cohort


@pytest.mark.parametrize("name", [pytest.param(name, marks=OF_THE_COHORT if name == "zoo" else ()) for name in GOLDEN])
def test_every_id_and_pool_of_a_shipped_study_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    files = [*check.DEFAULT_FILES, f"config/{name}.yaml"]
    grid = Grid(replace(check.load(files), results="no-results", lock="no-lock.json"))
    ids = {
        "/".join(cell): [(g.id, g.policies, g.samples) for g in grid.jobs.streams(*cell)] for cell in grid.study.cells
    }
    pools = {
        "/".join(cell): [pool.name for pool in grid.jobs.pools(*cell)]
        for cell in grid.study.cells
        if grid.study.source(*cell) == "sampled"
    }
    for g in (g for cell in grid.study.cells for g in grid.jobs.streams(*cell)):
        controller = g.spec["policy"]["controller"]["name"]
        versions = {"mcts": 2} if controller == "mcts" else {}
        if controller != "autoregressive" and "stop_texts" in g.spec["template"]:
            versions["stop texts"] = 2
        assert g.spec.get("versions", {}) == versions
    assert (digest(ids), digest(pools)) == GOLDEN[name]


@pytest.mark.parametrize("names", [("recorded",), pytest.param(("zoo", "zoo-tables"), marks=OF_THE_COHORT)])
def test_committed_counts_are_those_of_the_shipped_studies(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study refuses recorded counts of other streams than its own; this would be noticed only when it is run."""
    monkeypatch.chdir(Path(__file__).parents[2])
    files = [*check.DEFAULT_FILES, *(f"config/{name}.yaml" for name in names)]
    grid = Grid(replace(check.load(files), results="no-results"))
    assert {grid.study.source(*cell) for cell in grid.study.cells} == {"recorded"}
    grid.check()


@OF_THE_COHORT
def test_committed_counts_of_power_sampling_are_those_of_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for config/zoo-power.yaml, which samples; with its recorded counts it samples nothing."""
    monkeypatch.chdir(Path(__file__).parents[2])
    power = check.load([*check.DEFAULT_FILES, "config/zoo.yaml", "config/zoo-power.yaml"])
    study = replace(power.study, sample=(), recorded_counts="resources/zoo/cohort/power")
    grid = Grid(replace(power, results="no-results", study=study))
    assert len(grid.study.cells) == 21 and {grid.study.source(*cell) for cell in grid.study.cells} == {"recorded"}
    grid.check()


def digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
