"""How a record is read from plain JSON types that were checked before."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def record(kind: Any, value: Any) -> Any:
    """A value of a type: a record or a mapping of a mapping, a tuple of a list, anything else as it is."""
    kinds: tuple[Any, ...] = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if isinstance(value, list | tuple):
        of = next((get_args(each)[0] for each in kinds if get_origin(each) is tuple), None)
        return value if of is None else tuple(record(of, content) for content in value)
    if not isinstance(value, Mapping):
        return value
    for each in (each for each in kinds if hasattr(each, "__dataclass_fields__")):
        hints = _hints(each)
        return each(**{key: record(hints[key], content) for key, content in value.items() if key in hints})
    of = next((get_args(each)[1] for each in kinds if get_origin(each) is Mapping), None)
    return value if of is None else {key: record(of, content) for key, content in value.items()}
