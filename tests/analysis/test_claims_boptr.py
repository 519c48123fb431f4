"""Titles of figures of the BOPTR analysis are true of their frames."""

import re
from typing import Any

import numpy as np
import polars as pl
import pytest

from searchlens.reporting.boptr import context as shared
from searchlens.reporting.boptr import extension, metrics, regimes, vertical
from test_claims import numbers, seeded


def errors(rng: np.random.Generator, **columns: list[Any]) -> pl.DataFrame:
    """Rows with a corrected error and its interval, sometimes none; labels are letters."""
    rows = []
    for i in range(rng.integers(0, 5)):
        lo, value, hi = np.sort(rng.uniform(-1, 9, 3)).tolist() if rng.random() < 0.8 else (None,) * 3
        row = {"label": "ABCDE"[i], "corrected": value, "lo_corrected": lo, "hi_corrected": hi}
        rows.append(row | {name: values[rng.integers(len(values))] for name, values in columns.items()})
    names = dict.fromkeys(("corrected", "lo_corrected", "hi_corrected"), pl.Float64())
    return pl.DataFrame(rows, {"label": pl.String(), **names, **dict.fromkeys(columns)}, infer_schema_length=None)


@seeded
def test_a_row_errs_least_only_if_no_other_interval_reaches_its_own(seed: int) -> None:
    frame = errors(np.random.default_rng(seed), kind=["rule", "oracle"], rule=["R"], cells=[3, 3, 2])
    title = shared.least(frame)
    honest = [row for row in frame.to_dicts() if row["kind"] == "rule" and row["corrected"] is not None]
    most = [row for row in honest if row["cells"] == max(each["cells"] for each in honest)]
    if not most:
        assert title == "No prediction without the answer is defined"
        return
    first = min(most, key=lambda row: row["corrected"])
    apart = all(row["lo_corrected"] > first["hi_corrected"] for row in most if row is not first)
    assert re.findall(r"\b[A-E]\b", title)[0] == first["label"]
    twins = pl.concat([frame, frame.filter(label=first["label"]).with_columns(label=pl.lit("twin"), rule=pl.lit("T"))])
    assert shared.least(twins) == re.sub(rf"\b{first['label']}\b", r"\g<0>, here the same as T,", title, count=1)
    assert ("errs least over" in title) == (apart and len(most) > 1)
    assert ("By the estimates" in title) == (not apart)
    if "errs least over" in title:
        assert f"over {first['cells']} cells" in title


@seeded
def test_the_errors_of_the_rule_reach_as_far_as_the_map(seed: int) -> None:
    frame = errors(np.random.default_rng(seed), rule=["V1", "V2", "V3"], model=["x", "y"])
    title = vertical._finding(frame)
    rows = [row for row in frame.to_dicts() if row["rule"] != "V1" and row["corrected"] is not None]
    if not rows:
        assert title.startswith("No error")
        return
    low, high = (end(rows, key=lambda row: row["corrected"]) for end in (min, max))
    assert numbers(title.partition("(")[0]) == pytest.approx([low["corrected"], high["corrected"]], abs=0.051)
    assert title.endswith(f"({high['rule']}, {high['model']})") and "By the estimates" in title


@seeded
def test_an_interval_holds_an_end_of_its_own(seed: int) -> None:
    """Exponents are steps of 0.1: one at the end of an interval is in it, whatever the last digit."""
    rng = np.random.default_rng(seed)
    steps = np.sort(rng.integers(0, 15, (rng.integers(0, 4), 2)))
    assigned = rng.integers(0, 15, len(steps))
    frame = pl.DataFrame({"lo": steps[:, 0] * 0.1, "hi": steps[:, 1] * 0.1, "assigned": assigned / 10})
    inside = sum(lo <= value <= hi for (lo, hi), value in zip(steps, assigned, strict=True))
    wanted = [inside, len(steps)] if len(steps) else []
    assert numbers(regimes._finding(frame)) == wanted


@seeded
def test_a_feature_predicts_only_if_it_beats_shuffles_and_the_mean(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [
        {"scale": scale, "p": float(rng.choice([0.002, 0.05, 0.0512, 0.4])), "score": float(rng.uniform(-1, 1))}
        for scale in ("standardised", "raw")
    ]
    title = metrics._finding(pl.DataFrame(rows), 1 - 0.95)
    good = [row["scale"] for row in rows if row["p"] <= 0.05 and row["score"] > 0]
    assert title.startswith("No Base feature") == (not good)
    assert ("only with" in title) == (len(good) == 1)
    if len(good) == 1:
        assert f"only with {good[0]} features" in title
    assert [float(p) for p in re.findall(r"p = ([\d.]+)", title)] == pytest.approx([row["p"] for row in rows], abs=6e-4)


@seeded
def test_where_base_overtakes_is_said_with_draws_in_which_it_never_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    places = [1, 2, 4, 8, None]
    lo, at, hi = (places[i] for i in np.sort(rng.integers(0, 5, 3)))
    drawn = bool(rng.random() < 0.7)
    row = {"crossing": at, "crossing_lo": lo if drawn else None, "crossing_hi": hi if drawn else None, "largest": 8}
    row |= {"never": 0.25 if drawn else None, "tie": at or rng.choice([1, None]), "why": ""}
    text = extension._verdict(row)
    assert text.startswith("no k*") == (at is None)
    assert "None" not in text and "by the estimates" in text
    assert (f"tie at {row['tie']}" in text) == (row["tie"] is not None)
    if at is None:
        assert ("25% of draws" in text) == drawn
    else:
        assert f"k* = {at}" in text
        assert ("never]" in text) == (drawn and hi is None)
