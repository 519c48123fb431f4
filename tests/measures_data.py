"""Measures of two pairs of small made-up pools, for tests of tables and figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from searchlens.analysis.classes import Pool
from searchlens.analysis.pair_measures import PairPools, read_study
from searchlens.config.general import General
from searchlens.config.measures import MeasuresOptions


def pool(name: str, samples: int, difficulty: np.ndarray, rng: np.random.Generator) -> Pool:
    correct = rng.binomial(samples, difficulty)
    classes = np.array([" ".join([f"{c}+"] * (c > 0) + [f"1x{samples - c}"] * (c < samples)) for c in correct.tolist()])
    questions = np.arange(len(difficulty), dtype=np.uint32)
    return Pool(name, samples, questions, correct, np.full(len(correct), samples), classes, tokens=50.0)


def frames() -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(3)
    cells = []
    for benchmark in ("Micro math", "Micro_AIME & more"):
        base = rng.beta(0.6, 1.5, 60)
        rl = 1 - (1 - base) ** 2
        policies = ("temp_0.5", "topp0.95_t1.0")
        wrong_key = None if "AIME" in benchmark else np.arange(60) % 4
        sides = (
            {name: replace(pool(name, 16, side, rng), wrong_key=wrong_key) for name in policies} for side in (base, rl)
        )
        options = np.full(60, 4) if "AIME" in benchmark else None
        cells.append(PairPools("micro-1m", benchmark, *sides, options))
    return read_study(cells, MeasuresOptions(), General(draws=100))
