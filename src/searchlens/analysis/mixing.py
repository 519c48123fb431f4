"""Whether the chains of power sampling have mixed: what their own record can tell, and what it cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

RHAT = 1.1
"""Largest ratio at which chains count as mixed; the customary value (Gelman et al., Bayesian Data Analysis, 11.4)."""
RISE = 3.0
"""Standard errors above 0 from which on log p counts as rising."""

CHAINS = pl.Schema(
    {
        **dict.fromkeys(("checkpoint", "benchmark", "policy", "question"), pl.String()),
        **dict.fromkeys(("proposed", "accepted", "changed", "rejected_early", "logp_half", "logp_after"), pl.Float64()),
        **dict.fromkeys(("chain_mean", "chain_variance", "chain_states"), pl.Float64()),
    }
)
"""One chain: counts of its steps, and log p of its text as in the details of its sample (docs/search.md)."""

DETAILS = tuple(name for name, kind in CHAINS.items() if kind == pl.Float64())

MIXING = pl.Schema(
    {
        **dict.fromkeys(("checkpoint", "benchmark", "policy"), pl.String()),
        **dict.fromkeys(("questions", "chains"), pl.UInt32()),
        **dict.fromkeys(("accepted", "changed", "rise", "rise_error", "rhat"), pl.Float64()),
        "verdict": pl.String(),
    }
)


def mixing(chains: pl.DataFrame) -> pl.DataFrame:
    """``MIXING``: what the chains of each cell and policy (``CHAINS``, without nulls) say, in their order.

    ``accepted`` and ``changed`` are shares of the steps. ``rise`` is the mean of log p of the text after all steps
    minus that after half of them, in nats, and ``rise_error`` its standard error over questions; ``rhat`` is that of
    the function. The verdict is "not mixed" if ``rhat`` is above ``RHAT`` or the rise ``RISE`` standard errors above 0,
    "unknown" if no question has two chains, else "no sign".
    """
    rows = []
    for key, group in chains.group_by("checkpoint", "benchmark", "policy", maintain_order=True):
        rises = (pl.col("logp_after") - pl.col("logp_half")).mean().alias("rise")
        rise = group.group_by("question", maintain_order=True).agg(rises)["rise"]
        mean: float = rise.mean()  # type: ignore[assignment]
        error = float(np.std(rise.to_numpy(), ddof=1)) / math.sqrt(rise.len()) if rise.len() > 1 else None
        steps, ratio = int(group["proposed"].sum()), rhat(group)
        row = {
            **dict(zip(("checkpoint", "benchmark", "policy"), key, strict=True)),
            "questions": rise.len(),
            "chains": group.height,
            "accepted": int(group["accepted"].sum()) / steps,
            "changed": int(group["changed"].sum()) / steps,
            "rise": mean,
            "rise_error": error,
            "rhat": ratio,
        }
        is_rising = error is not None and mean > RISE * error
        verdict = "unknown" if ratio is None else "not mixed" if ratio > RHAT else "no sign"
        rows.append(row | {"verdict": "not mixed" if is_rising else verdict})
    return pl.DataFrame(rows, MIXING)


def rhat(chains: pl.DataFrame) -> float | None:
    """The potential scale reduction of log p, with one variance for all questions.

    None if no question has two chains. ``sqrt((n - 1) / n + B / W)``: W is the mean variance within a chain, B the mean
    over questions of the variance between the means of a question's chains; n is the smallest number of states. About 1
    if chains have mixed, as long chains of any start must; infinite if no chain moved and chains differ, 1 if nothing
    differs. Of each chain, ``chain_variance`` has divisor n - 1, and ``chain_states`` is n. Gelman and Rubin (1992),
    Inference from iterative simulation using multiple sequences, section 2.
    """
    several = chains.filter(pl.len().over("question") > 1)
    if several.is_empty():
        return None
    means = several.group_by("question", maintain_order=True).agg(variance=pl.col("chain_mean").var())
    between = means["variance"].to_numpy().mean()
    within = several["chain_variance"].to_numpy().mean()
    states = several["chain_states"].to_numpy().min()
    if within == 0:
        return math.inf if between > 0 else 1.0
    return math.sqrt((states - 1) / states + between / within)


def sentences(table: pl.DataFrame) -> Sequence[str]:
    """One sentence for each policy of a cell whose chains have not mixed."""
    return [
        f"{row['checkpoint']}/{row['benchmark']}: the chains of {row['policy']} have not mixed."
        for row in table.filter(verdict="not mixed").iter_rows(named=True)
    ]
