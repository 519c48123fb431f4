"""`searchlens diff`: what changed between two results folders, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from searchlens.analysis.claims import interval, number, percent
from searchlens.api.differences import EXACT, Differences

LINES = 20
"""Changes of one kind that are listed, the largest first, unless all are asked for."""
_SHARES = ("P", "Q", "B", "T", "D", "valid", "stopped", "truncated")
_PERCENT = ("pass@k", "Cover", "G-Pass", "mG-Pass", "guess")
_KINDS = {"same": "the same", "other": "others", "unknown": "unknown (counts alone)"}
_INTERVALS = {"exact": "the same samples", "paired": "paired over questions", "independent": "as if independent"}


def rendered(found: Differences, names: tuple[str, str], most: int | None = LINES) -> str:
    """What changed between two folders as text, largest differences first, at most ``most`` lines of a kind."""
    keys, compared = found.configuration, found.compared
    more = f" and {len(keys) - LINES} more" if len(keys) > LINES else ""
    configuration = f"configuration: other {', '.join(keys[:LINES])}{more}" if keys else "configuration: the same"
    lines = [f"A: {names[0]}", f"B: {names[1]}", configuration, *_cells(found)]
    counts = dict(found.samples["samples"].value_counts().iter_rows())
    parts = [f"{counts[kind]} {word}" for kind, word in _KINDS.items() if kind in counts]
    lines.append(f"samples, by cell and policy: {', '.join(parts) or 'none in both'}")
    points = _points(found.points, most)
    lines += _changes("operating points", points, compared["points"], most, found.points.height)
    lines += _changes("recovery verdicts", _verdicts(found.recoveries), compared["recoveries"], most)
    lines += _changes("readings", _readings(found.readings), compared["readings"], most)
    lines += _changes("sets of exponents", _sets(found.sets), compared["sets"], most)
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def _cells(found: Differences) -> Iterator[str]:
    words = {"added": "only in B", "removed": "only in A"}
    for row in found.cells.to_dicts():
        cell = f"{row['checkpoint']}/{row['benchmark']}"
        changed = f"{row['change']}: {row['a'] or 'unknown'} -> {row['b'] or 'unknown'}"
        yield f"cell {cell} {words.get(row['change'], changed)}"
    keys = ("checkpoint", "benchmark", "change")
    for (checkpoint, benchmark, change), rows in found.policies.group_by(keys, maintain_order=True):
        yield f"policies of {checkpoint}/{benchmark} {words[str(change)]}: {', '.join(rows['policy'])}"


def _changes(
    what: str, changes: list[tuple[float, str]], compared: int, most: int | None, changed: int | None = None
) -> Iterator[str]:
    changed = len(changes) if changed is None else changed
    yield f"{what}: {compared} in both, {changed} changed"
    ordered = [text for _, text in sorted(changes, key=lambda change: -change[0])]
    shown = ordered if most is None else ordered[:most]
    yield from (f"  {text}" for text in shown)
    if len(shown) < changed:
        yield f"  ... and {changed - len(shown)} more (--all)"


def _points(points: pl.DataFrame, most: int | None) -> list[tuple[float, str]]:
    """Changes of points: unless all are asked for, of P and Q, which do not depend on the order of samples."""
    first = pl.col("metric").is_in(["P", "Q"]) & (pl.col("readout") == "expected")
    rows = points if most is None else points.filter(first)
    name = "{checkpoint}/{benchmark} {policy} n={budget} {metric} {readout}"
    return [_line(name.format(**row), row, as_share=row["metric"] in _SHARES) for row in rows.to_dicts()]


def _readings(readings: pl.DataFrame) -> list[tuple[float, str]]:
    return [
        _line(
            f"{row['pair']}/{row['benchmark']} {'N*, ' if row['frame'] == 'equivalents' else ''}{row['what']}",
            row,
            as_share=row["frame"] == "measures" and row["what"].startswith(_PERCENT),
        )
        for row in readings.to_dicts()
    ]


def _line(name: str, row: Mapping[str, Any], *, as_share: bool) -> tuple[float, str]:
    """The size of a change, and the change in words; shares in percent, their differences in points."""
    show = percent if as_share else number
    change = f"{show(row['a'])} -> {show(row['b'])}"
    if row["difference"] is None:
        return float("inf"), f"{name}: {change} (a dash: below one sample, or beyond those there are)"
    lo, hi = (None, None) if row["interval"] == EXACT else (row["lo"], row["hi"])
    difference = row["difference"]
    value = percent(difference, lo, hi, "+") if as_share else interval(difference, lo, hi, 2, "+")
    size = abs(difference) * (100 if as_share else 1)
    how = _INTERVALS[row["interval"]] if row["lo"] is not None else "an end lies beyond the samples"
    return size, f"{name}: {change}, {value} {'points ' if as_share else ''}({how})"


def _verdicts(rows: pl.DataFrame) -> list[tuple[float, str]]:
    lines = []
    for row in rows.to_dicts():
        name = f"{row['pair']}/{row['benchmark']} {row['metric']} {row['readout']} N={row['budget']}"
        verdict = "inside -> outside" if row["inside_a"] else "outside -> inside"
        gaps = (percent(row[side], row[f"{side}_lo"], row[f"{side}_hi"], "+") for side in ("a", "b"))
        lines.append((0.0, f"{name}: RL {verdict}; RL − best of Base {' -> '.join(gaps)} points"))
    return lines


def _sets(rows: pl.DataFrame) -> list[tuple[float, str]]:
    lines = []
    for row in rows.to_dicts():
        sets = (
            "empty" if row[f"{side}_lo"] is None else f"{row[f'{side}_lo']:.2f} to {row[f'{side}_hi']:.2f}"
            for side in ("a", "b")
        )
        lines.append((0.0, f"{row['pair']}/{row['benchmark']} {row['policy']}: β {' -> '.join(sets)}"))
    return lines
