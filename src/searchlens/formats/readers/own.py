"""The project's own format of samples (docs/import.md): one row a sample, as JSON lines, JSON list, CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from searchlens.benchmarks.files import distinct, refuse_constant
from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers.fields import ENDS, NOISE, InFolders, finish_of, golds_of, number_of
from searchlens.formats.readers.lines import LOOKED_AT, kind, opened, raw
from searchlens.formats.readers.logged import Document, LoggedSample, Notes, Problems, Stream, Verdict, shown
from searchlens.store import parquet
from searchlens.store.inputs import require_parsable, whole

SCORER = "correct"
"""Name of the recorded verdicts of the column ``correct``."""

Row = tuple[str, dict[str, Any]]
"""Place, for messages, and content of a row."""


@reader("own", title="rows with question, sample and text", ran=True, wishes=())
class OwnReader(InFolders):
    """JSON lines, a JSON list, CSV or Parquet, compressed or not, with the columns of docs/import.md.

    Keys that it does not know are left out, and noted.
    """

    name = r".+\.(jsonl?|ndjson|csv|tsv|parquet)"

    def files(self, path: Path) -> list[Path]:
        """The file, or those in a folder, and below it those with the name of a table or of rows."""
        inside = sorted(entry for entry in path.iterdir() if entry.is_file()) if path.is_dir() else []
        return list(dict.fromkeys([*filter(self.fits, inside), *super().files(path)]))

    def fits(self, path: Path) -> bool:
        """Whether the first row of a file has a question, and a sample or a text."""
        try:
            row = first(path) or {}
        except InputError:
            return False
        return "question" in row and bool(row.keys() & {"sample", "text"})

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:  # noqa: ARG002
        """The samples of all files; a wrong row is left out here, and refused when all rows were read."""
        problems = Problems()
        streams, documents = dict[Any, Stream](), dict[Any, Document]()
        given: dict[str, dict[int, dict[bool, str]]] = {"tokens": {}, "logprob": {}}
        count = 0
        for file in files:
            for place, row in rows(file, problems):
                count += 1
                wrong = list(_errors(row))
                for what, found in wrong:
                    problems.add(what, place, found)
                for key in row.keys() - _RULES.keys():
                    notes.add(f"key {key!r} is not known and was left out", place)
                if wrong:
                    continue
                sample = _sample(place, row, streams, documents)
                for key, value in (("tokens", sample.tokens), ("logprob", sample.logprobs)):
                    if sample.finish != "failed":
                        given[key].setdefault(id(sample.stream), {}).setdefault(value is not None, place)
                yield sample
        if not count and not problems:
            raise InputError(f"{', '.join(map(str, files))}: no rows", "write one JSON object per line")
        # A mean over some rows would be taken for the mean over all.
        partial = [(key, places) for key, known in given.items() for places in known.values() if len(places) == 2]
        for key, places in partial:
            problems.add(f"key {key!r} is missing here but given on other rows; give it on all or none", places[False])
        problems.refuse()


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
    tokens, logprobs = row.get("tokens"), row.get("logprob")
    if not wrong and isinstance(logprobs, list) and tokens is not None:
        number = len(tokens) if isinstance(tokens, list) else int(tokens)
        if number != len(logprobs):
            found = f"{number} tokens, {len(logprobs)} log-probabilities"
            yield "as many log-probabilities as tokens are needed", found


def _sample(
    place: str, row: Mapping[str, Any], streams: dict[Any, Stream], documents: dict[Any, Document]
) -> LoggedSample:
    """The sample of a row; streams and documents that rows name again are the same objects."""
    model, role, policy = (row.get(key) or "" for key in ("model", "role", "policy"))
    stream = streams.setdefault((model, role, policy), Stream(model, role=role, policy=policy))
    question, gold, prompt = row["question"], row.get("gold"), row.get("prompt")
    document = Document(question, prompt=prompt, gold=golds_of(gold))
    tokens, logprobs, correct, answer = (row.get(key) for key in ("tokens", "logprob", "correct", "answer"))
    answer = next(iter(golds_of(answer)), answer)
    document = documents.setdefault((question, gold, prompt), document)
    finish, number = finish_of(row.get("finish")) or "unknown", int(row["sample"])
    tokens, logprobs = _numbers(tokens, int), _numbers(logprobs, lambda value: min(0.0, float(value)))
    verdicts = {} if correct is None else {SCORER: Verdict(float(correct), answer)}
    return LoggedSample(stream, document, number, row.get("text"), place, finish, tokens, logprobs, verdicts)


def _numbers(value: Any, number: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return tuple(map(number, value))
    return None if value is None else number(value)


def _is_integer(value: Any) -> bool:
    number = number_of(value)
    return number is not None and 0 <= number < 2**31 and number.is_integer()


def _is_logprob(value: Any) -> bool:
    number = number_of(value)
    return number is not None and -1e30 < number <= NOISE


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _each(value: Any, fits: Callable[[Any], bool]) -> bool:
    """Whether a value fits, or is a list of some that do."""
    return len(value) > 0 and all(map(fits, value)) if isinstance(value, list) else fits(value)


_NEEDED = ("question", "sample", "text")
_TEXT = ("a string that is not empty", _is_text)
_WORDS = ", ".join(word for word in ENDS if word)
_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "question": ("a question id (a string)", _is_text),
    "sample": ("an integer >= 0", _is_integer),
    "text": ("a string", lambda v: isinstance(v, str)),
    "tokens": ("a number of tokens or a list of token ids", lambda v: _each(v, _is_integer)),
    "logprob": ("a natural log-probability (<= 0) or a list of them", lambda v: _each(v, _is_logprob)),
    "finish": (f"one of {_WORDS}", lambda v: isinstance(v, str) and finish_of(v) is not None),
    "gold": ("a string that is not empty, or a number", lambda v: number_of(v) is not None or _is_text(v)),
    "prompt": _TEXT,
    "policy": _TEXT,
    "role": ("'base' or 'rl'", lambda v: v in ("base", "rl")),
    "correct": ("true, false, or a number from 0 to 1", lambda v: isinstance(v, int | float) and 0 <= v <= 1),
    "answer": ("a string or a number", lambda v: isinstance(v, str) or number_of(v) is not None),
    "model": _TEXT,
}


# ---- rows of a file


def first(path: Path) -> dict[str, Any] | None:
    """The first row of a file, or None; an ``InputError`` as of ``rows``, or once ``LOOKED_AT`` lines are no row."""
    return next((row for _, row in rows(path, Problems(LOOKED_AT))), None)


def rows(path: Path, problems: Problems) -> Iterator[Row]:
    """The rows of a file, without holding it in memory; lines that are not rows are counted as problems. An
    ``InputError`` if the file cannot be read, or is an archive.
    """
    what = kind(path)
    if what == "zip":
        raise InputError(f"{path} is a zip archive, not a file of rows", "unpack it, or name the log that it is")
    if what == "parquet":
        for place, row in parquet.rows(path):
            yield place, {key: value for key, value in row.items() if value is not None}
        return
    with opened(path) as file:
        first = cast("io.BufferedReader", file).peek(4096).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if first not in (b"{", b"[") and any(suffix in (".csv", ".tsv") for suffix in path.suffixes[-2:]):
            yield from _csv(path, file)
            return
        for place, value in _list(path, file) if first == b"[" else _lines(path, problems):
            if isinstance(value, dict):
                yield place, value
            else:
                problems.add("must be a JSON object", place, f"found {type(value).__name__}")


_DECODER = json.JSONDecoder(object_pairs_hook=distinct, parse_constant=refuse_constant)


def _lines(path: Path, problems: Problems) -> Iterator[tuple[str, Any]]:
    for number, line in raw(path):
        place = f"{path}:{number}"
        try:
            text = line.decode().strip()
            value = _DECODER.decode(text)
            if b"\\u" in line and "\\ud" in text.lower():
                json.dumps(value, ensure_ascii=False).encode()
        except UnicodeDecodeError as error:
            raise InputError(f"{place}: not UTF-8 text (byte {error.start} of the line)") from None
        except UnicodeEncodeError:
            problems.add("not JSON text: an escaped surrogate without its partner", place)
        except json.JSONDecodeError as error:
            problems.add(f"not JSON: {error.msg}", place, f"column {error.colno}")
        except (ValueError, RecursionError) as error:
            problems.add(str(error), place)
        else:
            yield place, value


def _list(path: Path, file: IO[bytes]) -> Iterator[tuple[str, Any]]:
    try:
        table = _DECODER.decode(require_parsable(whole(file.read, path), path).decode("utf-8-sig").strip())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}", "a JSON list of objects, or one JSON object per line") from None
    yield from ((f"{path}, row {number}", value) for number, value in enumerate(table, start=1))


_AS_TEXT = ("question", "text", "gold", "prompt", "policy", "role", "model", "finish", "answer")
"""Columns whose cells are text, even where they look like a number."""


def _csv(path: Path, file: IO[bytes]) -> Iterator[Row]:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        table = csv.DictReader(text, delimiter="\t" if ".tsv" in path.suffixes else ",", restkey="(beyond the head)")
        for number, row in enumerate(table, start=1):
            cells = {key: value for key, value in row.items() if value not in ("", None)}
            yield f"{path}, row {number}", {key: _cell(key, value) for key, value in cells.items()}
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except csv.Error as error:
        raise InputError(f"{path}: not comma-separated values: {error}") from None
    finally:
        text.detach()


def _cell(key: str, value: Any) -> Any:
    """The cell of a table of text: a number, a list or true, where it reads as one."""
    if key in _AS_TEXT or not isinstance(value, str):
        return value
    try:
        return json.loads(value.lower() if value in ("True", "False") else value)
    except ValueError:
        return value
