"""Checks for which more than one value of the configuration is needed, section by section."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from searchlens import benchmarks, catalogue
from searchlens.benchmarks import prompts
from searchlens.benchmarks.known import regime_of
from searchlens.config.check.schema import unknown
from searchlens.config.model import ROLES, Config, PairSpec
from searchlens.config.project import ZOO_PREFIX
from searchlens.config.sampled import BenchmarkSpec, CheckpointSpec, PromptFamily
from searchlens.engines.kind import EngineKind, engine_kind
from searchlens.errors import InputError
from searchlens.search.policy import from_spec


def sampled_errors(config: Config) -> Iterator[str]:
    """Mistakes in ``checkpoints``, ``templates``, ``benchmarks``, ``policies`` and ``pools``, which name what an
    extension may declare.
    """
    yield from _checkpoint_errors(config)
    yield from _benchmark_errors(config)
    yield from _policy_errors(config)


def with_regimes(config: Config) -> Config:
    """The configuration, in which every benchmark says its regime, the default included."""
    specs = {}
    for name, spec in config.benchmarks.items():
        known = benchmarks.known_benchmarks().get(spec.family)
        specs[name] = replace(spec, regime=spec.regime or (known.regime if known else regime_of(spec.grader)))
    return replace(config, benchmarks=specs)


def _unknown(where: str, names: Iterable[str | None], known: Collection[str]) -> Iterator[str]:
    """A message for each name that is none of the known ones; None names nothing."""
    return (unknown(where, name, known) for name in names if name is not None and name not in known)


def _checkpoint_errors(config: Config) -> Iterator[str]:
    for name, checkpoint in config.checkpoints.items():
        where = f"checkpoints.{name}"
        if (checkpoint.path is None) == (checkpoint.hub is None):
            yield f"{where}: needs either path or hub, found {'both' if checkpoint.path else 'neither'}"
        if checkpoint.hub and checkpoint.sha256:
            yield f"{where}.sha256: goes with path only; the hashes of {checkpoint.hub} are in {config.lock}"
        yield from _unknown(f"{where}.template", [checkpoint.template], prompts.families(config.templates))
        if checkpoint.engine not in (engines := catalogue.declared("engine")):
            yield unknown(f"{where}.engine", checkpoint.engine, engines)
        elif is_studied(config, name):
            kind = engine_kind(checkpoint)
            yield from _engine_errors(where, checkpoint, kind)
            yield from _length_errors(config, name, checkpoint, kind)
    for name, template in config.templates.items():
        yield from _prompt_errors(f"templates.{name}", template)


_GIVEN = {"messages", "tools", "documents", "add_generation_prompt"}
"""What every chat template is given."""


def _prompt_errors(where: str, template: PromptFamily) -> Iterator[str]:
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
    if kind.options.get("batch_invariant") and checkpoint.device == "cpu":
        yield f"{where}.{kind.name}.batch_invariant: true needs device: cuda (found cpu)"


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


def _benchmark_errors(config: Config) -> Iterator[str]:
    for name, benchmark in config.benchmarks.items():
        where = f"benchmarks.{name}"
        yield from _question_errors(where, benchmark)
        yield from _answer_errors(where, benchmark)
        yield from _title_errors(where, benchmark.title)
        for key, pool in (("pool", benchmark.pool), ("searches", benchmark.searches)):
            yield from _unknown(f"{where}.{key}", [pool], config.pools)
        if benchmark.role != "fitted" and benchmark.regime == "none":
            yield f"{where}.role: {benchmark.role} needs a regime: math, nonmath or floor"
        studied = name in config.study.benchmarks  # the others need not fit this study's budgets, samples and pools
        known = config.pools.get(benchmark.pool, ()) if studied else tuple(config.policies)
        yield from _unknown(f"{where}.deeper", benchmark.deeper, known)
        if studied:
            samples = benchmark.samples or config.samples
            for policy, more in benchmark.deeper.items():
                if more <= samples:
                    yield f"{where}.deeper.{policy}: {more} must exceed the {samples} samples of the other policies"


_LONGEST_TITLE = 200
"""Characters."""


def _title_errors(where: str, title: str) -> Iterator[str]:
    """A title stands in one line of figures and tables; what is between two $ would be read as a formula there."""
    if len(title) > _LONGEST_TITLE or not title.isprintable() or title != title.strip():
        rule = f"must be one line of at most {_LONGEST_TITLE} characters, without blanks around it"
        yield f"{where}.title: {rule}, found {title[:40]!r}"
    elif title.count("$") > 1 or r"\$" in title:
        yield rf"{where}.title: may have one $ and no \$, because figures read formulas between two, found {title!r}"


def _question_errors(where: str, benchmark: BenchmarkSpec) -> Iterator[str]:
    known = benchmarks.known_benchmarks().get(benchmark.family)
    if benchmark.family not in benchmarks.family_names():
        yield unknown(f"{where}.family", benchmark.family, benchmarks.family_names())
    elif benchmark.path is None and (known is None or not known.splits):
        yield f"{where}.path: needed; only a known benchmark that is on the hub can be read without a file"
    elif benchmark.path is None and known and known.gated:
        yield (
            f"{where}.path: needed; {known.hub} is gated, and its terms forbid to show its rows in plain text;"
            " accept the terms, download the file and give its path"
        )
    elif isinstance(benchmark.path, tuple) and not benchmark.path:
        yield f"{where}.path: the list of files is empty"


def _answer_errors(where: str, benchmark: BenchmarkSpec) -> Iterator[str]:
    yield from _unknown(f"{where}.wording", [benchmark.wording], prompts.wordings() if benchmark.wording else ())
    graders = [name for name, item in catalogue.declared("grader").items() if not item.options.get("recorded")]
    yield from _unknown(f"{where}.grader", [benchmark.grader], graders)
    if benchmark.examples and benchmark.examples.seed and not benchmark.examples.drawn:
        yield f"{where}.examples.seed: goes with drawn: true only; otherwise the first examples are shown"
    mathematical = catalogue.declared("grader", mathematical=True)
    if benchmark.recipe_stops and benchmark.grader not in mathematical:
        yield (
            f"{where}.recipe_stops: only with grader {', '.join(mathematical)} (found {benchmark.grader}), because the"
            " words occur in other answers"
        )


def _policy_errors(config: Config) -> Iterator[str]:
    for name, spec in config.policies.items():
        try:
            from_spec(name, spec)
        except InputError as error:
            yield f"policies.{name}: {error.message}"
    used = {config.benchmarks[name].pool for name in config.study.benchmarks if name in config.benchmarks}
    for pool in sorted(used & config.pools.keys()):
        if not config.pools[pool]:
            yield f"pools.{pool}: must have at least one policy, since study.benchmarks uses it"
    lists: dict[str, Iterable[str | None]] = {f"pools.{pool}": names for pool, names in config.pools.items()}
    for where, names in (lists | {"references": config.references, "default_policy": [config.default_policy]}).items():
        yield from (f"{line}; or declare it under `policies`" for line in _unknown(where, names, config.policies))


# ---- what a run does


def study_errors(config: Config) -> Iterator[str]:
    """Mistakes at the top level, and in ``study``, ``pairs``, ``measures``, ``boptr`` and ``cost``."""
    if tuple(sorted(set(config.budgets))) != config.budgets or not config.budgets:
        yield f"budgets: {list(config.budgets)} must increase"
    elif config.budgets[-1] > config.samples:
        yield f"budgets: the largest, {config.budgets[-1]}, exceeds samples ({config.samples})"
    for where, path in _paths(config):
        if why := _no_path(path):
            yield f"{where}: {why}, found {path[:40]!r}"
        elif where in ("results", "study.recorded_counts") and (path[0] == "-" or {"{", "}"} & set(path)):
            rule = "must not have { or }, which Snakemake reads as a place to fill in, nor begin with - as an option"
            yield f"{where}: {rule}, found {path[:40]!r}"
    yield from _unknown("measures.joint_pairs", config.measures.joint_pairs, config.pairs)
    if config.cost.gpu and not config.cost.efficiency:
        yield f"cost.gpu: {config.cost.gpu} needs a measured share of its limit under cost.efficiency (found none)"
    yield from _boptr_errors(config)
    yield from _study_errors(config)
    yield from _pair_errors(config)


def _boptr_errors(config: Config) -> Iterator[str]:
    """Names in section ``boptr`` that are not in the configuration, and an anchor that cannot be used."""
    pair = config.boptr.anchor.pair
    if pair is not None and pair not in config.pairs:
        yield unknown("boptr.anchor.pair", pair, config.pairs)
    elif pair is not None and config.pairs[pair].group == "new":
        yield f"boptr.anchor.pair: {pair!r} has group new; the anchor needs group upper or lower"
    name = config.boptr.anchor.benchmark
    if name is not None and name not in config.benchmarks:
        yield unknown("boptr.anchor.benchmark", name, config.benchmarks)
    elif name is not None and name in config.study.benchmarks:
        benchmark = config.benchmarks[name]
        if benchmark.regime == "none" or benchmark.role != "fitted":
            part = f"regime {benchmark.regime or 'null'} and role {benchmark.role}"
            yield f"boptr.anchor.benchmark: {name!r} has {part}; the anchor needs a regime and role fitted"
    yield from _unknown("boptr.q_beta", config.boptr.q_beta, config.benchmarks)


def absent(config: Config) -> Iterator[str]:
    """Files and folders that the study needs for its samples and that are not there."""
    names = {f"benchmarks.{name}" for name in config.study.benchmarks}
    names |= {f"checkpoints.{name}" for name in config.checkpoints if is_studied(config, name)}
    for where, path in _paths(config) if config.study.recorded_counts is None else ():
        is_needed = where.removesuffix(".path").removesuffix(".examples") in names and not path.startswith(ZOO_PREFIX)
        if is_needed and not _no_path(path) and not Path(path).exists():
            yield f"{where}: {path} does not exist"


def _paths(config: Config) -> Iterator[tuple[str, str]]:
    """Every key that names a file or folder, with its value."""
    yield "results", config.results
    yield "lock", config.lock
    yield from (("extensions", name) for name in config.extensions)
    if config.study.recorded_counts is not None:
        yield "study.recorded_counts", config.study.recorded_counts
    for name, checkpoint in config.checkpoints.items():
        if checkpoint.path is not None:
            yield f"checkpoints.{name}.path", checkpoint.path
    for name, benchmark in config.benchmarks.items():
        paths = [benchmark.path] if isinstance(benchmark.path, str) else benchmark.path or ()
        yield from ((f"benchmarks.{name}.path", path) for path in paths)
        if benchmark.examples:
            yield f"benchmarks.{name}.examples.path", benchmark.examples.path


def _no_path(path: str) -> str:
    """Why a text cannot be the name of a file; empty if it can."""
    if not path.strip():
        return "needs a name"
    if not path.isprintable():
        return "must not have line breaks or other characters that cannot be printed"
    if any(len(part.encode()) > _LONGEST_NAME for part in path.split("/")) or len(path.encode()) > _LONGEST_PATH:
        return f"has a name of more than {_LONGEST_NAME} bytes, or more than {_LONGEST_PATH} in all"
    return ""


_LONGEST_NAME, _LONGEST_PATH = 255, 4000
"""Bytes; what file systems of Linux allow, less what is added to a path."""


def _study_errors(config: Config) -> Iterator[str]:
    study = config.study
    sampled = [] if study.sample == "all" else study.sample
    drawn = [] if study.figures == "all" else study.figures
    cells = [f"{pair}/{benchmark}" for pair in study.pairs for benchmark in study.benchmarks]
    lists = {f"study.{key}": getattr(study, key) for key in ("pairs", "benchmarks", "sample", "figures")}
    lists |= {f"pools.{pool}": names for pool, names in config.pools.items()} | {"references": config.references}
    for where, names in lists.items():
        repeated = [] if names == "all" else [name for name in names if names.count(name) > 1]
        for name in dict.fromkeys(repeated):
            yield f"{where}: {name!r} is there more than once"
    traced = [] if study.trace is None or isinstance(study.trace.policies, str) else study.trace.policies
    scored = [study.likelihood.policy] if study.likelihood and study.likelihood.policy else []
    for key, names, known in (
        ("pairs", study.pairs, list(config.pairs)),
        ("benchmarks", study.benchmarks, list(config.benchmarks)),
        ("sample", sampled, list(config.benchmarks)),
        ("figures", drawn, cells),
        ("trace.policies", traced, list(config.policies)),
        ("likelihood.policy", scored, list(config.policies)),
    ):
        yield from _unknown(f"study.{key}", names, known)
    if study.sample != "all" and study.recorded_counts is None:
        for name in study.benchmarks:
            if name not in sampled:
                yield f"study.sample: does not list {name!r}, and there is no study.recorded_counts to read it from"


def _pair_errors(config: Config) -> Iterator[str]:
    for name, pair in config.pairs.items():
        where = f"pairs.{name}"
        for role in ROLES:
            yield from _unknown(f"{where}.{role}", [getattr(pair, role)], config.checkpoints)
        studied = name in config.study.pairs  # the others need not fit the checkpoints as this study changes them
        if studied and pair.base == pair.rl:
            yield (
                f"{where}: base and rl are both {pair.base!r}, whose samples would be compared with themselves; name"
                " the checkpoint that RL made, or a second entry of the same weights with a seed of its own"
            )
        yield from _rltrain_errors(config, where, pair)
        if studied:
            yield from _template_errors(config, where, pair)
        for key, batch in pair.batches.items():
            for side, repeat in batch.sides.items():
                place = f"{where}.batches.{key}.{side}"
                if repeat not in config.checkpoints:
                    yield unknown(place, repeat, config.checkpoints)
                elif studied:
                    yield from _batch_errors(config, place, repeat, getattr(pair, side))


def _rltrain_errors(config: Config, where: str, pair: PairSpec) -> Iterator[str]:
    yield from _unknown(f"{where}.rltrain", [pair.rltrain], config.benchmarks)
    if (found := config.benchmarks.get(pair.rltrain or "")) and found.role != "rltrain":
        yield f"{where}.rltrain: {pair.rltrain!r} has role {found.role}; a benchmark with role rltrain is needed"


def _template_errors(config: Config, where: str, pair: PairSpec) -> Iterator[str]:
    sides = [config.checkpoints[side] for side in (pair.base, pair.rl) if side in config.checkpoints]
    for key in ("template", "examples") if pair.templates == "shared" else ():
        values = [str(getattr(side, key)).lower() for side in sides]
        if len(set(values)) > 1:
            base, rl = values
            yield f"{where}: Base has {key} {base}, RL {rl}; give both the same, or set templates: own"


def _batch_errors(config: Config, where: str, name: str, original: str) -> Iterator[str]:
    repeat, repeated = config.checkpoints[name], config.checkpoints.get(original)
    if repeat.seed is None:
        yield f"{where}: {name!r} has no seed of its own; set checkpoints.{name}.seed"
    if repeated is None:
        return
    for key in ("path", "hub", "revision", "template", "examples"):
        if (ours := getattr(repeat, key)) != (theirs := getattr(repeated, key)):
            yield f"{where}: {name!r} has {key} {ours}, {original!r} {theirs}; a batch repeats the same weights"
