"""The checkpoint and the questions on which policies are compared; ``plan.compared`` says which."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from searchlens import grading
from searchlens.engines.base import Engine
from searchlens.grading import GradedPair
from searchlens.plan import Grid, JobPool
from searchlens.sampling import Job
from searchlens.search.driver import Failure, run, start
from searchlens.search.policy import Policy
from searchlens.search.task import Candidate, Task
from searchlens.seeds import sample_seed
from searchlens_lab.equivalence.plan import EquivalenceOptions, compared, options_of

Ids = tuple[int, ...]
Run = tuple[Policy, Task]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Subject:
    """A checkpoint on some questions."""

    job: Job
    """Engine, prompts and answers of the checkpoint."""
    count: int
    """Number of questions, counted from the first."""

    @classmethod
    def of(cls, grid: Grid, threads: int, checkpoint: str = "", engine: str = "transformers") -> Subject:
        """The checkpoint that a study compares on (``plan.compared``), or another one, on either engine."""
        cell = compared(grid)
        assert cell is not None, "the study compares nothing"
        base, benchmark = cell
        job = Job(grid, JobPool(checkpoint or base, benchmark, ()), threads)
        job.spec = replace(job.spec, engine=engine)
        return cls(job, min(options_of(grid).questions, len(job.questions)))

    @cached_property
    def options(self) -> EquivalenceOptions:
        """Thresholds and sizes of the comparison."""
        return options_of(self.job.grid)

    @property
    def engine(self) -> Engine:
        """The engine that runs the checkpoint."""
        return self.job.engine

    def close(self) -> None:
        """Free the device for the next engine."""
        import torch

        self.engine.close()
        self.__dict__.pop("transformers", None)
        gc.collect()  # objects in reference cycles would keep the device's memory
        torch.cuda.empty_cache()

    def tasks(self, policy: Policy, sample: int = 0, stream: str = "equivalence") -> list[Task]:
        """One task for every question; the seeds differ from those of the study's samples, and between streams.

        Texts are drawn at once, not in pieces that look for stop texts, because the references draw them so.
        """
        job, prompter = self.job, self.job.prompter
        how = (job.max_tokens, prompter.stop_ids, job.step_ids(policy.delimiter), prompter.text, job.answer)
        return [
            Task(prompt, sample_seed(stream, question.id, sample), *how, stop_texts=prompter.template.stop_texts)
            for prompt, question in zip(job.prompts[: self.count], job.questions, strict=False)
        ]

    def search(self, runs: Sequence[Run]) -> list[list[Candidate]]:
        """Our candidates of each run, best first, all of them run together; RuntimeError if one failed."""
        candidates: list[list[Candidate]] = [[] for _ in runs]
        started = ((place, start(task, policy)) for place, (policy, task) in enumerate(runs))
        for place, outcome in run(started, self.engine):
            if isinstance(outcome, Failure):
                raise RuntimeError(f"{runs[place][0].controller.name}: {outcome.reason}")
            candidates[place] = outcome.candidates
        return candidates

    @cached_property
    def _grader(self) -> grading.Grader:
        return grading.grader(self.job.grid.study.benchmark(self.job.pool.benchmark).grader)

    def right(self, texts: Sequence[Ids]) -> list[bool]:
        """Whether the answer of each text is right, one text for each question."""
        references = [self._grader.reference(question) for question in self.job.questions[: len(texts)]]
        pairs = {
            place: GradedPair(reference, answer)
            for place, (reference, text) in enumerate(zip(references, texts, strict=True))
            if (answer := self.job.answer(text)) is not None
        }
        verdicts = dict(zip(pairs, self._grader.grade(list(pairs.values())), strict=True))
        return [place in verdicts and bool(verdicts[place].correct) for place in range(len(texts))]

    @cached_property
    def transformers(self) -> Any:
        """The checkpoint in transformers, on the engine's device and without its own generation settings."""
        import torch
        from transformers import AutoModelForCausalLM, GenerationConfig

        dtype = getattr(torch, self.job.spec.dtype)
        device = getattr(self.engine, "device", "cpu")
        model = (
            AutoModelForCausalLM.from_pretrained(
                self.job.folder, dtype=dtype, trust_remote_code=False, use_safetensors=True
            )
            .eval()
            .to(device)
        )
        model.generation_config = GenerationConfig(
            eos_token_id=list(self.job.prompter.stop_ids),
            pad_token_id=(*self.job.prompter.masked, *self.job.prompter.stop_ids)[0],
            max_new_tokens=self.job.max_tokens,
            do_sample=False,
        )
        return model

    def generate(self, prompts: Sequence[Ids], processors: Sequence[Any], **options: Any) -> Any:
        """Transformers' ``generate`` on prompts of different lengths, padded on the left.

        ``processors``: they run after one that keeps masked tokens from being drawn. ``**options``: arguments of
        ``generate``. Returns as transformers returns it; ``completions`` reads the texts.
        """
        import torch
        from transformers import LogitsProcessorList, SuppressTokensLogitsProcessor

        model = self.transformers
        length = max(map(len, prompts))
        padding = model.generation_config.pad_token_id
        rows = torch.tensor([[padding] * (length - len(ids)) + list(ids) for ids in prompts], device=model.device)
        mask = torch.tensor([[0] * (length - len(ids)) + [1] * len(ids) for ids in prompts], device=model.device)
        masked = list(self.job.prompter.masked)
        unused = [SuppressTokensLogitsProcessor(masked, device=str(model.device))] if masked else []
        with torch.inference_mode():
            return model.generate(
                rows,
                attention_mask=mask,
                logits_processor=LogitsProcessorList([*unused, *processors]),
                return_dict_in_generate=True,
                **options,
            )

    def completions(self, sequences: Any, prompts: Sequence[Ids]) -> list[Ids]:
        """The texts that ``generate`` wrote after the prompts, without the padding after their ends."""
        start = max(map(len, prompts))
        return [self.up_to_end(row) for row in sequences[:, start:].tolist()]

    def up_to_end(self, tokens: Sequence[int]) -> Ids:
        """Tokens up to the first stop token, or the one that completes the first stop text."""
        prompter = self.job.prompter
        end = next((place + 1 for place, token in enumerate(tokens) if token in prompter.stop_ids), len(tokens))
        text = tuple(tokens[:end])
        stopped = prompter.end(text, prompter.text(text))
        return text[: stopped.length] if stopped else text


def texts_of(candidates: Sequence[Candidate]) -> list[Ids]:
    """Token ids of each candidate."""
    return [tuple(candidate.tokens.tolist()) for candidate in candidates]


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """The items in parts of ``size``."""
    return [items[first : first + size] for first in range(0, len(items), size)]
