"""Reading samples that somebody brought (``docs/import.md``): checked as a whole, then the same as our own."""

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
    """A pool of samples, complete and consistent.

    Attributes
    ----------
    frame : DataFrame
        Columns of ``shards.SAMPLES``, by question in the order of ``questions``, then sample. ``tokens``, ``n_tokens``,
        ``logprobs`` and ``mean_logprob`` are null where the file does not say; ``sampling_logprobs`` is always null.
    questions : tuple of Question
        The benchmark: as given, or built from the rows, by id.
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
        The benchmark that was sampled. Without it the rows define one: every question needs a ``gold`` on at least one
        of its rows, and may have a ``prompt``.

    Raises
    ------
    InputError
        Anything wrong in the file; one error, which lists the first ten with their line numbers.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    rows, found = objects(path, content)
    errors: Errors = [*found]
    for line, row in rows:
        errors += [(line, what) for what in _row_errors(row)]
    refuse(path, errors, _HINT)

    errors = _repeated(rows) + _partial(rows)
    known, own_errors = _own_questions(rows) if questions is None else (tuple(questions), _foreign(rows, questions))
    errors += own_errors
    samples = max(row["sample"] for _, row in rows) + 1
    errors += _missing(rows, known, samples)
    refuse(path, errors, _HINT)
    return ImportedSamples(_frame(rows, known), known, samples)


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
    seen: dict[tuple[str, int], int] = {}
    errors: Errors = []
    for line, row in rows:
        first = seen.setdefault((row["question"], row["sample"]), line)
        if first != line:
            what = f"sample {row['sample']} of question {_shown(row['question'])} occurs already on line {first}"
            errors.append((line, what))
    return errors


def _partial(rows: Rows) -> Errors:
    """What is given on some rows only: a mean over those would pass for a mean over all."""
    errors: Errors = []
    for key in _ALL_OR_NONE:
        lacking = [line for line, row in rows if key not in row]
        if 0 < len(lacking) < len(rows):
            errors.append((lacking[0], f"key {key!r} is missing here but given on other lines; give it on all or none"))
    return errors


def _missing(rows: Rows, questions: Iterable[Question], samples: int) -> Errors:
    """Every question of the benchmark has samples 0 … n-1, with the same n."""
    have: dict[str, set[int]] = {}
    for _, row in rows:
        have.setdefault(row["question"], set()).add(row["sample"])
    errors: Errors = []
    for question in questions:
        found = have.get(question.id)
        if found is None:
            errors.append((None, f"question {_shown(question.id)} of the benchmark has no samples"))
        elif len(found) < samples:
            first = next(sample for sample in range(samples) if sample not in found)
            lacks = f"lacks sample {first}" + (f" and {more} more" if (more := samples - len(found) - 1) else "")
            what = f"question {_shown(question.id)} {lacks}: every question needs samples 0 to {samples - 1}"
            errors.append((None, what))
    return errors


def _gold_text(gold: str | float) -> str:
    return str(int(gold)) if isinstance(gold, float) and gold.is_integer() else str(gold)


def _foreign(rows: Rows, questions: Sequence[Question]) -> Errors:
    """Questions that the benchmark does not have, and golds that are not its own."""
    known = {question.id: question for question in questions}
    errors: Errors = []
    for line, row in rows:
        question = known.get(row["question"])
        if question is None:
            errors.append((line, f"question {_shown(row['question'])} is not in the benchmark"))
        elif "gold" in row and _gold_text(row["gold"]) != question.gold:
            errors.append((line, f"gold {_shown(row['gold'])} is not the benchmark's, {_shown(question.gold)}"))
    return errors


def _own_questions(rows: Rows) -> tuple[tuple[Question, ...], Errors]:
    """A benchmark from the golds and prompts in the rows; by id, so that the order of lines does not matter."""
    first: dict[str, int] = {}
    given: dict[tuple[str, str], tuple[int, str]] = {}
    errors: Errors = []
    for line, row in rows:
        first.setdefault(row["question"], line)
        for key in ("gold", "prompt"):
            if key in row:
                before = given.setdefault((row["question"], key), (line, _gold_text(row[key])))
                if before[1] != _gold_text(row[key]):
                    errors.append(
                        (line, f"{key} {_shown(row[key])} differs from {_shown(before[1])} on line {before[0]}")
                    )
    errors += [
        (line, f"question {_shown(name)} has no gold on any line; a benchmark of your own needs one")
        for name, line in first.items()
        if (name, "gold") not in given
    ]
    texts = {name: given.get((name, "prompt"), (0, name))[1] for name in first}
    errors += _shared(texts, first)
    found = (Question(name, texts[name], given.get((name, "gold"), (0, ""))[1]) for name in sorted(first))
    return tuple(found), errors


def _shared(texts: Mapping[str, str], lines: Mapping[str, int]) -> Errors:
    """Questions with one text: the same question under two ids, or a prompt pasted too often."""
    seen: dict[str, str] = {}
    errors: Errors = []
    for name, text in texts.items():
        if (other := seen.setdefault(text, name)) != name:
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
        "finish": [row.get("finish", "stop") for row in ordered],
        "generated": [_n_tokens(row) for row in ordered],
        "requests": [1] * len(ordered),
        "details": [None] * len(ordered),
    }
    return pl.DataFrame(columns, schema=SAMPLES, strict=False)
