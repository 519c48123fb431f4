"""Entropy tree: draw whole texts, branch where the model was least certain, and return every leaf.

The scheme of EPTree (Hou et al. 2025, TreeRL) with the criterion of Entropy-Tree (Wei et al. 2026): the
entropy of the full raw distribution instead of the surprisal of the token that was drawn, highest first or above a
threshold. A position is identified by the tokens before it, its context. Two positions lie on one path if one context
begins the other; no two positions on one path are chosen closer than ``gap``, so no position is chosen twice. The first
token of a text and of a branch are never chosen, nor, with ``mask``, what comes after a stated answer: EPTree masks
every token after one that contains a word of ``WORDS``. It also masks what is over the limit of length, which no text
is here.

Leaves share their prefixes and are no independent draws. They are returned best first, equal ones as they were created:
roots, then round by round. A tree that finds fewer positions than it may branch at is filled up with its best leaves.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from searchlens.catalogue import controller
from searchlens.errors import InputError
from searchlens.search.components import Branch, Controller, Rounds, choice, number, whole
from searchlens.search.policy import Policy, Texts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from searchlens.engines.base import Completion
    from searchlens.search.task import Ask, Evaluator, Search, Task, Trace

WORDS = ("answer", "conclusion")
"""Words that state an answer, in lower case (Hou et al. 2025, published code)."""


@controller(
    "entropy_tree",
    evaluators=("mean_logprob", "sequence_logprob", "self_certainty"),
    transitions=("branch",),
    schedulers=("rounds",),
    index=2,
    colour="#E69F00",
)
@dataclass(frozen=True, slots=True)
class EntropyTree(Controller):
    """``roots`` trees that grow by ``rounds`` of branches; every leaf is a candidate.

    Per tree and round there are at most ``positions``, ``gap`` tokens apart: those of the highest entropies
    (``select: top``), or the highest of at least ``threshold`` nats (``select: threshold``). Each gets
    ``children_per_position`` branches.

    The transition says how a branch begins. ``children: distinct`` forces its first token: the most likely tokens of
    the raw model besides the one already there. ``free`` draws it. ``mask: words`` never branches after a text that
    contains one of ``WORDS``, ``answer`` after one from which ``task.answer`` reads an answer; ``none`` masks nothing.
    """

    roots: int = whole(1)
    positions: int = whole(3)
    children_per_position: int = whole(1)
    select: str = choice("top", "threshold")
    threshold: float = number(1.0, at_least=0, at_most=100)

    def candidates(self, policy: Policy) -> int:
        """``roots * (1 + positions * rounds * children_per_position)``."""
        rounds = policy.component(Rounds).rounds
        return self.roots * (1 + self.positions * rounds * self.children_per_position)

    def check(self, policy: Policy) -> None:
        """Texts must differ, and a threshold must have an effect."""
        if policy.local.temperature == 0 and (self.roots != 1 or policy.component(Branch).children == "free"):
            raise InputError(
                "at temperature 0 the roots of a tree, and children drawn freely, are all alike",
                "give local.temperature above 0, or roots: 1 and children: distinct",
            )
        default = EntropyTree(self.name).threshold
        if self.select == "top" and self.threshold != default:
            raise InputError(
                f"controller entropy_tree: threshold is {self.threshold}, which has no effect with select: top;"
                f" allowed: {default}, the default",
                "give select: threshold, or leave out threshold",
            )

    def vocabulary_limits(self, policy: Policy, drawable: int, stop_ids: Sequence[int]) -> Mapping[str, int]:
        """Distinct children differ from one another and from the token already there."""
        return {"children_per_position": drawable - 1} if policy.component(Branch).children == "distinct" else {}

    def expected_tokens(self, policy: Policy, texts: Texts) -> float:
        """Every branch redraws half of a text."""
        branches = self.positions * policy.component(Rounds).rounds * self.children_per_position
        return self.roots * texts.mean * (1 + branches / 2)

    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        """All branches of a round are requested at once.

        The detail ``found`` of the first candidate is the number of leaves before they repeat. Raises InputError if the
        vocabulary has too few tokens for ``distinct`` children.
        """
        rounds = policy.component(Rounds).rounds
        roots = [_Node((root,), 0, task.empty) for root in range(self.roots)]
        nodes = yield from self._draw(task, policy, roots, 0, measures=True)
        for done in range(1, rounds + 1):
            trees = [[node for node in nodes if node.path[0] == root.path[0]] for root in roots]
            branches = [branch for tree in trees for branch in self._branches(task, policy, tree)]
            measures = done < rounds or evaluator.measures
            nodes += yield from self._draw(task, policy, branches, done, measures=measures)
        traces = [node.trace for node in nodes]
        scores = yield from evaluator(task, traces, policy.local, ("leaves",))
        task.note("scored", nodes=[node.path for node in nodes], scores=scores, step=rounds)
        candidates = [trace.candidate(score) for trace, score in zip(traces, scores, strict=True)]
        candidates.sort(key=lambda candidate: -candidate.score)
        best, *others = islice(cycle(candidates), policy.width)
        return [best._replace(details={"found": len(candidates)}), *others]

    def _draw(
        self, task: Task, policy: Policy, nodes: Sequence[_Node], step: int, *, measures: bool
    ) -> Generator[list[Ask], list[Any], list[_Node]]:
        """Continue the nodes that have not ended; with measures and alternatives if they may be branched from."""
        is_distinct = policy.component(Branch).children == "distinct"
        top = self.children_per_position + 1 if measures and is_distinct else 0
        asks: list[Ask] = [
            task.request(node.trace, policy.local, task.seed_of("tree", *node.path), measures=measures, top=top)
            for node in nodes
            if node.trace.finish is None
        ]
        replies = iter((yield asks) if asks else [])
        drawn = []
        for node in nodes:
            if not node.trace.finish:
                reply = next(replies)
                node = replace(node, trace=task.extend(node.trace, reply), reply=reply)  # noqa: PLW2901 - the same one
            drawn.append(node)
            about = {"parent": node.parent, "start": node.start, "entropy": node.entropy, "rank": node.rank}
            task.note("node", node=node.path, path=node.trace, step=step, **about)
        return drawn

    def _branches(self, task: Task, policy: Policy, tree: Sequence[_Node]) -> Iterator[_Node]:
        """The branches of one round and tree, not yet drawn."""
        transition, children = policy.component(Branch), self.children_per_position
        for node, t in self._positions(task, transition, tree):
            reply, place = node.measured(t)
            assert reply.entropies is not None, "positions have measures"
            ranks: list[int | None] = [None] * children
            if transition.children == "distinct":
                ranks = [*_alternatives(node, t, children)]
            for child, rank in enumerate(ranks):
                trace = node.trace.cut(t)
                if rank is not None:  # the token of that rank, which was not drawn, so its log q is 0
                    trace = task.force(trace, reply, place, rank)
                entropy = float(reply.entropies[place])
                yield _Node((*node.path, t, child), t, trace, entropy=entropy, rank=rank, parent=node.path)

    def _positions(self, task: Task, transition: Branch, tree: Sequence[_Node]) -> list[tuple[_Node, int]]:
        """Where a tree branches next: the highest entropy first, equal ones in order of creation, then of position."""
        import numpy as np  # not above: the planner imports this file

        drawn = [node for node in tree if node.reply is not None]
        stated = [_stated(task, node, transition.mask) for node in drawn]
        if transition.mask != "none":
            for node, length in zip(drawn, stated, strict=True):
                task.note("node", node=node.path, masked_from=length)
        unmasked = [node.entropies[: length - node.start - 1] for node, length in zip(drawn, stated, strict=True)]
        entropies = np.concatenate(unmasked)
        owners = np.repeat(np.arange(len(drawn)), [len(part) for part in unmasked])
        places = np.concatenate(
            [node.start + 1 + np.arange(len(part)) for node, part in zip(drawn, unmasked, strict=True)]
        )
        lowest = self.threshold if self.select == "threshold" else -math.inf
        contexts = [node.trace.tokens[: node.start] for node in tree if node.start]
        chosen: list[tuple[_Node, int]] = []
        for i in np.argsort(-entropies, kind="stable"):
            if len(chosen) == self.positions or entropies[i] < lowest:
                break
            node, t = drawn[owners[i]], int(places[i])
            context = node.trace.tokens[:t]
            close = [other for other in contexts if abs(len(other) - t) < transition.gap]
            # Contexts lie on one path if one begins the other.
            if not any((context[: len(other)] == other[:t]).all() for other in close):
                chosen.append((node, t))
                contexts.append(context)
        return chosen


@dataclass(frozen=True, slots=True)
class _Node:
    """A root or branch."""

    path: tuple[int, ...]
    """Root, then position and child of every branching on the way here."""
    start: int
    """Position of its first own token; a root's is 0."""
    trace: Trace
    """From the start of the text; before it is drawn only what it is drawn after."""
    reply: Completion | None = None
    """What was drawn for it; None if a forced first token ended the text."""
    parent: tuple[int, ...] | None = None
    """``path`` of the node that it branches from; None of a root."""
    entropy: float | None = None
    """Of the parent's position ``start``, in nats."""
    rank: int | None = None
    """Of its first own token among the most likely ones there, the first is 0; None if it was drawn."""

    def measured(self, position: int) -> tuple[Completion, int]:
        """The completion that holds a position after the first own token, and its place there."""
        assert self.reply is not None
        return self.reply, position - (len(self.trace.tokens) - len(self.reply.tokens))

    @property
    def entropies(self) -> npt.NDArray[np.float32]:
        """Of the positions after its first own token, shape (n - start - 1,), in nats."""
        reply, first = self.measured(self.start + 1)
        assert reply.entropies is not None
        return reply.entropies[first:]


def _stated(task: Task, node: _Node, mask: str) -> int:
    """Number of tokens of a node after which an answer is stated, at least one own token; all if none is stated.

    Found by bisection, because a reading costs as much as its text is long: a text that states an answer is taken to do
    so however it goes on.
    """
    text = node.trace.prefix
    if mask == "none":
        return len(text)

    def is_stated(length: int) -> bool:
        if mask == "answer":
            return task.answer(text[:length]) is not None
        written = task.decode(text[:length]).lower()
        return any(word in written for word in WORDS)

    return bisect_left(range(len(text)), True, node.start + 1, key=is_stated)


def _alternatives(node: _Node, t: int, children: int) -> list[int]:
    """Ranks of the most likely tokens at ``t`` that are possible and not the one already there.

    One token is taken at most: a position is branched from once, and its branches have contexts of their own after it.
    """
    reply, i = node.measured(t)
    assert reply.top_tokens is not None and reply.top_logprobs is not None
    possible = (reply.top_tokens[i] != node.trace.tokens[t]) & (reply.top_logprobs[i] > -math.inf)
    ranks: list[int] = possible.nonzero()[0].tolist()
    if len(ranks) < children:
        raise InputError(
            f"entropy_tree: {children} distinct children per position need a vocabulary of more than {children} tokens,"
            f" but only {len(ranks)} others are possible",
            "lower children_per_position, or give the transition children: free",
        )
    return ranks[:children]
