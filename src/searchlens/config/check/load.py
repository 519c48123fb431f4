"""Reading, merging and checking the configuration. ``validate`` reports all mistakes at once, before anything runs."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from searchlens import catalogue
from searchlens.config import addons
from searchlens.config.check.schema import adapter, keys_at, node_at, number_at, unknown
from searchlens.config.check.sections import absent, sampled_errors, study_errors, with_regimes
from searchlens.config.model import Config, added
from searchlens.config.project import OWN_FILE
from searchlens.errors import NAME, NAMES, InputError, counted, one_line
from searchlens.store import yaml_text

log = logging.getLogger(__name__)

DEFAULT_FILES = (
    "config/config.yaml",
    "config/models.yaml",
    "config/benchmarks.yaml",
    "config/policies.yaml",
    "config/boptr.yaml",
)

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

    An InputError: a file is missing, is not a mapping in YAML or has a key twice, or the merged configuration has
    mistakes.
    """
    files = read(paths)
    return validate(files.merged, files)


def files(extra: Iterable[str] = ()) -> list[str]:
    """The files of the study in the present folder, in the order in which they are merged; ``extra`` ones last."""
    return [*DEFAULT_FILES, *overlays(extra)]


def overlays(extra: Iterable[str] = ()) -> list[str]:
    """What is merged over the default files: ``OWN_FILE`` if it exists, and ``extra``, each once."""
    own = [OWN_FILE] if Path(OWN_FILE).exists() else []
    return list(dict.fromkeys([*own, *extra]))


@dataclass(frozen=True)
class Files:
    """The YAML files of a configuration in the order in which they are merged."""

    contents: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)
    """Keys that a file has twice, and numbers that YAML reads as others."""

    @property
    def merged(self) -> dict[str, Any]:
        """The content of all files, later ones over earlier ones."""
        return reduce(merge, self.contents.values(), {})

    def named(self, text: str, key: str = "") -> str:
        """A message, each line behind the file that sets its key, by default what it begins with."""
        return re.sub(r"(?m)^( *)(.+)", lambda line: f"{line[1]}{self._setting(line[2], key)}{line[2]}", text)

    def _setting(self, line: str, key: str) -> str:
        depths = {path: _depth(key or line, content) for path, content in self.contents.items()}
        path = max(reversed(depths), key=depths.__getitem__, default="")  # of several, the one that is merged last
        least = 0 if key or "." not in line.partition(": ")[0] else line.index(".")  # samples.jsonl is no key
        return f"{path}: " if depths.get(path, 0) > least else ""


def read(paths: Iterable[str | Path]) -> Files:
    """The content of YAML files; an InputError if one is missing, or is not a mapping in YAML."""
    mistakes: list[str] = []
    return Files({str(path): _content(Path(path), mistakes) for path in paths}, mistakes)


def _content(path: Path, mistakes: list[str]) -> Mapping[str, Any]:
    try:
        loader, node = yaml_text.compose(path)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", "run in the study's folder, or name it: -C DIR"
        ) from None
    mistakes += [f"{path}, line {line}: {text}" for line, text in yaml_text.mistakes(node)]
    content = yaml_text.construct(path, loader, node)
    if not isinstance(content, Mapping):
        found = "nothing" if content is None else f"a {_KINDS.get(type(content), 'single value')}"
        raise InputError(f"{path} must be a mapping of keys, found {found}", "config/README.md explains every key")
    return content


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` merged into ``base`` as Snakemake does it: mappings key by key, everything else replaced."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def validate(raw: Mapping[str, Any], files: Files = Files()) -> Config:
    """The typed configuration of merged YAML files; the extensions that it names are in use from then on.

    An InputError names every mistake at once: unknown keys and names, wrong types, values out of range, malformed
    policies. Of a configuration with mistakes, files and folders that are not there as well.
    """
    not_json = [f"{path}: {line}" for path, content in files.contents.items() for line in _not_json(content)]
    config, wrong = _typed(_known(raw))
    lines = [*files.mistakes, *(not_json or _not_json(raw))]
    lines += [files.named(_message(item), _key(item)) for item in wrong]
    found = _cross_errors(config) if config else ()
    lines += [files.named(line) for line in found if not any(_follows(line, item) for item in wrong)]
    if lines or config is None:
        lines += map(files.named, absent(config) if config else ())
        count = f"the configuration has {counted(len(lines), 'error')}:"
        raise InputError("\n  ".join([count, *lines]), "config/README.md explains every key")
    return with_regimes(config)


def _known(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without sections of distributions that are not installed, each of which is said."""
    absent = {name: raw[name] for name in addons.SECTIONS.keys() & raw.keys() - added().keys()}
    for name in filter(absent.get, absent):
        why = addons.missing(addons.SECTIONS[name])
        log.warning("%s is left out: %s; %s", name, why.message, why.hint)
    return {name: content for name, content in raw.items() if name not in absent}


def _typed(raw: Mapping[str, Any]) -> tuple[Config | None, list[ErrorDetails]]:
    """The configuration without what pydantic refuses, and what that is; None if too little is left."""
    # by way of JSON, because strict dataclasses accept neither mappings nor lists of Python
    left = json.loads(json.dumps(raw, default=str, skipkeys=True, ensure_ascii=False).encode("utf-8", "replace"))
    found: list[ErrorDetails] = []
    for attempt in range(6):  # a value of a wrong type is taken out, is then missing, has keys that are missing, ...
        try:
            return adapter().validate_json(json.dumps(left)), found
        except ValidationError as error:
            items = error.errors()
        found = found or items
        _take_out(left, items, fill=attempt < 3)
    return None, found


def _take_out(left: Any, items: Iterable[ErrorDetails], *, fill: bool) -> None:
    """Take wrong values out of a configuration; fill in what is missing, or take out what it is missing of."""
    wrong: dict[tuple[int, Any], Any] = {}
    for item in items:
        inner, owner, key = left, None, None
        for part in item["loc"]:  # behind the keys may be the type that was tried
            if not (part in inner if isinstance(inner, dict) else isinstance(inner, list) and isinstance(part, int)):
                break
            owner, key, inner = inner, part, inner[part]
        if fill and item["type"] == "missing":
            node = node_at(item["loc"])
            inner[item["loc"][-1]] = {"array": [], "object": {}, "string": "x"}.get(node["type"], node.get("minimum"))
        elif owner is not None:
            wrong[id(owner), key] = owner
    for (_, key), owner in reversed(wrong.items()):
        del owner[key]


def _cross_errors(config: Config) -> Iterator[str]:
    """Mistakes for which more than one value is needed."""
    sections = [study_errors]
    try:
        catalogue.use(config.extensions)
        sections += [sampled_errors, *(section.errors for section in added().values())]
    except InputError as error:
        yield error.message
    for errors in sections:
        yield from errors(config)


def _follows(line: str, item: ErrorDetails) -> bool:
    """Whether a message is about a value that was taken out: at its place, of its name, or one that names its key."""
    key, last = _key(item), [part for part in item["loc"] if isinstance(part, str) and part != "[key]"][-1]
    is_named = f"'{last}' is unknown" in line if " is unknown" in line else re.search(rf"\b{re.escape(last)}\b", line)
    return bool(is_named) or line.startswith((key, f"{key[:-2]}."))


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
    elif isinstance(value, str) and re.search("[\ud800-\udfff]", value):
        yield f"{where}: {value!a} has half of a character; write the character itself"
    elif not isinstance(value, str | int | float | None):
        yield f"{where}: {value} is a {type(value).__name__}; put it in quotes"


def _message(item: Any) -> str:
    """One mistake that pydantic found, with its place."""
    if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        *place, key = item["loc"]
        return unknown(".".join(map(str, place)) or "configuration", key, keys_at(place))
    where = one_line(_key(item)[:-2])
    message = _MESSAGES.get(item["type"], item["msg"].replace("Tuple should", "List should"))
    if item.get("ctx", {}).get("pattern") == f"^{NAME}$":
        message = f"must be {NAMES}"
    if item["type"] in _NUMBERS:
        message = f"must be {number_at(item['loc'])}"
    found = "" if item["type"] == "missing" else f" (found {one_line(repr(item['input']))}{_yaml_hint(item)})"
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


def _key(item: Any) -> str:
    """The key about which pydantic has an error, as a message begins with it."""
    return ".".join(str(part) for part in item["loc"] if part != "[key]") + ": "


def _depth(line: str, content: object) -> int:
    """How many characters at the beginning of a message are keys of a mapping, one below the other."""
    if not isinstance(content, Mapping):
        return 0
    keys = [key for key in map(str, content) if line.startswith((f"{key}.", f"{key}: "))]
    return max((len(key) + _depth(line[len(key) + 1 :], content.get(key)) for key in keys), default=0)
