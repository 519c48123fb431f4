"""Token by token to the end: one candidate, by one request, or by several if a stop text may end it in between."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from searchlens.catalogue import controller
from searchlens.policies import Controller, Policy

if TYPE_CHECKING:
    from searchlens.policies.texts import Texts
    from searchlens.search.task import Evaluator, Search, Task


@controller("autoregressive", transitions=("append",), schedulers=("independent",))
@dataclass(frozen=True, slots=True)
class Autoregressive(Controller):
    """Draw one sample with the seed of the run, and score it up to its stop text.

    With ``task.check_every``, each request draws that many tokens with a seed of its own, so that few tokens are drawn
    after a stop text. Tokens are drawn one by one in any case, so their law is the same.
    """

    def is_deterministic(self, policy: Policy) -> bool:
        """Greedy sampling is."""
        return policy.local.temperature == 0

    def expected_tokens(self, policy: Policy, texts: Texts) -> float:
        """T."""
        del policy
        return texts.mean

    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        """One candidate."""
        text = task.empty
        while text.finish is None:
            length, room = len(text.tokens), task.max_tokens - len(text.tokens)
            tokens = min(room, task.check_every or room)
            seed = task.seed_of("from", length) if length else task.seed
            (done,) = yield [task.request(text, policy.local, seed, tokens, measures=evaluator.measures)]
            text = text.extend(done, done.finish if done.finish == "stop" or tokens == room else None)
            if (before_stop := task.length(text.tokens.tolist())) is not None:
                text = replace(text.cut(before_stop), finish="stop")
        (score,) = yield from evaluator(task, [text], policy.local, ("score",))
        return [text.candidate(score)]
