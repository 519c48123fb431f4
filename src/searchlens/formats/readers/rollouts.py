"""Texts of trainings: completions of TRL, rollouts of verl, and outputs of the math evaluation of limit-of-RLVR."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from searchlens.catalogue import reader
from searchlens.errors import InputError
from searchlens.formats.readers import fields, lines
from searchlens.formats.readers.fields import InFolders, golds_of, last_asked, number_of
from searchlens.formats.readers.logged import Document, LoggedSample, Notes, Stream, Verdict
from searchlens.store.parquet import columns_of, rows

# ---- limit-of-RLVR

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

    def is_row(self, row: Mapping[str, Any]) -> bool:
        """Whether the lines have lists of texts."""
        return super().is_row(row) and isinstance(row["code"], list)

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:  # noqa: ARG002
        """The samples, seed by seed; refuses a line whose lists have different lengths."""
        series: dict[tuple[str, ...], list[_Part]] = {}
        for path in files:
            match = _NAME.fullmatch(fields.plain_name(path))
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
    split = fields.split_at(part.path, "eval_results")
    model = "/".join([*split[0].parts[-1:], *split[1].parts[:-2]]) if split else ""  # the run and its step
    stream = Stream(model, part.path.parent.name, asked, _FORMAT)
    for place, row in lines.objects(part.path, notes, LimitOfRlvrReader.keys, _FORMAT):
        texts = row["code"]
        if len(texts) != width:
            raise InputError(
                f"{place}: {len(texts)} texts in 'code', but {width} on the first line; allowed: as many on each",
                "divide it if files of two runs were joined",
            )
        answers, scores, ends = (_list(row, key, width, place) for key in ("pred", "score", "finish_reason"))
        prompt = row.get("question") or row.get("problem")
        prompt = prompt if isinstance(prompt, str) else None
        document = Document(row.get("idx"), True, prompt, False, (), golds_of(row["gt"]))
        for position, text in enumerate(texts):
            finish = "unknown" if ends is None else fields.end_of(ends[position], notes, place)
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


# ---- TRL and verl

_TRL = ("step", "prompt", "completion")
_VERL = ("input", "output", "gts", "step")
"""Columns of each that are no numbers of a sample."""
_ANSWERS = ("pred", "extracted_answer", "answer")


@reader(
    "trl",
    title="completions logged by TRL (Parquet)",
    versions="TRL f2cd5771 (2026-07-24)",
    ran=False,
    wishes=("right",),
)
class TrlReader(InFolders):
    """Folders ``completions`` of TRL's trainers.

    A table is a window that the next one may share rows with: rows that the file before it has are left out.
    """

    name = r"completions_.+\.parquet"

    def fits(self, path: Path) -> bool:
        """Whether a file is a table with the columns of completions."""
        return set(_TRL) <= set(columns_of(path))

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples, step by step; refuses a table without the number that ``right`` names."""
        right = _Right(wishes.get("right"))
        before: dict[bytes, int] = {}
        for path in sorted(files, key=_order):
            shared, before = before, {}
            prompts, streams = _Prompts(), dict[Any, Stream]()
            for place, row in rows(path, columns_of(path)):
                notes.at(place, row)
                name = _digest(row)
                before[name] = before.get(name, 0) + 1
                if shared.get(name, 0):
                    shared[name] -= 1
                    notes.add("a row that the table before it has was left out", place)
                    continue
                step, text = row["step"], _text(row["completion"])
                stream = streams.setdefault(step, Stream(f"step {step}", path.parent.parent.name, {}, "TRL"))
                document, sample = prompts.next(last_asked(row["prompt"]) or "", None)
                said, numbers = right.verdicts(row, None, place), _numbers(row, _TRL)
                yield LoggedSample(stream, document, sample, text, place, verdicts=said, numbers=numbers)


def _digest(row: dict[str, Any]) -> bytes:
    """What tells a row from others; its step is that of writing, and no part of it."""
    content = repr([value for key, value in row.items() if key != "step"])
    return blake2b(content.encode(errors="surrogatepass"), digest_size=16).digest()


def _text(completion: Any) -> str:
    """A completion, or the messages of the model in it."""
    if isinstance(completion, str):
        return completion
    said = [message for message in completion or () if message.get("role") == "assistant"]
    return "".join(fields.parts_of(message.get("content"))[1] for message in said)


@reader(
    "verl",
    title="rollouts and validation generations of verl",
    versions="verl b178a3cd (2026-01-29)",
    ran=False,
    wishes=("right",),
)
class VerlReader(InFolders):
    """Folders of ``<step>.jsonl``, and the Parquet files that verl's own generation script writes.

    The samples of a question are numbered in the order of lines.
    """

    name = r"(\d+\.jsonl|.+\.parquet)"

    def fits(self, path: Path) -> bool:
        """Whether a line has input and output, or a table responses to prompts."""
        row = lines.first_object(path)
        if row is None:
            return _is_generated(path)
        return "input" in row and "output" in row and ("score" in row or "gts" in row)

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples, step by step; refuses a line without the number that ``right`` names."""
        right = _Right(wishes.get("right"))
        for path in sorted(files, key=_order):
            yield from _generated(path, notes) if _is_generated(path) else _rollouts(path, right, notes)


def _is_generated(path: Path) -> bool:
    return {"responses", "prompt"} <= set(columns_of(path))


def _order(path: Path) -> tuple[str, int, str]:
    """Folder by folder, step by step."""
    return str(path.parent), _step(path), path.name


def _step(path: Path) -> int:
    match = re.match(r"\d+", path.name) or re.search(r"\d+(?=\.parquet$)", path.name)
    return int(match[0]) if match else 0


def _rollouts(path: Path, right: _Right, notes: Notes) -> Iterator[LoggedSample]:
    prompts, streams = _Prompts(), dict[Any, Stream]()
    for place, row in lines.objects(path, notes, ("input", "output"), "verl's rollouts"):
        step = row.get("step", _step(path))
        stream = streams.setdefault(step, Stream(f"step {step}", path.parent.name, {}, "verl"))
        document, sample = prompts.next(str(row["input"]), row.get("gts"))
        answer = next((row[key] for key in _ANSWERS if row.get(key) is not None), None)
        said, numbers = right.verdicts(row, answer, place), _numbers(row, _VERL)
        yield LoggedSample(stream, document, sample, str(row["output"]), place, verdicts=said, numbers=numbers)


def _generated(path: Path, notes: Notes) -> Iterator[LoggedSample]:
    """Rows of the data set with a list of responses each."""
    wanted = ("prompt", "responses", "data_source", "reward_model", "extra_info")
    streams: dict[str, Stream] = {}
    for place, row in rows(path, wanted):
        notes.at(place, row)
        task = str(row.get("data_source") or "")
        stream = streams.setdefault(task, Stream("", task, {}, "verl"))
        index = (row.get("extra_info") or {}).get("index")
        gold = _gold_of((row.get("reward_model") or {}).get("ground_truth"))
        document = Document(index, index is not None, last_asked(row["prompt"]), True, (), gold)
        for sample, text in enumerate(row["responses"] or ()):
            yield LoggedSample(stream, document, sample, text, place)


_COMPARED: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_RULE = re.compile(r"\s*([\w./-]+)\s*(==|>=|<=|>|<)\s*(true|false|-?[\d.]+(?:e-?\d+)?)\s*", re.IGNORECASE)


class _Right:
    """A rule that makes a verdict of a number: ``acc == 1`` or ``score >= 0.5``; an ``InputError`` if it is none.

    A reward may hold terms for format or length, so that none counts as a verdict without a rule.
    """

    def __init__(self, rule: str | None) -> None:
        self._rule: tuple[str, Callable[[float, float], bool], float] | None = None
        if rule is None:
            return
        match = _RULE.fullmatch(rule)
        if match is None:
            raise InputError(
                f"right is {rule!r}; allowed: a name, one of {', '.join(_COMPARED)}, and a number",
                "for example 'acc == 1' or 'score >= 0.5'",
            )
        word = match[3].lower()
        try:
            limit = float({"true": "1", "false": "0"}.get(word, word))
        except ValueError:
            raise InputError(f"right is {rule!r}: {word!r} is no number") from None
        self._rule = match[1], _COMPARED[match[2]], limit

    def verdicts(self, row: Mapping[str, Any], answer: Any, place: str) -> dict[str, Verdict]:
        """The verdict of the rule on a row, under the name of its number; none without a rule. Refuses a row without
        the number.
        """
        if self._rule is None:
            return {}
        name, compare, limit = self._rule
        if name not in row:
            raise InputError(f"{place}: no {name!r}, which --right names; found: {', '.join(list(row)[:12])}")
        found = row[name]
        number = float(found) if isinstance(found, bool) else number_of(found)
        value = None if number is None else float(compare(number, limit))
        return {name: Verdict(value, None if answer is None else str(answer))}


class _Prompts:
    """Questions known by their prompts alone: the document of each, and how many samples of it came so far."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Document, int]] = {}

    def next(self, prompt: str, gold: Any) -> tuple[Document, int]:
        """The document of a prompt, and the number of its next sample."""
        document, number = self._known.get(prompt) or (Document(None, False, prompt, True, (), _gold_of(gold)), 0)
        self._known[prompt] = document, number + 1
        return document, number


def _gold_of(value: Any) -> tuple[str, ...]:
    """Right answers of a reward function's ground truth, which may be an object around them."""
    if isinstance(value, Mapping):
        value = next((value[key] for key in ("ground_truth", "target", "answer", "gold") if key in value), None)
    return golds_of(value)


def _numbers(row: Mapping[str, Any], without: tuple[str, ...]) -> dict[str, float]:
    """All numbers of a row but some; true is 1 and false 0."""
    found = {k: float(v) if isinstance(v, bool) else number_of(v) for k, v in row.items() if k not in without}
    return {key: number for key, number in found.items() if number is not None}
