"""What is compared on: the Base checkpoint of the first pair, unless another is said, and the first questions of the
first benchmark.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from searchlens import grading
from searchlens.engines.base import Engine
from searchlens.equivalence.options import EquivalenceOptions
from searchlens.generate import Job
from searchlens.grading import GradedPair
from searchlens.grid import Grid, JobPool
from searchlens.policies import Policy
from searchlens.search.driver import Failure, run, start
from searchlens.search.task import Candidate, Task
from searchlens.seeds import sample_seed

Ids = tuple[int, ...]
Run = tuple[Policy, Task]


def options_of(grid: Grid) -> EquivalenceOptions:
    """The section ``equivalence`` of a study."""
    return TypeAdapter(EquivalenceOptions).validate_json(json.dumps(grid.config["equivalence"]))


@dataclass(frozen=True)
class Subject:
    """A checkpoint on some questions.

    Attributes
    ----------
    job : Job
    count : int
        How many questions, from the first.
    """

    job: Job
    count: int

    @classmethod
    def of(cls, grid: Grid, threads: int, checkpoint: str = "", engine: str = "transformers") -> Subject:
        """The one that a study compares on (``Grid.compared``), or another checkpoint, on either family of engines."""
        assert grid.compared is not None, "no comparison is asked for"
        base, benchmark = grid.compared
        job = Job(grid, JobPool(checkpoint or base, benchmark, ()), threads)
        job.spec = {**job.spec, "engine": engine}
        return cls(job, min(options_of(grid).questions, len(job.questions)))

    @cached_property
    def options(self) -> EquivalenceOptions:
        """Thresholds and sizes of the comparison."""
        return options_of(self.job.grid)

    @property
    def engine(self) -> Engine:
        """The embedded engine, or the one that was asked for."""
        return self.job.engine

    def close(self) -> None:
        """Free the device for the next engine."""
        import torch

        self.engine.close()
        self.__dict__.pop("transformers", None)
        gc.collect()  # what refers to itself would keep the device's memory
        torch.cuda.empty_cache()

    def tasks(self, policy: Policy, sample: int = 0, stream: str = "equivalence") -> list[Task]:
        """One run of every question; seeds differ from those of every sample of the study, and by stream."""
        job = self.job
        step_ids = job.step_ids(policy.delimiter)
        stop_ids = job.prompter.stop_ids
        return [
            Task(
                prompt,
                sample_seed(stream, question.id, sample),
                job.max_tokens,
                stop_ids,
                step_ids,
                job.prompter.text,
                job.answer,
            )
            for prompt, question in zip(job.prompts[: self.count], job.questions, strict=False)
        ]

    def search(self, runs: Sequence[Run]) -> list[list[Candidate]]:
        """What we return for each run, best first; all of them at once through the driver.

        Raises
        ------
        RuntimeError
            A run failed.
        """
        found: list[list[Candidate]] = [[] for _ in runs]
        started = ((place, start(task, policy)) for place, (policy, task) in enumerate(runs))
        for place, outcome in run(started, self.engine):
            if isinstance(outcome, Failure):
                raise RuntimeError(f"{runs[place][0].controller.name}: {outcome.reason}")
            found[place] = outcome.candidates
        return found

    @cached_property
    def _grader(self) -> grading.Grader:
        return grading.grader(self.job.grid.benchmark(self.job.pool.benchmark)["grader"])

    def right(self, texts: Sequence[Ids]) -> list[bool]:
        """Whether the answer is right, one text to each question."""
        references = [self._grader.reference(question) for question in self.job.questions[: len(texts)]]
        pairs = {
            place: GradedPair(reference, answer)
            for place, (reference, text) in enumerate(zip(references, texts, strict=True))
            if (answer := self.job.answer(text)) is not None
        }
        verdicts = dict(zip(pairs, self._grader.grade(list(pairs.values())), strict=True))
        return [place in verdicts and bool(verdicts[place].correct) for place in range(len(texts))]

    def accuracy(self, texts: Sequence[Ids]) -> float:
        """Share of right answers, one text to each question."""
        return sum(self.right(texts)) / len(texts)

    @cached_property
    def transformers(self) -> Any:
        """The same weights as transformers runs them, on the engine's device, with nothing of the checkpoint's own
        settings for generation.
        """
        import torch
        from transformers import AutoModelForCausalLM, GenerationConfig

        dtype = getattr(torch, self.job.spec["dtype"])
        device = getattr(self.engine, "device", "cpu")
        model = AutoModelForCausalLM.from_pretrained(self.job.folder, dtype=dtype).eval().to(device)
        model.generation_config = GenerationConfig(
            eos_token_id=list(self.job.prompter.stop_ids),
            pad_token_id=self.pad if self.pad is not None else self.job.prompter.stop_ids[0],
            max_new_tokens=self.job.max_tokens,
            do_sample=False,
        )
        return model

    @cached_property
    def pad(self) -> int | None:
        """The token that the engine never draws; None where there is none."""
        pad: int | None = getattr(self.engine, "pad_id", None)
        return pad

    def generate(self, prompts: Sequence[Ids], processors: Sequence[Any], **options: Any) -> Any:
        """Transformers' ``generate`` on prompts of different lengths, padded on the left.

        Parameters
        ----------
        prompts : sequence of token ids
        processors : sequence of LogitsProcessor
            Behind one that keeps the pad token from being drawn.
        **options
            Of ``generate``.

        Returns
        -------
        ModelOutput
            As transformers returns it; ``endings`` reads the texts.
        """
        import torch
        from transformers import LogitsProcessorList, SuppressTokensLogitsProcessor

        model = self.transformers
        length = max(map(len, prompts))
        padding = model.generation_config.pad_token_id
        rows = torch.tensor([[padding] * (length - len(one)) + list(one) for one in prompts], device=model.device)
        mask = torch.tensor([[0] * (length - len(one)) + [1] * len(one) for one in prompts], device=model.device)
        unused = [] if self.pad is None else [SuppressTokensLogitsProcessor([self.pad], device=str(model.device))]
        with torch.inference_mode():
            return model.generate(
                rows,
                attention_mask=mask,
                logits_processor=LogitsProcessorList([*unused, *processors]),
                return_dict_in_generate=True,
                **options,
            )

    def endings(self, sequences: Any, prompts: Sequence[Ids]) -> list[Ids]:
        """What ``generate`` wrote behind the prompts, without the padding behind the end."""
        start, stops = max(map(len, prompts)), self.job.prompter.stop_ids
        texts = []
        for row in sequences[:, start:].tolist():
            end = next((place + 1 for place, token in enumerate(row) if token in stops), len(row))
            texts.append(tuple(row[:end]))
        return texts


def texts_of(candidates: Sequence[Candidate]) -> list[Ids]:
    """Token ids of each."""
    return [tuple(one.tokens.tolist()) for one in candidates]
