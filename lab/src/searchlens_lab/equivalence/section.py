"""Section ``equivalence`` of the configuration: its options, and checks that need other sections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from searchlens.errors import InputError
from searchlens.search.policy import Policy, from_spec
from searchlens_lab.equivalence.options import EquivalenceOptions

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
