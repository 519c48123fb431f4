"""Which tokens end and pad texts, as the files of a checkpoint say: for planner, prompts and both engines alike.

Texts end at every token that one of ``generation_config.json``, ``config.json`` and ``tokenizer_config.json`` calls an
end. A pad token is never drawn unless it ends texts, and neither are rows of the embedding without a token. Standard
library only, because ids of samples depend on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from searchlens.errors import InputError
from searchlens.store.checkpoints import mapping

_MOST = 10_000_000
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
        tokens = _Tokens.read(folder / "tokenizer.json", tokenizer)
        size = config.get("vocab_size") or max(tokens.present) + 1
        _check_vocabulary(folder, tokens, size)
        texts = {token: text for text, token in tokens.ids.items() if token < size}
        said = {
            "generation_config.json": _ends(folder / "generation_config.json", generation, size),
            "config.json": _ends(folder / "config.json", config, size),
            "tokenizer_config.json": tokens.named(named.get("eos_token")),
        }
        sources = {name: [token for token in ends if token in texts] for name, ends in said.items()}
        ends = tuple(dict.fromkeys(chain(*sources.values())))
        declared = config.get("pad_token_id")
        declared = declared if type(declared) is int and declared in texts else None
        pad = next(iter(tokens.named(named.get("pad_token"))), declared)
        notes = (*_disagreements(sources, texts), *_unused(tokenizer, named, tokens, size))
        if pad is not None and texts.get(pad) not in tokens.special:
            if pad in texts and pad not in ends:
                notes += (f"the pad token {texts[pad]} ({pad}) is an ordinary token, which texts may have",)
            pad = None
        absent = runs(set(range(size)) - tokens.present)
        drawn = [None if token in ends else token for token in (pad, declared)]
        usual = not absent and drawn[0] == drawn[1] and set(ends) == set(sources["config.json"])
        bos = next(iter(tokens.named(named.get("bos_token"))), None)
        return cls(size, ends, pad, "" if pad is None else texts[pad], bos, absent, usual, notes)

    def masked(self, stop_ids: Collection[int]) -> tuple[int, ...]:
        """Token ids that are never drawn where texts end at some tokens."""
        pads = () if self.pad is None or self.pad in stop_ids else (self.pad,)
        return tuple(sorted({*pads, *chain(*(range(*each) for each in self.absent))}))

    def decided(self, stop_tokens: Collection[str], own: Collection[str | int] | None) -> dict[str, Any]:
        """What of these tokens decides samples, beyond what the fingerprint says, as plain JSON; mostly nothing.

        ``stop_tokens`` are the template's; ``own``, of the configuration, are there instead of ``ends``.
        """
        own = None if own is not None and set(own) == set(self.ends) else own
        stops = self.ends if own is None else tuple(own)
        is_masked = self.pad is not None and not {self.pad, self.pad_text} & {*stops, *stop_tokens}
        if own is None and self.usual and (is_masked or self.pad in (None, *self.ends)):
            return {}
        return {
            "stops": sorted(stops, key=str),
            "masked": runs(self.masked([] if is_masked or self.pad is None else [self.pad])),
        }


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


class _Tokens(NamedTuple):
    """The vocabulary of a tokenizer: ids by text, those that there are, and texts that are special."""

    ids: Mapping[str, int]
    present: frozenset[int]
    special: frozenset[str]
    added: frozenset[str]

    @classmethod
    def read(cls, path: Path, tokenizer: Mapping[str, Any]) -> _Tokens:
        try:
            vocab, added = tokenizer["model"]["vocab"], tokenizer.get("added_tokens") or ()
            pieces = vocab if isinstance(vocab, Mapping) else {piece[0]: place for place, piece in enumerate(vocab)}
            ids = {**{token["content"]: token["id"] for token in added}, **pieces}  # of two, the vocabulary's is used
            places = range(0 if isinstance(vocab, Mapping) else len(vocab))
            special = frozenset(token["content"] for token in added if token.get("special"))
            if ids and all(type(token) is int and token >= 0 for token in ids.values()):
                names = frozenset(token["content"] for token in added)
                return cls(ids, frozenset((*ids.values(), *places)), special, names)
        except (KeyError, TypeError, IndexError, AttributeError):
            pass
        raise InputError(
            f"{path} has no vocabulary of tokens and their ids", "download it again, or copy the whole folder"
        )

    def named(self, token: object) -> tuple[int, ...]:
        """The id of a token that is named by its text, or by a record with it; none if the vocabulary lacks it."""
        text = token.get("content") if isinstance(token, Mapping) else token
        return (self.ids[text],) if isinstance(text, str) and text in self.ids else ()


def _check_vocabulary(folder: Path, tokens: _Tokens, size: object) -> None:
    """Refuse a tokenizer with ids that have no row in the embedding; added tokens that no prompt has do no harm."""
    if type(size) is not int or not 0 < size <= _MOST:
        raise InputError(f"{folder / 'config.json'}: vocab_size must be a number from 1 to {_MOST}, found {size!r:.80}")
    wrong = [(token, text) for text, token in tokens.ids.items() if token >= size and text not in tokens.added]
    if wrong:
        token, text = max(wrong)
        raise InputError(
            f"checkpoint {folder}: tokenizer.json: token {text!r} has id {token}, but config.json has vocab_size"
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


def _disagreements(sources: Mapping[str, Sequence[int]], texts: Mapping[int, str]) -> Iterator[str]:
    said = {name: ends for name, ends in sources.items() if ends}
    first: Sequence[int] = next(iter(said.values()), ())
    if not set(chain(*said.values())) <= set(first):
        named = (f"{', '.join(f'{texts[end]} ({end})' for end in ends)} by {name}" for name, ends in said.items())
        yield f"texts end at {'; '.join(named)}: each of them ends a text, unless stop_tokens of the checkpoint is set"


def _unused(tokenizer: Mapping[str, Any], named: Mapping[str, Any], tokens: _Tokens, size: int) -> Iterator[str]:
    """What the files name, but the model or ``tokenizer.json`` does not have."""
    if beyond := [token for token, place in tokens.ids.items() if place >= size]:
        yield f"tokenizer.json has {beyond[0]!r}, for which the embedding of {size} rows has none: no prompt may use it"
    if named.get("add_bos_token") is True and "SpecialToken" not in str(tokenizer.get("post_processor")):
        yield "tokenizer_config.json has add_bos_token, but tokenizer.json, which decides, puts no token before a text"
