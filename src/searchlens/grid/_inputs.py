"""What is sampled from: questions and weights, where they lie, and the hashes they are known by."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from searchlens import benchmarks
from searchlens.errors import InputError
from searchlens.grid import pins
from searchlens.grid._study import StudyGrid
from searchlens.store.hashing import fingerprint, weight_files

FINGERPRINT_LIMIT = 256 * 2**20
"""Bytes of weights beyond which a fingerprint is not computed at planning time."""


class Inputs(StudyGrid):
    """Questions and weights of a study."""

    def __init__(self, config: Mapping[str, Any], root: Path = Path()) -> None:
        super().__init__(config, root)
        self._questions: dict[str, tuple[benchmarks.Question, ...]] = {}
        self._absent: dict[str, str] = {}
        self._content: dict[str, str] = {}
        self._asked: dict[str, str] = {}
        self._fingerprints: dict[str, str] = {}

    @cached_property
    def lock(self) -> pins.Lock:
        """What ``hub`` names stand for."""
        return pins.Lock.read(self.root / self.config["lock"])

    def sources(self, *, everything: bool = False) -> list[pins.Source]:
        """Every hub repository that this study samples from, or that the whole configuration names; each once."""
        checkpoints, asked = self.config["checkpoints"], self.config["benchmarks"]
        if not everything:
            cells = [(c, b) for c, b in self.cells if c in checkpoints and b in asked and self.is_sampled(c, b)]
            checkpoints, asked = dict.fromkeys(c for c, _ in cells), dict.fromkeys(b for _, b in cells)
        found = [source for name in checkpoints if (source := self.checkpoint_source(name))]
        return list(dict.fromkeys([*found, *(source for name in asked for source in self.dataset_sources(name))]))

    # ---- questions

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
        return [pins.dataset(split, spec["revision"]) for split in benchmarks.known_benchmark(spec["family"]).splits]

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
        hash_of = pins.Hashes(self.layout.hashes)
        return [pins.check(source, self.lock[source], hash_of) for source in self.dataset_sources(name)]

    def absent(self, name: str) -> str:
        """Why the questions of a known benchmark cannot be read here; empty where they can.

        A study with such a benchmark can be planned, with a placeholder for the questions; running it is refused
        (``require_ready``).
        """
        if name not in self._absent:
            self._absent[name] = self._why_absent(name)
        return self._absent[name]

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
        return int(spec["questions"] or next(iter(benchmarks.known_benchmark(spec["family"]).sizes), 0))

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

    # ---- weights

    def checkpoint_source(self, checkpoint: str) -> pins.Source | None:
        """The hub repository of a checkpoint; None for a folder."""
        spec = self.config["checkpoints"][checkpoint]
        return pins.checkpoint(spec["hub"], spec["revision"]) if spec["hub"] else None

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
        source, hash_of = self.checkpoint_source(checkpoint), pins.Hashes(self.layout.hashes)
        if source is not None:
            return pins.check(source, self.lock[source], hash_of)
        folder, declared = self.checkpoint_folder(checkpoint), self.config["checkpoints"][checkpoint]["sha256"]
        if declared and (found := fingerprint(folder, hash_of)) != declared:
            raise InputError(
                f"checkpoint {folder} has fingerprint {found[:12]}…, the configuration declares {declared[:12]}…",
                f"restore the files, or update checkpoints.{checkpoint}.sha256 if the change is meant",
            )
        return folder

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
