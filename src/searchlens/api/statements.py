"""What the readings of a comparison can and cannot say, one sentence each. Nothing is estimated here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from searchlens.claims import GUESSED, NOT_IDENTIFIED, READINGS, ROUNDING, SINGLE, Claim, say
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
    said = {
        reading: Statement(reading, say(claims.can, rows[reading]), _all(claims.cannot, rows[reading]))
        for reading, claims in READINGS.items()
    }
    said["exponents"] = _exponents(frames, policy, questions)
    return tuple(said[reading] for reading in ORDER)


def told(said: Sequence[Statement]) -> list[Statement]:
    """The same, with all that is not identified in one at the end."""
    known = [each for each in said if not each.can.startswith(NOT_IDENTIFIED)]
    reasons = {each.reading: each.can.removeprefix(NOT_IDENTIFIED).strip(":. ") for each in said if each not in known}
    listed = "; ".join(f"{reading} ({reason})" if reason else reading for reading, reason in reasons.items())
    return [*known, *([Statement(NOT_IDENTIFIED, f"{listed}.", "")] if reasons else [])]


def _all(claims: Sequence[Claim], row: Mapping[str, Any]) -> str:
    return "; ".join(claim.text(row) for claim in claims if claim.holds(row)) + "."


def _facts(frames: Frames, policy: str) -> dict[str, Mapping[str, Any]]:
    """The numbers of each reading of which something is said."""
    passes = _rows(frames, "pass@k")
    support = frames["support"].row(0, named=True)
    entropy = {side: [row["value"] for row in _rows(frames, "entropy, Miller-Madow", side)] for side in (BASE, RL)}
    shares = {row["side"]: _share(row) for row in frames["variance"].to_dicts()}
    nulls = [row for row in _rows(frames, "guess null", BASE) if row["value"] >= GUESSED]
    return {
        "pass@k": {"shown": _named(passes), "last": passes[-1]["k"]},
        "budget equivalents": {"shown": _named(pick(frames["equivalents"], policy=policy).to_dicts(), "budget")},
        "support": support,
        "reliability": next(row for row in _rows(frames, "Cover@tau") if abs(row["tau"] - _TAU) < ROUNDING),
        "guessing": {"rows": _rows(frames, "guess-corrected pass@k"), "nulls": nulls},
        "luck": {"base": _rows(frames, LUCK, BASE), "rl": _rows(frames, LUCK, RL)},
        "entropy": {
            **{name: next(iter(entropy[side]), None) for name, side in (("base", BASE), ("rl", RL))},
            "samples": min(support["base_samples"], support["rl_samples"]),
        },
        "second run": _rows(frames, "P(RL beats Base)")[0],
        "variance": {"shares": {side: share for side, share in shares.items() if share is not None}},
        "extrapolation": {"rows": frames["extrapolated"].to_dicts(), "smallest": SMALLEST},
    }


def _rows(frames: Frames, measure: str, side: str = DIFFERENCE) -> list[dict[str, Any]]:
    return pick(frames["measures"], measure=measure, side=side).sort("k", "tau").to_dicts()


def _named(rows: list[dict[str, Any]], key: str = "k") -> list[dict[str, Any]]:
    """The rows at the numbers of samples that sentences name."""
    largest = max(row[key] for row in rows)
    wanted = {min(k, largest) for k in _PRINTED}
    return [row for row in rows if row[key] in wanted]


def _share(row: Mapping[str, Any]) -> float | None:
    """What questions make up of the variance of pass@1; None if it is not known."""
    if row["decoding"] is None or row["questions_part"] is None or not row["total"]:
        return None
    return float(row["questions_part"] / row["total"])


def _exponents(frames: Frames, policy: str, questions: int) -> Statement:
    rows = frames["exponents"]
    other = "any law other than N = α b^β."
    if min(frames["support"].select("base_samples", "rl_samples").row(0)) < 2:
        return Statement("exponents", f"{NOT_IDENTIFIED}: {SINGLE}.", other)
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
