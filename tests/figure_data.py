"""Small, realistic inputs for figures and tables: simulated graded samples, read out by the stages themselves.

Base answers broadly; RL puts its mass on what Base already does well and loses a little elsewhere. So RL leads at small
budgets, and Base catches up at 16.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.figure import Figure
from scipy.special import expit

from searchlens import catalogue
from searchlens.analysis.classes import Pool
from searchlens.analysis.pair_measures import PairPools, read_study
from searchlens.analysis.points import operating_points
from searchlens.analysis.recovery import recover
from searchlens.config.general import General
from searchlens.config.landscape import LandscapeOptions
from searchlens.config.measures import MeasuresOptions
from searchlens.config.recovery import RecoveryOptions
from searchlens.reporting.figures import style as figures_of
from searchlens.search.policy import Policy, from_spec, parse
from searchlens.store.columns import SCORES

BUDGETS = (1, 2, 4, 8, 16)
DEFAULT = "topp0.95_t1.0"
PARAMETERS = {"topp": ("0.8", "0.9", "0.95"), "topk": ("10", "20", "40"), "minp": ("0.05", "0.1", "0.2")}
PAPER24 = (
    *(f"temp_{t}" for t in ("0.3", "0.5", "0.7", "0.9", "1.0")),
    *(f"{key}{value}_t{t}" for key, values in PARAMETERS.items() for value in values for t in ("0.7", "0.9")),
    DEFAULT,
)
SEARCHES: dict[str, Policy] = {
    name: from_spec(name, spec)
    for name, spec in {
        "power_t0.25": {"local": {"temperature": 0.25}, "controller": "power"},
        "power_topp0.9_t0.7": {"local": {"temperature": 0.7, "top_p": 0.9}, "controller": "power"},
        "entropy_tree_b4": {"controller": "entropy_tree"},
        "mcts16_t1.0": {"controller": "mcts", "transition": "thought"},
        "thought_tree_b8": {"controller": {"name": "thought_tree", "width": 8}},
    }.items()
}
"""Searches as a study might configure them: their names spell no policy."""
NO_SEARCHES: Mapping[str, Policy] = {}
SPENT = {"power": 800, "entropy_tree": 80, "mcts": 300, "thought_tree": 120}
"""Tokens that one run of a search generates."""


@dataclass(frozen=True)
class Cell:
    """One pair on one benchmark: the frames that landscape and recovery write; Base has greedy, recovery ignores it."""

    base: pl.DataFrame
    rl: pl.DataFrame
    same_policy: pl.DataFrame
    counts: pl.DataFrame
    support: pl.DataFrame
    near_match: pl.DataFrame
    path: pl.DataFrame


def cell(
    questions: int = 200,
    names: tuple[str, ...] = PAPER24,
    seed: int = 7,
    ability: float = 0.2,
    searches: Mapping[str, Policy] = NO_SEARCHES,
) -> Cell:
    """Simulate one cell; searches are sampled from Base alone."""
    rng = np.random.default_rng(seed)
    base_skill = rng.normal(ability, 2.2, questions)
    rl_skill = np.where(rng.random(questions) < 0.08, base_skill - 3, base_skill * 1.5 + 1.5)
    options = LandscapeOptions(draws=200)
    base_scores = pl.concat(
        [
            *(_samples(rng, base_skill, name, 1.0) for name in names),
            *(_searched(rng, base_skill, name, policy) for name, policy in searches.items()),
        ]
    )
    base = operating_points(base_scores, budgets=BUDGETS, options=options)
    rl = operating_points(
        pl.concat(_samples(rng, rl_skill, name, 0.3) for name in names), budgets=BUDGETS, options=options
    )
    greedy = operating_points(_samples(rng, base_skill, "greedy", 1.0), budgets=BUDGETS, options=options)
    policy_by_name = {**{name: parse(name) for name in names}, **searches}
    components = {name: policy.components for name, policy in policy_by_name.items()}
    frames = recover(base, rl, components, RecoveryOptions(), General(default_policy=DEFAULT, draws=200))
    frames.pop("geometry")
    return Cell(pl.concat([base.points, greedy.points]), rl.points, **frames)


def _searched(rng: np.random.Generator, skill: npt.NDArray[np.float64], name: str, policy: Policy) -> pl.DataFrame:
    """Candidates of searches: samples at a low temperature, in runs that spend more than they return."""
    rows = _samples(rng, skill + 1, "temp_0.3", 1.0)
    run = pl.col("sample") // policy.width
    first = pl.col("sample") % policy.width == 0
    spent = pl.when(first).then(SPENT[policy.controller.name]).otherwise(0).cast(pl.UInt32)
    return rows.with_columns(policy=pl.lit(name), run=run, generated=spent)


def _samples(rng: np.random.Generator, skill: npt.NDArray[np.float64], name: str, spread: float) -> pl.DataFrame:
    """Graded samples under one policy: right answers are class 0, one common mistake is class 1, others are apart."""
    local = parse(name).local
    shape = (len(skill), 1 if name == "greedy" else BUDGETS[-1])
    cut = 1 - 0.35 * (local.top_p < 0.9) - 0.4 * (local.min_p > 0.05) - 0.2 * (0 < local.top_k < 20)
    heat = spread * (local.temperature - 0.8) * cut
    chance = expit(skill * (1 - 0.6 * heat) - 0.5 * heat + rng.normal(0, 0.08))[:, None]
    common = expit(rng.normal(-0.2, 1, len(skill)))[:, None]
    correct = rng.random(shape) < chance
    question, sample = np.indices(shape)
    answer = np.where(correct, 0, np.where(rng.random(shape) < common, 1, 2 + sample))
    data = {"question": question, "sample": sample, "run": sample, "correct": correct, "answer": answer}
    frame = pl.DataFrame({key: values.ravel() for key, values in data.items()})
    rest = {
        "policy": pl.lit(name),
        "tokens": pl.lit(40),
        "generated": pl.lit(40),
        "stopped": pl.lit(True),
        "score": pl.lit(-0.5),
    }
    return frame.with_columns(**rest).select(SCORES.names()).cast(SCORES)


def draw(name: str, context: Any) -> tuple[Figure, pl.DataFrame]:
    """A declared figure, by name."""
    return figures_of.draw(catalogue.declared("figure")[name], context)


def numbers(name: str, context: Any) -> pl.DataFrame:
    """What a declared figure shows, without drawing it."""
    shown: pl.DataFrame = catalogue.definition(catalogue.declared("figure")[name])(context)
    return shown


def write(stage: str, context: Any, folder: Path) -> list[Path]:
    """Every figure of a stage; none of them fails."""
    paths = figures_of.write(catalogue.declared("figure", stage=stage), context, folder, folder / "failed.json")
    assert not (folder / "failed.json").exists(), (folder / "failed.json").read_text()
    return paths


# ---- measures of two pairs of small made-up pools


def pool(name: str, samples: int, difficulty: np.ndarray, rng: np.random.Generator) -> Pool:
    correct = rng.binomial(samples, difficulty)
    classes = np.array([" ".join([f"{c}+"] * (c > 0) + [f"1x{samples - c}"] * (c < samples)) for c in correct.tolist()])
    questions = np.arange(len(difficulty), dtype=np.uint32)
    return Pool(name, samples, questions, correct, np.full(len(correct), samples), classes, tokens=50.0)


def measures() -> dict[str, pl.DataFrame]:
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
