"""Questions as token ids and back, with the checkpoint's own tokenizer and template."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from searchlens import seeds
from searchlens.benchmarks import Question
from searchlens.benchmarks.examples import Example
from searchlens.benchmarks.prompts import Template
from searchlens.errors import InputError
from searchlens.policies import Policy
from searchlens.search.evaluators import SelfEvaluation, evaluator
from searchlens.search.stops import End, end
from searchlens.store.files import read_json


class Prompter:
    """Tokenizer and template of a checkpoint.

    Parameters
    ----------
    folder : Path
        Of the checkpoint.
    template : Template
        The text around a question, and the tokens and texts that end an answer.

    Attributes
    ----------
    stop_ids : tuple of int
        Tokens that end an answer: the checkpoint's, then the template's.
    drawable : int
        How many token ids can be drawn.

    Raises
    ------
    InputError
        The checkpoint has no end-of-sequence token, or its tokenizer has ids that its model does not.
    """

    def __init__(self, folder: Path, template: Template) -> None:
        self.template = template
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        ends = _stop_ids(folder)
        self.drawable = _check_vocabulary(folder, self.tokenizer, ends)
        ids = (self.tokenizer.token_to_id(token) for token in template.stop_tokens)
        self.stop_ids = tuple(dict.fromkeys([*ends, *(token for token in ids if token is not None)]))

    def encode(self, question: Question) -> tuple[int, ...]:
        """Return the token ids of the rendered prompt, after the special tokens that the tokenizer puts before a text.

        A special token that begins the text already, such as ``<bos>`` in a template, is there once.
        """
        text = self.template.render(question.text, self.examples(question))
        tokens = self.tokenizer.encode(text).ids
        begin = len(tokens) - len(self.spell(text))  # no token is put after a text by models that go on with it
        repeated = begin > 0 and tokens[:begin] == tokens[begin : 2 * begin]
        return tuple(tokens[begin:] if repeated else tokens)

    def examples(self, question: Question) -> tuple[Example, ...]:
        """Return the worked examples that the prompt of a question shows, in their order."""
        worked = self.template.examples
        if worked is None:
            return ()
        if worked.seed is None:
            return worked.known[: worked.count]
        usable = worked.usable(question.text)
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
        texts = self.decode([[token] for token in range(self.tokenizer.get_vocab_size())])
        return tuple(token for token, text in enumerate(texts) if delimiter in text)

    def evaluator_tokens(self, where: str, policy: Policy) -> int:
        """Return how many tokens the policy's evaluator has the model read or draw after a candidate.

        Parameters
        ----------
        where : str
            Begin of error messages, such as ``policy 'x'``.
        policy : Policy

        Raises
        ------
        InputError
            The policy needs more different tokens than can be drawn, or one token for a text of several.
        """
        _check_limits(where, policy, self.stop_ids, self.drawable)
        policy_evaluator = evaluator(policy.evaluator)
        if not isinstance(policy_evaluator, SelfEvaluation):
            return 0
        question, *_ = policy_evaluator.spelled(self.spell, f"{where}: evaluator self_evaluation")
        return len(question) + 1


def _stop_ids(folder: Path) -> tuple[int, ...]:
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        eos = read_json(path).get("eos_token_id") if path.exists() else None
        if eos is not None:
            return tuple(eos) if isinstance(eos, list) else (eos,)
    raise InputError(
        f"checkpoint {folder} has no end-of-sequence token", "set eos_token_id in its generation_config.json"
    )


def _check_vocabulary(folder: Path, tokenizer: Tokenizer, ends: Sequence[int]) -> int:
    """Return how many token ids can be drawn: all but a pad token that does not end a text.

    Refuse a tokenizer with ids that have no row in the embedding: with them, engines crash or compute nonsense.
    """
    token, largest = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    config = read_json(folder / "config.json")
    size, pad = config.get("vocab_size"), config.get("pad_token_id")
    for source, token_id in ((f"tokenizer.json: token {token!r}", largest), ("eos_token_id", max(ends))):
        if size is not None and token_id >= size:
            raise InputError(
                f"checkpoint {folder}: {source} has id {token_id}, but config.json has vocab_size {size}",
                "tokenizer and weights are of different models, or the embedding was not resized for added tokens",
            )
    return int(size or largest + 1) - (pad is not None and pad not in ends)


def _check_limits(where: str, policy: Policy, stop_ids: Sequence[int], drawable: int) -> None:
    """Refuse a policy that needs more different tokens at one position than the model can draw."""
    for role, component in (("controller", policy.controller), ("evaluator", policy.evaluator)):
        for key, most in component.vocabulary_limits(policy, drawable, stop_ids).items():
            if (value := getattr(component, key)) > most:
                raise InputError(
                    f"{where}: {role} {component.name}: {key} is {value}; allowed: at most {most}, because {drawable}"
                    " tokens can be drawn"
                )
