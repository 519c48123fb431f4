"""Predictions of EvalScope with their reviews: lines in the order in which requests ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers import fields, lines
from searchlens.formats.readers.fields import InFolders, beside, plain_name, split_at
from searchlens.formats.readers.logged import Document, LoggedSample, Notes, Stream
from searchlens.store import yaml_text

_IDS = ("unique_id", "id", "question_id", "problem_id")


@dataclass(frozen=True)
class _Review:
    group: str | int | None = None
    generation: int | None = None
    prompt: str | None = None
    gold: tuple[str, ...] = ()
    verdicts: fields.Verdicts = field(default_factory=dict)
    numbers: fields.Numbers = field(default_factory=dict)


@reader(
    "evalscope",
    title="predictions of EvalScope",
    versions="evalscope fde259d2 (2026-08-22)",
    ran=False,
    wishes=("repeats",),
)
class EvalscopeReader(InFolders):
    """Folders ``predictions/<model>``, with golds and verdicts in ``reviews`` beside them.

    Repeats of a question follow each other: the row with index i is sample i mod k of question i div k, where k is the
    number of repeats; the reviews say both themselves.
    """

    name = r".+\.jsonl"
    keys = ("index", "model_output")

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples, file by file; verdicts of a file are in memory, texts are not."""
        for path in sorted(files):
            config = _config(path, notes)
            repeats = fields.count_of(config.get("repeats")) or 1
            if "repeats" in wishes:
                if not wishes["repeats"].isdecimal() or int(wishes["repeats"]) < 1:
                    raise InputError(f"repeats is {wishes['repeats']!r}; allowed: a whole number, 1 or more")
                repeats = int(wishes["repeats"])
            reviews = _reviews(path, notes)
            if not reviews:
                notes.add(f"no reviews, so no golds and no verdicts; each question has {repeats} samples", str(path))
            asked = fields.parameters(config.get("generation_config"))
            for place, row in lines.objects(path, notes, self.keys, "EvalScope's predictions"):
                if not isinstance(row["index"], int):
                    raise InputError(f"{place}: index is {lines.named(row['index'])}; allowed: a whole number")
                stream = Stream(str(row.get("model") or path.parent.name), plain_name(path)[:-6], asked, "EvalScope")
                yield _sample(row, reviews.get(row["index"], _Review()), repeats, stream, place, notes)


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
    """What the file beside the predictions says, by the index of their rows."""
    split = split_at(path, "predictions")
    file = beside(split[0] / "reviews" / split[1]) if split else None
    found: dict[Any, _Review] = {}
    for _, row in lines.objects(file, notes) if file else ():
        said = row.get("sample_score") or {}
        score = said.get("score") or {}
        status = score.get("status", said.get("status", "success"))
        metrics = score.get("value") or {}
        known = metrics if status in ("success", None) else dict.fromkeys(metrics)
        prompt, golds = fields.last_asked(row.get("input")) or None, fields.golds_of(row.get("target"))
        verdicts, numbers = fields.judged(known, score.get("extracted_prediction"))
        generation = fields.count_of(said.get("generation_index"))
        found[row.get("index")] = _Review(said.get("group_id"), generation, prompt, golds, verdicts, numbers)
    return found


def _sample(row: lines.Object, review: _Review, repeats: int, stream: Stream, place: str, notes: Notes) -> LoggedSample:
    index = row["index"]
    output = row["model_output"] or {}
    choices = output.get("choices") or []
    if len(choices) > 1:
        notes.add("an answer has several choices; the first was taken", place)
    # The id in the metadata of the row, else the number of its group, which is a position.
    metadata = row.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    position = index // repeats if review.group is None else review.group
    own = next((metadata[key] for key in _IDS if key in metadata), None)
    prompt = review.prompt or fields.last_asked(row.get("messages"))
    document = Document(position if own is None else own, own is None, prompt, True, (), review.gold)
    sample = index % repeats if review.generation is None else review.generation
    verdicts, numbers = review.verdicts, review.numbers
    if output.get("error") or not choices:
        notes.add("a request failed", place)
        return LoggedSample(stream, document, sample, None, place, "failed", verdicts=verdicts, numbers=numbers)
    choice = choices[0]
    logprobs = fields.token_logprobs(choice.get("logprobs") or {})
    tokens = fields.count_of((output.get("usage") or {}).get("output_tokens")) if len(choices) == 1 else None
    text = fields.joined(*fields.parts_of((choice.get("message") or {}).get("content")))
    finish = fields.end_of(choice.get("stop_reason"), notes, place)
    is_whole = logprobs and tokens in (None, len(logprobs))
    tokens = len(logprobs) if tokens is None and logprobs else tokens
    logprobs = logprobs if is_whole else None
    return LoggedSample(stream, document, sample, text, place, finish, tokens, logprobs, verdicts, numbers=numbers)
