"""One job of the scripted engine in a process of its own: used by ``test_jobs``.

python tests/twin_job.py CONFIG.json FOLDER REPEATABLE PAUSE; prints how many requests it made. When it has answered
PAUSE of them it waits for FOLDER/go.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import rooms  # noqa: F401  # before the tests
from searchlens import sampling as stage
from searchlens.config.model import from_plain
from searchlens.plan import Grid
from searchlens.store import shards
from test_generate import CELL, Scripted

ENGINE = Scripted(repeatable=sys.argv[3] == "True")
PAUSE = int(sys.argv[4])


def start_engine(*_: Any, **__: Any) -> Scripted:
    """One request every 10 ms."""
    ENGINE.each_step = each_step
    return ENGINE


def each_step() -> None:
    time.sleep(0.01)
    while ENGINE.steps == PAUSE and not (Path(sys.argv[2]) / "go").exists():
        time.sleep(0.005)


stage._job.start_engine = start_engine
stage.Job.hardware = shards.Provenance(0.0, "cpu", 1, "scripted")  # without torch, which takes seconds to import

if __name__ == "__main__":
    grid = Grid(from_plain(json.loads(Path(sys.argv[1]).read_text())), Path(sys.argv[2]))
    (pool,) = grid.jobs.pools(*CELL)
    stage.generate(grid, *CELL, grid.current_manifest(pool))
    print(len(ENGINE.asked))
