"""JSON schema of the configuration, from its typed sections."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import WithDefaultSchema

from searchlens import errors
from searchlens.config.model import Config, added, whole

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
    found["description"] = own["description"]
    found["properties"] |= own["properties"]
    for name, module in added().items():
        found["properties"][name] |= {"description": f"{module.MEANING}; null: none."}
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
