"""The parts of a study by name: the kinds of ``HOMES``, and the Parquet files between stages.

Each of a kind is declared where it is written, with a decorator of this module::

    @table("blocks", stage="boptr")
    def blocks(context: BoptrContext) -> Table: ...

and is listed nowhere else. The names are read from the source code, without importing it, because the Snakefile needs
them several times per job; the code itself is imported when it is needed (``find``). A file outside of the package
declares in the same way, once the configuration names it under ``extensions``.

Frames of other stages than BOPTR are listed here.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from zlib import crc32

from searchlens.config import addons
from searchlens.errors import InputError, require_known

PACKAGE = Path(__file__).parent

HOMES = {
    "metric": "analysis",
    "table": "reporting",
    "figure": "reporting",
    "controller": "search",
    "grader": "grading",
    "family": "benchmarks",
    "reader": "formats",
    "engine": "engines",
    "exporter": "formats",
    "frame": "boptr",
}
"""Kind of thing to the package of searchlens whose files declare it."""

LANDSCAPE_FRAMES = ("points", "hits", "classes", "votes", "health")
RECOVERY_FRAMES = ("same_policy", "counts", "support", "near_match", "path", "geometry")
MEASURE_FRAMES = (
    *("equivalents", "crossings", "exponents", "exponent_profiles", "joint_exponents"),
    *("support", "support_changes", "measures", "variance", "extrapolated"),
)
LIKELIHOOD_FRAMES = ("texts", "summary", "bounds", "handover", "splits", "positions")
BOPTR_WORDS = ("blocks", "protocol_flags", "checklist")
"""Those that depend on titles and on the limits of the health check, as tables and figures do."""
_BOPTR_MADE = ("errors", "means", "contrasts", "nulls", "v4", "v4_null", "v4_summary")
"""Frames that ``boptr.study`` makes itself."""

STAGES = {
    "table": ("study", "boptr", "likelihood"),
    "figure": ("pair", "study", "boptr", "likelihood"),
}
"""The stages that build tables and figures, beside those of add-ons: ``pair`` is one pair on one benchmark,
``likelihood`` those of a study that scores texts under both sides."""

TABLE_FORMATS = ("csv", "md", "tex", "html")
FIGURE_FORMATS = ("svg", "pdf", "png", "csv")

_VARIABLE = "SEARCHLENS_EXTENSIONS"
"""Environment variable that passes the extensions in use to child processes."""

Declared = TypeVar("Declared", bound=Callable[..., Any])


# ---- declaring

_things: dict[tuple[str, str], Any] = {}


def _declares(kind: str) -> Callable[..., Callable[[Declared], Declared]]:
    def decorator(name: str, **_options: Any) -> Callable[[Declared], Declared]:
        def register(thing: Declared) -> Declared:
            _things[kind, name] = thing
            return thing

        return register

    return decorator


metric, table, figure, controller, grader, family, reader, engine, exporter, frame = map(_declares, HOMES)
"""A frame is of BOPTR: a function of the rule on the sample view and, as ``boot``, of the bootstrap view."""


# ---- declarations


@dataclass(frozen=True)
class Declaration:
    """One declaration, as read from the source file, before it is imported."""

    kind: str
    """Key of ``HOMES``."""
    name: str
    module: str
    """Dotted name, or the path of a file outside of the package."""
    path: Path
    """The file."""
    options: Mapping[str, Any]
    """Keyword arguments of the decorator, which are literals."""

    @property
    def is_extension(self) -> bool:
        """Whether the file is outside of the package."""
        return not self.path.is_relative_to(PACKAGE)


def declared(kind: str, **options: Any) -> dict[str, Declaration]:
    """All declarations of a kind, a key of ``HOMES``, by name; only those with the given options, if there are any.

    Those of the package come first, in the order of files, then those of extensions in use. Raises InputError if two
    files declare the same name, an option is not a literal, or a table or figure has no valid stage.
    """
    known = _declared(kind, tuple(extensions()))
    return {name: item for name, item in known.items() if options.items() <= item.options.items()}


@cache
def _declared(kind: str, extra: tuple[tuple[str, Path], ...]) -> Mapping[str, Declaration]:
    """All declarations of a kind by name; a planner asks for them thousands of times."""
    by_name: dict[str, Declaration] = {}
    stages = [*STAGES.get(kind, ())]
    if kind == "table":
        stages += [table for added in addons.stages().values() for table in added.tables]
    for module, path in [*_modules(HOMES[kind]), *_added(), *extra]:
        for declaration in _declarations(module, path):
            name = declaration.name
            if declaration.kind != kind:
                continue
            if stages and (stage := declaration.options.get("stage")) not in stages:
                what = f"{kind} {name!r} in {path}: stage={stage!r}"
                raise InputError(f"{what}; allowed: {', '.join(stages)}")
            if name in by_name:
                raise InputError(f"{kind} {name!r} is declared twice: in {by_name[name].path} and in {path}")
            by_name[name] = declaration
    return by_name


def boptr_frames() -> tuple[str, ...]:
    """Every frame of BOPTR: those of the study, those that are declared, and those in words."""
    return (*_BOPTR_MADE, *declared("frame"), *BOPTR_WORDS)


def titles(kind: str, **options: Any) -> dict[str, str]:
    """Titles by name, of all declarations of a kind with these options."""
    return {name: declaration.options.get("title", name) for name, declaration in declared(kind, **options).items()}


def find(kind: str, name: str) -> Any:
    """The function or class declared under a name, whose module is imported; InputError lists the known names."""
    return definition(declaration(kind, name))


def declaration(kind: str, name: str) -> Declaration:
    """The declaration of a name, InputError if unknown; ``recorded:exact_match`` is the grader ``recorded``."""
    known = declared(kind)
    first = name.partition(":")[0]
    if first in known and known[first].options.get("recorded"):
        return known[first]
    return known[require_known(name, known, kind)]


def loaded(kind: str, **options: Any) -> dict[str, Declaration]:
    """As ``declared``, for a stage that uses the definitions: it depends on their code (``cli/stages/source.py``)."""
    return declared(kind, **options)


def definition(declaration: Declaration) -> Any:
    """The function or class that was declared; its module is imported for it."""
    import_named(declaration.module)
    return _things[declaration.kind, declaration.name]


def figure_files(figures: Mapping[str, Declaration]) -> dict[str, tuple[str, str | None]]:
    """A figure's name and its metric by the name of its files: ``gap_map_P`` to ``("gap_map", "P")``.

    Figures that are declared with ``per_metric=True`` are drawn for every metric that is declared with ``drawn=True``.
    Files of all others have the figure's name, and their metric is None.
    """
    files: dict[str, tuple[str, str | None]] = {}
    for name, declaration in figures.items():
        if declaration.options.get("per_metric"):
            files |= {f"{name}_{metric}": (name, metric) for metric in declared("metric", drawn=True)}
        else:
            files[name] = (name, None)
    return files


def import_named(module: str) -> ModuleType:
    """Import a module by its dotted name, or a file outside of the package by its path; once per process."""
    return _import_file(Path(module)) if module.endswith(".py") else import_module(module)


_DECORATOR = re.compile(rf"^@(?:\w+\.)*(?:{'|'.join(HOMES)})\(", re.MULTILINE)
_DEFINITION = re.compile(r"^(?:def|class) ", re.MULTILINE)


@cache
def _modules(package: str) -> tuple[tuple[str, Path], ...]:
    files = sorted((PACKAGE / package).rglob("*.py"))
    return tuple((".".join(("searchlens", *path.relative_to(PACKAGE).with_suffix("").parts)), path) for path in files)


@cache
def _added() -> tuple[tuple[str, Path], ...]:
    return tuple((name, addons.path_of(name)) for addon in addons.addons() for name in addon.declares)


@cache
def _declarations(module: str, path: Path) -> list[Declaration]:
    """The declarations of a file. Only the decorators are parsed: to parse whole files would slow down every job."""
    text, found = path.read_text(), list[Declaration]()
    for match in _DECORATOR.finditer(text):
        definition = _DEFINITION.search(text, match.end())
        if definition is None:
            continue
        padding = "\n" * text.count("\n", 0, match.start())  # so that messages have the lines of the file
        (stub,) = ast.parse(padding + text[match.start() : definition.start()] + "def _(): ...").body
        assert isinstance(stub, ast.FunctionDef)
        call = stub.decorator_list[0]
        if isinstance(call, ast.Call) and call.args:
            options = {str(key.arg): _literal(key.value, path) for key in call.keywords}
            kind = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            found.append(Declaration(kind, _literal(call.args[0], path), module, path, options))
    return found


def _literal(node: ast.expr, path: Path) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise InputError(
            f"{path}, line {node.lineno}: {ast.unparse(node)} is not a literal",
            "write the options of a declaration as constants: they are read without running the file",
        ) from None


# ---- extensions


def use(names: Sequence[str], root: Path = Path()) -> None:
    """Use these files as extensions, in place of earlier ones, in this process and in its child processes.

    Names are paths of Python files, relative to ``root``, or dotted names of modules that can be imported. Raises
    InputError if there is no such file or module.
    """
    paths = [_locate(name, root) for name in names]
    os.environ[_VARIABLE] = os.pathsep.join(map(str, paths))


def extensions() -> list[tuple[str, Path]]:
    """Name and file of every extension in use."""
    paths = filter(None, os.environ.get(_VARIABLE, "").split(os.pathsep))
    return [(path, Path(path)) for path in paths]


def _locate(name: str, root: Path) -> Path:
    if name.endswith(".py"):
        path = (root / name).absolute()
        if not path.is_file():
            raise InputError(f"extensions: {name} does not exist", "name a Python file, or a module that is installed")
        return path
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise InputError(f"extensions: no module {name!r}", "name a Python file, or a module that is installed")
    return Path(spec.origin)


@cache
def _import_file(path: Path) -> ModuleType:
    name = f"searchlens_extension_{path.stem}_{crc32(str(path).encode()):08x}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"extensions: {path} is not a Python file")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        del sys.modules[name]
        why = (
            addons.missing(error.name) if error.name in addons.EXTRAS else InputError(f"no module {error.name!r} here")
        )
        raise InputError(f"extension {path}: {why.message}", why.hint) from None
    return module
