"""What is said of numbers is true of them: sentences and titles against random frames, by rules written here again.

Those of the BOPTR analysis are in ``test_claims_boptr``.
"""

import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlens.analysis import claims
from searchlens.analysis.equivalents import EQUIVALENTS
from searchlens.analysis.exponents import EXPONENTS
from searchlens.analysis.health import Health
from searchlens.analysis.measures import BASE, DIFFERENCE, RL, WRONG_KEY
from searchlens.cli import summary
from searchlens.comparison.logs import LogComparison
from searchlens.comparison.statements import statements, told
from searchlens.reporting import explorer_sentences
from searchlens.reporting.figures import budget_equivalents, cover, gap_map, recovery, support_region
from searchlens.reporting.figures.context import Labels
from searchlens.reporting.tables.recovery import GREEDY

NUMBER = r"[+\u2212]?\d+(?:\.\d+)?"


def seeded(test: Callable[[int], None]) -> Callable[[], None]:
    """Asks a test of 150 seeds."""
    return settings(max_examples=150, deadline=None)(given(st.integers(0, 2**32 - 1))(test))


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


@seeded
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


# ---- the sentences of a comparison


def measure(name: str, side: str, k: int | None, tau: float | None, values: tuple[Any, Any, Any]) -> dict[str, Any]:
    lo, value, hi = values
    return {"measure": name, "side": side, "k": k, "tau": tau, "value": value, "lo": lo, "hi": hi}


def exponents(rng: np.random.Generator, pool: int) -> dict[str, Any]:
    """A set of exponents: not tested, empty, hardly any law, or some with a part that was not tested."""
    testable, empty, hardly = (bool(rng.random() < share) for share in (0.8, 0.3, 0.3))
    lo, _, hi = ends(rng, 0, 1.6)
    known = {"testable": testable, "empty": testable and empty, "hardly": testable and hardly and not empty}
    inside = {"beta_lo": lo, "beta_hi": hi} if testable and not empty else {}
    more = {"policy": "given", "pool_min": pool, "pool_max": pool, "untested": float(rng.choice([0, 0.6]))}
    return dict.fromkeys(EXPONENTS.names()) | known | inside | more | {"p": float(rng.random()) if testable else None}


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
        rows += [measure(WRONG_KEY, side, k, None, ends(rng, 0, 1)) for side in (BASE, RL) for k in budgets]
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
        "exponents": pl.DataFrame([exponents(rng, pool)], {"policy": pl.String(), **EXPONENTS}),
        "support": pl.DataFrame([support]),
        "variance": pl.DataFrame(variance, infer_schema_length=None),
        "extrapolated": pl.DataFrame(extrapolated, infer_schema_length=None),
    }


def rows_of(frames: Mapping[str, pl.DataFrame], name: str, side: str = DIFFERENCE) -> list[dict[str, Any]]:
    return frames["measures"].filter(measure=name, side=side).to_dicts()


def is_open(row: Mapping[str, Any]) -> bool:
    return bool(row["lo"] <= 1e-9 and row["hi"] >= -1e-9)


def met(rng: np.random.Generator) -> dict[str, Any]:
    """A cell of the figure of pass@k: where Base passes RL, or that nothing was read."""
    lo, value, hi = ends(rng, 1, 16)
    state = rng.choice(["within", "below", "above", ""])
    row = {"state": str(state) or None, "crossing": value if state == "within" else None, "first": 1.0, "last": 16.0}
    return row | {"crossing_lo": lo, "crossing_hi": hi, "lo_open": lo <= 1, "hi_open": hi >= 16}


@seeded
def test_who_leads_in_a_cell_is_what_the_interval_of_the_crossing_says(seed: int) -> None:
    row = met(np.random.default_rng(seed))
    text = claims.say(claims.PASSING, row)
    inside = row["state"] == "within" and row["crossing_lo"] > 1 and row["crossing_hi"] < 16
    assert text.startswith("Base passes RL at") == inside
    if text.startswith("Base passes"):
        shown = [row["crossing"], row["crossing_lo"], row["crossing_hi"]]
        assert numbers(text) == [pytest.approx(number, abs=0.05) for number in shown]
    if text.startswith("Base level or ahead"):
        assert row["state"] and row["crossing_hi"] < 16, "from its upper end on Base is not behind"
    if text.startswith("RL"):
        assert row["state"] and not row["lo_open"], "at one sample RL leads"
    if text.startswith("RL still leads"):
        assert row["state"] == "above" and row["crossing_lo"] >= 16


@seeded
def test_every_cell_is_counted_once_in_the_title_of_pass_at_k(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [row for row in (met(rng) for _ in range(6)) if row["state"]]
    found = claims.stood(rows)
    said = ", ".join(each.text.format(**found) for each in claims.STOOD if each.holds(found))
    passes, cells, *others = map(int, numbers(said))
    assert cells == len(rows) == passes + sum(others)
    assert passes == sum(claims.say(claims.PASSING, row).startswith("Base passes") for row in rows)
    not_behind = sum(claims.say(claims.PASSING, row).startswith("Base level or ahead") for row in rows)
    assert found["late"] + found["ahead"] == not_behind, "none of which the panel says more is called open"


def check_in_short(text: str, most: dict[str, Any]) -> None:
    """Who is ahead with the most samples is said where the interval says it."""
    ahead = next((side for side in ("RL", "Base") if f" {side} solves more:" in text), None)
    assert (ahead is None) == is_open(most) == ("it is open" in text)
    assert ahead is None or (ahead == "RL") == (most["value"] > 0)


@seeded
def test_sentences_are_true_of_random_frames(seed: int) -> None:
    """Each sentence's condition, and its numbers, from the frames; nothing is identified that the frames leave open."""
    frames = random_frames(np.random.default_rng(seed))
    said = {each.measure: each for each in statements(frames, policy="given")}
    assert len(said) == 12
    known = {measure for measure, each in said.items() if not each.can.startswith("not identified")}
    passes = {row["k"]: row for row in rows_of(frames, "pass@k")}
    last = max(passes)
    named = sorted({min(k, last) for k in (1, 16)})
    shown = [f"{100 * passes[k]['value']:+.1f}".replace("-", "\u2212") for k in named]
    assert re.findall(r"(\S+) \[", said["pass@k"].can) == [re.sub(r"^[+−]0\.0$", "+0.0", x) for x in shown]
    check_in_short(said["in short"].can, passes[last])
    sides = re.search(r"which side solves more at (.*?) samples?;", said["pass@k"].cannot)
    assert numbers(sides[1] if sides else "") == [k for k in named if is_open(passes[k])]
    worth = frames["equivalents"].filter(pl.col("budget").is_in(named)).to_dicts()
    beyond = [row["budget"] for row in worth if row["state"] in ("above", "level")]
    assert ("budget equivalents" in known) == (len(beyond) < len(worth))
    assert [int(b) for b in re.findall(r"N\*\((\d+)\)", said["budget equivalents"].cannot)] == beyond
    for row, part in zip(worth, said["budget equivalents"].can.split("; "), strict=True):
        assert ("worth less than 1 base sample" in part) == (row["state"] == "below")
        assert ("worth more than" in part) == (row["state"] == "above")
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
    assert ("wrong_key" in known) == bool(rows_of(frames, WRONG_KEY, BASE))
    single = min(support["base_samples"], support["rl_samples"]) == 1
    assert ("entropy" in known) == (bool(rows_of(frames, "entropy, Miller-Madow", RL)) and not single)
    law = frames["exponents"].row(0, named=True)
    assert ("single sample" in said["exponents"].can) == single, "the reason is the samples, not the questions"
    assert not (single or not law["testable"]) or "exponents" not in known
    if not single and law["testable"]:
        assert said["exponents"].can.startswith("No power law") == law["empty"]
        assert said["exponents"].can.startswith("Hardly any") == law["hardly"]
        assert f"N up to {law['pool_max']}" in said["exponents"].can
    (again,) = rows_of(frames, "P(RL beats Base)")
    assert ("second run" in known) == (again["value"] is not None)
    if again["value"] is not None:
        assert ("which side wins" in said["second run"].cannot) == (again["lo"] < 0.95 and again["hi"] > 0.05)
    shares = [row for row in frames["variance"].to_dicts() if row["decoding"] and row["total"]]
    assert ("variance" in known) == bool(shares)
    beyond_samples = frames["extrapolated"].to_dicts()
    assert ("extrapolation" in known) == any(row["trusted"] for row in beyond_samples)
    assert said["extrapolation"].can.count("solves") == sum(row["trusted"] for row in beyond_samples)


@seeded
def test_what_is_not_identified_is_said_once(seed: int) -> None:
    said = statements(random_frames(np.random.default_rng(seed)), policy="given")
    shown = told(said)
    unknown = [each for each in said if each.can.startswith("not identified")]
    text = "\n".join(map(str, shown))
    assert text.count("not identified") == bool(unknown)
    assert all(f"{each.measure} (" in shown[-1].can for each in unknown)
    assert [each for each in shown if each.cannot] == [each for each in said if each not in unknown]


# ---- the sentences on a cell of a study


@seeded
def test_who_leads_is_who_the_interval_says(seed: int) -> None:
    lo, value, hi = ends(np.random.default_rng(seed), -1, 1)
    text = explorer_sentences._lead({"budget": 4, "rl_minus_base": value, "lo": lo, "hi": hi})
    assert ("RL leads" in text) == (lo > 1e-9)
    assert ("Base leads" in text) == (hi < -1e-9)
    shown = numbers(text.rpartition("samples ")[2])
    sign = -1 if "Base leads" in text else 1
    wanted = sorted(100 * sign * end for end in (lo, value, hi))
    assert sorted(shown) == pytest.approx(wanted, abs=0.05)
    assert shown[1] <= shown[0] <= shown[2], "the estimate lies within its ends"


def health(rng: np.random.Generator) -> Health:
    """A cell of 1000 samples of which some have an answer and some end nobody knows how."""
    answered = int(rng.choice([0, 3, 500, 997, 1000]))
    counts: dict[str, Any] = {"samples": 1000, "answered": answered, "truncated": int(rng.choice([0, 3, 200]))}
    counts |= {"unboxed": None, "unknown_end": (0, 3, None)[rng.integers(3)]}
    broken, remarks = ((words,) if rng.random() < 0.3 else () for words in ("it is broken", "it is odd"))
    return Health(counts, broken, remarks)


@seeded
def test_samples_are_sound_only_if_nothing_was_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sides = {} if rng.random() < 0.1 else {"base": health(rng), "rl": health(rng)}
    text = explorer_sentences._soundness(sides, "sums")
    found = any(side.remarks for side in sides.values())
    assert text.startswith("The samples are sound") == (bool(sides) and not found)
    assert ("not known" in text) == (not sides) and ("mind" in text) == found
    if sides and not found:
        known = {0: "0%", 3: "under 1%", 500: "50%", 997: "over 99%", 1000: "100%"}
        base, rl = (known[side.counts["answered"]] for side in sides.values())
        assert text.endswith(f"{base} of Base's and {rl} of RL's state an answer.")


@seeded
def test_a_line_of_the_summary_says_what_its_row_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    zero = int(rng.integers(0, 4))
    inside, budgets = zero + int(rng.integers(0, 3)), zero + 2
    row: dict[str, Any] = {"pair": "toy", "benchmark": "sums", "questions": 12, "source": "sampled", "warning": ""}
    row |= {"inside": inside, "budgets": budgets, "both_zero": zero, "base_policies": 27}
    row["rl_minus_base"] = [{"budget": 4, "value": -0.125, "interval": [-0.25, 0.0]}]
    row |= dict.fromkeys(GREEDY)
    known = [side for side in ("base", "rl") if rng.random() < 0.5]
    for side in known:
        row |= {f"greedy_{side}": 0.5, f"greedy_{side}_lo": 0.25, f"greedy_{side}_hi": 0.75}
    text = summary._pair_line(row, "own")
    assert "N=4: \u221212.5 [\u221225.0, +0.0]" in text
    assert f"27 policies reach at {inside - zero} of 2 budgets" in text
    assert text.count("50.0% [25.0, 75.0]") == (len(known) if "base" in known else 0)
    nothing = summary._pair_line({**row, "rl_minus_base": []}, "own")
    assert nothing == "  toy/sums: own was not sampled from both models"
    broken = summary._pair_line({**row, "rl_minus_base": [], "warning": "Base: all cut off."}, "own")
    assert broken == "  toy/sums: not interpretable. Base: all cut off."


@seeded
def test_graders_and_health_say_what_was_counted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = []
    for side in ("Base", "RL")[: rng.integers(0, 3)]:
        lo, share, hi = ends(rng, 0.9, 1)
        rows.append({"side": side, "grader": "other", "compared": 50, "share": share, "lo": lo, "hi": hi})
    recorded = bool(rng.random() < 0.2)
    sides = [SimpleNamespace(title=title, health=(one := health(rng)), counts=one.counts) for title in ("Base", "RL")]
    found: Any = SimpleNamespace(grader="recorded" if recorded else "math", agreeing=pl.DataFrame(rows), sides=sides)
    graders, of_health = LogComparison._graders(found), LogComparison._health(found)
    assert graders.can.startswith("not identified") == (recorded or not rows)
    doubtful = [row["side"] for row in rows if row["lo"] < 0.95]
    assert ("disagreement" in graders.cannot) == bool(doubtful)
    assert re.findall(r"other, (\w+)", graders.cannot) == doubtful
    unknown = [side.title for side in sides if side.counts["unknown_end"] != 0]
    assert f"whether texts of {' and '.join(unknown)} were cut off" in of_health.cannot or not unknown
    ill = [side.title for side in sides if side.health.level != "ok"]
    assert re.findall(r"(\w+) than its samples allow", of_health.cannot) == ill


# ---- titles of figures


def cells(rng: np.random.Generator, **columns: tuple[float, float]) -> pl.DataFrame:
    """Random rows of several pairs on two benchmarks, with an estimate and its ends for each name."""
    keys = [(f"pair {i}", name) for i in range(rng.integers(1, 4)) for name in ("math", "aime")]
    rows = []
    for pair, name in keys:
        row: dict[str, Any] = {"pair": pair, "benchmark": name}
        for column, limits in columns.items():
            lo, value, hi = ends(rng, *limits)
            row |= {column: value, f"{column}_lo": lo, f"{column}_hi": hi}
        rows.append(row)
    return pl.DataFrame(rows)


SOUND: Any = SimpleNamespace(broken=set())


@seeded
def test_losses_and_gains_are_compared_by_their_difference(seed: int) -> None:
    """Two intervals may overlap where that of the difference does not contain 0."""
    frame = cells(np.random.default_rng(seed), nscr=(-1, 1)).rename({"nscr_lo": "net_lo", "nscr_hi": "net_hi"})
    title = cover._support_change_finding(frame.with_columns(change=pl.lit("lost")), SOUND)
    lost, gained = (frame["net_hi"] < -1e-9).sum(), (frame["net_lo"] > 1e-9).sum()
    assert numbers(title) == [lost, frame.height, gained, frame.height - lost - gained]


@seeded
def test_the_map_counts_who_leads(seed: int) -> None:
    frame = cells(np.random.default_rng(seed), gap=(-1, 1)).rename({"gap_lo": "lo", "gap_hi": "hi"})
    rl, base = (frame["lo"] > 1e-9).sum(), (frame["hi"] < -1e-9).sum()
    assert numbers(gap_map._gap_map_finding(frame)) == [rl, frame.height, base, frame.height - rl - base]


@seeded
def test_cover_counts_who_covers_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = cells(rng, value=(-1, 1)).rename({"value_lo": "lo", "value_hi": "hi"})
    other = frame.with_columns(lo=-pl.col("hi"), hi=-pl.col("lo"), tau=pl.lit(1.0))
    frame = pl.concat([frame.with_columns(tau=pl.lit(0.5)), other])
    title = cover._cover_finding(frame.with_columns(side=pl.lit("RL - Base")), SOUND)
    wanted: list[float] = [frame.height // 2]
    for tau in (0.5, 1.0):
        rows = frame.filter(tau=tau)
        base, rl = (rows["hi"] < -1e-9).sum(), (rows["lo"] > 1e-9).sum()
        wanted += [tau, base, rl, rows.height - base - rl]
    assert numbers(title) == wanted


@seeded
def test_exponents_are_counted_only_where_they_are_rejected(seed: int) -> None:
    """A set that holds everything shows nothing, and a law that was not tested is not rejected."""
    rng = np.random.default_rng(seed)
    rows, wanted = [], {"cells": 0, "one": 0, "empty": 0, "every": 0}
    for cell in range(rng.integers(1, 5)):
        testable = bool(rng.integers(2))
        p = [None if rng.random() < 0.2 else float(rng.choice([0.01, 0.05, 0.5])) for _ in range(3)]
        inside = [value is not None and value >= 0.05 for value in p]
        found = {"pair": "a", "benchmark": str(cell), "testable": testable, "empty": not any(inside)}
        rows += [{**found, "beta": 0.5 * (i + 1), "p": p[i], "inside": inside[i]} for i in range(3)]
        if testable:
            rejected = [value is not None and value < 0.05 for value in p]
            wanted["cells"] += 1
            wanted["one"] += rejected[1]
            wanted["empty"] += not any(inside)
            wanted["every"] += not any(rejected) and any(inside)
    title = budget_equivalents._exponent_sets_finding(pl.DataFrame(rows, infer_schema_length=None), SOUND)
    if not wanted["cells"]:
        assert title == "No power law could be tested"
        return
    assert numbers(title.replace("β = 1", "β")) == [
        number for name, number in wanted.items() if number or name != "every"
    ]


@seeded
def test_a_path_is_said_to_be_chosen(seed: int) -> None:
    """That it was chosen, and among how many points, is in the sentence; a budget without a match is named."""
    rng = np.random.default_rng(seed)
    budgets = [2**i for i in range(rng.integers(1, 5))]
    near = [budget for budget in budgets if rng.random() < 0.8]
    errors = rng.uniform(-0.1, 0.1, len(budgets))
    rows = [{"layer": "rl", "target_budget": budget} for budget in budgets]
    rows += [{"layer": "near_match", "target_budget": budget} for budget in near]
    path = zip(budgets, errors, strict=True)
    rows += [{"layer": "monotone", "target_budget": budget, "rl_minus_base": error} for budget, error in path]
    title = recovery._recovery_finding(
        pl.DataFrame(rows, infer_schema_length=None), Labels(pair="a", benchmark="b", questions=9), points=135
    )
    missed = [budget for budget in budgets if budget not in near]
    assert "By the estimates" in title
    if missed:
        assert numbers(title) == [135, 3, *missed, len(near), len(budgets)]
    else:
        assert numbers(title) == [135, round(100 * max(abs(errors)), 1), len(budgets)]


@seeded
def test_worth_more_counts_bands_and_says_open_ends(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = cells(rng, band=(1, 16)).with_columns(
        pool=16, budget=1, n=pl.col("band"), state=pl.lit(str(rng.choice(["within", "below"])))
    )
    title = budget_equivalents._budget_equivalents_finding(frame, SOUND)
    more = frame.filter((pl.col("band_lo") > 1) & (pl.col("state") != "below"))
    assert title.startswith("In no cell") == more.is_empty()
    if not more.is_empty():
        assert f"in {more.height} of {frame.height} cells" in title
        most = more.sort("n").row(-1, named=True)
        assert ("or more" in title) == (most["band_hi"] >= 16)


@seeded
def test_inside_counts_budgets_at_which_anything_is_solved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rl, best = rng.choice([0, 0.2, 0.5], (2, 5))
    frame = pl.DataFrame({"rl": rl, "envelope": best, "inside": rl <= best, "policies": 27})
    title = support_region._support_region_finding(frame)
    solved = (rl > 0) | (best > 0)
    if not solved.any():
        assert title == "Neither model solves any question"
    else:
        assert "By the estimates" in title and numbers(title) == [27, (solved & (rl <= best)).sum(), solved.sum()]


@seeded
def test_matches_are_those_of_the_frame(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 3, rng.integers(1, 4))
    budgets = [2**i for i in range(len(counts))]
    title = recovery._matching_set_finding(
        pl.DataFrame({"x": range(9)}), pl.DataFrame({"budget": budgets, "matches": counts})
    )
    missed = [budget for budget, count in zip(budgets, counts, strict=True) if not count]
    wanted = missed or [*dict.fromkeys([min(counts), max(counts)]), 9]
    assert ("no Base point" in title) == bool(missed) and numbers(title) == wanted


@seeded
def test_at_equal_cost_both_were_read(seed: int) -> None:
    """Base's best at or below the cost; neither is said of a cost at which it was not read."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "axis": "tokens",
            "model": model,
            "layer": layer,
            "x": float(x) * 100,
            "value": float(rng.integers(0, 101) / 100),
        }
        for model, layer in (("RL", "AR"), ("Base", "AR edge"))
        for x in np.sort(rng.choice(np.arange(1, 20), rng.integers(0, 4), replace=False))
    ]
    frame = pl.DataFrame(
        rows, dict.fromkeys(("axis", "model", "layer"), pl.String()) | {"x": pl.Float64, "value": pl.Float64}
    )
    title = support_region._compute_frontier_finding(frame, "tokens")
    rl, base = ({r["x"]: r["value"] for r in rows if r["model"] == side} for side in ("RL", "Base"))
    shared = [x for x in rl if base and min(base) <= x <= max(base)]
    assert title.startswith("At equal") == bool(shared)
    if shared:
        cost = max(shared)
        assert "by the estimates" in title
        assert numbers(title) == [cost, round(100 * base[max(x for x in base if x <= cost)]), round(100 * rl[cost])]


@seeded
def test_policies_are_counted_where_either_model_solves_anything(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = []
    for budget in (1, 2, 4)[: rng.integers(1, 4)]:
        zero, ahead, behind = (int(count) for count in rng.integers(0, 5, 3))
        counts = (zero + ahead, zero + ahead + behind, zero)
        rows.append({"budget": budget, **dict(zip(gap_map.COUNTS, (*counts, *counts), strict=True))})
    found = list(gap_map.tallies(pl.DataFrame(rows)))
    (first_budget, first, _), (last_budget, last, _) = found[0], found[-1]
    facts = {"first": first, "first_budget": first_budget, "last": last, "last_budget": last_budget}
    wanted = []
    for row in (rows[0], rows[-1]):
        ahead, policies, zero = (row[name] for name in gap_map.COUNTS[:3])
        wanted += [ahead - zero, policies - zero, row["budget"]]
    said = claims.say(claims.LEVEL, facts)
    assert "By the estimates" in said and numbers(said) == wanted
