"""What the readings of a comparison can and cannot say, one sentence each. Nothing is estimated here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from searchlens.frames import pick
from searchlens.readings import limits
from searchlens.readings.extrapolation import SMALLEST
from searchlens.readings.measures import BASE, DIFFERENCE, LUCK, RL, WITHOUT_LUCK
from searchlens.tables import format as fmt

NOT_IDENTIFIED = "not identified"
Frames = Mapping[str, pl.DataFrame]
_TAU = 0.5
_ROUNDING = 1e-9
_PRINTED = (1, 16)
"""Numbers of samples that sentences name; of fewer samples, the largest number there is."""


@dataclass(frozen=True)
class Statement:
    """One reading in words.

    Attributes
    ----------
    reading : str
    can : str
        What the samples say; it begins with "not identified" if they do not determine the reading.
    cannot : str
        What they leave open.
    """

    reading: str
    can: str
    cannot: str

    def to_dict(self) -> dict[str, str]:
        """Its parts by name."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.reading}: {self.can} Cannot say: {self.cannot}"


def statements(frames: Frames, *, policy: str, unequal: str = "") -> tuple[Statement, ...]:
    """A sentence about each reading.

    Parameters
    ----------
    frames : mapping of str to DataFrame
        Those of ``Comparison``.
    policy : str
        The policy of Base that is compared with RL one to one.
    unequal : str
        Why readings that need as many samples of every question are not identified; empty if they are.
    """
    parts = (
        _pass_at_k(frames),
        _equivalents(frames, policy),
        _exponents(frames, policy),
        _unequal("support", unequal) or _support(frames),
        _unequal("reliability", unequal) or _reliability(frames),
        _guessing(frames),
        _luck(frames),
        _unequal("entropy", unequal) or _entropy(frames),
        _winner(frames),
        _variance(frames),
        _unequal("extrapolation", unequal) or _extrapolation(frames),
    )
    return tuple(parts)


def _unequal(reading: str, why: str) -> Statement | None:
    return Statement(reading, f"{NOT_IDENTIFIED}: {why}.", "what needs as many samples of each.") if why else None


def _rows(frames: Frames, measure: str, side: str = DIFFERENCE) -> list[dict[str, Any]]:
    return pick(frames["measures"], measure=measure, side=side).sort("k", "tau").to_dicts()


def _difference(row: Mapping[str, Any]) -> str:
    return f"{fmt.percent(row['value'], row['lo'], row['hi'], '+')} points"


def _is_open(row: Mapping[str, Any]) -> bool:
    """Whether the sign of a difference is open; an end that is 0 but for rounding is 0."""
    return row["lo"] is None or (row["lo"] <= _ROUNDING and row["hi"] >= -_ROUNDING)


def _named(rows: list[dict[str, Any]], key: str = "k") -> list[dict[str, Any]]:
    """The rows at the numbers of samples that sentences name."""
    largest = max(row[key] for row in rows)
    wanted = {min(k, largest) for k in _PRINTED}
    return [row for row in rows if row[key] in wanted]


def _pass_at_k(frames: Frames) -> Statement:
    rows = _rows(frames, "pass@k")
    shown = _named(rows)
    found = ", ".join(f"{_difference(row)} at {row['k']}" for row in shown)
    undecided = [str(row["k"]) for row in shown if _is_open(row)]
    word = "sample" if undecided == ["1"] else "samples"
    sign = f"which side solves more at {' and '.join(undecided)} {word}; " if undecided else ""
    last = rows[-1]["k"]
    more = f"anything beyond {last} sample{'s' * (last != 1)}, or about another training run."
    return Statement("pass@k", f"RL − Base is {found}.", f"{sign}{more}")


def _equivalents(frames: Frames, policy: str) -> Statement:
    shown = _named(pick(frames["equivalents"], policy=policy).to_dicts(), "budget")
    parts, unknown = [], []
    for row in shown:
        b = row["budget"]
        if row["state"] == "within":
            parts.append(f"{b} of RL equal {fmt.interval(row['n'], row['lo'], row['hi'], 1)} of Base")
        elif row["state"] == "below":
            parts.append(f"one sample of Base solves more than {b} of RL")
        elif row["tied"]:
            parts.append(f"{b} of RL equal {row['pool']} or more of Base (both at the end of what was drawn)")
            unknown.append(f"N*({b}) is {NOT_IDENTIFIED}: it may lie beyond the {row['pool']} samples of Base")
        else:
            parts.append(f"{b} of RL solve at least as much as all {row['pool']} of Base")
            unknown.append(f"N*({b}) is {NOT_IDENTIFIED}: it lies beyond the {row['pool']} samples of Base")
    can = f"In samples, {'; '.join(parts)}."
    if len(unknown) == len(shown):
        can = f"{NOT_IDENTIFIED}: {'; '.join(parts)}."
    return Statement("budget equivalents", can, _sentence([*unknown, "what more samples of either side would show"]))


def _exponents(frames: Frames, policy: str) -> Statement:
    row = pick(frames["exponents"], policy=policy).row(0, named=True)
    unknown, law = limits.of_exponents(row), f"N = α b^β, {limits.up_to(row)},"
    other = "any law other than N = α b^β."
    if not row["testable"]:
        return Statement("exponents", f"{NOT_IDENTIFIED}: {unknown}.", other)
    best, slopes = f"(p of the best: {_p(row['p'])})", _local(frames, policy)
    if row["empty"]:
        can = f"No power law {law} that these samples can test fits them {best}.{slopes}"
        return Statement("exponents", can, "why not.")
    allowed = f"β from {row['beta_lo']:.2f} to {row['beta_hi']:.2f}"
    if row["hardly"]:
        can = f"Hardly any power law {law} fits {best}. Not rejected: {allowed}.{slopes}"
        return Statement("exponents", can, "β: the set is small because laws do not fit, not because β is known.")
    if unknown:
        return Statement("exponents", f"{NOT_IDENTIFIED}: {law} is allowed with {allowed}.", other)
    return Statement("exponents", f"{law} is allowed with {allowed} {best}.", other)


def _p(value: float) -> str:
    return "below 0.001" if value < 0.001 else f"{value:.3f}"


def _local(frames: Frames, policy: str) -> str:
    """The local exponents, for which no law need hold."""
    slopes = pick(frames["equivalents"], policy=policy).sort("budget")["slope"].drop_nulls()
    return f" Local exponents: {', '.join(f'{slope:.2f}' for slope in slopes)}." if len(slopes) else ""


def _support(frames: Frames) -> Statement:
    row = frames["support"].row(0, named=True)
    can = f"RL keeps {row['kept']} questions of Base's, loses {row['shrunk']} and adds {row['expanded']}."
    parts = [
        f"{name}: no question is significant, {row[f'{name}_null']:.1f} are expected by chance"
        for name in ("shrunk", "expanded")
        if row[name] and not row[f"{name}_significant"]
    ]
    seen = min(row["base_epsilon"], row["rl_epsilon"]), max(row["base_epsilon"], row["rl_epsilon"])
    chance = f"{seen[0]:.3f}" if seen[0] == seen[1] else f"{seen[0]:.3f} (the larger pool; {seen[1]:.3f} the smaller)"
    return Statement(
        "support", can, _sentence([*parts, f"that a question is out of reach: chances below {chance} are missed"])
    )


def _reliability(frames: Frames) -> Statement:
    rows = [row for row in _rows(frames, "Cover@tau") if abs(row["tau"] - _TAU) < 1e-9]
    can = f"Of questions solved in at least half of the samples, RL − Base is {_difference(rows[0])}."
    open_sign = _is_open(rows[0])
    return Statement(
        "reliability",
        can,
        _sentence(
            [*(["which side is more reliable"] if open_sign else []), "which questions are solved so; shares are noisy"]
        ),
    )


def _guessing(frames: Frames) -> Statement:
    rows = _rows(frames, "guess-corrected pass@k")
    if not rows:
        can = f"{NOT_IDENTIFIED}: no lettered options were given."
        return Statement("guessing", can, "how much guessing right answers without knowing adds to pass@k.")
    found = ", ".join(f"{_difference(row)} at {row['k']}" for row in rows)
    nulls = _rows(frames, "guess null", BASE)
    parts = [
        f"pass@{row['k']}: guessing alone solves {fmt.percent(row['value'])}%"
        for row in nulls
        if row["value"] >= limits.GUESSED
    ]
    return Statement(
        "guessing", f"Without guessing, RL − Base is {found}.", _sentence([*parts, "whether models guess evenly"])
    )


def _luck(frames: Frames) -> Statement:
    sides = {side: _rows(frames, LUCK, side) for side in (BASE, RL)}
    if not sides[BASE]:
        can = f"{NOT_IDENTIFIED}: no verdicts against golds of other questions were given."
        return Statement("luck", can, "how often answers are right without knowing the question.")
    parts = [
        f"{fmt.percent(one['value'])}% of questions (Base) and {fmt.percent(two['value'])}% (RL) at {one['k']}"
        for one, two in zip(sides[BASE], sides[RL], strict=True)
    ]
    rows = [row for row in _rows(frames, WITHOUT_LUCK) if row["value"] is not None]
    known = ", ".join(f"{_difference(row)} at {row['k']}" for row in rows) or NOT_IDENTIFIED
    can = (
        f"With golds of other questions the same samples solve {'; '.join(parts)}. Without luck, RL − Base is {known}."
    )
    return Statement(
        "luck", can, "which right answers were guessed; whether luck is alike on all questions, as assumed."
    )


def _entropy(frames: Frames) -> Statement:
    sides = {side: _rows(frames, "entropy, Miller-Madow", side) for side in (BASE, RL)}
    if not sides[BASE]:
        return Statement("entropy", f"{NOT_IDENTIFIED}: no classes of answers were given.", "how varied answers are.")
    values = {side: rows[0]["value"] for side, rows in sides.items()}
    can = f"Answers have an entropy of {values[BASE]:.2f} nats under Base and {values[RL]:.2f} under RL."
    return Statement("entropy", can, "the answers that these samples do not show; with few samples it is too low.")


def _winner(frames: Frames) -> Statement:
    row = _rows(frames, "P(RL beats Base)")[0]
    if row["value"] is None:
        return Statement("second run", f"{NOT_IDENTIFIED}: a side has a single sample.", "which side would win.")
    can = (
        f"RL wins a second run on these questions with probability {fmt.interval(row['value'], row['lo'], row['hi'])}."
    )
    winner = ["which side wins it"] if limits.undecided(row["lo"], row["hi"]) else []
    return Statement("second run", can, _sentence([*winner, "what happens on other questions or with other models"]))


def _variance(frames: Frames) -> Statement:
    parts = [_shares(row) for row in frames["variance"].to_dicts()]
    known = [part for part in parts if part]
    can = (
        f"Of the variance of pass@1, questions make up {'; '.join(known)}."
        if known
        else f"{NOT_IDENTIFIED}: one sample."
    )
    return Statement("variance", can, "the share of sampling seeds and of training runs: there is one of each.")


def _shares(row: Mapping[str, Any]) -> str:
    if row["decoding"] is None or row["questions_part"] is None or not row["total"]:
        return ""
    return f"{fmt.percent(row['questions_part'] / row['total'])}% ({row['side']})"


def _extrapolation(frames: Frames) -> Statement:
    rows = frames["extrapolated"].to_dicts()
    if not rows:
        return Statement("extrapolation", f"{NOT_IDENTIFIED}: too few samples to try it.", "pass@k beyond the samples.")
    trusted = [row for row in rows if row["trusted"]]
    if not trusted:
        return Statement("extrapolation", f"{NOT_IDENTIFIED}: {_untrusted(rows)}.", "pass@k beyond the samples.")
    found = "; ".join(f"{row['side']} solves {_extrapolated(row)} ({row['model']})" for row in trusted)
    return Statement(
        "extrapolation", f"If difficulty is so distributed, {found}.", "anything beyond, and whether it is."
    )


def _untrusted(rows: list[dict[str, Any]]) -> str:
    if all(row["samples"] < SMALLEST for row in rows):
        return f"fewer than {SMALLEST} samples of each side"
    tried = ", ".join(dict.fromkeys(_coverage(row) for row in rows))
    return f"on these samples its intervals are right too seldom or too often ({tried})"


def _extrapolated(row: Mapping[str, Any]) -> str:
    return f"{fmt.percent(row['value'], row['lo'], row['hi'])}% with {row['k']} samples"


def _coverage(row: Mapping[str, Any]) -> str:
    share = "no fit" if row["coverage"] is None else f"{row['coverage']:.2f}"
    return f"{row['model']}: {share}"


def _sentence(parts: list[str]) -> str:
    return "; ".join(parts) + "."
