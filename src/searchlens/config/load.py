"""Reading, merging and checking the configuration. ``validate`` reports all mistakes at once, before anything runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from searchlens import catalogue
from searchlens.config import benchmarks, boptr, checkpoints, equivalence, model, pairs, policies, study
from searchlens.config.base import unknown
from searchlens.config.model import Config
from searchlens.config.schema import keys_at
from searchlens.errors import InputError

DEFAULT_FILES = (
    "config/config.yaml",
    "config/models.yaml",
    "config/benchmarks.yaml",
    "config/policies.yaml",
    "config/boptr.yaml",
)

_CHECKED = (model, study, checkpoints, pairs, benchmarks, policies, boptr, equivalence)

_MESSAGES = {
    "missing": "is missing",
    "model_type": "must be a mapping of keys",
    "dataclass_type": "must be a mapping of keys",
    "dict_type": "must be a mapping of keys",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
}
"""Pydantic's kinds of errors whose own messages speak of Python or JSON types."""


def load(paths: Sequence[str | Path]) -> Config:
    """Read, merge and validate YAML files, later ones over earlier ones.

    Raises
    ------
    InputError
        A file is missing, is not a mapping in YAML or has a key twice, or the merged configuration has mistakes.
    """
    raw: dict[str, Any] = {}
    for path in paths:
        try:
            content = yaml.safe_load(Path(path).read_text())
            refuse_repeated(path)
        except OSError as error:
            raise InputError(
                f"cannot read {path}: {error.strerror}", "run from the folder that holds config/"
            ) from None
        except yaml.YAMLError as error:
            raise InputError(f"{path} is not YAML: {error}") from None
        if not isinstance(content, Mapping):
            raise InputError(f"{path} must be a mapping of keys, found {type(content).__name__}")
        raw = merge(raw, content)
    return validate(raw)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` merged into ``base`` as Snakemake does it: mappings key by key, everything else replaced."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def validate(raw: Mapping[str, Any]) -> Config:
    """The typed configuration; the extensions that it names are in use from then on.

    Parameters
    ----------
    raw : mapping
        The merged YAML files.

    Raises
    ------
    InputError
        Every mistake at once: unknown keys and names, wrong types, values out of range, malformed policies.
    """
    if not_json := list(_not_json(raw)):
        raise _refusal(not_json)
    try:  # by way of JSON, because strict dataclasses accept neither mappings nor lists of Python
        config = Config.model_validate_json(json.dumps(raw))
    except ValidationError as error:
        raise _refusal([_message(item) for item in error.errors()]) from None
    catalogue.use(config.extensions)
    if errors := [line for section in _CHECKED for line in section.errors(config)]:
        raise _refusal(errors)
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
    return f"{where}: {message}" + ("" if item["type"] == "missing" else f" (found {item['input']!r})")


def _refusal(errors: list[str]) -> InputError:
    count = f"{len(errors)} error{'s' if len(errors) > 1 else ''}"
    return InputError(
        f"the configuration has {count}:\n" + "\n".join(f"  {line}" for line in errors),
        "config/README.md explains every key",
    )


def refuse_repeated(path: str | Path) -> None:
    """Refuse a YAML file in which a mapping has a key twice, because YAML would drop the first without notice.

    Raises
    ------
    InputError
        Names file, lines and key.
    """
    root = yaml.compose(Path(path).read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    errors = [f"{path}, line {line}: {key} is already in line {first}" for key, first, line in _repeated(root)]
    if errors:
        raise _refusal(errors)


def _repeated(node: yaml.Node | None, where: str = "") -> Iterator[tuple[str, int, int]]:
    """Keys that a mapping has twice, with the lines of both, at every depth below a node."""
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
