"""Rows of word problems of primary school, whose golds are numbers: GSM8K, SVAMP and MAWPS, each in its own layout."""

from __future__ import annotations

import re
from typing import Any

from searchlens.benchmarks.questions import Question
from searchlens.benchmarks.rows import BenchmarkFile, Layout, RawRow, Row, RowError, layout_of, tags_of, text_of, value

WORKED = Layout("openai/grade-school-math; openai/gsm8k on the hub", {"question": "question", "gold": "answer"})
IN_TWO_PARTS = Layout(
    "SVAMP.json; ChilleD/SVAMP on the hub", {"story": "Body", "question": "Question", "gold": "Answer"}
)
WITH_PLACEHOLDERS = Layout(
    "cv_mawps of arkilpatel/SVAMP", {"question": "Question", "numbers": "Numbers", "gold": "Answer"}
)

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)


def gsm8k(file: BenchmarkFile) -> list[Row]:
    """Questions whose gold stands behind ``####`` at the end of a worked answer, perhaps with commas in thousands."""
    layout = layout_of(file, (WORKED,))

    def convert(name: str, row: RawRow) -> Row:
        worked = text_of(value(row, layout.fields["gold"])) or ""
        if "####" not in worked:
            raise RowError("no gold behind '####' in 'answer'")
        return _row(name, text_of(row["question"]), worked.rpartition("####")[2].replace(",", ""), row)

    return file.read(convert)


def svamp(file: BenchmarkFile) -> list[Row]:
    """Questions in two parts, a story and what is asked; a comma joins them where the story ends without a stop."""
    layout = layout_of(file, (IN_TWO_PARTS,))

    def convert(name: str, row: RawRow) -> Row:
        story, asked = (text_of(value(row, layout.fields[part])) for part in ("story", "question"))
        if story and asked:
            asked = f"{story}{'' if story[-1] in '.?!,' else ','} {asked}"
        return _row(name, asked, value(row, layout.fields["gold"]), row)

    return file.read(convert)


def mawps(file: BenchmarkFile) -> list[Row]:
    """Questions with ``number0``, ``number1`` … in place of the numbers, which stand in a field of their own."""
    layout = layout_of(file, (WITH_PLACEHOLDERS,))

    def convert(name: str, row: RawRow) -> Row:
        numbers = [_number(number) for number in str(value(row, layout.fields["numbers"])).split()]

        def spelled(place: re.Match[str]) -> str:
            if int(place[1]) >= len(numbers) or numbers[int(place[1])] is None:
                raise RowError(f"no {place[0]} in 'Numbers'")
            return str(numbers[int(place[1])])

        asked = text_of(value(row, layout.fields["question"])) or ""
        asked = re.sub(r"\bnumber(\d+)\b", spelled, asked)
        return _row(name, re.sub(r" +(?=[.,?!;:](?:\s|$))", "", asked), value(row, layout.fields["gold"]), row)

    return file.read(convert)


def _row(name: str, asked: str | None, gold: Any, row: RawRow) -> Row:
    if not asked:
        raise RowError("no question")
    number = _number(gold)
    if number is None:
        raise RowError("its gold is not a number")
    return Row.of(Question(name, asked, number, tags=_tags(row)))


def _number(content: Any) -> str | None:
    """A number without spaces, and without a fraction of zero: ``27.0`` is ``27``; None if it is no number."""
    text = "" if isinstance(content, bool) or content is None else str(content).strip()
    if not _NUMBER.fullmatch(text):
        return None
    whole, _, fraction = text.partition(".")
    return text if fraction.strip("0") else str(int(whole or 0))


def _tags(row: RawRow) -> dict[str, Any]:
    tags = tags_of(row)
    for tag, name in (("source_id", "ID"), ("subject", "Type")):
        if text := text_of(row.get(name)):
            tags[tag] = text
    return tags
