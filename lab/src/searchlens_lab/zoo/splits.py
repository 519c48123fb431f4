"""The splits Easy, Medium and Hard, by measured level: how often Base solves a kind of question decides its level."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from tokenizers import Tokenizer

from searchlens_lab.zoo.cohort import MEASURED, RANKED, RLTRAIN, CohortPair
from searchlens_lab.zoo.evaluate import DEFAULT, POLICIES, rows_for, sample_role
from searchlens_lab.zoo.model import Decoder
from searchlens_lab.zoo.recipe import Recipe
from searchlens_lab.zoo.sample import Sampler
from searchlens_lab.zoo.tasks import Problem, distinct

Cell = tuple[str, int]
LEVELS = 5
"""Number of measured levels."""


def measured_levels(success: Mapping[Cell, float]) -> dict[Cell, int]:
    """Rank kinds-and-levels by the share of right samples; each fifth of the ranking is one level, 1 the easiest.

    Ties keep the order of ``success``.
    """
    ranked = sorted(success, key=lambda cell: -success[cell])
    return {cell: 1 + LEVELS * i // len(ranked) for i, cell in enumerate(ranked)}


def measure_success(
    model: Decoder, tokenizer: Tokenizer, recipe: Recipe, questions: int = 100, samples: int = 16
) -> dict[Cell, float]:
    """Share of right samples on train questions of every ranked kind and level, under the default policy."""
    rng = random.Random(f"levels/{recipe.benchmark_seed}")
    problems = [p for kind, level in RANKED for p in distinct(rng, kind, "train", questions, (level,))]
    limit = recipe.rlvr.max_tokens
    sampler = Sampler(model, rows_for(model), recipe.prompt_tokens, limit)
    hits = sample_role(sampler, tokenizer, problems, POLICIES[DEFAULT], samples, limit).hits
    return {cell: float(hits[i * questions : (i + 1) * questions].mean()) for i, cell in enumerate(RANKED)}


def cells_of(pair: CohortPair, levels: Mapping[Cell, int]) -> tuple[Cell, ...]:
    """The kinds and nominal levels from which a pair's RL draws."""
    return (*(cell for cell in RANKED if levels[cell] in MEASURED[pair.split]), *pair.more)


def rltrain(split: str, levels: Mapping[Cell, int], seed: int, questions: int = RLTRAIN) -> list[Problem]:
    """Distinct questions as the RL of a split sees them, with equal numbers for each kind and level."""
    cells: Sequence[Cell] = [cell for cell in RANKED if levels[cell] in MEASURED[split]]
    rng = random.Random(f"rltrain-{split}/{seed}")
    problems = [
        problem
        for i, (kind, level) in enumerate(cells)
        for problem in distinct(rng, kind, "train", (questions + i) // len(cells), (level,))
    ]
    rng.shuffle(problems)
    return problems
