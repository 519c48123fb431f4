"""The vocabulary of a GGUF file as a SentencePiece model, which is the reference, and as ``tokenizer.json``.

transformers' own reader of GGUF files (5.19) puts no ``<bos>`` before a text of Gemma, without which the model writes
nonsense; so both are made here, and compared text by text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from searchlens import seeds
from searchlens.engines._gguf import GgufFile

NORMAL, CONTROL, USER, BYTE = 1, 3, 4, 6
_SPACE = "▁"


def sentencepiece(file: GgufFile) -> Any:
    """The file's own tokenizer, a ``SentencePieceProcessor``: byte pairs with byte fallback, and no normalisation."""
    from sentencepiece import SentencePieceProcessor
    from sentencepiece import sentencepiece_model_pb2 as proto

    unknown = special(file, "unknown_token_id")
    model = proto.ModelProto()
    for place, (piece, score, kind) in enumerate(zip(file.pieces, file.scores, file.types, strict=True)):
        model.pieces.add(piece=piece, score=score, type=2 if place == unknown else kind)
    model.trainer_spec.model_type = proto.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.vocab_size = len(file.pieces)
    ids = {"unk": "unknown_token_id", "bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}
    for name, key in ids.items():
        setattr(model.trainer_spec, f"{name}_id", special(file, key))
        setattr(model.trainer_spec, f"{name}_piece", file.pieces[special(file, key)])
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = bool(file.facts.get("tokenizer.ggml.add_space_prefix", False))
    model.normalizer_spec.remove_extra_whitespaces = False
    return SentencePieceProcessor(model_proto=model.SerializeToString())


def special(file: GgufFile, key: str) -> int:
    """The id of a special token, by its key in the file."""
    return int(file.fact(f"tokenizer.ggml.{key}"))


def fast(file: GgufFile) -> Any:
    """The same as a ``tokenizers.Tokenizer``, which puts ``<bos>`` before a text if the file says so."""
    from tokenizers import AddedToken, Tokenizer, decoders, normalizers
    from tokenizers.models import BPE
    from tokenizers.processors import TemplateProcessing

    ids = {piece: place for place, piece in enumerate(file.pieces)}
    unknown = file.pieces[special(file, "unknown_token_id")]
    tokenizer = Tokenizer(BPE(ids, _merges(file, ids), unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prefix = [normalizers.Prepend(_SPACE)] if file.facts.get("tokenizer.ggml.add_space_prefix", False) else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", _SPACE)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    pairs = list(zip(file.pieces, file.types, strict=True))
    tokenizer.add_special_tokens(
        [AddedToken(p, special=True, normalized=False) for p, kind in pairs if kind == CONTROL]
    )
    # Matched in the text after its spaces were replaced, as SentencePiece does.
    tokenizer.add_tokens([AddedToken(p, special=False, normalized=True) for p, kind in pairs if kind == USER])
    if file.facts.get("tokenizer.ggml.add_bos_token", True):
        begin = special(file, "bos_token_id")
        name = file.pieces[begin]
        tokenizer.post_processor = TemplateProcessing(single=f"{name} $A", special_tokens=[(name, begin)])
    return tokenizer


def _merges(file: GgufFile, ids: dict[str, int]) -> list[tuple[str, str]]:
    """Pairs of pieces that make a piece, the best piece first: SentencePiece merges by the score of what is made."""
    usable = {p for p, kind in zip(file.pieces, file.types, strict=True) if kind == NORMAL}
    found = [
        (-file.scores[ids[piece]], cut, piece)
        for piece in usable
        for cut in range(1, len(piece))
        if piece[:cut] in usable and piece[cut:] in usable
    ]
    return [(piece[:cut], piece[cut:]) for _, cut, piece in sorted(found)]


def texts(file: GgufFile, count: int) -> Iterator[str]:
    """Made-up texts to compare tokenizers on: words, pieces of the vocabulary, runs of spaces and lines, letters."""
    words = [p.replace(_SPACE, " ") for p, kind in zip(file.pieces, file.types, strict=True) if kind in (NORMAL, USER)]
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
