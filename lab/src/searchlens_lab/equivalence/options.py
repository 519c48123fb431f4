"""Options of the comparison with other implementations: what is compared, on how much, and when two sides agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from searchlens.config.limits import Draws, Length, Natural, Positive, Strict


@dataclass(frozen=True, kw_only=True)
class EquivalenceOptions(Strict):
    """Comparison of our policies with other implementations (docs/equivalence.md), on the Base checkpoint of the first
    pair and the first benchmark of the study. The thresholds were set before the first comparison was run.
    """

    policies: Annotated[tuple[str, ...], Length(1)]
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
