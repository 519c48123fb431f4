r"""Units of measurement by one table, and what two quantities have to do with each other.

A unit is dropped if one side alone has it. Units of one dimension are converted. Units of different dimensions differ.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from searchlens.grading.spelling import DEGREES, Rewriting

_LETTERS = {"f": -15, "p": -12, "n": -9, "u": -6, "m": -3, "c": -2, "d": -1, "k": 3, "M": 6, "G": 9, "T": 12}
_WORDS = {"nano": -9, "micro": -6, "milli": -3, "centi": -2, "kilo": 3, "mega": 6, "giga": 9, "tera": 12}
_PREFIXED = r"""
m,meter,meters,metre,metres | g,gram,grams,gm | s,second,seconds | A,amp,amps,ampere,amperes | K,kelvin,kelvins
mol,mole,moles | byte,bytes,B | 1e-3 m^3=L,l,liter,liters,litre,litres | 1 s^-1=Hz,hertz | 1e3 g m s^-2=N,newton,newtons
1 N m=J,joule,joules | 1 J s^-1=W,watt,watts | 1 N m^-2=Pa,pascal,pascals | 1 A s=C,coulomb,coulombs
1 J C^-1=V,volt,volts | 1 V A^-1=ohm,ohms,\Omega | 1 C V^-1=F,farad,farads | 1 V s=Wb,weber,webers
1 Wb m^-2=T,tesla,teslas | 1 Wb A^-1=H,henry,henries | 1.602176634e-19 J=eV | 1e5 Pa=bar
3.0856775814913673e16 m=pc,parsec,parsecs | 4.184 J=cal,calorie,calories
"""
_OTHERS = r"""
1e-6 m=micron,microns | 1e-10 m=angstrom,angstroms,\AA | 1e-7 J=erg,ergs | 1e-5 N=dyn,dyne,dynes | 1e-4 T=gauss
101325 Pa=atm | 9.4607304725808e15 m=ly,lightyear,lightyears | 149597870700 m=AU,au | 1.66053906660e-24 g=amu
1e6 g=ton,tons,tonne,tonnes | 60 s=min,mins,minute,minutes | 3600 s=h,hr,hrs,hour,hours | 24 h=d,day,days
7 d=week,weeks | 1 s=sec,secs | month,months | 12 month=yr,yrs,year,years | 0.0254 m=in,inch,inches
0.3048 m=ft,foot,feet | 0.9144 m=yd,yard,yards | 1609.344 m=mi,mile,miles | 1 mi h^-1=mph
453.59237 g=lb,lbs,pound,pounds | 3.785411784e-3 m^3=gal,gallon,gallons | 1e-6 m^3=cc | dollar,dollars,USD,\$
0.01 dollar=cent,cents | euro,euros,EUR,€ | £,GBP | rupee,rupees | degree,degrees,deg,\circ
radian,radians,rad | celsius,Celsius | fahrenheit,Fahrenheit | M_\odot | L_\odot | R_\odot | rev,revolutions,rpm
"""


class Unit(NamedTuple):
    """A factor, and exponents of base units in the order of their names."""

    factor: Fraction
    dimension: tuple[tuple[str, int], ...]


class Quantity(NamedTuple):
    """An answer with a unit: the text of its value, its unit, and whether the unit may be a product of letters."""

    value: str
    unit: Unit
    doubtful: bool = False


def _product(factors: Iterable[tuple[Unit, int]]) -> Unit:
    """Units to their powers, multiplied."""
    size, powers = Fraction(1), Counter[str]()
    for unit, power in factors:
        size *= unit.factor**power
        for base, exponent in unit.dimension:
            powers[base] += exponent * power
    return Unit(size, tuple(sorted((base, power) for base, power in powers.items() if power)))


def _add(units: dict[str, Unit], table: str, *, prefixed: bool) -> None:
    """The units of a table: ``size and known units = names``, or names of a new base unit."""
    for entry in re.split(r"[|\n]", table.strip()):
        definition, equals, names = entry.strip().rpartition("=")
        size, *parts = definition.split() if equals else ["1"]
        powers = [part.partition("^") for part in parts]
        unit = _product([(Unit(Fraction(size), ()), 1), *((units[name], int(n or 1)) for name, _, n in powers)])
        for name in names.split(","):
            named = unit if equals else Unit(Fraction(1), ((names, 1),))
            units[name] = named
            prefixes = {} if not prefixed else _LETTERS if len(name) <= 3 or name == r"\Omega" else _WORDS
            for prefix, power in prefixes.items():
                units.setdefault(prefix + name, Unit(named.factor * Fraction(10) ** power, named.dimension))


_UNITS: dict[str, Unit] = {}
_add(_UNITS, _PREFIXED, prefixed=True)
_add(_UNITS, _OTHERS, prefixed=False)

# In a flat text, \x01 stands before what was in a text command.
_NAME = "|".join(re.escape(name) for name in sorted(_UNITS, key=len, reverse=True))
_ONE = rf"\x01?(?:(?P<around>square|sq|cubic|cu)\s+\x01?)?(?P<name>{_NAME})(?![A-Za-z])"
_ONE += r"(?:\s*\^\s*(?P<power>-?\d)|\s+(?P<word>squared|cubed))?"
_FACTOR = re.sub(r"\?P<\w+>", "?:", _ONE)
_PER = r"(?:/|(?<![A-Za-z])\x01?per(?![A-Za-z]))"
_PART = re.compile(rf"{_ONE}|(?P<below>{_PER})")
_SPLIT = re.compile(
    rf"(?P<value>.*?[\d}})\w])(?P<gap>[\s\x01]*)(?P<unit>{_FACTOR}(?:\s*(?:(?:{_PER}|[*-])\s*)?{_FACTOR})*)\s*",
    re.DOTALL,
)
_PLAIN = re.compile(r"(?:[\d\s.,+\-*/^{}()!]|\\(?:frac|sqrt|times|cdot|pi)(?![A-Za-z]))+")
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_MIXTURE = re.compile(rf"(?:\d+(?:\.\d+)?\s*\x01?(?:{_NAME})(?![A-Za-z])\s*(?:,\s*|\x01?and\s+)?)" r"{2,}")
_TERM = re.compile(rf"(\d+(?:\.\d+)?)\s*\x01?({_NAME})(?![A-Za-z])")
_MAYBE = re.compile(r"[\d})\sA-Za-z]\s*(?:[A-Za-z/^]|\\(?:circ|degree|mu|Omega|AA|text))|\\\$|[€£]")
_flat = Rewriting(
    (r"^(-?)\s*(?:\\text\{\s*)?(\\\$|€|£)\s*\}?\s*((?:[^A-Za-z\\]|\\times)*)$", "\\1\\3 \x01\\2"),
    (r"\\q?quad(?![A-Za-z])", " "),
    (r"(?<=[A-Za-z])(\s*\}?)\s*\^\s*\{\s*(-?\d)\s*\}", r"\1^\2"),
    (rf"(?:\{{\s*\}})?{DEGREES}|degrees?\s+(?=[CcFf])", r" \\circ "),
    (r"\\circ\s*\}?\s*(?:\\text\{)?C(?:elsius)?\s*\}?", " celsius"),
    (r"\\circ\s*\}?\s*(?:\\text\{)?F(?:ahrenheit)?\s*\}?", " fahrenheit"),
    (r"\\mu\s*(\\text\{)?(?=[A-Za-z])", r"\1u"),
    (r"\\text\{([^{}]*)\}", "\x01\\1 "),
    # A fraction of units.
    (r"\\frac\s*\{((?:[^{}\d]|\^\d)*[A-Za-z](?:[^{}\d]|\^\d)*)\}\s*\{((?:[^{}\d]|\^\d)+)\}", r"\1/\2"),
    (r"(?<=[A-Za-z])\s*\\(?:cdot|times)(?![A-Za-z])\s*(?=[A-Za-z\x01])", "*"),
    (r"\bsolar mass(?:es)?\b|M_\s*\{\s*\\odot\s*\}", r"M_\\odot"),
)


def quantity(text: str) -> Quantity | None:
    """A value and its unit; None if the answer has no known unit at its end."""
    if not _MAYBE.search(text):
        return None
    flat = _flat(text).strip()
    if _MIXTURE.fullmatch(flat):
        return _sum(flat)
    match = _SPLIT.fullmatch(flat)
    if match is None:
        return None
    value, marked, shown = match["value"].strip(), "\x01" in match["gap"] + match["unit"], match["unit"].strip()
    if not re.search(r"\d", value) or "\x01" in value or value[-1] in "^_\\/+-*":
        return None
    if not marked and (not _PLAIN.fullmatch(value) or (len(shown) == 1 and not match["gap"])):
        return None
    return Quantity(value, _unit(shown), not marked and re.fullmatch(r"[A-Za-z](?:\^-?\d)?", shown) is not None)


def _sum(flat: str) -> Quantity | None:
    """A duration or length such as ``3 hours 20 minutes``, in its first unit."""
    terms = [(Fraction(number), _UNITS[name]) for number, name in _TERM.findall(flat)]
    first = terms[0][1]
    if any(unit.dimension != first.dimension for _, unit in terms) or len({unit for _, unit in terms}) < len(terms):
        return None
    return Quantity(str(sum(number * unit.factor for number, unit in terms) / first.factor), first)


def _unit(text: str) -> Unit:
    factors, sign = [], 1
    for part in _PART.finditer(text):
        if part["below"]:
            sign = -1
        else:
            word = part["around"] or part["word"] or ""
            factors.append((_UNITS[part["name"]], sign * int(part["power"] or _POWERS.get(word, 1))))
    return _product(factors)


def unified(gold: str, answer: str) -> tuple[str, str] | bool:
    """Both in one unit, without it; False if they have different ones."""
    ours, theirs = quantity(gold), quantity(answer)
    if ours and theirs:
        if ours.unit.dimension != theirs.unit.dimension:
            return False
        return ours.value, _times(theirs.value, theirs.unit.factor / ours.unit.factor)
    if (ours and answer.endswith("%")) or (theirs and gold.endswith("%")):
        return False
    if ours and not ours.doubtful:
        return ours.value, answer
    return (gold, theirs.value) if theirs and (not theirs.doubtful or _PLAIN.fullmatch(gold)) else (gold, answer)


_SCIENTIFIC = re.compile(r"(-?\d+(?:\.\d*)?)(?:\s*\\(?:times|cdot)\s*10\s*\^\s*\{?([+-]?\d{1,3})\}?)?", re.ASCII)


def _times(value: str, factor: Fraction) -> str:
    if factor == 1:
        return value
    if number := _SCIENTIFIC.fullmatch(value.replace(",", "")):
        return str(Fraction(f"{number[1]}e{number[2] or 0}") * factor)
    return rf"({value})\cdot\frac{{{factor.numerator}}}{{{factor.denominator}}}"
