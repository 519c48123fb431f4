"""Names and shapes that logs of several tools share: files, fields of data sets, chats, parameters, verdicts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from searchlens.errors import InputError
from searchlens.formats.readers.lines import first_object
from searchlens.formats.readers.logged import Document, Finish, LoggedSample, Notes, Verdict

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

NOISE = 1e-4
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
    """The first value of these kinds that is not empty, or that of a wish: ``a.b`` is field b of field a, where no
    field has the whole name.
    """
    if wish:
        value: Any = row
        for part in [wish] if wish in row else wish.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value if isinstance(value, kinds) and not isinstance(value, bool) else None
    found = (row.get(name) for name in names)
    return next((v for v in found if v != "" and isinstance(v, kinds) and not isinstance(v, bool)), None)


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
    thought = [part.get("reasoning") or part.get("summary") for part in parts if part.get("type") == "reasoning"]
    texts = [part.get("text") for part in parts if part.get("type") in ("text", "output_text", "input_text")]
    return "".join(str(part or "") for part in thought), "".join(str(text or "") for text in texts)


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
    return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else None


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


def token_logprobs(found: Mapping[str, Any]) -> tuple[float, ...] | None:
    """Log-probabilities of the tokens of a choice, as OpenAI's interface gives them."""
    content = found.get("content")
    return logprobs_of([token.get("logprob") for token in content]) if content else None


def logprobs_of(values: Any) -> tuple[float, ...] | None:
    """Log-probabilities, rounding errors above 0 set to 0; None if there are none, or one of them is no number."""
    if not isinstance(values, list) or not values:
        return None
    try:
        largest = max(values)
    except TypeError:
        return None
    if not largest <= NOISE:  # also NaN
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


# ---- files


_COMPRESSED = r"(\.gz|\.gzip|\.zst|\.zstd)?"


class InFolders:
    """The part of a reader that finds files by their content, whatever the name of a file that is given itself."""

    name: ClassVar[str]
    """Regular expression of the names in a folder, without the suffix of a compression."""
    keys: ClassVar[tuple[str, ...]] = ()
    """Keys of the first object of a file of lines, if they tell the format."""

    def files(self, path: Path) -> list[Path]:
        """Files of the format: the path itself, or those in a folder and below it, by name; hidden ones left out."""
        return [file for file in ([path] if path.is_file() else below(path, self.name)) if self.fits(file)]

    def fits(self, path: Path) -> bool:
        """Whether a file is of the format."""
        row = first_object(path)
        return row is not None and self.is_row(row)

    def is_row(self, row: Mapping[str, Any]) -> bool:
        """Whether the first row of a file of lines is of this format."""
        return all(key in row for key in self.keys)


def below(folder: Path, name: str) -> Iterator[Path]:
    """Files in a folder and below it, sorted, whose names are of a form, compressed or not; hidden ones left out."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and re.fullmatch(name + _COMPRESSED, path.name) and path.is_file():
            yield path


def plain_name(path: Path) -> str:
    """Name of a file without the suffix of a compression."""
    return re.sub(_COMPRESSED[:-1] + "$", "", path.name)


def beside(path: Path) -> Path | None:
    """A file, or the compressed form of it that lies in its place; None if there is neither."""
    options = (path, *(path.with_name(path.name + suffix) for suffix in (".gz", ".zst")))
    return next((option for option in options if option.is_file()), None)


def split_at(path: Path, name: str) -> tuple[Path, Path] | None:
    """A path before and behind the last folder of a name; None if it is in no such folder."""
    parts = path.parts
    where = next((i for i in range(len(parts) - 1, -1, -1) if parts[i] == name), None)
    return None if where is None else (Path(*parts[:where]), Path(*parts[where + 1 :]))


@dataclass(frozen=True)
class Dated:
    """A file of a task that may have been run several times."""

    path: Path
    series: str
    """What runs of one task share: their folder, or their model."""
    task: str
    date: str


def of_dates(
    files: Sequence[Path],
    name: re.Pattern[str],
    series: Callable[[Path], str],
    date: str | None,
    notes: Notes,
    read: Callable[[Dated, int], Iterator[LoggedSample]],
) -> Iterator[LoggedSample]:
    """For each series and task the samples of the newest file, or of those of a date, of which the beginning is enough;
    ``all`` takes every file, in the order of their dates, and ``read`` gets the number of its first sample. The name of
    a file says ``task`` and ``date``. An ``InputError`` lists the dates of a task that has none of this one.
    """
    by_task: dict[tuple[str, str], list[Dated]] = {}
    for path in files:
        match = name.fullmatch(plain_name(path))
        task, said = (match["task"], match["date"]) if match else (path.name.split(".")[0], "")
        by_task.setdefault((series(path), task), []).append(Dated(path, series(path), task, said))
    wanted = []
    for (_, task), same in sorted(by_task.items()):
        same.sort(key=lambda file: file.date)
        dated = [file for file in same if date in (None, "all") or file.date.startswith(str(date))]
        if not dated:
            dates = ", ".join(file.date for file in same)
            raise InputError(f"{same[0].path.parent}: task {task!r} has no file of date {date!r}; found: {dates}")
        if len(dated) > 1 and date != "all":
            others = ", ".join(file.date for file in dated[:-1])
            notes.add(f"task {task!r} has several dates; {dated[-1].date} was read, not {others}")
            dated = dated[-1:]
        wanted.append(dated)
    for dated in wanted:
        start = 0
        for file in dated:
            most = start
            for sample in read(file, start):
                most = max(most, sample.sample + 1)
                yield sample
            start = most
