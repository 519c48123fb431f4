"""Ids and coverage decide what is sampled again: a mistake here wastes GPU time or mixes samples silently."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Make, Raw
from run_stages import cohort_plan
from searchlens.boptr.cohort import Benchmark, Model
from searchlens.cli.stages.importing import Request, import_samples
from searchlens.config.model import plain
from searchlens.errors import InputError
from searchlens.formats.reading import Choices
from searchlens.plan import Grid, needs
from searchlens.sampling import generate

CELL = ("toy-base", "sums")


def ids(grid: Grid, cell: tuple[str, str] = CELL) -> dict[str, str]:
    return {name: g.id for g in grid.jobs.generations(*cell) for name in g.policies}


def changed(raw: Raw, where: tuple[str, ...], value: Any) -> Raw:
    raw = copy.deepcopy(raw)
    target = raw
    for key in where[:-1]:
        target = target.setdefault(key, {})
    target[where[-1]] = value
    return raw


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("seed",), 43),
        (("benchmarks", "sums", "max_tokens"), 9),
        (("benchmarks", "sums", "questions"), 5),
        (("checkpoints", "toy-base", "dtype"), "bfloat16"),
        (("checkpoints", "toy-base", "engine"), "vllm"),
        (("checkpoints", "toy-base", "template"), "plain"),
        (("benchmarks", "sums", "wording"), "boxed"),
        (("checkpoints", "toy-base", "seed"), 43),
    ],
)
def test_what_decides_the_tokens_decides_the_id(raw: Raw, make_grid: Make, where: tuple[str, ...], value: Any) -> None:
    raw["pairs"]["toy"]["templates"] = "own"
    before, after = ids(make_grid(raw)), ids(make_grid(changed(raw, where, value)))
    assert set(before.values()).isdisjoint(after.values())


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("samples",), 64),
        (("budgets",), [1, 2]),
        (("results",), "elsewhere"),
        (("pool_size",), 2),
        (("chunk_samples",), 10),
        (("target_minutes",), 1),
        (("grace_seconds",), 1),
        (("checkpoints", "toy-base", "device"), "cuda"),
        (("checkpoints", "toy-base", "max_rows"), 3),
        (("checkpoints", "toy-base", "context"), 4096),
        (("benchmarks", "sums", "deeper"), {"temp_0.5": 8}),
        (("recovery", "epsilon"), 0.05),
        (("landscape", "ties"), "fractional"),
        (("checkpoints", "toy-base", "seed"), 42),
        (("benchmarks", "sums", "regime"), "math"),
        (("pairs", "toy", "group"), "new"),
        (("boptr", "draws"), 200),
    ],
)
def test_nothing_else_does(raw: Raw, make_grid: Make, where: tuple[str, ...], value: Any) -> None:
    assert ids(make_grid(raw)) == ids(make_grid(changed(raw, where, value)))


def test_of_vllm_what_computes_decides_and_how_it_is_run_does_not(raw: Raw, make_grid: Make) -> None:
    raw["checkpoints"]["toy-base"] |= {"engine": "vllm", "device": "cuda"}
    plain = ids(make_grid(raw))
    quantised = ids(make_grid(changed(raw, ("checkpoints", "toy-base", "quantization"), "fp8")))
    assert set(plain.values()).isdisjoint(quantised.values())
    cached = ids(make_grid(changed(raw, ("checkpoints", "toy-base", "kv_cache_dtype"), "fp8")))
    assert set(cached.values()).isdisjoint({*plain.values(), *quantised.values()})
    same_bits = ids(make_grid(changed(raw, ("checkpoints", "toy-base", "vllm"), {"batch_invariant": True})))
    assert set(same_bits.values()).isdisjoint(plain.values())
    run = {
        "batch_invariant": False,
        "tensor_parallel": 4,
        "gpu_memory_utilization": 0.8,
        "max_model_len": 512,
        "enforce_eager": True,
    }
    run |= {"max_num_batched_tokens": 8192, "max_cudagraph_capture_size": 1024, "fuse_allreduce_rms": False}
    for given in (run, {**run, "tensor_parallel": 1, "processes": 2}):
        assert ids(make_grid(changed(raw, ("checkpoints", "toy-base", "vllm"), given))) == plain


def test_policies_that_resolve_alike_are_sampled_once(raw: Raw, make_grid: Make) -> None:
    raw["policies"]["mild"] = {"local": {"temperature": 0.5}}
    raw["pools"]["three"].append("mild")
    shared = [g for g in make_grid(raw).jobs.generations(*CELL) if len(g.policies) > 1]
    assert [g.policies for g in shared] == [("temp_0.5", "mild")]


def test_greedy_is_drawn_once_per_question(grid: Grid) -> None:
    assert {g.policies: g.samples for g in grid.jobs.generations(*CELL)}[("greedy",)] == 1


def test_changed_weights_change_the_id_and_missing_ones_are_named(
    grid: Grid, raw: Raw, make_grid: Make, tmp_path: Path
) -> None:
    before = ids(grid)
    (tmp_path / "base" / "model.safetensors").write_text("other weights")
    assert set(before.values()).isdisjoint(ids(make_grid(raw)).values())
    (tmp_path / "base" / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"base has no tokenizer\.json"):
        make_grid(raw).jobs.generations(*CELL)


def test_an_edited_benchmark_file_is_refused_where_its_hash_is_declared(
    raw: Raw, make_grid: Make, tmp_path: Path
) -> None:
    path = tmp_path / "sums.jsonl"
    raw["benchmarks"]["sums"]["sha256"] = "0" * 64
    with pytest.raises(InputError, match=r"sums\.jsonl") as error:
        make_grid(raw).inputs.questions("sums")
    assert "sha256" in str(error.value)
    assert path.exists()


def test_manifest_names_follow_the_store(grid: Grid, publish: Callable[..., Any], raw: Raw, make_grid: Make) -> None:
    """A lost shard must ask for the next fill round; a full store for none."""
    (pool,) = grid.jobs.pools(*CELL)
    first = grid.current_manifest(pool)
    assert first.name == f"{pool.name}.json"
    made = [publish(grid, *CELL, g) for g in pool.generations]
    generate(grid, *CELL, first)  # nothing is missing, so it writes the manifest and starts no engine
    assert grid.current_manifest(pool) == first
    made[1].path.unlink()
    assert make_grid(raw).current_manifest(pool).name == f"{pool.name}.r1.json"


def test_a_manifest_of_an_older_configuration_is_refused(grid: Grid) -> None:
    with pytest.raises(InputError, match="the configuration changed since this run was planned"):
        grid.jobs.find_pool(*CELL, "pool-00000000.json")


PLANNING = """
import json, sys
from pathlib import Path
from searchlens.config.model import from_plain
from searchlens.plan import Grid, cost, needs
from searchlens.config import addons
from searchlens.cli.stages.source import stage_source
from searchlens.store import layout, snapshots
from searchlens.store.files import digest

grid = Grid(from_plain(json.loads(Path(sys.argv[1]).read_text())), Path(sys.argv[2]))
grid.check()
for cell in grid.study.cells:
    needs.hash_of(needs.score(grid, *cell))
    [cost.minutes(grid, pool) for pool in grid.jobs.pools(*cell)]
for get_needs in (needs.tables, needs.overview, needs.boptr):
    needs.hash_of(get_needs(grid))
addons.made(grid)
[stage_source(stage) for stage in ("score", "boptr", "transfer", "equivalence")]
print([name for name in sys.argv[3:] if name in sys.modules])
"""


def test_planning_does_not_import_heavy_libraries(grid: Grid, tmp_path: Path) -> None:
    """The Snakefile plans several times per job."""
    heavy = ("numpy", "polars", "pyarrow", "pydantic", "scipy", "torch", "pandas", "sympy", "matplotlib")
    heavy += ("tokenizers", "jinja2", "annotated_types", "huggingface_hub", "math_verify", "pebble")
    (tmp_path / "plan.json").write_text(json.dumps(plain(grid.config)))
    command = [sys.executable, "-c", PLANNING, str(tmp_path / "plan.json"), str(tmp_path), *heavy]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- BOPTR


def repeated(raw: Raw) -> Raw:
    """The toy study with the Base side sampled a second time, and with a regime."""
    raw["checkpoints"]["toy-base-7"] = {"path": "base", "seed": 7}
    raw["pairs"]["toy"]["batches"] = {"seven": {"base": "toy-base-7"}}
    raw["benchmarks"]["sums"]["regime"] = "math"
    return raw


def test_a_batch_is_a_cell_with_samples_of_its_own_but_no_pair(raw: Raw, make_grid: Make) -> None:
    grid = make_grid(repeated(raw))
    assert grid.study.cells == (("toy-base", "sums"), ("toy-rl", "sums"), ("toy-base-7", "sums"))
    assert grid.study.pairs == {"toy": {"base": "toy-base", "rl": "toy-rl"}}
    assert grid.study.pair_cells == (("toy", "sums"),)
    assert set(ids(grid).values()).isdisjoint(ids(grid, ("toy-base-7", "sums")).values())


def test_the_cohort_plan_of_a_study(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    """What the configuration says is what BOPTR analyses; a benchmark of regime none is left out."""
    repeated(raw)
    raw["pairs"]["toy"] |= {"group": "lower", "parameters": 1e6}
    raw["benchmarks"]["other"] = {**raw["benchmarks"]["sums"], "regime": "none"}
    raw["study"]["benchmarks"].append("other")
    raw["policies"] |= {"warm": {"local": {"temperature": 0.8}}, "unused": {"local": {"temperature": 0.7}}}
    raw["pools"][raw["benchmarks"]["sums"]["pool"]].append("warm")
    plan = cohort_plan(make_grid(raw))
    assert {name: policy.family for name, policy in plan.configured.items()} == {"warm": "temperature"}
    batches = {"seven": {"base": "toy-base-7"}}
    assert plan.models == {"toy": Model("toy-base", "toy-rl", "lower", 1e6, batches=batches)}
    assert plan.benchmarks == {"sums": Benchmark("math")}
    assert (plan.anchor_model, plan.anchor_benchmark, list(plan.budgets)) == ("toy", "sums", [1, 2, 4])


def test_the_first_pair_and_fitted_benchmark_are_the_anchor(raw: Raw, make_grid: Make) -> None:
    """Of those that can be fitted on; with nothing set, a pair of one's own has BOPTR."""
    raw["pairs"] = dict.fromkeys(("new", "mine"), raw["pairs"]["toy"]) | raw["pairs"]
    raw["pairs"]["new"] = raw["pairs"]["new"] | {"group": "new"}
    sums = raw["benchmarks"]["sums"]
    raw["benchmarks"] = {"left": {**sums, "regime": "none"}, "held": {**sums, "role": "held_out"}, "sums": sums}
    raw["study"] = {"pairs": ["new", "mine", "toy"], "benchmarks": list(raw["benchmarks"])}
    found = make_grid(raw)
    assert (found.study.anchor, found.study.without_boptr) == (("mine", "sums"), "")


def test_a_study_may_leave_out_the_split_that_a_pair_was_trained_on(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    """The model has no training split then, and not another model's."""
    repeated(raw)
    for name in ("mine", "other"):
        raw["benchmarks"][name] = {**raw["benchmarks"]["sums"], "role": "rltrain"}
    raw["pairs"]["toy"]["rltrain"] = "mine"
    for chosen, found in (([], None), (["other"], None), (["mine", "other"], "mine")):
        raw["study"]["benchmarks"] = ["sums", *chosen]
        assert cohort_plan(make_grid(raw)).rltrain("toy") == found


def test_imported_pairs_are_in_the_cohort(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    repeated(raw)
    questions = make_grid(raw).inputs.questions("sums")
    rows = [{"question": q.id, "sample": 0, "text": f"\\boxed{{{q.gold}}}"} for q in questions]
    path = tmp_path / "theirs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for pair, role in (("theirs", "base"), ("theirs", "rl"), ("half", "rl")):
        choices = Choices(role=role, policy="topp0.95_t1.0")
        import_samples(make_grid(raw), [path], Request(pair=pair, benchmark="sums", choices=choices))
    plan = cohort_plan(make_grid(raw))
    assert list(plan.models) == ["toy", "theirs"]
    assert plan.models["theirs"] == Model("theirs-base", "theirs-rl")


@pytest.mark.parametrize(("role", "asked"), [("held_out", True), ("descriptive", False), ("rltrain", False)])
def test_rl_is_not_sampled_where_it_plays_no_part(raw: Raw, make_grid: Make, role: str, asked: bool) -> None:
    raw["benchmarks"]["sums"] |= {"regime": "math", "role": role}
    cells = make_grid(raw).study.cells
    assert ("toy-base", "sums") in cells
    assert (("toy-rl", "sums") in cells) == asked


def test_a_pair_with_a_training_split_of_its_own_is_not_asked_the_others(raw: Raw, make_grid: Make) -> None:
    for name in ("mine", "theirs"):
        raw["benchmarks"][name] = {**raw["benchmarks"]["sums"], "regime": "math", "role": "rltrain"}
    raw["study"]["benchmarks"] += ["mine", "theirs"]
    raw["pairs"]["toy"]["rltrain"] = "mine"
    assert [benchmark for _, benchmark in make_grid(raw).study.cells] == ["sums", "mine", "sums"]


def test_budgets_beyond_b_reach_as_far_as_the_deepest_policy(raw: Raw, make_grid: Make) -> None:
    raw["benchmarks"]["sums"]["deeper"] = {"temp_0.5": 17}
    assert make_grid(raw).study.read_budgets("sums") == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        (("benchmarks", "sums", "regime"), "none", "no benchmark of role fitted with a regime other than none"),
        (("benchmarks", "sums", "role"), "held_out", "no benchmark of role fitted"),
        (("study", "pairs"), [], "no pair of group upper or lower"),
        (("pairs", "toy", "group"), "new", "no pair of group upper or lower"),
        (("boptr",), {"anchor": {"pair": "elsewhere"}}, "the anchor elsewhere/sums (boptr.anchor) is not among"),
        (("budgets",), [1, 3], "powers of two"),
        (("seed",), 42, ""),
    ],
)
def test_a_study_without_boptr_says_why(
    raw: Raw, make_grid: Make, where: tuple[str, ...], value: Any, says: str
) -> None:
    raw = repeated(raw)
    raw["pairs"]["elsewhere"] = {"base": "toy-base", "rl": "toy-rl"}
    found = make_grid(changed(raw, where, value)).study.without_boptr
    assert says in found
    assert bool(found) == bool(says)


@pytest.mark.parametrize(
    "unused",
    [
        {"checkpoints": {"other": {"path": "absent", "vllm": {"tensor_parallel": 4}, "dtype": "float16"}}},
        {"checkpoints": {"other": {"hub": "not/pinned", "engine": "vllm", "device": "cuda"}}},
        {"checkpoints": {"other": {"path": "absent"}}, "pairs": {"others": {"base": "other", "rl": "other"}}},
        {"benchmarks": {"other": {"path": "absent.jsonl", "grader": "ifeval", "max_tokens": 9, "pool": "three"}}},
        {
            "benchmarks": {"other": {"path": "absent.jsonl", "grader": "math", "max_tokens": 9, "pool": "three"}},
            "boptr": {"q_beta": {"other": 0.7}},
        },
        {"pools": {"other": ["temp_0.5"]}},
    ],
    ids=["engine", "hub", "pair", "benchmark", "q_beta", "pool"],
)
def test_what_a_study_does_not_use_neither_refuses_it_nor_runs_it_again(
    raw: Raw, make_grid: Make, unused: dict[str, dict[str, Any]]
) -> None:
    def tracked(grid: Grid) -> list[str]:
        grid.check()
        cells = [needs.score(grid, *cell) for cell in grid.study.cells]
        benchmarks = [stage(grid, "sums") for stage in (needs.landscape, needs.recovery)]
        whole = [stage(grid) for stage in (needs.measures, needs.overview, needs.tables, needs.boptr)]
        return [needs.hash_of(value) for value in (*cells, *benchmarks, *whole)]

    raw["benchmarks"]["sums"]["regime"] = "math"
    before = tracked(make_grid(raw))
    more = {section: {**raw.get(section, {}), **entries} for section, entries in unused.items()}
    assert tracked(make_grid({**raw, **more})) == before
