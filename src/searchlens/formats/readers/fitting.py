"""Any reader: the one whose format some files have, and its samples, with one message for what is wrong in a file.

A reader takes the fields of its format as they should be. Where a field has another type, whatever goes wrong is told
here, with the file, the line or member, and the field.
"""

from __future__ import annotations

import codecs
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from searchlens import catalogue
from searchlens.errors import InputError
from searchlens.formats.readers.fields import InFolders, below, plain_name
from searchlens.formats.readers.lines import LOOKED_AT, first_object, kind, named, opened
from searchlens.formats.readers.logged import Document, LoggedSample, Notes, Problems, Reader, Stream
from searchlens.formats.readers.own import first, rows
from searchlens.store import parquet

_MISTAKES = (TypeError, LookupError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What Python raises where a value has another type than the one that is read."""

_HINT = "was it written by another version of the tool, or changed by hand?"
_HEAD = 2**20
"""Most bytes of a first line that are looked at to see whether a file is damaged."""
_LARGEST = 2**31
"""Token ids and numbers of tokens are below it."""
_LOGS = r".+\.(jsonl?|ndjson|csv|tsv|parquet|eval)"
_SHOWN = 8
_LISTED = 24
_FINISHES = ("stop", "length", "failed", "unknown")


class Recognised(NamedTuple):
    """The reader that fits some paths, the files that it reads, its name, and what it does not read beside them."""

    reader: Reader
    files: list[Path]
    name: str
    left_out: dict[Path, str]
    """Files with such names in the same folders, and what each is."""


def recognised(paths: Sequence[Path]) -> Recognised:
    """The one reader whose format the files, or those in folders, have; an ``InputError`` says what they are if none or
    several fit, or which file beside them is damaged.
    """
    readers: dict[str, Reader] = {name: catalogue.find("reader", name)() for name in catalogue.declared("reader")}
    titles = catalogue.titles("reader")
    found: dict[str, dict[Path, None]] = {}
    for path in dict.fromkeys(paths):
        if not path.exists():
            raise InputError(f"cannot read {path}: No such file or directory", "correct the path")
        fits = {name: files for name, reader in readers.items() if (files := _files(reader, path))}
        if not fits:
            known = "\n  ".join(["docs/import.md describes the known formats:", *titles.values()])
            raise InputError(f"{path} has no format that is known: {_description(path)}", known)
        for name, files in fits.items():
            found.setdefault(name, {}).update(dict.fromkeys(files))
    if len(found) > 1:
        more = {name: f" and {len(files) - 1} more" if len(files) > 1 else "" for name, files in found.items()}
        which = "; ".join(f"{titles[name]}: {next(iter(files))}{more[name]}" for name, files in found.items())
        raise InputError(f"files of several formats: {which}", "import the files of one format at a time")
    ((name, only),) = found.items()
    return Recognised(readers[name], list(only), name, dict(_left_out(readers[name], paths, only)))


def _files(reader: Reader, path: Path) -> list[Path]:
    """Files of one format; none where a file that is looked at has fields of other types."""
    try:
        return reader.files(path)
    except _MISTAKES:
        return []


def _left_out(reader: Reader, paths: Sequence[Path], files: Container[Path]) -> Iterator[tuple[Path, str]]:
    """Files in folders that have the names of a format and no samples of it, and what each is; an ``InputError`` if one
    is damaged.
    """
    for folder in filter(Path.is_dir, paths):
        every = list(below(folder, reader.name)) if isinstance(reader, InFolders) else []
        places = {path.parent for path in every if path in files}
        for path in every:
            if path in files:
                continue
            if damage := _damage(path):
                raise InputError(damage, "copy it again, or move it away: without it the numbers would be others")
            if path.stat().st_size == 0:
                yield path, "it is empty"
            elif not plain_name(path).endswith(".json"):  # one JSON text beside logs has no rows
                row = _first(path)
                if not row:
                    yield path, "no row of it can be read"
                elif path.parent in places:
                    yield path, _keys(row)


def _damage(path: Path) -> str:
    """What keeps the beginning of a file from being read; empty if nothing does."""
    try:
        if kind(path) == "parquet":
            next(parquet.batches(path), None)
        elif kind(path) != "zip":
            with opened(path) as file:
                head = file.readline(_HEAD)
            codecs.getincrementaldecoder("utf-8")().decode(head)
    except InputError as error:
        return error.message
    except UnicodeDecodeError as error:
        return f"{path}:1: not UTF-8 text (byte {error.start} of the line)"
    return ""


def _first(path: Path) -> Mapping[str, Any] | None:
    """The first row of a file of lines or of a table; None if there is none."""
    return first(path) if plain_name(path).endswith((".csv", ".tsv", ".parquet")) else first_object(path)


def _description(path: Path) -> str:
    """What a path is, as far as its first bytes and rows tell."""
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir())
        inside = f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}" if names else "nothing"
        logs = (f"{log}: it is empty" if log.stat().st_size == 0 else _damage(log) for log in below(path, _LOGS))
        return "; ".join([f"a folder with {inside}", *islice(filter(None, logs), 1)])
    what = kind(path)
    if path.stat().st_size == 0:
        return "it is empty"
    if what == "zip":
        return "a zip archive that is no log of a known harness"
    problems = Problems(LOOKED_AT)
    try:
        row = next((row for _, row in rows(path, problems)), None)
    except InputError as error:
        return error.message
    if row is None:
        why = next(iter(problems.lines), "all are blank")
        return "Parquet without rows" if what == "parquet" else f"no row of it can be read: {why}"
    return _keys(row)


def _keys(row: Mapping[str, Any]) -> str:
    keys = list(row)
    shown = ", ".join(keys[:_SHOWN]) + (" …" if len(keys) > _SHOWN else "")
    return f"its first row has the keys {shown or '(none)'}"


def guarded(reader: Reader, files: Any, wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
    """The samples of a reader; an ``InputError`` also where a field has a type that its format does not allow."""
    samples = iter(reader.read(files, wishes, notes))
    known: tuple[Stream | None, Document | None] = (None, None)
    while True:
        try:
            sample = next(samples, None)
        except _MISTAKES as error:
            raise InputError(_explained(error, notes), _HINT) from error
        if sample is None:
            return
        what = next(_wrong(sample, *known), "")
        if what:
            raise InputError(f"{sample.place}: {what}{_listed(notes.current[1])}", _HINT)
        known = sample.stream, sample.document
        yield sample


# ---- what a reader stumbled over


def _explained(error: BaseException, notes: Notes) -> str:
    """What is wrong, in words; those of an error are left out where they may quote a question or a text."""
    place, row = notes.current
    name = type(error).__name__
    told = f"{name}: {error}"[:120] if isinstance(error, TypeError | AttributeError) else name
    if not place:
        return f"a file is not as its format says: {told}"
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        return f"{place}: no key {error.args[0]!r}{_listed(row)}"
    return f"{place}: a field has another type than its format says ({told}){_listed(row)}"


def _listed(row: Any) -> str:
    """The fields of a record, those of objects in it by dotted names, and what each is."""
    if not isinstance(row, dict) or not row:
        return ""
    fields = [f"{name!r} is {kind}" for name, kind in _leaves(row, "")]
    return f"; its fields: {', '.join(fields[:_LISTED])}{' …' if len(fields) > _LISTED else ''}"


def _leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from _leaves(part, f"{name}.{key}" if name else str(key))
    else:
        yield name, named(value)


# ---- what a reader made of it


def _wrong(sample: LoggedSample, stream: Stream | None, document: Document | None) -> Iterator[str]:
    """What of a sample cannot be; streams and documents that are those of the sample before were looked at there."""
    if sample.stream is not stream:
        texts = {name: getattr(sample.stream, name) for name in ("model", "task", "made_by", "policy", "role")}
        yield from (f"{name} is {named(text)}" for name, text in texts.items() if not isinstance(text, str))
    if sample.document is not document:
        yield from _wrong_document(sample.document)
    if not isinstance(sample.sample, int) or sample.sample < 0:
        yield f"the number of the sample is {sample.sample!r:.40}"
    if not isinstance(sample.text, str | None):
        yield f"the text is {named(sample.text)}"
    if sample.finish not in _FINISHES:
        yield f"the end of the text is {sample.finish!r:.40}"
    yield from _wrong_numbers("tokens", sample.tokens, (int,), _LARGEST)
    yield from _wrong_numbers("log-probabilities", sample.logprobs, (int, float), 1)
    for scorer, verdict in sample.verdicts.items():
        if not isinstance(verdict.answer, str | None) or not isinstance(verdict.value, int | float | None):
            yield f"the answer of scorer {scorer!r:.40} is {named(verdict.answer)}"
    if any(not isinstance(value, int | float) for value in sample.numbers.values()):
        yield "a number of the sample is none"


def _wrong_document(document: Document) -> Iterator[str]:
    if not isinstance(document.id, str | int | None) or isinstance(document.id, bool):
        yield f"the id of the question is {named(document.id)}"
    if not isinstance(document.prompt, str | None):
        yield f"the prompt is {named(document.prompt)}"
    for name, texts in (("choices", document.choices), ("golds", document.gold)):
        if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
            yield f"the {name} are no texts"


def _wrong_numbers(name: str, value: Any, kinds: tuple[type, ...], limit: int) -> Iterator[str]:
    """Numbers that are of another kind, at the limit or above it."""
    if value is None:
        return
    numbers = value if isinstance(value, tuple) else (value,)
    if set(map(type, numbers)) <= set(kinds):
        if numbers and max(numbers) >= limit:
            yield f"one of its {name} is {max(numbers)!r:.40}"
    else:
        yield f"its {name} are no numbers"
