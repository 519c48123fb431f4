"""Local policies against transformers' own generation, logits processors and filters, with our uniform numbers.

transformers computes the logits, its processors filter them, and the inverse CDF gives a token. At the same time our
sampler draws from the same logits: token by token, both must be equal. Afterwards the texts are compared with those of
the embedded engine, which computes its own logits.

transformers applies temperature, top-k, top-p, min-p and typical-p in this order; we apply min-p and typical-p before
top-k, as vLLM does. A policy with more than one filter is therefore compared with transformers' filters in our order.
transformers has no penalty by frequency or presence; there the reference is the plain formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from searchlens.engines import sampler
from searchlens.engines.base import Sampling
from searchlens.search.policy import FILTERS, Policy
from searchlens.search.task import Task
from searchlens.seeds import uniform
from searchlens_lab.equivalence.subject import Subject, texts_of
from searchlens_lab.equivalence.tables import ComparisonRow, share


def compare(subject: Subject, name: str, policy: Policy) -> list[ComparisonRow]:
    """Rows of an autoregressive policy about tokens on the same logits, texts, and answers."""
    options, reference = subject.options, _reference(policy.local)
    tasks = subject.tasks(policy)
    ours = [texts_of(candidates)[0] for candidates in subject.search([(policy, task) for task in tasks])]
    prompts = [task.prompt for task in tasks]
    draws = _Draws(policy.local, tasks, max(map(len, prompts)))
    output = subject.generate(prompts, [_Ours(draws), *_processors(draws), _Theirs(draws)])
    pairs = list(zip(ours, subject.completions(output.sequences, prompts), strict=True))
    texts = [first == second for first, second in pairs]
    answers = [subject.job.answer(first) == subject.job.answer(second) for first, second in pairs]

    def row(statistic: str, unit: str, equal: Sequence[bool], threshold: float) -> ComparisonRow:
        return ComparisonRow("local", name, reference, statistic, len(equal), unit, share(equal), "at least", threshold)

    return [
        row("same tokens on the same logits", "tokens", draws.equal, options.identical),
        row("same texts", "texts", texts, options.output_match),
        row("same answers", "texts", answers, options.answer_agreement),
    ]


def _reference(sampling: Sampling) -> str:
    neutral = Sampling(1.0)
    parts = ["transformers"]
    if sum(getattr(sampling, key) != getattr(neutral, key) for key in FILTERS.values()) > 1:
        parts = ["transformers, filters in our order"]
    if sampling.frequency_penalty or sampling.presence_penalty:
        parts.append("plain formula of the penalty")
    return "; ".join(parts)


@dataclass
class _Draws:
    """Both sides' draws of one batch, rows in the order of the tasks."""

    sampling: Sampling
    tasks: Sequence[Task]
    start: int
    """Width of the padded prompts, in tokens."""
    ours: Any = None
    """Int64 tensor. The tokens that our sampler drew last. Shape (rows,)."""
    equal: list[bool] = field(default_factory=list)
    """For each token of every text, whether both sides drew the same one."""

    def uniforms(self, place: int) -> Tensor:
        """The uniform numbers of one place, float64, shape (rows,)."""
        seeds = np.array([task.seed for task in self.tasks], np.uint64)
        return torch.from_numpy(uniform(seeds, np.full(len(seeds), place)))


class _Ours(transformers.LogitsProcessor):  # type: ignore[misc]  # transformers is not typed
    """Draws with our sampler, and leaves the logits as they are."""

    def __init__(self, draws: _Draws) -> None:
        self.draws = draws

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        draws, rows = self.draws, len(scores)
        generated = input_ids[:, draws.start :].cpu().numpy().astype(np.int32)
        width = sampler.padded_vocab(scores.shape[1])
        logits = torch.full((rows, width), -torch.inf, device=scores.device)
        logits[:, : scores.shape[1]] = scores.float()
        batch = sampler.prepare(
            sampler.parameters([draws.sampling] * rows),
            [task.prompt for task in draws.tasks],
            generated,
            np.full(rows, generated.shape[1]),
            width,
            scores.device,
        )
        uniforms = draws.uniforms(generated.shape[1]).to(scores.device)
        draws.ours = sampler.draw(logits, batch, uniforms).tokens
        return scores


class _Theirs(transformers.LogitsProcessor):  # type: ignore[misc]
    """Picks the token of the reference from the filtered logits, compares it with ours, and makes it the next one."""

    def __init__(self, draws: _Draws) -> None:
        self.draws = draws

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        draws = self.draws
        generated = input_ids[:, draws.start :]
        if draws.sampling.temperature == 0:
            tokens = scores.argmax(-1)
        else:
            edges = scores.double().softmax(-1).cumsum(-1)
            target = draws.uniforms(generated.shape[1]).to(scores.device)[:, None] * edges[:, -1:]
            tokens = (edges <= target).sum(-1)
        stops = torch.tensor(draws.tasks[0].stop_ids, device=scores.device)
        going = ~torch.isin(generated, stops).any(-1)
        draws.equal += (tokens == draws.ours)[going].tolist()
        return torch.full_like(scores, -torch.inf).scatter(1, tokens[:, None], 0.0)


class _Frequency(transformers.LogitsProcessor):  # type: ignore[misc]
    """Subtracts the penalties by frequency and presence of generated tokens."""

    def __init__(self, draws: _Draws) -> None:
        self.draws = draws

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        generated = input_ids[:, self.draws.start :]
        counts = torch.zeros_like(scores).scatter_add(1, generated, torch.ones_like(generated, dtype=scores.dtype))
        sampling = self.draws.sampling
        return scores - sampling.frequency_penalty * counts - sampling.presence_penalty * (counts > 0)


def _processors(draws: _Draws) -> list[Any]:
    """The processors of transformers, in the order of ``searchlens.engines.base``."""
    sampling, neutral = draws.sampling, Sampling(1.0)
    penalties = [transformers.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty), _Frequency(draws)]
    if sampling.temperature == 0:
        return penalties
    warpers = {
        "temperature": transformers.TemperatureLogitsWarper,
        "min_p": transformers.MinPLogitsWarper,
        "typical_p": transformers.TypicalLogitsWarper,
        "top_k": transformers.TopKLogitsWarper,
        "top_p": transformers.TopPLogitsWarper,
    }
    used = {key: getattr(sampling, key) for key in warpers if getattr(sampling, key) != getattr(neutral, key)}
    return [*penalties, *(warpers[key](value) for key, value in used.items())]
