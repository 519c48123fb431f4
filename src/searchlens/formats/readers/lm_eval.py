"""Samples of lm-evaluation-harness, as written with ``--log_samples``: a row for each document and filter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers import fields, lines
from searchlens.formats.readers.fields import Dated, InFolders, beside, of_dates, plain_name
from searchlens.formats.readers.logged import Document, LoggedSample, Notes, Stream

_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl")
_LONGEST_GOLD = 200
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
        """The samples, file by file; refuses a task that generated no text, and a date that no file has."""
        dated = []
        for path in files:
            match = _NAME.fullmatch(plain_name(path))
            task, date = (match["task"], match["date"]) if match else (path.name.split(".")[0], "")
            dated.append(Dated(path, str(path.parent), task, date))
        yield from of_dates(dated, wishes.get("date"), notes, lambda file, start: _read(file, start, wishes, notes))


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
        texts, prompt, options = _request(row, place)
        drawn = (row["doc_id"], hash(repr(texts)))
        if "filter" not in row and drawn in seen:  # before filters had names, each had a row with the same texts
            notes.add("rows of one document have the same texts and name no filter; the first was read", place)
            continue
        seen.add(drawn)
        if (key := repr(options)) not in asked:
            asked[key] = replace(made, asked=fields.parameters(options))
        document = _document(row, prompt, wishes)
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


def _request(row: lines.Object, place: str) -> tuple[list[str | None], str | None, Mapping[str, Any]]:
    """The drawn texts (None: taken out of the log), the prompt, and the sampling parameters of a row. Refuses a task
    that compares likelihoods of given texts.
    """
    arguments = row["arguments"]
    if isinstance(arguments, list):  # as older versions write it: a list of the arguments of each request
        arguments = {f"gen_args_{i}": {f"arg_{j}": x for j, x in enumerate(one)} for i, one in enumerate(arguments)}
    first = arguments.get("gen_args_0", {}) if isinstance(arguments, dict) else {}
    options = first.get("arg_1")
    if not isinstance(options, dict):
        raise InputError(
            f"{place}: the task compares log-likelihoods of given texts, so there are no generated texts in it",
            "use a variant of the task that generates, such as those with 'generative' or 'cot' in their names",
        )
    if len(arguments) > 1:
        raise InputError(f"{place}: {len(arguments)} requests for one document; allowed: 1", "nothing was imported")
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


def _document(row: lines.Object, prompt: str | None, wishes: Mapping[str, str]) -> Document:
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
