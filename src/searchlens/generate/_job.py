"""What sampling one pool needs: questions as token ids, answers as the grader reads them, and the engine."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from searchlens import __version__, grading, policies
from searchlens.benchmarks import Question
from searchlens.benchmarks.prompts import Template
from searchlens.engines import devices
from searchlens.engines.base import Engine
from searchlens.errors import InputError
from searchlens.generate._chunks import Gap
from searchlens.generate._stops import End, end
from searchlens.grid import Grid, JobPool
from searchlens.policies import Policy
from searchlens.search.evaluators import SelfEvaluation, evaluator
from searchlens.store import provenance, shards
from searchlens.store.files import read_json

log = logging.getLogger(__name__)


class Prompter:
    """Questions to token ids and back, with the checkpoint's own tokenizer.

    Parameters
    ----------
    folder : Path
        Checkpoint.
    template : Template
        What goes around a question, and what ends an answer.

    Raises
    ------
    InputError
        The checkpoint names no end of a text, or its tokenizer has ids that its model does not.
    """

    def __init__(self, folder: Path, template: Template) -> None:
        self.template = template
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        ends = _stop_ids(folder)
        self.drawable = _check_vocabulary(folder, self.tokenizer, ends)
        spelled = (self.tokenizer.token_to_id(token) for token in template.stop_tokens)
        self.stop_ids = tuple(dict.fromkeys([*ends, *(token for token in spelled if token is not None)]))

    def encode(self, question: Question) -> tuple[int, ...]:
        """Token ids of the rendered prompt."""
        return tuple(self.tokenizer.encode(self.template.render(question.text)).ids)

    def spell(self, text: str) -> tuple[int, ...]:
        """Token ids of a part of a text."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Texts without special tokens."""
        return self.tokenizer.decode_batch([list(row) for row in tokens], skip_special_tokens=True)

    def text(self, tokens: Sequence[int]) -> str:
        """One text without special tokens."""
        return self.decode([tokens])[0]

    def end(self, tokens: Sequence[int], text: str) -> End | None:
        """Where the template's first stop text ends a text."""
        return end(tokens, text, self.template.stop_texts, self.text)

    def holding(self, delimiter: str) -> tuple[int, ...]:
        """Token ids whose text holds a delimiter."""
        texts = self.decode([[token] for token in range(self.tokenizer.get_vocab_size())])
        return tuple(token for token, text in enumerate(texts) if delimiter in text)

    def beside(self, where: str, policy: Policy) -> int:
        """Tokens that a policy has the model read or draw behind a candidate, which is none of them.

        Parameters
        ----------
        where : str
            For messages, such as ``policy 'x'``.
        policy : Policy

        Raises
        ------
        InputError
            The policy wants more different tokens than there are, or one token for a text that is spelled by several.
        """
        _check_limits(where, policy, self.stop_ids, self.drawable)
        judge = evaluator(policy.evaluator)
        if not isinstance(judge, SelfEvaluation):
            return 0
        question, *_ = judge.spelled(self.spell, f"{where}: evaluator self_evaluation")
        return len(question) + 1


def _stop_ids(folder: Path) -> tuple[int, ...]:
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        eos = read_json(path).get("eos_token_id") if path.exists() else None
        if eos is not None:
            return tuple(eos) if isinstance(eos, list) else (eos,)
    raise InputError(
        f"checkpoint {folder} names no end-of-sequence token", "set eos_token_id in its generation_config.json"
    )


def _check_vocabulary(folder: Path, tokenizer: Tokenizer, ends: Sequence[int]) -> int:
    """How many ids can be drawn, all but a pad; one without a row in the embedding is refused: engines answer it with a
    crash, or with anything.
    """
    token, largest = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    config = read_json(folder / "config.json")
    size, pad = config.get("vocab_size"), config.get("pad_token_id")
    for what, found in ((f"tokenizer.json: token {token!r}", largest), ("eos_token_id", max(ends))):
        if size is not None and found >= size:
            raise InputError(
                f"checkpoint {folder}: {what} has id {found}, but config.json has vocab_size {size}",
                "tokenizer and weights are of different models, or the embedding was not resized for added tokens",
            )
    return int(size or largest + 1) - (pad is not None and pad not in ends)


def _check_limits(where: str, policy: Policy, stop_ids: Sequence[int], drawable: int) -> None:
    """Refuse a policy that needs more different tokens at one position than the model can draw."""
    for role, component in (("controller", policy.controller), ("evaluator", policy.evaluator)):
        for key, most in component.vocabulary_limits(policy, drawable, stop_ids).items():
            if (value := getattr(component, key)) > most:
                raise InputError(
                    f"{where}: {role} {component.name}: {key} is {value}; allowed: at most {most}, because {drawable}"
                    " tokens can be drawn"
                )


class Job:
    """Everything that sampling one pool needs; expensive parts are made when first used.

    Parameters
    ----------
    grid : Grid
    pool : Pool
    threads : int
        CPU threads of the engine.

    Attributes
    ----------
    max_rows : int or None
        Most samples that the engine decodes at once; ``checkpoints.<name>.max_rows`` until memory runs out.
    """

    def __init__(self, grid: Grid, pool: JobPool, threads: int) -> None:
        self.grid, self.pool, self.threads = grid, pool, threads
        self.spec = grid.config["checkpoints"][pool.checkpoint]
        self.folder = grid.checkpoint_folder(pool.checkpoint)
        self.questions = grid.questions(pool.benchmark)
        self.max_tokens = int(grid.config["benchmarks"][pool.benchmark]["max_tokens"])
        self.max_rows: int | None = self.spec["max_rows"]
        self._grader = grading.grader(grid.benchmark(pool.benchmark)["grader"])
        self._step_ids: dict[str, tuple[int, ...]] = {}

    @cached_property
    def prompter(self) -> Prompter:
        """The checkpoint's tokenizer and template."""
        return Prompter(self.folder, self.grid.template(self.pool.checkpoint, self.pool.benchmark))

    @cached_property
    def prompts(self) -> list[tuple[int, ...]]:
        """Token ids of every question's prompt, in benchmark order."""
        return [self.prompter.encode(question) for question in self.questions]

    def step_ids(self, delimiter: str) -> tuple[int, ...]:
        """Tokens that end a thought under a policy; none where its delimiter is empty."""
        if delimiter not in self._step_ids:
            self._step_ids[delimiter] = self.prompter.holding(delimiter) if delimiter else ()
        return self._step_ids[delimiter]

    def answer(self, tokens: Sequence[int]) -> str | None:
        """The final answer that token ids state, without knowing the gold one."""
        text = self.prompter.text(tokens)
        ended = self.prompter.end(tokens, text)
        stopped = ended is not None or (bool(tokens) and tokens[-1] in self.prompter.stop_ids)
        return self._grader.extract(ended.text if ended else text, stopped).answer

    def length(self, tokens: Sequence[int]) -> int | None:
        """How many of the tokens are the text's own where a stop text ends it; None where none does."""
        if not self.prompter.template.stop_texts:
            return None  # undecoded: decoding every sample twice is a third of the host's work
        ended = self.prompter.end(tokens, self.prompter.text(tokens))
        return ended.length if ended else None

    @cached_property
    def engine(self) -> Engine:
        """Checks the weights against what was pinned or declared, and the prompts, then loads them.

        Raises
        ------
        InputError
            The files are not what they should be, a prompt does not fit, or a policy wants what the vocabulary does not
            have.
        EngineMemoryError
            The device's memory does not suffice.
        """
        self.grid.checked_folder(self.pool.checkpoint)
        self._require_room(self.spec["context"])
        started = time.monotonic()
        engine = start_engine(self.folder, self.spec, self.max_rows, self.threads)
        log.info("loaded %s in %.1f s", self.pool.checkpoint, time.monotonic() - started)
        self._require_room(engine.max_model_len)
        return engine

    @cached_property
    def _beside(self) -> int:
        """Most tokens that a policy needs behind a candidate; InputError where the vocabulary does not serve one."""
        return max(
            (
                self.prompter.beside(f"policy {one.policies[0]!r}", policies.from_spec(one.id, one.spec["policy"]))
                for one in self.pool.generations
            ),
            default=0,
        )

    def _require_room(self, limit: int | None) -> None:
        """Refuse a benchmark of which a prompt and its answer, and a question behind it, may not fit."""
        longest = max(map(len, self.prompts), default=0)
        needed = longest + self.max_tokens + self._beside
        if limit is not None and needed > limit:
            beside = f", {self._beside} of an evaluator's question" if self._beside else ""
            raise InputError(
                f"{self.pool.benchmark}: its longest prompt of {longest} tokens{beside} and max_tokens"
                f" {self.max_tokens} need {needed} tokens, the limit of {self.pool.checkpoint} is {limit}",
                f"lower benchmarks.{self.pool.benchmark}.max_tokens; prompts are never cut",
            )

    def restart(self, max_rows: int) -> None:
        """Give the engine up, if it started; the next one decodes at most ``max_rows`` samples at once."""
        import torch

        if "engine" in self.__dict__:
            self.engine.close()
            del self.engine
        gc.collect()  # what refers to itself would keep the device's memory
        torch.cuda.empty_cache()
        self.max_rows = max_rows

    @cached_property
    def hardware(self) -> shards.Provenance:
        """What runs the engine; the rest is filled in per shard."""
        import torch

        cuda = str(getattr(self.engine, "device", "cpu")).startswith("cuda")
        device = f"cuda ({torch.cuda.get_device_name()})" if cuda else "cpu"
        version = getattr(self.engine, "version", __version__)
        return shards.Provenance(
            0.0,
            device,
            self.spec["vllm"]["tensor_parallel"],
            f"{self.spec['engine']} {version} torch {torch.__version__}",
            host=provenance.host(),
            version=__version__,
            commit=provenance.commit(),
            config=provenance.config_fingerprint(self.grid.config),
            slurm_job=provenance.slurm_job(),
        )

    def gaps(self) -> list[Gap]:
        """What the store lacks, in configuration order."""
        size, count = int(self.grid.config["chunk_samples"]), len(self.questions)
        folders = {
            g.id: self.grid.folder(self.pool.checkpoint, self.pool.benchmark, g.id) for g in self.pool.generations
        }
        return [
            Gap.cut(generation, folders[generation.id], start, stop, count, size)
            for generation, start, stop in self.grid.lacking(self.pool)
        ]


def start_engine(folder: Path, spec: Mapping[str, Any], max_rows: int | None, threads: int) -> Engine:
    """Load a checkpoint into the engine that its configuration asks for.

    Raises
    ------
    InputError
        The checkpoint cannot be used, or what the engine needs is not installed.
    EngineMemoryError
        The device's memory does not suffice.
    """
    import torch  # takes seconds to import

    device = spec["device"]
    if device != "cpu" and spec["vllm"]["tensor_parallel"] == 1:
        devices.take()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    shared = {"device": device, "dtype": spec["dtype"], "max_rows": max_rows, "threads": threads}
    if spec["engine"] == "vllm":
        from searchlens.engines.vllm import VllmEngine

        return VllmEngine(str(folder), quantization=spec["quantization"], **shared, **spec["vllm"])
    from searchlens.engines.transformers import TransformersEngine

    return TransformersEngine(str(folder), **shared)
