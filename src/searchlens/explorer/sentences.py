"""What a cell says, in three plain sentences: is it sound, who leads, and where does Base reach RL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from searchlens.api import InputError, Study
from searchlens.api.study import EXPECTED
from searchlens.claims import EQUIVALENT, GREEDILY, LEAD, PLACE, bracket, located, percent, samples, say
from searchlens.health.judgement import Health, of_rules
from searchlens.readings.measures import DIFFERENCE, LUCK, MEASURES, PASS
from searchlens.schemas.columns import POINTS

SIDES = {"base": "Base", "rl": "RL"}
STATES = {"ok": "ok", "attention": "warn", "not interpretable": "bad"}
"""Level of health to what the page calls it."""
METRIC = "P"
GREEDY = "greedy"
LUCKY = 0.05
"""Luck is stated if as large a share of the questions of either side is solved by it."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Headline:
    """The main numbers of a pair on a benchmark: pass@k, mean over every choice of samples."""

    gaps: Sequence[Row]
    """RL - Base under the default policy at the smallest and the largest budget: budget, rl_minus_base, lo, hi. Empty
    without Base samples of that policy."""
    support: Sequence[Row]
    """One for each budget, of the frame ``support``."""
    equivalent: Row | None
    """What one sample of RL is worth under the default policy of both (frame ``equivalents``)."""
    most: Sequence[Row] = ()
    """As ``gaps``, at the largest number of samples of both, if that is beyond the budgets (frame ``measures``)."""
    luck: Sequence[Row] = ()
    """Of Base and of RL, what golds of other questions solve with as many samples as it was read for (frame
    ``measures``); empty where that is little or unknown."""
    greedy: Mapping[str, str] = field(default_factory=dict)
    """Side to what one greedy answer solves, with its interval; empty if that is not known of Base."""
    policies: int = 0
    """Sampling policies of Base, which are those of ``support``; greedy is none of them."""

    def to_dict(self) -> dict[str, Any]:
        """As the index has it: gaps in percentage points; without a recovery analysis nothing."""
        found: dict[str, Any] = {"metric": METRIC, "readout": EXPECTED} if self.support else {}
        for name, row in zip(("first", "last"), self.gaps, strict=False):
            found |= {name: row["budget"], f"rl_minus_base_{name}": _points(row["rl_minus_base"])}
            found |= {f"rl_minus_base_{name}_{end}": _points(row[end]) for end in ("lo", "hi")}
        known = [row for row in self.support if row["rl_minus_best"] is not None]
        if known:
            widest = max(known, key=lambda row: float(row["rl_minus_best"]))
            found |= {f"rl_minus_best{end}": _points(widest[f"rl_minus_best{end}"]) for end in ("", "_lo", "_hi")}
            found |= {"best_budget": widest["budget"], "policies": self.policies, "greedy": dict(self.greedy)}
            found |= {"inside": sum(bool(row["inside"]) for row in known), "of": len(known)}
        return found


def headline(study: Study, pair: str, benchmark: str) -> Headline:
    """The numbers of one cell; those of stages that did not run are left out."""
    try:
        support = study.recovery(pair, benchmark).filter(metric=METRIC, readout=EXPECTED).sort("budget").to_dicts()
    except InputError:
        return Headline([], [], None)
    ends = (support[0]["budget"], support[-1]["budget"]) if support else ()
    frame = study.recovery(pair, benchmark, "same_policy")
    rows = frame.filter(metric=METRIC, readout=EXPECTED, policy=study.default_policy).drop_nulls("rl_minus_base")
    rows = rows.sort("budget")
    gaps: list[Row] = [row for row in rows.to_dicts() if row["budget"] in ends]
    whole = gaps if len(gaps) == len(set(ends)) else []
    most = [row for row in _most(study, pair, benchmark) if whole and row["budget"] > whole[-1]["budget"]]
    sides = [side for first, name, *both in study.sides if (first, name) == (pair, benchmark) for side in both]
    points = [_points_of(study, each, benchmark) for each in sides]
    greedy = {side: _greedy(rows) for side, rows in zip(SIDES.values(), points, strict=False) if _greedy(rows)}
    sampled = points[0].filter(pl.col("policy") != GREEDY)["policy"].n_unique() if points else 0
    worth, luck = _equivalent(study, pair, benchmark), _luck(study, pair, benchmark)
    return Headline(whole, support, worth, most, luck, greedy if "Base" in greedy else {}, sampled)


def _points_of(study: Study, checkpoint: str, benchmark: str) -> pl.DataFrame:
    try:
        return study.points(checkpoint, benchmark).filter(metric=METRIC, readout=EXPECTED)
    except InputError:
        return POINTS.to_frame()


def _greedy(points: pl.DataFrame) -> str:
    """What one greedy answer solves, with its interval; nothing if none was drawn."""
    rows = points.filter(policy=GREEDY).sort("budget").head(1).to_dicts()
    return "".join(f"{percent(row['value'])}% {bracket(100 * row['lo'], 100 * row['hi'], 1)}" for row in rows)


def _equivalent(study: Study, pair: str, benchmark: str) -> Row | None:
    try:
        frame = study.readings("equivalents")
    except InputError:
        return None
    rows = frame.filter(pair=pair, benchmark=benchmark, policy=study.default_policy, budget=1)
    return rows.row(0, named=True) if rows.height else None


def _most(study: Study, pair: str, benchmark: str) -> Sequence[Row]:
    rows = _widest(study, PASS, pair, benchmark).filter(side=DIFFERENCE).drop_nulls(["value", "lo", "hi"])
    return rows.rename({"k": "budget", "value": "rl_minus_base"}).to_dicts()


def _luck(study: Study, pair: str, benchmark: str) -> Sequence[Row]:
    found = _widest(study, LUCK, pair, benchmark)
    rows = found.filter(pl.col("side").is_in(list(SIDES.values()))).sort("side").to_dicts()
    return rows if any(row["value"] >= LUCKY for row in rows) else ()


def _widest(study: Study, measure: str, pair: str, benchmark: str) -> pl.DataFrame:
    """A measure at the largest number of samples for which it was read; no rows if it was not."""
    try:
        measures = study.readings("measures")
    except InputError:
        return pl.DataFrame(schema=MEASURES)
    found = measures.filter(measure=measure, pair=pair, benchmark=benchmark)
    return found.filter(pl.col("k") == pl.col("k").max())


def health_sentences(sides: Mapping[str, Health]) -> list[str]:
    """What was found on either side, or how its samples ended if nothing was."""
    return [f"{SIDES[role]}: {health.reason or health.shares}." for role, health in sides.items()]


def cell_sentences(study: Study, found: Headline, sides: Mapping[str, Health], title: str) -> list[str]:
    """Three sentences on a cell; if it is not interpretable, why not, and nothing else.

    Parameters
    ----------
    study : Study
    found : Headline
    sides : mapping of str to Health
        Under ``base`` and ``rl``; empty if it is not known.
    title : str
        Of the benchmark.
    """
    if broken := [f"{SIDES[role]}: {'; '.join(health.broken)}" for role, health in sides.items() if health.broken]:
        return [f"{title} is not interpretable. {'. '.join(broken)}.", "So nothing is said of gaps and of recovery."]
    return [_soundness(sides, title), _leader(study, found), _recovery(found)]


def _soundness(sides: Mapping[str, Health], title: str) -> str:
    if not sides:
        return f"Whether the samples of {title} are sound is not known: there is no landscape."
    remarks = [f"{SIDES[role]}: {'; '.join(health.remarks)}" for role, health in sides.items() if health.remarks]
    remarks += [rules] if (rules := of_rules(sides["base"], sides["rl"])) else []
    if remarks:
        return f"The samples can be read, but mind: {'. '.join(remarks)}."
    shares = (_answered(SIDES[role], health) for role, health in sides.items())
    return f"The samples are sound: {' and '.join(shares)} state an answer."


def _answered(side: str, health: Health) -> str:
    counts = health.counts
    return f"{100 * counts['answered'] / max(1, counts['samples']):.0f}% of {side}'s"


def _leader(study: Study, found: Headline) -> str:
    if not found.gaps:
        return f"Who leads is not known: there are no gaps under RL's default policy, {study.default_policy}."
    text = "; ".join(_lead(row) for row in (*found.gaps, *found.most))
    beside = _guessed(found.luck) + say(GREEDILY, found.greedy)
    return f"{text[0].upper()}{text[1:]} (points of pass@k under {study.default_policy}).{beside}"


def _guessed(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    shares = " and ".join(f"{_rounded(100 * row['value'])}% of {row['side']}'s" for row in rows)
    return f" Luck alone, the golds of other questions, solves {shares} with {samples([rows[0]['k']])}."


def _lead(row: Row) -> str:
    """Who leads at one budget, if the interval says so."""
    ends = [_points(row[key]) for key in ("rl_minus_base", "lo", "hi")]
    value, low, high = (_rounded(abs(end or 0)) for end in ends)
    facts = {"value": value, "low": low, "high": high, "open": "{} [{}, {}]".format(*map(_signed, ends))}
    return say(LEAD, {**row, **facts, "samples": samples([row["budget"]])})


def _recovery(found: Headline) -> str:
    """Where RL lies by the estimates, and where the intervals leave open whether that is above Base's best."""
    known = [row for row in found.support if row["rl_minus_best"] is not None]
    if not known:
        return "Whether Base reaches RL is not known: there is no recovery analysis."
    pool = f"Base's {found.policies} sampling policies"
    places: dict[str, list[int]] = {}
    for row in known:
        places.setdefault(say(PLACE, {**row, "pool": pool}), []).append(row["budget"])
    order = sorted(places, key=[claim.text.format(pool=pool) for claim in PLACE].index)
    text = "RL lies " + ", and ".join(f"{place} with {samples(places[place])}" for place in order)
    if undecided := [row["budget"] for row in known if _is_undecided(row)]:
        with_which = "at any of these budgets" if len(undecided) == len(known) > 1 else f"with {samples(undecided)}"
        text = f"By the estimates {text}; whether it is above their best is open {with_which}"
    return f"{text}.{_worth(found.equivalent)}"


def _is_undecided(row: Row) -> bool:
    """Whether the interval of RL minus the best of Base contains positive numbers as well as others."""
    lo, hi = _points(row["rl_minus_best_lo"]), _points(row["rl_minus_best_hi"])
    return lo is None or hi is None or lo <= 0 < hi - _NOTHING


def _worth(row: Row | None) -> str:
    if row is None or row["state"] != "within":
        return ""
    return f" One sample of RL is worth {located(EQUIVALENT, row)} of Base under the same policy."


def _points(proportion: float | None) -> float | None:
    """Percentage points; nothing for what is not defined."""
    return None if proportion is None else 100 * proportion


def _signed(value: float | None) -> str:
    if value is None:
        return "?"
    return "0.0" if abs(value) < _NOTHING else f"{'+' if value > 0 else '−'}{_rounded(abs(value))}"


_NOTHING = 1e-6
"""Percentage points that come from arithmetic alone."""


def _rounded(value: float) -> str:
    """Tenths of a point; less where that would read as nothing, so that an interval off zero is seen to be.

    Examples
    --------
    >>> _rounded(12.345), _rounded(0.0312), _rounded(0.049), _rounded(0.0)
    ('12.3', '0.03', '0.05', '0.0')
    """
    return f"{value:.1f}" if round(value, 1) or abs(value) < _NOTHING else f"{value:.1g}"
