"""Token by token to the end: one candidate, by one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from searchlens.catalogue import controller
from searchlens.search.components import Controller
from searchlens.search.policy import Policy

if TYPE_CHECKING:
    from searchlens.search.task import Evaluator, Search, Task
    from searchlens.search.text_policies import Texts


@controller("autoregressive", transitions=("append",), schedulers=("independent",), index=0)
@dataclass(frozen=True, slots=True)
class Autoregressive(Controller):
    """Draw one sample with the seed of the run, and score it."""

    stops_version: ClassVar[int] = 1

    def is_deterministic(self, policy: Policy) -> bool:
        """Greedy sampling is."""
        return policy.local.temperature == 0

    def expected_tokens(self, policy: Policy, texts: Texts) -> float:
        """T."""
        return texts.mean

    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        """One candidate."""
        (reply,) = yield [task.request(task.empty, policy.local, task.seed, measures=evaluator.measures)]
        text = task.empty.extend(reply, reply.finish)
        task.note("node", node=("text",), start=0, path=text, step=0)
        (score,) = yield from evaluator(task, [text], policy.local, ("score",))
        task.note("scored", nodes=[("text",)], scores=[score], step=0)
        return [text.candidate(score)]
