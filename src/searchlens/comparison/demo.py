"""Sample logs, which come with the package (demo_logs/README.md)."""

from __future__ import annotations

from pathlib import Path

from searchlens.comparison.logs import LogComparison, compare_logs

LOGS = Path(__file__).parent / "demo_logs"
HARNESSES = {"lm_eval": "lm-evaluation-harness", "inspect": "Inspect"}
"""Folder of logs to the harness that wrote them; the first is compared."""


def sample_logs(harness: str = next(iter(HARNESSES))) -> tuple[Path, Path]:
    """Folders of Base and of RL."""
    return LOGS / harness / "base", LOGS / harness / "rl"


def demo() -> LogComparison:
    """What is found in the sample logs, as ``searchlens compare --demo`` shows it: a toy pair on toy questions."""
    base, rl = sample_logs()
    return compare_logs([base], [rl])
