"""Details of lighteval: a Parquet row for each document, with all its samples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers import lines
from searchlens.formats.readers.fields import count_of, golds_of, joined, judged, logprobs_of, of_texts, parameters
from searchlens.formats.readers.folders import Dated, beside, candidates, chosen, split_at
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
class LightevalReader:
    """Folders that ``lighteval … --save-details`` wrote.

    Of several dates of one task the newest counts, or that of the wish ``date``; ``all`` joins them. Metrics judge a
    document, so they are verdicts on a sample only where a document has one.
    """

    def files(self, path: Path) -> list[Path]:
        """Details: the path itself, or all of them in a folder and below it."""
        return candidates(path, r"details_.+\.parquet", lambda file: bool(_columns(file)) or _is_older(file))

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples, file by file; refuses a date that no file has."""
        by_model: dict[str, list[Dated]] = {}
        for path in files:
            by_model.setdefault(_model(path), []).append(_dated(path))
        for model, dated in by_model.items():
            drawn: dict[str, int] = {}
            for file in _of_dates(dated, wishes.get("date"), notes):
                most, start = 0, drawn.get(file.task, 0)
                for sample in _samples(file, model, start, notes):
                    most = max(most, sample.sample + 1)
                    yield sample
                drawn[file.task] = most


def _columns(path: Path) -> tuple[str, str, str] | None:
    found = columns_of(path)
    return next(((d, m, r) for d, m, r in _COLUMNS if d in found and r in found), None)


def _is_older(path: Path) -> bool:
    return {"full_prompt", "predictions", "metrics"} <= set(columns_of(path))


def _dated(path: Path) -> Dated:
    match = _NAME.fullmatch(path.name)
    return Dated(path, match["task"], match["date"]) if match else Dated(path, path.stem, "")


def _of_dates(files: Sequence[Dated], date: str | None, notes: Notes) -> list[Dated]:
    """As ``folders.chosen``, but every date has a folder of its own."""
    same_folder = [Dated(Path(file.path.name), file.task, file.date) for file in files]
    paths = {(file.task, file.date): file.path for file in files}
    return [Dated(paths[file.task, file.date], file.task, file.date) for file in chosen(same_folder, date, notes)]


def _model(path: Path) -> str:
    """Folders between ``details`` and the date: organisation and model."""
    split = split_at(path, "details")
    return "/".join(split[1].parts[:-2]) if split else ""


def _stream(file: Dated, model: str, notes: Notes) -> Stream:
    """Sampling parameters of the results file, in which no temperature is temperature 0."""
    parts = file.path.parts
    if not model:
        return Stream("", file.task, {}, "lighteval")
    root = Path(*parts[: len(parts) - len(model.split("/")) - 3])
    results = beside(root / "results" / model / f"results_{file.date}.json")
    if results is None:
        return Stream(model, file.task, {}, "lighteval")
    general = lines.whole(results, notes).get("config_general") or {}
    settings = general.get("model_config") or {}
    asked = {"temperature": 0.0, **parameters(settings.get("generation_parameters"))}
    version = str(general.get("lighteval_sha") or "").replace("?", "")
    return Stream(str(general.get("model_name") or model), file.task, asked, f"lighteval {version}".strip())


# ---- rows


def _samples(file: Dated, model: str, start: int, notes: Notes) -> Iterator[LoggedSample]:
    stream = _stream(file, model, notes)
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
        docs, metrics = batch.column(doc).to_pylist(), _values(batch, metric)
        for position, (row, scores, answer) in enumerate(
            zip(docs, metrics, _responses(batch.column(response)), strict=True)
        ):
            place = f"{file.path}, row {first + position + 1}"
            notes.at(place, {doc: row, metric: scores, response: answer})
            yield from _drawn(row, scores or {}, answer, start, stream, place, notes)


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    return batch.column(name).to_pylist() if name in batch.schema.names else [None] * len(batch)


def _responses(column: pa.StructArray) -> Iterator[Row]:
    names = [field.name for field in column.type]
    values = {
        name: lists_of_lists(column.field(name)) if name == "output_tokens" else column.field(name).to_pylist()
        for name in names
    }
    for number in range(len(column)):
        yield {name: values[name][number] for name in names}


def _drawn(
    row: Row, scores: Row, answer: Row, start: int, stream: Stream, place: str, notes: Notes
) -> Iterator[LoggedSample]:
    texts = answer.get("text") or []
    ids = answer.get("output_tokens") or []
    reasonings = answer.get("reasonings") or []
    verdicts, numbers = judged({name: value for name, value in scores.items() if value is not None})
    if verdicts and len(texts) > 1:
        notes.add("metrics judge several texts together; they are kept for the question, not for a text")
    document = _document(row)
    for position, text in enumerate(texts):
        tokens = tuple(ids[position]) if len(ids) == len(texts) else None
        reasoning = reasonings[position] if len(reasonings) == len(texts) else None
        finish = _finish(tokens, count_of(row.get("generation_size")))
        logprobs = logprobs_of(answer.get("logprobs")) if position == 0 and tokens else None
        yield LoggedSample(
            stream=stream,
            document=document,
            sample=start + position,
            text=text if reasoning and reasoning in text else joined(reasoning, text),
            place=place,
            finish=finish,
            tokens=tokens or None,
            logprobs=logprobs if logprobs and tokens and len(logprobs) == len(tokens) else None,
            **of_texts(len(texts), verdicts, numbers),
            is_finish_inferred=finish == "length",
        )


def _finish(tokens: tuple[int, ...] | None, limit: int | None) -> Finish:
    """The format says no end: a text with all the tokens that its document allows was cut off."""
    return "length" if tokens and limit and len(tokens) >= limit else "unknown"


def _document(row: Row) -> Document:
    choices = tuple(row.get("choices") or ())
    right = row.get("gold_index")
    indices = right if isinstance(right, list) else [] if right is None else [right]
    gold = tuple(text for index in indices if 0 <= index < len(choices) for text in golds_of(choices[index]))
    name = row.get("id")
    number = int(name) if isinstance(name, str) and name.isdecimal() else name
    return Document(
        number, isinstance(number, int), row.get("query"), True, choices if len(choices) > len(gold) else (), gold
    )
