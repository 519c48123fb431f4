"""The types of keys of the configuration, and how strictly a configuration is read into its records.

Each section is a frozen dataclass with a docstring below each field. The JSON schema and ``config/README.md`` take
names, types, limits, defaults and descriptions from there. Limits are checked when YAML files are read
(``searchlens.config.check``), not when an object is made.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from searchlens import errors


class Limit:
    """What a value must be besides its type, in the words of pydantic: ``ge``, ``gt``, ``le``, ``lt``, ``pattern`` or
    ``min_length``.
    """

    def __init__(self, **words: float | str) -> None:
        vars(self).update(words)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        return {**handler(source), **vars(self)}


Name = Annotated[str, Limit(pattern=f"^{errors.NAME}$")]
Sha256 = Annotated[str, Limit(pattern=r"^[0-9a-f]{64}$")]
Repository = Annotated[str, Limit(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")]
Positive = Annotated[int, Limit(ge=1, le=10_000_000)]
Natural = Annotated[int, Limit(ge=0, le=10_000_000)]
Small = Annotated[int, Limit(ge=1, le=10_000)]
"""Such as layers, GPUs, or repetitions of which each takes time."""
Seed = Annotated[int, Limit(ge=0, le=2**63 - 1)]
Draws = Annotated[int, Limit(ge=100, le=100_000)]
Proportion = Annotated[float, Limit(ge=0, le=1)]
Confidence = Annotated[float, Limit(gt=0, lt=1)]
Nonnegative = Annotated[float, Limit(ge=0, le=1e6)]
Exponent = Annotated[float, Limit(ge=0, le=10)]
Quantity = Annotated[float, Limit(ge=0.001, le=1e15)]
"""Something above 0 that is counted or measured, such as parameters, tokens per second or minutes."""

Tokens = Annotated[float, Limit(ge=0.001, le=10_000_000)]

QInstructions = Literal["first_sample", "verdict_majority"]
"""Which votes count as equal where no answer can be extracted: used in grading, set in section ``landscape``."""

PART_ROWS = 1_000_000
"""Most samples that a landscape reads together, unless one policy has more: about half a gigabyte."""


class Strict:
    """A section: unknown keys, wrong types and numbers that are not finite are errors, docstrings descriptions."""

    __slots__ = ()
    __pydantic_config__ = {"extra": "forbid", "strict": True, "allow_inf_nan": False, "use_attribute_docstrings": True}


_hints = cache(get_type_hints)


def record(kind: Any, value: Any) -> Any:
    """A value of a type, of plain JSON types that were checked before.

    A record or a mapping is made of a mapping, a tuple of a list, anything else is left as it is.
    """
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
