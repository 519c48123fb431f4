"""Stage ``report``: figures, tables and their captions to one page."""

from __future__ import annotations

from pathlib import Path

from searchlens.api.study import Study
from searchlens.reporting.report import report_page
from searchlens.store import files


def report(study: Study, output: Path) -> None:
    """Write the report of a study."""
    files.replace_text(output, report_page(study, output.parent))
