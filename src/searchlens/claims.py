"""What is said of numbers: how they are printed, and the sentences and titles that depend on them.

A sentence is a list of claims, each a condition and a text; the first whose condition holds is said. All are declared
here, and tests/test_claims.py checks each text against random frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Row = Mapping[str, Any]
"""One row of a frame, or what was counted in one, by name."""
DASH = "—"
"""Printed in place of a number that is not defined."""
ROUNDING = 1e-9
"""An end of an interval that is nearer to 0 is 0."""


class Claim(NamedTuple):
    """A text, and when it may be said.

    Attributes
    ----------
    holds : callable
        From a row to whether the claim is true of it.
    text : callable
        From a row to the text.
    """

    holds: Callable[[Row], bool]
    text: Callable[[Row], str]


def say(claims: Sequence[Claim], row: Row) -> str:
    """The text of the first claim that holds of a row."""
    return next(claim.text(row) for claim in claims if claim.holds(row))


def always(_: Row) -> bool:
    """The condition of a text that says no more than its numbers."""
    return True


# ---- numbers


def number(value: float | None, digits: int = 2, sign: str = "") -> str:
    """A number with a true minus sign and without negative zero; a dash if it is not defined.

    Parameters
    ----------
    value : float or None
        None and NaN are not defined.
    digits : int, optional
        After the decimal point.
    sign : {"", "+"}, optional
        ``"+"`` marks positive numbers, too.

    Examples
    --------
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


# ---- where one curve reaches another


def _ends(row: Row) -> str:
    return bracket(row["lo"], row["hi"], 1, lo_open=row["lo_open"], hi_open=row["hi_open"])


EQUIVALENT = (
    Claim(lambda row: row["state"] == "within", lambda row: f"{row['n']:.1f} {_ends(row)}"),
    Claim(lambda row: row["state"] == "below", lambda row: f"less than 1 {_ends(row)}"),
    Claim(lambda row: row["state"] == "above", lambda row: f"more than {row['pool']} {_ends(row)}"),
    Claim(
        lambda row: row["state"] == "level", lambda row: f"{row['pool']} or more (both at the end of what was drawn)"
    ),
)
"""N*, of a row of ``readings.equivalents.EQUIVALENTS``, such as ``3.5 [2.9, 4.2]``."""
MEETING = (
    Claim(lambda row: row["state"] == "within", lambda row: f"{row['crossing']:.1f} {_ends(row)}"),
    Claim(lambda row: row["state"] == "below", lambda row: f"{row['first']:.1f} or less {_ends(row)}"),
    Claim(lambda row: row["state"] == "above", lambda row: f"{row['last']:.1f} or more {_ends(row)}"),
)
"""Where Base overtakes RL, of a row of ``readings.crossings.CROSSINGS``."""


def leader(lo: float | None, hi: float | None) -> str:
    """Who is ahead by the interval of RL − Base: ``RL``, ``Base``, or nobody."""
    if lo is None or hi is None:
        return ""
    return "RL" if lo > ROUNDING else "Base" if hi < -ROUNDING else ""


# ---- what the readings of a comparison can say, and all that they cannot


NOT_IDENTIFIED = "not identified"
GUESSED = 0.5
"""Share of questions that guessing solves from which on pass@k says little."""
SURE = 0.95
"""Probability from which on the winner of a second run is decided."""


class Said(NamedTuple):
    """Claims about one reading: the first of ``can`` that holds is said, and each of ``cannot`` that does."""

    can: Sequence[Claim]
    cannot: Sequence[Claim]


def unidentified(holds: Callable[[Row], bool], reason: str) -> Claim:
    """The claim that the samples do not determine a reading, and why."""
    return Claim(holds, lambda _: f"{NOT_IDENTIFIED}: {reason}.")


def _difference(row: Row) -> str:
    return f"{percent(row['value'], row['lo'], row['hi'], '+')} points"


def _differences(rows: Sequence[Row]) -> str:
    return ", ".join(f"{_difference(row)} at {row['k']}" for row in rows)


def _undecided(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not leader(row["lo"], row["hi"])]


def _samples(budgets: Sequence[int]) -> str:
    names = [str(budget) for budget in budgets]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{listed} {'sample' if names == ['1'] else 'samples'}"


def _worth(row: Row) -> str:
    return say(WORTH, row)


def _beyond(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["state"] in ("above", "level")]


WORTH = (
    Claim(
        lambda row: row["state"] == "below",
        lambda row: f"one sample of Base solves more than {row['budget']} of RL",
    ),
    Claim(
        lambda row: row["state"] == "above",
        lambda row: f"{row['budget']} of RL solve more than all {row['pool']} of Base",
    ),
    Claim(always, lambda row: f"{row['budget']} of RL equal {say(EQUIVALENT, row)} of Base"),
)
"""N* in words, of a row of ``readings.equivalents.EQUIVALENTS``."""


def _insignificant(name: str) -> Claim:
    return Claim(
        lambda row: row[name] and not row[f"{name}_significant"],
        lambda row: f"{name}: no question is significant, {row[f'{name}_null']:.1f} are expected by chance",
    )


def _missed(row: Row) -> str:
    low, high = sorted((row["base_epsilon"], row["rl_epsilon"]))
    chance = f"{low:.3f}" if low == high else f"{low:.3f} (the larger pool; {high:.3f} the smaller)"
    return f"that a question is out of reach: chances below {chance} are missed"


def _lucky(row: Row) -> str:
    parts = [
        f"{percent(one['value'])}% of questions (Base) and {percent(two['value'])}% (RL) at {one['k']}"
        for one, two in zip(row["base"], row["rl"], strict=True)
    ]
    return f"With golds of other questions the same samples solve {'; '.join(parts)}."


def _extrapolated(row: Row) -> str:
    return "; ".join(
        f"{each['side']} solves {percent(each['value'], each['lo'], each['hi'])}% with {each['k']} samples"
        f" ({each['model']})"
        for each in row["rows"]
        if each["trusted"]
    )


def _untrusted(row: Row) -> str:
    rated = [("no fit" if each["coverage"] is None else f"{each['coverage']:.2f}", each) for each in row["rows"]]
    tried = ", ".join(dict.fromkeys(f"{each['model']}: {rate}" for rate, each in rated))
    return f"{NOT_IDENTIFIED}: on these samples its intervals are right too seldom or too often ({tried})."


SINGLE = "a side has a single sample"
READINGS: Mapping[str, Said] = {
    "pass@k": Said(
        [Claim(always, lambda row: f"RL − Base is {_differences(row['shown'])}.")],
        [
            Claim(
                lambda row: bool(_undecided(row["shown"])),
                lambda row: f"which side solves more at {_samples([each['k'] for each in _undecided(row['shown'])])}",
            ),
            Claim(always, lambda row: f"anything beyond {_samples([row['last']])}, or about another training run"),
        ],
    ),
    "budget equivalents": Said(
        [
            Claim(
                lambda row: len(_beyond(row["shown"])) == len(row["shown"]),
                lambda row: f"{NOT_IDENTIFIED}: {'; '.join(map(_worth, row['shown']))}.",
            ),
            Claim(always, lambda row: f"In samples, {'; '.join(map(_worth, row['shown']))}."),
        ],
        [
            Claim(
                lambda row: bool(_beyond(row["shown"])),
                lambda row: "; ".join(
                    f"N*({each['budget']}), which is not within the {each['pool']} samples of Base"
                    for each in _beyond(row["shown"])
                ),
            ),
            Claim(always, lambda _: "what more samples of either side would show"),
        ],
    ),
    "support": Said(
        [
            Claim(
                always,
                lambda row: (
                    f"RL keeps {row['kept']} questions of Base's, loses {row['shrunk']} and adds {row['expanded']}."
                ),
            )
        ],
        [_insignificant("shrunk"), _insignificant("expanded"), Claim(always, _missed)],
    ),
    "reliability": Said(
        [
            Claim(
                always,
                lambda row: f"Of questions solved in at least half of the samples, RL − Base is {_difference(row)}.",
            )
        ],
        [
            Claim(lambda row: bool(_undecided([row])), lambda _: "which side is more reliable"),
            Claim(always, lambda _: "which questions are solved so; shares are noisy"),
        ],
    ),
    "guessing": Said(
        [
            unidentified(lambda row: not row["rows"], "no lettered options were given"),
            Claim(always, lambda row: f"Without guessing, RL − Base is {_differences(row['rows'])}."),
        ],
        [
            Claim(
                lambda row: bool(row["nulls"]),
                lambda row: "; ".join(
                    f"pass@{each['k']}: guessing alone solves {percent(each['value'])}%" for each in row["nulls"]
                ),
            ),
            Claim(lambda row: bool(row["rows"]), lambda _: "whether models guess evenly"),
            Claim(
                lambda row: not row["rows"],
                lambda _: "how much guessing right answers without knowing adds to pass@k",
            ),
        ],
    ),
    "luck": Said(
        [
            unidentified(lambda row: not row["base"], "no verdicts against golds of other questions were given"),
            Claim(always, _lucky),
        ],
        [
            Claim(lambda row: bool(row["base"]), lambda _: "which of the right answers were guessed"),
            Claim(lambda row: not row["base"], lambda _: "how often answers are right without knowing the question"),
        ],
    ),
    "entropy": Said(
        [
            unidentified(lambda row: row["base"] is None, "no classes of answers were given"),
            unidentified(lambda row: row["samples"] < 2, SINGLE),
            Claim(
                always,
                lambda row: (
                    f"Answers have an entropy of {row['base']:.2f} nats under Base and {row['rl']:.2f} under RL."
                ),
            ),
        ],
        [Claim(always, lambda _: "the answers that these samples do not show; with few samples it is too low")],
    ),
    "second run": Said(
        [
            unidentified(lambda row: row["value"] is None, SINGLE),
            Claim(
                always,
                lambda row: (
                    "RL wins a second run on these questions with probability"
                    f" {interval(row['value'], row['lo'], row['hi'])}."
                ),
            ),
        ],
        [
            Claim(lambda row: undecided(row["lo"], row["hi"]), lambda _: "which side wins it"),
            Claim(always, lambda _: "what happens on other questions or with other models"),
        ],
    ),
    "variance": Said(
        [
            unidentified(lambda row: not row["shares"], "one sample"),
            Claim(
                always,
                lambda row: (
                    "Of the variance of pass@1, questions make up "
                    + "; ".join(f"{percent(share)}% ({side})" for side, share in row["shares"].items())
                    + "."
                ),
            ),
        ],
        [Claim(always, lambda _: "the share of sampling seeds and of training runs: there is one of each")],
    ),
    "extrapolation": Said(
        [
            unidentified(lambda row: not row["rows"], "too few samples to try it"),
            Claim(
                lambda row: any(each["trusted"] for each in row["rows"]),
                lambda row: f"If difficulty is so distributed, {_extrapolated(row)}.",
            ),
            Claim(
                lambda row: all(each["samples"] < row["smallest"] for each in row["rows"]),
                lambda row: f"{NOT_IDENTIFIED}: fewer than {row['smallest']} samples of each side.",
            ),
            Claim(always, _untrusted),
        ],
        [Claim(always, lambda _: "anything beyond, and whether difficulty is so distributed")],
    ),
}
"""By reading, of the rows that ``api.statements`` gathers; exponents have theirs in that module."""


def undecided(lo: float | None, hi: float | None) -> bool:
    """Whether the winner of a second run is open: its probability may be neither near 0 nor near 1."""
    return lo is not None and hi is not None and lo < SURE and hi > 1 - SURE


# ---- titles of figures, of what was counted in their frames


def _most(row: Row) -> str:
    """The cell in which one sample of RL is worth most, with its band; nothing if no cell has a number."""
    for each in row["most"]:
        ends = {"lo_open": each["band_lo"] <= 1, "hi_open": each["band_hi"] >= each["pool"]}
        pair = f" ({each['pair']})" if row["several"] else ""
        band = bracket(each["band_lo"], each["band_hi"], 1, **ends)
        return f", {each['n']:.1f} {band} on {each['benchmark']}{pair}"
    return ""


WORTH_MORE = (
    Claim(
        lambda row: not row["more"],
        lambda _: "In no cell is one sample of RL shown to be worth more than one of Base",
    ),
    Claim(
        always,
        lambda row: (
            f"One sample of RL is worth more than one of Base in {row['more']} of {row['cells']} cells{_most(row)}"
        ),
    ),
)
