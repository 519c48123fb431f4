"""The generation ids and pools of every shipped study stay what they are: a change of an id samples the study again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from searchlens import config
from searchlens.grid import Grid

GOLDEN = {
    "demo": "89dfa783719e",
    "recorded": "801d5b600969",
    "zoo": "3178f1beaf23",
    "vllm": "15c0b80a8755",
    "paper": "f8200288c6d4",
}
"""Digest of all ids, names, sample counts and pools; of config/paper.yaml with nothing pinned."""


@pytest.mark.parametrize("name", GOLDEN)
def test_every_id_and_pool_of_a_shipped_study_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[1]
    monkeypatch.chdir(root)
    files = [*config.DEFAULT_FILES, f"config/{name}.yaml"]
    plain = config.plain(config.load(files)) | {"results": "no-results", "lock": "no-lock.json"}
    grid = Grid(plain)
    ids = {"/".join(cell): [(g.id, g.policies, g.samples) for g in grid.streams(*cell)] for cell in grid.cells}
    pools = {
        "/".join(cell): [pool.name for pool in grid.pools(*cell)]
        for cell in grid.cells
        if grid.source(*cell) == "sampled"
    }
    found = hashlib.sha256(json.dumps([ids, pools], sort_keys=True).encode()).hexdigest()[:12]
    assert found == GOLDEN[name]
