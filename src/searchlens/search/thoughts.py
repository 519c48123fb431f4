"""The transition "thought": paths that grow by a thought at a time, which is text up to the step delimiter.

What the searches over thoughts share. A thought that reaches its own limit of tokens goes on in the next one. A path
ends with a token that ends a text, a stop text, or the last token that a candidate may have.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from searchlens.search.components import Thought
from searchlens.search.policy import Policy

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
        places = _new_places(parents)
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


def _new_places(parents: Sequence[Path]) -> list[tuple[int, ...]]:
    """Places of one new child of each parent."""
    children: dict[tuple[int, ...], int] = {}
    places = []
    for parent in parents:
        child = children.get(parent.place, 0)
        places.append((*parent.place, child))
        children[parent.place] = child + 1
    return places
