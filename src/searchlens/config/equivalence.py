"""Cross checks of section ``equivalence``, which is ``equivalence.options.EquivalenceOptions``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from searchlens import policies
from searchlens.config.policies import policy
from searchlens.equivalence.options import COMPARED
from searchlens.errors import InputError

if TYPE_CHECKING:
    from searchlens.config.model import Config

LIKELIHOODS = ("mean_logprob", "sequence_logprob")
"""Evaluators that read likelihoods alone."""


def errors(config: Config) -> Iterator[str]:
    """Policies in this section that cannot be compared."""
    if config.equivalence is None:
        return
    for name in config.equivalence.policies:
        compared = _parsed(config, name)
        if isinstance(compared, str):
            yield f"equivalence.policies: {compared}"
        elif compared and (compared.controller.name not in COMPARED or compared.evaluator.name not in LIKELIHOODS):
            yield (
                f"equivalence.policies: {name!r} has no reference; there is one for controllers {', '.join(COMPARED)}"
                f" with evaluator {' or '.join(LIKELIHOODS)}"
            )
    for name in config.equivalence.engine_policies:
        sampled = _parsed(config, name)
        if isinstance(sampled, str):
            yield f"equivalence.engine_policies: {sampled}"
        elif sampled and (sampled.width > 1 or sampled.deterministic):
            yield (
                f"equivalence.engine_policies: {name!r} has no independent candidates, so its pass@k cannot be compared"
            )


def _parsed(config: Config, name: str) -> policies.Policy | str | None:
    """A policy, or the message about its name; None if the message stands in section ``policies`` already."""
    try:
        return policy(config, name)
    except InputError as error:
        return None if name in config.policies else error.message
