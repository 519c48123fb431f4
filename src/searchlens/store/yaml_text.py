"""YAML that anybody may have written: aliases are counted, since a few can stand for more values than memory holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from searchlens.errors import InputError
from searchlens.store.inputs import read_text

_LONGEST, _MOST_NODES = 2_000_000, 200_000
"""Most characters of a file, and values in it when its aliases are written out: more of them take minutes to read."""

_CHANGED = re.compile(r"[-+]?0[0-7_]+|.*:.*")
"""Numbers of YAML 1.1 that do not mean what is written: 020 is octal, 1:30 is to the base of sixty."""


def compose(path: Path) -> tuple[yaml.SafeLoader, yaml.Node | None]:
    """The nodes of a YAML file, and the loader that makes values of them.

    Raises OSError if the file cannot be read, and InputError if it is no file, not YAML in UTF-8, too long, or has
    aliases that stand for too many values or for themselves.
    """
    try:
        text = read_text(path)
        if len(text) > _LONGEST:
            raise InputError(f"{path} has {len(text):,} characters; allowed: at most {_LONGEST:,}")
        loader = yaml.SafeLoader(text)  # not the one in C, which crashes where nesting is too deep
        node = loader.get_single_node()
        if (nodes := _nodes(node, {})) > _MOST_NODES:
            raise InputError(f"{path}: its aliases stand for {nodes:,} values; allowed: at most {_MOST_NODES:,}")
    except RecursionError:
        raise InputError(f"{path}: an alias stands inside of what it names, or mappings are too deep") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {error}") from None
    return loader, node


def construct(path: Path, loader: yaml.SafeLoader, node: yaml.Node | None) -> Any:
    """The value of nodes; None of an empty file. Raises InputError if a value is none of the types of plain YAML."""
    try:
        return loader.construct_document(node) if node else None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path} is not YAML: {error}") from None


def mistakes(node: yaml.Node | None, where: str = "") -> Iterator[tuple[int, str]]:
    """Keys that are there twice and numbers that YAML changes, each with its line; to call before ``construct``."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from mistakes(item, where)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = f"{where}{key.value}", key.start_mark.line + 1
            if name in lines:
                yield line, f"{name} is already in line {lines[name]}"
            lines[name] = line
            yield from mistakes(key)
            yield from mistakes(value, f"{name}.")
    elif isinstance(node, yaml.ScalarNode) and node.tag.endswith((":int", ":float")) and _CHANGED.fullmatch(node.value):
        meant = yaml.safe_load(node.value)
        yield node.start_mark.line + 1, f"{node.value} is read as {meant}; write a plain number, or a text in quotes"


def read(path: Path) -> Any:
    """The content of a YAML file; raises what ``compose`` and ``construct`` do."""
    return construct(path, *compose(path))


def _nodes(node: yaml.Node | None, known: dict[int, int]) -> int:
    """How many values a node stands for when its aliases are written out; one that contains itself never ends."""
    if not isinstance(node, yaml.SequenceNode | yaml.MappingNode):
        return 1
    if id(node) not in known:
        known[id(node)] = 0
        inside = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        known[id(node)] = 1 + sum(_nodes(part, known) for part in inside)
    elif not known[id(node)]:
        raise RecursionError
    return known[id(node)]
