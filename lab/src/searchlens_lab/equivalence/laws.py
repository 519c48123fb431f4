"""Distributions: texts drawn from a language model small enough to enumerate, against the exact law.

Local policies run through the sampler of the engine, power sampling also through driver and controller. The law of a
local policy is the product, along every text, of the plain distributions of :mod:`searchlens_lab.equivalence.explicit`.
"""

from __future__ import annotations

from collections import Counter

from searchlens.search.autoregressive import Autoregressive
from searchlens.search.driver import Failure, run, start
from searchlens.search.policy import Policy
from searchlens.search.power import PowerSampling
from searchlens.search.smc import Lookahead, SequentialMonteCarlo
from searchlens.search.task import Task
from searchlens.seeds import child
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel, enumerate_texts
from searchlens_lab.equivalence.plan import EquivalenceOptions
from searchlens_lab.equivalence.subject import texts_of
from searchlens_lab.equivalence.tables import ComparisonRow, Law, TableName, chi_square, total_variation

ENUMERATION = "exact enumeration"
PROMPT = (1, 2)
LOCAL, LOCAL_LIMIT = ToyModel.random(1, vocab_size=32, scale=1.5), 2
"""About a thousand texts of one or two tokens, with probabilities over several orders of magnitude; enough tokens for a
top-k of 20."""
POWER, POWER_LIMIT = ToyModel.random(2, vocab_size=3, scale=0.7), 4
"""Few and short texts, so that few chains suffice to measure a total variation."""


def compare(name: str, policy: Policy, options: EquivalenceOptions) -> list[ComparisonRow]:
    """Chi-square of a local policy; total variation of a sampler of p^alpha from its target.

    Power sampling has a chi-square, too. The other samplers tend to the target with more particles or rollouts, so that
    enough of them would find what is left of the distance; their row is a total variation alone.
    """
    if isinstance(policy.controller, Autoregressive):
        counts, _ = draws(LOCAL, policy, options.draws, LOCAL_LIMIT)
        drawable = enumerate_texts(LOCAL, PROMPT, LOCAL_LIMIT, sampling=policy.local)
        return [_chi_square("local", name, counts, drawable, options)]
    counts, _ = draws(POWER, policy, options.chains, POWER_LIMIT)
    law = target(POWER, policy, POWER_LIMIT)
    statistic, distance = "total variation", total_variation(counts, law)
    n, threshold = counts.total(), options.total_variation
    row = ComparisonRow("tier34", name, ENUMERATION, statistic, n, "chains", distance, "at most", threshold)
    if not isinstance(policy.controller, PowerSampling):
        return [row]
    return [row, _chi_square("tier34", name, counts, law, options)]


def has_law(policy: Policy) -> bool:
    """Whether a search samples p^alpha; mode ``reference`` of power sampling does not converge to it."""
    if isinstance(policy.controller, PowerSampling):
        return policy.controller.mode == "exact"
    return isinstance(policy.controller, SequentialMonteCarlo | Lookahead)


def _chi_square(
    table: TableName, name: str, counts: Counter[tuple[int, ...]], law: Law, options: EquivalenceOptions
) -> ComparisonRow:
    unit = "texts" if table == "local" else "chains"
    value, threshold = chi_square(counts, law), options.p_value
    return ComparisonRow(
        table, name, ENUMERATION, "p of chi-square", counts.total(), unit, value, "at least", threshold
    )


def draws(
    model: ToyModel, policy: Policy, count: int, limit: int, stream: str = "equivalence"
) -> tuple[Counter[tuple[int, ...]], float]:
    """How often each text is the best candidate of ``count`` runs, and the mean tokens drawn for one."""
    seeds = [child(0, stream, number) for number in range(count)]
    tasks = [Task(PROMPT, seed, limit, (EOS,), (), decode=str, answer=tuple) for seed in seeds]
    counts: Counter[tuple[int, ...]] = Counter()
    generated = 0
    for _, outcome in run(((task.seed, start(task, policy)) for task in tasks), ToyEngine(model)):
        if isinstance(outcome, Failure):
            raise RuntimeError(outcome.reason)
        counts.update(texts_of(outcome.candidates[:1]))
        generated += outcome.usage.generated
    return counts, generated / count


def target(model: ToyModel, policy: Policy, limit: int) -> Law:
    """The normalised p^alpha over the texts that the local policy can draw."""
    p = enumerate_texts(model, PROMPT, limit)
    alpha = float(policy.controller.parameters["alpha"])
    weights = {text: p[text] ** alpha for text in enumerate_texts(model, PROMPT, limit, sampling=policy.local)}
    return {text: weight / sum(weights.values()) for text, weight in weights.items()}
