"""Samplers that weigh what the local policy draws, towards p to the power of alpha: particles, and lookahead.

**smc**: sequential Monte Carlo, texts with weights, copied where the weights are uneven.

Power-SMC of Azizi et al. (2026), arXiv 2602.10273. N particles grow together from the local policy q. After t tokens
they stand for p^a on beginnings of texts, where a is alpha, or grows to it from 1 over the first ``ramp`` tokens: the
weight of a particle is ``p^a / q``, and where a has grown since, texts that have ended take its factor, too. If the
effective number of particles, ``(sum W)^2 / sum W^2``, is below ``resample`` times N, they are drawn again by their
weights (systematic resampling), and all weights are their mean. At the end one particle is drawn by its weight.

The law. Let Z be the product of the mean weights at every resampling and at the end (``log_z`` in the details). For any
N, ramp and resampling, ``E[Z 1(text = x)]`` is exactly p^alpha(x), on the texts that q can draw: a text that counts Z
times has the target law. A text that counts once has a law that tends to the target, with a distance that falls as
1 / N. Without ramp (``ramp: 0``) one particle is a draw of q, and with ``resample: 0`` it is the best of N reweighted:
N draws of q, one of them taken by p^alpha / q.

The temperature of q is that of the local policy times alpha / a, so that a local policy at 1 / alpha proposes at 1 / a,
which leaves the weights the least variance; it is never above 1 unless that of the local policy is.

**lookahead**: scalable power sampling, token by token, each by p^alpha times what its continuations are worth.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from searchlens.catalogue import controller
from searchlens.search.components import Controller, number, require_draws, whole
from searchlens.search.policy import Policy, Texts

if TYPE_CHECKING:
    from searchlens.engines.base import Completion
    from searchlens.search.task import Ask, Evaluator, Search, Task, Trace


@controller("smc", evaluators=("sequence_logprob", "mean_logprob", "self_certainty"), index=5)
@dataclass(frozen=True, slots=True)
class SequentialMonteCarlo(Controller):
    """One of the particles, drawn by its weight, as the only candidate.

    Weights are looked at after every ``every`` tokens, when all particles that go on have been drawn so far; the
    exponent of the ramp grows at these places. The evaluator scores the result; the search does not use it.
    """

    alpha: float = number(4.0, at_least=0.01, at_most=100)
    particles: int = whole(16, 1, 4096)
    every: int = whole(16)
    resample: float = number(0.5, at_least=0, at_most=1)
    ramp: int = whole(64, 0)

    def check(self, policy: Policy) -> None:
        """Particles at temperature 0 are one text."""
        require_draws(policy)

    def expected_tokens(self, policy: Policy, texts: Texts) -> float:
        """As many texts as particles."""
        return self.particles * sum(texts.lengths) / len(texts.lengths)

    def exponent(self, tokens: int) -> float:
        """The exponent of the target once texts have this many tokens."""
        return 1 + (self.alpha - 1) * (min(1.0, tokens / self.ramp) if self.ramp else 1.0)

    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        """One candidate; its details have ``log_z``, resamplings, and what was left at the end.

        ``effective`` is the effective number of particles at the end, ``distinct`` the number of different texts.
        Raises ValueError if a weight or the score is not a number.
        """
        generator, size = task.generator("smc"), self.particles
        texts, weights = [task.empty] * size, [0.0] * size
        nodes: list[tuple[int, int] | None] = [None] * size  # of the recorded search, whose ends are the texts
        exponent, log_z, resampled = 1.0, 0.0, 0
        for begin in range(0, task.max_tokens, self.every):
            end = min(begin + self.every, task.max_tokens)
            before, exponent = exponent, self.exponent(end)
            warmth = policy.local.temperature
            local = replace(policy.local, temperature=min(warmth * self.alpha / exponent, max(1.0, warmth)))
            growing = [i for i, text in enumerate(texts) if text.finish is None]
            replies = yield [
                task.request(
                    texts[i], local, task.seed_of("particle", begin, i), end - begin, measures=evaluator.measures
                )
                for i in growing
            ]
            weights = [w + (exponent - before) * text.log_p for w, text in zip(weights, texts, strict=True)]
            for i, reply in zip(growing, replies, strict=True):
                old, texts[i] = texts[i], task.extend(texts[i], reply)
                own = slice(len(old.tokens), None)
                log_q = float(texts[i].sampling_logprobs[own].sum(dtype="float64"))
                weights[i] += exponent * float(texts[i].logprobs[own].sum(dtype="float64")) - log_q
                task.note(
                    "node", node=(begin, i), parent=nodes[i], start=begin, path=texts[i], step=begin // self.every
                )
                nodes[i] = begin, i
            is_over = all(text.finish for text in texts)
            if is_over:
                weights = [w + (self.alpha - exponent) * text.log_p for w, text in zip(weights, texts, strict=True)]
            share, mean = _normalised(weights)
            task.note("scored", nodes=list(nodes), scores=weights, exponent=self.alpha if is_over else exponent)
            if is_over:
                break
            if 1 / sum(w * w for w in share) < self.resample * size:
                copied = _systematic(share, float(generator.random()))
                for i, node in enumerate(nodes):
                    task.note("node", node=node, chosen=i in copied)
                texts, nodes, weights = [texts[i] for i in copied], [nodes[i] for i in copied], [0.0] * size
                task.note("chosen", nodes=list(nodes))
                log_z, resampled = log_z + mean, resampled + 1
        (chosen,) = _systematic(share, float(generator.random()), 1)
        (score,) = yield from evaluator(task, [texts[chosen]], policy.local, ("score",))
        details = {
            "log_z": log_z + mean,
            "resampled": resampled,
            "effective": 1 / sum(w * w for w in share),
            "distinct": len({text.prefix for text in texts}),
        }
        return [texts[chosen].candidate(score, details)]


def _normalised(weights: Sequence[float]) -> tuple[list[float], float]:
    """Log weights as shares, which sum to 1, and the log of their mean. Raises ValueError if one is not a number."""
    if any(math.isnan(weight) for weight in weights):
        raise ValueError("the weight of a particle is not a number")
    most = max(weights)
    scaled = [math.exp(weight - most) for weight in weights]
    total = math.fsum(scaled)
    return [weight / total for weight in scaled], most + math.log(total / len(weights))


def _systematic(share: Sequence[float], uniform: float, count: int | None = None) -> list[int]:
    """Indices drawn by their shares, at equal steps of the distribution function from one random number."""
    count = len(share) if count is None else count
    chosen: list[int] = []
    total, index = share[0], 0
    for i in range(count):
        while total <= (i + uniform) / count and index < len(share) - 1:
            index += 1
            total += share[index]
        chosen.append(index)
    return chosen


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
    return possible[_systematic([share[i] for i in possible], uniform, 1)[0]]
