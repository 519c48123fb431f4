"""``config/README.md``, the page of all keys of the configuration: ``make schema`` writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from searchlens.config.check.schema import Node, content, limits, resolve, schema
from searchlens.search import components
from searchlens.search.policy import ROLES

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


def sections(path: str = "", node: Node | None = None) -> Iterator[tuple[str, Node]]:
    """Every section with its path in the configuration, such as ``pairs.<name>``; the top level has an empty path."""
    node = resolve(schema() if node is None else node)
    if "properties" in node:
        yield path, node
        for key, part in node["properties"].items():
            yield from sections(f"{path}.{key}" if path else key, part)
    elif part := content(node):
        yield from sections(path + ("[]" if "items" in node else ".<name>"), part)


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


if __name__ == "__main__":
    README.write_text(readme_text())
