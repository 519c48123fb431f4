"""Searches: ours, thousands at once through the driver, against references that go step by step.

Power sampling, trees and MCTS against :mod:`searchlens.equivalence.reference` under the same draws: one continuation
at a time, each from a bare prompt and prefix, nothing kept of earlier ones, no driver. Only for speed the requests of
different questions and policies share a batch. A token beam against transformers' ``generate``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from searchlens.engines.base import Completion, Engine, Request, complete
from searchlens.equivalence import reference
from searchlens.equivalence.reference import Asked, Plain, Text, Token
from searchlens.equivalence.rows import Row, share
from searchlens.equivalence.subject import Ids, Run, Subject, texts_of
from searchlens.policies import Policy
from searchlens.search.beam import TokenBeam
from searchlens.search.entropy_tree import EntropyTree
from searchlens.search.task import Task

SEQUENTIAL = "plain sequential search"
TRANSFORMERS = "transformers, num_beams"
_SCORES = {"mean_logprob": reference.mean, "sequence_logprob": reference.total}


def compare(subject: Subject, policies: Mapping[str, Policy]) -> list[Row]:
    """Texts and accuracy of searches against the plain ones, two rows for each policy in their order.

    Parameters
    ----------
    subject : Subject
    policies : mapping of str to Policy
        By name. Their controllers are among those of ``reference.search``, their evaluators read likelihoods.
    """
    runs = [(policy, task) for policy in policies.values() for task in subject.tasks(policy)]
    ours = [texts_of(found) for found in subject.search(runs)]
    plain = [reference.search(task, policy, _SCORES[policy.evaluator.name]) for policy, task in runs]
    theirs = [
        [reference.ids(texts[i % len(texts)]) for i in range(policy.width)]
        for (policy, _), texts in zip(runs, side_by_side(plain, runs, subject.engine), strict=True)
    ]
    rows = []
    for place, name in enumerate(policies):
        part = slice(place * subject.count, (place + 1) * subject.count)
        rows.append(_same(name, SEQUENTIAL, ours[part], theirs[part], subject.options.identical))
        rows.append(_accuracy(subject, name, SEQUENTIAL, ours[part], theirs[part]))
    return rows


def compare_beam(subject: Subject, name: str, policy: Policy) -> list[Row]:
    """Texts, scores and accuracy of a token beam against transformers'.

    Parameters
    ----------
    subject : Subject
    name : str
        Of the policy.
    policy : Policy
        With the controller ``beam``.
    """
    tasks, width = subject.tasks(policy), policy.width
    candidates = subject.search([(policy, task) for task in tasks])
    ours = [texts_of(found) for found in candidates]
    prompts = [task.prompt for task in tasks]
    done = subject.generate(
        prompts,
        [],
        num_beams=width,
        num_return_sequences=width,
        length_penalty=policy.component(TokenBeam).length_penalty,
        early_stopping=False,
        output_scores=True,
    )
    written = subject.endings(done.sequences, prompts)
    theirs = [written[i : i + width] for i in range(0, len(written), width)]
    scores = done.sequences_scores.view(-1, width).tolist()
    differences = [
        abs(one.score - score)
        for mine, texts, of_row in zip(candidates, theirs, scores, strict=True)
        for one, text, score in zip(mine, texts, of_row, strict=True)
        if texts_of([one]) == [text]
    ]
    largest = max(differences, default=float("nan"))
    return [
        _same(name, TRANSFORMERS, ours, theirs, subject.options.output_match),
        Row(
            "tier34",
            name,
            TRANSFORMERS,
            "largest difference of scores of equal texts",
            len(differences),
            "texts",
            largest,
            "at most",
            subject.options.score_difference,
        ),
        _accuracy(subject, name, TRANSFORMERS, ours, theirs),
    ]


def _same(name: str, other: str, ours: list[list[Ids]], theirs: list[list[Ids]], least: float) -> Row:
    """Share of candidates that are the same text in the same place."""
    equal = [one == two for mine, hers in zip(ours, theirs, strict=True) for one, two in zip(mine, hers, strict=True)]
    return Row("tier34", name, other, "same texts", len(equal), "texts", share(equal), "at least", least)


def _accuracy(subject: Subject, name: str, other: str, ours: list[list[Ids]], theirs: list[list[Ids]]) -> Row:
    """Difference of the accuracies of the best candidates."""
    threshold = subject.options.accuracy_difference
    right = [subject.accuracy([texts[0] for texts in side]) for side in (ours, theirs)]
    statistic, difference = "difference of accuracies", abs(right[0] - right[1])
    return Row(
        "tier34", name, other, statistic, len(ours), "questions", difference, "at most", threshold, right[0], right[1]
    )


def side_by_side(searches: Sequence[Plain], runs: Sequence[Run], engine: Engine) -> list[list[Text]]:
    """Run plain searches on an engine, one request of each at a time; returns what each returns."""
    found: list[list[Text]] = [[] for _ in searches]
    replies: dict[int, Text | None] = dict.fromkeys(range(len(searches)))
    while replies:
        asked: dict[int, Asked] = {}
        for i, reply in replies.items():
            try:
                asked[i] = searches[i].send(reply)  # type: ignore[arg-type]  # the first one must be None
            except StopIteration as end:
                found[i] = end.value
        answers = dict(complete(engine, [_request(*runs[i], one) for i, one in asked.items()]))
        replies = {i: _text(answers[place]) for place, i in enumerate(asked)}
    return found


def _request(policy: Policy, task: Task, asked: Asked) -> Request:
    tree = policy.controller if isinstance(policy.controller, EntropyTree) else None
    return Request(
        task.prompt,
        policy.local,
        asked.seed,
        asked.most,
        asked.stop_ids,
        prefix=reference.ids(asked.text),
        measures=tree is not None,
        top=tree.children_per_position + 1 if tree else 0,
    )


def _text(done: Completion) -> Text:
    """A completion as plain tokens; entropies and likely tokens where they were asked for."""
    columns: list[Any] = [done.tokens.tolist(), done.logprobs.tolist(), done.sampling_logprobs.tolist()]
    if done.entropies is not None and done.top_tokens is not None and done.top_logprobs is not None:
        ranked = np.dstack((done.top_tokens, done.top_logprobs)).tolist()
        columns += [done.entropies.tolist(), [tuple((int(t), p) for t, p in row) for row in ranked]]
    return tuple(Token(*values) for values in zip(*columns, strict=True))
