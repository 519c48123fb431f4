"""Stage ``explorer``: a study to one page that opens in a browser, and to the sentences on the report's first page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from searchlens.api.study import Study
from searchlens.reporting.explorer_html import SIZE, explorer_page
from searchlens.reporting.explorer_index import headline_html
from searchlens.store import files


def explorer(study: Study, output: Path, size: int = SIZE, headline: Path | None = None) -> Sequence[str]:
    """Write the page of a study, with its data inside, of at most ``size`` bytes.

    ``headline`` is a file for three sentences a cell, a piece of HTML. Returns sentences on what was left out: what a
    licence forbids to show, and what the size does not allow. An InputError if not even the index fits.
    """
    made = explorer_page(study, size)
    files.replace_text(output, made.html)
    if headline is not None:
        files.replace_text(headline, headline_html(study))
    return made.left_out
