"""Predictions of EvalScope with their reviews: lines in the order in which requests ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers import lines
from searchlens.formats.readers.fields import (
    Numbers,
    Verdicts,
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
from searchlens.formats.readers.folders import beside, candidates, plain_name, split_at
from searchlens.formats.readers.logged import Document, LoggedSample, Notes, Stream
from searchlens.store import yaml_text

_REQUIRED = ("index", "model_output")
_IDS = ("unique_id", "id", "question_id", "problem_id")


@dataclass(frozen=True)
class _Review:
    group: str | int | None = None
    generation: int | None = None
    prompt: str | None = None
    gold: tuple[str, ...] = ()
    verdicts: Verdicts = field(default_factory=dict)
    numbers: Numbers = field(default_factory=dict)


@reader(
    "evalscope",
    title="predictions of EvalScope",
    versions="evalscope fde259d2 (2026-08-22)",
    ran=False,
    wishes=("repeats",),
)
class EvalscopeReader:
    """Folders ``predictions/<model>``, with golds and verdicts in ``reviews`` beside them.

    Repeats of a question follow each other: the row with index i is sample i mod k of question i div k, where k is the
    number of repeats; the reviews say both themselves.
    """

    def files(self, path: Path) -> list[Path]:
        """Predictions: the path itself, or all of them in a folder and below it."""
        return candidates(path, r".+\.jsonl", lambda file: lines.has_keys(file, _REQUIRED))

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples, file by file; verdicts of a file are in memory, texts are not."""
        for path in sorted(files):
            config = _config(path, notes)
            repeats = count_of(config.get("repeats")) or 1
            if "repeats" in wishes:
                repeats = _whole(wishes["repeats"])
            reviews = _reviews(path, notes)
            if not reviews:
                notes.add(f"no reviews, so no golds and no verdicts; each question has {repeats} samples", str(path))
            asked = parameters(config.get("generation_config"))
            for number, row in lines.objects(path, notes):
                place = f"{path}:{number}"
                lines.required(row, _REQUIRED, place, "EvalScope's predictions")
                if not isinstance(row["index"], int):
                    raise InputError(f"{place}: index is {lines.named(row['index'])}; allowed: a whole number")
                stream = Stream(str(row.get("model") or path.parent.name), plain_name(path)[:-6], asked, "EvalScope")
                yield _sample(row, reviews.get(row["index"], _Review()), repeats, stream, place, notes)


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"repeats is {text!r}; allowed: a whole number, 1 or more")
    return int(text)


def _config(path: Path, notes: Notes) -> dict[str, Any]:
    split = split_at(path, "predictions")
    for folder in (split[0] / "configs", split[0]) if split else ():
        for file in sorted(folder.glob("task_config*.yaml")):
            try:
                content = yaml_text.read(file)
            except InputError as error:
                raise InputError(error.message, "nothing was imported") from None
            notes.at(str(file), content)
            return content if isinstance(content, dict) else {}
    return {}


def _reviews(path: Path, notes: Notes) -> dict[Any, _Review]:
    split = split_at(path, "predictions")
    file = beside(split[0] / "reviews" / split[1]) if split else None
    if file is None:
        return {}
    return {row.get("index"): _review(row) for _, row in lines.objects(file, notes)}


def _review(row: lines.Object) -> _Review:
    said = row.get("sample_score") or {}
    score = said.get("score") or {}
    status = score.get("status", said.get("status", "success"))
    metrics = score.get("value") or {}
    known = metrics if status in ("success", None) else dict.fromkeys(metrics)
    verdicts, numbers = judged(known, score.get("extracted_prediction"))
    return _Review(
        group=said.get("group_id"),
        generation=count_of(said.get("generation_index")),
        prompt=last_asked(row.get("input")) or None,
        gold=golds_of(row.get("target")),
        verdicts=verdicts,
        numbers=numbers,
    )


def _sample(row: lines.Object, review: _Review, repeats: int, stream: Stream, place: str, notes: Notes) -> LoggedSample:
    index = row["index"]
    output = row["model_output"] or {}
    choices = output.get("choices") or []
    if len(choices) > 1:
        notes.add("an answer has several choices; the first was taken", place)
    document = Document(
        **_identity(row, index // repeats if review.group is None else review.group),
        prompt=review.prompt or last_asked(row.get("messages")),
        is_templated=True,
        gold=review.gold,
    )
    sample = index % repeats if review.generation is None else review.generation
    verdicts, numbers = review.verdicts, review.numbers
    if output.get("error") or not choices:
        notes.add("a request failed", place)
        return LoggedSample(stream, document, sample, None, place, "failed", verdicts=verdicts, numbers=numbers)
    choice = choices[0]
    content = (choice.get("logprobs") or {}).get("content")
    logprobs = logprobs_of([token.get("logprob") for token in content]) if content else None
    tokens = count_of((output.get("usage") or {}).get("output_tokens")) if len(choices) == 1 else None
    return LoggedSample(
        stream=stream,
        document=document,
        sample=sample,
        text=joined(*parts_of((choice.get("message") or {}).get("content"))),
        place=place,
        finish=end_of(choice.get("stop_reason"), notes, place),
        tokens=len(logprobs) if tokens is None and logprobs else tokens,
        logprobs=logprobs if logprobs and tokens in (None, len(logprobs)) else None,
        verdicts=verdicts,
        numbers=numbers,
    )


def _identity(row: lines.Object, position: Any) -> dict[str, Any]:
    """The id in the metadata of the row, else the number of its group, which is a position."""
    metadata = row.get("metadata")
    own = next((metadata[key] for key in _IDS if key in metadata), None) if isinstance(metadata, dict) else None
    return {"id": position, "is_index": True} if own is None else {"id": own, "is_index": False}
