"""Studies and comparisons as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import polars as pl

from searchlens.claims import percent

_BROKEN = "not interpretable"


def study(results: str, fingerprint: str, cells: pl.DataFrame, pairs: pl.DataFrame, gaps: pl.DataFrame | None) -> str:
    """Cells of a study, and the gap of its pairs.

    Parameters
    ----------
    results, fingerprint : str
    cells, pairs : DataFrame
        ``Study.cells``, ``Study.pairs``.
    gaps : DataFrame or None
        ``Study.gaps``; None if there is no recovery analysis yet.
    """
    head = f"<p><b>{escape(results)}</b>, configuration {escape(fingerprint)}</p>"
    return head + _gaps(pairs, gaps) + table(cells.columns, cells.iter_rows())


def _gaps(pairs: pl.DataFrame, gaps: pl.DataFrame | None) -> str:
    if gaps is None or not gaps.height:
        return "<p>No recovery analysis yet.</p>"
    budgets = gaps["budget"].unique().sort().to_list()
    broken = set(pairs.filter(pl.col("health") == _BROKEN).select("pair", "benchmark").iter_rows())
    shown: dict[tuple[str, str], dict[int, str]] = {}
    for row in gaps.iter_rows(named=True):
        cell = (row["pair"], row["benchmark"])
        text = _BROKEN if cell in broken else percent(row["rl_minus_base"], row["lo"], row["hi"], "+")
        shown.setdefault(cell, {})[row["budget"]] = text
    heads = ["pair", "benchmark", *(f"RL − Base at {budget}" for budget in budgets)]
    rows = [[*cell, *(texts.get(budget, "") for budget in budgets)] for cell, texts in shown.items()]
    note = "<p>pass@k under the default policy, percentage points [95% unless configured otherwise, over questions]</p>"
    return table(heads, rows) + note


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table; every text is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    return escape(f"{value:.4g}" if isinstance(value, float) else str(value))
