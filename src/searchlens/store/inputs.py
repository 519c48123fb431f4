"""Files that users name: read only if they are files, because a pipe never ends, and neither does a device.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import stat
from pathlib import Path

from searchlens.errors import InputError

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}

_ENCODINGS = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"\x1f\x8b": "a file compressed by gzip",
    b"\x28\xb5\x2f\xfd": "a file compressed by zstd",
    b"PK": "a zip archive",
    b"PAR1": "a Parquet file",
    b"\x89PNG": "an image",
    b"%PDF": "a PDF file",
}
"""What a file seems to be that is not text in UTF-8, by its first bytes."""


def require_no_stream(path: Path) -> Path:
    """The path, unless a pipe, a socket or a device is there; what is not there is left to who reads it.

    Raises
    ------
    InputError
        It is one of these.
    """
    try:
        kind = _KINDS.get(stat.S_IFMT(path.stat().st_mode))
    except (OSError, ValueError):  # not there, no name that a file can have
        return path
    if kind:
        raise InputError(f"cannot read {path}: it is {kind}", "name a file; a pipe's content can be saved in one")
    return path


def not_utf8(path: Path, error: UnicodeDecodeError) -> InputError:
    """The error about a file that is not text in UTF-8: where, and what it seems to be."""
    content = bytes(error.object)
    seems = next((f"; it seems to be {name}" for magic, name in _ENCODINGS.items() if content.startswith(magic)), "")
    place = f"byte {error.start + 1} is {error.object[error.start]:#x}"
    return InputError(f"{path} is not text in UTF-8: {place}{seems}", "save it as UTF-8")
