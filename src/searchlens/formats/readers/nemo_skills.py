"""Outputs of NeMo-Skills, a file for each seed, and predictions of OpenCompass, one for each data set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers import fields, lines
from searchlens.formats.readers.fields import InFolders, beside, count_of, golds_of, of_texts, plain_name, value_of
from searchlens.formats.readers.lines import walked
from searchlens.formats.readers.logged import Document, LoggedSample, Notes, Stream, Verdict

# ---- NeMo-Skills

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

    def is_row(self, row: Mapping[str, Any]) -> bool:
        """Whether the lines have generations, or verdicts on them."""
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
                        "--partial reads its samples as well",
                    )
                notes.add("a file that is still being written was read as far as it goes", str(path))
            stream = Stream("", folder.name, {}, "NeMo-Skills")
            for rank, output in _ranked(outputs, folder, notes):
                yield from _nemo_samples(output, rank, stream, wishes, notes)


def _ranked(outputs: Sequence[_Output], folder: Path, notes: Notes) -> Iterator[tuple[int, _Output]]:
    """Each output with the rank of its seed; the parts of an output that is there as a whole are left out."""
    whole = {output.seed for output in outputs if output.chunk is None and not output.is_async}
    if None in whole and len(whole) > 1:
        raise InputError(
            f"{folder} has an output without a seed beside outputs with one: two policies",
            "name the files of one of them",
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


def _nemo_samples(
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
    return LoggedSample(
        stream, document, rank, text, place, finish, tokens, logprobs, _nemo_judged(row), numbers=numbers
    )


def _nemo_judged(row: lines.Object) -> dict[str, Verdict]:
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


# ---- OpenCompass

_PART = re.compile(r"(?P<name>.+)_(?P<part>\d+)\.json")

Row = dict[str, Any]


@reader(
    "opencompass",
    title="predictions of OpenCompass",
    versions="opencompass a5acc4bb (2026-08-19)",
    ran=False,
    wishes=(),
)
class OpencompassReader(InFolders):
    """Folders ``predictions/<model>``, with the verdicts in ``results`` beside them if details were dumped.

    With several runs the data set is repeated as a whole, so a sample's number is how often its prompt came before.
    """

    name = r"(?!tmp_).+\.json"  # unfinished ones left out

    def fits(self, path: Path) -> bool:
        """Whether the first member is a prediction."""
        try:
            with walked(path, Notes()) as text:
                row = next((text.value() for key in text.members() if key.isdecimal()), None)
        except InputError:
            return False
        return isinstance(row, dict) and "prediction" in row

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:  # noqa: ARG002
        """The samples, data set by data set; refuses missing parts, and verdicts on other rows than these."""
        for folder, name, paths in _sets(files):
            for path in sorted(folder.glob("tmp_*")):
                notes.add("a run is not finished, and its temporary file was left out", str(path))
            yield from _opencompass_samples(folder, name, paths, notes)


def _sets(files: Sequence[Path]) -> list[tuple[Path, str, list[Path]]]:
    """Folder, data set, and its files in order: one, or its parts ``_0.json``, ``_1.json``, … if there is no whole."""
    names = {(path.parent, plain_name(path)): path for path in files}
    sets: dict[tuple[Path, str], dict[int, Path]] = {}
    for (folder, name), path in names.items():
        match = _PART.fullmatch(name)
        is_part = match is not None and (folder, f"{match['name']}_0.json") in names
        if match is None or not is_part:
            sets.setdefault((folder, name.removesuffix(".json")), {})[-1] = path
        elif (folder, f"{match['name']}.json") not in names:
            sets.setdefault((folder, match["name"]), {})[int(match["part"])] = path
    found = []
    for (folder, name), parts in sorted(sets.items()):
        numbers = sorted(parts)
        if numbers[0] == 0 and numbers != list(range(len(numbers))):
            missing = next(number for number in range(len(numbers)) if number not in parts)
            raise InputError(f"{folder}: part {name}_{missing}.json is missing", "copy every part")
        found.append((folder, name, [parts[number] for number in numbers]))
    return found


def _opencompass_samples(folder: Path, name: str, paths: Sequence[Path], notes: Notes) -> Iterator[LoggedSample]:
    stream = Stream(folder.name, name, {}, "OpenCompass")
    verdicts = _opencompass_verdicts(folder, name, notes)
    first_index: dict[str, int] = {}
    counts: dict[str, int] = {}
    index = -1
    for index, (place, row) in enumerate(_rows(paths, notes)):
        prompt = _prompt(row.get("origin_prompt"))
        key = prompt if prompt is not None else str(index)
        document = Document(first_index.setdefault(key, index), True, prompt, True, (), golds_of(row.get("gold")))
        texts = row["prediction"] if isinstance(row["prediction"], list) else [row["prediction"]]
        said = of_texts(len(texts), {"opencompass": verdicts[index]} if index in verdicts else {}, {})
        tokens = count_of(row.get("res_length")) if len(texts) == 1 else None
        for text in texts:
            sample = counts.get(key, 0)
            counts[key] = sample + 1
            yield LoggedSample(stream, document, sample, str(text), place, tokens=tokens, **said)
    if verdicts and max(verdicts) != index:
        raise InputError(
            f"{paths[0]}: {index + 1} rows, but the results have verdicts on {max(verdicts) + 1}",
            "evaluate these predictions again, or move the folder results away",
        )


def _rows(paths: Sequence[Path], notes: Notes) -> Iterator[tuple[str, Row]]:
    """Rows in the order of their numbers, part by part; rows that come too early wait in memory."""
    for path in paths:
        waiting: dict[int, Row] = {}
        wanted = 0
        with walked(path, notes) as text:
            for key in text.members():
                row = text.value()
                if not key.isdecimal() or not isinstance(row, dict) or "prediction" not in row:
                    raise InputError(f"{path}, member {key[:40]!r}: no prediction; every member has a number and one")
                waiting[int(key)] = row
                while wanted in waiting:
                    notes.at(f"{path}, member {wanted}", waiting[wanted])
                    yield f"{path}, member {wanted}", waiting.pop(wanted)
                    wanted += 1
        if waiting:
            raise InputError(f"{path}: member {wanted} is missing; members are numbered from 0 without gaps")


def _prompt(value: Any) -> str | None:
    """A prompt, or the last round of a human in a chat, whose keys are role and prompt."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    asked = [part for part in value if isinstance(part, dict) and part.get("role") in ("HUMAN", "user")]
    return str(asked[-1].get("prompt", asked[-1].get("content", ""))) if asked else None


def _opencompass_verdicts(folder: Path, data_set: str, notes: Notes) -> dict[int, Verdict]:
    """Verdicts by number of the row, where the results have details."""
    results = beside(folder.parent.parent / "results" / folder.name / f"{data_set}.json")
    if folder.parent.name != "predictions" or results is None:
        return {}
    found: dict[int, Verdict] = {}
    with walked(results, notes) as text:
        for key in text.members():
            if key != "details" or text.peek() not in ("{", "["):
                text.value()
                continue
            is_list = text.peek() == "["
            rows: Iterator[tuple[Any, Any]] = ((name, text.value()) for name in text.members())
            for number, row in enumerate(text.entries()) if is_list else rows:
                is_judged = isinstance(row, dict) and isinstance(row.get("correct"), bool | int | float)
                if is_judged and str(number).isdecimal():
                    answer = row.get("pred", row.get("predictions"))
                    verdict = Verdict(value_of(row["correct"]), answer if isinstance(answer, str) else None)
                    found[int(number)] = verdict
    return found
