"""Monte Carlo tree search over thoughts, one tree per run; every iteration ends with one complete text.

An iteration selects a leaf by UCT or PUCT, expands it by thoughts, simulates by drawing the most promising of them to
its end (the rollout), and propagates the score of the rollout back to the root. Decided explicitly:

- An evaluator that compares paths scores all rollouts so far in one call, others the new ones. All scores so far are
  scaled to [0, 1] by the lowest and the highest, because likelihoods have no natural range (MuZero does so with mean
  values; Schrittwieser et al. 2020). While they are within ``SAME`` they are equal and count 1/2. A rollout is a
  finished path, so evaluators draw none of their own.
- A text has one score, the first that it was given. The last digits of a score depend on what shares the engine's
  batch; stretched to [0, 1], they would decide where the search goes.
- A child that was never visited comes first in UCT and has value 0 in PUCT, as in MuZero. Ties go to the higher prior,
  then to the child that was drawn first.
- Priors are proportional to the geometric mean probability of a thought's tokens under the raw model.
- Equal thoughts of one node are one child: it is neither counted nor weighted twice.
- A node whose thought ended the text is its own rollout. It is visited once, since another visit would teach nothing;
  a node whose children are all closed is closed too. Once the root is closed the tree is fully explored, and its
  rollouts are repeated, the best first.
- Up to ``parallel`` leaves, all different, are under way at a time. From its selection until the scores return, each
  counts as a visit of value 0 to every node above it (virtual loss).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, ClassVar

from searchlens.catalogue import controller
from searchlens.search.components import Controller, Iterations, Thought, choice, number, require_draws, whole
from searchlens.search.policy import Policy, Texts
from searchlens.search.thoughts import Path, Thoughts

if TYPE_CHECKING:
    from searchlens.search.task import Ask, Evaluator, Search, Task, Trace

SAME = 1e-4
"""Scores of a smaller range count as equal."""
Descent = list["Node"]
"""Nodes from the root to the one whose rollout ends an iteration."""


@controller("mcts", transitions=("thought",), schedulers=("iterations",), index=4, colour="#332288")
@dataclass(frozen=True, slots=True)
class MonteCarloTreeSearch(Controller):
    """One tree of ``children`` thoughts per node, searched for ``iterations``, ``parallel`` of them at a time.

    An iteration asks for at most ``children + 1`` continuations, and gives one candidate.
    """

    version: ClassVar[int] = 2  # 1 told scores apart that differ in their last digits alone

    select: str = choice("puct", "uct")
    exploration: float = number(1.0, at_least=0, at_most=1000)
    children: int = whole(3)
    parallel: int = whole(1)

    def candidates(self, policy: Policy) -> int:
        """One per iteration."""
        return policy.component(Iterations).iterations

    def check(self, policy: Policy) -> None:
        """At temperature 0 all children of a node are alike."""
        require_draws(policy)

    def expected_tokens(self, policy: Policy, texts: Texts) -> float:
        """``children`` thoughts for each leaf that is expanded, and a rollout of T tokens if the best of them goes on.

        An iteration takes one open leaf. An ended one costs nothing more; an unended one is expanded, its best child
        stays a leaf unless it has ended, and each of the others is a new leaf if it is a new thought. So the leaves
        are a branching process, which the iterations follow until none is left.
        """
        thought, unended = texts.thoughts(policy.component(Thought).max_tokens)
        trials, new = self.children - 1, texts.distinct
        more = trials * new
        gains: dict[int, float] = {}  # leaves gained by an expansion, with their probabilities
        for extra in range(trials + 1):
            chance = math.comb(trials, extra) * new**extra * (1 - new) ** (trials - extra)
            for best, share in ((1, unended), (0, 1 - unended)):
                gains[extra + best] = gains.get(extra + best, 0.0) + chance * share
        is_unended, expanded, leaves = 1.0, 0.0, {1: 1.0}
        for left in range(policy.component(Iterations).iterations, 0, -1):
            expanded += is_unended * sum(leaves.values())
            after: dict[int, float] = {}
            for count, chance in leaves.items():
                for gain, share in ((0, 1 - is_unended), *((n, is_unended * p) for n, p in gains.items())):
                    open_now = min(count - 1 + gain, left)  # no more can be taken
                    if open_now:
                        after[open_now] = after.get(open_now, 0.0) + chance * share
            leaves = after
            is_unended = unended * (1 + more) / (unended + more) if unended else 0.0
        return expanded * (self.children * thought + unended * texts.mean)

    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        """The rollouts, best first, equal ones in the order of iterations.

        The detail ``found`` of the first candidate is the number of rollouts before they repeat. Raises ValueError if a
        score is not a finite number.
        """
        thoughts, rule = Thoughts(task, policy, evaluator), Rule(self.select, self.exploration)
        root, iterations = Node(thoughts.root()), policy.component(Iterations).iterations
        descents: list[Descent] = []
        ends: list[Path] = []
        rollouts: list[Trace] = []
        scores: list[float] = []
        values: list[float] = []
        waves = 0
        while len(rollouts) < iterations and root.is_open:
            waves += 1
            wave = select(root, rule, min(self.parallel, iterations - len(rollouts)))
            yield from expand(wave, rule, thoughts, self.children, waves)
            new = yield from thoughts.complete([nodes[-1].path for nodes in wave], waves)
            ends += new
            rollouts += [path.trace for path in new]
            descents += wave
            scores = yield from evaluate(rollouts, scores, thoughts)
            before, values = values, scaled(scores)
            back_propagate(descents, values, len(before) if values[: len(before)] == before else 0)
            if task.is_recorded:
                for descent, path in zip(wave, new, strict=True):
                    task.note("iteration", node=path.name, nodes=[node.path.name for node in descent], step=waves)
                first = 0 if evaluator.compares else len(ends) - len(new)
                task.note("scored", nodes=[path.name for path in ends[first:]], scores=scores[first:], step=waves)
        nodes = [root] if task.is_recorded else []
        while nodes:
            node = nodes.pop()
            task.note("node", node=node.path.name, visits=node.visits, value=node.value, is_open=node.is_open)
            nodes += node.children
        candidates = [rollout.candidate(score) for rollout, score in zip(rollouts, scores, strict=True)]
        candidates.sort(key=lambda candidate: -candidate.score)
        best, *others = islice(cycle(candidates), iterations)
        return [best._replace(details={"found": len(candidates)}), *others]


@dataclass(slots=True, eq=False)
class Node:
    """A path of thoughts, with the statistics of the iterations through it."""

    path: Path
    prior: float = 1.0
    """Share among its siblings, in [0, 1]."""
    children: list[Node] = field(default_factory=list)
    """Empty until it is expanded."""
    visits: int = 0
    """Descents through this node, those under way included."""
    values: list[float] = field(default_factory=list)
    """Their scaled scores; those under way have none, which counts as 0."""
    is_open: bool = True
    """Whether a descent may end here or below."""

    @property
    def value(self) -> float:
        """Mean over its visits, in [0, 1]; 0 without any. The order of the values does not change its last digit."""
        return math.fsum(self.values) / self.visits if self.visits else 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """Which child a descent goes to."""

    select: str
    exploration: float
    """c >= 0."""

    def __call__(self, parent: Node, child: Node) -> float:
        """How much a child of ``parent`` is worth a visit.

        With the child's value Q, prior P and visits n, and N visits of its parent, UCT is ``Q + c sqrt(ln(N) / n)``,
        infinite for n = 0 (Kocsis and Szepesvári 2006), and PUCT is ``Q + c P sqrt(N) / (1 + n)`` (Silver et al. 2017).
        """
        if self.select == "puct":
            return child.value + self.exploration * child.prior * math.sqrt(parent.visits) / (1 + child.visits)
        if not child.visits:
            return math.inf
        return child.value + self.exploration * math.sqrt(math.log(parent.visits) / child.visits)

    def best_child(self, node: Node) -> Node:
        """The open child that is most worth a visit."""
        children = [child for child in node.children if child.is_open]
        return children[0] if len(children) == 1 else max(children, key=lambda child: (self(node, child), child.prior))


def select(root: Node, rule: Rule, most: int) -> list[Descent]:
    """Up to ``most`` descents to different open leaves, all under way from now on."""
    descents: list[Descent] = []
    while len(descents) < most and root.is_open:
        descents.append(descend(root, rule))
    return descents


def descend(root: Node, rule: Rule) -> Descent:
    """Nodes from the root to an open leaf, which is under way from now on."""
    nodes = [root]
    while nodes[-1].children:
        nodes.append(rule.best_child(nodes[-1]))
    for node in reversed(nodes):
        node.visits += 1
        node.is_open = any(child.is_open for child in node.children)
    return nodes


def expand(
    descents: Sequence[Descent], rule: Rule, thoughts: Thoughts, children: int, step: int = 0
) -> Generator[list[Ask], list[Any], None]:
    """Give every unfinished leaf its children, all drawn at once, and let its descent go on to the best of them."""
    leaves = [nodes[-1] for nodes in descents if not nodes[-1].path.is_finished]
    drawn = iter((yield from thoughts.think([leaf.path for leaf in leaves for _ in range(children)], step)))
    for leaf in leaves:
        paths = thoughts.distinct(list(islice(drawn, children)))
        leaf.children = [Node(path, prior) for path, prior in zip(paths, _priors(leaf.path, paths), strict=True)]
        if thoughts.task.is_recorded:
            for child in leaf.children:
                thoughts.task.note("node", node=child.path.name, prior=child.prior)
    for nodes in descents:
        if nodes[-1].children:
            nodes.append(rule.best_child(nodes[-1]))
            nodes[-1].visits += 1


def _priors(parent: Path, children: Sequence[Path]) -> list[float]:
    """Geometric mean probability of the tokens of each last thought, as shares."""
    if len(children) == 1:
        return [1.0]
    import numpy as np  # not above: the planner imports this file

    before = len(parent.trace.tokens)
    own = [child.trace.logprobs[before:] for child in children]
    means = [float(np.add.reduce(logprobs, dtype=np.float64)) / len(logprobs) for logprobs in own]
    highest = max(means)
    weights = np.exp([mean - highest for mean in means])
    shares: list[float] = (weights / np.add.reduce(weights)).tolist()
    return shares


def evaluate(
    rollouts: Sequence[Trace], scores: list[float], thoughts: Thoughts
) -> Generator[list[Ask], list[Any], list[float]]:
    """Scores of all rollouts; ``scores`` are those of earlier ones, which count unless the evaluator compares."""
    earlier = [] if thoughts.evaluator.compares else scores
    key = ("rollouts", len(rollouts))
    new = yield from thoughts.evaluator(thoughts.task, rollouts[len(earlier) :], thoughts.policy.local, key)
    first: dict[bytes, float] = {}
    given = zip(rollouts, earlier + thoughts.finite(new), strict=True)
    return [first.setdefault(rollout.tokens.tobytes(), score) for rollout, score in given]


def back_propagate(descents: Sequence[Descent], values: Sequence[float], known: int = 0) -> None:
    """Give every node the values of all descents through it; no descent is under way after that.

    The nodes have the values of the ``known`` first descents already, or are given all of them anew if it is 0.
    """
    if not known:
        for nodes in descents:
            for node in nodes:
                node.values = []
    for nodes, value in zip(descents[known:], values[known:], strict=True):
        for node in reversed(nodes):
            node.values.append(value)
            node.is_open = any(child.is_open for child in node.children) if node.children else not node.path.is_finished


def scaled(scores: Sequence[float]) -> list[float]:
    """Finite scores between 0 (the lowest) and 1 (the highest); 1/2 if all are within ``SAME``."""
    lowest, highest = min(scores), max(scores)
    if highest - lowest < SAME:
        return [0.5] * len(scores)
    return [(score - lowest) / (highest - lowest) for score in scores]
