"""What is said of the mixing of chains, on chains of known law and through a table."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from searchlens.analysis.health import CHAINS, DETAILS, MIXING, mixing, rhat
from searchlens.engines.base import Sampling
from searchlens.reporting.tables.samples import mixing as mixing_table
from searchlens.search.driver import Result, run, start
from searchlens.search.policy import from_spec
from searchlens.search.task import Task
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel


def chains_of(levels: np.ndarray, policy: str = "power") -> pl.DataFrame:
    """Chains whose log p goes through ``levels``, shape (questions, chains, states)."""
    counts = {"proposed": 20, "accepted": 18, "changed": 3, "rejected_early": 1}
    names = {"checkpoint": "base", "benchmark": "math", "policy": policy, **counts}
    rows = [
        names
        | {"question": f"q{q}", "logp_half": states[0], "logp_after": states[-1], "chain_states": len(states)}
        | {"chain_mean": states.mean(), "chain_variance": states.var(ddof=1)}
        for q, question in enumerate(levels)
        for states in question
    ]
    return pl.DataFrame(rows, CHAINS, strict=False)


def test_rhat_is_that_of_the_textbook() -> None:
    """For one question against Gelman and Rubin's formula, written out; about 1 for draws from one law."""
    levels = np.random.default_rng(0).standard_normal((1, 4, 50)) + np.arange(4)[None, :, None]
    n, between = 50, 50 * levels[0].mean(1).var(ddof=1)
    within = levels[0].var(1, ddof=1).mean()
    wanted = math.sqrt(((n - 1) / n * within + between / n) / within)
    assert rhat(chains_of(levels)) == pytest.approx(wanted)
    mixed = np.random.default_rng(1).standard_normal((40, 16, 50)) + 100 * np.arange(40)[:, None, None]
    assert rhat(chains_of(mixed)) == pytest.approx(1.0, abs=0.01)


def test_extremes() -> None:
    """Chains that never move and differ; that never move and agree; one chain for each question."""
    still = np.zeros((3, 4, 5)) + np.arange(4)[None, :, None]
    assert rhat(chains_of(still)) == math.inf
    assert rhat(chains_of(np.zeros((3, 4, 5)))) == 1.0
    assert rhat(chains_of(np.random.default_rng(0).standard_normal((3, 1, 5)))) is None
    assert mixing(CHAINS.to_frame()).schema == MIXING


def test_verdicts() -> None:
    """A ratio above its limit, or a rise that is no noise; a single chain has no ratio but may rise."""
    noise = np.random.default_rng(2).standard_normal((40, 8, 30))
    rising = noise + np.linspace(0, 2, 30)
    apart = noise + 3 * np.arange(8)[None, :, None]
    frames = {"fine": noise, "rising": rising, "apart": apart, "alone": noise[:, :1], "alone rising": 3 * rising[:, :1]}
    found = mixing(pl.concat([chains_of(levels, name) for name, levels in frames.items()]))
    assert dict(found.select("policy", "verdict").iter_rows()) == {
        "fine": "no sign",
        "rising": "not mixed",
        "apart": "not mixed",
        "alone": "unknown",
        "alone rising": "not mixed",
    }
    assert found["accepted"].to_list() == [0.9] * 5 and found["changed"].to_list() == [0.15] * 5


@pytest.mark.parametrize(("steps", "verdict"), [(4, "not mixed"), (400, "no sign")])
def test_chains_on_a_small_model(steps: int, verdict: str) -> None:
    """Few steps are found out, and enough steps are not accused: several questions, 16 chains each."""
    model = ToyModel.random(19, vocab_size=3, scale=1.5, eos=-0.5)
    parts = {"controller": {"name": "power", "alpha": 2}, "scheduler": {"name": "blocks", "blocks": 1, "steps": steps}}
    policy = replace(from_spec("power", parts), local=Sampling(1.0))
    tasks = {
        (question, chain): Task((1, question), 100 * question + chain, 4, (EOS,), (), decode=str, answer=tuple)
        for question in range(3)
        for chain in range(16)
    }
    rows = []
    for (question, _), outcome in run(((key, start(task, policy)) for key, task in tasks.items()), ToyEngine(model)):
        assert isinstance(outcome, Result)
        details = json.loads(json.dumps(dict(outcome.candidates[0].details)))
        names = {"checkpoint": "base", "benchmark": "math", "policy": "power", "question": str(question)}
        rows.append(names | {name: details[name] for name in DETAILS})
    found = mixing(pl.DataFrame(rows, CHAINS, strict=False))
    assert found["verdict"].to_list() == [verdict]


def test_table_names_chains_that_have_not_mixed() -> None:
    noise = np.random.default_rng(2).standard_normal((5, 4, 30))
    apart = chains_of(noise + 3 * np.arange(4)[None, :, None], "power_t0.25")
    context: Any = SimpleNamespace(chains=apart)
    table = mixing_table(context)
    assert table.notes[0] == "base/math: the chains of power_t0.25 have not mixed."
    assert table.data["verdict"].to_list() == ["not mixed"]
    nothing: Any = SimpleNamespace(chains=CHAINS.to_frame())
    assert "No samples" in mixing_table(nothing).notes[0]
