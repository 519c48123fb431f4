"""Power sampling: a Markov chain of whole texts whose law tends to p to the power of alpha.

Metropolis-Hastings as in Karan and Du (2025), "Reasoning with Sampling: Your Base Model is Smarter Than You Think",
arXiv 2510.14901, Algorithm 1: cut the text somewhere, draw its rest again from the local policy q, accept or keep. A
text is what ends with a stop token or fills the limit. What q can never draw is never reached: the target is p^alpha on
the texts that q can draw.

Texts grow by blocks. A block of limit L extends a text that has not ended, then takes its steps toward p^alpha over the
texts of at most L tokens; the last block's limit is that of the task. The two modes differ once texts can end:

``exact``
    A proposal may fill the limit of the block, whole suffixes are compared, and the odds of choosing the cut, 1/n_old
    against 1/n_new, enter the ratio: detailed balance holds. A text that ended skips to the last block, because only
    there its rivals are all texts of the task.
``reference``
    The published procedure: a proposal is never longer than the present text, a suffix is compared with as many tokens
    of the old one as it has itself, the odds of the cut are left out, and a text that has ended after the steps of its
    block is the result. Within a block texts get shorter but never longer, so the chain drifts to short ones.

Without stop tokens both are the same chain. Then a run with N steps in each of K equal blocks of B = T / K tokens draws
``T + N (T (K + 1) / 4 + K / 2)`` tokens on average, the paper's ``N T^2 / (4 B)`` where blocks are many and long.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

import numpy as np

from searchlens.engines.base import Completion, Request
from searchlens.policies import Policy
from searchlens.search.task import EMPTY, Ask, Controller, Evaluator, Task, Trace, candidate
from searchlens.seeds import generator


def search(task: Task, policy: Policy, evaluator: Evaluator) -> Controller:
    """Return the text that one chain ends with, as the only candidate.

    Its details are ``proposed``, the steps taken, and ``accepted``, those of them that changed to the proposal or drew
    the same text again.

    Parameters
    ----------
    task : Task
    policy : Policy
        With ``alpha`` and ``mode``, and the scheduler's ``blocks`` and ``steps``. A block has
        ``ceil(max_tokens / blocks)`` tokens, so there are fewer of them where that leaves none for the last. Without
        steps the result is a draw from the local policy.
    evaluator : Evaluator
        Scores the result; the chain never looks at it.
    """
    parameters = policy.parameters
    alpha, steps, exact = float(parameters["alpha"]), int(parameters["steps"]), parameters["mode"] == "exact"
    length = -(-task.max_tokens // int(parameters["blocks"]))

    def draw(start: Trace, limit: int, *key: str | int) -> Generator[list[Ask], list[Completion], Trace]:
        room, seed = limit - len(start.tokens), task.seed_of(*key)
        (done,) = yield [
            Request(
                task.prompt, policy.local, seed, room, task.stop_ids, prefix=start.prefix, measures=evaluator.measures
            )
        ]
        return start.extend(done, "stop" if done.finish == "stop" else None)

    text, proposed, accepted = EMPTY, 0, 0
    for block, limit in enumerate([*range(length, task.max_tokens, length), task.max_tokens]):
        if text.finish and not (exact and limit == task.max_tokens):
            continue
        if not text.finish:
            text = yield from draw(text, min(len(text.tokens) + length, task.max_tokens), "extend", block)
        chances = generator(task.seed, "power", block).random((steps, 2)).tolist()
        for step, (place, level) in enumerate(chances):
            cut = int(place * len(text.tokens))
            rival = yield from draw(text.cut(cut), limit if exact else len(text.tokens), "propose", block, step)
            proposed += 1
            if level < math.exp(min(0.0, _log_ratio(text, rival, cut, alpha, exact))):
                text, accepted = rival, accepted + 1
    text = replace(text, finish=text.finish or "length")
    (score,) = yield from evaluator(task, [text], policy.local, ("score",))
    return [candidate(text, score, {"proposed": proposed, "accepted": accepted})]


def log_weights(trace: Trace, alpha: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Importance weight of each token, ``alpha log p - log q``.

    Parameters
    ----------
    trace : Trace
    alpha : float

    Returns
    -------
    float64 array, shape (n,)
        In nats. Where q is p at temperature 1/alpha, unfiltered, the token drops out: it is the log-normaliser
        ``log sum_v p(v)^alpha`` of the position.
    """
    return alpha * trace.logprobs.astype(np.float64) - trace.sampling_logprobs


def _log_ratio(old: Trace, new: Trace, cut: int, alpha: float, exact: bool) -> float:
    """Log of the Metropolis-Hastings ratio of two texts that agree up to ``cut``."""
    n_old, n_new = len(old.tokens), len(new.tokens)
    end = n_old if exact else n_new
    gained = log_weights(new, alpha)[cut:].sum() - log_weights(old, alpha)[cut:end].sum()
    return float(gained) + (math.log(n_old / n_new) if exact else 0.0)
