"""Sections ``checkpoints``, ``templates`` and ``benchmarks``: what is sampled, how it is asked and graded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from searchlens.config.boptr import Regime, Role
from searchlens.config.limits import Limit, Name, Natural, Positive, Repository, Seed, Sha256, Small, Strict


@dataclass(frozen=True, kw_only=True)
class VllmSpec(Strict):
    """How vLLM runs a checkpoint. Nothing here changes the law of its samples."""

    batch_invariant: bool = False
    """Use the kernels whose bits do not depend on the batch: a sample depends on its seed alone, on a GPU as well, at a
    price (docs/speed.md). Part of the generation id, if true."""
    tensor_parallel: Small = 1
    """Number of GPUs that share the weights; the job requests as many."""
    processes: Annotated[int, Limit(ge=1, le=64)] = 1
    """Number of engines that share the GPU, each in a process with its own weights: while the host of one schedules,
    the steps of the others run."""
    gpu_memory_utilization: Annotated[float, Limit(gt=0, le=1)] = 0.9
    """Share of each GPU's memory for weights, activations, keys and values of all processes."""
    kv_cache_memory_bytes: Annotated[int, Limit(ge=1, le=10**13)] | None = None
    """Bytes of each GPU's memory for keys and values of all processes; null: what is left of the share. For jobs that
    share a GPU, lower the share, too: vLLM does not start where less of the memory is free."""
    max_model_len: Positive | None = None
    """Largest number of tokens of prompt and completion together; null: the model's own limit."""
    load_format: Literal["auto", "safetensors", "fastsafetensors", "runai_streamer"] = "auto"
    """How the weights are read from disk."""
    enforce_eager: bool = False
    """Run without CUDA graphs: a faster start, slower steps. On a CPU this is always so."""
    max_num_batched_tokens: Positive | None = None
    """Most tokens of one step, prompts included; null: vLLM decides."""
    max_cudagraph_capture_size: Positive | None = None
    """Most rows of a step that runs as a CUDA graph; null: as many as run together. More rows run without one."""
    fuse_allreduce_rms: bool | None = None
    """With several GPUs: fuse their sum with the normalisation after it; null: vLLM decides. false where vLLM stops at
    its start with an illegal memory access."""


@dataclass(frozen=True)
class ShapeSpec(Strict):
    """The shape of a dense transformer, by the names of its ``config.json``."""

    num_hidden_layers: Small
    """Layers."""
    hidden_size: Positive
    """Width of a layer."""
    intermediate_size: Positive
    """Width of the gated product of a layer."""
    num_attention_heads: Small
    """Heads of queries."""
    num_key_value_heads: Small
    """Heads of keys and values."""
    head_dim: Small
    """Width of a head."""
    vocab_size: Positive
    """Tokens of the vocabulary."""
    tie_word_embeddings: bool
    """Whether input and output share one embedding."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSpec(Strict):
    """One set of weights."""

    path: str | None = None
    """Folder in transformers layout, relative to the study's folder; ``zoo:micro-1m-base`` is in the micro zoo. Give
    either this or ``hub``."""
    sha256: Sha256 | None = None
    """Fingerprint of the folder at ``path`` (``searchlens fingerprint``), checked before anything is generated; null:
    computed at planning time."""
    hub: Repository | None = None
    """``owner/name`` on the Hugging Face hub. ``searchlens pin`` writes its commit and hashes to the lock file,
    ``searchlens fetch`` downloads it."""
    revision: str = "main"
    """Branch, tag or commit of ``hub`` that ``searchlens pin`` looks up."""
    adapter: str | None = None
    """Folder of a LoRA adapter in PEFT's layout, relative to the study's folder, that is added to the weights: RL can
    be an adapter on Base. Part of the generation id."""
    context: Positive | None = None
    """Largest number of tokens of prompt and completion together that the model was made for; null: what its
    config.json says."""
    engine: str = "transformers"
    """Engine family. transformers: the embedded engine; vllm: see docs/generation.md; or one of an extension. Part of
    the generation id."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of weights and activations; float16 needs vllm. Part of the generation id."""
    quantization: Annotated[str, Limit(pattern=r"^[a-z0-9_-]+$")] | None = None
    """Method by which vLLM quantises the weights when it loads them, such as fp8; null: they are used as they are. Part
    of the generation id."""
    kv_cache_dtype: Literal["auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"] = "auto"
    """Type of the keys and values that vLLM keeps; auto: that of the weights. fp8 can ruin a model that was not
    calibrated for it, such as Qwen2.5. Part of the generation id, except auto."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to run on; the job requests a GPU only under cuda. Recorded with each shard, not part of the generation
    id."""
    template: str = "zoo"
    """Prompt template: a key of ``templates``, or one that is shipped (docs/templates.md), such as ``chat`` for the
    tokenizer's own. Part of the generation id, by its text."""
    stop_tokens: Annotated[tuple[str | Natural, ...], Limit(min_length=1)] | None = None
    """Tokens that end texts, by spelling or id, instead of those that the files of the checkpoint name; those of the
    template end texts as well. null: all that the files name (docs/generation.md). Part of the generation id."""
    examples: bool = True
    """Whether this checkpoint is shown the worked examples of a benchmark that has some."""
    seed: Seed | None = None
    """Seed of this checkpoint's sample streams; null: the general ``seed``. Part of the generation id."""
    max_rows: Positive | None = None
    """Largest number of samples decoded at once, by all processes of a job; null: what suits the device."""
    vllm: VllmSpec = VllmSpec()
    shape: ShapeSpec | None = None
    """Shape of the network, by which ``cost`` estimates speed until the checkpoint is pinned or its folder is there;
    null: then guessed from ``parameters`` of the pair. Changes no sample."""


@dataclass(frozen=True, kw_only=True)
class PromptFamily(Strict):
    """The prompts of a family of models (docs/templates.md). What a benchmark uses is part of the generation id."""

    text: str = "{question}"
    """The prompt around ``{question}``, which is there once; nothing else in it is special. With ``chat``: the user's
    turn."""
    math: str | None = None
    """The same on a benchmark without a ``wording``, with instructions for mathematics; null: ``text``."""
    system: str = ""
    """What stands before the turns, once, such as a system turn. With ``chat``: the text of the system turn; empty:
    none is sent, and the chat template may have its own."""
    math_system: str | None = None
    """The same on a benchmark without a ``wording``; null: ``system``."""
    chat: Mapping[str, str | bool | int | float] | None = None
    """Arguments of the tokenizer's own chat template, such as ``enable_thinking: false``, or ``{}``: it writes all
    turns, and the token that it puts behind an answer ends answers. null: ``text`` is the whole prompt."""
    stop_tokens: tuple[str, ...] = ()
    """Tokens, as spelled in the vocabulary, that end an answer in addition to the checkpoint's own. Those that a
    vocabulary does not have end nothing."""
    stop_texts: tuple[str, ...] = ()
    """Texts that end an answer which contains one of them, whatever its tokens; the text is no part of the answer."""
    check_every: Natural = 0
    """An answer is searched for stop texts after every so many tokens; 0: only when it has ended. It matters for models
    that seldom end by a token, whose tokens after a stop text are most of the tokens drawn."""
    recipe_stops: tuple[str, ...] = ()
    """Words at which the published recipe also ends an answer (``benchmarks.<name>.recipe_stops``)."""
    before_answer: str = ""
    """What stands between a worked example and its answer. Not with ``chat``, where examples are earlier turns."""
    after_answer: str = "\n\n"
    """What stands between the answer of a worked example and the next turn."""


@dataclass(frozen=True, kw_only=True)
class ExamplesSpec(Strict):
    """Worked examples that every prompt of a benchmark shows before its question. Part of the generation id."""

    path: str
    """File relative to the study's folder, one JSON object per line with ``question`` and ``answer``, the answer
    written out as a model is to write it. No example that is shown may be a question of the benchmark."""
    count: Positive = 4
    """Examples in a prompt."""
    drawn: bool = False
    """false: the first ``count`` of the file, in every prompt. true: for each question ``count`` of its own, drawn by
    ``seed`` and the id of the question, never the question itself."""
    seed: Seed = 0
    """Seed of the draw; of use with ``drawn`` only."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkSpec(Strict):
    """A set of questions and how answers to them are graded."""

    family: str = "jsonl"
    """How the questions are read. jsonl: one question per line; or a known benchmark, in any layout in which it is
    distributed (``searchlens benchmarks`` lists them; docs/add-a-benchmark.md)."""
    path: str | tuple[str, ...] | None = None
    """File relative to the study's folder, which may be compressed (``.gz``), or folder as on the hub; a list for a
    benchmark in several parts. Null: the family's dataset on the Hugging Face hub, at the commit in the lock file."""
    revision: str = "main"
    """Branch, tag or commit of the family's dataset that ``searchlens pin`` looks up."""
    sha256: Sha256 | None = None
    """Hash of the file's bytes, before they were compressed; of several files in a row. A file with another hash is
    refused; otherwise everything would be sampled again without notice."""
    check: bool = True
    """Refuse a known benchmark if its number of rows or its golds differ from the published ones, or if a question is
    there twice."""
    grader: Name
    """Name of a grader: one of docs/grading.md, such as ``math`` for boxed answers or ``choice`` for letters, or one
    that a file of ``extensions`` declares."""
    title: str = ""
    """Name in figures and tables; empty: the key."""
    questions: Positive | None = None
    """Use only the first N questions; null: all."""
    max_tokens: Positive
    """Largest number of tokens to generate per sample. Part of the generation id."""
    wording: str | None = None
    """Text that is put around a question, inside the template's turn (docs/templates.md): ``boxed``,
    ``boxed-letter``, ``answer-letter``, ``as-is`` or ``power-sampling``; null: the template's own for mathematics.
    Part of the generation id."""
    examples: ExamplesSpec | None = None
    """Worked examples in front of the question, the same for Base and RL; null: none. A checkpoint with
    ``examples: false`` is asked without them."""
    recipe_stops: bool = False
    """Also end an answer at the plain words at which the published recipe ends it, such as ``user``. For comparison
    with published numbers only, because every answer that uses such a word is cut; needs a mathematical grader. Part
    of the generation id."""
    pool: Name = "paper24"
    """Key of ``pools``: the policies under which both checkpoints of a pair are sampled."""
    searches: Name | None = None
    """Key of ``pools``: the searches under which Base is sampled as well; null: none."""
    samples: Positive | None = None
    """Samples per question on this benchmark; null: the general ``samples``."""
    deeper: Mapping[Name, Positive] = field(default_factory=dict)
    """Policies of the pool that get more samples per question, with their number. Budgets
    are doubled beyond the last of ``budgets`` as far as they reach."""
    regime: Regime | Literal["none"] | None = None
    """g(d) of BOPTR, assigned before anything is evaluated. none: BOPTR leaves this benchmark out. Null: that of the
    known benchmark (``searchlens benchmarks``); for questions of your own math if the grader is mathematical, otherwise
    nonmath."""
    role: Role = "fitted"
    """Part in BOPTR. fitted: in the main tables; held_out: predicted with everything frozen; descriptive: only Base is
    sampled and shown; rltrain: questions of the RL-training split, only Base is sampled."""
