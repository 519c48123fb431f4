"""What a cell says, in three plain sentences: is it sound, who leads, and where does Base reach RL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

from searchlens.analysis import claims
from searchlens.analysis.health import Health, of_rules, percent
from searchlens.analysis.measures import DIFFERENCE, PASS, WRONG_KEY
from searchlens.api.study import UNBIASED, Study
from searchlens.errors import InputError, counted

SIDES = {"base": "Base", "rl": "RL"}
STATES = {"ok": "ok", "attention": "warn", "not interpretable": "bad"}
"""Level of health to what the page calls it."""
METRIC = "P"
GREEDY = "greedy"
MUCH = 0.05
"""The wrong-key rate is stated if as large a share of the questions of either side is solved by it."""

Row = Mapping[str, Any]
T = TypeVar("T")


def if_here(read: Callable[..., T], *args: object) -> T | None:
    """What a function reads; None if what it needs is not here."""
    try:
        return read(*args)
    except InputError:
        return None


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
    wrong_key: Sequence[Row] = ()
    """Of Base and of RL, what golds of other questions solve with as many samples as it was read for (frame
    ``measures``); empty where that is little or unknown."""
    greedy: Mapping[str, str] = field(default_factory=dict)
    """Side to what one greedy answer solves, with its interval; empty if that is not known of Base."""
    policies: int = 0
    """Sampling policies of Base, which are those of ``support``; greedy is none of them."""

    def to_dict(self) -> dict[str, Any]:
        """As the index has it: gaps in percentage points; without a recovery analysis nothing."""
        found: dict[str, Any] = {"metric": METRIC, "estimator": UNBIASED} if self.support else {}
        for name, row in zip(("first", "last"), self.gaps, strict=False):
            found |= {name: row["budget"], f"rl_minus_base_{name}": _points(row["rl_minus_base"])}
            found |= {f"rl_minus_base_{name}_{end}": _points(row[end]) for end in ("lo", "hi")}
        known = [row for row in self.support if row["rl_minus_best"] is not None]
        if known:
            widest = max(known, key=lambda row: float(row["rl_minus_best"]))
            found |= {f"rl_minus_best{end}": _points(widest[f"rl_minus_best{end}"]) for end in ("", "_lo", "_hi")}
            found |= {"best_budget": widest["budget"], "policies": self.policies, "greedy": dict(self.greedy)}
            decided = [row["inside"] for row in known if row["rl"] or row["envelope"]]  # either solves any question
            found |= {"inside": sum(map(bool, decided)), "of": len(decided)}
        return found


def headline(study: Study, pair: str, benchmark: str) -> Headline:
    """The numbers of one cell; those of stages that did not run are left out."""
    where = {"metric": METRIC, "estimator": UNBIASED}
    support = sorted(_rows(study.recovery, pair, benchmark, **where), key=lambda row: row["budget"])
    ends = {support[0]["budget"], support[-1]["budget"]} if support else set()
    shared = _rows(study.recovery, pair, benchmark, "same_policy", **where, policy=study.default_policy)
    known = [row for row in shared if row["budget"] in ends and row["rl_minus_base"] is not None]
    gaps = sorted(known, key=lambda row: row["budget"]) if len(known) == len(ends) else []
    most = [
        {**row, "budget": row["k"], "rl_minus_base": row["value"]}
        for row in _widest(study, PASS, pair, benchmark)
        if row["side"] == DIFFERENCE and row["value"] is not None and gaps and row["k"] > gaps[-1]["budget"]
    ]
    sides = [side for first, name, *both in study.sides if (first, name) == (pair, benchmark) for side in both]
    points = [_rows(study.points, each, benchmark, **where) for each in sides]
    greedy = {side: text for side, rows in zip(SIDES.values(), points, strict=False) if (text := _greedy(rows))}
    sampled = {row["policy"] for rows in points[:1] for row in rows} - {GREEDY}
    of_one = {"pair": pair, "benchmark": benchmark, "policy": study.default_policy, "budget": 1}
    worth = next(iter(_rows(study.measures, "equivalents", **of_one)), None)
    wrong_key = _wrong_key(study, pair, benchmark)
    return Headline(gaps, support, worth, most, wrong_key, greedy if "Base" in greedy else {}, len(sampled))


def _rows(read: Callable[..., pl.DataFrame], *names: str, **where: object) -> Sequence[Row]:
    """Some rows of a frame; none if its stage did not run."""
    return if_here(lambda: read(*names).filter(**where).to_dicts()) or []


def _greedy(points: Sequence[Row]) -> str:
    """What one greedy answer solves, with its interval; nothing if none was drawn."""
    rows = [row for row in points if row["policy"] == GREEDY]
    return "".join(claims.solved(row["value"], row["lo"], row["hi"]) for row in rows[:1])


def _wrong_key(study: Study, pair: str, benchmark: str) -> Sequence[Row]:
    rows = [row for row in _widest(study, WRONG_KEY, pair, benchmark) if row["side"] in SIDES.values()]
    return sorted(rows, key=lambda row: str(row["side"])) if any(row["value"] >= MUCH for row in rows) else ()


def _widest(study: Study, measure: str, pair: str, benchmark: str) -> Sequence[Row]:
    """A measure at the largest number of samples for which it was read; no rows if it was not."""
    rows = _rows(study.measures, "measures", measure=measure, pair=pair, benchmark=benchmark)
    return [row for row in rows if row["k"] == max(each["k"] for each in rows)]


def cell_sentences(study: Study, found: Headline, sides: Mapping[str, Health], title: str) -> list[str]:
    """Three sentences on a cell; if it is not interpretable, why not, and nothing else. ``sides`` is the health by
    role, empty if it is not known.
    """
    if broken := [f"{SIDES[role]}: {'; '.join(health.broken)}" for role, health in sides.items() if health.broken]:
        return [f"{title} is not interpretable. {'. '.join(broken)}.", "So nothing is said of gaps and of recovery."]
    return [_soundness(sides, title), _leader(study, found), _recovery(found)]


def _soundness(sides: Mapping[str, Health], title: str) -> str:
    remarks = [f"{SIDES[role]}: {'; '.join(health.remarks)}" for role, health in sides.items() if health.remarks]
    remarks += [rules] if sides and (rules := of_rules(sides["base"], sides["rl"])) else []
    counts = {SIDES[role]: health.counts for role, health in sides.items()}
    shares = (f"{percent(each['answered'], each['samples'])} of {side}'s" for side, each in counts.items())
    return claims.say(claims.SOUND, {"title": title, "sides": " and ".join(shares), "remarks": ". ".join(remarks)})


def _leader(study: Study, found: Headline) -> str:
    text = "; ".join(_lead(row) for row in (*found.gaps, *found.most))
    shares = " and ".join(f"{_rounded(100 * row['value'])}% of {row['side']}'s" for row in found.wrong_key)
    samples = claims.samples([row["k"] for row in found.wrong_key[:1]])
    wrong_key = claims.say(claims.WRONG_KEY, {"sides": shares, "samples": samples})
    row = {"found": f"{text[:1].upper()}{text[1:]}", "policy": study.default_policy, "wrong_key": wrong_key}
    return claims.say(claims.LEADING, {**row, "greedy": claims.say(claims.GREEDILY, found.greedy)})


def _lead(row: Row) -> str:
    """Who leads at one budget, if the interval says so."""
    value, low, high = (_rounded(abs(100 * (row[key] or 0))) for key in ("rl_minus_base", "lo", "hi"))
    facts = {"value": value, "low": low, "high": high, "samples": claims.samples([row["budget"]])}
    gap = claims.percent(row["rl_minus_base"], row["lo"], row["hi"], "+")
    return claims.say(claims.LEAD, {**row, **facts, "open": gap})


def _recovery(found: Headline) -> str:
    """Where RL lies by the estimates, and where the intervals leave open whether that is above Base's best."""
    known = [row for row in found.support if row["rl_minus_best"] is not None]
    pool = f"Base's {counted(found.policies, 'policy')}"
    places: dict[str, list[int]] = {}
    for row in known:
        places.setdefault(claims.say(claims.PLACE, {**row, "pool": pool}), []).append(row["budget"])
    order = sorted(places, key=[claim.text.format(pool=pool) for claim in claims.PLACE].index)
    text = ", and ".join(f"{place} with {claims.samples(places[place])}" for place in order)
    ends = ((row["budget"], row["rl_minus_best_lo"], row["rl_minus_best_hi"]) for row in known)
    # the interval of RL minus the best of Base contains positive numbers as well as others
    undecided = [n for n, lo, hi in ends if lo is None or hi is None or lo <= 0 < hi - claims.ROUNDING]
    all_open = len(undecided) == len(known) > 1
    with_which = "at any of these budgets" if all_open else undecided and f"with {claims.samples(undecided)}"
    one = found.equivalent if found.equivalent and found.equivalent["state"] else {}
    worth = claims.say(claims.ONE_SAMPLE, {"equivalent": one and claims.located(claims.EQUIVALENT, one)})
    return claims.say(claims.REACHED, {"places": text, "open": with_which, "worth": worth})


def _points(proportion: float | None) -> float | None:
    """Percentage points; nothing for what is not defined."""
    return None if proportion is None else 100 * proportion


_NOTHING = 1e-6
"""Percentage points that come from arithmetic alone."""


def _rounded(value: float) -> str:
    """Tenths of a point; less where that would read as nothing, so that an interval off zero is seen to be.

    >>> _rounded(12.345), _rounded(0.0312), _rounded(0.049), _rounded(0.0)
    ('12.3', '0.03', '0.05', '0.0')
    """
    return f"{value:.1f}" if round(value, 1) or abs(value) < _NOTHING else f"{value:.1g}"
