"""Token by token: one text to its end by one request, or a beam of texts.

The beam finds the texts of highest log-probability per length**penalty that one of fixed width can find. The rule is
that of transformers' ``generate(num_beams=width, num_return_sequences=width, early_stopping=False)``. At every step the
best K continuations of all live beams are taken, K = width * max(2, 1 + number of stop tokens), so that ``width`` of
them go on, however many end with stop tokens (more may end with stop texts; then fewer go on). Those among the first
``width`` that end with a stop token or stop text, or all of them at the last token allowed, become hypotheses, with the
score ``sum log p / length**length_penalty`` over generated tokens, the stop token included; the ``width`` best
hypotheses are kept. The search ends when there are ``width`` and the best live beam, scored at its present length, is
not better than the worst of them.

If K exceeds the vocabulary, transformers fills up a beam with copies; this refuses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from searchlens.catalogue import controller
from searchlens.engines.base import Completion, Request, Sampling
from searchlens.errors import InputError
from searchlens.search.components import Controller, number, whole
from searchlens.search.policy import Policy, Texts

if TYPE_CHECKING:
    from searchlens.search.task import Evaluator, Search, Task

_RAW = Sampling(temperature=1.0)


@controller("autoregressive", transitions=("append",), schedulers=("independent",), index=0)
@dataclass(frozen=True, slots=True)
class Autoregressive(Controller):
    """Draw one sample with the seed of the run, and score it."""

    stops_version: ClassVar[int] = 1

    def is_deterministic(self, policy: Policy) -> bool:
        """Greedy sampling is."""
        return policy.local.temperature == 0

    def expected_tokens(self, policy: Policy, texts: Texts) -> float:
        """T."""
        return texts.mean

    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        """One candidate."""
        (reply,) = yield [task.request(task.empty, policy.local, task.seed, measures=evaluator.measures)]
        text = task.empty.extend(reply, reply.finish)
        task.note("node", node=("text",), start=0, path=text, step=0)
        (score,) = yield from evaluator(task, [text], policy.local, ("score",))
        task.note("scored", nodes=[("text",)], scores=[score], step=0)
        return [text.candidate(score)]


@controller("beam", evaluators=("sequence_logprob",), schedulers=("lockstep",), index=1, colour="#A6761D")
@dataclass(frozen=True, slots=True)
class TokenBeam(Controller):
    """One beam, in which nothing is drawn; its hypotheses are the candidates.

    Their scores have the length penalty, and their ``sampling_logprobs`` are 0. The evaluator is not called:
    ``sequence_logprob``, the only one that goes with this controller, is the running sum.
    """

    prefixes: ClassVar[bool] = False

    width: int = whole(4)
    length_penalty: float = number(1.0, at_least=-10, at_most=10)

    def candidates(self, policy: Policy) -> int:
        """The width."""
        return self.width

    def is_deterministic(self, policy: Policy) -> bool:
        """Always."""
        return True

    def check(self, policy: Policy) -> None:
        """The local policy must be neutral, because the beam reads the raw model."""
        if policy.local != _RAW:
            raise InputError(
                "controller beam reads the model's own probabilities; a local policy has no effect", "leave out local"
            )

    def expected_tokens(self, policy: Policy, texts: Texts) -> float:
        """The beam goes on until the longer of two texts ends: its paths are alike, and the first end is not enough."""
        return self.width * texts.longest(min(self.width, 2))

    def vocabulary_limits(self, policy: Policy, drawable: int, stop_ids: Sequence[int]) -> Mapping[str, int]:
        """Each path needs its share of the K continuations."""
        return {"width": drawable // continuations(1, stop_ids)}

    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        """``width`` candidates. Raises InputError if it needs more continuations than the vocabulary has tokens."""
        k = continuations(self.width, task.stop_ids)
        live, hypotheses = [_Beam()], list[_Beam]()
        ask = Request(prompt=task.prompt, sampling=_RAW, seed=task.seed, max_tokens=1, top=k)

        def score(beam: _Beam) -> float:
            return float(beam.total / len(beam.tokens) ** self.length_penalty)

        for step in range(task.max_tokens):
            replies = yield [ask._replace(prefix=beam.tokens) for beam in live]
            best = _continued(live, replies, k)
            finishes = [task.finish(beam.tokens) for beam in best]
            ended = [beam for beam, finish in zip(best[: self.width], finishes, strict=False) if finish]
            hypotheses = sorted(hypotheses + ended, key=score, reverse=True)[: self.width]
            live = [beam for beam, finish in zip(best, finishes, strict=True) if finish != "stop"][: self.width]
            chosen, kept = {beam.name for beam in live}, {beam.name for beam in [*ended, *live]}
            for beam, finish in zip(best, finishes, strict=True):
                if beam.name in kept:
                    own = {"tokens": beam.tokens[-1:], "logp": beam.logprobs[-1:], "finish": finish}
                    place = {"node": beam.name, "parent": beam.parent, "start": step, "step": step}
                    task.note("node", **place, **own, score=score(beam), chosen=beam.name in chosen)
            if len(hypotheses) == self.width and (not live or score(live[0]) <= score(hypotheses[-1])):
                break
        import numpy as np  # not above: the planner imports this file

        candidates = []
        for beam in hypotheses:
            logprobs, nothing = np.array(beam.logprobs, np.float32), np.zeros(len(beam.tokens), np.float32)
            text = Completion(np.array(beam.tokens, np.int32), logprobs, nothing, "length")
            candidates.append(task.extend(task.empty, text).candidate(score(beam)))
        return candidates


def continuations(width: int, stop_ids: Sequence[int]) -> int:
    """K, the most likely continuations that each path is asked for; no more than there are tokens."""
    return width * max(2, 1 + len(stop_ids))


@dataclass(frozen=True, slots=True)
class _Beam:
    """A text, live or ended."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Of each token, under the raw model."""
    total: float = 0.0
    """Their sum."""
    name: tuple[int, ...] = ()
    parent: tuple[int, ...] = ()
    """``name``, ``parent``: its length and place among the best of that length; those of the text that it extends."""

    def extend(self, token: int, logprob: float, place: int) -> _Beam:
        tokens = (*self.tokens, token)
        return _Beam(tokens, (*self.logprobs, logprob), self.total + logprob, (len(tokens), place), self.name)


def _continued(live: list[_Beam], replies: list[Completion], k: int) -> list[_Beam]:
    """The ``k`` most likely continuations of all live beams; equal ones by beam, then by token id."""
    scored = []
    for beam, reply in zip(live, replies, strict=True):
        assert reply.top_tokens is not None and reply.top_logprobs is not None, "the engine was asked for them"
        tokens, logprobs = reply.top_tokens[0].tolist(), reply.top_logprobs[0].tolist()
        possible = [(token, logprob) for token, logprob in zip(tokens, logprobs, strict=True) if logprob > -math.inf]
        if len(possible) < k:
            raise InputError(
                f"controller beam needs the {k} most likely tokens, but the model can draw only {len(possible)}",
                "lower width; each path of a beam needs 2, or 1 more than there are stop tokens",
            )
        scored += [(beam.total + logprob, beam, token, logprob) for token, logprob in possible]
    scored.sort(key=lambda item: item[0], reverse=True)
    return [beam.extend(token, logprob, place) for place, (_, beam, token, logprob) in enumerate(scored[:k])]
