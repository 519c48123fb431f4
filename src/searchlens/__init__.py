"""searchlens: how much of an RLVR gain was already in the base model?

``searchlens.open`` reads the results of a study, ``searchlens.compare`` right and wrong answers that you have, and
``searchlens.demo`` sample logs (docs/api.md); these names are public.

``plan`` turns a ``config`` into cells, jobs and generation ids; ``store`` has every path and file on disk.
``sampling`` draws samples on one of the ``engines``, under policies and controllers of ``search``; ``benchmarks`` has
the questions and ``grading`` the verdicts. ``analysis`` reads samples as a landscape and compares two of them,
``boptr`` fits the law, ``reporting`` shows it; ``cli.stages`` runs each from files to files.
``catalogue`` says how to add a metric, table, figure, controller, grader or benchmark family.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from searchlens.api.study import Study as Study
    from searchlens.api.study import open_study as open  # noqa: A004, F401
    from searchlens.comparison.arrays import Comparison as Comparison
    from searchlens.comparison.arrays import compare as compare
    from searchlens.comparison.logs import LogComparison as LogComparison
    from searchlens.comparison.logs import demo as demo
    from searchlens.errors import InputError as InputError

__version__ = "0.2.0"

_PUBLIC = {
    "Comparison": ("comparison.arrays", "Comparison"),
    "LogComparison": ("comparison.logs", "LogComparison"),
    "InputError": ("errors", "InputError"),
    "Study": ("api.study", "Study"),
    "compare": ("comparison.arrays", "compare"),
    "demo": ("comparison.logs", "demo"),
    "open": ("api.study", "open_study"),
}
"""Public name to the module that has it, imported when it is used, and its name there: planning needs none of them."""


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, inner = _PUBLIC[name]
    return getattr(import_module(f"{__name__}.{module}"), inner)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
