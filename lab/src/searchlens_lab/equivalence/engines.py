"""vLLM against the embedded engine, on the same checkpoints.

The two engines share no code that computes or draws. After the same tokens, their log-probabilities should be equal up
to the last digits, and greedy texts should be equal as long as no two tokens are that close. Each engine draws samples
with random numbers of its own, so for samples the chances of a right answer are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.pool import missed
from searchlens.analysis.uncertainty import Interval, quantiles
from searchlens.config.sampled import VllmSpec
from searchlens.engines._vllm_start import cpu_arguments, release_memory, shut_down
from searchlens.engines.base import Completion, Request, Sampling, complete
from searchlens.plan import Grid
from searchlens.sampling import Job
from searchlens.search.policy import Policy, parse
from searchlens.search.task import Candidate, Task
from searchlens.seeds import generator
from searchlens_lab.equivalence.plan import EquivalenceOptions, options_of
from searchlens_lab.equivalence.subject import Ids, Subject, chunks, texts_of
from searchlens_lab.equivalence.tables import ComparisonRow, share

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
    """Compare every checkpoint of the study's first pair that runs on vLLM."""
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

    ``right``: number of right samples, out of ``samples`` of each question, shape (2 sides, questions). Returns ends of
    shape (budgets,).

    A permutation test, exact for any number of questions: the samples of both sides of a question are pooled and dealt
    out again. Questions are not resampled, so differences between questions do not matter.
    """
    rng, totals = generator("engines"), right.sum(0)
    differences = np.zeros((len(budgets), _DEALS))
    for total in totals:
        dealt = rng.hypergeometric(total, 2 * samples - total, samples, _DEALS)
        differences += (pass_at(dealt, samples, budgets) - pass_at(total - dealt, samples, budgets)).T
    return quantiles(differences / len(totals), confidence)


# ---- local policies on vLLM: ours, through our engine and driver, against parameters written by hand for vLLM
# The paper's tiers 1 and 2 (appendix "UDF expressiveness"): seven strategies on the same prompts under the same seeds.
# The reference is vLLM as it is installed, loaded a second time, with its own sampler and penalties and without the
# worker extension and the requests of `searchlens.engines.vllm`.


@dataclass(frozen=True)
class Strategy:
    """One of the paper's seven strategies, written for both sides."""

    name: str
    """Its name in the paper."""
    policy: str
    parameters: Mapping[str, float]
    """The same strategy as arguments of ``vllm.SamplingParams``."""


STRATEGIES = (
    Strategy("greedy", "greedy", {"temperature": 0.0}),
    Strategy("temperature", "temp_0.7", {"temperature": 0.7}),
    Strategy("top-k", "topk20_t0.7", {"temperature": 0.7, "top_k": 20}),
    Strategy("top-p", "topp0.9_t0.7", {"temperature": 0.7, "top_p": 0.9}),
    Strategy("min-p", "minp0.05_t0.9", {"temperature": 0.9, "min_p": 0.05}),
    Strategy("temp + rep. penalty", "temp_0.7_rep1.1", {"temperature": 0.7, "repetition_penalty": 1.1}),
    Strategy(
        "top-p + freq. penalty", "topp0.9_t0.7_freq0.5", {"temperature": 0.7, "top_p": 0.9, "frequency_penalty": 0.5}
    ),
)


@dataclass(frozen=True)
class Match:
    """The agreement of both sides' texts under one strategy."""

    strategy: Strategy
    n: int
    """Number of questions, with one text each."""
    output_match: float
    em_agree: float
    """``output_match``, ``em_agree``: shares of equal texts and of equal extracted answers; two texts without an answer
    agree."""
    output_threshold: ClassVar[float] = EquivalenceOptions.output_match
    em_threshold: ClassVar[float] = EquivalenceOptions.answer_agreement

    @property
    def holds(self) -> bool:
        """Whether both shares reach their thresholds."""
        return self.output_match >= self.output_threshold and self.em_agree >= self.em_threshold


@dataclass(frozen=True, kw_only=True)
class _OwnSeeds(VllmSpec):
    """Options with which vLLM draws by seeds of its own."""

    generators: bool = True


def compare_strategies(grid: Grid, threads: int) -> list[Match]:
    """Draw every strategy on both sides, ours first: a process has one vLLM at a time."""
    subject = Subject.of(grid, threads, engine="vllm")
    # As vLLM alone draws with a seed, which no study can ask for, and in this process: see ``sample_with_vllm``.
    spec = subject.job.spec
    subject.job.spec = replace(spec, vllm=_OwnSeeds(**vars(spec.vllm) | {"processes": 1}))
    runs = [(strategy, task) for strategy in STRATEGIES for task in subject.tasks(parse(strategy.policy))]
    results = subject.search([(parse(strategy.policy), task) for strategy, task in runs])
    ours = [texts_of(candidates)[0] for candidates in results]
    drawable = [token for token in range(subject.engine.vocab_size) if token not in subject.job.prompter.masked]
    subject.close()
    theirs = [subject.up_to_end(text) for text in sample_with_vllm(subject.job, runs, drawable)]
    parts = zip(STRATEGIES, chunks(ours, subject.count), chunks(theirs, subject.count), strict=True)
    return [compare_texts(subject, *part) for part in parts]


def compare_texts(subject: Subject, strategy: Strategy, ours: Sequence[Ids], theirs: Sequence[Ids]) -> Match:
    """Compare texts and answers, question by question."""
    pairs = list(zip(ours, theirs, strict=True))
    text, answer = subject.job.prompter.text, subject.job.answer
    return Match(
        strategy,
        len(pairs),
        share([text(first) == text(second) for first, second in pairs]),
        share([answer(first) == answer(second) for first, second in pairs]),
    )


def sample_with_vllm(job: Job, runs: Sequence[tuple[Strategy, Task]], drawable: Sequence[int]) -> list[Ids]:
    """Draw each run with vLLM alone, loaded and called as in vLLM's own documentation.

    ``drawable``: token ids that a text may hold: without padding and ids that the tokenizer does not know. Call it
    after an engine of ours ran in the same process: that engine has set the environment that vLLM reads.
    """
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    options, on_cpu = job.spec.vllm, current_platform.is_cpu()
    llm = LLM(
        model=str(job.folder),
        dtype=job.spec.dtype,
        quantization=job.spec.quantization,
        kv_cache_dtype=job.spec.kv_cache_dtype,
        load_format=options.load_format,
        max_model_len=options.max_model_len,
        tensor_parallel_size=options.tensor_parallel,
        gpu_memory_utilization=options.gpu_memory_utilization,
        enforce_eager=options.enforce_eager or on_cpu,
        generation_config="vllm",
        seed=0,
        **(cpu_arguments() if on_cpu else {}),
    )
    outputs = llm.generate(
        [{"prompt_token_ids": list(task.prompt)} for _, task in runs],
        [
            SamplingParams(
                **strategy.parameters,
                seed=task.seed,
                max_tokens=task.max_tokens,
                stop_token_ids=list(task.stop_ids),
                ignore_eos=True,  # the tokenizer may have another end token than the checkpoint
                allowed_token_ids=list(drawable),
            )
            for strategy, task in runs
        ],
        use_tqdm=False,
    )
    shut_down(llm.llm_engine)
    del llm
    release_memory()
    return [tuple(output.outputs[0].token_ids) for output in outputs]


def match_frame(matches: Sequence[Match]) -> pl.DataFrame:
    """One row for each strategy, with its thresholds and whether it reaches them."""
    keys = ("n", "output_match", "output_threshold", "em_agree", "em_threshold", "holds")
    rows = [(each.strategy.name, each.strategy.policy, *(getattr(each, key) for key in keys)) for each in matches]
    return pl.DataFrame(rows, ["strategy", "policy", *keys], orient="row")
