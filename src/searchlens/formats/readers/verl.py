"""Rollouts and validation generations of verl: a JSON line for each sample, a file for each step of training."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from searchlens.catalogue import reader
from searchlens.formats.readers import lines
from searchlens.formats.readers.fields import Prompts, Right, gold_of, last_asked, numbers_in
from searchlens.formats.readers.folders import candidates, plain_name
from searchlens.formats.readers.logged import Document, LoggedSample, Notes, Stream
from searchlens.store.parquet import columns_of, rows

_NOT_NUMBERS = ("input", "output", "gts", "step")
_ANSWERS = ("pred", "extracted_answer", "answer")


@reader(
    "verl",
    title="rollouts and validation generations of verl",
    versions="verl b178a3cd (2026-01-29)",
    ran=False,
    wishes=("right",),
)
class VerlReader:
    """Folders of ``<step>.jsonl``, and the Parquet files that verl's own generation script writes.

    Each step is another model, and so another stream. A question is known by its prompt alone, and its samples are
    numbered in the order of lines.
    """

    def files(self, path: Path) -> list[Path]:
        """Rollouts: the path itself, or all of them in a folder and below it."""
        return candidates(path, r"(\d+\.jsonl|.+\.parquet)", _is_rollout)

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples, step by step; refuses a line without the number that ``right`` names."""
        right = Right(wishes.get("right"))
        for path in sorted(files, key=lambda path: (str(path.parent), _step(path), path.name)):
            if _is_generated(path):
                yield from _generated(path, notes)
            else:
                yield from _rollouts(path, right, notes)


def _is_rollout(path: Path) -> bool:
    row = lines.first_object(path)
    if row is None:
        return _is_generated(path)
    return "input" in row and "output" in row and ("score" in row or "gts" in row)


def _is_generated(path: Path) -> bool:
    columns = columns_of(path)
    return "responses" in columns and "prompt" in columns


def _step(path: Path) -> int:
    match = re.match(r"\d+", plain_name(path))
    return int(match[0]) if match else 0


def _rollouts(path: Path, right: Right, notes: Notes) -> Iterator[LoggedSample]:
    prompts, streams = Prompts(), dict[Any, Stream]()
    for number, row in lines.objects(path, notes):
        place = f"{path}:{number}"
        lines.required(row, ("input", "output"), place, "verl's rollouts")
        step = row.get("step", _step(path))
        stream = streams.setdefault(step, Stream(f"step {step}", path.parent.name, {}, "verl"))
        document, sample = prompts.next(str(row["input"]), row.get("gts"))
        answer = next((row[key] for key in _ANSWERS if row.get(key) is not None), None)
        yield LoggedSample(
            stream=stream,
            document=document,
            sample=sample,
            text=str(row["output"]),
            place=place,
            verdicts=right.verdicts(row, answer, place),
            numbers=numbers_in(row, _NOT_NUMBERS),
        )


def _generated(path: Path, notes: Notes) -> Iterator[LoggedSample]:
    """Rows of the data set with a list of responses each."""
    wanted = ("prompt", "responses", "data_source", "reward_model", "extra_info")
    streams: dict[str, Stream] = {}
    for place, row in rows(path, wanted):
        notes.at(place, row)
        task = str(row.get("data_source") or "")
        stream = streams.setdefault(task, Stream("", task, {}, "verl"))
        index = (row.get("extra_info") or {}).get("index")
        gold = gold_of((row.get("reward_model") or {}).get("ground_truth"))
        document = Document(index, index is not None, last_asked(row["prompt"]), True, (), gold)
        for sample, text in enumerate(row["responses"] or ()):
            yield LoggedSample(stream, document, sample, text, place)
