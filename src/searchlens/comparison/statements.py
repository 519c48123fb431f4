"""What the measures of a comparison can and cannot say, one sentence each. Nothing is estimated here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from searchlens.analysis import claims, exponents
from searchlens.analysis.claims import NOT_IDENTIFIED, SINGLE
from searchlens.analysis.extrapolation import SMALLEST
from searchlens.analysis.frames import pick
from searchlens.analysis.measures import BASE, DIFFERENCE, RL, WITHOUT_WRONG_KEY, WRONG_KEY

ORDER = (
    *("in short", "pass@k", "budget equivalents", "exponents", "support", "reliability", "guessing", "wrong_key"),
    *("entropy", "second run", "variance", "extrapolation"),
)
Frames = Mapping[str, pl.DataFrame]
Fact = Mapping[str, Any]
_TAU = 0.5
_PRINTED = (1, 16)
"""Numbers of samples that sentences name; of fewer samples, the largest number there is."""


@dataclass(frozen=True)
class Statement:
    """One measure in words.

    Attributes
    ----------
    measure : str
    can : str
        What the samples say; it begins with "not identified" if they do not determine the measure.
    cannot : str
        What they leave open; may be empty.
    """

    measure: str
    can: str
    cannot: str

    def to_dict(self) -> dict[str, str]:
        """Its parts by name."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.measure}: {self.can}" + (f" Cannot say: {self.cannot}" if self.cannot else "")


def statements(frames: Frames, *, policy: str, unequal: str = "") -> tuple[Statement, ...]:
    """A sentence about each measure of the frames of ``Comparison``. ``policy`` of Base is compared with RL one to one;
    ``unequal`` says why measures that need as many samples of every question are not identified.
    """
    why = f"{NOT_IDENTIFIED}: {unequal}."
    unread = ("support", "reliability", "entropy", "extrapolation") if unequal else ()
    said = {measure: Statement(measure, why, "what needs as many samples of each.") for measure in unread}
    said["exponents"] = _exponents(frames, policy)
    return tuple(said.get(name) or stated(name, _FACTS[name](frames, policy)) for name in ORDER)


def stated(measure: str, row: Fact) -> Statement:
    """What ``claims`` says on a measure of these facts."""
    return Statement(measure, claims.say(claims.CAN[measure], row), claims.every(claims.CANNOT[measure], row))


def told(said: Sequence[Statement]) -> list[Statement]:
    """The same, with all that is not identified in one at the end."""
    known = [each for each in said if not each.can.startswith(NOT_IDENTIFIED)]
    reasons = {each.measure: each.can.removeprefix(NOT_IDENTIFIED).strip(":. ") for each in said if each not in known}
    listed = "; ".join(f"{measure} ({reason})" for measure, reason in reasons.items())
    return [*known, *([Statement(NOT_IDENTIFIED, f"{listed}.", "")] if reasons else [])]


def _rows(frames: Frames, measure: str, side: str = DIFFERENCE) -> list[dict[str, Any]]:
    return pick(frames["measures"], measure=measure, side=side).sort("k", "tau").to_dicts()


def _named(rows: list[dict[str, Any]], key: str = "k") -> list[dict[str, Any]]:
    """The rows at the numbers of samples that sentences name."""
    largest = max(row[key] for row in rows)
    wanted = {min(k, largest) for k in _PRINTED}
    return [row for row in rows if row[key] in wanted]


def _difference(row: Mapping[str, Any]) -> str:
    return f"{claims.percent(row['value'], row['lo'], row['hi'], '+')} points"


def _differences(rows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{_difference(row)} at {row['k']}" for row in rows)


# ---- what claims about each measure ask for


def _in_short(frames: Frames, policy: str) -> Fact:
    last = _rows(frames, "pass@k")[-1]
    worth = pick(frames["equivalents"], policy=policy).sort("budget").row(0, named=True)
    return {
        "worth": f"{claims.worth(worth)}. " if worth["pool"] > 1 else "",
        "leader": claims.leader(last["lo"], last["hi"]),
        "last": claims.samples([last["k"]]),
        "found": _difference(last),
        "nothing": {row["value"] for side in (BASE, RL) for row in _rows(frames, "pass@k", side)[-1:]} == {0},
    }


def _pass_at_k(frames: Frames, _: str) -> Fact:
    rows = _rows(frames, "pass@k")
    named = _named(rows)
    undecided = [row["k"] for row in named if not claims.leader(row["lo"], row["hi"])]
    return {"found": _differences(named), "open": claims.samples(undecided), "last": claims.samples([rows[-1]["k"]])}


def _equivalents(frames: Frames, policy: str) -> Fact:
    shown = _named(pick(frames["equivalents"], policy=policy).to_dicts(), "budget")
    beyond = [row for row in shown if row["state"] in ("above", "level")]
    found = "; ".join(claims.worth(row) for row in shown)
    places = [f"N*({row['budget']}), which is not within the {row['pool']} samples of Base" for row in beyond]
    return {"shown": shown, "beyond": beyond, "found": found, "places": "; ".join(places)}


def _support(frames: Frames, _: str) -> Fact:
    row = frames["support"].row(0, named=True)
    low, high = sorted((row["base_epsilon"], row["rl_epsilon"]))
    more = f" (the larger pool; {high:.3f} the smaller)" if low != high else ""
    return {**row, "missed": f"{low:.3f}{more}"}


def _reliability(frames: Frames, _: str) -> Fact:
    row = next(row for row in _rows(frames, "Cover@tau") if abs(row["tau"] - _TAU) < claims.ROUNDING)
    return {**row, "found": _difference(row)}


def _guessing(frames: Frames, _: str) -> Fact:
    nulls = (row for row in _rows(frames, "guess null", BASE) if row["value"] >= claims.GUESSED)
    said = "; ".join(f"pass@{row['k']}: guessing alone solves {claims.percent(row['value'])}%" for row in nulls)
    return {"found": _differences(_rows(frames, "guess-corrected pass@k")), "nulls": said}


def _wrong_key(frames: Frames, _: str) -> Fact:
    sides = zip(_rows(frames, WRONG_KEY, BASE), _rows(frames, WRONG_KEY, RL), strict=True)
    shares = ((a["k"], claims.percent(a["value"]), claims.percent(b["value"])) for a, b in sides)
    found = [f"{base}% of questions (Base) and {rl}% (RL) at {k}" for k, base, rl in shares]
    known = [row for row in _rows(frames, WITHOUT_WRONG_KEY) if row["value"] is not None]
    return {"found": "; ".join(found), "without": _differences(known) or "unknown"}


def _entropy(frames: Frames, _: str) -> Fact:
    support = frames["support"].row(0, named=True)
    rows = {name: _rows(frames, "entropy, Miller-Madow", side) for name, side in (("base", BASE), ("rl", RL))}
    values = {name: found[0]["value"] if found else None for name, found in rows.items()}
    return values | {"samples": min(support["base_samples"], support["rl_samples"])}


def _second_run(frames: Frames, _: str) -> Fact:
    row = _rows(frames, "P(RL beats Base)")[0]
    return {**row, "found": claims.interval(row["value"], row["lo"], row["hi"])}


def _share(row: Mapping[str, Any]) -> str:
    if row["decoding"] is None or row["questions_part"] is None or not row["total"]:
        return ""
    return f"{claims.percent(row['questions_part'] / row['total'])}% ({row['side']})"


def _extrapolation(frames: Frames, _: str) -> Fact:
    rows = frames["extrapolated"].to_dicts()
    found = [
        f"{row['side']} solves {claims.solved(row['value'], row['lo'], row['hi'])}"
        f" with {row['k']} samples ({row['model']})"
        for row in rows
        if row["trusted"]
    ]
    rates = {
        f"{row['model']}: {'no fit' if row['coverage'] is None else format(row['coverage'], '.2f')}" for row in rows
    }
    most = max((row["samples"] for row in rows), default=None)
    return {"found": "; ".join(found), "tried": ", ".join(sorted(rates)), "most": most, "smallest": SMALLEST}


_FACTS: Mapping[str, Callable[[Frames, str], Fact]] = {
    "in short": _in_short,
    "pass@k": _pass_at_k,
    "budget equivalents": _equivalents,
    "support": _support,
    "reliability": _reliability,
    "guessing": _guessing,
    "wrong_key": _wrong_key,
    "entropy": _entropy,
    "second run": _second_run,
    "variance": lambda frames, _: {"found": "; ".join(filter(None, map(_share, frames["variance"].to_dicts())))},
    "extrapolation": _extrapolation,
}


def _exponents(frames: Frames, policy: str) -> Statement:
    row = pick(frames["exponents"], policy=policy).row(0, named=True)
    unknown, least, most = exponents.of_exponents(row), row["pool_min"], row["pool_max"]
    up_to = f"{most}" if least == most else f"{least} to {most}, the pool of each policy"
    law = f"N = α b^β, N up to {up_to},"
    other = "any law other than N = α b^β."
    if most < 2 or frames["equivalents"]["budget"].max() == 1:
        return Statement("exponents", SINGLE, other)
    if not row["testable"]:
        return Statement("exponents", f"{NOT_IDENTIFIED}: {unknown}.", other)
    best = f"(p of the best: {'below 0.001' if row['p'] < 0.001 else format(row['p'], '.3f')})"
    local = pick(frames["equivalents"], policy=policy).sort("budget")["slope"].drop_nulls()
    slopes = f" Local exponents: {', '.join(f'{slope:.2f}' for slope in local)}." if len(local) else ""
    if row["empty"]:
        can = f"No power law {law} that these samples can test fits them {best}.{slopes}"
        return Statement("exponents", can, "why not.")
    allowed = f"β from {row['beta_lo']:.2f} to {row['beta_hi']:.2f}"
    if row["hardly"]:
        can = f"Hardly any power law {law} fits {best}. Not rejected: {allowed}.{slopes}"
        return Statement("exponents", can, "β: the set is small because laws do not fit, not because β is known.")
    if unknown:
        return Statement("exponents", f"{NOT_IDENTIFIED}: {law} is allowed with {allowed}.", other)
    return Statement("exponents", f"{law} is allowed with {allowed} {best}.", other)
