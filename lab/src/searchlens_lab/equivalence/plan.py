"""What of a study is compared with references, its options, and what that depends on. The planner imports this."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from searchlens.config.limits import Draws, Limit, Natural, Positive, Strict
from searchlens.errors import InputError
from searchlens.search.policy import Policy, from_spec

if TYPE_CHECKING:
    from searchlens.plan import Grid


@dataclass(frozen=True, kw_only=True)
class EquivalenceOptions(Strict):
    """Comparison of our policies with other implementations (docs/equivalence.md), on the Base checkpoint of the first
    pair and the first benchmark of the study. The thresholds were set before the first comparison was run.
    """

    policies: Annotated[tuple[str, ...], Limit(min_length=1)]
    """Policies to compare: autoregressive ones, token beams, and searches whose evaluator reads likelihoods."""
    questions: Natural = 50
    """Number of questions to compare; 0 skips the comparison."""
    draws: Draws = 4000
    """Number of texts drawn from a language model small enough to enumerate, in tests of distributions."""
    chains: Draws = 2500
    """The same for power sampling, whose texts cost more; by chance alone its total variation from the target is then
    0.0075."""
    identical: ClassVar[float] = 1.0
    """Smallest share of equal tokens or texts where both sides see the same numbers."""
    output_match: ClassVar[float] = 0.75
    """Smallest share of equal texts of a local policy or a beam where two programs compute the logits."""
    answer_agreement: ClassVar[float] = 0.90
    """Smallest share of equal answers of a local policy."""
    accuracy_difference: ClassVar[float] = 0.10
    """Largest absolute difference between the accuracies of a search."""
    score_difference: ClassVar[float] = 0.001
    """Largest absolute difference between the scores of equal beams."""
    total_variation: ClassVar[float] = 0.02
    """Largest total variation of power sampling from its target."""
    p_value: ClassVar[float] = 0.001
    """Smallest p-value of a chi-square test that still counts as agreement."""
    engine_policies: tuple[str, ...] = ("temp_0.7", "topp0.95_t1.0")
    """Policies with one random candidate per run, whose pass@k is compared between engines if the checkpoint runs on
    vLLM. If the engines agree, all intervals of the differences cover 0 together with probability
    ``landscape.confidence``."""
    engine_samples: Positive = 16
    """Samples per question of these policies; the largest of ``budgets`` if that is more."""
    logprob_difference: ClassVar[float] = 0.001
    """Largest absolute difference between the log-probabilities of two engines after the same tokens, in float32; other
    types need more."""
    logprob_mean: ClassVar[float] = 0.0001
    """Largest mean of these differences."""


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


# ---- section ``equivalence`` of the configuration


RECORD = EquivalenceOptions
MEANING = "Comparison with other implementations"

LIKELIHOODS = ("mean_logprob", "sequence_logprob")
"""Evaluators that read likelihoods alone."""


def errors(config: Any) -> Iterator[str]:
    """Policies in this section that cannot be compared."""
    if config.equivalence is None:
        return
    for key, problem_of in (("policies", _reference_problem), ("engine_policies", _candidates_problem)):
        for name in getattr(config.equivalence, key):
            try:
                problem = problem_of(name, from_spec(name, config.policies.get(name)))
            except InputError as error:
                problem = "" if name in config.policies else error.message  # section policies reports its own
            if problem:
                yield f"equivalence.{key}: {problem}"


def _reference_problem(name: str, policy: Policy) -> str:
    """Why a policy has no reference; empty if it has one."""
    from searchlens_lab.equivalence.reference import SEARCHES

    compared = ("autoregressive", "beam", *SEARCHES)  # the first two are compared with transformers
    if policy.controller.name in compared and policy.evaluator.name in LIKELIHOODS:
        return ""
    return (
        f"{name!r} has no reference; there is one for controllers {', '.join(compared)} with evaluator"
        f" {' or '.join(LIKELIHOODS)}"
    )


def _candidates_problem(name: str, policy: Policy) -> str:
    """Why pass@k of a policy cannot be compared; empty if it can."""
    if policy.width == 1 and not policy.deterministic:
        return ""
    return f"{name!r} has no independent candidates, so its pass@k cannot be compared"
