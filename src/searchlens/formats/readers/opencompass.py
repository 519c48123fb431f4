"""Predictions of OpenCompass: a JSON object for each data set and model, with a member for each row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers.fields import InFolders, beside, count_of, golds_of, of_texts, plain_name, value_of
from searchlens.formats.readers.lines import kind, opened, walked
from searchlens.formats.readers.logged import Document, LoggedSample, Notes, Stream, Verdict

_BEGINNING = re.compile(rb'\s*\{\s*"\d+"\s*:\s*\{')
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
        if kind(path) in ("zip", "parquet"):
            return False
        with opened(path) as file:
            if not _BEGINNING.match(file.read(4096).removeprefix(b"\xef\xbb\xbf")):
                return False
        try:
            with walked(path, Notes()) as text:
                row = next((text.value() for _ in text.members()), None)
        except InputError:
            return False
        return isinstance(row, dict) and "prediction" in row

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:  # noqa: ARG002
        """The samples, data set by data set; refuses missing parts, and verdicts on other rows than these."""
        for folder, name, paths in _sets(files):
            for path in sorted(folder.glob("tmp_*")):
                notes.add("a run is not finished, and its temporary file was left out", str(path))
            yield from _samples(folder, name, paths, notes)


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
            raise InputError(f"{folder}: part {name}_{missing}.json is missing", "rows are numbered through all parts")
        found.append((folder, name, [parts[number] for number in numbers]))
    return found


def _samples(folder: Path, name: str, paths: Sequence[Path], notes: Notes) -> Iterator[LoggedSample]:
    stream = Stream(folder.name, name, {}, "OpenCompass")
    verdicts = _verdicts(folder, name, notes)
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
            "evaluate these predictions again, or move the folder results away; nothing was imported",
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


def _verdicts(folder: Path, data_set: str, notes: Notes) -> dict[int, Verdict]:
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
