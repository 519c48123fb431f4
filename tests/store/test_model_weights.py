"""What config.json and the headers of weights say together: a folder that a job would refuse is refused before it.

Folders that are right are read as transformers reads them, which the log-probabilities of some tokens show.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file  # noqa: E402

import fuzzing  # noqa: E402
from searchlens.engines import _llama  # noqa: E402
from searchlens.engines.base import Given  # noqa: E402
from searchlens.engines.transformers import TransformersEngine  # noqa: E402
from searchlens.errors import InputError  # noqa: E402
from searchlens.plan import Grid  # noqa: E402
from searchlens.store.checkpoints import described, require_whole, weights, window  # noqa: E402
from test_engine import BOS, LLAMA3_ROPE, PAD, SIZES, save  # noqa: E402

Change = Callable[[Path], object]
TEXT = Given((BOS, 7, 9), tuple(range(5, 60)))
CONFIGS = {
    "llama": transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "mistral": transformers.MistralConfig(**SIZES, head_dim=12, sliding_window=None),
    "qwen2": transformers.Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**SIZES, attention_bias=True, head_dim=16),
}
EMBEDDING, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"
QUERY = "model.layers.0.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("made")
    return {kind: save(root / kind, config) for kind, config in CONFIGS.items()}


@pytest.fixture
def copy(made: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda kind: Path(shutil.copytree(made[kind], tmp_path / kind))


def config(*without: str, **changes: Any) -> Change:
    def change(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text()) | changes
        for key in without:
            content.pop(key, None)
        (folder / "config.json").write_text(json.dumps(content))

    return change


def tensors(change: Callable[[dict[str, Any]], object]) -> Change:
    def changed(folder: Path) -> None:
        held = load_file(folder / "model.safetensors")
        change(held)
        save_file({name: tensor.clone() for name, tensor in held.items()}, folder / "model.safetensors")

    return changed


def sharded(folder: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    assert len([*folder.glob("model-*.safetensors")]) > 3


def in_order(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


def another_head(held: dict[str, Any]) -> None:
    held[HEAD] = held[EMBEDDING].flip(0)


def without_prefix(held: dict[str, Any]) -> None:
    for name in list(held):
        held[name.removeprefix("model.")] = held.pop(name)


def adapter(folder: Path) -> None:
    """As ``save_pretrained`` leaves it beside weights that it was merged into."""
    peft = pytest.importorskip("peft")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapted.save_pretrained(folder)
    assert (folder / "adapter_model.safetensors").exists()


def rotated(**rope: Any) -> Change:
    return config("rope_parameters", rope_scaling=rope, rope_theta=1000.0, max_position_embeddings=128)


YARN = {"factor": 4.0, "original_max_position_embeddings": 32}
RIGHT: dict[str, tuple[str, Change]] = {
    "as saved, llama": ("llama", config()),
    "as saved, mistral": ("mistral", config()),
    "as saved, qwen2": ("qwen2", config()),
    "as saved, qwen3": ("qwen3", config()),
    "tied, with an own head": ("qwen2", tensors(another_head)),
    "tied, and the head alone": ("qwen2", tensors(lambda held: held.update({HEAD: held.pop(EMBEDDING)}))),
    "in shards": ("llama", sharded),
    "in shards, without a prefix": ("qwen2", in_order(tensors(without_prefix), sharded)),
    "without a prefix": ("qwen2", tensors(without_prefix)),
    "with a copy": (
        "llama",
        lambda folder: shutil.copy(folder / "model.safetensors", folder / "consolidated.safetensors"),
    ),
    "with another layout": (
        "llama",
        lambda folder: save_file({"w": torch.ones(2)}, folder / "consolidated.safetensors"),
    ),
    "with the buffer of old files": (
        "llama",
        tensors(lambda held: held.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(6)})),
    ),
    "rotations as before": ("mistral", config("rope_parameters", rope_theta=500.0)),
    "rotations by default": ("mistral", config("rope_parameters")),
    "rotations of llama3": ("llama", rotated(**LLAMA3_ROPE)),
    "rotations in the old spelling": ("llama", rotated(type="linear", factor=2.0)),
    "rotations of yarn": ("qwen2", rotated(rope_type="yarn", **YARN)),
    "heads by default": ("llama", in_order(config("head_dim"))),
    "null for a default": ("mistral", config(num_key_value_heads=2, sliding_window=None)),
    "a window that is off": ("qwen2", config(use_sliding_window=False, sliding_window=4)),
    "a window that llama does not have": ("llama", config(sliding_window=4)),
    "no eps": ("llama", config("rms_norm_eps")),
    "no activation": ("llama", config("hidden_act")),
    "in half precision": (
        "llama",
        tensors(lambda held: held.update({name: tensor.bfloat16() for name, tensor in held.items()})),
    ),
}


@pytest.mark.parametrize("what", RIGHT)
def test_what_is_right_is_read_as_transformers_reads_it(what: str, copy: Callable[[str], Path]) -> None:
    kind, change = RIGHT[what]
    folder = copy(kind)
    change(folder)
    require_whole(folder, embedded=True)
    (found,) = TransformersEngine(folder, threads=1).score([TEXT])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(torch.tensor([[*TEXT.prompt, *TEXT.tokens]])).logits[0]
    logits[:, PAD] = -torch.inf
    wanted = logits.log_softmax(1)[len(TEXT.prompt) - 1 : -1].gather(1, torch.tensor(TEXT.tokens)[:, None])[:, 0]
    np.testing.assert_allclose(found, wanted.numpy(), atol=2e-5)


def test_an_adapter_beside_merged_weights_is_not_added(made: dict[str, Path], copy: Callable[[str], Path]) -> None:
    """transformers would add it to what has it already."""
    merged = copy("llama")
    adapter(merged)
    require_whole(merged, embedded=True)
    (wanted,), (found,) = (TransformersEngine(folder, threads=1).score([TEXT]) for folder in (made["llama"], merged))
    np.testing.assert_array_equal(found, wanted)


def test_vllm_would_read_an_adapter_as_weights(copy: Callable[[str], Path]) -> None:
    """Unless an index names the files."""
    folder = copy("llama")
    adapter(folder)
    with pytest.raises(InputError, match=r"vLLM would read adapter_model\.safetensors"):
        require_whole(folder, embedded=False)
    sharded_too = copy("qwen2")
    sharded(sharded_too)
    adapter(sharded_too)
    require_whole(sharded_too, embedded=False)


WRONG: dict[str, tuple[str, Change, str]] = {
    "a tensor is missing": ("llama", tensors(lambda held: held.pop(QUERY)), rf"have no {QUERY}"),
    "a tensor too many": ("llama", tensors(lambda held: held.update(x=torch.ones(2))), r"model\.safetensors has 'x'"),
    "a layer too many": (
        "qwen2",
        config("layer_types", num_hidden_layers=1),
        r"model\.safetensors has 'model\.layers\.1",
    ),
    "a layer too few": ("qwen2", config("layer_types", num_hidden_layers=3), r"have no model\.layers\.2"),
    "many layers": ("llama", config(num_hidden_layers=9_999), r"have no model\.layers\.2"),
    "very many layers": (
        "llama",
        config(num_hidden_layers=10**9),
        "num_hidden_layers must be .* from 1 to 10,000",
    ),
    "another shape": (
        "llama",
        tensors(lambda held: held.update({NORM: torch.ones(3)})),
        rf"model\.safetensors has {NORM} of shape \(3,\), config\.json says \(32,\)",
    ),
    "no head": ("llama", tensors(lambda held: held.pop(HEAD)), f"have no {HEAD}"),
    "a bias is missing": ("qwen2", tensors(lambda held: held.pop(QUERY.replace("weight", "bias"))), r"q_proj\.bias"),
    "a bias that config.json does not have": (
        "llama",
        config(mlp_bias=False),
        r"has 'model\.layers\.0\.mlp\.\w+\.bias'",
    ),
    "bytes for numbers": ("llama", tensors(lambda held: held.update({NORM: held[NORM].to(torch.int8)})), "type I8"),
    "vocabulary of 0": ("llama", config(vocab_size=0), "vocab_size must be a whole number of at least 1, found 0"),
    "vocabulary of -1": ("llama", config(vocab_size=-1), "vocab_size must be .* found -1"),
    "no heads": ("llama", config(num_attention_heads=0), "num_attention_heads must be .* found 0"),
    "seven heads": ("llama", config("head_dim", num_attention_heads=7), "7 heads with 2 .* do not fit"),
    "no shared heads": ("llama", config(num_key_value_heads=0), "num_key_value_heads must be .* found 0"),
    "hidden of 10^9": ("llama", config("head_dim", hidden_size=10**9), r"of shape \(\d+, 32\), .* \(\d+, 1000000000\)"),
    "an odd head": ("mistral", config(head_dim=13), "each of 13 numbers, do not fit"),
    **{
        f"no {key}": (
            "llama",
            config(key),
            f"{key} must be a whole number .*, found None",
        )
        for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    },
    "a size as text": ("llama", config(hidden_size="48"), "hidden_size must be .* found '48'"),
    "a size as truth": ("llama", config(num_hidden_layers=True), "num_hidden_layers must be .* found True"),
    "tied as text": ("llama", config(tie_word_embeddings="false"), "tie_word_embeddings must be true or false"),
    "rotations that follow the text": ("llama", rotated(type="dynamic", factor=2.0), "rope type 'dynamic' is not"),
    "rotations unknown": ("llama", rotated(rope_type=["yarn"]), "rope type .*'yarn'.* is not supported"),
    "rotations no mapping": ("llama", config(rope_scaling="linear"), "rope_scaling must be a mapping"),
    "no factor": (
        "llama",
        rotated(rope_type="yarn"),
        "factor of rope type 'yarn' must be above 0, found None",
    ),
    "rotations of a part": ("llama", config(partial_rotary_factor=0.5), "partial_rotary_factor must be 1"),
    "eps a text": ("llama", config(rms_norm_eps="1e-6"), "rms_norm_eps must be a number above 0, found '1e-6'"),
    "activation": ("llama", config(hidden_act="gelu"), "hidden_act must be 'silu' .*, found 'gelu'"),
    "quantised": ("llama", config(quantization_config={"quant_method": "gptq", "bits": 4}), "quantised by 'gptq'"),
    "shards without their index": (
        "llama",
        in_order(sharded, lambda folder: (folder / "model.safetensors.index.json").unlink()),
        r"has neither model\.safetensors nor model\.safetensors\.index\.json",
    ),
    "zeros": (
        "qwen2",
        tensors(lambda held: held.update({QUERY: torch.zeros_like(held[QUERY])})),
        rf"1 of \d+ tensors hold zeros only where sampled, such as {QUERY}",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_in_one_line(
    what: str, copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a second, and before anything is loaded; the engine says the same."""
    kind, change, message = WRONG[what]
    folder = copy(kind)
    change(folder)
    monkeypatch.setattr(_llama, "load_file", lambda _: pytest.fail("weights are loaded"))
    began = time.perf_counter()
    with pytest.raises(InputError, match=message) as refused:
        require_whole(folder, embedded=True)
    assert time.perf_counter() - began < 1
    assert str(folder) in refused.value.message
    assert "\n" not in refused.value.message
    with pytest.raises(InputError, match=message):
        TransformersEngine(folder, threads=1)


def test_vectors_may_be_zero(copy: Callable[[str], Path]) -> None:
    """Biases often are, and so may be the first rows of an embedding."""
    folder = copy("qwen2")

    def zeroed(held: dict[str, Any]) -> None:
        held |= {name: torch.zeros_like(tensor) for name, tensor in held.items() if tensor.dim() == 1}
        held[EMBEDDING][:10] = 0

    tensors(zeroed)(folder)
    require_whole(folder, embedded=True)


def test_zeros_are_looked_for_in_checks_and_jobs_alone(copy: Callable[[str], Path]) -> None:
    """Snakemake plans often."""
    folder = copy("qwen2")
    tensors(lambda held: held.update({QUERY: torch.zeros_like(held[QUERY])}))(folder)
    require_whole(folder, embedded=True, sampled=False)


def test_a_study_is_checked_with_a_look_at_the_weights(raw: dict[str, Any], make_grid: Callable[..., Grid]) -> None:
    grid = make_grid(raw)
    grid.check()
    (grid.inputs.checkpoint_folder("toy-rl") / "model.safetensors").write_bytes(fuzzing.safetensors(number=bytes(4)))
    with pytest.raises(InputError, match=r"checkpoints\.toy-rl\.path: .* tensors hold zeros only where sampled"):
        grid.check()
    grid.check(sampled=False)
    rules = (Path(__file__).parents[2] / "workflow/rules/common.smk").read_text()
    assert "grid.check(sampled=False)" in rules


@pytest.mark.parametrize(
    ("kind", "changes", "longest"),
    [
        ("mistral", {"sliding_window": 64}, 64),
        ("mistral", {"sliding_window": 4096}, 128),
        ("mistral", {"sliding_window": None}, 128),
        ("llama", {"sliding_window": 64}, 128),
        ("qwen2", {"sliding_window": 64}, 128),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 0}, 64),
        ("qwen3", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 1}, 64),
        ("llama", {"max_position_embeddings": 32}, 32),
    ],
)
def test_the_longest_text_is_known_before_a_job(
    kind: str, changes: dict[str, Any], longest: int, copy: Callable[[str], Path]
) -> None:
    """It is what the engine takes."""
    folder = copy(kind)
    config("layer_types", **changes)(folder)
    assert window(json.loads((folder / "config.json").read_text())) == longest
    assert TransformersEngine(folder, threads=1).max_model_len == longest


def test_the_longest_text_of_others_is_not_known() -> None:
    assert window({"model_type": "gemma2", "max_position_embeddings": 8192}) is None
    assert window({"model_type": "llama", "max_position_embeddings": "long"}) is None
    assert window({"model_type": "mistral"}) == 4096


@pytest.mark.parametrize("kind", CONFIGS)
def test_what_is_left_out_is_what_transformers_takes(kind: str, tmp_path: Path) -> None:
    given = {"hidden_size": 64, "intermediate_size": 48, "vocab_size": 9, "num_hidden_layers": 1}
    given |= {"num_attention_heads": 32}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, **given}))
    ours, theirs = described(tmp_path), transformers.AutoConfig.from_pretrained(tmp_path).to_dict()
    assert theirs["rope_parameters"] == {"rope_type": "default", "rope_theta": ours.pop("rope_theta")}
    if kind.startswith("qwen"):
        assert theirs.pop("sliding_window") is None  # as it is off
    same = ours.keys() & theirs.keys()
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}
    assert len(same) > 10


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_tensors_are_those_of_transformers(kind: str, made: dict[str, Path]) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(made[kind])
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert {name: tensor.shape for name, tensor in weights(made[kind]).items()} == wanted
