"""What the laboratory adds to searchlens. Standard library only, because the planner imports it."""

from __future__ import annotations

from pathlib import Path

from searchlens.config.addons import Addon, Stage

_HERE = Path(__file__).parent
_EQUIVALENCE = "searchlens_lab.equivalence"

ADDON = Addon(
    package="searchlens_lab",
    commands="searchlens_lab.commands",
    captions=_HERE / "captions",
    sections={"equivalence": f"{_EQUIVALENCE}.plan"},
    declares=(f"{_EQUIVALENCE}.tables", "searchlens_lab.resident.engine"),
    stages={
        "equivalence": Stage(
            module=f"{_EQUIVALENCE}.comparisons",
            plan=f"{_EQUIVALENCE}.plan",
            rules=_HERE / "equivalence" / "equivalence.smk",
            tables=("equivalence", "equivalence_vllm"),
        )
    },
)
