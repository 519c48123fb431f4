"""Outputs of the math evaluation of Qwen2.5-Math and of limit-of-RLVR, built on it: a line for each question."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers import lines
from searchlens.formats.readers.fields import end_of, golds_of
from searchlens.formats.readers.folders import candidates, plain_name
from searchlens.formats.readers.logged import Document, LoggedSample, Notes, Stream, Verdict

_NAME = re.compile(
    r"(?P<split>[^_]+)_(?P<prompt>.+)_(?P<limit>-?\d+)_seed(?P<seed>\d+)_t(?P<temperature>\d+(\.\d+)?)"
    r"(_s(?P<start>-?\d+)_e(?P<end>-?\d+))?\.jsonl"
)
_REQUIRED = ("code", "pred", "gt")
_FORMAT = "limit-of-RLVR and Qwen2.5-Math"


@dataclass(frozen=True)
class _Part:
    """A file: one seed, and of the questions those from ``start`` on."""

    path: Path
    seed: int
    start: int
    temperature: float | None
    series: tuple[str, ...]


@reader(
    "limit_of_rlvr",
    title="outputs of limit-of-RLVR and Qwen2.5-Math",
    versions="limit-of-RLVR fd2cf37 (2025-05-25)",
    ran=False,
    wishes=("partial",),
)
class LimitOfRlvrReader:
    """Folders ``eval_results/…/<benchmark>`` with files ``test_<prompt>_<limit>_seed<seed>_t<temperature>_….jsonl``.

    A sample's number is its place in the line plus the number of texts under smaller seeds. Texts are stripped, and cut
    at stop words, some of which ("assistant", "user") may occur in a text that went on.
    """

    def files(self, path: Path) -> list[Path]:
        """Outputs: the path itself, or all of them in a folder and below it."""
        return candidates(path, r".+_seed\d+_t.+\.jsonl", _is_output)

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:  # noqa: ARG002
        """The samples, seed by seed; refuses a line whose lists have different lengths."""
        series: dict[tuple[str, ...], list[_Part]] = {}
        for path in files:
            part = _part(path)
            series.setdefault(part.series, []).append(part)
        notes.add("texts of this format are stripped and cut at stop words")
        for _, parts in sorted(series.items()):
            seeds = sorted({part.seed for part in parts})
            widths = {seed: _width(next(part for part in parts if part.seed == seed)) for seed in seeds}
            for part in sorted(parts, key=lambda part: (part.seed, part.start, part.path.name)):
                first = sum(widths[seed] for seed in seeds if seed < part.seed)
                yield from _samples(part, first, widths[part.seed], notes)


def _is_output(path: Path) -> bool:
    row = lines.first_object(path)
    return row is not None and all(key in row for key in _REQUIRED) and isinstance(row["code"], list)


def _part(path: Path) -> _Part:
    match = _NAME.fullmatch(plain_name(path))
    if match is None:
        return _Part(path, 0, 0, None, (str(path),))
    return _Part(
        path,
        int(match["seed"]),
        int(match["start"] or 0),
        float(match["temperature"]),
        (str(path.parent), match["split"], match["prompt"], match["temperature"]),
    )


def _width(part: _Part) -> int:
    """Texts of a line."""
    row = lines.first_object(part.path)
    return len(row["code"]) if row else 0


def _model(path: Path) -> str:
    """The run and its step, by the folders."""
    parts = path.parts
    if "eval_results" not in parts:
        return ""
    where = parts.index("eval_results")
    return "/".join([*parts[max(where - 1, 0) : where], *parts[where + 1 : -2]])


def _samples(part: _Part, first: int, width: int, notes: Notes) -> Iterator[LoggedSample]:
    asked = {} if part.temperature is None else {"temperature": part.temperature}
    stream = Stream(_model(part.path), part.path.parent.name, asked, _FORMAT)
    for number, row in lines.objects(part.path, notes):
        place = f"{part.path}:{number}"
        lines.required(row, _REQUIRED, place, _FORMAT)
        texts = row["code"]
        if len(texts) != width:
            raise InputError(
                f"{place}: {len(texts)} texts in 'code', but {width} on the first line; allowed: as many on each",
                "were files of two runs joined? Nothing was imported",
            )
        answers, scores, ends = (_list(row, key, width, place) for key in ("pred", "score", "finish_reason"))
        document = _document(row)
        for position, text in enumerate(texts):
            yield LoggedSample(
                stream=stream,
                document=document,
                sample=first + position,
                text=str(text),
                place=place,
                finish="unknown" if ends is None else end_of(ends[position], notes, place),
                verdicts=_verdict(scores, answers, position),
            )


def _list(row: lines.Object, key: str, width: int, place: str) -> list[Any] | None:
    values = row.get(key)
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != width:
        raise InputError(f"{place}: {key!r} has not one entry for each of the {width} texts in 'code'")
    return values


def _verdict(scores: list[Any] | None, answers: list[Any] | None, position: int) -> dict[str, Verdict]:
    if scores is None or not isinstance(scores[position], bool):
        return {}
    answer = None if answers is None or answers[position] is None else str(answers[position])
    return {"math_eval": Verdict(float(scores[position]), answer)}


def _document(row: lines.Object) -> Document:
    prompt = row.get("question") or row.get("problem")
    return Document(row.get("idx"), True, prompt if isinstance(prompt, str) else None, False, (), golds_of(row["gt"]))
