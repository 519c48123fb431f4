"""Details of lighteval: a Parquet row for each document, with all its samples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers import fields, lines
from searchlens.formats.readers.fields import Dated, InFolders, beside, of_dates, split_at
from searchlens.formats.readers.logged import Document, Finish, LoggedSample, Notes, Stream
from searchlens.store.parquet import batches, columns_of, lists_of_lists

_NAME = re.compile(r"details_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+)\.parquet")
_COLUMNS = (("doc", "metric", "model_response"), ("__doc__", "__metric__", "__model_response__"))
_DOC = ("id", "query", "choices", "gold_index", "generation_size")
_RESPONSE = ("text", "output_tokens", "logprobs", "reasonings")

Row = dict[str, Any]


@reader(
    "lighteval",
    title="details of lighteval (Parquet)",
    versions="lighteval 3fd15266 (2026-05-05)",
    ran=False,
    wishes=("date",),
)
class LightevalReader(InFolders):
    """Folders that ``lighteval … --save-details`` wrote.

    Of several dates of one task the newest counts, or that of the wish ``date``; ``all`` joins them. Metrics judge a
    document, so they are verdicts on a sample only where a document has one.
    """

    name = r"details_.+\.parquet"

    def fits(self, path: Path) -> bool:
        """Whether a table has the columns of details, of today or of an older version."""
        return bool(_columns(path)) or _is_older(path)

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples, file by file; refuses a date that no file has."""
        dated = []
        for path in files:
            match, split = _NAME.fullmatch(path.name), split_at(path, "details")
            model = "/".join(split[1].parts[:-2]) if split else ""  # organisation and model; then come date and name
            task, date = (match["task"], match["date"]) if match else (path.stem, "")
            dated.append(Dated(path, model, task, date))
        yield from of_dates(dated, wishes.get("date"), notes, lambda file, start: _samples(file, start, notes))


def _columns(path: Path) -> tuple[str, str, str] | None:
    found = columns_of(path)
    return next(((d, m, r) for d, m, r in _COLUMNS if d in found and r in found), None)


def _is_older(path: Path) -> bool:
    return {"full_prompt", "predictions", "metrics"} <= set(columns_of(path))


def _stream(file: Dated, notes: Notes) -> Stream:
    """Sampling parameters of the results file, in which no temperature is temperature 0."""
    model, split = file.series, split_at(file.path, "details")
    results = beside(split[0] / "results" / model / f"results_{file.date}.json") if split and model else None
    if results is None:
        return Stream(model, file.task, {}, "lighteval")
    general = lines.whole(results, notes).get("config_general") or {}
    settings = general.get("model_config") or {}
    asked = {"temperature": 0.0, **fields.parameters(settings.get("generation_parameters"))}
    version = str(general.get("lighteval_sha") or "").replace("?", "")
    return Stream(str(general.get("model_name") or model), file.task, asked, f"lighteval {version}".strip())


def _samples(file: Dated, start: int, notes: Notes) -> Iterator[LoggedSample]:
    stream = _stream(file, notes)
    names = _columns(file.path)
    if _is_older(file.path):
        raise InputError(
            f"{file.path}: details of an older lighteval (columns full_prompt, predictions, metrics) are not read",
            "evaluate again with a newer lighteval, or write rows of question, sample, text and gold (docs/import.md)",
        )
    if names is None:
        raise InputError(f"{file.path} has no columns doc and model_response; are files of two formats mixed?")
    doc, metric, response = names
    notes.at(str(file.path), {})
    wanted = [*(f"{doc}.{key}" for key in _DOC), metric, *(f"{response}.{key}" for key in _RESPONSE)]
    for first, batch in batches(file.path, wanted):
        docs, answers = batch.column(doc).to_pylist(), _responses(batch.column(response))
        metrics = batch.column(metric).to_pylist() if metric in batch.schema.names else [None] * len(batch)
        for number, (row, scores, answer) in enumerate(zip(docs, metrics, answers, strict=True), start=first + 1):
            place = f"{file.path}, row {number}"
            notes.at(place, {doc: row, metric: scores, response: answer})
            yield from _drawn(row, scores or {}, answer, start, stream, place, notes)


def _responses(column: pa.StructArray) -> Iterator[Row]:
    values = {}
    for name in (field.name for field in column.type):
        part = column.field(name)
        values[name] = lists_of_lists(part) if name == "output_tokens" else part.to_pylist()
    for number in range(len(column)):
        yield {name: found[number] for name, found in values.items()}


def _drawn(
    row: Row, scores: Row, answer: Row, start: int, stream: Stream, place: str, notes: Notes
) -> Iterator[LoggedSample]:
    texts = answer.get("text") or []
    ids = answer.get("output_tokens") or []
    reasonings = answer.get("reasonings") or []
    verdicts, numbers = fields.judged({name: value for name, value in scores.items() if value is not None})
    if verdicts and len(texts) > 1:
        notes.add("metrics judge several texts together; they are kept for the question, not for a text")
    document, limit = _document(row), fields.count_of(row.get("generation_size"))
    for position, text in enumerate(texts):
        tokens = tuple(ids[position]) if len(ids) == len(texts) else None
        reasoning = reasonings[position] if len(reasonings) == len(texts) else None
        # The format says no end: a text with all the tokens that its document allows was cut off.
        is_cut = bool(tokens and limit and len(tokens) >= limit)
        logprobs = fields.logprobs_of(answer.get("logprobs")) if position == 0 and tokens else None
        if logprobs and tokens and len(logprobs) != len(tokens):
            logprobs = None
        said = fields.of_texts(len(texts), verdicts, numbers) | {"is_finish_inferred": is_cut}
        finish: Finish = "length" if is_cut else "unknown"
        whole = text if reasoning and reasoning in text else fields.joined(reasoning, text)
        number = start + position
        yield LoggedSample(stream, document, number, whole, place, finish, tokens or None, logprobs, **said)


def _document(row: Row) -> Document:
    choices = tuple(row.get("choices") or ())
    right = row.get("gold_index")
    indices = right if isinstance(right, list) else [] if right is None else [right]
    gold = tuple(text for index in indices if 0 <= index < len(choices) for text in fields.golds_of(choices[index]))
    name = row.get("id")
    number = int(name) if isinstance(name, str) and name.isdecimal() else name
    return Document(
        number, isinstance(number, int), row.get("query"), True, choices if len(choices) > len(gold) else (), gold
    )
