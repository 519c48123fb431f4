"""What the readings of a comparison can and cannot say, one sentence each. Nothing is estimated here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from searchlens.claims import (
    CAN,
    CANNOT,
    GUESSED,
    NOT_IDENTIFIED,
    ROUNDING,
    SINGLE,
    WORTH,
    every,
    interval,
    leader,
    located,
    percent,
    samples,
    say,
)
from searchlens.frames import pick
from searchlens.readings import limits
from searchlens.readings.exponents import LARGEST
from searchlens.readings.extrapolation import SMALLEST
from searchlens.readings.measures import BASE, DIFFERENCE, LUCK, RL

ORDER = (
    *("pass@k", "budget equivalents", "exponents", "support", "reliability", "guessing", "luck", "entropy"),
    *("second run", "variance", "extrapolation"),
)
Frames = Mapping[str, pl.DataFrame]
_TAU = 0.5
_PRINTED = (1, 16)
"""Numbers of samples that sentences name; of fewer samples, the largest number there is."""


@dataclass(frozen=True)
class Statement:
    """One reading in words.

    Attributes
    ----------
    reading : str
    can : str
        What the samples say; it begins with "not identified" if they do not determine the reading.
    cannot : str
        What they leave open; may be empty.
    """

    reading: str
    can: str
    cannot: str

    def to_dict(self) -> dict[str, str]:
        """Its parts by name."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.reading}: {self.can}" + (f" Cannot say: {self.cannot}" if self.cannot else "")


def statements(frames: Frames, *, questions: int, policy: str) -> tuple[Statement, ...]:
    """A sentence about each reading.

    Parameters
    ----------
    frames : mapping of str to DataFrame
        Those of ``Comparison``.
    questions : int
    policy : str
        The policy of Base that is compared with RL one to one.
    """
    rows = _facts(frames, policy)
    said = {name: Statement(name, say(CAN[name], rows[name]), every(CANNOT[name], rows[name])) for name in CAN}
    said["exponents"] = _exponents(frames, policy, questions)
    return tuple(said[reading] for reading in ORDER)


def told(said: Sequence[Statement]) -> list[Statement]:
    """The same, with all that is not identified in one at the end."""
    known = [each for each in said if not each.can.startswith(NOT_IDENTIFIED)]
    reasons = {each.reading: each.can.removeprefix(NOT_IDENTIFIED).strip(":. ") for each in said if each not in known}
    listed = "; ".join(f"{reading} ({reason})" for reading, reason in reasons.items())
    return [*known, *([Statement(NOT_IDENTIFIED, f"{listed}.", "")] if reasons else [])]


def _facts(frames: Frames, policy: str) -> dict[str, Mapping[str, Any]]:
    """What claims about each reading ask for."""
    passes = _rows(frames, "pass@k")
    named, last = _named(passes), passes[-1]["k"]
    support = frames["support"].row(0, named=True)
    reliable = next(row for row in _rows(frames, "Cover@tau") if abs(row["tau"] - _TAU) < ROUNDING)
    entropy = {name: _rows(frames, "entropy, Miller-Madow", side) for name, side in (("base", BASE), ("rl", RL))}
    again = _rows(frames, "P(RL beats Base)")[0]
    undecided = [row["k"] for row in named if not leader(row["lo"], row["hi"])]
    return {
        "pass@k": {
            "found": _differences(named),
            "open": samples(undecided),
            "last": samples([last]),
        },
        "budget equivalents": _equivalents(_named(pick(frames["equivalents"], policy=policy).to_dicts(), "budget")),
        "support": {**support, "missed": _missed(support)},
        "reliability": {**reliable, "found": _difference(reliable)},
        "guessing": {
            "found": _differences(_rows(frames, "guess-corrected pass@k")),
            "nulls": "; ".join(
                f"pass@{row['k']}: guessing alone solves {percent(row['value'])}%"
                for row in _rows(frames, "guess null", BASE)
                if row["value"] >= GUESSED
            ),
        },
        "luck": {
            "found": "; ".join(
                f"{percent(one['value'])}% of questions (Base) and {percent(two['value'])}% (RL) at {one['k']}"
                for one, two in zip(_rows(frames, LUCK, BASE), _rows(frames, LUCK, RL), strict=True)
            )
        },
        "entropy": {name: rows[0]["value"] if rows else None for name, rows in entropy.items()}
        | {"samples": min(support["base_samples"], support["rl_samples"])},
        "second run": {**again, "found": interval(again["value"], again["lo"], again["hi"])},
        "variance": {"found": "; ".join(filter(None, map(_share, frames["variance"].to_dicts())))},
        "extrapolation": _extrapolation(frames["extrapolated"].to_dicts()),
    }


def _rows(frames: Frames, measure: str, side: str = DIFFERENCE) -> list[dict[str, Any]]:
    return pick(frames["measures"], measure=measure, side=side).sort("k", "tau").to_dicts()


def _named(rows: list[dict[str, Any]], key: str = "k") -> list[dict[str, Any]]:
    """The rows at the numbers of samples that sentences name."""
    largest = max(row[key] for row in rows)
    wanted = {min(k, largest) for k in _PRINTED}
    return [row for row in rows if row[key] in wanted]


def _difference(row: Mapping[str, Any]) -> str:
    return f"{percent(row['value'], row['lo'], row['hi'], '+')} points"


def _differences(rows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{_difference(row)} at {row['k']}" for row in rows)


def _equivalents(shown: list[dict[str, Any]]) -> dict[str, Any]:
    beyond = [row for row in shown if row["state"] in ("above", "level")]
    found = "; ".join(located(WORTH, row) for row in shown)
    places = [f"N*({row['budget']}), which is not within the {row['pool']} samples of Base" for row in beyond]
    return {"shown": shown, "beyond": beyond, "found": found, "places": "; ".join(places)}


def _missed(row: Mapping[str, Any]) -> str:
    low, high = sorted((row["base_epsilon"], row["rl_epsilon"]))
    return f"{low:.3f}" if low == high else f"{low:.3f} (the larger pool; {high:.3f} the smaller)"


def _share(row: Mapping[str, Any]) -> str:
    if row["decoding"] is None or row["questions_part"] is None or not row["total"]:
        return ""
    return f"{percent(row['questions_part'] / row['total'])}% ({row['side']})"


def _extrapolation(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found = [
        f"{row['side']} solves {percent(row['value'], row['lo'], row['hi'])}% with {row['k']} samples ({row['model']})"
        for row in rows
        if row["trusted"]
    ]
    rates = {
        f"{row['model']}: {'no fit' if row['coverage'] is None else format(row['coverage'], '.2f')}" for row in rows
    }
    most = max((row["samples"] for row in rows), default=None)
    return {"found": "; ".join(found), "tried": ", ".join(sorted(rates)), "most": most, "smallest": SMALLEST}


def _exponents(frames: Frames, policy: str, questions: int) -> Statement:
    rows = frames["exponents"]
    other = "any law other than N = α b^β."
    if min(frames["support"].select("base_samples", "rl_samples").row(0)) < 2:
        return Statement("exponents", SINGLE, other)
    if not rows.height:
        return Statement("exponents", f"{NOT_IDENTIFIED}: {questions} questions are too few for a test.", other)
    row = pick(rows, policy=policy).row(0, named=True)
    unknown = limits.of_exponents(row)
    if not row["testable"]:
        return Statement("exponents", f"{NOT_IDENTIFIED}: {unknown}.", other)
    if row["empty"]:
        can = f"No power law N = α b^β, N at most {LARGEST}, that these samples can test fits them."
        return Statement("exponents", can, "why not.")
    allowed = f"β from {row['beta_lo']:.2f} to {row['beta_hi']:.2f}"
    if unknown:
        reason = "" if unknown == NOT_IDENTIFIED else f"{unknown}; "
        return Statement("exponents", f"{NOT_IDENTIFIED}: {reason}{allowed} are allowed.", other)
    return Statement("exponents", f"N = α b^β is allowed with {allowed}.", other)
