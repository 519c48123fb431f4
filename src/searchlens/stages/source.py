"""The code that the outputs of a stage depend on, so that outputs are made again after an edit of it.

A stage depends on its own file and on every file of searchlens that this imports, directly or not: its closure, read
from the source code without running it. What counts as an import:

- an ``import`` statement, also inside of a function, but not under ``if TYPE_CHECKING``; importing a module runs the
  ``__init__`` of its packages;
- a string that is the name of a module, as for modules that are imported by name in other processes;
- a call such as ``loaded("table", stage="boptr")`` or ``find("grader", ...)`` of the catalogue: every file that
  declares such a thing, extensions included. ``declared`` and ``titles`` read names and options without running
  anything: of these calls the declarations count, not the code under them.

Sampling has ``GENERATION_VERSION`` instead, because its outputs are too expensive to make again after every edit.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from searchlens import catalogue
from searchlens.catalogue import PACKAGE
from searchlens.project import addons
from searchlens.store.hashing import digest, file_sha256

EXEMPT: Mapping[str, str] = {
    "errors.py": "messages",
    "progress.py": "progress bars",
    "store/files.py": "how a file is written, not what is in it",
    "store/provenance.py": "who made a file, which is no part of it",
}
"""Files that no output depends on, and why: after an edit of them, nothing is made again. Their imports still count."""

_CODE, _NAMES = ("find", "loaded"), ("declared", "titles")
"""Functions of the catalogue that run what is declared, and those that only read its names and options."""
_MODULE = re.compile(r"searchlens(_\w+)?\.")
_MENTIONS = re.compile(rf"[\"']{_MODULE.pattern}|\b(find|loaded|declared|titles)\([\"']")
"""A name of a module in a string, or a call of the catalogue."""

_SKIPPED = re.compile(
    r'"""[\s\S]*?"""|^([ \t]*)if (?:typing\.)?TYPE_CHECKING:.*\n(?:\1[ \t]+.*\n|[ \t]*\n)+', re.MULTILINE
)
"""Long strings, and blocks for type checkers."""
_FROM = re.compile(r"^[ \t]*from[ \t]+(searchlens[\w.]*)[ \t]+import[ \t]+(?:\(([^)]*)\)|([^\n(]+))", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import[ \t]+(searchlens[\w., \t]*)", re.MULTILINE)


def stage_source(stage: str) -> str:
    """Hash of the code of a stage: 12 hexadecimal digits.

    Parameters
    ----------
    stage : str
        Name of a file of ``stages/``, without its suffix, or of a stage of an add-on.
    """
    return _hash(stage, tuple(path for _, path in catalogue.extensions()))


@cache
def _hash(stage: str, _extensions: tuple[Path, ...]) -> str:
    files = sorted(closure(stage))
    names = {call for path in files for call in _read(path).names}
    declarations = [
        (kind, options, [(name, item.options) for name, item in catalogue.declared(kind, **dict(options)).items()])
        for kind, options in sorted(names, key=str)
    ]
    return digest([{str(path): _sha256(path) for path in files}, declarations], 12)


@cache
def _sha256(path: Path) -> str:
    return file_sha256(path if path.is_absolute() else PACKAGE / path)


def closure(stage: str) -> set[Path]:
    """Every file that a stage depends on: relative to the package, or absolute outside of it."""
    added = addons.stages().get(stage)
    reached = set(_files_of(added.module if added else f"searchlens.stages.{stage}"))
    waiting = list(reached)
    while waiting:
        for path in _depends_on(waiting.pop()) - reached:
            reached.add(path)
            waiting.append(path)
    return {path for path in reached if str(path) not in EXEMPT}


def _depends_on(path: Path) -> set[Path]:
    source = _read(path)
    calls = (catalogue.declared(kind, **dict(options)) for kind, options in source.code)
    declared = (declaration.path for found in calls for declaration in found.values())
    return {
        *source.imports,
        *(each.relative_to(PACKAGE) if each.is_relative_to(PACKAGE) else each for each in declared),
    }


Call = tuple[str, tuple[tuple[str, object], ...]]
"""Kind and constant options of a call of the catalogue."""


class _Source(NamedTuple):
    """Files that a file imports, and its calls of the catalogue that run what is declared, or read its names."""

    imports: frozenset[Path]
    code: tuple[Call, ...]
    names: tuple[Call, ...]


@cache
def _read(path: Path) -> _Source:
    text = (path if path.is_absolute() else PACKAGE / path).read_text()
    if path.is_absolute() or _MENTIONS.search(text):
        return _parsed(path)
    files = {file for name in _imported(text) for file in _files_of(name)}
    return _Source(frozenset(files - {path}), (), ())


def _imported(text: str) -> set[str]:
    """Names that the import statements of a file of the package bring; a tree of its syntax takes ten times as long."""
    text = _SKIPPED.sub("", text)
    names = {name.split(" as ")[0].strip() for line in _IMPORT.findall(text) for name in line.split(",")}
    for module, inside, plain in _FROM.findall(text):
        brought = (name.partition("#")[0].split(" as ")[0].strip() for name in re.split(r"[,\n]", inside or plain))
        names |= {module, *(f"{module}.{name}" for name in brought if name)}
    return names


def _parsed(path: Path) -> _Source:
    """As ``_read``, from the syntax tree."""
    names: set[str] = set()
    code: list[Call] = []
    declared: list[Call] = []
    for node in _nodes(catalogue.parse(path if path.is_absolute() else PACKAGE / path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE.match(node.value):
            names.add(node.value)
        elif isinstance(node, ast.Call):
            code += _catalogue_call(node, _CODE)
            declared += _catalogue_call(node, _NAMES)
    files = {file for name in names for file in _files_of(name)}
    return _Source(frozenset(files - {path}), tuple(code), tuple(declared))


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement that runs, and every expression in it; blocks for type checkers do not run."""
    waiting = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
                continue
            yield node
            waiting.append(node)


def _catalogue_call(node: ast.Call, functions: Sequence[str]) -> list[Call]:
    """The call, if it is one of these functions with a constant kind."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    kind = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
    if name not in functions or kind not in catalogue.HOMES:
        return []
    options = {key.arg: key.value.value for key in node.keywords if key.arg and isinstance(key.value, ast.Constant)}
    return [(str(kind), tuple(options.items()))]


def _files_of(name: str) -> Iterator[Path]:
    """The file of a module and the ``__init__`` of its packages; nothing for any other name."""
    while name:
        if name in _modules():
            yield _modules()[name]
        name = name.rpartition(".")[0]


@cache
def _modules() -> Mapping[str, Path]:
    """File of every module of searchlens by its dotted name; of a package, its ``__init__``."""
    own = {_name(PACKAGE, path): path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    folders = [addon.folder for addon in addons.addons()]
    return own | {_name(folder, path): path for folder in folders for path in folder.rglob("*.py")}


def _name(package: Path, path: Path) -> str:
    """Dotted name of the module of a file."""
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
