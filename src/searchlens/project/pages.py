"""Pages that open without a server: a template of jinja and what is shown in it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from searchlens.errors import printable


def rendered(template: Path, **values: Any) -> str:
    """The page: text stays text, in which nothing is markup and nothing hidden, unless the template says ``safe``."""
    return str(_template(template).render(values))


@cache
def _template(path: Path) -> Any:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.from_string(path.read_text(encoding="utf-8"))


def _shown(value: Any) -> Any:
    return value if hasattr(value, "__html__") else printable(str(value))  # markup comes from macros and ``safe``
