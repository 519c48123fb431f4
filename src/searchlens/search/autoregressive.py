"""Token by token to the end: one request, one candidate."""

from __future__ import annotations

from searchlens.engines.base import Request
from searchlens.policies import Policy
from searchlens.search.task import EMPTY, Controller, Evaluator, Task, candidate


def search(task: Task, policy: Policy, evaluator: Evaluator) -> Controller:
    """Draw one sample with the run's own seed, and score it."""
    request = Request(task.prompt, policy.local, task.seed, task.max_tokens, task.stop_ids, measures=evaluator.measures)
    (done,) = yield [request]
    trace = EMPTY.extend(done, done.finish)
    (score,) = yield from evaluator(task, [trace], policy.local, ("score",))
    return [candidate(trace, score)]
