"""JSON schema of the configuration, from its typed sections, and ``config/README.md``, which is made from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import WithDefaultSchema

from searchlens import errors
from searchlens.config.model import Config, added, whole
from searchlens.search import components
from searchlens.search.policy import ROLES

Node = Mapping[str, Any]
"""A part of the schema."""


class _WithFactories(GenerateJsonSchema):
    """Also shows defaults that a factory makes, as the mappings of dataclasses."""

    def get_default_value(self, schema: WithDefaultSchema) -> Any:
        make: Any = schema.get("default_factory")
        return make() if make else super().get_default_value(schema)


@cache
def adapter() -> TypeAdapter[Config]:
    """What checks the types of a whole configuration."""
    return TypeAdapter(whole())


@cache
def schema() -> dict[str, Any]:
    """JSON schema of the whole configuration."""
    found: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    found |= adapter().json_schema(schema_generator=_WithFactories)
    own = TypeAdapter(Config).json_schema(schema_generator=_WithFactories)  # docstrings are read in its own source
    meanings = {name: {"description": f"{module.MEANING}; null: none."} for name, module in added().items()}
    found["description"] = own["description"]
    found["properties"] |= own["properties"]
    for name, meaning in meanings.items():
        found["properties"][name] |= meaning
    return found


def schema_text() -> str:
    """The schema for editors and validators, as ``searchlens schema`` prints it."""
    return json.dumps(schema(), indent=0) + "\n"


def resolve(node: Node) -> Node:
    """A node without references; of several types the first."""
    while "anyOf" in node or "$ref" in node:
        node = node["anyOf"][0] if "anyOf" in node else schema()["$defs"][node["$ref"].rsplit("/", 1)[1]]
    return node


def content(node: Node) -> Node | None:
    """What every item of a list or every value of a mapping must be; None for anything else."""
    if "items" in node:
        return dict(node["items"])
    patterns = [*node.get("patternProperties", {}).values(), node.get("additionalProperties")]
    return patterns[0] if isinstance(patterns[0], dict) else None


_LIMITS = {
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "<= {}",
    "exclusiveMaximum": "< {}",
    "minItems": "length >= {}",
    "maxItems": "length <= {}",
}


def limits(node: Node) -> list[str]:
    """The limits of a number or of the length of a list, each in signs."""
    return [text.format(_plain(node[key])) for key, text in _LIMITS.items() if key in node]


def _plain(value: float) -> str:
    """A number as YAML reads it, such as 0.01 or 1_000_000."""
    return f"{int(value):_}" if value == int(value) else f"{value}"


def unknown(where: str, name: str, known: Iterable[str]) -> str:
    """The message about a name that is not among the known ones, with the nearest of them."""
    return f"{where}: {errors.unknown(name, known)}"


def keys_at(location: Iterable[int | str]) -> list[str]:
    """Keys that may stand at a place in the configuration, such as ``("benchmarks", "math")``."""
    return list(node_at(location)["properties"])


def number_at(location: Iterable[int | str]) -> str:
    """The number that may stand at a place, such as ``an integer, >= 1``."""
    node = node_at(location)
    return ", ".join(["an integer" if node.get("type") == "integer" else "a number", *limits(node)])


def node_at(location: Iterable[int | str]) -> Node:
    """The schema of what may stand at a place, without references."""
    node = resolve(schema())
    for part in location:
        node = resolve(node["properties"][part] if "properties" in node else content(node) or {})
    return node


# ---- the page of all keys

README = Path("config/README.md")

_INTRODUCTION = """# Configuration

Five files, merged in this order: `config.yaml` (what a run does, and how its samples are read), `models.yaml`,
`benchmarks.yaml`, `policies.yaml`, `boptr.yaml`. Overlays are merged over them, mapping by mapping: first `own.yaml`,
if the folder has it, then the files that are named, as in `snakemake --configfile config/demo.yaml` or
`searchlens check --config config/demo.yaml`. Paths are relative to the folder that holds `config/`. `searchlens check`
validates everything and reports all errors at once.

Whatever decides the samples (weights, engine family and type, questions, template, policy, seed, token limit) is hashed
into a generation id. Changing such a key makes new samples where it applies, and changing it back finds the old ones;
changing any other key samples nothing. Names of checkpoints, benchmarks and policies are labels: a renamed one finds
its samples, which then lie under both names, and on the disk once.

This page is generated (`make schema`). `<name>` stands for a name of your own.
"""


def readme_text() -> str:
    """``config/README.md``: every key with its type, default and meaning."""
    lines = [line for path, section in sections() for line in _section(path, section)]
    return _INTRODUCTION + "\n" + "\n".join([*lines, *_components()]).rstrip() + "\n"


def sections() -> Iterator[tuple[str, Node]]:
    """Every section with its path in the configuration, such as ``pairs.<name>``; the top level has an empty path."""
    return _below("", schema())


def _below(path: str, node: Node) -> Iterator[tuple[str, Node]]:
    node = resolve(node)
    if "properties" in node:
        yield path, node
        for key, part in node["properties"].items():
            yield from _below(f"{path}.{key}" if path else key, part)
    elif part := content(node):
        yield from _below(path + ("[]" if "items" in node else ".<name>"), part)


def _section(path: str, section: Node) -> Iterator[str]:
    yield from (f"## {f'`{path}`' if path else 'Top level'}", "", _line(section), "")
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    for key, node in section["properties"].items():
        default = "required" if key in section.get("required", ()) else _default(node)
        place = f"{path}.{key}" if path else key
        yield f"| `{key}` | {_type(place, node)} | {default} | {_line(node)} |"
    yield ""


def _components() -> Iterator[str]:
    yield from (
        "## Components of a policy",
        "",
        "Their parameters, in `policies.<name>`; docs/search.md describes them.",
        "",
    )
    yield from ("| component | name | parameter | default | allowed |", "|---|---|---|---|---|")
    for role in ROLES:
        for name in components.names(role):
            for key, (default, allowed) in components.parameters(role, name).items():
                yield f"| `{role}` | `{name}` | `{key}` | `{json.dumps(default)}` | {allowed} |"


def _line(node: Node) -> str:
    return " ".join(node.get("description", "").split())


def _default(node: Node) -> str:
    """The default in YAML; a section has its own defaults in its own table."""
    if "default" not in node or "$ref" in node:
        return ""
    value = node["default"]
    return f"`{value}`" if isinstance(value, str) and value and value.isprintable() else f"`{json.dumps(value)}`"


def _type(place: str, node: Node) -> str:
    if "anyOf" in node:
        return " or ".join(_type(place, option) for option in node["anyOf"])
    if "enum" in node or "const" in node:
        return ", ".join(f"`{value}`" for value in node.get("enum", [node.get("const")]))
    if "$ref" in node:
        return f"[`{place}`](#{re.sub('[^a-z0-9_-]', '', place.lower())})"
    if "items" in node:
        return ", ".join(["list of " + _type(f"{place}[]", node["items"]), *limits(node)])
    if part := content(node):
        names = ", ".join(f"`{name}`" for name in node.get("propertyNames", {}).get("enum", ()))
        return f"{names or 'name'} → {_type(f'{place}.<name>', part)}"
    return ", ".join([str(node.get("type", "any")).replace("object", "mapping"), *limits(node)])
