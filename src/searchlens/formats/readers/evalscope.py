"""Predictions of EvalScope with their reviews, and samples of Every Eval Ever with their aggregate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers import fields, lines
from searchlens.formats.readers.fields import InFolders, beside, plain_name, split_at
from searchlens.formats.readers.logged import Document, Finish, LoggedSample, Notes, Stream, Verdict
from searchlens.store import yaml_text

# ---- EvalScope

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
            content = yaml_text.read(file)
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


# ---- Every Eval Ever

_FORMAT = "Every Eval Ever"

Others = dict[tuple[str, int], dict[str, Verdict]]


@reader(
    "every_eval_ever",
    title="samples of Every Eval Ever (*_samples.jsonl)",
    versions="every_eval_ever 9bce4136 (2026-08-13), schemas 0.3.0",
    ran=False,
    wishes=(),
)
class EveryEvalEverReader(InFolders):
    """Files ``<uuid>_samples.jsonl`` with the aggregate ``<uuid>.json`` beside them, which has sampling parameters.

    The lines of the first metric are read as samples, those of other metrics as verdicts on them. A sample's number is
    ``sample`` or ``epoch`` in its metadata, else how often its id came before. What was converted from
    lm-evaluation-harness holds filtered texts, so that only its verdicts are kept.
    """

    name = r".+\.jsonl"
    keys = ("evaluation_id", "sample_id", "interaction_type", "input", "evaluation")

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:  # noqa: ARG002
        """The samples, file by file; refuses interactions of several turns."""
        for path in sorted(files):
            yield from _samples(path, notes)


def _samples(path: Path, notes: Notes) -> Iterator[LoggedSample]:
    name = plain_name(path)
    file = beside(path.with_name(name.replace("_samples.jsonl", ".json"))) if "_samples" in name else None
    aggregate = lines.whole(file, notes) if file else {}
    about = aggregate.get("eval_library") or {}
    library = str(about.get("name") or "")
    made_by = f"{library or _FORMAT} {about.get('version', '')}".strip()
    metric, others = _other_metrics(path, notes)
    streams: dict[tuple[str, str], Stream] = {}
    counts: dict[tuple[str, str], int] = {}
    for number, line in lines.raw(path):
        if _metric_of(line) not in (None, metric):
            continue
        place = f"{path}:{number}"
        row = lines.parsed(path, number, line, notes)
        lines.required(row, EveryEvalEverReader.keys, place, _FORMAT)
        key = (str(row.get("model_id") or ""), str(row.get("evaluation_name") or ""))
        if key not in streams:
            results = [result for result in aggregate.get("evaluation_results") or () if isinstance(result, dict)]
            same = [result for result in results if result.get("evaluation_name") == key[1]] or results
            asked = fields.parameters(
                *((one.get("generation_config") or {}).get("generation_args") for one in same[:1])
            )
            streams[key] = Stream(*key, asked, made_by)
        yield from _drawn(row, streams[key], counts, others, library, place, notes)


def _metric_of(line: bytes) -> str | None:
    """Name of a line's metric without parsing it: the result that it belongs to, else the evaluation."""
    name = lines.text_after(line, "evaluation_result_id")
    return lines.text_after(line, "evaluation_name") if name is None else name


def _other_metrics(path: Path, notes: Notes) -> tuple[str | None, Others]:
    """The first metric, and the verdicts of all others by id and number of the sample."""
    first: str | None = None
    verdicts: Others = {}
    counts: dict[tuple[str, str], int] = {}
    for number, line in lines.raw(path):
        name = _metric_of(line)
        first = first if first is not None else name
        if name in (None, first):
            continue
        row = lines.parsed(path, number, line, notes)
        sample_id = str(row.get("sample_id"))
        sample = _first(row, (str(name), sample_id), counts)
        verdicts.setdefault((sample_id, sample), {})[_scorer(row)] = _verdict(row)[0]
    return first, verdicts


def _first(row: lines.Object, name: tuple[str, str], counts: dict[tuple[str, str], int]) -> int:
    """Number of a line's first text: by its metadata, else after those of the lines with the same metric and id."""
    metadata = row.get("metadata") or {}
    texts = max(len(_texts(row)[0]), 1)
    for key, start in (("sample", 0), ("epoch", 1)):
        if str(metadata.get(key, "")).isdecimal():
            return (int(metadata[key]) - start) * texts
    first = counts.get(name, 0)
    counts[name] = first + texts
    return first


def _scorer(row: lines.Object) -> str:
    return str(row.get("evaluation_result_id") or row.get("evaluation_name") or "is_correct")


def _verdict(row: lines.Object) -> tuple[Verdict, dict[str, float]]:
    """Whether the sample is right, with the answer that was taken; the score where it is another number."""
    judged = row["evaluation"] if isinstance(row.get("evaluation"), dict) else {}
    taken = [part for part in row.get("answer_attribution") or () if part.get("is_terminal")]
    answer = taken[-1].get("extracted_value") if taken else None
    right, score = fields.value_of(judged.get("is_correct")), fields.number_of(judged.get("score"))
    return Verdict(right, answer), ({} if score is None or score == right else {"score": score})


def _drawn(
    row: lines.Object,
    stream: Stream,
    counts: dict[tuple[str, str], int],
    others: Others,
    library: str,
    place: str,
    notes: Notes,
) -> Iterator[LoggedSample]:
    if row["interaction_type"] != "single_turn":
        raise InputError(
            f"{place}: interaction_type {row['interaction_type']!r}; allowed: 'single_turn'",
            "conversations of several turns are no samples of one question",
        )
    sample_id = str(row["sample_id"])
    texts, reasonings = _texts(row)
    first = _first(row, ("", sample_id), counts)
    is_filtered = "lm_eval" in library or "lm-eval" in library or "filter" in (row.get("metadata") or {})
    if is_filtered:
        notes.add("texts were filtered by lm-evaluation-harness; only their verdicts are kept", place)
    verdict, numbers = _verdict(row)
    verdicts = {_scorer(row): verdict, **others.get((sample_id, first), {})}
    usage = row.get("token_usage") or {}
    failed = row.get("error")
    tokens = fields.count_of(usage.get("output_tokens")) if len(texts) <= 1 and not is_filtered else None
    said = fields.of_texts(max(len(texts), 1), verdicts, numbers)
    asked: Mapping[str, Any] = row["input"]
    choices, golds = fields.choices_of(asked.get("choices")), fields.golds_of(asked.get("reference"))
    document = Document(sample_id, sample_id.isdecimal(), asked.get("raw"), is_filtered, choices, golds)
    for number, text in enumerate(texts or [None]):
        reasoning = reasonings[number] if number < len(reasonings) else None
        kept = None if is_filtered or text is None or (failed and not text) else fields.joined(reasoning, text)
        finish: Finish = "failed" if failed else "unknown"
        yield LoggedSample(stream, document, first + number, kept, place, finish, tokens, **said)


def _texts(row: lines.Object) -> tuple[list[str], list[str]]:
    output = row.get("output") or {}
    return output.get("raw") or [], output.get("reasoning_trace") or []
