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
from searchlens.formats.readers import lines
from searchlens.formats.readers.fields import (
    Numbers,
    Verdicts,
    choices_of,
    count_of,
    end_of,
    golds_of,
    joined,
    judged,
    last_asked,
    logprobs_of,
    parameters,
    parts_of,
)
from searchlens.formats.readers.folders import candidates
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

    @property
    def evaluation(self) -> Json:
        return _mapping(self.header.get("eval"))

    @property
    def created(self) -> str:
        return str(self.evaluation.get("created", ""))

    @property
    def status(self) -> str:
        return str(self.header.get("status", "started"))

    @property
    def asked(self) -> Json:
        plan = _mapping(self.header.get("plan")).get("config")
        return parameters(self.evaluation.get("model_generate_config"), plan)

    @property
    def epochs(self) -> int:
        return count_of(_mapping(self.evaluation.get("config")).get("epochs")) or 1

    @property
    def choices(self) -> int:
        found = count_of(self.asked.get("n")) or 1
        require_at_most(CHOICES, found, "choices of a request (n)", self.path)
        return found

    @property
    def stream(self) -> Stream:
        packages = _mapping(self.evaluation.get("packages"))
        version = packages.get("inspect_ai", "")
        task = str(self.evaluation.get("task", ""))
        return Stream(str(self.evaluation.get("model", "")), task, self.asked, f"inspect_ai {version}".strip())

    @property
    def series(self) -> tuple[str, ...]:
        """What logs share whose samples are draws of one policy."""
        dataset = _mapping(self.evaluation.get("dataset")).get("name")
        asked = {key: value for key, value in self.asked.items() if key != "seed"}
        return (self.stream.model, self.stream.task, str(dataset), repr(sorted(asked.items(), key=repr)))


@reader(
    "inspect",
    title="logs of Inspect (.eval, .json)",
    versions="inspect_ai 499e6152 (2026-08-22) and 0.3.285",
    ran=True,
    wishes=("partial",),
)
class InspectReader:
    """Logs of Inspect.

    Of several logs of one task id, which are retries of one set, the newest that succeeded counts. Logs of several task
    ids with the same model, task and sampling parameters are joined in the order of their dates.
    """

    def files(self, path: Path) -> list[Path]:
        """Logs: the path itself, or all ``.eval`` and ``.json`` logs in a folder and below it."""
        return candidates(path, r".+\.(eval|json)", _is_log)

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples of all logs; refuses logs that did not succeed, unless ``partial``, are damaged, or have no
        header.
        """
        logs = [_Log(path, _header(path, notes)) for path in files]
        first: dict[tuple[str, ...], int] = {}
        for log in _newest(logs, notes):
            _require_finished(log, "partial" in wishes, notes)
            start = first.get(log.series, 0)
            if start:
                notes.add("logs of one task were joined in the order of their dates", str(log.path))
            yield from _samples_of_log(log, start, "partial" in wishes, notes)
            first[log.series] = start + log.epochs * log.choices


# ---- which logs


def _is_log(path: Path) -> bool:
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


def _newest(logs: Sequence[_Log], notes: Notes) -> list[_Log]:
    """One log for each task id, by date."""
    chosen: dict[str, _Log] = {}
    for log in sorted(logs, key=lambda log: (log.status == "success", log.created, str(log.path))):
        name = str(log.evaluation.get("task_id") or log.path)
        if name in chosen:
            notes.add("a log was left out because a newer one of the same task id is there", str(chosen[name].path))
        chosen[name] = log
    return sorted(chosen.values(), key=lambda log: (log.created, str(log.path)))


def _require_finished(log: _Log, is_partial: bool, notes: Notes) -> None:
    what = _REFUSED.get(log.status)
    if what and not is_partial:
        raise InputError(
            f"{log.path}: the log {what} (status {log.status!r}); allowed: 'success'",
            "with the option partial the samples that it has are read; nothing was imported",
        )
    if what:
        notes.add(f"a log that {what} was read as far as it goes", str(log.path))
    if log.header.get("invalidated"):
        notes.add("a log was marked as invalidated", str(log.path))


# ---- one log


def _samples_of_log(log: _Log, start: int, is_partial: bool, notes: Notes) -> Iterator[LoggedSample]:
    stream = log.stream
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
        yield from _drawn(sample, stream, place, start + (epoch - 1) * log.choices, log.choices, notes)

    if log.status == "success" and (absent := _absent(log, seen)):
        if not is_partial:
            raise InputError(f"{log.path}: {absent}", "copy it again, or take what it has with the option partial")
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
    document = _document(sample)
    output = _mapping(sample.get("output"))
    choices = output.get("choices") or []
    if len(choices) > n:
        raise InputError(
            f"{place}: {len(choices)} choices, but the log asks for {n} (num_choices)", "nothing was imported"
        )
    if any(message.get("role") == "assistant" for message in _messages(sample)[:-1]):
        notes.add("a conversation had several answers of the model; the last one was taken", place)
    for position in range(n):
        number = first + position
        if position >= len(choices) or sample.get("error"):
            notes.add("a request failed", place)
            yield LoggedSample(stream, document, number, None, place, "failed", verdicts=_verdicts(sample)[0])
            continue
        choice = choices[position]
        text = _text(choice, sample)
        finish = end_of(choice.get("stop_reason"), notes, place)
        logprobs = _logprobs(choice)
        tokens = _tokens(output, logprobs) if n == 1 else None
        verdicts, numbers = _verdicts(sample) if position == 0 else ({}, {})
        yield LoggedSample(
            stream, document, number, text, place, _ended(finish, sample), tokens, logprobs, verdicts, numbers=numbers
        )


def _document(sample: Json) -> Document:
    source, asked = sample["id"], sample.get("input")
    choices = choices_of(sample.get("choices"))
    return Document(source, isinstance(source, int), last_asked(asked), False, choices, golds_of(sample.get("target")))


def _messages(sample: Json) -> list[Json]:
    messages = sample.get("messages")
    return [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []


def _text(choice: Json, sample: Json) -> str:
    content = _mapping(choice.get("message")).get("content")
    attachments = sample.get("attachments")
    if attachments:
        content = _attached(content, attachments)
    return joined(*parts_of(content))


def _attached(value: Any, attachments: Json) -> Any:
    """A value in which ``attachment://`` and a name stand for a text that is kept apart."""
    if isinstance(value, str):
        return attachments.get(value.removeprefix("attachment://"), value) if value.startswith("attachment:") else value
    if isinstance(value, list):
        return [_attached(item, attachments) for item in value]
    return {key: _attached(item, attachments) for key, item in value.items()} if isinstance(value, dict) else value


def _ended(finish: Finish, sample: Json) -> Finish:
    limit = _mapping(sample.get("limit")).get("type")
    if limit is None or finish in ("length", "failed"):
        return finish
    return "length" if limit == "token" else "failed"


def _logprobs(choice: Json) -> tuple[float, ...] | None:
    content = _mapping(choice.get("logprobs")).get("content")
    return logprobs_of([token.get("logprob") for token in content]) if content else None


def _tokens(output: Json, logprobs: tuple[float, ...] | None) -> int | None:
    """Usage counts tokens that have no log-probability, such as those of reasoning: then only these are sure."""
    count = count_of(_mapping(output.get("usage")).get("output_tokens"))
    return len(logprobs) if count is None and logprobs else count


def _verdicts(sample: Json) -> tuple[Verdicts, Numbers]:
    verdicts: Verdicts = {}
    numbers: Numbers = {}
    for scorer, score in (sample.get("scores") or {}).items():
        value, answer = score.get("value"), score.get("answer")
        parts = {f"{scorer}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {scorer: value}
        graded = {name: _GRADES.get(part) if isinstance(part, str) else part for name, part in parts.items()}
        found = judged(graded, answer)
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
            "copy it again, or recover it with `inspect log recover`; nothing was imported",
        ) from None


def _member(path: Path, file: IO[bytes], info: ZipInfo, notes: Notes) -> Json:
    """One member as JSON. Python reads Zstandard in zip archives from 3.14 on only, so its bytes are taken here."""
    place = f"{path}, {info.filename}"
    require_at_most(LONGEST, max(info.file_size, info.compress_size), "bytes", place)
    content = _unpacked(place, _packed(place, file, info), info)
    if zlib.crc32(content) != info.CRC:
        raise InputError(f"{place}: its content does not have the checksum that the archive states", _COPY)
    return lines.parsed(Path(place), 1, require_parsable(content, place) + b"\n", notes)


_COPY = "copy the file again; nothing was imported"


def _packed(place: str, file: IO[bytes], info: ZipInfo) -> bytes:
    file.seek(info.header_offset)
    head = file.read(_LOCAL_HEADER)
    if len(head) < _LOCAL_HEADER or not head.startswith(b"PK\x03\x04"):
        raise InputError(f"{place}: there is no member where the archive says", _COPY)
    file.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), 1)
    return file.read(info.compress_size)


def _unpacked(place: str, content: bytes, info: ZipInfo) -> bytes:
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
        "write the log again with `inspect log convert`; nothing was imported",
    )
