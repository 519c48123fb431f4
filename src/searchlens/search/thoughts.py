"""The transition "thought": paths that grow by a thought at a time, and the searches that take a level of them at once.

A thought is text up to the step delimiter; one that reaches its own limit of tokens goes on in the next one. A path
ends with a token that ends a text, a stop text, or the last token that a candidate may have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from searchlens.catalogue import controller
from searchlens.errors import InputError
from searchlens.search.components import BreadthFirst, Controller, Thought, choice, require_draws, whole
from searchlens.search.policy import Policy, Texts

if TYPE_CHECKING:
    from searchlens.search.task import Ask, Evaluator, Search, Task, Trace


class Path(NamedTuple):
    """A node of a tree of thoughts."""

    trace: Trace
    place: tuple[int, ...] = ()
    """Which child of which child of the root it is. Seeds come from it, so that a thought depends on its parents alone
    and not on what else was searched."""
    stage: str = ""
    """How it grew from its parent: by a "thought", or to its "end"; empty for a root."""

    @property
    def name(self) -> tuple[str | int, ...]:
        """What tells it from all other nodes of its run."""
        return (self.stage, *self.place)

    @property
    def is_finished(self) -> bool:
        """Whether it has come to its end."""
        return self.trace.finish is not None


Growth = Generator[list["Ask"], list[Any], list[Path]]
"""Yields asks like a search, and returns paths."""


@dataclass(frozen=True, slots=True)
class Thoughts:
    """How the paths of one run grow and are scored."""

    task: Task
    policy: Policy
    """With the transition ``thought``."""
    evaluator: Evaluator

    def root(self, *place: int) -> Path:
        """The empty path; several trees of a run need different places."""
        root = Path(self.task.empty, place)
        self.task.note("node", node=root.name, start=0, path=root.trace, step=0)
        return root

    def think(self, parents: Sequence[Path], step: int = 0) -> Growth:
        """Draw one thought after each of ``parents``, all unfinished; one that occurs n times gets n children."""
        return self._grow("thought", parents, self.policy.component(Thought).max_tokens, step, self.task.step_ids)

    def complete(self, paths: Sequence[Path], step: int = 0) -> Growth:
        """Run every unfinished path to its end, once for each time that it occurs; keep the order."""
        unfinished = [path for path in paths if not path.is_finished]
        ends = iter((yield from self._grow("end", unfinished, self.task.max_tokens, step)))
        return [path if path.is_finished else next(ends) for path in paths]

    def distinct(self, paths: Sequence[Path]) -> list[Path]:
        """The first of the paths that have the same tokens."""
        first: dict[bytes, Path] = {}
        for path in paths:
            same = first.setdefault(path.trace.tokens.tobytes(), path)
            if same is not path and self.task.is_recorded:
                self.task.note("node", node=path.name, same_as=same.name, chosen=False)
        return list(first.values())

    def ranked(self, paths: Sequence[Path], key: tuple[str | int, ...], step: int = 0) -> Growth:
        """The paths, best first, equal ones in the order given. Raises ValueError if a score is not a finite number."""
        scored = yield from self._scored(paths, key, step)
        return [path for path, _ in scored]

    def note_chosen(self, ranked: Sequence[Path], chosen: Sequence[Path], step: int) -> None:
        """Note which of the ranked paths are kept."""
        if not self.task.is_recorded:
            return
        names = {path.name for path in chosen}
        for path in ranked:
            self.task.note("node", node=path.name, chosen=path.name in names)
        self.task.note("chosen", nodes=[path.name for path in chosen], step=step)

    def answers(self, paths: Sequence[Path], step: int = 0) -> Search:
        """The best ``policy.width`` of finished paths, best first, repeated from the best on if there are fewer."""
        scored = yield from self._scored(paths, ("answers",), step)
        candidates = [path.trace.candidate(score) for path, score in scored]
        return [candidates[i % len(candidates)] for i in range(self.policy.width)]

    def _scored(
        self, paths: Sequence[Path], key: tuple[str | int, ...], step: int
    ) -> Generator[list[Ask], list[Any], list[tuple[Path, float]]]:
        scores = yield from self.evaluator(self.task, [path.trace for path in paths], self.policy.local, key)
        if self.task.is_recorded:
            self.task.note("scored", nodes=[path.name for path in paths], scores=scores, step=step)
        return sorted(zip(paths, self.finite(scores), strict=True), key=lambda pair: -pair[1])

    def finite(self, scores: list[float]) -> list[float]:
        """The scores, if each is a finite number; ValueError otherwise."""
        if not all(map(math.isfinite, scores)):
            raise ValueError(f"the evaluator {self.policy.evaluator.name} gave scores {scores}")
        return scores

    def _grow(
        self, stage: str, parents: Sequence[Path], limit: int, step: int, step_ids: tuple[int, ...] = ()
    ) -> Growth:
        if not parents:
            return []
        task, local, measures = self.task, self.policy.local, self.evaluator.measures
        children, places = Counter[tuple[int, ...]](), []
        for parent in parents:
            places.append((*parent.place, children[parent.place]))
            children[parent.place] += 1
        replies = yield [
            task.request(parent.trace, local, task.seed_of(stage, *place), limit, step_ids=step_ids, measures=measures)
            for parent, place in zip(parents, places, strict=True)
        ]
        grown = [
            Path(task.extend(parent.trace, reply), place, stage)
            for parent, place, reply in zip(parents, places, replies, strict=True)
        ]
        if task.is_recorded:
            kind = "node" if stage == "thought" else "end"
            for parent, path in zip(parents, grown, strict=True):
                start = len(parent.trace.tokens)
                task.note(kind, node=path.name, parent=parent.name, start=start, path=path.trace, step=step)
        return grown


@controller("step_beam", transitions=("thought",), schedulers=("breadth_first",), index=1, colour="#DDCC77")
@dataclass(frozen=True, slots=True)
class StepBeam(Controller):
    """Beam search over thoughts, and its diverse variant (DVTS): ``width / expand`` subtrees if ``diverse``.

    Beeching, Tunstall and Rush (2024), Scaling test-time compute with open models, and its code, search-and-learn; the
    beam is that of Snell et al. (2024), Scaling LLM test-time compute optimally. With N = ``width`` and M = ``expand``:

    - beam: N thoughts at each level, dealt out in turn over the N/M best paths of the level before (to begin with, over
      the empty path alone). Paths that have ended leave the beam for the list of answers; equal thoughts of a level
      count once. After the last level the N/M best are continued to their ends, N times in all. The N best answers are
      returned.
    - diverse: N/M subtrees that never compete. Each draws M thoughts at each level and goes on with the best; if that
      has ended, so has the subtree. Its answers are its last M children, those that have not ended run to their ends.

    The published diverse variant leaves such last children unfinished and also ends a path at a boxed answer; here only
    tokens that end a text do.

    The evaluator scores the new paths of a level in one call, each subtree on its own; then all answers in one. If
    there are too few answers, they are repeated.
    """

    prefixes: ClassVar[bool] = False

    width: int = whole(4)
    expand: int = whole(4)
    diverse: str = choice("no", "yes")

    def candidates(self, policy: Policy) -> int:
        """The width."""
        return self.width

    def check(self, policy: Policy) -> None:
        """The width is dealt out in whole expansions, of thoughts that differ."""
        require_draws(policy)
        if self.width % self.expand:
            raise InputError(f"width {self.width} is no multiple of expand {self.expand}")

    def expected_tokens(self, policy: Policy, texts: Texts) -> float:
        """``width`` thoughts a level until the longest of the paths that are kept has ended; a subtree keeps one."""
        return self.width * texts.longest(1 if self.diverse == "yes" else self.width // self.expand)

    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        """``width`` candidates."""
        tree, depth = Thoughts(task, policy, evaluator), policy.component(BreadthFirst).depth
        if self.diverse == "no":
            paths = yield from self._beam(tree, depth)
        else:
            roots = [tree.root(i) for i in range(self.width // self.expand)]
            children = yield from _together([self._subtree(tree, root, depth) for root in roots])
            paths = [path for of_root in children for path in of_root]
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


@controller("thought_tree", transitions=("thought",), schedulers=("breadth_first",), index=3, colour="#56B4E9")
@dataclass(frozen=True, slots=True)
class ThoughtTree(Controller):
    """Tree of Thoughts, breadth first: several thoughts after each path of a level, and the best paths go on.

    Yao et al. (2023), Tree of Thoughts: deliberate problem solving with large language models, algorithm 2 (ToT-BFS)
    with independently sampled thoughts and values of paths. What the paper leaves open for free text:

    - Thoughts end at the step delimiter. A path that ends while others go on competes with them and keeps its place as
      long as it is among the best; after the last level, the paths that have not ended are run to their ends.
    - The paper's algorithm returns one answer; here all that are left at the end are returned, best first.
    - Of equal thoughts at a level the first counts. The authors' code gives the others the value 0, the worst of its
      values; among log-probabilities it would be the best.

    One tree: ``width`` paths go on at each of ``depth`` levels (b and T of the paper).

    ``children`` thoughts (k) are drawn after each path that has not ended. The evaluator scores all paths of a level in
    one call. A smaller tree repeats its candidates.
    """

    width: int = whole(4)
    children: int = whole(2)

    def candidates(self, policy: Policy) -> int:
        """The width."""
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
