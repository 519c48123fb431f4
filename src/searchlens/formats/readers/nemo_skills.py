"""Outputs of NeMo-Skills: a file for each seed, a line for each question."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers import fields, lines
from searchlens.formats.readers.fields import InFolders, plain_name
from searchlens.formats.readers.logged import Document, LoggedSample, Notes, Stream, Verdict

_NAME = re.compile(r"output(?:-rs(?P<seed>\d+))?(?:_chunk_(?P<chunk>\d+))?\.jsonl(?P<async>-async)?")
_QUESTION = ("problem", "question", "expected_answer", "num_generated_tokens", "finish_reason")
_JUDGED = re.compile(r"judge?ment\W*(yes|no)\b|^\W*(yes|no)\W*$", re.IGNORECASE)


@dataclass(frozen=True)
class _Output:
    path: Path
    seed: int | None
    chunk: int | None
    is_async: bool


@reader(
    "nemo_skills",
    title="outputs of NeMo-Skills (output-rs*.jsonl)",
    versions="NeMo-Skills 8b18f399 (2025-10-17)",
    ran=False,
    wishes=("partial", "id_key", "question_key", "gold_key"),
)
class NemoSkillsReader(InFolders):
    """Folders with ``output-rs0.jsonl``, ``output-rs1.jsonl``, …, of which each is one sample of every question.

    A sample's number is the rank of its seed, because seeds may have gaps. Sampling parameters stand in no row.
    """

    name = _NAME.pattern

    def fits(self, path: Path) -> bool:
        """Whether the lines have generations, or verdicts on them."""
        row = lines.first_object(path)
        if row is None:
            return False
        if "generation" in row or "_full_generation" in row:
            return any(key in row for key in _QUESTION)
        return "predicted_answer" in row and ("symbolic_correct" in row or "judgement" in row)

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples, seed by seed; ``partial`` also reads what is still being written. Refuses outputs with and
        without a seed in one folder.
        """
        folders: dict[Path, list[_Output]] = {}
        for path in files:
            found = _NAME.fullmatch(plain_name(path))
            seed, chunk = (int(found[name]) if found and found[name] else None for name in ("seed", "chunk"))
            output = _Output(path, seed, chunk, bool(found and found["async"]))
            folders.setdefault(path.parent, []).append(output)
        for folder, outputs in sorted(folders.items()):
            for path in (output.path for output in outputs if output.is_async):
                if "partial" not in wishes:
                    raise InputError(
                        f"{path} is still being written, or its run was stopped; allowed: files without '-async'",
                        "with the option partial its samples are read as well; nothing was imported",
                    )
                notes.add("a file that is still being written was read as far as it goes", str(path))
            stream = Stream("", folder.name, {}, "NeMo-Skills")
            for rank, output in _ranked(outputs, folder, notes):
                yield from _samples(output, rank, stream, wishes, notes)


def _ranked(outputs: Sequence[_Output], folder: Path, notes: Notes) -> Iterator[tuple[int, _Output]]:
    """Each output with the rank of its seed; the parts of an output that is there as a whole are left out."""
    whole = {output.seed for output in outputs if output.chunk is None and not output.is_async}
    if None in whole and len(whole) > 1:
        raise InputError(
            f"{folder} has an output without a seed beside outputs with one: two policies",
            "name the files of one of them; nothing was imported",
        )
    kept = [output for output in outputs if output.chunk is None or output.seed not in whole]
    if len(kept) < len(outputs):
        notes.add("parts were left out because the whole output is there", str(folder))
    seeds = sorted({output.seed for output in kept if output.seed is not None})
    if seeds and seeds != list(range(len(seeds))):
        notes.add(f"seeds are {', '.join(map(str, seeds))}; samples are numbered by their rank", str(folder))
    if not seeds and len({output.path for output in kept if output.chunk is None}) > 1:
        notes.add("names of files have no seeds; samples are numbered by the order of names", str(folder))
        yield from enumerate(sorted(kept, key=lambda output: output.path.name))
        return
    for output in sorted(kept, key=lambda output: (output.seed or 0, output.chunk or 0)):
        yield (seeds.index(output.seed) if output.seed is not None else 0), output


def _samples(
    output: _Output, rank: int, stream: Stream, wishes: Mapping[str, str], notes: Notes
) -> Iterator[LoggedSample]:
    is_whole = output.chunk is None and not output.is_async
    for number, line in lines.raw(output.path):
        place, row = f"{output.path}:{number}", lines.parsed(output.path, number, line, notes)
        if not row:
            notes.add("a line is an empty object, and was left out", place)
            continue
        if "generation" not in row and "_full_generation" not in row:
            lines.required(row, ("predicted_answer",), place, "NeMo-Skills")
        document = fields.document_of(row, wishes, number - 1 if is_whole else None)
        yield _sample(row, rank, document, place, stream, notes)


def _sample(row: lines.Object, rank: int, document: Document, place: str, stream: Stream, notes: Notes) -> LoggedSample:
    text = row.get("_full_generation", row.get("generation"))
    tokens = fields.count_of(row.get("num_generated_tokens"))
    logprobs = fields.logprobs_of(row.get("logprobs"))
    if logprobs and tokens is not None and len(logprobs) != tokens:
        notes.add("log-probabilities were left out: there is not one for each token", place)
        logprobs = None
    finish = fields.end_of(row.get("finish_reason"), notes, place)
    if text is not None:
        text = fields.joined(row.get("reasoning_content"), text)
        if not text and tokens == 0:
            notes.add("a request failed", place)
            finish = "failed"
    score = fields.number_of(row.get("reward_model_score"))
    numbers = {} if score is None else {"reward_model_score": score}
    return LoggedSample(stream, document, rank, text, place, finish, tokens, logprobs, _verdicts(row), numbers=numbers)


def _verdicts(row: lines.Object) -> dict[str, Verdict]:
    answer = row.get("predicted_answer")
    answer = None if answer is None else str(answer)
    verdicts = {}
    if isinstance(right := row.get("symbolic_correct"), bool):
        verdicts["symbolic"] = Verdict(float(right), answer)
    if isinstance(judgement := row.get("judgement"), str):
        match = _JUDGED.search(judgement)
        said = (match[1] or match[2]).lower() if match else None
        verdicts["judge"] = Verdict(None if said is None else float(said == "yes"), answer)
    return verdicts
