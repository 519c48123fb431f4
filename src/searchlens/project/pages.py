"""Pages that open without a server: a template of jinja and what is shown in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from searchlens.errors import printable


def rendered(template: Path, **values: Any) -> str:
    """The page: text stays text, in which nothing is markup and nothing hidden, unless the template says ``safe``."""
    import jinja2

    def shown(value: Any) -> Any:
        return value if hasattr(value, "__html__") else printable(str(value))  # markup comes from macros and ``safe``

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.from_string(template.read_text(encoding="utf-8")).render(values)
