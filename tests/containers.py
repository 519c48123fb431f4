"""Damaged containers of every kind: each is read as before, or refused in one line that names the file.

    make fuzz-containers                          # all of them; the last line is JSON with the counts
    python tests/containers.py --step 400         # at every 400th byte
    python tests/containers.py --only eval --show # those of one kind, with what was said

A container is a file whose bytes are not its text: gzip, Zstandard, zip, Parquet, xz, Arrow. At every 20th byte a bit
is flipped, the file is cut, or a byte is put in. Where a checksum or a count covers the content, what is still read
must be what was read before: never less, without a word.
"""

import argparse
import gzip
import io
import json
import lzma
import os
import resource
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import rooms  # noqa: F401  # before the tests
from reading import LOGS
from searchlens.benchmarks import files as benchmark_files
from searchlens.catalogue import declared
from searchlens.errors import InputError
from searchlens.formats.readers import inspect as inspect_reader
from searchlens.formats.reading import Choices
from searchlens.formats.reading import read as read_pools
from searchlens.store import recorded_counts
from test_readers_fuzz import FIXTURES

STEP = 20
MEMORY = 8 << 30
"""Bytes of address space: whoever asks for more gets a MemoryError, which counts as a traceback."""
LONGEST = 2.0
"""Seconds of processor time that one container may take."""
MESSAGE = 600
"""Letters of a message; two thirds of them may be names of the file."""

TABLES = ("lighteval", "trl")
"""Readers whose logs are Parquet."""

Read = Callable[[Path], list[Any]]


@dataclass(frozen=True)
class Container:
    """A sound container in a folder of its own: what holds it, what reads it, and what is made of the file.

    ``covered`` is what a checksum, or a count in a header, covers: all that is read (``content``), or how many rows
    (``count``). ``wrapped`` makes the file of the damaged bytes. ``names`` are words that a message may have in place
    of the file's name, where no checksum tells that a value is another.
    """

    kind: str
    name: str
    path: Path
    read: Read
    covered: str
    content: bytes
    wrapped: Callable[[bytes], bytes] = bytes
    names: tuple[str, ...] = ()


# ---- what reads


def imported(name: str) -> Read:
    """The samples of a log, as an import has them."""

    def read(path: Path) -> list[Any]:
        known = {"requests": str(path.parents[1] / "asked.jsonl"), "right": "acc >= 1"}
        wishes = {key: known[key] for key in declared("reader")[name].options["wishes"] if key in known}
        with read_pools([path], None, "math", Choices(wishes=wishes), needs_golds=False) as reading:
            asked = [(question.id, question.text, question.gold) for question in reading.questions]
            rows = [row for pool in reading.pools for part in pool.frames() for row in part.rows()]
            return [*asked, *rows]

    return read


def questions(path: Path) -> list[Any]:
    """The rows of the file of a benchmark."""
    return benchmark_files.rows(path, benchmark_files.read_bytes(path))


def recorded(path: Path) -> list[Any]:
    """The recorded counts of a cell."""
    return recorded_counts.read(path).rows()


# ---- containers


def packed_zstd(content: bytes) -> bytes:
    """A Zstandard frame, as Arrow writes it: without a checksum."""
    stream = pa.BufferOutputStream()
    with pa.CompressedOutputStream(stream, "zstd") as file:
        file.write(content)
    return bytes(stream.getvalue())


def packed_zip(content: dict[str, bytes], method: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, value in content.items():
            archive.writestr(name, value)
    return stream.getvalue()


def members(log: Path) -> dict[str, bytes]:
    """Content of all members of a log of Inspect."""
    with log.open("rb") as file:
        found = inspect_reader._members(log, file)
        return {n: inspect_reader._unpacked(n, file, i) for n, i in found.items()}


def parquet(rows: list[dict[str, Any]], **options: Any) -> bytes:
    """A Parquet file."""
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), stream, **options)
    return stream.getvalue()


def arrow(frame: pl.DataFrame) -> bytes:
    """An Arrow file, which is a Feather file of version 2, too."""
    stream = io.BytesIO()
    frame.write_ipc(stream, compression="uncompressed")
    return stream.getvalue()


ASKED = [{"id": f"q{i}", "question": f"Compute {i}+{i}.", "gold": str(2 * i), "tags": {}} for i in range(12)]


def compact() -> pl.DataFrame:
    """Recorded counts of two policies."""
    nothing = {name: [None] * 2 for name in recorded_counts.SCHEMA.names()}
    frame = pl.DataFrame(nothing, schema=recorded_counts.SCHEMA)
    return frame.with_columns(policy=pl.Series(["greedy", "temp_0.5"]), shards=pl.Series([["{}"], ["{}", "{}"]]))


def _lines(folder: Path) -> Iterator[Container]:
    """Logs in JSON, by gzip and by Zstandard; and a benchmark."""
    for suffix, pack, covered in ((".gz", _gzip, "content"), (".zst", packed_zstd, "count")):
        for name in sorted(FIXTURES.keys() - TABLES):
            place = folder / f"{name}{suffix}" / "logs"
            place.mkdir(parents=True)
            FIXTURES[name](place)
            plain = max(place.rglob("*.json*"), key=lambda file: (file.suffix, file.stat().st_size))
            content = pack(plain.read_bytes())
            plain.unlink()
            path = plain.with_name(plain.name + suffix)
            yield Container(suffix[1:], name, path, imported(name), covered, content)
    path = folder / "questions.jsonl.gz"
    rows = "".join(json.dumps(row) + "\n" for row in ASKED).encode()
    yield Container("gz", "benchmark", path, questions, "content", _gzip(rows))


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def _archives(folder: Path) -> Iterator[Container]:
    """Logs of Inspect, their members by Zstandard, by deflate and as they are."""
    source = LOGS / "inspect/draws.eval"
    contents = {"zstd": source.read_bytes()}
    for method, name in ((zipfile.ZIP_DEFLATED, "deflate"), (zipfile.ZIP_STORED, "stored")):
        contents[name] = packed_zip(members(source), method)
    for name, content in contents.items():
        yield Container("eval", name, folder / f"{name}.eval", imported("inspect"), "content", content)


def _tables(folder: Path) -> Iterator[Container]:
    """Parquet of logs and benchmarks, packed and not."""
    for name in TABLES:
        place = folder / name / "logs"
        place.mkdir(parents=True)
        FIXTURES[name](place)
        path = next(place.rglob("*.parquet"))
        yield Container("parquet", name, path, imported(name), "count", path.read_bytes())
    rows = [
        {"question": f"q{q}", "prompt": f"p{q}", "sample": s, "text": f"t{q}{s}", "gold": "1", "finish": "stop"}
        for q in range(6)
        for s in range(4)
    ]
    for packing in ("none", "snappy"):
        path = folder / f"own-{packing}.parquet"
        content = parquet(rows, compression=packing, row_group_size=8)
        yield Container("parquet", f"own, {packing}", path, imported("own"), "count", content, names=("question 'q",))
    asked = [{key: value for key, value in row.items() if key != "tags"} for row in ASKED]
    yield Container("parquet", "benchmark", folder / "asked.parquet", questions, "count", parquet(asked))


def _counts(folder: Path) -> Iterator[Container]:
    """Recorded counts: the xz stream, and the Arrow file in it."""
    plain = arrow(compact())
    yield Container("xz", "counts", folder / "cell.arrow.xz", recorded, "content", lzma.compress(plain))
    yield Container("arrow", "counts", folder / "inner.arrow.xz", recorded, "count", plain, lzma.compress)


def containers(folder: Path) -> Iterator[Container]:
    for number, make in enumerate((_lines, _archives, _tables, _counts)):
        place = folder / str(number)
        place.mkdir()
        yield from make(place)


# ---- damage


def damaged(content: bytes, step: int) -> Iterator[tuple[str, bytes]]:
    """The content with one thing wrong, at every ``step``-th byte."""
    for place in range(0, len(content), step):
        bit = 1 << (place // step % 8)
        flipped = bytes([content[place] ^ bit])
        yield f"bit {bit} of byte {place} flipped", content[:place] + flipped + content[place + 1 :]
        yield f"cut at byte {place}", content[:place]
        yield f"a byte put in at {place}", content[:place] + bytes([place % 251]) + content[place:]


@dataclass(frozen=True)
class Outcome:
    """What became of a damaged container: read or refused, and what is wrong with that."""

    what: str
    said: str
    problem: str


def outcome(container: Container, content: bytes, before: list[Any]) -> Outcome:
    """Read a damaged container."""
    container.path.write_bytes(container.wrapped(content))
    outcome.times += 1  # type: ignore[attr-defined]
    os.utime(container.path, ns=(outcome.times, outcome.times))  # type: ignore[attr-defined]  # for what is cached by it
    begin = time.process_time()
    try:
        found = container.read(container.path)
    except InputError as error:
        wrong = {
            "the file is not named": not any(name in error.message for name in (container.path.name, *container.names)),
            "several lines": "\n" in error.message,
            "long message": len(error.message) > MESSAGE,
            "slow": time.process_time() - begin > LONGEST,
        }
        return Outcome("refused", str(error), next((what for what, is_so in wrong.items() if is_so), ""))
    except BaseException as error:  # a panic of polars is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return Outcome("tracebacks", f"{type(error).__name__}: {error}", "traceback")
    same = {"content": found == before, "count": len(found) == len(before)}.get(container.covered, True)
    return Outcome("read", "", "" if same else f"{len(before)} rows were {len(found)}, or others")


outcome.times = 0  # type: ignore[attr-defined]


def run(folder: Path, step: int, only: str = "", *, show: bool = False) -> tuple[Counter[str], list[str]]:
    """Damage and read every container; counts, and what went wrong."""
    counts, problems = Counter[str](), []
    for container in containers(folder):
        container.path.write_bytes(container.wrapped(container.content))
        if only and only != container.kind:
            continue
        before = container.read(container.path)
        assert before
        own = Counter[str]()
        for what, content in damaged(container.content, step):
            found = outcome(container, content, before)
            own += Counter({"containers": 1, found.what: 1})
            if found.problem or show:
                line = (
                    f"{container.kind} of {container.name}, {what}: {found.problem or found.what}: {found.said[:400]}"
                )
                problems += [line] if found.problem else []
                print(line, flush=True) if show else None
        container.path.write_bytes(container.wrapped(container.content))
        print(f"{container.kind} of {container.name}: {dict(own)}", file=sys.stderr, flush=True)
        counts += own
    return counts, problems


def main() -> int:
    """Run, and print the counts as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--step", type=int, default=STEP, help=f"bytes between two places (default: {STEP})")
    parser.add_argument("--only", default="", help="a kind: gz, zst, eval, parquet, xz or arrow")
    parser.add_argument("--show", action="store_true", help="print every damage and what became of it")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        counts, problems = run(Path(folder), args.step, args.only, show=args.show)
    print("\n".join(problems))
    keys = ("containers", "tracebacks", "refused", "read")
    seconds = round(time.process_time())
    print(json.dumps({key: counts[key] for key in keys} | {"not as expected": len(problems), "cpu_seconds": seconds}))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
