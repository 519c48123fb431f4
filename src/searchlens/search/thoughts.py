"""The transition "thought": paths that grow by a thought at a time, which is text up to the step delimiter.

What the searches over thoughts share. A thought that reaches its own limit of tokens goes on in the next one; a path
ends with a token that ends a text, or with the last token that a candidate may have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from searchlens.engines.base import Completion, Request
from searchlens.policies import Policy
from searchlens.search.task import EMPTY, Ask, Candidate, Evaluator, Task, Trace, candidate


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

    trace: Trace = EMPTY
    place: tuple[int, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether it has come to its end."""
        return self.trace.finish is not None


Growth = Generator[list[Ask], list[Any], list[Path]]


@dataclass(frozen=True, slots=True)
class Thoughts:
    """How the paths of one run grow and are judged.

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

    def think(self, parents: Sequence[Path]) -> Growth:
        """Draw one thought behind each of ``parents``, all unfinished; one that occurs n times gets n children."""
        limit = int(self.policy.parameters["max_tokens"])
        return self._grow("thought", parents, (*self.task.step_ids, *self.task.stop_ids), limit)

    def complete(self, paths: Sequence[Path]) -> Growth:
        """Run every unfinished path to its end, once for each time that it occurs; keep the order."""
        grown = yield from self._grow(
            "end", [path for path in paths if not path.finished], self.task.stop_ids, self.task.max_tokens
        )
        ends = iter(grown)
        return [path if path.finished else next(ends) for path in paths]

    def ranked(self, paths: Sequence[Path], key: tuple[str | int, ...]) -> Growth:
        """The paths, best first, equal ones in the order given.

        Raises
        ------
        ValueError
            A score is not a finite number.
        """
        scored = yield from self._scored(paths, key)
        return [path for path, _ in scored]

    def answers(self, paths: Sequence[Path]) -> Generator[list[Ask], list[Any], list[Candidate]]:
        """The best ``policy.width`` of finished paths, best first, repeated from the best on if they are fewer."""
        scored = yield from self._scored(paths, ("answers",))
        found = [candidate(path.trace, score) for path, score in scored]
        return [found[i % len(found)] for i in range(self.policy.width)]

    def _scored(
        self, paths: Sequence[Path], key: tuple[str | int, ...]
    ) -> Generator[list[Ask], list[Any], list[tuple[Path, float]]]:
        scores = yield from self.evaluator(self.task, [path.trace for path in paths], self.policy.local, key)
        return sorted(zip(paths, self.finite(scores), strict=True), key=lambda one: -one[1])

    def finite(self, scores: list[float]) -> list[float]:
        """The scores, if each is a finite number; ValueError otherwise."""
        if not all(map(math.isfinite, scores)):
            raise ValueError(f"the evaluator {self.policy.evaluator.name} gave scores {scores}")
        return scores

    def _grow(self, what: str, parents: Sequence[Path], stop_ids: tuple[int, ...], limit: int) -> Growth:
        places = _children(parents)
        done = yield [
            Request(
                self.task.prompt,
                self.policy.local,
                self.task.seed_of(what, *place),
                min(limit, self.task.max_tokens - len(parent.trace.tokens)),
                stop_ids,
                prefix=parent.trace.prefix,
                measures=self.evaluator.measures,
            )
            for parent, place in zip(parents, places, strict=True)
        ]
        return [
            Path(self._extended(parent.trace, one), place)
            for parent, place, one in zip(parents, places, done, strict=True)
        ]

    def _extended(self, trace: Trace, done: Completion) -> Trace:
        if done.tokens[-1] in self.task.stop_ids:
            return trace.extend(done, "stop")
        full = len(trace.tokens) + len(done.tokens) == self.task.max_tokens
        return trace.extend(done, "length" if full else None)


def distinct(paths: Sequence[Path]) -> list[Path]:
    """The first of the paths that have the same tokens."""
    first: dict[bytes, Path] = {}
    for path in paths:
        first.setdefault(path.trace.tokens.tobytes(), path)
    return list(first.values())


def _children(parents: Sequence[Path]) -> list[tuple[int, ...]]:
    """Places of one new child of each parent."""
    born: Counter[tuple[int, ...]] = Counter()
    places = []
    for parent in parents:
        places.append((*parent.place, born[parent.place]))
        born[parent.place] += 1
    return places
