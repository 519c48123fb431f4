"""Monte Carlo tree search over thoughts, one tree per run; every iteration ends with one complete text.

An iteration descends by UCT or PUCT to a node without children, expands it by thoughts, draws the most probable one of
them to its end (the rollout), and backs up what the evaluator says of the rollout. Decided explicitly:

- An evaluator that compares paths scores all rollouts so far in one call, others the new ones. All scores so far are
  scaled to [0, 1] by the lowest and the highest, because likelihoods have no natural range (MuZero does so with mean
  values; Schrittwieser et al. 2020). While all are equal they count 1/2. A rollout is a finished path, so evaluators
  draw none of their own.
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
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlens.policies import Policy
from searchlens.search.task import Ask, Controller, Evaluator, Task, Trace, candidate
from searchlens.search.thoughts import Path, Thoughts, distinct


@dataclass(slots=True, eq=False)
class Node:
    """A path of thoughts and what is known of it.

    Attributes
    ----------
    path : Path
    prior : float
        Share among its siblings, in [0, 1].
    children : list of Node
        Empty until it is expanded.
    visits : int
        Descents that came through here, those under way included.
    total : float
        Sum of their scaled values; those under way have 0.
    open : bool
        Whether a descent may end here or below.
    """

    path: Path
    prior: float = 1.0
    children: list[Node] = field(default_factory=list)
    visits: int = 0
    total: float = 0.0
    open: bool = True

    @property
    def value(self) -> float:
        """Mean over its visits, in [0, 1]; 0 without any."""
        return self.total / self.visits if self.visits else 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """Which child a descent goes to.

    Attributes
    ----------
    select : {"puct", "uct"}
    exploration : float
        c >= 0.
    """

    select: str
    exploration: float

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
        return max((child for child in node.children if child.open), key=lambda child: (self(node, child), child.prior))


def search(task: Task, policy: Policy, evaluator: Evaluator) -> Controller:
    """Search one tree.

    Parameters
    ----------
    task : Task
    policy : Policy
        ``select`` and ``exploration``; ``children`` thoughts per node; ``iterations``, ``parallel`` of them at a time.
        They ask for at most ``iterations * (children + 1)`` continuations.
    evaluator : Evaluator
        Scores the rollouts.

    Returns
    -------
    Controller
        ``iterations`` candidates, best first, equal ones in the order of iterations. The detail ``found`` of the first
        says how many there are before they repeat.

    Raises
    ------
    ValueError
        A score is not a finite number.
    """
    p = policy.parameters
    rule = Rule(str(p["select"]), float(p["exploration"]))
    thoughts = Thoughts(task, policy, evaluator)
    root = Node(Path())
    descents, rollouts, scores = list[list[Node]](), list[Trace](), list[float]()
    while len(rollouts) < policy.width and root.open:
        wave: list[list[Node]] = []
        while len(wave) < min(int(p["parallel"]), policy.width - len(rollouts)) and root.open:
            wave.append(descend(root, rule))
        yield from _expand(thoughts, [nodes[-1] for nodes in wave if not nodes[-1].path.finished], int(p["children"]))
        for nodes in wave:
            if nodes[-1].children:
                nodes.append(rule.best_child(nodes[-1]))
                nodes[-1].visits += 1
        ends = yield from thoughts.complete([nodes[-1].path for nodes in wave])
        rollouts += [path.trace for path in ends]
        descents += wave
        known = [] if evaluator.compares else scores
        new = yield from evaluator(task, rollouts[len(known) :], policy.local, ("rollouts", len(rollouts)))
        scores = known + thoughts.finite(new)
        back_up(descents, scaled(scores))
    found = sorted(map(candidate, rollouts, scores), key=lambda one: -one.score)
    best, *others = islice(cycle(found), policy.width)
    return [replace(best, details={"found": len(found)}), *others]


def descend(root: Node, rule: Rule) -> list[Node]:
    """Nodes from the root to an open leaf, which is under way from now on."""
    nodes = [root]
    while nodes[-1].children:
        nodes.append(rule.best_child(nodes[-1]))
    for node in reversed(nodes):
        node.visits += 1
        node.open = any(child.open for child in node.children)
    return nodes


def back_up(descents: Sequence[Sequence[Node]], values: Sequence[float]) -> None:
    """Give every node the sum of the values of all descents through it; nothing is under way any more."""
    for nodes in descents:
        for node in nodes:
            node.total = 0.0
    for nodes, value in zip(descents, values, strict=True):
        for node in reversed(nodes):
            node.total += value
            node.open = any(child.open for child in node.children) if node.children else not node.path.finished


def scaled(scores: Sequence[float]) -> list[float]:
    """Finite scores between 0 (the lowest) and 1 (the highest); 1/2 where all are equal."""
    lowest, highest = min(scores), max(scores)
    if lowest == highest:
        return [0.5] * len(scores)
    return [(score - lowest) / (highest - lowest) for score in scores]


def _expand(thoughts: Thoughts, leaves: Sequence[Node], children: int) -> Generator[list[Ask], list[Any], None]:
    """Draw the thoughts of every leaf at once."""
    born = yield from thoughts.think([leaf.path for leaf in leaves for _ in range(children)])
    for i, leaf in enumerate(leaves):
        paths = distinct(born[i * children : (i + 1) * children])
        leaf.children = [Node(path, prior) for path, prior in zip(paths, _priors(leaf.path, paths), strict=True)]


def _priors(parent: Path, children: Sequence[Path]) -> list[float]:
    """Geometric mean probability of the tokens of each last thought, as shares."""
    before = len(parent.trace.tokens)
    means = np.array([child.trace.logprobs[before:].mean(dtype=np.float64) for child in children])
    weights: npt.NDArray[np.float64] = np.exp(means - means.max())
    return [float(weight) for weight in weights / weights.sum()]
