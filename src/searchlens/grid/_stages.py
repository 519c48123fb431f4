"""The code that a stage's outputs depend on."""

from __future__ import annotations

from pathlib import Path

from searchlens.store.hashing import digest, file_sha256

_STAGE_SOURCES = {
    "score": ("score.py", "benchmarks/*.py", "verdicts.py", "grading/*.py", "schemas.py"),
    "landscape": ("landscape*", "landscape/*.py", "uncertainty.py", "schemas.py"),
    "recovery": ("recovery*", "recovery/*.py", "uncertainty.py", "policies/*.py"),
    "figures": ("figures/*.py", "frames.py", "policies/*.py"),
    "boptr": (
        *("boptr/*.py", "uncertainty.py", "policies/*.py", "frames.py", "tables/*.py", "tables/boptr/*.py"),
        *("figures/build.py", "figures/context.py", "figures/style.py", "figures/boptr/*.py"),
    ),
    "equivalence": (
        *("equivalence/*.py", "search/*.py", "engines/*.py", "grading/*.py", "tables/*.py"),
        *("uncertainty.py", "landscape/subsets.py", "generate/_job.py"),
    ),
    "tables": ("tables/*.py", "figures/*.py", "frames.py", "policies/*.py"),
}


def stage_source(stage: str) -> str:
    """Hash of the code of a stage, so that editing it reruns the stage; sampling has ``GENERATION_VERSION`` instead."""
    package = Path(__file__).parents[1]
    paths = sorted(p for pattern in _STAGE_SOURCES[stage] for p in package.glob(pattern) if p.suffix == ".py")
    return digest({str(path.relative_to(package)): file_sha256(path) for path in paths}, 12)
