"""Questions as token ids and back, with the checkpoint's own tokenizer and template."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchlens import seeds
from searchlens.benchmarks import Question
from searchlens.benchmarks.prompts import Example, Template
from searchlens.benchmarks.questions import plain
from searchlens.errors import InputError
from searchlens.search.task import End, end
from searchlens.store.chat import ChatTemplate, Conversation
from searchlens.store.files import digest, file_sha256
from searchlens.store.specials import Specials, runs

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as it is sent: its tokens in order, what each spells, and the positions of special ones."""

    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    special: tuple[int, ...]

    def __str__(self) -> str:
        """The text, in which special tokens are marked."""
        marked = (f"⟦{piece}⟧" if i in self.special else piece for i, piece in enumerate(self.pieces))
        return "".join(marked)


class Prompter:
    """Tokenizer and template of a checkpoint: ``stop_ids`` end an answer, and ``masked`` ids are never drawn.

    ``stop_tokens``, by spelling or id, replace those that the folder's files name. Samples have their id by
    ``specials``, by default those of the folder. Raises InputError if a file is damaged, the tokenizer is of another
    model or lacks a stop token, or no token ends a text.
    """

    def __init__(
        self,
        folder: Path,
        template: Template,
        stop_tokens: Sequence[str | int] | None = None,
        specials: Specials | None = None,
    ) -> None:
        self.folder, self.template = folder, template
        path = folder / "tokenizer.json"
        self.tokenizer = _tokenizer(path, path.stat().st_mtime_ns)
        self.specials = specials or Specials.read(folder)
        size, pad = self.specials.vocab_size, self.specials.pad
        absent = runs([token for token in range(size) if self.tokenizer.id_to_token(token) is None])
        if absent != self.specials.absent or (
            pad is not None and self.tokenizer.id_to_token(pad) != self.specials.pad_text
        ):
            raise InputError(
                f"{path}: ids of added_tokens are not those that tokenizers gives them", "save the tokenizer again"
            )
        ends = self.specials.ends if stop_tokens is None else [self._stop_id(token) for token in stop_tokens]
        if not ends:
            raise InputError(
                f"checkpoint {folder} has no end-of-sequence token",
                "set eos_token_id in its generation_config.json, or stop_tokens of the checkpoint",
            )
        ids = (self.tokenizer.token_to_id(token) for token in template.stop_tokens)
        drawable = (token for token in ids if token is not None and token < self.specials.vocab_size)
        self.stop_ids = tuple(dict.fromkeys([*ends, *drawable, *self._turn_end()]))
        self.masked = self.specials.masked(self.stop_ids)
        self.drawable = self.specials.vocab_size - len(self.masked)

    def _stop_id(self, token: str | int) -> int:
        found = self.tokenizer.token_to_id(token) if isinstance(token, str) else token
        if found is None or found >= self.specials.vocab_size or self.tokenizer.id_to_token(found) is None:
            raise InputError(
                f"stop_tokens: {token!r} is no token that the model of {self.folder} can draw",
                "spell it as tokenizer.json does, or give its id",
            )
        return int(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the files disagree about, and marks of the template that are no tokens, in words."""
        marks = dict.fromkeys(_MARK.findall(self.template.text))
        unknown = [mark for mark in marks if self.tokenizer.token_to_id(mark) is None]
        spelled = (
            f"{mark} of the template is no token of the vocabulary, but {len(self.spell(mark))} tokens"
            for mark in unknown
        )
        ends = [token for token in self.template.stop_tokens if self.tokenizer.token_to_id(token) is None]
        lost = (
            f"{token}, a stop token of the template, is no token of the vocabulary, and ends nothing"
            for token in ends
            if token not in self.template.stop_texts
        )
        asked, found = self.template.chat, ChatTemplate.read(self.folder)
        unused = (
            f"the chat template does not name {name}, an argument of `chat`, which so changes no prompt"
            for name in (asked.arguments if asked and found else ())
            if found and not re.search(rf"\b{re.escape(name)}\b", found.source)
        )
        return (*self.specials.notes, *spelled, *lost, *unused)

    @property
    def record(self) -> dict[str, Any]:
        """Stop ids, masked ids, the prompt of no question, and a hash of all that makes prompts, as plain JSON."""
        (text,) = self._texts([("?" if self.template.chat else "", ())])  # a chat template may refuse an empty one
        empty = self.tokenizer.encode(text, add_special_tokens=self.template.chat is None).ids
        made = digest([self.template.description, file_sha256(self.folder / "tokenizer.json")], 12)
        return {"stops": sorted(self.stop_ids), "masked": runs(self.masked), "prompt": empty, "made": made}

    def texts(self, questions: Sequence[Question]) -> list[str]:
        """Return prompts as texts; InputError if a template fails, leaves a question out, or has one in its own."""
        around = plain(self.template.opening + self.template.text)
        for question in questions:
            if len(asked := plain(question.text)) >= _TELLING and asked in around:
                raise InputError(
                    f"the prompt template contains question {question.id} of the benchmark",
                    "take examples from other questions, such as a training split",
                )
        found = self._texts([(question.text, self.examples(question)) for question in questions])
        for question, text in zip(questions, found, strict=True):
            if question.text.strip() not in text:
                raise InputError(
                    f"{self.folder}: its chat template leaves out question {question.id}, or changes its text",
                    "write the turns as a template of your own (docs/templates.md)",
                )
        return found

    def _texts(self, asked: Sequence[tuple[str, Sequence[Example]]]) -> list[str]:
        if self.template.chat is None:
            return [self.template.render(*each) for each in asked]
        return self._render([self.template.messages(*each) for each in asked])

    def _render(self, conversations: Sequence[Conversation]) -> list[str]:
        template = ChatTemplate.read(self.folder)
        if template is None or self.template.chat is None or template.digest != self.template.chat.digest:
            raise InputError(f"{self.folder}: its chat template has changed since the study was planned", "start again")
        return template.render(self.folder, conversations, self.template.chat.arguments)

    def _turn_end(self) -> tuple[int, ...]:
        """The added token that the chat template puts behind an answer, which may be none of the checkpoint's ends."""
        if self.template.chat is None:
            return ()
        turns = [*self.template.messages("?"), {"role": "assistant", "content": _ANSWER}]
        try:
            (text,) = self._render([turns])
        except InputError:  # it may take no such turn; what else is wrong, the prompts say
            return ()
        added = self.tokenizer.get_added_tokens_decoder()
        _, answer, rest = text.rpartition(_ANSWER)  # a template may leave the answer out, too
        first = self.spell(rest.lstrip())[:1] if answer else ()
        return tuple(token for token in first if token in added and token < self.specials.vocab_size)

    def prompts(self, questions: Sequence[Question]) -> list[tuple[int, ...]]:
        """Return the token ids of prompts, after the special tokens that the tokenizer puts before a text.

        A special token that begins the text already, such as ``<bos>`` in a template, is there once. A chat template
        writes all special tokens itself. Raises InputError if the tokenizer puts a token after a text, the prompt
        begins with BOS twice, or a token has no embedding.
        """
        return [self._encode(text) for text in self.texts(questions)]

    def shown(self, questions: Sequence[Question]) -> list[Prompt]:
        """Return the prompts of questions for people to look at; ``prompts`` says what is refused."""
        return list(map(self._shown, self.texts(questions)))

    def _shown(self, text: str) -> Prompt:
        ids = self._encode(text)
        encoding = self.tokenizer.encode(text, add_special_tokens=self.template.chat is None)
        added, pieces, end = self.tokenizer.get_added_tokens_decoder(), [], 0
        for token, (_, stop) in zip(ids, encoding.offsets[len(encoding.ids) - len(ids) :], strict=True):
            # a token that the tokenizer put there has no place in the text, and a letter of several tokens has one
            name = str(self.tokenizer.id_to_token(token)) if token in added else ""
            pieces.append(text[end:stop] or name)
            end = max(end, stop)
        return Prompt(ids, tuple(pieces), tuple(i for i, token in enumerate(ids) if token in added))

    def _encode(self, text: str) -> tuple[int, ...]:
        spelled = self.spell(text)
        tokens = list(spelled) if self.template.chat else self.tokenizer.encode(text).ids
        begin = len(tokens) - len(spelled)
        if tuple(tokens[begin:]) != spelled:
            raise self._flaw(f"puts {self.names(tokens[-1:])} after a text, where a model would go on", _NO_POST)
        if begin > 0 and tokens[:begin] == tokens[begin : 2 * begin]:
            tokens = tokens[begin:]
        if self.specials.bos is not None and tokens[:2] == [self.specials.bos] * 2:
            raise self._flaw(f"begins a prompt with {self.names(tokens[:2])}", "take one from the template")
        if max(tokens, default=0) >= self.specials.vocab_size:
            raise self._flaw(
                f"gives a prompt {self.names([max(tokens)])}, which has no row in the model's embedding",
                "the embedding was not resized for added tokens: choose a template without them",
            )
        return tuple(tokens)

    def _flaw(self, what: str, hint: str) -> InputError:
        return InputError(f"{self.folder / 'tokenizer.json'} {what}", hint)

    def names(self, tokens: Sequence[int]) -> str:
        """Tokens by spelling and id."""
        return ", ".join(f"{self.tokenizer.id_to_token(token)} ({token})" for token in tokens)

    def described(self, prompt: Sequence[int]) -> str:
        """One line: stop tokens by name, how many are masked, and the tokens of a prompt."""
        shown = self.names(self.masked[:3]) if len(self.masked) < 4 else f"{len(self.masked)} ids"
        names = " ".join(str(self.tokenizer.id_to_token(token)) for token in prompt)
        return f"stop tokens {self.names(self.stop_ids)}; never drawn: {shown or 'none'}; first prompt: {names}"

    def examples(self, question: Question) -> tuple[Example, ...]:
        """Return the worked examples that the prompt of a question shows, in their order."""
        worked = self.template.examples
        if worked is None:
            return ()
        if worked.seed is None:
            return worked.known[: worked.count]
        usable = [each for each in worked.known if plain(each.question) != plain(question.text)]
        chosen = seeds.generator("worked examples", worked.seed, question.id).permutation(len(usable))[: worked.count]
        return tuple(usable[place] for place in chosen)

    def spell(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a part of a text, without special tokens."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Return texts without special tokens."""
        return self.tokenizer.decode_batch([list(row) for row in tokens], skip_special_tokens=True)

    def text(self, tokens: Sequence[int]) -> str:
        """Return one text without special tokens."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True)

    def end(self, tokens: Sequence[int], text: str) -> End | None:
        """Return where a stop text of the template ends a text, None if the text contains none."""
        return end(tokens, text, self.template.stop_texts, self.text)

    def tokens_with(self, delimiter: str) -> tuple[int, ...]:
        """Return the token ids whose text contains a delimiter."""
        texts = self.decode([[token] for token in range(self.specials.vocab_size)])
        return tuple(token for token, text in enumerate(texts) if delimiter in text)


_TELLING = 20
"""Letters and digits of a question that no template has by chance."""
_ANSWER = "4217"
"""An answer by which the end of its turn is found."""
_MARK = re.compile(r"<\|[^<>|]+\|>")
"""A mark of a turn or an end, as families of models spell them."""
_NO_POST = "take that token out of its post_processor, as by add_eos_token: false, and save the tokenizer again"


@lru_cache(2)  # of one checkpoint there may be prompts of many benchmarks
def _tokenizer(path: Path, _changed: int) -> Tokenizer:
    """A tokenizer without the settings of its training: prompts are neither cut nor padded."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # a bare one
        raise InputError(f"{path} is no tokenizer: {error}", "save the tokenizer again, or download it again") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
