"""Small hand-made cohorts: pass curves are given as counts of questions, and so are the scales that RL would tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

import planted_landscapes
from searchlens.analysis.uncertainty import Floats
from searchlens.boptr.cohort import Benchmark, Cohort, CohortPlan, DenseLandscape, Model
from searchlens.boptr.rule import Reason, Rule
from searchlens.boptr.view import View, sample_view
from searchlens.config.boptr import DEFAULTS, BoptrOptions

QUESTIONS = 1000
DEFAULT, BEST = "topp0.95_t1.0", "temp_0.7"
BENCHMARKS = {
    "math": Benchmark("math"),
    "gpqa": Benchmark("nonmath"),
    "aime": Benchmark("floor"),
    "split": Benchmark("math", "rltrain"),
}
PLAIN = (200, 320, 440, 520, 560)


def dense_landscape(curves: Mapping[str, Sequence[int]]) -> DenseLandscape:
    """Counts of solved questions by policy and budget: always the first questions, six tenths of them by vote."""
    solved = planted_landscapes.dense_landscape(curves, QUESTIONS)
    votes = {name: [n * 0.6 for n in curve] for name, curve in curves.items()}
    voted = planted_landscapes.dense_landscape(votes, QUESTIONS)
    tokens = {name: 100.0 + i for i, name in enumerate(curves)}
    return replace(solved, credit=solved.credit | {"Q": voted.credit["Q"]}, tokens=tokens)


def pool(default: Sequence[int], best_last: int | None = None) -> dict[str, Sequence[int]]:
    """The default policy, and another one that may end elsewhere."""
    other = [*default[:-1], default[-1] if best_last is None else best_last]
    return {DEFAULT: default, BEST: other}


@dataclass(frozen=True)
class Pair:
    """One model: Base on the split (None: not sampled), ln alpha_math (None: no RL), and where its Base comes from."""

    split: Mapping[str, Sequence[int]] | None
    log_alpha: float | None = 1.0
    base: str | None = None
    new: bool = False
    parameters: float | None = None
    cells: Mapping[str, Mapping[str, Sequence[int]] | None] = field(default_factory=dict)


def cohort(pairs: Mapping[str, Pair]) -> Cohort:
    """The first pair is the anchor; RL solves what Base solves with twice the samples."""
    models, landscapes = {}, {}
    for name, pair in pairs.items():
        base, rl = pair.base or f"{name}-base", f"{name}-rl"
        models[name] = Model(base, rl, "new" if pair.new else "upper", pair.parameters)
        for benchmark in ("math", "gpqa", "aime"):
            curves = pair.cells.get(benchmark, pool(PLAIN, PLAIN[-1] + 40))
            if curves is None:
                continue
            landscapes[base, benchmark] = dense_landscape(curves)
            if pair.log_alpha is not None:
                landscapes[rl, benchmark] = dense_landscape({DEFAULT: [*curves[DEFAULT][1:], curves[DEFAULT][-1]]})
        if pair.split is not None:
            landscapes[base, "split"] = dense_landscape(pair.split)
    return Cohort(CohortPlan(next(iter(pairs)), "math", models, BENCHMARKS), landscapes)


class Planted(Rule):
    """The rule with ln alpha_math given, so that what is read from it can be checked apart from the grid fits."""

    def __init__(
        self, pairs: Mapping[str, Pair], options: BoptrOptions = DEFAULTS, view: View | None = None, **kinds: object
    ) -> None:
        super().__init__(view or sample_view(cohort(pairs)), options, **kinds)  # type: ignore[arg-type]
        self.pairs = pairs

    def rule_without(self, *names: str) -> "Planted":
        return Planted(self.pairs, self.options, self.view, without=names)

    def log_alpha(self, model: str, benchmark: str, at: str | None = None) -> Floats:
        planted = self.pairs[model].log_alpha
        if planted is None:
            raise Reason("no_rl")
        return np.full(self.view.draws, planted)


def varied(count: int, seed: int = 1) -> dict[str, Pair]:
    """Models whose splits differ in all features, ln alpha drawn."""
    rng = np.random.default_rng(seed)
    pairs = {}
    for i in range(count):
        steps = rng.integers(20, 160, 5)
        curve = (np.cumsum(steps) + 50).tolist()
        pairs[f"m{i}"] = Pair(pool(curve, curve[-1] + int(rng.integers(1, 100))), float(rng.normal(1, 0.4)))
    return pairs
