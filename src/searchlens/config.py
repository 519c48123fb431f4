"""The configuration, typed: every key, its type, its default and what it means, in one place.

The JSON schema under ``workflow/schemas/`` and ``config/README.md`` are generated from these models (``make schema``);
a test fails when they disagree. ``validate`` reports all errors at once, before anything is scheduled.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from searchlens import policies
from searchlens.errors import InputError

DEFAULT_FILES = (
    "config/config.yaml",
    "config/models.yaml",
    "config/benchmarks.yaml",
    "config/policies.yaml",
    "config/boptr.yaml",
)

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Positive = Annotated[int, Field(ge=1)]
Proportion = Annotated[float, Field(ge=0, le=1)]


class Strict(BaseModel):
    """Unknown keys and wrong types are errors; nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class Checkpoint(Strict):
    """One set of weights."""

    path: str
    """Folder in transformers layout, relative to the working directory."""
    sha256: Sha256 | None = None
    """Fingerprint of the folder (``searchlens fingerprint``); checked before anything is generated. Without it the
    fingerprint is computed at planning time."""
    engine: Literal["transformers"] = "transformers"
    """Engine family; part of the generation id."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of weights and activations; part of the generation id."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run; recorded with each shard, not part of the generation id."""
    template: str = "zoo"
    """Prompt template; Base and RL of a pair share one."""
    max_rows: Positive | None = None
    """Most samples decoded at once; by default what suits the device."""


class Pair(Strict):
    """A Base checkpoint and what RL made of it."""

    base: Name
    rl: Name


class Benchmark(Strict):
    """A set of questions and how answers to them are graded."""

    path: str
    """JSONL file, one question per line (docs/data.md)."""
    sha256: Sha256 | None = None
    """Hash of the file; a file that no longer matches is refused instead of silently regenerating everything."""
    grader: Literal["math", "choice", "instructions"]
    """math: boxed answer through math-verify; choice: a letter; instructions: exact checkers."""
    title: str = ""
    """Name in figures."""
    questions: Positive | None = None
    """Use the first so many questions only."""
    max_tokens: Positive
    """Most tokens to generate per sample; part of the generation id."""
    pool: Name = "paper24"
    """Which of ``pools`` is sampled."""
    samples: Positive | None = None
    """Samples per question for this benchmark, instead of the general ``samples``."""
    recorded: str | None = None
    """Folder of graded samples, one ``<checkpoint>/<benchmark>.parquet`` each, used where ``study.sample`` leaves this
    benchmark out."""


class Study(Strict):
    """What this run does."""

    pairs: list[Name]
    """Keys of ``pairs``."""
    benchmarks: list[Name]
    """Keys of ``benchmarks`` to analyse."""
    sample: list[Name] | Literal["all"] = "all"
    """Benchmarks that are sampled here; the others are read from their recorded samples."""


class PolicySpec(Strict):
    """A policy by its five components; a policy whose name says it all needs none."""

    local: dict[str, float | int] = {}
    controller: str | dict[str, Any] = "autoregressive"
    evaluator: str | dict[str, Any] = "mean_logprob"
    transition: str | dict[str, Any] = "append"
    scheduler: str | dict[str, Any] = "independent"


class Landscape(Strict):
    """Readings of the landscape that the paper leaves open (each default is named in docs/reading-the-paper.md)."""

    ties: Literal["first", "fractional"] = "first"
    """Prefix majority vote on a tie: the earliest-seen answer, or shared credit."""
    first_finish: Literal["shortest", "first_index"] = "shortest"
    """First to finish: fewest tokens, or first in the stream."""
    q_instructions: Literal["first_sample", "verdict_majority"] = "first_sample"
    """Self-consistency where no answer can be extracted: every answer its own class, or a vote over pass and fail."""
    draws: Annotated[int, Field(ge=100)] = 2000
    """Bootstrap draws of every interval that is not Wilson's."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95


class Recovery(Strict):
    """Readings of the recovery analysis (paper, section "Base+Search Envelopes")."""

    support_q: Proportion = 0.10
    """Quantile of the Base policy cloud that bounds the support region from below."""
    epsilon: Proportion = 0.03
    """Near-match tolerance, as a proportion."""
    path_lambda: Annotated[float, Field(ge=0)] = 0.01
    """Weight of the distance between neighbours on the budget-monotone path."""
    envelope_interval: Literal["corrected", "fixed", "reselected"] = "corrected"
    """Interval of the recovery gap: with the optimism of choosing the best of many readouts taken off, with the chosen
    operating point fixed, or with it chosen again in each draw."""
    l_comp: Annotated[float, Field(ge=0)] = 1.0
    l_z: Annotated[float, Field(ge=0)] = 1.0
    l_b: Annotated[float, Field(ge=0)] = 1.0
    """Weights of d(u, u'): components, behaviour, budget."""


class Config(Strict):
    """The whole configuration: the files under ``config/`` merged, later ones over earlier ones."""

    results: str = "results"
    """Folder for everything a run writes."""
    seed: int = 42
    """Seed of the sample streams; part of the generation id."""
    samples: Positive = 16
    """Samples per question: the largest budget. Raising it extends the streams, it does not redraw them."""
    budgets: list[Positive] = [1, 2, 4, 8, 16]
    """B, in increasing order."""
    default_policy: str = "topp0.95_t1.0"
    """pi_0: the policy of the RL target curve."""
    pool_size: Positive = 32
    """Policies per generation job."""
    chunk_samples: Positive = 4096
    """Samples per chunk, the unit a killed job resumes at."""
    study: Study
    checkpoints: dict[Name, Checkpoint]
    pairs: dict[Name, Pair]
    benchmarks: dict[Name, Benchmark]
    policies: dict[Name, PolicySpec | None]
    pools: dict[Name, list[Name]]
    references: list[Name] = []
    """Policies sampled in every cell and shown in figures, but not counted among the pool's."""
    landscape: Landscape = Landscape()
    recovery: Recovery = Recovery()


def _hint(given: str, known: list[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else "."


def _unknown(where: str, given: str, known: Mapping[str, Any] | list[str]) -> str:
    names = sorted(known)
    return f"{where}: {given!r} is unknown{_hint(given, names)} Known: {', '.join(names) or '(none)'}"


def _typed_errors(error: ValidationError) -> list[str]:
    lines = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"] if part != "[key]")
        if item["type"] == "extra_forbidden":
            known = _fields_at(item["loc"][:-1])
            where = ".".join(str(part) for part in item["loc"][:-1]) or "configuration"
            lines.append(_unknown(where, str(item["loc"][-1]), known))
        else:
            found = "" if item["type"] == "missing" else f" (found {item['input']!r})"
            lines.append(f"{where}: {item['msg']}{found}")
    return lines


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    sections: dict[str, type[Strict]] = {
        "study": Study,
        "checkpoints": Checkpoint,
        "pairs": Pair,
        "benchmarks": Benchmark,
        "policies": PolicySpec,
        "landscape": Landscape,
        "recovery": Recovery,
    }
    model = sections.get(str(location[0]), Config) if location else Config
    return list(model.model_fields)


def _reference_errors(config: Config) -> list[str]:
    roles = [(f"pairs.{name}.{role}", getattr(p, role)) for name, p in config.pairs.items() for role in ("base", "rl")]
    errors = [_unknown(where, name, config.checkpoints) for where, name in roles if name not in config.checkpoints]
    errors += [_unknown("study.pairs", name, config.pairs) for name in config.study.pairs if name not in config.pairs]
    sampled = [] if config.study.sample == "all" else config.study.sample
    for key, names in (("benchmarks", config.study.benchmarks), ("sample", sampled)):
        errors += [_unknown(f"study.{key}", name, config.benchmarks) for name in names if name not in config.benchmarks]
    for name, benchmark in config.benchmarks.items():
        if benchmark.pool not in config.pools:
            errors.append(_unknown(f"benchmarks.{name}.pool", benchmark.pool, config.pools))
    if config.study.sample != "all":
        for name in config.study.benchmarks:
            if name not in sampled and name in config.benchmarks and config.benchmarks[name].recorded is None:
                errors.append(
                    f"study.sample: leaves out {name!r}, which has no recorded samples (benchmarks.{name}.recorded)"
                )
    return errors


def _policy_errors(config: Config) -> list[str]:
    errors = []
    for name, spec in config.policies.items():
        try:
            policies.from_spec(name, spec.model_dump() if spec else None)
        except InputError as error:
            errors.append(f"policies.{name}: {error.message}")
    for pool, names in config.pools.items():
        errors += [_unknown(f"pools.{pool}", name, config.policies) for name in names if name not in config.policies]
    errors += [
        _unknown("references", name, config.policies) for name in config.references if name not in config.policies
    ]
    if config.default_policy not in config.policies:
        errors.append(_unknown("default_policy", config.default_policy, config.policies))
    return errors


def _budget_errors(config: Config) -> list[str]:
    if sorted(set(config.budgets)) != config.budgets:
        return [f"budgets: {config.budgets} must increase"]
    if config.budgets[-1] > config.samples:
        return [f"budgets: the largest, {config.budgets[-1]}, exceeds samples ({config.samples})"]
    return []


def validate(raw: Mapping[str, Any]) -> Config:
    """The typed configuration.

    Parameters
    ----------
    raw : mapping
        The merged YAML files.

    Raises
    ------
    InputError
        Every error at once: unknown keys, wrong types, dangling names, malformed policies.
    """
    try:
        config = Config.model_validate(dict(raw))
    except ValidationError as error:
        raise _refusal(_typed_errors(error)) from None
    errors = _reference_errors(config) + _policy_errors(config) + _budget_errors(config)
    if errors:
        raise _refusal(errors)
    return config


def _refusal(errors: list[str]) -> InputError:
    count = f"{len(errors)} error{'s' if len(errors) > 1 else ''}"
    return InputError(
        f"the configuration has {count}:\n" + "\n".join(f"  {line}" for line in errors),
        "config/README.md lists every key",
    )


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` merged into ``base``: mappings key by key, everything else replaced, as snakemake does."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def load(paths: Sequence[str | Path]) -> Config:
    """Read, merge and validate YAML files, later ones over earlier ones.

    Raises
    ------
    InputError
        A file is missing or is not a YAML mapping, or the merged configuration has errors.
    """
    raw: dict[str, Any] = {}
    for path in paths:
        try:
            content = yaml.safe_load(Path(path).read_text())
        except OSError as error:
            raise InputError(
                f"cannot read {path}: {error.strerror}", "run from the folder that holds config/"
            ) from None
        except yaml.YAMLError as error:
            raise InputError(f"{path} is not YAML: {error}") from None
        if not isinstance(content, Mapping):
            raise InputError(f"{path} must be a mapping of keys, found {type(content).__name__}")
        raw = merge(raw, content)
    return validate(raw)


def plain(config: Config) -> dict[str, Any]:
    """The configuration as plain JSON types, defaults filled in: what ``grid.Grid`` takes."""
    return config.model_dump(mode="json")


def schema() -> dict[str, Any]:
    """JSON schema of the whole configuration."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}


def schema_text() -> str:
    """The generated file ``workflow/schemas/config.schema.json``."""
    return json.dumps(schema(), indent=2) + "\n"
