"""A second implementation of the searches, plain and sequential, straight from the published descriptions.

They share with :mod:`searchlens.search` only parameters and seeds, so that both draw the same tokens when both do the
same thing. Statistics are looked up in lists of everything that happened; nothing is batched or reused. A search is a
generator that yields one continuation at a time; the caller has a language model's table or an engine draw it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from searchlens.search.components import Blocks, Branch, BreadthFirst, Iterations, Rounds, Thought
from searchlens.search.entropy_tree import EntropyTree
from searchlens.search.mcts import MonteCarloTreeSearch
from searchlens.search.policy import Policy
from searchlens.search.power import PowerSampling
from searchlens.search.smc import Lookahead, SequentialMonteCarlo
from searchlens.search.thoughts import StepBeam, ThoughtTree

if TYPE_CHECKING:
    import numpy as np

    from searchlens.search.task import Task


class Token(NamedTuple):
    """A token in its place."""

    id: int
    logprob: float
    sampling_logprob: float
    """``logprob``, ``sampling_logprob``: natural log p and log q; log q is 0 if the token was forced."""
    entropy: float = math.nan
    """Entropy of the raw distribution at its place, in nats."""
    likely: tuple[tuple[int, float], ...] = ()
    """The most likely tokens at its place and their log p, the most likely first."""


Text = tuple[Token, ...]
Ids = tuple[int, ...]
Score = Callable[[Text], float]


class Continuation(NamedTuple):
    """A continuation to draw: at most ``max_tokens`` tokens after ``text``, up to one of ``stop_ids``.

    ``temperature`` is that of the policy if it is None; ``likely`` is how many of the most likely tokens are wanted.
    """

    text: Text
    seed: int
    stop_ids: Ids
    max_tokens: int
    temperature: float | None = None
    likely: int = 0


PlainSearch = Generator[Continuation | list[Continuation], Any, list[Text]]
"""Yields a continuation and receives its new tokens, or yields several that do not depend on each other, and receives
those of each; returns its texts."""


def ids(text: Text) -> Ids:
    """Token ids."""
    return tuple(token.id for token in text)


def total(text: Text) -> float:
    """Log-probability of a text under the raw model."""
    return sum(token.logprob for token in text)


def mean(text: Text) -> float:
    """Mean log-probability of its tokens."""
    return total(text) / len(text)


def search(task: Task, policy: Policy, score: Score) -> PlainSearch:
    """The search of a policy: all of its texts, best first, equal ones in the order in which they were found."""
    texts = yield from SEARCHES[policy.controller.name](task, policy, score)
    return sorted(texts, key=lambda text: -score(text))


Drawing = Generator[Continuation, Text, Text]
"""Yields one continuation, and returns the text that it leads to."""


def _chance(task: Task, *key: int | str) -> np.random.Generator:
    from searchlens.seeds import generator  # checks of a configuration read SEARCHES, without numpy

    return generator(task.seed, *key)


def _drawn(task: Task, text: Text, seed: int, stop_ids: Ids, max_tokens: int) -> Drawing:
    """``text`` followed by what is drawn, up to the token that completes a stop text."""
    return _followed(task, text, (yield Continuation(text, seed, stop_ids, max_tokens)))


def _followed(task: Task, text: Text, new: Text) -> Text:
    """``text`` followed by new tokens, up to the one that completes a stop text."""
    for token in new:
        text = (*text, token)
        if _stopped(task, text):
            break
    return text


def _stopped(task: Task, text: Text) -> bool:
    if text and text[-1].id in task.stop_ids:
        return True
    return bool(task.stop_texts) and any(stop in task.decode(ids(text)) for stop in task.stop_texts)


def _over(task: Task, text: Text) -> bool:
    return len(text) == task.max_tokens or _stopped(task, text)


# ---- power sampling


def power(task: Task, policy: Policy) -> PlainSearch:
    """The text at the end of one chain."""
    text, _ = yield from chain(task, policy)
    return [text]


def chain(task: Task, policy: Policy) -> Generator[Continuation, Text, tuple[Text, int]]:
    """The text at the end of one chain, and the number of accepted proposals.

    Karan and Du (2025), arXiv 2510.14901, algorithm 1. In mode ``exact`` a proposal reaches up to the limit of the
    block, whole suffixes are compared, and the acceptance includes the odds of the cut. With cuts by entropy (Zhou,
    Mehrotra and Liu 2026, arXiv 2605.30327) these are the chances of the same cut in both texts.
    """
    p, schedule = policy.component(PowerSampling), policy.component(Blocks)
    exact, size = p.mode == "exact", math.ceil(task.max_tokens / schedule.blocks)
    text: Text = ()
    accepted = 0
    for block in range(math.ceil(task.max_tokens / size)):
        limit = min((block + 1) * size, task.max_tokens)
        ended = _stopped(task, text)
        if ended and (not exact or limit < task.max_tokens):
            continue
        if not ended:
            room = min(size, task.max_tokens - len(text))
            text = yield from _drawn(task, text, task.seed_of("extend", block), task.stop_ids, room)
        chance = _chance(task, "power", block)
        for step in range(schedule.steps):
            place, level = chance.random(2)
            cut = math.floor(place * len(text)) if p.cut == "uniform" else _place(_cuts(text), place)
            longest = limit if exact else len(text)
            seed = task.seed_of("propose", block, step)
            new = yield from _drawn(task, text[:cut], seed, task.stop_ids, longest - cut)
            odds = len(text) / len(new) if p.cut == "uniform" else _cuts(new)[cut] / _cuts(text)[cut]
            if level < acceptance(text, new, cut, p.alpha, odds if exact else None):
                text, accepted = new, accepted + 1
    return text, accepted


def acceptance(old: Text, new: Text, cut: int, alpha: float, odds: float | None) -> float:
    """Chance to replace a text by another one that differs from ``cut`` on: min(1, p^alpha(new) q(old) / ...).

    ``odds`` are those of the cut in the new text against the old one; None: the published comparison without them.
    """

    def weight(text: Text) -> float:
        return sum(alpha * token.logprob - token.sampling_logprob for token in text)

    if odds is not None:
        return min(1.0, math.exp(min(0.0, weight(new[cut:]) - weight(old[cut:]) + math.log(odds))))
    return math.exp(min(0.0, weight(new[cut:]) - weight(old[cut : len(new)])))


def _cuts(text: Text) -> list[float]:
    """The chance of every cut of a text by entropy: its rise over the position before, and .1 nats."""
    before = [0.0, *(token.entropy for token in text[:-1])]
    rises = [max(0.0, token.entropy - last) + 0.1 for token, last in zip(text, before, strict=True)]
    return [rise / math.fsum(rises) for rise in rises]


def _place(chances: Sequence[float], uniform: float) -> int:
    """The first place at which the sum of the chances is above a random number."""
    for place, level in enumerate(accumulate(chances)):
        if uniform < level:
            return place
    return max(place for place, chance in enumerate(chances) if chance > 0)


# ---- sequential Monte Carlo


def smc(task: Task, policy: Policy) -> PlainSearch:
    """The particle that is drawn at the end.

    Azizi et al. (2026), Power-SMC, arXiv 2602.10273. The weight of a particle is computed from its whole text:
    ``p^a / q`` since it was last drawn again, when it stood for ``p^b`` of what it was then.
    """
    p = policy.component(SequentialMonteCarlo)
    chance, warm = _chance(task, "smc"), policy.local.temperature
    texts: list[Text] = [()] * p.particles
    born: list[tuple[float, Text]] = [(1.0, ())] * p.particles  # exponent and text when it was last drawn again
    for begin in range(0, task.max_tokens, p.every):
        end = min(begin + p.every, task.max_tokens)
        exponent = 1 + (p.alpha - 1) * (min(1.0, end / p.ramp) if p.ramp else 1.0)
        temperature = min(warm * p.alpha / exponent, max(1.0, warm))
        growing = [i for i, text in enumerate(texts) if not _over(task, text)]
        new = yield [
            Continuation(texts[i], task.seed_of("particle", begin, i), task.stop_ids, end - begin, temperature)
            for i in growing
        ]
        for i, tokens in zip(growing, new, strict=True):
            texts[i] = _followed(task, texts[i], tokens)
        is_last = all(_over(task, text) for text in texts)
        share = _shares(
            [
                (p.alpha if is_last else exponent) * total(text)
                - before * total(old)
                - sum(token.sampling_logprob for token in text[len(old) :])
                for text, (before, old) in zip(texts, born, strict=True)
            ]
        )
        if is_last:
            break
        if 1 / math.fsum(s * s for s in share) < p.resample * p.particles:
            uniform = chance.random()
            texts = [texts[_place(share, (i + uniform) / p.particles)] for i in range(p.particles)]
            born = [(exponent, text) for text in texts]
    return [texts[_place(share, chance.random())]]


def _shares(logs: Sequence[float]) -> list[float]:
    """Weights, given by their logarithms, as shares of their sum."""
    weights = [math.exp(one - max(logs)) for one in logs]
    return [weight / math.fsum(weights) for weight in weights]


# ---- scalable power sampling


def lookahead(task: Task, policy: Policy) -> PlainSearch:
    """The text that is drawn token by token.

    Ji et al. (2026), arXiv 2601.21590: p^alpha of a token times the mean weight of rollouts behind it, as shares of
    all candidates, with the jackknife over rollouts.
    """
    p, chance = policy.component(Lookahead), _chance(task, "lookahead")
    text: Text = ()
    while not _over(task, text):
        place, room = len(text), task.max_tokens - len(text) - 1
        (drawn,) = yield Continuation(text, task.seed_of("token", place), task.stop_ids, 1, likely=p.top)
        paths = [(*text, Token(token, logprob, 0.0)) for token, logprob in drawn.likely[: p.top]]
        logs = [[p.alpha * path[-1].logprob] * p.rollouts for path in paths]
        rollouts = [(rank, i) for rank, path in enumerate(paths) if not _over(task, path) for i in range(p.rollouts)]
        rests = yield [
            Continuation(paths[rank], task.seed_of("rollout", place, rank, i), task.stop_ids, min(p.horizon, room))
            for rank, i in rollouts
        ]
        for (rank, i), rest in zip(rollouts, rests, strict=True):
            tokens = _followed(task, paths[rank], rest)[len(paths[rank]) :]
            logs[rank][i] += sum(p.alpha * token.logprob - token.sampling_logprob for token in tokens)
        text = paths[_place(_jackknife(logs), chance.random())]
    return [text]


def _jackknife(logs: Sequence[Sequence[float]]) -> list[float]:
    """Shares of rows of log weights, with the jackknife over columns; negative ones are 0."""
    most, n = max(map(max, logs)), len(logs[0])
    weights = [[math.exp(one - most) for one in row] for row in logs]

    def shares(without: int | None) -> list[float] | None:
        sums = [math.fsum(w for i, w in enumerate(row) if i != without) for row in weights]
        return [one / math.fsum(sums) for one in sums] if math.fsum(sums) > 0 else None

    everything, others = shares(None), [shares(i) for i in range(n)] if n > 1 else []
    assert everything is not None
    kept = [one for one in others if one is not None]
    if len(kept) < len(others) or n == 1:
        return everything
    better = [
        max(0.0, n * one - (n - 1) * math.fsum(other[rank] for other in kept) / n)
        for rank, one in enumerate(everything)
    ]
    return [one / math.fsum(better) for one in better]


# ---- entropy tree


def entropy_tree(task: Task, policy: Policy) -> PlainSearch:
    """All leaves in the order of creation: roots first, then round by round.

    EPTree of Hou et al. (2025), TreeRL, with entropies in place of surprisals and, by default, without its mask.
    """
    trees = []
    for root in range(policy.component(EntropyTree).roots):
        leaves = yield from _tree(task, policy, root)
        trees.append(leaves)
    return [text for leaves in zip(*trees, strict=True) for tree in leaves for text in tree]


def _tree(task: Task, policy: Policy, root: int) -> Generator[Continuation, Text, list[list[Text]]]:
    """The leaves of one root: its own text, then the new leaves of each round."""
    p, branch = policy.component(EntropyTree), policy.component(Branch)

    def end(path: Ids, text: Text) -> Drawing:
        if _over(task, text):
            return text
        room = task.max_tokens - len(text)
        return (yield from _drawn(task, text, task.seed_of("tree", *path), task.stop_ids, room))

    chains: list[tuple[Ids, int, Text]] = [((root,), 0, (yield from end((root,), ())))]
    leaves, forks = [[chains[0][2]]], list[Ids]()
    for _ in range(policy.component(Rounds).rounds):
        places = [
            (text[t].entropy, path, text, t)
            for path, born, text in chains
            for t in range(born + 1, _unmasked(task, branch.mask, ids(text)))
        ]
        new, expanded = list[tuple[Ids, int, Text]](), 0
        for entropy, path, text, t in sorted(places, key=lambda place: -place[0]):
            if expanded == p.positions or (p.select == "threshold" and entropy < p.threshold):
                break
            context = ids(text[:t])
            if any(abs(len(f) - t) < branch.gap and f[:t] == context[: len(f)] for f in forks):  # near, on one path
                continue
            forks.append(context)
            expanded += 1
            others = [token for token in text[t].likely if token[0] != text[t].id]
            for child in range(p.children_per_position):
                here, stem = (*path, t, child), text[:t]
                if branch.children == "distinct":
                    stem = (*stem, Token(*others[child], 0.0, text[t].entropy, text[t].likely))
                new.append((here, t, (yield from end(here, stem))))
        chains += new
        leaves.append([text for _, _, text in new])
    return leaves


def _unmasked(task: Task, mask: str, text: Ids) -> int:
    """Number of tokens before the text contains a word of EPTree's mask, or an answer can be read from it."""
    for t in range(len(text)) if mask != "none" else ():
        written = task.decode(text[:t]).lower() if mask == "words" else ""
        if "answer" in written or "conclusion" in written or (mask == "answer" and task.answer(text[:t]) is not None):
            return t
    return len(text)


# ---- thought tree


def thought_tree(task: Task, policy: Policy, score: Score) -> PlainSearch:
    """The texts that are left at the end.

    Yao et al. (2023), Tree of Thoughts, algorithm 2: S_t' = {[s, z] : s in S_{t-1}, z in G(s, k)}, S_t = the b best.
    """
    p = policy.component(ThoughtTree)
    states: list[tuple[Text, Ids]] = [((), ())]  # text, and which child of which child
    for _ in range(policy.component(BreadthFirst).depth):
        new = [state for state in states if _over(task, state[0])]
        for text, place in states:
            for child in range(0 if _over(task, text) else p.children):
                here = (*place, child)
                thought = yield from _thought(task, policy, text, here)
                if ids(thought) not in [ids(other) for other, _ in new]:
                    new.append((thought, here))
        states = sorted(new, key=lambda state: -score(state[0]))[: p.width]
    ends = []
    for text, place in states:
        ends.append(text if _over(task, text) else (yield from _end(task, text, place)))
    return ends


def _thought(task: Task, policy: Policy, text: Text, place: Ids) -> Drawing:
    room = min(policy.component(Thought).max_tokens, task.max_tokens - len(text))
    return _drawn(task, text, task.seed_of("thought", *place), (*task.step_ids, *task.stop_ids), room)


def _end(task: Task, text: Text, place: Ids, number: int = 0) -> Drawing:
    return _drawn(task, text, task.seed_of("end", *place, number), task.stop_ids, task.max_tokens - len(text))


# ---- beams over thoughts


def step_beam(task: Task, policy: Policy, score: Score) -> PlainSearch:
    """All complete texts of a beam over thoughts, or of its diverse variant.

    Beeching, Tunstall and Rush (2024), Scaling test-time compute with open models (search-and-learn). N beams: the best
    n/m of the unfinished ones are copied until there are n again.
    """
    if policy.component(StepBeam).diverse == "yes":
        return (yield from _subtrees(task, policy, score))
    n, m = policy.component(StepBeam).width, policy.component(StepBeam).expand
    active: list[tuple[Text, Ids]] = [((), ())]  # text, and which child of which child
    completed: list[Text] = []
    for _ in range(policy.component(BreadthFirst).depth):
        copies = (active * n)[:n]
        grown: dict[Ids, tuple[Text, Ids]] = {}
        for text, here in _numbered(copies):
            new = yield from _thought(task, policy, text, here)
            grown.setdefault(ids(new), (new, here))
        completed += [text for text, _ in grown.values() if _over(task, text)]
        unfinished = [beam for beam in grown.values() if not _over(task, beam[0])]
        active = sorted(unfinished, key=lambda beam: -score(beam[0]))[: n // m]
        if not active:
            return completed
    for text, (*place, number) in _numbered((active * n)[:n]):
        completed.append((yield from _end(task, text, tuple(place), number)))
    return completed


def _numbered(copies: Sequence[tuple[Text, Ids]]) -> list[tuple[Text, Ids]]:
    """Give every copy of a path the place of its next child."""
    places = [place for _, place in copies]
    return [(text, (*place, places[:i].count(place))) for i, (text, place) in enumerate(copies)]


def _subtrees(task: Task, policy: Policy, score: Score) -> PlainSearch:
    """n/m subtrees: in each, the best of m children is continued and, once complete, emitted with its siblings."""
    p = policy.component(StepBeam)
    emitted: list[Text] = []
    for subtree in range(p.width // p.expand):
        text: Text = ()
        place: Ids = (subtree,)
        for _ in range(policy.component(BreadthFirst).depth):
            children = list[Text]()
            for i in range(p.expand):
                child = yield from _thought(task, policy, text, (*place, i))
                children.append(child)
            best = max(range(p.expand), key=lambda i: score(children[i]))
            if _over(task, children[best]):
                for i, child in enumerate(children):
                    end = child if _over(task, child) else (yield from _end(task, child, (*place, i)))
                    emitted.append(end)
                break
            text, place = children[best], (*place, best)
        else:
            for i in range(p.expand):
                end = yield from _end(task, text, place, i)
                emitted.append(end)
    return emitted


# ---- Monte Carlo tree search


@dataclass
class MonteCarlo:
    """UCT of Kocsis and Szepesvári (2006), PUCT of Silver et al. (2017), with rollouts and virtual loss."""

    task: Task
    policy: Policy
    score: Score
    """Score of a rollout."""
    priors: dict[Ids, dict[Ids, float]] = field(default_factory=dict)
    """Expanded state, by its tokens, to its next states and their priors."""
    states: dict[Ids, tuple[Text, Ids]] = field(default_factory=lambda: {(): ((), ())})
    """Tokens to the text and its place: which child of which child."""
    simulations: list[tuple[list[Ids], Text]] = field(default_factory=list)
    """For each iteration the states on its path, and the text of its rollout."""
    descents: list[list[Ids]] = field(default_factory=list)
    """Paths of the iterations that have no rollout yet."""

    def search(self) -> PlainSearch:
        """The rollouts in the order of iterations."""
        p, iterations = self.policy.component(MonteCarloTreeSearch), self.policy.component(Iterations).iterations
        while len(self.simulations) < iterations and not self._exhausted(()):
            for _ in range(min(p.parallel, iterations - len(self.simulations))):
                if not self._exhausted(()):
                    path: list[Ids] = [()]
                    while path[-1] in self.priors:
                        path.append(self._choose(path[-1]))
                    self.descents.append(path)
            for path in self.descents:
                if not self._complete(path[-1]):
                    yield from self._expand(path[-1])
            for path in self.descents:
                if path[-1] in self.priors:
                    priors = self.priors[path[-1]]
                    path.append(max(priors, key=priors.__getitem__))
            for path in self.descents:
                text, place = self.states[path[-1]]
                end = text if self._complete(path[-1]) else (yield from _end(self.task, text, place))
                self.simulations.append((path, end))
            self.descents = []
        return [text for _, text in self.simulations]

    def _expand(self, state: Ids) -> Generator[Continuation, Text, None]:
        text, place = self.states[state]
        weights: dict[Ids, float] = {}
        for child in range(self.policy.component(MonteCarloTreeSearch).children):
            new = yield from _thought(self.task, self.policy, text, (*place, child))
            next_state = ids(new)
            if next_state not in weights:
                weights[next_state] = math.exp(mean(new[len(text) :]))
                self.states[next_state] = new, (*place, child)
        self.priors[state] = {key: weight / sum(weights.values()) for key, weight in weights.items()}

    def _complete(self, state: Ids) -> bool:
        return _over(self.task, self.states[state][0])

    def _exhausted(self, state: Ids) -> bool:
        """Whether nothing is left: a complete text was seen, a leaf has a descent, or all children are exhausted."""
        if self._complete(state):
            return self._visits(state) > 0
        if state not in self.priors:
            return any(path[-1] == state for path in self.descents)
        return all(self._exhausted(child) for child in self.priors[state])

    def _visits(self, state: Ids) -> int:
        return sum(state in path for path in [*(path for path, _ in self.simulations), *self.descents])

    def _value(self, state: Ids) -> float:
        rewards = [self.score(self._first(text)) for _, text in self.simulations]
        here = [self.score(self._first(text)) for path, text in self.simulations if state in path]
        low, high = min(rewards, default=0), max(rewards, default=0)
        unit = [(reward - low) / (high - low) if high - low >= 1e-4 else 0.5 for reward in here]
        return math.fsum(unit) / self._visits(state) if unit else 0.0

    def _first(self, text: Text) -> Text:
        """The first simulated text of the same tokens, whose probabilities may differ in their last digits."""
        return next(other for _, other in self.simulations if ids(other) == ids(text))

    def _choose(self, state: Ids) -> Ids:
        p = self.policy.component(MonteCarloTreeSearch)
        c, parent = p.exploration, self._visits(state)

        def worth(child: Ids) -> float:
            n = self._visits(child)
            if p.select == "puct":
                return self._value(child) + c * self.priors[state][child] * math.sqrt(parent) / (1 + n)
            return self._value(child) + c * math.sqrt(math.log(parent) / n) if n else math.inf

        candidates = [child for child in self.priors[state] if not self._exhausted(child)]
        return max(candidates, key=lambda child: (worth(child), self.priors[state][child]))


SEARCHES: Mapping[str, Callable[[Task, Policy, Score], PlainSearch]] = {
    "power": lambda task, policy, _: power(task, policy),
    "smc": lambda task, policy, _: smc(task, policy),
    "lookahead": lambda task, policy, _: lookahead(task, policy),
    "entropy_tree": lambda task, policy, _: entropy_tree(task, policy),
    "mcts": lambda task, policy, score: MonteCarlo(task, policy, score).search(),
    "thought_tree": thought_tree,
    "step_beam": step_beam,
}
"""Name of a controller to its reference."""
