"""Loading the questions of a benchmark from its files, with the checks that they are the known ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from searchlens import catalogue
from searchlens.benchmarks import files
from searchlens.benchmarks.files import SUFFIXES
from searchlens.benchmarks.known import OWN, HubSplit, check, known_benchmark
from searchlens.benchmarks.questions import BenchmarkFile, Question, Row
from searchlens.errors import InputError


@dataclass(frozen=True, slots=True)
class LoadedBenchmark:
    """Questions with the results of the checks."""

    questions: tuple[Question, ...]
    rows: int
    """Rows of the files, including those without a gold."""
    source: str = ""
    """The source that is known to have this number of rows; empty if there is none."""
    checked: int = 0
    """Number of questions whose gold was compared with the known one."""
    unknown: tuple[int, ...] = ()
    """Positions, from 0, of the questions whose wording is not known, so that nothing was compared; empty without the
    check, and for a family of which no wording is known."""

    @property
    def notice(self) -> str:
        """Which questions have a wording that is not known; empty if none has."""
        if not self.unknown:
            return ""
        named = _listed([f"question {place + 1} ({self.questions[place].id})" for place in self.unknown])
        what = "have wordings that are not known, so that their golds are"
        if len(self.unknown) == 1:
            what = "has a wording that is not known, so that its gold is"
        return f"{len(self.unknown)} of {len(self.questions)} questions {what} not checked: {named}"


@dataclass(frozen=True, slots=True)
class _Content:
    """Bytes of a file, and the family that its rows belong to."""

    family: str
    path: Path
    content: bytes


def load(
    path: Path | Sequence[Path],
    *,
    expected_sha256: str | None = None,
    limit: int | None = None,
    family: str = OWN,
    check: bool = True,
) -> tuple[Question, ...]:
    """Read the questions of a benchmark: of files, or folders with files as on the hub, one after another.

    ``expected_sha256`` is that of the bytes of all files, one after another, before they were compressed (``.gz``).
    ``check``: refuse a known benchmark that has another number of rows or other golds than are known, or a question
    twice. Raises InputError if a file is missing or has another hash, its layout is unknown, rows are wrong, the check
    fails, or there are fewer questions than ``limit``.
    """
    paths = [path] if isinstance(path, Path) else list(path)
    return read(paths, family, expected_sha256=expected_sha256, limit=limit, check=check).questions


def read(
    paths: Sequence[Path],
    family: str = OWN,
    *,
    expected_sha256: str | None = None,
    limit: int | None = None,
    check: bool = True,
) -> LoadedBenchmark:
    """``load`` with the results of the checks."""
    whole = _read(paths, family, expected_sha256, check)
    if limit is None:
        return whole
    if not 1 <= limit <= len(whole.questions):
        raise InputError(
            f"{_joined(paths)} has {len(whole.questions)} questions, {limit} are asked for",
            "lower `questions`, or drop it",
        )
    unknown = tuple(place for place in whole.unknown if place < limit)
    return replace(whole, questions=whole.questions[:limit], unknown=unknown)


def _read(paths: Sequence[Path], family: str, expected_sha256: str | None, check: bool) -> LoadedBenchmark:
    contents = _contents(paths, family)
    sha256 = hashlib.sha256(b"".join(each.content for each in contents)).hexdigest()
    if expected_sha256 not in (None, sha256):
        count = sum(1 for each in contents for line in each.content.splitlines() if line.strip())
        raise InputError(
            f"benchmark file {_joined(paths)} changed: its sha256 is {sha256} ({count} rows), expected"
            f" {expected_sha256}",
            "restore the file; or, if the change is meant, declare the new sha256 (nothing sampled so far is lost, "
            "and questions that changed are sampled again)",
        )
    if family == OWN:
        if len(contents) != 1:
            raise InputError(f"{_joined(paths)}: the family {OWN} is one file, found {len(contents)}")
        questions = files.questions(contents[0].path, contents[0].content)
        return LoadedBenchmark(questions, len(questions))
    count, rows = _rows(contents)
    checked, unknown = _check(_joined(paths), family, count, rows) if check else (0, [])
    source = known_benchmark(family).sizes.get(count, "")
    return LoadedBenchmark(tuple(row.question for row in rows), count, source, checked, tuple(unknown))


def read_rows(paths: Sequence[Path], family: str) -> list[Row]:
    """Rows of a known benchmark, without checks."""
    return _rows(_contents(paths, family))[1]


def files_at(path: Path, family: str) -> list[Path]:
    """The file itself, or the files of a folder that hold the family's split; InputError if there are none."""
    if not path.is_dir():
        return [path]
    splits = known_benchmark(family).splits if family != OWN else []
    if len(splits) != 1:
        raise InputError(f"benchmark path {path} is a folder", f"name the file of the family {family}")
    try:
        names = select((entry.relative_to(path).as_posix() for entry in path.rglob("*")), splits[0])
    except InputError as error:
        raise InputError(f"{path}: {error.message}", error.hint) from None
    return [path / name for name in names]


def _contents(paths: Sequence[Path], family: str) -> list[_Content]:
    """All files; with as many paths as the benchmark has parts, each path is a part."""
    parts = known_benchmark(family).parts if family != OWN else ()
    names = parts if len(paths) == len(parts) else [family] * len(paths)
    return [
        _Content(name, file, files.read_bytes(file))
        for name, path in zip(names, paths, strict=True)
        for file in files_at(path, name)
    ]


def _rows(contents: Sequence[_Content]) -> tuple[int, list[Row]]:
    """Number of rows of the files, and the rows that have a gold. Ids count over all files of a family."""
    counts = dict.fromkeys((each.family for each in contents), 0)
    rows: list[Row] = []
    for each in contents:
        raw = files.rows(each.path, each.content)
        rows += catalogue.find("family", each.family)(BenchmarkFile(each.path, raw, each.family, counts[each.family]))
        counts[each.family] += len(raw)
    if all(known_benchmark(family).shuffled for family in counts):
        rows.sort(key=lambda row: hashlib.sha256(row.wording.encode()).digest())
    return sum(counts.values()), rows


def _check(shown: str, family: str, count: int, rows: Sequence[Row]) -> tuple[int, list[int]]:
    """Number of golds compared, and positions of rows in unknown wordings; InputError for a wrong gold or number."""
    known, hint = known_benchmark(family), "to use it as it is, set `check: false` for this benchmark"
    if known.sizes and count not in known.sizes:
        sizes = "; ".join(f"{size} ({source})" for size, source in known.sizes.items())
        raise InputError(f"{shown} has {count} questions; {known.title} has {sizes}", hint)
    golds = check(family, rows)
    if golds.repeated and not known.repeats:
        named = [f"question {i + 1} repeats question {j + 1} ({rows[j].question.id})" for i, j in golds.repeated]
        raise InputError(f"{shown}: {_listed(named)}; every question of {known.title} is there once", hint)
    whole = len(rows) >= golds.asked + golds.absent  # fewer rows are a part of the benchmark, such as one fold
    if known.repeats and golds.known == len(rows) and whole and golds.absent:
        raise InputError(f"{shown}: {golds.absent} questions of {known.title} are missing, and others repeat", hint)
    if golds.wrong:
        named = [f"question {i + 1} ({rows[i].question.id}): gold {rows[i].question.gold!r}" for i in golds.wrong]
        what = "is not the known one" if len(named) == 1 else "are not the known ones"
        lines = "\n".join(f"  {line}" for line in named[:10])
        more = f"\n  … and {len(named) - 10} more" if len(named) > 10 else ""
        raise InputError(
            f"{shown}: {len(named)} of {golds.known} golds {what}:\n{lines}{more}", f"correct the file; or, {hint}"
        )
    return golds.known, golds.unknown


def _listed(lines: Sequence[str]) -> str:
    """The first three, and how many more there are."""
    return ", ".join(lines[:3]) + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")


def _joined(paths: Sequence[Path]) -> str:
    return " + ".join(str(path) for path in paths)


SPLITS = ("train", "test", "validation", "val", "dev")


def select(names: Iterable[str], split: HubSplit) -> list[str]:
    """The files that hold a split, sorted, of paths relative to the repository, with ``/``.

    The configuration and the split are words in the path of a file. Files that name no split are the training split. If
    the split is there in several formats, the first of ``SUFFIXES`` is used. Raises InputError if no file holds it.
    """
    data = sorted(
        name
        for name in names
        if (path := PurePosixPath(name)).suffix in SUFFIXES
        and not any(part.startswith(".") for part in path.parts)
        and not path.name.startswith("dataset_info")
    )
    configured = [name for name in data if split.config and _has_word(name, split.config)] or data
    with_split = [name for name in configured if any(_has_word(name, word) for word in SPLITS)]
    files = [name for name in with_split if _has_word(name, split.split)] or ([] if with_split else configured)
    for suffix in SUFFIXES:
        if same_format := [name for name in files if name.endswith(suffix)]:
            return same_format
    raise InputError(
        f"no file of split {split.split!r}{f' of {split.config}' if split.config else ''} among:"
        f" {', '.join(data) or '(no data files)'}",
        f"{split.id} on the hub has it; or name the file itself as path",
    )


def _has_word(name: str, word: str) -> bool:
    return re.search(rf"(?:^|[/_.-]){re.escape(word)}(?:$|[/_.-])", name) is not None
