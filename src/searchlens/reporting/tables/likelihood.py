"""Table of cross-likelihoods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from searchlens.analysis.claims import interval
from searchlens.catalogue import table
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.format import Line
from searchlens.reporting.tables.table import Table

OWN = {"base": "Base", "rl": "RL", "both": "both"}
"""Whose texts they are, as printed."""
_SHOWN = {
    "tokens": ("tokens", 1),
    "kl_text": ("KL, nats a text", 2),
    "kl_token": ("KL, nats a token", 3),
    "entropy_token": ("entropy, nats a token", 3),
    "perplexity_base": ("perplexity, Base", 2),
    "perplexity_rl": ("perplexity, RL", 2),
    "log10_samples_q50": ("log10 samples, median", 2),
    "log10_samples_q90": ("log10 samples, 90%", 2),
}
_FITS = {
    "alpha": ("α", 2),
    "gamma": ("γ", 2),
    "r2": ("R²", 3),
    "alpha_power": ("α, γ = 0", 2),
    "r2_power": ("R², γ = 0", 3),
    "gamma_tilt": ("γ, α = 1", 2),
    "r2_tilt": ("R², α = 1", 3),
}
"""Reading to its heading and decimal places."""


@dataclass(frozen=True)
class Likelihoods:
    """What the table is made from."""

    summaries: Mapping[tuple[str, str], pl.DataFrame | str]
    """Pair and benchmark to ``likelihood.summary.SUMMARY``, or why there is none."""
    notes: Sequence[str] = ()
    """Sentences under the table."""


@table("cross_likelihood", stage="likelihood")
def cross_likelihood(context: Likelihoods) -> Table:
    """How likely the texts of each side are under the other, and how log p of RL follows from log p of Base."""
    data = pl.concat(
        fmt.named(frame, pair=pair, benchmark=benchmark)
        for (pair, benchmark), frame in context.summaries.items()
        if isinstance(frame, pl.DataFrame)
    )
    reasons = {cell: reason for cell, reason in context.summaries.items() if isinstance(reason, str)}
    notes = [
        "Texts at temperature 1 without filters, with their stop token, each after the scoring checkpoint's own prompt."
        " KL of Base's texts: KL(Base‖RL); of RL's: KL(RL‖Base). Samples: 1/p of such a text under the other side, the"
        " mean number of its samples until that text. Brackets: percentile bootstrap over questions at the configured"
        " level.",
        "Exploratory, within questions: log p_RL(y) = c_x + α log p_Base(y) + γ right(y). γ = 0 and α > 1: RL is a"
        " power of Base; α = 1: a tilt by the reward, 1/γ its temperature. Only Base's texts are not chosen by the left"
        " side.",
        *(f"Not scored: {'/'.join(cell)} ({reason})." for cell, reason in reasons.items()),
    ]
    parts = [
        fmt.block(_lines(data, columns), title=title)
        for title, columns in (("Texts of each side", _SHOWN), ("Regression within questions", _FITS))
    ]
    return Table(data, parts, notes)


def _lines(data: pl.DataFrame, columns: Mapping[str, tuple[str, int]]) -> list[Line]:
    lines = []
    rows = data.filter(pl.col("reading").is_in(list(columns)))
    for (pair, benchmark, texts), part in rows.group_by("pair", "benchmark", "texts", maintain_order=True):
        line = {"pair": str(pair), "benchmark": str(benchmark), "texts of": OWN[str(texts)]}
        for row in part.rows(named=True):
            heading, digits = columns[row["reading"]]
            line[heading] = interval(row["value"], row["lo"], row["hi"], digits)
        lines.append(line)
    return lines
