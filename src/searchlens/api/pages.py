"""HTML that opens without a server: templates of jinja beside the code that fills them, their parts in ``project/``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from searchlens.errors import printable

_PACKAGE = Path(__file__).parents[1]


def rendered(template: str, **values: Any) -> str:
    """A template, named by its path in the package: text stays text, in which nothing is markup and nothing hidden.

    Markup is what the template itself says, and what it says to be ``safe``.
    """
    return str(_environment().get_template(template).render(values))


@cache
def _environment() -> Any:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PACKAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        # markup comes from macros and ``safe``
        finalize=lambda value: value if hasattr(value, "__html__") else printable(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
