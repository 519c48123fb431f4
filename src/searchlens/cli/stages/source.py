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

Of each file its meaning counts: another comment or docstring makes nothing again. What a content says is kept in a
file, because the planner starts again in every job, and parsing takes a second.

Sampling has ``GENERATION_VERSION`` instead, because its outputs are too expensive to make again after every edit.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from searchlens import catalogue
from searchlens.catalogue import PACKAGE
from searchlens.config import addons
from searchlens.errors import InputError
from searchlens.store import files
from searchlens.store.files import digest

EXEMPT: Mapping[str, str] = {
    "errors.py": "messages",
    "progress.py": "progress bars",
    "store/files.py": "how a file is written, not what is in it",
    "store/provenance.py": "who made a file, which is no part of it",
}
"""Files that no output depends on, and why: after an edit of them, nothing is made again. Their imports still count."""

_RUNS = {"find": True, "loaded": True, "declared": False, "titles": False}
"""Functions of the catalogue; whether they run what is declared, or only read its names and options."""
_NAME = re.compile(r"searchlens(_\w+)?\.|[\w/.]+\.j2$")
_TEMPLATE = re.compile(rb'"([\w/.]+\.j2)"')


class _Source(NamedTuple):
    """What a file says."""

    meaning: str
    """Digest."""
    modules: list[str]
    """Names that it imports, and strings that may be names of modules or of templates."""
    calls: list[str]
    """Calls of the catalogue in JSON: whether they run what is declared, its kind, the constant options."""


_known: dict[str, _Source] = {}
"""By the sha256 of the content."""


def stage_source(stage: str, kept: Path | None = None) -> str:
    """Hash of the code of a stage, of ``stages/`` or of an add-on: 12 hexadecimal digits.

    A file (``layout.sources``) may keep from one process to the next what contents say.
    """
    return _hash(stage, tuple(path for _, path in catalogue.extensions()), kept)


@cache
def _hash(stage: str, _extensions: tuple[Path, ...], kept: Path | None) -> str:
    before = _recall(kept)
    paths = sorted(closure(stage))
    calls = {call: _declared(call) for path in paths for call in _read(path).calls}
    options = {call: [(name, item.options) for name, item in found.items()] for call, found in calls.items()}
    if kept and len(_known) > before and kept.parent.parent.is_dir():  # a dry run makes no folder of results
        with suppress(InputError):  # read only: the next process parses the files, too
            files.replace_text(kept, json.dumps(_known))
    return digest([{str(path): _read(path).meaning for path in paths}, options], 12)


def _recall(kept: Path | None) -> int:
    """Read what earlier processes kept, unless it is damaged; returns how much is known."""
    with suppress(OSError, TypeError, ValueError, AttributeError, RecursionError):
        known = json.loads(kept.read_bytes()) if kept and not _known else {}
        _known.update({content: _Source(*said) for content, said in known.items()})
    return len(_known)


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
    runs = (_declared(call) for call in source.calls if json.loads(call)[0])
    declared = (declaration.path for found in runs for declaration in found.values())
    return {
        *(file for name in source.modules for file in _files_of(name)),
        *(each.relative_to(PACKAGE) if each.is_relative_to(PACKAGE) else each for each in declared),
    }


def _declared(call: str) -> Mapping[str, catalogue.Declaration]:
    _, kind, options = json.loads(call)
    return catalogue.declared(kind, **options)


@cache
def _read(path: Path) -> _Source:
    content = files.read_bytes(PACKAGE / path)
    key = sha256(content).hexdigest()
    if key not in _known:
        _known[key] = (
            _parsed(content)
            if path.suffix == ".py"
            else _Source(digest(content.decode(), 16), [name.decode() for name in _TEMPLATE.findall(content)], [])
        )
    return _known[key]


def _parsed(content: bytes) -> _Source:
    tree = ast.parse(content)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [each for each in body if not _is_text(each)]
    modules: set[str] = set()
    calls: list[str] = []
    for node in _nodes(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.match(node.value):
            modules.add(node.value)
        elif isinstance(node, ast.Call):
            calls += _catalogue_call(node)
    return _Source(digest(ast.dump(tree), 16), sorted(modules), calls)


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a string alone: a docstring, or the text below a field."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement that runs, and every expression in it; blocks for type checkers do not run."""
    waiting = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
                continue
            yield node
            waiting.append(node)


def _catalogue_call(node: ast.Call) -> Iterator[str]:
    """The call, if it is one of the catalogue with a constant kind."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    kind = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
    if name in _RUNS and kind in catalogue.HOMES:
        options = {key.arg: key.value.value for key in node.keywords if key.arg and isinstance(key.value, ast.Constant)}
        yield json.dumps([_RUNS[name], kind, options])


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
