"""What was found as one HTML page that asks for nothing: no script, no font, no image, no request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from searchlens import __version__
from searchlens.api.statements import told
from searchlens.comparing.found import LogComparison
from searchlens.comparing.sections import remarks, sections
from searchlens.grading.recorded import is_recorded
from searchlens.project import pages
from searchlens.readings.measures import BASE, LUCK, RL

TEMPLATE = Path(__file__).parent / "page.html.j2"


def page(found: LogComparison) -> str:
    """The page, complete, as text of HTML."""
    base, rl = found.sides
    return pages.rendered(
        TEMPLATE,
        title=f"{base.model or 'Base'} and {rl.model or 'RL'}",
        head=_head(found),
        statements=[(each.reading, each.can, each.cannot) for each in told(found.statements)],
        curves=_curves(found),
        sections=sections(found),
        examples=list(_examples(found)),
        withheld=found.withheld,
        notes=list(remarks(found)),
        version=__version__,
    )


def _head(found: LogComparison) -> str:
    base, rl = found.sides
    count = len(found.common)
    return (
        f"{count:,} question{'s' * (count != 1)}, {base.samples:,} samples of Base and {rl.samples:,} of RL, judged by"
        f" {'the verdicts in the logs' if is_recorded(found.grader) else found.grader}."
    )


def _examples(found: LogComparison) -> Iterator[tuple[str, str]]:
    """Samples that graders judge differently, each with the end of its text unless texts are withheld."""
    for row in found.opinions.examples.to_dicts():
        ours, theirs = ("right" if row[name] else "wrong" for name in ("ours", "theirs"))
        where = f"{row['side']}, question {row['question']}, sample {row['sample']}"
        gold = "" if found.withheld else f", gold {row['gold']}"
        end = "" if found.withheld else row["end"] or ""
        yield f"{where}: {found.grader} {ours}, {row['grader']} {theirs}{gold}", end


def _curves(found: LogComparison) -> dict[str, Any] | None:
    """pass@k of both sides with their bands, and their luck, as points of the picture; None of a single k."""
    frame = found.comparison.measures
    curves, luck = frame.filter(measure="pass@k"), frame.filter(measure=LUCK)
    ks: list[int] = curves["k"].unique().sort().to_list()
    if len(ks) < 2:
        return None

    def x(k: int) -> float:
        """Every doubling is as wide as any other: the k are powers of two."""
        return 54 + 494 * (k.bit_length() - 1) / (ks[-1].bit_length() - 1)

    def y(share: float) -> float:
        return 12 + 248 * (1 - share)

    def points(line: Sequence[tuple[int, float | None]]) -> str:
        return " ".join(f"{x(k):.1f},{y(value):.1f}" for k, value in line if value is not None)

    sides = []
    for side in (BASE, RL):
        line = curves.filter(side=side).sort("k")
        band = [*line.select("k", "hi").rows(), *line.reverse().select("k", "lo").rows()]
        sides.append(
            {
                "name": side.lower(),
                "band": points(band),
                "line": points(line.select("k", "value").rows()),
                "luck": points(luck.filter(side=side).sort("k").select("k", "value").rows()),
            }
        )
    return {
        "shares": [(f"{share:.0%}", y(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        "ks": [(k, x(k)) for k in ks],
        "sides": sides,
        "is_lucky": not luck.is_empty(),
    }
