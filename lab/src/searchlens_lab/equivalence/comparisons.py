"""Searches: ours, thousands at a time through the driver, against references that go step by step; local policies.

The references of samplers of p^alpha, trees and MCTS are in :mod:`searchlens_lab.equivalence.reference`. Under the same
draws, they ask for one continuation at a time, or for several that do not depend on each other, each from a bare prompt
and prefix, without the driver and without prefixes kept from earlier requests. For speed, requests of different
questions and policies share a batch, and on a CPU the same prompts are computed once, which gives the same bits. A
token beam is compared with transformers' ``generate``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from searchlens.catalogue import loaded
from searchlens.engines import sampler
from searchlens.engines.base import Completion, Engine, Request, Sampling, complete
from searchlens.plan import Grid
from searchlens.reporting.tables.table import save
from searchlens.search.autoregressive import TokenBeam
from searchlens.search.entropy_tree import EntropyTree
from searchlens.search.policy import FILTERS, Policy
from searchlens.search.task import Task
from searchlens.seeds import uniform
from searchlens.store.layout import Layout
from searchlens_lab.equivalence import engines, explicit, plan, reference
from searchlens_lab.equivalence.reference import Continuation, PlainSearch, Text, Token
from searchlens_lab.equivalence.subject import Ids, Run, Subject, chunks, texts_of
from searchlens_lab.equivalence.tables import ComparisonRow, Comparisons, frame, share

log = logging.getLogger(__name__)
SEQUENTIAL = "plain sequential search"
TRANSFORMERS = "transformers, num_beams"
Texts = Sequence[Sequence[Ids]]
"""For each question the texts of its candidates, best first."""
_QUESTIONS = {"smc": 8, "lookahead": 2}
"""Questions of searches that draw thousands of tokens for a text; others are compared on all."""
_SCORES = {  # name of an evaluator to its plain implementation
    "mean_logprob": reference.mean,
    "sequence_logprob": reference.total,
}


def compare(subject: Subject, policies: Mapping[str, Policy]) -> list[ComparisonRow]:
    """Texts and accuracy of searches against the plain ones: two rows for each policy, in the order of the policies."""
    tasks = {name: subject.tasks(policy)[: _QUESTIONS.get(policy.controller.name)] for name, policy in policies.items()}
    runs = [(policy, task) for name, policy in policies.items() for task in tasks[name]]
    ours = [texts_of(candidates) for candidates in subject.search(runs)]
    plain = [reference.search(task, policy, _SCORES[policy.evaluator.name]) for policy, task in runs]
    theirs = [
        [reference.ids(texts[i % len(texts)]) for i in range(policy.width)]
        for (policy, _), texts in zip(runs, run_together(plain, runs, subject.engine), strict=True)
    ]
    rows, end = [], 0
    for name in policies:
        begin, end = end, end + len(tasks[name])
        our_texts, plain_texts = ours[begin:end], theirs[begin:end]
        rows.append(_same(name, SEQUENTIAL, our_texts, plain_texts, subject.options.identical))
        rows.append(_accuracy(subject, name, SEQUENTIAL, our_texts, plain_texts))
    return rows


def compare_beam(subject: Subject, name: str, policy: Policy) -> list[ComparisonRow]:
    """Texts, scores and accuracy of a token beam against transformers'."""
    tasks, width = subject.tasks(policy), policy.width
    candidates = subject.search([(policy, task) for task in tasks])
    ours = [texts_of(beam) for beam in candidates]
    prompts = [task.prompt for task in tasks]
    output = subject.generate(
        prompts,
        [],
        num_beams=width,
        num_return_sequences=width,
        length_penalty=policy.component(TokenBeam).length_penalty,
        early_stopping=False,
        output_scores=True,
        stopping_criteria=_stop_texts(subject, max(map(len, prompts))),
    )
    theirs = chunks(subject.completions(output.sequences, prompts), width)
    scores = output.sequences_scores.view(-1, width).tolist()
    differences = [
        abs(candidate.score - score)
        for beam, texts, beam_scores in zip(candidates, theirs, scores, strict=True)
        for candidate, text, score in zip(beam, texts, beam_scores, strict=True)
        if texts_of([candidate]) == [text]
    ]
    largest, most = max(differences, default=float("nan")), subject.options.score_difference
    what = (name, TRANSFORMERS, "largest difference of scores of equal texts")
    return [
        _same(name, TRANSFORMERS, ours, theirs, subject.options.output_match),
        ComparisonRow("tier34", *what, len(differences), "texts", largest, "at most", most),
        _accuracy(subject, name, TRANSFORMERS, ours, theirs),
    ]


def _stop_texts(subject: Subject, start: int) -> Any:
    """Criteria by which transformers ends texts, which begin at ``start``, at stop texts; none if there are none."""

    def has_stop(rows: Any, scores: Any, **_: Any) -> Any:
        del scores
        texts = subject.job.prompter.decode(rows[:, start:].tolist())
        return torch.tensor([any(stop in text for stop in stops) for text in texts], device=rows.device)

    stops = subject.job.prompter.template.stop_texts
    return transformers.StoppingCriteriaList([has_stop] if stops else [])


def _same(name: str, other: str, ours: Texts, theirs: Texts, least: float) -> ComparisonRow:
    """Share of candidates that are the same text in the same place."""
    pairs = [pair for sides in zip(ours, theirs, strict=True) for pair in zip(*sides, strict=True)]
    equal = [first == second for first, second in pairs]
    return ComparisonRow("tier34", name, other, "same texts", len(equal), "texts", share(equal), "at least", least)


def _accuracy(subject: Subject, name: str, other: str, ours: Texts, theirs: Texts) -> ComparisonRow:
    """Difference of the accuracies of the best candidates."""
    threshold = subject.options.accuracy_difference
    right = [sum(subject.right([texts[0] for texts in side])) / len(side) for side in (ours, theirs)]
    statistic, difference = "difference of accuracies", abs(right[0] - right[1])
    return ComparisonRow(
        "tier34", name, other, statistic, len(ours), "questions", difference, "at most", threshold, right[0], right[1]
    )


def run_together(searches: Sequence[PlainSearch], runs: Sequence[Run], engine: Engine) -> list[list[Text]]:
    """Run plain searches on an engine, what each asks for at a time together; returns the texts of each."""
    texts: list[list[Text]] = [[] for _ in searches]
    replies: dict[int, Text | list[Text] | None] = dict.fromkeys(range(len(searches)))
    while replies:
        waiting: dict[int, Continuation | list[Continuation]] = {}
        for i, reply in replies.items():
            try:
                waiting[i] = searches[i].send(reply)
            except StopIteration as end:
                texts[i] = end.value
        asked = {i: one if isinstance(one, list) else [one] for i, one in waiting.items()}
        requests = [_request(*runs[i], continuation) for i, several in asked.items() for continuation in several]
        answers = dict(complete(engine, requests))
        places, replies = iter(range(len(requests))), {}
        for i, several in asked.items():
            new = [_text(answers[next(places)]) for _ in several]
            replies[i] = new if isinstance(waiting[i], list) else new[0]
    return texts


def _request(policy: Policy, task: Task, continuation: Continuation) -> Request:
    controller, local = policy.controller, policy.local
    is_tree = isinstance(controller, EntropyTree)
    if continuation.temperature is not None:
        local = replace(local, temperature=continuation.temperature)
    return Request(
        task.prompt,
        local,
        continuation.seed,
        continuation.max_tokens,
        continuation.stop_ids,
        prefix=reference.ids(continuation.text),
        measures=is_tree or controller.parameters.get("cut") == "entropy",
        top=controller.children_per_position + 1 if isinstance(controller, EntropyTree) else continuation.likely,
    )


def _text(completion: Completion) -> Text:
    """A completion as plain tokens, with entropies and likely tokens if the request wanted them."""
    count = len(completion.tokens)
    columns: list[Any] = [
        column.tolist() for column in (completion.tokens, completion.logprobs, completion.sampling_logprobs)
    ]
    columns.append([math.nan] * count if completion.entropies is None else completion.entropies.tolist())
    if completion.top_tokens is None or completion.top_logprobs is None:
        columns.append([()] * count)
    else:
        ranked = np.dstack((completion.top_tokens, completion.top_logprobs)).tolist()
        columns.append([tuple((int(t), p) for t, p in row) for row in ranked])
    return tuple(Token(*values) for values in zip(*columns, strict=True))


# ---- Local policies against transformers' own generation, logits processors and filters, with our uniform numbers
# transformers computes the logits, its processors filter them, and the inverse CDF gives a token. At the same time our
# sampler draws from the same logits: token by token, both must be equal. Afterwards the texts are compared with those
# of the embedded engine, which computes its own logits.
#
# transformers applies temperature, top-k, top-p, min-p and typical-p in this order; we apply min-p and typical-p before
# top-k, as vLLM does. A policy with more than one filter is therefore compared with transformers' filters in our order.
# transformers has no penalty by frequency or presence; there the reference is the plain formula.


def compare_local(subject: Subject, name: str, policy: Policy) -> list[ComparisonRow]:
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


# ---- stage ``equivalence``


def equivalence(grid: Grid, output: Layout, *, fingerprint: str, threads: int = 1) -> None:
    """Compare every policy of the section ``equivalence`` with its references.

    A comparison that does not hold is marked with a cross in its table and logged as a warning; it is not an error.
    """
    rows, matches = on_embedded(grid, threads), None
    if plan.is_on_vllm(grid):
        matches = engines.compare_strategies(grid, threads)
        rows += engines.compare(grid, threads)
    for match in matches or ():
        if not match.holds:
            name, texts, answers = match.strategy.name, match.output_match, match.em_agree
            log.warning("%s: %.2f same texts, %.2f same answers", name, texts, answers)
    for row in rows:
        if not row.holds:
            log.warning("%s against %s: %s is %.4g", row.policy, row.reference, row.statistic, row.value)
    context = Comparisons(frame(rows), None if matches is None else engines.match_frame(matches))
    tables = loaded("table", stage="equivalence")
    if matches is not None:
        tables |= loaded("table", stage="equivalence_vllm")
    save(tables, context, output, output.failures("equivalence", "tables.json"), fingerprint, None)


def on_embedded(grid: Grid, threads: int) -> list[ComparisonRow]:
    """Rows of all comparisons, policy by policy in the order of the configuration."""
    subject = Subject.of(grid, threads)
    options = subject.options
    policies = {name: policy for name in options.policies if (policy := grid.jobs.policy(name)) is not None}
    kinds: dict[str, dict[str, Policy]] = {"autoregressive": {}, "beam": {}, "search": {}}
    for name, policy in policies.items():
        kinds[policy.controller.name if policy.controller.name in kinds else "search"][name] = policy
    rows: list[ComparisonRow] = []
    for name, policy in kinds["autoregressive"].items():
        rows += [*compare_local(subject, name, policy), *explicit.compare(name, policy, options)]
    log.info("%d local policies compared", len(kinds["autoregressive"]))
    for name, policy in kinds["beam"].items():
        rows += compare_beam(subject, name, policy)
    rows += compare(subject, kinds["search"])
    log.info("%d searches compared", len(kinds["beam"]) + len(kinds["search"]))
    for name, policy in kinds["search"].items():
        if explicit.has_law(policy):
            rows += explicit.compare(name, policy, options)
    subject.close()
    return sorted(rows, key=lambda row: options.policies.index(row.policy))
