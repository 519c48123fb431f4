"""Where the files of a study are, which samples are missing, and whether a run can start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from searchlens.config import project
from searchlens.config.model import Config
from searchlens.errors import InputError, require_known
from searchlens.plan import pins
from searchlens.plan._inputs import Inputs
from searchlens.plan._jobs import Generation, JobPool, Jobs
from searchlens.plan._study import StudyCells
from searchlens.store import layout
from searchlens.store.files import digest, entries, read_json, require_writable
from searchlens.store.layout import counts_sidecar, parse_manifest
from searchlens.store.provenance import Judge
from searchlens.store.ranges import Listed, Shard, listed, shards_of, uncovered

TO_GET_READY = "run `searchlens pin`, then `searchlens fetch`, where the hub can be reached; put other files there"


class Grid:
    """All cells of a validated configuration and where their files are; relative paths start from ``root``."""

    def __init__(self, config: Config, root: Path = Path()) -> None:
        self.study = StudyCells(config, root)
        """Pairs and cells, and where their samples come from."""
        self.inputs = Inputs(self.study)
        """Questions and weights."""
        self.jobs = Jobs(self.inputs)
        """Generations and pools."""
        self.config, self.root, self.layout = self.study.config, root, self.study.layout

    # ---- files

    def folder(self, checkpoint: str, benchmark: str, generation_id: str) -> Path:
        """Folder with the shards of one generation."""
        return self.layout.generation(checkpoint, benchmark, generation_id)

    def scores(self, checkpoint: str, benchmark: str) -> Path:
        """The file that the landscape of a cell is read from: samples graded by this run, or recorded counts."""
        if self.study.source(checkpoint, benchmark) == "recorded":
            return self.study.counts_path(checkpoint, benchmark)
        return self.layout.scores(checkpoint, benchmark)

    def import_records(self, checkpoint: str, benchmark: str) -> list[Path]:
        """Registry files of a cell's imported policies."""
        return [
            self.layout.import_record(item.benchmark, item.pair, item.role, item.policy)
            for item in self.study.imported(checkpoint, benchmark)
        ]

    # ---- the store

    def missing(self, pool: JobPool) -> Iterator[tuple[Generation, int, int]]:
        """(generation, start, stop) of every range of samples that the store does not have, in order."""
        for generation in pool.generations:
            shards = self.stored(pool.checkpoint, pool.benchmark, generation)
            for start, stop in uncovered(shards, generation.samples, generation.start):
                yield generation, start, stop

    def stored(self, checkpoint: str, benchmark: str, generation: Generation) -> list[Shard]:
        """The shards of a range of samples: the cell's own and, if these are not enough, those under other names."""
        own = self.folder(checkpoint, benchmark, generation.id)
        shards = shards_of(own)
        if uncovered(shards, generation.samples, generation.start):
            others = (folder for folder in self.folders[generation.id] if folder != own)
            shards += (shard for folder in others for shard in shards_of(folder) if shard.present)
        return sorted(shards, key=lambda shard: (shard.start, shard.stop))

    @cached_property
    def folders(self) -> Mapping[str, list[Path]]:
        """Every folder of samples by the id of its stream: several if a checkpoint or benchmark had several names."""
        found = defaultdict[str, list[Path]](list)
        for folder in self.layout.every(self.layout.generation("*", "*", "*")):
            found[folder.name].append(folder)
        return found

    def minutes(self, pool: JobPool) -> float | None:
        """Expected minutes of sampling what is missing of a pool, by ``cost``, without the start of the engine.

        0 if nothing is missing, None if no speed is known.
        """
        total = 0.0
        for generation, start, stop in self.missing(pool):
            part = replace(generation, start=start, samples=stop)
            minutes = self.jobs.minutes_of(pool.checkpoint, pool.benchmark, part)
            if minutes is None:
                return None
            total += minutes
        return total

    def manifests(self, checkpoint: str, benchmark: str) -> list[Path]:
        """Current manifests of a cell."""
        return [self.current_manifest(pool) for pool in self.jobs.pools(checkpoint, benchmark)]

    def current_manifest(self, pool: JobPool) -> Path:
        """The manifest that agrees with the present state of the store.

        The highest fill round on disk if it lists the pool, all samples that it covers are present, none of their
        shards is damaged and none is newer that it does not name; otherwise the path of the next round, which does not
        exist yet, so that a run makes it. Nothing is written.
        """
        latest = max(self._rounds(pool), default=-1)
        with suppress(FileNotFoundError):  # another job has just set the manifest, or a shard, aside
            if latest >= 0 and self._is_current(manifest := self.layout.manifest(*pool.key, latest), pool):
                return manifest
        return self.layout.manifest(*pool.key, latest + 1)

    def _rounds(self, pool: JobPool) -> list[int]:
        """Fill rounds of every manifest of a pool."""
        found = map(parse_manifest, entries(self.layout.manifest(*pool.key).parent))
        return [fill for name, fill in filter(None, found) if name == pool.name]

    def _is_current(self, manifest: Path, pool: JobPool) -> bool:
        content = listed(manifest)
        if not self.lists(manifest, pool) or not isinstance(content, Listed):
            return False
        written = manifest.stat().st_mtime_ns
        for generation in pool.generations:
            shards = shards_of(self.folder(pool.checkpoint, pool.benchmark, generation.id))
            if uncovered(shards, generation.samples, generation.start):
                return False
            used = [shard for shard in shards if shard.stop > generation.start and shard.start < generation.samples]
            for shard in used:  # named with its hash, whatever the times: clocks go wrong, copies lose times
                if not shard.present:
                    return False
                named = (generation.id, shard.path.name, shard.sidecar["sha256"]) in content.hashes
                if not named and shard.path.stat().st_mtime_ns > written:
                    return False
        return True

    def lists(self, manifest: Path, pool: JobPool) -> bool:
        """Whether a manifest can be read and lists the samples of a pool; not if it was torn or edited."""
        content = listed(manifest)
        wanted = frozenset((each.id, each.start, each.samples) for each in pool.generations)
        return isinstance(content, Listed) and content[:3] == (pool.checkpoint, pool.benchmark, wanted)

    def damaged_manifests(self, pool: JobPool) -> list[Path]:
        """Manifests of a pool, of any fill round, that do not list its samples."""
        paths = (self.layout.manifest(*pool.key, fill) for fill in self._rounds(pool))
        return [path for path in paths if not self.lists(path, pool)]

    def is_scored(self, checkpoint: str, benchmark: str) -> bool:
        """Whether all samples of a cell are present, and no manifest is newer than its scores."""
        scores, manifests = self.scores(checkpoint, benchmark), self.manifests(checkpoint, benchmark)
        if not all(path.exists() for path in (scores, *manifests)):
            return False
        return all(path.stat().st_mtime_ns <= scores.stat().st_mtime_ns for path in manifests)

    # ---- before a run

    @property
    def complete_benchmarks(self) -> list[str]:
        """Configured benchmarks that can be shown before a run ends: each side has recorded counts or a landscape."""
        study = self.study
        left = [cell for cell in study.cells if cell not in study.recorded_counts]
        waiting = {cell[1] for cell in left if not (self.layout.landscape(*cell) / layout.CONTENT).exists()}
        paired = {benchmark for _, benchmark in study.pair_cells} - waiting
        return [name for name in self.config.study.benchmarks if name in paired]

    @property
    def is_measured(self) -> bool:
        """Whether the measures of the whole study are there: its pages are made, or about to be."""
        return (self.layout.measures / layout.SIGNATURE).exists()

    def check(self, *, sampled: bool = True) -> None:
        """Resolve everything the study names, and check that recorded counts agree with the configuration.

        Some bytes of the weights are looked at, too, unless ``sampled`` is false: Snakemake plans in each of its jobs.
        An InputError names everything that is missing or does not match, or says that nothing can be written.
        """
        found: dict[str, str] = {}
        for check in self._checks(sampled):
            try:
                check()
            except InputError as error:
                found[error.message] = error.hint
        if found:
            raise InputError("\n".join(found), "; ".join(dict.fromkeys(filter(None, found.values()))))

    def _checks(self, sampled: bool) -> Iterator[Callable[[], object]]:
        yield partial(require_writable, self.layout.results)
        yield self._check_counts_folder
        yield from (
            partial(require_known, name, self.config.pairs, "boptr.mu_without:")
            for name in self.config.boptr.mu_without
        )
        drawn = [cell for cell in self.study.cells if self.study.source(*cell) == "sampled"]
        for benchmark in dict.fromkeys(benchmark for _, benchmark in drawn):
            yield partial(self.inputs.asked_hash, benchmark)
        for checkpoint in dict.fromkeys(checkpoint for checkpoint, _ in drawn):
            yield partial(self.inputs.require_whole, checkpoint, sampled=sampled)
        for cell in self.study.cells:
            yield partial(self.jobs.generations, *cell)
            if self.study.source(*cell) == "recorded":
                yield partial(self._check_recorded, *cell)
        yield from (partial(self._check_default, *cell) for cell in self.study.pair_cells)

    def _check_counts_folder(self) -> None:
        name = self.config.study.recorded_counts
        if name is not None and not (folder := project.locate(name, self.root)).is_dir():
            raise InputError(
                f"study.recorded_counts: {folder} is no folder",
                "name a folder that `searchlens record` wrote, or null to sample every cell",
            )

    def _check_default(self, pair: str, benchmark: str) -> None:
        """RL's curve under the default policy is what Base is searched for."""
        checkpoint, default = self.study.pairs[pair]["rl"], self.study.default_policy
        source = self.study.source(checkpoint, benchmark)
        drawn = {name for generation in self.jobs.generations(checkpoint, benchmark) for name in generation.policies}
        names = drawn | {item.policy for item in self.study.imported(checkpoint, benchmark)}
        if source == "recorded" or default in names:
            return
        found = ", ".join(sorted(names))
        if source == "imported":
            raise InputError(
                f"default_policy: {default}, but the RL side of {pair}/{benchmark} has samples of {found}",
                "name the policy that is RL's default there, or null for one that all imported RL samples have",
            )
        pool = self.config.benchmarks[benchmark].pool
        raise InputError(
            f"benchmarks.{benchmark}.pool: {pool!r} does not have the default policy {default!r}; it has {found}",
            f"add it to pools.{pool} or references, or set default_policy to one of them",
        )

    def counts_from(self, checkpoint: str, benchmark: str) -> dict[str, str]:
        """Hashes of everything that the recorded counts of a cell depend on: samples, golds and options of reading."""
        streams = {name: (g.id, g.samples) for g in self.jobs.streams(checkpoint, benchmark) for name in g.policies}
        reading = {
            "budgets": self.study.read_budgets(benchmark),
            "seed": self.config.seed,
            **vars(self.config.landscape),
        }
        return {
            "weights": self.inputs.fingerprint(checkpoint),
            "questions": self.inputs.asked_hash(benchmark),
            "golds": digest(self.inputs.content_hash(benchmark), 16),
            "streams": digest(streams, 16),
            "reading": digest(reading, 16),
        }

    def _check_recorded(self, checkpoint: str, benchmark: str) -> None:
        """Compare recorded counts with the configuration, as far as questions and weights are here."""
        path = self.scores(checkpoint, benchmark)
        sidecar = counts_sidecar(path)
        step = "delete them" if self.config.study.sample == "all" else f"add {benchmark} to study.sample"
        hint = f"{step}, so that it is sampled here, or record it again (searchlens record)"
        if not path.exists() or not sidecar.exists():
            raise InputError(f"recorded counts {path} (with their .json) are missing", hint)
        recorded = read_json(sidecar)
        grader = self.study.benchmark(benchmark).grader
        if (judge := Judge.of(recorded, grader)).name != grader:
            raise InputError(f"recorded counts {path} were judged by the grader {judge.name}, not by {grader}", hint)
        unknown = {"questions", "golds", "streams"} if self.inputs.absent(benchmark) else set()
        unknown |= {"weights", "streams"} if self.inputs.absent_weights(checkpoint) else set()
        for key, value in self.counts_from(checkpoint, benchmark).items():
            if key not in unknown and recorded.get(key) != value:
                what = _DRAWN_FROM.get(key, key)
                raise InputError(f"recorded counts {path} were made with other {what} than the configured ones", hint)

    def require_ready(self) -> None:
        """Check that questions and weights of all cells that have samples to draw are pinned and present.

        Only sizes of weights are compared here; ``checked_folder`` compares their bytes before they are loaded. The
        hint of the InputError says what to run first.
        """
        if found := self.refusals():
            raise InputError("\n".join(found), TO_GET_READY)

    def refusals(self) -> list[str]:
        """Why cells of the study cannot be sampled yet, each reason once."""
        cells = [cell for cell in self.study.cells if any(any(self.missing(pool)) for pool in self.jobs.pools(*cell))]
        reasons = list[str]()
        for checkpoint in dict.fromkeys(checkpoint for checkpoint, _ in cells):
            if source := self.inputs.checkpoint_source(checkpoint):
                where, pin = f"checkpoints.{checkpoint}.hub", self.inputs.lock.get(source)
                if pin is None and source.repo.startswith(project.PLACEHOLDER):
                    reasons.append(f"{where}: {source.repo} is a placeholder: name your checkpoint")
                elif pin is None:
                    reasons.append(f"{where}: {source} is not pinned in {self.inputs.lock.path}")
                elif problems := pins.missing_files(source, pin):
                    some = f"{'; '.join(problems[:3])}{' and more' if len(problems) > 3 else ''}"
                    reasons.append(f"{where}: {pins.snapshot(source, pin)} is not complete: {some}")
        reasons += [self.inputs.absent(benchmark) for benchmark in dict.fromkeys(benchmark for _, benchmark in cells)]
        return list(filter(None, reasons))

    def placeholders(self) -> list[str]:
        """Inputs that are missing here; generation ids that depend on them are placeholders."""
        cells = [(c, b) for c, b in self.study.cells if self.jobs.generations(c, b)]
        sources = dict.fromkeys(self.inputs.checkpoint_source(checkpoint) for checkpoint, _ in cells)
        unpinned = [f"not pinned: {source}" for source in sources if source and not self.inputs.lock.get(source)]
        return unpinned + [absent for b in dict.fromkeys(b for _, b in cells) if (absent := self.inputs.absent(b))]


_DRAWN_FROM = {"streams": "policies, samples or seeds", "reading": "budgets or landscape options"}
