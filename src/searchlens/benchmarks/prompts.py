"""Prompt templates by name: the text around a question, and what ends an answer.

A template ends answers by token, never by searching the text for words: a stop word such as "user" cuts every answer
that mentions one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from searchlens.errors import InputError


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt around a question.

    Attributes
    ----------
    text : str
        Contains ``{question}`` once; nothing else in it is special, and braces in a question stay as they are.
    stop_tokens : tuple of str
        Tokens, by their spelling in the vocabulary, that end an answer besides the checkpoint's own end of sequence.
        One that a vocabulary lacks does not apply to it.
    """

    text: str
    stop_tokens: tuple[str, ...] = ()


TEMPLATES: dict[str, Template] = {
    "zoo": Template("Problem: {question}\nSolution:\n"),
    "plain": Template("{question}\n"),
    # As the SimpleRL-Zoo evaluation words it, for Base and RL alike.
    "qwen-boxed": Template(
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n{question}\n"
        "Please reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
        "<|im_start|>assistant\n",
        stop_tokens=("<|im_end|>", "<|endoftext|>"),
    ),
}


def template(name: str) -> Template:
    """The template of a name.

    Raises
    ------
    InputError
        Unknown name; lists the known ones.
    """
    if name not in TEMPLATES:
        raise InputError(f"prompt template {name!r} is unknown; known: {', '.join(sorted(TEMPLATES))}")
    return TEMPLATES[name]


def render(name: str, question: str) -> str:
    """The prompt for a question's text."""
    return template(name).text.replace("{question}", question)


def describe(name: str) -> dict[str, Any]:
    """What of a template decides the samples, as plain JSON types; its name is not part of it."""
    chosen = asdict(template(name))
    return {**chosen, "stop_tokens": list(chosen["stop_tokens"])}
