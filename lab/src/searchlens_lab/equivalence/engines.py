"""vLLM against the embedded engine, on the same checkpoints.

The two engines share no code that computes or draws. After the same tokens, their log-probabilities should be equal up
to the last digits, and greedy texts should be equal as long as no two tokens are that close. Each engine draws samples
with random numbers of its own, so for samples the chances of a right answer are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from searchlens.analysis.pool import missed
from searchlens.analysis.uncertainty import Interval, quantiles
from searchlens.engines.base import Completion, Request, Sampling, complete
from searchlens.plan import Grid
from searchlens.search.policy import Policy, parse
from searchlens.search.task import Candidate
from searchlens.seeds import generator
from searchlens_lab.equivalence.plan import options_of
from searchlens_lab.equivalence.rows import ComparisonRow, share
from searchlens_lab.equivalence.subject import Ids, Subject, chunks, texts_of

GREEDY, FORCED = parse("greedy"), parse("temp_1.0")
TOP = 20
"""Number of likeliest tokens whose log-probabilities are compared at every place of a forced text."""
_DEALS = 20_000  # permutations; many, because the ends of a Bonferroni interval lie far out in the tails
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Side:
    """The results of one engine."""

    greedy: list[Candidate]
    """The greedy text of each question."""
    forced: list[Completion]
    """The likeliest tokens at every place of every forced text."""
    right: Mapping[str, npt.NDArray[np.int64]]
    """Policy to its number of right samples of each question. Shape (questions,)."""


def compare(grid: Grid, threads: int) -> list[ComparisonRow]:
    """Compare every checkpoint of the study's first pair that runs on vLLM.

    ``grid``: a study whose compared checkpoint runs on vLLM. ``threads``: CPU threads of each engine.
    """
    pair = grid.config.pairs[grid.config.study.pairs[0]]
    checkpoints = [side for side in (pair.base, pair.rl) if grid.config.checkpoints[side].engine == "vllm"]
    budgets, policies = grid.config.budgets, options_of(grid).engine_policies
    intervals = len(checkpoints) * len(policies) * len(budgets)
    rows = []
    for checkpoint in checkpoints:
        embedded = Subject.of(grid, threads, checkpoint)
        forced = embedded.search([(FORCED, task) for task in embedded.tasks(FORCED)])
        texts = [texts_of(candidates)[0] for candidates in forced]
        theirs = _side(embedded, texts)
        ours = _side(Subject.of(grid, threads, checkpoint, engine="vllm"), texts)
        rows += _text_rows(grid, checkpoint, ours, theirs)
        rows += _curve_rows(grid, checkpoint, ours, theirs, intervals)
    return rows


def _side(subject: Subject, texts: Sequence[Ids]) -> Side:
    """Run one engine on everything, and free its device."""
    policies = {
        name: policy for name in subject.options.engine_policies if (policy := subject.job.grid.jobs.policy(name))
    }
    greedy = [candidates[0] for candidates in subject.search([(GREEDY, task) for task in subject.tasks(GREEDY)])]
    requests = [
        Request(task.prompt, Sampling(0.0), 0, 1, task.stop_ids, prefix=text[:place], top=TOP)
        for task, text in zip(subject.tasks(FORCED), texts, strict=True)
        for place in range(len(text))
    ]
    completions = dict(complete(subject.engine, requests))
    right = _right(subject, policies)
    subject.close()
    return Side(greedy, [completions[place] for place in range(len(requests))], right)


def _right(subject: Subject, policies: Mapping[str, Policy]) -> dict[str, npt.NDArray[np.int64]]:
    """Number of right samples of each question; the driver runs all policies together."""
    keys = [(name, sample) for name in policies for sample in range(_samples(subject.job.grid))]
    runs = [(policies[name], task) for name, sample in keys for task in subject.tasks(policies[name], sample, name)]
    texts = [texts_of(candidates)[0] for candidates in subject.search(runs)]
    counts = {name: np.zeros(subject.count, np.int64) for name in policies}
    for (name, _), answers in zip(keys, chunks(texts, subject.count), strict=True):
        counts[name] += subject.right(answers)
    return counts


def _samples(grid: Grid) -> int:
    """Number of samples of each question."""
    return int(max(options_of(grid).engine_samples, *grid.config.budgets))


def _text_rows(grid: Grid, checkpoint: str, ours: Side, theirs: Side) -> list[ComparisonRow]:
    """Rows about greedy texts, and about log-probabilities after the same tokens."""
    options, reference = options_of(grid), f"embedded engine, {checkpoint}"
    pairs = list(zip(texts_of(ours.greedy), texts_of(theirs.greedy), strict=True))
    common, total = [common_length(*pair) for pair in pairs], sum(max(map(len, pair)) for pair in pairs)
    least = options.output_match
    greedy = np.concatenate(
        [
            np.abs(first.logprobs[:length] - second.logprobs[:length])
            for first, second, length in zip(ours.greedy, theirs.greedy, common, strict=True)
        ]
    )
    forced = np.concatenate([logprob_differences(*pair) for pair in zip(ours.forced, theirs.forced, strict=True)])
    equal, before = share([first == second for first, second in pairs]), sum(common) / total
    row, first = partial(ComparisonRow, "engines"), "before the first difference"
    rows = [
        row("greedy", reference, "same texts", len(pairs), "texts", equal, "at least", least),
        row("greedy", reference, first, total, "tokens", before, "at least", least),
    ]
    for policy, what, values in (("greedy", "log p", greedy), ("temp_1.0, forced", f"log p of {TOP}", forced)):
        for name, function, threshold in (
            ("largest", np.max, options.logprob_difference),
            ("mean", np.mean, options.logprob_mean),
        ):
            statistic = f"{name} difference of {what}"
            value = float(function(values)) if len(values) else float("nan")  # if no two greedy texts begin alike
            rows.append(row(policy, reference, statistic, len(values), "tokens", value, "at most", threshold))
    return rows


def common_length(first: Ids, second: Ids) -> int:
    """Number of tokens before the first difference, or of the shorter text if there is none."""
    return next(
        (place for place, pair in enumerate(zip(first, second, strict=False)) if len({*pair}) > 1),
        min(len(first), len(second)),
    )


def logprob_differences(first: Completion, second: Completion) -> Floats:
    """Absolute differences of log p at the first place, for the tokens that both list among their likeliest."""
    first_log_p, second_log_p = _likeliest(first), _likeliest(second)
    common = [token for token in first_log_p if token in second_log_p]
    return np.array([abs(first_log_p[token] - second_log_p[token]) for token in common])


def _likeliest(completion: Completion) -> dict[int, float]:
    """The likeliest tokens at the first place and their log p."""
    assert completion.top_tokens is not None and completion.top_logprobs is not None
    return dict(zip(completion.top_tokens[0].tolist(), completion.top_logprobs[0].tolist(), strict=True))


def _curve_rows(grid: Grid, checkpoint: str, ours: Side, theirs: Side, intervals: int) -> list[ComparisonRow]:
    """Rows about differences of pass@k; ``intervals`` is the number of intervals that have to hold together."""
    budgets, confidence = grid.config.budgets, float(grid.config.landscape.confidence)
    rows = []
    for name in ours.right:
        right = np.stack((ours.right[name], theirs.right[name]))
        our_pass, their_pass = (pass_at(side, _samples(grid), budgets).mean(0) for side in right)
        chance = permutation_interval(right, _samples(grid), budgets, 1 - (1 - confidence) / intervals)  # Bonferroni
        for place, budget in enumerate(budgets):
            difference = float(our_pass[place] - their_pass[place])
            what = (name, f"embedded engine, {checkpoint}", f"difference of pass@{budget}", right.shape[1], "questions")
            ends = (difference - float(chance.hi[place]), difference - float(chance.lo[place]))
            sides = (float(our_pass[place]), float(their_pass[place]))
            rows.append(ComparisonRow("engines", *what, difference, "covers", 0.0, *sides, *ends))
    return rows


def pass_at(right: npt.NDArray[np.int64], samples: int, budgets: Sequence[int]) -> Floats:
    """Unbiased pass@k if ``right`` of ``samples`` samples are right; a column for each budget."""
    return 1 - missed(samples, budgets)[right]


def permutation_interval(
    right: npt.NDArray[np.int64], samples: int, budgets: Sequence[int], confidence: float
) -> Interval:
    """Interval of the difference of mean pass@k under the hypothesis that both sides have equal chances.

    ``right``: number of right samples of each side, out of ``samples``. ``samples``: samples of each question on each
    side. ``budgets``: the k of pass@k. ``confidence``: nominal coverage, in (0, 1). Returns ends of shape (budgets,).

    A permutation test, exact for any number of questions: the samples of both sides of a question are pooled and dealt
    out again. Questions are not resampled, so differences between questions do not matter.
    """
    rng, totals = generator("engines"), right.sum(0)
    differences = np.zeros((len(budgets), _DEALS))
    for total in totals:
        dealt = rng.hypergeometric(total, 2 * samples - total, samples, _DEALS)
        differences += (pass_at(dealt, samples, budgets) - pass_at(total - dealt, samples, budgets)).T
    return quantiles(differences / len(totals), confidence)
