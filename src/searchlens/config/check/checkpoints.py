"""Section ``checkpoints``: sets of weights, and how they are run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from searchlens import catalogue
from searchlens.benchmarks import prompts
from searchlens.config.check.schema import unknown
from searchlens.config.checkpoints import CheckpointSpec, PromptFamily
from searchlens.config.model import Config
from searchlens.engines.kind import EngineKind, engine_kind


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
            kind = engine_kind(checkpoint)
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
    kinds = {name: engine_kind(CheckpointSpec(engine=name)) for name in catalogue.declared("engine")}
    yield "dtype", checkpoint.dtype, [name for name, kind in kinds.items() if checkpoint.dtype in kind.dtypes]
    for key, value in _set(checkpoint):
        if key in kinds:
            yield from ((f"{key}.{option}", content, [key]) for option, content in _set(value))
        elif engines := [name for name, kind in kinds.items() if key in kind.reads]:
            yield key, value, engines


def _set(record: Any) -> Iterator[tuple[str, Any]]:
    """Keys and values of a record that are not its defaults."""
    values = ((each, getattr(record, each.name)) for each in fields(record))
    return ((each.name, value) for each, value in values if value != each.default)


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
