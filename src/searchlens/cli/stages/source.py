"""The code that the outputs of a stage depend on, so that outputs are made again after an edit of it.

A stage depends on its own file and on every file of searchlens that this imports, directly or not: its closure, read
from the source code without running it. What counts as an import:

- an ``import`` statement, also inside of a function, but not under ``if TYPE_CHECKING``; importing a module runs the
  ``__init__`` of its packages;
- a string that is the name of a module, as for modules that are imported by name in other processes, or of a template
  (``api.pages``), which may name others in turn;
- a call such as ``loaded("table", stage="boptr")`` or ``find("grader", ...)`` of the catalogue: every file that
  declares such a thing, extensions included. ``declared`` and ``titles`` read names and options without running
  anything: of these calls the declarations count, not the code under them. Of a controller, stages are given what the
  planner resolved (``search.policy.Stated``), so only those that search depend on its code.

Another comment, docstring or blank line makes nothing again. Lines are searched, not parsed, because the planner starts
again in every job, and parsing takes seconds.

Sampling has ``GENERATION_VERSION`` instead, because its outputs are too expensive to make again after every edit.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from searchlens import catalogue
from searchlens.catalogue import PACKAGE
from searchlens.config import addons
from searchlens.store import files
from searchlens.store.files import digest

EXEMPT: Mapping[str, str] = {
    "__init__.py": "the version, which signatures have, and names for users",
    "errors.py": "messages",
    "progress.py": "progress bars",
    "store/files.py": "how a file is written, not what is in it",
    "store/provenance.py": "who made a file, which is no part of it",
}
"""Files that no output depends on, and why: after an edit of them, nothing is made again. Their imports still count."""

_RUNS = {"find": True, "loaded": True, "declared": False, "titles": False}
"""Functions of the catalogue; whether they run what is declared, or only read its names and options."""
_STRING = r'"{3}(?:(?!"{3})[\s\S])*"{3}'
_WORDS = re.compile(rf"(?P<words>^[ \t]*(?:#.*|r?{_STRING})[ \t]*$)|{_STRING}", re.MULTILINE)
_TYPES = re.compile(r"^if TYPE_CHECKING:.*\n(?:(?:[ \t].*)?\n)+", re.MULTILINE)
_IMPORT = re.compile(r"^\s*(?:from (\S+) import (\([^)]*\)|.+)|import (.+))", re.MULTILINE)
_NAME = re.compile(r'"(searchlens(?:_\w+)?\.[\w.]*|[\w/.]+\.j2)"')
_CALL = re.compile(rf"\b({'|'.join(_RUNS)})\(\s*[\"'](\w+)[\"']([^()]*)")
_OPTION = re.compile(r"(\w+)=(\"[^\"]*\"|'[^']*'|True|False|None|\d+)")


class _Call(NamedTuple):
    """A call of the catalogue."""

    runs: bool
    """Whether it runs what is declared."""
    kind: str
    options: tuple[tuple[str, Any], ...]
    """Those that are constants."""

    def declared(self) -> Mapping[str, catalogue.Declaration]:
        """What it finds."""
        return catalogue.declared(self.kind, **dict(self.options))


class _Source(NamedTuple):
    """What a file says."""

    meaning: str
    """Digest."""
    modules: set[str]
    """Names that it imports, and strings that may be names of modules or of templates."""
    calls: set[_Call]


def stage_source(stage: str) -> str:
    """Hash of the code of a stage, of ``stages/`` or of an add-on: 12 hexadecimal digits."""
    return _hash(stage, tuple(path for _, path in catalogue.extensions()))


@cache
def _hash(stage: str, _extensions: tuple[Path, ...]) -> str:
    paths = sorted(closure(stage))
    calls = sorted({call for path in paths for call in _read(path).calls}, key=repr)
    options = {repr(call): [(name, item.options) for name, item in call.declared().items()] for call in calls}
    return digest([{str(path): _read(path).meaning for path in paths}, options], 12)


def closure(stage: str) -> set[Path]:
    """Every file that a stage depends on: relative to the package, or absolute outside of it."""
    added = addons.stages().get(stage)
    found = reached(_files_of(added.module if added else f"searchlens.cli.stages.{stage}"))
    return {path for path in found if str(path) not in EXEMPT}


def reached(first: Iterable[Path]) -> set[Path]:
    """These files and all that they import, directly or not; named as by ``closure``."""
    found = set(first)
    waiting = list(found)
    while waiting:
        for path in _depends_on(waiting.pop()) - found:
            found.add(path)
            waiting.append(path)
    return found


def _depends_on(path: Path) -> set[Path]:
    source = _read(path)
    declared = (item.path for call in source.calls if call.runs for item in call.declared().values())
    return {
        *(file for name in source.modules for file in _files_of(name)),
        *(each.relative_to(PACKAGE) if each.is_relative_to(PACKAGE) else each for each in declared),
    }


@cache
def _read(path: Path) -> _Source:
    return _said(files.read_bytes(PACKAGE / path).decode(), path.suffix)


@cache
def _said(text: str, suffix: str) -> _Source:
    if suffix == ".py":
        text = _WORDS.sub(lambda found: "" if found["words"] else found[0], text)
    meaning = digest([line for line in text.splitlines() if line.strip()], 16)
    text = _TYPES.sub("", text)
    modules = set(_NAME.findall(text))
    for package, names, alone in _IMPORT.findall(text):
        imported = re.findall(r"([\w.]+)(?: as \w+)?", names or alone)
        modules |= {package, *(f"{package}.{name}" for name in imported)} if package else set(imported)
    found = ((name, kind, _OPTION.findall(rest)) for name, kind, rest in _CALL.findall(text) if kind in catalogue.HOMES)
    calls = {_Call(_RUNS[name], kind, tuple((k, ast.literal_eval(v)) for k, v in rest)) for name, kind, rest in found}
    return _Source(meaning, modules, calls)


def _files_of(name: str) -> Iterator[Path]:
    """The file of a template, or of a module and the ``__init__`` of its packages; nothing for any other name."""
    while name:
        if name in _named():
            yield _named()[name]
        name = name.rpartition(".")[0]


@cache
def _named() -> Mapping[str, Path]:
    """File of every template by its path, and of every module by its dotted name; of a package, its ``__init__``."""
    own = {_name(PACKAGE, path): path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    own |= {str(path): path for file in PACKAGE.rglob("*.j2") if (path := file.relative_to(PACKAGE))}
    folders = [addon.folder for addon in addons.addons()]
    return own | {_name(folder, path): path for folder in folders for path in folder.rglob("*.py")}


def _name(package: Path, path: Path) -> str:
    """Dotted name of the module of a file."""
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
