"""Beam search over thoughts, and its diverse variant (DVTS), guided by an evaluator.

Beeching, Tunstall and Rush (2024), Scaling test-time compute with open models, and its code, search-and-learn; the beam
is that of Snell et al. (2024), Scaling LLM test-time compute optimally. With N = ``width`` and M = ``expand``:

- beam: N thoughts at each level, dealt out in turn over the N/M best paths of the level before (to begin with, over the
  empty path alone). Paths that have ended leave the beam for the list of answers; equal thoughts of a level count once.
  After the last level the N/M best are continued to their ends, N times in all. The N best answers are returned.
- diverse: N/M subtrees that never compete. Each draws M thoughts at each level and goes on with the best; if that has
  ended, so has the subtree. Its answers are its last M children, those that have not ended run to their ends.

The published diverse variant leaves such last children unfinished and also ends a path at a boxed answer; here only
tokens that end a text do.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import cycle, islice
from typing import Any

from searchlens.policies import Policy
from searchlens.search.task import Ask, Controller, Evaluator, Task
from searchlens.search.thoughts import Growth, Path, Thoughts, distinct


def search(task: Task, policy: Policy, evaluator: Evaluator) -> Controller:
    """Search one beam, or ``width / expand`` subtrees.

    Parameters
    ----------
    task : Task
    policy : Policy
        ``width``, ``expand``, ``diverse`` and the number of levels, ``depth``.
    evaluator : Evaluator
        Scores the new paths of a level in one call, each subtree on its own; then all answers in one.

    Returns
    -------
    Controller
        ``width`` candidates, best first; too few are repeated.
    """
    width, expand, depth = (int(policy.parameters[key]) for key in ("width", "expand", "depth"))
    tree = Thoughts(task, policy, evaluator)
    if policy.parameters["diverse"] == "yes":
        roots = [Path(place=(i,)) for i in range(width // expand)]
        subtrees = yield from _together([_subtree(tree, root, expand, depth) for root in roots])
        return (yield from tree.answers([path for paths in subtrees for path in paths]))
    return (yield from tree.answers((yield from _beam(tree, width, width // expand, depth))))


def _beam(tree: Thoughts, width: int, keep: int, depth: int) -> Growth:
    """All paths of a beam that have ended."""
    kept, ended = [Path()], list[Path]()
    for level in range(depth):
        born = yield from tree.think(list(islice(cycle(kept), width)))
        ranked = yield from tree.ranked(distinct(born), ("level", level))
        ended += [path for path in ranked if path.finished]
        kept = [path for path in ranked if not path.finished][:keep]
        if not kept:
            return ended
    return ended + (yield from tree.complete(list(islice(cycle(kept), width))))


def _subtree(tree: Thoughts, root: Path, expand: int, depth: int) -> Growth:
    """The last children of a subtree, all at their ends."""
    best = root
    for level in range(depth):
        children = yield from tree.think([best] * expand)
        best = (yield from tree.ranked(children, ("level", *root.place, level)))[0]
        if best.finished:
            return (yield from tree.complete(children))
    return (yield from tree.complete([best] * expand))


def _together(parts: Sequence[Growth]) -> Generator[list[Ask], list[Any], list[list[Path]]]:
    """Run generators side by side: what they ask for at a time becomes one list."""
    returned: dict[int, list[Path]] = {}
    replies: dict[int, Any] = dict.fromkeys(range(len(parts)))
    while True:
        asked: dict[int, list[Ask]] = {}
        for i, reply in replies.items():
            try:
                asked[i] = parts[i].send(reply)
            except StopIteration as end:
                returned[i] = end.value
        if not asked:
            return [returned[i] for i in range(len(parts))]
        received = iter((yield [ask for asks in asked.values() for ask in asks]))
        replies = {i: list(islice(received, len(asks))) for i, asks in asked.items()}
