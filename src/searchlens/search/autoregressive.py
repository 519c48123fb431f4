"""Token by token to the end: one candidate, by one request, or by several where a stop text may end it in between."""

from __future__ import annotations

from dataclasses import replace

from searchlens.engines.base import Request
from searchlens.policies import Policy
from searchlens.search.task import EMPTY, Controller, Evaluator, Task, candidate


def search(task: Task, policy: Policy, evaluator: Evaluator) -> Controller:
    """Draw one sample with the run's own seed, and score it.

    Parameters
    ----------
    task : Task
        With ``check_every``, each so many tokens are a request of their own, with a seed of their own, so that little
        is drawn behind a stop text; tokens are drawn one by one anyway, so their law is the same.
    policy : Policy
    evaluator : Evaluator
        Scores the text up to its stop text.
    """
    trace = EMPTY
    while trace.finish is None:
        begun, room = len(trace.tokens), task.max_tokens - len(trace.tokens)
        wanted = min(room, task.check_every or room)
        seed = task.seed_of("from", begun) if begun else task.seed
        (done,) = yield [
            Request(
                task.prompt, policy.local, seed, wanted, task.stop_ids, prefix=trace.prefix, measures=evaluator.measures
            )
        ]
        trace = trace.extend(done, done.finish if done.finish == "stop" or wanted == room else None)
        if (own := task.length(trace.tokens.tolist())) is not None:
            trace = replace(trace.cut(own), finish="stop")
    (score,) = yield from evaluator(task, [trace], policy.local, ("score",))
    return [candidate(trace, score)]
