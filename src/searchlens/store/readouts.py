"""Compact readouts of a cell on disk: all that a study needs of its samples once they are graded.

An Arrow table in an xz stream, one row for each policy: ``landscape.COMPACT``, and what the policy's shards took, a
JSON text each. ``polars.read_ipc(lzma.open(path).read())`` reads it anywhere.
"""

from __future__ import annotations

import io
import json
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from searchlens.errors import InputError
from searchlens.schemas import COMPACT
from searchlens.store import files
from searchlens.store.hashing import canonical
from searchlens.store.layout import readouts_sidecar

_TOLD = (
    *("rows", "tokens", "generated", "requests", "prefilled", "reused", "mean_running", "wall_seconds", "gpu_seconds"),
    *("device", "device_count", "engine", "version", "commit", "config"),
)
"""Of a shard's sidecar: what samples took, and with what they were drawn."""

SCHEMA = pl.Schema({**COMPACT, "shards": pl.List(pl.String())})

Sidecars = Mapping[str, Iterable[Mapping[str, Any]]]
"""By policy."""


def write(kept: pl.DataFrame, sidecars: Sidecars, target: Path, drawn_from: Mapping[str, str]) -> None:
    """Publish the readouts of a cell.

    Parameters
    ----------
    kept : DataFrame
        What ``landscape.compact`` returned.
    sidecars : mapping
        Those of the shards behind each policy.
    target : Path
        ``layout.readouts``.
    drawn_from : mapping
        ``Grid.readouts_from``; written beside.
    """
    told = [[_short(sidecar) for sidecar in sidecars.get(name, ())] for name in kept["policy"]]
    frame = kept.with_columns(shards=pl.Series(told, dtype=SCHEMA["shards"]))
    stream = io.BytesIO()
    frame.write_ipc(stream, compression="uncompressed")
    packed = lzma.compress(stream.getvalue(), preset=9 | lzma.PRESET_EXTREME)

    def write_packed(path: Path) -> None:
        path.write_bytes(packed)

    files.replace(target, write_packed)
    files.replace_text(readouts_sidecar(target), json.dumps(drawn_from, indent=1) + "\n")


def _short(sidecar: Mapping[str, Any]) -> str:
    """The JSON text of a sidecar, times to the millisecond."""
    known = {key: sidecar[key] for key in _TOLD if key in sidecar}
    return canonical({key: round(value, 3) if isinstance(value, float) else value for key, value in known.items()})


def read(path: Path) -> pl.DataFrame:
    """The readouts of a cell.

    Returns
    -------
    DataFrame
        ``SCHEMA``.

    Raises
    ------
    InputError
        The file is damaged, or of another version.
    """
    try:
        frame = pl.read_ipc(lzma.decompress(path.read_bytes()))
    except (OSError, lzma.LZMAError, EOFError, pl.exceptions.PolarsError) as error:
        raise InputError(
            f"cannot read the compact readouts {path}: {error}", "delete them, or copy them again"
        ) from None
    if frame.schema != SCHEMA:
        raise InputError(f"compact readouts {path} are of another version of searchlens", "record them again")
    return frame


def sidecars(kept: pl.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """What is known of the shards behind each policy of ``read``; each shard stands once, at one of its policies."""
    rows = kept.select("policy", "shards").iter_rows()
    return {policy: [json.loads(text) for text in shards] for policy, shards in rows}
