"""Where the files of the project are that are not Python: the workflow, its configuration and profiles, the micro pair.

In a checkout they lie at its top level. A wheel has copies of them in ``searchlens/project`` (``hatch_build.py`` lists
which), and the micro pair in a wheel of its own, ``searchlens-zoo``, with the package ``searchlens_zoo``.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from searchlens.config.addons import missing
from searchlens.errors import InputError, within

TEMPLATES = Path(__file__).parents[1] / "cli/templates"
"""Files that ``searchlens init`` writes and that the checkout does not have at its top level."""

OWN_FILE = "config/own.yaml"
"""A study's own settings, merged over its other files wherever it exists (``searchlens init`` writes one)."""
PLACEHOLDER = "your-org/"
"""Names of the hub that begin so, in the file that ``searchlens init`` writes, are to be filled in."""

IMPORTS_FILE = "config/imports.yaml"
"""Overlay of a study of all imported samples and nothing else (docs/import.md)."""

ZOO_PREFIX = "zoo:"
"""A path of the configuration that begins so lies in the micro zoo, wherever this is: ``zoo:micro-1m-base``."""

_ZOO_PACKAGE = "searchlens_zoo"


def root() -> Path:
    """Folder that has ``Snakefile``, ``workflow/``, ``config/`` and ``profiles/``."""
    package = Path(__file__).parents[1]
    packaged = package / "project"
    return packaged if packaged.is_dir() else package.parents[1]


def zoo() -> Path:
    """Folder of the micro pair, and of the cohort in a checkout; InputError without that and ``searchlens-zoo``."""
    checkout = root() / "resources" / "zoo"
    if checkout.is_dir():
        return checkout
    package = find_spec(_ZOO_PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise missing(_ZOO_PACKAGE)
    return Path(package.submodule_search_locations[0])


def cohort() -> Path:
    """Folder of the cohort of the zoo. Raises InputError if there is no checkout: 39 MB are too much for a wheel."""
    folder = root() / "resources" / "zoo" / "cohort"
    if not folder.is_dir():
        raise InputError(
            "the cohort of the zoo is in the repository alone, not in the package",
            "clone the repository, and name its folder resources/zoo/cohort",
        )
    return folder


def locate(path: str, study: Path = Path()) -> Path:
    """A path in the micro zoo, InputError if that is not installed, or relative to the folder of the study."""
    if not path.startswith(ZOO_PREFIX):
        return study / path
    name = Path(path.removeprefix(ZOO_PREFIX))
    with within(path):
        return (cohort().parent if name.parts[:1] == ("cohort",) else zoo()) / name
