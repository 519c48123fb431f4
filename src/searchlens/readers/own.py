"""Reads samples that were drawn elsewhere, in the format of ``docs/import.md``, and checks the file as a whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from searchlens.benchmarks import Question
from searchlens.benchmarks.jsonl import objects, refuse
from searchlens.errors import InputError
from searchlens.store.shards import SAMPLES

FINISHES = ("stop", "length")
_REQUIRED = ("question", "sample", "text")
_OPTIONAL = ("tokens", "logprob", "finish", "gold", "prompt")
_ALL_OR_NONE = ("tokens", "logprob")
_HINT = "docs/import.md describes the format; nothing was imported"

Errors = list[tuple[int | None, str]]
Rows = list[tuple[int, dict[str, Any]]]


@dataclass(frozen=True)
class ImportedSamples:
    """Samples of one policy, complete and consistent.

    Attributes
    ----------
    frame : DataFrame
        Columns of ``shards.SAMPLES``, ordered by question (as in ``questions``), then sample. ``tokens``, ``n_tokens``,
        ``logprobs`` and ``mean_logprob`` are null if the file does not have them; ``sampling_logprobs`` is always null.
    questions : tuple of Question
        The benchmark: the given one, or one built from the rows and ordered by id.
    samples : int
        Samples per question, numbered from 0.
    """

    frame: pl.DataFrame
    questions: tuple[Question, ...]
    samples: int


def read_samples(path: Path, questions: Sequence[Question] | None = None) -> ImportedSamples:
    """Read and check a file of samples.

    Parameters
    ----------
    path : Path
        JSON lines, one sample each.
    questions : sequence of Question, optional
        The benchmark that was sampled. Without it, the rows define one: every question needs a ``gold`` on at least one
        of its rows, and may have a ``prompt``.

    Raises
    ------
    InputError
        The file has errors; the message lists the first ten with their line numbers.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    rows, line_errors = objects(path, content)
    refuse(path, [*line_errors, *((line, what) for line, row in rows for what in _row_errors(row))], _HINT)

    if questions is None:
        benchmark, errors = _questions_of(rows)
    else:
        benchmark, errors = tuple(questions), _mismatches(rows, questions)
    samples = max(row["sample"] for _, row in rows) + 1
    refuse(path, [*_repeated(rows), *_partial(rows), *errors, *_missing(rows, benchmark, samples)], _HINT)
    return ImportedSamples(_frame(rows, benchmark), benchmark, samples)


# ---- one row


def _row_errors(row: Mapping[str, Any]) -> list[str]:
    allowed = (*_REQUIRED, *_OPTIONAL)
    errors = [f"key {key!r} is missing" for key in _REQUIRED if key not in row]
    errors += [f"key {key!r} is unknown; allowed: {', '.join(allowed)}" for key in row if key not in allowed]
    errors += [f"{key!r} must be {_RULES[key][0]}, found {_shown(row[key])}" for key in row if not _fits(key, row[key])]
    if not errors and "tokens" in row and isinstance(row.get("logprob"), list):
        tokens, logprobs = _count(row["tokens"]), len(row["logprob"])
        if tokens != logprobs:
            errors.append(f"there are {tokens} tokens but {logprobs} log-probabilities")
    return errors


def _is_integer(value: Any, largest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest


def _is_logprob(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and -1e30 < value <= 0


def _is_list(value: Any, entry: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(entry(item) for item in value)


def _is_gold(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number or (isinstance(value, str) and value.strip() != "")


_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "question": ("a question id (a string)", lambda v: isinstance(v, str) and v != ""),
    "sample": ("an integer >= 0", lambda v: _is_integer(v, 2**31 - 1)),
    "text": ("a string", lambda v: isinstance(v, str)),
    "tokens": (
        "a number of tokens or a list of token ids",
        lambda v: _is_integer(v, 2**31 - 1) or _is_list(v, lambda item: _is_integer(item, 2**31 - 1)),
    ),
    "logprob": (
        "a natural log-probability (<= 0) or a list of them",
        lambda v: _is_logprob(v) or _is_list(v, _is_logprob),
    ),
    "finish": ("'stop' or 'length'", lambda v: v in FINISHES),
    "gold": ("a string that is not empty, or a number", _is_gold),
    "prompt": ("a string that is not empty", lambda v: isinstance(v, str) and v != ""),
}


def _fits(key: str, value: Any) -> bool:
    return key not in _RULES or _RULES[key][1](value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


# ---- rows together


def _repeated(rows: Rows) -> Errors:
    lines: dict[tuple[str, int], int] = {}
    errors: Errors = []
    for line, row in rows:
        first = lines.setdefault((row["question"], row["sample"]), line)
        if first != line:
            what = f"sample {row['sample']} of question {_shown(row['question'])} occurs already on line {first}"
            errors.append((line, what))
    return errors


def _partial(rows: Rows) -> Errors:
    """Keys that only some rows have: their mean would be taken for the mean over all rows."""
    errors: Errors = []
    for key in _ALL_OR_NONE:
        without = [line for line, row in rows if key not in row]
        if 0 < len(without) < len(rows):
            errors.append((without[0], f"key {key!r} is missing here but given on other lines; give it on all or none"))
    return errors


def _missing(rows: Rows, questions: Iterable[Question], samples: int) -> Errors:
    """Questions of the benchmark that do not have all samples 0 … n-1, with the same n."""
    numbers: dict[str, set[int]] = {}
    for _, row in rows:
        numbers.setdefault(row["question"], set()).add(row["sample"])
    errors: Errors = []
    for question in questions:
        present = numbers.get(question.id, set())
        missing = samples - len(present)
        if not present:
            errors.append((None, f"question {_shown(question.id)} of the benchmark has no samples"))
        elif missing:
            first = next(sample for sample in range(samples) if sample not in present)
            which = f"{first} is missing" if missing == 1 else f"{first} and {missing - 1} more are missing"
            what = f"question {_shown(question.id)}: sample {which}; every question needs samples 0 to {samples - 1}"
            errors.append((None, what))
    return errors


def _gold_text(gold: str | float) -> str:
    return str(int(gold)) if isinstance(gold, float) and gold.is_integer() else str(gold)


def _mismatches(rows: Rows, questions: Sequence[Question]) -> Errors:
    """Questions that the benchmark does not have, and golds that differ from its golds."""
    by_id = {question.id: question for question in questions}
    errors: Errors = []
    for line, row in rows:
        question = by_id.get(row["question"])
        if question is None:
            ids = f"its ids are like {_shown(questions[0].id)}, {_shown(questions[-1].id)}"
            errors.append((line, f"question {_shown(row['question'])} is not in the benchmark; {ids}"))
        elif "gold" in row and _gold_text(row["gold"]) != question.gold:
            errors.append((line, f"gold {_shown(row['gold'])} is not the benchmark's, {_shown(question.gold)}"))
    return errors


def _questions_of(rows: Rows) -> tuple[tuple[Question, ...], Errors]:
    """A benchmark from the golds and prompts in the rows, ordered by id, so that the order of lines does not matter."""
    lines: dict[str, int] = {}
    for line, row in rows:
        lines.setdefault(row["question"], line)
    golds, gold_errors = _by_question(rows, "gold")
    prompts, prompt_errors = _by_question(rows, "prompt")
    texts = {name: prompts.get(name, name) for name in lines}
    without_gold = [
        (line, f"question {_shown(name)} has no gold on any line; a benchmark of your own needs one")
        for name, line in lines.items()
        if name not in golds
    ]
    questions = tuple(Question(name, texts[name], golds.get(name, "")) for name in sorted(lines))
    return questions, [*gold_errors, *prompt_errors, *without_gold, *_same_text(texts, lines)]


def _by_question(rows: Rows, key: str) -> tuple[dict[str, str], Errors]:
    """Question to the text of its gold or prompt, which may be on several rows, but must not differ."""
    first: dict[str, tuple[int, str]] = {}
    errors: Errors = []
    for line, row in rows:
        if key in row:
            first_line, text = first.setdefault(row["question"], (line, _gold_text(row[key])))
            if text != _gold_text(row[key]):
                errors.append((line, f"{key} {_shown(row[key])} differs from {_shown(text)} on line {first_line}"))
    return {name: text for name, (_, text) in first.items()}, errors


def _same_text(texts: Mapping[str, str], lines: Mapping[str, int]) -> Errors:
    """Questions with the same text: one question under two ids, or a prompt that was pasted to the wrong row."""
    names: dict[str, str] = {}
    errors: Errors = []
    for name, text in texts.items():
        if (other := names.setdefault(text, name)) != name:
            errors.append((lines[name], f"questions {_shown(other)} and {_shown(name)} have the same prompt"))
    return errors


# ---- result


def _count(tokens: int | list[int] | None) -> int | None:
    return len(tokens) if isinstance(tokens, list) else tokens


def _mean(logprob: float | list[float] | None) -> float | None:
    return math.fsum(logprob) / len(logprob) if isinstance(logprob, list) else logprob


def _n_tokens(row: Mapping[str, Any]) -> int | None:
    logprobs = row.get("logprob")
    return _count(row.get("tokens", logprobs if isinstance(logprobs, list) else None))


def _list_or_null(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) else None


def _frame(rows: Rows, questions: Sequence[Question]) -> pl.DataFrame:
    position = {question.id: index for index, question in enumerate(questions)}
    ordered = [row for _, row in sorted(rows, key=lambda item: (position[item[1]["question"]], item[1]["sample"]))]
    columns = {
        "question": [row["question"] for row in ordered],
        "sample": [row["sample"] for row in ordered],
        "run": [row["sample"] for row in ordered],
        "text": [row["text"] for row in ordered],
        "tokens": [_list_or_null(row.get("tokens")) for row in ordered],
        "logprobs": [_list_or_null(row.get("logprob")) for row in ordered],
        "sampling_logprobs": [None] * len(ordered),
        "n_tokens": [_n_tokens(row) for row in ordered],
        "mean_logprob": [_mean(row.get("logprob")) for row in ordered],
        "score": [_mean(row.get("logprob")) for row in ordered],
        "finish": [row.get("finish") for row in ordered],
        "generated": [_n_tokens(row) for row in ordered],
        "requests": [1] * len(ordered),
        "details": [None] * len(ordered),
    }
    return pl.DataFrame(columns, schema=SAMPLES, strict=False)
