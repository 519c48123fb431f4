"""Whether a cell is interpretable, and why not, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from searchlens.config.health import DEFAULTS, HealthOptions
from searchlens.store.frames import read_frame

Level = Literal["ok", "attention", "not interpretable"]
Counts = Mapping[str, Any]
"""One row of ``store.columns.HEALTH``."""

SILENT = 0.20
"""Largest share without an answer among the texts that were not cut off. Above it the cell needs attention: a grader
that misses a common wording, or a Base model that keeps to no format."""
TRUNCATED = 0.50
"""Largest share of samples that the token limit cut off. Above it the cell needs attention; it is interpretable if
there are answers, since a Base model may well answer and ramble on."""
FAILED = 0.05
"""Largest share of a policy's samples that come from failed searches. Above it the cell needs attention."""
FEWEST = 20
"""Fewest whole texts on whose share of answers anything is decided: none of 20 is surely below one in five."""

_OTHER_RULES = 0.10
"""Largest difference of the shares of answers that two sides state in words instead of a box."""


@dataclass(frozen=True)
class Health:
    """The health of one cell."""

    counts: Counts
    """All policies together."""
    broken: tuple[str, ...]
    """Why the numbers of the cell say nothing about the model; empty if they do."""
    remarks: tuple[str, ...]
    """What a reader must know of a cell, interpretable or not."""

    @property
    def level(self) -> Level:
        """The worst that was found."""
        return "not interpretable" if self.broken else "attention" if self.remarks else "ok"

    @property
    def reason(self) -> str:
        """Everything that was found; empty if nothing was."""
        return "; ".join([*self.broken, *self.remarks])

    @property
    def whole(self) -> int | None:
        """Texts that are not known to be cut off; None if that was not recorded."""
        return _whole(self.counts)

    @property
    def shares(self) -> str:
        """The counts as one line."""
        counts = self.counts
        samples, answered = counts["samples"], counts["answered"]
        parts = [
            f"answers {percent(answered, samples)}",
            f"of finished texts {percent(counts['whole_answered'], self.whole)}",
            f"stopped {percent(counts['stopped'], samples)}",
            f"cut off {percent(counts['truncated'], samples)}",
            f"unknown end {percent(counts['unknown_end'], samples)}",
            f"unknown verdicts {percent(counts['unknown'], answered)}",
            f"failed {percent(counts['failed'], samples)}",
            f"kept {percent(counts['kept'], samples)}",
            f"withdrawn {percent(counts['withdrawn'], samples)}",
            f"unsolved questions {counts['unsolved']} of {counts['questions']}",
        ]
        return ", ".join(parts if counts["unsolved"] is not None else parts[:-1])

    def __str__(self) -> str:
        return f"{self.level}: {self.reason}" if self.reason else self.level


def judge(counts: pl.DataFrame, default_policy: str = "", limits: HealthOptions = DEFAULTS) -> Health:
    """Judge a cell (``HEALTH``) by all its samples, and by those of the default policy, the target of RL, if any."""
    rows = counts.rows(named=True)
    total = next(row for row in rows if row["policy"] is None)
    policies = [row for row in rows if row["policy"] is not None]
    broken = [*_broken(total, limits)]
    if not broken and len(policies) > 1:
        broken = [
            f"{reason}, under {default_policy}"
            for row in policies
            if row["policy"] == default_policy
            for reason in _broken(row, limits)
        ]
    silent = [] if broken else _silent(total)
    return Health(total, tuple(broken), (*silent, *_remarks(total, policies)))


def of_pair(sides: Mapping[str, Health], *, is_floor: bool = False) -> str:
    """Why a comparison is not interpretable, by the names of its sides; empty if it is.

    Two sides that solve nothing are compared only where that is expected (``is_floor``): a wrong grader looks the same.

    >>> fine, bad = Health({}, (), ()), Health({}, ("0% of 8 samples have an answer",), ())
    >>> of_pair({"Base": fine, "RL": bad})
    'RL: 0% of 8 samples have an answer'
    """
    broken = "; ".join(f"{name}: {', '.join(side.broken)}" for name, side in sides.items() if side.broken)
    counts = [side.counts for side in sides.values()]
    solved = any(not c.get("answered") or c["samples"] < FEWEST or c["unsolved"] != c["questions"] for c in counts)
    if broken or is_floor or solved:
        return broken
    return f"neither side solves any of {counts[0]['questions']:,} questions (golds? grader?)"


def of_rules(base: Health, rl: Health) -> str:
    """What is to be known if the answers of two sides were mostly found by different rules; else empty."""
    counts = {"Base": base.counts, "RL": rl.counts}
    if any(side.get("unboxed") is None or side["answered"] < FEWEST for side in counts.values()):
        return ""
    ours, theirs = (side["unboxed"] / side["answered"] for side in counts.values())
    if abs(ours - theirs) <= _OTHER_RULES:
        return ""
    shares = " and ".join(f"{percent(side['unboxed'], side['answered'])} of {name}'s" for name, side in counts.items())
    return f"{shares} answers were found without a box (other prompts? grader?)"


def percent(part: int | None, whole: int | None) -> str:
    """A share in whole percent, a dash if it is of nothing; rounding makes nothing 0% or 100% that is not.

    >>> percent(0, 8), percent(1, 1000), percent(999, 1000), percent(1, 3), percent(None, 8), percent(0, 0)
    ('0%', 'under 1%', 'over 99%', '33%', 'unknown', '—')
    """
    if part is None or whole is None:
        return "unknown"
    if not whole:
        return "—"
    share = 100 * part / whole
    if 0 < share < 1:
        return "under 1%"
    return "over 99%" if 99 < share < 100 else f"{share:.0f}%"


def _whole(counts: Counts) -> int | None:
    """Texts that are not known to be cut off: also those of unknown end, which grading takes as finished."""
    if counts["whole_answered"] is None:
        return None
    return (counts["stopped"] or 0) + (counts["unknown_end"] or 0)


def _broken(counts: Counts, limits: HealthOptions) -> Iterator[str]:
    samples, answered, whole = counts["samples"], counts["answered"], _whole(counts)
    if _below(answered, samples, limits.answered):
        yield f"{percent(answered, samples)} of {samples:,} samples have an answer (template? token limit? grader?)"
    elif whole and whole >= FEWEST and _below(counts["whole_answered"], whole, limits.answered_of_finished):
        share = percent(counts["whole_answered"], whole)
        yield f"{share} of {whole:,} finished texts have an answer (template? grader?)"
    if _above(counts["unknown"], answered, limits.unknown):
        yield f"the verdict of {percent(counts['unknown'], answered)} of {answered:,} answers is unknown (grader?)"


def _silent(counts: Counts) -> Iterator[str]:
    whole = _whole(counts)
    if whole is not None and whole >= FEWEST:
        silent = whole - counts["whole_answered"]
        if _above(silent, whole, SILENT):
            yield f"{percent(silent, whole)} of {whole:,} finished texts have no answer (template? grader?)"


def _remarks(total: Counts, policies: Sequence[Counts]) -> Iterator[str]:
    samples = total["samples"]
    if _above(total["truncated"], samples, TRUNCATED):
        yield f"{percent(total['truncated'], samples)} of {samples:,} samples were cut off (token limit? stop texts?)"
    failed = [row for row in policies if _above(row["failed"], row["samples"], FAILED)]
    if failed:
        names = ", ".join(f"{row['policy']} ({percent(row['failed'], row['samples'])})" for row in failed)
        yield f"searches failed: {names}"
    if total["answered"] and total["unsolved"] == total["questions"]:
        yield f"no sample solves any of {total['questions']:,} questions (golds? grader?)"


def _below(part: int | None, whole: int | None, limit: float) -> bool:
    return part is not None and whole is not None and part < limit * whole


def _above(part: int | None, whole: int | None, limit: float) -> bool:
    return part is not None and whole is not None and part > limit * whole


def cell_health(landscape: Path, default_policy: str, limits: HealthOptions) -> Health:
    """The health of one cell, by the section ``health``. Raises InputError if its landscape is missing or damaged."""
    return judge(read_frame(landscape / "health.parquet", "landscape"), default_policy, limits)
