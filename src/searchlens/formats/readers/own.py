"""The project's own format of samples (docs/import.md): one row a sample, as JSON lines, JSON list, CSV or Parquet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers.fields import ENDS, finish_of
from searchlens.formats.readers.lines import kind
from searchlens.formats.readers.logged import Document, LoggedSample, Notes, Problems, Stream, Verdict, shown
from searchlens.formats.readers.rows import first_row, rows

SCORER = "correct"
"""Name of the recorded verdicts of the column ``correct``."""

_KEYS = (
    *("question", "sample", "text", "tokens", "logprob", "finish", "gold", "prompt"),
    *("policy", "role", "correct", "answer", "model"),
)
_ALL_OR_NONE = ("tokens", "logprob")
_NOISE = 1e-4
"""How far above 0 a log-probability may be: rounding of the engine."""


@reader("own", title="rows with question, sample and text", ran=True, wishes=())
class OwnReader:
    """JSON lines, a JSON list, CSV or Parquet, compressed or not, with the columns of docs/import.md.

    Keys that it does not know are left out, and noted.
    """

    def files(self, path: Path) -> list[Path]:
        """The file, or those of a folder, whose first row has a question, a sample and a text or a verdict."""
        inside = sorted(entry for entry in path.iterdir() if entry.is_file()) if path.is_dir() else [path]
        return [file for file in inside if _fits(file)]

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:  # noqa: ARG002
        """The samples of all files; a wrong row is left out here, and refused when all rows were read."""
        problems = Problems()
        streams, documents, partial = dict[Any, Stream](), dict[Any, Document](), _Partial()
        count = 0
        for file in files:
            for place, row in rows(file, problems):
                count += 1
                wrong = False
                for what, found in _errors(row):
                    problems.add(what, place, found)
                    wrong = True
                for key in row.keys() - _KNOWN:
                    notes.add(f"key {key!r} is not known and was left out", place)
                if not wrong:
                    sample = _sample(place, row, _stream(row, streams), _document(row, documents))
                    partial.see(sample)
                    yield sample
        if not count and not problems:
            raise InputError(f"{', '.join(map(str, files))}: no rows", "it needs one JSON object per line")
        partial.report(problems)
        problems.refuse()


def _fits(file: Path) -> bool:
    if kind(file) == "zip":
        return False
    row = first_row(file)
    return row is not None and "question" in row and bool(row.keys() & {"sample", "text", "correct"})


def _stream(row: Mapping[str, Any], known: dict[Any, Stream]) -> Stream:
    """One object for each model, role and policy that rows name."""
    model, role, policy = (row.get(key) or "" for key in ("model", "role", "policy"))
    return known.setdefault((model, role, policy), Stream(model, role=role, policy=policy))


def _document(row: Mapping[str, Any], known: dict[Any, Document]) -> Document:
    """One object for each question, gold and prompt that rows name."""
    question, gold, prompt = row["question"], row.get("gold"), row.get("prompt")
    golds = () if gold is None else (_gold_text(gold),)
    return known.setdefault((question, gold, prompt), Document(question, prompt=prompt, gold=golds))


class _Partial:
    """Columns that only some rows have: their mean would be taken for the mean over all rows."""

    def __init__(self) -> None:
        self._with: dict[str, set[int]] = {key: set() for key in _ALL_OR_NONE}
        self._without: dict[str, dict[int, str]] = {key: {} for key in _ALL_OR_NONE}

    def see(self, sample: LoggedSample) -> None:
        if sample.finish == "failed":
            return
        stream = id(sample.stream)
        for key, value in (("tokens", sample.tokens), ("logprob", sample.logprobs)):
            if value is None:
                self._without[key].setdefault(stream, sample.place)
            else:
                self._with[key].add(stream)

    def report(self, problems: Problems) -> None:
        for key in _ALL_OR_NONE:
            for stream in self._with[key] & self._without[key].keys():
                what = f"key {key!r} is missing here but given on other rows; give it on all or none"
                problems.add(what, self._without[key][stream])


# ---- one row


def _errors(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in ("question", "sample"):
        if key not in row:
            yield f"key {key!r} is missing", ""
    if "text" not in row and row.get("correct") is None:
        yield "key 'text' is missing", ""
    wrong = False
    for key, value in row.items():
        rule = _RULES.get(key)
        if rule and (value is not None or key in _NEEDED) and not rule[1](value):
            wrong = True
            yield f"{key!r} must be {rule[0]}", f"found {shown(value)}"
    if not wrong and isinstance(logprobs := row.get("logprob"), list) and row.get("tokens") is not None:
        tokens = _count(row["tokens"])
        if tokens != len(logprobs):
            yield (
                "as many log-probabilities as tokens are needed",
                f"{tokens} tokens, {len(logprobs)} log-probabilities",
            )


def _sample(place: str, row: Mapping[str, Any], stream: Stream, document: Document) -> LoggedSample:
    tokens, logprobs, correct = row.get("tokens"), row.get("logprob"), row.get("correct")
    return LoggedSample(
        stream,
        document,
        int(row["sample"]),
        row.get("text"),
        place,
        finish_of(row.get("finish")) or "unknown",
        tuple(map(int, tokens)) if isinstance(tokens, list) else None if tokens is None else int(tokens),
        tuple(min(0.0, float(x)) for x in logprobs)
        if isinstance(logprobs, list)
        else None
        if logprobs is None
        else min(0.0, float(logprobs)),
        {} if correct is None else {SCORER: Verdict(float(correct), _answer(row.get("answer")))},
    )


def _answer(value: Any) -> str | None:
    return None if value is None else _gold_text(value)


def _gold_text(gold: str | float) -> str:
    return str(int(gold)) if isinstance(gold, float) and gold.is_integer() else str(gold)


def _count(tokens: Any) -> int:
    return len(tokens) if isinstance(tokens, list) else int(tokens)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and 0 <= value < 2**31 and int(value) == value


def _is_logprob(value: Any) -> bool:
    return _is_number(value) and -1e30 < value <= _NOISE


def _is_list(value: Any, entry: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(entry, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


_NEEDED = ("question", "sample", "text")
_KNOWN = frozenset(_KEYS)
_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "question": ("a question id (a string)", _is_text),
    "sample": ("an integer >= 0", _is_integer),
    "text": ("a string", lambda v: isinstance(v, str)),
    "tokens": ("a number of tokens or a list of token ids", lambda v: _is_integer(v) or _is_list(v, _is_integer)),
    "logprob": (
        "a natural log-probability (<= 0) or a list of them",
        lambda v: _is_logprob(v) or _is_list(v, _is_logprob),
    ),
    "finish": (
        f"one of {', '.join(word for word in ENDS if word)}",
        lambda v: isinstance(v, str) and finish_of(v) is not None,
    ),
    "gold": ("a string that is not empty, or a number", lambda v: _is_number(v) or _is_text(v)),
    "prompt": ("a string that is not empty", _is_text),
    "policy": ("a string that is not empty", _is_text),
    "role": ("'base' or 'rl'", lambda v: v in ("base", "rl")),
    "correct": (
        "true, false, or a number from 0 to 1",
        lambda v: isinstance(v, bool) or (_is_number(v) and 0 <= v <= 1),
    ),
    "answer": ("a string or a number", lambda v: isinstance(v, str) or _is_number(v)),
    "model": ("a string that is not empty", _is_text),
}
