"""Writes what is generated from the typed configuration: its JSON schema and ``config/README.md``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from searchlens import config

SCHEMA = Path("workflow/schemas/config.schema.json")
README = Path("config/README.md")

_INTRO = """# Configuration

Five files, merged in this order: `config.yaml` (what a run does), `models.yaml`, `benchmarks.yaml`, `policies.yaml`,
`boptr.yaml` (readings that the paper leaves open). An overlay is merged over them, mapping by mapping:
`snakemake --configfile config/demo.yaml`. `searchlens check` validates everything and reports all errors at once.

What decides the samples (weights, engine family and type, questions, template, policy, seed, token limit) is hashed
into a generation id: changing such a key samples anew what it touches, changing it back costs nothing, and
changing anything else samples nothing.

This page is generated (`make schema`).
"""


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "$ref" in schema:
        return f"see {schema['$ref'].rsplit('/', 1)[1]}"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if "patternProperties" in schema:
        return f"name → {_type(next(iter(schema['patternProperties'].values())))}"
    return str(schema.get("type", "any"))


def _limits(schema: dict[str, Any]) -> str:
    signs = {"minimum": ">=", "maximum": "<=", "exclusiveMinimum": ">", "exclusiveMaximum": "<"}
    return ", ".join(f"{sign} {schema[key]}" for key, sign in signs.items() if key in schema)


def _row(key: str, schema: dict[str, Any], required: bool) -> str:
    default = "required" if required else f"`{schema['default']}`" if "default" in schema else ""
    kind = ", ".join(part for part in (_type(schema), _limits(schema)) if part)
    text = " ".join(schema.get("description", "").split())
    return f"| `{key}` | {kind} | {default} | {text} |"


def _section(title: str, model: dict[str, Any]) -> list[str]:
    required = set(model.get("required", ()))
    rows = [_row(key, schema, key in required) for key, schema in model["properties"].items()]
    lead = " ".join(model.get("description", "").split())
    return [f"## {title}", "", lead, "", "| key | type | default | meaning |", "|---|---|---|---|", *rows, ""]


def readme_text() -> str:
    """``config/README.md``: every key with its type, default and meaning."""
    schema = config.schema()
    lines = _section("Top level", schema)
    for name, model in schema["$defs"].items():
        lines += _section(name, model)
    return _INTRO + "\n" + "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Write both files."""
    SCHEMA.parent.mkdir(parents=True, exist_ok=True)
    SCHEMA.write_text(config.schema_text())
    README.write_text(readme_text())


if __name__ == "__main__":
    main()
