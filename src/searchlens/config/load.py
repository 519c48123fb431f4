"""Reading, merging and checking the configuration. ``validate`` reports all mistakes at once, before anything runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from searchlens import catalogue
from searchlens.config import benchmarks, boptr, checkpoints, cost, equivalence, model, pairs, policies, readings, study
from searchlens.config.base import unknown
from searchlens.config.model import Config
from searchlens.config.schema import keys_at, number_at
from searchlens.errors import InputError
from searchlens.project import OWN_FILE
from searchlens.store import yaml_text

DEFAULT_FILES = (
    "config/config.yaml",
    "config/models.yaml",
    "config/benchmarks.yaml",
    "config/policies.yaml",
    "config/boptr.yaml",
)

_CHECKED = (model, study, checkpoints, pairs, benchmarks, policies, readings, boptr, equivalence, cost)

_MESSAGES = {
    "missing": "is missing",
    "model_type": "must be a mapping of keys",
    "dataclass_type": "must be a mapping of keys",
    "dict_type": "must be a mapping of keys",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
}
"""Pydantic's kinds of errors whose own messages speak of Python or JSON types."""

_KINDS = {list: "list", str: "text", int: "number", float: "number", bool: "truth value"}

_NUMBERS = {
    *("int_type", "int_from_float", "float_type", "finite_number"),
    *("greater_than", "greater_than_equal", "less_than", "less_than_equal"),
}
"""Pydantic's kinds of errors about numbers. Their messages give all limits, not only the one that was missed."""

_POWER_OF_TEN = re.compile(r"([-+]?\d+(?:\.\d*)?)[eE]([-+]?)(\d+)")


def load(paths: Sequence[str | Path]) -> Config:
    """Read, merge and validate YAML files, later ones over earlier ones.

    Raises
    ------
    InputError
        A file is missing, is not a mapping in YAML or has a key twice, or the merged configuration has mistakes.
    """
    files = read(paths)
    return validate(reduce(merge, files.values(), {}), files)


def files(extra: Iterable[str] = ()) -> list[str]:
    """The files of the study in the present folder, in the order in which they are merged; ``extra`` ones last."""
    return [*DEFAULT_FILES, *overlays(extra)]


def overlays(extra: Iterable[str] = ()) -> list[str]:
    """What is merged over the default files: ``OWN_FILE`` if it exists, and ``extra``, each once."""
    own = [OWN_FILE] if Path(OWN_FILE).exists() else []
    return list(dict.fromkeys([*own, *extra]))


def read(paths: Iterable[str | Path]) -> dict[str, Mapping[str, Any]]:
    """Content of each YAML file, by its path.

    Raises
    ------
    InputError
        A file is missing, is not a mapping in YAML or has a key twice.
    """
    return {str(path): _content(Path(path)) for path in paths}


def _content(path: Path) -> Mapping[str, Any]:
    try:
        loader, node = yaml_text.compose(path)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", "run in the study's folder, or name it: -C DIR"
        ) from None
    repeated = list(_repeated(node))  # first: constructing writes merged keys into the nodes
    content = yaml_text.construct(path, loader, node)
    if not isinstance(content, Mapping):
        found = "nothing" if content is None else f"a {_KINDS.get(type(content), 'single value')}"
        raise InputError(f"{path} must be a mapping of keys, found {found}", "config/README.md explains every key")
    if errors := [f"{path}, line {line}: {key} is already in line {first}" for key, first, line in repeated]:
        raise _refusal(errors)
    return content


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` merged into ``base`` as Snakemake does it: mappings key by key, everything else replaced."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def validate(raw: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]] | None = None) -> Config:
    """The typed configuration; the extensions that it names are in use from then on.

    Parameters
    ----------
    raw : mapping
        The merged YAML files.
    files : mapping, optional
        The content of each of them by its path (``read``): messages then name the file that sets a wrong key.

    Raises
    ------
    InputError
        Every mistake at once: unknown keys and names, wrong types, values out of range, malformed policies.
    """
    not_json = [f"{path}: {line}" for path, content in (files or {}).items() for line in _not_json(content)]
    if not_json := not_json or list(_not_json(raw)):
        raise _refusal(not_json)
    try:  # by way of JSON, because strict dataclasses accept neither mappings nor lists of Python
        config = Config.model_validate_json(json.dumps(raw))
    except ValidationError as error:
        raise _refusal([_with_file(_message(item), files or {}, _key(item)) for item in error.errors()]) from None
    try:
        catalogue.use(config.extensions)
    except InputError as error:
        raise InputError(_with_file(error.message, files or {}), error.hint) from None
    if errors := [line for section in _CHECKED for line in section.errors(config)]:
        raise _refusal(errors, files)
    return benchmarks.with_regimes(config)


def plain(config: Config) -> dict[str, Any]:
    """The configuration as plain JSON types, with its defaults: what ``grid.Grid`` takes."""
    return config.model_dump(mode="json")


def _not_json(value: Any, where: str = "") -> Iterator[str]:
    """Keys that are not strings and values such as dates, which YAML has and JSON has not."""
    if isinstance(value, Mapping):
        for key, content in value.items():
            if not isinstance(key, str):
                yield f"{where or 'configuration'}: key {key!r} must be a string; put it in quotes"
            yield from _not_json(content, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list | tuple):
        for content in value:
            yield from _not_json(content, where)
    elif not isinstance(value, str | int | float | None):
        yield f"{where}: {value} is a {type(value).__name__}; put it in quotes"


def _message(item: Any) -> str:
    """One mistake that pydantic found, with its place."""
    if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        *place, key = item["loc"]
        return unknown(".".join(map(str, place)) or "configuration", key, keys_at(place))
    where = ".".join(str(part) for part in item["loc"] if part != "[key]")
    message = _MESSAGES.get(item["type"], item["msg"].replace("Tuple should", "List should"))
    if item["type"] in _NUMBERS:
        message = f"must be {number_at(item['loc'])}"
    found = "" if item["type"] == "missing" else f" (found {item['input']!r}{_yaml_hint(item)})"
    return f"{where}: {message}{found}"


def _yaml_hint(item: Any) -> str:
    """How to write a number such as 1e5, which YAML reads as a text because it has no point or no sign."""
    if item["type"] not in _NUMBERS or not isinstance(item["input"], str):
        return ""
    if not (match := _POWER_OF_TEN.fullmatch(item["input"])):
        return ""
    digits, sign, exponent = match.groups()
    written, value = f"{digits if '.' in digits else digits + '.0'}e{sign or '+'}{exponent}", float(item["input"])
    plain = f" or {value:.0f}" if value.is_integer() and abs(value) < 1e16 else ""
    return f", a text in YAML; write {written}{plain}"


def _refusal(errors: Iterable[str], files: Mapping[str, Mapping[str, Any]] | None = None) -> InputError:
    lines = [_with_file(line, files or {}) for line in errors]
    count = f"{len(lines)} error{'s' if len(lines) > 1 else ''}"
    return InputError(
        f"the configuration has {count}:\n" + "\n".join(f"  {line}" for line in lines),
        "config/README.md explains every key",
    )


def _key(item: Any) -> str:
    """The key about which pydantic has an error, as a message begins with it."""
    return ".".join(str(part) for part in item["loc"] if part != "[key]") + ":"


def _with_file(line: str, files: Mapping[str, Mapping[str, Any]], key: str = "") -> str:
    """A message behind the file that sets its key, by default what it begins with; of several, the file merged last."""
    depths = {path: _depth(key or line, content) for path, content in files.items()}
    path = max(reversed(depths), key=depths.__getitem__, default="")
    return f"{path}: {line}" if depths.get(path) else line


def _depth(line: str, content: object) -> int:
    """How many characters at the beginning of a message are keys of a mapping, one below the other."""
    if not isinstance(content, Mapping):
        return 0
    keys = [key for key in map(str, content) if line.startswith((f"{key}.", f"{key}:"))]
    return max((len(key) + _depth(line[len(key) + 1 :], content.get(key)) for key in keys), default=0)


def _repeated(node: yaml.Node | None, where: str = "") -> Iterator[tuple[str, int, int]]:
    """Keys that a mapping has twice, with the lines of both, at every depth below a node.

    YAML would drop the first of them without notice.
    """
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _repeated(item, where)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = f"{where}{key.value}", key.start_mark.line + 1
            if name in lines:
                yield name, lines[name], line
            lines[name] = line
            yield from _repeated(value, f"{name}.")
