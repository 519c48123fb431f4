"""Tree of Thoughts, breadth first: several thoughts after each path of a level, and the best paths go on.

Yao et al. (2023), Tree of Thoughts: deliberate problem solving with large language models, algorithm 2 (ToT-BFS) with
independently sampled thoughts and values of paths. What the paper leaves open for free text:

- Thoughts end at the step delimiter. A path that ends while others go on competes with them and keeps its place as long
  as it is among the best; after the last level, the paths that have not ended are run to their ends.
- The paper's algorithm returns one answer; here all that are left at the end are returned, best first.
- Of equal thoughts at a level the first counts. The authors' code gives the others the value 0, the worst of its
  values; among log-probabilities it would be the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from searchlens.catalogue import controller
from searchlens.search.components import BreadthFirst, Controller, Thought, require_draws, whole
from searchlens.search.policy import Policy
from searchlens.search.thoughts import Thoughts

if TYPE_CHECKING:
    from searchlens.search.task import Evaluator, Search, Task
    from searchlens.search.text_policies import Texts


@controller("thought_tree", transitions=("thought",), schedulers=("breadth_first",), index=3, colour="#56B4E9")
@dataclass(frozen=True, slots=True)
class ThoughtTree(Controller):
    """One tree: ``width`` paths go on at each of ``depth`` levels (b and T of the paper).

    ``children`` thoughts (k) are drawn after each path that has not ended. The evaluator scores all paths of a level in
    one call. A smaller tree repeats its candidates.
    """

    width: int = whole(4)
    children: int = whole(2)

    def candidates(self, policy: Policy) -> int:
        """The width."""
        del policy
        return self.width

    def check(self, policy: Policy) -> None:
        """At temperature 0 all children of a path are alike."""
        require_draws(policy)

    def expected_tokens(self, policy: Policy, texts: Texts) -> float:
        """A level draws ``children`` thoughts after each path that goes on; after the last, paths run to their ends.

        Of the thoughts that are new, a share ends its text; ended and unended paths keep the ``width`` places in
        proportion to their numbers.
        """
        thought, unended = texts.thoughts(policy.component(Thought).max_tokens)
        new = 1 + (self.children - 1) * texts.distinct
        ended, going, drawn = 0.0, 1.0, 0.0
        for _ in range(policy.component(BreadthFirst).depth):
            drawn += self.children * going * thought
            ended, going = ended + going * new * (1 - unended), going * new * unended
            kept = min(1.0, self.width / (ended + going))
            ended, going = kept * ended, kept * going
        return drawn + going * texts.mean

    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        """``width`` candidates."""
        tree = Thoughts(task, policy, evaluator)
        paths, depth = [tree.root()], policy.component(BreadthFirst).depth
        for level in range(depth):
            finished = [path for path in paths if path.is_finished]
            parents = [path for path in paths if not path.is_finished for _ in range(self.children)]
            if not parents:
                break
            new = yield from tree.think(parents, level + 1)
            ranked = yield from tree.ranked(tree.distinct([*finished, *new]), ("level", level), level + 1)
            paths = ranked[: self.width]
            tree.note_chosen(ranked, paths, level + 1)
        return (yield from tree.answers((yield from tree.complete(paths, depth + 1)), depth + 1))
