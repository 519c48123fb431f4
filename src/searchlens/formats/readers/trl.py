"""Completions that TRL logs while it trains: a Parquet table for each logged step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from searchlens.catalogue import reader
from searchlens.formats.readers.fields import Prompts, Right, last_asked, numbers_in, parts_of
from searchlens.formats.readers.folders import candidates
from searchlens.formats.readers.logged import LoggedSample, Notes, Stream
from searchlens.store.parquet import columns_of, rows

_COLUMNS = ("step", "prompt", "completion")


@reader(
    "trl",
    title="completions logged by TRL (Parquet)",
    versions="TRL f2cd5771 (2026-07-24)",
    ran=False,
    wishes=("right",),
)
class TrlReader:
    """Folders ``completions`` of TRL's trainers.

    Each step is another model, and so another stream. A table is a window that the next one may share rows with: rows
    that the file before it has are left out. A question is known by its prompt alone.
    """

    def files(self, path: Path) -> list[Path]:
        """Tables: the path itself, or all of them in a folder and below it."""
        return candidates(path, r"completions_.+\.parquet", lambda file: set(_COLUMNS) <= set(columns_of(file)))

    def read(self, files: Sequence[Path], wishes: Mapping[str, str], notes: Notes) -> Iterator[LoggedSample]:
        """The samples, step by step; refuses a table without the number that ``right`` names."""
        right = Right(wishes.get("right"))
        before: dict[bytes, int] = {}
        for path in sorted(files, key=lambda path: (str(path.parent), _step(path), path.name)):
            shared, before = before, {}
            prompts, streams = Prompts(), dict[Any, Stream]()
            for place, row in rows(path, columns_of(path)):
                notes.at(place, row)
                name = _digest(row)
                before[name] = before.get(name, 0) + 1
                if shared.get(name, 0):
                    shared[name] -= 1
                    notes.add("a row that the table before it has was left out", place)
                    continue
                step = row["step"]
                stream = streams.setdefault(step, Stream(f"step {step}", path.parent.parent.name, {}, "TRL"))
                document, sample = prompts.next(last_asked(row["prompt"]) or "", None)
                yield LoggedSample(
                    stream=stream,
                    document=document,
                    sample=sample,
                    text=_text(row["completion"]),
                    place=place,
                    verdicts=right.verdicts(row, None, place),
                    numbers=numbers_in(row, _COLUMNS),
                )


def _step(path: Path) -> int:
    match = re.search(r"(\d+)\.parquet$", path.name)
    return int(match[1]) if match else 0


def _digest(row: dict[str, Any]) -> bytes:
    """What tells a row from others; its step is that of writing, and no part of it."""
    content = repr([value for key, value in row.items() if key != "step"])
    return blake2b(content.encode(errors="surrogatepass"), digest_size=16).digest()


def _text(completion: Any) -> str:
    """A completion, or the messages of the model in it."""
    if isinstance(completion, str):
        return completion
    said = [message for message in completion or () if message.get("role") == "assistant"]
    return "".join(parts_of(message.get("content"))[1] for message in said)
