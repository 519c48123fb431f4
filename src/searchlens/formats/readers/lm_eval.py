"""Samples of lm-evaluation-harness (``--log_samples``) and details of lighteval: of several dates the newest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers import fields, lines
from searchlens.formats.readers.fields import Dated, InFolders, beside, of_dates, split_at
from searchlens.formats.readers.logged import Document, Finish, LoggedSample, Notes, NoTextsError, Stream
from searchlens.store.parquet import batches, columns_of, lists_of_lists

# ---- lighteval

_LIGHTEVAL_NAME = re.compile(r"details_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+)\.parquet")
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
        date = wishes.get("date")
        yield from of_dates(files, _LIGHTEVAL_NAME, _model, date, notes, lambda file, at: _samples(file, at, notes))


def _model(path: Path) -> str:
    """Organisation and model; behind them come the folder of a date and the name."""
    split = split_at(path, "details")
    return "/".join(split[1].parts[:-2]) if split else ""


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
    document, limit = _lighteval_document(row), fields.count_of(row.get("generation_size"))
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


def _lighteval_document(row: Row) -> Document:
    choices = tuple(row.get("choices") or ())
    right = row.get("gold_index")
    indices = right if isinstance(right, list) else [] if right is None else [right]
    gold = tuple(text for index in indices if 0 <= index < len(choices) for text in fields.golds_of(choices[index]))
    name = row.get("id")
    number = int(name) if isinstance(name, str) and name.isdecimal() else name
    return Document(
        number, isinstance(number, int), row.get("query"), True, choices if len(choices) > len(gold) else (), gold
    )


# ---- lm-evaluation-harness

_LM_EVAL_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl")
_LONGEST_GOLD = 200
_NO_TEXTS = "compares log-likelihoods of given texts"
_NO_ANSWER = "[invalid]"
"""What a filter of the harness writes where it finds no answer."""


@reader(
    "lm_eval",
    title="samples of lm-evaluation-harness (--log_samples)",
    versions="lm_eval 4e7e0d47 (2026-08-21) and 0.4.13",
    ran=True,
    wishes=("date", "id_key", "question_key", "gold_key"),
)
class LmEvalReader(InFolders):
    """Folders that ``lm_eval --log_samples --output_path`` wrote.

    A rerun is a file of another date beside the first: the newest counts, or that of the wish ``date``; ``all`` joins
    them in the order of their dates.
    """

    name = r"samples_.+\.jsonl"
    keys = ("doc_id", "doc", "arguments", "resps")

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples, file by file; refuses a date that no file has. Tasks that generated no text are left out, or
        refused if there is no other.
        """
        read = partial(_read, wishes=wishes, notes=notes)
        generated = [path for path in files if not _compares(path, notes)] or files
        for path in files:
            if path not in generated:
                notes.add(f"a task {_NO_TEXTS}; it is left out", str(path))
        yield from of_dates(generated, _LM_EVAL_NAME, lambda path: str(path.parent), wishes.get("date"), notes, read)


def _compares(path: Path, notes: Notes) -> bool:
    """Whether the first row of a file is of a task that compares likelihoods of given texts."""
    for number, line in lines.raw(path):
        row = lines.parsed(path, number, line, notes)
        return isinstance(row.get("arguments"), dict | list) and not isinstance(_asked(row).get("arg_1"), dict)
    return False


def _asked(row: lines.Object) -> Mapping[str, Any]:
    """The arguments of the first request."""
    arguments = row["arguments"]
    if isinstance(arguments, list):  # as older versions write it: a list of the arguments of each request
        one = arguments[0] if arguments and isinstance(arguments[0], list) else []
        return {f"arg_{i}": value for i, value in enumerate(one)}
    first = arguments.get("gen_args_0", {}) if isinstance(arguments, dict) else {}
    return first if isinstance(first, dict) else {}


def _read(file: Dated, start: int, wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
    made = _made(file, notes)
    first_filter, later = _later_filters(file.path, notes)
    asked: dict[str, Stream] = {}
    seen: set[tuple[Any, int]] = set()
    for number, line in lines.raw(file.path):
        if lines.text_after(line, "filter") not in (None, first_filter):
            continue
        place = f"{file.path}:{number}"
        row = lines.parsed(file.path, number, line, notes)
        lines.required(row, LmEvalReader.keys, place, "lm-evaluation-harness")
        texts, prompt, options = _request(row, place, made.task)
        drawn = (row["doc_id"], hash(repr(texts)))
        if "filter" not in row and drawn in seen:  # before filters had names, each had a row with the same texts
            notes.add("rows of one document have the same texts and name no filter; the first was read", place)
            continue
        seen.add(drawn)
        if (key := repr(options)) not in asked:
            asked[key] = replace(made, asked=fields.parameters(options))
        document = _lm_eval_document(row, prompt, wishes)
        own, of_all = _metrics(row), later.get(row["doc_id"], ({}, {}))
        said = fields.of_texts(len(texts), own[0] | of_all[0], own[1] | of_all[1])
        if len(texts) > 1:
            notes.add("a filter judged several texts together; its verdict is kept for the question, not for a text")
        for position, text in enumerate(texts):
            yield LoggedSample(asked[key], document, start + position, text, place, **said)


def _later_filters(path: Path, notes: Notes) -> tuple[str | None, dict[Any, tuple[fields.Verdicts, fields.Numbers]]]:
    """The first filter, whose rows are read, and the verdicts of all others by document, which come after them."""
    first: str | None = None
    later: dict[Any, tuple[fields.Verdicts, fields.Numbers]] = {}
    for number, line in lines.raw(path):
        name = lines.text_after(line, "filter")
        first = first if first is not None else name
        if name in (None, first):
            continue
        row = lines.parsed(path, number, line, notes)
        verdicts, numbers = _metrics(row)
        before = later.setdefault(row.get("doc_id"), ({}, {}))
        before[0].update(verdicts)
        before[1].update(numbers)
    return first, later


def _request(row: lines.Object, place: str, task: str) -> tuple[list[str | None], str | None, Mapping[str, Any]]:
    """The drawn texts (None: taken out of the log), the prompt, and the sampling parameters of a row. Refuses a task
    that compares likelihoods of given texts.
    """
    first = _asked(row)
    options = first.get("arg_1")
    if not isinstance(options, dict):
        error = NoTextsError(
            f"{place}: the task {_NO_TEXTS}, so there are no generated texts in it",
            "run a variant that generates, such as those with 'generative' or 'cot' in their names",
        )
        error.task = task
        raise error
    if len(row["arguments"]) > 1:
        raise InputError(f"{place}: {len(row['arguments'])} requests for one document; allowed: 1")
    texts = row["resps"][0] if row["resps"] and isinstance(row["resps"][0], list) else row["resps"]
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str | None) for text in texts):
        raise InputError(f"{place}: 'resps' has no texts; allowed: a list with one list of texts")
    return texts, _prompt(first.get("arg_0")), options


def _prompt(value: Any) -> str | None:
    """A prompt, or the last message of a chat, which is a list, or JSON in a list."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        value = value[0]
    if isinstance(value, str) and value.startswith('[{"role"'):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return fields.last_asked(value)


def _lm_eval_document(row: lines.Object, prompt: str | None, wishes: Mapping[str, str]) -> Document:
    """The document by its own fields; what a field lacks, by the prompt and by a short target."""
    doc = row["doc"] if isinstance(row["doc"], dict) else {}
    document = fields.document_of(doc, wishes, row["doc_id"])
    if document.prompt is None:
        document = replace(document, prompt=prompt, is_templated=True)
    target = row.get("target")
    is_plain = isinstance(target, str) and "\n" not in target and len(target) <= _LONGEST_GOLD
    if not document.gold and is_plain and not str(target).startswith("["):
        document = replace(document, gold=fields.golds_of(target))
    return document


def _metrics(row: lines.Object) -> tuple[fields.Verdicts, fields.Numbers]:
    """Metrics of a row under the name of metric and filter, as results files write them."""
    name, found = row.get("filter"), row.get("filtered_resps")
    answer = found[0] if isinstance(found, list) and len(found) == 1 and isinstance(found[0], str) else None
    answer = None if answer == _NO_ANSWER else answer
    metrics = {f"{metric},{name}": row.get(metric) for metric in row.get("metrics") or ()}
    return fields.judged({key: value for key, value in metrics.items() if not isinstance(value, list | dict)}, answer)


def _made(file: Dated, notes: Notes) -> Stream:
    """Model and version by the results file of the same date, if it is there."""
    results = beside(file.path.with_name(f"results_{file.date}.json"))
    if results is None:
        model = file.path.parent.name if "__" in file.path.parent.name else ""
        return Stream(model.replace("__", "/"), file.task, {}, "lm_eval")
    found = lines.whole(results, notes)
    model = found.get("model_name") or (found.get("config") or {}).get("model") or ""
    return Stream(str(model), file.task, {}, f"lm_eval {found.get('lm_eval_version', '')}".strip())
