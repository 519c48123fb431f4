"""The comparison of samplers of p^alpha: its toys, its numbers on few runs, and what it writes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from searchlens.engines.base import Sampling
from searchlens.search.policy import from_spec
from searchlens_lab.equivalence import samplers
from searchlens_lab.equivalence.explicit import ToyModel, enumerate_texts
from searchlens_lab.equivalence.laws import PROMPT
from searchlens_lab.equivalence.samplers import LOOKS, table_of, write_results


def low_temperature_distance(seed: int) -> float:
    model = ToyModel.random(seed, vocab_size=4, eos=-1.0)
    p = enumerate_texts(model, PROMPT, 5)
    total = sum(chance**4 for chance in p.values())
    q = enumerate_texts(model, PROMPT, 5, sampling=Sampling(0.25))
    return 0.5 * sum(abs(q.get(text, 0.0) - chance**4 / total) for text, chance in p.items())


def test_toys_are_one_near_the_median_and_the_last_but_one() -> None:
    found = [low_temperature_distance(seed) for seed in range(80)]
    order = sorted(range(80), key=found.__getitem__)
    assert (order.index(1), order.index(14)) == (34, 78)
    assert (found[1], found[14]) == (pytest.approx(0.764, abs=1e-3), pytest.approx(0.975, abs=1e-3))


def settings() -> list[samplers.Setting]:
    return [
        one for one in samplers.SETTINGS if one.setting in ("T = 1/4", "2 steps", "N = 4", "1 rollouts", "4 rollouts")
    ]


def accuracies() -> pl.DataFrame:
    rows = [(one.sampler, one.setting, 50, 0.7, 0.56, 0.81, 120.0, -2.5) for one in settings() if one.real]
    return pl.DataFrame(rows, samplers.ACCURACIES, orient="row")


def test_every_sampler_has_a_look_and_policies_that_can_run() -> None:
    assert {one.sampler for one in samplers.SETTINGS} == set(LOOKS)
    for one in samplers.SETTINGS:
        for spec in (one.toy, one.real or one.toy):
            from_spec(one.sampler, spec)
    assert len({(one.sampler, one.setting) for one in samplers.SETTINGS}) == len(samplers.SETTINGS)


def test_distances_and_costs_on_few_runs(tmp_path: Path) -> None:
    """Low temperature is as far as its exact law says; two runs are equal; table and figure hold every sampler."""
    toys = samplers.TOYS[:2]
    found = samplers.distances(200, settings(), toys)
    assert found.equals(samplers.distances(200, settings(), toys))
    low = found.filter(sampler="low temperature", toy="median").row(0, named=True)
    assert low["distance"] == pytest.approx(low_temperature_distance(1), abs=2 * low["noise"])
    tokens = dict(found.filter(toy="median").select("sampler", "tokens").iter_rows())
    assert 1 <= tokens["low temperature"] <= 5
    assert tokens["SMC"] > 2 * tokens["low temperature"]
    assert 2.5 < tokens["best of N, reweighted"] / tokens["low temperature"] < 5.5
    table = table_of(found, accuracies())
    assert table.data.height == len(settings())
    written = write_results(found, accuracies(), tmp_path)
    assert {path.suffix for path in written} == {".parquet", ".csv", ".md", ".tex", ".html", ".svg", ".pdf", ".png"}
    assert all(path.stat().st_size for path in written)
    assert pl.read_parquet(tmp_path / "samplers.parquet").equals(table.data)
    assert "low temperature" in (tmp_path / "sampler_distance.svg").read_text()
