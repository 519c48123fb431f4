"""Sequences of regular expressions that bring an answer into a normal form."""

from __future__ import annotations

import re
from collections.abc import Callable

Rule = tuple[str, str | Callable[[re.Match[str]], str]]


class Rewriting:
    """Substitutions, applied one after another: (pattern, replacement) as ``re.sub`` takes them."""

    def __init__(self, *rules: Rule) -> None:
        self._rules = [(re.compile(pattern), replacement) for pattern, replacement in rules]

    def __call__(self, text: str) -> str:
        """The text after all substitutions."""
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        return text
