"""The searches once more, plain and sequential: one request after the other, straight from the published descriptions.

They share with :mod:`searchlens.search` only parameters and seeds, so that both draw the same tokens where both do the
same.
Statistics are looked up in lists of everything that happened; nothing is kept, batched or reused. A search is a
generator that asks for one continuation at a time; who answers, a language model's table or an engine, is the caller's
business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from searchlens.policies import Policy
from searchlens.policies.components import Blocks, Branch, BreadthFirst, Iterations, Rounds, Thought
from searchlens.search.entropy_tree import EntropyTree
from searchlens.search.mcts import MonteCarloTreeSearch
from searchlens.search.power import PowerSampling
from searchlens.search.step_beam import StepBeam
from searchlens.search.task import Task
from searchlens.search.thought_tree import ThoughtTree
from searchlens.seeds import generator


class Token(NamedTuple):
    """A token in its place.

    Attributes
    ----------
    id : int
    logprob, sampling_logprob : float
        Natural log p and log q; 0 in the latter where it was forced.
    entropy : float
        Of the raw distribution at its place, in nats.
    likely : tuple of (int, float)
        The most likely tokens at its place and their log p, the most likely first.
    """

    id: int
    logprob: float
    sampling_logprob: float
    entropy: float = math.nan
    likely: tuple[tuple[int, float], ...] = ()


Text = tuple[Token, ...]
Ids = tuple[int, ...]
Score = Callable[[Text], float]


class Asked(NamedTuple):
    """One continuation: at most ``most`` tokens behind ``text``, up to one of ``stop_ids``."""

    text: Text
    seed: int
    stop_ids: Ids
    most: int


Plain = Generator[Asked, Text, list[Text]]
"""Yields what it asks for, receives the new tokens, returns its texts."""
Draw = Callable[[Asked], Text]


def ids(text: Text) -> Ids:
    """Token ids."""
    return tuple(token.id for token in text)


def total(text: Text) -> float:
    """Log-probability of a text under the raw model."""
    return sum(token.logprob for token in text)


def mean(text: Text) -> float:
    """Mean log-probability of its tokens."""
    return total(text) / len(text)


def one_by_one(search: Generator[Asked, Text, Any], draw: Draw) -> Any:
    """Run a search to its end; returns what it returns."""
    received: Text | None = None
    while True:
        try:
            asked = search.send(received)  # type: ignore[arg-type]  # the first one must be None
        except StopIteration as end:
            return end.value
        received = draw(asked)


def search(task: Task, policy: Policy, score: Score) -> Plain:
    """The policy's search: all texts that it finds, best first, equal ones in the order in which they were found."""
    found = yield from SEARCHES[policy.controller.name](task, policy, score)
    return sorted(found, key=lambda text: -score(text))


def _over(task: Task, text: Text) -> bool:
    return len(text) == task.max_tokens or (bool(text) and text[-1].id in task.stop_ids)


# ---- power sampling


def power(task: Task, policy: Policy) -> Plain:
    """The text that one chain ends with."""
    text, _ = yield from chain(task, policy)
    return [text]


def chain(task: Task, policy: Policy) -> Generator[Asked, Text, tuple[Text, int]]:
    """Where one chain ends, and its acceptances.

    Karan and Du (2025), arXiv 2510.14901, algorithm 1; in mode ``exact`` with proposals up to the limit of the block,
    whole suffixes and the odds of the cut.
    """
    p, schedule = policy.component(PowerSampling), policy.component(Blocks)
    exact, size = p.mode == "exact", math.ceil(task.max_tokens / schedule.blocks)
    text: Text = ()
    accepted = 0
    for block in range(math.ceil(task.max_tokens / size)):
        limit = min((block + 1) * size, task.max_tokens)
        ended = bool(text) and text[-1].id in task.stop_ids
        if ended and (not exact or limit < task.max_tokens):
            continue
        if not ended:
            room = min(size, task.max_tokens - len(text))
            text += yield Asked(text, task.seed_of("extend", block), task.stop_ids, room)
        chance = generator(task.seed, "power", block)
        for step in range(schedule.steps):
            place, level = chance.random(2)
            cut = math.floor(place * len(text))
            longest = limit if exact else len(text)
            seed = task.seed_of("propose", block, step)
            new = text[:cut] + (yield Asked(text[:cut], seed, task.stop_ids, longest - cut))
            if level < acceptance(text, new, cut, p.alpha, exact):
                text, accepted = new, accepted + 1
    return text, accepted


def acceptance(old: Text, new: Text, cut: int, alpha: float, exact: bool) -> float:
    """Chance to go from one text to another that differs from ``cut`` on: min(1, p^alpha(new) q(old) / ...)."""

    def weight(text: Text) -> float:
        return sum(alpha * token.logprob - token.sampling_logprob for token in text)

    if exact:
        return min(1.0, math.exp(min(0.0, weight(new[cut:]) - weight(old[cut:]) + math.log(len(old) / len(new)))))
    return math.exp(min(0.0, weight(new[cut:]) - weight(old[cut : len(new)])))


# ---- entropy tree


def entropy_tree(task: Task, policy: Policy) -> Plain:
    """All leaves in the order of creation: roots, then round by round.

    EPTree of Hou et al. (2025), TreeRL, with entropies in place of surprisals and, by default, without its mask.
    """
    trees = []
    for root in range(policy.component(EntropyTree).roots):
        leaves = yield from _tree(task, policy, root)
        trees.append(leaves)
    return [text for leaves in zip(*trees, strict=True) for tree in leaves for text in tree]


def _tree(task: Task, policy: Policy, root: int) -> Generator[Asked, Text, list[list[Text]]]:
    """One root: its text, then the new leaves of each round."""
    p, branch = policy.component(EntropyTree), policy.component(Branch)

    def end(path: Ids, text: Text) -> Generator[Asked, Text, Text]:
        if _over(task, text):
            return text
        return text + (yield Asked(text, task.seed_of("tree", *path), task.stop_ids, task.max_tokens - len(text)))

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
            if any(_near(fork, context, branch.gap) for fork in forks):
                continue
            forks.append(context)
            expanded += 1
            others = [one for one in text[t].likely if one[0] != text[t].id]
            for child in range(p.children_per_position):
                here, stem = (*path, t, child), text[:t]
                if branch.children == "distinct":
                    stem = (*stem, Token(*others[child], 0.0, text[t].entropy, text[t].likely))
                new.append((here, t, (yield from end(here, stem))))
        chains += new
        leaves.append([text for _, _, text in new])
    return leaves


def _unmasked(task: Task, mask: str, text: Ids) -> int:
    """Tokens up to the first one behind which a word of EPTree's has been written, or an answer can be read."""
    for t in range(len(text)) if mask != "none" else ():
        written = task.decode(text[:t]).lower() if mask == "words" else ""
        if "answer" in written or "conclusion" in written or (mask == "answer" and task.answer(text[:t]) is not None):
            return t
    return len(text)


def _near(fork: Ids, context: Ids, gap: int) -> bool:
    """Whether two forks lie on one path, less than ``gap`` tokens apart."""
    shared = min(len(fork), len(context))
    return abs(len(fork) - len(context)) < gap and fork[:shared] == context[:shared]


# ---- thought tree


def thought_tree(task: Task, policy: Policy, score: Score) -> Plain:
    """The texts kept at the end.

    Yao et al. (2023), Tree of Thoughts, algorithm 2: S_t' = {[s, z] : s in S_{t-1}, z in G(s, k)}, S_t = the b best.
    """
    p = policy.component(ThoughtTree)
    states: list[tuple[Text, Ids]] = [((), ())]  # text, and which child of which child
    for _ in range(policy.component(BreadthFirst).depth):
        new = [one for one in states if _over(task, one[0])]
        for text, place in states:
            for child in range(0 if _over(task, text) else p.children):
                here = (*place, child)
                thought = text + (yield _thought(task, policy, text, here))
                if ids(thought) not in [ids(other) for other, _ in new]:
                    new.append((thought, here))
        states = sorted(new, key=lambda one: -score(one[0]))[: p.width]
    ends = []
    for text, place in states:
        ends.append(text if _over(task, text) else text + (yield _end(task, text, place)))
    return ends


def _thought(task: Task, policy: Policy, text: Text, place: Ids) -> Asked:
    most = min(policy.component(Thought).max_tokens, task.max_tokens - len(text))
    return Asked(text, task.seed_of("thought", *place), (*task.step_ids, *task.stop_ids), most)


def _end(task: Task, text: Text, place: Ids, number: int = 0) -> Asked:
    return Asked(text, task.seed_of("end", *place, number), task.stop_ids, task.max_tokens - len(text))


# ---- beams over thoughts


def step_beam(task: Task, policy: Policy, score: Score) -> Plain:
    """All complete texts of a beam over thoughts, or of its diverse variant.

    Beeching, Tunstall and Rush (2024), Scaling test-time compute with open models (search-and-learn).
    """
    variant = _subtrees if policy.component(StepBeam).diverse == "yes" else _beam
    return (yield from variant(task, policy, score))


def _beam(task: Task, policy: Policy, score: Score) -> Plain:
    """N beams; the best n/m of the unfinished ones are copied until they are n."""
    n, m = policy.component(StepBeam).width, policy.component(StepBeam).expand
    active: list[tuple[Text, Ids]] = [((), ())]  # text, and which child of which child
    completed: list[Text] = []
    for _ in range(policy.component(BreadthFirst).depth):
        copies = (active * n)[:n]
        grown: dict[Ids, tuple[Text, Ids]] = {}
        for text, here in _numbered(copies):
            new = text + (yield _thought(task, policy, text, here))
            grown.setdefault(ids(new), (new, here))
        completed += [text for text, _ in grown.values() if _over(task, text)]
        going = [one for one in grown.values() if not _over(task, one[0])]
        active = sorted(going, key=lambda one: -score(one[0]))[: n // m]
        if not active:
            return completed
    for text, (*place, number) in _numbered((active * n)[:n]):
        completed.append(text + (yield _end(task, text, tuple(place), number)))
    return completed


def _numbered(copies: Sequence[tuple[Text, Ids]]) -> list[tuple[Text, Ids]]:
    """Give every copy of a path the place of its own next child."""
    places = [place for _, place in copies]
    return [(text, (*place, places[:i].count(place))) for i, (text, place) in enumerate(copies)]


def _subtrees(task: Task, policy: Policy, score: Score) -> Plain:
    """n/m subtrees; in each the best of m children goes on, and all children beside the last one are emitted."""
    p = policy.component(StepBeam)
    emitted: list[Text] = []
    for subtree in range(p.width // p.expand):
        text: Text = ()
        place: Ids = (subtree,)
        for _ in range(policy.component(BreadthFirst).depth):
            children: list[Text] = []
            for i in range(p.expand):
                new = yield _thought(task, policy, text, (*place, i))
                children.append(text + new)
            best = max(range(p.expand), key=lambda i: score(children[i]))
            if _over(task, children[best]):
                for i, one in enumerate(children):
                    emitted.append(one if _over(task, one) else one + (yield _end(task, one, (*place, i))))
                break
            text, place = children[best], (*place, best)
        else:
            for i in range(p.expand):
                new = yield _end(task, text, place, i)
                emitted.append(text + new)
    return emitted


# ---- Monte Carlo tree search


@dataclass
class MonteCarlo:
    """UCT of Kocsis and Szepesvári (2006), PUCT of Silver et al. (2017), with rollouts and virtual loss.

    Attributes
    ----------
    task : Task
    policy : Policy
    score : callable
        Of rollouts.
    drawn : dict
        Expanded state, by its tokens: its next states with their priors.
    states : dict
        Tokens to the text and its place: which child of which child.
    simulations : list
        States passed, and the text at the end.
    under_way : list
        States passed by descents that have not come back.
    """

    task: Task
    policy: Policy
    score: Score
    drawn: dict[Ids, dict[Ids, float]] = field(default_factory=dict)
    states: dict[Ids, tuple[Text, Ids]] = field(default_factory=lambda: {(): ((), ())})
    simulations: list[tuple[list[Ids], Text]] = field(default_factory=list)
    under_way: list[list[Ids]] = field(default_factory=list)

    def search(self) -> Plain:
        """The rollouts in the order of iterations."""
        p, iterations = self.policy.component(MonteCarloTreeSearch), self.policy.component(Iterations).iterations
        while len(self.simulations) < iterations and not self._exhausted(()):
            for _ in range(min(p.parallel, iterations - len(self.simulations))):
                if not self._exhausted(()):
                    self._descend()
            for passed in self.under_way:
                if not self._complete(passed[-1]):
                    yield from self._expand(passed[-1])
            for passed in self.under_way:
                if passed[-1] in self.drawn:
                    priors = self.drawn[passed[-1]]
                    passed.append(max(priors, key=priors.__getitem__))
            for passed in self.under_way:
                text, place = self.states[passed[-1]]
                end = text if self._complete(passed[-1]) else text + (yield _end(self.task, text, place))
                self.simulations.append((passed, end))
            self.under_way = []
        return [text for _, text in self.simulations]

    def _descend(self) -> None:
        passed: list[Ids] = [()]
        while passed[-1] in self.drawn:
            passed.append(self._choose(passed[-1]))
        self.under_way.append(passed)

    def _expand(self, state: Ids) -> Generator[Asked, Text, None]:
        text, place = self.states[state]
        weights: dict[Ids, float] = {}
        for child in range(self.policy.component(MonteCarloTreeSearch).children):
            new = yield _thought(self.task, self.policy, text, (*place, child))
            born = (*state, *ids(new))
            if born not in weights:
                weights[born] = math.exp(mean(new))
                self.states[born] = text + new, (*place, child)
        self.drawn[state] = {born: weight / sum(weights.values()) for born, weight in weights.items()}

    def _complete(self, state: Ids) -> bool:
        return _over(self.task, self.states[state][0])

    def _exhausted(self, state: Ids) -> bool:
        """Nothing is left to find: seen if complete, under way if a leaf, all below exhausted otherwise."""
        if self._complete(state):
            return self._visits(state) > 0
        if state not in self.drawn:
            return any(passed[-1] == state for passed in self.under_way)
        return all(self._exhausted(child) for child in self.drawn[state])

    def _visits(self, state: Ids) -> int:
        return sum(state in passed for passed in [*(passed for passed, _ in self.simulations), *self.under_way])

    def _value(self, state: Ids) -> float:
        rewards = [self.score(text) for _, text in self.simulations]
        here = [self.score(text) for passed, text in self.simulations if state in passed]
        low, high = min(rewards, default=0), max(rewards, default=0)
        unit = [(reward - low) / (high - low) if high > low else 0.5 for reward in here]
        return sum(unit) / self._visits(state) if unit else 0.0

    def _choose(self, state: Ids) -> Ids:
        p = self.policy.component(MonteCarloTreeSearch)
        c, parent = p.exploration, self._visits(state)

        def worth(child: Ids) -> float:
            n = self._visits(child)
            if p.select == "puct":
                return self._value(child) + c * self.drawn[state][child] * math.sqrt(parent) / (1 + n)
            return self._value(child) + c * math.sqrt(math.log(parent) / n) if n else math.inf

        going = [child for child in self.drawn[state] if not self._exhausted(child)]
        return max(going, key=lambda child: (worth(child), self.drawn[state][child]))


SEARCHES: Mapping[str, Callable[[Task, Policy, Score], Plain]] = {
    "power": lambda task, policy, _: power(task, policy),
    "entropy_tree": lambda task, policy, _: entropy_tree(task, policy),
    "mcts": lambda task, policy, score: MonteCarlo(task, policy, score).search(),
    "thought_tree": thought_tree,
    "step_beam": step_beam,
}
"""Controller to its reference."""
