"""What rollouts of training have in common: questions without ids, rewards, and what counts as right."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from searchlens.errors import InputError
from searchlens.readers.fields import golds_of, number_of
from searchlens.readers.logged import Document, Verdict

_COMPARED: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_RULE = re.compile(r"\s*([\w./-]+)\s*(==|>=|<=|>|<)\s*(true|false|-?[\d.]+(?:e-?\d+)?)\s*", re.IGNORECASE)


class Right:
    """A rule that makes a verdict of a number: ``acc == 1`` or ``score >= 0.5``; an ``InputError`` if it is none.

    A reward may hold terms for format or length, so that none counts as a verdict without a rule.
    """

    def __init__(self, rule: str | None) -> None:
        self._rule: tuple[str, Callable[[float, float], bool], float] | None = None
        if rule is None:
            return
        match = _RULE.fullmatch(rule)
        if match is None:
            raise InputError(
                f"right is {rule!r}; allowed: a name, one of {', '.join(_COMPARED)}, and a number",
                "for example 'acc == 1' or 'score >= 0.5'",
            )
        word = match[3].lower()
        try:
            limit = {"true": 1.0, "false": 0.0}[word] if word in ("true", "false") else float(word)
        except ValueError:
            raise InputError(f"right is {rule!r}: {word!r} is no number") from None
        self._rule = match[1], _COMPARED[match[2]], limit

    def verdicts(self, row: Mapping[str, Any], answer: Any, place: str) -> dict[str, Verdict]:
        """The verdict of the rule on a row, under the name of its number; none without a rule. Refuses a row without
        the number.
        """
        if self._rule is None:
            return {}
        name, compare, limit = self._rule
        if name not in row:
            raise InputError(f"{place}: no {name!r}, which the option right names; found: {', '.join(list(row)[:12])}")
        found = row[name]
        number = float(found) if isinstance(found, bool) else number_of(found)
        value = None if number is None else float(compare(number, limit))
        return {name: Verdict(value, None if answer is None else str(answer))}


class Prompts:
    """Questions known by their prompts alone: the document of each, and how many samples of it came so far."""

    def __init__(self) -> None:
        self._documents: dict[str, Document] = {}
        self._counts: dict[str, int] = {}

    def next(self, prompt: str, gold: Any) -> tuple[Document, int]:
        """The document of a prompt, and the number of its next sample."""
        number = self._counts.get(prompt, 0)
        self._counts[prompt] = number + 1
        if number == 0:
            self._documents[prompt] = Document(None, False, prompt, True, (), gold_of(gold))
        return self._documents[prompt], number


def gold_of(value: Any) -> tuple[str, ...]:
    """Right answers of a reward function's ground truth, which may be an object around them."""
    if isinstance(value, Mapping):
        value = next((value[key] for key in ("ground_truth", "target", "answer", "gold") if key in value), None)
    return golds_of(value)


def numbers_in(row: Mapping[str, Any], without: tuple[str, ...]) -> dict[str, float]:
    """All numbers of a row but some; true is 1 and false 0."""
    found = {}
    for key, value in row.items():
        if key in without:
            continue
        number = float(value) if isinstance(value, bool) else number_of(value)
        if number is not None:
            found[key] = number
    return found
