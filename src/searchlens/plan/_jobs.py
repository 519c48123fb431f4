"""Streams of samples with their generation ids, cut into jobs.

Only this module decides what a generation id depends on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from searchlens import catalogue
from searchlens.benchmarks import prompts
from searchlens.config.policies import Sampling
from searchlens.errors import InputError
from searchlens.plan import cost
from searchlens.plan._inputs import Inputs, remember
from searchlens.search.policy import Policy, Texts, from_spec, parse
from searchlens.store.files import digest, file_sha256
from searchlens.store.layout import parse_manifest

GENERATION_VERSION = 1
"""Raise it by hand after a change that makes the same request give other tokens: every study is then sampled again.

A change of one controller or evaluator raises its ``version``."""


@dataclass(frozen=True)
class Generation:
    """One stream of samples per question: everything that decides its tokens is in ``spec``."""

    id: str
    """12 hexadecimal digits of the sha256 of ``spec``."""
    policies: tuple[str, ...]
    """The configured names that resolve to it, in configuration order."""
    samples: int
    """Samples per question wanted; not part of the id."""
    spec: Mapping[str, Any]
    """Plain JSON."""
    start: int = 0
    """The first sample: above 0 in pools after the first, if a stream takes several jobs."""

    @property
    def range(self) -> tuple[str, int] | tuple[str, int, int]:
        """Id and range of samples: they distinguish it from the other generations of a pool."""
        return (self.id, self.start, self.samples) if self.start else (self.id, self.samples)


@dataclass(frozen=True)
class Traced:
    """What of a stream is recorded while it is sampled."""

    questions: int
    runs: int = 1
    """``questions``, ``runs``: the first questions of the benchmark, and the first runs of each."""
    run_bytes: int = 1_000_000
    """Most bytes of one run's record, before compression: 100 for each row and 12 for each token, and its texts. What
    comes later is left out, and the record says so."""

    def holds(self, question: int, run: int) -> bool:
        """Whether a run of a question, by its position, is recorded."""
        return question < self.questions and run < self.runs


@dataclass(frozen=True)
class JobPool:
    """The generations that one job makes with one engine start."""

    checkpoint: str
    benchmark: str
    generations: tuple[Generation, ...]

    @cached_property
    def name(self) -> str:
        """``pool-<hash8>``, a hash of the ids and sample ranges in any order."""
        return "pool-" + digest(sorted(g.range for g in self.generations), 8)

    @property
    def key(self) -> tuple[str, str, str]:
        """Checkpoint, benchmark and name: the parts of the paths of the pool."""
        return self.checkpoint, self.benchmark, self.name


class Jobs:
    """Generations of every cell, and the pools that they are made in."""

    def __init__(self, inputs: Inputs) -> None:
        self.study, self.inputs, self.config = inputs.study, inputs, inputs.config
        self._policies = {name: from_spec(name, spec) for name, spec in self.config.policies.items()}
        remember(self, "streams", "pools", "tokens_each", "texts", "_speed")

    # ---- policies

    def policy(self, name: str) -> Policy | None:
        """The policy of a name, configured or spelled out by the name; None for an imported one with another name."""
        try:
            return self._policies.get(name) or parse(name)
        except InputError:
            return None

    @cached_property
    def _policy_specs(self) -> dict[str, dict[str, Any]]:
        return {name: _policy_spec(policy) for name, policy in self._policies.items()}

    def scored_policy(self, benchmark: str) -> str | None:
        """The policy of a configured benchmark whose texts are scored under both sides of a pair, None if none can be.

        Without ``study.likelihood.policy`` it is the first that draws at temperature 1, without filters or a search.
        """
        section = self.config.study.likelihood
        names = [*self.study.pool_policies(benchmark), *self.config.references]
        if section and section.policy:
            is_scored = section.policy in names and self._policies[section.policy].is_scored
            return section.policy if is_scored else None
        return next((name for name in names if self._policies[name].is_plain), None)

    def local(self, policy: str) -> Sampling:
        """How a configured policy draws a token."""
        return self._policies[policy].local

    def without_likelihood(self, pair: str, benchmark: str) -> str:
        """Why no texts of a pair are scored under both sides; empty if some are."""
        section = self.config.study.likelihood
        if section is None:
            return "study.likelihood is null"
        for checkpoint in self.study.pairs[pair].values():
            if (source := self.study.source(checkpoint, benchmark)) != "sampled":
                return f"no tokens of {checkpoint}: its samples are {source}"
        if policy := self.scored_policy(benchmark):
            plain = self._policies[policy].is_plain
            alone = [
                name for name in self.study.pairs[pair].values() if not (plain or self.study.engine(name).embedded)
            ]
            return f"the engine of {alone[0]} scores texts at temperature 1 without filters alone" if alone else ""
        if section.policy:
            return f"{section.policy} is no policy of its pool that draws each text by itself, without penalties"
        return "no policy draws at temperature 1 without filters"

    @cached_property
    def likelihood_cells(self) -> tuple[tuple[str, str], ...]:
        """(pair, benchmark) of which texts are scored under both sides."""
        return tuple(cell for cell in self.study.pair_cells if not self.without_likelihood(*cell))

    @property
    def without_likelihoods(self) -> list[str]:
        """Pair and benchmark of cells without texts to score although the study asks for them, with the reasons."""
        if self.config.study.likelihood is None:
            return []
        reasons = {cell: self.without_likelihood(*cell) for cell in self.study.pair_cells}
        return [f"{'/'.join(cell)}: {reason}" for cell, reason in reasons.items() if reason]

    def search_policies(self, benchmark: str) -> list[str]:
        """Names of the expanded policies of a configured benchmark, in order; sampled on Base alone."""
        searches = self.config.benchmarks[benchmark].searches
        return list(self.config.pools[searches]) if searches else []

    # ---- generations

    def generations(self, checkpoint: str, benchmark: str) -> tuple[Generation, ...]:
        """The streams of a cell that this run samples, in configuration order; equal policies share one."""
        return self.streams(checkpoint, benchmark) if self.study.is_sampled(checkpoint, benchmark) else ()

    def streams(self, checkpoint: str, benchmark: str) -> tuple[Generation, ...]:
        """The streams of a cell, sampled by this run or by an earlier one."""
        if benchmark not in self.config.benchmarks or checkpoint not in self.config.checkpoints:
            return ()
        generations: dict[str, Generation] = {}
        pairs = (self.config.pairs[name] for name in self.config.study.pairs)
        is_searched = any(pair.base == checkpoint and pair.searches for pair in pairs)
        searches = self.search_policies(benchmark) if is_searched else []
        shared, template = self._shared_spec(checkpoint, benchmark), self.inputs.template(checkpoint, benchmark)
        for name in dict.fromkeys([*self.study.pool_policies(benchmark), *self.config.references, *searches]):
            policy = self._policies[name]
            spec = {**shared, **self._policy_specs[name]}  # one object for all cells: there may be thousands
            if versions := _versions(policy, template):
                spec["versions"] = versions
            key = digest(spec, 12)
            names = (*generations[key].policies, name) if key in generations else (name,)
            samples = (
                policy.width if policy.deterministic else max(self.study.samples(benchmark, each) for each in names)
            )
            generations[key] = Generation(key, names, samples, spec)
        return tuple(generations.values())

    def _shared_spec(self, checkpoint: str, benchmark: str) -> dict[str, Any]:
        """Everything except the policy that decides the tokens of a cell."""
        weights, max_tokens = self.config.checkpoints[checkpoint], self.config.benchmarks[benchmark].max_tokens
        cache, engine = weights.kv_cache_dtype, self.study.engine(checkpoint)
        template = self.inputs.template(checkpoint, benchmark)
        return {
            "version": GENERATION_VERSION,
            "weights": self.inputs.fingerprint(checkpoint),
            "engine": {
                "family": engine.family or weights.engine,
                "dtype": weights.dtype,
                "quantization": weights.quantization,
                **({} if cache == "auto" else {"kv_cache_dtype": cache}),
                **({"batch_invariant": True} if engine.options.get("batch_invariant") else {}),
            },
            "questions": self.inputs.asked_hash(benchmark),
            "template": template.description,
            **self._ends(checkpoint, template),
            "seed": self.config.seed if weights.seed is None else weights.seed,
            "max_tokens": max_tokens,
        }

    def _ends(self, checkpoint: str, template: prompts.Template) -> dict[str, Any]:
        """Where texts end and what is never drawn, unless the fingerprint says it already."""
        own, specials = self.config.checkpoints[checkpoint].stop_tokens, self.inputs.specials(checkpoint)
        ends = specials.decided(template.stop_tokens, own) if specials else {}
        return {"ends": ends} if ends else {}

    def traced(self, generation: Generation) -> Traced | None:
        """Which searches of a stream are recorded; None for none. No part of any id."""
        section = self.config.study.trace
        if section is None:
            return None
        if section.policies == "searches":
            is_chosen = generation.spec["policy"]["controller"]["name"] != "autoregressive"
        else:
            is_chosen = section.policies == "all" or not set(section.policies).isdisjoint(generation.policies)
        return Traced(section.questions) if is_chosen else None

    # ---- pools

    def pools(self, checkpoint: str, benchmark: str) -> tuple[JobPool, ...]:
        """The cell's generations cut into jobs of about ``target_minutes``, in configuration order.

        They depend on the configuration alone, never on the samples in the store, because all jobs of a run have to
        agree on them. A generation that takes longer is cut into ranges of whole runs.
        """
        return tuple(JobPool(checkpoint, benchmark, part) for part in self._packed(checkpoint, benchmark))

    def _packed(self, checkpoint: str, benchmark: str) -> Iterator[tuple[Generation, ...]]:
        target, largest = float(self.config.target_minutes), int(self.config.pool_size)
        packed: list[Generation] = []
        total = 0.0
        for generation in self.generations(checkpoint, benchmark):
            for part in self._parts(checkpoint, benchmark, generation, target):
                minutes = self.minutes_of(checkpoint, benchmark, part) or 0.0
                if packed and (len(packed) == largest or total + minutes > target):
                    yield tuple(packed)
                    packed, total = [], 0.0
                packed.append(part)
                total += minutes
        if packed:
            yield tuple(packed)

    def _parts(self, checkpoint: str, benchmark: str, generation: Generation, target: float) -> Iterator[Generation]:
        """Ranges of whole runs of at most ``target`` minutes each; a run that takes longer is a range of its own."""
        width = self._policies[generation.policies[0]].width
        runs = -(-generation.samples // width)
        minutes = self.minutes_of(checkpoint, benchmark, generation) or 0.0
        count = max(1, min(runs, math.ceil(minutes / target)))
        if count == 1:
            yield generation
            return
        edges = [width * (runs * i // count) for i in range(count)] + [generation.samples]
        for start, stop in pairwise(edges):
            yield replace(generation, start=start, samples=stop)

    def tokens(self, benchmark: str, generation: Generation) -> float:
        """Tokens that a range of samples is expected to draw, by ``cost``."""
        samples = generation.samples - generation.start
        return samples * self.inputs.count(benchmark) * self.tokens_each(generation.policies[0], benchmark)

    def tokens_each(self, name: str, benchmark: str) -> float:
        """Tokens that a sample of a policy is expected to draw, by ``cost``."""
        policy = self._policies[name]
        return cost.tokens_per_run(policy, self.texts(benchmark)) / policy.width

    def texts(self, benchmark: str) -> Texts:
        """The texts that a policy is expected to draw on a benchmark, by ``cost``."""
        return cost.texts(self.config, benchmark, cost.assumed_length(self.config, benchmark))

    def minutes_of(self, checkpoint: str, benchmark: str, generation: Generation) -> float | None:
        """Expected wall time of a range of samples on the GPUs of its checkpoint; None if no speed is known."""
        speed = self._speed(checkpoint, benchmark, cost.is_search(self._policies[generation.policies[0]]))
        if speed is None:
            return None
        rate = speed.tokens_per_second * self.study.engine(checkpoint).gpus
        return float(self.tokens(benchmark, generation) / rate / 60)

    def _speed(self, checkpoint: str, benchmark: str, of_searches: bool) -> cost.Speed | None:
        shape, texts = self.inputs.shape(checkpoint), self.texts(benchmark)
        return cost.assumed_speed(self.config, checkpoint, shape, texts, of_searches=of_searches)

    def find_pool(self, checkpoint: str, benchmark: str, manifest: str) -> JobPool:
        """The pool that a manifest's file name stands for.

        An InputError: no current pool has that name, as the configuration changed since this run was planned.
        """
        pool_and_fill = parse_manifest(Path(manifest))
        for pool in self.pools(checkpoint, benchmark):
            if pool_and_fill and pool.name == pool_and_fill[0]:
                return pool
        raise InputError(
            f"{manifest}: {checkpoint}/{benchmark} has no such pool",
            "the configuration changed since this run was planned; start the run again",
        )


def _versions(policy: Policy, template: prompts.Template) -> dict[str, int]:
    """Versions of what decides the tokens of a policy, by name, where they are not the first."""
    parts = (policy.controller, policy.evaluator, policy.transition, policy.scheduler)
    versions = {part.name: part.version for part in parts}
    if template.stop_texts:
        versions["stop texts"] = policy.controller.stops_version
    return {name: version for name, version in versions.items() if version > 1}


def _policy_spec(policy: Policy) -> dict[str, Any]:
    """Everything in a policy that decides tokens: its components, and the code of a controller of an extension."""
    controller = catalogue.declared("controller")[policy.controller.name]
    code = {"controller_sha256": file_sha256(controller.path)} if controller.is_extension else {}
    return {"policy": policy.resolved(), **code}
