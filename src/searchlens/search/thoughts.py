"""The transition "thought": paths that grow by a thought at a time, which is text up to the step delimiter.

What the searches over thoughts share. A thought that reaches its own limit of tokens goes on in the next one. A path
ends with a token that ends a text, a stop text, or the last token that a candidate may have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from searchlens.policies import Policy
from searchlens.policies.components import Thought

if TYPE_CHECKING:
    from searchlens.search.task import Ask, Evaluator, Search, Task, Trace


@dataclass(frozen=True, slots=True)
class Path:
    """A node of a tree of thoughts.

    Attributes
    ----------
    trace : Trace
    place : tuple of int
        Which child of which child of the root it is. Seeds come from it, so that a thought depends on its parents
        alone and not on what else was searched.
    """

    trace: Trace
    place: tuple[int, ...] = ()

    @property
    def is_finished(self) -> bool:
        """Whether it has come to its end."""
        return self.trace.finish is not None


Growth = Generator[list["Ask"], list[Any], list[Path]]
"""Yields asks like a search, and returns paths."""


@dataclass(frozen=True, slots=True)
class Thoughts:
    """How the paths of one run grow and are scored.

    Attributes
    ----------
    task : Task
    policy : Policy
        With the transition ``thought``.
    evaluator : Evaluator
    """

    task: Task
    policy: Policy
    evaluator: Evaluator

    def root(self, *place: int) -> Path:
        """The empty path; several trees of a run need different places."""
        return Path(self.task.empty, place)

    def think(self, parents: Sequence[Path]) -> Growth:
        """Draw one thought after each of ``parents``, all unfinished; one that occurs n times gets n children."""
        limit = self.policy.component(Thought).max_tokens
        return self._grow("thought", parents, limit, self.task.step_ids)

    def complete(self, paths: Sequence[Path]) -> Growth:
        """Run every unfinished path to its end, once for each time that it occurs; keep the order."""
        unfinished = [path for path in paths if not path.is_finished]
        ends = iter((yield from self._grow("end", unfinished, self.task.max_tokens)))
        return [path if path.is_finished else next(ends) for path in paths]

    def ranked(self, paths: Sequence[Path], key: tuple[str | int, ...]) -> Growth:
        """The paths, best first, equal ones in the order given.

        Raises
        ------
        ValueError
            A score is not a finite number.
        """
        scored = yield from self._scored(paths, key)
        return [path for path, _ in scored]

    def answers(self, paths: Sequence[Path]) -> Search:
        """The best ``policy.width`` of finished paths, best first, repeated from the best on if there are fewer."""
        scored = yield from self._scored(paths, ("answers",))
        candidates = [path.trace.candidate(score) for path, score in scored]
        return [candidates[i % len(candidates)] for i in range(self.policy.width)]

    def _scored(
        self, paths: Sequence[Path], key: tuple[str | int, ...]
    ) -> Generator[list[Ask], list[Any], list[tuple[Path, float]]]:
        scores = yield from self.evaluator(self.task, [path.trace for path in paths], self.policy.local, key)
        return sorted(zip(paths, self.finite(scores), strict=True), key=lambda pair: -pair[1])

    def finite(self, scores: list[float]) -> list[float]:
        """The scores, if each is a finite number; ValueError otherwise."""
        if not all(map(math.isfinite, scores)):
            raise ValueError(f"the evaluator {self.policy.evaluator.name} gave scores {scores}")
        return scores

    def _grow(self, stage: str, parents: Sequence[Path], limit: int, step_ids: tuple[int, ...] = ()) -> Growth:
        places = _new_places(parents)
        replies = yield [
            self.task.request(
                parent.trace,
                self.policy.local,
                self.task.seed_of(stage, *place),
                limit,
                step_ids=step_ids,
                measures=self.evaluator.measures,
            )
            for parent, place in zip(parents, places, strict=True)
        ]
        return [
            Path(self.task.extend(parent.trace, reply), place)
            for parent, place, reply in zip(parents, places, replies, strict=True)
        ]


def distinct(paths: Sequence[Path]) -> list[Path]:
    """The first of the paths that have the same tokens."""
    first: dict[bytes, Path] = {}
    for path in paths:
        first.setdefault(path.trace.tokens.tobytes(), path)
    return list(first.values())


def _new_places(parents: Sequence[Path]) -> list[tuple[int, ...]]:
    """Places of one new child of each parent."""
    children: Counter[tuple[int, ...]] = Counter()
    places = []
    for parent in parents:
        places.append((*parent.place, children[parent.place]))
        children[parent.place] += 1
    return places
