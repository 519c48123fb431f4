"""Local policies on vLLM: ours, through our engine and driver, against parameters written by hand for vLLM.

The paper's tiers 1 and 2 (appendix "UDF expressiveness"): seven strategies on the same prompts under the same seeds.
The reference is vLLM as it is installed, loaded a second time, with its own sampler and penalties and without the
worker extension and the requests of :mod:`searchlens.engines.vllm`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from searchlens.config.sampled import VllmSpec
from searchlens.engines._vllm_start import cpu_arguments, release_memory, shut_down
from searchlens.plan import Grid
from searchlens.sampling import Job
from searchlens.search.policy import parse
from searchlens.search.task import Task
from searchlens_lab.equivalence.rows import share
from searchlens_lab.equivalence.subject import Ids, Subject, chunks, texts_of


@dataclass(frozen=True)
class Strategy:
    """One of the paper's seven strategies, written for both sides."""

    name: str
    """Its name in the paper."""
    policy: str
    """The name of our policy."""
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
    output_threshold: float
    em_threshold: float
    """``output_threshold``, ``em_threshold``: the smallest shares that count as agreement."""

    @property
    def holds(self) -> bool:
        """Whether both shares reach their thresholds."""
        return self.output_match >= self.output_threshold and self.em_agree >= self.em_threshold


@dataclass(frozen=True, kw_only=True)
class _OwnSeeds(VllmSpec):
    """Options with which vLLM draws by seeds of its own."""

    generators: bool = True


def compare(grid: Grid, threads: int) -> list[Match]:
    """Draw every strategy on both sides, ours first: a process has one vLLM at a time.

    ``grid``: its compared checkpoint runs on vLLM. ``threads``: CPU threads of the engine.
    """
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
        subject.options.output_match,
        subject.options.answer_agreement,
    )


def sample_with_vllm(job: Job, runs: Sequence[tuple[Strategy, Task]], drawable: Sequence[int]) -> list[Ids]:
    """Draw each run with vLLM alone, loaded and called as in vLLM's own documentation.

    ``job``: gives the checkpoint and the settings of vLLM. ``drawable``: token ids that a text may hold: without
    padding and without ids that the tokenizer does not know.

    Call it after an engine of ours ran in the same process: that engine has set the environment that vLLM reads.
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


def frame(matches: Sequence[Match]) -> pl.DataFrame:
    """One row for each strategy, with its thresholds and whether it reaches them."""
    keys = ("n", "output_match", "output_threshold", "em_agree", "em_threshold", "holds")
    return pl.DataFrame(
        {
            "strategy": [match.strategy.name for match in matches],
            "policy": [match.strategy.policy for match in matches],
            **{key: [getattr(match, key) for match in matches] for key in keys},
        }
    )
