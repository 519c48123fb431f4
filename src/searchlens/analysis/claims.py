"""What is said of numbers: how they are printed, and the sentences and titles that depend on them.

A sentence is a list of claims, each a text and a condition; the first whose condition holds is said. All are declared
here, and tests/analysis/test_claims.py checks each text against random frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

Row = Mapping[str, Any]
"""One row of a frame, or what was counted in one, by name."""
DASH = "—"
"""Printed in place of a number that is not defined."""
ROUNDING = 1e-9
"""An end of an interval that is nearer to 0 is 0."""


class Claim(NamedTuple):
    """A text, and when it may be said."""

    text: str
    """With the names of a row in braces, as ``str.format`` takes them."""
    holds: Callable[[Row], object] = lambda _: True
    """Whether the claim is true of a row. Without it, the text says no more than its numbers."""


def say(claims: Sequence[Claim], row: Row) -> str:
    """The text of the first claim that holds of a row."""
    return next(claim.text.format(**row) for claim in claims if claim.holds(row))


def every(claims: Sequence[Claim], row: Row) -> str:
    """The texts of all claims that hold of a row, as one sentence."""
    return "; ".join(claim.text.format(**row) for claim in claims if claim.holds(row)) + "."


# ---- numbers


def number(value: float | None, digits: int = 2, sign: str = "") -> str:
    """A number with a true minus sign and without negative zero; a dash for None and NaN, which are not defined.

    ``sign="+"`` marks positive numbers, too.

    >>> number(2.5, sign="+"), number(-0.001), number(None)
    ('+2.50', '0.00', '—')
    """
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else "\N{MINUS SIGN}∞"
    text = f"{value:{sign}.{digits}f}"
    if float(text) == 0:
        text = text.replace("-", "+" if sign else "")
    return text.replace("-", "\N{MINUS SIGN}")


def bracket(
    lo: float | None, hi: float | None, digits: int = 2, sign: str = "", *, lo_open: bool = False, hi_open: bool = False
) -> str:
    """Ends of an interval; an open one is only known to lie there or beyond.

    >>> bracket(1, 4.62, 1, lo_open=True), bracket(6.6, 16, 1, hi_open=True)
    ('[1.0 or less, 4.6]', '[6.6, 16.0 or more]')
    """
    low, high = number(lo, digits, sign), number(hi, digits, sign)
    return f"[{low}{' or less' if lo_open else ''}, {high}{' or more' if hi_open else ''}]"


def interval(value: float | None, lo: float | None, hi: float | None, digits: int = 2, sign: str = "") -> str:
    """A number with its interval, such as ``1.12 [0.76, 2.52]``; the number alone if an end is None."""
    text = number(value, digits, sign)
    return text if text == DASH or lo is None or hi is None else f"{text} {bracket(lo, hi, digits, sign)}"


def percent(value: float | None, lo: float | None = None, hi: float | None = None, sign: str = "") -> str:
    """A proportion as a percentage, with its interval."""
    value, lo, hi = (None if x is None else 100 * x for x in (value, lo, hi))
    return interval(value, lo, hi, 1, sign)


def solved(value: float | None, lo: float | None, hi: float | None) -> str:
    """A share of questions in a sentence, with its interval; nothing if it is not known."""
    return "" if value is None else percent(value, lo, hi).replace(" [", "% [")


def samples(budgets: Sequence[int]) -> str:
    """Numbers of samples in a sentence; nothing of none.

    >>> samples([1]), samples([1, 4, 16])
    ('1 sample', '1, 4 and 16 samples')
    """
    names = [str(budget) for budget in budgets]
    listed = " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
    return f"{listed} {'sample' if names == ['1'] else 'samples'}" if names else ""


# ---- where one curve reaches another


def located(claims: Sequence[Claim], row: Row) -> str:
    """A claim of ``EQUIVALENT`` or ``MEETING`` about a row of the frame, such as ``3.5 [2.9, 4.2]``."""
    row = {**row, "ends": bracket(row["lo"], row["hi"], 1, lo_open=row["lo_open"], hi_open=row["hi_open"])}
    return say(claims, row)


def worth(row: Row) -> str:
    """The same of ``WORTH``, such as ``1 RL sample is worth 3.5 [2.9, 4.2] base samples``."""
    rl = "1 RL sample is" if row["budget"] == 1 else f"{row['budget']} RL samples are"
    return say(WORTH, {**row, "rl": rl, "equivalent": located(EQUIVALENT, row)})


def _state(name: str) -> Callable[[Row], bool]:
    return lambda row: row["state"] == name


EQUIVALENT = (
    Claim("{n:.1f} {ends}", _state("within")),
    Claim("less than 1 {ends}", _state("below")),
    Claim("more than {pool} {ends}", _state("above")),
    Claim("{pool} or more (both at the end of what was drawn)", _state("level")),
)
"""N*, of a row of ``analysis.equivalents.EQUIVALENTS``."""
WORTH = (
    Claim("{rl} worth less than 1 base sample", _state("below")),
    Claim("{rl} worth {pool} or more base samples (both at the end of what was drawn)", _state("level")),
    Claim("{rl} worth {equivalent} base samples"),
)
"""The same in a sentence."""
MEETING = (
    Claim("{crossing:.1f} {ends}", _state("within")),
    Claim("{first:.1f} or less {ends}", _state("below")),
    Claim("{last:.1f} or more {ends}", _state("above")),
)
"""Where Base overtakes RL, of a row of ``equivalents.CROSSINGS``."""


def standing(row: Row) -> str:
    """Of a row of ``CROSSINGS`` with ``crossing_lo`` and ``_hi``: whether Base ``passes`` RL, is nowhere behind
    (``ahead``) or not at the end (``late``), or RL ``leads`` there, by the interval; else ``open``, or empty if nothing
    was read.
    """
    if not row["state"]:
        return ""
    if row["lo_open"] and not row["hi_open"]:
        return "ahead" if row["state"] == "below" else "late"
    if row["state"] == "above" and row["crossing_lo"] >= row["last"]:
        return "leads"
    return "passes" if row["state"] == "within" and not row["hi_open"] else "open"


def stood(rows: Sequence[Row]) -> Row:
    """In how many cells Base stands how."""
    found = [standing(row) for row in rows]
    counts = {name: found.count(name) for name in ("passes", "ahead", "late", "leads", "open")}
    verb = "" if counts["leads"] else "is " if counts["open"] == 1 else "are "
    return {**counts, "cells": len(found), "verb": verb}


PASSING = (
    Claim(
        "Base passes RL at {crossing:.1f} [{crossing_lo:.1f}, {crossing_hi:.1f}]", lambda row: standing(row) == "passes"
    ),
    Claim("RL still leads at {last:.0f}", lambda row: standing(row) == "leads"),
    Claim("open: too few questions to say", lambda row: not row["state"] or (row["lo_open"] and row["hi_open"])),
    Claim("Base level or ahead from {crossing_hi:.1f} on", lambda row: row["lo_open"]),
    Claim("RL leads up to {crossing_lo:.1f}, open beyond"),
)
"""Who leads in a cell, as far as the interval of the crossing says so."""
STOOD = (
    Claim("Base passes RL in {passes} of {cells} cells"),
    Claim("is level or ahead throughout in {ahead}", lambda row: row["ahead"]),
    Claim("is level or ahead at the end in {late}", lambda row: row["late"]),
    Claim("RL still leads at the end in {leads}", lambda row: row["leads"]),
    Claim("{open} {verb}open", lambda row: row["open"]),
)
"""The same of all cells: all that hold are said."""


def leader(lo: float | None, hi: float | None) -> str:
    """Who is ahead by the interval of RL − Base: ``RL``, ``Base``, or nobody."""
    if lo is None or hi is None:
        return ""
    return "RL" if lo > ROUNDING else "Base" if hi < -ROUNDING else ""


# ---- what the measures of a comparison can say, and all that they cannot

NOT_IDENTIFIED = "not identified"
SINGLE = f"{NOT_IDENTIFIED}: a side has a single sample."
GUESSED = 0.5
"""Share of questions that guessing solves from which on pass@k says little."""
SURE = 0.95
"""Probability from which on the winner of a second run is decided."""


def undecided(lo: float | None, hi: float | None) -> bool:
    """Whether the winner of a second run is open: its probability may be neither near 0 nor near 1."""
    return lo is not None and hi is not None and lo < SURE and hi > 1 - SURE


_has = itemgetter


def _lacks(name: str) -> Callable[[Row], object]:
    return lambda row: row[name] is None or not row[name]


def _insignificant(name: str) -> Claim:
    text = f"{name}: no question is significant, {{{name}_null:.1f}} are expected by chance"
    return Claim(text, lambda row: row[name] and not row[f"{name}_significant"])


CAN: Mapping[str, Sequence[Claim]] = {
    "in short": [
        Claim("Neither side solves any question.", _has("nothing")),
        Claim("{worth}With {last}, {leader} solves more: RL − Base is {found}.", _has("leader")),
        Claim("{worth}With {last} it is open which side solves more: RL − Base is {found}."),
    ],
    "pass@k": [Claim("RL − Base is {found}.")],
    "budget equivalents": [
        Claim("not identified: {found}.", lambda row: len(row["beyond"]) == len(row["shown"])),
        Claim("{found}."),
    ],
    "support": [Claim("RL keeps {kept} questions of Base's, loses {shrunk} and adds {expanded}.")],
    "reliability": [Claim("Of questions solved in at least half of the samples, RL − Base is {found}.")],
    "guessing": [
        Claim("not identified: no lettered options were given.", _lacks("found")),
        Claim("Without guessing, RL − Base is {found}."),
    ],
    "wrong_key": [
        Claim("not identified: no verdicts against golds of other questions were given.", _lacks("found")),
        Claim("With golds of other questions the same samples solve {found}. Without them, RL − Base is {without}."),
    ],
    "entropy": [
        Claim("not identified: no classes of answers were given.", lambda row: row["base"] is None),
        Claim(SINGLE, lambda row: row["samples"] < 2),
        Claim("Answers have an entropy of {base:.2f} nats under Base and {rl:.2f} under RL."),
    ],
    "second run": [
        Claim(SINGLE, lambda row: row["value"] is None),
        Claim("RL wins a second run on these questions with probability {found}."),
    ],
    "variance": [
        Claim("not identified: one sample, or no variance.", _lacks("found")),
        Claim("Of the variance of pass@1, questions make up {found}."),
    ],
    "extrapolation": [
        Claim("not identified: too few samples to try it.", _lacks("most")),
        Claim("If difficulty is so distributed, {found}.", _has("found")),
        Claim("not identified: fewer than {smallest} samples of each side.", lambda row: row["most"] < row["smallest"]),
        Claim("not identified: on these samples its intervals are right too seldom or too often ({tried})."),
    ],
    "graders": [
        Claim("not identified: the verdicts are those of the logs; no text was graded again.", _has("recorded")),
        Claim("not identified: no other grader applies to answers that {grader} reads.", _lacks("found")),
        Claim("{grader} agrees with {found}."),
    ],
    "health": [Claim("{found}.")],
}
"""By measure, of what ``comparison.statements`` gathers: the first that holds is said. Exponents are in that module."""
CANNOT: Mapping[str, Sequence[Claim]] = {
    "in short": [Claim("what other questions, other sampling or another training run would give")],
    "pass@k": [
        Claim("which side solves more at {open}", _has("open")),
        Claim("anything beyond {last}, or about another training run"),
    ],
    "budget equivalents": [Claim("{places}", _has("places")), Claim("what more samples of either side would show")],
    "support": [
        *(_insignificant("shrunk"), _insignificant("expanded")),
        Claim("that a question is out of reach: chances below {missed} are missed"),
    ],
    "reliability": [
        Claim("which side is more reliable", lambda row: not leader(row["lo"], row["hi"])),
        Claim("which questions are solved so; shares are noisy"),
    ],
    "guessing": [Claim("{nulls}", _has("nulls")), Claim("whether models guess evenly")],
    "wrong_key": [Claim("which right answers were guessed; whether the rate is alike on all questions, as assumed")],
    "entropy": [Claim("the answers that these samples do not show; with few samples it is too low")],
    "second run": [
        Claim("which side wins it", lambda row: undecided(row["lo"], row["hi"])),
        Claim("what happens on other questions or with other models"),
    ],
    "variance": [Claim("the share of sampling seeds and of training runs: there is one of each")],
    "extrapolation": [Claim("anything beyond, and whether difficulty is so distributed")],
    "graders": [
        Claim("whether another grader would judge alike", _lacks("found")),
        Claim("measures closer than the graders' disagreement ({doubtful})", _has("doubtful")),
        Claim("which grader is right", _has("found")),
    ],
    "health": [
        Claim("whether texts of {unknown} were cut off", _has("unknown")),
        Claim("more of {ill}", _has("ill")),
        Claim("whether a longer token limit or another prompt would change the answers"),
    ],
}
"""The same of what stays open: all that hold are said."""
OPEN_ANSWERS = (
    Claim("No lettered options were given; what wrong keys solve is shown beside pass@k.", _has("wrong_key")),
    Claim("No lettered options were given."),
)


# ---- the sentences on a cell of a study

SOUND = (
    Claim("Whether the samples of {title} are sound is not known: there is no landscape.", _lacks("sides")),
    Claim("The samples can be read, but mind: {remarks}.", _has("remarks")),
    Claim("The samples are sound: {sides} state an answer."),
)
LEADING = (
    Claim("Who leads is not known: there are no gaps under RL's default policy, {policy}.", _lacks("found")),
    Claim("{found} (points of pass@k under {policy}).{wrong_key}{greedy}"),
)
WRONG_KEY = (
    Claim("", _lacks("sides")),
    Claim(" Wrong keys, the golds of other questions, solve {sides} with {samples}."),
)


def _leads(name: str) -> Callable[[Row], bool]:
    return lambda row: leader(row["lo"], row["hi"]) == name


LEAD = (
    Claim("with {samples} RL leads by {value} [{low}, {high}]", _leads("RL")),
    Claim("with {samples} Base leads by {value} [{high}, {low}]", _leads("Base")),
    Claim("with {samples} neither leads surely: RL − Base is {open}"),
)
"""Who leads with so many samples; the numbers of the first two are without their sign."""
PLACE = (
    Claim("inside what {pool} reach", _has("inside")),
    Claim("above the best of {pool}", lambda row: row["rl_minus_best"] > 0),
    Claim("below nearly all of {pool}"),
)
"""Where RL lies by the estimates, of a row of ``store.columns.SUPPORT``."""
REACHED = (
    Claim("Whether Base reaches RL is not known: there is no recovery analysis.", _lacks("places")),
    Claim("By the estimates RL lies {places}; whether it is above their best is open {open}.{worth}", _has("open")),
    Claim("RL lies {places}.{worth}"),
)
ONE_SAMPLE = (
    Claim("", _lacks("equivalent")),
    Claim(" One sample of RL is worth {equivalent} of Base under the same policy."),
)
SUMMED = (
    Claim("not interpretable. {warning}", _has("warning")),
    Claim("{policy} was not sampled from both models", _lacks("gaps")),
    Claim("{gaps} ({questions} questions, {source}). {inside}.{greedy}"),
)
"""The same in a line of ``searchlens summary``."""
GREEDILY = (
    Claim("", lambda row: not row.get("Base")),
    Claim(" One greedy answer of Base solves {Base}.", lambda row: not row.get("RL")),
    Claim(" One greedy answer of Base solves {Base}, of RL {RL}."),
)


# ---- titles of figures, of what was counted in their frames

WORTH_MORE = (
    Claim("In no cell is one sample of RL shown to be worth more than one of Base", _lacks("more")),
    Claim("One sample of RL is worth more than one of Base in {more} of {cells} cells{most}"),
)
FITTED = (
    Claim("No power law could be tested", lambda row: not row["cells"]),
    Claim("Of {cells} cells β = 1 is rejected in {one}, every power law in {empty}", _lacks("every")),
    Claim("Of {cells} cells β = 1 is rejected in {one}, every power law in {empty}; in {every} no β is rejected"),
)


def counted(ends: Iterable[tuple[float | None, float | None]]) -> Row:
    """In how many cells who leads, by the intervals of RL − Base."""
    found = [leader(lo, hi) for lo, hi in ends]
    rl, base = found.count("RL"), found.count("Base")
    undecided = len(found) - rl - base
    return {
        "rl": rl,
        "base": base,
        "cells": len(found),
        "open": f"{undecided} {'is' if undecided == 1 else 'are'} open",
    }


LEADS = (Claim("RL leads at {rl} of {cells} points, Base at {base}; {open}"),)
CHANGED_MORE = (Claim("RL loses more questions than it adds in {base} of {cells} cells, adds more in {rl}; {open}"),)
INSIDE = (
    Claim("Neither model solves any question", _lacks("decided")),
    Claim("By the estimates RL is inside what Base's {policies} reach at {inside} of {decided} budgets"),
)
COVERS = (Claim("at τ = {tau:g} Base covers more in {base}, RL in {rl}, {open}"),)
AT_COST = (
    Claim("RL and Base were not read at the same cost", _lacks("cost")),
    Claim(
        "At equal {axis} ({cost:.0f} per question) the best of Base solves {base:.0%}, RL {rl:.0%}, by the estimates"
    ),
)
PATH = (
    Claim(
        "By the estimates none of {points} Base points is within {tolerance} of RL at {missed}, one is at {near} of"
        " {budgets} budgets",
        lambda row: row["missed"],
    ),
    Claim(
        "By the estimates a path that never goes back, chosen among {points} Base points, stays within {kept} pp of RL"
        " at all {budgets} budgets"
    ),
)
MATCHES = (
    Claim("By the estimates no Base point matches RL at {missed}", _has("missed")),
    Claim(
        "By the estimates {low} of {points} Base points match each budget of RL", lambda row: row["low"] == row["high"]
    ),
    Claim("By the estimates {low} to {high} of {points} Base points match each budget of RL"),
)
LEVEL = (Claim("By the estimates Base ≥ RL under {first} policies at {first_budget}, {last} at {last_budget}"),)

ERRS_LEAST = (
    Claim("No prediction without the answer is defined", _lacks("rows")),
    Claim(
        "Of the rows that have not seen the curve only {label} is defined: {error} points", lambda row: row["rows"] == 1
    ),
    Claim("By the estimates {label} errs least without the curve, {error} points, next {near}", _has("near")),
    Claim("Of the rows that have not seen the curve {label} errs least over {cells} cells: {error} points"),
)
ERRORS = (
    Claim("No error of a rule that has not seen the curve is defined", _lacks("cells")),
    Claim("By the estimates errors of the rule reach from {low} to {high} points ({rule}, {model})"),
)
ASSIGNED = (
    Claim("No interval of an exponent is known", _lacks("known")),
    Claim("{inside} of {known} intervals hold the assigned exponent"),
)
SCALES = (
    Claim("By the estimates scales α of {models} models reach from {low} to {high}, with {paths} different N(b)"),
)
PREDICTS = (
    Claim("No Base feature is shown to predict α: {chances}", _lacks("shown")),
    Claim("A Base feature is shown to predict α, but only with {shown} features: {chances}", _has("others")),
    Claim("A Base feature is shown to predict α: {chances}"),
)
OVERTAKES = (
    Claim("not drawn, {why}", _has("why")),
    Claim("no k*: by the estimates Base is behind at b = {largest}{never}{tied}", _lacks("crossing")),
    Claim("by the estimates Base is not behind from k* = {crossing}{ends} samples on{tied}"),
)
