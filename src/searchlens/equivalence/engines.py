"""One family of engines against the other: the embedded one and vLLM on the same checkpoints.

The two share no code that computes or draws. After the same tokens they should say the same, up to the last digits;
greedy texts should be the same while no two tokens are that close; samples are drawn by generators of their own, so of
these the chances of a right answer are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from searchlens.engines.base import Completion, Request, Sampling, complete
from searchlens.equivalence.rows import Row, share
from searchlens.equivalence.subject import Ids, Subject, options_of, texts_of
from searchlens.grid import Grid
from searchlens.landscape.subsets import missed
from searchlens.policies import Policy, parse
from searchlens.search.task import Candidate
from searchlens.seeds import generator
from searchlens.uncertainty import Interval, quantiles

GREEDY, FORCED = parse("greedy"), parse("temp_1.0")
TOP = 20
"""Likeliest tokens whose log-probabilities are compared at every place of a forced text."""
_DEALS = 20_000  # ends of an interval that holds together with tens of others lie far out
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Side:
    """What one engine makes of the questions.

    Attributes
    ----------
    greedy : list of Candidate
        One for each question.
    forced : list of Completion
        The likeliest tokens at every place of every forced text.
    right : mapping of str to int array, shape (questions,)
        Policy to how many of its samples are right.
    """

    greedy: list[Candidate]
    forced: list[Completion]
    right: Mapping[str, npt.NDArray[np.int64]]


def compare(grid: Grid, threads: int) -> list[Row]:
    """Compare every checkpoint of the first pair that runs on vLLM.

    Parameters
    ----------
    grid : Grid
        Its compared checkpoint runs on vLLM.
    threads : int
        CPU threads of each engine.
    """
    pair = grid.config["pairs"][grid.config["study"]["pairs"][0]]
    checkpoints = [pair[role] for role in ("base", "rl") if grid.config["checkpoints"][pair[role]]["engine"] == "vllm"]
    budgets, policies = grid.config["budgets"], options_of(grid).engine_policies
    together = len(checkpoints) * len(policies) * len(budgets)
    rows = []
    for checkpoint in checkpoints:
        embedded = Subject.of(grid, threads, checkpoint)
        texts = [texts_of(found)[0] for found in embedded.search([(FORCED, task) for task in embedded.tasks(FORCED)])]
        theirs = _side(embedded, texts)
        ours = _side(Subject.of(grid, threads, checkpoint, engine="vllm"), texts)
        rows += [*_after_the_same(grid, checkpoint, ours, theirs), *_curves(grid, checkpoint, ours, theirs, together)]
    return rows


def _side(subject: Subject, texts: Sequence[Ids]) -> Side:
    """Ask one engine, and free its device."""
    policies = {name: policy for name in subject.options.engine_policies if (policy := subject.job.grid.policy(name))}
    greedy = [found[0] for found in subject.search([(GREEDY, task) for task in subject.tasks(GREEDY)])]
    requests = [
        Request(task.prompt, Sampling(0.0), 0, 1, task.stop_ids, prefix=text[:place], top=TOP)
        for task, text in zip(subject.tasks(FORCED), texts, strict=True)
        for place in range(len(text))
    ]
    done = dict(complete(subject.engine, requests))
    right = _right(subject, policies)
    subject.close()
    return Side(greedy, [done[place] for place in range(len(requests))], right)


def _right(subject: Subject, policies: Mapping[str, Policy]) -> dict[str, npt.NDArray[np.int64]]:
    """How many samples of each question are right, all policies at once through the driver."""
    keys = [(name, sample) for name in policies for sample in range(_samples(subject.job.grid))]
    runs = [(policies[name], task) for name, sample in keys for task in subject.tasks(policies[name], sample, name)]
    texts = [texts_of(found)[0] for found in subject.search(runs)]
    counts = {name: np.zeros(subject.count, np.int64) for name in policies}
    for place, (name, _) in enumerate(keys):
        counts[name] += subject.right(texts[place * subject.count : (place + 1) * subject.count])
    return counts


def _samples(grid: Grid) -> int:
    most: int = max(options_of(grid).engine_samples, *grid.config["budgets"])
    return most


def _after_the_same(grid: Grid, checkpoint: str, ours: Side, theirs: Side) -> list[Row]:
    """Greedy texts, and log-probabilities after the same tokens."""
    options, reference = options_of(grid), _reference(checkpoint)
    pairs = list(zip(texts_of(ours.greedy), texts_of(theirs.greedy), strict=True))
    common, longest = [agreeing(*pair) for pair in pairs], sum(max(map(len, pair)) for pair in pairs)
    least = options.output_match
    log_p = np.concatenate(
        [
            np.abs(one.logprobs[:same] - other.logprobs[:same])
            for one, other, same in zip(ours.greedy, theirs.greedy, common, strict=True)
        ]
    )
    likeliest = np.concatenate([differences(*pair) for pair in zip(ours.forced, theirs.forced, strict=True)])
    equal = share([one == other for one, other in pairs])
    until = sum(common) / longest
    rows = [
        Row("engines", "greedy", reference, "same texts", len(pairs), "texts", equal, "at least", least),
        Row("engines", "greedy", reference, "before the first difference", longest, "tokens", until, "at least", least),
    ]
    for policy, what, values in (("greedy", "log p", log_p), ("temp_1.0, forced", f"log p of {TOP}", likeliest)):
        for name, of, threshold in (
            ("largest", np.max, options.logprob_difference),
            ("mean", np.mean, options.logprob_mean),
        ):
            statistic = f"{name} difference of {what}"
            value = float(of(values)) if len(values) else float("nan")  # no two greedy texts begin alike
            rows.append(
                Row("engines", policy, reference, statistic, len(values), "tokens", value, "at most", threshold)
            )
    return rows


def _reference(checkpoint: str) -> str:
    return f"embedded engine, {checkpoint}"


def agreeing(one: Ids, other: Ids) -> int:
    """Tokens before the first difference; all of them where there is none."""
    return next(
        (place for place, pair in enumerate(zip(one, other, strict=False)) if len({*pair}) > 1),
        min(len(one), len(other)),
    )


def differences(one: Completion, other: Completion) -> Floats:
    """Absolute differences of log p of the tokens that both have among their likeliest at the first place."""
    mine, hers = _likeliest(one), _likeliest(other)
    return np.array([abs(mine[token] - hers[token]) for token in mine if token in hers])


def _likeliest(done: Completion) -> dict[int, float]:
    assert done.top_tokens is not None and done.top_logprobs is not None
    return dict(zip(done.top_tokens[0].tolist(), done.top_logprobs[0].tolist(), strict=True))


def _curves(grid: Grid, checkpoint: str, ours: Side, theirs: Side, together: int) -> list[Row]:
    """Differences of pass@k, with intervals that hold together with so many."""
    budgets, confidence = grid.config["budgets"], float(grid.config["landscape"]["confidence"])
    rows = []
    for name in ours.right:
        right = np.stack((ours.right[name], theirs.right[name]))
        mine, hers = (pass_at(side, _samples(grid), budgets).mean(0) for side in right)
        chance = by_chance(right, _samples(grid), budgets, 1 - (1 - confidence) / together)  # Bonferroni
        for place, budget in enumerate(budgets):
            difference = float(mine[place] - hers[place])
            rows.append(
                Row(
                    "engines",
                    name,
                    _reference(checkpoint),
                    f"difference of pass@{budget}",
                    right.shape[1],
                    "questions",
                    difference,
                    "covers",
                    0.0,
                    ours=float(mine[place]),
                    theirs=float(hers[place]),
                    lo=difference - float(chance.hi[place]),
                    hi=difference - float(chance.lo[place]),
                )
            )
    return rows


def pass_at(right: npt.NDArray[np.int64], samples: int, budgets: Sequence[int]) -> Floats:
    """Unbiased pass@k where so many of ``samples`` samples are right; a column per budget."""
    return 1 - missed(samples, budgets)[right]


def by_chance(right: npt.NDArray[np.int64], samples: int, budgets: Sequence[int], confidence: float) -> Interval:
    """Within what a difference of mean pass@k lies if it is a matter of chance whose samples are right.

    Parameters
    ----------
    right : int array, shape (2, questions)
        Right ones of ``samples`` samples of each side.
    samples : int
    budgets : sequence of int
    confidence : float

    Returns
    -------
    Interval
        Ends of shape (budgets,).

    Notes
    -----
    A permutation test, exact for any number of questions: both sides' samples of a question are thrown together and
    dealt out again. Differences between questions play no part in it.
    """
    rng, totals = generator("engines"), right.sum(0)
    moved = np.zeros((len(budgets), _DEALS))
    for total in totals:
        dealt = rng.hypergeometric(total, 2 * samples - total, samples, _DEALS)
        moved += (pass_at(dealt, samples, budgets) - pass_at(total - dealt, samples, budgets)).T
    return quantiles(moved / len(totals), confidence)
