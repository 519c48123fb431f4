"""Answer distributions: of a Base model, after RL, and under a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_softmax, softmax

from searchlens.analysis.uncertainty import Floats
from searchlens.seeds import generator
from searchlens_lab.simulate._design import CONTINUOUS, BaseModel, Cell, Design, PolicyEffect, RLEffect, SimBenchmark

CUT_SHARE = 0.6
"""Share of the samples without a valid answer that were cut off by the token limit."""

_ATTRACTION = 0.7
"""Spread over questions of the log-probability of a wrong answer."""
_DECAY = 0.6
"""By how much each wrong answer is less likely than the one before, in log-probability."""


class Latents(NamedTuple):
    """Standard normal variables of questions, for one Base model."""

    ease: Floats
    """x: how likely the right answer is. Shape (questions,)."""
    trouble: Floats
    """How likely no valid answer is; independent of ``ease``. Shape (questions,)."""
    attraction: Floats
    """How likely each wrong answer is. Shape (questions, wrong)."""


@dataclass(frozen=True, eq=False)
class Answers:
    """Answer distributions of a checkpoint at temperature 1 without filters."""

    logp: Floats
    """Natural log-probabilities of valid answers, given a valid answer; the right one first. Shape (questions, 1 +
    wrong)."""
    invalid: Floats
    """Log-odds of giving no valid answer. Shape (questions,)."""


def latents(design: Design, seed: int, base: str, benchmark: str) -> Latents:
    """The questions of a benchmark for one Base model. More questions leave the first ones as they are."""
    item = design.benchmarks[benchmark]
    common = generator("simulate", seed, "questions", benchmark).standard_normal((item.questions, 2 + item.wrong))
    skill = generator("simulate", seed, "skill", base, benchmark).standard_normal(item.questions)
    ease = np.sqrt(design.shared) * common[:, 0] + np.sqrt(1 - design.shared) * skill
    return Latents(ease, common[:, 1], common[:, 2:])


def base_answers(model: BaseModel, benchmark: SimBenchmark, questions: Latents) -> Answers:
    """Answers of a Base model: the right one has the log-odds level + slope ability + spread x, wrong ones the rest."""
    right = benchmark.level + benchmark.slope * model.ability + benchmark.spread * questions.ease
    wrong = log_softmax(_ATTRACTION * questions.attraction - _DECAY * np.arange(benchmark.wrong), axis=1)
    logp = np.column_stack([-np.logaddexp(0, -right), wrong - np.logaddexp(0, right)[:, None]])
    trouble = 0.5 * (np.sqrt(3) * questions.trouble - questions.ease)
    return Answers(logp, model.invalid + benchmark.invalid + trouble)


def rl_answers(base: Answers, effect: RLEffect, transfer: float) -> Answers:
    """RL as a transform of Base: q ~ p^gamma e^(r [right]) p / (p + tau); then new support nu; then termination."""
    gamma = 1 + (effect.sharpening - 1) * transfer
    survival = -np.log1p(effect.loss * transfer * np.exp(-base.logp))
    logits = gamma * base.logp + survival
    logits[:, 0] += effect.reward * transfer
    q = softmax(logits, axis=1) * (1 - effect.support * transfer)
    q[:, 0] += effect.support * transfer
    with np.errstate(divide="ignore"):
        return Answers(np.log(q), base.invalid - effect.termination * transfer)


def native(design: Design, seed: int, cell: Cell, questions: Latents) -> Answers:
    """Answers of the checkpoint of a cell; where RL follows from Base's samples or is Base, those of its Base."""
    model, benchmark = design.models[cell.model], design.benchmarks[cell.benchmark]
    if cell.side == "base" or design.mode in ("planted", *CONTINUOUS, "equal"):
        return base_answers(design.bases[model.base], benchmark, questions)
    if design.mode == "transform":
        base = base_answers(design.bases[model.base], benchmark, questions)
        return rl_answers(base, model.effect, benchmark.transfer)
    stranger = base_answers(_stranger(design, seed, cell.model), benchmark, questions)
    return rl_answers(stranger, design.strangers.effect, benchmark.transfer)


def _stranger(design: Design, seed: int, model: str) -> BaseModel:
    """The Base model that an unrelated RL model was made from: random, independent of the model's own Base."""
    deviation = float(generator("simulate", seed, "stranger", model).standard_normal())
    return BaseModel(design.strangers.ability + design.strangers.spread * deviation, design.strangers.invalid)


def question_latents(design: Design, seed: int, cell: Cell) -> Latents:
    """The questions for the checkpoint of a cell: those of its Base, unless RL is unrelated to Base."""
    if cell.side == "rl" and design.mode == "unrelated":
        item = design.benchmarks[cell.benchmark]
        random = generator("simulate", seed, "stranger", cell.model, cell.benchmark)
        values = random.standard_normal((item.questions, 2 + item.wrong))
        return Latents(values[:, 0], values[:, 1], values[:, 2:])
    return latents(design, seed, design.models[cell.model].base, cell.benchmark)


def under(answers: Answers, policy: PolicyEffect) -> tuple[Floats, Floats]:
    """Probabilities under a policy: of each answer, (questions, 1 + wrong), and of no valid answer, (questions,)."""
    invalid = expit(answers.invalid + policy.derail)
    p = softmax(policy.concentration * answers.logp, axis=1) * (1 - invalid)[:, None]
    return p, invalid
