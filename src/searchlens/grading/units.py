r"""Units of measurement by one table, and what two quantities have to do with each other.

A unit is dropped if one side alone has it. Units of one dimension are converted. Units of different dimensions differ.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from typing import NamedTuple

from searchlens.grading.spelling import TEXT

_PREFIXES = {
    "f": -15,
    "p": -12,
    "n": -9,
    "u": -6,
    "m": -3,
    "c": -2,
    "d": -1,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "nano": -9,
    "micro": -6,
    "milli": -3,
    "centi": -2,
    "deci": -1,
    "kilo": 3,
    "mega": 6,
    "giga": 9,
    "tera": 12,
}
_TABLE = r"""
1 m=m,meter,meters,metre,metres | 1e-3 kg=g,gram,grams,gm | 1 s=s,second,seconds | 1 A=A,amp,amps,ampere,amperes
1 K=K,kelvin,kelvins | 1 mol=mol,mole,moles | 1e-3 m^3=L,l,liter,liters,litre,litres | 1 s^-1=Hz,hertz
1 kg m s^-2=N,newton,newtons | 1 kg m^2 s^-2=J,joule,joules | 1 kg m^2 s^-3=W,watt,watts
1 kg m^-1 s^-2=Pa,pascal,pascals
1 A s=C,coulomb,coulombs | 1 kg m^2 s^-3 A^-1=V,volt,volts | 1 kg m^2 s^-3 A^-2=ohm,ohms,\Omega
1 kg^-1 m^-2 s^4 A^2=F,farad,farads | 1 kg s^-2 A^-1=T,tesla,teslas | 1 kg m^2 s^-2 A^-1=Wb,weber
1 kg m^2 s^-2 A^-2=H,henry,henries | 1.602176634e-19 kg m^2 s^-2=eV | 3.0856775814913673e16 m=pc,parsec,parsecs
1e5 kg m^-1 s^-2=bar | 1 byte=B,byte,bytes | 4.184 kg m^2 s^-2=cal,calorie,calories
"""
_OTHERS = r"""
1e-6 m=micron,microns | 1e-10 m=Å,angstrom,angstroms,\AA | 1e-7 kg m^2 s^-2=erg,ergs | 1e-5 kg m s^-2=dyn,dyne,dynes
1e-4 kg s^-2 A^-1=gauss | 101325 kg m^-1 s^-2=atm | 9.4607304725808e15 m=ly,lightyear,lightyears
149597870700 m=AU,au | 1.66053906660e-27 kg=amu | 1000 kg=ton,tons,tonne,tonnes
60 s=min,mins,minute,minutes | 3600 s=h,hr,hrs,hour,hours | 86400 s=d,day,days | 604800 s=week,weeks | 1 s=sec,secs
1 month=month,months | 12 month=yr,yrs,year,years | 120 month=decade,decades | 1200 month=century,centuries
0.0254 m=in,inch,inches | 0.3048 m=ft,foot,feet | 0.9144 m=yd,yard,yards | 1609.344 m=mi,mile,miles
1609.344/3600 m s^-1=mph | 1/3.6 m s^-1=kph,kmph,kmh | 0.45359237 kg=lb,lbs,pound,pounds
0.45359237/16 kg=oz,ounce,ounces
3.785411784e-3 m^3=gal,gallon,gallons | 1e4 m^2=ha,hectare,hectares | 4046.8564224 m^2=acre,acres | 1e-6 m^3=cc
1 usd=dollar,dollars,USD,usd | 1/100 usd=cent,cents | 1 eur=euro,euros,EUR | 1 gbp=GBP | 1 inr=rupee,rupees
1 degree=degree,degrees,deg,\circ | 1 radian=rad,radian,radians | 1 celsius=celsius,Celsius
1 fahrenheit=fahrenheit,Fahrenheit
1 sun=M_\odot | 1 solarlight=L_\odot | 1 solarradius=R_\odot | 1 rev=rev,revolution,revolutions,rpm
"""


class Unit(NamedTuple):
    """A factor, and exponents of base units in the order of their names."""

    factor: Fraction
    dimension: tuple[tuple[str, int], ...]


class Quantity(NamedTuple):
    """An answer with a unit: the text of its value, its unit, and whether the unit may be a product of letters."""

    value: str
    unit: Unit
    doubtful: bool


def _product(factor: Fraction, powers: Counter[str]) -> Unit:
    return Unit(factor, tuple(sorted((name, power) for name, power in powers.items() if power)))


def _power(unit: Unit, exponent: int) -> Unit:
    return _product(unit.factor**exponent, Counter({name: power * exponent for name, power in unit.dimension}))


def _times(one: Unit, other: Unit) -> Unit:
    powers = Counter(dict(one.dimension))
    for name, power in other.dimension:
        powers[name] += power
    return _product(one.factor * other.factor, powers)


def _read(table: str) -> dict[str, Unit]:
    units = {}
    for entry in re.split(r"[|\n]", table.strip()):
        definition, _, names = entry.strip().partition("=")
        factor, *bases = definition.split()
        above, _, below = factor.partition("/")
        powers = Counter({base.partition("^")[0]: int(base.partition("^")[2] or 1) for base in bases})
        for name in names.split(","):
            units[name] = _product(Fraction(above) / Fraction(below or 1), powers)
    return units


def _all_units() -> dict[str, Unit]:
    units = {}
    for name, unit in _read(_TABLE).items():
        for prefix, power in _PREFIXES.items():
            if (len(prefix) == 1) == (len(name) <= 3 or name == r"\Omega"):  # kPa and kilopascal
                units[prefix + name] = Unit(unit.factor * Fraction(10) ** power, unit.dimension)
        units[name] = unit
    units |= _read(_OTHERS)
    return units


_UNITS = _all_units()
_NAME = "|".join(re.escape(name) for name in sorted(_UNITS, key=len, reverse=True))
_FACTOR = rf"(?:(?:square|sq|cubic|cu)\s+)?\x01?(?:{_NAME})(?![A-Za-z])(?:\s*\^\s*-?\d|\s+squared|\s+cubed)?"
_UNIT = re.compile(rf"{_FACTOR}(?:\s*(?:/|\*|-|(?<![A-Za-z])per(?![A-Za-z])|)\s*{_FACTOR})*")
_SPLIT = re.compile(rf"(?P<value>.*?[\d}})\w])(?P<gap>[\s\x01]*)(?P<unit>{_UNIT.pattern})", re.DOTALL)
_PART = re.compile(
    rf"(?P<around>(?:square|sq|cubic|cu)\s+)?(?P<name>{_NAME})(?![A-Za-z])"
    r"(?:\s*\^\s*(?P<power>-?\d)|\s+(?P<word>squared|cubed))?|(?P<below>/|(?<![A-Za-z])per(?![A-Za-z]))"
)
_PLAIN = re.compile(r"(?:[\d\s.,+\-*/^{}()]|\\(?:frac|dfrac|tfrac|sqrt|times|cdot|pi)(?![A-Za-z]))+")
_CURRENCY = {"\\$": "usd", "€": "eur", "£": "gbp"}
_MONEY = re.compile(r"\s*(-?)\s*(?:\\text\s*\{\s*)?(\\\$|€|£)\s*\}?\s*([\d.,{}\\!]+)\s*(.*)", re.DOTALL)
_MIXTURE = re.compile(rf"\s*(?:\d+(?:\.\d+)?\s*\x01?\s*(?:{_NAME})(?![A-Za-z])\s*(?:,|\x01?and\s)?\s*)" r"{2,}")
_ONE = re.compile(rf"(\d+(?:\.\d+)?)\s*\x01?\s*({_NAME})(?![A-Za-z])")
_MAYBE = re.compile(r"[\d})\sA-Za-z]\s*(?:[A-Za-z\x01/^]|\\(?:circ|degree|mu|Omega|AA|text|mathrm|,|;| ))|\\\$|[€£]")


def _flat(text: str) -> str:
    r"""The text with ``\text{m}`` as ``m`` between marks, and plain spaces, slashes and exponents."""
    text = re.sub(r"\\[,;:! ]|~|\\(?:quad|qquad|enspace|thinspace)(?![A-Za-z])", " ", text)
    text = re.sub(r"\^\s*\{\s*(-?\d)\s*\}", r"^\1", text)
    text = re.sub(
        r"(?:\{\s*\})?\^\s*\{?\s*\\(?:circ|degree)\s*\}?\s*|\\degree(?![A-Za-z])\s*|degrees?\s+(?=Cel|Fah|cel|fah)",
        r" \\circ ",
        text,
    )
    text = re.sub(
        rf"\\circ\s*(?:\}}\s*)?(?:{TEXT}\s*\{{\s*([CF])\s*\}}|([CFcf])(?:elsius|ahrenheit)?\s*\}}?$)",
        _temperature,
        text,
    )
    text = re.sub(rf"\\mu\s*(?={TEXT}\s*\{{|[A-Za-z])", "\x03", text)
    text = re.sub(rf"{TEXT}\s*\{{([^{{}}]*)\}}", "\x01\\1 ", text)
    text = re.sub("\x01\\s*", "\x01", text)
    text = re.sub("\x03\\s*(\x01?)", r"\1u", text)
    text = re.sub(
        r"\\[dt]?frac\s*\{((?:[^{}\d]|\^\d)*[A-Za-z](?:[^{}\d]|\^\d|\^\{\d\})*)\}\s*\{((?:[^{}\d]|\^\d|\^\{\d\})+)\}",
        r"\1/\2",
        text,
    )
    text = re.sub(r"(?<=[A-Za-z])\s*(?:\\cdot|\\times)(?![A-Za-z])\s*(?=[A-Za-z\x01])", "*", text)
    text = re.sub(r"\bsolar mass(?:es)?\b", lambda _: r"M_\odot", text)
    text = re.sub(r"M_\s*\{\s*\\odot\s*\}", lambda _: r"M_\odot", text)
    return text.strip()


def _temperature(match: re.Match[str]) -> str:
    return " celsius" if (match[1] or match[2]) in "Cc" else " fahrenheit"


def quantity(text: str) -> Quantity | None:
    """A value and its unit; None if the answer has no known unit at its end."""
    if not _MAYBE.search(text):
        return None
    if (money := _MONEY.fullmatch(text)) and not re.search(r"[A-Za-z\d]", money[4]):
        return Quantity(f"{money[1]}{money[3]}", Unit(Fraction(1), ((_CURRENCY[money[2]], 1),)), doubtful=False)
    flat = _flat(text)
    if (mixture := _sum(flat)) is not None:
        return mixture
    match = _SPLIT.fullmatch(flat)
    if match is None:
        return None
    value, marked = match["value"].strip(), "\x01" in match["gap"] + match["unit"]
    if not re.search(r"\d", value) or "\x01" in value or value[-1:] in "^_\\/+-*":
        return None
    shown = match["unit"].replace("\x01", " ")
    if not marked and (not _PLAIN.fullmatch(value) or (len(shown.strip()) == 1 and not match["gap"])):
        return None
    if re.search(r"[A-Za-z]$", value) and not marked:
        return None
    unit = _unit(shown)
    doubtful = not marked and re.fullmatch(r"[A-Za-z](?:\^-?\d)?", shown.strip()) is not None
    return Quantity(value, unit, doubtful)


def _sum(flat: str) -> Quantity | None:
    """A duration or length such as ``3 hours 20 minutes``, in its first unit."""
    if not _MIXTURE.fullmatch(flat):
        return None
    parts = [(Fraction(number), _UNITS[name]) for number, name in _ONE.findall(flat)]
    first = parts[0][1]
    if any(unit.dimension != first.dimension for _, unit in parts) or len({unit for _, unit in parts}) < len(parts):
        return None
    total = sum((number * unit.factor / first.factor for number, unit in parts), Fraction(0))
    return Quantity(str(total), first, doubtful=False)


def _unit(text: str) -> Unit:
    whole, sign = _product(Fraction(1), Counter()), 1
    for part in _PART.finditer(text):
        if part["below"]:
            sign = -1
            continue
        word = (part["around"] or part["word"] or "").strip()
        power = int(part["power"] or {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}.get(word, 1))
        whole = _times(whole, _power(_UNITS[part["name"]], sign * power))
    return whole


_TURN = {("degree", "radian"): r"(%s)\cdot\frac{180}{\pi}", ("radian", "degree"): r"(%s)\cdot\frac{\pi}{180}"}
_NUMBER_ALONE = re.compile(r"(?:[\d\s.,+\-*/^{}()!]|\\[A-Za-z]+|\\[,!;: ])+")


def _lone(unit: Unit) -> str:
    """The base unit that a unit is; empty if it has several."""
    return unit.dimension[0][0] if len(unit.dimension) == 1 else ""


class Unified(NamedTuple):
    """Two answers without units: their texts, what multiplies the second, and a verdict if units decide."""

    gold: str
    answer: str
    factor: Fraction = Fraction(1)
    verdict: bool | None = None


def unified(gold: str, answer: str) -> Unified:
    """A gold answer and an answer in one unit, without it."""
    ours, theirs = quantity(gold), quantity(answer)
    if ours is None or theirs is None:
        if (ours and answer.rstrip().endswith("%")) or (theirs and gold.rstrip().endswith("%")):
            return Unified(gold, answer, verdict=False)
        if ours and not ours.doubtful:
            return Unified(ours.value, answer)
        if theirs and (not theirs.doubtful or _NUMBER_ALONE.fullmatch(gold)):
            return Unified(gold, theirs.value)
        return Unified(gold, answer)
    names = _lone(ours.unit), _lone(theirs.unit)
    if turned := _TURN.get(names):
        return Unified(ours.value, turned % theirs.value)
    if ours.unit.dimension != theirs.unit.dimension:
        return Unified(gold, answer, verdict=False)
    return Unified(ours.value, theirs.value, theirs.unit.factor / ours.unit.factor)
