"""Designs of simulated studies, as frozen dataclasses (``docs/simulation.md`` has the formulas), and ready ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from searchlens.boptr.cohort import Benchmark, CohortPlan, Model
from searchlens.config.boptr import Group, Regime, Role
from searchlens.errors import InputError
from searchlens.search.policy import parse


@dataclass(frozen=True)
class PolicyEffect:
    """Effect of a policy on an answer distribution."""

    concentration: float
    """Power to which answer probabilities are raised, > 0."""
    derail: float
    """Log-odds added to giving no valid answer."""
    tokens: float
    """Factor on the number of tokens per sample, > 0."""


def autoregressive(name: str) -> PolicyEffect:
    """The effect of an autoregressive policy, from its temperature and filters.

    Raises InputError for a name that ``search.policy.parse`` does not understand.
    """
    local = parse(name).local
    tail = 1 - local.top_p
    rank = 1 / local.top_k if local.top_k else 0.0
    concentration = max(local.temperature, 0.1) ** -0.6 * (1 + 0.8 * tail) * (1 + 0.8 * local.min_p) * (1 + rank)
    derail = 2 * (local.temperature - 1) - 4 * tail - 3 * local.min_p - 4 * rank
    return PolicyEffect(concentration, derail, tokens=1 + 0.05 * derail)


Mode = Literal["transform", "planted", "continuous", "ceiling", "unrelated", "equal"]
CONTINUOUS: tuple[Mode, ...] = ("continuous", "ceiling")
"""Modes in which RL follows from the probabilities of Base by a law without rounding."""
Side = Literal["base", "rl"]
BASE_ONLY: tuple[Role, ...] = ("descriptive", "rltrain")
"""Benchmarks of these roles have no RL side."""


@dataclass(frozen=True)
class BaseModel:
    """A Base checkpoint."""

    ability: float = 0.0
    """Log-odds added to the right answer; 0 for the anchor."""
    invalid: float = -2.8
    """Log-odds of giving no valid answer to the typical question, at temperature 1 without filters."""
    verbosity: float = 1.0
    """Factor on the number of tokens, > 0."""


@dataclass(frozen=True)
class RLEffect:
    """Effect of RL on the answer distribution of a question, at full transfer."""

    sharpening: float = 1.5
    """gamma >= 1: power to which answer probabilities are raised."""
    reward: float = 1.3
    """r >= 0: log-odds added to the right answer."""
    loss: float = 0.1
    """tau in [0, 1): answers with a much smaller probability are lost."""
    support: float = 0.0005
    """nu in [0, 1): probability moved to the right answer, however rare it was."""
    termination: float = 0.7
    """Log-odds subtracted from giving no valid answer."""


@dataclass(frozen=True)
class SimModel:
    """One Base/RL pair."""

    base: str
    """Key of ``Design.bases``; models may share one."""
    group: Group = "upper"
    parameters: float = 7.6e9
    effect: RLEffect = RLEffect()
    """Used in mode ``transform``."""
    delta: float = 0.0
    """Planted delta_m, used in modes ``planted``, ``continuous`` and ``ceiling``."""


@dataclass(frozen=True)
class SimBenchmark:
    """A distribution of questions.

    ``regime``, ``role``, ``title``: as in ``boptr.cohort.Benchmark``. ``questions``: at least 1. ``level``: mean
    log-odds of the right answer against all wrong ones, for ability 0 at temperature 1. ``spread``: standard deviation
    of these log-odds over questions. ``slope``: log-odds per unit of ability. ``wrong``: number of possible wrong
    answers, >= 1. ``transfer``: share of the RL effect on this benchmark, in [0, 1]. ``invalid``: log-odds added to the
    model's of giving no valid answer. ``tokens``: typical number of tokens per sample. ``open_text``: every finished
    answer is a class of its own, so there is no vote.
    """

    regime: Regime
    questions: int
    level: float
    spread: float
    role: Role = "fitted"
    slope: float = 1.0
    wrong: int = 5
    transfer: float = 1.0
    invalid: float = 0.0
    tokens: float = 500.0
    open_text: bool = False
    title: str = ""


def sides_of(benchmark: SimBenchmark) -> tuple[Side, ...]:
    """The sides of a benchmark that are sampled."""
    return ("base",) if benchmark.role in BASE_ONLY else ("base", "rl")


@dataclass(frozen=True)
class Planted:
    """The law that holds exactly: P_RL(pi_0, b) = P_Base(pi, N(b)).

    N(b) = round_B(alpha b^beta) in mode ``planted`` and alpha b^beta in mode ``continuous``; in mode ``ceiling`` P_RL
    is that of ``continuous`` times ``ceiling``.

    Raises InputError if the ceiling is out of range, or an exponent is negative: no stream of samples has a path that
    goes back.
    """

    mu: Mapping[Regime, float]
    beta: Mapping[Regime, float]
    """``mu``, ``beta``: per regime; alpha = exp(mu + delta_m). beta is at least 0, and at most 1 in modes
    ``continuous``, ``ceiling``."""
    policy: str = "topp0.8_t0.9"
    """pi."""
    ceiling: float = 0.75
    """Share of questions that RL can solve at all, whatever their difficulty; in (0, 1]."""

    def __post_init__(self) -> None:
        """Check exponents and ceiling."""
        if not 0 < self.ceiling <= 1:
            raise InputError(f"ceiling: {self.ceiling}; a share of questions must be above 0 and at most 1")
        if min(self.beta.values()) < 0:
            raise InputError(f"beta: {dict(self.beta)}; a planted exponent must be at least 0")


PAPER_LAW = Planted(
    mu={"math": 1.16845, "nonmath": 0.0, "floor": 0.6931}, beta={"math": 0.6, "nonmath": 1.0, "floor": 0.0}
)
"""The paper's frozen constants (mean of ln alpha over seven models; regime exponents)."""


@dataclass(frozen=True)
class Design:
    """A simulated study.

    Raises InputError if a name is unknown, the pool is smaller than the largest budget, or the planted law has no
    constants for a regime, or an exponent above 1 where RL follows from Base without rounding.
    """

    bases: Mapping[str, BaseModel]
    models: Mapping[str, SimModel]
    benchmarks: Mapping[str, SimBenchmark]
    """``bases``, ``models``, ``benchmarks``: in the order of tables."""
    anchor_model: str
    anchor_benchmark: str
    policies: tuple[str, ...]
    """Autoregressive policies, sampled on both sides of every cell; must contain ``default_policy``."""
    default_policy: str = "topp0.95_t1.0"
    """pi_0."""
    searches: Mapping[str, Mapping[str, PolicyEffect]] = field(default_factory=dict)
    """Benchmark to the search policies (name to effect) of the anchor's Base on it."""
    samples: int = 16
    """Pool size, at least the largest budget."""
    budgets: tuple[int, ...] = (1, 2, 4, 8, 16)
    """B: powers of two from 1."""
    extension: Mapping[str, int] = field(default_factory=dict)
    """Benchmark to the pool size, a power of two, of the anchor's autoregressive policies on both sides; it adds
    budgets."""
    batches: Mapping[str, tuple[Side, ...]] = field(default_factory=dict)
    """Batch id to the sides of the anchor that are sampled again in this batch, on the fitted benchmarks."""
    missing: frozenset[tuple[str, str]] = frozenset()
    """Frozenset of (model, benchmark). Cells that were not sampled."""
    shared: float = 0.6
    """Share of the variance of question difficulty that all models have in common, in [0, 1]."""
    mode: Mode = "transform"
    """How RL relates to Base."""
    planted: Planted = PAPER_LAW
    """Used in modes ``planted``, ``continuous`` and ``ceiling``."""

    def __post_init__(self) -> None:
        """Check names, pools and the planted law."""
        if self.mode not in get_args(Mode):
            raise InputError(f"mode: {self.mode!r} is not one of {', '.join(get_args(Mode))}")
        unknown = [f"{name} ({model.base})" for name, model in self.models.items() if model.base not in self.bases]
        if unknown:
            raise InputError(f"models: no base for {', '.join(unknown)}; allowed: {', '.join(self.bases)}")
        if self.samples < max(self.budgets):
            raise InputError(f"samples: {self.samples} are fewer than the largest budget, {max(self.budgets)}")
        if self.default_policy not in self.policies:
            raise InputError(f"policies: the default policy {self.default_policy} is not among them")
        regimes = {item.regime for item in self.benchmarks.values() if item.role not in BASE_ONLY}
        lawless = regimes - (self.planted.mu.keys() & self.planted.beta.keys())
        if self.mode in ("planted", *CONTINUOUS) and lawless:
            raise InputError(f"planted: no mu or no beta for {', '.join(sorted(lawless))}")
        if self.mode in CONTINUOUS and max(self.planted.beta[regime] for regime in regimes) > 1:
            raise InputError(f"beta: {dict(self.planted.beta)}; mode {self.mode} needs exponents of at most 1")

    def part(self, models: Iterable[str], benchmarks: Iterable[str], questions: int) -> Design:
        """Some models on some benchmarks with so many questions each; every cell is sampled."""
        chosen = {name: self.models[name] for name in models}
        return replace(
            self,
            bases={model.base: self.bases[model.base] for model in chosen.values()},
            models=chosen,
            benchmarks={name: replace(self.benchmarks[name], questions=questions) for name in benchmarks},
            missing=frozenset(),
        )

    def plan(self) -> CohortPlan:
        """The cohort plan of this study."""
        models = {
            name: Model(
                base=checkpoint(model.base, "base"),
                rl=checkpoint(name, "rl"),
                group=model.group,
                parameters=model.parameters,
                batches=self._batches(name),
            )
            for name, model in self.models.items()
        }
        benchmarks = {name: Benchmark(item.regime, item.role, item.title) for name, item in self.benchmarks.items()}
        return CohortPlan(
            self.anchor_model,
            self.anchor_benchmark,
            models,
            benchmarks,
            self.default_policy,
            tuple(self.budgets),
            source="simulated",
        )

    def _batches(self, model: str) -> dict[str, dict[Side, str]]:
        if model != self.anchor_model:
            return {}
        base = self.models[model].base
        names: dict[Side, str] = {"base": base, "rl": model}
        return {
            key: {side: checkpoint(names[side], side, key) for side in sides} for key, sides in self.batches.items()
        }

    def cells(self) -> list[Cell]:
        """Everything to sample, in order; a Base checkpoint that models share occurs once."""
        cells: dict[tuple[str, str], Cell] = {}
        for model, spec in self.models.items():
            batches = ["", *self.batches] if model == self.anchor_model else [""]
            for batch in batches:
                for benchmark, item in self.benchmarks.items():
                    if (model, benchmark) in self.missing or (batch and item.role != "fitted"):
                        continue
                    for side in self.batches[batch] if batch else sides_of(item):
                        name = spec.base if side == "base" else model
                        cell = Cell(checkpoint(name, side, batch), model, side, benchmark, batch)
                        cells.setdefault((cell.checkpoint, benchmark), cell)
        return list(cells.values())

    def pools(self, cell: Cell) -> dict[str, int]:
        """Policies of a cell, in order, with their samples per question."""
        anchor = self.models[self.anchor_model].base if cell.side == "base" else self.anchor_model
        is_anchor = anchor == (self.models[cell.model].base if cell.side == "base" else cell.model)
        extended = is_anchor and not cell.batch
        samples = self.extension.get(cell.benchmark, self.samples) if extended else self.samples
        pools = dict.fromkeys(self.policies, samples)
        if is_anchor and cell.side == "base":
            pools |= dict.fromkeys(self.searches.get(cell.benchmark, {}), self.samples)
        return pools

    def effect(self, benchmark: str, policy: str) -> PolicyEffect:
        """The effect of a policy: that in ``searches``, or computed from the name of an autoregressive policy."""
        searches = self.searches.get(benchmark, {})
        return searches[policy] if policy in searches else autoregressive(policy)


@dataclass(frozen=True)
class Cell:
    """One checkpoint on one benchmark, which is sampled at once."""

    checkpoint: str
    """Name of its landscape folder."""
    model: str
    """The model that it belongs to; of models that share a Base, the first."""
    side: Side
    benchmark: str
    batch: str = ""
    """Empty for the main batch."""


def checkpoint(name: str, side: Side, batch: str = "") -> str:
    """Name of a checkpoint's landscape folder."""
    return "-".join([name, side, batch] if batch else [name, side])


def budgets_of(design: Design, samples: int) -> list[int]:
    """B of the design, continued by doubling up to the size of a larger pool."""
    budgets = list(design.budgets)
    while budgets[-1] * 2 <= samples:
        budgets.append(budgets[-1] * 2)
    return budgets


# ---- ready designs: the paper's study, its core, and a small one for tests and demonstrations

PAPER24 = (
    *(f"temp_{t}" for t in ("0.3", "0.5", "0.7", "0.9", "1.0")),
    *(f"topp{p}_t{t}" for p in ("0.8", "0.9", "0.95") for t in ("0.7", "0.9")),
    *(f"topk{k}_t{t}" for k in (10, 20, 40) for t in ("0.7", "0.9")),
    *(f"minp{p}_t{t}" for p in ("0.05", "0.1", "0.2") for t in ("0.7", "0.9")),
    "topp0.95_t1.0",
)
"""Pool ``paper24`` of ``config/policies.yaml``."""

_BASES = {
    "qwen25_7b": BaseModel(),
    "qwen25_14b": BaseModel(ability=0.5, invalid=-3.0),
    "qwen25_1.5b": BaseModel(ability=-1.4, invalid=-1.8, verbosity=0.9),
    "qwen25_math_7b": BaseModel(ability=0.5, invalid=-2.2, verbosity=1.1),
    "qwen25_0.5b": BaseModel(ability=-2.6, invalid=-1.8, verbosity=0.8),
    "llama31_8b": BaseModel(ability=-2.2, invalid=-1.4),
    "mistral7b_v01": BaseModel(ability=-3.4, invalid=-1.4),
    "deepseek_math_7b": BaseModel(ability=-1.8, invalid=-1.8),
}
_MODELS = {
    "qwen25_7b": SimModel("qwen25_7b", "upper", 7.6e9, RLEffect(), delta=-0.198),
    "qwen25_14b": SimModel("qwen25_14b", "upper", 14.8e9, RLEffect(1.5, 1.6), delta=0.0792),
    "qwen25_1.5b": SimModel("qwen25_1.5b", "upper", 1.5e9, RLEffect(1.5, 2.3), delta=0.7724),
    "qwen25_math_7b": SimModel("qwen25_math_7b", "upper", 7.6e9, RLEffect(1.5, 1.3), delta=-0.198),
    "qwen25_0.5b": SimModel("qwen25_0.5b", "lower", 0.5e9, RLEffect(1.45, 1.6), delta=-0.0594),
    "llama31_8b": SimModel("llama31_8b", "lower", 8.0e9, RLEffect(1.45, 1.3), delta=-0.0594),
    "mistral7b_v01": SimModel("mistral7b_v01", "lower", 7.2e9, RLEffect(1.4, 0.7), delta=-0.3367),
    "orz_7b": SimModel("qwen25_7b", "new", 7.6e9, RLEffect(1.5, 1.6), delta=0.0),
    "oat_7b": SimModel("qwen25_math_7b", "new", 7.6e9, RLEffect(1.45, 1.3), delta=-0.198),
    "deepseek_math_7b": SimModel("deepseek_math_7b", "new", 7.0e9, RLEffect(1.45, 1.4), delta=-0.0594),
}
_BENCHMARKS = {
    "math500": SimBenchmark("math", 500, level=1.15, spread=2.9, title="Math500"),
    "aime": SimBenchmark("floor", 60, level=-8.4, spread=4.7, transfer=0.8, tokens=1100, title="AIME"),
    "gpqa": SimBenchmark(
        "nonmath", 198, level=-0.45, spread=1.5, slope=0.3, wrong=3, transfer=0.15, tokens=600, title="GPQA"
    ),
    "ifeval": SimBenchmark(
        "nonmath", 541, -0.7, 4.4, slope=0.4, wrong=1, transfer=0.1, tokens=350, open_text=True, title="IFEval"
    ),
    "amc23": SimBenchmark("math", 40, level=-0.2, spread=3.0, role="held_out", tokens=800, title="AMC23"),
    "minerva": SimBenchmark("math", 272, level=-1.4, spread=3.2, role="held_out", title="Minerva"),
    "olympiadbench": SimBenchmark(
        "math", 675, level=-1.0, spread=3.4, role="held_out", tokens=800, title="OlympiadBench"
    ),
    "tinymmlu": SimBenchmark(
        "nonmath", 100, 0.6, 1.8, "held_out", slope=0.3, wrong=3, transfer=0.15, tokens=300, title="TinyMMLU"
    ),
    "rltrain": SimBenchmark("math", 300, level=0.4, spread=2.8, role="rltrain", title="RL-training split"),
    "mmlu_stem": SimBenchmark(
        "nonmath", 500, 0.6, 1.8, "descriptive", slope=0.3, wrong=3, transfer=0.15, tokens=300, title="MMLU-STEM"
    ),
}
_MATH_SEARCHES = {
    "entropy_tree_b4": PolicyEffect(1.15, -0.5, 4.0),
    "power_temp_0.7_b4": PolicyEffect(1.8, -1.0, 4.0),
    "power_topp0.95_t1.0_b4": PolicyEffect(1.6, -0.7, 4.0),
    "power_topk20_t0.7_b4": PolicyEffect(1.9, -1.2, 4.0),
    "mcts16_temp_0.7": PolicyEffect(2.2, -1.5, 16.0),
    "mcts16_topp0.95_t1.0": PolicyEffect(2.0, -1.2, 16.0),
    "tree_b4_temp_0.7": PolicyEffect(1.4, -0.8, 4.0),
    "tree_b8_temp_0.7": PolicyEffect(1.5, -1.0, 8.0),
}
_ALL_SEARCHES = _MATH_SEARCHES | {
    "entropy_tree_b8": PolicyEffect(1.2, -0.6, 8.0),
    "power_minp0.05_t0.9_b4": PolicyEffect(1.7, -1.0, 4.0),
}


def paper_design(mode: Mode = "transform") -> Design:
    """The paper's study: ten pairs, ten benchmarks, 24 policies, searches, extension pools and batches.

    The planted parameters are the paper's constants; effects and levels are chosen so that curves look like the
    paper's (``docs/simulation.md``).
    """
    return Design(
        bases=_BASES,
        models=_MODELS,
        benchmarks=_BENCHMARKS,
        anchor_model="qwen25_7b",
        anchor_benchmark="math500",
        policies=PAPER24,
        searches={"math500": _MATH_SEARCHES, "aime": _ALL_SEARCHES, "gpqa": _ALL_SEARCHES},
        extension={"math500": 64, "aime": 256, "gpqa": 64, "ifeval": 64},
        batches={"123": ("base",), "20240": ("base",), "extension": ("rl",)},
        missing=frozenset({("llama31_8b", "ifeval")}),
        mode=mode,
    )


def fitted_design(mode: Mode = "transform") -> Design:
    """The core of the paper's study: seven pairs, four benchmarks, 24 policies, 16 samples."""
    whole = paper_design(mode)
    models = {name: model for name, model in whole.models.items() if model.group != "new"}
    benchmarks = {name: item for name, item in whole.benchmarks.items() if item.role == "fitted"}
    return replace(whole, models=models, benchmarks=benchmarks, searches={}, extension={}, batches={})


def small_design(mode: Mode = "transform") -> Design:
    """Two pairs, two benchmarks of 40 questions, six policies; drawn in a fraction of a second."""
    part = fitted_design(mode).part(("qwen25_7b", "qwen25_1.5b"), ("math500", "gpqa"), 40)
    policies = ("temp_0.5", "topp0.8_t0.9", "topp0.9_t0.7", "topk20_t0.7", "minp0.1_t0.9", "topp0.95_t1.0")
    return replace(part, policies=policies)
