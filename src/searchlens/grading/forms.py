r"""Forms of answers that are compared as a whole, before math-verify reads them.

Times of day, residues, values with names, vectors, derivatives and cases. Each rule sees both sides as ``spelling``
leaves them: it gives a verdict, or brings both to the same form, or leaves them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from searchlens.benchmarks.mathematics import parts
from searchlens.grading.spelling import Rewriting

Texts = tuple[str, str]


def _key(text: str) -> str:
    """A name without spaces, braces and text commands."""
    return re.sub(r"\\(?:text|q?quad)(?![A-Za-z])|[\s{}]", "", text)


# ---- times of day

_TIME = re.compile(r"(\d{1,2})(?::(\d\d))?(?:([ap])\.?m\.?)?")


def times_of_day(gold: str, answer: str) -> Texts | bool:
    """Whether two times are the same; one without a.m. or p.m. may be either, or of 24 hours."""
    ours, theirs = (_TIME.fullmatch(_key(text).lower()) for text in (gold, answer))
    if not ours or not (ours[2] or ours[3]) or int(ours[1]) > 24:
        return gold, answer
    if not theirs or not (theirs[2] or theirs[3]):
        return False if ours[2] and re.fullmatch(r"[\d.]+:[\d.]+", _key(answer)) else (gold, answer)
    if not ours[3] and not theirs[3]:
        return int(ours[1]) == int(theirs[1]) and ours[2] == theirs[2]
    return int(ours[2] or 0) == int(theirs[2] or 0) and bool(_hours(ours) & _hours(theirs))


def _hours(time: re.Match[str]) -> set[int]:
    """The hours from 0 to 23 that a time may mean."""
    hour = int(time[1])
    if time[3]:
        return {hour % 12 + 12 * (time[3] == "p")}
    return {hour, hour % 12, hour % 12 + 12} if hour <= 12 else {hour}


# ---- residues

_RESIDUES = re.compile(
    r"(?:([A-Za-z](?:_\w)?)(?:\\equiv|=))?((?:\\pm|[-+\d,;]|or|and)+?)\(?\\?(?:p?mod)(\d{1,6})\)?", re.ASCII
)


def residues(gold: str, answer: str) -> Texts | bool:
    """Whether two sets of residues are the same."""
    ours, theirs = (_RESIDUES.fullmatch(_key(text)) for text in (gold, answer))
    if not ours or not theirs:
        return gold, answer
    names_agree = not ours[1] or not theirs[1] or ours[1] == theirs[1]
    return names_agree and int(ours[3]) == int(theirs[3]) > 0 and _residues(ours) == _residues(theirs)


def _residues(match: re.Match[str]) -> set[int]:
    both_signs = re.sub(r"\\pm(\d+)", r"\1,-\1", match[2])
    return {int(number) % int(match[3]) for number in re.findall(r"-?\d+", both_signs)}


# ---- values with names

_APPLIED = re.compile(
    r"\s*(\\?[A-Za-z]+(?:_(?:\w|\{[^{}]*\}))?'*\s*\(((?:[^()=<>]|\([^()=<>]*\))*)\)"
    r"|\\?[A-Za-z]+_\s*\{[^{}=]*[A-Za-z]{2}[^{}=]*\})\s*=\s*([^=<>]+)"
)
_NAME = r"(?:\\?[A-Za-z]+|\\angle\s*[A-Z]+)\s*(?:_(?:\w|\{[^{}]*\}))?(?:\(\s*[a-z]\s*\))?"
_ASSIGNED = re.compile(rf"\s*({_NAME})\s*=\s*([^=<>]+?)\s*")
_NAMES = re.compile(r"\s*\(([^()=]*)\)\s*=\s*\((.*?)\)\s*")
_BETWEEN = r"[,;]|\\text\s*\{\s*,?\s*(?:and|or)?\s*\}|(?<![A-Za-z\\])and(?![A-Za-z])|\\q?quad(?![A-Za-z])"


def _value_at(text: str) -> tuple[str, str] | None:
    """The name with its argument, and the value, of ``f(2)=5``; None if only letters are in the brackets."""
    if len(parts(text)) > 1:
        return None
    match = _APPLIED.fullmatch(text) or _APPLIED.fullmatch("=".join(reversed(text.split("="))))
    if match is None or re.fullmatch(r"\s*[a-z](?:\s*,\s*[a-z])*\s*|\\[a-z]+", match[2] or ""):
        return None
    return _key(match[1]), match[3]


def values(gold: str, answer: str) -> Texts | bool:
    """Values in place of ``f(2)=5`` and ``m_{max}=5``; False if they are at different places."""
    ours, theirs = _value_at(gold), _value_at(answer)
    if ours and theirs:
        return (ours[1], theirs[1]) if ours[0] == theirs[0] else False
    if ours:
        return False if "=" in answer else (ours[1], answer)
    return (gold, theirs[1]) if theirs and "=" not in gold else (gold, answer)


def named(text: str) -> dict[str, str]:
    """Two or more values by name: ``x=1, y=2`` or ``(x,y)=(1,2)``; empty for anything else."""
    if (match := _NAMES.fullmatch(text)) and len(parts(match[1])) == len(parts(match[2])) > 1:
        return dict(zip(map(_key, parts(match[1])), parts(match[2]), strict=True))
    pieces = [piece for piece in parts(text, _BETWEEN) if piece.strip()]
    found = {_key(match[1]): match[2] for match in map(_ASSIGNED.fullmatch, pieces) if match}
    return found if len(found) == len(pieces) > 1 else {}


def with_names(gold: str, answer: str) -> Texts:
    """Values with names as tuples: by name if both have the names, in the gold's order if it alone has them, and in the
    order of the alphabet if only the answer has them.
    """
    if "=" not in gold and "=" not in answer:
        return gold, answer
    ours, theirs = named(gold), named(answer)
    if ours and ours.keys() == theirs.keys():
        return _tuple(ours.values()), _tuple(theirs[name] for name in ours)
    if ours and "=" not in answer:
        return _tuple(ours.values()), (f"({answer})" if len(parts(answer)) > 1 else answer)
    if theirs and gold.lstrip().startswith("(") and "=" not in gold:
        by_name = all(len(name) == 1 for name in theirs)
        return gold, _tuple(theirs[name] for name in (sorted(theirs) if by_name else theirs))
    return gold, answer


def _tuple(entries: Iterable[str]) -> str:
    return f"({', '.join(entry.strip() for entry in entries)})"


# ---- vectors

_COLUMN = re.compile(r"\\begin\{([pbv]?matrix)\}([^&]*?)(?:\\\\\s*)?\\end\{\1\}", re.DOTALL)


def vectors(gold: str, answer: str) -> Texts:
    """A column as a tuple if the other side is no matrix."""
    if ("begin" in gold) == ("begin" in answer):
        return gold, answer
    gold, answer = (_COLUMN.sub(lambda match: _tuple(match[2].split(r"\\")), text) for text in (gold, answer))
    return gold, answer


# ---- derivatives

_D = r"(?:d|\\partial)\s*"
_F = r"(\\[a-z]+|[A-Za-z])\s*"
_derived = Rewriting(
    (
        rf"(?:(\\frac\s*\{{\s*)|(?<![A-Za-z\\])){_D}(?:\^\s*\{{?\s*(\d)\s*\}}?\s*)?{_F}(?(1)\}}\s*\{{\s*|/\s*)"
        rf"{_D}{_F}(?:\^\s*\{{?\s*\d\s*\}}?\s*)?(?(1)\}}|(?![A-Za-z]))",
        r" \\Xi_{\g<4>0\2\3} ",
    ),
    (rf"\\dot\s*\{{?\s*{_F}\}}?", r" \\Xi_{t0\1} "),
    (rf"\\ddot\s*\{{?\s*{_F}\}}?", r" \\Xi_{t02\1} "),
    (r"\\prime(?![A-Za-z])\s*", "'"),
    (r"\^\s*\{?\s*('+)\s*\}?", r"\1"),
    (r"(?<![A-Za-z\\])([A-Za-z])'(?!\s*['(])", r" \\Xi_{0\1} "),
    (r"(?<![A-Za-z\\])([A-Za-z])''(?!\s*['(])", r" \\Xi_{02\1} "),
    (r"(?<=\\Xi_\{)[^{}]*", lambda match: match[0].replace("\\", "")),
)


def derivatives(gold: str, answer: str) -> Texts:
    """Each derivative as a symbol of its variable, order and function, so that none is taken for a fraction. A prime
    names no variable, so that with primes the variable does not count.
    """
    gold, answer = _derived(gold), _derived(answer)
    if r"\Xi_{0" in gold + answer:
        gold, answer = (re.sub(r"(?<=\\Xi_\{)[A-Za-z]+(?=0)", "", text) for text in (gold, answer))
    return gold, answer


# ---- lists

_SINGLE = r"((?:(?!\\[pm]{2}(?![A-Za-z])|\\text|\\equiv)[^,=])*)"
_both_signs = Rewriting((rf"^([^,=]*=)?{_SINGLE}\\[pm]{{2}}(?![A-Za-z]){_SINGLE}$", r"\1\2+\3,\2-\3"))


def plus_minus(gold: str, answer: str) -> Texts:
    r"""Two values in place of one with ``\pm``: ``1 \pm x`` is ``1+x, 1-x``."""
    return _both_signs(gold), _both_signs(answer)


_CUT = re.compile(r"[\d}]\s*(?:\\[lc]?dots(?![A-Za-z])|\.\.\.)\s*$")


def cut_short(gold: str, answer: str) -> Texts | bool:
    """False for an answer whose digits go on, unless the gold's do."""
    return False if _CUT.search(answer) and not re.search(r"dots|\.\.\.", gold) else (gold, answer)


def repeats_lost(gold: str, answer: str) -> Texts | bool:
    """False for two lists without brackets, of which one repeats an entry, and which differ in length."""
    ours, theirs = ([_key(part) for part in parts(text)] for text in (gold, answer))
    repeats = any(len(set(some)) < len(some) for some in (ours, theirs))
    return False if repeats and 1 < len(ours) != len(theirs) > 1 else (gold, answer)


# ---- cases


def cases(text: str) -> list[tuple[str, str]]:
    """Values of a function with their conditions; empty for anything else."""
    match = re.search(r"\\begin\{cases\}(.*)\\end\{cases\}\s*$", text, re.DOTALL)
    rows = [row.split("&") for row in re.split(r"\\\\", match[1]) if row.strip()] if match else []
    if any(len(row) != 2 for row in rows):
        return []
    bare = partial(re.sub, r"^(?:if|for|when)|is(?=even|odd)|[.,;]$", "")
    return [(value.strip().rstrip(","), bare(_key(condition))) for value, condition in rows]
