"""Benchmarks: questions with what decides whether an answer to them is right.

A file is of the project's own format (family ``jsonl``) or of a known benchmark (``searchlens.benchmarks.families``) in
any of the formats and field names with which it circulates. Importing this costs the standard library alone, because
the planner does it many times; a Parquet file costs pyarrow when it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchlens.benchmarks.families import FAMILIES, READERS, Hub
from searchlens.errors import InputError

if TYPE_CHECKING:
    from searchlens.benchmarks.rows import Row

OWN = "jsonl"
"""The family of the project's own format."""

KNOWN = (OWN, *FAMILIES)
"""All families."""


@dataclass(frozen=True, slots=True)
class Question:
    """One item of a benchmark.

    Attributes
    ----------
    id : str
        Unique within the benchmark.
    text : str
        What is asked, without any prompt template.
    gold : str
        The right answer; empty when ``checks`` decide instead.
    checks : mapping or None
        Name of a check to its parameters, for graders that run checks on the text.
    tags : mapping
        Free, for people: level, subject.
    """

    id: str
    text: str
    gold: str
    checks: Mapping[str, Any] | None = None
    tags: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What was read.

    Attributes
    ----------
    questions : tuple of Question
    rows : int
        Rows of the files, those without a gold included.
    source : str
        Who is known to have so many rows; empty when nobody is.
    checked : int
        Questions whose gold was compared with the known one.
    """

    questions: tuple[Question, ...]
    rows: int
    source: str = ""
    checked: int = 0


def splits(family: str) -> list[Hub]:
    """Where a known benchmark lies on the hub: one split for each of its parts."""
    parts = FAMILIES[family].parts or (family,)
    return [hub for part in parts if (hub := FAMILIES[part].hub) is not None]


def known_family(family: str) -> None:
    """Refuse an unknown family with an ``InputError`` that lists the known ones."""
    if family not in KNOWN:
        raise InputError(f"benchmark family {family!r} is unknown; known: {', '.join(sorted(KNOWN))}")


def load(
    path: Path | Sequence[Path],
    *,
    expected_sha256: str | None = None,
    limit: int | None = None,
    family: str = OWN,
    check: bool = True,
) -> tuple[Question, ...]:
    """Read the questions of a benchmark.

    Parameters
    ----------
    path : Path or sequence of Path
        Files, or folders with files as on the hub, one after another.
    expected_sha256 : str, optional
        64 hexadecimal digits: of the files' bytes, one after another.
    limit : int, optional
        Keep the first so many questions, >= 1.
    family : str
        One of ``KNOWN``.
    check : bool
        Refuse a known benchmark with another number of rows, or other golds, than are known.

    Raises
    ------
    InputError
        A file is missing or not what was declared, its layout is unknown, a row is wrong (all rows are reported), the
        check fails, or there are fewer questions than ``limit``.
    """
    paths = [path] if isinstance(path, Path) else list(path)
    questions = read(paths, family, expected_sha256=expected_sha256, check=check).questions
    if limit is not None and not 1 <= limit <= len(questions):
        raise InputError(
            f"{_shown(paths)} has {len(questions)} questions, {limit} are asked for", "lower `questions`, or drop it"
        )
    return questions[:limit]


def read(
    paths: Sequence[Path], family: str = OWN, *, expected_sha256: str | None = None, check: bool = True
) -> Benchmark:
    """``load`` with what was found on the way."""
    known_family(family)
    parts = _parts(paths, family)
    content = [(part, file, _content(file)) for part, path in parts for file in files_at(path, part)]
    if expected_sha256 is not None:
        _check_hash(_shown(paths), [each for _, _, each in content], expected_sha256)
    if family == OWN:
        from searchlens.benchmarks import jsonl

        if len(content) != 1:
            raise InputError(f"{_shown(paths)}: the family jsonl is one file, found {len(content)}")
        questions = jsonl.read(*content[0][1:])
        return Benchmark(questions, len(questions))
    rows, found = _rows(content)
    source = FAMILIES[family].sizes.get(rows, "")
    checked = _check(_shown(paths), family, rows, found) if check else 0
    return Benchmark(tuple(row.question for row in found), rows, source, checked)


def read_rows(paths: Sequence[Path], family: str) -> list[Row]:
    """Rows of a known benchmark, unchecked."""
    return _rows([(part, f, _content(f)) for part, path in _parts(paths, family) for f in files_at(path, part)])[1]


def _shown(paths: Sequence[Path]) -> str:
    return " + ".join(str(path) for path in paths)


def _parts(paths: Sequence[Path], family: str) -> list[tuple[str, Path]]:
    """Which family each path is of: a part of its own where there are as many paths as parts."""
    parts = FAMILIES[family].parts if family in FAMILIES else ()
    names = parts if len(paths) == len(parts) else [family] * len(paths)
    return list(zip(names, paths, strict=True))


def files_at(path: Path, family: str) -> list[Path]:
    """The file itself, or the files of a folder that hold the family's split.

    Raises
    ------
    InputError
        The folder has none.
    """
    if not path.is_dir():
        return [path]
    from searchlens.benchmarks.hub import select

    hub = FAMILIES[family].hub if family in FAMILIES else None
    if hub is None:
        raise InputError(f"benchmark path {path} is a folder", f"name the file of the family {family}")
    try:
        return [path / name for name in select((str(p.relative_to(path).as_posix()) for p in path.rglob("*")), hub)]
    except InputError as error:
        raise InputError(f"{path}: {error.message}", error.hint) from None


def _rows(content: Sequence[tuple[str, Path, bytes]]) -> tuple[int, list[Row]]:
    """Number of rows of some files, and those with a gold; ids count within the files of one family."""
    from searchlens.benchmarks import files

    start = dict.fromkeys((part for part, _, _ in content), 0)
    found: list[Row] = []
    for part, file, each in content:
        family = FAMILIES[part]
        raw = files.rows(file, each)
        found += import_module(READERS[family.kind]).read(file, raw, family, start[part])
        start[part] += len(raw)
    if all(FAMILIES[part].shuffled for part in start):
        found.sort(key=lambda row: hashlib.sha256(row.wording.encode()).digest())
    return sum(start.values()), found


def _check(shown: str, family: str, rows: int, found: Sequence[Row]) -> int:
    from searchlens.benchmarks import digests

    known, hint = FAMILIES[family], "to use it as it is, set `check: false` for this benchmark"
    if known.sizes and rows not in known.sizes:
        sizes = "; ".join(f"{size} ({source})" for size, source in known.sizes.items())
        raise InputError(f"{shown} has {rows} questions; {known.title} has {sizes}", hint)
    checked = digests.check(family, found)
    if checked.wrong:
        named = [f"question {i + 1} ({found[i].question.id}): gold {found[i].question.gold!r}" for i in checked.wrong]
        what = "is not the known one" if len(named) == 1 else "are not the known ones"
        lines = "\n".join(f"  {line}" for line in named[:10])
        more = f"\n  … and {len(named) - 10} more" if len(named) > 10 else ""
        raise InputError(
            f"{shown}: {len(named)} of {checked.known} golds {what}:\n{lines}{more}", f"correct the file; or, {hint}"
        )
    return checked.known


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read benchmark file {path}: {error.strerror}") from None


def _check_hash(shown: str, content: Sequence[bytes], expected: str) -> None:
    whole = hashlib.sha256()
    for each in content:
        whole.update(each)
    if whole.hexdigest() != expected:
        lines = sum(1 for each in content for line in each.splitlines() if line.strip())
        raise InputError(
            f"benchmark file {shown} changed: its sha256 is {whole.hexdigest()} ({lines} rows), expected {expected}",
            "restore the file; or, if the change is meant, declare the new sha256 (nothing sampled so far is lost, "
            "and questions that changed are sampled anew)",
        )


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_hash(questions: Iterable[Question]) -> str:
    """sha256 over everything in the questions, in their order, whatever the layout of the file they came from."""
    return hashlib.sha256(_canonical([asdict(question) for question in questions]).encode()).hexdigest()


def asked_hash(questions: Iterable[Question]) -> str:
    """sha256 over ids and texts alone: what decides the samples. A corrected gold does not change it."""
    return hashlib.sha256(_canonical([[question.id, question.text] for question in questions]).encode()).hexdigest()


def checks_text(question: Question) -> str:
    """The checks as canonical JSON; empty when there are none."""
    return _canonical(question.checks) if question.checks else ""


def dumps(questions: Iterable[Question]) -> str:
    """The questions as text of the family ``jsonl``; reading it back gives equal questions."""
    return "".join(json.dumps(_row(question), ensure_ascii=False) + "\n" for question in questions)


def _row(question: Question) -> dict[str, Any]:
    row: dict[str, Any] = {"id": question.id, "question": question.text, "gold": question.gold}
    if question.checks is not None:
        row["checks"] = question.checks
    if question.tags:
        row["tags"] = question.tags
    return row
