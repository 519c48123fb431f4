"""What there is: files of a study, what the store lacks of it, and whether it can be run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from searchlens.catalogue import declared
from searchlens.errors import InputError
from searchlens.grid import pins
from searchlens.grid._jobs import Jobs
from searchlens.grid._records import Generation, JobPool
from searchlens.store.files import read_json
from searchlens.store.hashing import digest
from searchlens.store.layout import parse_manifest, readouts_sidecar
from searchlens.store.ranges import missing_ranges, shards_of, uncovered

_FETCH = "run `searchlens fetch` where the hub can be reached"


class Grid(Jobs):
    """All cells of a configuration and where their files lie; parameters are those of ``Study``."""

    # ---- files

    def folder(self, checkpoint: str, benchmark: str, generation_id: str) -> Path:
        """Folder with the shards of one generation."""
        return self.layout.generation(checkpoint, benchmark, generation_id)

    def scores(self, checkpoint: str, benchmark: str) -> Path:
        """The file that the landscape of a cell is read from: samples graded by this run, or compact readouts."""
        if self.source(checkpoint, benchmark) == "recorded":
            return self._readouts_path(checkpoint, benchmark)
        return self.layout.scores(checkpoint, benchmark)

    def import_records(self, checkpoint: str, benchmark: str) -> list[Path]:
        """Registry files of a cell's imported policies."""
        return [
            self.layout.import_record(item.benchmark, item.pair, item.role, item.policy)
            for item in self.imported(checkpoint, benchmark)
        ]

    # ---- the store

    def lacking(self, pool: JobPool) -> Iterator[tuple[Generation, int, int]]:
        """(generation, start, stop) that the store does not have, in order."""
        for generation in pool.generations:
            folder = self.folder(pool.checkpoint, pool.benchmark, generation.id)
            for start, stop in missing_ranges(folder, generation.samples, generation.start):
                yield generation, start, stop

    def minutes(self, pool: JobPool) -> float | None:
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

    def manifests(self, checkpoint: str, benchmark: str) -> list[Path]:
        """Current manifests of a cell."""
        return [self.current_manifest(pool) for pool in self.pools(checkpoint, benchmark)]

    def current_manifest(self, pool: JobPool) -> Path:
        """The manifest that stands for the store as it is.

        The highest fill round on disk when everything it covers is present and nothing is newer; otherwise the next
        round, which does not exist yet, so that a run makes it. No side effects.
        """
        latest = max((fill for name, fill in self._manifest_names(pool) if name == pool.name), default=-1)
        if latest >= 0 and self._is_current(self.layout.manifest(*pool.key, latest), pool):
            return self.layout.manifest(*pool.key, latest)
        return self.layout.manifest(*pool.key, latest + 1)

    def _manifest_names(self, pool: JobPool) -> Iterator[tuple[str, int]]:
        """Pool and fill round of every manifest of a cell."""
        folder = self.layout.manifest(*pool.key).parent
        return filter(None, map(parse_manifest, folder.iterdir())) if folder.is_dir() else iter(())

    def _is_current(self, manifest: Path, pool: JobPool) -> bool:
        written = manifest.stat().st_mtime_ns
        for generation in pool.generations:
            shards = shards_of(self.folder(pool.checkpoint, pool.benchmark, generation.id))
            if uncovered(shards, generation.samples, generation.start):
                return False
            used = [shard for shard in shards if shard.stop > generation.start and shard.start < generation.samples]
            if any(shard.present and shard.path.stat().st_mtime_ns > written for shard in used):
                return False
        return True

    def is_scored(self, checkpoint: str, benchmark: str) -> bool:
        """Whether all samples of a cell are there, and none is newer than its scores."""
        scores, manifests = self.scores(checkpoint, benchmark), self.manifests(checkpoint, benchmark)
        if not all(path.exists() for path in (scores, *manifests)):
            return False
        return all(path.stat().st_mtime_ns <= scores.stat().st_mtime_ns for path in manifests)

    # ---- before a run

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

    def _check_recorded(self, checkpoint: str, benchmark: str) -> None:
        path = self.scores(checkpoint, benchmark)
        sidecar = readouts_sidecar(path)
        step = "delete them" if self.config["study"]["sample"] == "all" else f"add {benchmark} to study.sample"
        hint = f"{step}, so that it is sampled here, or record it anew (searchlens record)"
        if not path.exists() or not sidecar.exists():
            raise InputError(f"compact readouts {path} (with their .json) are missing", hint)
        found = read_json(sidecar)
        for name, metric in declared("metric", drawn=True).items():
            if metric.is_extension:
                raise InputError(
                    f"metric {name!r} is drawn, but the compact readouts {path} do not hold it",
                    f"add {benchmark} to study.sample, so that it is sampled here, or declare the metric without drawn",
                )
        for key, value in self.readouts_from(checkpoint, benchmark).items():
            if found.get(key) != value:
                other = _DRAWN_FROM.get(key, key)
                raise InputError(f"compact readouts {path} are of other {other} than the configured ones", hint)

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

    def refusals(self) -> list[str]:
        """Why cells of the study are refused when it is run (``require_ready``), each reason once."""
        reasons: dict[str, None] = {}
        for cell in self.cells:
            try:
                self.require_ready(*cell)
            except InputError as error:
                reasons[error.message] = None
        return list(reasons)

    def placeholders(self) -> list[str]:
        """What of the study stands in for weights or questions that are not known here: its ids are nobody's."""
        cells = [(c, b) for c, b in self.cells if self.generations(c, b)]
        sources = dict.fromkeys(self.checkpoint_source(checkpoint) for checkpoint, _ in cells)
        unpinned = [f"not pinned: {source}" for source in sources if source and not self.lock.get(source)]
        return unpinned + [absent for b in dict.fromkeys(b for _, b in cells) if (absent := self.absent(b))]


_DRAWN_FROM = {"streams": "policies, samples or seeds", "reading": "budgets or landscape options"}
