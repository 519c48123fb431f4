"""The expected cost of sampling before anything was sampled: tokens of a policy, speed of a checkpoint.

It depends on the configuration and the lock file alone, so that every job of a run cuts cells into the same pools.
Standard library only, because the planner imports it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from searchlens.config.model import Config, CostSpec, GpuName
from searchlens.config.sampled import CheckpointSpec
from searchlens.engines.kind import engine_kind
from searchlens.plan.roofline import GPUS, Shape, limit
from searchlens.search.policy import Policy, Texts

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
    limit of ``cost.gpu`` (``roofline.limit``) times the share of it that was measured (``of_searches``: of searches),
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
