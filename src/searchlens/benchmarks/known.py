"""Known benchmarks: those that circulate, with their source, licence, size, and place on the Hugging Face hub.

Also loads the questions of a benchmark from its files, with the checks that they are the known ones.

Digests of their golds notice a file with another gold, although no row of a benchmark is kept here.
``golds/<family>.txt``, next to the file that declares the family, has one line per known wording of a question: 8
hexadecimal digits for the wording, 4 for the wording with its gold, and for a further wording of a question the 8 of
its first one. Of a million unknown texts one is taken for one of 3,000 wordings, and of 65,536 wrong golds one for the
right one. Several wordings of a question circulate; the gold of an unknown wording is not checked, and it is named.
``searchlens.benchmarks.digests`` writes these files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from searchlens import catalogue
from searchlens.benchmarks import files
from searchlens.benchmarks.files import SUFFIXES
from searchlens.benchmarks.questions import BenchmarkFile, Question, Row, plain
from searchlens.errors import InputError, counted, unknown

if TYPE_CHECKING:
    from searchlens.config.boptr import Regime


OWN = "jsonl"
"""The family of the project's own format, which is not a known benchmark."""


@dataclass(frozen=True, slots=True)
class HubSplit:
    """One split of a dataset on the Hugging Face hub."""

    id: str
    """``owner/name``."""
    split: str = "test"
    config: str = ""
    """Empty for a dataset that has one configuration only."""
    gated: bool = False
    """Its terms have to be accepted on the hub. Such a dataset is not downloaded, it is read from the user's file."""


@dataclass(frozen=True, slots=True)
class KnownBenchmark:
    """A known benchmark: the options of ``catalogue.family``, which decorates the function that reads its rows."""

    name: str
    """Also starts the ids of its questions."""
    file: Path
    """The source file that declares it."""
    title: str
    grader: str
    """Name of the grader that is meant for it."""
    licence: str
    """As the source states it; it does not settle the rights in contest problems."""
    regime: Regime
    """g(d) of BOPTR, as the paper assigns it; of other benchmarks, and unless it says otherwise, by the grader."""
    hub: str = ""
    split: str = "test"
    config: str = ""
    gated: bool = False
    """``hub``, ``split``, ``config``, ``gated``: as in ``HubSplit``; an empty ``hub`` means that the hub does not have
    it."""
    sizes: Mapping[int, str] = field(default_factory=dict)
    """Number of rows to the source that has as many; empty if no size is known."""
    parts: tuple[str, ...] = ()
    """Benchmarks that make up this one, one file each, in this order."""
    shuffled: bool = False
    """Questions are ordered by their hashes, so that the first N of a large set are a fair sample whatever the order of
    its file. Ids still count the rows of the file."""
    repeats: bool = False
    """Published files hold some questions more than once. Of other benchmarks a file with a repeated question is
    refused."""

    @property
    def splits(self) -> list[HubSplit]:
        """Its place on the hub: one split for each of its parts, or one; none if the hub does not have it."""
        if self.parts:
            return [split for part in self.parts for split in known_benchmark(part).splits]
        return [HubSplit(self.hub, self.split, self.config, self.gated)] if self.hub else []

    @property
    def terms(self) -> str:
        """Why its rows are not to be shown in plain text; empty if they may be."""
        is_gated = self.gated or any(split.gated for split in self.splits)
        return f"{self.title} is gated ({self.licence})" if is_gated else ""


def family_names() -> tuple[str, ...]:
    """Names of all families: the project's own format, then the known benchmarks."""
    return OWN, *catalogue.declared("family")


def known_benchmarks() -> dict[str, KnownBenchmark]:
    """All known benchmarks by name, in the order in which they are listed."""
    return {name: _known(declaration) for name, declaration in catalogue.declared("family").items()}


def known_benchmark(family: str) -> KnownBenchmark:
    """The known benchmark of a name. Raises InputError if it is unknown; the message lists all families."""
    declarations = catalogue.declared("family")
    if family not in declarations:
        raise InputError(f"benchmark family {unknown(family, family_names())}")
    return _known(declarations[family])


def _known(declaration: catalogue.Declaration) -> KnownBenchmark:
    options = {"regime": regime_of(declaration.options.get("grader", "")), **declaration.options}
    try:
        return KnownBenchmark(declaration.name, declaration.path, **options)
    except TypeError as error:
        what = str(error).replace("KnownBenchmark.__init__()", "its decorator")
        raise InputError(f"benchmark family {declaration.name!r} of {declaration.path}: {what}") from None


def regime_of(grader: str) -> Regime:
    """The regime of a benchmark that states none: whether its grader is mathematical."""
    return "math" if grader in catalogue.declared("grader", mathematical=True) else "nonmath"


class GoldCheck(NamedTuple):
    """Result of comparing questions and golds with the known ones."""

    known: int
    """Number of rows whose wording is known."""
    unknown: list[int]
    """Positions, from 0, of the other rows; empty if no wording of the family is known."""
    wrong: list[int]
    """Positions of the rows with a known wording and another gold."""
    repeated: list[tuple[int, int]]
    """Positions of the rows with the question of an earlier row, in the same or another known wording, each with the
    position of the earlier one."""
    absent: int
    """Number of known questions that no row asks."""
    asked: int
    """Number of different questions of the rows."""


WORDING, GOLD = 8, 4
"""Hexadecimal digits of a wording, and of a wording with its gold."""
_SIZES = (WORDING, GOLD, WORDING)


def line_of(wording: str, answer: str) -> tuple[str, str]:
    """The two digests of a question and its gold."""
    letters = plain(wording)
    both = letters + "\0" + "".join(answer.split())
    first, second = (hashlib.sha256(text.encode()).hexdigest() for text in (letters, both))
    return first[:WORDING], second[:GOLD]


def golds_file(benchmark: KnownBenchmark) -> Path:
    """File of the digests of a benchmark; it need not exist."""
    return benchmark.file.parent / "golds" / f"{benchmark.name}.txt"


@dataclass
class Known:
    """What is known of one wording: digests of it with a right gold, and the digest of its question's first wording."""

    question: str
    golds: set[str] = field(default_factory=set)


def known_golds(family: str) -> dict[str, Known]:
    """Digest of each known wording to what is known of it; empty if no golds are known."""
    golds: dict[str, Known] = {}
    for part in known_benchmark(family).parts or (family,):
        path = golds_file(known_benchmark(part))
        for line in path.read_text().splitlines() if path.exists() else ():
            wording, gold, *first = (digits[:size] for digits, size in zip(line.split(), _SIZES, strict=False))
            golds.setdefault(wording, Known(first[0] if first else wording)).golds.add(gold)
    return golds


def check(family: str, rows: Sequence[Row]) -> GoldCheck:
    """Compare rows with the known questions and golds."""
    golds = known_golds(family)
    digests = [line_of(row.wording, row.answer) for row in rows]
    known = [(position, digest) for position, digest in enumerate(digests) if digest[0] in golds]
    unknown = [position for position, (wording, _) in enumerate(digests) if golds and wording not in golds]
    wrong = [position for position, (wording, gold) in known if gold not in golds[wording].golds]
    asked = [golds[wording].question if wording in golds else wording for wording, _ in digests]
    first: dict[str, int] = {}
    earlier = [first.setdefault(question, position) for position, question in enumerate(asked)]
    repeated = [(position, place) for position, place in enumerate(earlier) if place != position]
    absent = {each.question for each in golds.values()} - set(asked)
    return GoldCheck(len(known), unknown, wrong, repeated, len(absent), len(set(asked)))


# ---- loading


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


def read(
    paths: Sequence[Path],
    family: str = OWN,
    *,
    expected_sha256: str | None = None,
    limit: int | None = None,
    check: bool = True,
) -> LoadedBenchmark:
    """Read the questions of a benchmark: of files, or folders with files as on the hub, one after another.

    ``expected_sha256`` is that of the bytes of all files, one after another, before they were compressed (``.gz``).
    ``check``: refuse a known benchmark that has another number of rows or other golds than are known, or a question
    twice. Raises InputError if a file is missing or has another hash, its layout is unknown, rows are wrong, the check
    fails, or there are fewer questions than ``limit``.
    """
    whole = _read(paths, family, expected_sha256, check)
    if limit is None:
        return whole
    if not 1 <= limit <= len(whole.questions):
        raise InputError(
            f"{_joined(paths)} has {counted(len(whole.questions), 'question')}, {limit} are asked for",
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
            f"benchmark file {_joined(paths)} changed: its sha256 is {sha256} ({counted(count, 'row')}), expected"
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
        raise InputError(f"{shown} has {counted(count, 'question')}; {known.title} has {sizes}", hint)
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
