"""What the options of all stages share: the types of their fields, and how strictly a configuration is read into them.

A stage defines its options in a module ``options`` of its package, as a frozen dataclass with a docstring under each
field. The configuration, its JSON schema and ``config/README.md`` take names, types, limits, defaults and descriptions
from there. Limits are checked when a configuration is read, not when an object is made.

Standard library and ``annotated_types`` only, so that planning loads nothing heavy.
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

Positive = Annotated[int, Ge(1), Le(10_000_000)]
Natural = Annotated[int, Ge(0), Le(10_000_000)]
Small = Annotated[int, Ge(1), Le(10_000)]
"""Such as layers, GPUs, or repetitions of which each takes time."""
Seed = Annotated[int, Ge(0), Le(2**63 - 1)]
Draws = Annotated[int, Ge(100), Le(100_000)]
Proportion = Annotated[float, Ge(0), Le(1)]
Confidence = Annotated[float, Gt(0), Lt(1)]
Nonnegative = Annotated[float, Ge(0), Le(1e6)]
Exponent = Annotated[float, Ge(0), Le(10)]
Quantity = Annotated[float, Ge(0.001), Le(1e15)]
"""Something above 0 that is counted or measured, such as parameters, tokens per second or minutes."""

Tokens = Annotated[float, Ge(0.001), Le(10_000_000)]

QInstructions = Literal["first_sample", "verdict_majority"]
"""Which votes count as equal where no answer can be extracted: used in grading, set in section ``landscape``."""

PART_ROWS = 1_000_000
"""Most samples that a landscape reads together, unless one policy has more: about half a gigabyte."""

STRICT = {"extra": "forbid", "strict": True, "allow_inf_nan": False, "use_attribute_docstrings": True}
"""``__pydantic_config__`` of every options class: unknown keys, wrong types and numbers that are not finite are errors,
docstrings descriptions."""
