"""Wrong configuration must be refused whole, before anything is scheduled, in words that say what to change."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, asdict, fields
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import Raw
from searchlens.boptr.cohort import read_plan
from searchlens.config import check
from searchlens.config.boptr import Anchor, Beta, BoptrOptions
from searchlens.config.check.load import Files
from searchlens.config.check.schema import Node, content, resolve
from searchlens.config.landscape import LandscapeOptions
from searchlens.config.recovery import RecoveryOptions
from searchlens.errors import InputError
from searchlens.search import components
from searchlens.search.policy import ROLES, from_spec, parse
from searchlens_lab.config_page import README, readme_text, sections
from searchlens_lab.equivalence.plan import EquivalenceOptions

ROOT = Path(__file__).parents[2]
SMALLEST: dict[str, Any] = {
    "study": {"pairs": [], "benchmarks": []},
    "policies": {"topp0.95_t1.0": None},
    **{key: {} for key in ("checkpoints", "pairs", "benchmarks", "pools")},
}
OPTIONS: dict[str, type] = {
    "landscape": LandscapeOptions,
    "recovery": RecoveryOptions,
    "boptr": BoptrOptions,
    "boptr.anchor": Anchor,
    "boptr.beta": Beta,
    "equivalence": EquivalenceOptions,
}
"""Sections of the configuration that are options of a stage."""


@pytest.fixture
def raw() -> Raw:
    merged: dict[str, Any] = {}
    for path in check.DEFAULT_FILES:
        merged = check.merge(merged, yaml.safe_load((ROOT / path).read_text()))
    return merged


def refusal(raw: Raw) -> str:
    with pytest.raises(InputError) as error:
        check.validate(raw)
    return str(error.value)


def test_the_shipped_configuration_and_its_overlays_are_valid() -> None:
    files = [ROOT / path for path in check.DEFAULT_FILES]
    for overlay in (None, "demo", "ci", "recorded", "paper", "vllm"):
        loaded = check.load([*files, ROOT / f"config/{overlay}.yaml"] if overlay else files)
        assert loaded.default_policy in loaded.policies
    cohort = [ROOT / f"config/{overlay}.yaml" for overlay in ("zoo", "zoo-power")]
    assert check.load([*files, *cohort]).study.benchmarks == ("zoo-math",)
    for names in (
        "gemma",
        "gemma searches",
        "pair",
        "pair-lora pair-pool",
        "pair-lora pair-searches",
        "pair-lora true-equations",
    ):
        overlays = [ROOT / f"examples/pretrained/{name}.yaml" for name in names.split()]
        assert set(check.load([*files, *overlays]).study.benchmarks) <= {"mawps", "svamp", "gsm8k"}


def test_the_generated_page_agrees_with_the_typed_configuration() -> None:
    assert (ROOT / README).read_text() == readme_text(), "run `make schema`"


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        ("study/benchmarks", ["mth"], "@: 'mth' is unknown; did you mean 'math'?"),
        ("pairs/micro-1m/base", "micro", "@: 'micro' is unknown"),
        ("default_policy", "topp0.95_t1", "@: 'topp0.95_t1' is unknown; did you mean 'topp0.95_t1.0'?"),
        ("policies/topp8_t0.9", None, "@: policy 'topp8_t0.9': top_p is 8.0; allowed: > 0, <= 1"),
        ("policies/tpp0.8_t0.9", None, "part 'tpp0.8' is not one of"),
        ("budgets", [1, 4, 2], "@: [1, 4, 2] must increase"),
        ("budgets", [1, 32], "exceeds samples (16)"),
        ("boptr/anchor/pair", "micro-1b", "@: 'micro-1b' is unknown; did you mean 'micro-1m'?"),
        ("boptr/anchor/benchmark", "meth", "@: 'meth' is unknown; did you mean 'math'?"),
        ("boptr/q_beta", {"gqpa": 0.6}, "@: 'gqpa' is unknown; did you mean 'gpqa'?"),
        ("pairs/micro-1m/rl", "micro-1m-base", "pairs.micro-1m: base and rl are both 'micro-1m-base'"),
        ("pairs/micro-1m/rltrain", "math", "@: 'math' has role fitted"),
        (
            "pairs/micro-1m/batches",
            {"123": {"base": "micro-1m-rl"}},
            "@.123.base: 'micro-1m-rl' has no seed of its own; set checkpoints.micro-1m-rl.seed",
        ),
        (
            "pairs/micro-1m/batches",
            {"123": {"base": "micro-1m-rl"}},
            "'micro-1m-rl' has path zoo:micro-1m-rl, 'micro-1m-base' zoo:micro-1m-base",
        ),
        ("checkpoints/micro-1m-rl/dtype", "float16", "@: float16 needs engine: vllm"),
        ("checkpoints/micro-1m-rl/quantization", "fp8", "@: fp8 needs engine: vllm"),
        ("checkpoints/micro-1m-rl/kv_cache_dtype", "fp8", "@: fp8 needs engine: vllm"),
        (
            "checkpoints/micro-1m-rl/vllm",
            {"max_model_len": 512, "enforce_eager": True},
            "@.enforce_eager: true needs engine: vllm",
        ),
        # it would change texts, and no id
        ("checkpoints/micro-1m-rl/vllm", {"generators": True}, "@: 'generators' is unknown. Known: batch_invariant"),
        ("checkpoints/micro-1m-rl/vllm", {"load_format": "dummy"}, "vllm.load_format: Input should be 'auto'"),
        (
            "checkpoints/micro-1m-rl/template",
            "plain",
            "pairs.micro-1m: Base has template zoo, RL plain; give both the same, or set templates: own",
        ),
        ("checkpoints/micro-1m-rl/hub", "org/toy", "needs either path or hub, found both"),
        ("checkpoints/micro-1m-rl/hub", "toy", "@: String should match pattern"),
        ("checkpoints/micro-1m-rl/path", None, "needs either path or hub, found neither"),
        (
            "checkpoints/micro-1m-rl/context",
            128,
            "micro-1m-rl.context: 128 leaves no room for a prompt: benchmarks.math.max_tokens is 128",
        ),
        ("benchmarks/math/wording", "boxd", "@: 'boxd' is unknown; did you mean 'boxed'?"),
        ("benchmarks/gpqa/recipe_stops", True, "@: only with grader math"),
        ("benchmarks/math/deeper", {"greedy": 64}, "@: 'greedy' is unknown"),
        ("benchmarks/math/deeper", {"temp_0.5": 16}, "@.temp_0.5: 16 must exceed the 16 samples of the other policies"),
    ],
)
def test_a_dangling_or_malformed_name_is_refused_with_what_is_known(
    raw: Raw, where: str, value: Any, says: str
) -> None:
    """``@`` is the key itself."""
    *sections, key = where.split("/")
    target = raw
    for name in sections:
        target = target[name]
    target[key] = value
    assert says.replace("@", where.replace("/", ".")) in refusal(raw)


@pytest.mark.parametrize(
    ("vllm", "device", "says"),
    [
        ({"tensor_parallel": 2}, "cpu", "vllm.tensor_parallel: 2 needs device: cuda (found cpu)"),
        ({"tensor_parallel": 2}, "auto", "vllm.tensor_parallel: 2 needs device: cuda (found auto)"),
        (
            {"tensor_parallel": 2, "processes": 2},
            "cuda",
            "vllm.processes: 2 needs tensor_parallel: 1 (found 2)",
        ),
        (
            {"max_model_len": 128},
            "cuda",
            "max_model_len: 128 leaves no room for a prompt: benchmarks.math.max_tokens is",
        ),
    ],
)
def test_what_vllm_cannot_do_is_found_at_planning(raw: Raw, vllm: dict[str, Any], device: str, says: str) -> None:
    raw["checkpoints"]["micro-1m-rl"] |= {"engine": "vllm", "dtype": "float16", "quantization": "fp8"}
    check.validate(raw)
    raw["checkpoints"]["micro-1m-rl"] |= {"device": device, "vllm": vllm}
    assert says in refusal(raw)


def test_a_grader_of_an_extension_is_known(raw: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("@grader('length', mathematical=True)\nclass Length: ...\n")
    raw["benchmarks"]["math"] |= {"grader": "length", "recipe_stops": True}
    assert "benchmarks.math.grader: 'length' is unknown" in refusal(raw)
    check.validate({**raw, "extensions": ["mine.py"]})
    assert "benchmarks.math.grader: 'length' is unknown" in refusal(raw), "extensions end with their configuration"
    assert "extensions: yours.py does not exist" in refusal({**raw, "extensions": ["yours.py"]})


@pytest.mark.parametrize(
    ("section", "name", "key", "value", "message"),
    [
        ("benchmarks", "math", "regime", "none", "boptr.anchor.benchmark: 'math' has regime none and role fitted"),
        ("benchmarks", "math", "role", "held_out", "boptr.anchor.benchmark: 'math' has regime math and role held_out"),
        ("pairs", "micro-1m", "group", "new", "boptr.anchor.pair: 'micro-1m' has group new; the anchor needs"),
    ],
)
def test_an_anchor_that_cannot_be_fitted_on_is_refused(
    raw: Raw, section: str, name: str, key: str, value: str, message: str
) -> None:
    raw["boptr"]["anchor"] = {"pair": "micro-1m", "benchmark": "math"}
    raw[section][name][key] = value
    assert message in refusal(raw)


def test_every_benchmark_has_a_regime_unless_it_is_left_out(raw: Raw) -> None:
    plain = {"family": "jsonl", "path": "x.jsonl", "max_tokens": 64}
    mine = {
        "formulas": plain | {"grader": "math"},
        "letters": plain | {"grader": "choice"},
        "aime24": plain | {"grader": "math", "family": "aime24"},
        "hard": plain | {"grader": "math", "regime": "floor"},
        "apart": plain | {"grader": "math", "regime": "none"},
    }
    found = check.validate(raw | {"benchmarks": raw["benchmarks"] | mine}).benchmarks
    assert [found[name].regime for name in mine] == ["math", "nonmath", "floor", "floor", "none"]


def test_a_benchmark_with_a_part_in_boptr_needs_a_regime(raw: Raw) -> None:
    raw["benchmarks"]["gpqa"] |= {"regime": "none", "role": "held_out"}
    assert "benchmarks.gpqa.role: held_out needs a regime: math, nonmath or floor" in refusal(raw)


BENCHMARKS = ("math", "aime", "gpqa", "ifeval")
OVERLAYS = ("demo-full", "ci", "recorded", "vllm")


@pytest.mark.parametrize("budgets", [[1], [1, 2, 4], [1, 3, 9], [1, 2, 4, 8, 16, 32, 64]], ids=str)
@pytest.mark.parametrize("overlay", [None, *OVERLAYS])
def test_every_part_of_a_study_can_be_read_at_other_budgets(raw: Raw, overlay: str | None, budgets: list[int]) -> None:
    if overlay:
        raw = check.merge(raw, yaml.safe_load((ROOT / f"config/{overlay}.yaml").read_text()))
    raw |= {"budgets": budgets, "samples": budgets[-1]}
    for count in range(len(BENCHMARKS) + 1):
        for names in combinations(BENCHMARKS, count):
            study = {**raw["study"], "benchmarks": list(names)}
            assert check.validate({**raw, "study": study}).study.benchmarks == names


def test_entries_that_a_study_leaves_out_need_not_fit_it_but_are_spelt_right(raw: Raw) -> None:
    """Their budgets, templates, lengths and batches are not compared; their names and types are."""
    raw["study"] = {"pairs": ["micro-1m"], "benchmarks": ["math"]}
    raw["benchmarks"]["aime"] |= {"deeper": {"greedy": 2}}
    raw["pairs"]["other"] = {"base": "other", "rl": "micro-1m-rl", "batches": {"1": {"base": "micro-1m-rl"}}}
    raw["checkpoints"]["other"] = {"path": "other", "template": "plain", "context": 8}
    check.validate(raw)
    for study in ({"benchmarks": ["aime"]}, {"pairs": ["other"]}):
        assert " error" in refusal(check.merge(raw, {"study": study}))
    raw["benchmarks"]["aime"]["deeper"] = {"gredy": 2}
    raw["pairs"]["other"]["batches"]["1"]["base"] = "micro"
    raw["checkpoints"]["other"]["template"] = "plane"
    said = refusal(raw)
    assert "benchmarks.aime.deeper: 'gredy' is unknown; did you mean 'greedy'?" in said
    assert "pairs.other.batches.1.base: 'micro' is unknown" in said
    assert "checkpoints.other.template: 'plane' is unknown" in said


def place(raw: Raw, path: str) -> tuple[dict[str, Any], str]:
    """The mapping at a path such as ``pairs.<name>``, made if missing, and the path with a name for ``<name>``."""
    target, names = raw, []
    for part in path.split(".") if path else ():
        name = next(iter(target), "new") if part == "<name>" else part.removesuffix("[]")
        names.append(name)
        if part.endswith("[]"):
            names.append("0")
            target[name] = target.get(name) or [{}]
            target = target[name][0]
        else:
            target[name] = target.get(name) or {}
            target = target[name]
    return target, ".".join(names)


@pytest.mark.parametrize("path", [path for path, _ in sections()])
def test_a_misspelled_key_of_any_section_is_answered_with_the_right_one(raw: Raw, path: str) -> None:
    target, where = place(raw, path)
    key = next(iter(dict(sections())[path]["properties"]))
    target[f"{key}s"] = 1
    assert f"{where or 'configuration'}: '{key}s' is unknown; did you mean '{key}'?" in refusal(raw)


def test_a_name_that_is_also_a_key_does_not_hide_what_is_known(raw: Raw) -> None:
    raw["checkpoints"]["vllm"] = {"pth": "a"}
    assert "checkpoints.vllm: 'pth' is unknown; did you mean 'path'?" in refusal(raw)


def test_every_key_is_described() -> None:
    """Other than a section's own key: there the section is described."""
    silent = [
        f"{path}.{key}"
        for path, section in sections()
        for key, node in section["properties"].items()
        if "description" not in node and "description" not in resolve(content(resolve(node)) or node)
    ]
    assert silent == []


@pytest.mark.parametrize("path", OPTIONS)
def test_the_options_of_a_stage_are_a_section_of_the_configuration(path: str) -> None:
    properties = dict(sections())[path]["properties"]
    options = {field.name: field for field in fields(OPTIONS[path])}
    assert list(properties) == list(options)
    for key, field in options.items():
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if default is not MISSING:
            default = asdict(default) if hasattr(default, "__dataclass_fields__") else default
            assert properties[key]["default"] == json.loads(json.dumps(default)), key


def test_defaults_of_the_configuration_are_defaults_of_the_options() -> None:
    smallest = check.validate(SMALLEST)
    assert smallest.landscape == LandscapeOptions()
    assert smallest.recovery == RecoveryOptions()
    assert smallest.boptr == BoptrOptions()


def test_exponents_of_the_q_channel_are_those_of_the_cohort() -> None:
    options = BoptrOptions(q_beta={"gpqa": 0.6, "math": 0.2}, draws=200)
    assert options.on(["gpqa", "aime"]) == BoptrOptions(q_beta={"gpqa": 0.6}, draws=200)


def test_an_exponent_that_is_not_set_has_its_default() -> None:
    beta = check.validate({**SMALLEST, "boptr": {"beta": {"math": 0.5}}}).boptr.beta
    assert [beta[regime] for regime in ("math", "nonmath", "floor")] == [0.5, 1.0, 0.0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"boptr": {"mu_without": 0.1}}, "boptr.mu_without: must be a list (found 0.1)"),
        ({"study": {"pairs": []}}, "study.benchmarks: is missing"),
        ({"equivalence": {}}, "equivalence.policies: is missing"),
        ({"lock": "a\ud800"}, r"lock: 'a\ud800' has half of a character; write the character itself"),
    ],
)
def test_a_wrong_type_is_said_in_the_words_of_yaml(change: Mapping[str, Any], says: str) -> None:
    assert f"  {says}" in refusal({**SMALLEST, **change})


def test_the_documented_cohort_file_can_be_read(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/columns.md").read_text(), re.DOTALL)
    (tmp_path / "cohort.yaml").write_text(example)
    assert read_plan(tmp_path / "cohort.yaml").models["a"].batches == {"123": {"base": "a-base-123"}}


def test_keys_that_are_there_twice_are_named_with_their_lines(tmp_path: Path) -> None:
    """At every depth and in lists; the same key in two mappings, or in two files, is no repetition."""
    path = tmp_path / "models.yaml"
    path.write_text("a: {x: 1}\nb: {x: 1}\n")
    check.read([path])
    path.write_text("a:\n  x: 1\n  y: [{z: 1, z: 2}]\n  x: 3\nb: 1\na: 2\n")
    with pytest.raises(InputError) as caught:
        check.load([path])
    for says in (
        "line 6: a is already in line 1",
        "line 4: a.x is already in line 2",
        "line 3: a.y.z is already in line 3",
    ):
        assert f"{path}, {says}" in str(caught.value)


def test_merging_is_by_key_and_lists_are_replaced() -> None:
    assert check.merge({"a": {"b": 1, "c": [1, 2]}}, {"a": {"c": [3]}}) == {"a": {"b": 1, "c": [3]}}


# ---- Every number of the configuration has limits, and one outside of them never reaches a sampler


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
