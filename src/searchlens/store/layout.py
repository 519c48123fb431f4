"""The path of everything that a study writes: no other module spells a path under the results folder.

A method takes the names that a path is made of and returns a ``Path``. With ``"{checkpoint}"`` in place of a name it
returns the pattern of a workflow rule, and with ``"*"`` the pattern of a search (``Layout.every``).

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partialmethod
from pathlib import Path

from searchlens.errors import InputError

LOGS = Path("logs")
"""Logs of the workflow, in the folder in which it runs."""

SIGNATURE = "provenance.json"
"""Provenance of the files of a folder that one job makes together."""

GRADER = "grader.json"
"""The grader of a cell, in the folder of its landscape."""

CONTENT = "content.json"
"""Hashes of the frames of a landscape or recovery: what the jobs that read them depend on, one file instead of all."""

READOUTS_SUFFIX = ".arrow.xz"

DERIVED = ("verdicts", "scores", "agreement", "landscape", "recovery", "measures", "likelihood", "boptr")
"""Folders of Parquet files that are computed from samples."""

POOL_PATTERN = r"pool-[0-9a-f]{8}"
_MANIFEST = re.compile(rf"({POOL_PATTERN})(?:\.r(\d+))?\.json")
_SHARD = re.compile(r"s(\d{5,})-(\d{5,})\.json")
_RSYNC = re.compile(r"\.s\d+-\d+\.(parquet|json)\.\w{6}")
_CHUNK = re.compile(r"s(\d+)-(\d+)\.q(\d+)-(\d+)\.chunk")


class _At:
    """A path under the results folder without names in it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __get__(self, layout: Layout, _: type[Layout]) -> Path:
        return layout.results / self.path


@dataclass(frozen=True)
class Layout:
    """Paths under one results folder."""

    results: Path

    def _under(self, pattern: str, *names: str) -> Path:
        """The path of a pattern with names in it."""
        return self.results / (pattern % names)

    # ---- samples

    generations = _At("generations")
    """Folder with all samples; temporary files of an import are in it, too."""
    generation = partialmethod(_under, "generations/%s/%s/%s")
    """Of checkpoint, benchmark and id: folder with the shards of one stream of samples."""
    job_record = partialmethod(_under, "jobs/%s/%s/%s.json")
    """Of checkpoint, benchmark and pool: state of the last sampling job of a pool."""
    traces = partialmethod(_under, "traces/%s/%s/%s")
    """Of checkpoint, benchmark and id: folder with the records of searches of one stream; their files have the names of
    its shards."""
    import_record = partialmethod(_under, "imports/%s/%s/%s/%s.json")
    """Of benchmark, pair, role and policy: registry file of one imported policy."""
    imported_questions = partialmethod(_under, "imports/%s/questions.jsonl")
    """Of a benchmark: its questions that came with imported samples."""
    recorded = partialmethod(_under, "recorded/%s/%s/%s.parquet")
    """Of checkpoint, benchmark and id: what the scorers of another harness said of imported samples."""
    compared = partialmethod(_under, "recorded/%s/%s.parquet")
    """Of checkpoint and benchmark: the recorded verdicts of a cell beside ours."""

    def manifest(self, checkpoint: str, benchmark: str, pool: str, fill: int = 0) -> Path:
        """List of the shards that a pool of generations consists of, after a number of repairs (fill rounds)."""
        return self._under("manifests/%s/%s/%s%s.json", checkpoint, benchmark, pool, f".r{fill}" if fill else "")

    def aside(self, time: str, path: Path) -> Path:
        """Where a file of the sample store, or a record of searches, is moved to, instead of being deleted."""
        above = self.generations if path.is_relative_to(self.generations) else self.results
        return self.results / "aside" / time / path.relative_to(above)

    def trace_of(self, shard: Path) -> Path:
        """The record of the searches that drew a shard."""
        return self.results / "traces" / shard.relative_to(self.generations)

    # ---- analysis

    scores = partialmethod(_under, "scores/%s/%s.parquet")
    """Of checkpoint and benchmark: graded samples of a cell."""
    agreement = partialmethod(_under, "agreement/%s/%s.parquet")
    """Of checkpoint and benchmark: samples of a cell that were judged by two graders."""
    verdicts = partialmethod(_under, "verdicts/%s")
    """Of a benchmark: folder with the verdicts on all answers to it that were graded so far."""
    landscapes = _At("landscape")
    """Folder with the landscapes of all cells."""
    landscape = partialmethod(_under, "landscape/%s/%s")
    """Of checkpoint and benchmark: folder with the landscape of a cell."""
    landscape_frame = partialmethod(_under, "landscape/%s/%s/%s.parquet")
    """One frame of a landscape (``catalogue.LANDSCAPE_FRAMES``)."""
    recovery = partialmethod(_under, "recovery/%s/%s")
    """Of pair and benchmark: folder with the recovery analysis."""
    recovery_frame = partialmethod(_under, "recovery/%s/%s/%s.parquet")
    """One frame of a recovery analysis."""
    measures = _At("measures")
    """Folder with the frames of measures of all samples."""
    measures_frame = partialmethod(_under, "measures/%s.parquet")
    """One frame of measures."""
    likelihood = partialmethod(_under, "likelihood/%s/%s")
    """Of pair and benchmark: folder with the cross-likelihoods."""
    likelihood_frame = partialmethod(_under, "likelihood/%s/%s/%s.parquet")
    """One frame of cross-likelihoods (``catalogue.LIKELIHOOD_FRAMES``)."""
    boptr = _At("boptr")
    """Folder with the frames of BOPTR."""
    boptr_frame = partialmethod(_under, "boptr/%s.parquet")
    """One frame of BOPTR."""

    # ---- for people

    explorer = _At("explorer.html")
    """The page that shows the study."""
    report = _At("report.html")
    """Figures and tables with their captions."""
    headline = _At("headline.html")
    """What the study says in words, for the first page of the report."""
    table = partialmethod(_under, "tables/%s.%s")
    """Of name and suffix: one table as ``csv``, ``md`` or ``tex``, or ``json`` for its provenance."""
    figure = partialmethod(_under, "figures/%s/%s/%s.%s")
    """Of pair, benchmark, name and suffix: one figure."""
    study_figure = partialmethod(_under, "figures/%s.%s")
    """Of name and suffix: one figure of the whole study."""
    boptr_figure = partialmethod(_under, "figures/boptr/%s.%s")
    """Of name and suffix: one figure of BOPTR."""

    def tables(self) -> list[Path]:
        """The data of every table that was made; of one that could not be, the file is empty."""
        return [path for path in self.every(self.table("*", "csv")) if path.stat().st_size]

    # ---- about a run

    snapshot = partialmethod(_under, "config/%s.json")
    """The configuration of a run, by its fingerprint."""
    hashes = _At("hashes")
    """Folder with the sha256 of large files, so that each is read once."""

    def failures(self, *names: str) -> Path:
        """Records of what could not be made: a folder for each job, whose ``log`` has its names."""
        return self.results.joinpath("failed", *names)

    def timing(self, *names: str) -> Path:
        """Wall time and memory of one job, as Snakemake measures them."""
        return self.results.joinpath("benchmarks", *names[:-1], f"{names[-1]}.tsv")

    # ---- existing files

    def every(self, pattern: Path) -> list[Path]:
        """Existing paths that a path with ``"*"`` for names matches, sorted; a folder may be removed meanwhile."""
        found = [self.results]
        for part in pattern.relative_to(self.results).parts:
            found = [path for folder in found for path in _matching(folder, part)]
        return sorted(found)

    def _existing(self, pattern: str) -> list[Path]:
        """``every`` of a pattern under the results folder."""
        return self.every(self.results / pattern)

    sidecars = partialmethod(_existing, "generations/*/*/*/s*.json")
    """Sidecars of all shards."""
    shards = partialmethod(_existing, "generations/*/*/*/*.parquet")
    """Files of all shards, with a sidecar or without."""
    trace_files = partialmethod(_existing, "traces/*/*/*/*.parquet")
    """Records of searches of all streams, with a sidecar or without."""
    manifests = partialmethod(_existing, "manifests/*/*/pool-*.json")
    """Manifests of all pools, of every fill round."""
    import_records = partialmethod(_existing, "imports/*/*/*/*.json")
    """Registry files of all imported policies."""
    snapshots = partialmethod(_existing, "config/*.json")
    """Configurations of all runs."""

    def temporary(self) -> list[Path]:
        """Temporary files and folders of running or killed jobs, each folder without what is in it.

        Jobs write them beside what they make, so they can be anywhere. Samples may lie on another disk, by a link.
        """
        found = []
        for start in (self.results, *self.every(self.results / "*")):
            for folder, folders, names in os.walk(start):
                found += [Path(folder, name) for name in (*folders, *names) if _is_temporary(name)]
                is_done = start == self.results  # what is below is walked by itself
                folders[:] = [] if is_done else [name for name in folders if not _is_temporary(name)]
        return sorted(found)

    def latest_manifests(self) -> list[Path]:
        """The manifest of the highest fill round of every pool, whether it is current or not."""
        latest: dict[tuple[Path, str], tuple[int, Path]] = {}
        for path in self.manifests():
            if name := parse_manifest(path):
                pool, fill = (path.parent, name[0]), name[1]
                latest[pool] = max(latest.get(pool, (fill, path)), (fill, path))
        return sorted(path for _, path in latest.values())

    def derived(self) -> Iterator[Path]:
        """Every Parquet file that was computed from samples; only a folder that is not there is passed over."""

        def unless_absent(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error

        for folder in DERIVED:
            walked = os.walk(self.results / folder, onerror=unless_absent)
            yield from sorted(Path(at, name) for at, _, names in walked for name in names if name.endswith(".parquet"))

    def require_results(self) -> None:
        """InputError unless something was ever sampled, computed or configured here."""
        is_study = any((self.results / "config").glob("*.yaml"))
        if any((self.results / name).is_dir() for name in RESULTS_FOLDERS if name != "config" or not is_study):
            return
        found = f"it has none of {', '.join(RESULTS_FOLDERS)}" if self.results.is_dir() else "it does not exist"
        hint = "`searchlens run` makes it"
        if is_study:
            found, hint = "it is the folder of a study", f"name its results, such as {self.results / 'results'}"
        raise InputError(f"{self.results} is not a results folder: {found}", hint)


def _matching(folder: Path, name: str) -> list[Path]:
    """What a folder has under a name, or under all that a name with ``"*"`` matches; an unreadable folder raises."""
    if "*" not in name:
        return [folder / name] if (folder / name).exists() else []
    try:
        return [path for path in folder.iterdir() if path.name[0] != "." and fnmatchcase(path.name, name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


RESULTS_FOLDERS = ("generations", "manifests", "config", *DERIVED)
"""Every results folder has at least one of these folders."""


def landscape_folder(landscapes: Path, checkpoint: str, benchmark: str) -> Path:
    """Folder of one cell in a folder of landscapes, which need not belong to a study."""
    return landscapes / checkpoint / benchmark


# ---- names of files


def parse_manifest(path: Path) -> tuple[str, int] | None:
    """Pool and fill round of a manifest; None for any other file."""
    match = _MANIFEST.fullmatch(path.name)
    return (match[1], int(match[2] or 0)) if match else None


def shard_name(start: int, stop: int) -> str:
    """File name of the samples [start, stop) of a generation."""
    return f"s{start:05d}-{stop:05d}.parquet"


def parse_sidecar(path: Path) -> tuple[int, int] | None:
    """Range of samples that a sidecar describes; None for any other file."""
    match = _SHARD.fullmatch(path.name)
    return (int(match[1]), int(match[2])) if match else None


def parse_shard(path: Path) -> tuple[int, int] | None:
    """Range of samples of a shard; None for any other file."""
    return parse_sidecar(path.with_suffix(".json")) if path.suffix == ".parquet" else None


def chunk(generation: Path, samples: tuple[int, int], questions: tuple[int, int]) -> Path:
    """File of a finished part of a shard: a range of samples of a range of questions."""
    (start, stop), (first, last) = samples, questions
    return chunks(generation) / f"s{start:05d}-{stop:05d}.q{first:05d}-{last:05d}.chunk"


def chunk_trace(chunk: Path) -> Path:
    """Record of the searches that drew a finished part of a shard, until the shard is published."""
    return chunk.with_suffix(".trace")


def lease(chunk: Path, number: int) -> Path:
    """Says who samples a chunk, or did: after a process that died, the next one has the next number."""
    return chunk.with_suffix(f".lease{number}")


def chunks(generation: Path) -> Path:
    """Folder of the finished parts of a generation's shards."""
    return generation / "chunks"


def chunks_of(generation: Path, samples: tuple[int, int]) -> list[Path]:
    """Finished chunks of one shard, the records of their searches, and leases on them."""
    return [path for path in _in_chunks(generation) if path.name.startswith(f"s{samples[0]:05d}-{samples[1]:05d}.q")]


def chunk_samples(generation: Path) -> int:
    """Samples in the finished chunks of a generation."""
    matches = (_CHUNK.fullmatch(path.name) for path in _in_chunks(generation))
    ranges = (map(int, match.groups()) for match in matches if match)
    return sum((stop - start) * (last - first) for start, stop, first, last in ranges)


def _is_temporary(name: str) -> bool:
    """Whether ``store.files``, an import or rsync gives such names to what is not finished."""
    return name.startswith(".") and (name.endswith(".tmp") or _RSYNC.fullmatch(name) is not None)


def _in_chunks(generation: Path) -> list[Path]:
    """What is in the folder of chunks, which jobs remove as soon as it is empty."""
    try:
        return sorted(chunks(generation).iterdir())
    except FileNotFoundError:
        return []


def recorded_counts(folder: Path, checkpoint: str, benchmark: str) -> Path:
    """Recorded counts of a cell, in a folder of them."""
    return folder / checkpoint / f"{benchmark}{READOUTS_SUFFIX}"


def counts_sidecar(path: Path) -> Path:
    """JSON file that says what recorded counts were drawn from."""
    return path.with_name(path.name.removesuffix(READOUTS_SUFFIX) + ".json")


def log(*names: str) -> Path:
    """Log of one job of the workflow."""
    return LOGS.joinpath(*names[:-1], f"{names[-1]}.log")
