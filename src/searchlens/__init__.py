"""searchlens: how much of an RLVR gain was already in the base model?

``searchlens.open`` reads the results of a study, and ``searchlens.compare`` reads right and wrong answers that you
have (docs/api.md); these names are public.

``grid`` turns a ``config`` into cells, jobs and generation ids; ``store`` has every path and file on disk.
``generate`` draws samples on one of the ``engines``, under ``policies`` and controllers of ``search``; ``benchmarks``
has the questions and ``grading`` the verdicts. ``landscape`` reads samples as operating points, ``recovery`` compares
two landscapes, ``boptr`` fits the law, ``tables`` and ``figures`` show it; ``stages`` runs each from files to files.
``catalogue`` says how to add a metric, table, figure, controller, grader or benchmark family.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from searchlens.api import Comparison as Comparison
    from searchlens.api import InputError as InputError
    from searchlens.api import Study as Study
    from searchlens.api import compare as compare
    from searchlens.api import open_study as open  # noqa: A004, F401

__version__ = "0.1.0"

_PUBLIC = {
    "Comparison": "Comparison",
    "InputError": "InputError",
    "Study": "Study",
    "compare": "compare",
    "open": "open_study",
}
"""Public name to its name in ``api``, which is imported when one of them is used: planning needs none of them."""


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".api", __name__), _PUBLIC[name])


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
