"""Section ``checkpoints``: sets of weights, and how they are run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from searchlens import catalogue
from searchlens.benchmarks import prompts
from searchlens.config.base import Repository, Section, Sha256, unknown
from searchlens.schemas.engines import EngineKind, engine_kind
from searchlens.schemas.options import Natural, Positive, Seed, Small

if TYPE_CHECKING:
    from searchlens.benchmarks.prompts import PromptFamily
    from searchlens.config.model import Config


class VllmSpec(Section):
    """How vLLM runs a checkpoint. Nothing here changes the law of its samples."""

    tensor_parallel: Small = 1
    """Number of GPUs that share the weights; the job requests as many."""
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of engines that share the GPU, each in a process with its own weights: while the host of one schedules,
    the steps of the others run."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of each GPU's memory for weights, activations, keys and values of all processes."""
    kv_cache_memory_bytes: Annotated[int, Field(ge=1, le=10**13)] | None = None
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


class ShapeSpec(Section):
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


class CheckpointSpec(Section):
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
    quantization: Annotated[str, Field(pattern=r"^[a-z0-9_-]+$")] | None = None
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
    stop_tokens: Annotated[list[str | Natural], Field(min_length=1)] | None = None
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


def errors(config: Config) -> Iterator[str]:
    """Mistakes in this section."""
    for name, checkpoint in config.checkpoints.items():
        where = f"checkpoints.{name}"
        if (checkpoint.path is None) == (checkpoint.hub is None):
            yield f"{where}: needs either path or hub, found {'both' if checkpoint.path else 'neither'}"
        if checkpoint.hub and checkpoint.sha256:
            yield f"{where}.sha256: goes with path only; the hashes of {checkpoint.hub} are in {config.lock}"
        if checkpoint.template not in (known := prompts.families(config.templates)):
            yield unknown(f"{where}.template", checkpoint.template, known)
        if checkpoint.engine not in (engines := catalogue.declared("engine")):
            yield unknown(f"{where}.engine", checkpoint.engine, engines)
        elif is_studied(config, name):
            kind = engine_kind(checkpoint.model_dump())
            yield from _engine_errors(where, checkpoint, kind)
            yield from _length_errors(config, name, checkpoint, kind)
    for name, template in config.templates.items():
        yield from _template_errors(f"templates.{name}", template)


_GIVEN = {"messages", "tools", "documents", "add_generation_prompt"}
"""What every chat template is given."""


def _template_errors(where: str, template: PromptFamily) -> Iterator[str]:
    for key, needed in {"text": 1, "math": 1, "system": 0, "math_system": 0}.items():
        text = getattr(template, key)
        if text is not None and (count := text.count("{question}")) != needed:
            yield f"{where}.{key}: must have {{question}} {('never', 'once')[needed]}, found {count}: {text[:80]!r}"
    for key in ("stop_texts", "recipe_stops"):
        if "" in getattr(template, key):
            yield f"{where}.{key}: an empty text would end every answer"
    if wrong := sorted(_GIVEN.intersection(template.chat or ())):
        yield f"{where}.chat: {', '.join(wrong)} is given already; allowed: other arguments of the chat template"


def _engine_errors(where: str, checkpoint: CheckpointSpec, kind: EngineKind) -> Iterator[str]:
    for key, value, engines in _special(checkpoint):
        if kind.name not in engines:
            yield f"{where}.{key}: {str(value).lower()} needs engine: {' or '.join(engines)}"
    if kind.gpus > 1 and checkpoint.device != "cuda":
        yield f"{where}.{kind.name}.tensor_parallel: {kind.gpus} needs device: cuda (found {checkpoint.device})"
    elif kind.gpus > 1 and kind.processes > 1:
        yield f"{where}.{kind.name}.processes: {kind.processes} needs tensor_parallel: 1 (found {kind.gpus})"


def _special(checkpoint: CheckpointSpec) -> Iterator[tuple[str, Any, list[str]]]:
    """What a checkpoint has that not all engines understand: keys, values, and the engines that do."""
    kinds = {name: engine_kind({"engine": name}) for name in catalogue.declared("engine")}
    yield "dtype", checkpoint.dtype, [name for name, kind in kinds.items() if checkpoint.dtype in kind.dtypes]
    for key, value in checkpoint.model_dump(exclude_defaults=True).items():
        if key in kinds:
            yield from ((f"{key}.{option}", content, [key]) for option, content in value.items())
        elif engines := [name for name, kind in kinds.items() if key in kind.reads]:
            yield key, value, engines


def _length_errors(config: Config, name: str, checkpoint: CheckpointSpec, kind: EngineKind) -> Iterator[str]:
    limits = {f"{kind.name}.max_model_len": kind.max_model_len, "context": checkpoint.context}
    for benchmark in config.study.benchmarks:
        longest = config.benchmarks[benchmark].max_tokens if benchmark in config.benchmarks else 0
        for key, limit in limits.items():
            if limit is not None and limit <= longest:
                yield (
                    f"checkpoints.{name}.{key}: {limit} leaves no room for a prompt: benchmarks.{benchmark}.max_tokens"
                    f" is {longest}"
                )


def is_studied(config: Config, checkpoint: str) -> bool:
    """Whether a checkpoint is a side of a pair of the study, or repeats one."""
    pairs = [config.pairs[name] for name in config.study.pairs if name in config.pairs]
    repeats = [batch for pair in pairs for batch in pair.batches.values()]
    return any(checkpoint in (side.base, side.rl) for sides in (pairs, repeats) for side in sides)
