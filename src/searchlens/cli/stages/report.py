"""Stage ``report``: figures, tables and their captions to one page."""

from __future__ import annotations

import logging
from pathlib import Path

from searchlens.api.study import Study
from searchlens.reporting.report import report_page
from searchlens.store import files

log = logging.getLogger(__name__)


def report(study: Study, output: Path) -> None:
    """Write the report of a study."""
    files.replace_text(output, report_page(study))
    log.info("%s: %.1f MB", output, output.stat().st_size / 1e6)
