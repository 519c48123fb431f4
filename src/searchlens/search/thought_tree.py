"""Tree of Thoughts, breadth first: many thoughts at each level, and the best paths go on.

Yao et al. (2023), Tree of Thoughts: deliberate problem solving with large language models, algorithm 2 (ToT-BFS) with
independently sampled thoughts and values of paths. What the paper leaves open for free text:

- Thoughts end at the step delimiter. A path that ends while others go on competes with them and keeps its place as long
  as it is among the best; after the last level the kept ones that have not ended are run to their ends.
- The paper's algorithm returns one answer; here all that are kept at the end are returned, best first.
- Of equal thoughts at a level the first is kept. The authors' code gives the others the value 0, the worst of its
  values; among log-probabilities it would be the best.
"""

from __future__ import annotations

from searchlens.policies import Policy
from searchlens.search.task import Controller, Evaluator, Task
from searchlens.search.thoughts import Path, Thoughts, distinct


def search(task: Task, policy: Policy, evaluator: Evaluator) -> Controller:
    """Search one tree.

    Parameters
    ----------
    task : Task
    policy : Policy
        ``width`` paths are kept at each of ``depth`` levels (b and T of the paper), and ``children`` thoughts (k) are
        drawn behind each that has not ended.
    evaluator : Evaluator
        Scores all paths of a level in one call.

    Returns
    -------
    Controller
        ``width`` candidates, best first; those of a smaller tree are repeated.
    """
    width, children, depth = (int(policy.parameters[key]) for key in ("width", "children", "depth"))
    tree = Thoughts(task, policy, evaluator)
    kept = [Path()]
    for level in range(depth):
        parents = [path for path in kept if not path.finished for _ in range(children)]
        if not parents:
            break
        born = yield from tree.think(parents)
        paths = distinct([*(path for path in kept if path.finished), *born])
        kept = (yield from tree.ranked(paths, ("level", level)))[:width]
    return (yield from tree.answers((yield from tree.complete(kept))))
