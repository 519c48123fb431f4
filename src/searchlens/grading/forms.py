r"""Forms of answers that are compared as a whole, before math-verify reads them.

Times of day, residues, values with names, vectors, derivatives and cases. Each rule sees both sides: it gives
a verdict, or brings both to the same form, or leaves them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from searchlens.grading.spelling import TEXT

Texts = tuple[str, str]


def _key(text: str) -> str:
    """A name without spaces, braces, sizes of brackets and text commands."""
    text = re.sub(rf"{TEXT}(?![A-Za-z])|\\(?:left|right)(?![A-Za-z])", "", text)
    return re.sub(r"\\[,;:! ]|[\s{}~]", "", text)


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


# ---- times of day

_TIME = re.compile(r"\s*(\d{1,2})(?:\s*:\s*(\d\d))?[\s~]*(?:([ap])\.?[\s~]*m\b\.?)?\s*", re.IGNORECASE)


def times_of_day(gold: str, answer: str) -> bool | None:
    """Whether two times are the same; one without a.m. or p.m. may be either, or of 24 hours."""
    ours, theirs = (_TIME.fullmatch(re.sub(rf"{TEXT}\s*|[{{}}]|\\\\[,; ]", " ", text)) for text in (gold, answer))
    if ours and ours[2] and not theirs and re.fullmatch(r"[\d.\s]+:[\d.\s]+", answer):
        return False
    if not ours or not theirs or not ((ours[2] and (theirs[2] or theirs[3])) or (ours[3] and (theirs[2] or theirs[3]))):
        return None
    if int(ours[1]) > 24 or int(ours[2] or 0) > 59:
        return None
    (hour, minute, half), (other, minutes, halves) = (
        (int(time[1]), int(time[2] or 0), (time[3] or "").lower()) for time in (ours, theirs)
    )
    if minute != minutes:
        return False
    if half and halves:
        return (hour % 12, half) == (other % 12, halves)
    if half or halves:
        known, free = ((hour, half), other) if half else ((other, halves), hour)
        return free in (known[0], known[0] % 12 + 12 * (known[1] == "p"))
    return hour == other


# ---- residues

_MODULUS = r"(?:\\pmod|\\mod|\(\s*\\?mod|\\operatorname\{mod\}|mod)\s*\{?\s*(\d+)\s*\}?\s*\)?"
_RESIDUES = re.compile(
    rf"\s*(?:([A-Za-z](?:_\w)?)\s*(\\not\s*\\equiv|\\not\\equiv|\\equiv|=)\s*)?((?:\\pm\s*|[-+\d,\s]|\\text\s*\{{\s*(?:or|and),?\s*\}}|\\,|or|and)+?)"
    rf"\s*\\?[,;]?\s*(?:\\quad)?\s*{_MODULUS}\s*"
)
_LINEAR = re.compile(
    r"\s*([A-Za-z])\s*=\s*(?:(\d+)\s*[a-z]\s*([+-]\s*\d+)?|([+-]?\d+)\s*\+\s*(\d+)\s*[a-z])\s*"
    r"[,\\\s(]*(?:\\text\s*\{\s*(?:for|where)?[^{}]*\}|for|where)?[^\\]*\\in\s*\\mathbb\s*\{?Z\}?.*"
)


def residues(gold: str, answer: str) -> bool | None:
    """Whether two sets of residues are the same."""
    ours, theirs = _residues(gold), _residues(answer)
    if ours is None or theirs is None:
        return None
    (name, modulus, values), (other, moduli, others) = ours, theirs
    return (not name or not other or name == other) and modulus == moduli and values == others


def _residues(text: str) -> tuple[str, int, frozenset[int]] | None:
    if (line := _LINEAR.fullmatch(text)) is not None:
        modulus, rest = int(line[2] or line[5]), int(re.sub(r"\s", "", line[3] or line[4] or "0"))
        return (line[1], modulus, frozenset({rest % modulus})) if modulus else None
    match = _RESIDUES.fullmatch(text)
    if match is None or not 0 < (modulus := int(match[4])) < 10**6:
        return None
    values: set[int] = set()
    for number in re.findall(r"\\pm\s*\d+|[+-]?\s*\d+", match[3]):
        value = int(re.sub(r"\\pm|\s", "", number))
        values |= {value % modulus} | ({-value % modulus} if "pm" in number else set())
    if not values:
        return None
    kept = set(range(modulus)) - values if match[2] and "not" in match[2] else values
    return match[1] or "", modulus, frozenset(kept)


# ---- values with names

_APPLIED = re.compile(
    r"\s*(\\?[A-Za-z]+(?:_(?:\w|\{[^{}]*\}))?'*\s*(?:\\left)?\(((?:[^()=<>]|\([^()=<>]*\))*)\))\s*=\s*([^=<>]+)"
)
_SUBSCRIPTED = re.compile(r"\s*((\\?[A-Za-z]+)_\s*\{[^{}=]*(?:\\[a-z]+|[A-Za-z]{2})[^{}=]*\})\s*=\s*([^=<>]+)")
_NAME = r"(?:\\?[A-Za-z]+|\\angle\s*[A-Z]+)\s*(?:_(?:\w|\{[^{}]*\}))?(?:\(\s*[a-z]\s*\))?"
_ASSIGNED = re.compile(rf"\s*({_NAME})\s*=\s*([^=<>]+?)\s*")
_NAMES = re.compile(r"\s*(?:\\left)?\(([^()=]*)\)\s*=\s*(?:\\left)?\((.*?)(?:\\right)?\)\s*")
_BETWEEN = r"[,;]|\\text\s*\{\s*,?\s*(?:and|or)?\s*\}|(?<![A-Za-z\\])and(?![A-Za-z])|\\q?quad(?![A-Za-z])|\\\s"


def _value_at(text: str) -> tuple[str, str] | None:
    """The name with its argument, and the value, of ``f(2)=5``; None if only letters are in the brackets."""
    if len(parts(text)) > 1:
        return None
    if turned := re.fullmatch(r"([^=]+)=([^=]*\([^=]*\)\s*)", text):
        text = f"{turned[2]}={turned[1]}" if not _APPLIED.fullmatch(text) else text
    if (match := _APPLIED.fullmatch(text)) and not re.fullmatch(r"\s*[a-z](?:\s*,\s*[a-z])*\s*|\\[a-z]+", match[2]):
        return _key(match[1]), match[3]
    if match := _SUBSCRIPTED.fullmatch(text):
        return _key(match[1]), match[3]
    return None


def values(gold: str, answer: str) -> Texts | bool:
    """Values in place of ``f(2)=5`` and ``m_{max}=5``; False if they are at different places."""
    ours, theirs = _value_at(gold), _value_at(answer)
    if ours and theirs:
        return (ours[1], theirs[1]) if ours[0] == theirs[0] else False
    if ours and "=" in answer:
        left, _, value = answer.partition("=")
        return (ours[1], value) if ours[0].startswith(f"{_key(left)}_") else False
    if ours:
        return ours[1], answer
    return (gold, theirs[1]) if theirs and "=" not in gold else (gold, answer)


def named(text: str) -> dict[str, str]:
    """Two or more values by name: ``x=1, y=2`` or ``(x,y)=(1,2)``; empty for anything else."""
    if (match := _NAMES.fullmatch(text)) and len(parts(match[1])) == len(parts(match[2])) > 1:
        return dict(zip(map(_key, parts(match[1])), parts(match[2]), strict=True))
    pieces = [piece for piece in parts(text, _BETWEEN) if piece.strip()]
    assigned = [_ASSIGNED.fullmatch(piece) for piece in pieces]
    if len(pieces) < 2 or not all(assigned):
        return {}
    found = {_key(match[1]): match[2] for match in assigned if match}
    return found if len(found) == len(pieces) else {}


def with_names(gold: str, answer: str) -> Texts:
    """Values with names as tuples: by name if both have the names, in the gold's order if it alone has them, and in the
    order of the alphabet if only the answer has them.
    """
    if "=" not in gold and "=" not in answer:
        return gold, answer
    ours, theirs = named(gold), named(answer)
    if ours and ours.keys() == theirs.keys():
        return _tuple(list(ours.values())), _tuple([theirs[name] for name in ours])
    if ours and not theirs and "=" not in answer:
        plain = len(parts(answer)) > 1
        return _tuple(list(ours.values())), (f"({answer})" if plain else answer)
    if theirs and not ours and re.match(r"\s*(?:\\left)?\(", gold) and "=" not in gold:
        by_name = all(len(name) == 1 for name in theirs)
        return gold, _tuple([theirs[name] for name in (sorted(theirs) if by_name else theirs)])
    return gold, answer


def _tuple(entries: list[str]) -> str:
    return f"({', '.join(entry.strip() for entry in entries)})"


# ---- vectors

_UNIT_VECTOR = (
    r"\\(?:hat|vec|mathbf|boldsymbol|bm)\s*\{?\s*(?:\\(?:mathbf|hat|imath|jmath)\s*)?\{?\\?(i|j|k)(?:math)?\}?\s*\}?"
)
_TERM = re.compile(
    rf"\s*([+-]?)\s*((?:[\d./]|\\d?frac\{{[^{{}}]*\}}\{{[^{{}}]*\}}|\\sqrt\{{[^{{}}]*\}}|\\pi)*)\s*{_UNIT_VECTOR}\s*"
)
_COLUMN = re.compile(r"\s*\\begin\{([pbv]?matrix)\}([^&]*?)(?:\\\\\s*)?\\end\{\1\}\s*", re.DOTALL)
_ANGLED = re.compile(r"\s*(?:\\left\s*)?\\langle\s*(.*?)\s*(?:\\right\s*)?\\rangle\s*", re.DOTALL)
_POINT = re.compile(r"\s*[A-Z]\s*=?\s*((?:\\left)?\(.*\))\s*", re.DOTALL)
_OPEN = re.compile(r"\s*(?:\\left\s*)?\(.*,")


def vectors(gold: str, answer: str) -> Texts:
    """Vectors as tuples: in angled brackets, by unit vectors, or, if the other side is no matrix, as a column."""
    gold, answer = (_by_units(_ANGLED.sub(r"(\1)", text) if "angle" in text else text) for text in (gold, answer))
    columns = _COLUMN.fullmatch(gold), _COLUMN.fullmatch(answer)
    if columns[0] and not columns[1] and _OPEN.match(answer):
        gold = _tuple(re.split(r"\\\\", columns[0][2]))
    if columns[1] and not columns[0] and _OPEN.match(gold):
        answer = _tuple(re.split(r"\\\\", columns[1][2]))
    if _OPEN.match(gold) and (match := _POINT.fullmatch(answer)):
        answer = match[1]
    if _OPEN.match(answer) and (match := _POINT.fullmatch(gold)):
        gold = match[1]
    return gold, answer


def _by_units(text: str) -> str:
    if not re.search(_UNIT_VECTOR, text):
        return text
    entries, place = {"i": "0", "j": "0", "k": "0"}, 0
    while place < len(text):
        term = _TERM.match(text, place)
        if term is None or entries[term[3]] != "0":
            return text
        entries[term[3]] = f"{term[1]}{term[2] or 1}"
        place = term.end()
    return _tuple(
        [entries["i"], entries["j"], entries["k"]] if re.search(r"k\s*\}?", text) else [entries["i"], entries["j"]]
    )


# ---- derivatives

_F = r"([A-Za-z]|\\[a-z]+)"
_DERIVATIVES: tuple[tuple[str, Callable[[re.Match[str]], tuple[str, int, str]]], ...] = (
    (
        rf"\\[dt]?frac\s*\{{\s*(d|\\partial)\s*(?:\^\s*\{{?(\d)\}}?)?\s*{_F}\s*\}}\s*\{{\s*(?:d|\\partial)\s*{_F}\s*(?:\^\s*\{{?\d\}}?)?\s*\}}",
        lambda m: (m[3], int(m[2] or 1), m[4] + ("p" if m[1] != "d" else "")),
    ),
    (
        rf"(?<![A-Za-z\\])(d|\\partial)\s*(?:\^\s*\{{?(\d)\}}?)?\s*{_F}\s*/\s*(?:d|\\partial)\s*{_F}\s*(?:\^\s*\{{?\d\}}?)?(?![A-Za-z])",
        lambda m: (m[3], int(m[2] or 1), m[4] + ("p" if m[1] != "d" else "")),
    ),
    (rf"\\(d{{1,3}})ot\s*(?:\{{\s*{_F}\s*\}}|{_F}(?![A-Za-z]))", lambda m: (m[2] or m[3], len(m[1]), "t")),
    (
        r"(?<![A-Za-z\\])([A-Za-z])\s*(?:('+)|\^\s*\{\s*((?:\\prime\s*)+)\}|\^\s*(\\prime))(?!\s*\()",
        lambda m: (m[1], len(m[2] or "") or (m[3] or m[4]).count("prime"), ""),
    ),
)


def derivatives(gold: str, answer: str) -> Texts:
    """Each derivative as a symbol of its function, order and variable, so that none is taken for a fraction. A prime
    names no variable, so that with primes the variable does not count.
    """
    both = [_derived(text) for text in (gold, answer)]
    if not both[0][1] and not both[1][1]:
        return gold, answer
    variables = {variable for _, found in both for _, _, variable in found}
    counts = len(variables - {""}) > 1 or "" not in variables
    return _derived(gold, variables=counts)[0], _derived(answer, variables=counts)[0]


def _derived(text: str, *, variables: bool = True) -> tuple[str, list[tuple[str, int, str]]]:
    found = []
    for pattern, read in _DERIVATIVES:

        def symbol(match: re.Match[str], read: Callable[[re.Match[str]], tuple[str, int, str]] = read) -> str:
            function, order, variable = read(match)
            found.append((function, order, variable))
            return rf" \Xi_{{{function.strip(chr(92))}{order}{variable.strip(chr(92)) if variables else ''}}} "

        text = re.sub(pattern, symbol, text)
    return text, found


# ---- lists

_TWICE = re.compile(r"\\pm(?![A-Za-z])|\\mp(?![A-Za-z])")


def alternatives(text: str) -> str:
    r"""A list in place of each entry with one ``\pm``: ``1 \pm x`` is ``1 + x, 1 - x``."""
    if r"\pm" not in text and r"\mp" not in text:
        return text
    if braces := re.fullmatch(r"(\s*(?:\\left)?\\\{)(.*?)((?:\\right)?\\\}\s*)", text, re.DOTALL):
        return braces[1] + alternatives(braces[2]) + braces[3]
    head, equals, rest = text.rpartition("=")
    entries = []
    for entry in parts(rest):
        signs = len(_TWICE.findall(entry))
        if signs > 1 or re.search(r"[(\[][^()\[\]]*,|\\text|\\equiv", entry):
            return text
        entries += [_TWICE.sub(sign, entry) for sign in "+-"] if signs else [entry]
    return head + equals + ", ".join(re.sub(r"^\s*\+", "", entry) for entry in entries)


def repeats_lost(gold: str, answer: str) -> bool:
    """Whether two lists without brackets differ in how often an entry stands in them."""
    lists = [Counter(_key(part) for part in parts(text)) for text in (gold, answer)]
    return (
        all(some.total() > 1 for some in lists)
        and max(map(max, (some.values() for some in lists))) > 1
        and (lists[0].total() != lists[1].total())
    )


# ---- cases

_CASES = re.compile(
    r"\s*(.*?)(?:=\s*)?(?:\\left\s*\\\{\s*)?\\begin\{(cases|array)\}(?:\{[lcr ]+\})?"
    r"(.*)\\end\{\2\}(?:\\right\s*\.?)?\s*",
    re.DOTALL,
)


COMPARED = re.compile(r"[<>=]|\\(?:le|ge|ne|in)(?![A-Za-z])")


def cases(text: str) -> dict[str, str]:
    """Values of a function by condition; empty for anything else."""
    match = _CASES.fullmatch(text)
    if match is None or "&" not in match[3]:
        return {}
    rows = [row.split("&") for row in re.split(r"\\\\", match[3]) if row.strip()]
    if any(len(row) != 2 for row in rows):
        return {}
    return {_condition(row[1]): row[0].strip().rstrip(",") for row in rows}


def _condition(text: str) -> str:
    text = re.sub(r"\\(geq|leq|geqslant|leqslant)(?![A-Za-z])", lambda match: f"\\{match[1][:2]}", _key(text))
    return re.sub(r"^(?:if|for|when|is)|(?<=[a-z])is(?=even|odd)|[.,;]$", "", text.strip(".,;"))
