"""Tables of what both checkpoints say of texts: cross-likelihoods, bounds of Base's chance, and handover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from searchlens.analysis.bounds import FEWEST
from searchlens.analysis.claims import DASH, interval, number, percent
from searchlens.catalogue import table
from searchlens.errors import counted
from searchlens.reporting.tables import table as fmt
from searchlens.reporting.tables.study import LEVEL

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
    """What the tables are made from."""

    cells: Mapping[tuple[str, str], Mapping[str, pl.DataFrame] | str]
    """Pair and benchmark to frames by name (``catalogue.LIKELIHOOD_FRAMES``), or why there are none."""

    def of(self, name: str) -> pl.DataFrame:
        """One frame of all cells."""
        return pl.concat(
            fmt.named(frames[name], pair=pair, benchmark=benchmark)
            for (pair, benchmark), frames in self.cells.items()
            if not isinstance(frames, str)
        )

    @property
    def notes(self) -> list[str]:
        """Sentences under every table: the cells without frames."""
        return [f"Not scored: {'/'.join(cell)} ({why})." for cell, why in self.cells.items() if isinstance(why, str)]


@table("cross_likelihood", stage="likelihood")
def cross_likelihood(context: Likelihoods) -> fmt.Table:
    """How likely the texts of each side are under the other, and how log p of RL follows from log p of Base."""
    data = context.of("summary")
    notes = [
        "Texts of a policy at random, with their stop token, each after the scoring checkpoint's own prompt."
        " KL of Base's texts: KL(Base‖RL); of RL's: KL(RL‖Base). Samples: 1/p of such a text under the other side, the"
        " mean number of its samples until that text. Brackets: percentile bootstrap over questions at the configured"
        " level.",
        "Exploratory, within questions: log p_RL(y) = c_x + α log p_Base(y) + γ right(y). γ = 0 and α > 1: RL is a"
        " power of Base; α = 1: a tilt by the reward, 1/γ its temperature. Only Base's texts are not chosen by the left"
        " side.",
    ]
    parts = [
        fmt.block(_lines(data, columns), title=title)
        for title, columns in (("Texts of each side", _SHOWN), ("Regression within questions", _FITS))
    ]
    return fmt.Table(data, parts, notes)


@table("token_shift", stage="likelihood")
def token_shift(context: Likelihoods) -> fmt.Table:
    """Where in the texts of a side the other side would go on otherwise."""
    data = context.of("positions")
    lines = [
        {
            "pair": row["pair"],
            "benchmark": row["benchmark"],
            "texts of": OWN[row["texts"]],
            "part": f"tenth {row['tenth']}" if row["tenth"] else "whole",
            "moved": percent(row["moved"], row["moved_lo"], row["moved_hi"]),
            "first of the other": percent(row["first"], row["first_lo"], row["first_hi"]),
            "tokens": str(row["tokens"]),
        }
        for row in data.rows(named=True)
    ]
    notes = [
        "Percent of tokens. Moved: the other side gives the token at least twice or at most half the probability."
        " First of the other: it is the other side's most likely token. Brackets: percentile bootstrap over questions"
        " at the configured level.",
    ]
    return fmt.Table(data, [fmt.block(lines, "pair", "benchmark", "texts of")], notes)


def _lines(data: pl.DataFrame, columns: Mapping[str, tuple[str, int]]) -> list[fmt.Line]:
    lines = []
    rows = data.filter(pl.col("measure").is_in(list(columns)))
    for (pair, benchmark, texts), part in rows.group_by("pair", "benchmark", "texts", maintain_order=True):
        line = {"pair": str(pair), "benchmark": str(benchmark), "texts of": OWN[str(texts)]}
        for row in part.rows(named=True):
            heading, digits = columns[row["measure"]]
            line[heading] = interval(row["value"], row["lo"], row["hi"], digits)
        lines.append(line)
    return lines


# ---- bounds


def chance(value: float | None) -> str:
    """A probability with two digits that count, such as 0.00031; a dash if it is not known."""
    return number(value) if value is None else f"{value:.2g}"


@table("bounds", stage="likelihood")
def bounds(context: Likelihoods) -> fmt.Table:
    """How likely one sample of Base solves the questions that RL solves and Base's samples do not."""
    data = context.of("bounds")
    expanded = data.filter(pl.col("base_right") == 0, pl.col("rl_right") > 0)
    lines = [
        {
            "pair": row["pair"],
            "benchmark": row["benchmark"],
            "question": row["id"],
            "Base right": f"0 of {row['base_samples']}",
            "RL right": f"{row['rl_right']} of {row['rl_samples']}",
            "Base at least": chance(row["at_least"]),
            "at most": chance(row["at_most"]),
            "texts": str(row["right_texts"]),
            "another key": chance(row["wrong_key"]),
            "importance sampling": _estimate(row),
        }
        for row in expanded.rows(named=True)
    ]
    notes = [
        *(said(part) for _, part in data.group_by("pair", "benchmark", maintain_order=True)),
        "Chances of one sample of Base under the policy of the scored texts. At least: the sum of the probabilities of"
        " distinct right texts of either side, without sampling error, each lowered by the largest difference between"
        " two computations of log p. At most: 1 minus the same sum over wrong texts, or the Clopper-Pearson limit of"
        " Base's samples if that is lower; these limits hold for all questions of a benchmark together"
        f" {LEVEL}.",
        "Another key: the same sum for texts that the answer of another question would accept; a bound near it may be"
        f" chance. Importance sampling weighs both pools together, and is left out below {FEWEST:g} effective texts."
        " The CSV has all questions.",
    ]
    return fmt.Table(data, [fmt.block(lines, "pair", "benchmark", title="Expanded questions")], notes)


def _estimate(row: Mapping[str, float | None]) -> str:
    if row["estimate"] is None:
        return f"rests on {row['effective']:.1f} texts"
    return f"{chance(row['estimate'])} [{chance(row['lo'])}, {chance(row['hi'])}]"


def said(rows: pl.DataFrame) -> str:
    """What the bounds of one cell say of its expanded questions, in a sentence."""
    found = rows.filter(pl.col("base_right") == 0, pl.col("rl_right") > 0)
    where, drawn = f"{rows['pair'][0]}/{rows['benchmark'][0]}", rows["base_samples"][0]
    if found.is_empty():
        return f"{where}: RL solves no question that {drawn} samples of Base do not."
    known = found.filter(pl.col("at_least") > 0)["at_least"]
    first = f"{where}: {counted(found.height, 'question')} that RL solves and {drawn} samples of Base do not. "
    if known.is_empty():
        return first + "No right text is known that Base can draw, so nothing is known but the upper limits."
    most, least = sorted((1 / known.min(), 1 / known.max()), reverse=True)  # type: ignore[operator,arg-type]
    needed = f"{least:.3g}" if f"{most:.3g}" == f"{least:.3g}" else f"{least:.3g} to {most:.3g}"
    return (
        f"{first}Base can solve {len(known)} of them: its mean number of samples until a right one is at most {needed}."
    )


# ---- handover

_KINDS = {
    "rl_right": "RL's right texts",
    "base_right": "Base's right texts",
    "rl_wrong": "RL's wrong texts",
    "alone": "alone",
}
_AMONG = {
    "common": "Questions with a text of every kind",
    "all": "All questions that RL solves",
    "expanded": "Questions that no sample of Base solves",
}


@table("handover", stage="likelihood")
def handover(context: Likelihoods) -> fmt.Table:
    """How often Base ends right after the beginning of a text, in percent."""
    data = context.of("handover")
    lines = list(_handed(data))
    notes = [
        "Base continues beginnings of texts under its own policy. Cut: the share or number of the text's tokens that it"
        " is given; a shorter text is its own beginning. Alone: Base's own samples of these questions, without a"
        " beginning. Brackets: percentile bootstrap over questions at the configured level.",
        "A beginning of a right text also tells that this text ended right. So compare RL's right texts with Base's"
        " right texts, among questions with a text of every kind, and not with Base alone.",
        "Questions with a text of every kind were chosen for it: Base solved each at least once, so alone is too high.",
    ]
    splits = context.of("splits")
    return fmt.Table(
        fmt.stacked(curve=data, splits=splits), [fmt.block(lines, "pair", "benchmark", "questions")], notes
    )


def _handed(data: pl.DataFrame) -> Iterable[fmt.Line]:
    for pair, benchmark in data.select("pair", "benchmark").unique(maintain_order=True).rows():
        for among, title in _AMONG.items():
            rows = data.filter(pair=pair, benchmark=benchmark, among=among)
            alone = rows.filter(kind="alone")
            for (unit, at), part in rows.filter(pl.col("kind") != "alone").group_by("unit", "at", maintain_order=True):
                both = pl.concat([part, alone])
                values = {row["kind"]: row for row in both.rows(named=True)}
                yield {
                    "pair": pair,
                    "benchmark": benchmark,
                    "questions": f"{title} ({max(row['questions'] for row in values.values())})",
                    "cut": f"{100 * at:g}%" if unit == "fraction" else counted(int(at), "token"),  # type: ignore[operator,call-overload]
                    **{
                        name: percent(row["value"], row["lo"], row["hi"]) if (row := values.get(kind)) else DASH
                        for kind, name in _KINDS.items()
                    },
                }
