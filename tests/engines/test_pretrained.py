"""A GGUF file of Gemma 3 becomes a checkpoint folder with the same network and tokenizer, or nothing at all."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlens.benchmarks import Question, prompts
from searchlens.benchmarks.prompter import Prompter
from searchlens.cli.main import main
from searchlens.errors import InputError
from searchlens_lab.pretrained.convert import convert

Patch = pytest.MonkeyPatch

gguf = pytest.importorskip("gguf")
pytest.importorskip("sentencepiece")
torch = pytest.importorskip("torch")

WORDS = ("the", "cap", "capital", "of", "▁of", "▁the", "▁capital", "▁ca", "is", "▁is", "7", "▁7", "+", "▁+", "ofof")
NORMAL, CONTROL, USER, BYTE = 1, 3, 4, 6
WIDTH, HEADS, HEAD, INNER, LAYERS = 64, 2, 32, 96, 7
Make = Callable[..., Path]


def vocabulary() -> list[tuple[str, float, int]]:
    """Pieces, scores and types as converters to GGUF write them: spaces of user-defined pieces plainly."""
    pieces = [(name, -1000.0, CONTROL) for name in ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>")]
    pieces += [(name, -1000.0, USER) for name in ("\n", "\n\n", "  ", "   ", "<table>")]
    pieces += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    letters = sorted({letter for word in WORDS for letter in word} | set("▁abcdefghijklmnopqrstuvwxyz0123456789.?"))
    parts = sorted(
        {word[:end] for word in WORDS for end in range(2, len(word) + 1)}, key=lambda part: (len(part), part)
    )
    return pieces + [(piece, -float(rank), NORMAL) for rank, piece in enumerate(parts + letters)]


def network() -> Any:
    """A Gemma 3 with random weights, seven layers of which one is global, as transformers has it."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(0)
    sizes = {"vocab_size": len(vocabulary()), "hidden_size": WIDTH, "intermediate_size": INNER, "head_dim": HEAD}
    sizes |= {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 1}
    sizes |= {"query_pre_attn_scalar": HEAD, "sliding_window": 4, "max_position_embeddings": 128}
    layers = [("full" if i == 5 else "sliding") + "_attention" for i in range(LAYERS)]
    config = Gemma3TextConfig(**sizes, layer_types=layers)
    model = Gemma3ForCausalLM(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    return model


NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_feedforward_layernorm": "post_ffw_norm",
}
"""Names of transformers to those of llama.cpp, typed from its own table."""


def tensors(model: Any) -> dict[str, np.ndarray]:
    """Weights as a GGUF file has them: norms one larger."""
    found = {}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        layer, short = "", name.removesuffix(".weight")
        if short.startswith("model.layers."):
            layer, short = short.removeprefix("model.layers.").split(".", 1)
        found[(f"blk.{layer}." if layer else "") + NAMES[short] + ".weight"] = weight.numpy() + ("norm" in short)
    return found


@pytest.fixture(scope="module")
def model() -> Any:
    return network()


@pytest.fixture
def make(tmp_path: Path, model: Any) -> Make:
    """Write the model as a GGUF file, changed as a test asks for."""

    def write(
        architecture: str = "gemma3", tokenizer: str = "llama", leave_out: str = "", packed: bool = False, **facts: int
    ) -> Path:
        writer = gguf.GGUFWriter(tmp_path / "model.gguf", architecture)
        facts_of_it = {"name": "Tiny", "block_count": LAYERS, "embedding_length": WIDTH, "feed_forward_length": INNER}
        facts_of_it |= {"context_length": 128, "head_count": HEADS, "head_count_kv": 1, "key_length": HEAD}
        facts_of_it |= {"sliding_window": 4, "rope_freq_base": 1e6, "layer_norm_rms_eps": 1e-6}
        for name, fact in facts_of_it.items():
            getattr(writer, f"add_{name}")(fact)
        writer.add_tokenizer_model(tokenizer)
        for name, values in zip(("list", "scores", "types"), zip(*vocabulary(), strict=True), strict=True):
            getattr(writer, f"add_token_{name}")(values)
        for number, name in enumerate(("pad", "eos", "bos", "unk")):
            getattr(writer, f"add_{name}_token_id")(number)
        writer.add_add_space_prefix(False)
        writer.add_add_bos_token(bool(facts.get("bos", True)))
        for name, array in tensors(model).items():
            if packed and array.ndim == 2:
                kind = gguf.GGMLQuantizationType.Q8_0
                writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
            elif name != leave_out:
                writer.add_tensor(name, array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return tmp_path / "model.gguf"

    return write


def logits(model: Any, tokens: list[int]) -> Any:
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens])).logits


def test_the_folder_holds_the_same_network(make: Make, tmp_path: Path, model: Any) -> None:
    """Compared by logits on a text longer than the window, with the model that the file was written from."""
    from transformers import AutoModelForCausalLM

    said = convert(make(), tmp_path / "out", "float32")
    assert said.endswith(f"Tiny, 0 M parameters in float32, {len(vocabulary()):,} pieces")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    tokens = [2, *range(270, 300)]
    torch.testing.assert_close(logits(loaded, tokens), logits(model, tokens), rtol=1e-4, atol=1e-4)
    described = json.loads((tmp_path / "out/config.json").read_text())
    assert described["layer_types"] == model.config.layer_types
    assert described["rms_norm_eps"] == 1e-6
    assert json.loads((tmp_path / "out/generation_config.json").read_text())["eos_token_id"] == 1


def test_every_file_has_the_mode_that_the_umask_says(make: Make, tmp_path: Path) -> None:
    """Others can read a checkpoint as far as they can read what else is written, and no further."""
    umask = 0o027
    source, before = make(), os.umask(umask)
    try:
        convert(source, tmp_path / "out", "float32")
    finally:
        os.umask(before)
    written = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()}
    assert {"model.safetensors", "tokenizer.json", "config.json"} < set(written)
    assert set(written.values()) == {0o666 & ~umask}
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o777 & ~umask


def test_packed_weights_are_unpacked(make: Make, tmp_path: Path, model: Any) -> None:
    """Eight bits and a scale for 32 weights: near the weights that they were packed from, in the type asked for."""
    from safetensors.torch import load_file

    main(["convert", str(make(packed=True)), str(tmp_path / "out")])
    loaded = load_file(tmp_path / "out/model.safetensors")
    assert set(loaded) == set(model.state_dict()) - {"lm_head.weight"}
    for name, weight in loaded.items():
        assert weight.dtype == torch.bfloat16
        torch.testing.assert_close(weight.float(), model.state_dict()[name], rtol=2**-8, atol=0.01)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_tokenizer_is_the_files_own(make: Make, tmp_path: Path) -> None:
    """On made-up texts of all kinds, and in the traps of Gemma: runs of spaces and of lines, letters in bytes, tags."""
    from searchlens_lab.pretrained import convert as gguf

    file = gguf.read(make())
    reference, fast = gguf.sentencepiece(file), gguf.fast(file)
    assert gguf.difference(reference, fast, gguf.texts(file, 10_000)) == ""
    traps = ["", " ", "  ", "     ", "a\n\n\nb", "<table>", "é 日 😀", "The capital of  the", "▁of", "ofofof", "a \n b"]
    assert gguf.difference(reference, fast, traps) == ""
    ids = fast.encode("the capital of").ids
    assert [file.pieces[each] for each in ids] == ["<bos>", "the", "▁capital", "▁of"]
    for text in traps[1:]:
        assert fast.decode(fast.encode(text).ids) == reference.decode(reference.encode(text))


def test_a_tokenizer_that_cuts_a_text_otherwise_is_noticed(make: Make) -> None:
    from searchlens_lab.pretrained import convert as gguf

    file = gguf.read(make())
    fast = gguf.fast(file)
    fast.normalizer = None
    found = gguf.difference(gguf.sentencepiece(file), fast, ["of", "the capital"])
    assert found.startswith("'the capital' is [")


@pytest.mark.parametrize("bos", [True, False])
def test_a_prompt_begins_with_bos_if_the_file_says_so(make: Make, tmp_path: Path, bos: bool) -> None:
    convert(make(bos=bos), tmp_path / "out")
    tokens = Prompter(tmp_path / "out", prompts.template("plain")).prompts([Question("q", "the capital", "")])[0]
    assert tokens.count(2) == bos and (tokens[0] == 2) == bos


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "llama"}, "holds a model of architecture 'llama'; 'gemma3' can be converted"),
        ({"tokenizer": "gpt2"}, "its tokenizer is 'gpt2', not one of SentencePiece"),
        ({"leave_out": "blk.6.ffn_up.weight"}, r"lacks tensors: blk\.6\.ffn_up\.weight \(1\)"),
    ],
)
def test_another_file_is_refused_by_name(make: Make, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        convert(make(**change), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("share", [0.001, 0.02, 0.1, 0.5, 0.99])
def test_a_file_that_is_cut_off_is_refused_and_nothing_is_written(make: Make, tmp_path: Path, share: float) -> None:
    path = make()
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InputError, match=r"model\.gguf is cut off or damaged"):
        convert(path, tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["model.gguf"]


def test_what_is_no_such_file_and_where_something_is_already(make: Make, tmp_path: Path) -> None:
    path = make()
    with pytest.raises(InputError, match=r"cannot read .*none\.gguf: No such file"):
        convert(tmp_path / "none.gguf", tmp_path / "out")
    (tmp_path / "text.gguf").write_text("{}")
    with pytest.raises(InputError, match=r"text\.gguf is no GGUF file: it begins with b'\{\}'"):
        convert(tmp_path / "text.gguf", tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("")
    with pytest.raises(InputError, match="out is there already"):
        convert(path, tmp_path / "out")


def test_without_the_extra_the_error_says_how_to_install_it(make: Make, tmp_path: Path, monkeypatch: Patch) -> None:
    path = make()
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(InputError, match=r"sentencepiece is not installed") as error:
        convert(path, tmp_path / "out")
    assert error.value.hint.startswith("pip install 'gguf>=")
