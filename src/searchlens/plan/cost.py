"""What a run takes before anything was sampled: tokens of a policy, speed of a checkpoint, time and memory of its jobs.

Tokens and speed depend on the configuration and the lock file alone, so that every job of a run cuts cells into the
same pools. Standard library only, because the planner imports it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from searchlens.config.limits import PART_ROWS
from searchlens.config.model import Config, CostSpec, GpuName
from searchlens.config.sampled import CheckpointSpec, ShapeSpec
from searchlens.engines.kind import engine_kind
from searchlens.search.policy import Policy, Texts
from searchlens.store.checkpoints import weight_files

if TYPE_CHECKING:
    from searchlens.plan import Grid, JobPool

# ---- the limit of a GPU
#
# The roofline of one decoding step, which draws one token for each of R rows. It reads the weights once, and the keys
# and values of every row's context; it multiplies, and it passes over the logits. Each part takes at least its bytes
# over the bandwidth and its operations over the arithmetic of the GPU, and the parts follow one another. No engine
# reaches this limit; ``cost.efficiency`` keeps the share that one was measured to reach.

RESERVED = 4e9
"""Bytes of a GPU that are neither weights nor keys and values: activations and graphs; an assumption."""

LOGIT_PASSES = 6
"""Readings and writings of the logits in float32 by softmax, filters and draw; an assumption."""

DENSE = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Architectures whose work is that of ``Shape``: attention with shared keys and values, and a gated product."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU can do at most, or several that share a model."""

    memory: float
    """Bytes."""
    bandwidth: float
    """Bytes per second."""
    flops: Mapping[str, float]
    """Dense operations per second by type of number."""

    def times(self, count: int) -> Gpu:
        """``count`` of them, whose communication takes no time."""
        flops = {name: count * value for name, value in self.flops.items()}
        return Gpu(count * self.memory, count * self.bandwidth, flops)


def _gpu(gigabytes: float, terabytes_per_second: float, bfloat16: float, float32: float, fp8: float) -> Gpu:
    """A GPU by its data sheet; operations in 10^12 per second, float32 as TF32, fp8 as bfloat16 where it has none."""
    flops = {"bfloat16": bfloat16, "float16": bfloat16, "float32": float32, "fp8": fp8}
    return Gpu(gigabytes * 1e9, terabytes_per_second * 1e12, {name: value * 1e12 for name, value in flops.items()})


GPUS: Mapping[GpuName, Gpu] = MappingProxyType(
    {
        "H200": _gpu(141, 4.8, 989, 494, 1979),
        "H100": _gpu(80, 3.35, 989, 494, 1979),
        "A100": _gpu(80, 2.039, 312, 156, 312),
        "L40S": _gpu(48, 0.864, 362, 183, 733),
    }
)
"""NVIDIA's data sheets, without sparsity: H200 SXM, H100 SXM, A100 SXM with 80 GB, L40S."""


@dataclass(frozen=True, slots=True)
class Shape(ShapeSpec):
    """The shape of a dense transformer, by the names of its ``config.json``."""

    @property
    def multiplied(self) -> int:
        """Parameters that each token is multiplied with: all but the embedding of the input."""
        heads = 2 * (self.num_attention_heads + self.num_key_value_heads) * self.head_dim
        layer = self.hidden_size * (heads + 3 * self.intermediate_size)
        return self.num_hidden_layers * layer + self.vocab_size * self.hidden_size

    @property
    def stored(self) -> int:
        """Parameters in memory."""
        return self.multiplied + (0 if self.tie_word_embeddings else self.vocab_size * self.hidden_size)

    @property
    def kept(self) -> int:
        """Numbers that a token leaves for later ones: its keys and values."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Shape | None:
        """The shape that the content of a ``config.json`` describes; None for an unknown architecture."""
        if not set(config.get("architectures") or ()) & set(DENSE):
            return None
        heads = config.get("num_attention_heads")
        filled: dict[str, Any] = {"num_key_value_heads": heads, "tie_word_embeddings": False} | dict(config)
        try:
            if not filled.get("head_dim"):
                filled["head_dim"] = filled["hidden_size"] // filled["num_attention_heads"]
            values: dict[str, Any] = {item.name: int(filled[item.name]) for item in fields(cls)}
            return cls(**(values | {"tie_word_embeddings": bool(values["tie_word_embeddings"])}))
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            return None

    @classmethod
    def guess(cls, parameters: float) -> Shape:
        """A shape with about as many parameters, for a model of which no more is known.

        Heads of 128 as many as layers, ``12 L h^2`` parameters, each head with keys and values of its own, which most
        models share to be faster; logits are left out.
        """
        layers = max(1, round((parameters / 12 / 128**2) ** (1 / 3)))
        hidden = 128 * layers
        return cls(layers, hidden, 8 * hidden // 3, layers, layers, 128, 0, True)


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a GPU can draw."""

    tokens_per_second: float
    """Of all rows together."""
    rows: int
    """R, rows that are drawn together."""
    rows_bound_by: str
    """``max_rows`` or ``memory``."""
    context: float
    """Mean tokens of prompt and text of a row."""


def limit(
    shape: Shape,
    gpu: Gpu,
    max_rows: int,
    context: float,
    *,
    dtype: str = "bfloat16",
    quantization: str | None = None,
    kv_cache_dtype: str = "auto",
    utilization: float = 0.9,
    processes: int = 1,
) -> Limit:
    """The roofline of decoding.

    ``max_rows``: rows that are drawn together, of all processes; fewer if their keys and values do not fit into the
    memory. ``context``: mean tokens of prompt and text of a row. ``quantization``: with ``fp8`` weights take a byte
    each; what other methods save is not counted. ``kv_cache_dtype``: with ``fp8`` and its kinds keys and values take a
    byte each; ``auto``: as ``dtype``. ``utilization``: share of the memory that is used. ``processes``: engines that
    share the GPU, each with its weights and a part of the rows.
    """
    width = 4 if dtype == "float32" else 2
    weight, flops = (1, gpu.flops["fp8"]) if quantization == "fp8" else (width, gpu.flops[dtype])
    row = context * shape.kept * (width if kv_cache_dtype == "auto" else 1 if kv_cache_dtype.startswith("fp8") else 2)
    room = int((utilization * gpu.memory - processes * (shape.stored * weight + RESERVED)) / row)
    rows = max(1, min(max_rows, room))
    products = max(processes * shape.multiplied * weight / gpu.bandwidth, 2 * shape.multiplied * rows / flops)
    attended = 4 * shape.num_attention_heads * shape.head_dim * shape.num_hidden_layers * rows * context
    attention = max(rows * row / gpu.bandwidth, attended / gpu.flops[dtype])
    logits = LOGIT_PASSES * rows * shape.vocab_size * 4 / gpu.bandwidth
    seconds = products + attention + logits
    return Limit(rows / seconds, rows, "max_rows" if rows == max_rows else "memory", context)


# ---- tokens


@dataclass(frozen=True)
class Length:
    """Mean length T of the samples of a cell."""

    tokens: float
    source: str
    """Where the number comes from, for people."""


def assumed_length(config: Config, benchmark: str) -> Length:
    """The length that section ``cost`` has for the regime of a benchmark, or else half of ``max_tokens``."""
    spec, assumed = config.benchmarks[benchmark], config.cost.tokens_per_sample
    if (mean := assumed.get(spec.regime)) is not None:  # type: ignore[arg-type]
        tokens = min(mean, spec.max_tokens)
        return Length(tokens, f"{spec.regime} benchmarks: {tokens:g} tokens a sample")
    return Length(spec.max_tokens / 2, "half of max_tokens a sample")


SPREAD = 0.6
"""Standard deviation of the logarithm of the lengths: power sampling draws more of long texts, which fill the memory.
The mean of the micro zoo, where it is 0.54 to 0.76 at temperature 1."""


def texts(config: Config, benchmark: str, length: Length) -> Texts:
    """The texts of a benchmark, if they have a mean length, by the other assumptions of section ``cost``."""
    assumed, most = config.cost, int(config.benchmarks[benchmark].max_tokens)
    return Texts.of_mean(min(length.tokens, most), most, SPREAD, assumed.tokens_per_thought, assumed.distinct_thoughts)


def tokens_per_run(policy: Policy, texts: Texts) -> float:
    """Tokens that one run of a policy draws on average, returned or not.

    By the formula of its controller; one that has none is taken to draw a text for each candidate.
    """
    known = policy.expected_tokens(texts)
    return policy.width * texts.mean if known is None else known


# ---- speed


@dataclass(frozen=True)
class Speed:
    """Throughput of a checkpoint."""

    tokens_per_second: float
    """On each GPU that it uses, all rows together."""
    source: str
    """How it comes about, for people."""
    measured: str
    """The measurement that it is made from."""


def is_search(policy: Policy) -> bool:
    """Whether a sample takes more than one request."""
    return policy.controller.name != "autoregressive"


def assumed_speed(
    config: Config, checkpoint: str, shape: Shape | None, texts: Texts, *, of_searches: bool = False
) -> Speed | None:
    """The speed of a checkpoint before it was sampled.

    None if the size, or what it would be estimated from, is missing. On a GPU, of an engine that declares ``rows``: the
    limit of ``cost.gpu`` (``limit``) times the share of it that was measured (``of_searches``: of searches),
    or what the hosts of its engines allow if that is less. Otherwise that of the measured model nearest in size, in
    proportion. An unknown shape is guessed from the parameters of the pair.
    """
    spec, gpu = config.checkpoints[checkpoint], config.cost.gpu
    size = _parameters(config, checkpoint)
    if gpu is None or engine_kind(spec).rows is None or spec.device != "cuda":
        return _scaled(config, size)
    if shape is None and size is None:
        return None
    known = shape or Shape.guess(float(size or 0))
    return _share_of_limit(config.cost, gpu, spec, known, texts, guessed=shape is None, of_searches=of_searches)


def _share_of_limit(
    assumed: CostSpec,
    name: GpuName,
    spec: CheckpointSpec,
    shape: Shape,
    texts: Texts,
    *,
    guessed: bool,
    of_searches: bool,
) -> Speed:
    engine = engine_kind(spec)
    gpus, processes = engine.gpus, engine.processes
    bound = limit(
        shape,
        GPUS[name].times(gpus),
        spec.max_rows or processes * (engine.rows or 1),
        min(assumed.prompt_tokens + texts.running, engine.max_model_len or math.inf),
        dtype=spec.dtype,
        quantization=spec.quantization,
        kv_cache_dtype=spec.kv_cache_dtype,
        utilization=engine.options.get("gpu_memory_utilization", 0.9),
        processes=processes,
    )
    measured = next((item for item in assumed.efficiency if item.gpu == name), assumed.efficiency[0])
    usual = float(measured.share), measured.host_us
    special = measured.searches or usual[0], measured.searches_host_us or usual[1]
    share, host = special if of_searches else usual
    kind = "; searches" if (share, host) != usual else ""
    of_all = bound.tokens_per_second * share
    by_host = processes * 1e6 / host if host else math.inf
    if by_host < of_all:
        engines = f"{processes} engines, each" if processes > 1 else "one engine"
        source = f"{by_host:,.0f} tokens/s: {engines} with {host:g} us of its host for a token{kind}"
        return Speed(by_host / gpus, source, f"{host:g} us a token: {measured.source}")
    source = (
        f"{of_all:,.0f} tokens/s, {share:g} of the limit {bound.tokens_per_second:,.0f} of {gpus} {name}:"
        f" {bound.rows:,} rows (bound by {bound.rows_bound_by}) of {bound.context:,.0f} tokens"
    )
    if processes > 1:
        source += f" of {processes} engines"
    source += kind
    if guessed:
        source += "; architecture unknown, shape guessed from the number of parameters"
    elsewhere = "" if measured.gpu == name else f"; assumed to be the same on {name}"
    return Speed(of_all / gpus, source, f"{share:g} of the limit: {measured.source}{elsewhere}")


def _scaled(config: Config, size: float | None) -> Speed | None:
    measured = config.cost.throughput
    if not measured or size is None:
        return None
    nearest = min(measured, key=lambda model: abs(math.log(model.parameters / size)))
    scaled = nearest.tokens_per_second * nearest.parameters / size
    source = f"{scaled:,.0f} tokens/s, in proportion to the number of parameters"
    return Speed(scaled, source, f"{nearest.tokens_per_second:,.0f} tokens/s: {nearest.source}")


def _parameters(config: Config, checkpoint: str) -> float | None:
    for name in config.study.pairs:
        pair = config.pairs[name]
        batches = [side for batch in pair.batches.values() for side in batch.sides.values()]
        if checkpoint in (pair.base, pair.rl, *batches):
            return pair.parameters
    return None


# ---- sampling jobs, by the weights and the planned tokens

STARTUP_MINUTES = 30
"""Time before the first token: imports, loading, compiling. Too little ends jobs early, too much waits in queues."""

READ_GB_PER_MINUTE = 10.0
"""Speed at which weights are read, once to hash and once to load them, from a busy network file system."""

MARGIN = 2.0
"""Requested over expected wall time: more waits longer in queues, less ends jobs with long samples early."""


def weights_bytes(grid: Grid, checkpoint: str) -> int:
    """Bytes of a checkpoint's files, from its pin or its folder; 0 for one that is not pinned yet.

    An InputError: the folder does not exist or is not complete.
    """
    source = grid.inputs.checkpoint_source(checkpoint)
    if source is not None:
        pin = grid.inputs.lock.get(source)
        return pin.size if pin else 0
    return sum(path.stat().st_size for path in weight_files(grid.inputs.checkpoint_folder(checkpoint)))


def memory_mb(grid: Grid, checkpoint: str) -> int:
    """Main memory of a sampling job in megabytes, by what its engine declares."""
    engine, weights = grid.study.engine(checkpoint), weights_bytes(grid, checkpoint) / 1e6
    return math.ceil(engine.worker_mb * engine.processes * engine.gpus + engine.weights * weights)


def minutes(grid: Grid, pool: JobPool) -> int:
    """Wall time of a sampling job, in minutes: ``STARTUP_MINUTES`` alone if no samples are missing.

    Otherwise also two readings of the weights, and ``MARGIN`` times the expected time of sampling by ``cost``, or
    ``target_minutes`` if no speed is known.
    """
    expected = grid.minutes(pool)
    if expected is None:
        expected = float(grid.config.target_minutes)
    if not expected:
        return STARTUP_MINUTES
    reading = 2 * weights_bytes(grid, pool.checkpoint) / 1e9 / READ_GB_PER_MINUTE
    return math.ceil(STARTUP_MINUTES + reading + MARGIN * expected)


def priority(grid: Grid, pool: JobPool) -> float:
    """Rank of a sampling job among those that could start, in [10, 11): higher the more tokens it is expected to draw.

    The longest job of a study may take most of its time, so it must not begin last.
    """
    tokens = sum(grid.jobs.tokens(pool.benchmark, generation) for generation in pool.generations)
    return round(10 + tokens / (tokens + 1e9), 6)  # of a length that logs can show


# ---- stages that read a cell, by its planned samples

BASE_MB = 400
"""Memory of a process that has imported what a stage needs, with a margin."""

TEXT_BYTES_PER_TOKEN = 4.5
"""Of a sample's text; English and formulas have three to four."""


def samples(grid: Grid, checkpoint: str, benchmark: str) -> list[int]:
    """Planned samples of each policy of a cell, all questions together; imported ones under their own entry."""
    counts = [item.samples for item in grid.jobs.generations(checkpoint, benchmark) for _ in item.policies]
    return [
        n * grid.inputs.count(benchmark)
        for n in (*counts, *(item.samples for item in grid.study.imported(checkpoint, benchmark)))
    ]


def estimates(grid: Grid, checkpoint: str, benchmark: str) -> int:
    """Rows of the planned ``hits.parquet`` of a cell: each question under each policy at each budget."""
    questions, budgets = grid.inputs.count(benchmark), grid.study.read_budgets(benchmark)
    reached = [sum(budget * questions <= n for budget in budgets) for n in samples(grid, checkpoint, benchmark)]
    return questions * sum(reached)


def landscape_mb(grid: Grid, checkpoint: str, benchmark: str) -> int:
    """Main memory of the landscape of a cell: .6 kB for each sample of a part, .45 kB for each estimate of a question.

    In megabytes. ``perf/store.py --cell`` measures it.
    """
    rows = samples(grid, checkpoint, benchmark)
    part = max(max(rows, default=0), min(sum(rows), PART_ROWS))
    return math.ceil(BASE_MB + 0.6e-3 * part + 0.45e-3 * estimates(grid, checkpoint, benchmark))


def recovery_mb(grid: Grid, pair: str, benchmark: str) -> int:
    """Main memory of comparing a pair: .7 kB for each estimate of a question of the larger landscape."""
    largest = max(estimates(grid, checkpoint, benchmark) for checkpoint in grid.study.pairs[pair].values())
    return math.ceil(BASE_MB + 0.7e-3 * largest)


def score_mb(grid: Grid, checkpoint: str, benchmark: str) -> int:
    """Main memory of grading a cell, in megabytes.

    .8 kB for each sample of a part, and the texts of one policy by their expected length. Verdicts of a log that count
    in place of a grader's are read at once: .8 kB for each sample.
    """
    length = assumed_length(grid.config, benchmark).tokens if benchmark in grid.config.benchmarks else 1000.0
    rows, text = samples(grid, checkpoint, benchmark), 1.3 * TEXT_BYTES_PER_TOKEN * length
    largest = max(rows, default=0)
    is_graded = str(grid.study.benchmark(benchmark).grader).partition(":")[0] != "recorded"
    held = max(largest, min(sum(rows), PART_ROWS)) if is_graded else sum(rows)
    return math.ceil(BASE_MB + 1e-6 * (800 * held + text * largest))
