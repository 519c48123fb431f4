"""Whether a cohort is accepted: the thresholds of ``docs/zoo-cohort.md``, set before training, on the dev records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from searchlens.zoo import read_record
from searchlens_lab.zoo.cohort import COHORT, SEVEN
from searchlens_lab.zoo.evaluate import BUDGETS, DEFAULT, paired_interval

ALPHAS = tuple(2 ** (k / 5) for k in range(-10, 21))
BETA = 0.6
WEAK = ("tiny", "mistral")
"""Pairs with a lower threshold on RL's gain."""
EXTRAS = ("overtrained", "control")


@dataclass(frozen=True, slots=True)
class Check:
    """One threshold with the measured value; ``holds`` is None if there is no measurement."""

    name: str
    value: object
    holds: bool | None


@dataclass(frozen=True, slots=True)
class AlphaFit:
    """Base's budgets as a function of RL's: alpha, the path N(1..16), and the mean error in percentage points."""

    alpha: float
    path: tuple[int, ...]
    error: float


def path(alpha: float, beta: float = BETA) -> tuple[int, ...]:
    """Base's budget for each of RL's: the power law, rounded to the nearest budget in log2 (half up) and clipped."""
    exponents = (math.floor(math.log2(alpha * b**beta) + 0.5 + 1e-9) for b in BUDGETS)
    return tuple(2 ** min(max(k, 0), 4) for k in exponents)


def fit_alpha(base: Mapping[str, Mapping[str, float]], rl: Mapping[str, float]) -> AlphaFit:
    """The alpha on the grid 2^(k/5) whose path, under some Base policy, is nearest to RL's curve; the first of equals.

    ``base``: pass@k in percent by policy and k. ``rl``: pass@k in percent under the default policy.
    """
    fits = (
        AlphaFit(alpha, ns, float(np.mean([abs(curve[str(n)] - rl[str(b)]) for b, n in zip(BUDGETS, ns, strict=True)])))
        for alpha in ALPHAS
        for ns in [path(alpha)]
        for curve in base.values()
    )
    return min(fits, key=lambda fit: fit.error)


class Records:
    """The dev records in a cohort's folder, Base and RL of each pair that has both sides."""

    def __init__(self, folder: Path) -> None:
        self.models: dict[str, Any] = {}
        for name, pair in COHORT.items():
            sides = [read_record(folder, f"dev-{model}") for model in (f"{pair.base or name}-base", f"{name}-rl")]
            if all(sides):
                self.models[name] = sides

    def at(self, name: str, role: str, key: str, k: int | None = None) -> tuple[float, float]:
        """A number of Base and the same one of RL, under the default policy; ``k`` picks it from a curve."""
        base, rl = (side["numbers"][role][DEFAULT][key] for side in self.models[name])
        return (base, rl) if k is None else (base[str(k)], rl[str(k)])

    def difference(self, name: str, role: str, k: int, envelope: bool = False) -> tuple[float, tuple[float, float]]:
        """RL - Base at ``k`` in points with its paired interval; ``envelope``: by Base's best measured policy."""
        base, rl = (side["solved"] for side in self.models[name])
        bits = {key.split("/")[1]: _bits(curve[str(k)]) for key, curve in base.items() if key.startswith(f"{role}/")}
        best = max(bits, key=lambda policy: bits[policy].sum()) if envelope else DEFAULT
        change = _bits(rl[f"{role}/{DEFAULT}"][str(k)]) - bits[best]
        return round(100 * float(change.mean()), 2), paired_interval(change)


def _bits(text: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(text.encode(), np.uint8).astype(np.int64) - ord("0")


def checks(folder: Path) -> list[Check]:
    """All thresholds, in the order of the design page."""
    records = Records(folder)
    results = [check for name in records.models if name not in EXTRAS for check in _pair(records, name)]
    results += _cohort(records) if set(SEVEN) <= records.models.keys() else [Check("cohort", "incomplete", None)]
    for name, sign, envelope in (("control", 1, True), ("overtrained", -1, False)):
        if name in records.models:
            value, (low, high) = records.difference(name, "math", 16, envelope)
            what = "RL - Base's envelope" if envelope else "RL - Base"
            bound = low if sign > 0 else -high
            results.append(Check(f"{name}: {what} at 16, interval without 0", [value, low, high], bound > 0))
    return results


def _pair(records: Records, name: str) -> list[Check]:
    least = 5 if name in WEAK else 10
    gain, _ = records.difference(name, "math", 1)
    late, (low, high) = records.difference(name, "math", 16)
    ends = records.at(name, "math", "finished")
    return [
        Check(f"{name}: math, RL - Base at 1 >= {least}", gain, gain >= least),
        Check(f"{name}: math, RL ends >= 95%", list(ends), ends[1] >= 95),
        Check(f"{name}: math, Base - RL at 16, lower end >= -3", [-late, -high, -low], -high >= -3),
    ]


def _cohort(records: Records) -> list[Check]:
    floors = {name: _floor(records, name) for name in SEVEN}
    effects = {role: records.difference("anchor", role, 1) for role in ("gpqa", "ifeval")}
    ends = records.at("anchor", "olympiad", "finished")
    fits = {name: _fit(records, name) for name in SEVEN}
    spread = float(np.std([math.log(fit.alpha) for fit in fits.values()], ddof=1))
    paths = {fit.path for fit in fits.values()}
    return [
        Check("floor on aime: anchor and five of seven", floors, floors["anchor"] and sum(floors.values()) >= 5),
        Check("nonmath effect on anchor (else: no effect)", effects,
              any(abs(value) >= 5 and low * high > 0 for value, (low, high) in effects.values())),
        Check("termination on olympiad, anchor: <= 85% and >= 95%", list(ends), ends[0] <= 85 and ends[1] >= 95),
        Check("spread of ln alpha >= 0.3", {n: round(f.alpha, 3) for n, f in fits.items()} | {"sd": round(spread, 3)},
              spread >= 0.3),
        Check("distinct paths >= 4", sorted(map(list, paths)), len(paths) >= 4),
    ]  # fmt: skip


def _floor(records: Records, name: str) -> bool:
    base, rl = records.at(name, "aime", "solved")
    scale = 60 / records.at(name, "aime", "questions")[0]
    first, last = scale * rl["1"], scale * rl["16"]  # type: ignore[index]
    rising = base["16"] < base["64"] < base["256"]  # type: ignore[index]
    return 3 <= first <= 8 and last - first <= 3 and bool(rising)


def _fit(records: Records, name: str) -> AlphaFit:
    base, rl = (side["numbers"]["math"] for side in records.models[name])
    return fit_alpha({name: cell["pass_at"] for name, cell in base.items() if name != "greedy"}, rl[DEFAULT]["pass_at"])


def text_table(thresholds: Sequence[Check]) -> str:
    """One line for each threshold."""
    word = {True: "holds  ", False: "FAILS  ", None: "missing"}
    return "\n".join(f"{word[check.holds]} {check.name}: {check.value}" for check in thresholds)
