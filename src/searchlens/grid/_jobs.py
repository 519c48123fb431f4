"""What is sampled: streams with their ids, cut into jobs.

The content of a generation id is decided here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from searchlens import catalogue, policies
from searchlens.benchmarks import prompts
from searchlens.errors import InputError
from searchlens.grid import cost
from searchlens.grid._inputs import Inputs
from searchlens.grid._records import Generation, JobPool
from searchlens.policies import kinds
from searchlens.store.hashing import digest, file_sha256
from searchlens.store.layout import parse_manifest

GENERATION_VERSION = 1
"""Raised by hand when the same request would give other tokens."""


class Jobs(Inputs):
    """Generations of every cell, and the pools that they are made in."""

    def __init__(self, config: Mapping[str, Any], root: Path = Path()) -> None:
        super().__init__(config, root)
        self._policies = {name: policies.from_spec(name, spec) for name, spec in config["policies"].items()}
        self._generations: dict[tuple[str, str], tuple[Generation, ...]] = {}
        self._pools: dict[tuple[str, str], tuple[JobPool, ...]] = {}
        self._speeds: dict[str, cost.Speed | None] = {}

    # ---- policies

    def policy(self, name: str) -> policies.Policy | None:
        """The policy of a name: configured, spelled by the name, or None for an imported one with a name of its own."""
        return kinds.policy_of(name, self._policies)

    @cached_property
    def _policy_specs(self) -> dict[str, dict[str, Any]]:
        return {name: _policy_spec(policy) for name, policy in self._policies.items()}

    def pool_policies(self, benchmark: str) -> list[str]:
        """Names in the pool of a configured benchmark, in order, references left out."""
        return list(self.config["pools"][self.config["benchmarks"][benchmark]["pool"]])

    def search_policies(self, benchmark: str) -> list[str]:
        """Names of the expanded policies of a configured benchmark, in order; sampled on Base alone."""
        searches = self.config["benchmarks"][benchmark]["searches"]
        return list(self.config["pools"][searches]) if searches else []

    def is_searched(self, checkpoint: str) -> bool:
        """Whether the expanded policies are sampled on a checkpoint: the Base of a studied pair that wants them."""
        pairs = (self.config["pairs"][name] for name in self.config["study"]["pairs"])
        return any(pair["base"] == checkpoint and pair["searches"] for pair in pairs)

    def samples(self, benchmark: str, policy: str) -> int:
        """Samples per question wanted of a policy on a benchmark."""
        spec = self.config["benchmarks"][benchmark]
        return int(spec["deeper"].get(policy) or spec["samples"] or self.config["samples"])

    # ---- generations

    def generations(self, checkpoint: str, benchmark: str) -> tuple[Generation, ...]:
        """What this run samples for a cell, in configuration order; policies that resolve alike share one."""
        return self.streams(checkpoint, benchmark) if self.is_sampled(checkpoint, benchmark) else ()

    def streams(self, checkpoint: str, benchmark: str) -> tuple[Generation, ...]:
        """What a cell is drawn from, by this run or by one before it."""
        if (checkpoint, benchmark) not in self._generations:
            self._generations[checkpoint, benchmark] = self._resolve(checkpoint, benchmark)
        return self._generations[checkpoint, benchmark]

    def _resolve(self, checkpoint: str, benchmark: str) -> tuple[Generation, ...]:
        if benchmark not in self.config["benchmarks"] or checkpoint not in self.config["checkpoints"]:
            return ()
        found: dict[str, Generation] = {}
        searches = self.search_policies(benchmark) if self.is_searched(checkpoint) else []
        shared = self._shared_spec(checkpoint, benchmark)
        for name in dict.fromkeys([*self.pool_policies(benchmark), *self.config["references"], *searches]):
            policy = self._policies[name]
            spec = {**shared, **self._policy_specs[name]}  # one object for all cells: there may be thousands
            key = digest(spec, 12)
            names = (*found[key].policies, name) if key in found else (name,)
            samples = policy.width if policy.deterministic else max(self.samples(benchmark, each) for each in names)
            found[key] = Generation(key, names, samples, spec)
        return tuple(found.values())

    def _shared_spec(self, checkpoint: str, benchmark: str) -> dict[str, Any]:
        """What decides the tokens of a cell, but for the policy."""
        weights, asked = self.config["checkpoints"][checkpoint], self.config["benchmarks"][benchmark]
        return {
            "version": GENERATION_VERSION,
            "weights": self.fingerprint(checkpoint),
            "engine": {
                "family": weights["engine"],
                "dtype": weights["dtype"],
                "quantization": weights["quantization"],
            },
            "questions": self.asked_hash(benchmark),
            "template": self.template(checkpoint, benchmark).description,
            "seed": self.config["seed"] if weights["seed"] is None else weights["seed"],
            "max_tokens": asked["max_tokens"],
        }

    def template(self, checkpoint: str, benchmark: str) -> prompts.Template:
        """How a checkpoint is asked a configured benchmark."""
        asked = self.config["benchmarks"][benchmark]
        name = self.config["checkpoints"][checkpoint]["template"]
        return prompts.template(name, asked["wording"], recipe_stops=asked["recipe_stops"])

    # ---- pools

    def pools(self, checkpoint: str, benchmark: str) -> tuple[JobPool, ...]:
        """The cell's generations cut into jobs of about ``target_minutes``, in configuration order.

        By the configuration alone, never by what the store holds: all jobs of a run have to agree on it. A generation
        that takes longer is cut into ranges of whole runs.
        """
        if (checkpoint, benchmark) not in self._pools:
            packed = self._packed(checkpoint, benchmark)
            self._pools[checkpoint, benchmark] = tuple(JobPool(checkpoint, benchmark, part) for part in packed)
        return self._pools[checkpoint, benchmark]

    def _packed(self, checkpoint: str, benchmark: str) -> Iterator[tuple[Generation, ...]]:
        target, most = float(self.config["target_minutes"]), int(self.config["pool_size"])
        packed: list[Generation] = []
        taken = 0.0
        for generation in self.generations(checkpoint, benchmark):
            for part in self._parts(checkpoint, benchmark, generation, target):
                minutes = self._minutes(checkpoint, benchmark, part) or 0.0
                if packed and (len(packed) == most or taken + minutes > target):
                    yield tuple(packed)
                    packed, taken = [], 0.0
                packed.append(part)
                taken += minutes
        if packed:
            yield tuple(packed)

    def _parts(self, checkpoint: str, benchmark: str, generation: Generation, target: float) -> Iterator[Generation]:
        """Ranges of whole runs that take no longer than ``target`` minutes, where a single run does not."""
        width = self._policies[generation.policies[0]].width
        runs = -(-generation.samples // width)
        minutes = self._minutes(checkpoint, benchmark, generation) or 0.0
        count = max(1, min(runs, math.ceil(minutes / target)))
        if count == 1:
            yield generation
            return
        edges = [width * (runs * i // count) for i in range(count)] + [generation.samples]
        for start, stop in pairwise(edges):
            yield replace(generation, start=start, samples=stop)

    def _minutes(self, checkpoint: str, benchmark: str, generation: Generation) -> float | None:
        """Expected wall time of a range of samples on the GPUs of its checkpoint; None where no speed is known."""
        if checkpoint not in self._speeds:
            self._speeds[checkpoint] = cost.assumed_speed(self.config, checkpoint)
        pace = self._speeds[checkpoint]
        if pace is None:
            return None
        policy = self._policies[generation.policies[0]]
        limit, length = self.config["benchmarks"][benchmark]["max_tokens"], cost.assumed_length(self.config, benchmark)
        each = policy.expected_tokens(length.tokens, limit) / policy.width
        tokens = (generation.samples - generation.start) * self.count(benchmark) * each
        gpus = self.config["checkpoints"][checkpoint]["vllm"]["tensor_parallel"]
        return float(tokens / (pace.tokens_per_second * gpus) / 60)

    def find_pool(self, checkpoint: str, benchmark: str, manifest: str) -> JobPool:
        """The pool that a manifest's file name stands for.

        Raises
        ------
        InputError
            No current pool has that name: the configuration changed since this run was planned.
        """
        asked = parse_manifest(Path(manifest))
        for pool in self.pools(checkpoint, benchmark):
            if asked and pool.name == asked[0]:
                return pool
        raise InputError(
            f"{manifest}: {checkpoint}/{benchmark} has no such pool",
            "the configuration changed since this run was planned; start the run again",
        )


def _policy_spec(policy: policies.Policy) -> dict[str, Any]:
    """What decides the tokens of a policy: its components, and the code of a controller outside of the package."""
    controller = catalogue.declared("controller")[policy.controller.name]
    code = {"controller_sha256": file_sha256(controller.path)} if controller.is_extension else {}
    return {"policy": policy.resolved(), **code}
