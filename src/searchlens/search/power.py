"""Power sampling: a Markov chain of whole texts whose law tends to p to the power of alpha.

Metropolis-Hastings as in Karan and Du (2025), "Reasoning with Sampling: Your Base Model is Smarter Than You Think",
arXiv 2510.14901, Algorithm 1: cut the text at a random place, draw its rest again from the local policy q, and accept
the new text or keep the old one. A text ends with a stop token or fills the limit. A text that q can never draw is
never reached: the target is p^alpha on the texts that q can draw.

Texts grow by blocks. A block of limit L extends a text that has not ended, then takes its steps toward p^alpha over the
texts of at most L tokens; the last block has the limit of the task. The two modes differ once texts can end:

``exact``
    A proposal may fill the limit of the block, whole suffixes are compared, and the odds of choosing the cut, 1/n_old
    against 1/n_new, enter the ratio: detailed balance holds. A text that ended skips to the last block, because only
    there its rivals are all texts of the task.
``reference``
    The published procedure: a proposal is never longer than the present text, a suffix is compared with as many tokens
    of the old one as it has itself, the odds of the cut are left out, and a text that has ended after the steps of its
    block is the result. Within a block texts get shorter but never longer, so the chain drifts to short ones.

With ``cut: entropy`` a text is not cut anywhere with equal chance, but where the model decides something: the chance
of a position is proportional to the rise of the entropy of the next token over the position before, 0 if it falls, plus
a constant. That follows Zhou, Mehrotra and Liu (2026), "Reasoning with Sampling: Cutting at Decision Points", arXiv
2605.30327, who cut where the entropy jumps; the constant keeps every cut possible. The odds of the cut are then the
sums of these chances over the two texts, in place of their lengths, and detailed balance holds as before: only
``exact``.

Most proposals that are rejected are not drawn to their end. The weight of a token, ``w = alpha log p - log q``, is
never above 0 if q is p at a temperature T <= 1 with any filter but no penalty, and alpha >= 1 / T: with S the tokens
that the filters keep, ``w = (alpha - 1/T) log p + log sum_S p^(1/T)``, and neither term is above 0. So the ratio of a
proposal of which t tokens are drawn is at most ``sum w - sum w_old + log(n_old / (cut + t))`` (in mode ``reference``
without the logarithm), which only falls with t. The random number that decides is drawn before the proposal. Once the
bound is below its logarithm the proposal is rejected whatever follows, and the engine ends it (``Request.floor``).
Texts, decisions and law are those of a chain that draws every proposal to its end; only the cost is lower.

Without stop tokens both modes are the same chain. Then a run with N steps in each of K equal blocks of B = T / K tokens
draws at most ``T + N (T (K + 1) / 4 + K / 2)`` tokens on average, the paper's ``N T^2 / (4 B)`` for many long blocks.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from statistics import fmean, variance
from typing import TYPE_CHECKING, NamedTuple

from searchlens.catalogue import controller
from searchlens.engines.base import Floor
from searchlens.errors import InputError
from searchlens.search.components import Blocks, Controller, choice, number, require_draws
from searchlens.search.policy import Policy, Texts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from searchlens.engines.base import Request
    from searchlens.search.task import Evaluator, Search, Task, Trace

_LEAST = 0.1  # nats, added to every rise of the entropy, so that every position may be cut
_ROUNDING = 1e-6  # nats by which float32 may lift the weight of a token above 0, for each unit of alpha


@controller(
    "power",
    evaluators=("sequence_logprob", "mean_logprob", "self_certainty"),
    transitions=("resample_suffix",),
    schedulers=("blocks",),
    index=5,
    colour="#008080",
)
@dataclass(frozen=True, slots=True)
class PowerSampling(Controller):
    """The text that one chain ends with, as the only candidate.

    A block has ``ceil(max_tokens / blocks)`` tokens, so there are fewer than ``blocks`` of them if none are left for
    the last. Without steps the result is a draw from the local policy. The evaluator scores the result; the chain does
    not use it.
    """

    alpha: float = number(4.0, at_least=0.01, at_most=100)
    mode: str = choice("exact", "reference")
    cut: str = choice("uniform", "entropy", silent=True)

    def check(self, policy: Policy) -> None:
        """A proposal at temperature 0 is the text itself; the published procedure cuts with equal chance."""
        require_draws(policy)
        if self.cut == "entropy" and self.mode != "exact":
            raise InputError("controller power: cut: entropy needs mode: exact", "leave out mode")

    def expected_tokens(self, policy: Policy, texts: Texts) -> float:
        """Mean of ``T + N (B n (n + 1) / 2 + n + r (T + 1)) / 2`` over the lengths T.

        There are N steps in each of the n blocks of B tokens that a text fills without ending, and in the block in
        which it ends; each redraws half of the present text. In mode ``exact`` a text that ended before the last block
        takes the steps of that block, too (r = 2). Proposals that are rejected early draw less.
        """
        schedule = policy.component(Blocks)
        block = math.ceil(texts.limit / schedule.blocks)
        last = math.ceil(texts.limit / block) - 1

        def drawn(length: float) -> float:
            filled = min(int(length // block), last)
            visits = 2 if self.mode == "exact" and filled < last else 1
            return length + schedule.steps / 2 * (block * filled * (filled + 1) / 2 + filled + visits * (length + 1))

        return sum(map(drawn, texts.lengths)) / len(texts.lengths)

    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        """One candidate; its details tell how far the chain has moved.

        ``proposed`` and ``accepted`` are numbers of steps; an accepted step changed to the proposal (``changed``), or
        drew the same text again. ``rejected_early`` are proposals that were not drawn to their end. ``proposal_tokens``
        is the mean length of the texts proposed, as far as they were drawn. ``log_weight_before``, ``log_weight_half``
        and ``log_weight_after`` are ``alpha log p - log q``, in nats, of the text before the first step, after half of
        the steps and after all steps of the last block that the chain stepped in; ``logp_before``, ``logp_half`` and
        ``logp_after`` are log p of the same texts. ``chain_mean`` and ``chain_variance`` (divisor n - 1, if n > 1) are
        of log p of the n = ``chain_states`` texts after the steps of the second half of that block. Without steps, only
        ``proposed`` and ``accepted``. Raises ValueError if a ratio or the score is not a number.
        """
        schedule, exact = policy.component(Blocks), self.mode == "exact"
        length = -(-task.max_tokens // schedule.blocks)
        local = policy.local  # no token has a weight above 0, so that the log weight of a text only falls as it grows
        can_reject = not local.has_penalties and 0 < local.temperature <= 1 and self.alpha * local.temperature >= 1
        measures = evaluator.measures or self.cut == "entropy"

        def ask(start: Trace, limit: int, *key: str | int, floor: Floor | None = None) -> Request:
            """A request that goes on with a text up to a limit of tokens."""
            tokens, seed = limit - len(start.tokens), task.seed_of(*key)
            return task.request(start, policy.local, seed, tokens, measures=measures, floor=floor)

        path, moves = task.empty, _Moves(self.alpha)
        node: tuple[int, ...] | None = None  # of the recorded chain, whose end is ``path``
        events = 0
        for block, limit in enumerate([*range(length, task.max_tokens, length), task.max_tokens]):
            if path.finish and not (exact and limit == task.max_tokens):
                continue
            if not path.finish:
                start = path
                (reply,) = yield [ask(start, min(len(start.tokens) + length, task.max_tokens), "extend", block)]
                path = task.extend(start, reply)
                if task.is_recorded:
                    cut = len(start.tokens)
                    about = {"node": (block,), "parent": node, "start": cut, "step": events, "block": block}
                    task.note("node", **about, **path.after(cut))
                node, events = (block,), events + 1
            text = self._state(path)
            moves.begin(path, schedule.steps)
            chances = task.generator("power", block).random((schedule.steps, 2)).tolist()
            for step, (place, level) in enumerate(chances):
                cut = self._cut(text, place)
                longest = limit if exact else len(text.weights)
                replaced = float(text.weights[cut:].sum())
                floor = self._floor(text, cut, replaced, longest, level) if can_reject else None
                start = text.trace.cut(cut)
                (reply,) = yield [ask(start, longest, "propose", block, step, floor=floor)]
                is_whole = reply.finish != "rejected"
                rival = self._state(task.extend(start, reply) if is_whole else start.extend(reply, None))
                ratio = self._log_ratio(text, rival, cut, replaced, is_whole)
                is_accepted = is_whole and level < math.exp(min(0.0, ratio))
                moves.add(text.trace, rival.trace, is_accepted, is_whole)
                if task.is_recorded:
                    about = {"node": (block, step), "parent": node, "start": cut, "step": events, "block": block}
                    own = rival.trace.after(cut) | ({} if is_whole else {"finish": "rejected"})
                    task.note("node", **about, **own, accepted=is_accepted, log_ratio=ratio, uniform=level)
                events += 1
                text, node = (rival, (block, step)) if is_accepted else (text, node)
            path = text.trace
        end = path._replace(finish=path.finish or "length")
        (score,) = yield from evaluator(task, [end], policy.local, ("score",))
        task.note("scored", nodes=[node], scores=[score], step=max(0, events - 1))
        return [end.candidate(score, moves.details(end))]

    def _state(self, trace: Trace) -> _State:
        """A text with what its steps look at."""
        weights = log_weights(trace, self.alpha)
        if self.cut == "uniform":
            return _State(trace, weights, None)
        assert trace.entropies is not None, "requests had measures"
        entropy = trace.entropies.astype("float64")
        rises = entropy.copy()
        rises[1:] -= entropy[:-1]
        return _State(trace, weights, rises.clip(0.0) + _LEAST)

    def _cut(self, text: _State, place: float) -> int:
        """The position at a place, from 0 to 1, of the distribution function of cuts."""
        if text.rises is None:
            return int(place * len(text.weights))
        chances = text.rises.cumsum()
        return min(int(chances.searchsorted(place * chances[-1], "right")), len(chances) - 1)

    def _floor(self, text: _State, cut: int, replaced: float, longest: int, level: float) -> Floor:
        """The log weight at which a proposal for the text after the cut, of weight ``replaced``, must be rejected."""
        bound = math.log(level) if level else -math.inf
        bound += replaced - _ROUNDING * self.alpha * (longest - cut)
        if self.mode == "reference":
            return Floor(self.alpha, bound)
        bound -= text.log_odds
        if text.rises is None:
            return Floor(self.alpha, bound, cut)
        kept = float(text.rises[: cut + 1].sum())  # of the proposal, too: a rise depends on what stands before it
        return Floor(self.alpha, bound + math.log(kept))

    def _log_ratio(self, old: _State, new: _State, cut: int, replaced: float, is_whole: bool) -> float:
        """Metropolis-Hastings ratio of changing from ``old`` to ``new``, which agree up to ``cut``, in nats.

        The change is accepted with probability ``min(1, exp(log_ratio))``. If ``new`` is not whole, the ratio is the
        most that it could have become. ``replaced`` is as in ``_floor``. Raises ValueError if the ratio is not a
        number.
        """
        odds = 0.0
        if self.mode == "reference":
            replaced = float(old.weights[cut : len(new.weights)].sum()) if is_whole else replaced
        elif self.cut == "uniform":
            odds = math.log(len(old.weights) / len(new.weights))
        else:
            odds = old.log_odds - new.log_odds
        ratio = float(new.weights[cut:].sum()) - replaced + odds
        if math.isnan(ratio):
            raise ValueError("the acceptance ratio of a proposal is not a number")
        return ratio


class _State(NamedTuple):
    """A text of the chain."""

    trace: Trace
    weights: npt.NDArray[np.float64]
    """As ``log_weights`` returns them. Shape (n,)."""
    rises: npt.NDArray[np.float64] | None
    """Chances of the cuts, not normalised: rise of the entropy, and a constant; None if they are equal. Shape (n,)."""

    @property
    def log_odds(self) -> float:
        """Log of the sum of the chances of all cuts; the chance of a cut is its own share."""
        return math.log(len(self.weights) if self.rises is None else self.rises.sum())


@dataclass(slots=True)
class _Moves:
    """How a chain moves; the details of its candidate."""

    alpha: float
    texts: dict[str, Trace] = field(default_factory=dict)
    """Of the present block, before the first step and after half of the steps."""
    halfway: int = 0
    levels: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def begin(self, text: Trace, steps: int) -> None:
        """The steps of a block begin with ``text``."""
        self.texts, self.halfway, self.levels = {"before": text}, self.counts["proposed"] + steps // 2, []

    def add(self, text: Trace, rival: Trace, is_accepted: bool, is_whole: bool) -> None:
        """A step from ``text``, which may have changed to ``rival``; one that is not whole was rejected early."""
        counts = self.counts
        if counts["proposed"] == self.halfway:
            self.texts["half"] = text
        counts["proposed"] += 1
        if counts["proposed"] > self.halfway:
            self.levels.append((rival if is_accepted else text).log_p)
        counts["tokens"] += len(rival.tokens)
        counts["accepted"] += is_accepted
        counts["rejected_early"] += not is_whole
        counts["changed"] += is_accepted and text.tokens.tobytes() != rival.tokens.tobytes()

    def details(self, text: Trace) -> dict[str, float]:
        """The chain ended with ``text``."""
        counts, texts = self.counts, {**self.texts, "after": text}
        if not counts["proposed"]:
            return {"proposed": 0, "accepted": 0}
        return {
            **{name: counts[name] for name in ("proposed", "accepted", "changed", "rejected_early")},
            "proposal_tokens": counts["tokens"] / counts["proposed"],
            **{f"log_weight_{when}": float(log_weights(one, self.alpha).sum()) for when, one in texts.items()},
            **{f"logp_{when}": one.log_p for when, one in texts.items()},
            "chain_mean": fmean(self.levels),
            **({"chain_variance": variance(self.levels)} if len(self.levels) > 1 else {}),
            "chain_states": len(self.levels),
        }


def log_weights(trace: Trace, alpha: float) -> npt.NDArray[np.float64]:
    """Importance weight of each token, ``alpha log p - log q``, in nats.

    If q is p at temperature 1/alpha, unfiltered, the token drops out: the weight is the log-normaliser
    ``log sum_v p(v)^alpha`` of the position.
    """
    return alpha * trace.logprobs.astype("float64") - trace.sampling_logprobs
