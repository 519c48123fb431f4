"""Logs of Inspect, ``.eval`` and ``.json``: sample by sample, scores of each, limits and failures told apart."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from zipfile import ZipInfo

import pyarrow as pa

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers import fields, lines
from searchlens.formats.readers.fields import InFolders, count_of
from searchlens.formats.readers.lines import kind, opened, walked
from searchlens.formats.readers.logged import Document, Finish, LoggedSample, Notes, Stream
from searchlens.store.inputs import CHOICES, LONGEST, require_at_most, require_parsable

_SAMPLE = re.compile(r"samples/.+_epoch_\d+(\.json|/sample\.json)")
_INDEX = re.compile(rb'\{\s*"[^"]+\.(eval|json)"\s*:')  # logs.json, whose keys are names of logs
_ZSTANDARD = 93
_LOCAL_HEADER = 30
_GRADES = {"C": 1.0, "I": 0.0, "N": 0.0, "P": 0.5}
_REFUSED = {"started": "is not finished", "cancelled": "was cancelled", "error": "ended with an error"}

Json = dict[str, Any]


@dataclass(frozen=True)
class _Log:
    """A log without its samples."""

    path: Path
    header: Json
    evaluation: Json
    stream: Stream
    status: str
    created: str
    epochs: int

    @property
    def choices(self) -> int:
        """Of each sample."""
        found = count_of(self.stream.asked.get("n")) or 1
        require_at_most(CHOICES, found, "choices of a request (n)", self.path)
        return found

    @property
    def series(self) -> tuple[str, ...]:
        """What logs share whose samples are draws of one policy."""
        dataset = _mapping(self.evaluation.get("dataset")).get("name")
        asked = {key: value for key, value in self.stream.asked.items() if key != "seed"}
        return (self.stream.model, self.stream.task, str(dataset), repr(sorted(asked.items(), key=repr)))


@reader(
    "inspect",
    title="logs of Inspect (.eval, .json)",
    versions="inspect_ai 499e6152 (2026-08-22) and 0.3.285",
    ran=True,
    wishes=("partial",),
)
class InspectReader(InFolders):
    """Logs of Inspect.

    Of several logs of one task id, which are retries of one set, the newest that succeeded counts. Logs of several task
    ids with the same model, task and sampling parameters are joined in the order of their dates.
    """

    name = r".+\.(eval|json)"

    def fits(self, path: Path) -> bool:
        """Whether an archive has the members of a log, or an object its first keys."""
        if kind(path) == "zip":
            try:
                with path.open("rb") as file:
                    return bool({"_journal/start.json", "header.json"} & _members(path, file).keys())
            except InputError:  # it was cut off or damaged, so that its name must do
                return path.suffix == ".eval"
        if kind(path) == "parquet":
            return False
        with opened(path) as file:
            head = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
        keys = (b'"eval"', b'"status"', b'"version"')
        return head.startswith(b"{") and all(key in head for key in keys) and not _INDEX.match(head)

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples of all logs; refuses logs that did not succeed, unless ``partial``, are damaged, or have no
        header.
        """
        first: dict[tuple[str, ...], int] = {}
        for log in _newest([_log(path, notes) for path in files], notes):
            what = _REFUSED.get(log.status)
            if what and "partial" not in wishes:
                raise InputError(
                    f"{log.path}: the log {what} (status {log.status!r}); allowed: 'success'",
                    "--partial reads the samples that it has",
                )
            if what:
                notes.add(f"a log that {what} was read as far as it goes", str(log.path))
            if log.header.get("invalidated"):
                notes.add("a log was marked as invalidated", str(log.path))
            start = first.get(log.series, 0)
            if start:
                notes.add("logs of one task were joined in the order of their dates", str(log.path))
            yield from _samples_of_log(log, start, "partial" in wishes, notes)
            first[log.series] = start + log.epochs * log.choices


def _log(path: Path, notes: Notes) -> _Log:
    header = _header(path, notes)
    said = _mapping(header.get("eval"))
    asked = fields.parameters(said.get("model_generate_config"), _mapping(header.get("plan")).get("config"))
    version = _mapping(said.get("packages")).get("inspect_ai", "")
    return _Log(
        path=path,
        header=header,
        evaluation=said,
        stream=Stream(str(said.get("model", "")), str(said.get("task", "")), asked, f"inspect_ai {version}".strip()),
        status=str(header.get("status", "started")),
        created=str(said.get("created", "")),
        epochs=count_of(_mapping(said.get("config")).get("epochs")) or 1,
    )


def _newest(logs: Sequence[_Log], notes: Notes) -> list[_Log]:
    """One log for each task id, by date."""
    chosen: dict[str, _Log] = {}
    for log in sorted(logs, key=lambda log: (log.status == "success", log.created, str(log.path))):
        name = str(log.evaluation.get("task_id") or log.path)
        if name in chosen:
            notes.add("a log was left out because a newer one of the same task id is there", str(chosen[name].path))
        chosen[name] = log
    return sorted(chosen.values(), key=lambda log: (log.created, str(log.path)))


# ---- one log


def _samples_of_log(log: _Log, start: int, is_partial: bool, notes: Notes) -> Iterator[LoggedSample]:
    seen: set[str] = set()
    for place, sample in _samples(log.path, notes):
        notes.at(place, sample)
        epoch = count_of(sample.get("epoch"))
        if epoch is None or "id" not in sample:
            keys = ", ".join(list(sample)[:8])
            raise InputError(f"{place}: no id and epoch, which every sample of Inspect has; its keys: {keys}")
        name = f"samples/{sample['id']}_epoch_{epoch}"
        seen.add(name)
        if place.endswith(".json") and not place.endswith((f", {name}.json", f", {name}/sample.json")):
            raise InputError(f"{place}: it holds the sample of {name}.json", _COPY)
        yield from _drawn(sample, log.stream, place, start + (epoch - 1) * log.choices, log.choices, notes)

    if log.status == "success" and (absent := _absent(log, seen)):
        if not is_partial:
            raise InputError(f"{log.path}: {absent}", "copy it again, or read what it has by --partial")
        notes.add("a log without all samples that its header counts was read as far as it goes", str(log.path))


def _absent(log: _Log, seen: Set[str]) -> str:
    """How many samples a log has of those that its header counts, and the first that is missing; empty if none is."""
    results, asked = _mapping(log.header.get("results")), _mapping(log.evaluation.get("config"))
    ids = _mapping(log.evaluation.get("dataset")).get("sample_ids") or []
    every = len(ids) * log.epochs if asked.get("limit") is None and asked.get("sample_id") is None else 0
    counted = count_of(results.get("completed_samples" if results.get("early_stopping") else "total_samples")) or every
    if len(seen) >= counted:
        return ""
    names = (f"samples/{name}_epoch_{epoch}" for epoch in range(1, log.epochs + 1) for name in ids)
    first = next((name for name in names if name not in seen), "") if counted == every else ""
    missing = f"; {first}.json is missing" if first else ""
    return f"its header counts {counted:,} samples, but it has {len(seen):,}{missing}"


def _drawn(sample: Json, stream: Stream, place: str, first: int, n: int, notes: Notes) -> Iterator[LoggedSample]:
    """The choices of one sample; those that a failed request owes are failed samples."""
    source, golds = sample["id"], fields.golds_of(sample.get("target"))
    prompt, options = fields.last_asked(sample.get("input")), fields.choices_of(sample.get("choices"))
    document = Document(source, isinstance(source, int), prompt, False, options, golds)
    output, messages = _mapping(sample.get("output")), sample.get("messages")
    choices = output.get("choices") or []
    if len(choices) > n:
        raise InputError(f"{place}: {len(choices)} choices, but the log asks for {n} (num_choices)")
    said = [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []
    if any(message.get("role") == "assistant" for message in said[:-1]):
        notes.add("a conversation had several answers of the model; the last one was taken", place)
    verdicts, numbers = _verdicts(sample)
    for position in range(n):
        number = first + position
        if position >= len(choices) or sample.get("error"):
            notes.add("a request failed", place)
            yield LoggedSample(stream, document, number, None, place, "failed", verdicts=verdicts)
            continue
        text, finish, logprobs = _answer(choices[position], sample, place, notes)
        tokens = count_of(_mapping(output.get("usage")).get("output_tokens")) if n == 1 else None
        if n == 1 and tokens is None and logprobs:
            tokens = len(logprobs)
        own, others = (verdicts, numbers) if position == 0 else ({}, {})
        yield LoggedSample(stream, document, number, text, place, finish, tokens, logprobs, own, numbers=others)


def _answer(choice: Json, sample: Json, place: str, notes: Notes) -> tuple[str, Finish, tuple[float, ...] | None]:
    """Text, end and log-probabilities of a choice."""
    content = _mapping(choice.get("message")).get("content")
    if attachments := sample.get("attachments"):
        content = _attached(content, attachments)
    finish = fields.end_of(choice.get("stop_reason"), notes, place)
    limit = _mapping(sample.get("limit")).get("type")
    if limit is not None and finish not in ("length", "failed"):
        finish = "length" if limit == "token" else "failed"
    logprobs = fields.token_logprobs(_mapping(choice.get("logprobs")))
    return fields.joined(*fields.parts_of(content)), finish, logprobs


def _attached(value: Any, attachments: Json) -> Any:
    """A value in which ``attachment://`` and a name stand for a text that is kept apart."""
    if isinstance(value, str):
        return attachments.get(value.removeprefix("attachment://"), value) if value.startswith("attachment:") else value
    if isinstance(value, list):
        return [_attached(item, attachments) for item in value]
    return {key: _attached(item, attachments) for key, item in value.items()} if isinstance(value, dict) else value


def _verdicts(sample: Json) -> tuple[fields.Verdicts, fields.Numbers]:
    verdicts: fields.Verdicts = {}
    numbers: fields.Numbers = {}
    for scorer, score in (sample.get("scores") or {}).items():
        value, answer = score.get("value"), score.get("answer")
        parts = {f"{scorer}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {scorer: value}
        graded = {name: _GRADES.get(part) if isinstance(part, str) else part for name, part in parts.items()}
        found = fields.judged(graded, answer)
        verdicts, numbers = verdicts | found[0], numbers | found[1]
    return verdicts, numbers


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


# ---- files


def _header(path: Path, notes: Notes) -> Json:
    """Everything but the samples; of a log that is under way, what its journal has."""
    if kind(path) == "zip":
        with path.open("rb") as file:
            members = _members(path, file)
            if "header.json" in members:
                return _member(path, file, members["header.json"], notes)
            if "_journal/start.json" in members:
                return {"status": "started", **_member(path, file, members["_journal/start.json"], notes)}
        raise InputError(f"{path} has neither header.json nor _journal/start.json: it is no whole log of Inspect")
    header: Json = {}
    with walked(path, notes) as text:
        for key in text.members():
            if key == "samples" and "eval" in header:  # what follows the samples says nothing of them
                break
            header[key] = text.value()
    notes.at(f"{path}, header", header)
    return header


def _samples(path: Path, notes: Notes) -> Iterator[tuple[str, Json]]:
    if kind(path) == "zip":
        with path.open("rb") as file:
            for name, info in _members(path, file).items():
                if _SAMPLE.fullmatch(name):
                    place = f"{path}, {name}"
                    yield place, _member(path, file, info, notes)
        return
    with walked(path, notes) as text:
        for key in text.members():
            if key != "samples":
                text.value()
                continue
            samples = text.entries() if text.peek() == "[" else text.value() or ()
            for number, sample in enumerate(samples, start=1):
                place = f"{path}, sample {number}"
                if not isinstance(sample, dict):
                    raise InputError(f"{place}: {lines.named(sample)} instead of a sample")
                yield place, sample


def _members(path: Path, file: IO[bytes]) -> dict[str, ZipInfo]:
    """Members by name; a name that was written again counts as it was written last."""
    try:
        with zipfile.ZipFile(file) as archive:
            return {info.filename: info for info in archive.infolist()}
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError) as error:
        raise InputError(
            f"{path} is a zip archive without its end, or a wrong one ({error}): it was cut off, or its run killed",
            "copy it again, or recover it with `inspect log recover`",
        ) from None


def _member(path: Path, file: IO[bytes], info: ZipInfo, notes: Notes) -> Json:
    """One member as JSON. Python reads Zstandard in zip archives from 3.14 on only, so its bytes are taken here."""
    place = f"{path}, {info.filename}"
    require_at_most(LONGEST, max(info.file_size, info.compress_size), "bytes", place)
    content = _unpacked(place, file, info)
    if zlib.crc32(content) != info.CRC:
        raise InputError(f"{place}: its content does not have the checksum that the archive states", _COPY)
    return lines.parsed(Path(place), 1, require_parsable(content, place) + b"\n", notes)


_COPY = "copy the file again"


def _unpacked(place: str, file: IO[bytes], info: ZipInfo) -> bytes:
    file.seek(info.header_offset)
    head = file.read(_LOCAL_HEADER)
    if len(head) < _LOCAL_HEADER or not head.startswith(b"PK\x03\x04"):
        raise InputError(f"{place}: there is no member where the archive says", _COPY)
    file.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), 1)
    content = file.read(info.compress_size)
    try:
        if info.compress_type == zipfile.ZIP_STORED:
            return content
        if info.compress_type == zipfile.ZIP_DEFLATED:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, max(1, info.file_size))
        if info.compress_type == _ZSTANDARD:
            with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
                return bytes(stream.read(info.file_size))
    except (zlib.error, pa.ArrowException, OSError) as error:
        raise InputError(f"{place} is damaged: {error}", _COPY) from None
    raise InputError(
        f"{place}: compressed by method {info.compress_type}; allowed: 0 (none), 8 (deflate), 93 (Zstandard)",
        "write the log again with `inspect log convert`",
    )
