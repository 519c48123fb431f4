"""Section ``templates``: prompt templates of a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from searchlens.config.limits import STRICT, Natural


@dataclass(frozen=True, kw_only=True)
class PromptFamily:
    """The prompts of a family of models (docs/templates.md). What a benchmark uses is part of the generation id."""

    __pydantic_config__ = STRICT

    text: str = "{question}"
    """The prompt around ``{question}``, which is there once; nothing else in it is special. With ``chat``: the user's
    turn."""
    math: str | None = None
    """The same on a benchmark without a ``wording``, with instructions for mathematics; null: ``text``."""
    system: str = ""
    """What stands before the turns, once, such as a system turn. With ``chat``: the text of the system turn; empty:
    none is sent, and the chat template may have its own."""
    math_system: str | None = None
    """The same on a benchmark without a ``wording``; null: ``system``."""
    chat: Mapping[str, str | bool | int | float] | None = None
    """Arguments of the tokenizer's own chat template, such as ``enable_thinking: false``, or ``{}``: it writes all
    turns, and the token that it puts behind an answer ends answers. null: ``text`` is the whole prompt."""
    stop_tokens: tuple[str, ...] = ()
    """Tokens, as spelled in the vocabulary, that end an answer in addition to the checkpoint's own. Those that a
    vocabulary does not have end nothing."""
    stop_texts: tuple[str, ...] = ()
    """Texts that end an answer which contains one of them, whatever its tokens; the text is no part of the answer."""
    check_every: Natural = 0
    """An answer is searched for stop texts after every so many tokens; 0: only when it has ended. It matters for models
    that seldom end by a token, whose tokens after a stop text are most of the tokens drawn."""
    recipe_stops: tuple[str, ...] = ()
    """Words at which the published recipe also ends an answer (``benchmarks.<name>.recipe_stops``)."""
    before_answer: str = ""
    """What stands between a worked example and its answer. Not with ``chat``, where examples are earlier turns."""
    after_answer: str = "\n\n"
    """What stands between the answer of a worked example and the next turn."""
