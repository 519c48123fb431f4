"""What is said of numbers is true of them: sentences and titles against random frames, by rules written here again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import searchlens
from searchlens import claims
from searchlens.api.statements import statements, told
from searchlens.readings.crossings import CROSSINGS
from searchlens.readings.equivalents import EQUIVALENTS
from searchlens.readings.measures import BASE, DIFFERENCE, LUCK, RL

SEEDS = st.integers(0, 2**32 - 1)
MANY = settings(max_examples=150, deadline=None)
NUMBER = r"[+\u2212]?\d+(?:\.\d+)?"


def numbers(text: str) -> list[float]:
    return [float(found.replace("\u2212", "-")) for found in re.findall(NUMBER, text)]


def ends(rng: np.random.Generator, low: float, high: float) -> tuple[float, float, float]:
    """An estimate within its interval; often an end is 0 or at a limit."""
    lo, value, hi = np.sort(rng.choice([low, 0 if low < 0 else low, high, *rng.uniform(low, high, 3)], 3))
    return float(lo), float(value), float(hi)


def equivalent(rng: np.random.Generator, budget: int, pool: int) -> dict[str, Any]:
    lo, value, hi = ends(rng, 1, pool)
    state = str(rng.choice(["within", "below", "above", "level"]))
    row = {"budget": budget, "state": state, "n": value if state == "within" else None, "lo": lo, "hi": hi}
    row |= {"lo_open": lo <= 1, "hi_open": hi >= pool, "pool": pool}
    return dict.fromkeys(EQUIVALENTS.names()) | row


# ---- where one curve reaches another


@given(SEEDS)
@MANY
def test_open_ends_are_said_to_be_open_and_closed_ones_are_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = equivalent(rng, 4, 16)
    text = claims.located(claims.EQUIVALENT, row)
    if row["state"] == "level":
        assert text == "16 or more (both at the end of what was drawn)"
        return
    head, _, brackets = text.partition(" [")
    low, _, high = brackets.rstrip("]").partition(", ")
    assert low.endswith("or less") == row["lo_open"]
    assert high.endswith("or more") == row["hi_open"]
    assert numbers(low) == [pytest.approx(row["lo"], abs=0.05)]
    assert numbers(high) == [pytest.approx(row["hi"], abs=0.05)]
    words = {"within": "", "below": "less than", "above": "more than"}[row["state"]]
    assert head.startswith(words) and not (words == "" and "than" in head)
    assert numbers(head)[0] == pytest.approx({"below": 1, "above": 16}.get(row["state"], row["n"]), abs=0.05)


@given(SEEDS)
@MANY
def test_a_meeting_lies_where_the_frame_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lo, value, hi = ends(rng, 1, 16)
    state = str(rng.choice(["within", "below", "above"]))
    row = {"state": state, "crossing": value if state == "within" else None, "lo": lo, "hi": hi, "first": 1.0}
    row = dict.fromkeys(CROSSINGS.names()) | row | {"last": 16.0, "lo_open": lo <= 1, "hi_open": hi >= 16}
    head = claims.located(claims.MEETING, row).partition(" [")[0]
    assert head.endswith("or less") == (state == "below")
    assert head.endswith("or more") == (state == "above")


# ---- the sentences of a comparison


def measure(name: str, side: str, k: int | None, tau: float | None, values: tuple[Any, Any, Any]) -> dict[str, Any]:
    lo, value, hi = values
    return {"measure": name, "side": side, "k": k, "tau": tau, "value": value, "lo": lo, "hi": hi}


def random_frames(rng: np.random.Generator) -> dict[str, pl.DataFrame]:
    """Frames of a comparison in which every case occurs: numbers as such, without samples behind them."""
    budgets = [1, 2, 4, 8, 16, 32][: rng.integers(1, 7)]
    pool = int(rng.choice([1, 16, 32]))
    rows = [measure("pass@k", DIFFERENCE, k, None, ends(rng, -1, 1)) for k in budgets]
    rows.append(measure("Cover@tau", DIFFERENCE, None, 0.5, ends(rng, -1, 1)))
    if rng.random() < 0.5:
        rows += [measure("guess-corrected pass@k", DIFFERENCE, k, None, ends(rng, -1, 1)) for k in budgets]
        rows += [measure("guess null", BASE, k, None, ends(rng, 0, 1)) for k in budgets]
    if rng.random() < 0.5:
        rows += [measure(LUCK, side, k, None, ends(rng, 0, 1)) for side in (BASE, RL) for k in budgets]
    if rng.random() < 0.5:
        rows += [measure("entropy, Miller-Madow", side, None, None, ends(rng, 0, 3)) for side in (BASE, RL)]
    single = pool == 1
    rows.append(measure("P(RL beats Base)", DIFFERENCE, None, None, (None,) * 3 if single else ends(rng, 0, 1)))
    support = {name: int(rng.integers(0, 5)) for name in ("kept", "shrunk", "expanded")}
    for name in ("shrunk", "expanded"):
        support[f"{name}_significant"] = int(rng.integers(0, support[name] + 1))
        support[f"{name}_null"] = float(rng.uniform(0, 3))
    support |= {"base_samples": pool, "rl_samples": budgets[-1], "base_epsilon": 0.1}
    support["rl_epsilon"] = float(rng.choice([0.1, 0.2]))
    variance = [
        {
            "side": side,
            "decoding": None if single else 0.1,
            "questions_part": float(rng.uniform(0, 1)),
            "total": float(rng.choice([0, 1])),
        }
        for side in (BASE, RL)
    ]
    extrapolated = [
        {
            **dict(zip(("lo", "value", "hi"), ends(rng, 0, 1), strict=True)),
            "side": BASE,
            "model": model,
            "k": 64,
            "samples": int(rng.choice([16, 64])),
            "coverage": None if rng.random() < 0.3 else 0.9,
            "trusted": bool(rng.random() < 0.3),
        }
        for model in ("Beta", "zero-inflated")[: rng.integers(0, 3)]
    ]
    equivalents = [{"policy": "given", **equivalent(rng, k, pool)} for k in budgets]
    kinds = {"k": pl.UInt32(), "tau": pl.Float64()} | dict.fromkeys(("value", "lo", "hi"), pl.Float64())
    return {
        "measures": pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None),
        "equivalents": pl.DataFrame(equivalents, {"policy": pl.String(), **EQUIVALENTS}),
        "exponents": pl.DataFrame(),
        "support": pl.DataFrame([support]),
        "variance": pl.DataFrame(variance, infer_schema_length=None),
        "extrapolated": pl.DataFrame(extrapolated, infer_schema_length=None),
    }


def rows_of(frames: Mapping[str, pl.DataFrame], name: str, side: str = DIFFERENCE) -> list[dict[str, Any]]:
    return frames["measures"].filter(measure=name, side=side).to_dicts()


def is_open(row: Mapping[str, Any]) -> bool:
    return bool(row["lo"] <= 1e-9 and row["hi"] >= -1e-9)


@given(SEEDS)
@MANY
def test_sentences_are_true_of_random_frames(seed: int) -> None:
    """Each sentence's condition, and its numbers, from the frames; nothing is identified that the frames leave open."""
    frames = random_frames(np.random.default_rng(seed))
    said = {each.reading: each for each in statements(frames, questions=40, policy="given")}
    assert len(said) == 11
    known = {reading for reading, each in said.items() if not each.can.startswith("not identified")}
    passes = {row["k"]: row for row in rows_of(frames, "pass@k")}
    last = max(passes)
    named = sorted({min(k, last) for k in (1, 16)})
    shown = [f"{100 * passes[k]['value']:+.1f}".replace("-", "\u2212") for k in named]
    assert re.findall(r"(\S+) \[", said["pass@k"].can) == [re.sub(r"^[+−]0\.0$", "+0.0", x) for x in shown]
    sides = re.search(r"which side solves more at (.*?) samples?;", said["pass@k"].cannot)
    assert numbers(sides[1] if sides else "") == [k for k in named if is_open(passes[k])]
    worth = frames["equivalents"].filter(pl.col("budget").is_in(named)).to_dicts()
    beyond = [row["budget"] for row in worth if row["state"] in ("above", "level")]
    assert ("budget equivalents" in known) == (len(beyond) < len(worth))
    assert [int(b) for b in re.findall(r"N\*\((\d+)\)", said["budget equivalents"].cannot)] == beyond
    for row, part in zip(worth, said["budget equivalents"].can.split("; "), strict=True):
        assert ("solves more than" in part) == (row["state"] == "below")
        assert ("solve more than all" in part) == (row["state"] == "above")
        assert ("both at the end" in part) == (row["state"] == "level")
        if row["state"] == "within":
            assert (" or more]" in part, " or less," in part) == (row["hi_open"], row["lo_open"])
    support = frames["support"].row(0, named=True)
    assert numbers(said["support"].can) == [support["kept"], support["shrunk"], support["expanded"]]
    for name in ("shrunk", "expanded"):
        nothing = support[name] > 0 and support[f"{name}_significant"] == 0
        assert (f"{name}: no question is significant" in said["support"].cannot) == nothing
    (cover,) = rows_of(frames, "Cover@tau")
    assert ("which side is more reliable" in said["reliability"].cannot) == is_open(cover)
    guessed = [row["k"] for row in rows_of(frames, "guess null", BASE) if row["value"] >= 0.5]
    assert [int(k) for k in re.findall(r"pass@(\d+): guessing", said["guessing"].cannot)] == guessed
    assert ("guessing" in known) == bool(rows_of(frames, "guess null", BASE))
    assert ("luck" in known) == bool(rows_of(frames, LUCK, BASE))
    single = min(support["base_samples"], support["rl_samples"]) == 1
    assert ("entropy" in known) == (bool(rows_of(frames, "entropy, Miller-Madow", RL)) and not single)
    assert "exponents" not in known
    assert ("single sample" in said["exponents"].can) == single, "the reason is the samples, not the questions"
    (again,) = rows_of(frames, "P(RL beats Base)")
    assert ("second run" in known) == (again["value"] is not None)
    if again["value"] is not None:
        assert ("which side wins" in said["second run"].cannot) == (again["lo"] < 0.95 and again["hi"] > 0.05)
    shares = [row for row in frames["variance"].to_dicts() if row["decoding"] and row["total"]]
    assert ("variance" in known) == bool(shares)
    beyond_samples = frames["extrapolated"].to_dicts()
    assert ("extrapolation" in known) == any(row["trusted"] for row in beyond_samples)
    assert said["extrapolation"].can.count("solves") == sum(row["trusted"] for row in beyond_samples)


@given(SEEDS)
@MANY
def test_what_is_not_identified_is_said_once(seed: int) -> None:
    said = statements(random_frames(np.random.default_rng(seed)), questions=40, policy="given")
    shown = told(said)
    unknown = [each for each in said if each.can.startswith("not identified")]
    text = "\n".join(map(str, shown))
    assert text.count("not identified") == bool(unknown)
    assert all(f"{each.reading} (" in shown[-1].can for each in unknown)
    assert [each for each in shown if each.cannot] == [each for each in said if each not in unknown]


# ---- whole comparisons


def test_a_side_against_itself_is_level_and_not_beyond() -> None:
    same = np.ones((40, 8), bool)
    same[:4] = False
    found = searchlens.compare(same, same, draws=100)
    assert set(found.equivalents["state"]) == {"level"}
    assert "8 or more (both at the end of what was drawn)" in str(found)
    assert "more than" not in str(found).partition("budget equivalents")[2].partition("\n")[0]


def test_one_sample_of_each_side_is_too_few_whatever_the_questions() -> None:
    rng = np.random.default_rng(0)
    base, rl = (rng.random((400, 1)) < 0.5 for _ in range(2))
    found = searchlens.compare(base, rl, classes=(base.astype(int), rl.astype(int)), draws=100)
    said = {each.reading: each.can for each in found.statements}
    for reading in ("entropy", "exponents", "second run"):
        assert said[reading] == "not identified: a side has a single sample."
