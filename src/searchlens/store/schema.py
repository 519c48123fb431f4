"""Schemas of frames in short."""

from collections.abc import Mapping

import polars as pl

_TYPES: dict[str, pl.DataType] = {
    "str": pl.String(),
    "bool": pl.Boolean(),
    "i32": pl.Int32(),
    "i64": pl.Int64(),
    "u32": pl.UInt32(),
    "f32": pl.Float32(),
    "f64": pl.Float64(),
}


def schema(columns: str, before: Mapping[str, pl.DataType] | None = None) -> pl.Schema:
    """The schema of a frame, whose first columns may be those of another one; lists have an s behind their type.

    >>> schema("question,run:u32 tokens:i32s")
    Schema({'question': UInt32, 'run': UInt32, 'tokens': List(Int32)})
    """
    types = dict(before or {})
    for names, _, kind in (part.partition(":") for part in columns.split()):
        of_one = _TYPES[kind.removesuffix("s")]
        types |= dict.fromkeys(names.split(","), pl.List(of_one) if kind.endswith("s") else of_one)
    return pl.Schema(types)
