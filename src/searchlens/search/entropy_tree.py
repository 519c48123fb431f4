"""Entropy tree: draw whole texts, branch anew where the model was least certain, keep every leaf.

The scheme of EPTree (Hou et al. 2025, TreeRL) with the criterion of Entropy-Tree (Wei et al. 2026): the
entropy of the full raw distribution instead of the surprisal of the token that was drawn, highest first or above a
threshold. A position is known by the tokens before it, its context. Two positions lie on one path where one context
begins the other; no two that were chosen on one path are closer than ``gap``, so no position is chosen twice. The first
token of a text and of a branch are never chosen, nor, with ``mask``, what stands behind a stated answer: EPTree masks
every token behind one that contains a word of ``WORDS``. It also masks what is over the limit of length, which no text
is here.

Leaves share their prefixes and are no independent draws. They are returned best first, equal ones as they were created:
roots, then round by round. A tree that finds fewer positions than it may is filled up with its best leaves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlens.engines.base import Completion, Request
from searchlens.errors import InputError
from searchlens.policies import Policy
from searchlens.policies.components import Value
from searchlens.search.task import EMPTY, Ask, Controller, Evaluator, Task, Trace, candidate

WORDS = ("answer", "conclusion")
"""Where an answer is taken to be stated, in lower case (Hou et al. 2025, published code)."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A root or branch.

    Attributes
    ----------
    path : tuple of int
        Root, then position and child of every branching on the way here.
    start : int
        Position of its first own token; a root's is 0.
    trace : Trace
        From the start of the text; before it is drawn only what it is drawn after.
    done : Completion or None
        What was drawn for it; None where a forced first token ended the text.
    """

    path: tuple[int, ...]
    start: int
    trace: Trace
    done: Completion | None = None

    def drawn(self, done: Completion) -> _Node:
        """The node with its text drawn to the end."""
        return replace(self, trace=self.trace.extend(done, done.finish), done=done)

    def measured(self, position: int) -> tuple[Completion, int]:
        """The completion that holds a position behind the first own token, and its place there."""
        assert self.done is not None
        return self.done, position - (len(self.trace.tokens) - len(self.done.tokens))

    @property
    def entropies(self) -> npt.NDArray[np.float32]:
        """Of the positions behind its first own token, shape (n - start - 1,), in nats."""
        if self.done is None:
            return np.zeros(0, np.float32)
        done, first = self.measured(self.start + 1)
        assert done.entropies is not None
        return done.entropies[first:]


def search(task: Task, policy: Policy, evaluator: Evaluator) -> Controller:
    """Grow ``roots`` trees, all branches of a round in one yield; every leaf is a candidate.

    Parameters
    ----------
    task : Task
    policy : Policy
        ``roots``; per tree and round at most ``positions`` (``select``: the highest entropies, or the highest of at
        least ``threshold`` nats), ``gap`` tokens apart, with ``children_per_position`` branches each; ``rounds``.
        ``children: distinct`` forces a branch's first token: the most likely ones of the raw model beside the one
        already there. ``free`` draws it. ``mask: words`` never branches behind a text that contains one of ``WORDS``,
        ``answer`` behind one of which ``task.answer`` reads an answer; by default nothing is masked.
    evaluator : Evaluator
        Scores the leaves.

    Returns
    -------
    Controller
        ``roots * (1 + positions * rounds * children_per_position)`` candidates, best first. The detail ``found`` of the
        first says how many there are before they repeat.

    Raises
    ------
    InputError
        The vocabulary has too few tokens for ``distinct`` children.
    """
    p = policy.parameters
    rounds = int(p["rounds"])
    stems = [_Node((root,), 0, EMPTY) for root in range(int(p["roots"]))]
    nodes = yield from _draw(task, policy, stems, measures=True)
    for done in range(1, rounds + 1):
        trees = [[node for node in nodes if node.path[0] == root.path[0]] for root in stems]
        branches = [branch for tree in trees for branch in _branches(task, tree, p)]
        nodes += yield from _draw(task, policy, branches, measures=done < rounds or evaluator.measures)
    traces = [node.trace for node in nodes]
    scores = yield from evaluator(task, traces, policy.local, ("leaves",))
    found = sorted(map(candidate, traces, scores), key=lambda one: -one.score)
    best, *others = islice(cycle(found), policy.width)
    return [replace(best, details={"found": len(found)}), *others]


def _draw(
    task: Task, policy: Policy, stems: Sequence[_Node], *, measures: bool
) -> Generator[list[Ask], list[Any], list[_Node]]:
    """Continue those that have not ended, at once; measures and alternatives where they may be branched from."""
    p = policy.parameters
    asks: list[Ask] = [
        Request(
            task.prompt,
            policy.local,
            task.seed_of("tree", *stem.path),
            task.max_tokens - len(stem.trace.tokens),
            task.stop_ids,
            prefix=stem.trace.prefix,
            measures=measures,
            top=int(p["children_per_position"]) + 1 if measures and p["children"] == "distinct" else 0,
        )
        for stem in stems
        if stem.trace.finish is None
    ]
    done = iter((yield asks) if asks else [])
    return [stem if stem.trace.finish else stem.drawn(next(done)) for stem in stems]


def _branches(task: Task, tree: Sequence[_Node], p: Mapping[str, Value]) -> Iterator[_Node]:
    """The branches of one round and tree, not yet drawn."""
    children = int(p["children_per_position"])
    for node, t in _positions(task, tree, p):
        if p["children"] == "distinct":
            traces = [_forced(task, node, t, rank) for rank in _alternatives(node, t, children)]
        else:
            traces = [node.trace.cut(t)] * children
        for child, trace in enumerate(traces):
            yield _Node((*node.path, t, child), t, trace)


def _positions(task: Task, tree: Sequence[_Node], p: Mapping[str, Value]) -> list[tuple[_Node, int]]:
    """Where a tree branches next: the highest entropy first, equal ones in order of creation, then of position."""
    unmasked = [node.entropies[: _stated(task, node, p) - node.start - 1] for node in tree]
    entropies = np.concatenate(unmasked)
    owners = np.repeat(np.arange(len(tree)), [len(one) for one in unmasked])
    places = np.concatenate([node.start + 1 + np.arange(len(one)) for node, one in zip(tree, unmasked, strict=True)])
    lowest = float(p["threshold"]) if p["select"] == "threshold" else -np.inf
    taken = [node.trace.tokens[: node.start] for node in tree if node.start]
    chosen: list[tuple[_Node, int]] = []
    for i in np.argsort(-entropies, kind="stable"):
        if len(chosen) == p["positions"] or entropies[i] < lowest:
            break
        node, t = tree[owners[i]], int(places[i])
        context = node.trace.tokens[:t]
        if not any(_close(context, other, int(p["gap"])) for other in taken):
            chosen.append((node, t))
            taken.append(context)
    return chosen


def _stated(task: Task, node: _Node, p: Mapping[str, Value]) -> int:
    """Behind how many tokens of a node an answer is stated, more than its first own one; all of them where none is.

    Found by bisection, for a reading costs as much as its text is long: a text that states an answer is taken to do so
    however it goes on.
    """
    text = node.trace.prefix

    def states(length: int) -> bool:
        if p["mask"] == "answer":
            return task.answer(text[:length]) is not None
        written = task.decode(text[:length]).lower()
        return any(word in written for word in WORDS)

    return bisect_left(range(len(text)), True, node.start + 1, key=states) if "mask" in p else len(text)


def _close(one: npt.NDArray[np.int32], other: npt.NDArray[np.int32], gap: int) -> bool:
    """Whether two contexts lie on one path, less than ``gap`` tokens apart."""
    shared = min(len(one), len(other))
    return abs(len(one) - len(other)) < gap and np.array_equal(one[:shared], other[:shared])


def _alternatives(node: _Node, t: int, children: int) -> list[int]:
    """Ranks of the most likely tokens at ``t`` that are possible and not the one already there.

    One token is taken at most: a position is branched from once, and its branches have contexts of their own behind it.
    """
    done, i = node.measured(t)
    assert done.top_tokens is not None and done.top_logprobs is not None
    possible = (done.top_tokens[i] != node.trace.tokens[t]) & np.isfinite(done.top_logprobs[i])
    if possible.sum() < children:
        raise InputError(
            f"entropy_tree: {children} distinct children per position need a vocabulary of more than {children} tokens,"
            f" but only {possible.sum()} others are possible",
            "lower children_per_position, or give the transition children: free",
        )
    return [int(rank) for rank in np.flatnonzero(possible)[:children]]


def _forced(task: Task, node: _Node, t: int, rank: int) -> Trace:
    """What ``node`` holds before ``t``, then the token of that rank; it was not drawn, so its log q is 0."""
    done, i = node.measured(t)
    assert done.top_tokens is not None and done.top_logprobs is not None
    token = Completion(
        tokens=done.top_tokens[i, rank : rank + 1],
        logprobs=done.top_logprobs[i, rank : rank + 1],
        sampling_logprobs=np.zeros(1, np.float32),
        finish="stop" if done.top_tokens[i, rank] in task.stop_ids else "length",
        certainties=None if done.certainties is None else done.certainties[i : i + 1],
    )
    ended = token.finish == "stop" or t + 1 == task.max_tokens
    return node.trace.cut(t).extend(token, token.finish if ended else None)
