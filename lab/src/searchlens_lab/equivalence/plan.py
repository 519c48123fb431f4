"""What of a study is compared with references, and what that depends on. The planner imports this."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from searchlens_lab.equivalence.options import EquivalenceOptions

if TYPE_CHECKING:
    from searchlens.plan import Grid


def options_of(grid: Grid) -> EquivalenceOptions:
    """Section ``equivalence`` of a study that compares something."""
    section: EquivalenceOptions = grid.config.equivalence  # type: ignore[attr-defined]
    return section


def compared(grid: Grid) -> tuple[str, str] | None:
    """(checkpoint, benchmark) of the comparison, on the Base of the first pair; None if the study has none."""
    section: EquivalenceOptions | None = getattr(grid.config, "equivalence", None)
    study = grid.config.study
    if section is None or not section.questions or not study.pairs or not study.benchmarks:
        return None
    return grid.config.pairs[study.pairs[0]].base, study.benchmarks[0]


def is_on_vllm(grid: Grid) -> bool:
    """Whether the compared checkpoint runs on vLLM, whose engine is then compared with the embedded one, too."""
    cell = compared(grid)
    return cell is not None and grid.config.checkpoints[cell[0]].engine == "vllm"


def made(grid: Grid) -> tuple[str, ...]:
    """Stages of the tables that a study makes."""
    return ("equivalence",) * (compared(grid) is not None) + ("equivalence_vllm",) * is_on_vllm(grid)


def needs(grid: Grid) -> dict[str, Any]:
    """Parameters of the comparison; empty if the study has none."""
    cell = compared(grid)
    if cell is None:
        return {}
    checkpoint, benchmark = cell
    section = options_of(grid)
    return {
        "weights": grid.inputs.fingerprint(checkpoint),
        "engine": grid.config.checkpoints[checkpoint].engine,
        "golds": grid.inputs.content_hash(benchmark),
        "policies": {name: policy.resolved() for name in section.policies if (policy := grid.jobs.policy(name))},
        "section": section,
        "budgets": grid.config.budgets,
        "confidence": grid.config.landscape.confidence,
    }
