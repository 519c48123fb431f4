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
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, ClassVar

from searchlens.catalogue import controller
from searchlens.errors import InputError
from searchlens.search.components import BreadthFirst, Controller, choice, require_draws, whole
from searchlens.search.policy import Policy
from searchlens.search.thoughts import Growth, Path, Thoughts

if TYPE_CHECKING:
    from searchlens.search.task import Ask, Evaluator, Search, Task
    from searchlens.search.text_policies import Texts


@controller("step_beam", transitions=("thought",), schedulers=("breadth_first",), index=1, colour="#DDCC77")
@dataclass(frozen=True, slots=True)
class StepBeam(Controller):
    """One beam, or ``width / expand`` subtrees if ``diverse``.

    The evaluator scores the new paths of a level in one call, each subtree on its own; then all answers in one. If
    there are too few answers, they are repeated.
    """

    prefixes: ClassVar[bool] = False

    width: int = whole(4)
    expand: int = whole(4)
    diverse: str = choice("no", "yes")

    def candidates(self, policy: Policy) -> int:
        """The width."""
        del policy
        return self.width

    def check(self, policy: Policy) -> None:
        """The width is dealt out in whole expansions, of thoughts that differ."""
        require_draws(policy)
        if self.width % self.expand:
            raise InputError(f"width {self.width} is no multiple of expand {self.expand}")

    def expected_tokens(self, policy: Policy, texts: Texts) -> float:
        """``width`` thoughts a level until the longest of the paths that are kept has ended; a subtree keeps one."""
        del policy
        return self.width * texts.longest(1 if self.diverse == "yes" else self.width // self.expand)

    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        """``width`` candidates."""
        tree, depth = Thoughts(task, policy, evaluator), policy.component(BreadthFirst).depth
        paths = yield from self._subtrees(tree, depth) if self.diverse == "yes" else self._beam(tree, depth)
        return (yield from tree.answers(paths, depth + 1))

    def _beam(self, tree: Thoughts, depth: int) -> Growth:
        """All paths of a beam that have ended."""
        beam, ended = [tree.root()], list[Path]()
        for level in range(depth):
            new = yield from tree.think(list(islice(cycle(beam), self.width)), level + 1)
            ranked = yield from tree.ranked(tree.distinct(new), ("level", level), level + 1)
            new_ended = [path for path in ranked if path.is_finished]
            ended += new_ended
            beam = [path for path in ranked if not path.is_finished][: self.width // self.expand]
            tree.note_chosen(ranked, new_ended + beam, level + 1)
            if not beam:
                return ended
        return ended + (yield from tree.complete(list(islice(cycle(beam), self.width)), depth + 1))

    def _subtrees(self, tree: Thoughts, depth: int) -> Growth:
        """The last children of all subtrees."""
        roots = [tree.root(i) for i in range(self.width // self.expand)]
        children = yield from _together([self._subtree(tree, root, depth) for root in roots])
        return [path for paths in children for path in paths]

    def _subtree(self, tree: Thoughts, root: Path, depth: int) -> Growth:
        """The last children of a subtree, all at their ends."""
        best = root
        for level in range(depth):
            children = yield from tree.think([best] * self.expand, level + 1)
            ranked = yield from tree.ranked(children, ("level", *root.place, level), level + 1)
            best = ranked[0]
            tree.note_chosen(ranked, [best], level + 1)
            if best.is_finished:
                return (yield from tree.complete(children, depth + 1))
        return (yield from tree.complete([best] * self.expand, depth + 1))


def _together(growths: Sequence[Growth]) -> Generator[list[Ask], list[Any], list[list[Path]]]:
    """Run generators at the same time: what all of them ask for at a time becomes one list."""
    returned: dict[int, list[Path]] = {}
    replies: dict[int, Any] = dict.fromkeys(range(len(growths)))
    while True:
        asks: dict[int, list[Ask]] = {}
        for i, reply in replies.items():
            try:
                asks[i] = growths[i].send(reply)
            except StopIteration as end:
                returned[i] = end.value
        if not asks:
            return [returned[i] for i in range(len(growths))]
        received = iter((yield [ask for of_growth in asks.values() for ask in of_growth]))
        replies = {i: list(islice(received, len(of_growth))) for i, of_growth in asks.items()}
