"""Opens files of samples, compressed or not, as told by their first bytes and not by their names."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

import pyarrow as pa

from searchlens.errors import InputError
from searchlens.store.inputs import require_no_stream

Kind = Literal["gzip", "zstd", "zip", "parquet", "utf-16", "text"]

_MAGIC: dict[bytes, Kind] = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"PAR1": "parquet",
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "utf-16"),
}


def kind(path: Path) -> Kind:
    """What a file is, by its first bytes.

    Raises
    ------
    InputError
        The file cannot be read.
    """
    try:
        with require_no_stream(path).open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "text")


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed while they are read; text in UTF-16 with its mark becomes UTF-8.

    Raises
    ------
    InputError
        The file cannot be read, or its compressed content ends early or is damaged.
    """
    compression = kind(path)
    try:
        if compression == "gzip":
            with gzip.open(path) as file:
                yield io.BufferedReader(file)  # type: ignore[arg-type]
        elif compression == "zstd":
            with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
                yield io.BufferedReader(stream, 1 << 20)
        elif compression == "utf-16":
            with pa.transcoding_input_stream(pa.OSFile(str(path)), "utf-16", "utf-8") as stream:
                yield io.BufferedReader(stream, 1 << 20)
        else:
            with path.open("rb") as file:
                yield file
    except (EOFError, gzip.BadGzipFile, pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{path} is damaged: {error}", "copy it again; nothing was imported") from None
    except OSError as error:
        if error.strerror is None:  # of Arrow, which says so where a stream ends early
            raise InputError(f"{path} is damaged: {error}", "copy it again; nothing was imported") from None
        raise InputError(f"cannot read {path}: {error.strerror}", "nothing was imported") from None
