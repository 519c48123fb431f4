"""The referee: how far samplers of p^alpha are from it, by exact enumeration, and what they cost.

Every sampler is a policy and runs through driver and engine, on language models small enough to enumerate and on a
checkpoint. The published gains of samplers are latencies of one request; here tokens count, because thousands of texts
fill an engine anyway.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from searchlens.analysis.uncertainty import wilson
from searchlens.search.driver import Failure, run, start
from searchlens.search.policy import Policy, from_spec
from searchlens.search.task import Task
from searchlens.seeds import child
from searchlens_lab.equivalence.explicit import EOS, ToyEngine, ToyModel, enumerate_texts
from searchlens_lab.equivalence.laws import POWER, POWER_LIMIT, PROMPT
from searchlens_lab.equivalence.rows import total_variation
from searchlens_lab.equivalence.subject import Ids, Subject, texts_of

log = logging.getLogger(__name__)
ALPHA = 4.0
LOW = {"temperature": 1 / ALPHA}


@dataclass(frozen=True)
class Toy:
    """A language model whose texts are enumerated: few texts, or 364 of up to five of four tokens."""

    name: str
    model: ToyModel
    limit: int


TOYS = (
    Toy("easy", POWER, POWER_LIMIT),
    Toy("median", ToyModel.random(1, vocab_size=4, eos=-1.0), 5),
    Toy("hard", ToyModel.random(14, vocab_size=4, eos=-1.0), 5),
)
"""Easy: the model of the equivalence table. Median and hard: of the random models 0 to 79 of this shape, ranked by the
distance of low temperature alone from p^4, one near the median (.76, rank 35) and the last but one (.98)."""


@dataclass(frozen=True)
class Setting:
    """A sampler at one cost."""

    sampler: str
    setting: str
    """What it costs by, such as ``10 steps``."""
    toy: dict[str, Any]
    real: dict[str, Any] | None = None
    """``toy``, ``real``: its policy on a toy, and on a checkpoint, whose texts are longer; no ``real``: only on
    toys."""


def _chain(steps: int, blocks: int, **parameters: Any) -> dict[str, Any]:
    return {
        "local": LOW,
        "controller": {"name": "power", "alpha": ALPHA, **parameters},
        "scheduler": {"name": "blocks", "blocks": blocks, "steps": steps},
    }


def _particles(count: int, every: int, ramp: int, resample: float = 0.5) -> dict[str, Any]:
    parameters = {"particles": count, "every": every, "ramp": ramp, "resample": resample}
    return {"local": LOW, "controller": {"name": "smc", "alpha": ALPHA, **parameters}}


def _best(count: int, every: int) -> dict[str, Any]:
    return _particles(count, every, ramp=0, resample=0.0)


def _lookahead(top: int, rollouts: int, horizon: int) -> dict[str, Any]:
    return {"controller": {"name": "lookahead", "alpha": ALPHA, "top": top, "rollouts": rollouts, "horizon": horizon}}


SETTINGS: tuple[Setting, ...] = (
    Setting("low temperature", "T = 1/4", {"local": LOW}, {"local": LOW}),
    *(Setting("best of N, reweighted", f"N = {n}", _best(n, 5), _best(n, 1000)) for n in (4, 16)),
    Setting("best of N, reweighted", "N = 64", _best(64, 5)),
    *(
        Setting(
            "MH, reference", f"{steps} steps", _chain(steps, 5, mode="reference"), _chain(steps, 16, mode="reference")
        )
        for steps in (2, 10)
    ),
    *(Setting("MH, exact", f"{steps} steps", _chain(steps, 5), _chain(steps, 16)) for steps in (2, 10)),
    Setting("MH, exact", "30 steps", _chain(30, 5)),
    *(
        Setting("MH, entropy cuts", f"{steps} steps", _chain(steps, 5, cut="entropy"), _chain(steps, 16, cut="entropy"))
        for steps in (2, 10)
    ),
    Setting("MH, entropy cuts", "30 steps", _chain(30, 5, cut="entropy")),
    *(Setting("SMC", f"N = {n}", _particles(n, 1, 0), _particles(n, 4, 0)) for n in (4, 16)),
    Setting("SMC", "N = 64", _particles(64, 1, 0)),
    *(Setting("SMC with ramp", f"N = {n}", _particles(n, 1, 3), _particles(n, 4, 16)) for n in (4, 16, 64)),
    *(Setting("scalable", f"{m} rollouts", _lookahead(4, m, 5)) for m in (1, 4, 16)),
    Setting("scalable, top 2", "4 rollouts", _lookahead(2, 4, 5), _lookahead(2, 4, 16)),
)

DISTANCES = pl.Schema(
    {
        **dict.fromkeys(("sampler", "setting", "toy"), pl.String()),
        "runs": pl.UInt32(),
        **dict.fromkeys(("distance", "noise", "tokens"), pl.Float64()),
    }
)
ACCURACIES = pl.Schema(
    {
        **dict.fromkeys(("sampler", "setting"), pl.String()),
        "texts": pl.UInt32(),
        **dict.fromkeys(("accuracy", "lo", "hi", "tokens", "log_p"), pl.Float64()),
    }
)


def distances(runs: int, settings: Sequence[Setting] = SETTINGS, toys: Sequence[Toy] = TOYS) -> pl.DataFrame:
    """Total variation of every sampler from p^alpha on every toy.

    ``runs``: texts of each sampler and toy. Returns ``DISTANCES``: ``distance`` in [0, 1] between the shares of the
    texts and the exact law; ``noise``, its expected value for as many draws from the law itself, each share taken as
    normal; ``tokens`` drawn for a text, mean.
    """
    rows = []
    for toy in toys:
        p = enumerate_texts(toy.model, PROMPT, toy.limit)
        total = math.fsum(chance**ALPHA for chance in p.values())
        law = {text: chance**ALPHA / total for text, chance in p.items()}
        noise = 0.5 * sum(math.sqrt(2 * c * (1 - c) / (math.pi * runs)) for c in law.values())
        for one in settings:
            counts, tokens = _draws(toy, from_spec(one.sampler, one.toy), runs)
            rows.append((one.sampler, one.setting, toy.name, runs, total_variation(counts, law), noise, tokens))
            log.info("%s, %s, on the %s toy: %.3f", one.sampler, one.setting, toy.name, rows[-1][4])
    return pl.DataFrame(rows, DISTANCES, orient="row")


def _draws(toy: Toy, policy: Policy, runs: int) -> tuple[Counter[tuple[int, ...]], float]:
    """How often each text comes, and the tokens drawn for one."""
    tasks = [
        Task(PROMPT, child(0, "referee", number), toy.limit, (EOS,), (), decode=str, answer=tuple)
        for number in range(runs)
    ]
    counts: Counter[tuple[int, ...]] = Counter()
    generated = 0
    for _, outcome in run(((task.seed, start(task, policy)) for task in tasks), ToyEngine(toy.model)):
        if isinstance(outcome, Failure):
            raise RuntimeError(outcome.reason)
        counts.update(texts_of(outcome.candidates[:1]))
        generated += outcome.usage.generated
    return counts, generated / runs


def accuracies(subject: Subject, settings: Sequence[Setting] = SETTINGS) -> pl.DataFrame:
    """Share of right answers of every sampler on a checkpoint, one text for each question.

    Returns ``ACCURACIES``: ``accuracy`` with its 95 % Wilson interval over questions, ``tokens`` drawn for a text and
    ``log_p`` of the text under the raw model in nats, means.
    """
    rows = []
    for one in settings:
        if one.real is None:
            continue
        policy = from_spec(one.sampler, one.real)
        tasks = subject.tasks(policy, stream="referee")
        texts: list[Ids] = [()] * len(tasks)
        generated, level = 0, 0.0
        for place, outcome in run(((i, start(task, policy)) for i, task in enumerate(tasks)), subject.engine):
            if isinstance(outcome, Failure):
                raise RuntimeError(outcome.reason)
            (texts[place],) = texts_of(outcome.candidates)
            generated += outcome.usage.generated
            level += float(outcome.candidates[0].logprobs.sum())
        right, n = sum(subject.right(texts)), len(texts)
        interval = wilson(right, n)
        ends = float(interval.lo), float(interval.hi)
        rows.append((one.sampler, one.setting, n, right / n, *ends, generated / n, level / n))
        log.info("%s, %s, on the checkpoint: %d of %d", one.sampler, one.setting, right, n)
    return pl.DataFrame(rows, ACCURACIES, orient="row")
