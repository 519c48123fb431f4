"""One job of the scripted engine in a process of its own: used by ``test_jobs``.

python tests/twin_job.py CONFIG.json FOLDER REPEATABLE; prints how many requests it made.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from searchlens import generate as stage
from searchlens.grid import Grid
from searchlens.store import shards
from test_generate import CELL, Scripted

ENGINE = Scripted(repeatable=sys.argv[3] == "True")


def start_engine(*_: Any) -> Scripted:
    """One request every 10 ms."""
    ENGINE.each_step = lambda: time.sleep(0.01)
    return ENGINE


stage._job.start_engine = start_engine
stage.Job.hardware = shards.Provenance(0.0, "cpu", 1, "scripted")  # without torch, which takes seconds to import

if __name__ == "__main__":
    grid = Grid(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
    (pool,) = grid.pools(*CELL)
    stage.generate(grid, *CELL, grid.current_manifest(pool))
    print(len(ENGINE.asked))
