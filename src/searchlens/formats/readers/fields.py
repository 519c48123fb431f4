"""Names and shapes that logs of several tools share: fields of data sets, chats, sampling parameters, verdicts."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from searchlens.errors import InputError
from searchlens.formats.readers.logged import Document, Finish, Notes, Verdict

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


_IDS = ("unique_id", "id", "question_id", "problem_id", "task_id", "uid", "_id", "ID", "Record ID")
_QUESTIONS = ("problem", "question", "query", "prompt", "Problem", "Question", "input")
_GOLDS = ("expected_answer", "final_answer", "answer", "gold", "gt", "target", "label", "Answer", "Correct Answer")
_CHOICES = ("choices", "options")

KEYS = ("id_key", "question_key", "gold_key")
"""Wishes that name the fields of a data set, where the usual names do not fit."""

_OURS = (
    *("temperature", "top_p", "top_k", "min_p", "typical_p", "max_tokens", "seed", "n", "stop", "do_sample"),
    *("repetition_penalty", "frequency_penalty", "presence_penalty", "num_beams"),
)
_PARAMETERS = {
    **{name: name for name in _OURS},
    **dict.fromkeys(("max_gen_toks", "max_new_tokens", "max_completion_tokens", "tokens_to_generate"), "max_tokens"),
    **dict.fromkeys(("until", "stop_sequences", "stop_seqs", "stop_phrases"), "stop"),
    **dict.fromkeys(("num_choices", "num_return_sequences", "num_generations"), "n"),
    **dict.fromkeys(("random_seed",), "seed"),
}
"""Name in some tool to the name here."""

_NOISE = 1e-4
"""How far above 0 a log-probability may be: rounding of the engine."""


# ---- rows of data sets


def document_of(row: Mapping[str, Any], wishes: Mapping[str, str], index: int | None = None) -> Document:
    """The question that a row of a data set holds, by the names of fields that data sets usually have; the wishes
    ``id_key``, ``question_key`` and ``gold_key`` name others. ``index`` is the id if the row has none of its own.
    """
    own_id = _first(row, wishes.get("id_key"), _IDS, (str, int))
    prompt = _first(row, wishes.get("question_key"), _QUESTIONS, (str,))
    choices = choices_of(_first(row, None, _CHOICES, (list, dict)))
    gold = _first(row, wishes.get("gold_key"), _GOLDS, (str, int, float, list))
    is_index = own_id is None and index is not None
    return Document(index if is_index else own_id, is_index, prompt, False, choices, golds_of(gold, choices))


def _first(row: Mapping[str, Any], wish: str | None, names: Iterable[str], kinds: tuple[type, ...]) -> Any:
    if wish:
        value = _at(row, wish)
        return value if isinstance(value, kinds) and not isinstance(value, bool) else None
    for name in names:
        value = row.get(name)
        if value is not None and value != "" and isinstance(value, kinds) and value is not True and value is not False:
            return value
    return None


def _at(row: Mapping[str, Any], name: str) -> Any:
    """The value of a field; ``a.b`` is field b of field a, where no field has the whole name."""
    value: Any = row
    for part in [name] if name in row else name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def choices_of(value: Any) -> tuple[str, ...]:
    """Texts of the choices: of a list of them, or of an object with a list of texts."""
    texts = value.get("text") if isinstance(value, Mapping) else value
    return tuple(texts) if isinstance(texts, list) and all(isinstance(text, str) for text in texts) else ()


def golds_of(value: Any, choices: Sequence[str] = ()) -> tuple[str, ...]:
    """Right answers as texts; a whole number among choices is the position of the right one, from 0."""
    if isinstance(value, list):
        return tuple(gold for item in value for gold in golds_of(item, choices))
    if value is None or isinstance(value, bool | Mapping) or value == "":
        return ()
    if isinstance(value, int) and choices:
        return (chr(ord("A") + value),) if 0 <= value < len(choices) else ()
    return (str(int(value)) if isinstance(value, float) and value.is_integer() else str(value),)


# ---- chats


def parts_of(content: Any) -> tuple[str, str]:
    """Reasoning and text of a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return "", content
    if not isinstance(content, list):
        return "", ""
    parts = [part for part in content if isinstance(part, Mapping)]
    reasoning = [str(part.get("reasoning") or part.get("summary") or "") for part in parts if _is(part, "reasoning")]
    texts = [str(part.get("text") or "") for part in parts if _is(part, "text", "output_text", "input_text")]
    return "".join(reasoning), "".join(texts)


def _is(part: Mapping[str, Any], *kinds: str) -> bool:
    return part.get("type") in kinds


def joined(reasoning: str | None, text: str | None) -> str:
    """What the model wrote: reasoning that was kept apart, as it was written, before the text."""
    return f"{reasoning}\n\n{text or ''}" if reasoning else text or ""


def last_asked(messages: Any) -> str | None:
    """Text of the last message that the user sent; a prompt that is no chat is returned as it is."""
    if isinstance(messages, str):
        return messages
    if not isinstance(messages, list):
        return None
    asked = [message for message in messages if isinstance(message, Mapping) and message.get("role") == "user"]
    return parts_of(asked[-1].get("content"))[1] if asked else None


# ---- numbers


def parameters(*found: Any) -> dict[str, Any]:
    """Sampling parameters under our names; of several mappings, later ones count. What is null is absent.

    ``do_sample: false`` is greedy, whatever the temperature says, so it becomes temperature 0.
    """
    asked: dict[str, Any] = {}
    for mapping in found:
        if isinstance(mapping, Mapping):
            asked |= {_PARAMETERS[k]: v for k, v in mapping.items() if k in _PARAMETERS and v is not None}
    if asked.get("do_sample") is False:
        asked["temperature"] = 0.0
    return asked


def value_of(value: Any) -> float | None:
    """A verdict as a number in [0, 1]; None if it is none, among them NaN and rewards outside of [0, 1]."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        return float(value) if 0 <= value <= 1 else None
    return None


def number_of(value: Any) -> float | None:
    """A finite number, or None."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


Verdicts = dict[str, Verdict]
Numbers = dict[str, float]


def judged(metrics: Mapping[str, Any], answer: str | None = None) -> tuple[Verdicts, Numbers]:
    """Metrics where they belong: among the verdicts if they lie in [0, 1] or are missing, else among the numbers."""
    found = {name: number_of(value) for name, value in metrics.items()}
    numbers = {name: number for name, number in found.items() if number is not None and not 0 <= number <= 1}
    return {name: Verdict(value_of(metrics[name]), answer) for name in found if name not in numbers}, numbers


def of_texts(count: int, verdicts: Verdicts, numbers: Numbers) -> dict[str, Any]:
    """What was said of so many texts together, as fields of a sample: of several, it is no verdict on one of them."""
    return {"verdicts": verdicts, "numbers": numbers} if count == 1 else {"document_verdicts": verdicts}


def logprobs_of(values: Any) -> tuple[float, ...] | None:
    """Log-probabilities, rounding errors above 0 set to 0; None if there are none, or one of them is no number."""
    if not isinstance(values, list) or not values:
        return None
    try:
        largest = max(values)
    except TypeError:
        return None
    if not largest <= _NOISE:  # also NaN
        return None
    return tuple(values) if largest <= 0 else tuple(min(value, 0.0) for value in values)


def count_of(value: Any) -> int | None:
    """A number of tokens, also if it was written as 5.0; None if it is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def end_of(word: Any, notes: Notes, place: str) -> Finish:
    """What a tool's word for the end of a text means; a word that is not known is ``unknown``, and noted."""
    finish = finish_of(word) if word is None or isinstance(word, str) else None
    if finish is None:
        notes.add(f"{str(word)[:40]!r} is no known end of a text; the end counts as unknown", place)
        return "unknown"
    return finish


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
