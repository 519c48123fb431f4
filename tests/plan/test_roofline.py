"""No plan may promise more than the hardware can do: prices stay below the limit, and the limit is right."""

import importlib
import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from conftest import Make, Raw
from searchlens.config import check
from searchlens.config.model import from_plain, plain
from searchlens.config.sampled import CheckpointSpec, ShapeSpec
from searchlens.engines.kind import engine_kind
from searchlens.errors import InputError
from searchlens.plan import Grid, cost
from searchlens.plan.cost import GPUS, RESERVED, GpuName, Shape, limit
from searchlens.plan.pins import shape_of
from searchlens.search.policy import Texts

ROOT = Path(__file__).parents[2]
QWEN_7B = Shape(28, 3584, 18944, 28, 4, 128, 152064, False)
QWEN_HALF = Shape(24, 896, 4864, 14, 2, 64, 151936, True)
LLAMA_8B = Shape(32, 4096, 14336, 32, 8, 128, 128256, False)
DEEPSEEK_MATH = Shape(30, 4096, 11008, 32, 32, 128, 102400, False)
SHAPES = (QWEN_7B, QWEN_HALF, LLAMA_8B, DEEPSEEK_MATH)


@pytest.fixture(scope="module")
def paper() -> dict[str, Any]:
    return plain(check.load([*check.DEFAULT_FILES, ROOT / "config/paper.yaml"]))


def test_smaller_keys_and_values_never_slow_a_gpu() -> None:
    """Half the bytes of attention, and more rows where memory bounds them; float32 keeps twice as many."""
    for shape in SHAPES:
        plain, small = (limit(shape, GPUS["H100"], 1024, 630, kv_cache_dtype=name) for name in ("auto", "fp8"))
        assert small.tokens_per_second > plain.tokens_per_second and small.rows >= plain.rows
    assert limit(QWEN_7B, GPUS["H100"], 1024, 630, kv_cache_dtype="bfloat16") == limit(QWEN_7B, GPUS["H100"], 1024, 630)


def test_numbers_of_a_shape() -> None:
    """Qwen2.5-7B has 7.62 G parameters, and 57,344 bytes of keys and values a token in bfloat16."""
    assert QWEN_7B.stored == pytest.approx(7.62e9, rel=0.001)
    assert QWEN_HALF.stored == pytest.approx(0.494e9, rel=0.001), "a tied embedding counts once"
    assert [2 * shape.kept for shape in SHAPES] == [57_344, 12_288, 131_072, 491_520]


def test_the_limit_by_hand() -> None:
    """Seven billion parameters for one row: reading them takes 2.9 ms, and nothing else counts."""
    alone = limit(QWEN_7B, GPUS["H200"], 1, 1)
    assert alone.tokens_per_second == pytest.approx(4.8e12 / (2 * QWEN_7B.multiplied), rel=0.002)
    # With 1,024 rows the products are bound by arithmetic, attention by keys and values, the rest is the logits.
    seconds = 2 * QWEN_7B.multiplied * 1024 / 989e12 + 1024 * 630 * 57_344 / 4.8e12 + 6 * 1024 * 152_064 * 4 / 4.8e12
    full = limit(QWEN_7B, GPUS["H200"], 1024, 630)
    assert full.tokens_per_second == pytest.approx(1024 / seconds)
    assert (full.rows, full.rows_bound_by) == (1024, "max_rows")


def test_keys_and_values_bound_the_rows() -> None:
    """The 32 heads of DeepSeek-Math leave room for 352 rows on an H200: 12,796 tokens/s at most."""
    found = limit(DEEPSEEK_MATH, GPUS["H200"], 1024, 630)
    assert (found.rows, found.rows_bound_by) == (352, "memory")
    assert found.tokens_per_second == pytest.approx(12_796, rel=0.001)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_makes_a_step_longer_never_makes_it_faster(shape: Shape, gpu: GpuName) -> None:
    for rows in (1, 64, 1024):
        for context in (50.0, 630.0, 4000.0):
            here = limit(shape, GPUS[gpu], rows, context).tokens_per_second
            assert limit(shape, GPUS[gpu], rows, 2 * context).tokens_per_second <= here
            assert limit(shape, GPUS[gpu], 2 * rows, context).tokens_per_second >= here * (1 - 1e-9)
            assert limit(shape, GPUS[gpu], rows, context, quantization="fp8").tokens_per_second >= here
            assert limit(shape, GPUS[gpu], rows, context, dtype="float32").tokens_per_second <= here
            fewer = replace(shape, num_key_value_heads=max(1, shape.num_key_value_heads // 2))
            assert limit(fewer, GPUS[gpu], rows, context).tokens_per_second >= here


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("shape", SHAPES)
def test_engines_that_share_a_gpu_never_pass_the_limit_of_one(shape: Shape, gpu: GpuName) -> None:
    """Each reads its own weights in every step, and they leave less room for keys and values."""
    for rows in (1, 64, 1024, 10**6):
        for context in (50.0, 630.0, 4000.0):
            one, two, four = (limit(shape, GPUS[gpu], rows, context, processes=count) for count in (1, 2, 4))
            assert two.tokens_per_second <= one.tokens_per_second * (1 + 1e-9)
            assert four.tokens_per_second <= two.tokens_per_second * (1 + 1e-9)
            assert four.rows <= two.rows <= one.rows
    alone, twice = (limit(shape, GPUS[gpu], 1, 1, processes=count).tokens_per_second for count in (1, 2))
    assert twice == pytest.approx(alone / 2, rel=0.01), "a row alone waits for all weights"


def test_the_weights_of_each_engine_take_memory() -> None:
    """As many rows fewer as the second weights, and what else an engine keeps, would have held keys and values."""
    one, two = (limit(QWEN_7B, GPUS["H200"], 10**6, 630, processes=count) for count in (1, 2))
    assert (one.rows_bound_by, two.rows_bound_by) == ("memory", "memory")
    assert one.rows - two.rows == pytest.approx((2 * QWEN_7B.stored + RESERVED) / (630 * 57_344), abs=1)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("checkpoint", ["qwen2.5-7b-base", "qwen2.5-0.5b-base", "qwen2.5-14b-base", "ds-math-7b-base"])
def test_a_price_is_never_above_the_limit(paper: Raw, checkpoint: str, gpu: GpuName) -> None:
    """Known or guessed shapes, one GPU or two, short texts and long ones."""
    paper = {
        **paper,
        "cost": {**paper["cost"], "gpu": gpu},
        "checkpoints": json.loads(json.dumps(paper["checkpoints"])),
    }
    spec = paper["checkpoints"][checkpoint]
    shape = Shape(**spec["shape"])
    for gpus in (1, 2):
        spec["vllm"]["tensor_parallel"] = gpus
        for mean in (20.0, 645.0, 2000.0):
            texts = Texts.of_mean(mean, 3072, 0.6)
            most = limit(shape, GPUS[gpu].times(gpus), 1024, 150 + texts.running).tokens_per_second
            for known in (shape, None):
                speed = cost.assumed_speed(from_plain(paper), checkpoint, known, texts)
                assert speed.tokens_per_second * gpus <= most


def test_the_papers_grid_is_priced_below_what_an_h200_can_do(paper: Raw) -> None:
    grid = Grid(from_plain(paper))
    texts = cost.texts(from_plain(paper), "math500", cost.assumed_length(from_plain(paper), "math500"))
    speeds = {
        name: cost.assumed_speed(from_plain(paper), name, grid.inputs.shape(name), texts)
        for name in paper["checkpoints"]
        if name.startswith(("qwen2.5-7b-base", "ds-math"))
    }
    assert all(speed and "0.61 of the limit" in speed.source and "H200" in speed.source for speed in speeds.values())
    deepseek, qwen = speeds["ds-math-7b-base"], speeds["qwen2.5-7b-base"]
    assert deepseek and qwen
    assert deepseek.tokens_per_second < qwen.tokens_per_second < 28_000
    assert "bound by memory" in deepseek.source and "bound by max_rows" in qwen.source
    assert qwen.source.endswith("tokens of 2 engines") and "engines" not in deepseek.source
    assert "vLLM 0.26" in qwen.measured


@pytest.mark.parametrize(
    ("processes", "of_searches", "measured"), [(1, 0, 28_749), (1, 1, 26_741), (2, 0, 27_315), (2, 1, 28_190)]
)
def test_what_was_measured_is_priced_within_a_tenth(
    paper: Raw, processes: int, of_searches: bool, measured: float
) -> None:
    """Pool and power sampling while rows were full, in tokens/s, at lengths of mean 645, cut at 2,048, spread .7."""
    paper = _of_engines(paper, processes)
    texts = Texts.of_mean(645, 2048, 0.7)
    speed = cost.assumed_speed(from_plain(paper), "qwen2.5-7b-base", QWEN_7B, texts, of_searches=of_searches)
    assert speed and speed.tokens_per_second == pytest.approx(measured, rel=0.1)
    assert speed.source.endswith("; searches") == bool(of_searches)
    assert ("of its host" in speed.source) == (processes == 1 and of_searches)


def _of_engines(paper: Raw, processes: int, name: str = "qwen2.5-7b-base") -> dict[str, Any]:
    """The configuration with so many engines of a checkpoint on a GPU."""
    spec = paper["checkpoints"][name]
    changed = {**spec, "vllm": {**spec["vllm"], "processes": processes}}
    return {**paper, "checkpoints": {**paper["checkpoints"], name: changed}}


def test_searches_cost_what_other_samples_do_if_nobody_measured_them(paper: Raw) -> None:
    (measured,) = paper["cost"]["efficiency"]
    special = {"searches": None, "searches_host_us": None}
    priced, texts = {**paper, "cost": {**paper["cost"], "efficiency": [measured | special]}}, Texts((645,), 3072)
    speeds = [
        cost.assumed_speed(from_plain(priced), "qwen2.5-7b-base", QWEN_7B, texts, of_searches=kind) for kind in (0, 1)
    ]
    assert speeds[0] == speeds[1]


def test_a_shape_is_read_from_config_json(tmp_path: Path) -> None:
    content = {**asdict(QWEN_7B), "architectures": ["Qwen2ForCausalLM"], "torch_dtype": "bfloat16"}
    del content["head_dim"]
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert shape_of(tmp_path) == QWEN_7B
    (tmp_path / "config.json").write_text(json.dumps({**content, "architectures": ["MixtralForCausalLM"]}))
    assert shape_of(tmp_path) is None, "experts are not all multiplied"
    for broken in ("no JSON", "[]", json.dumps({"architectures": ["Qwen2ForCausalLM"]})):
        (tmp_path / "config.json").write_text(broken)
        assert shape_of(tmp_path) is None
    assert shape_of(tmp_path / "nowhere") is None
    assert shape_of(ROOT / "resources/zoo/micro-1m-base") is not None


def test_an_unknown_architecture_says_so(paper: Raw) -> None:
    speed = cost.assumed_speed(from_plain(paper), "qwen2.5-7b-base", None, Texts((645,), 3072))
    assert "architecture unknown" in speed.source
    assert Shape.guess(7.62e9).stored == pytest.approx(7.62e9, rel=0.15)


def test_the_folder_of_a_checkpoint_gives_its_shape(raw: Raw, make_grid: Make) -> None:
    grid = make_grid(raw)
    (grid.inputs.checkpoint_folder("toy-base") / "config.json").write_text(
        json.dumps({**asdict(LLAMA_8B), "architectures": ["LlamaForCausalLM"]})
    )
    assert make_grid(raw).inputs.shape("toy-base") == LLAMA_8B


def test_a_gpu_needs_a_measured_share(raw: Raw) -> None:
    with pytest.raises(InputError, match=r"cost\.gpu: H100 needs a measured share"):
        check.validate(raw | {"cost": {"gpu": "H100"}})


def test_no_engine_is_faster_than_its_host(paper: Raw) -> None:
    """A small model waits for its host: the price is what the hosts of all engines allow, or a share of the limit."""
    (measured,) = paper["cost"]["efficiency"]
    texts, name = Texts((645,), 3072), "qwen2.5-0.5b-base"
    few, many = (
        cost.assumed_speed(from_plain(_of_engines(paper, count, name)), name, QWEN_HALF, texts, of_searches=kind)
        for count, kind in ((1, False), (3, True))
    )
    assert few and few.tokens_per_second == pytest.approx(1e6 / measured["host_us"])
    assert few.source.endswith("one engine with 34.8 us of its host for a token") and measured["source"] in few.measured
    assert many and many.tokens_per_second == pytest.approx(3e6 / measured["searches_host_us"])
    assert many.source.endswith("3 engines, each with 37.4 us of its host for a token; searches")
    most = cost.assumed_speed(from_plain(_of_engines(paper, 40, name)), name, QWEN_HALF, texts)
    assert most and "0.61 of the limit" in most.source
    unknown = {**paper, "cost": {**paper["cost"], "efficiency": [{**measured, "host_us": None}]}}
    alone = cost.assumed_speed(from_plain(_of_engines(unknown, 1)), "qwen2.5-7b-base", QWEN_7B, texts)
    assert alone and "0.61 of the limit" in alone.source


def test_other_gpus_say_where_the_share_was_measured(paper: Raw) -> None:
    paper = {**paper, "cost": {**paper["cost"], "gpu": "H100"}}
    speed = cost.assumed_speed(from_plain(paper), "qwen2.5-7b-base", QWEN_7B, Texts((645,), 3072))
    assert "assumed to be the same on H100" in speed.measured


def test_one_list_of_gpus_one_shape_one_number_of_rows() -> None:
    assert set(GPUS) == set(get_args(GpuName))
    assert {item.name for item in fields(Shape)} == {item.name for item in fields(ShapeSpec)}
    engine = importlib.import_module("searchlens.engines.vllm")
    assert engine_kind(CheckpointSpec(engine="vllm")).rows == engine._CUDA_ROWS
