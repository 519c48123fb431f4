r"""Answers in LaTeX: the last ``\boxed{...}`` of a text, and golds in any of the layouts in which they circulate.

Golds are rewritten where math-verify would misread them: it takes ``4.5e33`` for 4.5 times e times 33.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from math import isnan
from typing import Any, Literal, NamedTuple

from searchlens.benchmarks.questions import BenchmarkFile, Layout, Question, RawRow, Row, RowError, tags_of, text_of

# ---- boxes

_BOX = re.compile(r"\\boxed(?![A-Za-z])\s*(\{?)")
_BRACE = re.compile(r"\\[\\{}]|[{}]")  # an escaped brace belongs to the answer
_SHALLOW = re.compile(r"(?:[^{}\\]++|\\.|\{(?:[^{}\\]++|\\.|\{[^{}\\]*+\})*+\})*+\}", re.DOTALL)
_UNBRACED = re.compile(r"\\boxed(?![A-Za-z])\s*([^\s${}][^\s$]*?)(?=[.,;:]*(?:[\s$]|\\[)\]]|$))")
_SPACE = r"(?:\s|\$|\\[,;:()\[\] ]|\\q?quad(?![A-Za-z])|~)*"
_JOINT = re.compile(
    rf"\}}{_SPACE}(?:[,;]{_SPACE}(?:and\b)?|\\q?quad(?![A-Za-z])|and\b|,?\s*\\text\s*\{{\s*,?\s*and\s*\}}"
    rf"|(?P<either>[,(]?{_SPACE}(?:or|\\text\s*\{{\s*or\s*\}})\b{_SPACE}(?:(?:maybe|perhaps|possibly)\b)?)){_SPACE}"
    rf"(?P<name>[A-Za-z](?:_\{{?\w+\}}?)?\s*=\s*)?\Z"
)
"""What joins two boxes: the brace that closes the first one, a comma, "and" or "or", and perhaps ``x =``."""
_WIDEST = 40
"""Most characters between two joined boxes."""
_LONGEST = 4096
"""Characters searched for the closing brace, so that a text of many open boxes is searched in linear time."""
_MOST = 64
"""Boxes looked at before the last one, for the same reason."""


class Box(NamedTuple):
    """A box in a text; a box that is not closed holds the rest of the text, and ends where the text ends."""

    start: int
    end: int
    content: str
    closed: bool


class FinalBox(NamedTuple):
    """What the boxes of a text state."""

    content: str | None
    """The answer, stripped; None if no box states one."""
    state: Literal["closed", "kept", "withdrawn", "hedged", "none", "absent"]
    """``closed``: the last box is closed and counts. ``kept``: the last box is open, and its content is a beginning of
    the last closed box's, which counts. ``withdrawn``: the last box is open and holds something else, so that the
    closed box before it does not count. ``hedged``: two different boxes are joined by "or". ``none``: there is no
    closed box. ``absent``: there is no box."""
    end: int = 0
    """Where the last box ends."""


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}``, stripped.

    None if there is no box, or if the last one is not closed. Of nested boxes the innermost of the last ones counts. An
    empty box gives an empty string. A box of more than ``_LONGEST`` characters counts as not closed.
    """
    box = next(_boxes(text, len(text)), None)
    return box.content if box and box.closed else None


def final_box(text: str, *, stopped: bool, is_blank: Callable[[str], bool] = lambda _: False) -> FinalBox:
    r"""The answer in the last boxes of a text.

    Boxes joined by a comma or "and" are one answer, in the order of the text; equal ones count once.

    A text that is cut while it repeats its answer ends in an open box whose content begins like that of the box before:
    the answer stands. Any other content of an open box replaces the answer, and is not known. ``\boxed 42`` is a box
    whose content ends at white space or a dollar sign; at the end of a text that was cut, it is open.

    Closed boxes whose content is blank are passed over, ``_MOST`` of them.
    """
    boxes = _boxes(text, len(text), is_blank)
    last = next(boxes, None)
    if last is None:
        return FinalBox(None, "absent")
    if not last.closed:
        last = _unbraced(text, last, stopped=stopped)
        if last.closed and is_blank(last.content):
            return FinalBox(None, "absent")
    if last.closed and not _may_be_joined(text, last):  # most texts
        return FinalBox(last.content, "closed", last.end)
    group, is_hedged = _joined_to(text, last)
    if last.closed:
        return FinalBox(None, "hedged", last.end) if is_hedged else FinalBox(_answer(group), "closed", last.end)
    closed = next((box for box in islice(boxes, _MOST) if box.closed and box.start < group[0].start), None)
    if closed is None:
        return FinalBox(None, "withdrawn" if len(group) > 1 else "none")
    answer = _answer(_joined_to(text, closed)[0])
    return FinalBox(answer, "kept") if answer.startswith(_answer(group)) else FinalBox(None, "withdrawn")


def _joined_to(text: str, last: Box) -> tuple[list[Box], bool]:
    r"""A box, behind the closed ones that are joined to it, at most ``_MOST``; and whether one box is an alternative to
    the next: "or" joins different contents, and not values of a name, such as ``x = \boxed{1}`` or ``x = \boxed{4}``.
    """
    group = [last]
    while len(group) < _MOST and _may_be_joined(text, group[0]):
        joint = _JOINT.search(text, max(0, group[0].start - _WIDEST), group[0].start)
        box = next(_boxes(text, joint.start()), None) if joint else None
        if joint is None or box is None or not box.closed or box.end != joint.start() + 1:
            break
        if joint["either"] and not joint["name"] and not ("=" in box.content and "=" in group[0].content):
            return group, box.content != group[0].content
        group.insert(0, box)
    return group, False


def _may_be_joined(text: str, box: Box) -> bool:
    """Whether a brace closes shortly before a box."""
    return text.rfind("}", max(0, box.start - _WIDEST), box.start) >= 0


def _answer(group: list[Box]) -> str:
    contents = [box.content for box in group]
    return ", ".join(dict.fromkeys(contents) if group[-1].closed else contents)


def _unbraced(text: str, box: Box, *, stopped: bool) -> Box:
    """The box as closed if it has no brace, and its content ends."""
    match = _UNBRACED.match(text, box.start)
    if match is None or (match.end() == len(text) and not stopped):
        return box
    return Box(box.start, match.end(), match[1], closed=True)


def _boxes(text: str, end: int, is_blank: Callable[[str], bool] = lambda _: False) -> Iterator[Box]:
    """The boxes that begin before a position, last first, without closed ones that are blank."""
    while (end := text.rfind("\\boxed", 0, end)) >= 0:
        if match := _BOX.match(text, end):
            inside = match.end()
            close = _closing(text, inside) if match[1] else -1
            if close < 0:
                yield Box(end, len(text), text[inside:].strip(), False)
            elif not is_blank(content := text[inside:close].strip()):
                yield Box(end, close + 1, content, True)


def _closing(text: str, start: int) -> int:
    """Position of the brace that closes one before ``start``, or -1."""
    limit = start - 1 + _LONGEST
    if match := _SHALLOW.match(text, start, limit):  # most answers
        return match.end() - 1
    depth = 1
    for brace in _BRACE.finditer(text, start, limit):
        depth += (brace[0] == "{") - (brace[0] == "}")
        if depth == 0:
            return brace.start()
    return -1


# ---- rows

_NUMBER = re.compile(r"(?<![\w.\\])(\d+(?:\.\d*)?|\.\d+)[eE]([+-]?\d{1,4})(?!\w|\.\d)", re.ASCII)


def in_latex(text: str) -> str:
    r"""The text with every number such as ``4.5e33`` or ``.5E-3`` as ``4.5 \times 10^{33}`` or ``0.5 \times 10^{-3}``.

    Whole numbers of more than four digits in the exponent, and numbers next to a letter, stay.
    """
    return _NUMBER.sub(_written_out, text) if "e" in text or "E" in text else text


def _written_out(number: re.Match[str]) -> str:
    mantissa = f"0{number[1]}" if number[1].startswith(".") else number[1]
    return rf"{mantissa} \times 10^{{{int(number[2])}}}"


def _layout(source: str, question: str, gold: str, boxed: bool = False) -> Layout:
    return Layout(source, {"question": question, "gold": gold}, boxed)


LAYOUTS = (
    _layout("SimpleRL-Zoo parquet", "extra_info.question", "reward_model.ground_truth"),
    _layout("verl parquet", "prompt", "reward_model.ground_truth"),
    _layout("SimpleRL v0", "question", "gt_answer"),
    _layout("evalchemy", "problem", "expected_answer"),
    _layout("OlympiadBench", "question", "final_answer"),
    _layout("MATH-500; Qwen2.5-Math harness", "problem", "answer"),
    _layout("Minerva in the Qwen2.5-Math harness; math-ai/aime24", "problem", "solution", boxed=True),
    _layout("math-ai on the hub", "question", "answer"),
    _layout("Open-Reasoner-Zero", "prompt", "final_answer"),
    _layout("power sampling", "prompt", "answer"),
)

_TEMPLATES = (
    re.compile(
        r"<\|im_start\|>user\n(?P<question>.*?)"
        r"(?:\s*Please reason step by step, and put your final answer within \\boxed\{\}\.)?\s*<\|im_end\|>",
        re.DOTALL,
    ),
    re.compile(r"Question:\n(?P<question>.*)\nAnswer:\nLet's think step by step\.", re.DOTALL),
)
"""Templates in which SimpleRL and SimpleRL-Zoo store the questions of their training prompts."""


_TAGS = {"unit": "unit", "tolerance": "error", "answer_type": "answer_type"}


def read(file: BenchmarkFile, *, integer: bool = False, without_gold: bool = False) -> list[Row]:
    """Questions with their golds; rows without one are left out with ``without_gold``, otherwise InputError."""
    layout = file.layout(LAYOUTS)

    def convert(name: str, row: RawRow) -> Row | None:
        question = _question(row, layout)
        gold = gold_text(layout.value(row, "gold"), layout.boxed, multiple=bool(row.get("is_multiple_answer")))
        if integer and gold is not None:  # ``025`` and ``27.0`` as ``25`` and ``27``
            gold = str(int(match[1])) if (match := re.fullmatch(r"([+-]?\d{1,18})(?:\.0*)?", gold)) else None
        if question is None:
            raise RowError(f"no question in {layout.fields['question']!r}")
        if gold is not None:
            named = {tag: text_of(row.get(field)) for tag, field in _TAGS.items()}
            tags = tags_of(row) | {tag: text for tag, text in named.items() if text}
            tags |= {"multiple": True} if row.get("is_multiple_answer") else {}
            return Row.of(Question(name, question, gold, tags=tags))
        if without_gold:
            return None
        raise RowError(f"no {'integer ' if integer else ''}gold in {layout.fields['gold']!r}")

    return file.read(convert)


def _question(row: RawRow, layout: Layout) -> str | None:
    text = layout.text(row, "question")
    if text is None:
        return None
    for template in _TEMPLATES:
        if match := template.search(text):
            text = match["question"].strip()
            break
    context = text_of(row.get("context"))  # OlympiadBench: facts that the question uses
    return f"{context}\n{text}" if context else text


def gold_text(content: Any, boxed: bool = False, *, multiple: bool = False) -> str | None:
    """A gold answer as LaTeX without dollar signs or box; None if there is none, or its box is not closed.

    The content is a string, a number, or a list of these. ``boxed``: the answer is the last box of the text.
    ``multiple``: there are several answers, in any order; they are separated by a comma and a space.
    """
    if isinstance(content, list):
        texts = [gold_text(part, boxed) for part in content]
        content = ", ".join(text for text in texts if text)
    elif boxed and isinstance(content, str):
        content = last_boxed(content)
    if isinstance(content, float):
        content = None if isnan(content) else int(content) if content.is_integer() else content
    if content is None or isinstance(content, bool):
        return None
    text = re.sub(r"(?<!\\)\$", "", str(content)).strip()
    if multiple:
        text = ", ".join(part.strip() for part in parts(text))
    text = re.sub(r"\bnp\.(?=[a-z])", r"\\", in_latex(text))
    return re.sub(r"(?<=\d)\.(?=/\d)", "", text) or None


def parts(text: str, separator: str = r",") -> list[str]:
    """The text, split where a separator is outside of all brackets."""
    found, depth, start = [], 0, 0
    for match in re.finditer(rf"\\[{{}}]|[(\[{{]|[)\]}}]|(?P<cut>{separator})", text):
        if match["cut"] is None:
            depth += 1 if match[0][-1] in "([{" else -1
        elif depth == 0:
            found.append(text[start : match.start()])
            start = match.end()
    return [*found, text[start:]]
