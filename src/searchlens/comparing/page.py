"""What was found as one HTML page that asks for nothing: no script, no font, no image, no request."""

from __future__ import annotations

from collections.abc import Iterator

from searchlens import __version__
from searchlens.api import faces
from searchlens.api.statements import told
from searchlens.comparing.found import LogComparison
from searchlens.comparing.sections import remarks, sections
from searchlens.grading.recorded import is_recorded
from searchlens.project import pages


def page(found: LogComparison) -> str:
    """The page, complete, as text of HTML."""
    base, rl = found.sides
    return pages.rendered(
        "comparing/page.html.j2",
        title=f"{base.model or 'Base'} and {rl.model or 'RL'}",
        head=_head(found),
        statements=[(each.reading, each.can, each.cannot) for each in told(found.statements)],
        curves=faces.curves(found.comparison.measures),
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
