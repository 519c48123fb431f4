"""Every number of the configuration has limits, and one outside of them never reaches a sampler."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from searchlens.config import check
from searchlens.config.check.load import Files
from searchlens.config.check.schema import README, Node, content, resolve, sections
from searchlens.errors import InputError
from searchlens.search import components
from searchlens.search.policy import ROLES, from_spec, parse

ROOT = Path(__file__).parents[2]
SMALLEST: dict[str, Any] = {
    "study": {"pairs": [], "benchmarks": []},
    "policies": {"topp0.95_t1.0": None},
    **{key: {} for key in ("checkpoints", "pairs", "benchmarks", "pools")},
}
NONE = (math.inf, -math.inf, math.nan)
Wrap = Callable[[Any], Any]


def numbers() -> Iterator[tuple[str, Node, Wrap]]:
    """Each key with a number: its place, the schema of the number, and how the number is wrapped in lists and names."""
    for path, section in sections():
        for key, node in section["properties"].items():
            for number, wrap in below(node, lambda value: value):
                yield f"{path}.{key}" if path else key, number, wrap


def below(node: Node, wrap: Wrap) -> Iterator[tuple[Node, Wrap]]:
    node = resolve(node)
    if node.get("type") in ("number", "integer"):
        yield node, wrap
    elif "items" in node:
        yield from below(content(node) or {}, lambda value: wrap([value]))
    elif "properties" not in node and (part := content(node)):
        name = node.get("propertyNames", {}).get("enum", ["new"])[0]
        yield from below(part, lambda value: wrap({name: value}))


def outside(node: Node) -> list[float]:
    """The nearest numbers that a schema refuses, one at each end."""
    low = node["minimum"] - 1 if "minimum" in node else node["exclusiveMinimum"]
    high = node["maximum"] + 1 if "maximum" in node else node["exclusiveMaximum"]
    return [low, high]


def overlay(path: str, value: Any) -> dict[str, Any]:
    """A configuration file that sets one key; names and list positions on the way are made up."""
    head, _, rest = path.partition(".")
    inner = overlay(rest, value) if rest else value
    return {"new" if head == "<name>" else head.removesuffix("[]"): [inner] if head.endswith("[]") else inner}


KEYS = list(numbers())


@pytest.mark.parametrize(("path", "node", "wrap"), KEYS, ids=[path for path, _, _ in KEYS])
def test_a_number_outside_its_limits_is_refused_with_file_key_and_limits(path: str, node: Node, wrap: Wrap) -> None:
    for value in (*NONE, *outside(node)):
        mine = overlay(path, wrap(value))
        with pytest.raises(InputError) as error:
            check.validate(check.merge(SMALLEST, mine), Files({"mine.yaml": mine}))
        key = path.replace("<name>", "new").replace("[]", ".0")
        found = f"(found {float(value) if not math.isfinite(value) else value!r})"
        lines = [line for line in str(error.value).splitlines() if f"mine.yaml: {key}" in line and found in line]
        assert lines, error.value
        assert all("must be a" in line and " >" in line and " <" in line for line in lines), lines


def test_the_limits_of_every_number_stand_in_the_reference() -> None:
    rows = [line for line in (ROOT / README).read_text().splitlines() if line.startswith("| `")]
    for path, _, _ in KEYS:
        key = path.rsplit(".", 1)[-1]
        assert any(row.startswith(f"| `{key}` |") and " >" in row and " <" in row for row in rows), path


def parameters() -> Iterator[tuple[str, str, str, float]]:
    """Role, component, parameter and default of each number of a policy's components."""
    for role in ROLES:
        for name in components.names(role):
            for key, (default, _) in components.parameters(role, name).items():
                if not isinstance(default, str):
                    yield role, name, key, default


@pytest.mark.parametrize(("role", "name", "key", "default"), list(parameters()))
def test_a_number_of_a_component_is_refused_outside_its_limits(role: str, name: str, key: str, default: float) -> None:
    allowed = components.parameters(role, name)[key][1]
    assert ">= " in allowed
    assert "<= " in allowed
    for value in (*NONE, -1e9, 10**9, True, str(default)):
        with pytest.raises(InputError) as error:
            from_spec("mine", {role: {"name": name, key: value}})
        assert f"{role} {name!r}: {key} is {value!r}; allowed: {allowed}" in str(error.value)


@pytest.mark.parametrize("temperature", [1e-40, 1e-5, 0.009])
def test_a_temperature_that_an_engine_would_change_is_refused(temperature: float) -> None:
    """1/T of the first is infinite in float32; vLLM replaces the others by 0 or by 0.01."""
    for name, spec in (("mine", {"local": {"temperature": temperature}}), (f"temp_{temperature:.40f}", None)):
        with pytest.raises(InputError, match=r"temperature is .*; allowed: 0, or >= 0\.01, <= 100"):
            from_spec(name, spec)
    assert parse("temp_0.01").local.temperature == 0.01


def test_the_file_that_is_merged_last_is_named(tmp_path: Path) -> None:
    first, last = tmp_path / "first.yaml", tmp_path / "last.yaml"
    first.write_text(yaml.safe_dump({**SMALLEST, "seed": -1, "samples": 0}))
    last.write_text("seed: -2\n")
    with pytest.raises(InputError) as error:
        check.load([first, last])
    assert f"{last}: seed: must be an integer, >= 0" in str(error.value)
    assert f"{first}: samples: must be an integer, >= 1" in str(error.value)


@pytest.mark.parametrize(
    ("written", "right"),
    [("1e5", "1.0e+5 or 100000"), ("1.5e5", "1.5e+5 or 150000"), ("2E-3", "2.0e-3"), ("1.e5", "1.e+5 or 100000")],
)
def test_a_power_of_ten_that_yaml_reads_as_a_text_is_answered_with_its_spelling(written: str, right: str) -> None:
    mine = yaml.safe_load(f"target_minutes: {written}")
    assert isinstance(mine["target_minutes"], str)
    with pytest.raises(InputError, match=f"found '{written}', a text in YAML; write {right.replace('+', '[+]')}[)]"):
        check.validate({**SMALLEST, **mine})
    for spelling in right.split(" or "):
        assert yaml.safe_load(f"target_minutes: {spelling}") == {"target_minutes": float(written)}
