"""Effects of policies on answer distributions."""

from __future__ import annotations

from dataclasses import dataclass

from searchlens.search.policy import parse


@dataclass(frozen=True)
class PolicyEffect:
    """Effect of a policy on an answer distribution."""

    concentration: float
    """Power to which answer probabilities are raised, > 0."""
    derail: float
    """Log-odds added to giving no valid answer."""
    tokens: float
    """Factor on the number of tokens per sample, > 0."""


def autoregressive(name: str) -> PolicyEffect:
    """The effect of an autoregressive policy, from its temperature and filters.

    Raises InputError for a name that ``search.policy.parse`` does not understand.
    """
    local = parse(name).local
    tail = 1 - local.top_p
    rank = 1 / local.top_k if local.top_k else 0.0
    concentration = max(local.temperature, 0.1) ** -0.6 * (1 + 0.8 * tail) * (1 + 0.8 * local.min_p) * (1 + rank)
    derail = 2 * (local.temperature - 1) - 4 * tail - 3 * local.min_p - 4 * rank
    return PolicyEffect(concentration, derail, tokens=1 + 0.05 * derail)
