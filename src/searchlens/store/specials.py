"""Which tokens end and pad texts, as the files of a checkpoint say: for planner, prompts and both engines alike.

Texts end at every token that one of ``generation_config.json``, ``config.json`` and ``tokenizer_config.json`` calls an
end. A pad token is never drawn unless it ends texts, and neither are rows of the embedding without a token. Standard
library only, because ids of samples depend on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from searchlens.errors import InputError
from searchlens.store.checkpoints import mapping

FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
"""What is read here; only the first and the third must be there."""


@dataclass(frozen=True, slots=True)
class Specials:
    """Tokens of a checkpoint that are no text."""

    vocab_size: int
    """Rows of the embedding; token ids are 0 to ``vocab_size - 1``."""
    ends: tuple[int, ...]
    """Tokens that end a text, each once; none if no file names one."""
    pad: int | None
    """The tokenizer's, or else that of ``config.json``; None if there is no such token among the ids."""
    pad_text: str
    bos: int | None
    """The tokenizer's. Whether prompts begin with it says ``tokenizer.json`` alone."""
    absent: list[list[int]]
    """Ranges [start, stop) of ids below ``vocab_size`` that the tokenizer does not have."""
    usual: bool
    """Whether ``config.json`` alone, whose bytes are part of a fingerprint, says the same."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """Where the files disagree, in words."""

    @classmethod
    def read(cls, folder: Path) -> Specials:
        """Those of a checkpoint's folder; an InputError names a damaged file, or a tokenizer of another model."""
        config, generation, tokenizer, named = _contents(folder)
        ids = _vocabulary(folder / "tokenizer.json", tokenizer)
        size = config.get("vocab_size") or max(ids.values()) + 1
        _check_vocabulary(folder, tokenizer, ids, size)
        sources = {
            "generation_config.json": _ends(folder / "generation_config.json", generation, size),
            "config.json": _ends(folder / "config.json", config, size),
            "tokenizer_config.json": _known(ids, named.get("eos_token")),
        }
        texts = {token: text for text, token in ids.items()}
        ends = tuple(dict.fromkeys(token for token in chain(*sources.values()) if token in texts))
        declared = config.get("pad_token_id")
        declared = declared if type(declared) is int and declared in texts else None
        pad = next(iter(_known(ids, named.get("pad_token"))), declared)
        pad = pad if pad is None or pad < size else None
        absent = runs(set(range(size)) - set(texts))
        return cls(
            size,
            ends,
            pad,
            "" if pad is None else texts[pad],
            next(iter(_known(ids, named.get("bos_token"))), None),
            absent,
            usual=not absent and pad == declared and set(ends) == set(sources["config.json"]),
            notes=(*_disagreements(sources, texts), *_unused(tokenizer, named, ids, size)),
        )

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Specials:
        """Those of a lock file."""
        return cls(**{**content, "ends": tuple(content["ends"]), "notes": tuple(content["notes"])})

    def masked(self, stop_ids: Collection[int]) -> tuple[int, ...]:
        """Token ids that are never drawn where texts end at some tokens."""
        pads = () if self.pad is None or self.pad in stop_ids else (self.pad,)
        return tuple(sorted({*pads, *chain(*(range(*each) for each in self.absent))}))

    def decided(self, stop_tokens: Collection[str], own: Collection[str | int] | None) -> dict[str, Any]:
        """What of these tokens decides samples, beyond what the fingerprint says, as plain JSON; mostly nothing.

        ``stop_tokens`` are the template's; ``own``, of the configuration, are there instead of ``ends``.
        """
        stops = self.ends if own is None else tuple(own)
        is_masked = self.pad is not None and not {self.pad, self.pad_text} & {*stops, *stop_tokens}
        if own is None and self.usual and (is_masked or self.pad in (None, *self.ends)):
            return {}
        return {"stops": list(stops), "masked": runs(self.masked([] if is_masked or self.pad is None else [self.pad]))}


def runs(ids: Collection[int]) -> list[list[int]]:
    """Ids as ranges [start, stop), in order."""
    found: list[list[int]] = []
    for token in sorted(ids):
        if found and found[-1][1] == token:
            found[-1][1] += 1
        else:
            found.append([token, token + 1])
    return found


def _contents(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], dict[str, Any]]:
    """The configuration of the text model, those of generation and tokenizer, and special tokens by their roles."""
    read = {name: mapping(folder / name) if (folder / name).exists() else {} for name in FILES}
    config = read["config.json"]
    if isinstance(inner := config.get("text_config"), Mapping):  # of models for pictures and texts
        config = {**inner, **{key: value for key, value in config.items() if value is not None}}
    said = (read["special_tokens_map.json"], read["tokenizer_config.json"])
    named = {key: value for part in said for key, value in part.items() if value is not None}
    return config, read["generation_config.json"], read["tokenizer.json"], named


def _vocabulary(path: Path, tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """The id of every token."""
    try:
        vocab = tokenizer["model"]["vocab"]
        pieces = vocab if isinstance(vocab, Mapping) else {piece[0]: place for place, piece in enumerate(vocab)}
        ids = {**pieces, **{token["content"]: token["id"] for token in tokenizer.get("added_tokens") or ()}}
        if ids and all(type(token) is int and token >= 0 for token in ids.values()):
            return ids
    except (KeyError, TypeError, IndexError, AttributeError):
        pass
    raise InputError(f"{path} has no vocabulary of tokens and their ids", "download it again, or copy the whole folder")


def _check_vocabulary(folder: Path, tokenizer: Mapping[str, Any], ids: Mapping[str, int], size: object) -> None:
    """Refuse a tokenizer with ids that have no row in the embedding; added tokens that no prompt has do no harm."""
    if type(size) is not int or size < 1:
        raise InputError(f"{folder / 'config.json'}: vocab_size must be a number above 0, found {size!r}")
    added = {token["content"] for token in tokenizer.get("added_tokens") or ()}
    token, largest = max(((t, i) for t, i in ids.items() if t not in added), key=lambda item: item[1], default=("", 0))
    if largest >= size:
        raise InputError(
            f"checkpoint {folder}: tokenizer.json: token {token!r} has id {largest}, but config.json has vocab_size"
            f" {size}",
            "tokenizer and weights are of different models",
        )


def _ends(path: Path, content: Mapping[str, Any], size: int) -> tuple[int, ...]:
    """The ends that a configuration names; older files write -1 for none."""
    value = content.get("eos_token_id")
    values = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(token) is not int or token >= size for token in values):
        raise InputError(
            f"{path}: eos_token_id is {str(value)[:80]!r}; allowed: a token id from 0 to {size - 1}, or a list of them",
            "take the id from tokenizer.json; the vocabulary is that of vocab_size in config.json",
        )
    return tuple(token for token in values if token >= 0)


def _known(ids: Mapping[str, int], token: object) -> tuple[int, ...]:
    """The id of a special token, which is a text or a record with it; none if the vocabulary lacks it."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return (ids[text],) if isinstance(text, str) and text in ids else ()


def _disagreements(sources: Mapping[str, tuple[int, ...]], texts: Mapping[int, str]) -> Iterator[str]:
    said = {name: ends for name, ends in sources.items() if ends}
    first: tuple[int, ...] = next(iter(said.values()), ())
    if not set(chain(*said.values())) <= set(first):
        named = (f"{', '.join(_named(texts, end) for end in ends)} by {name}" for name, ends in said.items())
        yield f"texts end at {'; '.join(named)}: each of them ends a text, unless stop_tokens of the checkpoint is set"


def _named(texts: Mapping[int, str], token: int) -> str:
    return f"{texts.get(token, 'no token')} ({token})"


def _unused(tokenizer: Mapping[str, Any], named: Mapping[str, Any], ids: Mapping[str, int], size: int) -> Iterator[str]:
    """What the files name, but the model or ``tokenizer.json`` does not have."""
    if beyond := [token for token, place in ids.items() if place >= size]:
        yield f"tokenizer.json has {beyond[0]!r}, for which the embedding of {size} rows has none: no prompt may use it"
    if named.get("add_bos_token") is True and "SpecialToken" not in str(tokenizer.get("post_processor")):
        yield "tokenizer_config.json has add_bos_token, but tokenizer.json, which decides, puts no token before a text"
