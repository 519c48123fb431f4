"""What changed between two results folders: cells, samples, operating points, verdicts and measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl

from searchlens.analysis.uncertainty import Floats, Interval, Resamples, with_width
from searchlens.api.study import Study
from searchlens.config.model import plain
from searchlens.errors import InputError

Record = dict[str, Any]
Cell = tuple[str, str]

EXACT, PAIRED, INDEPENDENT = "exact", "paired", "independent"
"""How the interval of a difference was made: none is needed, the samples are the same; bootstrap over questions that
both share; from the two intervals, as if the results had nothing in common, which is too wide if they have."""

SAME = 1e-9
"""Values that differ by less are equal."""
DRAWS = 2000
_CELL = ("checkpoint", "benchmark", "source", "health")
_POINT = ("policy", "budget", "metric", "estimator")
_UNBIASED = "_unbiased"


@dataclass(frozen=True, eq=False)
class Differences:
    """What changed from A to B; differences are B minus A."""

    configuration: list[str]
    """Keys whose values differ, such as ``measures.draws``."""
    cells: pl.DataFrame
    """checkpoint, benchmark, change (``added``, ``removed``, ``source``, ``health``), a, b."""
    policies: pl.DataFrame
    """checkpoint, benchmark, policy, change (``added``, ``removed``), of cells that both have."""
    samples: pl.DataFrame
    """checkpoint, benchmark, policy, samples: ``same`` (equal ids, numbers), ``other``, ``unknown`` (counts alone)."""
    points: pl.DataFrame
    """Points that changed: ``POINTS``."""
    recoveries: pl.DataFrame
    """pair, benchmark, metric, estimator, budget, inside_a, inside_b, and the gaps a and b with their ends: budgets at
    which RL was inside of Base's landscape and is no longer, or the other way round."""
    measures: pl.DataFrame
    """Measures that changed: ``MEASURES``."""
    sets: pl.DataFrame
    """pair, benchmark, policy, a_lo, a_hi, b_lo, b_hi: sets of exponents that changed; null ends: empty."""
    compared: dict[str, int]
    """How many points, recoveries, measures and sets both have."""
    notes: list[str]
    """What could not be compared, and why."""

    @property
    def frames(self) -> dict[str, pl.DataFrame]:
        """All frames by name."""
        names = ("cells", "policies", "samples", "points", "recoveries", "measures", "sets")
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> Record:
        """Everything as plain types, for JSON."""
        frames = {name: frame.to_dicts() for name, frame in self.frames.items()}
        return {"configuration": self.configuration, **frames, "compared": self.compared, "notes": self.notes}


def differences(a: Study, b: Study) -> Differences:
    """Compare two results folders. What only one of them has is named, what neither has is left out.

    A difference of estimates of other samples of the same questions has a paired bootstrap over these, as a gap of
    recovery has. Where questions differ or values of single questions are not stored, its interval is made from those
    of A and B (``apart``). Equal generation ids have equal samples: such a difference has no sampling error, and its
    interval is the difference itself.
    """
    notes: list[str] = []
    rows = [{row[:2]: row[2:] for row in study.cells.select(_CELL).iter_rows()} for study in (a, b)]
    cells = {cell: (_policies(a, cell), _policies(b, cell)) for cell in rows[0] if cell in rows[1]}
    policies, samples = [], []
    for cell, (first, second) in cells.items():
        policies += [(*cell, name, "added") for name in second if name not in first]
        policies += [(*cell, name, "removed") for name in first if name not in second]
        ours, theirs = a.streams(*cell), b.streams(*cell)
        for name in (name for name in first if name in second):
            known = name in ours and name in theirs
            samples.append((*cell, name, "unknown" if not known else "same" if ours[name] == theirs[name] else "other"))
    same = {(*cell, policy) for *cell, policy, kind in samples if kind == "same"}
    exact = {
        (pair, benchmark)
        for pair, benchmark, *sides in b.sides
        if all((side, benchmark) in cells for side in sides)
        and all((side, benchmark, policy) in same for side in sides for policy in chain(*cells[side, benchmark]))
    }
    found = [_points(a, b, cell, same, notes) for cell in cells]
    recoveries, verdicts = _recoveries(a, b, notes)
    measures, read = _measures(a, b, exact, notes)
    sets, tested = _sets(a, b, notes)
    return Differences(
        sorted(_keys(plain(a.config), plain(b.config))),
        _changed_cells(*rows),
        _texts(policies, "policy", "change"),
        _texts(samples, "policy", "samples"),
        pl.concat([POINTS.to_frame(), *(frame for frame, _ in found)]),
        recoveries,
        measures,
        sets,
        {"points": sum(count for _, count in found), "recoveries": verdicts, "measures": read, "sets": tested},
        notes,
    )


def apart(a: Floats, of_a: Interval, b: Floats, of_b: Interval) -> Interval:
    """Interval of b - a from an interval of each, at one confidence, as if they were independent; NaN where any end is.

    The distance from an estimate to an end stands for the spread on that side (MOVER; Zou and Donner 2008, Stat. Med.
    27, 1693-1702). Where A and B share questions, they are usually alike, and the interval is too wide.
    """
    down = np.sqrt((b - of_b.lo) ** 2 + (of_a.hi - a) ** 2)
    up = np.sqrt((of_b.hi - b) ** 2 + (a - of_a.lo) ** 2)
    return Interval(b - a - down, b - a + up)


# ---- cells and samples


def _keys(a: Any, b: Any, place: str = "") -> Iterator[str]:
    """Keys of a configuration whose values differ, as deep as both are mappings."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in a.keys() | b.keys():
            yield from _keys(a.get(key), b.get(key), f"{place}.{key}" if place else str(key))
    elif a != b and place != "results":
        yield place


def _changed_cells(a: Mapping[Cell, Sequence[str]], b: Mapping[Cell, Sequence[str]]) -> pl.DataFrame:
    """From the source and the health of each cell."""
    rows: list[tuple[str | None, ...]] = [(*cell, "added", None, b[cell][0]) for cell in b if cell not in a]
    rows += [(*cell, "removed", a[cell][0], None) for cell in a if cell not in b]
    for cell in (cell for cell in a if cell in b):
        both = zip(_CELL[2:], a[cell], b[cell], strict=True)
        rows += [(*cell, key, first, second) for key, first, second in both if first != second]
    return _texts(rows, "change", "a", "b")


def _texts(rows: Sequence[tuple[str | None, ...]], *names: str) -> pl.DataFrame:
    return pl.DataFrame(rows, dict.fromkeys(("checkpoint", "benchmark", *names), pl.String), orient="row")


def _policies(study: Study, cell: Cell) -> list[str]:
    """Policies of a cell by its landscape, or else by its samples."""
    with suppress(InputError):
        return list(study.classes(*cell)["policy"].unique(maintain_order=True))
    return list(study.streams(*cell))


# ---- operating points

POINTS = pl.Schema(
    {
        **dict.fromkeys(("checkpoint", "benchmark", "policy"), pl.String()),
        "budget": pl.UInt32(),
        **dict.fromkeys(("metric", "estimator"), pl.String()),
        **dict.fromkeys(("a", "b", "difference", "lo", "hi"), pl.Float64()),
        "interval": pl.String(),
    }
)


def _points(
    a: Study, b: Study, cell: Cell, same: set[tuple[str, str, str]], notes: list[str]
) -> tuple[pl.DataFrame, int]:
    """The points of a cell that changed, and how many both have."""
    frames = _both(a, b, lambda study: study.points(*cell), f"points of {'/'.join(cell)}", notes)
    if frames is None:
        return POINTS.to_frame(), 0
    joined = _joined(*frames, ["checkpoint", "benchmark", *_POINT])
    changed = joined.filter(_differs())
    if changed.is_empty():
        return POINTS.to_frame(), joined.height
    rows = _apart(changed, [(*cell, policy) in same for policy in changed["policy"]])
    first, second = a.asked(*cell), b.asked(*cell)
    if not (first and second):
        notes.append(f"{'/'.join(cell)}: which questions were asked is not known here; they count as the same")
    if first == second or not (first and second):
        rows = _paired(a, b, cell, rows)
    return rows.select(POINTS.names()).cast(POINTS), joined.height


def _both(
    a: Study, b: Study, read: Callable[[Study], pl.DataFrame], what: str, notes: list[str]
) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """A frame of both studies; None, and a note, unless both have it."""
    frames, missing = [], []
    for name, study in (("A", a), ("B", b)):
        try:
            frames.append(read(study))
        except InputError as error:
            missing.append(f"{name}: {error.message}")
    if missing and frames:
        notes.append(f"{what} were not compared: {missing[0]}")
    return None if missing else (frames[0], frames[1])


_ENDS = MappingProxyType({"value": "", "lo": "_lo", "hi": "_hi"})


def _joined(a: pl.DataFrame, b: pl.DataFrame, keys: list[str], columns: Mapping[str, str] = _ENDS) -> pl.DataFrame:
    """Rows that both have: keys, then for each column its name behind ``a``, and behind ``b``."""
    parts = [
        frame.select(*keys, *(pl.col(column).alias(f"{side}{end}") for column, end in columns.items()))
        for side, frame in (("a", a), ("b", b))
    ]
    return parts[0].join(parts[1], on=keys, how="inner", nulls_equal=True, maintain_order="left")


def _differs() -> pl.Expr:
    known = pl.col("a").is_not_null() & pl.col("b").is_not_null()
    return (pl.col("a").is_null() != pl.col("b").is_null()) | (known & ((pl.col("a") - pl.col("b")).abs() > SAME))


def _apart(rows: pl.DataFrame, same: Sequence[bool]) -> pl.DataFrame:
    """Differences with exact intervals where samples are the same, and with those of ``apart`` elsewhere."""
    a, a_lo, a_hi, b, b_lo, b_hi = (rows[side + end].to_numpy() for side in ("a", "b") for end in _ENDS.values())
    ends = apart(a, Interval(a_lo, a_hi), b, Interval(b_lo, b_hi))
    exact = np.array(same, bool)
    return rows.with_columns(
        difference=pl.Series(b - a),
        lo=pl.Series(np.where(exact, b - a, ends.lo)),
        hi=pl.Series(np.where(exact, b - a, ends.hi)),
        interval=pl.Series([EXACT if one else INDEPENDENT for one in same], dtype=pl.String),
    ).with_columns(pl.col("difference", "lo", "hi").fill_nan(None))


def _paired(a: Study, b: Study, cell: Cell, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with a paired bootstrap over questions wherever values of single questions are stored."""
    frames = _both(a, b, lambda study: study.hits(*cell), "", [])
    if frames is None or set(frames[0]["question"]) != set(frames[1]["question"]):
        return rows
    keys = ["policy", "budget", "question"]
    known = [
        name
        for name in frames[0].columns
        if name in frames[1].columns and name not in (*keys, "checkpoint", "benchmark")
    ]
    both = frames[0].select(*keys, *known).join(frames[1].select(*keys, *known), on=keys, suffix="_b").sort(keys)
    by_point = both.partition_by("policy", "budget", as_dict=True)
    records = rows.to_dicts()
    for record in records:
        column = record["metric"] + (_UNBIASED if record["estimator"] == "unbiased" else "")
        hits = by_point.get((record["policy"], record["budget"]))
        if record["interval"] == INDEPENDENT and column in known and hits is not None:
            record.update(_bootstrap(b, hits, column, record["difference"]))
    return pl.DataFrame(records, rows.schema)


def _bootstrap(study: Study, hits: pl.DataFrame, column: str, difference: float) -> Record:
    """Ends of a difference, from its values by question; nothing if any is unknown."""
    values = (hits[f"{column}_b"].cast(pl.Float64) - hits[column].cast(pl.Float64)).to_numpy()
    if difference is None or not np.isfinite(values).all():
        return {}
    confidence = study.config.landscape.confidence
    draws = Resamples.draw(len(values), DRAWS, study.config.seed)
    lo, hi = with_width([difference], draws.interval(values[:, None], confidence), len(values), confidence)
    return {"lo": float(lo[0]), "hi": float(hi[0]), "interval": PAIRED}


# ---- recoveries and measures


def _recoveries(a: Study, b: Study, notes: list[str]) -> tuple[pl.DataFrame, int]:
    keys = ["pair", "benchmark", "metric", "estimator", "budget"]
    values = {"inside": "_inside", **{f"rl_minus_best{end}": end for end in ("", "_lo", "_hi")}}
    frames = _both(a, b, lambda study: study.recovery(), "recovery analyses", notes)
    if frames is None:
        return pl.DataFrame(), 0
    joined = _joined(*frames, keys, values).rename({"a_inside": "inside_a", "b_inside": "inside_b"})
    order = [*keys, "inside_a", "inside_b", "a", "a_lo", "a_hi", "b", "b_lo", "b_hi"]
    return joined.filter(pl.col("inside_a") != pl.col("inside_b")).select(order), joined.height


MEASURES = pl.Schema(
    {
        **dict.fromkeys(("frame", "pair", "benchmark", "what"), pl.String()),
        **dict.fromkeys(("a", "b", "difference", "lo", "hi"), pl.Float64()),
        "interval": pl.String(),
    }
)
_NAMED: Mapping[str, tuple[str, ...]] = {
    "measures": ("measure", "k", "tau", "side"),
    "equivalents": ("policy", "budget"),
}
_COUNTS = ("kept", "shrunk", "expanded", "out")


def _measures(a: Study, b: Study, exact: set[Cell], notes: list[str]) -> tuple[pl.DataFrame, int]:
    """Measures that changed, and how many both have; ``exact``: pairs whose samples are the same on both sides."""
    parts, count = [MEASURES.to_frame()], 0
    for frame in ("measures", "equivalents", "support"):
        frames = _both(a, b, lambda study, name=frame: _long(study, name), f"measures ({frame})", notes)  # type: ignore[misc]
        if frames is None:
            continue
        joined = _joined(*frames, ["pair", "benchmark", "what"])
        count += joined.height
        changed = joined.filter(_differs())
        rows = _apart(changed, [cell in exact for cell in changed.select("pair", "benchmark").iter_rows()])
        parts.append(rows.with_columns(frame=pl.lit(frame)).select(MEASURES.names()).cast(MEASURES))
    return pl.concat(parts), count


def _long(study: Study, frame: str) -> pl.DataFrame:
    """A frame of measures as pair, benchmark, what, value, lo, hi. An end beyond the pool is null."""
    rows = study.measures(frame)
    keys = ["pair", "benchmark", "what"]
    if frame == "support":
        values = {name: pl.col(name).cast(pl.Float64) for name in _COUNTS}
        return pl.concat(
            rows.select("pair", "benchmark", what=pl.lit(name), value=value, lo=f"{name}_lo", hi=f"{name}_hi")
            for name, value in values.items()
        )
    parts = [pl.format(f"{name} {{}}" if name in _NUMBERS else "{}", name) for name in _NAMED[frame]]  # null of a null
    named = rows.with_columns(what=pl.concat_str(parts, separator=", ", ignore_nulls=True))
    if frame == "equivalents":
        ends = (pl.when(~pl.col(f"{end}_open")).then(end).alias(end) for end in ("lo", "hi"))
        return named.select(*keys, pl.col("n").alias("value"), *ends)
    return named.select(*keys, "value", "lo", "hi")


_NUMBERS = ("k", "tau", "budget")


def _sets(a: Study, b: Study, notes: list[str]) -> tuple[pl.DataFrame, int]:
    keys = ["pair", "benchmark", "policy"]
    frames = _both(a, b, lambda study: study.measures("exponents"), "sets of exponents", notes)
    if frames is None:
        return pl.DataFrame(), 0
    joined = _joined(*frames, keys, {"beta_lo": "_lo", "beta_hi": "_hi"})
    moved = pl.any_horizontal(~pl.col(f"a_{end}").eq_missing(pl.col(f"b_{end}")) for end in ("lo", "hi"))
    return joined.filter(moved), joined.height
