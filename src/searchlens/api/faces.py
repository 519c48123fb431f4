"""Studies and comparisons as HTML, for notebooks, and the light drawing of pass@k that compare's page has, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from searchlens.analysis.claims import percent
from searchlens.analysis.measures import BASE, LUCK, PASS, RL
from searchlens.api import pages
from searchlens.api.statements import Statement

_BROKEN = "not interpretable"
_COLOURS = {BASE: "light-dark(#2166ac, #78b4e8)", RL: "light-dark(#b2182b, #f4877e)"}


def study(results: str, fingerprint: str, cells: pl.DataFrame, pairs: pl.DataFrame, gaps: pl.DataFrame | None) -> str:
    """The cells of a study and the gap of its pairs; ``gaps`` is None if there is no recovery analysis yet."""
    found = pl.DataFrame(schema=["budget"]) if gaps is None else gaps
    budgets = found["budget"].unique().sort().to_list()
    broken = set(pairs.filter(pl.col("health") == _BROKEN).select("pair", "benchmark").iter_rows())
    shown: dict[tuple[str, str], dict[int, str]] = {}
    for row in found.iter_rows(named=True):
        cell = (row["pair"], row["benchmark"])
        text = _BROKEN if cell in broken else percent(row["rl_minus_base"], row["lo"], row["hi"], "+")
        shown.setdefault(cell, {})[row["budget"]] = text
    return pages.rendered(
        "api/study.html.j2",
        results=results,
        fingerprint=fingerprint,
        heads=["pair", "benchmark", *(f"RL − Base at {budget}" for budget in budgets)],
        gaps=[[*cell, *(texts.get(budget, "") for budget in budgets)] for cell, texts in shown.items()],
        columns=cells.columns,
        cells=[["" if value is None else value for value in row] for row in cells.iter_rows()],
    )


def comparison(said: Sequence[Statement], measures: pl.DataFrame) -> str:
    """What each reading can and cannot say, and pass@k of both sides."""
    statements = [(each.reading, each.can, each.cannot) for each in said]
    return pages.rendered("api/comparison.html.j2", statements=statements, curves=curves(measures))


def curves(measures: pl.DataFrame) -> dict[str, Any] | None:
    """pass@k of both sides with their bands, and their luck, as points of the picture; None of a single k."""
    known, luck = measures.filter(measure=PASS), measures.filter(measure=LUCK)
    ks: list[int] = known["k"].unique().sort().to_list()
    if len(ks) < 2:
        return None

    def x(k: int) -> float:
        """Every doubling is as wide as any other: the k are powers of two."""
        return round(54 + 494 * (k.bit_length() - 1) / (ks[-1].bit_length() - 1), 1)

    def y(share: float) -> float:
        return round(12 + 248 * (1 - share), 1)

    def points(rows: pl.DataFrame, end: str) -> list[str]:
        return [f"{x(k)},{y(value)}" for k, value in rows.select("k", end).sort("k").drop_nulls().iter_rows()]

    sides = []
    for side, colour in _COLOURS.items():
        rows = known.filter(side=side)
        drawn = {
            "band": [*points(rows, "hi"), *reversed(points(rows, "lo"))],
            "line": points(rows, "value"),
            "luck": points(luck.filter(side=side), "value"),
        }
        sides.append({"colour": colour, **{name: " ".join(line) for name, line in drawn.items()}})
    return {
        "shares": [(f"{share:.0%}", y(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        "ks": [(k, x(k)) for k in ks],
        "sides": sides,
        "is_lucky": not luck.is_empty(),
    }
