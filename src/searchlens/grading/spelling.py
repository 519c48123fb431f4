r"""One table of characters and names: plain, upright and Unicode spelling as the LaTeX that math-verify reads.

``√2``, ``sqrt(2)`` and ``\mathrm{sqrt}(2)`` become ``\sqrt{2}``; ``½``, ``x²``, ``2pi`` and ``ln 3`` become LaTeX.
What surrounds an answer, such as "The answer is", a leading ``=`` or a trailing comma, is dropped. So are commands that
only set spaces, fonts and sizes; all upright text is in ``\text``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial

from searchlens.benchmarks.mathematics import in_latex

Rule = tuple[str, str | Callable[[re.Match[str]], str]]


class Rewriting:
    """Substitutions, applied one after another: (pattern, replacement) as ``re.sub`` takes them."""

    def __init__(self, *rules: Rule) -> None:
        self._rules = [(re.compile(pattern), replacement) for pattern, replacement in rules]

    def __call__(self, text: str) -> str:
        """The text after all substitutions."""
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        return text


_SIGNS = r"""
− - – - ‐ - — - ′ ' ’ ' ∞ \infty · \cdot ⋅ \cdot ∙ \cdot × \times ÷ \div ∗ * ≤ \le ≥ \ge ⩽ \le ⩾ \ge ≠ \ne ≈ \approx
± \pm ∓ \mp ∪ \cup ∩ \cap ∈ \in ∅ \emptyset ∠ \angle ∂ \partial ≡ \equiv → \to ħ \hbar ⟨ ( ⟩ ) 〈 ( 〉 ) ∶ : ∕ /
√ \sqrt ∛ \sqrt[3] ⌊ \lfloor ⌋ \rfloor ⌈ \lceil ⌉ \rceil ¢ \text{cents} Å \AA ° ^\circ
"""
_TABLE = {ord(sign): f"{latex} " if latex[-1].isalpha() else latex for sign, latex in re.findall(r"(\S) (\S+)", _SIGNS)}


_compatible = partial(unicodedata.normalize, "NFKC")


def _greek(match: re.Match[str]) -> str:
    name = unicodedata.name(match[0]).split()[-1].replace("LAMDA", "LAMBDA")
    return f"\\{name.lower() if match[0].islower() else name.capitalize()} "


_structure = Rewriting(
    (r"[⁰¹²³⁴-⁹⁺⁻ⁿ]+", lambda match: f"^{{{_compatible(match[0])}}}"),
    (r"[₀-₉]+", lambda match: f"_{{{_compatible(match[0])}}}"),
    (r"[¼-¾⅐-⅞]", lambda match: f" {match[0]}"),
    (r"[ℝℤℕℚℂ]", lambda match: rf"\mathbb{{{_compatible(match[0])}}}"),
    (r"√\s*(\d+(?:\.\d+)?|[A-Za-z])", r"\\sqrt{\1}"),
)
_letters = Rewriting((r"[α-ωΓ-ΡΣ-Ω]", _greek), (r"(\d+)\N{FRACTION SLASH}(\d+)", r"\\frac{\1}{\2}"))


def _repeating(match: re.Match[str]) -> str:
    """A repeating decimal (digits before the point, digits behind it, repeated digits) as a fraction."""
    whole, once, again = match[1], match[2], match[3] or match[4]
    nines = 10 ** len(again) - 1
    value = Fraction(int(f"0{whole}{once}") * nines + int(again), nines * 10 ** len(once))
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _radians(match: re.Match[str]) -> str:
    """An expression with a trigonometric function, with its degrees in radians."""
    return re.sub(rf"(\d+(?:\.\d+)?|\\theta|x)\s*{DEGREES}", r"(\\frac{\1\\pi}{180})", match[0])


DEGREES = r"(?:\^\s*\{?\s*\\(?:circ|degree)(?![A-Za-z])\s*\}?|\\degree(?![A-Za-z]))"
NUMERALS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_INSIDE = r"(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*"
_GROUP = rf"\{{({_INSIDE})\}}"
_ROUND = r"\(((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*)\)"
_FUNCTIONS = "arcsin|arccos|arctan|arccot|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|ln|log|exp|gcd|lcm|sqrt"
_spelling = Rewriting(
    # What surrounds an answer.
    (r"^\s*(?:\\\[|\\\(|\$\$?)((?:(?!\\[()\[\]]|\$).)*)(?:\\\]|\\\)|\$\$?)\s*[.,;]?\s*$", r"\1"),
    (r"^\s*(\*\*|__)([^*]+)\1\s*[.,;]?\s*$", r"\2"),
    (
        r"(?i)^\s*(?:\\text(?:bf)?\s*\{\s*)?(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+)?(?:final\s+)?answer\s*"
        r"(?:is\s*:?|:)\s*\}?",
        "",
    ),
    (r"^(?:\s|[=,:;]|\\(?:therefore|implies|Rightarrow|q?quad|colon)(?![A-Za-z])|\\[,;:!])+", ""),
    (r"(?:(?<!\\)\\(?:\s|[,;:!])|\s|(?<!\\)[,;])+$", ""),
    (r"(?<=[a-z])\.\s*\}$", "}"),
    (r"(?<![.\s])(?<!\\right)\.$", ""),
    # Fonts, sizes and spaces.
    (r"\\(?:tiny|small|normalsize|[lL]arge|LARGE|[hH]uge|displaystyle|textstyle|bf|it)(?![A-Za-z])\s*", ""),
    (r"\\(?:left|right)\s*\.|\\(?:left|right|[bB]igg?[lrm]?)(?![A-Za-z])|\\!", ""),
    (r"^\s*\\mathbf\s*\{\s*([RZNQ])\s*\}\s*$", r"\\mathbb{\1}"),
    (rf"\\(?:underline|uline|boldsymbol|bm|pmb|emph|mathbf|mathit|textbf|boxed|fbox)\s*{_GROUP}", r"\1"),
    (r"\\(?:text(?:rm|it|normal)?|math(?:rm|sf)|mbox|operatorname\*?|rm)\s*\{\s*", r"\\text{"),
    (r"\\(?:mathrm|rm)\s+([A-Za-z])(?![A-Za-z])", r"\\text{\1}"),
    (r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in)\s*\]", r"\\\\ "),
    (r"(?<=\d)(?:\\[,;:]|\{,\})(?=\d{3}(?!\d))", ""),
    # A pair of backslashes ends a row of a matrix, so that the second one does not begin a command.
    (r"(\\\\|\\~)|\\[,;:]|\\\s|~", lambda match: match[1] or " "),
    (r",(?=\s*\\\\)", ""),  # at the end of a row of cases
    (r"\\[hv]?phantom\s*\{[^{}]*\}", ""),
    # Names.
    (rf"\\text\{{({_FUNCTIONS}|pi)\s*\}}", r"\\\1 "),
    (r"\\text\{([eid]|\\pi)\s*\}", r"\1 "),
    (r"(?<![\\A-Za-z])(?:asin|acos|atan)(?=\s*\()", lambda match: f"\\arc{match[0][1:]} "),
    (rf"(?<![\\A-Za-z{{])({_FUNCTIONS})(?![A-Za-z])", r"\\\1 "),
    (r"(?<![\\A-Za-z])(pi)(?![A-Za-z])", r"\\pi "),
    (r"(\\(?:gcd|max|min)\s*)\\\{(.*?)\\\}", r"\1(\2)"),
    (r"\\langle(?![A-Za-z])", "("),
    (r"\\rangle(?![A-Za-z])", ")"),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
    (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
    (r"^([+-]?\d+\s+)(\d+)/(\d+)$", r"\1\\frac{\2}{\3}"),
    (rf"\\sqrt(\[3\])?\s*(?:{_ROUND}|(\w))", r"\\sqrt\1{\2\3}"),
    (rf"\\sqrt(\[3\])?\s*{_ROUND}", r"\\sqrt\1{\2}"),  # inside of another one
    (rf"\{{({_INSIDE}?)\\over(?![A-Za-z])({_INSIDE})\}}", r"\\frac{\1}{\2}"),
    (rf"^({_INSIDE}?)\\over(?![A-Za-z])({_INSIDE})$", r"\\frac{\1}{\2}"),
    (r"\\log\s*_\s*(?:e|\{e\})(?![A-Za-z])", r"\\ln "),
    (r"\*\*\s*(-?\d+|[A-Za-z])(?!\w)|\^\s*([+-]\d+)", r"^{\1\2}"),
    (r"\\bmod(?![A-Za-z])", r"\\mod"),
    (r"(?<![A-Za-z\\}\d])C\((\d+),\s*(\d+)\)", r"\\binom{\1}{\2}"),
    (r"E(?=_)", r"\\Upsilon "),  # otherwise the base of the logarithm
    (r"\\gamma(?![A-Za-z])", r"\\Upsilon_{gamma} "),  # otherwise a function
    (r"_\s*(\w)(?=[A-Za-z])", r"_{\1} "),
    (r"\s*(?:\\colon(?![A-Za-z])|\{:\}|\\text\{:\s*\})\s*", ":"),
    (r"^\s*[{(]\s*(\d+)\s*[})](?=\s*_)", r"\1"),
    (r"^\s*\\\{\s*([A-Za-z])\s*(?:\\mid|:|\|)\s*(\1[^A-Za-z].*?)\\\}\s*$", r"\2"),
    (r"^\](?=[^\[\]()]*,[^\[\]()]*[\[\])]$)", "("),  # ]0,1[ is (0,1)
    (r"(?<=[^\[\]()])\[$", ")"),
    # Numbers.
    (r"\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?", r"\\overline{\1\2\3}"),
    (r"(\d*)\.(\d*)\\(?:overline|bar)\s*(?:\{(\d+)\}|(\d))", _repeating),
    (r"(?s)^.*\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z]).*$", _radians),
    (r"(?i)(?<=\d)\s*(?:\\text\{\s*)?percent\s*\}?\s*$", r"\\%"),
    # Words.
    (r"(?i)^(?:\\text\{)?\s*(?:an?|the|on|in|it is|is)\s+([a-z]{3,})[\s}]*$", r"\1"),
    (rf"(?i)^(?:\\text\{{)?({'|'.join(NUMERALS)})\s*\}}?$", lambda match: str(NUMERALS.index(match[1].lower()))),
    (r"(?i)^(?:\\text\{)?(?:all|every)\s+real(?:\s+numbers?)?\s*\}?$", r"\\mathbb{R}"),
    (r"(?i)^(?:\\text\{)?infinit[ey]\s*\}?$", r"\\infty"),
    (
        r"(?i)^(?:\\text\{)?(?:there (?:are|is)\s+)?(?:no\s+solutions?(?:\s+exists?)?|none|(?:the )?(?:empty|null) set)"
        r"\s*\}?$|^\\\{\s*\\\}$|\\varnothing(?![A-Za-z])",
        r"\\emptyset ",
    ),
)


@lru_cache(maxsize=4096)
def spelled(text: str) -> str:
    """The answer in LaTeX, without what surrounds it."""
    if not text.isascii():
        text = _letters(_compatible(_structure(text))).translate(_TABLE)
    return _spelling(in_latex(text)).strip()
