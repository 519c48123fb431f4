"""Opens files of samples, compressed or not, as told by their first bytes and not by their names."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow as pa

from searchlens.errors import InputError
from searchlens.store.inputs import Unpacked, require_no_stream

Kind = Literal["gzip", "zstd", "zip", "parquet", "utf-16", "text"]

_MAGIC: dict[bytes, Kind] = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"PAR1": "parquet",
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "utf-16"),
}
_UNPACKED: dict[str, Callable[[str], Any]] = {
    "gzip": gzip.open,
    "zstd": lambda path: pa.CompressedInputStream(pa.OSFile(os.fsencode(path)), "zstd"),
    "utf-16": lambda path: pa.transcoding_input_stream(pa.OSFile(os.fsencode(path)), "utf-16", "utf-8"),
}


def kind(path: Path) -> Kind:
    """What a file is, by its first bytes; an ``InputError`` if it cannot be read."""
    try:
        with require_no_stream(path).open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "text")


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed while they are read; text in UTF-16 with its mark becomes UTF-8. An
    ``InputError`` if it cannot be read, or its compressed content ends early or is damaged.
    """
    unpack = _UNPACKED.get(kind(path))
    try:
        if unpack is None:
            with path.open("rb") as file:
                yield file
        else:
            with unpack(str(path)) as stream:
                yield io.BufferedReader(Unpacked(path, stream.read), 1 << 20)
    except (EOFError, zlib.error, pa.ArrowException, UnicodeDecodeError, OSError) as error:
        reason = getattr(error, "strerror", None)  # of the system; not of gzip and Arrow, where a stream ends early
        if reason:
            raise InputError(f"cannot read {path}: {reason}", "nothing was imported") from None
        raise InputError(f"{path} is damaged: {error}", "copy it again; nothing was imported") from None
