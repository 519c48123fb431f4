r"""One table of characters and names: plain, upright and Unicode spelling as the LaTeX that math-verify reads.

``√2``, ``sqrt(2)`` and ``\mathrm{sqrt}(2)`` become ``\sqrt{2}``; ``½``, ``x²``, ``2pi`` and ``ln 3`` become LaTeX.
What surrounds an answer, such as "The answer is", a leading ``=`` or a trailing comma, is dropped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from searchlens.grading.rewriting import Rewriting

GROUP = r"\{((?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*)\}"
"""A group in braces, with groups inside; its content is one group of the match."""
TEXT = r"\\(?:text|textbf|textrm|textit|textnormal|mathrm|mathbf|mathsf|mathit|mbox|operatorname\*?|rm)"


def _greek() -> Iterator[tuple[str, str]]:
    for letter in "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ":
        name = unicodedata.name(letter).split()[-1].replace("LAMDA", "LAMBDA")
        yield letter, f"\\{name.lower() if letter.islower() else name.capitalize()} "


def _fractions() -> Iterator[tuple[str, str]]:
    for letter in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞":
        above, below = unicodedata.normalize("NFKC", letter).split("\N{FRACTION SLASH}")
        yield letter, rf"\frac{{{above}}}{{{below}}}"


_COMMANDS = {
    **dict(_greek()),
    **dict(_fractions()),
    **dict.fromkeys("–−‐‑—﹣－", "-"),
    "∞": r"\infty ",
    "·": r"\cdot ",
    "⋅": r"\cdot ",
    "∙": r"\cdot ",
    "×": r"\times ",
    "÷": r"\div ",
    "∗": "*",
    "≤": r"\le ",
    "≥": r"\ge ",
    "≠": r"\ne ",
    "⩽": r"\le ",
    "⩾": r"\ge ",
    "±": r"\pm ",
    "∓": r"\mp ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "∅": r"\emptyset ",
    "∠": r"\angle ",
    "∂": r"\partial ",
    "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}",
    "ℕ": r"\mathbb{N}",
    "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}",
    "⟨": r"\langle ",
    "⟩": r"\rangle ",
    "〈": r"\langle ",
    "〉": r"\rangle ",
    "∶": ":",
    "⁄": "/",
    "∕": "/",
    "≡": r"\equiv ",
    "ℏ": r"\hbar ",
    "…": r"\ldots ",
    "°": r"^\circ ",
    "′": "'",
    "’": "'",
    "µ": r"\mu ",
    "Ω": r"\Omega ",
    "¢": r"\text{ cents}",
    "∛": "\\cbrt",
    "⌊": r"\lfloor ",
    "⌋": r"\rfloor ",
    "⌈": r"\lceil ",
    "⌉": r"\rceil ",
    "\u2009": " ",
    "\u202f": " ",
    "\u00a0": " ",
    "≈": r"\approx ",
    "→": r"\to ",
}
_TABLE = str.maketrans(_COMMANDS)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_unicode = Rewriting(
    (r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+", lambda match: f"^{{{match[0].translate(_RAISED)}}}"),
    (r"[₀₁₂₃₄₅₆₇₈₉]+", lambda match: f"_{{{match[0].translate(_LOWERED)}}}"),
    (r"(?<=\d)\.?\u0305|(\d)\u0305", r"\\overline{\1}"),
    (r"√\s*(\d+(?:\.\d+)?|[A-Za-zπ])", r"\\sqrt{\1}"),
    (r"√\s*(?=[({])", r"\\sqrt"),
)
_FUNCTIONS = (
    "arcsinh|arccosh|arctanh|arcsin|arccos|arctan|arccot|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|ln|log|exp|gcd|lcm|sqrt"
)
_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_BASES |= {"eleven": 11, "twelve": 12, "sixteen": 16}
_IN_WORDS = rf"(?i)_\s*\{{?\s*(?:\\text\s*\{{)?\s*({'|'.join(_BASES)})\s*\}}{{1,2}}"
_names = Rewriting(
    (rf"{TEXT}\s*\{{\s*({_FUNCTIONS}|pi)\s*\}}", r"\\\1 "),
    (r"(?<![\\A-Za-z])(?:asin|acos|atan)(?=\s*\()", lambda match: f"\\arc{match[0][1:]} "),
    (rf"(?<![\\A-Za-z{{])({_FUNCTIONS})(?![A-Za-z])", r"\\\1 "),
    (rf"(?<![\\A-Za-z])({_FUNCTIONS})(?=\s*[(\d^])", r"\\\1 "),
    (r"(?<![\\A-Za-z])(pi)(?![A-Za-z])", r"\\pi "),
    (r"\\lcm(?![A-Za-z])", r"\\operatorname{lcm}"),
    (r"\\arc(sinh|cosh|tanh)", r"\\ar\1"),
    (r"(\\(?:gcd|max|min)\s*|\\operatorname\{lcm\}\s*)\\\{(.*?)\\\}", r"\1(\2)"),
    (r"\\(?:mathrm|operatorname|text|textrm|rm)\s*\{\s*([eid]|\\pi)\s*\}", r"\1 "),
    (r"\{\s*\\rm\s+([eid])\s*\}", r"\1 "),
    (r"\\(?:mathrm|rm)\s+([eid])(?![A-Za-z])", r"\1 "),
    (r"\\cbrt\s*(\w)", r"\\sqrt[3]{\1}"),
    (r"\\log(?=\s*_\s*(?:e|\{e\})(?![A-Za-z]))\s*_\s*(?:e|\{e\})", r"\\ln "),
    (r"\^\s*([+-]\d+)", r"^{\1}"),
    (r"\\bmod(?![A-Za-z])", r"\\mod"),
    (r"(?<![A-Za-z\\}\d])C\((\d+),\s*(\d+)\)", r"\\binom{\1}{\2}"),
    (r"E(?=_)", r"\\Upsilon "),  # otherwise the base of the logarithm
    (r"\\gamma(?![A-Za-z])", r"\\Upsilon_{gamma} "),  # otherwise a function
    (r"_\s*(\w)(?=[A-Za-z])", r"_{\1} "),
    (r"\s*(?:\\colon(?![A-Za-z])|\{:\})\s*", ":"),
    (_IN_WORDS, lambda match: f"_{{{_BASES[match[1].lower()]}}}"),
    (r"^\s*[{(]\s*(\d+)\s*[})](?=\s*_)", r"\1"),
    (r"^\s*(?:\\left)?\\\{\s*([A-Za-z])\s*(?:\\mid|:|\||\\colon)\s*(\1[^A-Za-z].*?)(?:\\right)?\\\}\s*$", r"\2"),
)
_dressing = Rewriting(
    (r"^\s*(?:\\\[|\\\(|\$\$?)((?:(?!\\[()\[\]]|\$).)*)(?:\\\]|\\\)|\$\$?)\s*[.,;]?\s*$", r"\1"),
    (r"^\s*(\*\*|__)([^*]+)\1\s*[.,;]?\s*$", r"\2"),
    (r"\\(?:tiny|small|normalsize|large|Large|LARGE|huge|Huge|displaystyle|textstyle|bf|it)(?![A-Za-z])\s*", ""),
    (rf"\\(?:underline|uline|boldsymbol|bm|pmb|emph)\s*{GROUP}", r"\1"),
    (r"^\s*\\mathbf\s*\{\s*([RZNQ])\s*\}\s*$", r"\\mathbb{\1}"),
    (rf"^\s*\\(?:mathbf|boxed|fbox)\s*{GROUP}\s*$", r"\1"),
    (rf"\\text\s*\{{\s*\\textbf\s*{GROUP}\s*\}}", r"\\text{\1}"),
    (
        r"(?i)^\s*(?:\\text(?:bf)?\s*\{\s*)?(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+)?(?:final\s+)?answer\s*"
        r"(?:is\s*:?|:)\s*\}?",
        "",
    ),
    (r"^(?:\s|[=,:;]|\\(?:therefore|implies|Rightarrow|quad|qquad|colon)(?![A-Za-z])|\\[,;:!])+", ""),
    (r"\\text\s*\{\s*:\s*\}", ":"),
    (r"(?:(?<!\\)\\(?:\s|[,;:!])|\s|(?<!\\)[,;])+$", ""),
    (r"(?<=[a-z])\.\s*\}$", "}"),
    (r"(?<![.\s])(?<!\\right)\.$", ""),
)


@lru_cache(maxsize=4096)
def spelled(text: str) -> str:
    """The answer in LaTeX, without what surrounds it."""
    if not text.isascii():
        text = _unicode(text).translate(_TABLE)
    text = _names(_dressing(text))
    for name, template in (("sqrt", r"\sqrt{%s}"), ("cbrt", r"\sqrt[3]{%s}")):
        if name in text:
            text = _bracketed(text, name, template)
    return _over(text) if r"\over" in text else text


def _bracketed(text: str, name: str, template: str) -> str:
    r"""``\sqrt (x)`` with its brackets as braces."""
    pieces, start = [], 0
    for match in re.finditer(rf"\\{name}\s*\(", text):
        end = _closing(text, match.end() - 1, "(", ")")
        if match.start() < start or end is None:
            continue
        inside = _bracketed(text[match.end() : end], name, template)
        pieces += [text[start : match.start()], template % inside]
        start = end + 1
    return "".join([*pieces, text[start:]])


def _closing(text: str, start: int, opening: str, closing: str) -> int | None:
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == opening) - (text[place] == closing)
        if depth == 0:
            return place
    return None


def _over(text: str) -> str:
    r"""``{a \over b}`` as a fraction; without braces, the whole text."""
    for _ in range(text.count(r"\over")):
        match = re.search(r"\\over(?![A-Za-z])", text)
        if match is None:
            break
        depth, start = 0, -1
        for place in range(match.start() - 1, -1, -1):
            depth += (text[place] == "}") - (text[place] == "{")
            if depth < 0:
                start = place
                break
        end = _closing(text, start, "{", "}") if start >= 0 else len(text)
        if end is None:
            break
        above, below = text[start + 1 : match.start()].strip(), text[match.end() : end].strip()
        text = rf"{text[: max(start, 0)]}\frac{{{above}}}{{{below}}}{text[end + 1 :]}"
    return text
