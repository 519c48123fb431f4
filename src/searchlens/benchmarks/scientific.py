"""Reads numbers in e-notation, which readers of LaTeX take for a product with e."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"(?<![\w.\\])(\d+(?:\.\d*)?|\.\d+)[eE]([+-]?\d{1,4})(?!\w|\.\d)", re.ASCII)


def in_latex(text: str) -> str:
    r"""The text with every number such as ``4.5e33`` or ``.5E-3`` as ``4.5 \times 10^{33}`` or ``0.5 \times 10^{-3}``.

    Whole numbers of more than four digits in the exponent, and numbers next to a letter, stay.
    """
    return _NUMBER.sub(_written_out, text) if "e" in text or "E" in text else text


def _written_out(number: re.Match[str]) -> str:
    mantissa = f"0{number[1]}" if number[1].startswith(".") else number[1]
    return rf"{mantissa} \times 10^{{{int(number[2])}}}"
