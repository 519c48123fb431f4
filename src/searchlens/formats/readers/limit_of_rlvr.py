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
from searchlens.formats.readers.fields import InFolders, end_of, golds_of, plain_name, split_at
from searchlens.formats.readers.logged import Document, LoggedSample, Notes, Stream, Verdict

_NAME = re.compile(
    r"(?P<split>[^_]+)_(?P<prompt>.+)_(?P<limit>-?\d+)_seed(?P<seed>\d+)_t(?P<temperature>\d+(\.\d+)?)"
    r"(_s(?P<start>-?\d+)_e(?P<end>-?\d+))?\.jsonl"
)
_FORMAT = "limit-of-RLVR and Qwen2.5-Math"


@dataclass(frozen=True)
class _Part:
    """A file: one seed, and of the questions those from ``start`` on."""

    path: Path
    seed: int
    start: int
    temperature: float | None


@reader(
    "limit_of_rlvr",
    title="outputs of limit-of-RLVR and Qwen2.5-Math",
    versions="limit-of-RLVR fd2cf37 (2025-05-25)",
    ran=False,
    wishes=("partial",),
)
class LimitOfRlvrReader(InFolders):
    """Folders ``eval_results/…/<benchmark>`` with files ``test_<prompt>_<limit>_seed<seed>_t<temperature>_….jsonl``.

    A sample's number is its place in the line plus the number of texts under smaller seeds. Texts are stripped, and cut
    at stop words, some of which ("assistant", "user") may occur in a text that went on.
    """

    name = r".+_seed\d+_t.+\.jsonl"
    keys = ("code", "pred", "gt")

    def fits(self, path: Path) -> bool:
        """Whether the lines have lists of texts."""
        row = lines.first_object(path)
        return super().fits(path) and row is not None and isinstance(row["code"], list)

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:  # noqa: ARG002
        """The samples, seed by seed; refuses a line whose lists have different lengths."""
        series: dict[tuple[str, ...], list[_Part]] = {}
        for path in files:
            match = _NAME.fullmatch(plain_name(path))
            part, key = _Part(path, 0, 0, None), [str(path)]
            if match is not None:
                part = _Part(path, int(match["seed"]), int(match["start"] or 0), float(match["temperature"]))
                key = [str(path.parent), match["split"], match["prompt"], match["temperature"]]
            series.setdefault(tuple(key), []).append(part)
        notes.add("texts of this format are stripped and cut at stop words")
        for _, parts in sorted(series.items()):
            seeds = sorted({part.seed for part in parts})
            heads = {seed: lines.first_object(next(p.path for p in parts if p.seed == seed)) for seed in seeds}
            widths = {seed: len(row["code"]) if row else 0 for seed, row in heads.items()}
            for part in sorted(parts, key=lambda part: (part.seed, part.start, part.path.name)):
                first = sum(widths[seed] for seed in seeds if seed < part.seed)
                yield from _samples(part, first, widths[part.seed], notes)


def _samples(part: _Part, first: int, width: int, notes: Notes) -> Iterator[LoggedSample]:
    asked = {} if part.temperature is None else {"temperature": part.temperature}
    split = split_at(part.path, "eval_results")
    model = "/".join([*split[0].parts[-1:], *split[1].parts[:-2]]) if split else ""  # the run and its step
    stream = Stream(model, part.path.parent.name, asked, _FORMAT)
    for place, row in lines.objects(part.path, notes, LimitOfRlvrReader.keys, _FORMAT):
        texts = row["code"]
        if len(texts) != width:
            raise InputError(
                f"{place}: {len(texts)} texts in 'code', but {width} on the first line; allowed: as many on each",
                "were files of two runs joined? Nothing was imported",
            )
        answers, scores, ends = (_list(row, key, width, place) for key in ("pred", "score", "finish_reason"))
        prompt = row.get("question") or row.get("problem")
        prompt = prompt if isinstance(prompt, str) else None
        document = Document(row.get("idx"), True, prompt, False, (), golds_of(row["gt"]))
        for position, text in enumerate(texts):
            finish = "unknown" if ends is None else end_of(ends[position], notes, place)
            said = _verdict(scores, answers, position)
            yield LoggedSample(stream, document, first + position, str(text), place, finish, verdicts=said)


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
    answer = answers[position] if answers is not None else None
    return {"math_eval": Verdict(float(scores[position]), None if answer is None else str(answer))}
