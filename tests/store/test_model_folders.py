"""Folders of checkpoints that are cut short, damaged or foreign: one message, nobody is asked, nothing is run."""

import json
import os
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

import bad_inputs  # noqa: E402
import fuzzing  # noqa: E402
from searchlens.engines.base import Given  # noqa: E402
from searchlens.engines.transformers import TransformersEngine  # noqa: E402
from searchlens.errors import InputError  # noqa: E402
from searchlens.plan import Grid  # noqa: E402
from searchlens.store.checkpoints import described, headers, index_names, require_whole, weight_files, window  # noqa: E402
from test_engine import LLAMA3_ROPE, SIZES, save  # noqa: E402
from test_engine_contract import BOS, log_p_of, reference  # noqa: E402

LEFT_TO_THE_STUDY = {"no tokenizer"}
"""``store.checkpoints.weight_files`` refuses it; an engine may do without a tokenizer."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which nothing is wrong. Code in it that is run, or unpickled, leaves a file ``owned``."""
    place = tmp_path / "model"
    place.mkdir()
    for name, content in bad_inputs.CHECKPOINT.items():
        (place / name).write_bytes(content)
    (place / "mine.py").write_text("import pathlib\npathlib.Path('owned').touch()\n")
    monkeypatch.chdir(place)
    return place


def change(folder: Path, what: str) -> None:
    name, content = fuzzing.MODELS[what]
    if content is None:
        (folder / name).unlink()
    elif callable(content):
        content(folder / name)
    else:
        (folder / name).write_bytes(content)


def in_one_message(folder: Path, error: InputError) -> bool:
    """Whether a refusal names the folder in few lines, and nothing of the folder was run."""
    lines = [line for line in str(error).splitlines() if not line.startswith("Hint: ")]
    return str(folder) in str(error) and len(lines) <= 3 and not (folder / "owned").exists()


def test_a_whole_folder_is_whole(folder: Path) -> None:
    require_whole(folder, embedded=True)
    require_whole(folder, embedded=False)


@pytest.mark.parametrize("what", sorted(fuzzing.MODELS.keys() - LEFT_TO_THE_STUDY))
def test_both_engines_refuse_it(folder: Path, what: str) -> None:
    """Architectures are vLLM's own affair, and so is the code of a checkpoint, which it is told not to run."""
    change(folder, what)
    with pytest.raises(InputError) as refused:
        TransformersEngine(folder, device="cpu", threads=1)
    assert in_one_message(folder, refused.value)
    if what not in ("architecture", "remote code"):
        with pytest.raises(InputError) as refused:
            require_whole(folder, embedded=False)
        assert in_one_message(folder, refused.value)


def test_every_type_of_number_that_safetensors_writes_is_known(tmp_path: Path) -> None:
    """A type that is missing, or has another size, would refuse a sound checkpoint."""
    kinds = ("bool", "uint", "int", "float", "bfloat", "complex64")
    names = sorted({str(value)[6:] for value in vars(torch).values() if isinstance(value, torch.dtype)})
    written = 0
    for name in (name for name in names if name.startswith(kinds)):
        try:
            save_file({"w": torch.empty(3, 8, dtype=getattr(torch, name))}, tmp_path / name)
        except Exception:  # a type that safetensors does not have
            continue
        written += 1
        (tensor,) = headers(tmp_path / name).values()
        assert tensor.shape[0] == 3, name
    assert written >= 15


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [4]},
        {"dtype": "F32", "shape": [4], "data_offsets": 16},
        {"shape": [4], "data_offsets": [0, 16]},
        {"dtype": ["F32"], "shape": [4], "data_offsets": [0, 16]},
    ],
)
def test_an_entry_that_is_none_is_refused(entry: object, folder: Path) -> None:
    """Of the header of a file: a key is missing, or has the wrong type or length."""
    content = json.dumps({"w": entry}).encode()
    (folder / "model.safetensors").write_bytes(len(content).to_bytes(8, "little") + content + bytes(16))
    with pytest.raises(InputError, match="tensor 'w' has"):
        headers(folder / "model.safetensors")


def test_an_index_names_files_beside_it(folder: Path) -> None:
    """Several tensors of one file, each file once; what it names must be there."""
    index = folder / "model.safetensors.index.json"
    names = ("lm_head.weight", "model.norm.weight")
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "model.safetensors")}))
    require_whole(folder, embedded=True)
    assert index_names(index) == ["model.safetensors"]
    assert {path.name for path in weight_files(folder)} == {"config.json", "model.safetensors", "tokenizer.json"}
    index.write_text(json.dumps({"weight_map": {"w": "model.safetensors", "v": "part-2.safetensors"}}))
    with pytest.raises(
        InputError, match=r"has no part-2\.safetensors, which its model\.safetensors\.index\.json names"
    ):
        weight_files(folder)


def test_a_file_that_decides_what_is_sampled_must_be_there(folder: Path) -> None:
    """A slow tokenizer is to be converted: there is nothing more to download."""
    for name in ("config.json", "model.safetensors"):
        kept = (folder / name).read_bytes()
        (folder / name).unlink()
        with pytest.raises(InputError, match=r"has no config\.json|has no \*\.safetensors"):
            weight_files(folder)
        (folder / name).write_bytes(kept)
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")
    with pytest.raises(InputError, match=r"has no tokenizer\.json") as refused:
        weight_files(folder)
    assert "fast tokenizer" in refused.value.hint
    assert "download" not in refused.value.hint


def test_a_header_as_long_as_safetensors_takes_is_read_and_no_longer_one(tmp_path: Path) -> None:
    """Nothing is read of what a file only pretends to have; the limit is that of safetensors itself."""
    for length, says in ((100_000_000, "its header is not JSON"), (100_000_001, "no whole safetensors file")):
        path = tmp_path / f"{length}.safetensors"
        path.write_bytes(length.to_bytes(8, "little"))
        os.truncate(path, 8 + length)
        with pytest.raises(InputError, match=says):
            headers(path)


# ---- What config.json and the headers of weights say together: a folder that a job would refuse is refused before it


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
    "tied, with an own head": ("qwen2", tensors(lambda held: held.update({HEAD: held[EMBEDDING].flip(0)}))),
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
    np.testing.assert_allclose(found.logprobs, log_p_of(reference(folder), TEXT), atol=2e-5)


def test_an_adapter_beside_merged_weights_is_not_added(made: dict[str, Path], copy: Callable[[str], Path]) -> None:
    """transformers would add it to what has it already."""
    merged = copy("llama")
    adapter(merged)
    require_whole(merged, embedded=True)
    (wanted,), (found,) = (TransformersEngine(folder, threads=1).score([TEXT]) for folder in (made["llama"], merged))
    np.testing.assert_array_equal(found.logprobs, wanted.logprobs)


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
    "very many layers": ("llama", config(num_hidden_layers=10**9), "num_hidden_layers must be .* from 1 to 10,000"),
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
    "no heads": ("llama", config(num_attention_heads=0), "num_attention_heads must be .* found 0"),
    "seven heads": ("llama", config("head_dim", num_attention_heads=7), "7 heads with 2 .* do not fit"),
    "hidden of 10^9": ("llama", config("head_dim", hidden_size=10**9), r"of shape \(\d+, 32\), .* \(\d+, 1000000000\)"),
    "an odd head": ("mistral", config(head_dim=13), "each of 13 numbers, do not fit"),
    **{
        f"no {key}": ("llama", config(key), f"{key} must be a whole number .*, found None")
        for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    },
    "a size as text": ("llama", config(hidden_size="48"), "hidden_size must be .* found '48'"),
    "a size as truth": ("llama", config(num_hidden_layers=True), "num_hidden_layers must be .* found True"),
    "tied as text": ("llama", config(tie_word_embeddings="false"), "tie_word_embeddings must be true or false"),
    "rotations that follow the text": ("llama", rotated(type="dynamic", factor=2.0), "rope type 'dynamic' is not"),
    "rotations unknown": ("llama", rotated(rope_type=["yarn"]), "rope type .*'yarn'.* is not supported"),
    "rotations no mapping": ("llama", config(rope_scaling="linear"), "rope_scaling must be a mapping"),
    "no factor": ("llama", rotated(rope_type="yarn"), "factor of rope type 'yarn' must be above 0, found None"),
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
def test_what_is_wrong_is_said_in_one_line(what: str, copy: Callable[[str], Path]) -> None:
    """Within a second; the engine says the same."""
    kind, change, message = WRONG[what]
    folder = copy(kind)
    change(folder)
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


def test_a_study_is_checked_with_a_look_at_the_weights(raw: dict[str, Any], make_grid: Callable[..., Grid]) -> None:
    grid = make_grid(raw)
    grid.check()
    (grid.inputs.checkpoint_folder("toy-rl") / "model.safetensors").write_bytes(bad_inputs.safetensors(number=bytes(4)))
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
