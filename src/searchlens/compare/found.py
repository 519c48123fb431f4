"""What was found in the logs of two sides, and what it can and cannot say, in sentences. Nothing is estimated here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from searchlens.analysis.claims import solved
from searchlens.analysis.health import Health, percent
from searchlens.api.comparison import Comparison
from searchlens.api.statements import Statement, stated
from searchlens.compare.common import Common
from searchlens.compare.opinions import Opinions
from searchlens.grading.recorded import is_recorded

DOUBTFUL = 0.95
"""Share of samples on which two graders agree; their disagreement is named unless it is surely at least that."""


@dataclass(frozen=True, kw_only=True)
class SideFound:
    """The samples of one side."""

    title: str
    """``Base`` or ``RL``."""
    model: str
    """As the log names it; empty if it does not."""
    policies: tuple[str, ...]
    """As the log says them; the first is compared one to one."""
    unstated: tuple[str, ...]
    """Parameters of the first policy that the log does not give."""
    format: str
    """Name of the reader."""
    files: int
    questions: int
    samples: int
    """``files``, ``questions``, ``samples``: files, questions in them, and samples of each question."""
    tokens: float | None
    """Mean of a sample; None if unknown."""
    health: Health
    """Of the samples of the common questions."""
    counts: Mapping[str, Any]
    """``store.columns.HEALTH`` of all policies together."""
    notes: tuple[str, ...]
    """What was chosen or left out while reading."""

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types."""
        return {
            "model": self.model,
            "policies": list(self.policies),
            "not_stated": list(self.unstated),
            "format": self.format,
            "files": self.files,
            "questions": self.questions,
            "samples": self.samples,
            "mean_tokens": self.tokens,
            "health": {"level": self.health.level, "reason": self.health.reason, **self.counts},
            "notes": list(self.notes),
        }


@dataclass(frozen=True, kw_only=True)
class LogComparison:
    """Everything that was found."""

    comparison: Comparison
    """The readings."""
    sides: tuple[SideFound, ...]
    """Base and RL."""
    grader: str
    """Name of the grader, or ``recorded``."""
    common: Common
    """The questions."""
    opinions: Opinions
    """What other graders say."""
    notes: tuple[str, ...]
    """What was left out or chosen for both sides."""
    withheld: str
    """Why no text may be quoted; empty if texts may be."""

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What each reading can and cannot say: those of the readings, then of the verdicts and of the samples."""
        return (*self.comparison.statements, self._graders(), self._health())

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types, for JSON. Texts are left out."""
        base, rl = self.sides
        return {
            "base": base.to_dict(),
            "rl": rl.to_dict(),
            "grader": self.grader,
            "matched": {
                "questions": len(self.common),
                **{f"by_{how}": number for how, number in self.common.how.items()},
                "only_base": list(self.common.only_base),
                "only_rl": list(self.common.only_rl),
                "other_golds": list(self.common.other_golds),
                "reworded": list(self.common.reworded),
                "ids": [question.id for question in self.common.base],
            },
            "graders": self.opinions.agreeing.to_dicts(),
            "notes": list(self.notes),
            "withheld": self.withheld,
            **self.comparison.to_dict(),
            "says": [statement.to_dict() for statement in self.statements],
        }

    def _graders(self) -> Statement:
        rows = self.opinions.agreeing.to_dicts()
        found = "; ".join(
            f"{row['grader']} on {solved(row['share'], row['lo'], row['hi'])} of {row['compared']:,} samples"
            f" ({row['side']})"
            for row in rows
        )
        doubtful = "; ".join(f"{row['grader']}, {row['side']}" for row in rows if row["lo"] < DOUBTFUL)
        row = {"grader": self.grader, "recorded": is_recorded(self.grader), "found": found, "doubtful": doubtful}
        return stated("graders", row)

    def _health(self) -> Statement:
        parts = []
        for side in self.sides:
            counts = side.counts
            of = counts["samples"]
            shares = [
                f"answers in {percent(counts['answered'], of)}",
                f"{percent(counts['truncated'], of)} cut off",
                f"unknown end of {percent(counts['unknown_end'], of)}",
            ]
            parts.append(f"{side.title}: {', '.join(shares)} of {of:,} samples")
        unknown = [side.title for side in self.sides if side.counts["unknown_end"] != 0]
        ill = [f"{side.title} than its samples allow ({side.health})" for side in self.sides if side.health.reason]
        return stated("health", {"found": "; ".join(parts), "unknown": " and ".join(unknown), "ill": ", of ".join(ill)})
