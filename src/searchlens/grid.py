"""What there is to do: configuration in, cells, generation ids and file names out.

Standard library only (and modules that import nothing else), because the Snakefile imports this several times per job.
The content of a generation id is decided here and nowhere else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from searchlens import benchmarks, cost, pins, policies
from searchlens.benchmarks import prompts
from searchlens.benchmarks.families import FAMILIES
from searchlens.errors import InputError
from searchlens.store import digest, file_sha256, fingerprint, gaps, read_json, shards_of, uncovered, weight_files

GENERATION_VERSION = 1
"""Raised by hand when the same request would give other tokens."""

FINGERPRINT_LIMIT = 256 * 2**20
"""Bytes of weights beyond which a fingerprint is not computed at planning time."""

ROLES = ("base", "rl")

_FETCH = "run `searchlens fetch` where the hub can be reached"

_MANIFEST = re.compile(r"(pool-[0-9a-f]{8})(?:\.r(\d+))?\.json")


@dataclass(frozen=True)
class Generation:
    """One stream of samples per question: everything that decides its tokens is in ``spec``.

    Attributes
    ----------
    id : str
        12 hexadecimal digits of the sha256 of ``spec``.
    policies : tuple of str
        The configured names that resolve to it, in configuration order.
    samples : int
        Samples per question wanted; not part of the id.
    spec : mapping
        Plain JSON.
    start : int
        The first of them: above 0 in the pools of a stream that takes several jobs.
    """

    id: str
    policies: tuple[str, ...]
    samples: int
    spec: Mapping[str, Any]
    start: int = 0

    @property
    def range(self) -> tuple[str, int] | tuple[str, int, int]:
        """What tells it from the other generations of a pool."""
        return (self.id, self.start, self.samples) if self.start else (self.id, self.samples)


@dataclass(frozen=True)
class Pool:
    """The generations that one job makes with one engine start."""

    checkpoint: str
    benchmark: str
    generations: tuple[Generation, ...]

    @cached_property
    def name(self) -> str:
        """``pool-<hash8>``, by the ids and sample ranges whatever their order."""
        return "pool-" + digest(sorted(g.range for g in self.generations), 8)


@dataclass(frozen=True)
class Import:
    """One pool of samples that somebody brought (``searchlens import``)."""

    pair: str
    role: str
    checkpoint: str
    benchmark: str
    policy: str
    id: str
    samples: int
    grader: str
    questions: str

    @classmethod
    def read(cls, path: Path) -> Import:
        """One registry file."""
        return cls(**read_json(path))


class Grid:
    """All cells of a configuration and where their files lie.

    Parameters
    ----------
    config : mapping
        Validated configuration (``searchlens.config.validate``), as plain JSON types.
    root : Path, optional
        What relative paths are relative to.
    """

    def __init__(self, config: Mapping[str, Any], root: Path = Path()) -> None:
        self.config = config
        self.root = root
        self.results: Path = root / config["results"]
        self._policies = {name: policies.from_spec(name, spec) for name, spec in config["policies"].items()}

    @cached_property
    def _resolved(self) -> dict[str, dict[str, Any]]:
        return {name: policy.resolved() for name, policy in self._policies.items()}

    # ---- what is asked for

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """Everything that was imported into this results folder."""
        return tuple(Import.read(path) for path in sorted((self.results / "imports").glob("*/*/*/*.json")))

    @cached_property
    def pairs(self) -> dict[str, dict[str, str]]:
        """Pair name to its two checkpoints: the configured ones of this study, then imported ones."""
        known = self.config["pairs"]
        configured = {name: {role: known[name][role] for role in ROLES} for name in self.config["study"]["pairs"]}
        for item in self.imports:
            configured.setdefault(item.pair, {})[item.role] = item.checkpoint
        return configured

    def is_sampled(self, checkpoint: str, benchmark: str) -> bool:
        """Whether a cell is sampled in this run, rather than read from compact readouts."""
        chosen = self.config["study"]["sample"]
        return benchmark in chosen if chosen != "all" else (checkpoint, benchmark) not in self.readouts

    @cached_property
    def cells(self) -> tuple[tuple[str, str], ...]:
        """(checkpoint, benchmark) of this study, imports last."""
        pairs = [self.config["pairs"][name] for name in self.config["study"]["pairs"]]
        asked = self.config["study"]["benchmarks"]
        once = [(pair[r], b) for pair in pairs for r in ROLES for b in asked if self._belongs(b, pair, r)]
        fitted = [b for b in asked if self.config["benchmarks"][b]["role"] == "fitted"]
        repeats = [batch[r] for pair in pairs for batch in pair["batches"].values() for r in ROLES if batch[r]]
        wanted = dict.fromkeys([*once, *((checkpoint, b) for checkpoint in repeats for b in fitted)])
        wanted.update(dict.fromkeys((item.checkpoint, item.benchmark) for item in self.imports))
        return tuple(wanted)

    def _belongs(self, benchmark: str, pair: Mapping[str, Any], role: str) -> bool:
        """Whether one side of a pair is asked a benchmark: Base alone where RL plays no part."""
        part = self.config["benchmarks"][benchmark]["role"]
        if part == "rltrain":
            return role == "base" and pair["rltrain"] in (None, benchmark)
        return role == "base" or part != "descriptive"

    @cached_property
    def readouts(self) -> dict[tuple[str, str], Path]:
        """Compact readouts that stand for the samples of a cell, unless ``study.sample`` names its benchmark."""
        study = self.config["study"]
        named = () if study["sample"] == "all" else study["sample"]
        cells = [cell for cell in self.cells if study["readouts"] and cell[1] not in named and not self.imported(*cell)]
        paths = {cell: self._readouts_path(*cell) for cell in cells}
        return {cell: path for cell, path in paths.items() if path.exists()}

    def _readouts_path(self, checkpoint: str, benchmark: str) -> Path:
        return readouts_path(self.root / self.config["study"]["readouts"], checkpoint, benchmark)

    @cached_property
    def pair_cells(self) -> tuple[tuple[str, str], ...]:
        """(pair, benchmark) for which both checkpoints have a cell."""
        cells, order = set(self.cells), dict.fromkeys(benchmark for _, benchmark in self.cells)
        both = [(name, roles) for name, roles in self.pairs.items() if set(roles) == set(ROLES)]
        return tuple(
            (name, b) for name, roles in both for b in order if {(roles["base"], b), (roles["rl"], b)} <= cells
        )

    @property
    def readout_pairs(self) -> list[tuple[str, str]]:
        """(pair, benchmark) of which both sides are read from compact readouts."""
        sides = {(name, b): {(self.pairs[name][role], b) for role in ROLES} for name, b in self.pair_cells}
        return [cell for cell, both in sides.items() if both <= self.readouts.keys()]

    def imported(self, checkpoint: str, benchmark: str) -> tuple[Import, ...]:
        """Imported policies of one cell."""
        return tuple(i for i in self.imports if (i.checkpoint, i.benchmark) == (checkpoint, benchmark))

    # ---- BOPTR

    def read_budgets(self, benchmark: str) -> list[int]:
        """Budgets at which a benchmark's landscape is read: B, and beyond it the benchmark's extension."""
        configured = self.config["benchmarks"].get(benchmark)
        return [*self.config["budgets"], *(configured["extension"] if configured else ())]

    @cached_property
    def anchor(self) -> tuple[str, str]:
        """(pair, benchmark) on which the rule was found; by default the first ones; empty names where there is none."""
        given = self.config["boptr"]["anchor"]
        pair = given["pair"] or next(iter(self.pairs), "")
        return pair, given["benchmark"] or next(iter(self.config["study"]["benchmarks"]), "")

    @cached_property
    def without_boptr(self) -> str:
        """Why this study has no BOPTR stage; empty where it has one."""
        pair, benchmark = self.anchor
        if (pair, benchmark) not in self.pair_cells:
            return (
                f"the anchor {pair or '(none)'}/{benchmark or '(none)'} is not among the study's pairs and benchmarks"
            )
        if self.benchmark(benchmark).get("regime") is None:
            return f"the anchor benchmark {benchmark} has no regime (benchmarks.{benchmark}.regime)"
        budgets = self.config["budgets"]
        if len(budgets) < 2 or budgets != [2**i for i in range(len(budgets))]:
            return f"it rounds budgets in powers of two: 1, 2, 4, ...; budgets are {budgets}"
        return ""

    def cohort_plan(self) -> dict[str, Any]:
        """The study as ``boptr.cohort.CohortPlan`` takes it: pairs with a Base side, benchmarks with a regime."""
        configured = self.config["benchmarks"]
        chosen = [name for name in self.config["study"]["benchmarks"] if configured[name]["regime"]]
        pair, benchmark = self.anchor
        return {
            "anchor_model": pair,
            "anchor_benchmark": benchmark,
            "models": {name: self._cohort_model(name) for name, roles in self.pairs.items() if "base" in roles},
            "benchmarks": {
                name: {key: configured[name][key] for key in ("regime", "role", "title")} for name in chosen
            },
            "default_policy": self.config["default_policy"],
            "budgets": list(self.config["budgets"]),
            "source": self.least_direct(self.cells),
        }

    def _cohort_model(self, name: str) -> dict[str, Any]:
        """A pair of the study; an imported one is of the upper cohort, of unknown size."""
        found: dict[str, Any] = {"rl": None, **self.pairs[name]}
        if name in self.config["study"]["pairs"]:
            pair = self.config["pairs"][name]
            found |= {key: pair[key] for key in ("group", "parameters", "rltrain")}
            if pair["rltrain"] and pair["rltrain"] not in self.config["study"]["benchmarks"]:
                found["rltrain"] = ""
            found["batches"] = {
                key: {role: batch[role] for role in ROLES if batch[role]} for key, batch in pair["batches"].items()
            }
        return found

    @cached_property
    def compared(self) -> tuple[str, str] | None:
        """(checkpoint, benchmark) on which policies are compared with references: the first Base; None for none."""
        section, study = self.config["equivalence"], self.config["study"]
        if section is None or not section["questions"] or not study["pairs"] or not study["benchmarks"]:
            return None
        return self.config["pairs"][study["pairs"][0]]["base"], study["benchmarks"][0]

    # ---- questions

    def benchmark(self, name: str) -> Mapping[str, Any]:
        """Path, hash, grader and limits of a benchmark, configured or imported.

        Raises
        ------
        InputError
            Unknown name.
        """
        if name in self.config["benchmarks"]:
            return dict(self.config["benchmarks"][name])
        for item in self.imports:
            if item.benchmark == name:
                own = {"family": benchmarks.OWN, "path": item.questions, "sha256": None, "check": True}
                return {**own, "questions": None, "grader": item.grader, "title": name}
        raise InputError(f"benchmark {name!r} is unknown; known: {sorted(self.config['benchmarks'])}")

    def questions(self, name: str) -> tuple[benchmarks.Question, ...]:
        """The questions of a benchmark that this configuration uses, read once."""
        if name not in self._questions:
            spec = self.benchmark(name)
            self._questions[name] = benchmarks.load(
                self.question_files(name),
                expected_sha256=spec["sha256"],
                limit=spec["questions"],
                family=spec["family"],
                check=spec["check"],
            )
        return self._questions[name]

    def dataset_sources(self, name: str) -> list[pins.Source]:
        """The hub datasets of a benchmark, one for each of its parts; none where it has a path."""
        spec = self.benchmark(name)
        if spec["path"] is not None:
            return []
        return [pins.dataset(split, spec["revision"]) for split in benchmarks.splits(spec["family"])]

    def question_files(self, name: str) -> list[Path]:
        """Files and folders that hold a benchmark.

        Raises
        ------
        InputError
            A dataset of the hub that is not pinned, not fetched, or not what was pinned.
        """
        path = self.benchmark(name)["path"]
        if path is not None:
            return [self.root / each for each in ([path] if isinstance(path, str) else path)]
        hash_of = pins.Hashes(self.results / "hashes")
        return [pins.check(source, self.lock[source], hash_of) for source in self.dataset_sources(name)]

    def absent(self, name: str) -> str:
        """Why the questions of a known benchmark cannot be read here; empty where they can.

        A study with such a benchmark can be planned, with a placeholder for the questions; running it is refused
        (``require_ready``).
        """
        if name not in self._absent:
            self._absent[name] = self._why_absent(name)
        return self._absent[name]

    @cached_property
    def _absent(self) -> dict[str, str]:
        return {}

    def _why_absent(self, name: str) -> str:
        spec = self.benchmark(name)
        if spec["family"] == benchmarks.OWN:
            return ""
        if spec["path"] is not None:
            gone = [str(path) for path in self.question_files(name) if not path.exists()]
            return f"benchmark {name!r}: {', '.join(gone)} does not exist" if gone else ""
        for source in self.dataset_sources(name):
            pin = self.lock.get(source)
            if pin is None:
                return f"not pinned: {source}"
            if pins.lacking(source, pin):
                return f"not fetched: {source} at {pin.commit}"
        return ""

    def count(self, name: str) -> int:
        """Questions in use; where they are absent, as many as the family is known to have."""
        if not self.absent(name):
            return len(self.questions(name))
        spec = self.benchmark(name)
        return int(spec["questions"] or next(iter(FAMILIES[spec["family"]].sizes), 0))

    @cached_property
    def _questions(self) -> dict[str, tuple[benchmarks.Question, ...]]:
        return {}

    # ---- weights

    @cached_property
    def lock(self) -> pins.Lock:
        """What ``hub`` names stand for."""
        return pins.Lock.read(self.root / self.config["lock"])

    def checkpoint_source(self, checkpoint: str) -> pins.Source | None:
        """The hub repository of a checkpoint; None for a folder."""
        spec = self.config["checkpoints"][checkpoint]
        return pins.checkpoint(spec["hub"], spec["revision"]) if spec["hub"] else None

    def sources(self, *, everything: bool = False) -> list[pins.Source]:
        """Every hub repository that this study samples from, or that the whole configuration names; each once."""
        checkpoints, asked = self.config["checkpoints"], self.config["benchmarks"]
        if not everything:
            cells = [(c, b) for c, b in self.cells if c in checkpoints and b in asked and self.is_sampled(c, b)]
            checkpoints, asked = dict.fromkeys(c for c, _ in cells), dict.fromkeys(b for _, b in cells)
        found = [source for name in checkpoints if (source := self.checkpoint_source(name))]
        return list(dict.fromkeys([*found, *(source for name in asked for source in self.dataset_sources(name))]))

    def checkpoint_folder(self, checkpoint: str) -> Path:
        """Where the weights lie.

        Raises
        ------
        InputError
            A hub checkpoint that is not pinned.
        """
        source = self.checkpoint_source(checkpoint)
        if source is None:
            return self.root / str(self.config["checkpoints"][checkpoint]["path"])
        return pins.snapshot(source, self.lock[source])

    def checked_folder(self, checkpoint: str) -> Path:
        """``checkpoint_folder`` once every byte in it is what was pinned or declared; hashes are kept in the results.

        Raises
        ------
        InputError
            Not pinned, missing, or different.
        """
        source, hash_of = self.checkpoint_source(checkpoint), pins.Hashes(self.results / "hashes")
        if source is not None:
            return pins.check(source, self.lock[source], hash_of)
        folder, declared = self.checkpoint_folder(checkpoint), self.config["checkpoints"][checkpoint]["sha256"]
        if declared and (found := fingerprint(folder, hash_of)) != declared:
            raise InputError(
                f"checkpoint {folder} has fingerprint {found[:12]}…, the configuration declares {declared[:12]}…",
                f"restore the files, or update checkpoints.{checkpoint}.sha256 if the change is meant",
            )
        return folder

    def require_ready(self, checkpoint: str, benchmark: str) -> None:
        """Refuse a cell that would be sampled from what is not pinned or not there.

        Sizes of weights are compared, their bytes are not read: ``checked_folder`` does that before they are loaded. A
        cell of which nothing is lacking needs no weights.

        Raises
        ------
        InputError
            Says what to run first.
        """
        if not any(True for pool in self.pools(checkpoint, benchmark) for _ in self.lacking(pool)):
            return
        if absent := self.absent(benchmark):
            hints = {"not pinned": "run `searchlens pin` where the hub can be reached", "not fetched": _FETCH}
            raise InputError(absent, hints.get(absent.split(":")[0], "put the file there, or correct `path`"))
        source = self.checkpoint_source(checkpoint)
        if source is None:
            return
        if missing := pins.lacking(source, self.lock[source]):
            raise InputError(
                f"checkpoint {checkpoint!r}: {pins.snapshot(source, self.lock[source])} is not complete:"
                f" {'; '.join(missing[:3])}{' and more' if len(missing) > 3 else ''}",
                _FETCH,
            )

    def placeholders(self) -> list[str]:
        """What of the study stands in for weights or questions that are not known here: its ids are nobody's."""
        cells = [(c, b) for c, b in self.cells if self.generations(c, b)]
        sources = dict.fromkeys(self.checkpoint_source(checkpoint) for checkpoint, _ in cells)
        unpinned = [f"not pinned: {source}" for source in sources if source and not self.lock.get(source)]
        return unpinned + [absent for b in dict.fromkeys(b for _, b in cells) if (absent := self.absent(b))]

    def refusals(self) -> list[str]:
        """Why cells of the study are refused when it is run (``require_ready``), each reason once."""
        reasons: dict[str, None] = {}
        for cell in self.cells:
            try:
                self.require_ready(*cell)
            except InputError as error:
                reasons[error.message] = None
        return list(reasons)

    # ---- generations

    def samples(self, benchmark: str, policy: str) -> int:
        """Samples per question wanted of a policy on a benchmark."""
        spec = self.config["benchmarks"][benchmark]
        return int(spec["deeper"].get(policy) or spec["samples"] or self.config["samples"])

    @cached_property
    def _fingerprints(self) -> dict[str, str]:
        return {}

    def fingerprint(self, checkpoint: str) -> str:
        """The fingerprint of a checkpoint: pinned, declared, or computed where it is small.

        A hub checkpoint that is not pinned has a placeholder that no weights have, so that a study can be planned;
        running it is refused (``require_ready``).

        Raises
        ------
        InputError
            Files missing, or too large to hash at planning time.
        """
        if checkpoint not in self._fingerprints:
            self._fingerprints[checkpoint] = self._fingerprint(checkpoint)
        return self._fingerprints[checkpoint]

    def _fingerprint(self, checkpoint: str) -> str:
        spec = self.config["checkpoints"][checkpoint]
        if source := self.checkpoint_source(checkpoint):
            pin = self.lock.get(source)
            return pin.fingerprint if pin else f"not pinned: {source}"
        folder = self.root / spec["path"]
        files = weight_files(folder)
        if spec["sha256"] is None and sum(path.stat().st_size for path in files) > FINGERPRINT_LIMIT:
            raise InputError(
                f"checkpoint {checkpoint!r} is too large to hash at every start",
                f"run `searchlens fingerprint {spec['path']}` once and set checkpoints.{checkpoint}.sha256",
            )
        return spec["sha256"] or fingerprint(folder)

    @cached_property
    def _asked(self) -> dict[str, str]:
        return {}

    @cached_property
    def _content(self) -> dict[str, str]:
        return {}

    def content_hash(self, benchmark: str) -> str:
        """Hash of everything in the questions in use: what decides the verdicts; or a placeholder (``absent``)."""
        if absent := self.absent(benchmark):
            return absent
        if benchmark not in self._content:
            self._content[benchmark] = benchmarks.content_hash(self.questions(benchmark))
        return self._content[benchmark]

    def asked_hash(self, benchmark: str) -> str:
        """Hash of the questions in use, golds left out: a corrected gold samples nothing anew; or a placeholder."""
        if absent := self.absent(benchmark):
            return absent
        if benchmark not in self._asked:
            self._asked[benchmark] = benchmarks.asked_hash(self.questions(benchmark))
        return self._asked[benchmark]

    def template(self, checkpoint: str, benchmark: str) -> prompts.Template:
        """How a checkpoint is asked a configured benchmark."""
        asked = self.config["benchmarks"][benchmark]
        name = self.config["checkpoints"][checkpoint]["template"]
        return prompts.template(name, asked["wording"], recipe_stops=asked["recipe_stops"])

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

    def generations(self, checkpoint: str, benchmark: str) -> tuple[Generation, ...]:
        """What this run samples for a cell, in configuration order; policies that resolve alike share one."""
        return self.streams(checkpoint, benchmark) if self.is_sampled(checkpoint, benchmark) else ()

    def streams(self, checkpoint: str, benchmark: str) -> tuple[Generation, ...]:
        """What a cell is drawn from, by this run or by one before it."""
        if (checkpoint, benchmark) not in self._generations:
            self._generations[checkpoint, benchmark] = self._resolve(checkpoint, benchmark)
        return self._generations[checkpoint, benchmark]

    @cached_property
    def _generations(self) -> dict[tuple[str, str], tuple[Generation, ...]]:
        return {}

    def _resolve(self, checkpoint: str, benchmark: str) -> tuple[Generation, ...]:
        if benchmark not in self.config["benchmarks"] or checkpoint not in self.config["checkpoints"]:
            return ()
        found: dict[str, Generation] = {}
        searches = self.search_policies(benchmark) if self.is_searched(checkpoint) else []
        shared = self._shared_spec(checkpoint, benchmark)
        for name in dict.fromkeys([*self.pool_policies(benchmark), *self.config["references"], *searches]):
            policy = self._policies[name]
            spec = {**shared, "policy": self._resolved[name]}  # one object for all cells: there may be thousands
            key = digest(spec, 12)
            names = (*found[key].policies, name) if key in found else (name,)
            samples = policy.width if policy.deterministic else max(self.samples(benchmark, each) for each in names)
            found[key] = Generation(key, names, samples, spec)
        return tuple(found.values())

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

    def policy(self, name: str) -> policies.Policy | None:
        """The policy of a name: configured, spelled by the name, or None for an imported one with a name of its own."""
        if name in self._policies:
            return self._policies[name]
        try:
            return policies.parse(name)
        except InputError:
            return None

    def pools(self, checkpoint: str, benchmark: str) -> tuple[Pool, ...]:
        """The cell's generations cut into jobs of about ``target_minutes``, in configuration order.

        By the configuration alone, never by what the store holds: all jobs of a run have to agree on it. A generation
        that takes longer is cut into ranges of whole runs.
        """
        if (checkpoint, benchmark) not in self._pools:
            packed = self._packed(checkpoint, benchmark)
            self._pools[checkpoint, benchmark] = tuple(Pool(checkpoint, benchmark, part) for part in packed)
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
        each = cost.tokens_per_run(policy, length.tokens, limit) / policy.width
        tokens = (generation.samples - generation.start) * self.count(benchmark) * each
        gpus = self.config["checkpoints"][checkpoint]["vllm"]["tensor_parallel"]
        return float(tokens / (pace.tokens_per_second * gpus) / 60)

    @cached_property
    def _speeds(self) -> dict[str, cost.Speed | None]:
        return {}

    def minutes(self, pool: Pool) -> float | None:
        """Expected wall time of what the store lacks of a pool, the engine's start not counted.

        Returns
        -------
        float or None
            Minutes, by ``cost``; 0 where nothing is lacking, None where no speed is known.
        """
        total = 0.0
        for generation, start, stop in self.lacking(pool):
            part = replace(generation, start=start, samples=stop)
            minutes = self._minutes(pool.checkpoint, pool.benchmark, part)
            if minutes is None:
                return None
            total += minutes
        return total

    @cached_property
    def _pools(self) -> dict[tuple[str, str], tuple[Pool, ...]]:
        return {}

    def find_pool(self, checkpoint: str, benchmark: str, manifest: str) -> Pool:
        """The pool that a manifest's file name stands for.

        Raises
        ------
        InputError
            No current pool has that name: the configuration changed since this run was planned.
        """
        match = _MANIFEST.fullmatch(Path(manifest).name)
        for pool in self.pools(checkpoint, benchmark):
            if match and pool.name == match[1]:
                return pool
        raise InputError(
            f"{manifest}: {checkpoint}/{benchmark} has no such pool",
            "the configuration changed since this run was planned; start the run again",
        )

    # ---- file names

    def folder(self, checkpoint: str, benchmark: str, generation_id: str) -> Path:
        """Where the shards of one generation lie."""
        return self.results / "generations" / checkpoint / benchmark / generation_id

    def record(self, pool: Pool) -> Path:
        """What the last job of a pool says of itself."""
        return self.results / "jobs" / pool.checkpoint / pool.benchmark / f"{pool.name}.json"

    def lock_of(self, pool: Pool) -> Path:
        """By which jobs of one pool know of one another."""
        return self.results / "locks" / f"{pool.checkpoint}.{pool.benchmark}.{pool.name}"

    def current_manifest(self, pool: Pool) -> Path:
        """The manifest that stands for the store as it is.

        The highest fill round on disk when everything it covers is present and nothing is newer; otherwise the next
        round, which does not exist yet, so that a run makes it. No side effects.
        """
        folder = self.results / "manifests" / pool.checkpoint / pool.benchmark
        rounds = {-1}
        if folder.is_dir():
            for path in folder.iterdir():
                if (match := _MANIFEST.fullmatch(path.name)) and match[1] == pool.name:
                    rounds.add(int(match[2] or 0))
        latest = max(rounds)
        if latest >= 0 and self._is_current(folder / _manifest_name(pool.name, latest), pool):
            return folder / _manifest_name(pool.name, latest)
        return folder / _manifest_name(pool.name, latest + 1)

    def _is_current(self, manifest: Path, pool: Pool) -> bool:
        written = manifest.stat().st_mtime_ns
        for generation in pool.generations:
            shards = shards_of(self.folder(pool.checkpoint, pool.benchmark, generation.id))
            if uncovered(shards, generation.samples, generation.start):
                return False
            used = [shard for shard in shards if shard.stop > generation.start and shard.start < generation.samples]
            if any(shard.present and shard.path.stat().st_mtime_ns > written for shard in used):
                return False
        return True

    def manifests(self, checkpoint: str, benchmark: str) -> list[Path]:
        """Current manifests of a cell."""
        return [self.current_manifest(pool) for pool in self.pools(checkpoint, benchmark)]

    def import_records(self, checkpoint: str, benchmark: str) -> list[Path]:
        """Registry files of a cell's imported policies."""
        return [
            import_path(self.results, i.benchmark, i.pair, i.role, i.policy)
            for i in self.imported(checkpoint, benchmark)
        ]

    def lacking(self, pool: Pool) -> Iterator[tuple[Generation, int, int]]:
        """(generation, start, stop) that the store does not have, in order."""
        for generation in pool.generations:
            folder = self.folder(pool.checkpoint, pool.benchmark, generation.id)
            for start, stop in gaps(folder, generation.samples, generation.start):
                yield generation, start, stop

    def scores(self, checkpoint: str, benchmark: str) -> Path:
        """What the landscape of a cell is read from: samples graded by this run, or compact readouts."""
        if self.source(checkpoint, benchmark) == "recorded":
            return self._readouts_path(checkpoint, benchmark)
        return self.results / "scores" / checkpoint / f"{benchmark}.parquet"

    def readouts_from(self, checkpoint: str, benchmark: str) -> dict[str, str]:
        """What compact readouts of a cell must have been drawn from, graded by and read with."""
        streams = {name: (g.id, g.samples) for g in self.streams(checkpoint, benchmark) for name in g.policies}
        reading = {"budgets": self.read_budgets(benchmark), "seed": self.config["seed"], **self.config["landscape"]}
        return {
            "weights": self.fingerprint(checkpoint),
            "questions": self.asked_hash(benchmark),
            "golds": digest(self.content_hash(benchmark), 16),
            "streams": digest(streams, 16),
            "reading": digest(reading, 16),
        }

    def check(self) -> None:
        """Resolve everything the study names, and check that what is recorded is what would be sampled here.

        Raises
        ------
        InputError
            Something is missing or does not match; nothing has been started.
        """
        for checkpoint, benchmark in self.cells:
            self.generations(checkpoint, benchmark)
            if self.source(checkpoint, benchmark) == "recorded":
                self._check_recorded(checkpoint, benchmark)

    def _check_recorded(self, checkpoint: str, benchmark: str) -> None:
        path = self.scores(checkpoint, benchmark)
        sidecar = sidecar_of(path)
        step = "delete them" if self.config["study"]["sample"] == "all" else f"add {benchmark} to study.sample"
        hint = f"{step}, so that it is sampled here, or record it anew (searchlens record)"
        if not path.exists() or not sidecar.exists():
            raise InputError(f"compact readouts {path} (with their .json) are missing", hint)
        found = read_json(sidecar)
        for key, value in self.readouts_from(checkpoint, benchmark).items():
            if found.get(key) != value:
                other = _DRAWN_FROM.get(key, key)
                raise InputError(f"compact readouts {path} are of other {other} than the configured ones", hint)

    def source(self, checkpoint: str, benchmark: str) -> str:
        """``sampled``, ``imported`` or ``recorded``: said in figures."""
        if self.imported(checkpoint, benchmark):
            return "imported"
        return "sampled" if self.is_sampled(checkpoint, benchmark) else "recorded"

    def least_direct(self, cells: Iterable[tuple[str, str]]) -> str:
        """The least direct source of some cells."""
        found = {self.source(*cell) for cell in cells}
        return next(name for name in SOURCES if name in found)


SOURCES = ("recorded", "imported", "sampled")
"""From the least direct to the most direct."""


def _manifest_name(pool: str, fill: int) -> str:
    return f"{pool}.json" if fill == 0 else f"{pool}.r{fill}.json"


def latest_manifests(results: Path) -> list[Path]:
    """Of every pool that a results folder has, current or not, the manifest of the highest fill round."""
    latest: dict[tuple[Path, str], tuple[int, Path]] = {}
    for path in (results / "manifests").glob("*/*/pool-*.json"):
        if match := _MANIFEST.fullmatch(path.name):
            pool, fill = (path.parent, match[1]), int(match[2] or 0)
            latest[pool] = max(latest.get(pool, (fill, path)), (fill, path))
    return sorted(path for _, path in latest.values())


_DRAWN_FROM = {"streams": "policies, samples or seeds", "reading": "budgets or landscape options"}
READOUTS_SUFFIX = ".arrow.xz"


def readouts_path(folder: Path, checkpoint: str, benchmark: str) -> Path:
    """Compact readouts of a cell, in a folder of them."""
    return folder / checkpoint / f"{benchmark}{READOUTS_SUFFIX}"


def sidecar_of(readouts: Path) -> Path:
    """What says of compact readouts what they were drawn from."""
    return readouts.with_name(readouts.name.removesuffix(READOUTS_SUFFIX) + ".json")


def import_path(results: Path, benchmark: str, pair: str, role: str, policy: str) -> Path:
    """Registry file of one imported pool."""
    return results / "imports" / benchmark / pair / role / f"{policy}.json"


def known(name: str, names: Iterable[str], what: str) -> str:
    """``name`` when it is one of ``names``; otherwise an ``InputError`` that lists them."""
    allowed = sorted(names)
    if name not in allowed:
        raise InputError(f"{what} {name!r} is unknown; known: {', '.join(allowed) or '(none)'}")
    return name


_STAGE_SOURCES = {
    "score": ("score.py", "benchmarks/*.py", "verdicts.py", "grading/*.py", "schemas.py"),
    "landscape": ("landscape*", "landscape/*.py", "uncertainty.py", "schemas.py"),
    "recovery": ("recovery*", "recovery/*.py", "uncertainty.py", "policies.py"),
    "figures": ("figures/*.py",),
    "boptr": ("boptr/*.py", "uncertainty.py", "policies.py", "tables/*.py", "figures/style.py", "figures/boptr/*.py"),
    "equivalence": (
        *("equivalence/*.py", "search/*.py", "engines/*.py", "grading/*.py", "tables/_*.py"),
        *("uncertainty.py", "landscape/_readouts.py", "generate/_job.py"),
    ),
    "tables": ("tables/__init__.py", "tables/_*.py", "tables/study.py", "tables/origins.py", "figures/*.py"),
}


def stage_source(stage: str) -> str:
    """Hash of the code of a stage, so that editing it reruns the stage; sampling has ``GENERATION_VERSION`` instead."""
    package = Path(__file__).parent
    paths = sorted(p for pattern in _STAGE_SOURCES[stage] for p in package.glob(pattern) if p.suffix == ".py")
    return digest({str(path.relative_to(package)): file_sha256(path) for path in paths}, 12)
