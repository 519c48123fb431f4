"""Scalable power sampling: token by token, each by p^alpha times what its continuations are worth.

Ji et al. (2026), arXiv 2601.21590. The law of the next token under p^alpha over whole texts is proportional to
``p(token)^alpha zeta(token)``, where zeta is the sum of p^alpha over the rests of the text. Here zeta of each of the
``top`` likeliest tokens is the mean of ``p^alpha / q`` over ``rollouts`` rests that the local policy q draws, each of
at most ``horizon`` tokens; with a local policy of temperature 1 without filters that is p^(alpha - 1), as published.
The share of a token is a ratio of such means, and so biased; the jackknife over rollouts removes the bias of order
1 / rollouts, and shares that it makes negative are 0. A token that ends the text has zeta = 1.

The law. It is p^alpha on all texts only in the limit: ``top`` as large as the vocabulary, ``horizon`` as long as a
text, rollouts without number. For a finite number it is the product over positions of the mean of these shares, which
has no closed form; a smaller ``top`` keeps to the likeliest tokens, and a shorter ``horizon`` takes what follows it as
equally good. A text of T tokens draws up to ``T (1 + top * rollouts * horizon)`` tokens.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from searchlens.catalogue import controller
from searchlens.search.components import Controller, number, require_draws, whole
from searchlens.search.policy import Policy

if TYPE_CHECKING:
    from searchlens.engines.base import Completion
    from searchlens.search.task import Ask, Evaluator, Search, Task, Trace
    from searchlens.search.text_policies import Texts


@controller("lookahead", evaluators=("sequence_logprob", "mean_logprob"), index=5)
@dataclass(frozen=True, slots=True)
class Lookahead(Controller):
    """The text that is drawn token by token, as the only candidate; the evaluator scores it.

    Its ``sampling_logprobs`` are 0: the tokens are not drawn from the local policy.
    """

    alpha: float = number(4.0, at_least=0.01, at_most=100)
    top: int = whole(8, 1, 1000)
    rollouts: int = whole(8, 1, 1000)
    horizon: int = whole(64)

    def check(self, policy: Policy) -> None:
        """Rollouts at temperature 0 are one text."""
        require_draws(policy)

    def vocabulary_limits(self, policy: Policy, drawable: int, stop_ids: Sequence[int]) -> Mapping[str, int]:
        """At most all tokens are looked at."""
        return {"top": drawable}

    def expected_tokens(self, policy: Policy, texts: Texts) -> float:
        """One token and its rollouts at each position, if every candidate goes on as long as the text."""

        def drawn(length: float) -> float:
            whole_rest = min(length, self.horizon)
            rests = whole_rest * (whole_rest - 1) / 2 + (length - whole_rest) * self.horizon
            return length + self.top * self.rollouts * rests

        return sum(map(drawn, texts.lengths)) / len(texts.lengths)

    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        """One candidate; ``clipped`` in its details counts negative shares. Raises ValueError for a NaN."""
        text, generator, clipped = task.empty, task.generator("lookahead"), 0
        node: tuple[int, int] | None = None  # of the recorded search, whose end is ``text``
        while text.finish is None:
            place = len(text.tokens)
            (next_token,) = yield [task.request(text, policy.local, task.seed_of("token", place), 1, top=self.top)]
            paths = [task.force(text, next_token, 0, rank) for rank in range(next_token.top_tokens.shape[1])]
            asks: list[Ask] = [
                task.request(path, policy.local, task.seed_of("rollout", place, rank, i), self.horizon)
                for rank, path in enumerate(paths)
                if path.finish is None
                for i in range(self.rollouts)
            ]
            names = [(place, rank) for rank in range(len(paths))]
            for rank, (name, path) in enumerate(zip(names, paths, strict=True)):
                task.note("node", node=name, parent=node, start=place, path=path, step=place, rank=rank)
            replies = iter((yield asks)) if asks else iter(())
            levels = [
                [self._level(task, path, replies, (*name, i)) for i in range(self.rollouts)]
                for name, path in zip(names, paths, strict=True)
            ]
            share, negative = _shares(levels)
            clipped += negative
            chosen = _drawn(share, float(generator.random()))
            for rank, name in enumerate(names):
                task.note("node", node=name, chosen=rank == chosen)
            task.note("scored", nodes=names, scores=share)
            task.note("chosen", nodes=[names[chosen]])
            text, node = paths[chosen], names[chosen]
        (score,) = yield from evaluator(task, [text], policy.local, ("score",))
        return [text.candidate(score, {"clipped": clipped})]

    def _level(self, task: Task, path: Trace, replies: Iterator[Completion], name: tuple[int, ...]) -> float:
        """Log of p^alpha of the last token of a path, times p^alpha / q of the next rollout if it goes on."""
        level = self.alpha * float(path.logprobs[-1])
        if path.finish:
            return level
        rest = next(replies)
        task.note("rollout", node=("rollout", *name), of=path, start=len(path.tokens), path=task.extend(path, rest))
        log_p = float(rest.logprobs.sum(dtype="float64"))
        return level + self.alpha * log_p - float(rest.sampling_logprobs.sum(dtype="float64"))


def _shares(levels: Sequence[Sequence[float]]) -> tuple[list[float], int]:
    """Each candidate's share by the jackknife over log weights, and how many were negative; ValueError for a NaN."""
    most = max(max(row) for row in levels)
    if any(math.isnan(level) for row in levels for level in row):
        raise ValueError("the weight of a rollout is not a number")
    weights = [[math.exp(level - most) for level in row] for row in levels]
    sums, count = [math.fsum(row) for row in weights], len(weights[0])
    total = math.fsum(sums)
    share = [part / total for part in sums]
    if count == 1:
        return share, 0
    for left_out in range(count):
        rest = [part - row[left_out] for part, row in zip(sums, weights, strict=True)]
        whole_rest = math.fsum(rest)
        if whole_rest <= 0:  # all weight is in this rollout: nothing is known of the bias
            return [part / total for part in sums], 0
        share = [s - (count - 1) / count * part / whole_rest for s, part in zip(share, rest, strict=True)]
    share = [s + (count - 1) * part / total for s, part in zip(share, sums, strict=True)]
    negative = sum(s < 0 for s in share)
    kept = [max(0.0, s) for s in share]
    return [s / math.fsum(kept) for s in kept], negative


def _drawn(share: Sequence[float], uniform: float) -> int:
    """The candidate at a place of the distribution function; never one without a share."""
    possible = [i for i, s in enumerate(share) if s > 0]
    levels = list(accumulate(share[i] for i in possible))
    return possible[min(bisect_right(levels, uniform), len(possible) - 1)]
