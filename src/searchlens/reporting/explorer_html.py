"""The page, and the page with its data inside: as much of a study as a size allows, and what was left out, in words."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

import polars as pl

from searchlens import catalogue
from searchlens.api.study import Study
from searchlens.errors import InputError
from searchlens.reporting import explorer_files
from searchlens.reporting.explorer_files import EXCERPTS, TELLING, Extent
from searchlens.reporting.explorer_index import (
    ANSWERS_FILE,
    EXCERPT_FILE,
    PIECES_FILE,
    PROMPTS_FILE,
    QUESTIONS_FILE,
    SCORED_FILE,
    Index,
    name_of,
    traces_of,
)
from searchlens.reporting.explorer_sentences import if_here
from searchlens.store import files
from searchlens.store.frames import DAMAGED

PAGE = Path(__file__).parent / "explorer.html.gz"
"""Made of ``web/`` by `make web`, and kept in the repository, so that nobody needs node to use it."""
PLACE = "<!-- searchlens:data -->"
"""The line of the page in whose place its data stand."""
BY_RANGES = '<meta name="searchlens-source" content="range">'


def read_page(path: Path = PAGE) -> str:
    """The page without data; an ``InputError`` if it is not there, or has no place for data."""
    if not path.exists():
        raise InputError(f"{path} does not exist", "`make web` makes it, in a checkout with node")
    content = path.read_bytes()
    page = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    if page.count(PLACE) != 1:
        raise InputError(f"{path} has {page.count(PLACE)} lines {PLACE}; it must have one", "run `make web` again")
    return page


def element(name: str, content: bytes) -> str:
    """A file as an element of the page; in base64 nothing can close it."""
    data = base64.b64encode(content).decode("ascii")
    return f'<script type="application/octet-stream" data-path="{escape(name)}">{data}</script>'


def element_size(name: str, size: int) -> int:
    """Bytes of the element, and the end of its line, of a file of so many bytes."""
    return len(element(name, b"").encode()) + 4 * ((size + 2) // 3) + 1


# ---- with its data

SIZE = 15_000_000
"""Bytes of the page, unless another size is asked for."""

Contents = dict[str, bytes]
TextCell = tuple[str, str, tuple[int, ...]]
"""Checkpoint, benchmark, and the questions of an excerpt."""


@dataclass(frozen=True)
class Inlined:
    """The page with its data."""

    html: str
    left_out: Sequence[str]
    """Sentences on what it does not have."""


@dataclass(frozen=True)
class Group:
    """Files that are in the page together or not at all."""

    title: str
    """For the sentence that says that they were left out."""
    contents: Contents
    kind: str = ""
    """Groups of one kind, in the plural, are named in one sentence; empty: in a sentence of its own."""

    @property
    def size(self) -> int:
        """Bytes in the page."""
        return sum(element_size(name, len(content)) for name, content in self.contents.items())


def explorer_page(study: Study, size: int = SIZE, template: Path = PAGE) -> Inlined:
    """The page of a study, of at most ``size`` bytes; an ``InputError`` if not even the index fits.

    First come the numbers, by their importance, then samples: the widest excerpt (``EXCERPTS``) that fits.
    """
    return _Builder(study, size, read_page(template)).built()


@dataclass(frozen=True)
class _Builder:
    study: Study
    size: int
    template: str

    def built(self) -> Inlined:
        questions, sentences = self._questions()
        left_out = [*explorer_files.withheld(self.study), *sentences]
        contents: Contents = {}
        everything = Index(self.study, lambda _: True, by_ranges=False, left_out=left_out).made()
        most = element_size("index.json", len(json.dumps(everything, default=str)) + 4096)
        room = self.size - len(self.template.encode()) - most
        if room < 0:
            raise InputError(
                f"--size {self.size:,} bytes: the page and its index take {self.size - room:,} without any data",
                f"allow at least {2 * (self.size - room):,}",
            )
        cells = list(self._with_texts())
        reserve = room // 3 if cells else 0
        """Of every study some texts are to be read, so numbers do not get all the room."""
        without = []
        for group in self._groups(questions):
            # pairs may share a checkpoint
            new = replace(group, contents={name: file for name, file in group.contents.items() if name not in contents})
            if new.size <= room - reserve:
                contents |= new.contents
                room -= new.size
            else:
                without.append(new)
        left_out += _not_fitting(without)
        samples, sentences = self._samples(cells, room)
        contents |= samples
        left_out += sentences
        made = Index(self.study, contents.__contains__, by_ranges=False, left_out=left_out).made()
        index = json.dumps(made, ensure_ascii=False, separators=(",", ":"), default=str).encode()
        elements = (element(name, content) for name, content in {"index.json": index, **contents}.items())
        # the policy of the page needs no server then
        page = self.template.replace("; connect-src 'self'", "").replace(PLACE, "\n".join(elements))
        return Inlined(page, left_out)

    # ---- numbers

    def _groups(self, questions: Contents) -> Iterator[Group]:
        """Everything but samples, the most important first."""
        study, layout = self.study, self.study.layout
        pairs = [(pair, benchmark) for pair, benchmark, *_ in study.sides]
        cells = list(dict.fromkeys((side, benchmark) for _, benchmark, *both in study.sides for side in both))
        yield self._group("Recovery", (layout.recovery_frame(*cell, frame) for cell in pairs for frame in _RECOVERY))
        yield from self._by_cell("points")
        yield self._group("Measures of all samples", map(layout.measures_frame, catalogue.MEASURE_FRAMES))
        yield self._group("Bounds of Base's chance", (layout.likelihood_frame(*cell, "bounds") for cell in pairs))
        yield Group("Questions", questions)
        yield self._group("BOPTR", map(layout.boptr_frame, catalogue.boptr_frames()))
        tables = sorted(layout.tables(), key=lambda path: path.stat().st_size)
        small = [path for path in tables if path.stat().st_size < _SMALL]
        yield from (self._group(path.stem.replace("_", " "), [path], "tables") for path in small)
        for checkpoint, benchmark in cells:
            if not study.withheld(benchmark):
                records = traces_of(study, if_here(study.shards, checkpoint, benchmark) or {})
                kind = f"recorded searches of {checkpoint} on {benchmark}"
                yield self._group(kind, (path for paths in records.values() for path in paths), "records of searches")
        yield from self._by_cell("classes")
        yield from self._by_cell("hits")
        yield from (self._group(path.stem.replace("_", " "), [path], "tables") for path in tables[len(small) :])
        others = [frame for frame in catalogue.RECOVERY_FRAMES if frame not in _RECOVERY]
        yield self._group("Coordinates", (layout.recovery_frame(*cell, frame) for cell in pairs for frame in others))
        yield self._group("Votes", (layout.landscape_frame(*cell, "votes") for cell in cells))

    def _by_cell(self, frame: str) -> Iterator[Group]:
        """A frame of both landscapes of each cell, so that the first cells are whole where not all fit."""
        for pair, benchmark, base, rl in self.study.sides:
            paths = (self.study.layout.landscape_frame(side, benchmark, frame) for side in (base, rl))
            yield self._group(f"{pair} on {benchmark}", paths, _LANDSCAPE[frame])

    def _group(self, title: str, paths: Iterable[Path], kind: str = "") -> Group:
        return Group(title, {name_of(self.study, path): path.read_bytes() for path in paths if path.exists()}, kind)

    def _questions(self) -> tuple[Contents, list[str]]:
        """The questions of every benchmark, and sentences on those that are not here."""
        contents: Contents = {}
        absent = {}
        for benchmark, spec in self.study.benchmarks.items():
            if not self.study.withheld(benchmark):
                try:
                    found = explorer_files.questions(self.study.questions(benchmark))
                    contents[QUESTIONS_FILE.format(benchmark)] = explorer_files.parquet(found)
                except InputError as error:
                    absent[spec.title or benchmark] = error.message.splitlines()[0]
        why = next(iter(absent.values()), "")
        return contents, [f"Questions of {', '.join(absent)}: {why}."] if absent else []

    # ---- samples

    def _samples(self, cells: Sequence[TextCell], room: int) -> tuple[Contents, list[str]]:
        """The widest excerpt that fits, and sentences on what it leaves out."""
        if not cells:
            return {}, []
        sizes = {cell: _row_sizes(self.study, *cell[:2]) for cell in cells}
        for extents in EXCERPTS:
            if self._estimate(cells, sizes, extents) > 1.5 * room:
                continue
            contents, sentences = self._excerpt(cells, extents)
            if Group("", contents).size <= room:
                words = "; then ".join(map(str, extents))
                return contents, [
                    f"Samples beyond an excerpt: {words}; `searchlens view` shows all of them.",
                    *sentences,
                ]
        return {}, ["All samples, because the page has a bound on its size; `searchlens view` shows them."]

    def _with_texts(self) -> Iterator[TextCell]:
        """(checkpoint, benchmark, questions) of each cell that has texts to show."""
        chosen: dict[tuple[str, str], dict[int, None]] = {}
        for _, benchmark, base, rl in self.study.sides:
            if self.study.withheld(benchmark):
                continue
            asked = if_here(explorer_files.telling, self.study, benchmark, base, rl, TELLING)
            for checkpoint in (base, rl):
                if asked and self.study.source(checkpoint, benchmark) != "recorded":
                    chosen.setdefault((checkpoint, benchmark), {}).update(dict.fromkeys(asked))
        for (checkpoint, benchmark), questions in chosen.items():
            yield checkpoint, benchmark, tuple(questions)

    def _estimate(
        self, cells: Iterable[TextCell], sizes: Mapping[TextCell, tuple[float, float]], extents: Sequence[Extent]
    ) -> float:
        """Bytes that an excerpt would take in the page, by the sizes of rows in the shards."""
        total = 0.0
        for cell in cells:
            for extent, questions in _parts(cell, extents):
                policies = len(self.study.streams(*cell[:2])) if extent.every_policy else 1
                total += len(questions) * policies * extent.samples * sizes[cell][0 if extent.tokens else 1]
        return total * 4 / 3

    def _excerpt(self, cells: Iterable[TextCell], extents: Sequence[Extent]) -> tuple[Contents, list[str]]:
        """An excerpt, and sentences on the cells whose texts are not here."""
        contents: Contents = {}
        sentences = []
        used: dict[str, set[int]] = {}
        excerpts: dict[tuple[str, str], pl.DataFrame] = {}
        for cell in cells:
            checkpoint, benchmark, _ = cell
            parts = _parts(cell, extents)
            try:
                drawn = [explorer_files.drawn(self.study, checkpoint, benchmark, asked, each) for each, asked in parts]
                recorded = explorer_files.recorded_verdicts(self.study, checkpoint, benchmark)
            except InputError as error:
                sentences.append(f"Samples of {checkpoint} on {benchmark}: {error.message.splitlines()[0]}.")
                continue
            asked = sorted(question for _, questions in parts for question in questions)
            if sent := explorer_files.prompts(self.study, checkpoint, benchmark, asked):
                contents[PROMPTS_FILE.format(checkpoint, benchmark, "")] = sent
            chosen = pl.concat(
                explorer_files.excerpt(rows, each, recorded) for rows, (each, _) in zip(drawn, parts, strict=True)
            )
            answers = pl.concat(map(explorer_files.answers, drawn))
            excerpts[checkpoint, benchmark] = chosen
            contents[EXCERPT_FILE.format(checkpoint, benchmark)] = explorer_files.parquet(chosen)
            contents[ANSWERS_FILE.format(checkpoint, benchmark, "")] = explorer_files.parquet(answers)
            used.setdefault(checkpoint, set()).update(chosen["tokens"].explode().drop_nulls().unique().to_list())
        for checkpoint, tokens in used.items():
            found = explorer_files.pieces(self.study, checkpoint, tokens) if tokens else None
            if found is not None:
                contents[PIECES_FILE.format(checkpoint)] = found
        scored, damaged = self._scored(excerpts)
        return contents | scored, sentences + damaged

    def _scored(self, excerpts: Mapping[tuple[str, str], pl.DataFrame]) -> tuple[Contents, list[str]]:
        """What both sides of each pair say of the tokens of excerpts, and sentences on files that cannot be read."""
        contents: Contents = {}
        sentences = []
        for pair, benchmark, base, rl in self.study.sides:
            names = {"base": base, "rl": rl}
            shown = {side: excerpts[name, benchmark] for side, name in names.items() if (name, benchmark) in excerpts}
            try:
                found = explorer_files.scored(self.study, pair, benchmark, shown) if shown else None
            except InputError as error:
                sentences.append(f"Scored tokens of {pair} on {benchmark}: {error.message.splitlines()[0]}.")
                continue
            if found is not None:
                contents[SCORED_FILE.format(pair, benchmark)] = explorer_files.parquet(found)
        return contents, sentences


def _parts(cell: TextCell, extents: Sequence[Extent]) -> list[tuple[Extent, list[int]]]:
    """Each part of an excerpt with its questions of a cell, those without any left out."""
    starts = [0, *(each.questions or 0 for each in extents)]
    found = [(each, list(cell[2][start : each.questions])) for each, start in zip(extents, starts, strict=False)]
    return [part for part in found if part[1]]


_RECOVERY = ("support", "same_policy", "counts", "path", "near_match")
_LANDSCAPE = {
    "points": "cells without operating points",
    "classes": "cells without counts of answers",
    "hits": "cells without questions at operating points",
}
"""Frame of a landscape to what is said of cells that the page has it not of."""
_NAMED = 20
"""Names in a sentence."""
_SMALL = 100_000
"""Bytes of a table that is of more use than questions at operating points."""


def _row_sizes(study: Study, checkpoint: str, benchmark: str) -> tuple[float, float]:
    """Bytes of one sample in a shard, with the lists of tokens and without; 0 if there is none that can be read."""
    shards = [shard for parts in (if_here(study.shards, checkpoint, benchmark) or {}).values() for shard in parts]
    if not shards:
        return 0.0, 0.0
    rows = sum(shard.sidecar["rows"] for shard in shards)
    whole = sum(shard.sidecar["bytes"] for shard in shards) / max(1, rows)
    try:
        first = pl.read_parquet(files.read_bytes(shards[0].path), columns=["text"], n_rows=512)
    except DAMAGED:
        return 0.0, 0.0  # the excerpt says so
    return whole, len(explorer_files.parquet(first)) / max(1, first.height)


def _not_fitting(groups: Sequence[Group]) -> Iterator[str]:
    """Sentences on what the size leaves out: one for all groups of a kind."""
    by_kind: dict[str, list[Group]] = {}
    for group in groups:
        by_kind.setdefault(group.kind or group.title, []).append(group)
    for kind, each in by_kind.items():
        total = sum(group.size for group in each)
        size = f"{total / 1e6:.1f} MB" if total >= 1e5 else f"{total / 1e3:.0f} kB"
        names = ", ".join([group.title for group in each[:_NAMED]] + ["…"] * (len(each) > _NAMED))
        what = f"{kind} ({size})" if each[0].title == kind else f"{len(each)} {kind} ({size}): {names}"
        yield f"For the bound on the size: {what}."
