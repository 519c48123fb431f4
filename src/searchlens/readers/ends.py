"""The words in which servers and harnesses say how a text ended."""

from __future__ import annotations

from collections.abc import Mapping

from searchlens.readers.logged import Finish

ENDS: Mapping[str, Finish] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn", "stop_sequence", "stop_str", "complete"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length", "max_length", "token_limit"), "length"),
    **dict.fromkeys(("content_filter", "tool_calls", "function_call", "abort", "error", "failed"), "failed"),
    **dict.fromkeys(("unknown", "", "none", "null"), "unknown"),
}
"""A word, in small letters, to what it means."""


def finish_of(word: str | None) -> Finish | None:
    """What a word means; ``unknown`` for no word at all, and None for a word that is not known.

    >>> finish_of("max_tokens"), finish_of(None), finish_of("sideways")
    ('length', 'unknown', None)
    """
    return "unknown" if word is None else ENDS.get(word.strip().lower())
