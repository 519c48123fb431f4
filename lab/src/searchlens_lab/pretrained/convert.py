"""Checkpoint folders from GGUF files of Gemma 3, where a hub cannot be reached (docs/pretrained.md).

A folder appears whole, after its tokenizer was compared with the file's own one, or not at all. transformers' own
reader of GGUF files (5.19) puts no ``<bos>`` before a text of Gemma, without which the model writes nonsense; so the
vocabulary becomes a SentencePiece model, which is the reference, and ``tokenizer.json``.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchlens import seeds
from searchlens.config import addons
from searchlens.errors import InputError
from searchlens.store import files
from searchlens.store.inputs import require_no_stream

CHECKED = 2_000
"""Texts on which ``tokenizer.json`` is compared with the file's own tokenizer before anything is written."""
ARCHITECTURE = "gemma3"
_MAGIC = b"GGUF"
_SENTENCEPIECE = "llama"
"""What GGUF calls a vocabulary of SentencePiece."""
NORMAL, CONTROL, USER = 1, 3, 4
_SPACE = "▁"
_SPECIAL = {"unk": "unknown_token_id", "bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_WHOLE = {"token_embd": "embed_tokens", "output_norm": "norm"}
_EVERY = 6
"""Every sixth layer attends to all tokens; the others to a window."""
_LOCAL_THETA = 10_000.0
_LAYERS_27B = 62
"""The one size whose queries are scaled by the width of a layer and not by that of a head."""


@dataclass(frozen=True)
class GgufFile:
    """The content of a file that can be converted."""

    path: Path
    facts: Mapping[str, Any]
    """Every key of the file but the vocabulary, without the prefix ``gemma3.``."""
    pieces: list[str]
    """The vocabulary, as SentencePiece spells it."""
    scores: list[float]
    types: list[int]
    """By ``sentencepiece``: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte."""
    tensors: Mapping[str, Any]
    """Name to a tensor of ``gguf.GGUFReader``."""

    def fact(self, key: str) -> Any:
        """One fact. Raises InputError if the file does not have it."""
        if key not in self.facts:
            raise InputError(f"{self.path} does not say {key!r}", "take a whole model: files of adapters are not")
        return self.facts[key]

    def special(self, key: str) -> int:
        """The id of a special token, by its key in the file."""
        return int(self.fact(f"tokenizer.ggml.{key}"))

    def of_type(self, *types: int) -> list[str]:
        """The pieces of some types."""
        return [piece for piece, kind in zip(self.pieces, self.types, strict=True) if kind in types]


def convert(source: Path, folder: Path, dtype: str = "bfloat16") -> str:
    """Write a checkpoint folder, new or empty, from a GGUF file of Gemma 3; returns one line about the model.

    Quantised weights are written in ``dtype``: what quantisation lost stays lost. Raises InputError if the file is not
    one of Gemma 3, is cut off, or has a tokenizer that is not one of SentencePiece; a library is missing; the folder
    has files; or ``tokenizer.json`` would cut a text otherwise than the file's own tokenizer.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already", "name a folder that is not, or an empty one")
    addons.require("gguf", "sentencepiece", "google.protobuf", "tokenizers", "safetensors", "torch")
    import torch
    from safetensors.torch import save_file

    file = read(source)
    tokenizer = fast(file)
    if found := difference(sentencepiece(file), tokenizer, texts(file, CHECKED)):
        raise InputError(f"{source}: its vocabulary cannot be written as tokenizer.json: {found}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as unfinished:
        written = Path(unfinished) / "model"
        written.mkdir()
        tensors = _weights(file, getattr(torch, dtype))
        files.replace(written / "model.safetensors", lambda path: save_file(tensors, path, metadata={"format": "pt"}))
        tokenizer.save(str(written / "tokenizer.json"))
        for name, content in _descriptions(file, dtype).items():
            (written / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
        if folder.exists():
            folder.rmdir()
        shutil.move(written, folder)
    parameters = sum(tensor.numel() for tensor in tensors.values())
    name = file.facts.get("general.name", source.stem)
    return f"{folder}: {name}, {parameters / 1e6:,.0f} M parameters in {dtype}, {len(file.pieces):,} pieces"


# ---- the file


def read(path: Path) -> GgufFile:
    """Read a file without its tensors' content; InputError if it is cut off, or of other architecture or tokenizer."""
    reader = _reader(path)
    content = {name: field.contents() for name, field in reader.fields.items() if name != "GGUF.version"}
    architecture = content.get("general.architecture")
    if architecture != ARCHITECTURE:
        raise InputError(
            f"{path} holds a model of architecture {architecture!r}; {ARCHITECTURE!r} can be converted",
            "take the checkpoint in the layout of transformers instead",
        )
    if (kind := content.get("tokenizer.ggml.model")) != _SENTENCEPIECE:
        raise InputError(
            f"{path}: its tokenizer is {kind!r}, not one of SentencePiece ({_SENTENCEPIECE!r} in GGUF)",
            "every published Gemma 3 has one of SentencePiece; take another file",
        )
    lists = [content.pop(f"tokenizer.ggml.{name}", None) for name in ("tokens", "scores", "token_type")]
    if any(each is None for each in lists) or len({len(each) for each in lists}) != 1:
        raise InputError(f"{path}: its vocabulary lacks texts, scores or types of some pieces", "take another file")
    pieces, scores, types = lists
    facts = {name.removeprefix(f"{ARCHITECTURE}."): value for name, value in content.items()}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    # As SentencePiece spells them: converters to GGUF write the spaces of user-defined pieces plainly.
    spelled = [piece.replace(" ", _SPACE) if kind == USER else piece for piece, kind in zip(pieces, types, strict=True)]
    return GgufFile(path, facts, spelled, scores, types, tensors)


def _reader(path: Path) -> Any:
    import gguf

    try:
        with require_no_stream(path).open("rb") as stream:
            begin = stream.read(len(_MAGIC))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if begin != _MAGIC:
        raise InputError(f"{path} is no GGUF file: it begins with {begin!r}, not {_MAGIC!r}")
    try:
        reader = gguf.GGUFReader(path)
        for tensor in reader.tensors:
            tensor.data.shape  # noqa: B018  # the last one ends the file
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError, MemoryError) as error:
        raise InputError(
            f"{path} is cut off or damaged ({type(error).__name__}: {error})",
            "compare its size and sha256 with those of its source",
        ) from None
    return reader


# ---- the tokenizer


def sentencepiece(file: GgufFile) -> Any:
    """The file's own tokenizer, a ``SentencePieceProcessor``: byte pairs with byte fallback, and no normalisation."""
    from sentencepiece import SentencePieceProcessor
    from sentencepiece import sentencepiece_model_pb2 as proto

    unknown = file.special("unknown_token_id")
    model = proto.ModelProto()
    for place, (piece, score, kind) in enumerate(zip(file.pieces, file.scores, file.types, strict=True)):
        model.pieces.add(piece=piece, score=score, type=2 if place == unknown else kind)
    model.trainer_spec.model_type = proto.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.vocab_size = len(file.pieces)
    for name, key in _SPECIAL.items():
        setattr(model.trainer_spec, f"{name}_id", file.special(key))
        setattr(model.trainer_spec, f"{name}_piece", file.pieces[file.special(key)])
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = bool(file.facts.get("tokenizer.ggml.add_space_prefix", False))
    model.normalizer_spec.remove_extra_whitespaces = False
    return SentencePieceProcessor(model_proto=model.SerializeToString())


def fast(file: GgufFile) -> Any:
    """The same as a ``tokenizers.Tokenizer``, which puts ``<bos>`` before a text if the file says so."""
    from tokenizers import AddedToken, Tokenizer, decoders, normalizers
    from tokenizers.models import BPE
    from tokenizers.processors import TemplateProcessing

    ids = {piece: place for place, piece in enumerate(file.pieces)}
    usable = set(file.of_type(NORMAL))
    # Pairs of pieces that make a piece, the best piece first: SentencePiece merges by the score of what is made.
    merges = sorted(
        (-file.scores[ids[piece]], cut, piece)
        for piece in usable
        for cut in range(1, len(piece))
        if piece[:cut] in usable and piece[cut:] in usable
    )
    pairs = [(piece[:cut], piece[cut:]) for _, cut, piece in merges]
    unknown = file.pieces[file.special("unknown_token_id")]
    tokenizer = Tokenizer(BPE(ids, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prefix = [normalizers.Prepend(_SPACE)] if file.facts.get("tokenizer.ggml.add_space_prefix", False) else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", _SPACE)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(p, special=True, normalized=False) for p in file.of_type(CONTROL)])
    # Matched in the text after its spaces were replaced, as SentencePiece does.
    tokenizer.add_tokens([AddedToken(p, special=False, normalized=True) for p in file.of_type(USER)])
    if file.facts.get("tokenizer.ggml.add_bos_token", True):
        begin = file.special("bos_token_id")
        name = file.pieces[begin]
        tokenizer.post_processor = TemplateProcessing(single=f"{name} $A", special_tokens=[(name, begin)])
    return tokenizer


def texts(file: GgufFile, count: int) -> Iterator[str]:
    """Made-up texts to compare tokenizers on: words, pieces of the vocabulary, runs of spaces and lines, letters."""
    words = [piece.replace(_SPACE, " ") for piece in file.of_type(NORMAL, USER)]
    signs = ["\n", " ", "  ", "\t", "<", ">", "0", "7", "$", "é", "日", "😀", "\u0301", "\u200d", "\x00", "\x7f"]
    random = seeds.generator("texts to compare tokenizers on")
    for _ in range(count):
        length = int(random.integers(1, 24))
        kinds = random.random(length)
        yield "".join(
            words[int(random.integers(len(words)))]
            if kind < 0.7
            else signs[int(random.integers(len(signs)))]
            if kind < 0.9
            else chr(int(random.integers(0x20, 0xD800)))
            for kind in kinds
        )


def difference(reference: Any, tokenizer: Any, checked: Iterable[str]) -> str:
    """The first text that two tokenizers cut in different ways, with both results; empty if there is none.

    The reference is a SentencePieceProcessor, the other one of ``tokenizers``, compared without what it puts around a
    text. Texts are without names of control pieces, which only the latter reads as such.
    """
    for text in checked:
        wanted: Sequence[int] = reference.encode(text)
        if (found := tokenizer.encode(text, add_special_tokens=False).ids) != list(wanted):
            return f"{text!r} is {list(wanted)} by SentencePiece and {found} by tokenizer.json"
    return ""


# ---- weights and descriptions


def _weights(file: GgufFile, dtype: Any) -> dict[str, Any]:
    """All tensors, dequantised, by their names in transformers; InputError if one is missing, unknown or unreadable."""
    import gguf
    import torch

    wanted = {f"{name}.weight": f"model.{ours}.weight" for name, ours in _WHOLE.items()}
    for layer in range(int(file.fact("block_count"))):
        wanted |= {f"blk.{layer}.{name}.weight": f"model.layers.{layer}.{ours}.weight" for name, ours in _LAYER.items()}
    for what, names in (("lacks", wanted.keys() - file.tensors.keys()), ("also has", file.tensors.keys() - wanted)):
        if names:
            shown = ", ".join(sorted(names)[:3]) + (" …" if len(names) > 3 else "")
            raise InputError(
                f"{file.path} {what} tensors: {shown} ({len(names)})",
                "take a text model of Gemma 3, whole and unchanged",
            )
    converted = {}
    for name, tensor in file.tensors.items():
        try:
            array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            raise InputError(
                f"{file.path}: tensor {name} has type {tensor.tensor_type.name}, which the library gguf cannot read",
                "take a file of another quantisation, such as Q8_0 or Q4_K_M",
            ) from None
        # GGUF stores what norms multiply by, transformers what they multiply by less one.
        array = array - 1 if name.endswith("_norm.weight") else array
        converted[wanted[name]] = torch.tensor(array).to(dtype)
    return converted


def _descriptions(file: GgufFile, dtype: str) -> dict[str, dict[str, Any]]:
    """The content of the JSON files by their names; a model that was taught turns ends texts with them, too."""
    ends = [file.special("eos_token_id")]
    if (turn := file.facts.get("tokenizer.ggml.eot_token_id")) is not None:
        ends = list(dict.fromkeys([*ends, int(turn)]))
    ids = {
        "bos_token_id": file.special("bos_token_id"),
        "eos_token_id": ends[0] if len(ends) == 1 else ends,
        "pad_token_id": file.special("padding_token_id"),
    }
    spelled = {f"{name}_token": file.pieces[file.special(_SPECIAL[name])] for name in ("bos", "eos", "pad", "unk")}
    return {
        "config": _network(file, dtype) | ids,
        "generation_config": ids,
        "tokenizer_config": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            **spelled,
        },
    }


def _network(file: GgufFile, dtype: str) -> dict[str, Any]:
    """The network in ``config.json``."""
    layers, heads, width = (int(file.fact(key)) for key in ("block_count", "attention.head_count", "embedding_length"))
    head, eps = int(file.fact("attention.key_length")), float(file.fact("attention.layer_norm_rms_epsilon"))
    meant = float(f"{eps:.6g}")  # the file holds it in single precision, as 9.99999997e-07
    full: dict[str, Any] = {"rope_type": "default", "rope_theta": float(file.facts.get("rope.freq_base", 1e6))}
    if factor := file.facts.get("rope.scaling.factor"):
        full |= {"rope_type": "linear", "factor": float(factor)}
    kinds = ["full_attention" if (i + 1) % _EVERY == 0 else "sliding_attention" for i in range(layers)]
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "dtype": dtype,
        "vocab_size": len(file.pieces),
        "hidden_size": width,
        "intermediate_size": int(file.fact("feed_forward_length")),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": int(file.fact("attention.head_count_kv")),
        "head_dim": head,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": int(file.fact("context_length")),
        "rms_norm_eps": meant if math.isclose(meant, eps, rel_tol=1e-6) else eps,
        "query_pre_attn_scalar": width // heads if layers == _LAYERS_27B else head,
        "sliding_window": int(file.fact("attention.sliding_window")),
        "layer_types": kinds,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": _LOCAL_THETA},
            "full_attention": full,
        },
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "tie_word_embeddings": True,
        "use_cache": True,
    }
